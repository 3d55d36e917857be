"""The most similar features: the same as by sorting all products, however they are found."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from training.evaluation import search
from training.evaluation.search import largest, nearest


def test_neighbours_come_best_first_whatever_their_length():
    database = torch.tensor([[1.0, 0.0], [0.0, 5.0], [3.0, 3.0]])
    cosines, numbers = nearest(torch.tensor([[0.0, 2.0]]), database, 9)
    assert numbers.tolist() == [[1, 2, 0]]
    assert cosines[0, 0] == pytest.approx(1)


def test_features_that_do_not_fit_are_one_sentence():
    with pytest.raises(ValueError, match="Queries have 3 values, the database 2"):
        nearest(torch.ones(1, 3), torch.ones(3, 2), 1)
    with pytest.raises(ValueError, match="Features hold NaN or infinity"):
        nearest(torch.ones(1, 2), torch.full((3, 2), torch.inf), 1)


@settings(deadline=None)
@given(seed=st.integers(0, 9999), columns=st.integers(1, 400), levels=st.sampled_from([3, 10**6]))
def test_the_largest_are_those_of_a_whole_sort(seed: int, columns: int, levels: int):
    random = torch.Generator().manual_seed(seed)
    rows = torch.randint(levels, (3, columns), generator=random).float()
    count = int(torch.randint(1, columns + 1, (1,), generator=random))
    values, numbers = largest(rows, count)
    assert torch.equal(values, rows.sort(dim=1, descending=True).values[:, :count])
    assert torch.equal(values, rows.gather(1, numbers))
    assert all(len(set(row)) == count for row in numbers.tolist())


def heaped(count: int, random: torch.Generator) -> Tensor:
    """Three heaps, far apart, within which products in bfloat16 cannot tell features apart."""
    heaps = torch.randn(3, 48, generator=torch.Generator().manual_seed(0))
    return heaps[torch.arange(count) % 3] + 0.03 * torch.randn(count, 48, generator=random)


def wide(count: int, random: torch.Generator) -> Tensor:
    return torch.randn(count, 48, generator=random)


def twice(count: int, random: torch.Generator) -> Tensor:
    """Each feature twice, and some many times."""
    return torch.randn(count, 48, generator=random)[torch.arange(count) // 2 % (count // 3)]


def lonely(count: int, random: torch.Generator) -> Tensor:
    """Three are like nothing else: what they are compared with next is all behind the mean."""
    kinds = torch.eye(48)[(torch.arange(count) > 2).long()]
    return kinds + 1e-5 * torch.randn(count, 48, generator=random)


@pytest.mark.parametrize("drawn", [heaped, wide, twice, lonely])
@pytest.mark.parametrize("count", [1, 7])
def test_a_first_look_in_bfloat16_finds_the_same(drawn, count: int, monkeypatch):
    random = torch.Generator().manual_seed(count)
    database, queries = drawn(9000, random), drawn(40, random)
    plain = (normalize(queries, dim=1).double() @ normalize(database, dim=1).double().T).topk(count, dim=1)
    looks: list[int] = []
    first = search._Bf16Search.nearest

    def seen(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        looks.append(len(queries))
        return first(self, queries, count)

    monkeypatch.setattr(search._Bf16Search, "nearest", seen)
    monkeypatch.setattr(search, "has_bf16", lambda device: True)
    cosines, numbers = nearest(queries, database, count)
    assert sum(looks) == 40
    torch.testing.assert_close(cosines.double(), plain.values, rtol=0, atol=1e-6)
    own = (normalize(queries, dim=1)[:, None].double() * normalize(database, dim=1)[numbers].double()).sum(
        dim=2
    )
    torch.testing.assert_close(own, plain.values, rtol=0, atol=1e-6)
    monkeypatch.setattr(search, "has_bf16", lambda device: False)
    assert torch.equal(nearest(queries, database, count)[1], numbers) or drawn is not wide
