"""How much memory a video will need, told before it is spent.

An estimate is what comes on top of the loaded model and program, at its highest moment. It does not depend on
the length of the video: nothing that is kept grows with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import cv2
import torch

from segmentation.propagation import Preset, step_memory

FLOAT = 4  # bytes
# Measured on ViT-S/16 and ViT-S/8, rounded up: the widest moment of a block, in floats per token and
# channel, and what libraries set aside at their first use.
_FLOATS_PER_CHANNEL = 20
_LIBRARIES = 64 * 2**20
# Measured on VP8 and MPEG-4, in pictures of 12 bits a pixel: what an encoder looks ahead, and what a decoder
# keeps beside one for each processor.
_ENCODER_PICTURES = 32
_DECODER_PICTURES = 10


class MemoryShortage(ValueError):
    """More memory would be needed than there is. The message is one sentence for people."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes needed at most, by what needs them."""

    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All parts, in bytes."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_megabytes(size)}" for name, size in self.parts.items() if size)
        return f"about {_megabytes(self.total)} beside the loaded model, at any length ({parts})"


def propagation_memory(
    size: tuple[int, int],
    fed: tuple[int, int],
    patch_size: int,
    dimension: int,
    objects: int,
    preset: Preset,
    batch: int,
    shown: tuple[int, int] = (0, 0),
    videos: int = 0,
) -> MemoryEstimate:
    """What propagating labels needs.

    Args:
        size: height and width of the frames.
        fed: height and width that the model sees.
        patch_size: in pixels.
        dimension: channels of a patch feature.
        objects: in the first mask.
        preset: how labels are propagated.
        batch: frames that are encoded at once.
        shown: height and width of the pictures that are drawn, if any are.
        videos: files that are written at once from frames of another.
    """
    grid = -(-fed[0] // patch_size), -(-fed[1] // patch_size)
    return MemoryEstimate(
        {
            # a frame while it is decoded stands there several times; a batch is read, one is encoded, and one
            # waits for its labels
            "frames": prod(size) * 3 * (3 * batch + 3),
            "model": _forward_memory(prod(grid), dimension, fed, batch)
            + 2 * batch * prod(grid) * dimension * FLOAT,
            "propagation": step_memory(grid, dimension, 1 + objects, preset),
            "masks": prod(fed) * FLOAT * 4 + prod(size) * 8,
            "pictures": _drawing_memory(shown, objects),
            "codecs": _codec_memory(size, shown, videos),
        }
    )


def attention_memory(
    size: tuple[int, int],
    shown: tuple[int, int],
    fed: tuple[int, int],
    patch_size: int,
    width: int,
    blocks: int,
    heads: int,
    videos: int = 0,
) -> MemoryEstimate:
    """What a video of attention maps needs.

    Args:
        size: height and width of the frames.
        shown: height and width of the pictures that are drawn.
        fed: height and width that the model sees.
        patch_size: in pixels.
        width: channels of a token.
        blocks, heads: of the model.
        videos: files that are written at once from frames of another.
    """
    tokens = -(-fed[0] // patch_size) * -(-fed[1] // patch_size)
    return MemoryEstimate(
        {
            "frames": prod(size) * 3 * 4,
            "model": _forward_memory(tokens, width, fed, 1) + (blocks + 1) * tokens * width * FLOAT,
            "pictures": _drawing_memory(shown, 3 * (heads + 4)),
            "codecs": _codec_memory(size, shown, videos),
        }
    )


def _drawing_memory(shown: tuple[int, int], layers: int) -> int:
    """Blending a picture in floats, and `layers` maps or masks of its size in bytes."""
    return prod(shown) * (3 * FLOAT * 5 + layers)


def _codec_memory(size: tuple[int, int], shown: tuple[int, int], videos: int) -> int:
    """Reading one video of frames of `size` and writing `videos` of frames of `shown`, pictures of both kept
    by the codecs."""
    if not videos:
        return 0
    read = prod(size) * (_DECODER_PICTURES + cv2.getNumberOfCPUs())
    return (read + videos * prod(shown) * _ENCODER_PICTURES) * 3 // 2


def _forward_memory(tokens: int, width: int, fed: tuple[int, int], batch: int) -> int:
    """One pass of a batch through a transformer with fused attention, its input included."""
    pixels = prod(fed) * 3 * FLOAT
    return batch * (tokens * width * _FLOATS_PER_CHANNEL * FLOAT + 3 * pixels) + _LIBRARIES


def available_memory(device: torch.device) -> int | None:
    """Free bytes on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def check(estimate: MemoryEstimate, device: torch.device) -> None:
    """Refuse what does not fit.

    Raises:
        MemoryShortage: the estimate is above what is free on the device.
    """
    free = available_memory(device)
    if free is not None and estimate.total > free:
        raise MemoryShortage(
            f"this needs {estimate}, but only {_megabytes(free)} are free on {device}; "
            "choose a smaller --size or --batch"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
