"""DINO: self-distillation with no labels (section 3.1 and Algorithm 1 of the paper)."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dino_model.backbones import BackboneConfig
from dino_model.errors import SettingError
from dino_model.head import Prototypes
from training import losses, targets
from training.distributed import all_mean, gather
from training.methods import diagnosis
from training.methods.base import Batch, Loss
from training.methods.dino import variants
from training.methods.dino.config import DINOConfig, DINOSchedules
from training.methods.dino.variants import Logs
from training.methods.network import Network
from training.methods.pair import StudentAndTeacher, create_pair
from training.prototype_loss import prototype_cross_entropy
from training.queue import Queue
from training.targets import full_precision

ENOUGH_ANSWERS = 16
"""Of the teacher's in a micro-batch, to tell how many prototypes are in use."""


class DINO(StudentAndTeacher):
    """The student learns to give, from any crop, what the teacher gives from another view of the picture."""

    def __init__(
        self, student: Network, teacher: Network, config: DINOConfig, schedules: DINOSchedules
    ) -> None:
        """The teacher's logits are centered by what `center` holds."""
        super().__init__(student, teacher)
        self.config, self.schedules = config, schedules
        self.center = targets.Center(config.head.prototypes, config.center_momentum)
        self.queue = Queue(config.queue, config.head.prototypes) if config.queue else None

    @classmethod
    def from_config(
        cls, config: DINOConfig, backbone: BackboneConfig, schedules: DINOSchedules, classes: int
    ) -> "DINO":
        """Build student, teacher and center; only the student has stochastic depth and a predictor."""
        if config.kept_tokens < 1 and backbone.architecture == "resnet50":
            raise SettingError("--kept-tokens is for ViTs: a ResNet has no tokens to leave out")
        return cls(*create_pair(backbone, config.head, config.predictor), config, schedules)

    def training_loss(self, batch: Batch, step: int) -> Loss:
        """The mean over all pairs of a teacher view and another crop; to log: what tells a collapse."""
        crops = batch.crops
        seen, shown, shared = variants.views(self.config, crops.views)  # by the teacher, the student, both
        with torch.no_grad():
            teacher = self.teacher.project(seen)  # [views, batch, d]
            theirs = self.teacher.logits(teacher)  # [views, batch, K]
        patches = variants.kept_patches(self.config, self.teacher, shown, batch.randomness)
        student = self.student.project(shown, crops.locals, randomness=batch.randomness, kept=patches)
        compare = variants.COMPARISONS.get(self.config.loss, type(self).cross_entropy)
        loss, logs = compare(self, student, theirs, shared, step)
        logs["center_norm"] = self.center.value.norm()
        loss = variants.with_terms(self.config, loss, logs, student, teacher, shared)
        kept = {"teacher_mean": full_precision(theirs).flatten(0, -2).mean(dim=0)}
        if self.queue:
            kept["keys"] = losses.unit(theirs).flatten(0, 1)
        return Loss(loss, logs, kept)

    def cross_entropy(self, student: Tensor, teacher: Tensor, shared: int, step: int) -> tuple[Tensor, Logs]:
        """Of the teacher's probabilities and the student's (Eq. 3), with its parts (section 5.3).

        Takes the student's bottleneck [crops, batch, d] and the teacher's logits [views, batch, K].
        """
        probabilities = self.probabilities(teacher, float(self.schedules.teacher_temperature[step]))
        temperature = self.config.student_temperature
        last = getattr(self.student.head, "last_layer", None)
        if isinstance(last, Prototypes):
            loss = prototype_cross_entropy(student, last, probabilities, temperature, shared)
        else:
            loss = losses.multi_crop_cross_entropy(student, probabilities, temperature, shared)
        entropy = losses.entropy(probabilities)
        uniform = torch.full((), math.log(probabilities.shape[-1]), device=loss.device)
        logs = {"teacher_entropy": entropy, "kl": loss.detach() - entropy, "ln_k": uniform}
        answers = probabilities.flatten(0, -2)  # [views * pictures, K]
        if len(answers) >= ENOUGH_ANSWERS:
            logs["prototypes"] = losses.entropy(answers.mean(dim=0)).exp()  # in use by this micro-batch
        return loss, logs

    def probabilities(self, logits: Tensor, temperature: float) -> Tensor:
        """Targets for a teacher's logits [views, batch, K]; over a batch, each view is balanced alone."""
        config = self.config
        match config.teacher_output:
            case "centering":
                return targets.sharpen(logits - self.center.value, temperature)
            case "none":
                return targets.sharpen(logits, temperature)
            case "softmax-batch":
                return targets.sinkhorn_knopp(logits, config.sinkhorn_temperature, 1)
            case "sinkhorn-knopp":
                return targets.sinkhorn_knopp(logits, config.sinkhorn_temperature, config.sinkhorn_iterations)

    def frozen_parameters(self, step: int) -> Iterable[nn.Parameter]:
        """Freeze the prototypes for the first epochs: no gradient, no decay, no moments."""
        if step >= self.schedules.frozen_steps:
            return ()
        last = self.student.head.output_layer()
        gain = getattr(last, "weight_g", None)
        return [p for p in last.parameters() if p is not gain or self.config.head.train_gain]

    def after_backward(self, step: int) -> None:
        """Drop gradients of frozen parameters; copy a `previous-iteration` student before its update."""
        for parameter in self.frozen_parameters(step):
            parameter.grad = None
        if self.config.teacher == "previous-iteration":
            self.follow(0.0)  # the student's weights, which the optimizer is about to move

    def after_step(self, step: int, kept: Sequence[Mapping[str, Tensor]]) -> None:
        """The center moves by the whole batch, the teacher follows the student; buffers are its own."""
        self.center.update(all_mean(torch.stack([part["teacher_mean"] for part in kept])))
        if self.queue:
            self.queue.put(gather(torch.cat([part["keys"] for part in kept])))
        if self.config.teacher != "previous-iteration":
            self.follow(float(self.schedules.teacher_momentum[step]))

    @staticmethod
    def diagnose(logs: Mapping[str, float]) -> str | None:
        """The two collapses of section 5.3, or outputs that are all alike."""
        remedy = "keep --teacher-output centering and --teacher momentum, or lower --lr"
        return diagnosis.collapse(logs) or diagnosis.sameness(logs, remedy)
