"""Example clips with true masks: objects of the package images move over a landscape."""

from collections.abc import Mapping
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model import photographs
from segmentation.masks import ImageArray, bounding_box

FRAMES, FPS = 30, 12.0
SIZE = (240, 416)  # height, width
LANDSCAPE_ZOOM = 1.15  # beyond the size that fills the frame, so that the camera can pan

Pose = tuple[float, float, float, float]
"""Pose of an object: center x, center y and height as shares of the frame; rotation in degrees."""


class Actor(NamedTuple):
    """An object of an image that moves from one pose to another; `sway` is in degrees."""

    image: str
    start: Pose
    end: Pose
    sway: float


class Example(NamedTuple):
    """A clip of a few actors in front of a landscape."""

    title: str
    landscape: str
    actors: tuple[Actor, ...]


DUCK = Actor("duck", (0.2, 0.80, 0.34, 0), (0.84, 0.76, 0.38, 0), sway=6)
MACAW = Actor("macaw", (0.8, 0.5, 0.4, -15), (0.22, 0.42, 0.6, 12), sway=5)
SHEEP = Actor("sheep", (0.66, 0.56, 0.62, 0), (0.36, 0.60, 0.74, 0), sway=3)
SHEPHERD = Actor("shepherd", (0.28, 0.62, 0.56, 0), (0.68, 0.55, 0.78, 0), sway=3)
EXAMPLES: Mapping[str, Example] = {
    "sheep": Example("Sheep and duck", "hillside", (SHEEP, DUCK)),
    "macaw": Example("Scarlet macaw", "canyon", (MACAW,)),
    "shepherd": Example("German shepherd", "cliff", (SHEPHERD,)),
}


def draw_frames(name: str) -> list[ImageArray]:
    """Draw one of `EXAMPLES`: frames, uint8 RGB [*SIZE, 3]."""
    drawn = EXAMPLES[name]
    landscape = photographs.image(drawn.landscape)
    cutouts = [cut_out(actor.image) for actor in drawn.actors]
    frames = []
    for time in np.linspace(0, 1, FRAMES):
        frame = _background(landscape, float(time))
        for actor, (image, opacity) in zip(drawn.actors, cutouts, strict=True):
            move, size = _move(opacity, actor, float(time)), SIZE[::-1]
            moved = cv2.warpAffine(image.astype(np.float32), move, size, borderMode=cv2.BORDER_REPLICATE)
            alpha = cv2.warpAffine(opacity, move, size)[..., None]
            frame = frame * (1 - alpha) + moved * alpha
        frames.append(np.rint(frame).astype(np.uint8))
    return frames


def draw_masks(name: str) -> list[NDArray[np.uint8]]:
    """Return the labels of every frame, [*SIZE]: number of the actor from 1; 0 is background."""
    frames = [np.zeros(SIZE, np.uint8) for _ in range(FRAMES)]
    for number, actor in enumerate(EXAMPLES[name].actors, 1):
        _, opacity = cut_out(actor.image)
        for time, labels in zip(np.linspace(0, 1, FRAMES), frames, strict=True):
            move = _move(opacity, actor, float(time))
            labels[cv2.warpAffine(opacity, move, SIZE[::-1]) > 0.5] = number
    return frames


def cut_out(name: str) -> tuple[ImageArray, NDArray[np.float32]]:
    """Return the bounding box of an object: RGB [height, width, 3] and opacity [height, width] in [0, 1]."""
    image, mask = photographs.image(name), photographs.mask(name)
    left, top, right, bottom = bounding_box(mask)
    box = slice(top, bottom), slice(left, right)
    soft = cv2.GaussianBlur(mask[box].astype(np.float32), (0, 0), 1.2)
    return image[box], np.asarray(soft, np.float32)


def _background(landscape: ImageArray, time: float) -> NDArray[np.float32]:
    height, width = SIZE
    scale = LANDSCAPE_ZOOM * max(height / landscape.shape[0], width / landscape.shape[1])
    margin = scale * landscape.shape[1] - width
    move = np.array([[scale, 0, -time * margin], [0, scale, (height - scale * landscape.shape[0]) / 2]])
    frame = cv2.warpAffine(landscape.astype(np.float32), move, (width, height), flags=cv2.INTER_AREA)
    return np.asarray(frame, np.float32)


def _move(opacity: NDArray[np.float32], actor: Actor, time: float) -> NDArray[np.float64]:
    """Return the affine transform of an actor's cut-out into the frame: [2, 3]."""
    height, width = SIZE
    x, y, tall, degrees = np.array(actor.start) * (1 - time) + np.array(actor.end) * time
    degrees += actor.sway * np.sin(6 * np.pi * time)
    center = opacity.shape[1] / 2, opacity.shape[0] / 2
    move = cv2.getRotationMatrix2D(center, float(degrees), float(tall * height / opacity.shape[0]))
    move[:, 2] += x * width - center[0], y * height - center[1]
    return np.asarray(move, np.float64)
