"""The commands of `python -m dino_model`."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro

from dino_model import catalogue, export, files
from dino_model.catalogue import Facts
from dino_model.checkpoints import CheckpointKey, WeightsError, write_safetensors
from dino_model.class_map.command import DrawClassMap
from dino_model.errors import EXPECTED, sentence
from dino_model.weights import is_path, load_model

COLUMNS = ("name", "model", "parameters", "k-NN", "linear", "VOC12", "DAVIS", "here")
LEGEND = """\
Scores are as published, in percent. k-NN (k = 20) and linear: ImageNet-1k top-1; VOC12: Jaccard of attention
masks; DAVIS: 2017, mean of J and F. here: loads without a network; the others are fetched when first used.

Names are also random:ARCHITECTURE/PATCH (random:vit_small/16), any timm name (deit_small_patch16_224.fb_in1k,
vit_small_patch14_reg4_dinov2.lvd142m; `list --timm '*dino*'` tells which), hf:OWNER/NAME, a .pth, .pt or
.safetensors file, and the folder of a training run."""


@dataclass(frozen=True)
class List:
    """Models with a name of their own, and their published scores; with --timm, timm's that can be read."""

    timm: str | None = None
    """Tell of the models of timm's whose name fits this instead, such as '*dinov3*': what of their attention
    can be read, or why not; licence, size, whether here. Fetches nothing."""
    json: Path | None = None
    """Write the table to this file."""

    def run(self) -> None:
        """Print the table."""
        if self.timm is not None:
            self._tell_timm(self.timm)
            return
        models = catalogue.listed()
        print(_table([COLUMNS, *map(_row, models)]), LEGEND, sep="\n\n")
        if self.json:
            files.write_json(self.json, [asdict(model) for model in models])

    def _tell_timm(self, pattern: str) -> None:
        found = []
        for model in catalogue.of_timm(pattern):
            found.append(asdict(model))
            size = f"{model.parameters / 1e6:.1f} M parameters"
            print(
                f"{model.name}\n    {model.architecture}; {size}; licence {model.licence}; here: {model.here}"
            )
            print(f"    {model.reads}", flush=True)
        if self.json:
            files.write_json(self.json, found)


@dataclass(frozen=True)
class Show:
    """What a model is: architecture, source, licence, published scores. Fetches nothing."""

    name: tyro.conf.Positional[str]
    """Any name of a model, file or training run."""
    json: Path | None = None
    """Write the facts to this file."""

    def run(self) -> None:
        """Print the facts."""
        model = catalogue.facts(self.name)
        _, _, parameters, *scores, here = _row(model)
        named_scores = zip(COLUMNS[3:7], scores, strict=True)
        lines = {
            "name": model.name,
            "model": model.title,
            "architecture": model.architecture,
            "parameters": parameters,
            "source": model.source,
            "licence": model.licence,
            "here": "yes" if here == "yes" else "no, fetched when first used",
            "published": ", ".join(f"{name} {score}" for name, score in named_scores if score != "–")
            or "nothing in the paper",
        }
        print("\n".join(f"{name:13}{value}" for name, value in lines.items()))
        if model.note:
            print(f"\n{model.note}")
        if self.json:
            files.write_json(self.json, asdict(model))


@dataclass(frozen=True)
class Export:
    """Write a model to one file: .safetensors that describes itself, or .onnx for other programs."""

    name: tyro.conf.Positional[str]
    """Any name of a model, file or training run."""
    output: Path | None = None
    """File to write; left out: one here that is called after the model and the format."""
    format: Literal["safetensors", "onnx"] = "safetensors"
    """onnx answers with the [CLS] feature and the last block's attention of [CLS]."""
    dtype: Literal["fp32", "fp16"] = "fp32"
    """Storage of figures in .safetensors; they load to fp32 either way."""
    size: int = 224
    """Side of the square pictures that an .onnx file takes."""
    checkpoint_key: CheckpointKey = None
    """Which network of several in a checkpoint or run: teacher, student, …; left out: its usual one."""

    def run(self) -> None:
        """Load, write, say how large it became."""
        output = self.output or _file_called_after(self.name, self.format)
        if not output.parent.is_dir():
            raise WeightsError(f"no folder {str(output.parent)!r} to write {output.name} to")
        if self.format == "onnx" and self.dtype == "fp16":
            raise WeightsError("ONNX is written in fp32: leave --dtype out")
        model = load_model(self.name, checkpoint_key=self.checkpoint_key)
        if self.format == "onnx":
            export.write_onnx(model.backbone, output, size=self.size, channels=len(model.mean))
        elif model.config is None:
            raise WeightsError(
                f"{self.name} is timm's, whose files describe it already: choose --format onnx"
            )
        else:
            dtype = {"fp32": torch.float32, "fp16": torch.float16}[self.dtype]
            write_safetensors(
                model.backbone, output, config=model.config, mean=model.mean, std=model.std, dtype=dtype
            )
        print(f"wrote {output}: {model.source}, {output.stat().st_size / 1e6:.1f} MB")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and run; an error becomes one sentence and exit code 1."""
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            {"list": List, "show": Show, "export": Export, "class-map": DrawClassMap},
            args=arguments,
            prog="python -m dino_model",
            description="Models by name: what there is, what it is, export; and maps of classes.",
        )
        command.run()
    except EXPECTED as error:
        sys.exit(f"error: {sentence(error)}")


def _file_called_after(name: str, suffix: str) -> Path:
    """random:vit_small/16 -> random_vit_small_16.safetensors, runs/first -> first.safetensors."""
    if is_path(name):
        name = Path(name).stem if Path(name).is_file() else Path(name).resolve().name
    path = Path(f"{re.sub(r'[^0-9A-Za-z._-]', '_', name)}.{suffix}")
    if path.exists():
        raise WeightsError(f"{path} is there already: name the file to write with --output")
    return path


def _row(model: Facts) -> tuple[str, ...]:
    scores = (model.scores.knn, model.scores.linear, model.scores.voc, model.scores.davis)
    published = ("–" if score is None else f"{score:.1f}" for score in scores)
    here = "yes" if model.local else "no"
    return (model.name, model.title, f"{model.parameters / 1e6:.1f} M", *published, here)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
