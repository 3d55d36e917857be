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
# # 7 · Following an object through a video
#
# **You will be able to** carry the label of a first frame through a clip by nearest neighbours of patch features; say
# what window, number of neighbours and temperature do; and score the result with J and F.
#
# **You need** lesson 2, and cosines of vectors.

# %%
import sys
from pathlib import Path

above = [folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()]
assert above, f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`"
sys.path.insert(0, str(above[0]))

from notebooks.start import ready

ready()

# %%
import dataclasses

import cv2
import numpy as np
import torch

from dino_model import images, photographs
from dino_model.predictor import AttentionPredictor
from notebooks import drawing
from notebooks.checks import check
from notebooks.start import data
from segmentation.datasets import open_davis
from segmentation.davis_eval import score_frames
from segmentation.labels import read_labels
from segmentation.masks import bounding_box
from segmentation.metrics import contour, contour_accuracy, contour_radius, jaccard
from segmentation.propagation import DINO, Propagator, grid_labels, hard_labels

FRAMES, HEIGHT, WIDTH = 12, 240, 426

# %% [markdown]
# ## A clip whose answer is known
#
# Where DAVIS lies at hand, twelve frames of one of its sequences. Without it, a clip made here: an object, cut out of one
# photograph, crosses another and grows. Its mask is known in every frame because we put it there.


# %%
def rendered() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Frames [height, width, 3] and masks [height, width] of an object that crosses a photograph."""
    ground = cv2.resize(photographs.picture("canyon"), (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    photo, cutout = photographs.picture("coffee"), photographs.mask("coffee").astype(np.float32)
    frames, masks = [], []
    for at in np.linspace(0, 1, FRAMES):
        scale = (0.45 + 0.25 * at) * HEIGHT / photo.shape[0]
        move = np.array([[scale, 0, 20 + 0.4 * at * WIDTH], [0, scale, 0.3 * HEIGHT - 30 * at]])
        covered = cv2.warpAffine(cutout, move, (WIDTH, HEIGHT), flags=cv2.INTER_AREA)
        moved = cv2.warpAffine(photo, move, (WIDTH, HEIGHT), flags=cv2.INTER_AREA)
        frames.append(np.rint(ground + covered[..., None] * (moved.astype(float) - ground)).astype(np.uint8))
        masks.append((covered > 0.5).astype(np.uint8))
    return frames, masks


def recorded(folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Every third frame of the first sequence of a DAVIS folder, and its masks, made small."""
    opened = open_davis(folder, binary=True)
    clip = opened.clip(opened.sequences[0])
    frames, masks = [], []
    for file in clip.frames[::3][:FRAMES]:
        mask = read_labels(opened.masks / clip.name / f"{file.stem}.png", binary=True)
        frames.append(cv2.resize(images.read(file), (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))
        masks.append(cv2.resize(mask, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST))
    return frames, masks


davis = data("DAVIS2016")
frames, masks = recorded(davis) if davis else rendered()
drawing.pictures(
    [drawing.masked(frame, mask > 0) for frame, mask in list(zip(frames, masks, strict=True))[::3]],
    [f"frame {number}" for number in range(0, len(frames), 3)],
    alt="Four frames of a clip; all but the object that moves through it is in the dark.",
    columns=4,
)

# %% [markdown]
# ## One patch takes the label of its likes
#
# Of a patch in the new frame: look at the patches around the same place in the frames before, take the *k* most alike,
# and average their labels, weighted by exp(cosine / temperature). Nothing is trained.
#
# **Exercise 7.1.** Write it for one patch.


# %%
def new_label(cosines: np.ndarray, labels: np.ndarray, k: int, temperature: float) -> np.ndarray:
    """Cosines [neighbours] and labels [neighbours, classes] -> the patch's label, shares of the classes [classes]."""
    return ...


check("7.1", new_label)

# %% [markdown]
# Which patches are looked at? With the paper's settings the first frame and the seven before, in each a square window of
# 12 patches in every direction.
#
# **Exercise 7.2.** How many patches does a patch in the middle of a large frame choose its neighbours from?

# %%
candidates = ...
check("7.2", candidates)

# %% [markdown]
# ## Through the clip

# %%
predictor = AttentionPredictor(size=HEIGHT, resize="davis")
with torch.no_grad():
    features = [
        predictor.features([frame])[0].cpu() for frame in frames
    ]  # each [rows, columns, D], once for all
fed = tuple(side * predictor.patch_size for side in features[0].shape[:2])


def follow(**settings: object) -> list[np.ndarray]:
    """The labels of every frame, with DINO's preset but for `settings`."""
    preset = dataclasses.replace(DINO, **settings)
    labels = grid_labels(masks[0], [1], fed, predictor.patch_size)
    propagator = Propagator(features[0], labels, preset)
    followed = [masks[0]]
    for one in features[1:]:
        winner = hard_labels(propagator.step(one), predictor.patch_size)
        followed.append(cv2.resize(winner, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST))
    return followed


def in_words(followed: list[np.ndarray]) -> str:
    """Means of J and F over all frames but the first and last, as DAVIS has it."""
    region, boundary = score_frames(list(zip(followed, masks, strict=True))[1:-1], [1])
    return f"J {region.mean():.3f}, F {boundary.mean():.3f}"


followed = follow()
print("followed:", in_words(followed))
print("left where it was:", in_words([masks[0]] * len(masks)))

# %% [markdown]
# ## J and F
#
# *J* is the Jaccard similarity of lesson 2. *F* looks at the outlines only: which share of our outline lies near the true
# one (precision), which share of the true one near ours (recall), and 2PR / (P + R) of both. Near means within 0.8 % of
# the frame's diagonal, rounded up to whole pixels.
#
# **Exercise 7.3.** How many pixels is that for DAVIS' frames of 854 × 480?

# %%
near = ...
check("7.3", near)

# %% [markdown]
# Both on a late frame, by hand and by the library. Left, J: bright is what both masks hold, half bright what only one
# does. Middle and right, F: a band lies along one outline, and the other outline should run within it.

# %%
last = len(frames) - 2
true, ours = masks[last] > 0, followed[last] > 0
radius = contour_radius(HEIGHT, WIDTH)


def close_to(mask: np.ndarray) -> np.ndarray:
    """Which pixels lie within the radius of a mask's outline: bool [height, width]."""
    away = cv2.distanceTransform((~contour(mask)).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return away <= radius


j = (true & ours).sum() / (true | ours).sum()
precision, recall = close_to(true)[contour(ours)].mean(), close_to(ours)[contour(true)].mean()
f = 2 * precision * recall / (precision + recall)
assert np.isclose(j, jaccard(ours, true))
assert np.isclose(f, contour_accuracy(ours, true))

left, top, right, bottom = bounding_box(true | ours)
view = np.s_[max(0, top - 20) : bottom + 20, max(0, left - 20) : right + 20]
along = [np.where(contour(line), 1, 0.4 * close_to(band)) for line, band in ((ours, true), (true, ours))]
drawing.pictures(
    [layer[view] for layer in ((true + ours.astype(float)) / 2, *along)],
    [f"J {j:.2f}", f"precision {precision:.2f}: our outline", f"recall {recall:.2f}: the true outline"],
    alt="The area of both masks, bright, and of one only, half bright; our outline over a band along the true one; the "
    "true one over a band along ours.",
    columns=3,
    value_range=(0, 1),
)
print(f"frame {last}: J {j:.3f}, F {f:.3f}; near means within {radius} pixels here")

# %% [markdown]
# The same on the photographs: the true outline is dark on white, ours bright and dashed.

# %%
drawing.pictures(
    [drawing.outlined(frames[at], masks[at] > 0, followed[at] > 0) for at in (1, last // 2, last)],
    [f"frame {at}" for at in (1, last // 2, last)],
    alt="Three frames, early, in the middle and late, with the true outline, solid, and the propagated one, dashed.",
    columns=3,
)

# %% [markdown]
# ## What the settings do
#
# Move the sliders. The figures were computed beforehand.


# %%
def compare(setting: str, values: tuple[float, ...], words: str) -> None:
    """A slider over values of one setting: some frames with what was followed, and both scores of the clip."""
    sheets, at = {}, (2, 6, 10)
    for value in values:
        followed = follow(**{setting: value})
        views = [drawing.outlined(frames[one], masks[one] > 0, followed[one] > 0) for one in at]
        sheets[f"{value} ({in_words(followed)})"] = drawing.grid(views, [f"frame {one}" for one in at])
    print(*(f"{words} {setting}" for setting in sheets), sep="\n")
    drawing.slider(
        sheets, words, "Three frames with the true outline, solid, and the propagated one, dashed."
    )


compare("radius", (1, 3, 6, 12, 24), "window, patches in every direction")

# %%
compare("topk", (1, 5, 20, 100), "neighbours")

# %%
compare("temperature", (0.01, 0.1, 1.0), "temperature")

# %% [markdown]
# ---
# **In the paper**: section 4.2.2 and table 5 (DAVIS 2017); the protocol is Jabri et al. 2020's.
#
# **An open question.** A label can only come from what was seen. What should a patch do that shows something new?
