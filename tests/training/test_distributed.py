"""What ranks do together, with processes of gloo on the CPU: as one process would."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from training import targets
from training.distributed import all_mean, gather, rank, share, world

REPOSITORY = Path(__file__).parents[2]


def test_without_a_process_group_a_mean_is_itself():
    tensor = torch.rand(3)
    assert all(of(tensor) is tensor for of in (all_mean, gather))
    assert torch.equal(share(tensor), tensor)
    assert (rank(), world()) == (0, 1)


PART = """
import sys, torch, torch.distributed as dist
from training import targets
from training.distributed import all_mean, gather, rank, share, world
number, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
own = torch.tensor([1.0, 3.0 * number])
logits = torch.load(f"{folder}/logits.pt")[:, 4 * number : 4 * number + 4]  # of this rank's pictures
torch.save({
    "own": own, "mean": all_mean(own), "rank": rank(), "world": world(),
    "gathered": gather(logits.transpose(0, 1)),
    "share": share(torch.arange(5)),
    "assigned": targets.sinkhorn_knopp(logits, 0.05, 3),
}, f"{folder}/{number}.pt")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory):
    """Logits [views, pictures, K], and what each of two ranks made of its half of the pictures."""
    folder = tmp_path_factory.mktemp("ranks")
    logits = torch.randn(2, 8, 6)
    torch.save(logits, folder / "logits.pt")
    started = [
        subprocess.Popen([sys.executable, "-c", PART, str(number), str(folder)], cwd=REPOSITORY)
        for number in (0, 1)
    ]
    assert [process.wait(timeout=200) for process in started] == [0, 0]
    return logits, [torch.load(folder / f"{number}.pt", weights_only=True) for number in (0, 1)]


def test_the_mean_over_ranks_is_the_same_on_each(together):
    for number, part in enumerate(together[1]):
        assert torch.equal(part["own"], torch.tensor([1.0, 3.0 * number]))  # left alone
        assert torch.equal(part["mean"], torch.tensor([1.0, 1.5]))
        assert (part["rank"], part["world"]) == (number, 2)


def test_what_is_gathered_is_in_the_ranks_order_on_each(together):
    logits, parts = together
    for part in parts:
        assert torch.equal(part["gathered"], logits.transpose(0, 1))


def test_shares_have_every_row_once(together):
    rows = torch.cat([part["share"] for part in together[1]])
    assert sorted(rows.tolist()) == [0, 1, 2, 3, 4]


def test_ranks_balance_their_pictures_as_one_batch(together):
    logits, parts = together
    assigned = torch.cat([part["assigned"] for part in parts], dim=1)
    torch.testing.assert_close(assigned, targets.sinkhorn_knopp(logits, 0.05, 3))
