# %% [markdown]
# # 5 · Are the features good?
#
# **Question.** How much do frozen features help to classify images, compared with pixels and with random weights?
#
# You need cosines of vectors. You write the vote of the k-NN classifier. Then you compare how many labels each kind of
# feature needs.

# %%
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from dino_model.data.textures import CLASSES
from notebooks import distillation, drawing
from notebooks.checks import check
from notebooks.scores import accuracy_error

# %% [markdown]
# ## Three kinds of features
#
# The trained network is `embedded-dino`: DINO, with terms of SimDINO in its last phases, on color images of objects. The task of
# this lesson is to classify 16 kinds of gray textures.
# Each kind has 50 training and 50 test images. A *feature* is the vector of [CLS] after the last block. The network is
# *frozen*: its weights are not trained on this task. The controls are the same network with random weights, and the pixels
# of the image at 16 × 16 pixels.

# %%
train_images, train_labels = distillation.textures(seed=0, per_class=50)
test_images, test_labels = distillation.textures(seed=1, per_class=50)
train_labels, test_labels = train_labels.numpy(), test_labels.numpy()


def network_features(name: str, images: torch.Tensor) -> np.ndarray:
    """Unit-length [CLS] features of gray images from 0 to 1: [images, width]."""
    return distillation.model_features(name, images.expand(-1, 3, -1, -1))


kinds = {
    "trained": lambda images: network_features("embedded-dino", images),
    "random weights": lambda images: network_features("random:embedded", images),
    "pixels": lambda images: distillation.pixel_features(images).numpy(),
}
train_features = {label: extract(train_images) for label, extract in kinds.items()}
test_features = {label: extract(test_images) for label, extract in kinds.items()}
drawing.images(
    [train_images[50 * label, 0].numpy() for label in range(16)],
    CLASSES,
    figure="5.1",
    columns=8,
)

# %% [markdown]
# ## k-NN: a vote of neighbors
#
# The *k-NN classifier* needs no training. It compares the feature of a test image with all training features. The $k$ training
# features with the largest cosine vote for their classes. Each vote has the weight $\exp(\cos / \tau)$ with the *temperature*
# $\tau = 0.07$.
#
# **Exercise 5.1 (code).** Compute the sum of the votes for each class, for the feature of one test image. The classes are 0,
# 1, … up to the largest label.


# %%
def vote(
    feature: np.ndarray, stored: np.ndarray, labels: np.ndarray, k: int, temperature: float
) -> np.ndarray:
    """Unit vectors [width], [stored, width], labels [stored] -> votes per class [classes]."""
    return ...


vote = check("5.1", vote)

# %% [markdown]
# **Prediction.** Chance is 6 %. Which accuracy do you expect from pixels, from random weights, and from the trained network?

# %%
for label, stored in train_features.items():
    predicted = np.array(
        [vote(f, stored, train_labels, 10, 0.07).argmax() for f in test_features[label]]
    )
    accuracy = 100 * np.mean(predicted == test_labels)
    print(
        f"k-NN, {label}: {accuracy:.0f} ± {accuracy_error(accuracy, len(test_labels)):.0f} %"
    )

# %% [markdown]
# The trained network reaches about **96** %, although it was not trained on textures. Random weights reach about **24** %, fewer
# than pixels (about **28** %; about 40 % in lesson 3, which has 200 training images per class instead of 50). This comparison
# holds for k-NN only: the classifier of the next experiment reverses it.
#
# **Exercise 5.2 (check).** A test set has classes of 60, 30 and 10 images. A classifier always predicts the largest class. The
# accuracy over all images is 60 %. What is the mean of the accuracies of the three classes, in percent?

# %%
balanced = check("5.2", ...)

# %% [markdown]
# ## Number of labels
#
# Labels are expensive, so a good feature needs few labels. The next cell trains a *linear classifier* on 1 to 50 labeled
# images per class. It draws these images at random, five times for each number.
#
# **Prediction.** How many labels per class do pixels need to be as accurate as the trained features with one label?


# %%
def linear_accuracy(label: str, per_class: int, seed: int) -> float:
    """Accuracy in percent of logistic regression on `per_class` training images per class."""
    generator = np.random.default_rng(seed)
    rows = [
        generator.choice(np.flatnonzero(train_labels == c), per_class, replace=False)
        for c in range(16)
    ]
    chosen = np.concatenate(rows)
    classifier = LogisticRegression(C=100, max_iter=300).fit(
        train_features[label][chosen], train_labels[chosen]
    )
    return 100 * classifier.score(test_features[label], test_labels)


counts = (1, 2, 5, 10, 20, 50)
with drawing.plot(figure="5.2", height=3.5) as axis:
    for label in kinds:
        draws = np.array(
            [[linear_accuracy(label, count, seed) for seed in range(5)] for count in counts]
        )
        axis.errorbar(
            counts, draws.mean(axis=1), draws.std(axis=1), marker="o", capsize=4, label=label
        )
        print(
            f"{label}, accuracy by labels per class:",
            *(
                f"{n}: {row.mean():.0f} ± {row.std():.0f} %,"
                for n, row in zip(counts, draws, strict=True)
            ),
        )
    axis.axhline(100 / 16, color="gray", linewidth=1, linestyle=":", label="chance")
    axis.set(xscale="log", xticks=counts, xticklabels=counts, ylim=(0, 100))
    axis.set(xlabel="labeled images per class", ylabel="accuracy of the linear classifier (%)")
    axis.legend()

# %% [markdown]
# With one label per class, the trained features reach about **61** %. With fifty labels per class, random weights reach about
# **41** % and pixels about **13** %. Pixels hardly improve, because a weighted sum of pixels changes with the phase of a texture.
# With k-NN, pixels were more accurate than random weights. Which baseline is stronger depends on the classifier.
# The five draws of fifty labels are equal, as they contain all training images, so their error bar is 0.
#
# ## Search by example
#
# The features also find images that are similar to a query, without a classifier: the images with the largest cosine.
#
# **Prediction.** Of which classes are the five images most similar to an image of rings, by pixels?

# %%
QUERY = 50 * CLASSES.index("rings")
results, titles = [], []
for label in ("trained", "pixels"):
    nearest = np.argsort(-train_features[label] @ test_features[label][QUERY])[:5]
    results += [
        test_images[QUERY, 0].numpy(),
        *(train_images[index, 0].numpy() for index in nearest),
    ]
    titles += [f"query, {label}", *(CLASSES[train_labels[index]] for index in nearest)]
    correct = np.sum(train_labels[nearest] == test_labels[QUERY])
    print(f"{label}: {correct} of 5 images have the class of the query")
drawing.images(results, titles, figure="5.3", columns=6)

# %% [markdown]
# By trained features, **5** of 5 images are rings; by pixels, **0** of 5. Trained features of the same texture are similar for all
# phases; pixels are similar only if bright and dark areas are at the same places.
#
# **Exercise (break).** Rotate the test images by 90 degrees: `torch.rot90(test_images, dims=(2, 3))`. Compute the features and
# the k-NN accuracy again. Which classes does the classifier confuse now?
#
# **Exercise (argue).** k-NN needs no training and has only two settings, $k$ and $\tau$. Why do most papers report a linear
# classifier as well?
#
# **Summary.**
# - Frozen features that never saw a texture classify 96 % of them with k-NN, and need one label where the controls need fifty.
# - A score needs two baselines: random weights and pixels.
# - Error bars over several draws of labels show the uncertainty of an accuracy.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# section 4.1, table 2 and appendix A (few labels); Wu et al. 2018,
# [Unsupervised Feature Learning via Non-Parametric Instance Discrimination](https://arxiv.org/abs/1805.01978) (k-NN).
