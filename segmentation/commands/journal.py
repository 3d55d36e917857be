"""What a long command has finished, so that it can go on where it was stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dino_model import files


class Journal:
    """A file with a line of JSON for the settings and one for each finished picture, in their order.

    A line is written when everything of its picture is: what was interrupted is done again.

    A finished picture counts as such only while its files are what they were.

    Attributes:
        finished: what was recorded of each picture, by name.
    """

    NAME = "progress.jsonl"

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        """Begin anew, or with `resume` after what is there.

        Raises:
            ValueError: what is there was made with other settings, or is no journal.
        """
        self._path = folder / self.NAME
        told = json.loads(json.dumps(settings))
        lines = self._read(told) if resume and self._path.is_file() else []
        self._made_from = {name: made_from for name, made_from, _ in lines}
        self.finished: dict[str, Any] = {name: record for name, _, record in lines}
        files.write_text(self._path, "".join(json.dumps(line) + "\n" for line in (told, *lines)))

    def has(self, name: str, *made_from: Path) -> bool:
        """Whether a picture is finished, and `made_from` are still the files that they were."""
        return self._made_from.get(name) == [_identity(file) for file in made_from]

    def add(self, name: str, record: Any, *made_from: Path) -> None:
        """Record one picture."""
        line = json.dumps([name, [_identity(file) for file in made_from], record])
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.finished[name] = json.loads(line)[-1]  # as it will be read back

    def _read(self, settings: Mapping[str, Any]) -> list[tuple[str, list[Any], Any]]:
        *whole, _ = self._path.read_text(encoding="utf-8").split("\n")  # what ends in no line end was cut off
        try:
            before, *records = map(json.loads, whole)
            found = [(str(name), list(made_from), record) for name, made_from, record in records]
            changed = [key for key in {**settings, **before} if before.get(key) != settings.get(key)]
        except (ValueError, TypeError, AttributeError):
            raise ValueError(f"{self._path} is damaged: remove it, or leave --resume out") from None
        if changed:
            was, now = before.get(changed[0]), settings.get(changed[0])
            raise ValueError(
                f"{self._path.parent} was begun with other settings ({changed[0]} was {was!r}, now {now!r}): "
                "use the same, another --output, or leave --resume out"
            )
        return found


def _identity(file: Path) -> list[str | int]:
    """What tells whether a file is still the one it was: path, size, time of change."""
    status = file.stat()
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]
