"""Compute Jaccard and lift of attention on the package's images and on composites with smaller objects.

python -m tools.photographs [--models embedded runs/a …] [--json FILE]

Prints the Jaccard of the best head and the lift of the mean attention for each model, and the mean
correlation of the attention of different patches (rows) and of the [CLS] maps of different heads, all in the
last block. The baselines are
random weights of the embedded architecture and a centered box. A composite is a smaller copy of an object on
a landscape, or on the background of another image. No model was trained on these images.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import pandas as pd
import tyro
from numpy.typing import NDArray
from scipy.special import softmax

from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from dino_model.runtime.device import Precision
from dino_model.runtime.files import make_room, write_json
from dino_model.runtime.outputs import run_command
from segmentation import voc_eval
from segmentation.datasets import Annotation
from segmentation.masks import Mask, bounding_box, components
from segmentation.voc_eval import ImageScore, VocProtocol

Image = NDArray[np.uint8]

LEAST, MOST = 0.03, 0.12  # share of a composite that its object covers
SHORTEST, LONGEST = 200, 2.0  # short side in pixels, and aspect ratio, of a background cut from an image
BOX = "centered box"
Figures = dict[str, float | int | None]


class Scene(NamedTuple):
    """An image with one object."""

    name: str
    image: Image  # [height, width, 3]
    mask: Mask  # [height, width]


@dataclass(frozen=True)
class PackageImages:
    """Best-head Jaccard and lift on the images of the package and on composites."""

    models: tuple[str, ...] = ("embedded",)
    """Names of models, checkpoint files or runs."""
    size: int = 224
    """Pixels of the short side."""
    composites: int = 2
    """Composites of each object that is whole."""
    seed: int = 0
    """Seed of the composites."""
    precision: Precision = "auto"
    """Arithmetic of the models."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Score every model, print a table, write."""
        make_room(self.json)
        protocol = VocProtocol(
            ground_truth="foreground",
            void="exclude",
            resize="short-side",
            size=self.size,
            split="photographs",
        )
        sets = {
            "photographs": [Scene(name, *_object(name)) for name in photographs.names()],
            "composites": list(composites(self.composites, self.seed)),
        }
        print(f"protocol  {protocol}")
        load = partial(AttentionPredictor, size=self.size, resize="short-side", precision=self.precision)
        rows: dict[str, dict[str, Figures]] = {}
        for name in dict.fromkeys((BOX, "random:embedded", *self.models)):
            predictor = None if name == BOX else load(name, device="cpu")
            scores = {kind: score(scenes, predictor, protocol) for kind, scenes in sets.items()}
            rows[name] = {
                kind: summary(sets[kind], values) | correlations(sets[kind], predictor)
                for kind, values in scores.items()
            }
        table = pd.DataFrame({name: pd.DataFrame(row).unstack() for name, row in rows.items()}, dtype=float)
        print(table.T.to_string(float_format="{:.2f}".format, na_rep="–"))
        print("small: the third of the images with the smallest objects, large: that with the largest")
        if self.json:
            write_json(self.json, {"protocol": asdict(protocol), "seed": self.seed, "models": rows})


def score(
    scenes: Sequence[Scene], predictor: AttentionPredictor | None, protocol: VocProtocol
) -> list[ImageScore]:
    """Score every scene by Jaccard and lift; without a predictor, a centered box by Jaccard."""
    scores = []
    for name, image, mask in scenes:
        labels = mask.astype(np.uint8)
        annotation = Annotation(labels, labels)
        if predictor is None:
            box = {-1: voc_eval.centered_box(mask.shape)}
            scores.append(voc_eval.score_masks(name, box, annotation, protocol))
            continue
        predictor.set_image(image)
        attention = predictor.cls_attention(protocol.block)
        scores.append(voc_eval.score_attention(name, attention, annotation, protocol))
    return scores


def correlations(scenes: Sequence[Scene], predictor: AttentionPredictor | None) -> Figures:
    """Average Pearson correlations over pairs and images: of patches' attention, of heads' [CLS] maps."""
    if predictor is None:
        return {"rows": None, "heads": None}
    values = []
    for scene in scenes:
        predictor.set_image(scene.image)
        patches = math.prod(predictor.grid)
        queries, keys = (of_tokens[:, -patches:].astype(np.float32) for of_tokens in predictor.queries_keys())
        rows = softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), axis=-1).mean(axis=0)
        heads = predictor.cls_attention().reshape(-1, patches)
        values.append([_mean_correlation(rows), _mean_correlation(heads)])
    return dict(zip(("rows", "heads"), np.mean(values, axis=0).tolist(), strict=True))


def _mean_correlation(maps: NDArray[np.floating]) -> float:
    """Average the correlation coefficients of all pairs of maps [maps, patches]."""
    return float(np.corrcoef(maps)[np.triu_indices(len(maps), 1)].mean())


def summary(scenes: Sequence[Scene], scores: Sequence[ImageScore]) -> Figures:
    """Average all images; the Jaccard also over the third with the smallest and the largest objects."""
    order = np.argsort([scene.mask.mean() for scene in scenes], kind="stable")
    third = max(1, len(scenes) // 3)
    return {
        "jaccard": voc_eval.mean_jaccard(scores),
        "small": voc_eval.mean_jaccard([scores[index] for index in order[:third]]),
        "large": voc_eval.mean_jaccard([scores[index] for index in order[-third:]]),
        "lift": voc_eval.mean_lift(scores),
        "images": len(scenes),
    }


def _object(name: str) -> tuple[Image, Mask]:
    return photographs.image(name), photographs.mask(name)


def composites(each: int, seed: int) -> Iterator[Scene]:
    """Yield every whole object on `each` other images or landscapes."""
    backgrounds = {name: photographs.image(name) for name in photographs.landscapes()}
    for name in photographs.names():
        background = crop_background(*_object(name))
        if background is not None:
            backgrounds[name] = background
    for index, name in enumerate(photographs.names()):
        image, mask = _object(name)
        if not is_whole(mask):
            continue
        for turn in range(each):
            random = np.random.default_rng([seed, index, turn])
            scene = str(random.choice([other for other in backgrounds if other != name]))
            share = float(np.exp(random.uniform(np.log(LEAST), np.log(MOST))))
            yield Scene(f"{name} on {scene}", *paste(image, mask, backgrounds[scene], share, random))


def is_whole(mask: Mask) -> bool:
    """Test if an object is in one piece and does not touch the border of its image."""
    at_edge = mask[[0, -1]].any() or mask[:, [0, -1]].any()
    return not at_edge and components(mask, 8).max() == 1


def crop_background(image: Image, mask: Mask) -> Image | None:
    """Crop the largest strip left of, right of, above or below an object; None if it is small or narrow."""
    box = bounding_box(mask)
    strips = (image[:, : box.left], image[:, box.right :], image[: box.top], image[box.bottom :])
    strip = max(strips, key=lambda strip: strip.size)
    short, long = sorted(strip.shape[:2])
    return strip if short >= SHORTEST and long <= LONGEST * short else None


def paste(
    image: Image, mask: Mask, background: Image, share: float, random: np.random.Generator
) -> tuple[Image, Mask]:
    """Place the object on another image, where it covers `share` of the area or as much as fits.

    Returns:
        The composite, its edge blended over a pixel, and the mask of the object in it.
    """
    box, (height, width) = bounding_box(mask), background.shape[:2]
    cut = np.s_[box.top : box.bottom, box.left : box.right]
    sides = box.bottom - box.top, box.right - box.left
    scale = min(np.sqrt(share * height * width / mask.sum()), height / sides[0], width / sides[1])
    rows, columns = (max(1, int(side * scale)) for side in sides)
    sampling = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    alpha = cv2.resize(mask[cut].astype(np.float32), (columns, rows), interpolation=sampling)
    thing = cv2.resize(image[cut], (columns, rows), interpolation=sampling)
    top, left = int(random.integers(0, height - rows + 1)), int(random.integers(0, width - columns + 1))
    area = np.s_[top : top + rows, left : left + columns]
    composite, covered = background.copy(), np.zeros((height, width), dtype=bool)
    blended = alpha[..., None] * thing + (1 - alpha[..., None]) * background[area]
    composite[area] = np.rint(blended).astype(np.uint8)
    covered[area] = alpha >= 0.5
    return composite, covered


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(PackageImages, prog="python -m tools.photographs").run))
