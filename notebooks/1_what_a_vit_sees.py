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
# # 1 · What a ViT sees
#
# **You will be able to** say what a patch, a token, [CLS] and an attention map are; draw the map of every head, and of
# any point; and explain why an attention row sums to one although the map on the screen does not.
#
# **You need** matrix products and the softmax. No machine learning beyond that.

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
from PIL import Image

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from notebooks import drawing
from notebooks.checks import check
from segmentation.drawing import draw_point

# %% [markdown]
# ## A picture becomes tokens
#
# A vision transformer cuts a picture into square patches and turns each into a vector, a *token*. One more token stands
# for none of them: [CLS]. It begins as the same learned vector for every picture and collects what the network wants to
# say about the whole.
#
# The network here is the small one that ships with this project. It was trained without a single label.

# %%
photo = photographs.picture("sheep")  # uint8 [height, width, 3]
predictor = AttentionPredictor(size=224, precision="fp32")
predictor.set_image(photo)
rows, columns = predictor.grid
print(predictor.describe())
print(
    f"{rows} × {columns} patches and {predictor.prefix_tokens} [CLS] token: {rows * columns + predictor.prefix_tokens}"
)

# %%
patch = predictor.patch_size
fed = np.asarray(Image.fromarray(photo).resize(predictor.input_size[::-1]))  # as large as the model sees it
cut = fed.copy()
cut[::patch], cut[:, ::patch] = 0, 0
high, wide = 6, 8  # patches around the head, with white between them
few = fed[3 * patch : (3 + high) * patch, 18 * patch : (18 + wide) * patch].reshape(
    high, patch, wide, patch, 3
)
few = np.pad(few, ((0, 0), (1, 1), (0, 0), (1, 1), (0, 0)), constant_values=255)
few = few.reshape(high * (patch + 2), wide * (patch + 2), 3)
drawing.pictures(
    [fed, cut, few],
    ["the picture", f"{rows} × {columns} patches", "a few of them, as the network gets them"],
    alt="A photograph of a sheep; the same cut into small squares by dark lines; six by eight of the squares, enlarged and apart.",
    columns=3,
)

# %% [markdown]
# **Exercise 1.1.** The paper's maps are drawn from pictures of 480 × 480 pixels by a model with patches of 8 pixels.
# How many tokens is that?

# %%
tokens = ...
check("1.1", tokens)

# %% [markdown]
# ## Every token asks, every token answers
#
# In each block, each of several *heads* makes three vectors of every token: a query *q*, a key *k* and a value *v*. How
# much token *i* takes from token *j* is
#
# $$A_{ij} = \frac{\exp(q_i \cdot k_j / \sqrt{d})}{\sum_{l} \exp(q_i \cdot k_l / \sqrt{d})}$$
#
# with *d* the length of a query. Row *i* of *A* is a share of attention for every token: it sums to one because the
# denominator is the sum of the numerators. The predictor hands out the queries and keys of the last block.

# %%
queries, keys = predictor.queries_keys()  # float16 [heads, tokens, d]
print("heads, tokens, d:", queries.shape)

# %% [markdown]
# **Exercise 1.2.** Write the formula, for the query of one token and all heads at once.


# %%
def attention(queries: np.ndarray, keys: np.ndarray, token: int) -> np.ndarray:
    """Queries and keys [heads, tokens, d] -> the attention row of one token [heads, tokens]."""
    return ...


check("1.2", attention)

# %% [markdown]
# ## The map of a head
#
# Token 0 is [CLS]. Its row, without its attention to itself, laid out where the patches lie, is an *attention map*:
# one for each head. Nobody told these heads about objects.

# %%
maps = predictor.cls_attention()  # float32 [heads, rows, columns]
drawing.pictures(
    [fed, *maps],
    ["the picture", *(f"head {head}" for head in range(len(maps)))],
    alt="The photograph and one attention map for each head; bright patches are looked at most.",
    columns=4,
)
print("sum of each map:", maps.sum(axis=(1, 2)).round(5))

# %% [markdown]
# The maps do not quite sum to one: the rest of the row is [CLS]'s attention to itself, which has no place in the
# picture.
#
# **Exercise 1.3.** What share of its attention does [CLS] give to itself, on average over the heads? (A share, not
# percent.)

# %%
to_itself = ...
check("1.3", to_itself)

# %% [markdown]
# ## Any point can ask
#
# Every patch has a row of its own. Attention is not symmetric: what A takes from B says nothing of what B takes from A.

# %%
height, width = photo.shape[:2]
points = {"middle": (height // 2, width // 2), "upper left": (height // 8, width // 8)}
asked = {name: predictor.point_attention(*point).mean(axis=0) for name, point in points.items()}
drawing.pictures(
    [view for name, point in points.items() for view in (draw_point(photo, *point), asked[name])],
    [words for name in points for words in (f"from the {name}", "mean of the heads")],
    alt="The photograph with a point in the middle, and where that patch looks; the same for a point near the corner.",
    columns=4,
)

# %% [markdown]
# ## Registers, and what we cannot show here
#
# Large ViTs trained for long put very high norms on a few patches of dull background, and their maps light up there.
# Darcet et al. (2023) call these tokens artefacts and give the network spare tokens, *registers*, to keep such notes in.
# Whether a network has artefacts shows in the norms of its last tokens, before the final norm makes them all alike:

# %%
kept = []
norm = predictor.model.backbone.norm
hook = norm.register_forward_pre_hook(
    lambda module, given: kept.append(given[0])
)  # tokens on their way into it
after = np.linalg.norm(predictor.token_features(), axis=-1)
hook.remove()
before = kept[0][0, predictor.prefix_tokens :].norm(dim=-1)
for words, norms in {"before": before.numpy(), "after": after}.items():
    print(f"{words} the final norm: median {np.median(norms):.1f}, largest {norms.max():.1f}")
assert before.max() < 2 * before.median()

# %% [markdown]
# Our network is small, and its largest norm is not twice the median. That is no evidence about large ones: it would take a
# trained one, such as DINOv2's ViT-L with and without registers, on the same pictures (`python -m dino_model list` names
# weights that can be downloaded). A large model with random weights would prove nothing either way: artefacts are learned.
#
# ---
# **In the paper**: figure 1 and figure 3 (maps of [CLS], one head each), section 3.2 (the architecture), appendix
# "Self-attention visualizations" (points that ask).
#
# **An open question.** Heads of one block see the same tokens and were given no reason to differ. What makes one look
# at the object and another at the ground?
