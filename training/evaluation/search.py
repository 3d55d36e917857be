"""Exact search for the most similar features by cosine; several processes share the database.

On a CPU with bfloat16 instructions, candidates are found by bfloat16 products and compared in fp32.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from dino_model import ranks
from dino_model.device import has_bf16

_MAX_PRODUCT_BYTES = 2**28
_GROUP = 32  # columns of which the maximum decides whether any is compared
_BLOCK = 2048  # features per bfloat16 product: few enough for a processor's cache
_MIN_FEATURES_PER_CANDIDATE = 100  # from which on bfloat16 candidates are faster
_FP32_SUM_ERROR = 1e-4  # above the error of fp32 sums of thousands of products


def nearest(
    queries: Tensor, database: Tensor, count: int, device: torch.device | str | None = None
) -> tuple[Tensor, Tensor]:
    """Find the most similar features of a database.

    Of several processes, each with the same arguments, each searches its consecutive share of the database on
    its device; the results are merged. At most 256 MB of products are in memory.

    Args:
        queries: [queries, width], of any length.
        database: [features, width], of any length.
        count: Features per query, at most as many as there are.
        device: Where products are computed. Default: that of the features.

    Returns:
        Cosines and numbers of the features, most similar first: [queries, count] both, on the queries'
        device. Which of several equally similar ones comes last is undefined.

    Raises:
        ValueError: Features that are not finite or of different widths.
    """
    if queries.shape[1] != database.shape[1]:
        raise ValueError(
            f"Queries have {queries.shape[1]} values, the database {database.shape[1]}: use one model for"
            " both."
        )
    if not (queries.isfinite().all() and database.isfinite().all()):
        raise ValueError("Features hold NaN or infinity: the model is broken, or needs precision fp32.")
    count = min(count, len(database))
    share = ranks.local_range(range(len(database)))
    local = database[share.start : share.stop].to(device or database.device).float()
    cosines, numbers = _search(queries, local, min(count, len(local)))
    if ranks.world() == 1:
        return cosines, numbers
    return _merge(cosines, numbers + share.start, count)


def _merge(cosines: Tensor, numbers: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Keep the best of all processes' results: [queries, at most count] -> [queries, count]."""
    parts = []
    for tensor, fill in ((cosines, -torch.inf), (numbers, 0)):
        own = pad(tensor, (0, count - tensor.shape[1]), value=fill)[None]
        every = ranks.gather_rows(lambda _, own=own: own, range(ranks.world()))  # type: ignore[misc]
        assert every is not None
        parts.append(every.transpose(0, 1).flatten(1).to(tensor.device))  # [queries, ranks * count]
    values, places = parts[0].topk(count, dim=1)
    return values, parts[1].gather(1, places)


def _search(queries: Tensor, database: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`nearest` in the memory of one process."""
    cosines = queries.new_empty(len(queries), count, dtype=torch.float32)
    numbers = torch.empty_like(cosines, dtype=torch.int64)
    if not count:
        return cosines, numbers
    scale = 1 / database.norm(dim=1).clamp(min=1e-12)
    candidates, at_once = 2 * count + 64, max(1, _MAX_PRODUCT_BYTES // (4 * len(database)))
    search = _Fp32Search(database, scale)
    many = len(database) > _MIN_FEATURES_PER_CANDIDATE * candidates
    if many and database.device.type == "cpu" and has_bf16(database.device):
        at_once *= 2
        search = _Bf16Search(database, scale, candidates, min(at_once, len(queries)))
    for start in range(0, len(queries), at_once):
        chunk = slice(start, start + at_once)
        found = search.nearest(normalize(queries[chunk].to(database.device).float(), dim=1), count)
        cosines[chunk], numbers[chunk] = (part.to(queries.device) for part in found)
    return cosines, numbers


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute `rows.topk(count)` of long rows: only groups of columns with the largest maxima are sorted.

    Takes [rows, columns], returns values and columns, largest first: [rows, count] both.
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


class _Fp32Search:
    """Products in fp32 with every feature; `scale` turns them into cosines."""

    def __init__(self, database: Tensor, scale: Tensor) -> None:
        self.database, self.scale = database, scale

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Find the features nearest to queries of length 1."""
        return largest((queries @ self.database.T).mul_(self.scale), count)


class _Bf16Search(_Fp32Search):
    """Candidates by bfloat16 products, ranked by fp32 products.

    The mean is subtracted from the features: this shifts all cosines of a query alike, and small numbers lose
    less in rounding. The rounding error is bounded; a query whose candidates might miss one of the nearest is
    compared in fp32 with every feature.
    """

    def __init__(self, database: Tensor, scale: Tensor, candidates: int, queries: int) -> None:
        """Round the database. `queries` is the largest batch; its products reuse one buffer."""
        super().__init__(database, scale)
        self.candidates = candidates
        mean = scale @ database / len(database)
        blocks = -(-len(database) // _BLOCK)
        self.rounded = torch.zeros(blocks, _BLOCK, database.shape[1], dtype=torch.bfloat16)
        self.products = torch.empty(blocks, queries, _BLOCK, dtype=torch.bfloat16)
        self.max_norm = self.max_error = 0.0  # of a centered row, and of its rounding
        parts = zip(database.split(_BLOCK), scale.split(_BLOCK), self.rounded, strict=True)
        for features, scales, rounded in parts:
            centered = features * scales[:, None] - mean
            rounded[: len(centered)] = centered
            self.max_norm = max(self.max_norm, float(centered.norm(dim=1).max()))
            error = (centered - rounded[: len(centered)]).norm(dim=1).max()
            self.max_error = max(self.max_error, float(error))

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Find the features nearest to queries of length 1."""
        rounded = queries.bfloat16()
        products, numbers = self._candidates(rounded)
        last, excluded = products[:, count - 1], products[:, -1]
        rounding = torch.finfo(torch.bfloat16).eps / 2 * torch.maximum(last.abs(), excluded.abs())
        error = (queries - rounded).norm(dim=1) * self.max_norm + 1.1 * (self.max_error + rounding)
        threshold = last - 2 * (error + _FP32_SUM_ERROR * self.max_norm)  # the nearest are all above
        is_exact = excluded < threshold
        cosines = torch.full(products.shape, -torch.inf)
        # One query at a time: its candidates then stay in the processor's cache.
        for row, above in enumerate((products >= threshold[:, None]).sum(dim=1).tolist()):
            chosen = numbers[row, :above]
            cosines[row, :above] = self.database.index_select(0, chosen) @ queries[row] * self.scale[chosen]
        values, places = cosines.topk(count, dim=1)
        numbers = numbers.gather(1, places)
        if not is_exact.all():
            values[~is_exact], numbers[~is_exact] = super().nearest(queries[~is_exact], count)
        return values, numbers

    def _candidates(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Find the largest bfloat16 products, and their features: [queries, candidates] both."""
        products = self.products[:, : len(queries)]
        for block, block_products in zip(self.rounded, products, strict=True):
            torch.mm(queries, block.T, out=block_products)
        filled = len(self.database) - (len(self.rounded) - 1) * _BLOCK
        products[-1, :, filled:] = -torch.inf
        groups = _BLOCK // _GROUP  # in a block; a group: every `groups`-th column
        grouped = products.unflatten(2, (_GROUP, groups))
        best = grouped.amax(dim=2).transpose(0, 1).flatten(1).topk(self.candidates, dim=1, sorted=False)
        block, group = best.indices // groups, best.indices % groups
        rows = torch.arange(len(queries))[:, None]
        members = grouped[block, rows, :, group]  # [queries, candidates, _GROUP]
        values, places = members.flatten(1).topk(self.candidates, dim=1)
        first, place = (block * _BLOCK + group).gather(1, places // _GROUP), places % _GROUP
        return values, first + place * groups
