"""Settings of distillation from a frozen teacher and its recipes, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig
from training.methods.config import MethodConfig, RecipeChanges, SmallData, rates
from training.recipes.validation import at_least, shares

WEIGHTS = ("patch_weight", "cls_weight", "attention_weight", "rows_weight")


@dataclass(frozen=True)
class DistillConfig(MethodConfig):
    """Settings of distillation: the teacher, the terms of the loss, and the student's views."""

    name: ClassVar[str] = "distill"
    implementation: ClassVar[str] = "training.methods.distill:Distill"
    remedy: ClassVar[str] = "lower --lr"
    global_crops: ClassVar[int | None] = 1
    recipes: ClassVar[Mapping[str, RecipeChanges]] = {
        "embedded": RecipeChanges(
            "this project: a ViT of 2.7 million parameters, tokens and attention of a frozen "
            "teacher, views of 8 to 28 patches, Muon, moving average of the student; meant for "
            "--init-backbone and --teacher-cache",
            "the card of the embedded model",
            {
                "epochs": 60,
                "batch_size": 48,
                "head_only_epochs": 0.16,
                "optimizer": rates(
                    "muon", 0.008, 0.05, min_lr=1.5e-5, warmup_epochs=0.36, hold=0.4, clip_grad=1.0
                ),
                "backbone": {
                    "architecture": "vit_tiny",
                    "patch_size": 8,
                    "image_size": 112,
                    "depth": 6,
                    "heads": 6,
                    "drop_path": 0.0,
                    "position_mode": "size",
                },
                "crops": {"global_size": 112, "global_crops": 1, "local_crops": 0, "augmentation": "none"},
            },
        )
    }
    small_data: ClassVar[Mapping[str, Any] | None] = {
        "batch_size": 32,
        "crops": {"global_crops": 1, "local_crops": 0, "augmentation": "none"},
    }

    teacher: str = ""
    """Frozen network to learn from, by any name that --model takes but own code."""
    teacher_heads: int | None = None
    """Attention heads of the teacher, if it is a bare checkpoint that does not say their number."""
    teacher_size: int = 0
    """Side in pixels of the teacher's images. 0: as many patches as the student has at --global-size.
    Otherwise the teacher's outputs are resampled to the student's patches."""
    teacher_cache: str | None = None
    """Folder of a cache of the teacher's outputs for a centered square of every image. Default: the teacher
    computes them for random crops at every step."""
    patch_weight: float = 1.0
    """Weight of 1 - cosine of patch tokens; 0: without this term."""
    cls_weight: float = 1.0
    """Weight of 1 - cosine of [CLS] tokens; 0: without this term."""
    attention_weight: float = 1.0
    """Weight of the divergence of the attention of [CLS] in the last block; 0: without this term."""
    rows_weight: float = 1.0
    """Weight of the divergence of the attention of sampled patches in the last block; 0: without."""
    attention_spread: float = 0.0
    """Temperature at which the teacher's attention of [CLS] is spread over patches with similar tokens. The
    spread attention covers objects more evenly. 0: the teacher's attention itself."""
    sampled_rows: int = 32
    """Patches of an image whose attention is compared."""
    view_scales: tuple[float, ...] = (0.57, 0.71, 0.86, 0.86, 1.0, 1.0, 1.0, 1.0, 1.29, 1.57, 2.0)
    """Sides of the student's views, relative to its grid of patches at --global-size. Every step draws one;
    a repeated value is drawn more often. A larger view takes every second, third, … image only, so that no
    step takes much longer than one with whole squares."""
    aligned: float = 0.7
    """Share of steps whose view consists of whole patches of the grid. The other steps enlarge or reduce a
    free box, for which the teacher's outputs are interpolated."""
    jitter: float = 0.3
    """Strength of the changes of brightness and contrast of the student's views; saturation changes twice as
    much."""
    gray: float = 0.1
    """Probability that a view of the student is gray."""
    average: float = 0.998
    """Momentum of the moving average of the student, the network that is evaluated and exported."""

    def __post_init__(self) -> None:
        at_least(self, teacher_size=0, sampled_rows=1, attention_spread=0.0, **dict.fromkeys(WEIGHTS, 0.0))
        shares(self, "aligned", "gray", "average")
        if not 0 <= self.jitter <= 0.5:
            raise SettingError(f"--jitter is {self.jitter}, expected 0 to 0.5")
        if self.attention_spread and not self.attention_weight:
            raise SettingError("--attention-spread changes nothing without --attention-weight")
        if not self.view_scales or not all(0 < scale < 10 for scale in self.view_scales):
            raise SettingError(f"--view-scales is {self.view_scales}, expected numbers above 0 and below 10")
        if not any(getattr(self, name) for name in WEIGHTS):
            raise SettingError("all terms of the loss have weight 0: pass --patch-weight 1")

    @property
    def compares_attention(self) -> bool:
        """Test if a term needs attention maps."""
        return self.attention_weight > 0 or self.rows_weight > 0

    def check(self, crops: CropConfig, batch_size: int, accumulate: int, classes: int) -> None:
        """Check for a teacher, and one crop per image without color changes."""
        self.check_teacher()
        super().check(crops, batch_size, accumulate, classes)
        if crops.augmentation != "none":
            raise SettingError(
                f"--augmentation is {crops.augmentation}, but distill changes the colors of its views: pass "
                "--augmentation none"
            )
        if self.teacher_cache and crops.curriculum:
            raise SettingError("--teacher-cache holds images of one size: leave --curriculum out")

    def resolve(self) -> Self:
        """Make the paths of teacher and cache absolute; raise an error for an unknown teacher."""
        self.check_teacher()
        from dino_model.models.catalogue import check_name, is_path, own_code  # imports torch

        if own_code(self.teacher):
            raise SettingError(f"the teacher {self.teacher} is own code: pass a file or a published model")
        check_name(self.teacher)
        teacher = str(Path(self.teacher).resolve()) if is_path(self.teacher) else self.teacher
        cache = self.teacher_cache and str(Path(self.teacher_cache).resolve())
        return replace(self, teacher=teacher, teacher_cache=cache)

    def check_teacher(self) -> None:
        """Raise SettingError if no teacher is named."""
        if not self.teacher:
            raise SettingError("distill needs a teacher: pass --teacher with a name that --model takes")

    def fit(self, data: SmallData) -> Self:
        """Average over a twentieth of the steps or less."""
        return replace(self, average=min(self.average, data.momentum))
