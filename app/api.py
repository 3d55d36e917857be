"""Endpoints for programs and, with `--mcp`, for language models; docs/api.md shows each in use."""

import base64
import binascii
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
import numpy as np

from app import clip_files, fairness, following, matching, objects, view
from app.engine import Encoding, QueriesKeys
from app.errors import LabError, TooLarge
from app.example_clips import EXAMPLES as EXAMPLE_CLIPS
from app.fairness import answered, client_of, in_thread
from app.lab import Lab
from app.matching import Pair
from app.objects import Recipe
from app.photos import EXAMPLES
from app.run_lengths import mask_of
from segmentation.coco import coco_record
from segmentation.discovery import Discovery
from segmentation.masks import Mask, best_head, decode, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard
from segmentation.propagation import resize_nearest

Result = TypeVar("Result")
Answer = dict[str, Any]
METHODS = ("lost", "tokencut", "maskcut")


def add_endpoints(lab: Lab) -> None:
    """Add the endpoints to the `gr.Blocks` that is being built."""
    endpoints = Endpoints(lab)
    for function in (
        endpoints.attention,
        endpoints.masks,
        endpoints.objects,
        endpoints.matches,
        endpoints.follow,
    ):
        gr.api(function, api_name=function.__name__, concurrency_limit=None)


class Endpoints:
    """Functions for programs. An image or clip is the name of an example, or a file as base64 text."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def attention(
        self,
        image: str,
        model: str = "embedded",
        size: int = 224,
        block: int = -1,
        row: int | None = None,
        column: int | None = None,
        request: gr.Request | None = None,
    ) -> dict:
        """Compute the attention maps of [CLS], or of one patch, for every head of a vision transformer.

        Args:
            image: Name of an example (kitten, sheep, komodo, red_pyramid, polar_bear, drums, dutar, owl), or
                an image file as base64 text.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            block: Block of the model, from 0, or from the end with -1, -2, …
            row: Row of the patch; without row and column, the query is [CLS].
            column: Column of the patch.

        Returns:
            rows and columns of the patch grid, block, and maps: for every head a list of rows. The values of
            a head sum to less than 1; [CLS] and registers hold the rest.
        """
        encoding = await self._encoding(image, model, size, request)
        _integer("block", block)
        patch = None
        if row is not None or column is not None:
            patch = (_integer("row", row), _integer("column", column))

        def compute() -> Answer:
            number = block + encoding.blocks if block < 0 else block
            if not 0 <= number < encoding.blocks:
                raise LabError(
                    f"There is no block {block}: this model has blocks 0 to {encoding.blocks - 1}."
                )
            maps = view.attention(encoding, encoding.queries_keys(number), patch)
            rows, columns = encoding.grid
            return {"rows": rows, "columns": columns, "block": number, "maps": maps.tolist()}

        return await self._computed(compute, request)

    async def masks(
        self,
        image: str,
        model: str = "embedded",
        size: int = 224,
        mass: float = 0.6,
        head: str = "mean",
        refined: bool = False,
        ground_truth: dict | None = None,
        request: gr.Request | None = None,
    ) -> dict:
        """Keep the smallest set of patches that holds a share of the attention of [CLS].

        Args:
            image: Name of an example, or an image file as base64 text.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            mass: Share of the attention to keep, 0.01 to 1.
            head: "mean", the number of a head from 0, or "best": the head that agrees best with the ground
                truth.
            refined: Whether edges follow those of the image.
            ground_truth: Mask to compare with, as COCO run lengths {"size": [height, width], "counts": text}.

        Returns:
            head, jaccard (with the ground truth, or null), segmentation (COCO run lengths), bbox (left, top,
            width, height), area (share of the image) and seed (row and column of the largest value).
        """
        encoding = await self._encoding(image, model, size, request)
        truth = None if ground_truth is None else mask_of(ground_truth, encoding.picture_size)

        def compute() -> Answer:
            last, chosen = self._queries_keys(encoding, encoding.blocks - 1), head
            if head == "best":
                if truth is None:
                    raise LabError("The best head is chosen by a ground truth: pass one, or another head.")
                kept = keep_mass_of_maps(view.attention(encoding, last, None), Recipe.of({"mass": mass}).mass)
                chosen = str(best_head(enlarge(kept, truth.shape), truth)[0])
            recipe = Recipe.of({"method": "attention", "head": chosen, "mass": mass, "refined": refined})
            (found,) = self._records(encoding, objects.find(encoding, last, recipe), recipe.refined)
            score = None if truth is None else float(jaccard(decode(found["segmentation"]), truth))
            return {"head": chosen, "jaccard": score} | found

        return await self._computed(compute, request)

    async def objects(
        self,
        image: str,
        model: str = "embedded",
        size: int = 224,
        method: str = "tokencut",
        count: int = 3,
        refined: bool = False,
        request: gr.Request | None = None,
    ) -> dict:
        """Find objects in an image without any label.

        Args:
            image: Name of an example, or an image file as base64 text.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            method: "lost", "tokencut" or "maskcut".
            count: Most objects that "maskcut" finds, 1 to 6.
            refined: Whether edges follow those of the image.

        Returns:
            objects: a list, each with segmentation (COCO run lengths), bbox, area and seed.
        """
        if method not in METHODS:
            raise LabError(f"Unknown method. Available: {', '.join(METHODS)}.")
        recipe = Recipe.of({"method": method, "count": count, "refined": refined})
        encoding = await self._encoding(image, model, size, request)

        def compute() -> Answer:
            last = self._queries_keys(encoding, encoding.blocks - 1)
            return {"objects": self._records(encoding, objects.find(encoding, last, recipe), recipe.refined)}

        return await self._computed(compute, request)

    async def matches(
        self,
        image: str,
        other: str,
        model: str = "embedded",
        size: int = 224,
        ratio: float = 1.0,
        request: gr.Request | None = None,
    ) -> dict:
        """Match the patches of two images that are each other's nearest neighbors.

        Args:
            image: Name of an example, or an image file as base64 text.
            other: The second image, in the same form.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            ratio: Largest distance of a match by the distance of the next best, 0.01 to 1; less keeps fewer.

        Returns:
            matches, best first: a and b (y and x in pixels of the images), cosine and ratio; scale of the
            second image with the most matches, and the scales that were tried.
        """
        first = await self._encoding(image, model, size, request)
        second = await self._encoding(other, model, size, request)
        pair = Pair(self.lab, first.key, second.key, ratio)

        def compute() -> Answer:
            scale, scaled, found = pair.best()
            listed = matching.listed_matches(first, scaled[scale].encoding, found)
            return {"matches": listed, "scale": scale, "scales": sorted(scaled)}

        async with fairness.MODEL.turn(client_of(request)):
            return await in_thread(partial(answered, compute))

    async def follow(
        self,
        clip: str,
        masks: list,
        model: str = "embedded",
        size: int = 224,
        request: gr.Request | None = None,
    ) -> dict:
        """Follow objects through a clip, from their masks in the first frame.

        Args:
            clip: Name of an example clip (sheep), or as base64 text a video, a zip of frames or an animated
                image.
            masks: For each object COCO run lengths {"size": [height, width], "counts": text} of the first
                frame; where two overlap, the later counts.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.

        Returns:
            A COCO data set: images (frames), annotations (masks of the objects) and categories (objects).
        """
        if not isinstance(masks, list) or not 1 <= len(masks) <= following.MAX_OBJECTS:
            raise LabError(f"The masks must be a list of 1 to {following.MAX_OBJECTS}.")
        token = await in_thread(partial(answered, self._clip, clip))
        found = self.lab.clips.get(token)
        labels = np.zeros(found.sent_size, np.uint8)
        for label, mask in enumerate(masks, start=1):
            labels[mask_of(mask, found.sent_size)] = label
        first_mask, client = resize_nearest(labels, found.size), client_of(request)
        weights = await self._model(model, client)
        predictor = self.lab.engine.predictor(weights, _check_size(size))
        run = following.begin(token, found, first_mask, predictor, model, self.lab.limits)
        steps = following.steps(run, first_mask, predictor)
        while True:
            async with fairness.MODEL.turn(
                client
            ):  # a turn for every frame: others use the model between them
                if await in_thread(partial(answered, next, steps, steps)) is steps:
                    break
        return await in_thread(partial(clip_files.coco, run))

    async def _encoding(self, image: str, model: str, size: int, request: gr.Request | None) -> Encoding:
        photo, client = await in_thread(partial(answered, self._photo, image)), client_of(request)
        _check_size(size)
        await self._model(model, client)
        async with fairness.MODEL.turn(client):
            return await in_thread(partial(answered, self.lab.engine.encode, photo, model, size))

    async def _model(self, model: str, client: Any) -> Any:
        """Download and load a model without holding a turn at the models."""
        if not isinstance(model, str):
            raise LabError("The model must be named by text.")
        async with fairness.LOADING.turn(client):
            return await in_thread(partial(answered, self.lab.models.ready, model))

    async def _computed(self, compute: Callable[[], Result], request: gr.Request | None) -> Result:
        async with fairness.FINDING.turn(client_of(request)):
            return await in_thread(partial(answered, compute))

    def _queries_keys(self, encoding: Encoding, block: int) -> QueriesKeys:
        with self.lab.engine.reading:
            return encoding.queries_keys(block)

    def _photo(self, image: object) -> str:
        if isinstance(image, str) and image in EXAMPLES:
            return image
        return self.lab.pictures.keep(self._decoded(image, "image", EXAMPLES))[0]

    def _clip(self, clip: object) -> str:
        if isinstance(clip, str) and clip in EXAMPLE_CLIPS:
            return clip
        with tempfile.TemporaryDirectory(dir=os.environ.get("GRADIO_TEMP_DIR")) as folder:
            path = Path(folder, "clip")
            path.write_bytes(self._decoded(clip, "clip", EXAMPLE_CLIPS))
            return self.lab.clips.keep(path, "clip")[0]

    def _decoded(self, text: object, kind: str, examples: Any) -> bytes:
        """The bytes of a file that came as base64 text, or as a data address."""
        wrong = f"The {kind} must be the name of an example ({', '.join(examples)}) or a file as base64 text."
        if not isinstance(text, str) or len(text) < 40:
            raise LabError(wrong)
        if len(text) > self.lab.limits.max_upload_bytes * 4 // 3 + 200:
            raise TooLarge(f"The {kind} is larger than the {self.lab.limits.max_upload_mb} MB allowed.")
        try:
            return base64.b64decode(
                text.partition(",")[2] if text.startswith("data:") else text, validate=True
            )
        except (binascii.Error, ValueError) as error:
            raise LabError(wrong) from error

    def _records(self, encoding: Encoding, found: list[Discovery], refined: bool) -> list[Answer]:
        """Run lengths, box, share of the image and seed of every object."""
        picture = self.lab.pictures.read(encoding.key.photo)
        labels = objects.in_pixels(objects.labels_of(found, encoding.grid), picture, refined)
        masks = objects.masks_of(labels, len(found))
        return [_record(mask, one) for mask, one in zip(masks, found, strict=True)]


def _record(mask: Mask, found: Discovery) -> Answer:
    record = coco_record(1, 1, mask)
    area, seed = float(mask.mean()), [int(place) for place in found.seed]
    return {"segmentation": record["segmentation"], "bbox": record["bbox"], "area": area, "seed": seed}


def _integer(name: str, value: object) -> int:
    if type(value) is not int or abs(value) > 10**6:
        raise LabError(f"The {name} must be a whole number.")
    return value


def _check_size(size: object) -> int:
    if type(size) is not int or not 32 <= size <= 2048:
        raise LabError("The size must be a whole number from 32 to 2048 pixels.")
    return size
