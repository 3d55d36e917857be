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

above = [folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()]
assert above, f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`"
sys.path.insert(0, str(above[0]))

from notebooks.start import ready

ready()

# %%
import tempfile

import numpy as np
import scipy.stats

from notebooks import drawing
from notebooks.checks import check
from training import doctor
from training.methods.dino import DINO
from training.run import Run
from training.studies.laws import collapse_variants
from training.studies.runs import Cell, textures, train_cell

# %% [markdown]
# ## Nothing in the loss forbids it
#
# A student that gives the same answer to every picture agrees with a teacher that does so too: the loss is as low as it
# can be, and nothing was learned. Two such answers are easy to find: all weight on one of the K numbers, or the same
# weight on all. Beside them, what training is for, with K = 8:

# %%
one, other = np.array([[9, 5, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 6, 10, 2, 1]])
said = {
    "one number wins": (np.eye(8)[2], np.eye(8)[2]),
    "all weigh the same": (np.full(8, 1 / 8), np.full(8, 1 / 8)),
    "it depends on the picture": (one / one.sum(), other / other.sum()),
}
with drawing.plot(
    "The answers to two pictures as bars. Left, one bar of 1, the same for both pictures; in the middle, eight equal bars, "
    "the same for both; right, high bars at the left for one picture and at the right for the other.",
    width=9,
    columns=3,
) as axes:
    for place, (words, pair) in zip(axes, said.items(), strict=True):
        for number, (answer, color) in enumerate(zip(pair, ("#0072b2", "#e69f00"), strict=True)):
            place.bar(np.arange(8) + 0.4 * number, answer, 0.4, color=color, label=f"picture {number + 1}")
        place.set(title=words, xticks=[], ylim=(0, 1.05))
    axes[0].set_ylabel("weight")
    axes[0].legend()
for words, pair in said.items():
    entropy = np.mean([scipy.stats.entropy(answer) for answer in pair])
    print(
        f"{words}: entropy {entropy:.2f} of at most {np.log(8):.2f}, KL of the two {scipy.stats.entropy(*pair):.2f}"
    )

# %% [markdown]
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
# With both operations, without one, without the other, with neither: a ViT of four blocks on crops of 32 pixels of
# generated gray textures, 600 steps each. `python -m training study collapse` trains three seeds of 800 steps.

# %%
work = Path(tempfile.mkdtemp())
data = textures()
cells = [Cell(name, 0, recipe, work / name) for name, recipe in collapse_variants(epochs=6).items()]
results = {cell.variant: train_cell(cell, data, probes=1) for cell in cells}

# %%
with drawing.plot(
    "Left, the entropy of the teacher's answers: it falls to 0 without centering, rises to ln K without sharpening and "
    "stays between with both. Right, the divergence: with both it stays highest, with the others it falls towards 0.",
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
# Each operation pushes towards the collapse that the other holds back. The KL comes after: the student has to find out
# which answer it is that never changes.
#
# ## What the doctor says
#
# `python -m training doctor RUN` reads a run's log. It knows these collapses, names a run that is on its way to one too,
# and says which knob to turn.

# %%
for cell in cells:
    found = doctor.findings(
        results[cell.variant].lines, DINO.diagnose, doctor.facts(Run(cell.folder).config())
    )
    print(f"{cell.variant}:", *(one.sentence for one in found) if found else ["nothing found that is wrong"])

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
