"""Write predictions of own images, the confusion matrix and fitted heads of an evaluation."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dino_model.data.collection import Images, open_images
from dino_model.inference.classifier import FeatureSpec, ImageTask, LinearClassifier, SavedClassifier
from dino_model.inference.feature_cache import model_fingerprint
from dino_model.inference.features import OUTPUT, FeatureType
from dino_model.inference.predictions import write_predictions
from dino_model.models.load import LoadedModel
from dino_model.runtime import ranks
from dino_model.runtime.errors import SettingError, pluralize
from dino_model.runtime.files import write_csv
from dino_model.runtime.outputs import check_output_file
from training.evaluation.datasets import Split
from training.evaluation.options import Predictions
from training.evaluation.run import Labeled, extract, framing_of

MAX_NAMES = 40
"""Classes whose names fit on the axes of a confusion matrix."""
Probabilities = Callable[[Tensor], Tensor]
"""Maps features [images, values] to probabilities or votes [images, classes]."""
Nearest = Callable[[Tensor], list[list[str]]]
"""Maps features to the names of the nearest training images of each."""


class Outcomes:
    """Predictions, confusion matrix and head of an evaluation, in the files that its options name."""

    def __init__(self, options: Predictions, split: Split) -> None:
        """Check the options and the files before the work, and open the images of --predict.

        Raises:
            SettingError: Several models, or options that do not fit the data.
            OutputError: A file exists.
            ImageError: As `open_images`.
        """
        self.options, self.split = options, split
        written = [options.confusion, options.save_head, options.output if options.predict else None]
        if len(options.model) > 1 and any(written):
            raise SettingError("--predict, --confusion and --save-head need one model: pass one --model")
        if options.confusion and split.several:
            raise SettingError(
                "images have several classes, which no confusion matrix shows: leave --confusion out"
            )
        if options.confusion and options.confusion.suffix != ".csv":
            raise SettingError(
                f"--confusion is {options.confusion}: expected a .csv file; the figure is a .png beside it"
            )
        if options.save_head and (options.save_head.suffix != ".safetensors" or "pixels" in options.model):
            raise SettingError("--save-head needs a .safetensors file and a model that is not `pixels`")

        def open_predicted() -> Images | None:
            for file in filter(None, written):
                check_output_file(file, overwrite=options.overwrite)
            return open_images(options.predict, arrays=bool(options.channels)) if options.predict else None

        self.predicted = ranks.on_first(open_predicted, ranks.LISTING_LIMIT)

    def task(self, model: LoadedModel, spec: FeatureSpec) -> ImageTask:
        """Describe the input and output of a linear classifier."""
        framing = framing_of(self.options, model)
        shape = {"size": framing.size, "resize_to": framing.short_side}
        return ImageTask(spec=spec, several=self.split.several, **shape)

    def write(
        self,
        model: LoadedModel,
        test: Labeled,
        probabilities: Probabilities,
        kind: FeatureType = OUTPUT,
        nearest: Nearest | None = None,
    ) -> None:
        """Write the confusion matrix of the test images, and the predictions of own images.

        Args:
            model: Of the features.
            test: Test images with these features.
            probabilities, nearest: The classifier.
            kind: Features that `probabilities` takes.
        """
        options, classes = self.options, self.split.classes
        if options.confusion:
            from sklearn.metrics import confusion_matrix  # a second of imports

            guesses = probabilities(test.features).argmax(dim=1)
            if ranks.rank() == 0:
                counts = confusion_matrix(test.labels, guesses, labels=range(len(classes)))
                _write_confusion(options.confusion, torch.from_numpy(counts), classes)
                print(f"confusion matrix: {options.confusion}, {options.confusion.with_suffix('.png')}")
        if self.predicted is not None:
            table = extract(options, model, framing_of(options, model), self.predicted, kind)
            rows, near = probabilities(table.features), nearest(table.features) if nearest else None
            if ranks.rank() == 0:
                about: Any = {"several": self.split.several, "nearest": near}
                write_predictions(options.output, table.images.names, rows, classes, **about)
                print(f"{pluralize(len(rows), 'prediction')}: {options.output}")

    def save_head(self, model: LoadedModel, task: ImageTask, classifier: LinearClassifier) -> None:
        """Write a head to --save-head, if it is given."""
        if (file := self.options.save_head) is None or ranks.rank() > 0:
            return
        SavedClassifier(
            classifier=classifier,
            task=task,
            classes=self.split.classes,
            model=model.name,
            weights=model_fingerprint(model.backbone),
            checkpoint=self.options.checkpoint(),
        ).write(file)
        print(f"head: {file}; `python -m dino_model predict FOLDER --head {file}` applies it")


def _write_confusion(path: Path, matrix: Tensor, classes: Sequence[str]) -> None:
    """Write a confusion matrix as CSV, and as a figure with the suffix .png beside it."""
    from training.run import figures  # imports matplotlib

    rows = ([name, *row] for name, row in zip(classes, matrix.tolist(), strict=True))
    write_csv(path, [["true \\ predicted", *classes], *rows])
    side = min(14.0, max(4.5, 0.34 * len(classes) + 2.5))
    title = "Confusion of the test images"
    figure, ((axes,),) = figures.create_page(1, 1, title, width=side + 1.5, height=side)
    shares = 100 * matrix / matrix.sum(dim=1, keepdim=True).clamp(min=1)
    drawn = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100)
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(classes) <= MAX_NAMES:
        ticks = range(len(classes))
        axes.set_xticks(ticks, classes, rotation="vertical")
        axes.set_yticks(ticks, classes)
    if len(classes) <= MAX_NAMES // 2:
        for row, column in matrix.nonzero().tolist():
            color = "white" if shares[row, column] > 60 else "black"
            axes.text(column, row, str(int(matrix[row, column])), ha="center", va="center", color=color)
    figure.colorbar(drawn, ax=axes, label="share of the true class, %")
    figures.save(figure, path.with_suffix(".png"))
