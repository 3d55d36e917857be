"""Configuration of DINO and of its ablations, without importing torch."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from dino_model.configs import HeadConfig
from dino_model.errors import SettingError
from training.methods.configs import MethodConfig
from training.schedules import Schedule, cosine, linear_warmup
from training.settings import above, at_least, between, flag, no_longer_than, whole_batches

Teacher = Literal["momentum", "previous-epoch", "previous-iteration", "student-copy"]
TeacherOutput = Literal["centering", "softmax-batch", "sinkhorn-knopp", "none"]
LossName = Literal["cross-entropy", "mse", "infonce"]


@dataclass(frozen=True, kw_only=True)
class AblationConfig(MethodConfig):
    """The head, and the options of DINO that its paper ablates or that this project adds."""

    head: HeadConfig = field(default_factory=HeadConfig, kw_only=False)
    predictor: int = 0
    """Width of the hidden layer of a predictor in the student's head, before the bottleneck; 0: none."""
    loss: LossName = "cross-entropy"
    """Comparison of outputs: cross-entropy, or mse or infonce of l2-normalized outputs without sharpening."""
    teacher: Teacher = "momentum"
    """Teacher weights (section 5.2): moving average of the student, or the student's weights at the end of
    the last epoch, before the last step, or now."""
    teacher_output: TeacherOutput = "centering"
    """Operation that avoids collapse: centering, softmax over the batch, Sinkhorn-Knopp, none."""
    sharpen: bool = True
    """Without: the teacher's temperature is the student's (section 5.3)."""
    sinkhorn_temperature: float = 0.05
    """Temperature of softmax-batch and sinkhorn-knopp, in place of tau_t."""
    sinkhorn_iterations: int = 3
    """Iterations of sinkhorn-knopp."""
    infonce_temperature: float = 0.2
    """Temperature of infonce."""
    queue: int = 0
    """Earlier outputs that are negatives of infonce; 0: the other images of the batch."""
    views: Literal[1, 2] = 2
    """Global crops per network: all, or the first for the teacher and the second for the student."""
    kept_tokens: float = 1.0
    """Share of the patches of a global crop that the student gets, drawn anew each step (ViT)."""
    masking: Literal["random", "attention"] = "random"
    """Patches hidden by --kept-tokens: random ones, or those the teacher's [CLS] token attends to most
    (AttMask)."""
    mask_hint: float = 0.1
    """Of --masking attention: as many of the most attended patches stay visible, as a share of the hidden."""
    spreading: float = 0.0
    """Weight of the coding rate of the student's bottleneck, which is subtracted from the loss; e.g. 0.3."""
    alignment: float = 0.0
    """Weight of 1 - cosine of the bottlenecks of student and teacher; e.g. 5."""

    def __post_init__(self) -> None:
        above(self, 0, "sinkhorn_temperature", "infonce_temperature")
        between(self, 0, 1, "mask_hint")
        at_least(self, sinkhorn_iterations=1, predictor=0, queue=0, spreading=0, alignment=0)
        if not 0 < self.kept_tokens <= 1:
            raise SettingError(f"--kept-tokens is {self.kept_tokens}, expected above 0 and at most 1")
        if self.masking == "attention" and self.kept_tokens == 1:
            raise SettingError("--masking attention hides no patch: pass --kept-tokens below 1, such as 0.5")
        for name in ("spreading", "alignment"):
            if getattr(self, name) and self.head.bottleneck is None:
                raise SettingError(
                    f"{flag(name)} needs the head's bottleneck: pass --bottleneck 256, or leave it out"
                )
        self._check_loss()

    def _check_loss(self) -> None:
        if self.loss == "mse" and self.teacher_output not in ("centering", "none"):
            raise SettingError(
                f"--teacher-output {self.teacher_output} makes probabilities, which --loss mse does not "
                "compare: pass centering or none"
            )
        if self.loss == "infonce" and self.teacher_output != "none":
            raise SettingError(
                f"--loss infonce compares outputs as they are: pass --teacher-output none with it, "
                f"not {self.teacher_output}"
            )
        if self.queue and self.loss != "infonce":
            raise SettingError(f"--queue is for --loss infonce: leave it out with {self.loss}")

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """Check that a pair of different crops exists, and that the whole batch is there where needed."""
        if self.views == 1 and views < 2:
            raise SettingError("--views 1 needs a global crop for each network: pass --global-crops 2")
        if views + local_crops < 2:
            raise SettingError("one crop has no other to agree with: raise --global-crops or --local-crops")
        if self.queue:
            whole_batches(self.queue, min(self.views, views) * batch_size)
        if accumulate == 1:
            return
        if self.loss == "infonce" and not self.queue:
            raise _needs_whole_batch("--loss infonce without --queue", accumulate)
        if self.spreading:
            raise _needs_whole_batch("--spreading", accumulate)
        if self.teacher_output in ("softmax-batch", "sinkhorn-knopp"):
            raise _needs_whole_batch(f"--teacher-output {self.teacher_output}", accumulate)


def _needs_whole_batch(option: str, accumulate: int) -> SettingError:
    return SettingError(f"{option} needs the whole batch at once: leave out --accumulate {accumulate}")


@dataclass(frozen=True)
class DINOSchedules:
    """Values per step: [steps]."""

    teacher_momentum: Schedule
    """m."""
    teacher_temperature: Schedule
    """tau_t."""
    frozen_steps: int
    """Steps in which the prototypes do not train."""


@dataclass(frozen=True)
class DINOConfig(AblationConfig):
    """Settings of DINO and, by inheritance, its head and ablations; the defaults are the official code's."""

    name: ClassVar[str] = "dino"
    implementation: ClassVar[str] = "training.methods.dino:DINO"

    student_temperature: float = 0.1
    """tau_s."""
    teacher_temperature_start: float = 0.04
    """tau_t at the start of its warm-up."""
    teacher_temperature: float = 0.04
    """tau_t after its warm-up; 0: all weight on the largest. Training tends to collapse above 0.07."""
    teacher_temperature_warmup_epochs: int = 0
    """Epochs of linear warm-up of tau_t."""
    teacher_momentum: float = 0.996
    """Start of the cosine of the teacher's moving average."""
    teacher_momentum_end: float = 1.0
    """End of the cosine of the teacher's moving average."""
    center_momentum: float = 0.9
    """Moving average of the center."""
    freeze_last_layer_epochs: int = 1
    """Epochs in which the prototypes do not train."""

    def __post_init__(self) -> None:
        super().__post_init__()
        above(self, 0, "student_temperature")
        between(self, 0, 1, "teacher_momentum", "teacher_momentum_end", "center_momentum")
        at_least(self, teacher_temperature=0, teacher_temperature_start=0)
        at_least(self, teacher_temperature_warmup_epochs=0, freeze_last_layer_epochs=0)

    def schedules(self, epochs: int, steps_per_epoch: int) -> DINOSchedules:
        """Momentum changes every step, the temperature every epoch."""
        no_longer_than(epochs, self, "teacher_temperature_warmup_epochs", "freeze_last_layer_epochs")
        start, end = self.teacher_temperature_start, self.teacher_temperature
        temperatures = linear_warmup(start, end, epochs, self.teacher_temperature_warmup_epochs)
        if not self.sharpen:
            temperatures = np.full(epochs, self.student_temperature)
        return DINOSchedules(
            teacher_momenta(
                self.teacher, self.teacher_momentum, self.teacher_momentum_end, epochs, steps_per_epoch
            ),
            temperatures.repeat(steps_per_epoch),
            self.freeze_last_layer_epochs * steps_per_epoch,
        )


def teacher_momenta(
    teacher: Teacher, start: float, end: float, epochs: int, steps_per_epoch: int
) -> Schedule:
    """Momentum of the teacher in every step, [steps]: 1 keeps the teacher, 0 copies the student."""
    steps = epochs * steps_per_epoch
    if teacher == "momentum":
        return cosine(start, end, steps)
    momenta = np.zeros(steps)
    if teacher == "previous-epoch":
        momenta[np.arange(steps) % steps_per_epoch < steps_per_epoch - 1] = 1.0
    return momenta
