"""Distillation of a frozen vision transformer into a smaller one, without labels.

A step on a batch of square images::

    target  = tokens and attention of teacher(square)     without gradient, or from a cache
    view    = a box of the square, mirrored or not
    loss    = weighted sum of the terms below, of student(view) and the same box of the target
    student <- optimizer step (training/train.py)
    average <- m * average + (1 - m) * student

The terms are 1 - cosine of patch tokens and of [CLS] tokens, and the KL divergence of the attention of [CLS]
and of sampled patches in the last block. Heads map the student's tokens to the teacher's, which are
standardized: minus the mean and divided by the deviation of each channel over the images. Attention is over
the patches of the view. The average is the network that is evaluated and exported.

Sources: cosine of tokens, AM-RADIO (arXiv:2312.06709); standardization, PHI-S (2410.01680); attention of
[CLS], AttnDistill (2210.00944); attention of patches, MiniLM (2002.10957). The views are this project's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dino_model.models.backbones import choose_training_attention, create_backbone
from dino_model.models.load import load_model
from dino_model.models.run_folder import CONFIG
from dino_model.runtime.errors import SettingError
from training.augmentation.crops import Crops, normalize
from training.augmentation.photometry import constant
from training.augmentation.randomness import Randomness, copy_to_device
from training.methods import distill_loss
from training.methods.config import MethodContext
from training.methods.distill_config import DistillConfig
from training.methods.distill_loss import StudentView
from training.methods.distill_teacher import (
    FrozenTeacher,
    Squares,
    TeacherBatch,
    TeacherCache,
    decode_text,
    encode_text,
    live_sample,
    token_statistics,
)
from training.methods.method import Batch, Loss, Method
from training.methods.network import replace_drop_path
from training.optim import move_average

MIN_CLS_SIDE = 0.6
"""Smallest side of a view, as a share of the square, whose [CLS] token is compared with the square's."""


Terms = dict[str, tuple[float, Tensor, bool]]
"""Weight, value, and whether the view of the step has the term, by name."""


class Student(nn.Module):
    """A ViT with a linear head for patch tokens and an MLP of two layers for the [CLS] token.

    Args:
        backbone: Of this package, with [CLS] as its only prefix token.
        config: A term of weight 0 has no head.
        width: Width of the teacher's tokens.
    """

    backbone: Any

    def __init__(self, backbone: nn.Module, config: DistillConfig, width: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.drop_paths = replace_drop_path(backbone)
        own: int = self.backbone.embed_dim
        mlp = nn.Sequential(nn.Linear(own, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.patch_head = nn.Linear(own, width) if config.patch_weight else None
        self.cls_head = mlp if config.cls_weight else None
        self.last_attention: Any = self.backbone.blocks[-1].attn
        self.qkv = torch.empty(0)  # of the last forward pass
        self.last_attention.qkv.register_forward_hook(lambda *call: setattr(self, "qkv", call[-1]))

    def forward(self, pixels: Tensor, randomness: Randomness) -> tuple[Tensor, Tensor, Tensor]:
        """Compute tokens [batch, tokens, width], and queries and keys of the last block.

        Returns:
            Tokens after the last norm, [CLS] first; queries and keys [batch, heads, tokens, d].
        """
        if self.drop_paths:
            numbers = copy_to_device(randomness.uniform("depth", len(self.drop_paths)), pixels.device)
            for layer, of_layer in zip(self.drop_paths, numbers, strict=True):
                layer.factors = layer.scale(of_layer)
        tokens: Tensor = self.backbone.forward_features(pixels)
        qkv, self.qkv = self.qkv, torch.empty(0)
        query, key, _ = qkv.unflatten(-1, (3, self.last_attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return tokens, query, key


class Distill(Method):
    """The student learns to compute a frozen teacher's tokens and attention from views of its image."""

    networks = ("average", "student")
    source: Tensor
    """Fingerprint of the teacher and name of the cache, as bytes."""
    patch_mean: Tensor
    patch_deviation: Tensor
    cls_mean: Tensor
    cls_deviation: Tensor
    """Statistics of the teacher's tokens, [width]; all 0 until they are computed."""

    def __init__(
        self,
        student: Student,
        average: nn.Module,
        teacher: FrozenTeacher,
        config: DistillConfig,
        context: MethodContext,
    ) -> None:
        """`average` has a backbone of the student's architecture."""
        super().__init__()
        self.student, self.average, self.teacher = student, average, teacher
        self.config, self.context, self.patch = config, context, context.backbone.patch_size
        self.average.backbone.load_state_dict(student.backbone.state_dict())  # type: ignore[union-attr]
        self.average.requires_grad_(False)
        for name in ("patch_mean", "patch_deviation", "cls_mean", "cls_deviation"):
            self.register_buffer(name, torch.zeros(teacher.width))
        self.cache: TeacherCache | None = None
        if config.teacher_cache:
            folder = Path(config.teacher_cache)
            self.cache = TeacherCache(folder, self.training_squares(), teacher, context.precision)
        source = self.cache.file.path.name if self.cache else "live"
        self.register_buffer("source", encode_text(f"{teacher.fingerprint} {source}"))

    @classmethod
    def from_config(cls, config: DistillConfig, context: MethodContext) -> "Distill":
        """Build the student with random weights, and load the teacher onto the device."""
        if context.backbone.architecture == "resnet50":
            raise SettingError("the student of distill is a ViT: pass --architecture vit_tiny")
        backbone = create_backbone(context.backbone)
        average = nn.ModuleDict({"backbone": create_backbone(replace(context.backbone, drop_path=0.0))})
        teacher = FrozenTeacher(
            load_model(config.teacher, heads=config.teacher_heads, named_by=Path(CONFIG)),
            attention=config.compares_attention,
            cls_row=config.attention_weight > 0,
            size=config.teacher_size,
        )
        device = torch.device(context.device)
        choose_training_attention(teacher.network.to(device), device, context.precision)
        return cls(Student(backbone, config, teacher.width), average, teacher, config, context)

    def training_squares(self) -> Squares:
        """Return the centered squares of the training images."""
        if self.context.images is None:
            raise SettingError("distill needs the training images for statistics of the teacher's tokens")
        grid = self.context.size // self.patch
        rows = min(self.config.sampled_rows, grid * grid)
        return Squares(self.context.images, self.context.size, grid, rows)

    def prepare(self, report: Callable[[str], object]) -> None:
        """Complete the cache, and compute the statistics unless a checkpoint has them."""
        device = torch.device(self.context.device)
        if self.cache:
            self.cache.make(device, report)
        if not self.patch_deviation.any():
            parts = (
                self.cache.sample()
                if self.cache
                else live_sample(self.teacher, self.training_squares(), device, self.context.precision)
            )
            for name, values in token_statistics(parts).items():
                getattr(self, name).copy_(values)

    def forward(self, batch: Batch, step: int) -> Loss:
        """Compute the weighted sum of the terms and log them; NaN for a term that the view leaves out."""
        config, seed, grid = self.config, batch.randomness.seed, batch.crops.views.shape[-1] // self.patch
        view = distill_loss.draw_view(seed, step, grid, config.view_scales, config.aligned)
        batch = batch.every(max(1, round((view.cells / grid) ** 2)))
        inputs = self.teacher_batch(batch)
        with torch.autocast(inputs.squares.device.type, enabled=False):  # pixels need 8 bits and more
            pixels = self.student_pixels(view.crop(inputs.squares, self.patch), batch.randomness)
        tokens, query, key = self.student(pixels, batch.randomness)
        terms = self.token_terms(view, inputs, tokens) | self.attention_terms(view, inputs, query, key)
        loss = torch.zeros((), device=pixels.device)
        logs: dict[str, Tensor] = {}
        for name, (weight, value, counts) in terms.items():  # the graph is the same in all steps, for ranks
            loss = loss + weight * counts * value
            logs[name] = value.detach() if counts else torch.full_like(loss, torch.nan)
        logs["view_patches"] = torch.full_like(loss, view.cells)
        return Loss(loss, logs, {})

    def token_terms(self, view: StudentView, inputs: TeacherBatch, tokens: Tensor) -> Terms:
        """Compare the student's tokens [batch, 1 + patches, width] with the teacher's."""
        config, terms = self.config, Terms()
        if self.student.patch_head is not None:
            targets = distill_loss.standardize(inputs.output.patches, self.patch_mean, self.patch_deviation)
            side = inputs.squares.shape[-1] // self.patch
            targets = view.cut(targets.mT.unflatten(2, (side, side))).flatten(2).mT
            distance = distill_loss.cosine_distance(self.student.patch_head(tokens[:, 1:]), targets)
            terms["patch_loss"] = (config.patch_weight, distance, True)
        if self.student.cls_head is not None:
            targets = distill_loss.standardize(inputs.output.cls, self.cls_mean, self.cls_deviation)
            distance = distill_loss.cosine_distance(self.student.cls_head(tokens[:, 0]), targets)
            terms["cls_loss"] = (config.cls_weight, distance, view.side > MIN_CLS_SIDE)
        return terms

    def attention_terms(self, view: StudentView, inputs: TeacherBatch, query: Tensor, key: Tensor) -> Terms:
        """Compare the student's attention with the teacher's, which is restricted to the view."""
        config, side = self.config, inputs.squares.shape[-1] // self.patch
        if not config.compares_attention:
            return {}
        maps = inputs.output.attention.float().unflatten(3, (side, side))  # [batch, heads, 1 + rows, ...]
        if config.attention_spread:
            spread = distill_loss.spread_over_similar(
                maps[:, :, 0].flatten(2), inputs.output.patches, config.attention_spread
            )
            maps = torch.cat([spread.unflatten(2, (side, side)).unsqueeze(2), maps[:, :, 1:]], dim=2)
        targets = view.cut(maps.flatten(1, 2)).unflatten(1, maps.shape[1:3]).flatten(3)
        places, inside = view.places(inputs.sampled, side)
        rows = torch.cat([torch.zeros_like(places[:, :1]), 1 + places], dim=1)  # [CLS] is token 0
        student = distill_loss.log_attention(query, key, rows, prefix=1)
        divergence = distill_loss.attention_divergence(student, distill_loss.renormalize(targets))
        terms = Terms()
        if config.attention_weight:
            terms["attention_loss"] = (config.attention_weight, divergence[:, 0].mean(), True)
        if config.rows_weight:  # of every image the mean over the sampled patches inside the view
            of_images = (divergence[:, 1:] * inside).sum(1) / inside.sum(1).clamp(min=1)
            terms["rows_loss"] = (config.rows_weight, of_images.mean(), view.aligned)
        return terms

    def teacher_batch(self, batch: Batch) -> TeacherBatch:
        """Return the teacher's input and output: of the cache, or computed for the first crop."""
        crops = batch.crops.views[0]
        if self.cache:
            assert batch.indices is not None
            return self.cache.lookup(batch.indices, crops.device)
        std, mean = (
            constant(tuple(v), crops.device).view(3, 1, 1) for v in (self.context.std, self.context.mean)
        )
        squares = ((crops * std + mean) * 255).round().clamp(0, 255).byte()
        grid = squares.shape[-1] // self.patch
        order = batch.randomness.uniform("rows", grid * grid).T.argsort(dim=-1)
        sampled = copy_to_device(order[:, : self.config.sampled_rows].contiguous(), crops.device)
        return TeacherBatch(squares, sampled, self.teacher.outputs(squares, grid, sampled))

    def student_pixels(self, views: Tensor, randomness: Randomness) -> Tensor:
        """Change the colors of views uint8 [batch, 3, side, side] and normalize them."""
        numbers = copy_to_device(randomness.uniform("colors", distill_loss.COLOR_NUMBERS), views.device).T
        changed = distill_loss.jitter_colors(views.float(), numbers, self.config.jitter, self.config.gray)
        return normalize(Crops(changed, changed[:0]), self.context.mean, self.context.std, views.device).views

    def after_step(self, step: int, carry: Sequence[Mapping[str, Tensor]]) -> None:
        """Update the average; in the first steps it follows the student faster."""
        momentum = min(self.config.average, (1 + step) / (10 + step))
        move_average(list(self.average.parameters()), list(self.student.backbone.parameters()), momentum)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Refuse the state of another teacher or cache."""
        before = decode_text(state.get(f"{prefix}source", self.source))
        if before != (now := decode_text(self.source)):
            rest[-1].append(f"its teacher and cache are {before}; --teacher and --teacher-cache name {now}")
        else:
            super()._load_from_state_dict(state, prefix, *rest)
