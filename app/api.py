"""The page's named endpoints: plain JSON in and out, a token after `encode`; docs/api.md shows them in use.

Arguments come from strangers: every one is checked before it is used, and what is wrong becomes one sentence.
"""

import base64
import binascii
import hashlib
import math
import re
import tempfile
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from app import clip_files, clips, following, objects, view
from app.engine import Encoding, Engine, LabError
from app.following import Held
from app.limits import MEGABYTE
from app.objects import Recipe
from app.photos import Photo
from dino_model import images
from segmentation.export import coco_record
from segmentation.masks import Mask, RunLengths, best_head, decode, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard
from segmentation.propagation import resize_nearest

Answer = dict[str, Any]

SIZES = (32, 2048)
"""Least and greatest resolution, in pixels of the short side."""

RUNS = re.compile(r"(?:[P-o]{0,6}[0-O])+")
"""COCO's text of run lengths: letters from P on say that more of the same run follows."""


def publish(engine: Engine) -> None:
    """Add the endpoints to the page under construction. Further ones: `endpoint(function)`, here."""
    api = Api(engine)
    for function in (api.encode, api.attention, api.mask, api.discover):
        endpoint(function)
    endpoint(api.propagate, "follow")  # takes turns with the others at every frame, not once for minutes


def endpoint(function: Callable[..., Answer], queue: str = "model") -> None:
    """One function with typed arguments as an endpoint of its name; it waits its turn in a queue."""
    gr.api(
        _in_words(function),
        api_name=function.__name__,
        api_description=(function.__doc__ or "").partition("\n")[0],
        concurrency_id=queue,
        concurrency_limit=1,
    )


def _in_words(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A `LabError` becomes the error that Gradio hands on to the caller; every other it keeps to itself."""

    @wraps(function)
    def told(*arguments: Any, **named: Any) -> Answer:
        try:
            return function(*arguments, **named)
        except LabError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return told


class Api:
    """The endpoints as methods: what they take and answer is in their docstrings."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def encode(self, picture: str, model: str = "embedded", size: int = 224) -> Answer:
        """Look at a photograph; the answer's token stands for it in every other endpoint.

        Args:
            picture: content of a picture file, base64.
            model: one of the names that the page offers.
            size: resolution, pixels of the short side.
        """
        _check_text("model", model)
        size = whole("size", size, *SIZES)
        content = self._content(picture)
        max_pixels = self._engine.limits.max_pixels
        read = partial(images.read, content, max_pixels=max_pixels)
        photo = Photo("photograph", f"file:{hashlib.blake2b(content, digest_size=16).hexdigest()}", read)
        token = self._engine.encode(photo, model, size)
        encoding = self._engine.encoding(token)
        height, width = encoding.picture.shape[:2]
        rows, columns = encoding.grid
        return {
            "token": token,
            "model": encoding.model,
            "picture": {"height": height, "width": width},
            "grid": {"rows": rows, "columns": columns},
            "patch_size": encoding.patch_size,
            "heads": encoding.heads,
            "blocks": encoding.blocks,
        }

    def attention(self, token: str, block: int = -1, patch: list[int] | None = None) -> Answer:
        """Where [CLS], or one patch, looks: one map per head, each a list of rows.

        Args:
            token: from `encode`.
            block: counted from 0; -1 is the last.
            patch: row and column; null asks [CLS].
        """
        encoding = self._encoding(token)
        block = whole("block", block, -encoding.blocks, encoding.blocks - 1) % encoding.blocks
        asked = None
        if patch is not None:
            if not isinstance(patch, list) or len(patch) != 2:
                raise LabError("The patch must be null, or its row and column.")
            row, column = (whole("patch", part, 0, max(encoding.grid) - 1) for part in patch)
            asked = (row, column)
        maps = view.attention(encoding, self._engine.queries_keys(encoding, block), asked)
        return {"block": block, "maps": maps.tolist()}

    def mask(
        self,
        token: str,
        mass: float = 0.6,
        head: str = "mean",
        refined: bool = False,
        ground_truth: dict | None = None,
    ) -> Answer:
        """The smallest set of patches that holds a share of [CLS]'s attention, as COCO run lengths.

        Args:
            token: from `encode`.
            mass: the share, from 0.01 to 1.
            head: "mean", the number of a head, or "best": the one that agrees most with the ground truth.
            refined: let edges follow those of the picture.
            ground_truth: a mask of the photograph's size in COCO's compressed run lengths, to be scored by.
        """
        encoding = self._encoding(token)
        mass = number("mass", mass, 0.01, 1)
        _check_text("head", head)
        truth = None if ground_truth is None else mask_of(ground_truth, encoding.picture.shape[:2])
        if head == "best":
            if truth is None:
                raise LabError("The best head is chosen by a ground truth: pass one, or another head.")
            head = str(self._best_head(encoding, mass, truth))
        recipe = Recipe("attention", head=head, mass=mass, refined=switch("refined", refined))
        found = self._records(encoding, recipe)[0]
        score = None if truth is None else float(jaccard(decode(found["segmentation"]), truth))
        return {"head": head, "jaccard": score, **found}

    def discover(self, token: str, method: str = "tokencut", count: int = 3, refined: bool = False) -> Answer:
        """Objects without any label: by LOST, TokenCut or several cuts.

        Args:
            token: from `encode`.
            method: "lost", "tokencut" or "several".
            count: the most objects that "several" looks for.
            refined: let edges follow those of the picture.
        """
        encoding = self._encoding(token)
        if method not in objects.METHODS[1:]:
            raise LabError(f"The method must be one of {', '.join(objects.METHODS[1:])}.")
        count = whole("count", count, 1, objects.MOST_OBJECTS)
        recipe = Recipe(method, count=count, refined=switch("refined", refined))
        return {"objects": self._records(encoding, recipe)}

    def propagate(self, clip: str, masks: list[dict], model: str = "embedded", size: int = 224) -> Answer:
        """Follow objects through a clip: their masks in every frame, in COCO's format.

        Args:
            clip: content of a video, a zip of frames or an animated picture, base64.
            masks: one of the first frame for each object, in COCO's compressed run lengths, of the size that
                was sent; where two overlap, the later has the pixel.
            model: one of the names that the page offers.
            size: resolution, pixels of the short side.
        """
        _check_text("model", model)
        size = whole("size", size, *SIZES)
        if not isinstance(masks, list) or not 1 <= len(masks) <= following.MAX_OBJECTS:
            raise LabError(f"The masks must be a list of 1 to {following.MAX_OBJECTS}, one for each object.")
        with tempfile.TemporaryDirectory(prefix="dino-lab-clip-") as folder:  # OpenCV reads files only
            file = Path(folder, "clip")
            file.write_bytes(self._content(clip, "clip"))
            read = clips.read(file, self._engine.limits)
        labels = np.zeros(read.sent_size, np.uint8)
        for label, one in enumerate(masks, start=1):
            labels[mask_of(one, read.sent_size)] = label
        first_mask = resize_nearest(labels, read.size)
        *_, followed = following.propagate(self._engine, Held(read), first_mask, model, size)
        return clip_files.coco(followed)

    def _content(self, encoded: object, name: str = "picture") -> bytes:
        """The file behind its base64; of bytes that are no such file, whoever reads it tells."""
        most = self._engine.limits.max_upload_mb
        if not isinstance(encoded, str):
            raise LabError(f"The {name} must be the content of a {name} file in base64.")
        if len(encoded) > most * MEGABYTE * 4 / 3 + 4:
            raise LabError(f"The {name} is larger than the {most} MB allowed.")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise LabError(f"The {name} must be the content of a {name} file in base64.") from error

    def _encoding(self, token: object) -> Encoding:
        _check_text("token", token)
        return self._engine.encoding(str(token))

    def _records(self, encoding: Encoding, recipe: Recipe) -> list[Answer]:
        """What is found, each with its run lengths, its box and share of the picture, and its seed."""
        queries_keys = self._engine.queries_keys(encoding, encoding.blocks - 1)
        found = objects.find(encoding, queries_keys, recipe)
        labels = objects.labels_of(found, encoding.grid)
        masks = objects.masks_of(objects.in_pixels(labels, encoding.picture, recipe.refined), len(found))
        records = [coco_record(1, 1, mask) for mask in masks]
        return [
            {
                "segmentation": record["segmentation"],
                "bbox": record["bbox"],
                "area": float(mask.mean()),
                "seed": list(one.seed),
            }
            for record, mask, one in zip(records, masks, found, strict=True)
        ]

    def _best_head(self, encoding: Encoding, mass: float, truth: Mask) -> int:
        queries_keys = self._engine.queries_keys(encoding, encoding.blocks - 1)
        kept = keep_mass_of_maps(view.attention(encoding, queries_keys, None), mass)
        return best_head(enlarge(kept, truth.shape), truth)[0]


# --- arguments


def number(name: str, value: object, low: float, high: float) -> float:
    """A finite number within bounds.

    Raises:
        LabError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise LabError(f"The {name} must be a number from {low} to {high}.")
    if not low <= value <= high:
        raise LabError(f"The {name} must be a number from {low} to {high}.")
    return float(value)


def whole(name: str, value: object, low: int, high: int) -> int:
    """A whole number within bounds.

    Raises:
        LabError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise LabError(f"The {name} must be a whole number from {low} to {high}.")
    return value


def switch(name: str, value: object) -> bool:
    """True or false.

    Raises:
        LabError: anything else.
    """
    if not isinstance(value, bool):
        raise LabError(f"The setting {name} must be true or false.")
    return value


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise LabError(f"The {name} must be text.")


def mask_of(encoded: object, size: tuple[int, ...]) -> Mask:
    """A mask [height, width] from COCO's compressed run lengths that a stranger sent.

    The runs are summed up before pycocotools decodes them: where they end early, it would hand out what lies
    in memory.

    Raises:
        LabError: no such run lengths, or of another size.
    """
    if not isinstance(encoded, dict) or set(encoded) != {"size", "counts"}:
        raise LabError("A mask must be COCO's compressed run lengths: size and counts.")
    if encoded["size"] != list(size):
        raise LabError(f"The mask must have the photograph's size: {size[0]} rows and {size[1]} columns.")
    counts = encoded["counts"]
    if not isinstance(counts, str) or not RUNS.fullmatch(counts):
        raise LabError("The mask's counts are not COCO's compressed run lengths.")
    runs = run_lengths(counts)
    if min(runs, default=-1) < 0 or sum(runs) != size[0] * size[1]:
        raise LabError("The mask's counts are not COCO's compressed run lengths.")
    return decode(RunLengths(size=[int(side) for side in size], counts=counts))


def run_lengths(counts: str) -> list[int]:
    """Runs behind COCO's text: 5 bits a letter, the lowest first; from the third on, differences to the
    run before last.
    """
    runs: list[int] = []
    value = shift = 0
    for letter in np.frombuffer(counts.encode("ascii"), np.uint8).astype(int) - ord("0"):
        value |= (int(letter) & 31) << shift
        shift += 5
        if letter & 32:  # more of this run follows
            continue
        if letter & 16:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    return runs
