"""Commands of `python -m dino_model`. They import torch when they run, not for `--help`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from dino_model.data.classes import LabelOptions, describe_classes
from dino_model.inference.options import ChannelOptions, FeatureOptions, ModelOptions, PrecisionOptions
from dino_model.models.catalogue import EMBEDDED, OFFICIAL, PublishedScores, embedded_parameters
from dino_model.models.configs import CheckpointOptions
from dino_model.runtime import files
from dino_model.runtime.errors import SettingError, pluralize
from dino_model.runtime.outputs import (
    PROVENANCE,
    JsonOptions,
    check_output_file,
    check_output_folder,
    write_provenance,
)

COLUMNS = ("name", "model", "parameters", "k-NN", "linear", "VOC12", "DAVIS", "here")
LEGEND = """\
Scores are as published, in percent. k-NN (k = 20) and linear: ImageNet-1k top-1; VOC12: Jaccard of attention
masks; DAVIS: 2017, mean of J and F. here: loads without a network; the others are downloaded when first used.

Names are also random:ARCHITECTURE/PATCH (random:vit_small/16), any timm name (deit_small_patch16_224.fb_in1k,
vit_small_patch14_reg4_dinov2.lvd142m; timm.list_models("*dino*", pretrained=True) lists them), hf:OWNER/NAME,
a .pth, .pt or .safetensors file, the folder of a training run, and MODULE:FUNCTION of own code that returns a
module."""


@dataclass(frozen=True)
class List(JsonOptions):
    """List models and their published scores."""

    def run(self) -> None:
        """Print the table; its file also describes the architectures, which needs torch."""
        published = (
            _row(name, entry.title, entry.parameters, entry.scores, entry.file.path() is not None)
            for name, entry in OFFICIAL.items()
        )
        embedded = (_row(name, name, embedded_parameters(name), PublishedScores(), True) for name in EMBEDDED)
        rows = [COLUMNS, *embedded, *published]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        print("\n".join(lines), LEGEND, sep="\n\n")
        if self.json:
            from dino_model.models.description import describe_model

            self.save([asdict(describe_model(name)) for name, *_ in rows[1:]])


@dataclass(frozen=True)
class Show(CheckpointOptions, JsonOptions):
    """Show architecture, source, license and published scores of a model. Downloads nothing."""

    name: tyro.conf.Positional[str]
    """Any name of a model, file or training run."""

    def run(self) -> None:
        """Print the facts."""
        from dino_model.models.description import describe_model

        model = describe_model(self.name, **self.checkpoint())
        _, title, parameters, *scores, _ = _row(
            model.name, model.title, model.parameters, model.scores, model.local
        )
        published = [pair for pair in zip(COLUMNS[3:7], scores, strict=True) if pair[1] != "–"]
        lines = {
            "name": model.name,
            "model": title,
            "architecture": model.architecture,
            "parameters": parameters,
            "attention": model.maps,
            "source": model.source,
            "license": model.license,
            "here": "yes" if model.local else "no, downloaded when first used",
            "published": ", ".join(map(" ".join, published)) or "nothing in the paper",
        }
        print(*(f"{key:<12} {value}" for key, value in lines.items()), model.note, sep="\n")
        self.save(asdict(model))


@dataclass(frozen=True)
class Export(CheckpointOptions):
    """Write a model as a file that describes itself, as an ONNX file, or as a folder for transformers."""

    name: tyro.conf.Positional[str]
    """Any name of a model, file or training run."""
    output: Path
    """The suffix is the format. FILE.safetensors: a file that `--model` takes. FILE.onnx: [CLS] and patch
    features, queries and keys of every block, for images of any size. FOLDER: for the classes ViT and DINOv2
    of
    transformers."""
    dtype: Literal["fp32", "fp16", "int8"] = "fp32"
    """Type of stored weights; they load to fp32. A folder has fp32; int8 is for .onnx."""
    overwrite: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Check the options, load the model, write it, print the size."""
        output, suffix = self.output, self.output.suffix
        dtypes = {"": ("fp32",), ".safetensors": ("fp32", "fp16"), ".onnx": ("fp32", "fp16", "int8")}
        if suffix not in dtypes or self.dtype not in dtypes[suffix]:
            formats = ", ".join(f"{kind or 'folder'} ({' '.join(types)})" for kind, types in dtypes.items())
            raise SettingError(f"cannot write {output} with --dtype {self.dtype}: expected {formats}")
        check = check_output_file if suffix else check_output_folder
        check(output, overwrite=self.overwrite)
        import torch

        from dino_model.models.catalogue import WeightsError
        from dino_model.models.checkpoint import write_safetensors
        from dino_model.models.export import write_onnx, write_transformers
        from dino_model.models.load import load_model

        model, written = load_model(self.name, **self.checkpoint()), output
        if suffix == ".onnx":
            write_onnx(model.backbone, output, self.dtype)
        elif not suffix:
            written = write_transformers(model, output)
            settings = {"model": self.name, "precision": "fp32"} | self.checkpoint()
            contents = sorted(entry.name for entry in output.iterdir())
            write_provenance(output / PROVENANCE, settings, contents=contents)
        elif model.config is None:
            raise WeightsError(f"{self.name} has no architecture of this package: choose .onnx or a folder")
        else:
            dtype = {"fp32": torch.float32, "fp16": torch.float16}[self.dtype]
            statistics: Any = {"mean": model.mean, "std": model.std, "channel_range": model.channel_range}
            write_safetensors(model.backbone, output, config=model.config, dtype=dtype, **statistics)
        print(f"wrote {output}: {model.source}, {written.stat().st_size / 1e6:.1f} MB")


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(LabelOptions, ChannelOptions, FeatureOptions, ModelOptions):
    """Options of both commands that write features. Large JPEGs are decoded at a fraction of their size."""

    size: int = 224
    """Short side and center crop in pixels."""

    def write(
        self, data: Path, output: Path, tokens: Any = "output", layers: int = 1, *, as_index: bool = False
    ) -> None:
        """Compute the features of a collection, write them; processes started by torchrun share the work."""
        if min(self.batch_size, self.size, layers) < 1:
            raise SettingError("--batch-size, --size and --layers must be at least 1.")
        files.make_room(output)
        from dino_model.data.collection import Images, open_images
        from dino_model.data.framing import Framing
        from dino_model.inference.embedding import UNITS, embed
        from dino_model.inference.features import FeatureType
        from dino_model.models.adaptation import fit_channels
        from dino_model.runtime import ranks
        from dino_model.runtime.device import choose_device

        def list_images() -> Images:
            return open_images(data, arrays=self.channels is not None, options=self.label_options())

        with ranks.process_group(choose_device(self.device)) as device:
            images = ranks.on_first(list_images, ranks.LISTING_LIMIT)
            raw = images.raw_channels(self.channels or 3)
            model = fit_channels(self.load(), raw, self.channels)
            framing, kind = Framing(self.size, model.mean, model.std), FeatureType(layers, tokens=tokens)
            settings = {"root": str(data.resolve()), "checkpoint": json.dumps(self.checkpoint())}
            settings |= {UNITS: "float16"} if as_index else {}
            extractor = self.extractor(model, framing, kind=kind, device=str(device), reduced=True)
            embed(images, extractor, output, settings)
            if ranks.rank() == 0:
                about: Any = {"device": str(device), "batch_size": self.batch_size, **settings}
                about |= {"model": model.name, "size": self.size, "tokens": kind.tokens, "layers": layers}
                about |= {"precision": self.chosen_precision()}
                write_provenance(output.with_suffix(".provenance.json"), about, reading=str(images))


@dataclass(frozen=True)
class Embed(EmbedOptions):
    """Write features of images with their names and labels; an interrupted call continues when repeated."""

    data: Path
    """FOLDER, uncompressed TAR or LIST."""
    output: Path
    """File to write: .npz, .safetensors or .csv."""
    tokens: Literal["output", "cls", "mean", "patches", "all"] = "output"
    """output: the model's own feature of an image, [CLS] or pooled, which is printed. Or, after the final
    norm: [CLS] of a model that outputs it, the mean of the patches, the patches, or all tokens."""
    layers: int = 1
    """Last layers, whose tokens are joined along their width; 1 for the output."""
    overwrite: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        """Compute the features, write the file."""
        check_output_file(self.output, overwrite=self.overwrite)
        self.write(self.data, self.output, self.tokens, self.layers)


@dataclass(frozen=True)
class Index(EmbedOptions):
    """Save the features of a folder, so that `search` finds similar images at once."""

    folder: tyro.conf.Positional[Path]
    """FOLDER, uncompressed TAR or LIST."""
    output: Path = Path("index.safetensors")
    """File to write."""

    def run(self) -> None:
        """Compute the features, write the file."""
        if self.output.suffix != ".safetensors":
            raise SettingError(f"--output is {self.output}: expected a .safetensors file")
        self.write(self.folder, self.output, as_index=True)


@dataclass(frozen=True)
class Search(JsonOptions, PrecisionOptions):
    """Find the images of an index that are most similar to query images."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Query images."""
    index: Path = Path("index.safetensors")
    """File of `python -m dino_model index`."""
    count: int = 9
    """Images to find for each query."""
    model: str | None = None
    """Another name of the index's model; other weights are refused. Default: the name in the index."""
    output: Path = Path("neighbors.jpg")
    """Contact sheet to write: a row per query, the query first."""

    def run(self) -> None:
        """Search, print, write the contact sheet."""
        if not self.images or self.count < 1:
            raise SettingError("Pass at least one query image and a --count of at least 1.")
        if self.output.suffix.lower() not in (".jpg", ".jpeg", ".png"):
            raise SettingError(f"--output is {self.output}: expected a .jpg or .png file")
        files.make_room(self.output, self.json)
        from dino_model.data.images import read
        from dino_model.inference.search import open_search, write_contact_sheet

        index = open_search(self.index, model=self.model, precision=self.precision, device=self.device)
        sheet, results = [], []
        for path in self.images:
            image = read(path)
            neighbors = index.search(image, self.count)
            tiles = [(index.read(name), f"{cosine:.2f} {name}") for name, cosine in neighbors]
            sheet.append([(image, path.name), *tiles])
            results.append({"image": str(path), "neighbors": neighbors})
            print(path, *(f"  {cosine:.3f}  {name}" for name, cosine in neighbors), sep="\n")
        write_contact_sheet(self.output, sheet)
        print(f"contact sheet: {self.output}")
        self.save({"index": str(self.index), "results": results})


@dataclass(frozen=True, kw_only=True)
class Predict(FeatureOptions):
    """Predict the classes of images with a head of `training evaluate linear` or `logistic`, as a table."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Images, folders, uncompressed tars or lists."""
    head: Path
    """File that `--save-head` wrote. It names its model and its size of images."""
    output: Path = Path("predictions.csv")
    """Table to write: path, class, score."""
    model: str | None = None
    """Another name of the head's model; other weights are refused. Default: the name in the head."""
    overwrite: bool = False
    """Replace an existing table."""

    def run(self) -> None:
        """Read the head, load its model, write the table; images that cannot be read are named."""
        if not self.images or self.batch_size < 1:
            raise SettingError("Pass at least one image or folder, and a --batch-size of at least 1.")
        check_output_file(self.output, overwrite=self.overwrite)
        from dino_model.data.collection import open_images
        from dino_model.inference.classifier import ImageTask, feature_type, read_classifier
        from dino_model.inference.predictions import write_predictions

        head = read_classifier(self.head, ImageTask)
        model, task = head.load_model(self.head, self.model, **self.checkpoint()), head.task
        images = open_images(self.images, arrays=model.channel_range is not None)
        print(f"{model.name}: {model.source}; {describe_classes(head.classes)}; {images}", flush=True)
        kind = feature_type(model, task.spec.blocks)
        extractor = self.extractor(model, task.framing(model), kind=kind)
        table = extractor.extract(images, title=pluralize(len(images), "image"))
        shares = task.probabilities(head.classifier, model, table.features)
        write_predictions(self.output, table.images.names, shares, head.classes, several=task.several)
        print(f"{pluralize(len(table.images), 'prediction')}: {self.output}")


COMMANDS = {
    "list": "dino_model.commands:List",
    "show": "dino_model.commands:Show",
    "embed": "dino_model.commands:Embed",
    "export": "dino_model.commands:Export",
    "index": "dino_model.commands:Index",
    "search": "dino_model.commands:Search",
    "predict": "dino_model.commands:Predict",
    "class-map": "dino_model.inference.class_map.command:DrawClassMap",
}
"""Implementation of each command, see `dino_model.runtime.dispatch`."""


def _row(name: str, title: str, parameters: int, scores: PublishedScores, is_local: bool) -> tuple[str, ...]:
    values = (scores.knn, scores.linear, scores.voc, scores.davis)
    published = ("–" if score is None else f"{score:.1f}" for score in values)
    return (name, title, f"{parameters / 1e6:.1f} M", *published, "yes" if is_local else "no")
