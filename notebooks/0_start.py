# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 0 · Start
#
# **Question.** Does a network that was trained without labels attend to objects?
#
# You need five minutes. A cell runs with Shift + Enter. All lessons run offline, on a laptop.

# %%
from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from dino_model.quantities import share_inside
from notebooks import drawing

# %% [markdown]
# A *vision transformer* computes *attention*: weights with which it averages parts of the image. An *attention map* shows
# these weights on the image. The shipped model was trained with DINO on images without labels. The control is the same
# network with random weights, which was not trained at all.
#
# **Prediction.** The sheep covers a quarter of the image. Which share of its attention does each network give to the
# sheep? Write down two numbers.

# %%
NAME = "sheep"
image, mask = photographs.image(NAME), photographs.mask(NAME)
maps = {}
for label, model in {"trained": "embedded", "random weights": "random:embedded"}.items():
    predictor = AttentionPredictor(model, size=224, precision="fp32")
    predictor.set_image(image)
    maps[label] = predictor.cls_attention().mean(axis=0)  # mean of the attention heads [rows, columns]
    print(f"{label}: {share_inside(maps[label], mask):.0%} of the attention is on the object")
print(f"area of the object: {mask.mean():.0%} of the image")

drawing.images(
    [image, *maps.values()],
    ["image", *maps],
    caption="The trained network attends to the sheep, random weights do not. Each map is scaled to its own maximum.",
    alt="A sheep in a meadow; the trained map is bright on the sheep; the random map is spread evenly.",
    columns=3,
)

# %% [markdown]
# The trained network gives **51** % of its attention to the sheep, about twice the **25** % of the image that the sheep
# covers. Random weights give **24** %: the architecture alone does not find the object.
#
# **Exercise.** Replace `"sheep"` with `"owl"`, `"chair"` or another name of `photographs.names()`. Find an image on which
# the trained network fails. What do these images have in common?
#
# **Summary.**
# - Attention is a set of weights over the parts of an image.
# - DINO's attention prefers objects although no label was used in training.
# - A map means little without a control, such as random weights.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# figures 1 and 3.
