# %% [markdown]
# # B · Objects
#
# **Question.** Can an object be found from the similarity of patch features alone, without attention and without training?
#
# You need lesson 2 and eigenvectors. The lesson compares two methods, LOST and TokenCut. The feature of a patch is its key in
# the last block, a vector; the keys of all attention heads are joined.

# %%
import numpy as np
import scipy.linalg
import scipy.stats

from app.notebook import show
from dino_model import AttentionPredictor, photographs
from notebooks import drawing
from notebooks.checks import check
from notebooks.scores import plus_minus
from segmentation.discovery import last_keys, lost, set_resized, tokencut
from segmentation.discovery_eval import is_localized
from segmentation.masks import bounding_box, components
from segmentation.metrics import jaccard
from segmentation.voc_eval import centered_box

# %% [markdown]
# The next cell computes the keys of one image and the products of all pairs of patches.
#
# **Prediction.** The pointer is on the sheep. Which patches have similar keys: those near the pointer, or those of the sheep?

# %%
image, truth = photographs.image("sheep"), photographs.mask("sheep")
predictor = AttentionPredictor(size=224, precision="fp32")
placement = set_resized(predictor, image)
features = last_keys(predictor)  # keys of all heads [rows, columns, width]
rows, columns, _ = features.shape
flat = features.reshape(rows * columns, -1)
similarity = flat @ flat.T  # [patches, patches]
show(image, predictor.at(160), quantity="key-cosine")

# %% [markdown]
# Point at the sheep and at the grass: bright patches have keys with a large cosine. The keys of the whole sheep form one group.
#
# ## LOST: start from the patch with the fewest similar patches
#
# LOST assumes that the background is larger than the object and that background patches are similar to each other. Two patches
# are *similar* if the dot product of their features is positive. The patch with the fewest similar patches is the *seed*.
#
# **Exercise B.1 (code).** Count for each patch the other patches that are similar to it. A patch does not count itself.


# %%
def positive_similarities(features: np.ndarray) -> np.ndarray:
    """Features [patches, width] -> counts, int [patches]."""
    return ...


positive_similarities = check("B.1", positive_similarities)

# %% [markdown]
# LOST then finds the object in two steps:
#
# 1. Take the 100 patches with the smallest counts. The patches among them that are similar to the seed form a set.
# 2. A patch is a candidate if the sum of its dot products with this set is positive. The candidates that are connected with
#    the seed are the object.
#
# **Prediction.** Where in the image of the sheep is the seed?

# %%
counts = positive_similarities(flat)
seed = int(counts.argmin())
smallest = np.argsort(counts, kind="stable")[:100]
similar = smallest[similarity[smallest, seed] > 0]
candidates = (similarity[:, similar].sum(axis=1) > 0).reshape(rows, columns)
regions = components(candidates)
by_hand = regions == regions[divmod(seed, columns)]
found = lost(features)
assert found.seed == divmod(seed, columns)
assert (found.mask == by_hand).all()
print(
    f"the seed is similar to {counts[seed]} of {len(flat) - 1} patches;",
    f"the median is {np.median(counts):.0f}",
)
print(f"Jaccard similarity: {jaccard(placement.mask(found.mask), truth):.2f}")
drawing.images(
    [
        image,
        counts.reshape(rows, columns),
        candidates,
        drawing.masked(image, placement.mask(found.mask)),
    ],
    ["image", "number of similar patches", "similar to the set", "LOST"],
    figure="B.1",
)

# %% [markdown]
# The seed is on the sheep: it is similar to **291** patches, and the median patch is similar to **789** patches. LOST finds the
# sheep with a Jaccard similarity of **0.89**.
#
# ## TokenCut: cut a graph into two parts
#
# The patches are the nodes of a graph. The edge between two patches has the weight 1 if their cosine is above 0.2, and almost
# 0 otherwise. The set of all nodes is $V$. TokenCut divides $V$ into two sets $A$ and $B$. The total weight of the edges between
# $A$ and $B$ is $w(A, B)$. The sum over the nodes of $A$ of the weights of all their edges is $w(A, V)$. The *normalized cut* is
#
# $$\frac{w(A, B)}{w(A, V)} + \frac{w(A, B)}{w(B, V)}$$
#
# TokenCut minimizes the normalized cut. If $A$ is a single patch, $w(A, V)$ is small and the first term is large. So the
# denominators prevent a cut that separates a single patch.
#
# **Exercise B.2 (check).** A graph has four nodes and four edges of weight 1: 0–1, 0–2, 1–2 and 2–3. What is the normalized cut
# between $A = \{3\}$ and $B = \{0, 1, 2\}$?

# %%
cut = check("B.2", ...)

# %% [markdown]
# **Derivation.** Let $W$ be the matrix of weights and $D$ the diagonal matrix of the row sums of $W$. Let $a = w(A, V)$ and
# $b = w(B, V)$. Give each node of $A$ the value $y_i = b$ and each node of $B$ the value $y_i = -a$. Then:
#
# - $y^\top D \mathbf 1 = 0$,
# - $y^\top (D - W) y = (a + b)^2\, w(A, B)$,
# - $y^\top D y = ab(a + b)$.
#
# The second value divided by the third value is $w(A, B)(1/a + 1/b)$, the normalized cut. Now let $y$ have any real values with
# $y^\top D \mathbf 1 = 0$. The smallest quotient is then the second smallest $\lambda$ of $(D - W) y = \lambda D y$. The
# eigenvector of this $\lambda$ approximates the best cut.
#
# **Prediction.** Which patches of the sheep's image have similar values in the second eigenvector?

# %%
unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
weights = np.where(unit @ unit.T > 0.2, 1.0, 1e-5)
degrees = np.diag(weights.sum(axis=1))
eigenvalues, vectors = scipy.linalg.eigh(degrees - weights, degrees, subset_by_index=[0, 1])
second = vectors[:, 1]
sides = second > second.mean()
found = tokencut(features)
inside = found.mask.ravel()
# the object is a part of one side of the cut
assert sides[inside].all() or (~sides)[inside].all()
print(f"Jaccard similarity: {jaccard(placement.mask(found.mask), truth):.2f}")
drawing.images(
    [
        image,
        (second - second.min()).reshape(rows, columns),
        sides.reshape(rows, columns),
        drawing.masked(image, placement.mask(found.mask)),
    ],
    ["image", "second eigenvector", "above its mean", "TokenCut"],
    figure="B.2",
)

# %% [markdown]
# TokenCut finds the sheep with a Jaccard similarity of **0.88**. LOST starts from one seed, TokenCut compares all pairs of
# patches, and the two masks are similar. One image is not enough evidence, so the next section scores 30 images.
#
# ## Thirty images
#
# *CorLoc* (correct localization) compares the box around the found object with the box around the true object. An image is
# correct if the intersection over union of these boxes is at least 0.5. CorLoc is the share of correct images.
#
# **Exercise B.3 (check).** The found box reaches from left 10, top 10 to right 50, bottom 30. The true box reaches from left 20,
# top 10 to right 50, bottom 40. What is the intersection over union of the two boxes?

# %%
overlap = check("B.3", ...)

# %% [markdown]
# **Prediction.** The next cell scores LOST and TokenCut, with trained and with random weights, and the centered box. Which
# methods are better than the centered box in Jaccard similarity, and which in CorLoc?

# %%
names = photographs.names()
table, views = {}, {}
for weights_of, model in {"trained": "embedded", "random weights": "random:embedded"}.items():
    predictor = AttentionPredictor(model, size=224, precision="fp32")
    for name in names:
        image, truth = photographs.image(name), photographs.mask(name)
        placement = set_resized(predictor, image)
        features = last_keys(predictor)
        for method, find in {"LOST": lost, "TokenCut": tokencut}.items():
            patches = find(features).mask
            mask = placement.mask(patches)
            hit = is_localized(placement.box(patches), [bounding_box(truth)])
            views[method, weights_of, name] = drawing.masked(image, mask)
            table.setdefault((method, weights_of), []).append((jaccard(mask, truth), hit))
for name in names:
    truth = photographs.mask(name)
    box = centered_box(truth.shape)
    hit = is_localized(bounding_box(box), [bounding_box(truth)])
    table.setdefault(("centered box", "no network"), []).append((jaccard(box, truth), hit))
for (method, weights_of), results in table.items():
    scores, hits = np.array(results, float).T
    print(f"{method}, {weights_of}: Jaccard {plus_minus(scores)}, CorLoc {hits.mean():.0%}")

# %%
scores = np.array([score for score, _ in table["TokenCut", "trained"]], float)
order = scores.argsort()
chosen = [*order[:-5:-1], *order[:4]]
drawing.images(
    [views["TokenCut", "trained", names[index]] for index in chosen],
    [f"{names[index]}: {scores[index]:.2f}" for index in chosen],
    figure="B.3",
)
areas = [photographs.mask(name).mean() for name in names]
with drawing.plot(figure="B.4") as axis:
    for marker, (label, results) in zip("osx", list(table.items())[:2], strict=False):
        axis.plot(areas, [score for score, _ in results], marker, linestyle="", label=label[0])
    axis.set(
        xlabel="area of the object / area of the image",
        ylabel="Jaccard similarity",
        ylim=(0, 1),
    )
    axis.legend()
correlation = scipy.stats.spearmanr(areas, scores).statistic
print(f"rank correlation of TokenCut's score with the area: {correlation:.2f}")

# %% [markdown]
# With trained weights, TokenCut reaches **0.70** ± **0.04** and the centered box **0.41** ± **0.03**: the difference is much larger
# than the standard errors. CorLoc is **77** % for TokenCut and **37** % for the box. With random weights, TokenCut reaches **0.24** and
# a CorLoc of **40** %: similar colors alone find some objects. The rank correlation of score and area is **0.67**, so small
# objects are harder.
#
# **Exercise (break).** Run both methods on an image that the object fills. Then use an image with two kinds of background.
# Which assumption of LOST fails, and which assumption of TokenCut?
#
# **Exercise (argue).** LOST and TokenCut find one object. Suppose that an image has two objects and the first is found. Which
# patches are the background when you search for the second object?
#
# **Summary.**
# - LOST starts from the patch with the fewest similar patches and adds similar patches that are connected with it.
# - TokenCut cuts a graph of patches; the second eigenvector approximates the best normalized cut.
# - Without training, TokenCut finds 77 % of 30 objects, a centered box 37 %. Both methods need a large background of similar patches.
#
# **References.** Siméoni et al. 2021, [Localizing Objects with Self-Supervised Transformers and no Labels](https://arxiv.org/abs/2109.14279);
# Wang et al. 2022, [Self-Supervised Transformers for Unsupervised Object Discovery using Normalized Cut](https://arxiv.org/abs/2202.11539);
# Shi and Malik 2000, on normalized cuts.
