"""TensorBoard and Weights & Biases: where else than in its own log a run is watched."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from dino_model.errors import SettingError
from training.run import Run

if TYPE_CHECKING:
    from training.logging import Logger

LoggerName = Literal["tensorboard", "wandb"]


class TensorBoard:
    """Event files in RUN/tensorboard, for `tensorboard --logdir RUN`."""

    def __init__(self, run: Run, config: Mapping[str, Any], first_step: int) -> None:
        """What former lives of the run wrote from `first_step` on is hidden: those steps are taken again."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=first_step)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """One scalar for each figure."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


class WeightsAndBiases:
    """A run of the project "dino"; the package's own variables tell where to: WANDB_MODE=offline, to disk."""

    def __init__(self, run: Run, config: Mapping[str, Any], first_step: int) -> None:
        """A run that goes on keeps its name there, which stands in RUN/wandb.txt."""
        wandb = import_module("wandb")
        name = run.folder / "wandb.txt"
        known = name.read_text(encoding="utf-8").strip() if first_step and name.exists() else None
        try:
            self.run: Any = wandb.init(
                project="dino",
                name=run.folder.name,
                dir=run.folder,
                id=known,
                resume="allow",
                config=dict(config),
            )
        except wandb.Error as error:
            raise SettingError(f"--log wandb: {error}; WANDB_MODE=offline needs no account") from None
        name.write_text(f"{self.run.id}\n", encoding="utf-8")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """All figures of a step."""
        self.run.log(dict(figures), step=step)

    def close(self) -> None:
        """Send what is left."""
        self.run.finish()


LOGGERS: dict[LoggerName, Callable[[Run, Mapping[str, Any], int], "Logger"]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def check_loggers(names: Iterable[LoggerName]) -> None:
    """Raise SettingError for one whose package is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise SettingError(f"--log {name}: the package is not installed, run `pip install {name}`")
