"""The most similar of many features, by cosine: exact, and sooner where a CPU multiplies bfloat16."""

import torch
from torch import Tensor

from dino_model.device import has_bf16

_AT_ONCE = 2**25  # products in memory: 128 MB, half of it in bfloat16
_GROUP = 32  # columns of which the greatest decides whether any is looked at
_PAYS = 100  # features for each candidate, from which on a first look in bfloat16 pays
_SUMMED = 1e-4  # above what sums of thousands of products in fp32 are wrong by


def unit(features: Tensor) -> Tensor:
    """Each row divided by its length: [pictures, width]."""
    return torch.nn.functional.normalize(features, dim=1)


def nearest(queries: Tensor, database: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cosines and numbers of the most similar features of a database, best first: [queries, count] both.

    Which of several equally near ones is the last is left open. Never holds more than 128 MB of products.

    Args:
        queries, database: [queries, width] and [features, width] on one device; normalised here, in fp32.
        count: at most the number of features is given.

    Raises:
        ValueError: features that are not finite or do not fit.
    """
    if queries.shape[1] != database.shape[1]:
        raise ValueError(
            f"queries have {queries.shape[1]} numbers, the database {database.shape[1]}: of another model?"
        )
    if not (queries.isfinite().all() and database.isfinite().all()):
        raise ValueError("features hold NaN or infinity: the model is broken, or needs precision fp32")
    database, count = unit(database.float()), min(count, len(database))
    candidates = 2 * count + 64
    first_look = None
    if database.device.type == "cpu" and has_bf16(database.device) and len(database) > _PAYS * candidates:
        first_look = _FirstLook(database, candidates)
    found = []
    for some in queries.split(max(1, _AT_ONCE // len(database))):
        some = unit(some.float())
        found.append(first_look.nearest(some, count) if first_look else largest(some @ database.T, count))
    cosines, numbers = zip(*found, strict=True)
    return torch.cat(cosines), torch.cat(numbers)


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`rows.topk(count)` of long rows: only the groups of columns with the greatest maxima are sorted.

    Takes [rows, columns], returns values and columns, greatest first: [rows, count] both.
    """
    groups = rows.shape[1] // _GROUP
    if count >= groups:
        values, columns = rows.topk(count, dim=1)
        return values, columns
    grouped = rows[:, : groups * _GROUP].unflatten(1, (_GROUP, groups))  # a group: every `groups`-th column
    best = grouped.amax(dim=1).topk(count, dim=1, sorted=False).indices
    members = grouped.gather(2, best[:, None].expand(-1, _GROUP, -1)).flatten(1)
    rest = rows[:, groups * _GROUP :]
    values, places = torch.cat([members, rest], dim=1).topk(count, dim=1)
    columns = places // count * groups + best.gather(1, places % count)
    return values, columns.where(places < members.shape[1], places - members.shape[1] + groups * _GROUP)


class _FirstLook:
    """Candidates by products in bfloat16, of which products in fp32 choose.

    Features less their mean are compared: of a query that moves all cosines alike, and small numbers lose
    less. What a product can be wrong by is bounded; where the candidates might miss one of the nearest, the
    query is compared in fp32 with everything.
    """

    def __init__(self, database: Tensor, candidates: int) -> None:
        self.database, self.candidates = database, candidates
        middle = database.mean(dim=0)
        self.rough = torch.empty_like(database, dtype=torch.bfloat16)
        self.reach = self.lost = 0.0  # greatest length of a row, and of what rounding takes from one
        for whole, rough in zip(database.split(8192), self.rough.split(8192), strict=True):
            moved = whole - middle
            rough.copy_(moved)
            self.reach = max(self.reach, float(moved.norm(dim=1).max()))
            self.lost = max(self.lost, float((moved - rough).norm(dim=1).max()))

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """As the function, for queries of length 1."""
        rough = queries.bfloat16()
        products, numbers = largest(rough @ self.rough.T, self.candidates)
        last, behind = products[:, count - 1], products[:, -1]
        rounded = torch.finfo(torch.bfloat16).eps / 2 * torch.maximum(last.abs(), behind.abs())
        wrong = (
            (queries - rough).norm(dim=1) * self.reach + 1.1 * (self.lost + rounded) + _SUMMED * self.reach
        )
        least = last - 2 * wrong  # what is below is none of the nearest
        sure = behind < least
        cosines = torch.full(products.shape, -torch.inf)
        # One query at a time: its candidates then stay in the processor's cache.
        for row, near in enumerate((products >= least[:, None]).sum(dim=1).tolist()):
            cosines[row, :near] = self.database[numbers[row, :near]] @ queries[row]
        values, places = cosines.topk(count, dim=1)
        numbers = numbers.gather(1, places)
        if not sure.all():
            values[~sure], numbers[~sure] = largest(queries[~sure] @ self.database.T, count)
        return values, numbers
