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
# # 6 · Features without labels
#
# **You will be able to** measure what frozen features are worth by a vote of neighbours, by a linear classifier, and with
# one or five labels per class; say which baselines make such a figure honest; draw a class map; and search your own
# pictures by example.
#
# **You need** cosines of vectors. Lesson 1 helps.

# %%
import sys
from pathlib import Path

above = [folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()]
assert above, f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`"
sys.path.insert(0, str(above[0]))

from notebooks.start import ready

ready()

# %%
import tempfile
from collections.abc import Callable

import cv2
import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

from dino_model import photographs
from dino_model.collections import open_images
from dino_model.predictor import AttentionPredictor
from notebooks import drawing
from notebooks.checks import check
from notebooks.start import data, pieces
from training.evaluation import logistic
from training.evaluation.knn import knn_scores

# %% [markdown]
# ## Pictures with a name
#
# Where Caltech-101 lies at hand: twelve of its classes, thirty pictures each. Without it, a stand-in that is easier in one
# way and harder in another: ten photographs are the classes, thirty pieces cut out of each the pictures. Every piece has
# colours of its own, so that these alone do not give the class away.

# %%
caltech = data("caltech101_112px.tar")
stored = open_images(caltech) if caltech else pieces(Path(tempfile.mkdtemp()))
names = stored.classes
if caltech:
    names = ["airplanes", "butterfly", "chair", "crab", "dalmatian", "dolphin"]
    names += ["helicopter", "lotus", "revolver", "starfish", "umbrella", "watch"]
of = np.array(stored.labels)
chosen = [index for name in names for index in np.flatnonzero(of == stored.classes.index(name))[:30]]
shown = [stored.read(int(index)) for index in chosen]
labels = np.array([names.index(stored.classes[of[index]]) for index in chosen])

place = np.concatenate([np.arange((labels == one).sum()) for one in range(len(names))])
test = place % 3 == 2  # every third picture of a class is asked, the others answer
print(f"{len(names)} classes, {(~test).sum()} pictures that answer, {test.sum()} that are asked")
firsts = [int(np.flatnonzero(labels == one)[0]) for one in range(len(names))]
drawing.pictures(
    [cv2.resize(shown[first], (96, 96)) for first in firsts],
    names,
    alt="One picture of each class.",
    columns=6,
    width=8,
)

# %% [markdown]
# ## One vector for a picture
#
# The feature is what [CLS] holds after the last block and the final norm. Beside the trained network stand two baselines
# that have learned nothing: the same network with random weights, and the picture itself, shrunk to 16 × 16 pixels.


# %%
def of_network(model: str) -> np.ndarray:
    """[CLS] of every picture: [pictures, width]."""
    predictor = AttentionPredictor(model, size=112, resize="squash")
    found = []
    for picture in shown:
        predictor.set_image(picture)
        found.append(predictor.tokens()[0])
    return np.stack(found)


def of_pixels() -> np.ndarray:
    """16 × 16 pixels of every picture, each picture's mean subtracted: [pictures, 768]."""
    small = np.stack([cv2.resize(picture, (16, 16), interpolation=cv2.INTER_AREA) for picture in shown])
    flat = small.reshape(len(small), -1).astype(np.float32)
    return flat - flat.mean(axis=1, keepdims=True)


features = {
    "trained without labels": of_network("embedded"),
    "random weights": of_network("random:embedded"),
    "pixels": of_pixels(),
}
features = {kind: normalize(vectors) for kind, vectors in features.items()}  # to unit length

# %% [markdown]
# ## A vote of neighbours
#
# Of the *k* training features with the largest cosine, each votes for its class with exp(cosine / 0.07). Nothing is
# trained, nothing is chosen: it is the paper's first figure.
#
# **Exercise 6.1.** Write it for one feature.


# %%
def vote(
    feature: np.ndarray, stored: np.ndarray, labels: np.ndarray, k: int, temperature: float
) -> np.ndarray:
    """Unit vectors [width], [stored, width] and labels [stored] -> the votes of each class [classes]."""
    return ...


check("6.1", vote)


# %%
def correct_by_knn(vectors: np.ndarray, answering: np.ndarray) -> np.ndarray:
    """Which test pictures a vote of k = 5 names rightly, with the pictures of a mask answering: bool [test]."""
    stored, asked = torch.from_numpy(vectors[answering]), torch.from_numpy(vectors[test])
    k = min(5, int(answering.sum()))
    named = knn_scores(stored, torch.from_numpy(labels[answering]), asked, k=k).argmax(dim=1)
    return named.numpy() == labels[test]


def correct_by_line(vectors: np.ndarray, answering: np.ndarray) -> np.ndarray:
    """The same for a linear classifier (multinomial logistic regression, the paper's penalty): bool [test]."""
    learnt, named = torch.from_numpy(normalize(vectors[answering])), torch.from_numpy(labels[answering])
    line = logistic.fit(learnt, named, len(names))
    return line.scores(torch.from_numpy(vectors[test])).argmax(dim=1).numpy() == labels[test]


def few(count: int, seed: int) -> np.ndarray:
    """A mask of `count` answering pictures of each class, drawn by a seed: bool [pictures]."""
    drawn = np.random.default_rng(seed)
    mask = np.zeros(len(labels), bool)
    for one in range(len(names)):
        mask[drawn.choice(np.flatnonzero((labels == one) & ~test), count, replace=False)] = True
    return mask


# %%
Way = Callable[[np.ndarray, np.ndarray], np.ndarray]
ways: dict[str, Way] = {"k-NN": correct_by_knn, "linear": correct_by_line}
print(f"top-1 on {test.sum()} pictures; by chance {1 / len(names):.1%}")
for kind, vectors in features.items():
    all_labels = ", ".join(f"{way} {judge(vectors, ~test).mean():.1%}" for way, judge in ways.items())
    print(f"  {kind:<23} {all_labels}")

# %% [markdown]
# ## With few labels
#
# One or five named pictures of each class, drawn five times; mean and standard deviation.

# %%
for kind, vectors in features.items():
    cells = []
    for count in (1, 5):
        drawn = [correct_by_line(vectors, few(count, seed)).mean() for seed in range(5)]
        cells.append(f"{count} per class {np.mean(drawn):.1%} ± {np.std(drawn):.1%}")
    print(f"  {kind:<23} {', '.join(cells)}")

# %% [markdown]
# The networks have the same shape; what separates the first two rows is what training gave. The third row is what any
# network has to beat before its figure says something.
#
# **Exercise 6.2.** A data set has classes of 60, 30 and 10 pictures. A model that always answers with the largest class
# has which top-1, in percent? And which mean over the classes?

# %%
top_1 = ...
mean_of_classes = ...
check("6.2a", top_1)
check("6.2b", mean_of_classes)

# %% [markdown]
# ## The class map
#
# The mean feature of every class, brought to the plane by its two largest principal components. Names that lie together
# look alike to the network; it was never told a name. (The page's map uses t-SNE, for a hundred classes and more.)

# %%
means = np.stack(
    [features["trained without labels"][labels == one].mean(axis=0) for one in range(len(names))]
)
points = PCA(2).fit_transform(means)
with drawing.plot("The classes as named points in the plane, like ones near one another.", height=5) as axes:
    axes.plot(*points.T, "o", linestyle="")
    for number, one in enumerate(points[:, 0].argsort()):  # names in turn above and below keep apart
        beside = {"xytext": (0, 9 if number % 2 else -9), "textcoords": "offset points"}
        axes.annotate(names[one], points[one], **beside, ha="center", va="center", fontsize=9)
    axes.set(xlabel="first component", ylabel="second component")

# %% [markdown]
# ## Search by example
#
# Put a folder of your own pictures in place of `None`.

# %%
folder = None
if folder:
    mine = open_images(folder)
    pictures = [mine.read(index) for index in range(min(200, len(mine)))]
else:
    pictures = [photographs.picture(name) for name in photographs.names()]

predictor = AttentionPredictor(size=112, resize="squash")
vectors = []
for picture in pictures:
    predictor.set_image(picture)
    vectors.append(predictor.tokens()[0])
vectors = normalize(np.stack(vectors))
cosines = vectors @ vectors[0]
nearest = np.argsort(-cosines)[:6]
drawing.pictures(
    [cv2.resize(pictures[index], (128, 128)) for index in nearest],
    [f"cosine {cosines[index]:.2f}" for index in nearest],
    alt="A picture and the five whose features are nearest to its own, with their cosines.",
)

# %% [markdown]
# **Exercise 6.3.** Of four pictures of a class in a collection of a hundred, a search by a fifth one puts three on ranks
# 1, 2 and 5 and the last on rank 10. What is its average precision: the mean, over the four, of the share of right ones up
# to each?

# %%
average_precision = ...
check("6.3", average_precision)

# %% [markdown]
# ---
# **In the paper**: table 2 (k-NN and linear), section 4.1 and appendix "Low-shot learning"; figure 11 (class map); table 3
# (retrieval).
#
# **An open question.** The vote needs no training and no choice. Why do most papers report the linear classifier?
