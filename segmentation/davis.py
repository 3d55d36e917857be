"""DAVIS and folders like it: where the files stand, what a mask file holds, where predictions are kept.

Source: DAVIS 2016 and 2017; issue 3. The scores are in `segmentation.scoring`.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import cv2
import numpy as np
import torch
from torch import Tensor

from dino_model import images
from dino_model.files import replacing
from dino_model.predictor import Resize, fed_size
from dino_model.weights import LoadedModel
from segmentation import export
from segmentation.labels import VOID, Labels, object_ids, read_labels
from segmentation.propagation import Picture, Preset
from segmentation.video import frame_files

OFFICIAL_STD = (0.228, 0.224, 0.225)
"""The official evaluation of DINO on DAVIS divides red by 0.228, where ImageNet's figure is 0.229."""


def official_std(model: LoadedModel, preset: Preset) -> tuple[float, ...] | None:
    """`OFFICIAL_STD` with the official preset, for a model trained with ImageNet's figures; else None."""
    return OFFICIAL_STD if preset.name == "dino" and tuple(model.std) == images.IMAGENET_STD else None


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

    def has_ground_truth(self) -> bool:
        """Whether every sequence has masks beyond its first; test sets have not."""
        return all(len(list((self.masks / name).glob("*.png"))) > 1 for name in self.sequences)

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
) -> DavisFolder:
    """Find the sequences of a DAVIS folder.

    Args:
        root: holds ImageSets, JPEGImages and Annotations.
        year: 2017 (ImageSets/2017, labelled masks) or 2016 (ImageSets/480p, binary masks).
        split: name of the list without .txt.
        resolution: folder below JPEGImages and Annotations.
        sequences: only these; all of the list when empty.

    Raises:
        DavisError: no list (naming the folder that looks right), or a sequence that is not in it.
    """
    if year not in (2016, 2017):
        raise DavisError(f"there is no DAVIS-{year} here; choose 2016 or 2017")
    place = Path("ImageSets", "2017" if year == 2017 else resolution, f"{split}.txt")
    if not (root / place).is_file():
        raise DavisError(f"the list {root / place} is missing; {_better_root(root, place, year)}")
    listed = _sequence_list(root / place)
    if unknown := [name for name in sequences if name not in listed]:
        raise DavisError(
            f"sequence {unknown[0]!r} is not in {root / place}; it has {', '.join(listed)[:300]}"
        )
    chosen = tuple(name for name in listed if name in sequences or not sequences)
    return DavisFolder(
        root / "JPEGImages" / resolution, root / "Annotations" / resolution, chosen, year == 2016
    )


def _missing_folder(kind: Path, sequence: str) -> str:
    """What to say of frames or masks that are not there: a wrong --resolution, or one folder missing."""
    if not kind.is_dir():
        there = ", ".join(folder.name for folder in sorted(kind.parent.glob("*/"))) or "none"
        return f"the folder {kind} is missing; folders there: {there}"
    return f"the folder {kind / sequence} is missing; restore it, or name the others with --sequences"


def _sequence_list(file: Path) -> tuple[str, ...]:
    """Names of sequences: one a line (2017), or the folders of the frames that are listed (2016)."""
    try:
        text = file.read_text(encoding="utf-8")
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


class MaskFolder:
    """A folder of palette PNGs that appears, or replaces one of its name, when all of them are written.

    Use as a context; after an exception nothing of it stays, and what was there before does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f".{path.name}.partial")

    def __enter__(self) -> Self:
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            shutil.rmtree(self.path, ignore_errors=True)
            self._partial.replace(self.path)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)

    def write(self, name: str, labels: Labels) -> None:
        """Add the mask of one frame, uint8 [H, W]; `name` without suffix."""
        export.write_mask_png(self._partial / f"{name}.png", labels)


def write_run_lengths(folder: Path, masks: Iterable[tuple[str, Path]]) -> None:
    """Write masks.json and masks_images.json, COCO's results and pictures, one mask in memory at a time.

    Args:
        folder: where to write them.
        masks: name of each frame and the PNG of its labels. A label is a category, its records have score 1.
    """
    seen: set[int] = set()
    with _new_text(folder / "masks.json") as results, _new_text(folder / "masks_images.json") as pictures:
        results.write("[")
        pictures.write('{"info": {}, "annotations": [], "images": [')
        for number, (name, file) in enumerate(masks, start=1):
            labels = read_labels(file)
            height, width = labels.shape
            picture = {"id": number, "file_name": name, "height": height, "width": width}
            pictures.write((",\n" if number > 1 else "\n") + json.dumps(picture))
            for label in object_ids(labels):
                record = export.coco_record(number, label, labels == label)
                results.write((",\n" if seen else "\n") + json.dumps(record))
                seen.add(label)
        categories = [{"id": label, "name": f"object {label}"} for label in sorted(seen)]
        results.write("\n]\n")
        pictures.write(f'\n], "categories": {json.dumps(categories)}}}\n')


@contextmanager
def _new_text(path: Path) -> Iterator[TextIO]:
    """A text file to write that appears when it is whole, or not at all."""
    with replacing(path) as beside, beside.open("w", encoding="utf-8") as file:
        yield file


class Predictions:
    """A folder of predicted masks, one folder per sequence, that knows how each was made.

    A sequence appears whole or not at all, and is then recorded in `predictions.json` with the settings and
    a checksum of its masks. So a wrong, changed or foreign mask is noticed before it is scored.
    """

    RECORD = "predictions.json"

    def __init__(self, root: Path, settings: Mapping[str, Any], *, resume: bool = False) -> None:
        """Open or make the folder.

        Raises:
            DavisError: it holds predictions and `resume` is not asked for, or they were made with other
            settings.
        """
        self.root = root
        self.settings = json.loads(json.dumps(settings))
        self._finished: dict[str, dict[str, Any]] = {}
        if (root / self.RECORD).is_file():
            self._finished = self._recorded(resume)
        root.mkdir(parents=True, exist_ok=True)

    def _recorded(self, resume: bool) -> dict[str, dict[str, Any]]:
        file = self.root / self.RECORD
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            settings, finished = record["settings"], dict(record["sequences"])
        except (ValueError, KeyError, TypeError):
            raise DavisError(f"{file} is damaged; remove {self.root} or choose another output") from None
        if not resume:
            raise DavisError(
                f"{self.root} holds predictions already ({', '.join(finished)[:200] or 'none finished'}); "
                "pass --resume to keep them, or another --output"
            )
        different = [
            key for key in {**self.settings, **settings} if settings.get(key) != self.settings.get(key)
        ]
        if different:
            was, now = settings.get(different[0]), self.settings.get(different[0])
            raise DavisError(
                f"{self.root} was made with other settings ({different[0]} was {was!r}, now {now!r}); "
                "choose another --output or the same settings"
            )
        return finished

    def has(self, clip: Clip) -> bool:
        """Whether a sequence is finished.

        Raises:
            DavisError: its masks are not those that were written, or are there without being recorded.
        """
        folder = self.root / clip.name
        if clip.name not in self._finished:
            if folder.exists():
                raise DavisError(
                    f"{folder} exists but was not written by this command; move it or choose another output"
                )
            return False
        recorded = self._finished[clip.name]
        if recorded != self._description(clip, folder):
            raise DavisError(
                f"masks or input of {folder} are not what they were when it was written; "
                "remove it to compute it anew"
            )
        return True

    def write(self, clip: Clip, masks: Iterable[Labels]) -> None:
        """Write the masks of a clip, one per frame, under the names of the frames."""
        with MaskFolder(self.root / clip.name) as folder:
            for frame, labels in zip(clip.frames, masks, strict=True):
                folder.write(frame.stem, labels)
        self._finished[clip.name] = self._description(clip, self.root / clip.name)
        export.write_json(self.root / self.RECORD, {"settings": self.settings, "sequences": self._finished})

    @staticmethod
    def _description(clip: Clip, folder: Path) -> dict[str, Any]:
        files = sorted(folder.glob("*.png"))
        return {
            "frames": [frame.stem for frame in clip.frames],
            "first_mask": _checksum([clip.first_mask]),
            "masks": [len(files), _checksum(files)],
        }


def _checksum(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


class ColourPatches:
    """Colours of a patch as its feature: what propagation reaches without a network."""

    def __init__(self, patch_size: int = 8, size: int = 480) -> None:
        self.patch_size, self.size = patch_size, size
        self.resize: Resize = "davis"

    def features(self, images: Sequence[Picture]) -> Tensor:
        """Pixels of each patch minus the frame's mean patch: float32 [frames, rows, columns, 3 *
        patch_size**2]."""
        height, width = images[0].shape[:2]
        height, width = fed_size(height, width, self.size, self.resize, self.patch_size)
        resized = np.stack(
            [cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR) for image in images]
        )
        beyond = -height % self.patch_size, -width % self.patch_size
        padded = np.pad(resized, ((0, 0), (0, beyond[0]), (0, beyond[1]), (0, 0)), mode="edge")
        pixels = torch.from_numpy(padded).float() / 255
        patches = pixels.unflatten(2, (-1, self.patch_size)).unflatten(1, (-1, self.patch_size))
        vectors = patches.transpose(2, 3).flatten(3)  # [frames, rows, columns, D]
        return vectors - vectors.mean((1, 2), keepdim=True)
