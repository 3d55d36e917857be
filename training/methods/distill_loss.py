"""Views, targets and losses of distillation: pure functions, without waiting for a device.

A teacher gets a square image. Its outputs form a grid of patches. The student gets a view of the square: a
box, resized to a number of patches, and in half of the steps mirrored. The target is the same box of the
teacher's grid.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.augmentation.crops import resized_crops
from training.augmentation.photometry import weighted_mean
from training.augmentation.randomness import copy_to_device, mix

SMALLEST_BOX = 0.4
"""Smallest side of a free box, as a share of the square."""
SMALLEST_ENLARGED_BOX = 0.6
"""Smallest side of a free box that is resized to more patches than the square has."""
COLOR_NUMBERS = 4
"""Uniform random numbers for the colors of a view."""


@dataclass(frozen=True)
class StudentView:
    """A box of the teacher's square, which all images of a step share."""

    cells: int
    """Side in patches of the student."""
    top: float
    left: float
    side: float
    """Corner and side of the box as shares of the square."""
    mirrored: bool
    aligned: bool
    """True if the box consists of whole patches of the square's grid and is not resized."""

    def crop(self, squares: Tensor, patch: int) -> Tensor:
        """Cut the view out of squares uint8 [batch, C, side, side].

        Args:
            squares: Of the teacher.
            patch: Side of the student's patches in pixels.

        Returns:
            uint8 [batch, C, cells * patch, cells * patch].
        """
        size = self.cells * patch
        if self.aligned:
            top, left = (round(start * squares.shape[-1]) for start in (self.top, self.left))
            crops = squares[..., top : top + size, left : left + size]
        else:
            box = torch.tensor([self.left, self.top, self.left + self.side, self.top + self.side])
            boxes = copy_to_device(box.repeat(len(squares), 1), squares.device)
            crops = resized_crops(squares.float(), boxes, (1,), (size,))[0][0]
        return crops.flip(-1) if self.mirrored else crops

    def cut(self, maps: Tensor) -> Tensor:
        """Cut the view out of maps [batch, C, grid, grid]: [batch, C, cells, cells].

        The maps are interpolated bilinearly unless the view is aligned.
        """
        if self.aligned:
            top, left = (round(start * maps.shape[-1]) for start in (self.top, self.left))
            maps = maps[..., top : top + self.cells, left : left + self.cells]
        else:
            centers = (torch.arange(self.cells, device=maps.device) + 0.5) / self.cells * self.side
            y, x = torch.meshgrid(self.top + centers, self.left + centers, indexing="ij")
            places = (2 * torch.stack([x, y], dim=-1) - 1).expand(len(maps), -1, -1, -1)
            maps = F.grid_sample(maps, places, padding_mode="border", align_corners=False)
        return maps.flip(-1) if self.mirrored else maps

    def places(self, numbers: Tensor, grid: int) -> tuple[Tensor, Tensor]:
        """Find patches of the square's grid in an aligned view.

        Args:
            numbers: Of patches, row by row, int64 of any shape.
            grid: Side of the square in patches.

        Returns:
            Numbers of the patches in the view, and whether they are inside. Outside, the number is any valid
            one.
        """
        row, column = numbers // grid - round(self.top * grid), numbers % grid - round(self.left * grid)
        inside = (row >= 0) & (row < self.cells) & (column >= 0) & (column < self.cells)
        column = self.cells - 1 - column if self.mirrored else column
        return (row * self.cells + column).clamp(0, self.cells**2 - 1), inside


def draw_view(seed: int, step: int, grid: int, scales: Sequence[float], aligned: float) -> StudentView:
    """Draw the view of a step; it depends on the seed and the step only.

    Args:
        seed, step: Of the training.
        grid: Side of the square in patches of the student.
        scales: Sides of the views relative to the grid, of which one is drawn.
        aligned: Share of views that consist of whole patches.
    """
    draw = random.Random(mix(seed, step)).random
    cells = max(1, round(scales[int(draw() * len(scales))] * grid))
    mirrored, is_aligned, free, down, across = draw() < 0.5, draw() < aligned, draw(), draw(), draw()
    if is_aligned:
        cells = min(cells, grid)
        top, left = (int(number * (grid - cells + 1)) / grid for number in (down, across))
        return StudentView(cells, top, left, cells / grid, mirrored, aligned=True)
    smallest = SMALLEST_ENLARGED_BOX if cells > grid else SMALLEST_BOX
    side = smallest + (1 - smallest) * free
    return StudentView(cells, down * (1 - side), across * (1 - side), side, mirrored, aligned=False)


def jitter_colors(pixels: Tensor, numbers: Tensor, jitter: float, gray: float) -> Tensor:
    """Change brightness, contrast and saturation of views, and make some of them gray.

    Args:
        pixels: [batch, 3, height, width], 0 to 255.
        numbers: Uniform random numbers in [0, 1), [batch, COLOR_NUMBERS], on the same device.
        jitter: Factors of brightness and contrast are 1 - jitter to 1 + jitter. The factor of saturation is
            1 - 2 * jitter to 1 + 2 * jitter.
        gray: Probability of gray.
    """
    shifts = (2 * numbers[:, :, None, None, None] - 1) * jitter
    pixels = pixels * (1 + shifts[:, 0])
    pixels = torch.lerp(weighted_mean(pixels).mean((1, 2, 3), keepdim=True), pixels, 1 + shifts[:, 1])
    pixels = torch.lerp(weighted_mean(pixels), pixels, 1 + 2 * shifts[:, 2]).clamp(0, 255)
    return torch.where(numbers[:, 3].view(-1, 1, 1, 1) < gray, weighted_mean(pixels), pixels)


def standardize(tokens: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Subtract the mean and divide by the deviation of each channel, in fp32."""
    return (tokens.float() - mean) / deviation


def spread_over_similar(maps: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Let each patch pass its attention on to all patches, in shares softmax(cosine / temperature).

    Args:
        maps: Attention over the patches, [batch, heads, patches].
        tokens: Of the same patches, [batch, patches, width].
        temperature: Above 0.

    Returns:
        Maps with the same sums, [batch, heads, patches].

    Source: this project.
    """
    tokens = F.normalize(tokens.float(), dim=-1)
    shares = (tokens @ tokens.mT / temperature).softmax(dim=-1)  # [batch, from, to]
    return maps @ shares


def log_attention(
    query: Tensor, key: Tensor, tokens: Tensor, prefix: int, bias: Tensor | None = None
) -> Tensor:
    """Compute the logarithm of the attention of chosen tokens to the patches only, in fp32.

    Args:
        query, key: [batch, heads, tokens, d].
        tokens: Chosen tokens of every image, int64 [batch, rows].
        prefix: Number of tokens before the patches, which the softmax leaves out.
        bias: Added to the scores, [1 or batch, 1 or heads, tokens, tokens].

    Returns:
        [batch, heads, rows, patches].
    """
    index = tokens[:, None, :, None]
    with torch.autocast(query.device.type, enabled=False):
        chosen = query.take_along_dim(index, dim=2).float() / math.sqrt(query.shape[-1])
        scores = chosen @ key[:, :, prefix:].float().mT
        if bias is not None:
            of_images = bias.float().expand(len(query), -1, -1, -1)
            scores = scores + of_images.take_along_dim(index, dim=2)[..., prefix:]
        return scores.log_softmax(dim=-1)


def renormalize(attention: Tensor) -> Tensor:
    """Scale attention [..., patches] to a sum of 1."""
    return attention / attention.sum(-1, keepdim=True).clamp(min=1e-6)


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the mean of 1 - cosine over all vectors [..., width], in fp32."""
    return 1 - F.cosine_similarity(student.float(), teacher.float(), dim=-1).mean()


def attention_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the divergence KL(teacher || student) of attention rows.

    Heads are compared one by one. If the numbers of heads differ, their means are compared.

    Args:
        student: Logarithms, [batch, heads, rows, patches].
        teacher: Probabilities, [batch, heads of the teacher, rows, patches].

    Returns:
        Mean over the heads, [batch, rows].
    """
    if student.shape[1] != teacher.shape[1]:
        student = student.logsumexp(1, keepdim=True) - math.log(student.shape[1])
        teacher = teacher.mean(1, keepdim=True)
    return F.kl_div(student, teacher, reduction="none").sum(-1).mean(1)
