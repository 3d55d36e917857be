"""The most similar of many features, by cosine: exact, and sooner where a CPU multiplies bfloat16."""

import torch
from torch import Tensor

from dino_model.device import has_bf16

_AT_ONCE = 2**28  # bytes of products in memory
_GROUP = 32  # columns of which the greatest decides whether any is looked at
_BLOCK = 2048  # features that are multiplied at once in bfloat16: few enough for a processor's cache
_PAYS = 100  # features for each candidate, from which on a first look in bfloat16 pays
_SUMMED = 1e-4  # above what sums of thousands of products in fp32 are wrong by


def unit(features: Tensor) -> Tensor:
    """Each row divided by its length: [pictures, width]."""
    return torch.nn.functional.normalize(features, dim=1)


def nearest(queries: Tensor, database: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cosines and numbers of the most similar features of a database, best first: [queries, count] both.

    Which of several equally near ones is the last is left open. Never holds more than 256 MB of products.

    Args:
        queries, database: [queries, width] and [features, width] on one device, of any length.
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
    database, count = database.float(), min(count, len(database))
    scale = 1 / database.norm(dim=1).clamp(min=1e-12)
    candidates, at_once = 2 * count + 64, max(1, _AT_ONCE // (4 * len(database)))
    look = _Look(database, scale)
    if database.device.type == "cpu" and has_bf16(database.device) and len(database) > _PAYS * candidates:
        at_once *= 2
        look = _FirstLook(database, scale, candidates, min(at_once, len(queries)))
    cosines = queries.new_empty(len(queries), count, dtype=torch.float32)
    numbers = torch.empty_like(cosines, dtype=torch.int64)
    for start in range(0, len(queries), at_once):
        some = slice(start, start + at_once)
        cosines[some], numbers[some] = look.nearest(unit(queries[some].float()), count)
    return cosines, numbers


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


class _Look:
    """Products in fp32 with everything: `scale` makes of them cosines."""

    def __init__(self, database: Tensor, scale: Tensor) -> None:
        self.database, self.scale = database, scale

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """As the function, for queries of length 1."""
        return largest((queries @ self.database.T).mul_(self.scale), count)


class _FirstLook(_Look):
    """Candidates by products in bfloat16, of which products in fp32 choose.

    Features less their mean are compared: of a query that moves all cosines alike, and small numbers lose
    less. What a product can be wrong by is bounded; where the candidates might miss one of the nearest, the
    query is compared in fp32 with everything.
    """

    def __init__(self, database: Tensor, scale: Tensor, candidates: int, queries: int) -> None:
        """`queries` come at once, at most; their products have one place in memory, again and again."""
        super().__init__(database, scale)
        self.candidates = candidates
        middle = scale @ database / len(database)
        blocks = -(-len(database) // _BLOCK)
        self.rough = torch.zeros(blocks, _BLOCK, database.shape[1], dtype=torch.bfloat16)
        self.products = torch.empty(blocks, queries, _BLOCK, dtype=torch.bfloat16)
        self.reach = self.lost = 0.0  # greatest length of a row, and of what rounding takes from one
        parts = zip(database.split(_BLOCK), scale.split(_BLOCK), self.rough, strict=True)
        for whole, own, rough in parts:
            moved = whole * own[:, None] - middle
            rough[: len(moved)] = moved
            self.reach = max(self.reach, float(moved.norm(dim=1).max()))
            self.lost = max(self.lost, float((moved - rough[: len(moved)]).norm(dim=1).max()))

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """As before, sooner."""
        rough = queries.bfloat16()
        products, numbers = self.largest(rough)
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
            which = numbers[row, :near]
            cosines[row, :near] = self.database.index_select(0, which) @ queries[row] * self.scale[which]
        values, places = cosines.topk(count, dim=1)
        numbers = numbers.gather(1, places)
        if not sure.all():
            values[~sure], numbers[~sure] = super().nearest(queries[~sure], count)
        return values, numbers

    def largest(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The greatest products of queries in bfloat16, and of which features: [queries, candidates] both."""
        found = self.products[:, : len(queries)]
        for block, products in zip(self.rough, found, strict=True):
            torch.mm(queries, block.T, out=products)
        filled = len(self.database) - (len(self.rough) - 1) * _BLOCK
        found[-1, :, filled:] = -torch.inf
        groups = _BLOCK // _GROUP  # in a block; a group: every `groups`-th column
        grouped = found.unflatten(2, (_GROUP, groups))
        best = grouped.amax(dim=2).transpose(0, 1).flatten(1).topk(self.candidates, dim=1, sorted=False)
        block, group = best.indices // groups, best.indices % groups
        rows = torch.arange(len(queries))[:, None]
        members = grouped[block, rows, :, group]  # [queries, candidates, _GROUP]
        values, places = members.flatten(1).topk(self.candidates, dim=1)
        first, place = (block * _BLOCK + group).gather(1, places // _GROUP), places % _GROUP
        return values, first + place * groups
