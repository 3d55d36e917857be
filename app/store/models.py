"""Models by the names that users choose: downloaded where allowed, loaded once, in bounded memory.

Clients choose a name of the list. Where the host allows it, they may also type any name of `load_model`.
"""

import html
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import gradio as gr
from torch import nn

from app.limits.bounds import MEGABYTE, BoundedCache, Limits
from app.limits.errors import Busy, LabError, NotHere
from app.limits.fairness import stop_if_canceled
from app.store.runs import milestones, run_folders
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.catalogue import (
    OFFICIAL,
    SUFFIXES,
    WeightsError,
    check_name,
    is_local,
    is_path,
    missing_files,
    own_code,
)
from dino_model.models.load import load_model
from dino_model.runtime.device import Precision
from dino_model.runtime.download import DownloadError
from training.run.folder import Run

SUPERVISED = {
    "deit_small_patch16_224.fb_in1k": "ViT-S/16, supervised on ImageNet-1k (DeiT)",
    "deit_base_patch16_224.fb_in1k": "ViT-B/16, supervised on ImageNet-1k (DeiT)",
}
"""Supervised baselines of the paper by their names in timm."""
OTHER = "?"
"""Choice of the list that no model has: its refusal says what may be typed instead."""
DOWNLOADS_AT_ONCE = 4


class Choice(NamedTuple):
    """A model of the list: text for users, and argument of `load_model`, a path that users do not see."""

    label: str
    source: str


class Source(NamedTuple):
    """Argument of `load_model`, which may be a path, and the version of its file, empty if published."""

    place: str
    version: str


def catalogue(
    first: str = "embedded", folder: Path | None = None, *, downloads: bool = True
) -> dict[str, Choice]:
    """List the first model, those of the package, those in a folder and the published ones, by name.

    Checkpoints of the runs in the folder are RUN@STEP. Raises FileNotFoundError if it is no folder.
    """
    choices = {
        "embedded": Choice("embedded · distilled from DINOv2", "embedded"),
        "embedded-dino": Choice("embedded-dino · no teacher", "embedded-dino"),
        "random:embedded": Choice("random:embedded · untrained", "random:embedded"),
    }
    if folder is not None:
        if not folder.is_dir():
            raise FileNotFoundError(f"--models-dir names no folder: {folder}")
        for entry in sorted(folder.iterdir()):
            if entry.suffix in SUFFIXES or Run(entry).checkpoint.is_file():
                choices[entry.name] = Choice(f"{entry.name} · from this server's folder", str(entry))
        for run in run_folders(folder):
            for step, file in milestones(run):
                choices[f"{run.name}@{step}"] = Choice(f"{run.name} · step {step:,}", str(file))
    attentive = {name: one.title for name, one in OFFICIAL.items() if one.config.architecture != "resnet50"}
    for name, title in (attentive | SUPERVISED).items():
        if is_local(name):
            choices[name] = Choice(f"{name} · {title}", name)
        elif downloads:
            choices[name] = Choice(f"{name} · {title} · downloads when chosen", name)
    name = Path(first).name if first not in choices and Path(first).exists() else first
    return {name: choices.get(first, Choice(name, first))} | choices


class Models:
    """The models that users may choose, and those used last as predictors.

    Args:
        first, folder, downloads, heads, any_model, precision, device: As the options of `python -m app`. New
            files in the folder appear without a restart.
        limits: Bound on the memory for weights.
    """

    def __init__(
        self,
        first: str = "embedded",
        folder: Path | None = None,
        *,
        downloads: bool = True,
        limits: Limits | None = None,
        heads: int | None = None,
        any_model: bool = False,
        precision: Precision = "auto",
        device: str = "auto",
    ) -> None:
        self._first, self.folder, self.downloads, self.any_model = first, folder, downloads, any_model
        self._precision: Precision = precision
        self._heads, self._device = heads, device
        self._predictors: BoundedCache[Source, AttentionPredictor] = BoundedCache(
            (limits or Limits()).max_weights_mb * MEGABYTE
        )
        self._loading = threading.Lock()
        self._downloads: dict[str, threading.Lock] = {}
        self.on_forgotten: Callable[[AttentionPredictor], None] = lambda predictor: None
        self.first = next(iter(self.offer()))

    def offer(self) -> dict[str, Choice]:
        """Return the models on offer."""
        return catalogue(self._first, self.folder, downloads=self.downloads)

    def choices(self) -> list[tuple[str, str]]:
        """Return (label, name) of every model on offer, and `OTHER`, for a dropdown."""
        offered = [(choice.label, name) for name, choice in self.offer().items()]
        return [*offered, ("another: type its name or path", OTHER)]

    def source(self, name: object) -> Source:
        """Return the source of a model on offer, or of another one where users may open any."""
        if not isinstance(name, str):
            raise LabError("The model must be named by text.")
        offered = self.offer()
        place = offered[name].source if name in offered else self._other(name)
        try:
            path = Path(place)
            file = Run(path).checkpoint if path.is_dir() else path
            return Source(place, f"{file.stat().st_mtime_ns:x}" if is_path(place) else "")
        except OSError:
            return Source(place, "")

    def _other(self, name: str) -> str:
        if not self.any_model:
            some = ", ".join(list(self.offer())[:4])
            raise NotHere(
                f"There is no model of that name: choose one of {some} and others. "
                "The page opens other names and files only if its host starts it with --any-model on."
            )
        if name == OTHER:
            raise LabError(
                "Type the path of a checkpoint or of a run's folder, a name of timm, or hf:OWNER/NAME "
                "into the menu, and press Enter."
            )
        if own_code(name):
            raise LabError(f"The page does not run own code: start it with --model {name}.")
        try:
            check_name(name)
        except WeightsError as error:
            raise NotHere(_capitalize(error)) from error
        return name

    def ready(self, name: object) -> AttentionPredictor:
        """Return a model with its weights in memory; download and load it where needed, and show progress."""
        source = self.source(name)
        predictor = self._predictors.get(source)
        if predictor is None:
            self._download(str(name), source.place)
            gr.Progress()(None, desc=f"Loading {name}")
            try:
                with self._loading:  # another request may have loaded the same model meanwhile
                    predictor = self._predictors.get(source) or self._load(source)
                if name not in self.offer():
                    network = f"{predictor.blocks} blocks of {predictor.heads} heads"
                    read = f"{predictor.model.source}, {network}, patches of {predictor.patch_size} pixels"
                    gr.Info(html.escape(f"Opened {name}: {read}."))
            except Exception as error:
                traceback.print_exc()
                fault = f"The weights of {name} cannot be loaded: choose another model."
                if isinstance(error, WeightsError):  # its sentence names the file, but not to clients
                    fault += f" {_capitalize(error)}".replace(source.place, str(name))
                raise LabError(fault) from error
        return predictor

    def loader(self, name: object) -> Callable[[], AttentionPredictor] | None:
        """Return a function that downloads and loads a model; None if the model is in memory."""
        return None if self._predictors.get(self.source(name)) else partial(self.ready, name)

    def load_first(self) -> None:
        """Load the model that the page opens with; the terminal shows the progress of a download."""
        source = self.source(self.first)
        if not self.downloads and missing_files(source.place):
            raise DownloadError(f"{self.first} is not on this machine, and --no-downloads is set")
        if self._predictors.get(source) is None:
            self._load(source)

    def _load(self, source: Source) -> AttentionPredictor:
        first = self.source(self.first).place
        model = load_model(source.place, heads=self._heads if source.place == first else None)
        for layers in model.backbone.modules():
            for block in layers if isinstance(layers, nn.ModuleList | nn.Sequential) else ():
                block.register_forward_pre_hook(stop_if_canceled)  # a panorama takes seconds
        predictor = AttentionPredictor(model, precision=self._precision, device=self._device)
        size = sum(tensor.nbytes for tensor in model.backbone.state_dict().values())
        for forgotten in self._predictors.put(source, predictor, size):
            self.on_forgotten(forgotten)
        return predictor

    def _download(self, name: str, place: str) -> None:
        """Put the weights on this machine; requests for one model share its download."""
        missing = missing_files(place)
        if not missing:
            return
        if not self.downloads:
            raise LabError(f"{name} is not on this machine, and this page downloads no models.")
        lock = self._downloads.setdefault(name, threading.Lock())
        running = sum(other.locked() for other in self._downloads.values())
        if not lock.locked() and running >= DOWNLOADS_AT_ONCE:
            raise Busy("Other models are being downloaded: try again in a moment.")
        progress = gr.Progress()

        def report(done: int, total: int) -> None:
            progress(done / total if total else None, desc=f"Downloading {name}, {done / MEGABYTE:.0f} MB")

        try:
            with lock:
                for file in missing:
                    file.fetch(report)
        except Exception as error:
            print(error, file=sys.stderr)
            raise Busy(
                f"{name} is not on this machine and could not be downloaded: "
                "choose another model, or try again later."
            ) from error


def _capitalize(error: WeightsError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
