"""Folders of predicted masks: written whole or not at all, and knowing how they were made."""

import hashlib
import json
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from dino_model.files import replacing, write_json
from segmentation import export
from segmentation.davis import Clip, DavisError
from segmentation.labels import Labels, mask_png, object_ids, read_labels


class MaskFolder:
    """A folder of palette PNGs that appears, or replaces one of its name, when all of them are written.

    Use as a context; after an exception nothing of it stays, and what was there before does.

    Attributes:
        checksums: of the files written so far, by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checksums: dict[str, str] = {}
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
        file, content = self._partial / f"{name}.png", mask_png(labels)
        file.write_bytes(content)
        self.checksums[file.name] = _checksum(content)


@contextmanager
def run_lengths(folder: Path) -> Iterator[Callable[[str, Labels], None]]:
    """Write masks.json and masks_images.json, COCO's results and pictures, one mask in memory at a time.

    Both appear when the block ends well. A label is a category, its records have score 1.

    Args:
        folder: where to write them.

    Yields:
        What adds the mask of the next frame: name of the frame, labels uint8 [H, W].
    """
    seen: set[int] = set()
    numbers = count(1)
    with _new_text(folder / "masks.json") as results, _new_text(folder / "masks_images.json") as pictures:

        def add(name: str, labels: Labels) -> None:
            number, (height, width) = next(numbers), labels.shape
            picture = {"id": number, "file_name": name, "height": height, "width": width}
            pictures.write((",\n" if number > 1 else "\n") + json.dumps(picture))
            for label in object_ids(labels):
                record = export.coco_record(number, label, labels == label)
                results.write((",\n" if seen else "\n") + json.dumps(record))
                seen.add(label)

        results.write("[")
        pictures.write('{"info": {}, "annotations": [], "images": [')
        yield add
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
        if not folder.exists():
            self._finished.pop(clip.name, None)  # removed, to be computed anew
        if clip.name not in self._finished:
            if folder.exists():
                raise DavisError(
                    f"{folder} exists but was not written by this command; move it or choose another output"
                )
            return False
        recorded = self._finished[clip.name]
        there = {file.name: _checksum(file.read_bytes()) for file in folder.glob("*.png")}
        if recorded != _description(clip, there):
            raise DavisError(
                f"masks or input of {folder} are not what they were when it was written; "
                "remove it to compute it anew"
            )
        return True

    def write(self, clip: Clip, masks: Iterable[Labels]) -> Generator[Labels]:
        """Write the masks of a clip, one per frame, under the names of the frames, and hand each on.

        The sequence is finished when the last of them has been taken.
        """
        with MaskFolder(self.root / clip.name) as folder:
            for frame, labels in zip(clip.frames, masks, strict=True):
                folder.write(frame.stem, labels)
                yield labels
        self._finished[clip.name] = _description(clip, folder.checksums)
        write_json(self.root / self.RECORD, {"settings": self.settings, "sequences": self._finished})

    def read(self, clip: Clip) -> Generator[Labels]:
        """The masks of a finished clip, uint8 [H, W], one per frame."""
        for frame in clip.frames:
            yield read_labels(self.root / clip.name / f"{frame.stem}.png")


def _description(clip: Clip, masks: Mapping[str, str]) -> dict[str, Any]:
    """What is recorded of a sequence whose masks have such checksums, by file."""
    whole = json.dumps(sorted(masks.items())).encode()
    return {
        "frames": [frame.stem for frame in clip.frames],
        "first_mask": _checksum(clip.first_mask.read_bytes()),
        "masks": [len(masks), _checksum(whole)],
    }


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
