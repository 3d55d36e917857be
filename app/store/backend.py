"""Models, images, clips, runs and class maps that all users share."""

import contextlib
import os
import secrets
import tempfile
import threading
from collections.abc import AsyncIterator, Generator, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.limits import fairness
from app.limits.bounds import MEGABYTE, SIZES, VARIABLE, BoundedCache, Limits
from app.limits.errors import LabError, NotHere
from app.store import clips, engine
from app.store.class_maps import Maps
from app.store.clips import Clip, TrackedClip
from app.store.engine import Encoding, Key
from app.store.images import EXAMPLES, FIRST, ImageStore
from app.store.models import Models
from app.store.runs import Runs
from app.values import shape_of
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.resize import fed_size
from dino_model.inference.search import SearchIndex
from segmentation import example_clips
from segmentation.labels import Labels

MASK_BYTES = 20_000  # assumed size of the mask of a frame: several times that of most


class Backend:
    """Models, images and their encodings, clips, runs and class maps. It holds no state of a user.

    `size` is the resolution that the page opens with; users search the images of `index` by similarity.
    """

    def __init__(
        self, models: Models, limits: Limits, size: int = 224, *, index: SearchIndex | None = None
    ) -> None:
        self.models, self.limits, self.size, self.index = models, limits, size, index
        self.images = ImageStore(limits)
        self.clips = Clips(limits, self.images)
        self.stores: Mapping[str, ImageStore | Clips] = {"image": self.images, "clip": self.clips}
        self.runs = Runs(models.folder)
        self.maps = Maps(models.folder)
        self._encoding = threading.Lock()
        self._encodings: BoundedCache[Key, Encoding] = BoundedCache(limits.max_memory_mb * MEGABYTE // 2)
        models.on_forgotten = lambda forgotten: self._encodings.drop(  # they would hold its weights
            lambda _, encoding: encoding.predictor.model is forgotten.model
        )

    def encode(self, image: str, model: object, size: object) -> Encoding:
        """Encode an image of `images`, one at a time, or return its cached encoding."""
        key = self._key(image, model, size)
        encoding = self._encodings.get(key)
        if encoding is None:
            self.images.check(image)
            predictor = self.models.ready(model)
            with self._encoding:  # another request may have encoded the same image meanwhile
                encoding = self._encodings.get(key)
                if encoding is None:
                    encoding = engine.encode(key, predictor, self.images.read(image), self.limits)
                    self._encodings.put(key, encoding, encoding.nbytes)
        return encoding

    def _key(self, image: str, model: object, size: object) -> Key:
        if type(size) is not int or not SIZES[0] <= size <= SIZES[1]:
            raise LabError(f"The resolution must be a whole number from {SIZES[0]} to {SIZES[1]} pixels.")
        return Key(image, str(model), size, self.models.source(model).version)

    def prepare(
        self, image: str, model: object, size: object
    ) -> tuple[Key, AttentionPredictor, dict[str, int]]:
        """Load a model and check an image as `encode`; return key, model and `shape_of` the encoding."""
        key = self._key(image, model, size)
        pixels, predictor = self.images.read(image), self.models.ready(model)
        height, width = pixels.shape[0], pixels.shape[1]
        engine.check_patches((height, width), key.size, predictor.patch_size, self.limits)
        patch = predictor.patch_size
        used = fed_size(height, width, key.size, "short-side", patch)
        return key, predictor, shape_of(predictor, (height, width), (used[0] // patch, used[1] // patch))

    def forget(self, image: str) -> None:
        """Delete a user's image and its encodings, or a user's clip."""
        self.images.forget(image)
        self.clips.forget(image)
        self._encodings.drop(lambda key, _: key.image == image and image not in EXAMPLES)

    async def load(self, model: str, client: Hashable) -> None:
        """Load a model that is not in memory; this takes no turn at the models."""
        if load := await fairness.in_thread(self.models.loader, model):
            await fairness.LOADING.run(client, load)

    def holds(self, token: str) -> bool:
        """Return whether the encoding of a token is in memory."""
        return self._encodings.get(Key.of(token)) is not None

    def encoding(self, token: str) -> Encoding:
        """Return the encoding of a token; compute it again if it was forgotten."""
        key = Key.of(token)
        if self.models.source(key.model).version != key.version:
            raise NotHere(f"The file of {key.model} has changed: choose the model again.")
        return self.encode(key.image, key.model, key.size)

    @property
    def first(self) -> Encoding:
        """The encoding that the page opens with."""
        return self.encode(FIRST, self.models.first, self.size)

    async def track(
        self,
        clip: Clip,
        masks: Mapping[int, Labels],
        model: str,
        size: int,
        client: Hashable,
        objects: Mapping[int, Sequence[int]] | None = None,
    ) -> AsyncIterator[TrackedClip]:
        """Track objects as `clips.track`; other requests use the model between two frames."""

        def start() -> Generator[TrackedClip]:
            predictor = self.encode(self.clips.image_of(clip), model, size).predictor.at(size)
            return clips.track(clip, masks, predictor, model, self.limits, objects)

        with contextlib.closing(await fairness.MODEL.run(client, start)) as results:
            while found := await fairness.MODEL.run(client, next, results, None):
                yield found


class Clips:
    """Clips, named by their content, and tracking results, in bounded memory."""

    def __init__(self, limits: Limits, images: ImageStore) -> None:
        half = limits.max_clips_mb * MEGABYTE // 2
        self._limits, self._images = limits, images
        self._clips: BoundedCache[str, Clip] = BoundedCache(half)
        self._tracked: BoundedCache[str, TrackedClip] = BoundedCache(half)

    def keep(self, content: bytes, name: str) -> str:
        """Read an uploaded file; return the clip's token. The user's name for it is not kept."""
        token = self._images.name_of(content)
        with tempfile.TemporaryDirectory(dir=os.environ.get(VARIABLE)) as folder:  # the decoders need a path
            path = Path(folder, "clip")
            path.write_bytes(content)
            clip = replace(clips.read(path, self._limits, name), name="clip")
        self._clips.put(token, clip, clip.nbytes)
        return token

    def get(self, token: str) -> Clip:
        """Return a clip by its token, or an example."""
        clip = self._clips.get(token)
        if clip is None and token in example_clips.EXAMPLES:
            clip = clips.example(token)
            self._clips.put(token, clip, clip.nbytes)
        if clip is None:
            raise NotHere("This clip is no longer in the server's memory: open it again.")
        return clip

    def holds(self, token: str) -> bool:
        """Return whether a clip is in memory."""
        return token in example_clips.EXAMPLES or self._clips.get(token) is not None

    def forget(self, token: str) -> None:
        """Delete a user's clip."""
        self._clips.drop(lambda key, _: key == token)

    def image_of(self, clip: Clip, number: int = 0) -> str:
        """Keep a frame of a clip as an image; return its name."""
        return self._images.keep(clip.frames[number])

    def put(self, result: TrackedClip) -> str:
        """Keep a tracking result; return a name that cannot be guessed."""
        name = secrets.token_urlsafe(16)
        self._tracked.put(name, result, result.clip.nbytes + MASK_BYTES * len(result.clip.frames))
        return name

    def tracked_clip(self, name: str) -> TrackedClip:
        """Return the tracking result of that name."""
        if (found := self._tracked.get(name)) is None:
            raise NotHere("This result is no longer in the server's memory: track the objects again.")
        return found
