"""Data of the live figures, computed with the shipped model: scripts that a page on a disk can load.

Queries and keys are float16 in base64, as the page's server sends them; the page's own JavaScript reads them.
"""

import base64
import io
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.store import clips
from app.values import attention_value, class_map_value
from dino_model import photographs
from dino_model.inference import quantities
from dino_model.inference.class_map import files as class_map_files
from dino_model.inference.predictor import AttentionPredictor
from dino_model.runtime.files import write_text
from segmentation.discovery import key_features
from segmentation.example_clips import draw_masks
from segmentation.tracking import propagate_masks

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("sheep", "random")
"""Data of the figure on the first page."""
SIZE = 224  # pixels of the short side
QUALITY = 80  # of JPEG
LARGEST = 1_000_000  # bytes of the queries and keys of an image
IMAGES = ("sheep", "macaw", "shepherd")
CLIP = "sheep"
STUDY = ROOT / "docs" / "live" / "collapse.jsonl"
VARIANTS = ("both", "no centering", "no sharpening", "neither")  # in the order of the phases of the log
CLASS_MAP = ROOT / "app" / "static" / "maps" / "caltech101"
BUNDLE = ROOT / "docs" / "live" / "main.js"

Data = dict[str, Any]


def makers() -> dict[str, Callable[[], Data]]:
    """Map the name of each script to a function that computes its data."""
    data: dict[str, Callable[[], Data]] = {name: partial(image_data, name, "embedded") for name in IMAGES}
    return data | {
        "random": partial(image_data, IMAGES[0], "random:embedded"),
        "classes": classes,
        "collapse": collapse,
        "video": video,
    }


def scripts(page: str) -> tuple[str, ...]:
    """Return the names of the scripts that a page loads: data, then the code of the figures."""
    data = {"docs/live": tuple(name for name in makers() if name != FIRST[1]), "docs/index": FIRST}.get(page)
    return (*data, "figures") if data else ()


def put(static: Path) -> None:
    """Write the figures' scripts, and the page's JavaScript in one, into a folder of the site's files.

    Raises:
        ValueError: An image takes more than `LARGEST`, or esbuild is missing.
    """
    static.mkdir(parents=True, exist_ok=True)
    for name, make in makers().items():
        write_text(static / f"{name}.js", script(name, make()))
    bundle(static / "figures.js")


def script(name: str, data: Data) -> str:
    """A classic script that hands data to the figures: `file://` allows neither modules nor fetch."""
    return f"(window.dinoFigures ??= {{}})[{json.dumps(name)}] = {json.dumps(data)};\n"


def bundle(target: Path) -> None:
    """The page's own JavaScript and the figures', in one classic script.

    Raises:
        ValueError: no esbuild, or it refuses.
    """
    esbuild = ROOT / "node_modules" / ".bin" / "esbuild"
    if not esbuild.exists():
        raise ValueError("esbuild is missing: `npm ci` installs it (make node brings npm)")
    options = ["--bundle", "--format=iife", "--minify", "--loader:.css=text", f"--outfile={target}"]
    options.append('--define:import.meta.url="bundle:/"')  # styles are part of the bundle
    made = subprocess.run(
        [esbuild, BUNDLE, *options, "--log-level=warning"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise ValueError(f"esbuild refuses {BUNDLE.name}: {made.stderr.strip()}")


# --- data


def image_data(name: str, model: str) -> Data:
    """Return an image with queries and keys of a model's last block, and principal colors of the keys.

    Raises:
        ValueError: they take more than a megabyte.
    """
    image = photographs.image(name)
    predictor = AttentionPredictor(model, size=SIZE, precision="fp32")
    value = attention_value(predictor, image, size=None, name=name)
    block = predictor.blocks - 1
    queries, keys = predictor.queries_keys()
    if (size := queries.nbytes + keys.nbytes) > LARGEST:
        raise ValueError(f"queries and keys of {name} take {size:,} bytes, expected at most {LARGEST:,}")
    features = key_features(keys, predictor.prefix_tokens, predictor.grid)
    colors = quantities.principal_colors(features).astype("<f4")
    y, x = photographs.pin(name)
    return value | {
        "token": f"{name} {model}",
        "credit": photographs.credit(name),
        "image": address(image),
        "random": model.startswith("random:"),
        "pin": [(x + 0.5) / image.shape[1], (y + 0.5) / image.shape[0]],
        "arrays": value["arrays"] | {f"key-pca/{block}": base64.b64encode(colors.tobytes()).decode()},
    }


def address(image: NDArray[np.uint8]) -> str:
    """Return an image as a data address."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def classes() -> Data:
    """Return the shipped class map and the colors of its groups."""
    return class_map_value(class_map_files.read(CLASS_MAP), None)


def collapse() -> Data:
    """Curves of the study's runs, with and without centering and sharpening, from the log that ships.

    `python -m tools.thin_log` made it of the runs' logs, a phase of each.
    """
    lines = [json.loads(line) for line in STUDY.read_text(encoding="utf-8").splitlines()]
    runs = {}
    for phase, variant in enumerate(VARIANTS, start=1):
        own = [line for line in lines if line["phase"] == phase]
        runs[variant] = {key: [line[key] for line in own] for key in ("step", "kl", "teacher_entropy")}
    return {"runs": runs, "top": lines[0]["ln_k"]}


def video() -> Data:
    """A clip, and the objects of its first frame as the model carries them along."""
    clip = clips.example(CLIP)
    predictor = AttentionPredictor("embedded", size=SIZE, precision="fp32")
    labels = propagate_masks(clip.decode, {0: draw_masks(CLIP)[0]}, predictor)
    return {
        "width": clip.size[1],
        "height": clip.size[0],
        "fps": clip.fps,
        "frames": [address(frame) for frame in clip.decode()],
        "masks": [list(map(int, clips.runs_of(one))) for one in labels],
        "colors": clips.COLORS.tolist(),
    }
