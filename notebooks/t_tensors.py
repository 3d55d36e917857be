# %% [markdown]
# # T · Tensors for lesson 1
#
# **Question.** Which operations give the values of a tensor other axes, and in which order are the values then?
#
# You need Python. Lesson 1 divides an image into patches and the width of a token into attention heads. Three operations do
# both: `unflatten`, `permute` and `flatten`. You write both divisions on small tensors whose values you can follow.

# %%
import torch

from notebooks import drawing
from notebooks.checks import check

# %% [markdown]
# ## Axes and the order of the values
#
# The *shape* of a tensor is the length of each axis. The values are stored in one row. The last axis changes fastest: after
# the values of a row follow the values of the next row.
#
# **Prediction.** The image below has 4 rows and 6 columns with the values 0 to 23. Which value is in row 2, column 1?

# %%
image = torch.arange(24).reshape(4, 6)
print(image)
print("row 2, column 1:", image[2, 1].item())

# %% [markdown]
# The value is **13**: two rows of six values are before the row, and one value in the row.
#
# **Exercise T.1 (check).** A tensor has the shape [2, 3, 4] and the values 0 to 23 in their stored order. Which value is at the
# index [1, 2, 0]?

# %%
value = check("T.1", ...)

# %% [markdown]
# ## Unflatten and flatten
#
# `unflatten(axis, lengths)` divides one axis into several axes. `flatten(first, last)` joins neighboring axes into one axis.
# Both keep the order of the stored values, so neither can move a value to another place.
#
# **Prediction.** The next cell divides the rows into 2 × 2 and the columns into 3 × 2. What do the four axes count?

# %%
divided = image.unflatten(1, (3, 2)).unflatten(0, (2, 2))
print("shape:", *divided.shape)
print("index [1, 0, 2, 1]:", divided[1, 0, 2, 1].item())

# %% [markdown]
# The axes are: row of tiles, row in the tile, column of tiles, column in the tile. The index [1, 0, 2, 1] is image row 2 and
# image column 5, the value **17**.
#
# ## Permute
#
# `permute` changes the order of the axes. `permute(0, 2, 1, 3)` puts the column of tiles before the row in the tile. A `flatten`
# after it therefore reads tile by tile. `permute` alone moves no value in memory: it changes which axis is read first.
#
# **Exercise T.2 (code).** Divide an image into square tiles. Order the tiles row by row. The patches of lesson 1 are such tiles.


# %%
def tiles(image: torch.Tensor, size: int) -> torch.Tensor:
    """Image [H, W] -> tiles [H * W / size², size, size]."""
    return ...


tiles = check("T.2", tiles)
parts = tiles(image, 2)
wrong = image.reshape(-1, 2, 2)
print("first tile:", parts[0].flatten().tolist())
print("reshape without permute:", wrong[0].flatten().tolist())
drawing.images(
    [image.numpy(), *parts.numpy(), *wrong.numpy()],
    ["image", *(f"tile {i}" for i in range(6)), *(f"only reshape {i}" for i in range(6))],
    figure="T.1",
    columns=7,
)

# %% [markdown]
# The first tile has the values 0, 1, **6** and **7**, which are neighbors in the image. `reshape` alone takes the first four stored
# values, 0 to **3**, which are one row. Its shape is correct and its content is wrong: no error tells you.
#
# ## Attention heads
#
# A token of width 6 is divided among 2 attention heads: the first 3 values belong to head 0, the others to head 1. Attention
# needs the head before the token, because each head compares its own tokens: [B, heads, tokens, d].
#
# **Exercise T.3 (code).** Divide the width among the heads and put the axis of the heads before that of the tokens.


# %%
def split_heads(tokens: torch.Tensor, heads: int) -> torch.Tensor:
    """Tokens [B, tokens, heads * d] -> [B, heads, tokens, d]."""
    return ...


split_heads = check("T.3", split_heads)
tokens = torch.arange(24.0).reshape(1, 4, 6)
heads = split_heads(tokens, 2)
print("head 1 of token 0:", heads[0, 1, 0].tolist())
products = heads @ heads.transpose(-1, -2)
print("shape of all products:", *products.shape)

# %% [markdown]
# Head 1 of token 0 has the values **3.0** to **5.0**. The operator `@` multiplies the matrices of the last two axes, for each image and
# each head: 4 × 4 products for each of **2** heads. Lesson 1 turns these products into attention.
#
# **Exercise (break).** Join the heads again: `heads.flatten(2)` and `heads.transpose(1, 2).flatten(2)`. Which one gives `tokens`?
# What does the other one mix?
#
# **Exercise (argue).** `reshape` accepts every shape with the same number of values, `unflatten` one axis only. Which of them
# makes the error above less likely?
#
# **Summary.**
# - The last axis changes fastest; `unflatten` and `flatten` keep this order.
# - `permute` and `transpose` change the order of the axes; `flatten` then reads the values in the new order.
# - A wrong order raises no error, so check values, not only shapes.
#
# **References.** PyTorch, [Tensor views](https://docs.pytorch.org/docs/stable/tensor_view.html).
