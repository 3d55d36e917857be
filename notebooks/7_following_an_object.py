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

root = next(
    (folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()), None
)
if root is None:
    raise RuntimeError(f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`")
sys.path.insert(0, str(root))

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
from segmentation.metrics import contour, contour_radius
from segmentation.propagation import DINO, Propagator, grid_labels, hard_labels
from segmentation.render import overlay_masks
from segmentation.scoring import score_frames

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
    sequence = sorted((folder / "Annotations" / "480p").iterdir())[0].name
    names = [file.stem for file in sorted((folder / "Annotations" / "480p" / sequence).iterdir())][::3][
        :FRAMES
    ]
    frames, masks = [], []
    for name in names:
        frame = images.read(folder / "JPEGImages" / "480p" / sequence / f"{name}.jpg")
        mask = cv2.imread(
            str(folder / "Annotations" / "480p" / sequence / f"{name}.png"), cv2.IMREAD_GRAYSCALE
        )
        frames.append(cv2.resize(frame, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA))
        masks.append(
            (cv2.resize(mask, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST) > 0).astype(np.uint8)
        )
    return frames, masks


davis = data("DAVIS2016")
frames, masks = recorded(davis) if davis else rendered()
drawing.pictures(
    [overlay_masks(frame, mask > 0) for frame, mask in list(zip(frames, masks, strict=True))[::3]],
    [f"frame {number}" for number in range(0, len(frames), 3)],
    alt="Four frames of a clip with the true outline of the object that moves through it.",
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
    labels = grid_labels(masks[0], [1], fed, predictor.patch_size, preset)
    propagator = Propagator(features[0], labels, preset)
    followed = [masks[0]]
    for one in features[1:]:
        winner = hard_labels(propagator.step(one), predictor.patch_size, preset)
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


# %%
def outlines(frame: np.ndarray, ours: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Our outline in orange, the true one in blue; thick, so that both can be seen."""
    drawn = frame.copy()
    for mask, color in ((true, (0, 114, 178)), (ours, (230, 159, 0))):
        thick = cv2.dilate(contour(mask > 0).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        drawn[thick] = color
    return drawn


last = len(frames) - 2
drawing.pictures(
    [outlines(frames[at], followed[at], masks[at]) for at in (1, last // 2, last)],
    [f"frame {at}" for at in (1, last // 2, last)],
    alt="Three frames with the true outline in blue and the propagated one in orange, drifting apart over time.",
    columns=3,
)
print("near means within", contour_radius(HEIGHT, WIDTH), "pixels here")

# %% [markdown]
# ## What the settings do
#
# Move the sliders. The figures were computed beforehand.


# %%
def sheet(followed: list[np.ndarray], at: tuple[int, ...] = (2, 5, 8, 10)) -> drawing.Figure:
    """Some frames with what was followed, and both scores."""
    titles = [in_words(followed), *(f"frame {number}" for number in at[1:])]
    return drawing.grid(
        [outlines(frames[number], followed[number], masks[number]) for number in at], titles, columns=4
    )


drawing.slider(
    {str(radius): sheet(follow(radius=radius)) for radius in (1, 3, 6, 12, 24)},
    "window, patches in every direction",
    "Four frames with the true and the propagated outline for one window.",
)

# %%
drawing.slider(
    {str(topk): sheet(follow(topk=topk)) for topk in (1, 5, 20, 100)},
    "neighbours",
    "Four frames with the true and the propagated outline for one number of neighbours.",
)

# %%
drawing.slider(
    {str(temperature): sheet(follow(temperature=temperature)) for temperature in (0.01, 0.1, 1.0)},
    "temperature",
    "Four frames with the true and the propagated outline for one temperature.",
)

# %% [markdown]
# ---
# **In the paper**: section 4.2.2 and table 5 (DAVIS 2017); the protocol is Jabri et al. 2020's.
#
# **An open question.** A label can only come from what was seen. What should a patch do that shows something new?
