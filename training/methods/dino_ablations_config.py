"""Options of DINO next to Algorithm 1, without importing torch: ablations of the paper, and additions.

`--method dino` takes these options. A run in which all of them are the defaults is one of `DINO`, as
`AblationsConfig.resolve` decides; any other is one of `DINOAblations`.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

import numpy as np

from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.methods.config import MethodSchedules
from training.methods.dino_config import DINOConfig
from training.recipes.validation import at_least, flag, multiple_of, positive, shares


@dataclass(frozen=True, kw_only=True)
class AblationsConfig(DINOConfig):
    """Settings of DINO and of what its ablations change; with the defaults they are those of DINO."""

    name: ClassVar[str] = "dino"
    implementation: ClassVar[str] = "training.methods.dino_ablations:DINOAblations"

    predictor: int = 0
    """Width of the hidden layer of a predictor in the student's head, before the bottleneck; 0: none."""
    sharpen: bool = True
    """Sharpening. --no-sharpen gives the teacher the student's temperature (section 5.3)."""
    loss: Literal["cross-entropy", "mse", "infonce"] = "cross-entropy"
    """Comparison of outputs: cross-entropy, or mse or infonce of l2-normalized outputs without sharpening."""
    teacher: Literal["momentum", "previous-epoch", "previous-iteration", "student-copy"] = "momentum"
    """Teacher weights (section 5.2): moving average of the student, or the student's weights at the end of
    the last epoch, before the last step, or now."""
    teacher_output: Literal["centering", "softmax-batch", "sinkhorn-knopp", "none"] = "centering"
    """Operation that avoids collapse: centering, softmax over the batch, Sinkhorn-Knopp, none."""
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
    """Share of most attended patches that stay visible, relative to the hidden ones (--masking attention)."""
    spreading: float = 0.0
    """Weight of the coding rate of the student's bottleneck, which is subtracted from the loss; e.g. 0.3."""
    alignment: float = 0.0
    """Weight of 1 - cosine of the bottlenecks of student and teacher; e.g. 5."""

    koleo: float = 0.0
    """Weight of the regularizer KoLeo on [CLS] of every global crop of the student; DINOv2: 0.1."""
    patch_loss: Literal["none", "ibot"] = "none"
    """Loss of patches, which is added: none, or that of iBOT at masked patches of the global crops (ViT)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "sinkhorn_temperature", "infonce_temperature", "kept_tokens")
        shares(self, "mask_hint", "kept_tokens")
        at_least(self, predictor=0, sinkhorn_iterations=1, queue=0, spreading=0, alignment=0, koleo=0)
        for name in ("spreading", "alignment"):
            if getattr(self, name) and self.head.bottleneck is None:
                raise SettingError(f"{flag(name)} needs the head's bottleneck: pass --bottleneck 256")
        if self.masking == "attention" and self.kept_tokens == 1:
            raise SettingError("--masking attention hides no patch: pass --kept-tokens below 1, such as 0.5")
        if self.loss == "mse" and self.teacher_output not in ("centering", "none"):
            raise SettingError(
                f"--loss mse compares no probabilities, which --teacher-output {self.teacher_output} gives: "
                "pass centering or none"
            )
        if self.loss == "infonce" and self.teacher_output != "none":
            raise SettingError("--loss infonce compares outputs as they are: pass --teacher-output none")
        if self.queue and self.loss != "infonce":
            raise SettingError(f"--queue is for --loss infonce: leave it out with {self.loss}")
        needed = {"kept_tokens": 1.0, "views": 2, "loss": "cross-entropy", "teacher_output": "centering"}
        for name, value in needed.items():  # both networks get all patches of the same views
            if self.patch_loss == "ibot" and (found := getattr(self, name)) != value:
                raise SettingError(
                    f"--patch-loss ibot needs {flag(name)} {value}, not {found}: leave one of them out"
                )

    def whole_batch(self) -> list[str]:
        """Name the options that compare the images of a batch."""
        options = {
            "--loss infonce without --queue": self.loss == "infonce" and not self.queue,
            "--spreading": self.spreading > 0,
            "--koleo": self.koleo > 0,
            f"--teacher-output {self.teacher_output}": self.teacher_output not in ("centering", "none"),
        }
        return [option for option, needed in options.items() if needed]

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check also that there is one global crop for each network."""
        if self.views == 1 and crops.global_crops != 2:
            raise SettingError("--views 1 needs one global crop for each network: pass --global-crops 2")
        if self.koleo and batch_size < 2:
            raise SettingError("--koleo compares the images of a batch: raise --batch-size to 2 or more")
        rows = min(self.views, crops.global_crops) * batch_size
        multiple_of("queue", self.queue, rows, "the batch")
        super().check(crops, batch_size, accumulate, classes)

    def vit_options(self) -> list[str]:
        """Name the options that change or compare patches."""
        options = {"--kept-tokens": self.kept_tokens < 1, "--patch-loss": self.patch_loss != "none"}
        return [option for option, is_set in options.items() if is_set]

    def schedules(self, epochs: int, steps_per_epoch: int) -> MethodSchedules:
        """Schedules of DINO, without sharpening or with another teacher."""
        usual = super().schedules(epochs, steps_per_epoch)
        momenta, temperatures = usual.teacher_momentum, usual.teacher_temperature
        if not self.sharpen:
            temperatures = np.full_like(temperatures, self.student_temperature)
        if self.teacher == "previous-epoch":  # 1 keeps the teacher, 0 copies the student
            momenta = (np.arange(1, len(momenta) + 1) % steps_per_epoch != 0).astype(float)
        elif self.teacher != "momentum":
            momenta = np.zeros_like(momenta)
        return replace(usual, teacher_momentum=momenta, teacher_temperature=temperatures)

    def title(self) -> str:
        """Return the name, with the options next to Algorithm 1."""
        return " with ".join([self.name, *([", ".join(self.chosen())] if self.chosen() else [])])

    def chosen(self) -> list[str]:
        """Name the options of this class that are not the defaults."""
        plain = {option.name for option in fields(DINOConfig)}
        own = [option for option in fields(self) if option.name not in plain]
        return [flag(option.name) for option in own if getattr(self, option.name) != option.default]

    def resolve(self) -> DINOConfig:
        """Return the settings of Algorithm 1 alone if no option next to it is chosen."""
        if self.chosen():
            return self
        return DINOConfig(**{option.name: getattr(self, option.name) for option in fields(DINOConfig)})
