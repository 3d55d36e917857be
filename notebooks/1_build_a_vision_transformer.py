# %% [markdown]
# # 1 · Build a vision transformer
#
# **Question.** Which few lines of code turn an image into an attention map?
#
# You need matrix products, the softmax and PyTorch tensors. You write three functions and load the weights of the shipped
# model into them. Then you compare your attention maps with those of the library.
#
# In each exercise, replace `...` with your code. `check` prints whether your function is correct. It returns your function
# if the function is correct, and the solution otherwise, so the lesson always continues.

# %%
import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from app.notebook import show
from dino_model import AttentionPredictor, load_model, photographs
from dino_model.inference.quantities import share_inside
from notebooks import drawing
from notebooks.checks import check

# %% [markdown]
# ## Patches
#
# A vision transformer divides an image into square *patches* and turns each patch into a vector, a *token*. The next
# cell resizes an image to 112 × 112 pixels, so the sheep becomes narrower. It also normalizes each color channel: it
# subtracts the mean of the channel and divides by the standard deviation of the channel.

# %%
PATCH, SIZE, HEADS = 8, 112, 6
image, mask = photographs.image("sheep"), photographs.mask("sheep")
model = load_model("embedded-dino")
small = np.array(Image.fromarray(image).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
pixels = torch.from_numpy(small).permute(2, 0, 1)[None] / 255  # [1, 3, height, width]
mean, std = (torch.tensor(values)[:, None, None] for values in (model.mean, model.std))
images = (pixels - mean) / std

# %% [markdown]
# **Prediction.** A patch is 8 × 8 pixels and has 3 channels. How many patches does the image have, and how many values does
# each patch have?
#
# **Exercise 1.1 (code).** Divide the images into patches. Order the patches row by row, from the top left to the bottom
# right. Each patch becomes one vector: first all pixels of channel 0, row by row, then channel 1, then channel 2.


# %%
def patchify(images: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Images [B, C, H, W] -> patches [B, H * W / patch_size², C * patch_size²]."""
    return ...


patchify = check("1.1", patchify)
patches = patchify(images, PATCH)
side = SIZE // PATCH
print(f"{patches.shape[1]} patches in {side} rows, {patches.shape[2]} values in each patch")

# %%
tiles = (
    patches.unflatten(2, (3, PATCH, PATCH)).permute(0, 1, 3, 4, 2)[0] * std.flatten()
    + mean.flatten()
).clip(0, 1)
tiles = F.pad(tiles.permute(0, 3, 1, 2), (1, 1, 1, 1), value=1)  # white gaps
tiles = tiles.unflatten(0, (side, side))
drawing.images(
    [image, (255 * tiles.permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)).byte().numpy()],
    ["image", f"{side} × {side} patches, the input of the network"],
    figure="1.1",
    columns=2,
)

# %% [markdown]
# The image has **196** patches of **192** values each. The patches contain all pixels of the image, so no information is lost.
#
# The network adds one more token, [CLS]. It starts as a learned vector and represents the whole image. Attention does not
# depend on the order of tokens, so the network adds a learned *position embedding* to every token.
#
# **Exercise 1.2 (check).** The maps in the paper come from images of 480 × 480 pixels. A patch has 8 × 8 pixels. How many
# tokens does the network compute for one such image?

# %%
tokens = check("1.2", ...)

# %% [markdown]
# ## Self-attention: queries, keys and values
#
# Each token has a *query* $q$, a *key* $k$ and a *value* $v$. They are three linear projections of the token, vectors of
# length $d$. Token $i$ attends to token $j$ with the weight
#
# $$A_{ij} = \frac{\exp(q_i \cdot k_j / \sqrt d)}{\sum_l \exp(q_i \cdot k_l / \sqrt d)}$$
#
# The output of token $i$ is the weighted mean of all values, $\sum_j A_{ij} v_j$. Several *attention heads* compute these
# equations in parallel; each attention head has its own projections.
#
# **Exercise 1.3 (code).** Compute the output and the weights $A$ of all attention heads. Return the output first.


# %%
def attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Three tensors [B, heads, tokens, d] -> output of the same shape,
    and weights [B, heads, tokens, tokens]."""
    return ...


attention = check("1.3", attention)

# %% [markdown]
# ## A block
#
# A *block* has two parts. The first part is attention, which mixes the tokens. The second part is a network of two layers
# (a *multilayer perceptron*, MLP), which changes each token separately. Each part has three steps:
#
# 1. Normalize the tokens: `norm1` in the first part, `norm2` in the second part.
# 2. Apply the function of the part: `attend` in the first part, `mlp` in the second part.
# 3. Add the result to the tokens before step 1 (a *residual connection*).
#
# **Exercise 1.4 (code).** Write both parts. The second part receives the tokens that the first part returns.


# %%
def block(tokens: torch.Tensor, attend, mlp, norm1, norm2) -> torch.Tensor:
    """Tokens [B, tokens, width] -> new tokens [B, tokens, width]; the rest are functions."""
    return ...


block = check("1.4", block)

# %% [markdown]
# ## The whole network
#
# `forward` applies your three functions with the weights of a model. It computes the tokens, applies six blocks, and
# returns the attention weights of the last block. A name such as `blocks.0.attn.qkv` is a key in the file of the weights.


# %%
def forward(images: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Normalized images [B, 3, 112, 112] -> last attention [B, heads, tokens, tokens]."""

    def linear(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(
            x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps=1e-6
        )

    def apply_block(tokens, name):
        """Tokens -> tokens after the block, and the attention weights of the block."""
        attention_weights = []

        def attend(x):
            qkv = (
                linear(x, f"{name}.attn.qkv")
                .unflatten(2, (3, HEADS, -1))
                .permute(2, 0, 3, 1, 4)
            )
            output, head_weights = attention(*qkv)
            attention_weights.append(head_weights)
            return linear(output.transpose(1, 2).flatten(2), f"{name}.attn.proj")

        def mlp(x):
            return linear(F.gelu(linear(x, f"{name}.mlp.fc1")), f"{name}.mlp.fc2")

        def norm1(x):
            return norm(x, f"{name}.norm1")

        def norm2(x):
            return norm(x, f"{name}.norm2")

        return block(tokens, attend, mlp, norm1, norm2), attention_weights[0]

    embedding = weights["patch_embed.proj.weight"].flatten(1)  # [width, values of a patch]
    tokens = F.linear(patchify(images, PATCH), embedding, weights["patch_embed.proj.bias"])
    cls = weights["cls_token"].expand(len(images), -1, -1)
    tokens = torch.cat([cls, tokens], dim=1) + weights["pos_embed"]
    for index in range(6):
        tokens, attention_weights = apply_block(tokens, f"blocks.{index}")
    return attention_weights


# %% [markdown]
# **Prediction.** The library computes the same network with other, faster operations. The values of both maps are between 0
# and 1. How large is the largest difference between your maps and the library's maps?

# %%
with torch.no_grad():
    attention_weights = forward(images, model.backbone.state_dict())
maps = (
    attention_weights[0, :, 0, 1:].unflatten(1, (side, side)).numpy()
)  # from [CLS] to the patches, per head
predictor = AttentionPredictor(model, size=SIZE, resize="squash", precision="fp32")
predictor.set_image(image)
difference = np.abs(maps - predictor.cls_attention()).max()
print(f"largest difference: {difference:.0e}, largest value of a map: {maps.max():.3f}")
assert difference < 1e-5
print(
    f"sum of each map: {maps.sum(axis=(1, 2)).min():.3f} to {maps.sum(axis=(1, 2)).max():.3f}"
)

# %% [markdown]
# Your network and the library's network compute the same maps; the difference is rounding. Each map sums to slightly less
# than 1, because [CLS] also attends to itself.
#
# ## Effect of training
#
# The trained and the untrained network have the same code and different weights.
#
# **Prediction.** The sheep covers a quarter of the image. How much of the attention of each attention head is on the sheep,
# with trained weights and with random weights? Write down two ranges in percent.

# %%
random_model = load_model("random:embedded")
with torch.no_grad():
    random = forward(images, random_model.backbone.state_dict())
random_maps = random[0, :, 0, 1:].unflatten(1, (side, side)).numpy()
print(f"area of the sheep: {mask.mean():.0%} of the image")
for label, heads in {"trained weights": maps, "random weights": random_maps}.items():
    inside = [share_inside(head, mask) for head in heads]
    print(
        f"{label}: mean {np.mean(inside):.0%} on the sheep, heads",
        *(f"{share:.0%}" for share in inside),
    )
show(image, [model, random_model], size=SIZE)

# %% [markdown]
# With random weights, the attention on the sheep is about its area (mean **23** %): the architecture alone does not find
# objects. With trained weights, the attention on the sheep is between **4** % and **98** %: four heads attend to the sheep, two
# to the background. Click a head below the image to see its map, and point at a patch to see the row of this patch.
#
# **Exercise (break).** Run `forward` without position embeddings. Copy the weights first:
# `weights = dict(model.backbone.state_dict())`, then set `weights["pos_embed"] = 0 * weights["pos_embed"]`. Which
# attention heads still cover the sheep? Does the network need positions to find the sheep?
#
# **Exercise (argue).** All attention heads of a block receive the same tokens. Why does one head attend to the object and
# another head to the background?
#
# **Summary.**
# - Patches and [CLS] become tokens; blocks of attention and MLP change the tokens.
# - An attention map is the row of [CLS] in the attention weights of the last block, without [CLS] itself.
# - With random weights, the same network gives the object about as much attention as its area.
#
# **References.** Dosovitskiy et al. 2021, [An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929), section 3.1;
# Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294), section 3.2
# and figures 1 and 3; Vaswani et al. 2017, [Attention Is All You Need](https://arxiv.org/abs/1706.03762), equation 1.
