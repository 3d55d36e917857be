# %% [markdown]
# # 2 · Does attention find objects?
#
# **Question.** Is an attention map a better mask of the object than controls that ignore the image?
#
# The weights are those of `embedded-dino`: DINO, with terms of SimDINO in its last phases.
#
# You need lesson 1. You write the function for the mask and the metric. Then your functions score 30 images; the true
# outline of each object was drawn by hand.

# %%
import numpy as np

from app.notebook import show
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.quantities import lift
from notebooks import drawing
from notebooks.checks import check
from notebooks.scores import mean_error, plus_minus
from segmentation.masks import central_head, enlarge
from segmentation.voc_eval import centered_box

# %% [markdown]
# ## From a map to a mask
#
# The values of a map depend on the number of patches, so one fixed threshold does not suit all maps. The paper keeps the
# smallest set of patches whose attention adds up to at least 60 % of a map. This share is the *mass*.
#
# **Exercise 2.1 (code).** Compute the mask. Sort the patches from the largest value on, and add up their shares of the map.
# Keep all patches up to the patch with which the sum reaches the mass.


# %%
def keep_mass(attention: np.ndarray, mass: float) -> np.ndarray:
    """Map [rows, columns], mass from 0 to 1 -> kept patches, bool [rows, columns]."""
    return ...


keep_mass = check("2.1", keep_mass)

# %% [markdown]
# ## The metric
#
# Count the pixels that are in both masks, and the pixels that are in at least one mask. The first number divided by the second
# number is the *Jaccard similarity*. Equal masks have a similarity of 1, masks without a common pixel a similarity of 0.
# Another name is *intersection over union*.
#
# **Exercise 2.2 (code).** Compute the Jaccard similarity of two masks.


# %%
def jaccard(mask: np.ndarray, truth: np.ndarray) -> float:
    """Boolean masks [height, width] -> similarity from 0 to 1."""
    return ...


jaccard = check("2.2", jaccard)

# %% [markdown]
# **Prediction.** Look at the maps of lesson 1. Which attention head has the best mask of the sheep? Estimate the Jaccard
# similarity of this mask, and of a box in the center of the image.

# %%
predictors = {
    "trained": AttentionPredictor("embedded-dino", size=224, precision="fp32"),
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
print(
    "heads:",
    *(f"{score:.2f}" for score in scores),
    f"| centered box: {jaccard(box, truth):.2f}",
)
drawing.images(
    [drawing.masked(image, mask) for mask in (truth, *masks, box)],
    [
        "drawn by hand",
        *(f"head {i}: {score:.2f}" for i, score in enumerate(scores)),
        f"box: {jaccard(box, truth):.2f}",
    ],
    figure="2.1",
)

# %% [markdown]
# The best head reaches **0.57**. The centered box reaches **0.64**, because the sheep is in the middle of the image. Two heads
# attend to the background and reach **0.00**, so the score depends strongly on the selected head.
#
# The next cell shows the masks in the view of the app, with fewer patches. Select a head below the image. Point at a patch to see
# the mask of its own attention: patches of the sheep and of the meadow have different masks.

# %%
show(image, "embedded-dino", size=112, layer="mask", mass=60)

# %% [markdown]
# ## Thirty images
#
# One image is not enough evidence. The next cell scores 30 images in five ways; the *ground truth* is the mask drawn by
# hand:
#
# - *best head*: the head with the highest score on each image, selected with the ground truth,
# - *central head*: the head whose mask is nearest to the center of the image, selected without the ground truth,
# - *mean of the heads*: the mask of the average of all maps,
# - *head 0*: the first head for all images,
# - *centered box*: a box in the middle, without any network.
#
# **Prediction.** Order the five scores of the trained weights before you run the cell.

# %%
names = photographs.names()
truths = {name: photographs.mask(name) for name in names}
# maps [heads, rows, columns] by weights and image
attention = {label: {} for label in predictors}
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
table["no network", "centered box"] = [
    jaccard(centered_box(truth.shape), truth) for truth in truths.values()
]
print("Jaccard similarity, mean of 30 images ± standard error")
for (label, row), scores in table.items():
    print(f"  {label:<15} {row:<18} {plus_minus(scores)}")
for label, maps_of in attention.items():
    lifts = [lift(maps_of[name], truth) for name, truth in truths.items()]
    print(f"  lift, {label}: {np.mean(lifts):.2f}")

# %%
rows = list(dict.fromkeys(row for _, row in table))
with drawing.plot(figure="2.2") as axis:
    for label, shift in {"trained": -0.1, "random weights": 0.1, "no network": 0}.items():
        of = {row: scores for (weights, row), scores in table.items() if weights == label}
        places = [rows.index(row) + shift for row in of]
        means, errors = mean_error(np.transpose([*of.values()]))
        axis.errorbar(places, means, errors, fmt="o", capsize=4, label=label)
    axis.set(
        xticks=range(len(rows)), xticklabels=rows, ylabel="Jaccard similarity", ylim=(0, 0.7)
    )
    axis.legend()

# %% [markdown]
# The mean of the heads reaches **0.11** with random weights and **0.34** with trained weights. The *lift* is the object's share
# of the attention divided by its share of the area: **0.99** with random weights, **1.92** with trained weights. The best head
# and the centered box both reach **0.41**, because each image shows one object in the middle. The difference between them is far
# below the standard error of 0.03: the scores do not separate them.
#
# ## Selecting with the ground truth
#
# The ground truth selects the best head of each image. This selection raises the score even if the maps of all heads are
# random.
#
# **Exercise 2.3 (code).** Compute the gain of the selection: the mean score of each image's best head, minus the mean score
# of head 0.
#
# **Prediction.** The next cell scores six random masks per image. How large is the gain?


# %%
def best_head_gain(scores: np.ndarray) -> float:
    """Scores [images, heads] -> gain of selecting the best head of each image, one number."""
    return ...


best_head_gain = check("2.3", best_head_gain)
generator = np.random.default_rng(0)
# per image: a ground truth and six heads
random_masks = generator.random((200, 7, 4, 4)) > 0.5
random_scores = np.array(
    [[jaccard(head, sample[0]) for head in sample[1:]] for sample in random_masks]
)
gain = best_head_gain(random_scores)
print(f"six random masks: mean {random_scores.mean():.2f}, gain {gain:.2f}")

# %% [markdown]
# Selecting the best of six random masks gains **0.16**. With trained weights, the best head reaches 0.41 and the central
# head 0.31: a difference of this size can come from the selection alone. Report the selection with every score.
#
# ## Effect of the mass
#
# **Prediction.** Which mass gives the best masks with trained weights, and which with random weights?

# %%
masses = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
with drawing.plot(figure="2.3") as axis:
    for label, maps_of in attention.items():
        curve = [
            np.mean(
                [
                    max(jaccard(m, t) for m in head_masks(maps_of[n], t.shape, mass))
                    for n, t in truths.items()
                ]
            )
            for mass in masses
        ]
        axis.plot(masses, curve, marker="o", label=f"best head, {label}")
        print(f"{label}:", *(f"{score:.2f}" for score in curve))
    axis.axhline(
        np.mean(table["no network", "centered box"]),
        color="black",
        linewidth=1,
        label="centered box",
    )
    axis.set(
        xlabel="mass (share of the attention)", ylabel="Jaccard similarity", ylim=(0, 0.7)
    )
    axis.legend()

# %% [markdown]
# At a mass of 0.2, random weights score **0.33** and trained weights **0.17**: a map that is almost uniform needs more patches to
# hold the mass, so its mask is larger. At a mass of 0.9, trained weights reach **0.45** and the box **0.41**. The standard error is
# 0.03, and the mass was chosen on the same 30 images. The difference is no evidence that attention is better than the box. The
# next section finds a test that separates them.
#
# ## Objects away from the center
#
# The box wins its points by position, not by content. A fair test moves the objects: the next cell puts a gray image of the
# same size to the left of each image, so that the center of the wide image shows no object. It also adds a third network,
# `embedded`. It has the architecture of the trained network and was trained to reproduce a larger network, DINOv2.
#
# **Prediction.** The best head and the box had equal scores. Order box, trained weights, `embedded` and random weights now.

# %%
predictors["embedded"] = AttentionPredictor("embedded", size=224, precision="fp32")


def widen(image: np.ndarray, value: int) -> np.ndarray:
    """Put a part of the same size and of one value to the left of an image or a mask."""
    return np.concatenate([np.full_like(image, value), image], axis=1)


def best_score(label: str, photo: np.ndarray, truth: np.ndarray) -> float:
    """Jaccard similarity of the centered box, or of the best head of a network."""
    if label == "centered box":
        return jaccard(centered_box(truth.shape), truth)
    predictors[label].set_image(photo)
    masks = head_masks(predictors[label].cls_attention(), truth.shape)
    return max(jaccard(mask, truth) for mask in masks)


moved = {}  # scores [images] in the middle and on the right, by label
for label in ("centered box", *predictors):
    pairs = [(photographs.image(name), truth) for name, truth in truths.items()]
    wide = [(widen(photo, 128), widen(truth, False)) for photo, truth in pairs]
    moved[label] = [[best_score(label, *pair) for pair in part] for part in (pairs, wide)]
for label, (before, after) in moved.items():
    print(f"{label}: {plus_minus(before)} in the middle, {plus_minus(after)} on the right")
for label in ("trained", "embedded"):
    differences = np.subtract(moved[label][1], moved["centered box"][1])
    print(f"{label} minus box, on the right: {plus_minus(differences)}")

# %%
with drawing.plot(figure="2.4") as axis:
    for label, scores in moved.items():
        means, errors = mean_error(np.transpose(scores))
        axis.errorbar([0, 1], means, errors, marker="o", capsize=4, label=label)
    axis.set(
        xticks=[0, 1],
        xticklabels=["object in the middle", "object on the right"],
        xlim=(-0.3, 1.8),
        ylabel="Jaccard similarity of the best head",
        ylim=(0, 0.8),
    )
    axis.legend()

# %% [markdown]
# The box falls from **0.41** to **0.12**: its score came from the position of the objects. The trained attention keeps **0.34** and
# is now better than the box by **0.22** ± **0.02**. `embedded` keeps **0.64**. The tie in the middle was a property of the images,
# not of attention.
#
# **Exercise (break).** Put the gray image to the right or above, or replace it with another image without an object, such as
# `photographs.image("canyon")`. Which of the four scores changes?
#
# **Exercise (argue).** The mass is the same for small and large objects. Which property of the map could set the mass?
#
# **Summary.**
# - A mask keeps the patches that hold a share of the attention; the Jaccard similarity compares it with the object.
# - A centered box equals trained attention on centered objects and loses clearly if the objects are moved.
# - The score of the best head is an upper bound, because the ground truth selects the head.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# section 4.2.2 and figure 4; the options of the metric are in the [protocols](../docs/protocols.md).
