"""What the page should open with: which view of a photograph puts most of what is shown on the object.

python -m benchmarks.opening [--model embedded] [--json FILE]

Every view that could be the default, on our own photographs, each under every way to turn its values into
brightness: the share of the brightness that lies on the object; the Jaccard of the mask that holds 60 % of
it, also with refined edges; and the match, which is the Jaccard of the brightness itself with the object. A
share is great already where one spot of the object is bright, a match only where all of it is and nothing
else. Beside it random weights, and what can be had without a network. Points are the pins.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
import tyro
from numpy.typing import NDArray

from dino_model import photographs, quantities
from dino_model.device import Precision
from dino_model.files import make_room, write_text
from dino_model.predictor import AttentionPredictor
from segmentation.discovery import key_features, refine_edges
from segmentation.masks import Mask, best_head, central_head, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

Map = NDArray[np.floating]  # [rows, columns]

KEPT = 0.6  # of the brightness, in the mask
REFINED_SIDE = 320  # pixels of the long side
CONVINCES = 0.5  # a photograph counts as convincing when this share of the brightness lies on its object


class Seen:
    """What a model makes of one photograph with its object and its pin."""

    def __init__(self, predictor: AttentionPredictor, name: str) -> None:
        self.picture, self.mask = photographs.picture(name), photographs.mask(name)
        predictor.set_image(self.picture)
        self.grid, self.patch = predictor.grid, predictor.patch_at(*photographs.pin(name))
        self.cls = predictor.cls_attention()  # [heads, rows, columns]
        self.pinned = predictor.point_attention(*photographs.pin(name))  # [heads, rows, columns]
        self.keys = key_features(predictor.queries_keys()[1], predictor.prefix_tokens, self.grid)
        self.tokens = predictor.token_features()  # [rows, columns, width]
        self.heads = len(self.cls)

    @cached_property
    def head_masks(self) -> Mask:
        """What each head of [CLS] keeps: [heads, rows, columns]."""
        return keep_mass_of_maps(self.cls, KEPT)

    def alike(self, vectors: NDArray[np.floating]) -> Map:
        """Cosine of each patch's vector with the pinned one's: [rows, columns, d] -> [rows, columns]."""
        token = self.patch[0] * self.grid[1] + self.patch[1]
        return quantities.cosines(vectors.reshape(-1, vectors.shape[-1]), token).reshape(self.grid)

    def alike_by_head(self) -> Map:
        """Mean over heads of the cosine of keys, as the page shows all heads: [rows, columns]."""
        heads = np.split(self.keys, self.heads, axis=-1)
        return np.mean([self.alike(head) for head in heads], axis=0)

    def near(self) -> Map:
        """Without a network: less the farther from the pin, in patches."""
        rows, columns = np.indices(self.grid)
        return -np.hypot(rows - self.patch[0], columns - self.patch[1])

    def coloured_alike(self) -> Map:
        """Without a network: less the farther a patch's mean colour is from the pin's, in CIELAB."""
        lab = cv2.cvtColor(self.picture.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
        colours = cv2.resize(lab, self.grid[::-1], interpolation=cv2.INTER_AREA)
        return -np.linalg.norm(colours - colours[self.patch], axis=-1)

    def first_component(self, vectors: NDArray[np.floating]) -> Map:
        """First principal component from 0 to 1, turned so that the pin is on its bright side."""
        component = quantities.principal_colors(vectors)[..., 0]
        return component if component[self.patch] >= np.median(component) else 1 - component


def centred(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Vectors without what all of them share: [rows, columns, d]."""
    return vectors - vectors.mean(axis=(0, 1))


def best_head_map(seen: Seen) -> Map:
    """The head whose mask agrees best with the object; it takes the ground truth to choose it."""
    head, _ = best_head(seen.head_masks, quantities.on_patches(seen.mask, seen.grid))
    return seen.cls[head]


VIEWS: dict[str, Callable[[Seen], Map]] = {
    "[CLS], mean of the heads": lambda seen: seen.cls.mean(axis=0),
    "[CLS], best head": best_head_map,
    "[CLS], central head": lambda seen: seen.cls[central_head(seen.head_masks)],
    "[CLS], union of the heads": lambda seen: np.where(seen.head_masks.any(axis=0), 1.0, 0.0),
    "[CLS], how many heads": lambda seen: np.mean(list(seen.head_masks), axis=0),
    "attention of the pin": lambda seen: seen.pinned.mean(axis=0),
    "key cosine, mean of the heads": Seen.alike_by_head,
    "key cosine, all heads at once": lambda seen: seen.alike(seen.keys),
    "key cosine, mean key removed": lambda seen: seen.alike(centred(seen.keys)),
    "token cosine": lambda seen: seen.alike(seen.tokens),
    "token cosine, mean removed": lambda seen: seen.alike(centred(seen.tokens)),
    "key PCA, first component": lambda seen: seen.first_component(seen.keys),
    "token PCA, first component": lambda seen: seen.first_component(seen.tokens),
    "no network: near the pin": Seen.near,
    "no network: colour of the pin": Seen.coloured_alike,
}
NO_DEFAULT = ("[CLS], best head", "no network: near the pin", "no network: colour of the pin")
"""They need the ground truth, or say nothing of the model."""


def capped(values: Map, percentile: float = 98) -> Map:
    """From the least value to a high percentile, so that one hot patch does not dim the rest."""
    return quantities.above_least(np.minimum(values, np.percentile(values, percentile)))


def above_median(values: Map) -> Map:
    """Half of the picture recedes: from the median to a high percentile."""
    return capped(np.maximum(values, np.median(values)))


def squared(values: Map) -> Map:
    """`capped`, with brightness growing as the square of the value."""
    return capped(values) ** 2


SCALINGS: dict[str, Callable[[Map], Map]] = {
    "least to greatest": quantities.above_least,
    "capped at 98 %": capped,
    "the same, squared": squared,
    "above the median": above_median,
}


class Figures(NamedTuple):
    """Means over the photographs, in percent; `convincing` counts them."""

    inside: float
    convincing: int
    jaccard: float
    match: float


Table = dict[str, dict[str, Figures]]  # view, scaling


@dataclass(frozen=True)
class Opening:
    """Share of what each view shows that lies on the object, over the tracked photographs."""

    model: str = "embedded"
    """Name of a model, checkpoint file or run."""
    size: int = 224
    """Pixels of the short side."""
    precision: Precision = "auto"
    """Arithmetic of the model."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Measure every view under every scaling, print both models, name the best, write."""
        make_room(self.json)
        area = np.mean([photographs.table()[name].share for name in photographs.names()])
        print(f"{len(photographs.names())} photographs, short side {self.size}; objects cover {area:.1%}")
        print("share of the brightness on the object in %, (photographs with half of it there),")
        print(f"Jaccard of the mask that holds {KEPT:.0%} of it, match of brightness and object;")
        print("refined: the greatest of these Jaccards, with refined edges")
        tables, refined = {}, {}
        for name in dict.fromkeys((self.model, "random:embedded")):
            predictor = AttentionPredictor(
                name, size=self.size, resize="short-side", precision=self.precision, device="cpu"
            )
            seen = [Seen(predictor, photograph) for photograph in photographs.names()]
            tables[name] = measure(seen)
            refined[name] = {view: refined_jaccard(seen, view, tables[name][view]) for view in VIEWS}
            print(as_text(name, tables[name], refined[name]), flush=True)
        most, closest = (best(tables[self.model], by) for by in ("inside", "match"))
        print(f"\ngreatest share on the object: {most[0]}; {most[1]}")
        print(f"closest to the object: {closest[0]}; {closest[1]}")
        if self.json:
            figures = {"size": self.size, "kept": KEPT, "best_share": most, "best_match": closest}
            models = {name: as_json(tables[name], refined[name]) for name in tables}
            write_text(self.json, json.dumps(figures | {"models": models}, indent=2) + "\n")


def measure(photos: Sequence[Seen]) -> Table:
    """Every view under every scaling, means over the photographs."""
    table: Table = {}
    for view, values_of in VIEWS.items():
        values = [values_of(seen) for seen in photos]
        table[view] = {
            scaling: _means([judge(seen, bright(one)) for seen, one in zip(photos, values, strict=True)])
            for scaling, bright in SCALINGS.items()
        }
    return table


def judge(seen: Seen, brightness: Map) -> tuple[float, float, float]:
    """Share of the brightness on the object, Jaccard of the mask, match: each in [0, 1]."""
    inside = quantities.on_patches(seen.mask, seen.grid)
    relative = brightness / brightness.max()
    match = relative[inside].sum() / (relative.sum() + inside.sum() - relative[inside].sum())
    mask = enlarge(keep_mass_of_maps(brightness, KEPT), (seen.mask.shape[0], seen.mask.shape[1]))
    return quantities.share_inside(brightness, seen.mask), float(jaccard(mask, seen.mask)), float(match)


def _means(judged: Sequence[tuple[float, float, float]]) -> Figures:
    inside, overlap, match = (100 * np.array(judged)).T
    convincing = int((inside >= 100 * CONVINCES).sum())
    return Figures(float(inside.mean()), convincing, float(overlap.mean()), float(match.mean()))


def refined_jaccard(photos: Sequence[Seen], view: str, rows: dict[str, Figures]) -> float:
    """Mean Jaccard in percent after `refine_edges`, under the scaling whose plain masks are best."""
    scaling = max(rows, key=lambda name: rows[name].jaccard)
    return 100 * float(np.mean([_refined(seen, SCALINGS[scaling](VIEWS[view](seen))) for seen in photos]))


def _refined(seen: Seen, brightness: Map) -> float:
    """Edges are refined at `REFINED_SIDE` pixels, masks compared at the photograph's own."""
    height, width = seen.mask.shape
    scale = min(1.0, REFINED_SIDE / max(height, width))
    small = round(height * scale), round(width * scale)
    picture = cv2.resize(seen.picture, small[::-1], interpolation=cv2.INTER_AREA).astype(np.uint8)
    mask = enlarge(keep_mass_of_maps(brightness, KEPT), small)
    soft = refine_edges(mask, picture, max(1, round(max(small) / max(seen.grid))))
    return float(jaccard(enlarge(soft, (height, width), "bilinear") > 0.5, seen.mask))


def best(table: Table, by: Literal["inside", "match"]) -> tuple[str, str]:
    """View and scaling with the greatest figure, of those that could be the page's default."""
    return max(
        ((view, scaling) for view in VIEWS if view not in NO_DEFAULT for scaling in SCALINGS),
        key=lambda cell: float(getattr(table[cell[0]][cell[1]], by)),
    )


def as_text(name: str, table: Table, refined: dict[str, float]) -> str:
    """One line a view, one column a scaling."""
    lines = [f"\n{name:<30}" + "".join(f"{scaling:^26}" for scaling in SCALINGS) + "refined"]
    for view, rows in table.items():
        cells = (
            f"{row.inside:>5.1f} ({row.convincing:>2}) {row.jaccard:>5.1f} {row.match:>5.1f}    "
            for row in rows.values()
        )
        lines.append(f"{view:<30}" + " ".join(cells) + f"{refined[view]:>5.1f}")
    return "\n".join(lines)


def as_json(table: Table, refined: dict[str, float]) -> dict[str, Any]:
    """The same as plain dictionaries, by view."""
    return {
        view: {scaling: row._asdict() for scaling, row in rows.items()} | {"refined": refined[view]}
        for view, rows in table.items()
    }


if __name__ == "__main__":
    tyro.cli(Opening).run()
