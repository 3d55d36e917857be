"""DAVIS and folders like it: where the files stand, and what a first mask holds.

Source: DAVIS 2016 and 2017. Protocols stand in docs/segmentation.md, the scores in `segmentation.scoring`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dino_model import images
from segmentation.frames import Picture, frame_files
from segmentation.labels import VOID, Labels, object_ids, read_labels


class DavisError(ValueError):
    """Files that are missing, broken or do not fit together. The message is one sentence for people."""


@dataclass(frozen=True)
class Clip:
    """A video to propagate labels through.

    Attributes:
        name: of the sequence.
        frames: its pictures, in order.
        first_mask: labels of the first frame, a PNG.
        binary: every label but 0 is object 1 (DAVIS-2016).
    """

    name: str
    frames: tuple[Path, ...]
    first_mask: Path
    binary: bool = False


@dataclass(frozen=True)
class DavisFolder:
    """The folders of a DAVIS data set and its sequences."""

    pictures: Path
    masks: Path
    sequences: tuple[str, ...]
    binary: bool

    def with_ground_truth(self) -> tuple[str, ...]:
        """Sequences that have masks beyond their first; those of test sets have not."""
        return tuple(name for name in self.sequences if len(list((self.masks / name).glob("*.png"))) > 1)

    def clip(self, sequence: str, *, allow_gaps: bool = False) -> Clip:
        """The frames of a sequence and its first mask.

        Raises:
            DavisError: no such folder, no first mask, or a mask without frame.
            VideoError: no frames, or a gap in the numbers of frames or masks.
        """
        for kind in (self.pictures, self.masks):
            if not (kind / sequence).is_dir():
                raise DavisError(_missing_folder(kind, sequence))
        frames = frame_files(self.pictures / sequence, allow_gaps=allow_gaps)
        masks = self.masks / sequence
        known = {frame.stem for frame in frames}
        alone = sorted(mask.name for mask in masks.glob("*.png") if mask.stem not in known)
        if alone:
            raise DavisError(
                f"{masks / alone[0]} has no frame in {self.pictures / sequence}; restore it "
                "or remove the mask"
            )
        first_mask = masks / f"{frames[0].stem}.png"
        if not first_mask.is_file():
            raise DavisError(f"the first mask {first_mask} is missing; it says which objects to follow")
        if len(list(masks.glob("*.png"))) > 1:  # to be scored later: a gap is better found now
            frame_files(masks, allow_gaps=allow_gaps)
        return Clip(sequence, frames, first_mask, self.binary)


def open_davis(
    root: Path,
    *,
    year: int = 2017,
    split: str = "val",
    resolution: str = "480p",
    sequences: Sequence[str] = (),
    binary: bool = False,
) -> DavisFolder:
    """Find the sequences of a DAVIS folder.

    Args:
        root: holds ImageSets, JPEGImages and Annotations.
        year: 2017 (ImageSets/2017, labelled masks) or 2016 (ImageSets/480p, binary masks).
        split: name of the list without .txt.
        resolution: folder below JPEGImages and Annotations.
        sequences: only these; all of the list when empty.
        binary: every label but 0 is object 1, in 2017 too.

    Raises:
        DavisError: no list (naming the folder that looks right), or a sequence that is not in it.
    """
    if year not in (2016, 2017):
        raise DavisError(f"there is no DAVIS-{year} here; choose 2016 or 2017")
    place = Path("ImageSets", "2017" if year == 2017 else resolution, f"{split}.txt")
    if not (root / place).is_file():
        raise DavisError(f"the list {root / place} is missing; {_better_root(root, place, year)}")
    listed = sequence_list(root / place)
    if unknown := [name for name in sequences if name not in listed]:
        raise DavisError(
            f"sequence {unknown[0]!r} is not in {root / place}; it has {', '.join(listed)[:300]}"
        )
    chosen = tuple(name for name in listed if name in sequences or not sequences)
    return DavisFolder(
        root / "JPEGImages" / resolution, root / "Annotations" / resolution, chosen, binary or year == 2016
    )


def _missing_folder(kind: Path, sequence: str) -> str:
    """What to say of frames or masks that are not there: a wrong --resolution, or one folder missing."""
    if not kind.is_dir():
        there = ", ".join(folder.name for folder in sorted(kind.parent.glob("*/"))) or "none"
        return f"the folder {kind} is missing; folders there: {there}"
    return f"the folder {kind / sequence} is missing; restore it, or name the others with --sequences"


def sequence_list(file: Path) -> tuple[str, ...]:
    """Names of sequences in a text file: one a line (2017), or the folders of listed frames (2016).

    Raises:
        DavisError: no such file, none that is text, or an empty one.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise DavisError(f"the list {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DavisError(f"the list {file} is no text with one sequence a line") from None
    lines = [line.split()[0] for line in text.splitlines() if line.strip()]
    names = [Path(line).parent.name if "/" in line else line for line in lines]
    if not names:
        raise DavisError(f"the list {file} is empty")
    return tuple(dict.fromkeys(names))


def _better_root(root: Path, place: Path, year: int) -> str:
    other = 2016 if year == 2017 else 2017
    if (root / "ImageSets" / ("2017" if other == 2017 else "480p")).is_dir():
        return f"the folder looks like DAVIS-{other}: pass --year {other}, or another --split"
    if (root / place.parent).is_dir():
        lists = ", ".join(sorted(file.stem for file in (root / place.parent).glob("*.txt"))) or "none"
        return f"lists there, for --split: {lists}"
    around = [*root.resolve().parents[:3], *(sorted(root.glob("*/")) if root.is_dir() else [])]
    right = next((folder for folder in around if (folder / place).is_file()), None)
    return (
        f"pass {right}, which has it"
        if right
        else "pass the folder that holds ImageSets, JPEGImages and Annotations"
    )


def read_first_mask(clip: Clip) -> Labels:
    """Labels of the first frame of a clip, checked against it: uint8 [H, W].

    Raises:
        DavisError, LabelError: unreadable, without object, of another size than the frame, or binary without
        being called so.
    """
    labels = read_labels(clip.first_mask, binary=clip.binary)
    if not object_ids(labels):
        binary = bool((labels == VOID).any())
        remedy = (
            "it has 255 only, as binary masks have: pass --year 2016 or --binary"
            if binary
            else "every pixel is 0"
        )
        raise DavisError(f"the mask {clip.first_mask} marks no object: {remedy}")
    height, width = images.read(clip.frames[0], name=str(clip.frames[0])).shape[:2]
    if labels.shape != (height, width):
        raise DavisError(
            f"the mask {clip.first_mask} is {labels.shape[1]}x{labels.shape[0]} pixels, "
            f"the frame {clip.frames[0].name} {width}x{height}; they must be of one size"
        )
    return labels


def read_frames(clip: Clip, size: tuple[int, int]) -> Iterator[Picture]:
    """Frames of a clip as uint8 [H, W, 3], each of the given height and width.

    Raises:
        DavisError, ImageError: a frame of another size, or one that cannot be read; both name its file.
    """
    for file in clip.frames:
        frame = images.read(file, name=str(file))
        if frame.shape[:2] != size:
            raise DavisError(
                f"the frame {file} is {frame.shape[1]}x{frame.shape[0]} pixels, "
                f"the first mask {size[1]}x{size[0]}; they must be of one size"
            )
        yield frame
