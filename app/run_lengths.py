"""Masks that strangers send, in COCO's compressed run lengths."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from app.errors import LabError
from segmentation.masks import Mask, RunLengths, decode


class Encoded(BaseModel):
    """A mask in COCO's compressed run lengths: height and width, and their text."""

    model_config = ConfigDict(strict=True, extra="forbid")
    size: Annotated[list[int], Field(min_length=2, max_length=2)]
    counts: str


def mask_of(encoded: Encoded, size: tuple[int, ...]) -> Mask:
    """A mask [height, width] that a stranger sent.

    Raises:
        LabError: no such run lengths, or of another size.
    """
    if encoded.size != list(size):
        raise LabError(f"The mask must have the photograph's size: {size[0]} rows and {size[1]} columns.")
    try:
        return decode(RunLengths(size=encoded.size, counts=encoded.counts))
    except ValueError as error:
        raise LabError("The mask's counts are not COCO's compressed run lengths.") from error
