"""A DINO step of a ViT-Ti/16 (2 × 224 + 8 × 96, K = 65,536, batch 16) against the plain step in fp32.

python -m benchmarks.train_step [--json FILE]
python -m benchmarks.train_step --device cuda [--batch 256] [--compile] [--json FILE]
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
import tyro
from timm.models.vision_transformer import Attention
from torch import Tensor, nn
from torch.amp import GradScaler

from benchmarks.measure import Computation, measure, median_seconds, report
from dino_model.backbones import BackboneConfig, choose_training_attention
from dino_model.device import ComputePrecision, autocast, choose_precision, set_tensor_float32
from dino_model.head import HeadConfig, ProjectionHead, Prototypes
from training.blocks import compile_blocks
from training.crop_config import CropConfig
from training.crops import Crops
from training.distributed import DataParallelLoss
from training.logging import Metrics
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.methods.network import Network
from training.optim import create_optimizer
from training.randomness import Randomness
from training.recipe import OptimizerConfig, Plan, Recipe
from training.train import train_step

CPU = torch.device("cpu")
RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", patch_size=16),
    crops=CropConfig(global_size=224, local_size=96, local_crops=8),
    method=DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0),
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
"""From the first step on at the full rate and with trained prototypes: the costly kind of step."""
STEPS = 1000
AGREEMENT = 1e-5  # relative, of the second loss in fp32


@dataclass(frozen=True)
class TrainStep:
    """Forward, backward and update of student, teacher and center: `train_step` against the plain step."""

    repeats: int = 5
    """Timed turns of each side."""
    device: Literal["cpu", "cuda"] = "cpu"
    """cuda: ViT-S/16 with 2 × 224 + 10 × 96, from crops and from JPEGs, see `benchmarks.gpu`."""
    batch: int = 256
    """Images of a step, with --device cuda."""
    compile: bool = False
    """Compile the blocks, with --device cuda."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Compare the losses, measure, print."""
        if self.device == "cuda":
            from benchmarks import gpu  # imports this module

            gpu.measure_step(self.batch, self.compile, self.json)
            return
        remarks = compare()
        again, grouped = median_seconds(build("ours"), build("official"), self.repeats)
        remarks += (
            "against the official code's step, which passes crops of one size together: "
            f"ours {again:.3f} s, official {grouped:.3f} s: {grouped / again:.2f} times faster",
        )
        ways = partial(build, "ours"), partial(build, "plain")
        report(measure("train_step", *ways, repeats=self.repeats, remarks=remarks), self.json)


def compare() -> tuple[str, ...]:
    """Compare the losses after one update; describe settings and agreement.

    Raises:
        SystemExit: The losses differ in fp32.
    """
    precision = choose_precision("auto", CPU)
    plain, exact, fast = PlainStep(), OurStep("fp32"), OurStep(precision)
    crops = random_crops()
    expected, found, rough = ([step(crops) for _ in range(2)][1] for step in (plain, exact, fast))
    if abs(found - expected) > AGREEMENT * expected:
        raise SystemExit(f"the loss after one step is {found} in fp32, expected {expected}")
    config = RECIPE.crops
    return (
        f"ViT-Ti/16, 2 × {config.global_size} + {config.local_crops} × {config.local_size}, "
        f"batch {RECIPE.batch_size}; ours in {precision}, the reference in fp32, "
        f"{torch.get_num_threads()} threads",
        f"loss after one update: reference {expected:.5f}, ours {found:.5f} in fp32, "
        f"{rough:.5f} in {precision}",
    )


def random_crops(recipe: Recipe | None = None, device: torch.device = CPU) -> Crops:
    """Draw crops as the loop passes them to the method: normalized, fp32."""
    recipe = recipe or RECIPE
    generator, config, batch = torch.Generator().manual_seed(0), recipe.crops, recipe.batch_size
    views = torch.randn(2, batch, 3, config.global_size, config.global_size, generator=generator)
    shape = (config.local_crops, batch, 3, config.local_size, config.local_size)
    return Crops(views.to(device), torch.randn(shape, generator=generator).to(device))


def new_method(recipe: Recipe) -> DINO:
    """Build the method with the same random weights each time."""
    torch.manual_seed(0)
    method = recipe.method.build(recipe.backbone, make_plan(recipe).method, 0)
    assert isinstance(method, DINO)
    return method


def make_plan(recipe: Recipe) -> Plan:
    """Compute the recipe's values of every step."""
    return Plan.of(recipe, STEPS * recipe.batch_size)


def build(way: Literal["ours", "plain", "official"]) -> Computation:
    """Return our step, the plain step, or the official code's grouping of crops, ready to run."""
    ours = way == "ours"
    step = OurStep(choose_precision("auto", CPU)) if ours else PlainStep(grouped=way == "official")
    crops = random_crops()
    return lambda: step(crops)


class OurStep:
    """The step of `python -m training pretrain`."""

    def __init__(
        self,
        precision: ComputePrecision,
        device: torch.device = CPU,
        recipe: Recipe | None = None,
        compile: bool = False,
    ) -> None:
        recipe = recipe or RECIPE
        self.method, self.plan = new_method(recipe).to(device), make_plan(recipe)
        self.precision, self.device = precision, device
        choose_training_attention(self.method, device, precision)
        set_tensor_float32(precision)
        if compile:
            for backbone in self.method.backbones().values():
                compile_blocks(backbone)
        self.optimizer = create_optimizer("adamw", self.method.parameter_groups(), device)
        self.parallel, self.scaler = DataParallelLoss(self.method), GradScaler(enabled=precision == "fp16")
        self.steps = 0

    def begin(self, crops: Crops) -> Metrics:
        """Update student, teacher and center; a GPU may still be computing when this returns."""
        images = crops.views.shape[1]
        batch = Batch(crops, None, Randomness(0, self.steps, 0, images, images))
        context = autocast(self.precision, self.device)
        metrics = train_step(
            self.method, self.optimizer, batch, self.steps, self.plan, context, 1, self.parallel, self.scaler
        )
        self.steps += 1
        return metrics

    def __call__(self, crops: Crops) -> float:
        """Update and return the loss of the batch."""
        return self.begin(crops).read()["loss"]


class PlainStep:
    """Algorithm 1 as it is written: crop by crop, attention written out, a loss for every pair of views.

    Args:
        grouped: Pass crops of one size together through the backbone, and all through the head, as the
            official code does.
        precision: Arithmetic of the products.
        device: Device of the step.
        recipe: Model, crops and method.
    """

    def __init__(
        self,
        grouped: bool = False,
        precision: ComputePrecision = "fp32",
        device: torch.device = CPU,
        recipe: Recipe | None = None,
    ) -> None:
        self.grouped, self.precision, self.device, self.recipe = grouped, precision, device, recipe or RECIPE
        self.scaler = GradScaler(device.type, enabled=precision == "fp16")
        method = new_method(self.recipe).to(device)
        for module in method.modules():
            if isinstance(module, Attention):
                module.fused_attn = False
        self.config, self.student, self.teacher = method.config, method.student, method.teacher
        self.center = torch.zeros(1, method.config.head.prototypes, device=device)
        self.plan, self.momentum = make_plan(self.recipe), method.schedules.teacher_momentum
        trained = [(name, p) for name, p in self.student.named_parameters() if p.requires_grad]
        plain = {name for name, p in trained if p.ndim == 1 or name.endswith(".bias")}
        groups = [[p for name, p in trained if (name in plain) is kind] for kind in (False, True)]
        self.optimizer = torch.optim.AdamW([{"params": group} for group in groups], foreach=False)
        self.steps = 0

    def __call__(self, crops: Crops) -> float:
        """Update student, teacher and center; return the loss of the batch."""
        with autocast(self.precision, self.device):
            with torch.no_grad():
                theirs = self.logits(self.teacher, crops.views)
            ours = self.logits(self.student, *crops)
            loss = plain_loss(
                [x.float() for x in ours], [x.float() for x in theirs], self.center, self.config
            )
        self.center = 0.9 * self.center + 0.1 * torch.cat(theirs).float().mean(dim=0, keepdim=True)
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
        return loss.item()

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
    """Average the cross-entropy of every teacher view with every other crop; logits [batch, K]."""
    pairs = []
    for view, logits in enumerate(teacher_logits):
        target = F.softmax((logits - center) / config.teacher_temperature, dim=-1)
        for crop, student in enumerate(student_logits):
            if crop != view:
                log_probability = F.log_softmax(student / config.student_temperature, dim=-1)
                pairs.append(-(target * log_probability).sum(dim=-1).mean())
    return torch.stack(pairs).mean()


if __name__ == "__main__":
    tyro.cli(TrainStep).run()
