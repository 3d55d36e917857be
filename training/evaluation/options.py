"""Options of `python -m training evaluate`. Nothing here imports torch, so that `--help` needs no second."""

import pkgutil
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from tyro.conf import UseAppendAction

from dino_model.data.classes import LabelOptions
from dino_model.inference.options import ChannelOptions, FeatureOptions
from dino_model.runtime.errors import SettingError
from dino_model.runtime.outputs import JsonOptions, OutputOptions
from training.recipes.validation import at_least, positive

LEARNING_RATES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Learning rates of the linear grid; the paper does not publish its rates."""
TABLE_1_NETWORKS = {
    "random:resnet50": "ResNet-50",
    "random:vit_small/16": "ViT-S/16",
    "random:vit_small/8": "ViT-S/8",
    "random:vit_base/16": "ViT-B/16",
    "random:vit_base/8": "ViT-B/8",
}
"""Model names and what Table 1 of the paper calls these networks."""

LandmarkName = Literal["roxford5k", "rparis6k"]
FinetuneRecipeName = Literal["own", "imagenet", "cifar10", "cifar100", "flowers", "cars", "inat18", "inat19"]


def require(condition: object, message: str) -> None:
    """Raise SettingError unless a setting is valid."""
    if not condition:
        raise SettingError(message)


@dataclass(frozen=True, kw_only=True)
class Evaluation(FeatureOptions, JsonOptions):
    """An evaluation of one model or of several, one after the other."""

    model: UseAppendAction[tuple[str, ...]] = ()
    """Name of a model, a checkpoint file or a run; may be repeated. Default: embedded. `pixels` uses the
    image in 16 × 16 pixels as its feature: the baseline without a network."""
    cache: Path | None = None
    """Folder for computed features. A second evaluation of the same images and models reads them."""
    size: int = 224
    """Side of the images in pixels."""
    implementation: ClassVar[str]
    """Function of these options that evaluates: "module:function"."""

    def __post_init__(self) -> None:
        at_least(self, batch_size=1, size=1)

    def run(self) -> None:
        """Import and run the evaluation; processes started by torchrun share the work."""
        from dino_model.models.catalogue import check_name
        from dino_model.runtime.device import choose_device
        from dino_model.runtime.ranks import process_group

        for model in self.model:
            if model != "pixels":
                check_name(model)
        with process_group(choose_device(self.device)) as device:
            pkgutil.resolve_name(self.implementation)(replace(self, device=str(device)))


@dataclass(frozen=True, kw_only=True)
class Classification(LabelOptions, ChannelOptions, Evaluation):
    """An evaluation on labeled images, each shown as a center crop."""

    data: Path
    """Labeled images, a folder per class: FOLDER, uncompressed TAR or LIST; a folder with `train` and `val`;
    or textures: or textures:test, which are generated. Images with several classes are for knn and linear."""
    test: Path | None = None
    """Test images. Default: those of --test-labels or --split, else of the split val, else test, else every
    fifth image of each class by name."""
    test_labels: Path | None = None
    """Table of test images and their classes. They are images of --test, else of --data."""
    split: Path | None = None
    """Text file with the names of the test images of --data, one per line."""
    size: int = 112
    """Side of the center crop in pixels."""
    resize_to: int | None = None
    """Short side before the crop in pixels. Default: --size. ImageNet's protocol: --resize-to 256 --size
    224."""

    def __post_init__(self) -> None:
        Evaluation.__post_init__(self)
        LabelOptions.__post_init__(self)
        short_side = self.size if self.resize_to is None else self.resize_to
        require(self.size <= short_side, f"--size {self.size} cannot be cropped from {short_side} pixels.")
        named = self.split and (self.test or self.test_labels)
        require(not named, "--split and --test or --test-labels both name test images: pass one of them.")


@dataclass(frozen=True, kw_only=True)
class Predictions(Classification):
    """An evaluation whose classifier can be applied to own images."""

    predict: Path | None = None
    """Images to predict: FOLDER, uncompressed TAR, LIST or image. Writes --output."""
    output: Path = Path("predictions.csv")
    """Table of the predictions: path, class, score; knn adds the five nearest training images."""
    confusion: Path | None = None
    """Write the confusion matrix of the test images to this .csv file, and its figure to a .png beside it."""
    save_head: Path | None = None
    """Write the fitted linear classifier to this .safetensors file, for `python -m dino_model predict`."""
    overwrite: bool = False
    """Replace these files if they exist."""


@dataclass(frozen=True, kw_only=True)
class Knn(Predictions):
    """Accuracy of a weighted k-nearest-neighbor vote on frozen features."""

    implementation: ClassVar[str] = "training.evaluation.knn:evaluate"
    k: tuple[int, ...] = (20,)
    """Numbers of neighbors; a result for each."""
    temperature: float = 0.07
    """Temperature of the vote. A smaller one gives near neighbors more weight."""
    test_list: Path | None = None
    """Write the names of the test images to this file, for `pretrain --exclude`."""
    leave_one_out: bool = False
    """Search each image of --data among all others, as in the retrieval of new classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        tested = self.test or self.test_labels or self.split or self.confusion
        require(
            not (self.leave_one_out and tested),
            "--leave-one-out tests all images of --data: leave out "
            "--test, --test-labels, --split and --confusion.",
        )
        require(self.save_head is None, "--save-head writes linear heads: use linear or logistic.")
        require(self.k and min(self.k) >= 1, f"--k is {self.k}: expected numbers of at least 1.")
        positive(self, "temperature")


@dataclass(frozen=True, kw_only=True)
class Linear(Predictions):
    """Accuracy of a linear classifier on frozen features: a grid of learning rates and features in one pass.

    Rate and features are chosen on every fifth training image of each class. The chosen classifier is then
    trained on all training images.
    """

    implementation: ClassVar[str] = "training.evaluation.linear:evaluate"
    augment: bool = False
    """Train on random crops and flips as in the paper; every epoch runs the backbone. Default: fixed
    features."""
    epochs: int = 100
    """Passes over the training images."""
    rates: tuple[float, ...] = LEARNING_RATES
    """Learning rates for a batch of 256."""
    features: tuple[str, ...] = ("1", "4", "1+average")
    """Inputs of the classifiers: [CLS] of this many last blocks, with or without the mean of the patches."""
    head: str | None = None
    """Published head to test instead of training one: its file, or the model that it was published with,
    such as dino_vits16, to download it. Its classes are ImageNet's in the order of their folders."""
    batch: int = 256
    """Images per step."""
    seed: int = 0
    """Seed of initial weights, order and crops."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, epochs=1, batch=1)
        require(self.rates and min(self.rates) > 0, "--rates must be above 0.")
        for text in self.features:
            valid = re.fullmatch(r"[1-9]\d*(\+average)?", text)
            require(valid, f"--features {text} is unknown: expected a number of blocks, 4 or 1+average.")


@dataclass(frozen=True, kw_only=True)
class Logistic(Predictions):
    """Accuracy of logistic regression on frozen features, from few labels and from all; no augmentation."""

    implementation: ClassVar[str] = "training.evaluation.logistic:evaluate"
    shares: tuple[str, ...] = ("1%", "10%", "100%")
    """Labeled training images: a share of each class (1%), a number of each (5), or a file with their names.
    The 1 % and 10 % of ImageNet have published lists. Predictions are of the last one, first draw."""
    seeds: int = 5
    """Random draws of a share or number; their mean and standard deviation are printed."""
    l2: float = 0.1
    """Strength of the penalty: λ = l2 / n. The released code uses 0.1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "l2")
        at_least(self, seeds=1)
        for text in self.shares:
            known = re.fullmatch(r"\d+(\.\d+)?%", text) or text.isdecimal() or Path(text).is_file()
            require(known, f"--shares {text} is no share (1%), number (5) or file of names.")


@dataclass(frozen=True, kw_only=True)
class Finetune(Classification, OutputOptions):
    """Train a whole network on labeled images and test it; the network is saved for the app.

    `python -m app --models-dir OUTPUT` compares its attention with that of the frozen model.
    """

    implementation: ClassVar[str] = "training.evaluation.finetune:evaluate"
    output: Path
    """Folder for each network, MODEL-on-DATA.safetensors."""
    recipe: FinetuneRecipeName = "own"
    """Hyperparameters: own, or those of the paper for a data set; its results are at --size 224."""
    epochs: int | None = None
    """Epochs instead of the recipe's."""
    rate: float | None = None
    """Peak learning rate instead of the recipe's."""
    batch: int | None = None
    """Images per step instead of the recipe's; the rate stays."""
    seed: int = 0
    """Seed of order, crops and mixup."""


@dataclass(frozen=True, kw_only=True)
class Retrieval(Evaluation):
    """mAP on revisited Oxford or Paris, Medium and Hard, with frozen features.

    The paper's results are Oxford at 224 pixels with one scale and Paris at 512 with --multiscale, both with
    --official.
    """

    implementation: ClassVar[str] = "training.evaluation.retrieval:evaluate"
    data: Path
    """Folder that holds roxford5k or rparis6k as published: jpg/ and gnd_NAME.pkl."""
    dataset: LandmarkName = "roxford5k"
    """Data set."""
    size: int = 224
    """Longest side in pixels; smaller images stay as they are."""
    multiscale: bool = False
    """Average the features of the scales 1, 0.707 and 0.5."""
    official: bool = False
    """Evaluate like the released code: whole queries, without incomplete patches at the edges."""


@dataclass(frozen=True, kw_only=True)
class CopyDetection(Evaluation):
    """mAP on Copydays, strong copies, among distractors."""

    implementation: ClassVar[str] = "training.evaluation.copy_detection:evaluate"
    data: Path
    """Copydays as published: folders `original` and `strong`."""
    size: int = 224
    """Side of the square in pixels; the paper uses 224 for ViT-B/16 and 320 for ViT-B/8."""
    distractors: Path | None = None
    """Further database images; the paper uses 10,000 of YFCC100M."""
    whitening: Path | None = None
    """Images that the whitening is computed from; the paper uses 20,000 of YFCC100M."""
    official: bool = False
    """Evaluate like the released code: moments without centering, and at most 20 ranks."""


@dataclass(frozen=True, kw_only=True)
class CopyDetectionSynthetic(LabelOptions, Evaluation):
    """mAP of seeded copies, each searched among all test images of a labeled folder."""

    implementation: ClassVar[str] = "training.evaluation.copy_detection:evaluate_synthetic"
    data: Path
    """FOLDER, uncompressed TAR or LIST, a folder per class; every fifth image is in the database."""
    size: int = 112
    """Side of the square in pixels."""
    copies: int | None = None
    """Images that are copied, once in each way. Default: 200, or all test images if there are fewer."""
    seed: int = 0
    """Seed of the copies."""

    def __post_init__(self) -> None:
        Evaluation.__post_init__(self)
        LabelOptions.__post_init__(self)
        if self.copies is not None:
            at_least(self, copies=1)


@dataclass(frozen=True)
class Throughput(JsonOptions):
    """Images per second, parameters, FLOPs, tokens and memory of the paper's networks on this machine."""

    implementation: ClassVar[str] = "training.evaluation.throughput:evaluate"
    models: tuple[str, ...] = tuple(TABLE_1_NETWORKS)
    """Model names; the weights do not matter."""
    batch: int = 128
    """Images per forward pass."""
    size: int = 224
    """Side of the images in pixels."""
    device: str = "auto"
    """Device of the models: auto, cpu, cuda or mps."""

    def __post_init__(self) -> None:
        at_least(self, batch=1, size=1)

    def run(self) -> None:
        """Measure and print."""
        pkgutil.resolve_name(self.implementation)(self)
