# %% [markdown]
# # Solutions to lesson 8

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

from notebooks.checks import check

# %% [markdown]
# **8.1** A vector has a positive product with itself, which does not count. (One of zeros has not.)


# %%
def positive_similarities(features: np.ndarray) -> np.ndarray:
    """Features [patches, D] -> with how many others each patch has a positive product: int [patches]."""
    products = features @ features.T
    np.fill_diagonal(products, 0)
    return (products > 0).sum(axis=1)


assert check("8.1", positive_similarities)

# %% [markdown]
# **8.2** One edge is cut. Patch 3 has one edge in all: w(A, V) = 1. The other side's nodes have 2 + 2 + 3 edges, each
# counted at its node: w(B, V) = 7.

# %%
assert check("8.2", 1 / 1 + 1 / 7)

# %% [markdown]
# **8.3** They share 30 × 20; the boxes have 40 × 20 and 30 × 30. 600 / 1100 = 0.545, so
# CorLoc counts it.

# %%
shared = 30 * 20
assert check("8.3", shared / (40 * 20 + 30 * 30 - shared))
