"""Ship a run of distillation as the embedded model, with everything that is made from it.

python -m tools.ship RUN [--weights FILE] --data caltech101_112px.tar --voc VOCdevkit --davis DAVIS2016

Writes weights, log and the scores of the card in dino_model/embedded/, and the class map of the page. Draws
docs/gallery.jpg, docs/trained-random.jpg and docs/distillation.png (the terms of the loss). All
steps are commands of this project. Run it again after an interruption.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from PIL import Image

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models import run_folder
from dino_model.models.catalogue import EMBEDDED
from dino_model.runtime import files
from segmentation.drawing import save_image
from segmentation.masks import keep_mass_of_maps
from training.run import figures

REPOSITORY = Path(__file__).parents[1]
WEIGHTS = EMBEDDED["embedded"]
CARD, LOG = WEIGHTS.with_name("card.md"), WEIGHTS.with_name(run_folder.LOG)
CLASS_MAP = REPOSITORY / "app/static/maps/caltech101"
PHOTOGRAPHS_MAP = REPOSITORY / "app/static/maps/photographs/map.json"
GALLERY_WIDTH = 2400
"""Pixels."""
TERMS = {
    "patch_loss": "patch tokens: 1 - cosine",
    "cls_loss": "[CLS]: 1 - cosine",
    "attention_loss": "attention of [CLS]: KL in nats",
    "rows_loss": "attention of patches: KL in nats",
}
Figures = dict[str, Any]


@dataclass(frozen=True)
class Ship:
    """Replace the embedded model by the network of a run, and update the files that depend on it."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    data: Path = field(kw_only=True)
    """Labeled images of the class map and of k-NN: the Caltech tar."""
    voc: Path = field(kw_only=True)
    """VOCdevkit of the protocol: 63 frames of DAVIS."""
    davis: Path = field(kw_only=True)
    """DAVIS2016 of the protocol."""
    weights: Path | None = None
    """Weights to ship, such as a mean with those of other runs. Default: the average of the run."""
    output: Path = Path("output/ship")
    """Folder for the JSON of every command."""

    def run(self) -> None:
        """Export, measure, write.

        Raises:
            SystemExit: An input is missing, or a command failed.
        """
        weights = self.weights or self.run_folder
        for path in (self.run_folder, weights, self.data, self.voc, self.davis):
            if not path.exists():
                raise SystemExit(f"{path} does not exist: nothing was changed")
        run_command("dino_model", "export", weights, "--dtype", "fp16", "--output", WEIGHTS, "--overwrite")
        run_command("tools.thin_log", self.run_folder, "--output", LOG)
        draw_terms(REPOSITORY / "docs/distillation.png")
        draw_comparison(REPOSITORY / "docs/trained-random.jpg")
        settings = ("--model", "embedded", "--size", 112)
        with tempfile.TemporaryDirectory() as folder:
            class_map, maps = Path(folder) / "class-map", Path(folder) / "maps"
            run_command("dino_model", "class-map", "--data", self.data, *settings, "--output", class_map)
            for file in CLASS_MAP.iterdir():
                shutil.copyfile(class_map / file.name, file)
            draw_photographs(Path(folder) / "photographs", settings[:2])
            list_file = Path(folder) / "photographs.txt"
            names = (photographs.FOLDER / f"{name}.jpg" for name in photographs.names())
            files.write_text(list_file, "".join(f"{name}\n" for name in names))
            run_command("segmentation", "attention", list_file, "--size", 224, "--output", maps)
            with Image.open(maps / "contact_sheet.png") as sheet:
                sheet.thumbnail((GALLERY_WIDTH, GALLERY_WIDTH))
                save_image(REPOSITORY / "docs/gallery.jpg", np.asarray(sheet))
        model, random = (self.measure(name) for name in ("embedded", "random:embedded"))
        files.write_text(CARD, with_figures(CARD.read_text(encoding="utf-8"), model, random))
        print(f"written: {CARD}. Look at it, at docs/gallery.jpg and at the class map before you commit.")

    def measure(self, model: str) -> Figures:
        """Run the commands of the card's figures with a model; return their JSON by name."""
        folder = self.output / model.replace(":", "-")
        frames = ("--ground-truth", "object", "--void", "exclude", "--mass", 0.6, "--resize", "short-side")
        voc = ("--root", self.voc, *frames, "--size", 224, "--output", folder / "voc")
        commands: dict[str, tuple[Any, ...]] = {
            "knn": ("training", "evaluate", "knn", "--data", self.data),
            "voc": ("segmentation", "voc", *voc),
            "davis": ("segmentation", "davis", "--root", self.davis, "--output", folder / "davis"),
        }
        for name, command in commands.items():
            run_command(*command, "--model", model, "--json", folder / f"{name}.json")
        return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in commands}


def run_command(module: str, *arguments: Any) -> None:
    """Print and run one of the project's commands.

    Raises:
        SystemExit: It failed.
    """
    words = ["-m", module, *map(str, arguments)]
    print("python", *words, flush=True)
    if subprocess.run([sys.executable, *words]).returncode:
        raise SystemExit(f"stopped: python {' '.join(words)} failed")


def draw_photographs(folder: Path, model: Sequence[Any]) -> None:
    """Draw the class map of the package's images, each a class, with the groups of the former map."""
    for name in (*photographs.names(), *photographs.landscapes()):
        (folder / name).mkdir(parents=True)
        shutil.copy(photographs.FOLDER / f"{name}.jpg", folder / name)
    former = {
        row["key"]: row["group"] for row in json.loads(PHOTOGRAPHS_MAP.read_text(encoding="utf-8"))["classes"]
    }
    drawn = folder.with_name("photographs-map")
    run_command("dino_model", "class-map", "--data", folder, *model, "--size", 224, "--output", drawn)
    content = json.loads((drawn / PHOTOGRAPHS_MAP.name).read_text(encoding="utf-8"))
    for row in content["classes"]:
        row |= {"group": former[row["key"]], "name": row["key"].replace("_", " ")}
    files.write_text(PHOTOGRAPHS_MAP, json.dumps(content))


def draw_terms(path: Path) -> None:
    """Draw the terms of the distillation's loss over the steps of the log; write as PNG."""
    log = [json.loads(line) for line in LOG.read_text(encoding="utf-8").splitlines()]
    with figures.style(figures.STYLE):
        figure, axes = figures.create_page(1, 1, "Distillation of the embedded model", width=10, height=3.6)
        axes[0][0].set(xlabel="step", ylabel="term of the loss")
        for number, (name, label) in enumerate(TERMS.items()):
            points = [(record["step"] + 1, record[name]) for record in log if name in record]
            figures.curve(axes[0][0], points, label, number)
        axes[0][0].legend(fontsize=9)
        figures.save(figure, path)


def draw_comparison(path: Path, name: str = "sheep") -> None:
    """Draw attention and mask of trained and of random weights on an image; write as JPEG."""
    image = photographs.image(name)
    figure, axes = plt.subplots(2, 4, figsize=(10, 3.9), layout="constrained")
    models = {"shipped model": "embedded", "random weights": "random:embedded"}
    for row, (title, model) in zip(axes, models.items(), strict=True):
        predictor = AttentionPredictor(model, size=448, precision="fp32")
        predictor.set_image(image)
        maps = predictor.cls_attention()
        masks = keep_mass_of_maps(maps, 0.6)
        patch = predictor.patch_at(*photographs.pin(name))
        head = int(np.argmax([attention[patch] for attention in maps]))
        extent = (0, image.shape[1], image.shape[0], 0)
        panels = (
            (image, title),
            (maps.mean(axis=0), "mean of all heads"),
            (maps[head], f"head {head + 1}"),
            (None, "mask with 60 % of its attention"),
        )
        for axis, (panel, caption) in zip(row, panels, strict=True):
            axis.set_axis_off()
            axis.set_title(caption, fontsize=10)
            if panel is None:
                axis.imshow(image)
                shade = np.zeros((*masks[head].shape, 4))
                shade[..., 3] = np.where(masks[head], 0, 0.75)
                axis.imshow(shade, extent=extent, interpolation="nearest")
            else:
                axis.imshow(panel, extent=extent, cmap=None if panel.ndim == 3 else "inferno")
    figure.savefig(path, dpi=110, pil_kwargs={"quality": 88})


def with_figures(card: str, model: Figures, random: Figures) -> str:
    """Replace the figures of the model and of random weights in the card's table.

    Raises:
        ValueError: The card lacks a row.
    """
    cells = {
        "k-NN on": lambda f: "{top1:.1f} % ({per_class_top1:.1f})".format_map(
            f["knn"]["results"][0]["metrics"]
        ),
        "best-head Jaccard": lambda f: f"{f['voc']['jaccard']:.1f} %",
        "lift of": lambda f: f"{f['voc']['lift']:.2f}",
        "J&F on": lambda f: "{J&F_mean:.1f} ({J_mean:.1f}, {F_mean:.1f})".format_map(
            {name: 100 * value for name, value in f["davis"]["dataset"].items()}
        ),
    }
    for start, cell in cells.items():
        row = re.compile(rf"^(\| {start}[^|]*\|)[^|]*\|[^|]*\|", re.MULTILINE)
        card, count = row.subn(rf"\g<1> {cell(model)} | {cell(random)} |", card)
        if count != 1:
            raise ValueError(f"{CARD} has {count} rows that begin with {start!r}, expected one")
    return card


if __name__ == "__main__":
    tyro.cli(Ship).run()
