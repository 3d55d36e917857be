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
# # 4 · Why it does not collapse
#
# **You will be able to** tell from two curves whether a run learns, is slow, or has collapsed, and to which of the two
# collapses; and say which operation holds back which.
#
# **You need** lesson 3, entropy, and the Kullback-Leibler divergence.

# %%
import sys
from pathlib import Path

root = next(
    (folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()), None
)
if root is None:
    raise RuntimeError(f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`")
sys.path.insert(0, str(root))

from notebooks.start import ready

ready()

# %%
import tempfile
from dataclasses import replace

import numpy as np
import torch

from dino_model.device import choose_precision
from notebooks import drawing
from notebooks.checks import check
from notebooks.start import study_pictures
from training import doctor
from training.methods.dino import DINO
from training.studies import grids, runs

# %% [markdown]
# ## Nothing in the loss forbids it
#
# A student that gives the same answer to every picture agrees with a teacher that does so too: the loss is as low as it
# can be, and nothing was learned. Two such answers are easy to find: all weight on one of the K numbers, or the same
# weight on all.
#
# The cross-entropy of teacher and student is the teacher's entropy h plus the divergence of the two (section 5.3):
# H = h + KL. A KL of 0 means that the student knows the answer without looking.
#
# **Exercise 4.1.** The base setting of our studies has K = 256. Which entropy, in nats, has the answer that gives all the
# same weight?

# %%
uniform = ...
check("4.1", uniform)

# %% [markdown]
# ## Two operations, two dangers
#
# *Centering* subtracts from each of the K numbers its mean over the last batches: none can win for good. *Sharpening*
# divides by a temperature below the student's: small differences become large.
#
# **Exercise 4.2.** A teacher gives (1, 0, 0) before the softmax. How much weight has the first answer at a temperature of
# 1, and how much at 0.1? Give the second divided by the first.

# %%
gain = ...
check("4.2", gain)

# %% [markdown]
# ## Four runs
#
# With both operations, without one, without the other, with neither: a ViT of four blocks on crops of 32 pixels, eight
# epochs each, some seconds a run. It is the study `collapse` of `python -m training study`, shorter and without local crops.

# %%
work = Path(tempfile.mkdtemp())
pictures = study_pictures(work / "pieces")
device = torch.device("cpu")
where = runs.Where(pictures, device, choose_precision("auto", device))
results = {}
for variant in grids.collapse(epochs=8):
    recipe = replace(variant.recipe, crops=replace(variant.recipe.crops, local_crops=0))
    cell = runs.Cell(variant.name, 0, recipe, work / variant.name)
    runs.train_cell(cell, where, probes=1)
    results[variant.label] = runs.result(cell)
    print(f"{variant.label}: {len(results[variant.label].lines)} steps")

# %%
with drawing.plot(
    "Left, the entropy of the teacher's answers: it falls to 0 without centering, rises to ln K without sharpening and "
    "stays between with both. Right, the divergence: it stays above 0 with both only.",
    width=9,
    columns=2,
) as (left, right):
    for label, result in results.items():
        left.plot([line["teacher_entropy"] for line in result.lines], label=label)
        right.plot([line["kl"] for line in result.lines], label=label)
    left.axhline(np.log(256), color="black", linewidth=1)
    left.annotate("ln K", (0, np.log(256)), va="bottom")
    left.set(xlabel="step", ylabel="nats", title="entropy of the teacher")
    right.set(xlabel="step", ylabel="nats", title="KL of teacher and student")
    right.legend()
for label, result in results.items():
    kl, entropy = result.late("kl"), result.late("teacher_entropy") / np.log(256)
    print(f"{label}: at the end KL {kl:.3f}, entropy {entropy:.0%} of ln K")

# %% [markdown]
# Without centering one answer wins and the entropy goes to 0; without sharpening all become alike and it goes to ln K.
# Each operation pushes towards the collapse that the other holds back.
#
# ## What the doctor says
#
# `python -m training doctor RUN` reads a run's log. It knows these two collapses and names the knob.
# It speaks when the KL is as good as 0, and leaves a run that is only on its way unaccused: read those curves yourself.

# %%
for variant in grids.collapse(epochs=8):
    run = runs.Cell(variant.name, 0, variant.recipe, work / variant.name).run
    found = doctor.findings(run.lines(), DINO, doctor.facts(run.config()))
    print(f"{variant.label}:", *(one.sentence for one in found) if found else ["nothing found that is wrong"])

# %% [markdown]
# **Exercise 4.3.** A run shows an entropy of 99.9 % of ln K and a KL of 0.3 after 500 steps, and the KL is growing. Is it
# "collapsed", "slow", or "learning fast"?

# %%
verdict = ...
check("4.3", verdict)

# %% [markdown]
# ---
# **In the paper**: section 5.3 and its figure; the tables on centering and sharpening in the appendix.
#
# **An open question.** Two opposite pushes balance here because somebody chose the temperatures. Could a method be built
# in which collapse is not a state that has to be held back, but one that cannot be reached?
