"""The DINO step of this project, and the plain one that the benchmarks compare it with."""

import torch
import torch.nn.functional as F
from timm.layers import DropPath
from timm.models.vision_transformer import Attention
from torch import Tensor, nn
from torch.amp import GradScaler

from benchmarks import data
from dino_model.runtime.device import ComputePrecision, autocast
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.config import MethodContext
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.methods.head import ProjectionHead, Prototypes
from training.methods.method import Batch
from training.methods.network import Network, StochasticDepth
from training.recipes.recipe import Plan, Recipe
from training.run.logging import StepMetrics
from training.session import Session
from training.train import train_step

CPU = torch.device("cpu")
STEPS = 1000
"""Length of the training that the steps belong to."""
Figures = dict[str, float]


class OurStep:
    """The step of `python -m training pretrain`; `options` are those of `Session`."""

    def __init__(
        self, recipe: Recipe, precision: ComputePrecision, device: torch.device = CPU, **options: bool
    ) -> None:
        images = data.images(STEPS * recipe.batch_size)
        self.session = Session(recipe, images, device=device, precision=precision, **options)
        self.steps = 0

    def begin(self, crops: Crops) -> StepMetrics:
        """Train on normalized crops, see `update`."""
        return self.update(Batch(crops, None, Randomness(0, self.steps, 0, crops.views.shape[1])))

    def update(self, batch: Batch) -> StepMetrics:
        """Update student, teacher and center; a GPU may still be computing when this returns."""
        session = self.session
        context = autocast(session.precision, session.device)
        options = self.steps, session.plan, context, 1, None, session.scaler, session.graph
        self.steps += 1
        return train_step(session.method, session.optimizer, batch, *options)

    def __call__(self, crops: Crops) -> Figures:
        """Update and return the metrics of the batch."""
        return self.begin(crops).read()


class PlainStep:
    """Algorithm 1 as it is written: crop by crop, attention written out, a loss for every pair of views.

    Args:
        recipe: Model, crops and method.
        precision: Arithmetic of the products.
        device: Device of the step.
        grouped: Pass crops of one size together through the backbone, and all through the head, as the
            official code does.
        fused: Use timm's fused attention instead of the written-out one.
    """

    def __init__(
        self,
        recipe: Recipe,
        precision: ComputePrecision = "fp32",
        device: torch.device = CPU,
        *,
        grouped: bool = False,
        fused: bool = False,
    ) -> None:
        self.recipe, self.precision, self.device, self.grouped = recipe, precision, device, grouped
        self.scaler = GradScaler(device.type, enabled=precision == "fp16")
        self.plan = Plan.of(recipe, STEPS * recipe.batch_size)
        torch.manual_seed(0)
        method = recipe.method.build(MethodContext(recipe.backbone, self.plan.method)).to(device)
        assert isinstance(method, DINO)
        for module in method.modules():
            if isinstance(module, Attention):
                module.fused_attn = fused
        for module in list(method.student.backbone.modules()):  # timm's layer draws its own numbers
            for name, layer in module.named_children():
                if isinstance(layer, StochasticDepth):
                    setattr(module, name, DropPath(layer.drop_prob))
        self.config, self.student, self.teacher = method.config, method.student, method.teacher
        self.center = torch.zeros(1, method.config.head.prototypes, device=device)
        self.momentum = method.schedules.teacher_momentum
        trained = [(name, p) for name, p in self.student.named_parameters() if p.requires_grad]
        plain = {name for name, p in trained if p.ndim == 1 or name.endswith(".bias")}
        groups = [[p for name, p in trained if (name in plain) is kind] for kind in (False, True)]
        self.optimizer = torch.optim.AdamW([{"params": group} for group in groups])
        self.steps = 0

    def __call__(self, crops: Crops) -> Figures:
        """Update student, teacher and center; return the loss of the batch."""
        with autocast(self.precision, self.device):
            with torch.no_grad():
                teacher_logits = self.logits(self.teacher, crops.views)
            student_logits = self.logits(self.student, *crops)
            loss = plain_loss(student_logits, teacher_logits, self.center, self.config)
        self.center = 0.9 * self.center + 0.1 * torch.cat(teacher_logits).float().mean(dim=0, keepdim=True)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        for parameter in self.student.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(min(1.0, self.plan.clip_grad / (parameter.grad.norm().item() + 1e-6)))
        decayed, plain = self.optimizer.param_groups
        decayed["lr"] = plain["lr"] = float(self.plan.lr[self.steps])
        decayed["weight_decay"], plain["weight_decay"] = float(self.plan.weight_decay[self.steps]), 0.0
        self.scaler.step(self.optimizer)
        self.scaler.update()
        momentum = float(self.momentum[self.steps])
        with torch.no_grad():
            for teacher, student in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                teacher.mul_(momentum).add_((1 - momentum) * student)
        self.steps += 1
        return {"loss": loss.item()}

    def logits(self, network: Network, *groups: Tensor) -> list[Tensor]:
        """Compute the logits [batch, K] of every crop."""
        if not self.grouped:
            return [plain_head(network.head, network.backbone(crop)) for group in groups for crop in group]
        features = torch.cat([network.backbone(group.flatten(0, 1)) for group in groups])
        return list(plain_head(network.head, features).split(self.recipe.batch_size))


def plain_head(head: nn.Module, features: Tensor) -> Tensor:
    """Compute logits [n, K] of features [n, width]: MLP, l2 normalization, prototypes."""
    assert isinstance(head, ProjectionHead)
    assert isinstance(head.last_layer, Prototypes)
    return F.linear(F.normalize(head.mlp(features).float(), dim=-1), head.last_layer.weight())


def plain_loss(
    student_logits: list[Tensor], teacher_logits: list[Tensor], center: Tensor, config: DINOConfig
) -> Tensor:
    """Average the cross-entropy of every teacher view with every other crop, in fp32; logits [batch, K]."""
    pairs = []
    for view, logits in enumerate(teacher_logits):
        target = F.softmax((logits.float() - center) / config.teacher_temperature, dim=-1)
        for crop, student in enumerate(student_logits):
            if crop != view:
                log_probability = F.log_softmax(student.float() / config.student_temperature, dim=-1)
                pairs.append(-(target * log_probability).sum(dim=-1).mean())
    return torch.stack(pairs).mean()
