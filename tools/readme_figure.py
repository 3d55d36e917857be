"""Draw the figure of the README: attention and mask of trained and of random weights on one image."""

import sys

import matplotlib.pyplot as plt
import numpy as np

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from segmentation.masks import keep_mass_of_maps

IMAGE = "sheep"
SIZE = 448  # pixels of the short side


def main(output: str) -> None:
    """Write the figure to `output`."""
    image = photographs.picture(IMAGE)
    figure, axes = plt.subplots(2, 4, figsize=(10, 3.9), layout="constrained")
    for row, (title, model) in zip(
        axes, (("shipped model", "embedded"), ("random weights", "random:embedded")), strict=True
    ):
        predictor = AttentionPredictor(model, size=SIZE, precision="fp32")
        predictor.set_image(image)
        maps = predictor.cls_attention()
        masks = keep_mass_of_maps(maps, 0.6)
        y, x = photographs.pin(IMAGE)
        patch = predictor.patch_at(y, x)
        head = int(np.argmax([attention[patch] for attention in maps]))
        extent = (0, image.shape[1], image.shape[0], 0)
        panels = (
            (image, title),
            (maps.mean(axis=0), "mean of all heads"),
            (maps[head], f"head {head + 1}"),
            (None, "mask with 60 % of its attention"),
        )
        for axis, (panel, name) in zip(row, panels, strict=True):
            axis.set_axis_off()
            axis.set_title(name, fontsize=10)
            if panel is None:
                axis.imshow(image)
                shade = np.zeros((*masks[head].shape, 4))
                shade[..., 3] = np.where(masks[head], 0, 0.75)
                axis.imshow(shade, extent=extent, interpolation="nearest")
            else:
                axis.imshow(panel, extent=extent, cmap=None if panel.ndim == 3 else "inferno")
    figure.savefig(output, dpi=110, pil_kwargs={"quality": 88})


if __name__ == "__main__":
    main(sys.argv[1])
