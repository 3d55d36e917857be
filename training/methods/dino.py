"""DINO: self-distillation with no labels (section 3.1 and Algorithm 1 of the paper)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dino_model.head import ProjectionHead
from training import losses
from training.crops import Crops
from training.optim import ParameterGroup, decay_groups, move_average
from training.schedules import Schedule, cosine, linear_warmup


@dataclass(frozen=True)
class DINOConfig:
    """What is DINO's own; the defaults are the official code's."""

    student_temperature: float = 0.1
    """tau_s."""
    teacher_temperature_start: float = 0.04
    """tau_t at the start of its warm-up."""
    teacher_temperature: float = 0.04
    """tau_t after its warm-up; above 0.07 training tends to collapse to the uniform output."""
    teacher_temperature_warmup_epochs: int = 0
    """Epochs of linear warm-up of tau_t."""
    teacher_momentum: float = 0.996
    """Start of the cosine to 1 of the teacher's moving average."""
    center_momentum: float = 0.9
    """Moving average of the center."""
    freeze_last_layer_epochs: int = 1
    """Epochs during which the prototypes do not train."""


@dataclass(frozen=True)
class DINOSchedules:
    """Per-step values: teacher momentum and temperature, and for how many steps the prototypes are frozen."""

    teacher_momentum: Schedule
    teacher_temperature: Schedule
    frozen_steps: int

    @classmethod
    def of(cls, config: DINOConfig, epochs: int, steps_per_epoch: int) -> "DINOSchedules":
        """Momentum changes every step, the temperature every epoch."""
        temperatures = linear_warmup(
            config.teacher_temperature_start,
            config.teacher_temperature,
            epochs,
            config.teacher_temperature_warmup_epochs,
        )
        return cls(
            cosine(config.teacher_momentum, 1.0, epochs * steps_per_epoch),
            temperatures.repeat(steps_per_epoch),
            config.freeze_last_layer_epochs * steps_per_epoch,
        )


class Network(nn.Module):
    """g = h o f: a backbone with a projection head; crops of one size share a forward pass."""

    def __init__(self, backbone: nn.Module, head: ProjectionHead) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, *crops: Tensor) -> Tensor:
        """Groups of crops [crops, batch, channels, height, width] -> logits [all crops, batch, K]."""
        batch = crops[0].shape[1]
        features = torch.cat([self.backbone(group.flatten(0, 1)) for group in crops if len(group)])
        logits: Tensor = self.head(features).unflatten(0, (-1, batch))
        return logits


class DINO(nn.Module):
    """The student learns to give, from any crop, what the teacher gives from another view of the picture."""

    def __init__(
        self,
        student: Network,
        teacher: Network,
        prototypes: int,
        config: DINOConfig,
        schedules: DINOSchedules,
    ):
        """`teacher` is built like `student`, but without stochastic depth; it starts with its weights."""
        super().__init__()
        self.student, self.teacher = student, teacher
        self.center = losses.Center(prototypes, config.center_momentum)
        self.temperature, self.schedules = config.student_temperature, schedules
        teacher.load_state_dict(student.state_dict())
        teacher.requires_grad_(False)

    def training_loss(self, crops: Crops, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of a batch of normalised crops; to log: teacher entropy, KL and norm of the center."""
        self.student.head.freeze_last_layer(step < self.schedules.frozen_steps)
        with torch.no_grad():
            teacher_logits = self.teacher(crops.views)  # [2, batch, K]
            temperature = float(self.schedules.teacher_temperature[step])
            targets = losses.sharpen(teacher_logits, self.center.value, temperature)
        student_logits = self.student(*crops)  # [2 + locals, batch, K]
        loss = losses.multi_crop_cross_entropy(student_logits, targets, self.temperature)
        entropy = losses.entropy(targets)
        logs = {
            "teacher_entropy": entropy,
            "kl": loss.detach() - entropy,
            "center_norm": self.center.value.norm(),
        }
        self.center.update(teacher_logits)  # after the loss, which used the old one
        return loss, logs

    def parameter_groups(self) -> list[ParameterGroup]:
        """What the optimizer trains: the student."""
        return decay_groups(self.student)

    def after_step(self, step: int) -> None:
        """The teacher follows the student; buffers are its own."""
        momentum = float(self.schedules.teacher_momentum[step])
        move_average(list(self.teacher.parameters()), list(self.student.parameters()), momentum)
