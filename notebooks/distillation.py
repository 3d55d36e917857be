"""Textures, network and training loop of lessons 3 to 6 and E: DINO in plain PyTorch, for a laptop."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from dino_model.data.textures import CLASSES, texture
from dino_model.models.load import load_model
from notebooks.solutions import dino_loss, ema, entropy_and_kl, sharpen

PROTOTYPES = 256
CROP_SIZE = 24
STUDENT_TEMPERATURE = 0.1
TEACHER_TEMPERATURE = 0.03
CENTER_MOMENTUM = 0.9


def textures(seed: int, per_class: int) -> tuple[Tensor, Tensor]:
    """Draw gray textures, float32 [images, 1, 48, 48] from 0 to 1, and their labels [images]."""
    images = [
        texture(name, np.random.default_rng([seed, label, number]))
        for label, name in enumerate(CLASSES)
        for number in range(per_class)
    ]
    return torch.from_numpy(np.stack(images))[:, None] / 255, torch.arange(len(CLASSES)).repeat_interleave(
        per_class
    )


def normalized(images: Tensor) -> Tensor:
    """Bring gray images from 0 to 1 to about zero mean and unit variance."""
    return (images - 0.5) / 0.25


class Network(nn.Module):
    """Small ViT (4 blocks of width 96, 36 patches) with a projection head of 256 prototypes."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.backbone = VisionTransformer(
            img_size=CROP_SIZE,
            patch_size=4,
            in_chans=1,
            embed_dim=96,
            depth=depth,
            num_heads=3,
            num_classes=0,
        )
        layers: list[nn.Module] = []
        for width in (96, 256):
            layers += [nn.Linear(width, 256), nn.BatchNorm1d(256), nn.GELU()]
        self.mlp = nn.Sequential(*layers, nn.Linear(256, 64))
        self.prototypes = nn.Parameter(torch.randn(PROTOTYPES, 64))

    def embed(self, crops: Tensor) -> Tensor:
        """Compute the output of the bottleneck for crops [crops, 1, 24, 24]: unit vectors [crops, 64]."""
        return F.normalize(self.mlp(self.backbone(crops)), dim=-1)

    def forward(self, crops: Tensor) -> Tensor:
        """Compute the cosine of each crop [crops, 1, 24, 24] with each prototype: [crops, 256]."""
        return self.embed(crops) @ F.normalize(self.prototypes, dim=-1).T


def random_crops(images: Tensor) -> Tensor:
    """Crop a random part of each image, flip it, and change brightness and contrast: [images, 1, 24, 24]."""
    count = len(images)
    scale = torch.rand(count).mul(0.75).add(0.25).sqrt()  # crops cover 25 % to 100 % of the area
    transform = torch.zeros(count, 2, 3)
    transform[:, 0, 0] = scale * torch.randint(0, 2, (count,)).mul(2).sub(1)
    transform[:, 1, 1] = scale
    transform[:, :, 2] = (torch.rand(count, 2) * 2 - 1) * (1 - scale)[:, None]
    grid = F.affine_grid(transform, [count, 1, CROP_SIZE, CROP_SIZE], align_corners=False)
    crops = F.grid_sample(images, grid, align_corners=False)
    return crops * (0.6 + 0.8 * torch.rand(count, 1, 1, 1)) + 0.3 * torch.randn(count, 1, 1, 1)


def tokens_and_attention(vit: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the tokens of a ViT of timm, and the attention of [CLS] over the patches in its last block.

    Args:
        vit: Backbone with [CLS] as its only token before the patches.
        images: Normalized [batch, channels, height, width].

    Returns:
        Tokens after the last norm [batch, tokens, width]; attention [batch, heads, patches], whose sum is 1.
    """
    last, read = vit.blocks[-1].attn, []
    hook = last.qkv.register_forward_hook(lambda *call: read.append(call[-1]))
    tokens = vit.forward_features(images)
    hook.remove()
    queries, keys, _ = read[0].unflatten(-1, (3, last.num_heads, -1)).permute(2, 0, 3, 1, 4)
    products = queries[:, :, :1] @ keys[:, :, 1:].mT / queries.shape[-1] ** 0.5
    return tokens, products[:, :, 0].softmax(dim=-1)


@torch.no_grad()
def features(network: Network, images: Tensor) -> Tensor:
    """Compute unit-length [CLS] features of the central 24 × 24 pixels of images: [images, 96]."""
    network.eval()
    margin = (images.shape[-1] - CROP_SIZE) // 2
    center = images[:, :, margin : margin + CROP_SIZE, margin : margin + CROP_SIZE]
    found = torch.cat([network.backbone(batch) for batch in center.split(400)])
    network.train()
    return F.normalize(found, dim=1)


@torch.no_grad()
def model_features(name: str, images: Tensor) -> NDArray[np.floating]:
    """Compute unit-length [CLS] features by a named model, of RGB images from 0 to 1: [images, width]."""
    model = load_model(name)
    mean, std = (torch.tensor(values)[:, None, None] for values in (model.mean, model.std))
    found = torch.cat([model.backbone((batch - mean) / std) for batch in images.split(50)])
    return F.normalize(found, dim=1).numpy()


def pixel_features(images: Tensor) -> Tensor:
    """Shrink images to 16 × 16 pixels, subtract the mean, and scale to unit length: [images, 256]."""
    small = F.interpolate(images, (16, 16), mode="area").flatten(1)
    return F.normalize(small - small.mean(dim=1, keepdim=True), dim=1)


def knn_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, k: int = 10
) -> float:
    """Compute the accuracy in percent of the vote of lesson 5, for unit-length features [images, width]."""
    cosines, nearest = (test @ train.T).topk(k)
    votes = torch.zeros(len(test), int(train_labels.max()) + 1)
    votes.scatter_add_(1, train_labels[nearest], (cosines / 0.07).exp())
    return 100 * float((votes.argmax(dim=1) == test_labels).float().mean())


@dataclass(frozen=True)
class Variant:
    """Settings of a run of `train`."""

    centering: bool = True
    sharpening: bool = True
    """False: the teacher has the student's temperature."""
    momentum: float = 0.98
    """Momentum of the teacher; 0 makes it a copy of the student."""


def train(
    images: Tensor,
    variant: Variant,
    steps: int,
    batch_size: int = 32,
) -> tuple[Network, list[dict[str, float]]]:
    """Train with the step of lesson 3 on a network of two blocks, from a fixed seed.

    Args:
        images: Normalized [images, 1, 48, 48].
        variant, steps, batch_size: Settings of the run.

    Returns:
        The teacher, and for each step the fields that `training.run.doctor` reads: `teacher_entropy`, `kl`
        and `ln_k` in nats, and `prototypes`, the number in use by the batch.
    """
    torch.manual_seed(0)
    student = Network(depth=2)
    teacher, center = copy.deepcopy(student), torch.zeros(PROTOTYPES)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    temperature = TEACHER_TEMPERATURE if variant.sharpening else STUDENT_TEMPERATURE
    log = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1, (step + 1) / 40)
        batch = images[torch.randint(len(images), (batch_size,))]
        crops = torch.cat([random_crops(batch), random_crops(batch)])
        with torch.no_grad():
            logits = teacher(crops)
        targets = sharpen(logits, center * variant.centering, temperature)
        outputs = student(crops)
        loss = dino_loss(targets.unflatten(0, (2, -1)), outputs.unflatten(0, (2, -1)), STUDENT_TEMPERATURE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        center = ema(center, logits.mean(dim=0), CENTER_MOMENTUM)
        update_teacher(teacher, student, variant.momentum)
        paired = torch.softmax(outputs.detach() / STUDENT_TEMPERATURE, dim=-1).roll(batch_size, 0)
        entropy, kl = entropy_and_kl(targets.clamp_min(1e-12), paired.clamp_min(1e-12))
        used = torch.special.entr(targets.mean(dim=0)).sum().exp()
        line = {"teacher_entropy": entropy, "kl": kl, "ln_k": math.log(PROTOTYPES), "prototypes": used}
        log.append({name: float(value) for name, value in line.items()})
    return teacher, log


@torch.no_grad()
def update_teacher(teacher: nn.Module, student: nn.Module, momentum: float, ema: Any = ema) -> None:
    """Apply `ema` to all weights, running statistics included."""
    for old, new in zip(teacher.state_dict().values(), student.state_dict().values(), strict=True):
        old.copy_(ema(old, new, momentum) if old.is_floating_point() else new)
