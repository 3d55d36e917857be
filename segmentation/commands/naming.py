"""What is written about several photographs is called after them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def names_of(photos: Sequence[Path], output: Path) -> list[str]:
    """A name for each photograph: its own without the suffix, or with it where two share that.

    Raises:
        ValueError: no photograph, or two that would still write to one place in `output`.
    """
    if not photos:
        raise ValueError("no photograph given; name at least one file")
    stems = Counter(photo.stem for photo in photos)
    names = [photo.stem if stems[photo.stem] == 1 else photo.name.replace(".", "_") for photo in photos]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"several photographs would write to {output / twice[0]}; rename them or run one at a time"
        )
    return names
