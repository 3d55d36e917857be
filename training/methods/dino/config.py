"""DINO's settings: what the paper's method and its ablations are told by, and what cannot be."""

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
Comparison = Literal["cross-entropy", "mse", "infonce"]


@dataclass(frozen=True)
class DINOSchedules:
    """Per-step values: teacher momentum and temperature, and for how many steps the prototypes are frozen."""

    teacher_momentum: Schedule
    teacher_temperature: Schedule
    frozen_steps: int


@dataclass(frozen=True)
class DINOConfig(MethodConfig):
    """What is DINO's own, with the variants that the paper ablates; the defaults are the official code's."""

    name: ClassVar[str] = "dino"
    implementation: ClassVar[str] = "training.methods.dino.algorithm:DINO"

    head: HeadConfig = field(default_factory=HeadConfig)
    predictor: int = 0
    """Width of the hidden layer of a predictor in the student's head, before the bottleneck; 0: none."""
    loss: Comparison = "cross-entropy"
    """What compares outputs: cross-entropy, or mse or infonce of l2-normalised outputs without sharpening."""
    teacher: Teacher = "momentum"
    """What of the student's past is the teacher: its moving average, or its weights at the end of the last
    epoch, before the last step, or now (section 5.2)."""
    teacher_output: TeacherOutput = "centering"
    """What keeps one prototype from winning: a center, a softmax over the batch, Sinkhorn-Knopp, nothing."""
    student_temperature: float = 0.1
    """tau_s."""
    teacher_temperature_start: float = 0.04
    """tau_t at the start of its warm-up."""
    teacher_temperature: float = 0.04
    """tau_t after its warm-up; 0: all weight on the largest. Above 0.07 training tends to collapse to the
    uniform output."""
    teacher_temperature_warmup_epochs: int = 0
    """Epochs of linear warm-up of tau_t."""
    sharpen: bool = True
    """Without: the teacher's temperature is the student's (section 5.3)."""
    sinkhorn_temperature: float = 0.05
    """Of softmax-batch and sinkhorn-knopp, in place of tau_t."""
    sinkhorn_iterations: int = 3
    """Of sinkhorn-knopp."""
    infonce_temperature: float = 0.2
    """That similarities are divided by."""
    queue: int = 0
    """Outputs of earlier views that infonce tells a picture from; 0: the other pictures of the batch."""
    teacher_momentum: float = 0.996
    """Start of the cosine to 1 of the teacher's moving average."""
    center_momentum: float = 0.9
    """Moving average of the center."""
    freeze_last_layer_epochs: int = 1
    """Epochs during which the prototypes do not train."""
    views: Literal[1, 2] = 2
    """Global crops each network sees: all, or the teacher the first and the student the second."""
    kept_tokens: float = 1.0
    """Share of the patches of a global crop that the student sees, drawn anew each step (ViT)."""
    masking: Literal["random", "attention"] = "random"
    """Patches hidden by --kept-tokens: random ones, or those the teacher's [CLS] token attends to most
    (AttMask)."""
    mask_hint: float = 0.1
    """Of --masking attention: as many of the most attended patches stay visible, as a share of the hidden."""
    spreading: float = 0.0
    """Weight of the coding rate of the student's bottleneck, which the loss is lowered by; 0.3 was tried."""
    alignment: float = 0.0
    """Weight of 1 - cosine of the bottlenecks of student and teacher; 5 was tried."""

    def __post_init__(self) -> None:
        above(self, 0, "student_temperature", "sinkhorn_temperature", "infonce_temperature")
        between(self, 0, 1, "teacher_momentum", "center_momentum", "mask_hint")
        at_least(self, teacher_temperature=0, teacher_temperature_start=0, sinkhorn_iterations=1)
        at_least(self, teacher_temperature_warmup_epochs=0, freeze_last_layer_epochs=0, predictor=0, queue=0)
        at_least(self, spreading=0, alignment=0)
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

    def schedules(self, epochs: int, steps_per_epoch: int) -> DINOSchedules:
        """Momentum changes every step, the temperature every epoch."""
        no_longer_than(epochs, self, "teacher_temperature_warmup_epochs", "freeze_last_layer_epochs")
        temperatures = linear_warmup(
            self.teacher_temperature_start,
            self.teacher_temperature,
            epochs,
            self.teacher_temperature_warmup_epochs,
        )
        if not self.sharpen:
            temperatures = np.full(epochs, self.student_temperature)
        return DINOSchedules(
            self.momenta(epochs, steps_per_epoch),
            temperatures.repeat(steps_per_epoch),
            self.freeze_last_layer_epochs * steps_per_epoch,
        )

    def momenta(self, epochs: int, steps_per_epoch: int) -> Schedule:
        """The teacher's momentum in every step: 1 keeps it as it is, 0 makes it the student."""
        steps = epochs * steps_per_epoch
        if self.teacher == "momentum":
            return cosine(self.teacher_momentum, 1.0, steps)
        kept = np.zeros(steps)
        if self.teacher == "previous-epoch":
            kept[np.arange(steps) % steps_per_epoch < steps_per_epoch - 1] = 1.0
        return kept

    def check(self, batch_size: int, *, accumulate: int, views: int, local_crops: int, classes: int) -> None:
        """A pair of different crops has to be left; what looks at the whole batch cannot be split."""
        if self.views == 1 and views < 2:
            raise SettingError("--views 1 needs a global crop for each network: pass --global-crops 2")
        if views + local_crops < 2:
            raise SettingError("one crop has no other to agree with: raise --global-crops or --local-crops")
        if self.queue:
            whole_batches(self.queue, min(self.views, views) * batch_size)
        if accumulate == 1:
            return
        if self.loss == "infonce" and not self.queue:
            raise SettingError(
                "--loss infonce without --queue needs the whole batch at once: leave out "
                f"--accumulate {accumulate}"
            )
        if self.spreading:
            raise SettingError(
                f"--spreading needs the whole batch at once: leave out --accumulate {accumulate}"
            )
        if self.teacher_output in ("softmax-batch", "sinkhorn-knopp"):
            raise SettingError(
                f"--teacher-output {self.teacher_output} needs the whole batch at once: leave out "
                f"--accumulate {accumulate}"
            )
