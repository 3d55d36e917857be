"""Endpoints for programs and, with `--mcp`, for language models; docs/api.md shows each in use."""

import base64
import contextlib
from collections.abc import AsyncIterator, Mapping

import gradio as gr
import numpy as np
from pydantic import Field

from app.handlers import matching, objects
from app.handlers.attention_maps import attention
from app.handlers.objects import ObjectSettings
from app.limits import fairness
from app.limits.bounds import take_upload
from app.limits.errors import ClientValue, LabError
from app.limits.fairness import client_of, in_thread
from app.store import clips
from app.store.backend import Backend
from app.store.engine import Encoding
from app.store.images import EXAMPLES
from segmentation.coco import coco_annotation
from segmentation.example_clips import EXAMPLES as EXAMPLE_CLIPS
from segmentation.labels import Labels, resize_nearest
from segmentation.masks import Mask, best_head, decode, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

File = str | dict
"""Name of an example, or a file: base64 text, which may be URL-safe or wrapped, or that of `handle_file`."""
URL_SAFE = str.maketrans("-_", "+/")
MIN_FILE_BYTES = 30
"""Fewer bytes are no image or clip, but a mistyped name that reads as base64."""


class Query(ClientValue):
    """A block, and row and column of a patch."""

    block: int
    row: int = Field(ge=0)
    column: int = Field(ge=0)


class RunLengths(ClientValue):
    """A mask in COCO's compressed run lengths."""

    size: list[int] = Field(min_length=2, max_length=2)
    counts: str


def add_endpoints(backend: Backend) -> None:
    """Add the endpoints to the `gr.Blocks` that is being built."""
    for name in ("attention", "masks", "objects", "matches", "track"):
        gr.api(getattr(Endpoints(backend), name), api_name=name, concurrency_limit=None)


class Endpoints:
    """Functions for programs.

    An image or clip is the name of an example, a file as base64 text, or `gradio_client.handle_file(path)`.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def attention(
        self,
        image: File,
        model: str = "embedded",
        size: int = 224,
        block: int = -1,
        row: int | None = None,
        column: int | None = None,
        request: gr.Request | None = None,
    ) -> dict:
        """Compute the attention maps of [CLS], or of one patch, for every head of a vision transformer.

        Args:
            image: Name of an example (sheep, kitten, macaw, komodo, polar_bear, owl, panda, red_pyramid), or
                an image file.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            block: Block of the model, from 1 as on the page, or from the end with -1, -2, …
            row: Row of the patch; without row and column, the query is [CLS].
            column: Column of the patch.

        Returns:
            rows and columns of the patch grid, block from 1, and maps: for every head a list of rows. The
            values of a head sum to less than 1; [CLS] and registers hold the rest.
        """
        if (row is None) != (column is None):
            raise LabError("A patch needs a row and a column.")
        query = Query.of({"block": block, "row": row or 0, "column": column or 0})
        patch = None if row is None else (query.row, query.column)

        def compute(encoding: Encoding) -> dict:
            blocks = encoding.predictor.blocks
            if not 1 <= abs(block) <= blocks:
                raise LabError(f"There is no block {block}: this model has blocks 1 to {blocks}.")
            number = block % blocks if block < 0 else block - 1
            maps = attention(encoding, number, patch)
            rows, columns = encoding.predictor.grid
            return {"rows": rows, "columns": columns, "block": number + 1, "maps": maps.tolist()}

        async with self._encoding(image, model, size, request) as encoding:
            return await fairness.READING.run(client_of(request), compute, encoding)

    async def masks(
        self,
        image: File,
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
            image: Name of an example, or an image file.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            mass: Share of the attention to keep, 0.01 to 1.
            head: "mean", the number of a head from 0, or "best": the head that agrees best with the ground
                truth.
            refined: Align the edges with those of the image.
            ground_truth: Mask to compare with, as COCO run lengths {"size": [height, width], "counts": text}.

        Returns:
            head, jaccard (with the ground truth, or null) and segmentation (COCO run lengths). Also bbox
            (left, top, width, height), area (share of the image) and seed (row and column of the maximum).
        """
        best = head == "best"
        settings = ObjectSettings.of({"head": "mean" if best else head, "mass": mass, "refined": refined})
        if best and ground_truth is None:
            raise LabError("The best head is chosen by a ground truth: pass one, or another head.")

        def compute(encoding: Encoding) -> dict:
            chosen = settings
            truth = None if ground_truth is None else mask_of(ground_truth, encoding.predictor.image_size)
            if best and truth is not None:
                masks = keep_mass_of_maps(attention(encoding), mass)
                number, _ = best_head(enlarge(masks, truth.shape), truth)
                chosen = settings.model_copy(update={"head": str(number)})
            (record,) = self._records(encoding, chosen)
            score = None if truth is None else float(jaccard(decode(record["segmentation"]), truth))
            return {"head": chosen.head, "jaccard": score} | record

        async with self._encoding(image, model, size, request) as encoding:
            return await fairness.FINDING.run(client_of(request), compute, encoding)

    async def objects(
        self,
        image: File,
        model: str = "embedded",
        size: int = 224,
        method: str = "tokencut",
        count: int = 3,
        refined: bool = False,
        request: gr.Request | None = None,
    ) -> dict:
        """Find objects in an image without any label.

        Args:
            image: Name of an example, or an image file.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            method: "attention", "dino-seg", "lost", "tokencut" or "maskcut".
            count: Most objects that "maskcut" finds, 1 to 6.
            refined: Align the edges with those of the image.

        Returns:
            objects: a list, each with segmentation (COCO run lengths), bbox, area and seed.
        """
        settings = ObjectSettings.of({"method": method, "count": count, "refined": refined})
        async with self._encoding(image, model, size, request) as encoding:
            records = await fairness.FINDING.run(client_of(request), self._records, encoding, settings)
        return {"objects": records}

    async def matches(
        self,
        image: File,
        other: File,
        model: str = "embedded",
        size: int = 224,
        ratio: float = 1.0,
        request: gr.Request | None = None,
    ) -> dict:
        """Match the patches of two images that are each other's nearest neighbors.

        Args:
            image: Name of an example, or an image file.
            other: The second image, in the same form.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.
            ratio: Largest distance of a match by the distance of the next best, 0.01 to 1; less keeps fewer.

        Returns:
            matches, best first: a and b (y and x in pixels of the images), cosine and ratio. Also the scale
            of the second image with the most matches, and the scales that were tried.
        """
        arguments = model, size, request
        async with self._encoding(image, *arguments) as first, self._encoding(other, *arguments) as second:
            tokens, client = (first.key.token, second.key.token), client_of(request)
            response, _ = await fairness.MODEL.run(client, matching.match, self.backend, *tokens, ratio)
        return response

    async def track(
        self,
        clip: File,
        masks: dict,
        model: str = "embedded",
        size: int = 224,
        request: gr.Request | None = None,
    ) -> dict:
        """Track objects through a clip, from their masks in some frames.

        Args:
            clip: Name of an example clip (sheep), or a video or an animated GIF.
            masks: For each marked frame, by its number from 0 as text, the list of all objects: COCO run
                lengths {"size": [height, width], "counts": text}, or null for an object that the frame
                lacks. Objects end and begin at these frames; where two overlap, the later counts.
            model: Name of a model that the page offers.
            size: Resolution: pixels of the short side, 32 to 2048.

        Returns:
            A COCO data set: images (frames), annotations (masks of the objects) and categories (objects).
        """
        loaded_clip = self.backend.clips.get(await in_thread(self._keep, clip, "clip"))
        client = client_of(request)
        if not isinstance(masks, dict) or not all(str(frame).isdecimal() for frame in masks):
            raise LabError('The masks must be lists by number of the frame, such as {"0": [run_lengths]}.')
        labels = {int(frame): labels_of(objects, loaded_clip.sent_size) for frame, objects in masks.items()}
        marked = {frame: resize_nearest(each, loaded_clip.size) for frame, each in labels.items()}
        await self.backend.load(model, client)
        results = self.backend.track(loaded_clip, marked, model, size, client)
        *_, tracked = [result async for result in results]
        return await in_thread(clips.coco, tracked)

    @contextlib.asynccontextmanager
    async def _encoding(
        self, image: object, model: str, size: int, request: gr.Request | None
    ) -> AsyncIterator[Encoding]:
        """Encode an image, which stays until the end of the block.

        Decoding, and loading the model, hold no turn at the models.
        """
        name, client = await in_thread(self._keep, image, "image"), client_of(request)
        with self.backend.images.pinned(name):
            await self.backend.load(model, client)
            yield await fairness.MODEL.run(client, self.backend.encode, name, model, size)

    def _keep(self, sent: object, kind: str) -> str:
        """Return the name of an example, or of a file that is kept."""
        store, examples = self.backend.stores[kind], EXAMPLES if kind == "image" else EXAMPLE_CLIPS
        limits = self.backend.limits
        if isinstance(sent, Mapping) and "path" in sent:  # of `handle_file`, which has uploaded the file
            return store.keep(take_upload(sent["path"], limits.max_upload_bytes), f"The {kind}")
        if isinstance(sent, str) and sent in examples:
            return sent
        text = "".join(sent.rpartition(",")[2].split()).rstrip("=") if isinstance(sent, str) else ""
        if len(text) * 3 // 4 > limits.max_upload_bytes:
            raise LabError(f"The {kind} is larger than the {limits.max_upload_mb} MB allowed.")
        content = b""
        with contextlib.suppress(ValueError):
            content = base64.b64decode(text.translate(URL_SAFE) + "=" * (-len(text) % 4), validate=True)
        if len(content) < MIN_FILE_BYTES:
            names = ", ".join(examples)
            raise LabError(f"The {kind} must be the name of an example ({names}) or a file as base64 text.")
        return store.keep(content, f"The {kind}")

    def _records(self, encoding: Encoding, settings: ObjectSettings) -> list[dict]:
        """Find objects; return run lengths, box, share of the image and seed of each."""
        regions = objects.find(encoding, settings)
        image = self.backend.images.read(encoding.key.image)
        on_grid = objects.labels_of(regions, encoding.predictor.grid)
        labels = objects.in_pixels(on_grid, image, settings.refined)
        records = []
        for number, one in enumerate(regions, 1):
            mask = labels == number
            record = coco_annotation(number, 1, 1, mask)
            fields = {name: record[name] for name in ("segmentation", "bbox")}
            records.append(fields | {"area": float(mask.mean()), "seed": list(map(int, one.seed))})
        return records


def labels_of(objects: object, size: tuple[int, int]) -> Labels:
    """Combine a client's masks of the objects of a frame, null for an absent one, to labels."""
    if not isinstance(objects, list) or not 1 <= len(objects) <= clips.MAX_OBJECTS:
        raise LabError(f"The objects of a frame must be a list of 1 to {clips.MAX_OBJECTS}.")
    labels = np.zeros(size, np.uint8)
    for label, mask in enumerate(objects, start=1):
        if mask is not None:
            labels[mask_of(mask, size)] = label
    return labels


def mask_of(encoded: object, size: tuple[int, int]) -> Mask:
    """Decode a client's run lengths, {"size": [height, width], "counts": text}, to a mask of that size."""
    lengths = RunLengths.of(encoded)
    if lengths.size != list(size):
        raise LabError(f"The mask must have the size of the image: {size[0]} rows and {size[1]} columns.")
    try:
        return decode({"size": lengths.size, "counts": lengths.counts})
    except ValueError as error:
        raise LabError("The mask's counts are not COCO's compressed run lengths.") from error
