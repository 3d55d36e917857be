# %% [markdown]
# # Solutions to lesson 2

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

from notebooks.checks import check, random_heads

# %% [markdown]
# **2.1** Sort, add up, and keep the patch that crosses the threshold.


# %%
def keep_mass(attention: np.ndarray, mass: float) -> np.ndarray:
    """A non-negative map [rows, columns] -> the kept patches, bool [rows, columns]."""
    shares = attention.ravel() / attention.sum()
    strongest_first = np.argsort(shares)[::-1]
    count = int(np.argmax(np.cumsum(shares[strongest_first]) >= mass)) + 1
    kept = np.zeros(shares.size, bool)
    kept[strongest_first[:count]] = True
    return kept.reshape(attention.shape)


assert check("2.1", keep_mass)

# %% [markdown]
# **2.2** They share 5 × 10 pixels and cover 15 × 10.

# %%
assert check("2.2", 50 / 150)

# %% [markdown]
# **2.3** The best of each picture first, then the mean over the pictures.

# %%
heads, truths = random_heads()
shared = (heads & truths[:, None]).sum(axis=(2, 3))
either = (heads | truths[:, None]).sum(axis=(2, 3))
scores = shared / either  # [pictures, heads]
assert check("2.3", scores.max(axis=1).mean() - scores[:, 0].mean())
