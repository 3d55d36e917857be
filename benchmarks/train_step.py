"""One DINO step of a ViT-Ti/16 (2 × 224 + 6 × 96, K = 65,536, batch 8), against the plain step in fp32.

python -m benchmarks.train_step [--json FILE]
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from timm.models.vision_transformer import Attention
from torch import Tensor, nn

from benchmarks.measure import Computation, measure, median_seconds, report
from dino_model.backbones import BackboneConfig, choose_training_attention
from dino_model.device import ComputePrecision, autocast, choose_precision
from dino_model.head import HeadConfig, ProjectionHead, Prototypes
from training.crops import CropConfig, Crops
from training.loop import train_step
from training.methods.base import Batch
from training.methods.dino import DINO, DINOConfig
from training.methods.network import Network
from training.plan import Plan
from training.randomness import Randomness
from training.recipes import OptimizerConfig, Recipe

CPU = torch.device("cpu")
# From the first step on at full rates and with trained prototypes: the costly kind of step.
METHOD = DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0)
RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", patch_size=16),
    crops=CropConfig(global_size=224, local_size=96, local_crops=6),
    method=METHOD,
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=8,
)
STEPS = 1000
AGREEMENT = 1e-5  # of the first loss, in fp32


@dataclass(frozen=True)
class TrainStep:
    """Forward, backward and update of student, teacher and center: `train_step` against the plain step."""

    repeats: int = 5
    """Timed turns of each side."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Compare the losses, measure, print."""
        remarks = compare()
        again, grouped = median_seconds(build_ours(), build_official(), self.repeats)
        remarks += (
            f"against the official code's step, which passes crops of one size together: "
            f"ours {again:.3f} s, that {grouped:.3f} s: {grouped / again:.2f} times faster",
        )
        result = measure("train_step", build_ours, build_reference, repeats=self.repeats, remarks=remarks)
        report(result, self.json)


def compare() -> tuple[str, ...]:
    """What to say of the settings and of how far both losses agree.

    Raises:
        SystemExit: the second losses, after one update, differ in fp32.
    """
    precision = choose_precision("auto", CPU)
    plain, exact, fast = PlainStep(), OurStep("fp32"), OurStep(precision)
    crops = random_crops()
    expected, found, rough = ([step(crops) for _ in range(2)][1] for step in (plain, exact, fast))
    if abs(found - expected) > AGREEMENT * expected:
        raise SystemExit(f"the loss after one step is {found} in fp32, expected {expected}")
    crop = RECIPE.crops
    return (
        f"ViT-Ti/16, 2 × {crop.global_size} + {crop.local_crops} × {crop.local_size}, "
        f"K = {METHOD.head.prototypes:,}, batch {RECIPE.batch_size}; ours in {precision}, "
        f"the reference in fp32, {torch.get_num_threads()} threads",
        f"loss after one update: reference {expected:.5f}, ours {found:.5f} in fp32, "
        f"{rough:.5f} in {precision}",
    )


def random_crops() -> Crops:
    """Crops as the loop hands them to the method: normalised, fp32."""
    generator, config, batch = torch.Generator().manual_seed(0), RECIPE.crops, RECIPE.batch_size
    views = torch.randn(2, batch, 3, config.global_size, config.global_size, generator=generator)
    shape = (config.local_crops, batch, 3, config.local_size, config.local_size)
    return Crops(views, torch.randn(shape, generator=generator))


def fresh_method() -> DINO:
    """The method with the same weights each time."""
    torch.manual_seed(0)
    return METHOD.build(RECIPE.backbone, make_plan().method, 0)


def make_plan() -> Plan:
    """The recipe's per-step values."""
    return Plan.of(RECIPE, STEPS * RECIPE.batch_size)


def build_ours() -> Computation:
    """One step after the other, our way."""
    step, crops = OurStep(choose_precision("auto", CPU)), random_crops()
    return lambda: step(crops)


def build_reference() -> Computation:
    """One step after the other, the plain way."""
    step, crops = PlainStep(), random_crops()
    return lambda: step(crops)


def build_official() -> Computation:
    """One step after the other, as the official code groups them."""
    step, crops = PlainStep(grouped=True), random_crops()
    return lambda: step(crops)


class OurStep:
    """The step of `python -m training pretrain`."""

    def __init__(self, precision: ComputePrecision) -> None:
        self.method, self.plan, self.precision = fresh_method(), make_plan(), precision
        choose_training_attention(self.method, CPU, precision)
        self.optimizer = torch.optim.AdamW(self.method.parameter_groups(), lr=0.0, fused=True)
        self.steps = 0

    def __call__(self, crops: Crops) -> float:
        """Loss of the batch; student, teacher and center move on."""
        context = autocast(self.precision, CPU)
        pictures = crops.views.shape[1]
        batch = Batch(crops, None, Randomness(0, self.steps, 0, pictures, pictures))
        logs = train_step(self.method, self.optimizer, batch, self.steps, self.plan, context)
        self.steps += 1
        return logs["loss"]


class PlainStep:
    """The step as Algorithm 1 writes it: fp32, crop by crop, attention written out, a loss for every pair.

    With `grouped`, crops of one size share a pass through the backbone and all crops one through the head, as
    in the official code.
    """

    def __init__(self, grouped: bool = False) -> None:
        self.grouped = grouped
        method = fresh_method()
        for module in method.modules():
            if isinstance(module, Attention):
                module.fused_attn = False
        self.student, self.teacher = method.student, method.teacher
        self.center = torch.zeros(1, METHOD.head.prototypes)
        self.plan, self.momentum = make_plan(), method.schedules.teacher_momentum
        trained = [(name, p) for name, p in self.student.named_parameters() if p.requires_grad]
        plain = {name for name, p in trained if p.ndim == 1 or name.endswith(".bias")}
        groups = [[p for name, p in trained if (name in plain) is kind] for kind in (False, True)]
        self.optimizer = torch.optim.AdamW(
            [{"params": group} for group in groups], foreach=False, fused=False
        )
        self.steps = 0

    def __call__(self, crops: Crops) -> float:
        """Loss of the batch; student, teacher and center move on."""
        with torch.no_grad():
            teacher_logits = self.logits(self.teacher, crops.views)
        loss = plain_loss(self.logits(self.student, *crops), teacher_logits, self.center)
        self.center = 0.9 * self.center + 0.1 * torch.cat(teacher_logits).mean(dim=0, keepdim=True)
        self.optimizer.zero_grad()
        loss.backward()
        self.clip()
        decayed, plain = self.optimizer.param_groups
        decayed["lr"] = plain["lr"] = float(self.plan.lr[self.steps])
        decayed["weight_decay"], plain["weight_decay"] = float(self.plan.weight_decay[self.steps]), 0.0
        self.optimizer.step()
        self.follow(float(self.momentum[self.steps]))
        self.steps += 1
        return loss.item()

    def logits(self, network: Network, *groups: Tensor) -> list[Tensor]:
        """Logits [batch, K] of every crop."""
        if not self.grouped:
            return [plain_head(network.head, network.backbone(crop)) for group in groups for crop in group]
        features = torch.cat([network.backbone(group.flatten(0, 1)) for group in groups])
        return list(plain_head(network.head, features).split(RECIPE.batch_size))

    def clip(self) -> None:
        """Clip every gradient to its own norm."""
        for parameter in self.student.parameters():
            if parameter.grad is not None:
                coefficient = self.plan.clip_grad / (parameter.grad.norm().item() + 1e-6)
                if coefficient < 1:
                    parameter.grad.mul_(coefficient)

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """The teacher's moving average."""
        for teacher, student in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            teacher.mul_(momentum).add_((1 - momentum) * student)


def plain_head(head: nn.Module, features: Tensor) -> Tensor:
    """Logits [n, K] of features [n, width]: MLP, l2 norm, product with the weight-normalised prototypes."""
    assert isinstance(head, ProjectionHead)
    assert isinstance(head.last_layer, Prototypes)
    return F.linear(F.normalize(head.mlp(features), dim=-1), head.last_layer.weight())


def plain_loss(student_logits: list[Tensor], teacher_logits: list[Tensor], center: Tensor) -> Tensor:
    """Mean cross-entropy of every teacher view with every other crop, pair by pair; logits [batch, K]."""
    pairs = []
    for view, logits in enumerate(teacher_logits):
        target = F.softmax((logits - center) / METHOD.teacher_temperature, dim=-1)
        for crop, student in enumerate(student_logits):
            if crop != view:
                log_probability = F.log_softmax(student / METHOD.student_temperature, dim=-1)
                pairs.append(-(target * log_probability).sum(dim=-1).mean())
    return torch.stack(pairs).mean()


if __name__ == "__main__":
    tyro.cli(TrainStep).run()
