"""Models by the names that visitors choose: downloaded where allowed, loaded once, held in bounded memory."""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.cache import BoundedCache
from app.catalogue import Catalogue, catalogue
from app.errors import Busy, LabError, NotHere
from app.limits import MEGABYTE, Limits
from app.progress import Progress, silent
from app.runs import checkpoint_file
from dino_model.checkpoints import WeightsError, read_backbone
from dino_model.download import DownloadError, fetch
from dino_model.weights import LoadedModel, download_of, is_path, load_model
from training.run import Run

DOWNLOADS_AT_ONCE = 4
TOLD_EVERY = 0.25  # seconds
LIST_FRESH = 1.0  # seconds


@dataclass(frozen=True)
class Source:
    """Where a model's weights are."""

    place: str
    """What `load_model` takes; may be a path, which a visitor never sees."""
    version: str
    """Changes when a file of this machine is written anew; empty for what is published."""


class Models:
    """What visitors may choose from, and the weights that were used last.

    Args:
        first: the model the page opens with, any name that `load_model` takes.
        folder: of checkpoints and runs, or None; looked into anew at every question.
        downloads: whether models that are not on this machine are offered and fetched.
        limits: bound the memory for weights.

    Raises:
        FileNotFoundError: no such folder.
    """

    def __init__(
        self,
        first: str = "embedded",
        folder: Path | None = None,
        *,
        downloads: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self._first, self.folder, self.downloads = first, folder, downloads
        self._weights: BoundedCache[Source, LoadedModel] = BoundedCache(
            (limits or Limits()).max_weights_mb * MEGABYTE
        )
        self._loading, self._starting = threading.Lock(), threading.Lock()
        self._running: dict[str, _Download] = {}
        self.on_forgotten: Callable[[LoadedModel], None] = lambda model: None
        self._offered: tuple[float, Catalogue] = (0.0, {})
        self.first = next(iter(self.offered()))

    def offered(self) -> Catalogue:
        """The list as it is now, or was a second ago."""
        drawn, offered = self._offered
        if not offered or time.monotonic() - drawn > LIST_FRESH:
            offered = catalogue(self._first, self.folder, downloads=self.downloads)
            self._offered = time.monotonic(), offered
        return offered

    def source(self, name: str) -> Source:
        """Behind a name of the list, or of a checkpoint of a run (see `runs.checkpoint_file`).

        Raises:
            NotHere: no such name.
        """
        offered = self.offered()
        if name in offered:
            place = offered[name].source
        elif found := checkpoint_file(name, self.folder):
            place = str(found)
        else:
            some = ", ".join(list(offered)[:4])
            raise NotHere(f"There is no model of that name here: choose one of {some} and others.")
        return Source(place, _version(place))

    def ready(self, name: str, progress: Progress = silent) -> LoadedModel:
        """Return a model with its weights in memory; download and load it where needed.

        Raises:
            LabError: The model is unknown, or cannot be downloaded or loaded.
        """
        source = self.source(name)
        found = self._weights.get(source)
        if found is None:
            self._fetched(name, source.place, progress)
            progress(None, desc=f"Loading {name}")
            with self._loading:
                found = self._load(name, source)
        return found

    def load(self, name: str) -> LoadedModel:
        """A model with its weights in memory; a download is told on the terminal.

        Raises:
            OSError, TypeError, ValueError: as `load_model`.
        """
        source = self.source(name)
        if not self.downloads and download_of(source.place):
            raise DownloadError(f"{name} is not on this machine, and --no-downloads forbids to fetch it")
        return self._keep(source, load_model(source.place))

    def _load(self, name: str, source: Source) -> LoadedModel:
        if found := self._weights.get(source):  # another visitor wanted the same meanwhile
            return found
        try:
            return self._keep(source, load_model(source.place))
        except (WeightsError, DownloadError) as error:
            print(error, file=sys.stderr)
            raise LabError(f"The weights of {name} cannot be loaded: choose another model.") from error
        except Exception as error:
            traceback.print_exc()
            raise LabError(f"{name} cannot be used here: choose another model.") from error

    def _keep(self, source: Source, model: LoadedModel) -> LoadedModel:
        weight = sum(each.numel() * each.element_size() for each in model.backbone.state_dict().values())
        for forgotten in self._weights.put(source, model, weight):
            self.on_forgotten(forgotten)
        return model

    def _fetched(self, name: str, place: str, progress: Progress) -> None:
        """Wait until the weights are on this machine."""
        wanted = download_of(place)
        if wanted is None:
            return
        if not self.downloads:
            raise LabError(f"{name} is not on this machine, and this page downloads no models.")
        with self._starting:
            download = self._running.get(name)
            if download is None or download.ended.is_set():
                if sum(not one.ended.is_set() for one in self._running.values()) >= DOWNLOADS_AT_ONCE:
                    raise Busy("Other models are being downloaded: try again in a moment.")
                download = self._running[name] = _Download(*wanted)
        while not download.ended.wait(TOLD_EVERY):
            share = download.done / download.total if download.total else None
            progress(share, desc=f"Downloading {name}, {download.done / MEGABYTE:.0f} MB")
        if download.error:
            raise Busy(
                f"{name} is not on this machine and could not be downloaded: "
                "choose another model, or try again later."
            ) from download.error


class _Download(threading.Thread):
    """A transfer in a daemon thread: a connection that hangs does not keep the process alive."""

    def __init__(self, address: str, file: str) -> None:
        super().__init__(name=f"fetch {file}", daemon=True)
        self.address, self.file = address, file
        self.done = self.total = 0
        self.error: Exception | None = None
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Fetch the file into the cache; an exception is kept in `error`."""
        try:
            fetch(self.address, self.file, read_backbone, self._hear)
        except Exception as error:
            print(error, file=sys.stderr)
            self.error = error
        finally:
            self.ended.set()

    def _hear(self, done: int, total: int) -> None:
        self.done, self.total = done, total


def _version(place: str) -> str:
    """When a file of this machine was written last; empty for what is no file."""
    if not is_path(place):
        return ""
    path = Path(place)
    try:
        return f"{(Run(path).checkpoint if path.is_dir() else path).stat().st_mtime_ns:x}"
    except OSError:
        return ""
