# %% [markdown]
# # 0 · Start
#
# **Question.** Does a trained network attend to objects, and a random one not?
#
# This lesson takes five minutes and needs no earlier lesson. Press Shift + Enter to run a cell. All lessons run offline, on a
# laptop.

# %%
from app.notebook import show
from dino_model import AttentionPredictor, photographs
from dino_model.inference.quantities import share_inside

# %% [markdown]
# A *vision transformer* computes *attention*: weights for averaging the parts of an image. An *attention map* shows these
# weights on the image. The shipped model was trained without labels to compute the outputs of a larger network,
# DINOv2, which was trained by self-distillation. Whether this copy of DINOv2 was fine-tuned with labels is not documented. The
# control is the same network with random weights.
#
# **Prediction.** The sheep covers a quarter of the image. How much of the attention of each network is on the sheep? Write
# down two percentages.

# %%
NAME = "sheep"
image, mask = photographs.image(NAME), photographs.mask(NAME)
MODELS = ["embedded", "random:embedded"]  # trained weights, random weights
for model in MODELS:
    predictor = AttentionPredictor(model, size=224, precision="fp32")
    predictor.set_image(image)
    attention = predictor.cls_attention().mean(axis=0)  # mean of the heads [rows, columns]
    print(f"{model}: {share_inside(attention, mask):.0%} of the attention is on the object")
print(f"area of the object: {mask.mean():.0%} of the image")
show(image, MODELS, size=160)

# %% [markdown]
# The sheep covers **25** % of the image. With trained weights, **72** % of the attention is on the sheep. With random weights,
# **24** % of the attention is on the sheep: the architecture alone does not find the object.
#
# The maps are those of the whole image. Point at a patch to see where this patch attends; a click pins it. The small images are
# the *heads*: maps that the network computes in parallel. A light place has a large value; each map has its own scale.
#
# **Exercise.** Replace `"sheep"` with `"owl"`, `"chair"` or another name of `photographs.names()`. Find the image in which the
# trained attention on the object is smallest, compared with the object's area. Which structure gets attention there?
#
# **Summary.**
# - Attention is a set of weights over the parts of an image.
# - After training, attention is concentrated on the object, although this distillation read no label.
# - A map needs a control, such as the map of random weights.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# figures 1 and 3.
