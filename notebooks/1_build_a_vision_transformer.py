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
# # 1 · Build a vision transformer
#
# **Question.** Which few lines of code turn an image into an attention map?
#
# You need matrix products, the softmax and PyTorch tensors. You write three functions, load the shipped weights into
# them, and compare your attention maps with those of the library. Exercises replace `...`; `check` returns your function
# if it is correct and the solution otherwise, so that the lesson always continues.

# %%
import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from dino_model.quantities import share_inside
from dino_model.weights import load_model
from notebooks import drawing
from notebooks.checks import check

# %% [markdown]
# ## Patches
#
# A vision transformer cuts an image into square *patches* and turns each patch into a vector, a *token*. The input is an
# image of 112 × 112 pixels, normalized per channel.

# %%
PATCH, SIZE, HEADS = 8, 112, 6
image, mask = photographs.image("sheep"), photographs.mask("sheep")
model = load_model("embedded")
small = np.array(Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
pixels = torch.from_numpy(small).permute(2, 0, 1)[None] / 255  # [1, 3, height, width]
mean, std = (torch.tensor(values)[:, None, None] for values in (model.mean, model.std))
images = (pixels - mean) / std

# %% [markdown]
# **Exercise 1.1 (code).** Cut the images into patches, row by row. Each patch becomes one vector with all values of
# channel 0 first, then channel 1 and channel 2.


# %%
def patchify(images: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Images [B, C, H, W] -> patches [B, H * W / patch_size², C * patch_size²]."""
    return ...


patchify = check("1.1", patchify)
patches = patchify(images, PATCH)
side = SIZE // PATCH
print(f"{patches.shape[1]} patches in {side} rows, {patches.shape[2]} values in each")

# %%
tiles = (
    patches.unflatten(2, (3, PATCH, PATCH)).permute(0, 1, 3, 4, 2)[0] * std.flatten() + mean.flatten()
).clip(0, 1)
tiles = F.pad(tiles.permute(0, 3, 1, 2), (1, 1, 1, 1), value=1).unflatten(0, (side, side))  # white gaps
drawing.images(
    [image, (255 * tiles.permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)).byte().numpy()],
    ["image", f"{side} × {side} patches, the input of the network"],
    caption="The network receives a grid of patches; each patch is 8 × 8 pixels.",
    alt="A sheep in a meadow, and the same image as a grid of small squares with white gaps.",
    columns=2,
)

# %% [markdown]
# One more token, [CLS], starts as a learned vector and represents the whole image. A learned *position embedding* is added
# to every token, because attention does not depend on the order of tokens.
#
# **Exercise 1.2 (check).** The paper draws its maps for images of 480 × 480 pixels with patches of 8 pixels. How many
# tokens are that?

# %%
tokens = check("1.2", ...)

# %% [markdown]
# ## Self-attention: queries, keys and values
#
# Each token has a *query* $q$, a *key* $k$ and a *value* $v$, three linear projections of length $d$. Token $i$ attends to
# token $j$ with the weight
#
# $$A_{ij} = \frac{\exp(q_i \cdot k_j / \sqrt d)}{\sum_l \exp(q_i \cdot k_l / \sqrt d)}$$
#
# and its output is the weighted mean $\sum_j A_{ij} v_j$. Several *attention heads* do this in parallel with their own
# projections.
#
# **Exercise 1.3 (code).** Compute the output and the weights of all heads.


# %%
def attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, heads, tokens, d] each -> output [B, heads, tokens, d] and weights [B, heads, tokens, tokens]."""
    return ...


attention = check("1.3", attention)

# %% [markdown]
# ## A block
#
# A *block* has two parts: attention mixes the tokens, then a network of two layers (MLP) changes each token on its own.
# Each part receives normalized tokens, and its output is added to its input (a *residual connection*).
#
# **Exercise 1.4 (code).** Combine the parts.


# %%
def block(tokens: torch.Tensor, attend, mlp, norm1, norm2) -> torch.Tensor:
    """Tokens [B, tokens, width] -> tokens of the same shape; the four arguments are functions of tokens."""
    return ...


block = check("1.4", block)

# %% [markdown]
# ## The whole network
#
# The rest connects your functions to the weights by their names. `forward` returns the attention of the last block.


# %%
def forward(images: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Normalized images [B, 3, 112, 112] -> attention of the last block [B, heads, tokens, tokens]."""

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps=1e-6)

    embedding = weights["patch_embed.proj.weight"].flatten(1)  # [width, values of a patch]
    tokens = F.linear(patchify(images, PATCH), embedding, weights["patch_embed.proj.bias"])
    cls = weights["cls_token"].expand(len(images), -1, -1)
    tokens = torch.cat([cls, tokens], dim=1) + weights["pos_embed"]
    for index in range(6):
        name, kept = f"blocks.{index}", []

        def attend(x, name=name, kept=kept):
            qkv = linear(x, f"{name}.attn.qkv").unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            output, shares = attention(*qkv)
            kept.append(shares)
            return linear(output.transpose(1, 2).flatten(2), f"{name}.attn.proj")

        def mlp(x, name=name):
            return linear(F.gelu(linear(x, f"{name}.mlp.fc1")), f"{name}.mlp.fc2")

        tokens = block(
            tokens,
            attend,
            mlp,
            lambda x, n=name: norm(x, f"{n}.norm1"),
            lambda x, n=name: norm(x, f"{n}.norm2"),
        )
    return kept[0]


# %% [markdown]
# **Prediction.** The library runs the same model with fused kernels. How large is the largest difference of the maps?

# %%
with torch.no_grad():
    shares = forward(images, model.backbone.state_dict())
maps = shares[0, :, 0, 1:].unflatten(1, (side, side)).numpy()  # attention of [CLS] to the patches, per head
predictor = AttentionPredictor(model, size=SIZE, resize="squash", precision="fp32")
predictor.set_image(image)
difference = np.abs(maps - predictor.cls_attention()).max()
print(f"largest difference: {difference:.0e}, largest weight: {maps.max():.3f}")
assert difference < 1e-5
print(f"sum of the maps: {maps.sum(axis=(1, 2)).min():.4f} to {maps.sum(axis=(1, 2)).max():.4f}")

# %% [markdown]
# Your network is the library's network: the maps differ by rounding only. The maps do not quite sum to 1, because [CLS]
# also attends to itself.
#
# ## What training adds
#
# Weights are the only difference between the trained and the untrained network.
#
# **Prediction.** The sheep covers a quarter of the image. Which share of its attention does each head give to the sheep,
# trained and untrained?

# %%
with torch.no_grad():
    random = forward(images, load_model("random:embedded").backbone.state_dict())
random_maps = random[0, :, 0, 1:].unflatten(1, (side, side)).numpy()
for label, heads in {"trained": maps, "random weights": random_maps}.items():
    inside = [share_inside(head, mask) for head in heads]
    print(f"{label}: {min(inside):.0%} to {max(inside):.0%} on the sheep, mean {np.mean(inside):.0%}")
drawing.images(
    [image, *maps, image, *random_maps],
    [
        "image",
        *(f"trained, head {i}" for i in range(HEADS)),
        "image",
        *(f"random, head {i}" for i in range(HEADS)),
    ],
    caption="Four trained heads select the sheep and two the background; random heads do neither. Each map is scaled to its own maximum.",
    alt="Two rows: a sheep and six maps. Four trained maps are bright on the sheep, two around it; random maps are almost uniform.",
    columns=7,
)

# %% [markdown]
# Every random head gives the sheep about its area (mean **23** %), so the architecture alone does not find objects. The
# trained heads give it from **4** to **98** %: four attend to the sheep and two to the background, and no label asked for it.
#
# **Exercise (break).** Run `forward` with `weights["pos_embed"]` multiplied by 0. Do the maps still find the sheep? What
# does the result say about the use of positions?
#
# **Exercise (argue).** The heads of a block receive the same tokens. What makes one attend to the object and another to the
# background?
#
# **Summary.**
# - Patches and [CLS] become tokens; blocks of attention and MLP change them.
# - An attention map is the row of [CLS] in the last block, without [CLS] itself.
# - The same network with random weights gives maps that ignore the object.
#
# **References.** Dosovitskiy et al. 2021, [An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929), section 3.1;
# Caron et al. 2021, section 3.2 and figures 1 and 3; Vaswani et al. 2017, equation 1.
