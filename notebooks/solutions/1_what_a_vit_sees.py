# %% [markdown]
# # Solutions to lesson 1

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

from dino_model import photographs
from dino_model.predictor import AttentionPredictor
from notebooks.checks import check

# %% [markdown]
# **1.1** 480 / 8 = 60 patches on each side, and [CLS].

# %%
assert check("1.1", 60 * 60 + 1)


# %% [markdown]
# **1.2** The softmax is over the keys. Subtracting the largest product first changes nothing and keeps exp within range.


# %%
def attention(queries: np.ndarray, keys: np.ndarray, token: int) -> np.ndarray:
    """Queries and keys [heads, tokens, d] -> the attention row of one token [heads, tokens]."""
    products = (queries[:, token, None] * keys).sum(-1) / np.sqrt(queries.shape[-1])
    weights = np.exp(products - products.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


assert check("1.2", attention)

# %% [markdown]
# **1.3** What the patches do not get. Or straight from the row: its first column.

# %%
predictor = AttentionPredictor(size=224, precision="fp32")
predictor.set_image(photographs.picture("sheep"))
assert check("1.3", 1 - predictor.cls_attention().sum(axis=(1, 2)).mean())
