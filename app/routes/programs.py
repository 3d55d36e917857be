"""What programs ask of encodings and clips in plain JSON; docs/api.md shows it in use."""

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import Field

from app import clip_files, following, objects, view
from app.engine import Encoding
from app.errors import LabError
from app.lab import Lab
from app.lanes import Tell
from app.limits import SIZES
from app.objects import Recipe
from app.routes.asking import Answer, owner_of, slow
from app.routes.clips import followed
from app.routes.encodings import Asked, Looks, find
from app.run_lengths import Encoded, mask_of
from segmentation.coco import coco_record
from segmentation.masks import Mask, best_head, decode, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard
from segmentation.propagation import resize_nearest

Patch = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class Attention(Asked):
    """Of which block, and of which patch: row and column, or null for [CLS]."""

    token: str
    block: int = Field(-1, description="from 0, or from the end with -1, -2, …")
    patch: Patch | None = None


class MaskOf(Asked):
    """The share of [CLS]'s attention to keep, by which head, and what to score it by."""

    token: str
    mass: float = Field(0.6, ge=0.01, le=1)
    head: str = Field("mean", description='"mean", the number of a head, or "best" by the ground truth')
    refined: bool = Field(False, description="edges follow those of the picture")
    ground_truth: Encoded | None = Field(None, description="COCO run lengths of the photograph's size")


class Discover(Asked):
    """How objects are found without any label."""

    token: str
    method: Literal["lost", "tokencut", "maskcut"] = "tokencut"
    count: int = Field(3, ge=1, le=objects.MOST_OBJECTS, description="the most that several looks for")
    refined: bool = False


class Propagate(Asked):
    """Which clip, and a mask of its first frame for each object; where two overlap, the later counts."""

    clip: str
    masks: list[Encoded] = Field(min_length=1, max_length=following.MAX_OBJECTS)
    model: str = "embedded"
    size: int = Field(224, ge=SIZES[0], le=SIZES[1])


def routes(lab: Lab) -> APIRouter:
    """Addresses api/attention, api/mask, api/discover and api/propagate; api/encode is the page's too."""
    router, looks = APIRouter(prefix="/api", tags=["programs"]), Looks(lab)

    @router.post("/attention")
    async def attention(request: Request, asked: Attention) -> Answer:
        """Where [CLS], or one patch, looks: one map per head, each a list of rows."""

        def work(encoding: Encoding) -> Answer:
            block = asked.block + encoding.blocks if asked.block < 0 else asked.block
            patch = (asked.patch[0], asked.patch[1]) if asked.patch else None
            return {"block": block, "maps": view.attention(encoding, encoding.queries_keys(block), patch)}

        _, found = await looks.compute(request, asked.token, work)
        return asked.model_dump() | found | {"maps": found["maps"].tolist()}

    @router.post("/mask")
    async def mask(request: Request, asked: MaskOf) -> Answer:
        """The smallest set of patches that holds a share of [CLS]'s attention, as COCO run lengths."""
        encoding, last = await looks.compute(
            request, asked.token, lambda one: one.queries_keys(one.blocks - 1)
        )

        def work() -> Answer:
            sent = asked.ground_truth
            truth = None if sent is None else mask_of(sent, encoding.picture_size)
            head = asked.head
            if head == "best":
                if truth is None:
                    raise LabError("The best head is chosen by a ground truth: pass one, or another head.")
                kept = keep_mass_of_maps(view.attention(encoding, last, None), asked.mass)
                head = str(best_head(enlarge(kept, truth.shape), truth)[0])
            recipe = Recipe("attention", head=head, mass=asked.mass, refined=asked.refined)
            (found,) = _records(lab, encoding, objects.find(encoding, last, recipe), asked.refined)
            score = None if truth is None else float(jaccard(decode(found["segmentation"]), truth))
            return {"token": asked.token, "mass": asked.mass, "head": head, "jaccard": score} | found

        return await looks.draw(request, asked.token, work)

    @router.post("/discover")
    async def discover(request: Request, asked: Discover) -> Answer:
        """Objects without any label: by LOST, TokenCut or several cuts."""
        recipe = Recipe(asked.method, count=asked.count, refined=asked.refined)
        encoding, found = await find(lab, looks, request, asked.token, recipe)

        def work() -> Answer:
            return {"objects": _records(lab, encoding, found, asked.refined)}

        return asked.model_dump() | await looks.draw(request, asked.token, work)

    @router.post("/propagate")
    async def propagate(request: Request, asked: Propagate) -> Response:
        """Follow objects through a clip: their masks in every frame, as a COCO data set.

        With `Accept: application/x-ndjson`, lines tell how many frames are done. Whoever leaves ends it.
        """
        clip = lab.clips.get(asked.clip)
        labels = np.zeros(clip.sent_size, np.uint8)
        for label, one in enumerate(asked.masks, start=1):
            labels[mask_of(one, clip.sent_size)] = label
        first_mask, owner = resize_nearest(labels, clip.size), owner_of(request, asked.clip)

        async def job(tell: Tell) -> Answer:
            _, found = await followed(
                lab, asked.clip, clip, first_mask, asked.model, asked.size, tell, owner=owner
            )
            return {"clip": asked.clip, "model": asked.model, "size": asked.size} | clip_files.coco(found)

        return await slow(request, job)

    return router


def _records(lab: Lab, encoding: Encoding, found: list[objects.Discovery], refined: bool) -> list[Answer]:
    """What is found, each with its run lengths, its box and share of the picture, and its seed."""
    picture = lab.pictures.read(encoding.key.photo)
    labels = objects.in_pixels(objects.labels_of(found, encoding.grid), picture, refined)
    return [_record(mask, one) for mask, one in zip(objects.masks_of(labels, len(found)), found, strict=True)]


def _record(mask: Mask, found: objects.Discovery) -> Answer:
    record = coco_record(1, 1, mask)
    return {
        "segmentation": record["segmentation"],
        "bbox": record["bbox"],
        "area": float(mask.mean()),
        "seed": list(found.seed),
    }
