"""Settings of SwAV, without importing torch."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from dino_model.models.configs import HeadConfig
from dino_model.runtime.errors import SettingError
from training.methods.config import MethodConfig, SmallData
from training.methods.setup import MethodSchedules
from training.settings import at_least, no_longer_than, positive

HEAD = HeadConfig(3000, layers=2, bottleneck=128, batch_norm=True, activation="relu")


@dataclass(frozen=True)
class SwAVConfig(MethodConfig):
    """Settings of SwAV; the defaults are the paper's. Its prototypes are compared with the bottleneck."""

    name: ClassVar[str] = "swav"
    implementation: ClassVar[str] = "training.methods.swav:SwAV"
    remedy: ClassVar[str] = "lower --epsilon or --lr, or use fewer --prototypes"

    head: HeadConfig = HEAD
    temperature: float = 0.1
    """Temperature of the predictions."""
    epsilon: float = 0.05
    """Temperature of the codes: the regularization of Sinkhorn-Knopp."""
    sinkhorn_iterations: int = 3
    """Sinkhorn-Knopp iterations that balance the codes over the batch."""
    freeze_last_layer_epochs: int = 1
    """Epochs in which the prototypes do not train."""
    queue: int = 0
    """Earlier images that are clustered together with a small batch, a multiple of it; 0 for none."""
    queue_start_epoch: int = 15
    """Epochs before the queue begins to fill."""

    def __post_init__(self) -> None:
        positive(self, "temperature", "epsilon")
        at_least(self, sinkhorn_iterations=1, queue=0, queue_start_epoch=0)
        if self.head.bottleneck is None:
            raise SettingError("swav compares prototypes with the bottleneck: pass --bottleneck")

    @property
    def width(self) -> int:
        """Width of the features that are compared with prototypes."""
        return self.head.bottleneck or 0

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Phases in steps."""
        no_longer_than(epochs, self, "freeze_last_layer_epochs")
        if self.queue and self.queue_start_epoch >= epochs:
            raise SettingError(
                f"--queue-start-epoch is {self.queue_start_epoch}, but training ends after {epochs} epochs: "
                "lower it or pass --queue 0"
            )
        return MethodSchedules(
            frozen_steps=self.freeze_last_layer_epochs * steps_per_epoch,
            queue_step=self.queue_start_epoch * steps_per_epoch,
        )

    def whole_batch(self) -> list[str]:
        """Codes are balanced over the batch."""
        return ["--method swav"]

    def fit(self, data: SmallData) -> Self:
        """Set a number of prototypes that the images can fill."""
        prototypes = max(16, min(3000, data.images // 50))
        frozen = min(1, data.epochs - 1)
        head = replace(self.head, prototypes=prototypes)
        return replace(self, head=head, freeze_last_layer_epochs=frozen)
