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
# # 2 · Does attention find objects?
#
# **Question.** Is an attention map a good mask of the object, compared with controls that know nothing about the image?
#
# You need lesson 1. You write the mask and the metric; your functions then score 30 images with outlines drawn by hand.

# %%
import numpy as np

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from dino_model.quantities import lift
from notebooks import drawing
from notebooks.checks import check
from segmentation.masks import central_head, enlarge
from segmentation.voc_eval import centered_box

# %% [markdown]
# ## From a map to a mask
#
# The values of a map depend on the number of patches, so a fixed threshold does not work. The paper keeps the smallest set
# of patches that together hold 60 % of the attention of a head; this share is the *mass*.
#
# **Exercise 2.1 (code).** Sort, add up, and keep the patch that crosses the threshold.


# %%
def keep_mass(attention: np.ndarray, mass: float) -> np.ndarray:
    """Non-negative map [rows, columns] -> kept patches, bool [rows, columns]."""
    return ...


keep_mass = check("2.1", keep_mass)

# %% [markdown]
# ## The metric
#
# The *Jaccard similarity* of two masks is the number of shared pixels divided by the number of pixels in either mask: 1 for
# equal masks, 0 for masks without a common pixel. It is also called intersection over union.
#
# **Exercise 2.2 (code).** Write it for two masks.


# %%
def jaccard(mask: np.ndarray, truth: np.ndarray) -> float:
    """Boolean masks [height, width] -> similarity from 0 to 1."""
    return ...


jaccard = check("2.2", jaccard)

# %% [markdown]
# **Prediction.** Look at the maps of lesson 1. Which head has the best mask of the sheep? Write down its Jaccard similarity.

# %%
predictors = {
    "trained": AttentionPredictor("embedded", size=224, precision="fp32"),
    "random weights": AttentionPredictor("random:embedded", size=224, precision="fp32"),
}


def head_masks(maps: np.ndarray, shape: tuple[int, int], mass: float = 0.6) -> np.ndarray:
    """Maps [heads, rows, columns] -> masks of the image, bool [heads, height, width]."""
    return enlarge(np.stack([keep_mass(head, mass) for head in maps]), shape)


image, truth = photographs.image("sheep"), photographs.mask("sheep")
predictors["trained"].set_image(image)
masks = head_masks(predictors["trained"].cls_attention(), truth.shape)
scores = [jaccard(mask, truth) for mask in masks]
box = centered_box(truth.shape)
print("heads:", *(f"{score:.2f}" for score in scores), f"| centered box: {jaccard(box, truth):.2f}")
drawing.images(
    [drawing.masked(image, mask) for mask in (truth, *masks, box)],
    [
        "drawn by hand",
        *(f"head {i}: {score:.2f}" for i, score in enumerate(scores)),
        f"box: {jaccard(box, truth):.2f}",
    ],
    caption="Four heads cover the sheep in part, two cover the background; a box in the center scores as well.",
    alt="A sheep under eight masks: drawn by hand, of six heads, and a box in the center, with Jaccard similarities.",
)

# %% [markdown]
# The best head reaches **0.57**, the centered box **0.64**: the sheep stands in the middle, and a box profits from that. Two
# heads attend to the background and score **0.00**, so a score depends strongly on the head that is selected.
#
# ## Thirty images
#
# One image is no evidence. The table scores 30 images in five ways, for trained and for random weights. *Best head* is
# the head with the highest score on each image; the ground truth selects it. *Central head* is the head whose mask is
# nearest to the center of the image; it needs no ground truth. The *centered box* does not look at the image at all.
#
# **Prediction.** Rank the five rows before you run the cell.

# %%
names = photographs.names()
truths = {name: photographs.mask(name) for name in names}
attention = {label: {} for label in predictors}  # maps [heads, rows, columns] by weights and image
for label, predictor in predictors.items():
    for name in names:
        predictor.set_image(photographs.image(name))
        attention[label][name] = predictor.cls_attention()

table = {}  # scores [images] by weights and row
for label, maps_of in attention.items():
    for name, truth in truths.items():
        masks = head_masks(maps_of[name], truth.shape)
        (mean_map,) = head_masks(maps_of[name].mean(axis=0)[None], truth.shape)
        by_head = [jaccard(mask, truth) for mask in masks]
        rows = {
            "best head": max(by_head),
            "central head": by_head[central_head(masks)],
            "mean of the heads": jaccard(mean_map, truth),
            "head 0": by_head[0],
        }
        for row, score in rows.items():
            table.setdefault((label, row), []).append(score)
table["no network", "centered box"] = [jaccard(centered_box(truth.shape), truth) for truth in truths.values()]
print("Jaccard similarity, mean of 30 images ± standard error")
for (label, row), scores in table.items():
    print(f"  {label:<15} {row:<18} {np.mean(scores):.2f} ± {np.std(scores) / np.sqrt(len(scores)):.2f}")
for label, maps_of in attention.items():
    lifts = [lift(maps_of[name], truth) for name, truth in truths.items()]
    print(f"  lift, {label}: {np.mean(lifts):.2f}")

# %%
rows = list(dict.fromkeys(row for _, row in table))
with drawing.plot(
    caption="Trained attention is above random weights in three of four rows, and no row is above the centered box.",
    alt="Points with error bars: trained best head and centered box near 0.41, random weights between 0.11 and 0.24.",
) as axis:
    for label, shift in {"trained": -0.1, "random weights": 0.1, "no network": 0}.items():
        points = [(rows.index(row) + shift, scores) for (of, row), scores in table.items() if of == label]
        places, values = zip(*points, strict=True)
        errors = [np.std(scores) / np.sqrt(len(scores)) for scores in values]
        axis.errorbar(places, np.mean(values, axis=1), errors, fmt="o", capsize=4, label=label)
    axis.set(xticks=range(len(rows)), xticklabels=rows, ylabel="Jaccard similarity", ylim=(0, 0.7))
    axis.legend()

# %% [markdown]
# Training adds much: the mean of the heads rises from **0.11** with random weights to **0.34**, and the object receives
# **1.92** times the attention of its area (the *lift*; random weights **0.99**). But the best head, selected with the
# ground truth, only equals the centered box (both **0.41**): these images show one object in the middle.
#
# ## Selecting with the ground truth
#
# The best head knows the answer: the ground truth selects it. The selection alone raises the score, even if no head carries
# any information.
#
# **Exercise 2.3 (code).** How much does the selection gain? Return the mean score of the best head minus the mean of head 0.


# %%
def best_head_gain(scores: np.ndarray) -> float:
    """Scores [images, heads] -> gain of selecting the best head of each image."""
    return ...


best_head_gain = check("2.3", best_head_gain)
generator = np.random.default_rng(0)
blobs = generator.random((200, 7, 4, 4)) > 0.5  # six heads without information and a ground truth per image
random_scores = np.array([[jaccard(head, sample[0]) for head in sample[1:]] for sample in blobs])
print(f"heads without information: mean {random_scores.mean():.2f}, gain {best_head_gain(random_scores):.2f}")

# %% [markdown]
# Selecting the best of six heads without information gains **0.16**. The gap between the best head and the central head of
# the trained model (**0.41** and **0.31**) therefore says little about the model: report the selection with every score.
#
# ## How much mass?
#
# **Prediction.** Which mass is best, for the trained model and for random weights?

# %%
masses = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
with drawing.plot(
    caption="The trained model needs a large mass to cover objects; random weights are best with few patches.",
    alt="The curve of the trained model rises from 0.17 to 0.45; that of random weights falls from 0.33 to 0.20.",
) as axis:
    for label, maps_of in attention.items():
        curve = [
            np.mean(
                [max(jaccard(m, t) for m in head_masks(maps_of[n], t.shape, mass)) for n, t in truths.items()]
            )
            for mass in masses
        ]
        axis.plot(masses, curve, marker="o", label=f"best head, {label}")
        print(f"{label}:", *(f"{score:.2f}" for score in curve))
    axis.axhline(
        np.mean(table["no network", "centered box"]), color="black", linewidth=1, label="centered box"
    )
    axis.set(xlabel="mass that the mask keeps", ylabel="Jaccard similarity", ylim=(0, 0.7))
    axis.legend()

# %% [markdown]
# At a mass of 0.2 random weights score higher (**0.33** against **0.17**): uniform maps keep many scattered patches, trained
# maps only a few on the object. At 0.9 the trained model reaches **0.45**, above the box (**0.41**).
#
# **Exercise (break).** Move the object: flip the 30 images and paste each next to a gray image of the same size. What
# happens to the box, and to the attention?
#
# **Exercise (argue).** The mass is the same for small and large objects. Which property of the map itself could set it?
#
# **Summary.**
# - A mask keeps the patches that hold a share of the attention; the Jaccard similarity compares it with the object.
# - Trained attention beats random weights clearly; a box in the center is the baseline that is hard to beat.
# - A score of the best head is an upper bound, because the ground truth selects the head.
#
# **References.** Caron et al. 2021, section 4.2.2 and figure 4; the options of the metric are in the
# [protocols](../docs/protocols.md).
