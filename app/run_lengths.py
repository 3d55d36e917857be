"""Masks in COCO's compressed run lengths, as strangers send them."""

from app.errors import LabError
from segmentation.masks import Mask, RunLengths, decode


def mask_of(encoded: object, size: tuple[int, ...]) -> Mask:
    """Decode a mask.

    Args:
        encoded: {"size": [height, width], "counts": text}.
        size: Height and width that it must have.

    Returns:
        Boolean [height, width].

    Raises:
        LabError: No such run lengths, or another size.
    """
    given, counts = (encoded.get(name) if isinstance(encoded, dict) else None for name in ("size", "counts"))
    if not isinstance(counts, str):
        raise LabError('A mask must be COCO run lengths: {"size": [height, width], "counts": text}.')
    if not isinstance(given, list) or given != list(size):
        raise LabError(f"The mask must have the size of the image: {size[0]} rows and {size[1]} columns.")
    try:
        return decode(RunLengths(size=list(size), counts=counts))
    except ValueError as error:
        raise LabError("The mask's counts are not COCO's compressed run lengths.") from error
