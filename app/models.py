"""Models by the names that visitors choose: downloaded where allowed, loaded once, held in bounded memory."""

import asyncio
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
from app.lanes import Lane, Tell, silent
from app.limits import MEGABYTE, Limits
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
        self._loading = Lane("a model that is being loaded", 1, most=64)
        self._running: dict[str, _Download] = {}
        self._threads: set[threading.Thread] = set()
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
            raise NotHere(f"There is no model of that name here: choose one of {some} and others.", "model")
        return Source(place, _version(place))

    async def ready(self, name: str, tell: Tell = silent) -> LoadedModel:
        """A model with its weights in memory, fetched and loaded where needed; nobody else waits for that.

        Raises:
            LabError: no such model, or it cannot be had.
        """
        source = self.source(name)
        found = self._weights.get(source)
        if found is None:
            await self._fetched(name, source.place, tell)
            found = await self._loading.run(lambda: self._load(name, source), tell=tell, state="loading")
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

    async def _fetched(self, name: str, place: str, tell: Tell) -> None:
        """Wait until the weights are on this machine; the last one who leaves ends the download."""
        wanted = await asyncio.to_thread(download_of, place)
        if wanted is None:
            return
        if not self.downloads:
            raise LabError(f"{name} is not on this machine, and this page fetches no models.")
        download = self._running.get(name)
        if download is None or download.ended.is_set() or download.unwanted:
            download = self._running[name] = self._begin(name, *wanted)
        download.waiting += 1
        try:
            told = None
            while not download.ended.is_set():
                news = {"state": "downloading", "model": name, "done": download.done, "total": download.total}
                if news != told:
                    tell(told := news)
                await asyncio.sleep(TOLD_EVERY)
        finally:
            download.waiting -= 1
            download.unwanted = download.unwanted or not download.waiting
        if download.error:
            raise Busy(
                f"{name} is not on this machine and could not be downloaded: "
                "choose another model, or try again later."
            ) from download.error

    def _begin(self, name: str, address: str, file: str) -> "_Download":
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        if len(self._threads) >= DOWNLOADS_AT_ONCE:
            raise Busy("Other models are being downloaded: try again in a moment.")
        download = _Download()
        thread = threading.Thread(
            target=download.run, args=(address, file), name=f"fetch {name}", daemon=True
        )
        self._threads.add(thread)
        thread.start()
        return download


class _Unwanted(Exception):
    """Nobody waits for this download any more."""


class _Download:
    """A file on its way, in a thread that ends with the process: a connection that hangs holds up nobody."""

    def __init__(self) -> None:
        self.done = self.total = self.waiting = 0
        self.unwanted = False
        self.error: Exception | None = None
        self.ended = threading.Event()

    def run(self, address: str, file: str) -> None:
        """Fetch `file` of the cache from `address`; what goes wrong is kept in `error`."""
        try:
            fetch(address, file, read_backbone, self._hear)
        except Exception as error:
            if not isinstance(error, _Unwanted):
                print(error, file=sys.stderr)
            self.error = error
        finally:
            self.ended.set()

    def _hear(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.unwanted:
            raise _Unwanted


def _version(place: str) -> str:
    """When a file of this machine was written last; empty for what is no file."""
    if not is_path(place):
        return ""
    path = Path(place)
    try:
        return f"{(Run(path).checkpoint if path.is_dir() else path).stat().st_mtime_ns:x}"
    except OSError:
        return ""
