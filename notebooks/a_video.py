# %% [markdown]
# # A · Video
#
# **Question.** Can the similarity of patches propagate the mask of an object from the first frame through a video?
#
# You need lesson 2 and cosines of vectors. No network is trained for this task. The features come from DINO, and the method is
# *label propagation* with nearest neighbors (Jabri et al. 2020).

# %%
import dataclasses
import itertools

import cv2
import numpy as np
import torch

from dino_model import AttentionPredictor
from notebooks import drawing
from notebooks.checks import check
from segmentation import example_clips
from segmentation.davis_eval import score_frames
from segmentation.metrics import contour, contour_accuracy, contour_radius, jaccard
from segmentation.propagation import DINO, Propagator, grid_labels, hard_labels

# %% [markdown]
# ## A clip with true masks
#
# A shepherd dog moves to the right in front of a cliff and becomes larger, while the camera moves. Its fur has the colors of the
# rocks. The program that draws the clip also returns the true mask of each frame.

# %%
CLIP = "shepherd"
frames, masks = example_clips.draw_frames(CLIP), example_clips.draw_masks(CLIP)
HEIGHT, WIDTH = example_clips.SIZE
SHOWN = (0, 9, 19, 29)
drawing.images(
    [drawing.masked(frames[at], masks[at] > 0) for at in SHOWN],
    [f"frame {at}" for at in SHOWN],
    figure="A.1",
)

# %% [markdown]
# ## One patch
#
# The label of a patch is a vector: one share for each object, and one for the background. For a patch of a new frame, label
# propagation has three steps:
#
# 1. Compute the cosine of the patch's feature and the features of patches in earlier frames.
# 2. Select the $k$ patches with the largest cosine.
# 3. Average the labels of these $k$ patches with the weights $\mathrm{softmax}(\cos / \tau)$ over the $k$ patches.
#
# **Exercise A.1 (code).** Write steps 2 and 3 for one patch.


# %%
def propagate_label(
    cosines: np.ndarray, labels: np.ndarray, k: int, temperature: float
) -> np.ndarray:
    """Cosines [patches], labels [patches, objects] -> label of the new patch [objects]."""
    return ...


propagate_label = check("A.1", propagate_label)

# %% [markdown]
# **Exercise A.2 (check).** In the paper, a patch is compared with patches of eight frames: the first and the seven previous
# frames. In each frame, the patches are in a *window*: at most 12 patches away in each direction. With how many patches is a
# patch in the middle of a large frame compared?

# %%
candidates = check("A.2", ...)

# %% [markdown]
# ## The whole clip
#
# `your_masks` propagates the labels with your function. It uses the previous frame only and no window. `library_masks` uses
# eight frames and a window (unfold the next cell to read both). The controls are random weights and a copy of the first mask in
# all frames.
#
# **Prediction.** J is the Jaccard similarity of the object, averaged over frames. F is the accuracy of the outline, defined in
# the next section. Order the J of the four methods before you run the cell.

# %% tags=["hide-input"]
features = {}  # per frame: patch features of unit length [rows, columns, width]
for label, model in {"trained": "embedded", "random weights": "random:embedded"}.items():
    predictor = AttentionPredictor(model, size=HEIGHT, resize="davis", precision="fp32")
    with torch.no_grad():
        features[label] = [predictor.features([frame])[0].cpu() for frame in frames]
PATCH = predictor.patch_size
# padded to whole patches
fed = tuple(side * PATCH for side in features["trained"][0].shape[:2])


def your_masks() -> list[np.ndarray]:
    """Masks of all frames from `propagate_label`, each from the frame before."""
    vectors = [
        torch.nn.functional.normalize(f.flatten(0, 1), dim=1).numpy()
        for f in features["trained"]
    ]
    labels = grid_labels(masks[0], [1], fed, PATCH).flatten(1).T.numpy()  # [patches, 2]
    followed = [masks[0]]
    for before, now in itertools.pairwise(vectors):
        labels = np.stack(
            [propagate_label(row, labels, k=5, temperature=0.1) for row in now @ before.T]
        )
        winner = (
            labels.argmax(axis=1).reshape(features["trained"][0].shape[:2]).astype(np.uint8)
        )
        followed.append(cv2.resize(winner, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST))
    return followed


def library_masks(label: str = "trained", **settings: object) -> list[np.ndarray]:
    """Masks of all frames from the library, with DINO's preset except for `settings`."""
    preset = dataclasses.replace(DINO, **settings)
    propagator = Propagator(features[label][0], grid_labels(masks[0], [1], fed, PATCH), preset)
    followed = [masks[0]]
    for feature in features[label][1:]:
        winner = hard_labels(propagator.step(feature), PATCH)
        followed.append(cv2.resize(winner, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST))
    return followed


def score(followed: list[np.ndarray]) -> str:
    """Mean J and F over all frames except the first and the last, as in the DAVIS protocol."""
    j, f = score_frames(list(zip(followed, masks, strict=True))[1:-1], [1])
    return f"J {j.mean():.2f}, F {f.mean():.2f}"


# %%
followed, by_random = library_masks(), library_masks("random weights")
print("library, trained:", score(followed))
print("library, random weights:", score(by_random))
print("your function, trained:", score(your_masks()))
print("first mask copied:", score([masks[0]] * len(frames)))
last = len(frames) - 2
outlined = {"trained": followed, "random weights": by_random}
drawing.images(
    [
        drawing.draw_outlines(frames[at], masks[at] > 0, of[at] > 0)
        for of in outlined.values()
        for at in (1, last // 2, last)
    ],
    [f"{label}, frame {at}" for label in outlined for at in (1, last // 2, last)],
    figure="A.2",
    columns=3,
)

# %% [markdown]
# With trained features, the library reaches J **0.83** and your function, with one previous frame, J **0.70**. The copied first
# mask reaches J **0.20**. Random weights reach only J **0.38**: they compare colors, so the mask keeps the dark fur and loses the
# brown legs. The trained features separate the dog from rocks of the same color.
#
# ## The accuracy of the outline
#
# J compares areas, F compares outlines. *Precision* $P$ is the share of the predicted outline that is near the true outline.
# *Recall* $R$ is the share of the true outline that is near the predicted outline. F is $2PR / (P + R)$. "Near" means within
# 0.8 % of the diagonal of the frame.
#
# **Prediction.** The outline of the trained weights in the last figure is on the true outline almost everywhere. Estimate J
# and F of its last frame.

# %%
true, found = masks[last] > 0, followed[last] > 0
radius = contour_radius(HEIGHT, WIDTH)


def near(mask: np.ndarray) -> np.ndarray:
    """Pixels within the radius of the outline of a mask: bool [height, width]."""
    distance = cv2.distanceTransform(
        (~contour(mask)).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE
    )
    return distance <= radius


precision, recall = near(true)[contour(found)].mean(), near(found)[contour(true)].mean()
f = 2 * precision * recall / (precision + recall)
assert np.isclose(f, contour_accuracy(found, true))
print(
    f"frame {last}: J {jaccard(found, true):.2f}, F {f:.2f}",
    f"(precision {precision:.2f}, recall {recall:.2f})",
)

# %% [markdown]
# In frame 28 the areas agree better (J **0.84**) than the outlines (F **0.74**). An error in a thin part, such as an ear, changes F
# more than J, because a thin part has little area.
#
# ## Effect of the settings
#
# **Prediction.** Does a larger window raise or lower J? Does a larger number of neighbors $k$ raise or lower F? Write down both
# answers, then move the sliders.

# %%
for setting, values, name, figure in (
    ("radius", (1, 3, 6, 12, 24), "window, patches in each direction", "A.3"),
    ("topk", (1, 5, 20, 100), "number of neighbors k", "A.4"),
):
    figures = {}
    for value in values:
        result = library_masks(**{setting: value})
        views = [
            drawing.draw_outlines(frames[at], masks[at] > 0, result[at] > 0)
            for at in SHOWN[1:]
        ]
        figures[f"{value}: {score(result)}"] = drawing.grid(
            views, [f"frame {at}" for at in SHOWN[1:]]
        )
        print(f"{name} {value}: {score(result)}")
    drawing.slider(figures, name, figure)

# %% [markdown]
# With a window of one patch, J is only **0.61**: the dog and the camera move farther than one patch in some frames. Larger windows
# give almost the same J. F is **0.69** with 1 neighbor, **0.77** with 5 neighbors and **0.72** with 100 neighbors, which include
# patches of the rocks.
#
# **Exercise (break).** Keep only every sixth frame, so that the dog moves farther from frame to frame:
# `features = {label: of[::6] for label, of in features.items()}`, and `masks` and `frames` in the same way. Which setting decides
# whether the dog is found again?
#
# **Exercise (argue).** The label of a patch always comes from earlier frames. Which label should a patch get if it shows an
# object for the first time?
#
# **Summary.**
# - The mask of the first frame is propagated to later frames by the similarity of patch features.
# - Nothing is trained for the task: trained features reach J 0.83, random weights 0.38, a copied mask 0.20.
# - J compares areas, F compares outlines: thin parts lower F first.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# section 4.2.2 and table 5; Jabri et al. 2020,
# [Space-Time Correspondence as a Contrastive Random Walk](https://arxiv.org/abs/2006.14613).
