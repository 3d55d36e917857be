"""Figures of the lessons: one style, readable in gray, each with a caption and an alternative text.

`figure` is the number of a figure in captions.toml, such as "3.2".
"""

import base64
import html
import io
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import matplotlib as mpl
import numpy as np
from IPython.display import HTML, display
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from segmentation import drawing
from segmentation.masks import ImageArray, Mask
from training.run.figures import STYLE as TRAINING_STYLE

CAPTIONS = tomllib.loads(Path(__file__).with_name("captions.toml").read_text(encoding="utf-8"))
"""Number of a figure -> `caption`, the finding in one sentence, and `alt`, for readers who cannot see it."""
TRUE_COLOR, FOUND_COLOR = (0, 60, 120), (250, 225, 60)
"""Dark blue for true outlines, light yellow for predicted ones."""
STYLE: Any = TRAINING_STYLE | {"figure.constrained_layout.use": True, "image.cmap": "cividis"}


def show(figure: Figure, caption: str, alt: str) -> None:
    """Display a figure with its caption and close it.

    Args:
        figure: Figure of matplotlib.
        caption: The finding in one sentence.
        alt: What the figure shows, for readers who cannot see it.
    """
    display(HTML(f"<figure>{_img(figure, alt)}<figcaption>{html.escape(caption)}</figcaption></figure>"))


def _img(figure: Figure, alt: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="webp", dpi=110, pil_kwargs={"quality": 85})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/webp;base64,{data}" style="max-width:100%">'


@contextmanager
def plot(figure: str, columns: int = 1, width: float = 7, height: float = 3) -> Iterator[Any]:
    """Provide axes for curves, one or an array of `columns`, and show them when the block ends."""
    with mpl.rc_context(STYLE):
        drawn, axes = plt.subplots(1, columns, figsize=(width, height))
        yield axes
        show(drawn, **CAPTIONS[figure])


def images(images: Sequence[NDArray[Any]], titles: Sequence[str], figure: str, columns: int = 4) -> None:
    """Show images, maps and masks side by side; arguments as in `grid`."""
    show(grid(images, titles, columns), **CAPTIONS[figure])


def grid(images: Sequence[NDArray[Any]], titles: Sequence[str], columns: int = 4) -> Figure:
    """Draw images and maps side by side.

    Args:
        images: uint8 [height, width, 3]; or maps [rows, columns], each scaled to its own maximum.
        titles: One for each image.
        columns: Images per row.
    """
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    tallest = max(image.shape[0] / image.shape[1] for image in images)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(9, rows * (9 / columns * tallest + 0.35)), squeeze=False
        )
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, image, title in zip(axes.flat, images, titles, strict=False):
            axis.imshow(image if image.ndim == 3 else image.astype(float), vmin=0)
            axis.set_title(title, fontsize=9)
        return figure


def slider(figures: Mapping[str, Figure], name: str, figure: str) -> None:
    """Show one of several figures, selected with a slider that works without a kernel.

    Args:
        figures: Setting -> figure.
        name: Name of the setting.
    """
    alt = CAPTIONS[figure]["alt"]
    shown = {setting: _img(drawn, f"{alt} {name}: {setting}.") for setting, drawn in figures.items()}
    display(HTML(_with_slider(shown, name, CAPTIONS[figure]["caption"], 0)))


def _with_slider(shown: Mapping[str, str], name: str, caption: str, first: int) -> str:
    hidden = "".join(
        f"<div{' hidden' * (number != first)}>{img}</div>" for number, img in enumerate(shown.values())
    )
    settings = html.escape("|".join(shown), quote=True)
    select = (
        "const figure = this.closest('figure');"
        "figure.querySelectorAll('div').forEach((part, i) => { part.hidden = i != this.value });"
        "figure.querySelector('output').textContent = this.dataset.settings.split('|')[this.value];"
    )
    return (
        f'<figure style="margin:0"><label>{html.escape(name)} <input type="range" min="0" '
        f'max="{len(shown) - 1}" value="{first}" data-settings="{settings}" oninput="{select}"> '
        f"<output>{html.escape(list(shown)[first])}</output></label><br>{hidden}"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


class Film:
    """Curves and a map of features that move while a network trains; a slider shows each earlier step.

    A printed page shows the last step.

    Args:
        figure: Number of the figure.
        labels: Classes of the features, [images].
        steps: Last step of the training.
    """

    def __init__(self, figure: str, labels: Tensor, steps: int) -> None:
        self.caption, self.labels, self.steps = CAPTIONS[figure], labels.numpy(), steps
        self.shown: dict[str, str] = {}
        self.log: list[dict[str, float]] = []
        self.places: NDArray[Any] | None = None
        self.handle: Any = display(HTML(""), display_id=True)

    def add(self, features: Tensor, **values: float) -> None:
        """Draw a step.

        Args:
            features: Unit-length features [images, width]; their two principal components are drawn.
            values: `step`, accuracies in percent by the name of their network, and `entropy`, `kl` and
                `prototypes` as shares of their maximum.
        """
        self.log.append(values)
        centered = (features - features.mean(dim=0)).numpy()
        places = centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T
        if self.places is not None:  # turned and mirrored so that the points move as little as possible
            left, _, right = np.linalg.svd(places.T @ self.places)
            places = places @ left @ right
        self.places = places = places / np.abs(places).max()
        with mpl.rc_context(STYLE):
            drawn, (accuracy, shares, plane) = plt.subplots(1, 3, figsize=(11, 3.2))
            for name in [name for name in values if name != "step"]:
                axis = shares if name in {"entropy", "kl", "prototypes"} else accuracy
                axis.plot(
                    [line["step"] for line in self.log], [line[name] for line in self.log], "o-", label=name
                )
            accuracy.set(xlim=(0, self.steps), ylim=(0, 100), xlabel="step", ylabel="k-NN accuracy (%)")
            shares.set(
                xlim=(0, self.steps), ylim=(0, 1), xlabel="step", ylabel="share of the maximum, ln K or K"
            )
            for axis in (accuracy, shares):
                axis.legend(loc="upper left")
            plane.scatter(*places.T, c=self.labels, s=5, cmap="tab20")
            plane.set(
                xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=[], yticks=[], xlabel="map of the test features"
            )
        step = f"{values['step']:.0f}"
        self.shown[step] = _img(drawn, f"{self.caption['alt']} Step {step}.")
        content = _with_slider(self.shown, "step", self.caption["caption"], len(self.shown) - 1)
        self.handle.update(HTML(content))


def masked(image: ImageArray, mask: Mask) -> ImageArray:
    """Darken an image outside of a mask [height, width] and draw the outline of the mask in white."""
    edge = np.full((1, 3), 255, np.uint8)
    lit = drawing.blend(image, np.zeros_like(image), 0.8 * ~mask)
    return drawing.overlay_masks(lit, mask, colors=edge, opacity=0, contour=1)


def draw_outlines(image: ImageArray, true: Mask, predicted: Mask) -> ImageArray:
    """Draw the outline of the true mask solid and of the predicted mask dashed, at twice the size."""
    drawn = image.repeat(2, axis=0).repeat(2, axis=1)
    cv2.drawContours(drawn, _outlines(true), -1, (255, 255, 255), 9)
    cv2.drawContours(drawn, _outlines(true), -1, TRUE_COLOR, 4)
    for line in _outlines(predicted):
        for start in range(0, len(line), 40):
            cv2.polylines(drawn, [line[start : start + 24]], False, (0, 0, 0), 9)
            cv2.polylines(drawn, [line[start : start + 24]], False, FOUND_COLOR, 5)
    return drawn


def _outlines(mask: Mask) -> Sequence[NDArray[Any]]:
    large = mask.astype(np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    return cv2.findContours(large, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)[0]
