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
# # 8 · Objects without any label
#
# **You will be able to** derive two ways to find an object from patch features alone (LOST and TokenCut), compute each
# in a few lines, and say where they fail and why.
#
# **You need** lesson 2, eigenvectors, and cosines of vectors.

# %%
import sys
from pathlib import Path

above = [folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()]
assert above, f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`"
sys.path.insert(0, str(above[0]))

from notebooks.start import ready

ready()

# %%
import numpy as np
import scipy.linalg
import scipy.stats

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from notebooks import drawing
from notebooks.checks import check
from segmentation.discovery import image_features, localized, lost, set_resized, tokencut
from segmentation.masks import bounding_box, components
from segmentation.metrics import jaccard
from segmentation.voc_eval import centered_box

# %% [markdown]
# ## What there is to work with
#
# The keys of the last block, all heads side by side: one vector for each patch. Two patches of one object tend to have
# keys that point the same way. No label, no training, no gradient follows from here on.

# %%
photo = photographs.picture("sheep")
predictor = AttentionPredictor(size=224, precision="fp32")
placement = set_resized(predictor, photo)
features = image_features(predictor)  # [rows, columns, D]
rows, columns, _ = features.shape
flat = features.reshape(rows * columns, -1)
similarity = flat @ flat.T  # [patches, patches]

# %% [markdown]
# ## LOST: the object is what is unlike the rest
#
# The ground is large and alike; an object is small. So count, for each patch, how many others its key has a positive
# product with. The patch with the fewest is the *seed*.

# %%
positive = (similarity > 0).sum(axis=1) - 1  # not with itself
seed = int(positive.argmin())
print(f"the seed is patch {divmod(seed, columns)}, alike to {positive[seed]} of {len(flat) - 1} others")

# %% [markdown]
# Of the 100 patches with the fewest likenesses, those that are like the seed join it. A patch belongs to the object if
# its products with all of them sum to more than zero, and it hangs together with the seed.

# %%
fewest = np.argsort(positive, kind="stable")[:100]
joined = fewest[similarity[fewest, seed] > 0]
alike = (similarity[:, joined].sum(axis=1) > 0).reshape(rows, columns)
pieces = components(alike)
by_hand = pieces == pieces[divmod(seed, columns)]

found = lost(features)
assert found.seed == divmod(seed, columns)
assert (found.mask == by_hand).all()
drawing.pictures(
    [photo, positive.reshape(rows, columns), alike, drawing.masked(photo, placement.mask(found.mask))],
    ["the picture", "patches alike", "like the joined", "LOST"],
    alt="The photograph; how many patches each is alike to, fewest on the object; the alike patches; the object found.",
    columns=4,
)

# %% [markdown]
# **Exercise 8.1.** Write the count, for features of any shape.


# %%
def positive_similarities(features: np.ndarray) -> np.ndarray:
    """Features [patches, D] -> with how many others each patch has a positive product: int [patches]."""
    return ...


check("8.1", positive_similarities)

# %% [markdown]
# ## TokenCut: cut the graph where it is thinnest
#
# Make every patch a node, join two with weight 1 where their cosine exceeds τ = 0.2, and with almost nothing (10⁻⁵)
# otherwise. The *normalised cut* looks for the division into A and B with the least
#
# $$\frac{w(A, B)}{w(A, V)} + \frac{w(A, B)}{w(B, V)}$$
#
# where *w* adds up the weights between two sets and *V* are all nodes. Dividing by w(A, V) keeps it from cutting off
# single patches. To find the best division exactly is hard; relaxed to real numbers it is the second smallest solution of
# (D − W) y = λ D y, with D the weights of each node added up.

# %%
unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
weights = np.where(unit @ unit.T > 0.2, 1.0, 1e-5)
degrees = np.diag(weights.sum(axis=1))
values, vectors = scipy.linalg.eigh(degrees - weights, degrees, subset_by_index=[0, 1])
second = vectors[:, 1]
print("the two smallest λ:", values.round(6))

# %%
found = tokencut(features)
sides = second > second.mean()
drawing.pictures(
    [
        photo,
        *(one.reshape(rows, columns) for one in (second, sides)),
        drawing.masked(photo, placement.mask(found.mask)),
    ],
    ["the picture", "second eigenvector", "above its mean", "TokenCut"],
    alt="The photograph; the second eigenvector on the patches; where it lies above its mean; the object found.",
    columns=4,
)
one_side = found.mask.ravel()
assert sides[one_side].all() or (~sides)[one_side].all()  # the object is part of one side of the cut

# %% [markdown]
# **Exercise 8.2.** Four patches: 0, 1 and 2 are all joined with one another, 3 is joined with 2 only; all weights are 1,
# and no patch is joined with itself. What is the normalised cut of {3} from the rest?

# %%
cut = ...
check("8.2", cut)

# %% [markdown]
# ## On twenty photographs
#
# Each with the object that a person outlined. *CorLoc* asks for less than the outline: does the box around what was
# found overlap the box around the object by at least half (intersection over union)?

# %%
names = photographs.names()[:20]
methods = {"LOST": lost, "TokenCut": tokencut}
table = {method: [] for method in methods}
views = {}
for name in names:
    photo, truth = photographs.picture(name), photographs.mask(name)
    placement = set_resized(predictor, photo)
    features = image_features(predictor)
    for method, find in methods.items():
        mask = find(features).mask
        in_pixels = placement.mask(mask)
        hit = localized(placement.box(mask), [bounding_box(truth)])
        table[method].append((float(jaccard(in_pixels, truth)), hit))
        views[name, method] = drawing.masked(photo, in_pixels)
    middle = centered_box(truth.shape)
    table.setdefault("centred box", []).append(
        (float(jaccard(middle, truth)), localized(bounding_box(middle), [bounding_box(truth)]))
    )
for method, results in table.items():
    jaccards, hits = zip(*results, strict=True)
    print(f"{method:<12} mean Jaccard {np.mean(jaccards):.3f}, CorLoc {np.mean(hits):.0%}")

# %%
order = np.argsort([score for score, _ in table["TokenCut"]])
worst, best = [names[i] for i in order[:4]], [names[i] for i in order[-4:]]
drawing.pictures(
    [views[name, "TokenCut"] for name in best + worst],
    [f"{name}: {table['TokenCut'][names.index(name)][0]:.2f}" for name in best + worst],
    alt="TokenCut's four best and four worst objects on the photographs, each with its Jaccard similarity.",
    columns=4,
)

# %% [markdown]
# Both rest on two beliefs: that the object is the smaller part, and that its patches resemble one another more than they
# resemble the ground. A picture that the object fills, an object of two unlike halves, or a ground of several kinds
# breaks one of them. Is it so here? The share of the picture that the object covers, beside the score:

# %%
areas = [float(photographs.mask(name).mean()) for name in names]
with drawing.plot(
    "Jaccard of LOST and TokenCut against the share of the picture that the object covers."
) as axes:
    for marker, (method, results) in zip("osx", table.items(), strict=True):
        axes.plot(areas, [score for score, _ in results], marker, linestyle="", label=method)
    axes.set(xlabel="share of the picture that the object covers", ylabel="Jaccard")
    axes.legend()
print("rank correlation of TokenCut's score with the area:", end=" ")
print(f"{scipy.stats.spearmanr(areas, [score for score, _ in table['TokenCut']]).statistic:.2f}")

# %% [markdown]
# **Exercise 8.3.** A box found has its corners at (left 10, top 10) and (right 50, bottom 30), the object's box at
# (20, 10) and (50, 40). What is their intersection over union, and would CorLoc count it? Give the number.

# %%
overlap = ...
check("8.3", overlap)

# %% [markdown]
# ---
# **In the paper**: section 4.2.2 says that the features "contain explicit information about the scene layout"; LOST
# (Siméoni et al. 2021, section 3) and TokenCut (Wang et al. 2022, section 3) took it from there.
#
# **An open question.** Both look for one object. When the first is found, what is the ground of the second?
