"""The shipped models and the models published with the paper, without importing torch."""

from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import safetensors

from dino_model.models.configs import BackboneConfig
from dino_model.runtime.download import PublishedFile

EMBEDDED = {
    name: Path(__file__).parents[1] / name.replace("-", "_") / "model.safetensors"
    for name in ("embedded", "embedded-dino")
}
"""Files of the models that ship with the package, each beside its card and its log.

`embedded` is distilled from DINOv2; `embedded-dino` is trained by DINO with terms of SimDINO. Both
have one architecture.
"""
OFFICIAL_ADDRESS = "https://dl.fbaipublicfiles.com/dino"


def embedded_parameters(name: str) -> int:
    """Count the parameters of a shipped model from the header of its file."""
    with safetensors.safe_open(EMBEDDED[name], framework="numpy") as file:
        return sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (no mapping)


@dataclass(frozen=True)
class Scores:
    """Published scores in percent; None if none is published.

    Attributes:
        knn, linear: ImageNet-1k top-1 of weighted k-NN, k = 20, and of a linear classifier.
        voc: VOC12 Jaccard of attention masks that keep 60 % of the mass.
        davis: DAVIS-2017 mean of J and F.
    """

    knn: float | None = None
    linear: float | None = None
    voc: float | None = None
    davis: float | None = None


@dataclass(frozen=True)
class OfficialWeights:
    """A model published with the paper. No checksum is published: length and strict loading are checked.

    `stem` is the name of the file without its suffix, and of its folder.
    """

    title: str
    stem: str
    config: BackboneConfig
    parameters: int
    scores: Scores
    note: str

    @property
    def file(self) -> PublishedFile:
        """The weights."""
        name = f"{self.stem}.pth"
        return PublishedFile(f"{OFFICIAL_ADDRESS}/{self.stem}/{name}", name, _read_backbone)


def _read_backbone(path: Path) -> object:
    from dino_model.models.checkpoints import read_backbone

    return read_backbone(path)


_VIT = partial(BackboneConfig, position_mode="official")
_VITS8 = (
    "The paper gives a VOC12 Jaccard of 44.7 for ViT-S/8 without saying for which of its two checkpoints."
)
OFFICIAL = {
    name: OfficialWeights(title, f"dino_{stem}_pretrain", config, parameters, scores, note)
    for name, title, stem, config, parameters, scores, note in (
        ("dino_vits16", "ViT-S/16", "deitsmall16", _VIT("vit_small", 16), 21_665_664,
         Scores(74.5, 77.0, 45.9, 61.8), ""),
        ("dino_vits8", "ViT-S/8", "deitsmall8", _VIT("vit_small", 8), 21_670_272,
         Scores(78.3, 79.7, 44.7, 69.9), _VITS8),
        ("dino_vitb16", "ViT-B/16", "vitbase16", _VIT("vit_base", 16), 85_798_656,
         Scores(76.1, 78.2, None, 62.3), ""),
        ("dino_vitb8", "ViT-B/8", "vitbase8", _VIT("vit_base", 8), 85_807_872,
         Scores(77.4, 80.1, None, 71.4), ""),
        ("dino_vits8_300ep", "ViT-S/8, 300 epochs", "deitsmall8_300ep", _VIT("vit_small", 8), 21_670_272,
         Scores(), f"The model behind the paper's figures. {_VITS8}"),
        ("dino_resnet50", "ResNet-50", "resnet50", BackboneConfig("resnet50"), 23_508_032,
         Scores(67.5, 75.3), "No attention maps."),
    )
}  # fmt: skip
"""The models published with the paper, and the scores published for them."""
