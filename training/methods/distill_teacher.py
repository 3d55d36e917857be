"""A frozen teacher, and its outputs for squares of images: live, or from a cache on disk."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dino_model.data.collection import Images
from dino_model.data.framing import Framing
from dino_model.inference.feature_cache import CachedRows, model_fingerprint
from dino_model.models.attention import readable
from dino_model.models.load import LoadedModel
from dino_model.runtime.device import ComputePrecision, autocast
from dino_model.runtime.errors import SettingError, pluralize
from training.augmentation.batches import read_or_next
from training.augmentation.crops import Crops, normalize
from training.augmentation.randomness import copy_to_device, mix
from training.methods.distill_loss import log_attention, renormalize

IMAGES_AT_ONCE = 32
REPORT_EVERY = 2560
"""Images between two lines about the progress of a cache."""
CACHED_SAMPLE = 1500
"""Largest number of images whose cached tokens give the statistics."""
LIVE_SAMPLE = 256
"""Largest number of images whose tokens are computed for the statistics."""
MIN_DEVIATION = 1e-4
"""Added to the deviation of a channel, which may be constant."""
CONVOLUTION_STRIDE = 32
"""Pixels between two features of a convolutional network."""


class TeacherOutput(NamedTuple):
    """Outputs for a batch of squares, on the student's grid of patches, row by row."""

    patches: Tensor
    """Tokens after the last norm, [batch, grid * grid, width]."""
    cls: Tensor
    """Feature of the image: the [CLS] token, or what the model has in its place, [batch, width]."""
    attention: Tensor
    """Attention to the patches in the last block, of [CLS] and of sampled patches: [batch, heads, 1 + rows,
    grid * grid]; empty if no term of the loss compares attention."""


class TeacherBatch(NamedTuple):
    """Input and output of a teacher."""

    squares: Tensor
    """uint8 [batch, 3, side, side]."""
    sampled: Tensor
    """Numbers of the patches whose attention is compared, int64 [batch, rows]."""
    output: TeacherOutput


class FrozenTeacher:
    """A frozen network. It is no module, so that checkpoints and optimizers do not find its weights.

    Args:
        model: Any model; for attention one whose maps can be read.
        attention: Compute attention rows; else `heads` is 0.
        cls_row: The row of the [CLS] token is compared.
        size: Side of its images in pixels; 0: as many patches as the student has.

    Raises:
        SettingError: A model without the attention that is compared, or for other images than RGB.
    """

    def __init__(self, model: LoadedModel, *, attention: bool, cls_row: bool, size: int) -> None:
        self.model, self.size = model, size
        self.network: Any = model.backbone
        if model.channel_range:
            raise SettingError(f"the teacher {model.name} takes {len(model.mean)} channels, expected RGB")
        self.fingerprint = model_fingerprint(model.backbone)
        self.vit = None
        if attention:
            remedy = "pass another --teacher, or --attention-weight 0 --rows-weight 0"
            try:
                self.vit = readable(model.backbone)
            except ValueError as error:
                raise SettingError(f"no attention of the teacher {model.name}: {error}; {remedy}") from None
            if self.vit.summary == "class-attention" or (cls_row and self.vit.summary != "cls"):
                raise SettingError(f"the last block of the teacher {model.name} has no [CLS] token: {remedy}")
        self.heads = self.vit.heads if self.vit else 0
        embedding = getattr(self.network, "patch_embed", None)
        self.stride = int(np.ravel(embedding.patch_size)[0]) if embedding else CONVOLUTION_STRIDE

    @property
    def width(self) -> int:
        """Width of its tokens."""
        return int(self.network.num_features)

    def input_size(self, grid: int) -> int:
        """Side in pixels of its images, for a student of `grid` x `grid` patches."""
        return self.size or grid * self.stride

    @torch.no_grad()
    def outputs(self, squares: Tensor, grid: int, sampled: Tensor) -> TeacherOutput:
        """Compute the outputs in the precision of the surrounding autocast; tokens and attention are fp32.

        Args:
            squares: uint8 [batch, 3, side, side], on the teacher's device.
            grid: Side in patches of the student's grid.
            sampled: Numbers of patches on that grid, int64 [batch, rows].

        Raises:
            SettingError: A network that does not output a token for each patch.
        """
        size = self.input_size(grid)
        pixels = normalize(Crops(squares, squares[:0]), self.model.mean, self.model.std, squares.device).views
        pixels = F.interpolate(pixels, (size, size), mode="bicubic", antialias=True, align_corners=False)
        own, attention = -(-size // self.stride), pixels.new_empty(len(pixels), 0, 0, 0)
        if self.vit is None:
            tokens = self.network.forward_features(pixels)
        else:
            call = self.vit.calls(pixels, keep=1)[0]
            query, key, bias = self.vit.queries_and_keys(call)
            tokens, prefix = self.network.norm(call()), self.vit.prefix_tokens
            patches = prefix + matching_patches(sampled, grid, own)
            rows = torch.cat([torch.zeros_like(sampled[:, :1]), patches], dim=1)
            attention = log_attention(query, key, rows, prefix, bias).exp()
        cls = self.network.forward_head(tokens, pre_logits=True).float()
        maps = self._patch_tokens(tokens, own).float().mT  # [batch, width, own * own]
        if own != grid:
            maps = resample_maps(maps, own, grid)
            if self.vit is not None:
                of_rows = resample_maps(attention.flatten(1, 2), own, grid)
                attention = renormalize(of_rows.unflatten(1, attention.shape[1:3]))
        return TeacherOutput(maps.mT, cls, attention)

    def _patch_tokens(self, features: Tensor, grid: int) -> Tensor:
        """Last tokens of a ViT [batch, tokens, width], or a feature map [batch, width, rows, columns]."""
        if features.ndim == 4:
            features = features.flatten(2).mT
        if features.ndim != 3 or features.shape[1] < grid * grid or features.shape[2] != self.width:
            raise SettingError(
                f"the teacher {self.model.name} outputs features of shape {list(features.shape)}, expected "
                f"a token for each of {grid} x {grid} patches: choose another --teacher"
            )
        return features[:, -grid * grid :]


def matching_patches(numbers: Tensor, grid: int, other: int) -> Tensor:
    """Numbers of the patches of another grid that hold the centers of these patches of a grid."""
    if grid == other:
        return numbers
    row, column = ((2 * place + 1) * other // (2 * grid) for place in (numbers // grid, numbers % grid))
    return row * other + column


def resample_maps(maps: Tensor, grid: int, other: int) -> Tensor:
    """Resample maps [batch, C, grid * grid] bilinearly, antialiased: [batch, C, other * other]."""
    square = maps.unflatten(-1, (grid, grid))
    return F.interpolate(square, (other, other), mode="bilinear", antialias=True).flatten(2)


@dataclass(frozen=True)
class Squares:
    """Centered squares of images, with sampled patches."""

    images: Images
    side: int
    """Side of a square in pixels."""
    grid: int
    """Side of a square in patches of the student."""
    rows: int
    """Number of sampled patches, at most all of them."""

    def read(self, numbers: Sequence[int]) -> tuple[Tensor, list[str]]:
        """Read squares uint8 [images, 3, side, side]; an unreadable image is replaced by the next one.

        Returns:
            The squares, and messages about unreadable images.
        """
        framing = Framing(self.side, (0.0,) * 3, (1.0,) * 3)

        def square(number: int) -> Tensor:
            return framing.crop(self.images.read(number))

        found = [read_or_next(self.images, number, square) for number in numbers]
        return torch.stack([pixels for pixels, _, _ in found]), [
            text for *_, texts in found for text in texts
        ]

    def sample(self, numbers: Sequence[int]) -> Tensor:
        """Sample patches of images, int64 [images, rows]; they depend on the number of the image only."""
        generators = (torch.Generator().manual_seed(mix(0, number)) for number in numbers)
        orders = [torch.randperm(self.grid**2, generator=generator) for generator in generators]
        return torch.stack(orders)[:, : self.rows]


class TeacherCache:
    """Outputs of a teacher for the squares of all images: one file, whose numbers are float16.

    Args:
        folder: Folder of the file, created if missing.
        squares: Input of the teacher.
        teacher: Computes what is missing.
        precision: Of the teacher.
    """

    def __init__(
        self, folder: Path, squares: Squares, teacher: FrozenTeacher, precision: ComputePrecision
    ) -> None:
        self.squares, self.teacher, self.precision = squares, teacher, precision
        rows, patches = (1 + squares.rows, squares.grid**2) if teacher.heads else (0, 0)
        self.row = np.dtype(
            [
                ("squares", np.uint8, (3, squares.side, squares.side)),
                ("sampled", np.int16, (squares.rows,)),
                ("patches", np.float16, (squares.grid**2, teacher.width)),
                ("cls", np.float16, (teacher.width,)),
                ("attention", np.float16, (teacher.heads, rows, patches)),
            ]
        )
        key = {
            "content": f"teacher outputs, {squares.rows} rows, {teacher.heads} heads",
            "teacher": teacher.fingerprint,
            "images": squares.images.inventory(),
            "squares": f"{squares.side} pixels, {squares.grid} patches",
            "input": f"{teacher.input_size(squares.grid)} pixels",
            "precision": precision,
        }
        self.file = CachedRows(folder, key, len(squares.images))
        self.table: np.ndarray | None = None

    def make(self, device: torch.device, report: Callable[[str], object]) -> None:
        """Compute the rows that are missing; an interruption keeps those that are done."""
        if self.table is not None:
            return
        with closing(self.file) as file:
            start, broken = file.open(), set[str]()
            if start < file.count:
                size = f"{self.row.itemsize * file.count / 1e9:.2f} GB in {file.path}"
                done = f", {start:,} of them done before" if start else ""
                report(f"teacher outputs for {pluralize(file.count, 'image')}{done}: {size}")
            for first in range(start, file.count, IMAGES_AT_ONCE):
                numbers = range(first, min(first + IMAGES_AT_ONCE, file.count))
                squares, messages = self.squares.read(numbers)
                for message in dict.fromkeys(messages):
                    if message not in broken:
                        report(f"replaced an image by the next: {message}")
                broken.update(messages)
                rows, sampled = np.empty(len(squares), self.row), self.squares.sample(numbers)
                rows["squares"], rows["sampled"] = squares.numpy(), sampled.numpy()
                with autocast(self.precision, device):
                    output = self.teacher.outputs(squares.to(device), self.squares.grid, sampled.to(device))
                for name, values in output._asdict().items():
                    rows[name] = values.cpu().numpy()
                file.create((), self.row)
                file.write(first, rows)
                file.mark(numbers.stop)
                if numbers.stop // REPORT_EVERY > first // REPORT_EVERY:
                    report(f"teacher outputs of {numbers.stop:,} images")
        self.table = self.file.read()

    def lookup(self, numbers: Tensor, device: torch.device) -> TeacherBatch:
        """Return the rows of images, int64 [batch], on a device, which is not waited for."""
        assert self.table is not None, "make the cache first"
        rows = self.table[numbers.numpy()]
        columns = (torch.from_numpy(np.ascontiguousarray(rows[name])) for name in self.row.names or ())
        squares, sampled, *outputs = (copy_to_device(column, device) for column in columns)
        return TeacherBatch(squares, sampled.long(), TeacherOutput(*outputs))

    def sample(self) -> Iterator[TeacherOutput]:
        """Yield outputs of at most `CACHED_SAMPLE` images, taken evenly."""
        numbers = torch.arange(0, self.file.count, -(-self.file.count // CACHED_SAMPLE))
        for part in numbers.split(IMAGES_AT_ONCE):
            yield self.lookup(part, torch.device("cpu")).output


def live_sample(
    teacher: FrozenTeacher, squares: Squares, device: torch.device, precision: ComputePrecision
) -> Iterator[TeacherOutput]:
    """Compute and yield outputs of at most `LIVE_SAMPLE` images, taken evenly."""
    numbers = range(0, len(squares.images), -(-len(squares.images) // LIVE_SAMPLE))
    for first in range(0, len(numbers), IMAGES_AT_ONCE):
        part = numbers[first : first + IMAGES_AT_ONCE]
        pixels, _ = squares.read(part)
        with autocast(precision, device):
            yield teacher.outputs(pixels.to(device), squares.grid, squares.sample(part).to(device))


def token_statistics(outputs: Iterable[TeacherOutput]) -> dict[str, Tensor]:
    """Compute mean and deviation of each channel of patch and [CLS] tokens, [width]."""
    sums: dict[str, Tensor] = {}
    for output in outputs:
        for name, tokens in (("patch", output.patches), ("cls", output.cls)):
            rows = tokens.flatten(0, -2).cpu().double()
            moments = torch.stack([torch.ones_like(rows), rows, rows.square()]).sum(1)
            sums[name] = sums.get(name, 0) + moments
    statistics: dict[str, Tensor] = {}
    for name, (count, total, squares) in sums.items():
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0)
        statistics |= {f"{name}_mean": mean, f"{name}_deviation": variance.sqrt() + MIN_DEVIATION}
    return statistics


def encode_text(text: str) -> Tensor:
    """Store a text in a tensor, uint8 [bytes], for a checkpoint."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).clone()


def decode_text(stored: Tensor) -> str:
    """Return the text of `encode_text`."""
    return bytes(stored.cpu().numpy()).decode()
