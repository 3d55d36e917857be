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
# # 2 · From attention to a mask
#
# **You will be able to** turn a head's attention map into a mask by keeping a share of its mass; score a mask with the
# Jaccard similarity; and say what a published Jaccard figure depends on, and by how much.
#
# **You need** lesson 1.

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
import itertools

import cv2
import numpy as np

from dino_model import images, photographs
from dino_model.predictor import AttentionPredictor
from notebooks import drawing
from notebooks.checks import check, random_heads
from notebooks.start import data
from segmentation import datasets, voc_eval
from segmentation.labels import VOID
from segmentation.masks import best_head, central_head, enlarge, keep_mass_of_maps
from segmentation.metrics import jaccard

# %% [markdown]
# ## Keep 60 % of the mass
#
# An attention map has no natural threshold: its values depend on how many patches there are. The paper keeps, of each
# head, the smallest set of patches that together hold 60 % of its attention. By hand, for one head:

# %%
name = "sheep"
photo, truth = photographs.picture(name), photographs.mask(name)
predictor = AttentionPredictor(size=224, precision="fp32")
predictor.set_image(photo)
maps = predictor.cls_attention()  # [heads, rows, columns]

one = maps[0].ravel() / maps[0].sum()  # shares of the patches
strongest_first = np.argsort(one)[::-1]
reached = np.cumsum(one[strongest_first])
count = int(np.argmax(reached >= 0.6)) + 1  # the patch that crosses the threshold is kept
by_hand = np.zeros(one.size, bool)
by_hand[strongest_first[:count]] = True
print(f"{count} of {one.size} patches hold {reached[count - 1]:.1%} of head 0's attention to patches")

# %%
kept = keep_mass_of_maps(maps, mass=0.6)  # bool [heads, rows, columns], the same for every head
assert (kept[0] == by_hand.reshape(maps.shape[1:])).all()
with drawing.plot(
    "Attention gathered by the strongest patches: steep at first, then flat; 60 % is marked."
) as axes:
    axes.plot(np.arange(1, one.size + 1) / one.size, reached)
    axes.axhline(0.6, color="black", linestyle=":", linewidth=1)
    axes.axvline(count / one.size, color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="share of the patches, strongest first", ylabel="share of the attention")

# %% [markdown]
# **Exercise 2.1.** Write it as a function of any map and any mass.


# %%
def keep_mass(attention: np.ndarray, mass: float) -> np.ndarray:
    """A non-negative map [rows, columns] -> the kept patches, bool [rows, columns]."""
    return ...


check("2.1", keep_mass)

# %% [markdown]
# ## Does the mask lie on the object?
#
# The Jaccard similarity of two masks is the area they share, divided by the area that either covers: 1 where they are
# equal, 0 where they do not touch. It is symmetric, and punishes too much as it punishes too little.

# %%
masks = enlarge(kept, truth.shape)  # [heads, height, width], nearest patch
scores = jaccard(masks, truth[None])
shared, either = (masks[0] & truth).sum(), (masks[0] | truth).sum()
assert np.isclose(scores[0], shared / either)
drawing.pictures(
    [drawing.masked(photo, mask) for mask in (truth, *masks)],
    ["drawn by hand", *(f"head {head}: {score:.2f}" for head, score in enumerate(scores))],
    alt="The photograph with all but the object in the dark, then with all but each head's mask, and its Jaccard.",
    columns=4,
)

# %% [markdown]
# **Exercise 2.2.** An object is a square of 10 × 10 pixels, a mask the same square moved right by 5. What is their
# Jaccard similarity?

# %%
similarity = ...
check("2.2", similarity)

# %% [markdown]
# ## Why the best head flatters
#
# The paper reports the *best* head: for every object, the one that agrees best with the ground truth, which the network
# never saw but the chooser did. Choosing afterwards gains even from noise.
#
# **Exercise 2.3.** `random_heads` are six masks that know nothing, for each of 200 pictures, with a ground truth for
# each. How much higher is the mean Jaccard of the best head than that of head 0?

# %%
heads, truths = random_heads()  # bool [pictures, heads, rows, columns] and [pictures, rows, columns]
gain = ...
check("2.3", gain)

# %% [markdown]
# On real photographs, beside a choice that needs no ground truth (the head whose mask lies nearest the middle), the
# union of all heads, and a box in the middle that has not looked at all:

# %%
names = photographs.names()[:12]


def scored(name: str) -> dict[str, float]:
    """Jaccard of the ways to choose, on one photograph."""
    photo, truth = photographs.picture(name), photographs.mask(name)
    predictor.set_image(photo)
    masks = enlarge(keep_mass_of_maps(predictor.cls_attention()), truth.shape)
    return {
        "best head": best_head(masks, truth)[1],
        "central head": float(jaccard(masks[central_head(masks)], truth)),
        "all heads": float(jaccard(masks.any(axis=0), truth)),
        "centred box": float(jaccard(voc_eval.centered_box(truth.shape), truth)),
    }


table = [scored(name) for name in names]
means = {way: np.mean([row[way] for row in table]) for way in table[0]}
print(f"mean Jaccard of {len(names)} photographs")
for way, mean in means.items():
    print(f"  {way:<13} {mean:.3f}")

# %% [markdown]
# ## What else the figure depends on
#
# The paper leaves a protocol open: what a mask is compared with (each class in the picture, each object, or all of them as
# one), whether the band around an object, *void*, counts as ground or not at all, and the size at which the network looked.
# Where pictures laid out as VOC lie at hand, a dozen of them; without them the photographs, with a band drawn here around
# the one object of each: then its class, the object and all of them are one.


# %%
def annotated() -> list[tuple[np.ndarray, datasets.Annotation]]:
    """A dozen pictures [height, width, 3], each with its classes and objects [height, width]: 0 is ground, 255 void."""
    root = data("VOCdevkit")
    if root:
        samples = datasets.list_voc_samples(root)
        spread = samples[:: max(1, len(samples) // 12)][:12]
        read = [(sample, images.read(sample.picture)) for sample in spread]
        return [
            (picture, datasets.read_voc_annotation(sample, picture.shape[:2])) for sample, picture in read
        ]
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (7, 7))
    found = []
    for name in names:
        object_ = photographs.mask(name).astype(np.uint8)
        labels = np.where(cv2.morphologyEx(object_, cv2.MORPH_GRADIENT, disk), np.uint8(VOID), object_)
        found.append((photographs.picture(name), datasets.Annotation(labels, labels)))
    return found


dozen = annotated()
attention = {}  # by size, [heads, rows, columns] of each picture
for size in (112, 224, 336):
    looking = AttentionPredictor(size=size, resize="squash")
    attention[size] = []
    for picture, _ in dozen:
        looking.set_image(picture)
        attention[size].append(looking.cls_attention())


def figure(**settings: object) -> float:
    """The mean Jaccard of the dozen in percent, by the project's protocol but for `settings`."""
    protocol = dataclasses.replace(voc_eval.VocProtocol(size=224), **settings)
    seen = zip(attention[protocol.size], dozen, strict=True)
    return voc_eval.mean_jaccard(
        voc_eval.score_attention("", maps, truth, protocol) for maps, (_, truth) in seen
    )


print("Jaccard of the best head in percent, 224 pixels")
for mass, kind, void in itertools.product(
    (0.6, 0.8), ("class", "object", "foreground"), ("union", "exclude")
):
    print(f"  mass {mass}, {kind:<10} void {void:<8} {figure(mass=mass, ground_truth=kind, void=void):.1f}")

# %%
masses = (0.4, 0.5, 0.6, 0.7, 0.8)
with drawing.plot(
    "Jaccard of the best head by the mass kept, and by the picture's size; with void left out it is higher.",
    columns=2,
) as (left, right):
    for void, words in {"union": "void is ground", "exclude": "void left out"}.items():
        left.plot(masses, [figure(mass=mass, void=void) for mass in masses], marker="o", label=words)
        right.plot(list(attention), [figure(size=size, void=void) for size in attention], marker="o")
    left.set(xlabel="mass kept", ylabel="Jaccard, best head (%)")
    left.legend()
    right.set(xlabel="both sides in pixels")
    right.sharey(left)

# %% [markdown]
# A Jaccard without its protocol says little: `python -m segmentation voc --grid` prints the same grid for all pictures.
#
# ---
# **In the paper**: figure 4 and section 4.2.2 ("Probing the self-attention map"), with 60 % of the mass; the appendix
# shows 80 % with the same figures.
#
# **An open question.** The mass kept is the same for a small and for a large object. What in the map itself could tell
# how much to keep?
