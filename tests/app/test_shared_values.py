"""The table of values that the package and the page's scripts both compute: tests/javascript/values.json.

`python -m tests.app.test_shared_values` writes it anew after a change of a formula.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from app.handlers import exports, objects, own
from app.store import images
from app.tabs import explore
from dino_model.inference import quantities
from dino_model.inference.resize import fed_size, sample
from segmentation import drawing, edges
from segmentation.masks import component_at, enlarge, keep_mass_of_maps, rle, runs_of
from segmentation.metrics import jaccard
from tools import palette

FILE = Path(__file__).parents[1] / "javascript" / "values.json"
PREFIX, GRID, TOKENS = 2, (2, 4), (0, 7)  # [CLS] and a register; token 7 is a patch
PATCH = 16  # pixels, of the model in the examples


def values() -> dict[str, Any]:
    """Compute all values; every case has its arguments and what the package returns for them."""
    random = np.random.default_rng(0)
    queries, keys = random.normal(size=(2, 2, 10, 3)).astype(np.float16)
    ties = np.ceil(4 * random.random((4, 6))) / 4
    continuous = random.random((4, 6)).astype(np.float32)
    image = random.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    picture = np.where(np.arange(12) < 7, 40, 200) + random.integers(-9, 9, (10, 12, 3)).transpose(2, 0, 1)
    picture = picture.transpose(2, 1, 0).astype(np.uint8)  # 12 rows, 10 columns
    mask = np.zeros((12, 10), bool)
    mask[:6, 1:8] = True
    labels, other = random.integers(0, 3, (2, 3)), random.integers(0, 2, (4, 5))
    single = np.float32(queries), np.float32(keys)
    rollout, patch = quantities.attention_rollout([single]), TOKENS[1] - PREFIX
    similar = quantities.key_similarity(single[1], PREFIX, TOKENS[1])[PREFIX:].reshape(GRID).clip(0)
    similar.flat[patch] = 1
    return {
        "block": {"queries": queries, "keys": keys, "prefix": PREFIX, "rows": GRID[0], "columns": GRID[1]},
        "rollout": rollout,
        "maps": [
            {
                "token": token,
                "attention": quantities.attention(*single, token)[:, PREFIX:],
                "logits": quantities.logits(*single, token)[:, PREFIX:],
                "key-cosine": quantities.cosines(single[1], token)[:, PREFIX:],
                "key-similarity": quantities.key_similarity(single[1], PREFIX, token)[None, PREFIX:],
                "token-cosine": quantities.cosines(single[1][0], token)[None, PREFIX:],
                "rollout": rollout[token][None, PREFIX:],
            }
            for token in TOKENS
        ],
        "proposal": component_at(keep_mass_of_maps(similar, 0.9), *divmod(patch, GRID[1])),
        "keepMass": [
            {"map": one, "mass": mass, "kept": keep_mass_of_maps(np.float32(one), mass)}
            for one in (ties, continuous)
            for mass in (0.1, 0.35, 0.6, 1)
        ],
        "enlarged": {"map": continuous, "levels": drawing.levels(continuous, (9, 13), (0.2, 0.8)) * 255},
        "resample": [
            {"image": image, "resized": sample(image, *to, "short-side")} for to in ((3, 4), (8, 9))
        ],
        "fedSize": [
            {"size": size, "fed": fed_size(*size, "short-side", patch), "patch": patch}
            for *size, patch in (
                (464, 640, 224, 8),
                (720, 640, 224, 8),
                (1000, 10, 16, 16),
                (1000, 1046, 160, 16),
            )
        ],
        "refined": {"image": picture, "mask": mask, "inside": edges.refine_edges(mask, picture, 2) > 0.5},
        "labels": {
            "labels": labels,
            "other": other,
            "resized": enlarge(labels, other.shape),
            "jaccard": float(jaccard(enlarge(labels, (12, 15)) > 0, enlarge(other, (12, 15)) > 0)),
        },
        "coco": {"mask": mask, "counts": runs_of(rle(mask)["counts"])},
        "modes": {mode: sorted(name for _, name in variants) for mode, variants in explore.MODES.items()},
        "limits": {
            "animation": exports.MOST_FRAMES,
            "camera": own.FRAME_PATCHES * PATCH,
            "refined": objects.REFINED_SIDE,
            "thumbnail": images.THUMBNAIL_SIDE,
        },
        "settings": {
            "mass": 100 * objects.ObjectSettings.model_fields["mass"].default,
            "count": objects.ObjectSettings.model_fields["count"].default,
        },
    }


def test_page_has_the_colors_of_the_files():
    assert palette.FILE.read_text(encoding="utf-8") == palette.module()


def text() -> str:
    """Return the text of the table: an array is {shape, values}, with eight digits of each float."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        if not isinstance(value, np.ndarray):
            return value
        numbers = value.ravel().astype(float if value.dtype.kind == "f" else int).tolist()
        return {"shape": value.shape, "values": [float(f"{one:.8g}") if one % 1 else one for one in numbers]}

    return json.dumps(plain(values())) + "\n"


def test_table_has_what_the_package_computes():
    written, computed = json.loads(FILE.read_text()), json.loads(text())

    def compare(one: Any, other: Any, place: str) -> None:
        if isinstance(one, dict):
            assert one.keys() == other.keys(), place
            for name in one:
                compare(one[name], other[name], f"{place}.{name}")
        elif isinstance(one, list) and one and isinstance(one[0], dict):
            for number, pair in enumerate(zip(one, other, strict=True)):
                compare(*pair, f"{place}[{number}]")
        elif isinstance(one, list) and one and isinstance(one[0], str):
            assert one == other, place
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=place)

    compare(written, computed, "values")


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
