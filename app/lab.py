"""The lab: models, images, clips, runs and class maps that all users share."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Generator, Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from app import clips, example_clips, fairness, following
from app.cache import BoundedCache
from app.class_maps import Maps
from app.clips import Clip
from app.engine import Encoding, Engine, Key
from app.errors import NotHere
from app.following import Following
from app.limits import MEGABYTE, Limits
from app.models import Models
from app.photos import Pictures
from app.runs import Runs
from dino_model.device import Precision
from dino_model.search import Index
from segmentation.labels import Labels

MASK_BYTES = 20_000  # assumed size of the mask of a frame: several times that of most


@dataclass(frozen=True)
class Start:
    """Choices that the page opens with."""

    model: str
    size: int
    photo: str = "kitten"
    clip: str = "sheep"


class Lab:
    """Models, images, clips, runs and class maps. It holds no state of a user.

    Args:
        models: Models that users may choose.
        limits: Upper bounds on what users may request.
        size: Resolution that the page opens with.
        precision, device: As in `AttentionPredictor`.
        index: Images that users may search by similarity.
    """

    def __init__(
        self,
        models: Models,
        limits: Limits,
        size: int = 224,
        *,
        precision: Precision = "auto",
        device: str = "auto",
        index: Index | None = None,
    ) -> None:
        self.models, self.limits = models, limits
        self.start = Start(models.first, size)
        self.pictures = Pictures(limits)
        self.engine = Engine(models, self.pictures, limits, precision=precision, device=device)
        self.clips = Clips(limits, self.pictures)
        self.runs = Runs(models.folder)
        self.maps = Maps(models.folder)
        self.index = index

    def look_first(self) -> Encoding:
        """Load the model that the page opens with and encode the first example.

        Raises:
            OSError, TypeError, ValueError: As `Models.load`: wrong options are reported at the start.
        """
        start = self.start
        weights = self.models.load(start.model)
        self.engine.predictor(weights, start.size)
        key = Key(start.photo, start.model, start.size, self.models.source(start.model).version)
        return self.engine.look(key, weights, self.pictures.read(start.photo))

    async def track(
        self, token: str, first_mask: Labels, model: str, size: int, client: Hashable
    ) -> AsyncIterator[Following]:
        """Track objects through a clip; other requests use the model between two frames.

        Args:
            token: Name of the clip.
            first_mask: Labels of the first frame, uint8 [height, width]; 0 is background.
            model, size: As `Engine.encode`, which checks them.
            client: See `fairness.client_of`.

        Yields:
            The same result after every frame.
        """

        def start() -> tuple[Following, Generator[None]]:
            clip = self.clips.get(token)
            encoding = self.engine.encode(self.clips.photo_of(clip), model, size)
            predictor = self.engine.predictor(encoding.predictor.model, size)
            found = following.begin(token, clip, first_mask, predictor, model, self.limits)
            return found, following.steps(found, first_mask, predictor)

        async with fairness.MODEL.turn(client):
            found, frames = await fairness.in_thread(partial(fairness.answered, start))
        with contextlib.closing(frames):
            while len(found.masks) < len(found.clip.frames):
                async with fairness.MODEL.turn(client):
                    await fairness.in_thread(partial(fairness.answered, next, frames, None))
                yield found


class Clips:
    """Clips, named by their content, and tracking results, in bounded memory."""

    def __init__(self, limits: Limits, pictures: Pictures) -> None:
        half = limits.max_clips_mb * MEGABYTE // 2
        self._limits, self._pictures = limits, pictures
        self._clips: BoundedCache[str, Clip] = BoundedCache(half)
        self._followings: BoundedCache[str, Following] = BoundedCache(half)

    def keep(self, path: Path, name: str) -> str:
        """Read an uploaded file; return the clip's token. The user's name for it is not kept."""
        clip = replace(clips.read(path, self._limits, name), name="clip")
        token = self._pictures.name_of(path.read_bytes())
        self._clips.put(token, clip, sum(map(len, clip.frames)))
        return token

    def get(self, token: str) -> Clip:
        """Return a clip by its token, or an example.

        Raises:
            NotHere: It is not in memory, or no longer.
        """
        clip = self._clips.get(token)
        if clip is None and token in example_clips.EXAMPLES:
            clip = example_clips.example(token)
            self._clips.put(token, clip, sum(map(len, clip.frames)))
        if clip is None:
            raise NotHere("This clip is no longer in the server's memory: open it again.")
        return clip

    def photo_of(self, clip: Clip) -> str:
        """Keep the first frame of a clip as an image; return its name."""
        return self._pictures.keep(clip.frames[0])

    def put(self, result: Following) -> str:
        """Keep a tracking result; return a name that cannot be guessed."""
        name = secrets.token_urlsafe(16)
        weight = sum(map(len, result.clip.frames)) + MASK_BYTES * len(result.clip.frames)
        self._followings.put(name, result, weight)
        return name

    def following(self, name: str) -> Following:
        """Return the tracking result of that name.

        Raises:
            NotHere: It is not in memory, or no longer.
        """
        found = self._followings.get(name)
        if found is None:
            raise NotHere("This result is no longer in the server's memory: track the objects again.")
        return found
