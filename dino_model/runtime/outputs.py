"""Refuse, replace or resume the results of every command, and record how they were made.

A command that writes a folder derives its options from `OutputOptions` and writes through `OutputFolder`.
`run_command` turns the end of a command into its exit code.
"""

import codecs
import importlib.metadata
import io
import json
import os
import platform
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

from tqdm import tqdm

from dino_model.runtime.errors import EXPECTED, LostRank, SettingError, sentence
from dino_model.runtime.files import make_room, printable, write_json, write_text

FORMAT = 2
"""Of an output folder; another one is not resumed."""
PROVENANCE = "provenance.json"
FINISHED_ITEMS = "progress.jsonl"
RECORDED_PACKAGES = ("dino-attention-lab", "torch", "torchvision", "timm", "numpy", "pillow", "opencv-python")

MAX_REASONS = 5  # in the message at the end of a batch
EXIT_ERROR, EXIT_SIGTERM, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 1, 75, 130, 141


class OutputError(ValueError):
    """An output folder or file that a command must not write to."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of a command that writes a folder."""

    output: Path
    """Folder for the results. It is created if missing."""
    overwrite: bool = False
    """Remove the results of an earlier run from the output folder first."""
    resume: bool = False
    """Continue an earlier run with the same settings. Finished results are kept."""

    def open_output(self, settings: Mapping[str, Any]) -> "OutputFolder":
        """Open the output folder for results made with these settings; see `OutputFolder`."""
        return OutputFolder(self.output, settings, overwrite=self.overwrite, resume=self.resume)


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """Option of a command with results."""

    json: Path | None = None
    """File for the results."""

    def save(self, results: Any) -> None:
        """Write the results to --json, if it is given."""
        if self.json:
            write_json(self.json, results)


def check_output_folder(folder: Path, *, overwrite: bool = False, resume: bool = False) -> None:
    """Refuse a folder that holds earlier results, unless they are to be replaced or continued.

    Raises:
        OutputError: Both options are given, the folder holds results and none is given, or it holds
            files that no command wrote.
        NotADirectoryError: The path is a file.
    """
    if overwrite and resume:
        raise OutputError("--overwrite removes what --resume continues: choose one of the two.")
    if not folder.exists():
        return
    visible = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if visible and PROVENANCE not in visible:
        raise OutputError(
            f"{folder} holds files of other origin ({', '.join(visible)[:100]}). "
            "Pass a new or empty folder with --output."
        )
    if visible and not overwrite and not resume:
        raise OutputError(
            f"{folder} holds results already. Pass --resume to continue them, --overwrite to replace them, "
            "or another --output."
        )


def check_output_file(file: Path, *, overwrite: bool = False) -> None:
    """Refuse a result file that exists, unless it is to be replaced; create its folder.

    Raises OutputError, or IsADirectoryError for a folder.
    """
    make_room(file)
    if file.exists() and not overwrite:
        raise OutputError(f"{file} exists already. Pass --overwrite to replace it, or another --output.")


def run_metadata() -> dict[str, Any]:
    """Describe this process: the command line, and the versions of Python and of packages."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {"command": shlex.join([*name.split(), *sys.argv[1:]]), "versions": versions}


def write_provenance(file: Path, settings: Mapping[str, Any], **more: Any) -> None:
    """Write command, versions, settings and further entries as JSON.

    Args:
        file: `provenance.json` of a folder, or `NAME.provenance.json` for a single result file.
        settings: Everything that the results depend on, apart from the input files.
        more: Further entries.
    """
    top_level = {name: settings.get(name) for name in ("model", "precision")}
    write_json(file, run_metadata() | top_level | {"settings": dict(settings)} | more)


class OutputFolder:
    """A folder of results, its `provenance.json`, and a log of the finished items.

    An item is a unit of work of a command: an image, a sequence, a pair. An interrupted run continues after
    its last finished item. Nothing is removed or written before the first result.

    Args:
        folder: Created if missing.
        settings: Everything that the results depend on, apart from the input files. JSON types, with the keys
            `model` and `precision` where a model is used.
        overwrite: Remove what earlier runs wrote.
        resume: Keep the finished items of an earlier run.

    Attributes:
        finished: Recorded values of the finished items by name, in their order.
        skipped: Inputs that could not be used.

    Raises:
        OutputError: See `check_output_folder`; or `resume` with other settings than before.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False, resume: bool = False
    ) -> None:
        check_output_folder(folder, overwrite=overwrite, resume=resume)
        self.folder = folder
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.finished: dict[str, Any] = {}
        self.skipped = SkippedInputs()
        self._sources: dict[str, tuple[list[Any], list[Any]]] = {}  # inputs, results
        self._contents: set[str] = set()
        self._written: list[Path] = []  # by the item that is computed
        self._started, self._is_open = _now(), False
        if (folder / PROVENANCE).exists():
            earlier = _read_provenance(folder)
            self._contents = set(earlier["contents"])
            if resume:
                self._continue(earlier)
        self._is_new = not resume

    def start_over(self) -> None:
        """Remove what an earlier run wrote, at the first result: nothing of it can be used."""
        self.finished, self._sources, self._started, self._is_new = {}, {}, _now(), True

    def path(self, *parts: str) -> Path:
        """Return the path of a result below the folder, and create its folder.

        Only paths that were returned here are removed by `overwrite`.
        """
        self._open()
        path = self.folder.joinpath(*parts)
        top_level = path.relative_to(self.folder).parts[0]
        if top_level not in self._contents:
            self._contents.add(top_level)
            self._write_provenance()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._written.append(path)
        return path

    def state_file(self, name: str) -> Path:
        """Return the file for the state of an item whose computation can continue; `add` removes it."""
        return self.path(f"{name}.unfinished")

    def has(self, name: str, inputs: Iterable[Path] = ()) -> bool:
        """Return whether an item is finished, and its inputs and result files are unchanged since then."""
        earlier, results = self._sources.get(name, (None, []))
        is_same = earlier == [_identity(file) for file in inputs]
        return is_same and all(_identity(self.folder / file[0])[1:] == file[1:] for file in results)

    def add(self, name: str, record: Any = None, *, inputs: Iterable[Path] = ()) -> None:
        """Record a finished item, the files that it was made from, and the results since the last one.

        `record` is a JSON value that `finished` returns in a later run.
        """
        self._open()
        state = self.folder / f"{name}.unfinished"
        files = [file for file in dict.fromkeys(self._written) if file != state]
        results = [[file.relative_to(self.folder).as_posix(), *_identity(file)[1:]] for file in files]
        self._sources[name] = [_identity(file) for file in inputs], results
        self.finished[name] = json.loads(json.dumps(record))
        with (self.folder / FINISHED_ITEMS).open("a", encoding="utf-8") as log:
            log.write(self._line(name))
        state.unlink(missing_ok=True)
        self._written.clear()

    def discard(self) -> None:
        """Remove the results of an item that failed."""
        for file in self._written:
            file.unlink(missing_ok=True)
        self._written.clear()

    def finish(self) -> None:
        """Note in `provenance.json` that the results are complete."""
        self._open()
        self._write_provenance(finished=_now())

    def _open(self) -> None:
        """Begin to write: remove what is replaced, then write the log and the provenance."""
        if self._is_open:
            return
        self._is_open = True
        if self._is_new:
            _remove(self.folder, self._contents)
            self._contents = set()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / FINISHED_ITEMS, "".join(map(self._line, self.finished)))
        self._write_provenance()

    def _line(self, name: str) -> str:
        return json.dumps([name, *self._sources[name], self.finished[name]]) + "\n"

    def _write_provenance(self, finished: str | None = None) -> None:
        entries = {"format": FORMAT, "contents": sorted(self._contents), "started": self._started}
        write_provenance(self.folder / PROVENANCE, self.settings, **entries, finished=finished)

    def _continue(self, earlier: Mapping[str, Any]) -> None:
        """Take over the finished items of a run with the same settings."""
        if earlier.get("format") != FORMAT:
            raise OutputError(
                f"{self.folder} is of another version (format {earlier.get('format')}, expected {FORMAT}). "
                "Pass --overwrite instead of --resume, or another --output."
            )
        before, now = earlier["settings"], self.settings
        if key := next((key for key in {**now, **before} if before.get(key) != now.get(key)), None):
            raise OutputError(
                f"{self.folder} was made with other settings ({key} was {before.get(key)!r}, now "
                f"{now.get(key)!r}). Pass the same, --overwrite instead of --resume, or another --output."
            )
        self._started = earlier["started"]
        log = self.folder / FINISHED_ITEMS
        *lines, _ = log.read_text(encoding="utf-8").split("\n") if log.exists() else [""]
        try:
            for name, inputs, results, record in map(json.loads, lines):
                self._sources[name], self.finished[name] = (inputs, results), record
        except (ValueError, TypeError):
            raise OutputError(f"{log} is damaged. Pass --overwrite to start again.") from None


class SkippedInputs:
    """Inputs of a batch that were skipped, with the reasons."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @property
    def count(self) -> int:
        """Number of skipped inputs."""
        return len(self._messages)

    def add(self, name: str, error: Exception) -> None:
        """Print an input and the reason why it is skipped, above a progress bar."""
        reason = sentence(error)
        message = reason if name in reason else f"{name}: {reason}"
        self._messages.append(message)
        tqdm.write(f"skipped {message}", file=sys.stderr)

    def check(self, total: int, kind: str = "images", advice: str = "") -> None:
        """Raise ValueError with the first reasons if an input was skipped, after all others were finished."""
        if self._messages:
            reasons = first_reasons(self._messages)
            raise ValueError(f"skipped {len(self._messages)} of {total} {kind}: {reasons}{advice}")


def first_reasons(messages: Sequence[str]) -> str:
    """Join the first messages, and count the others."""
    more = [f"and {len(messages) - MAX_REASONS} more"] * (len(messages) > MAX_REASONS)
    return "; ".join([*messages[:MAX_REASONS], *more])


STOP_SIGNALS = (signal.SIGTERM, *((signal.SIGUSR1,) if hasattr(signal, "SIGUSR1") else ()))
"""Signals of a scheduler that end a command resumably. Slurm can send SIGUSR1 before the time limit."""


class Terminated(KeyboardInterrupt):
    """One of `STOP_SIGNALS` was received."""


def run_command(run: Callable[[], int | None]) -> int:
    """Run a command and return its exit code.

    Returns:
        What `run` returns, 0 for None; 1 after an error, printed as one sentence; 130 after Ctrl-C; 75
        after SIGTERM or SIGUSR1; 141 after a closed pipe.
    """
    former = {number: signal.signal(number, _raise_terminated) for number in STOP_SIGNALS}
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="printable")
    try:
        try:
            return run() or 0
        finally:
            sys.stdout.flush()  # after --help, too, which ends with SystemExit
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return EXIT_BROKEN_PIPE
    except EXPECTED as error:
        rank = int(os.environ.get("RANK", "0"))
        if not rank:
            print(f"error: {sentence(error)}", file=sys.stderr)
        elif not isinstance(error, SettingError | OutputError | LostRank):  # the first process prints those
            print(f"error in process {rank}: {sentence(error)}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt as interrupt:
        print("Interrupted. Finished results are kept.", file=sys.stderr)
        return EXIT_SIGTERM if isinstance(interrupt, Terminated) else EXIT_INTERRUPTED
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Print names that are not UTF-8 as `printable`, other characters as Python does."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    is_name = all("\udc80" <= character <= "\udcff" for character in text)
    return printable(text) if is_name else text.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error("printable", _escape)


def _raise_terminated(_signal: int, _frame: object) -> None:
    raise Terminated


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _identity(file: Path) -> list[str | int]:
    """Path, size and time of change of a file; zeros where it is missing."""
    try:
        status = file.stat()
    except OSError:
        return [str(file.resolve()), 0, 0]
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


def _read_provenance(folder: Path) -> dict[str, Any]:
    file = folder / PROVENANCE
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if not {"settings", "contents", "started"} <= set(content):
            raise ValueError
    except (ValueError, TypeError):
        raise OutputError(f"{file} is damaged. Remove {folder} or pass another --output.") from None
    if wrong := [name for name in content["contents"] if Path(name).name != name]:
        raise OutputError(f"{file} lists {wrong[0]!r}, which is no entry of {folder}.")
    return content


def _remove(folder: Path, contents: Iterable[str]) -> None:
    """Remove results, the provenance last: an interrupted removal can be repeated."""
    for path in [folder / name for name in (*contents, FINISHED_ITEMS, PROVENANCE)]:
        if path.is_dir():
            rmtree(path)
        else:
            path.unlink(missing_ok=True)
