"""COCO's compressed run lengths from strangers: checked before pycocotools decodes them."""

import re
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from app.errors import LabError
from segmentation.masks import Mask, RunLengths, decode

RUNS = re.compile(r"(?:[P-o]{0,6}[0-O])+")
"""COCO's text of run lengths: letters from P on say that more of the same run follows."""


class Encoded(BaseModel):
    """A mask in COCO's compressed run lengths: height and width, and their text."""

    model_config = ConfigDict(strict=True, extra="forbid")
    size: Annotated[list[int], Field(min_length=2, max_length=2)]
    counts: str


def mask_of(encoded: Encoded, size: tuple[int, ...]) -> Mask:
    """A mask [height, width] from COCO's compressed run lengths that a stranger sent.

    The runs are summed up before pycocotools decodes them: where they end early, it would hand out what lies
    in memory.

    Raises:
        LabError: no such run lengths, or of another size.
    """
    if encoded.size != list(size):
        raise LabError(f"The mask must have the photograph's size: {size[0]} rows and {size[1]} columns.")
    wrong = LabError("The mask's counts are not COCO's compressed run lengths.")
    if not RUNS.fullmatch(encoded.counts):
        raise wrong
    runs = run_lengths(encoded.counts)
    if min(runs, default=-1) < 0 or sum(runs) != size[0] * size[1]:
        raise wrong
    return decode(RunLengths(size=[int(side) for side in size], counts=encoded.counts))


def run_lengths(counts: str) -> list[int]:
    """Runs behind COCO's text: 5 bits a letter, the lowest first; from the third on, differences to the
    run before last.
    """
    runs: list[int] = []
    value = shift = 0
    for letter in np.frombuffer(counts.encode("ascii"), np.uint8).astype(int) - ord("0"):
        value |= (int(letter) & 31) << shift
        shift += 5
        if letter & 32:  # more of this run follows
            continue
        if letter & 16:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    return runs
