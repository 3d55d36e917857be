# %% [markdown]
# # Solutions to lesson 4

# %%
import sys
from pathlib import Path

above = [folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()]
assert above, f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`"
sys.path.insert(0, str(above[0]))

from notebooks.start import ready

ready()

# %%
import math

from notebooks.checks import check

# %% [markdown]
# **4.1** 256 times -1/256 · ln(1/256).

# %%
assert check("4.1", math.log(256))

# %% [markdown]
# **4.2** Divided by 0.1, a difference of 1 is one of 10.

# %%
soft, sharp = (math.exp(1 / t) / (math.exp(1 / t) + 2) for t in (1, 0.1))
assert check("4.2", sharp / soft)

# %% [markdown]
# **4.3** Answers that differ at all and ever more: it is on its way. Collapsed would be a KL of 0.

# %%
assert check("4.3", "slow")
