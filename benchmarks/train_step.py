"""One DINO step of a ViT-Ti/16 (2 × 224 + 8 × 96, K = 65,536, batch 16), against the plain step in fp32.

python -m benchmarks.train_step [--ablate] [--json FILE]
python -m benchmarks.train_step --device cuda [--batch 256] [--compile] [--json FILE]
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
import tyro
from timm.models.vision_transformer import Attention
from torch import Tensor, nn
from torch.amp import GradScaler

from benchmarks.measure import Computation, measure, median_seconds, report
from dino_model.backbones import BackboneConfig, choose_training_attention
from dino_model.device import ComputePrecision, autocast, choose_precision, set_tensor_float32
from dino_model.files import write_json
from dino_model.head import HeadConfig, ProjectionHead, Prototypes
from training.blocks import compile_blocks, recompute_blocks
from training.crop_config import CropConfig
from training.crops import Crops
from training.distributed import DataParallelLoss
from training.logging import Metrics
from training.methods.dino import DINO
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.methods.network import Network
from training.optim import clip_grad_per_tensor, create_optimizer, move_average
from training.plan import Plan
from training.prototype_loss import prototype_cross_entropy
from training.randomness import Randomness
from training.recipe import OptimizerConfig, Recipe
from training.train import train_step

CPU = torch.device("cpu")
# From the first step on at full rates and with trained prototypes: the costly kind of step.
METHOD = DINOConfig(HeadConfig(prototypes=65_536), freeze_last_layer_epochs=0)
RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", patch_size=16),
    crops=CropConfig(global_size=224, local_size=96, local_crops=8),
    method=METHOD,
    optimizer=OptimizerConfig(warmup_epochs=0),
    epochs=1,
    batch_size=16,
)
STEPS = 1000
AGREEMENT = 1e-5  # of the first loss, in fp32
SPEED_UPS = {
    "grouped": "crops of one size share a pass",
    "precision": "16-bit products where the hardware has them",
    "head": "no logits kept",
    "fused": "AdamW in one kernel",
    "foreach": "clipping and moving average of all tensors at once",
}
"""What the plain step can be given one by one; with all of them it does what ours does."""
FLAGS: dict[str, dict[str, Any]] = {
    "--compile": {"compile": True},
    "--checkpoint-activations": {"recompute": True},
    "--accumulate 2": {"accumulate": 2},
}
"""Options of `pretrain` that change how a step is computed and not what."""
RESNET = replace(
    RECIPE,
    backbone=BackboneConfig("resnet50"),
    crops=CropConfig(global_size=112, local_size=48, local_crops=4),
    batch_size=8,
)
"""Whose weights lie channels-last in training; the benchmark lays them the other way, too."""


@dataclass(frozen=True)
class TrainStep:
    """Forward, backward and update of student, teacher and center: `train_step` against the plain step."""

    repeats: int = 5
    """Timed turns of each side."""
    ablate: bool = False
    """What each speed-up brings, alone and together with the others, instead."""
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
        if self.ablate:
            self.run_ablation(remarks)
            return
        again, grouped = median_seconds(build_ours(), build_official(), self.repeats)
        remarks += (
            f"against the official code's step, which passes crops of one size together: "
            f"ours {again:.3f} s, that {grouped:.3f} s: {grouped / again:.2f} times faster",
        )
        result = measure("train_step", build_ours, build_reference, repeats=self.repeats, remarks=remarks)
        report(result, self.json)

    def run_ablation(self, remarks: tuple[str, ...]) -> None:
        """The plain step with one speed-up, and with all but one."""
        everything, crops = frozenset(SPEED_UPS), random_crops()
        plain, whole = partial(PlainStep(), crops), partial(PlainStep(everything), crops)
        rows = []
        for name, told in SPEED_UPS.items():
            with_one, seconds = median_seconds(partial(PlainStep({name}), crops), plain, self.repeats)
            best, without = median_seconds(
                whole, partial(PlainStep(everything - {name}), crops), self.repeats
            )
            rows.append({"name": name, "alone": seconds / with_one, "together": without / best})
            print(
                f"{name:<10} alone {seconds / with_one:.2f}, beside the others {without / best:.2f}: {told}"
            )
        best, seconds = median_seconds(whole, plain, self.repeats)
        print(f"all        {seconds / best:.2f} times faster", *remarks, sep="\n  ")
        flags = self.run_flags()
        if self.json:
            figures = {
                "name": "train_step --ablate",
                "ratio": seconds / best,
                "ours": best,
                "reference": seconds,
            }
            write_json(self.json, figures | {"unit": "s", "speed_ups": rows, "flags": flags})

    def run_flags(self) -> list[dict[str, object]]:
        """Our step with one more option against our step, seconds and extra memory."""
        ours, resnet = partial(build_ours, RECIPE), partial(build_ours, RESNET)
        sides = {name: (partial(ours, **flag), ours) for name, flag in FLAGS.items()}
        sides["channels-last (a ResNet-50)"] = (partial(resnet, channels_last=True), resnet)
        rows: list[dict[str, object]] = []
        for name, (build, build_usual) in sides.items():
            result = measure(name, build, build_usual, repeats=self.repeats, remarks=())
            share = result.memory_ratio
            told = "not measured" if share is None else f"{share:.2f}"
            print(f"{name}: {1 / result.ratio:.2f} of the time, memory {told} of it")
            rows.append({"name": name, "time": 1 / result.ratio, "memory": share})
        return rows


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


def random_crops(recipe: Recipe | None = None, device: torch.device = CPU) -> Crops:
    """Crops as the loop hands them to the method: normalised, fp32."""
    recipe = recipe or RECIPE
    generator, config, batch = torch.Generator().manual_seed(0), recipe.crops, recipe.batch_size
    views = torch.randn(2, batch, 3, config.global_size, config.global_size, generator=generator)
    shape = (config.local_crops, batch, 3, config.local_size, config.local_size)
    return Crops(views.to(device), torch.randn(shape, generator=generator).to(device))


def fresh_method(recipe: Recipe | None = None) -> DINO:
    """The method with the same weights each time."""
    torch.manual_seed(0)
    recipe = recipe or RECIPE
    method = recipe.method.build(recipe.backbone, make_plan(recipe).method, 0)
    assert isinstance(method, DINO)
    return method


def make_plan(recipe: Recipe | None = None) -> Plan:
    """The recipe's per-step values."""
    recipe = recipe or RECIPE
    return Plan.of(recipe, STEPS * recipe.batch_size)


def build_ours(recipe: Recipe | None = None, **options: Any) -> Computation:
    """One step after the other, our way; `options` of `OurStep`."""
    step, crops = OurStep(choose_precision("auto", CPU), recipe=recipe, **options), random_crops(recipe)
    return lambda: step(crops)


def build_reference() -> Computation:
    """One step after the other, the plain way."""
    step, crops = PlainStep(), random_crops()
    return lambda: step(crops)


def build_official() -> Computation:
    """One step after the other, as the official code groups them."""
    step, crops = PlainStep({"grouped"}), random_crops()
    return lambda: step(crops)


class OurStep:
    """The step of `python -m training pretrain`."""

    def __init__(
        self,
        precision: ComputePrecision,
        device: torch.device = CPU,
        recipe: Recipe | None = None,
        compile: bool = False,
        recompute: bool = False,
        accumulate: int = 1,
        channels_last: bool = False,
    ) -> None:
        self.method, self.plan = fresh_method(recipe).to(device), make_plan(recipe)
        self.precision, self.device, self.accumulate = precision, device, accumulate
        if channels_last:
            self.method.to(memory_format=torch.channels_last)
        choose_training_attention(self.method, device, precision)
        set_tensor_float32(precision)
        for backbone in self.method.backbones().values():
            if compile:
                compile_blocks(backbone)
            if recompute:
                recompute_blocks(backbone)
        self.optimizer = create_optimizer("adamw", self.method.parameter_groups(), device)
        self.parallel, self.scaler = DataParallelLoss(self.method), GradScaler(enabled=precision == "fp16")
        self.steps = 0

    def begin(self, crops: Crops) -> Metrics:
        """Student, teacher and center move on; a device may not have done so yet."""
        pictures = crops.views.shape[1]
        batch = Batch(crops, None, Randomness(0, self.steps, 0, pictures, pictures))
        context = autocast(self.precision, self.device)
        figures = train_step(
            self.method,
            self.optimizer,
            batch,
            self.steps,
            self.plan,
            context,
            self.accumulate,
            self.parallel,
            self.scaler,
        )
        self.steps += 1
        return figures

    def __call__(self, crops: Crops) -> float:
        """Loss of the batch, after the step."""
        return self.begin(crops).read()["loss"]


class PlainStep:
    """The step as Algorithm 1 writes it: fp32, crop by crop, attention written out, a loss for every pair.

    With some of `SPEED_UPS` it is faster. With "grouped" crops of one size share a pass through the backbone
    and all crops one through the head, as in the official code.
    """

    def __init__(
        self,
        speed_ups: Set[str] = frozenset(),
        precision: ComputePrecision | None = None,
        device: torch.device = CPU,
        recipe: Recipe | None = None,
    ) -> None:
        """`precision` is that of the speed-up of this name; left out: the device's best."""
        self.speed_ups, self.device, self.recipe = speed_ups, device, recipe or RECIPE
        reduced = precision or choose_precision("auto", device)
        self.precision: ComputePrecision = reduced if "precision" in speed_ups else "fp32"
        self.scaler = GradScaler(device.type, enabled=self.precision == "fp16")
        method = fresh_method(recipe).to(device)
        for module in method.modules():
            if isinstance(module, Attention):
                module.fused_attn = False
        if "precision" in speed_ups:
            choose_training_attention(method, device, reduced)
        self.config, self.student, self.teacher = method.config, method.student, method.teacher
        self.center = torch.zeros(1, method.config.head.prototypes, device=device)
        self.plan, self.momentum = make_plan(recipe), method.schedules.teacher_momentum
        trained = [(name, p) for name, p in self.student.named_parameters() if p.requires_grad]
        plain = {name for name, p in trained if p.ndim == 1 or name.endswith(".bias")}
        groups = [[p for name, p in trained if (name in plain) is kind] for kind in (False, True)]
        self.optimizer = torch.optim.AdamW(
            [{"params": group} for group in groups], foreach=False, fused="fused" in speed_ups
        )
        self.steps = 0

    def __call__(self, crops: Crops) -> float:
        """Loss of the batch; student, teacher and center move on."""
        with autocast(self.precision, self.device):
            with torch.no_grad():
                theirs = self.logits(self.teacher, crops.views)
            loss = self.loss(crops, [logits.float() for logits in theirs])
        self.center = 0.9 * self.center + 0.1 * torch.cat(theirs).float().mean(dim=0, keepdim=True)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.clip()
        decayed, plain = self.optimizer.param_groups
        decayed["lr"] = plain["lr"] = float(self.plan.lr[self.steps])
        decayed["weight_decay"], plain["weight_decay"] = float(self.plan.weight_decay[self.steps]), 0.0
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.follow(float(self.momentum[self.steps]))
        self.steps += 1
        return loss.item()

    def loss(self, crops: Crops, teacher_logits: list[Tensor]) -> Tensor:
        """Of the student, for the teacher's logits [batch, K] of every view."""
        if "head" not in self.speed_ups:
            ours = [logits.float() for logits in self.logits(self.student, *crops)]
            return plain_loss(ours, teacher_logits, self.center, self.config)
        targets = F.softmax(
            (torch.stack(teacher_logits) - self.center) / self.config.teacher_temperature, dim=-1
        )
        last = self.student.head.last_layer
        assert isinstance(last, Prototypes)
        bottleneck = torch.stack(self.projected(self.student, *crops))
        return prototype_cross_entropy(bottleneck, last, targets, self.config.student_temperature)

    def projected(self, network: Network, *groups: Tensor) -> list[Tensor]:
        """Bottleneck [batch, d] of every crop."""
        if "grouped" not in self.speed_ups:
            return [
                plain_bottleneck(network.head, network.backbone(crop)) for group in groups for crop in group
            ]
        features = torch.cat([network.backbone(group.flatten(0, 1)) for group in groups])
        return list(plain_bottleneck(network.head, features).split(self.recipe.batch_size))

    def logits(self, network: Network, *groups: Tensor) -> list[Tensor]:
        """Logits [batch, K] of every crop."""
        last = network.head.last_layer
        assert isinstance(last, Prototypes)
        bottlenecks = self.projected(network, *groups)
        if "grouped" in self.speed_ups:
            return list(F.linear(torch.cat(bottlenecks), last.weight()).split(self.recipe.batch_size))
        return [F.linear(bottleneck, last.weight()) for bottleneck in bottlenecks]

    def clip(self) -> None:
        """Clip every gradient to its own norm."""
        if "foreach" in self.speed_ups:
            clip_grad_per_tensor(self.student.parameters(), self.plan.clip_grad)
            return
        for parameter in self.student.parameters():
            if parameter.grad is not None:
                coefficient = self.plan.clip_grad / (parameter.grad.norm().item() + 1e-6)
                if coefficient < 1:
                    parameter.grad.mul_(coefficient)

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """The teacher's moving average."""
        if "foreach" in self.speed_ups:
            move_average(list(self.teacher.parameters()), list(self.student.parameters()), momentum)
            return
        for teacher, student in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            teacher.mul_(momentum).add_((1 - momentum) * student)


def plain_bottleneck(head: nn.Module, features: Tensor) -> Tensor:
    """Bottleneck [n, d] of features [n, width]: MLP, l2 norm."""
    assert isinstance(head, ProjectionHead)
    return F.normalize(head.mlp(features).float(), dim=-1)


def plain_loss(
    student_logits: list[Tensor], teacher_logits: list[Tensor], center: Tensor, config: DINOConfig
) -> Tensor:
    """Mean cross-entropy of every teacher view with every other crop, pair by pair; logits [batch, K]."""
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
