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
# # 5 · The teacher leads
#
# **You will be able to** say what a momentum teacher is an average of, how far back it looks, and what goes wrong when it
# follows too fast or too slowly.
#
# **You need** lessons 3 and 4.

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

from notebooks import drawing
from notebooks.checks import check
from training import doctor
from training.methods.dino import DINO
from training.run import Run
from training.studies.laws import base_recipe, change
from training.studies.runs import Cell, textures, train_cell

# %% [markdown]
# ## An average over the past
#
# teacher ← m · teacher + (1 - m) · student. A weight that the student had n steps ago counts mⁿ as much as today's.
#
# **Exercise 5.1.** At a momentum of 0.98, after how many steps does a weight count half as much?

# %%
steps = ...
check("5.1", steps)

# %% [markdown]
# ## A toy that can be computed
#
# A student of one weight looks for 1, and every step throws it about. Its average over the past is calmer.
#
# **Exercise 5.2.** Write the teacher.


# %%
def follow(values: np.ndarray, momentum: float) -> np.ndarray:
    """Student's values [steps] -> the teacher's [steps]; it begins as the student."""
    return ...


check("5.2", follow)


# %%
def average(values: np.ndarray, momentum: float) -> np.ndarray:
    """The same at one go, as an average over the past: (1 - m) mⁿ of it is n steps old, the rest is the beginning."""
    ages = np.arange(len(values))
    past = np.convolve(values, (1 - momentum) * momentum**ages)[: len(values)]
    return past + momentum ** (ages + 1) * values[0]


noise = np.random.default_rng(0).normal(size=300)
student = [0.0]
for shake in noise:
    student.append(student[-1] + 0.05 * (1 - student[-1]) + 0.08 * shake)
student = np.array(student)
momenta = 1 - np.geomspace(1, 0.001, 60)
errors = {m: float(np.sqrt(np.mean((average(student, m)[100:] - 1) ** 2))) for m in momenta}
with drawing.plot(
    "Left, a student that jumps about its aim and three teachers: one too fast jumps with it, one too slow has not yet "
    "arrived. Right, the teacher's distance from the aim by the steps that it averages over: smallest in between.",
    width=9,
    columns=2,
) as (left, right):
    left.plot(student, label="student", linewidth=0.8, color="#777777", linestyle="-", zorder=3)
    for momentum in (0.5, 0.95, 0.995):
        left.plot(average(student, momentum), label=f"m = {momentum}")
    left.axhline(1, color="black", linewidth=1)
    left.set(xlabel="step", ylabel="weight", ylim=(-0.75, 1.7))
    left.legend(loc="lower center", ncols=2)
    right.plot(1 / (1 - momenta), list(errors.values()))
    right.set(xscale="log", xlabel="steps averaged over, 1 / (1 - m)", ylabel="distance from the aim")
best = min(errors, key=errors.get)
print(
    f"from step 100 on the student is {errors[0.0]:.3f} from its aim (root mean square), "
    f"the best teacher {errors[best]:.3f}, at m = {best:.2f}"
)

# %% [markdown]
# This is Polyak-Ruppert averaging: the paper's reading of why the teacher can know more than the student that it is made
# of (section 5.2).
#
# **Exercise 5.3.** A run of 300 steps has a momentum of 0.999. How much of the teacher's first, random weights is left in it
# at the end?

# %%
left_over = ...
check("5.3", left_over)

# %% [markdown]
# ## Three runs
#
# The base setting of our studies, 600 steps on generated gray textures, with a teacher that is a copy of the student
# (m = 0), with its own 0.98, and with 0.9995.

# %%
work = Path(tempfile.mkdtemp())
data, plain = textures(), base_recipe(epochs=6)
recipes = {
    "copy": change(plain, "method", teacher="student-copy"),
    "0.98": plain,
    "0.9995": change(plain, "method", teacher_momentum=0.9995),
}
cells = {name: Cell(name, 0, recipe, work / name) for name, recipe in recipes.items()}
results = {name: train_cell(cell, data, probes=4) for name, cell in cells.items()}

# %%
with drawing.plot(
    "k-NN of teacher and student while they train, beside a line at the untrained network's: with a copy the two are one "
    "curve, with a momentum of 0.98 they part, with 0.9995 the teacher stays at the line.",
    width=9,
    columns=3,
) as axes:
    for place, (name, result) in zip(axes, results.items(), strict=True):
        at = [0, *(line["step"] + 1 for line in result.probes)]
        for network in ("teacher", "student"):
            figures = [result.untrained, *(line[f"knn_{network}"] for line in result.probes)]
            place.plot(at, figures, label=network)
        place.axhline(result.untrained, color="black", linewidth=1)
        place.set(
            title=f"teacher: {name}", xlabel="step", ylim=(result.untrained - 20, result.untrained + 20)
        )
    axes[0].set_ylabel("k-NN top-1 (%)")
    axes[-1].legend()
for name, result in results.items():
    leads = [line["knn_teacher"] - line["knn_student"] for line in result.probes]
    found = doctor.findings(result.lines, DINO.diagnose, doctor.facts(Run(cells[name].folder).config()))
    print(
        f"{name}: untrained {result.untrained:.1f} %, teacher {result.knn('teacher'):.1f}, student "
        f"{result.knn('student'):.1f}; the teacher's lead is {np.mean(leads):+.1f} points on average;",
        "; ".join(one.sentence for one in found) or "nothing found that is wrong",
    )
right = results["0.98"].knn() / 100
noise = 100 * np.sqrt(right * (1 - right) / len(data.test))
print(f"Each figure is a share of {len(data.test):,} pictures: its standard error is {noise:.1f} points.")

# %% [markdown]
# A copy has nobody ahead of it to follow. A teacher that is too slow is still the untrained network, and its student learns
# to answer as that does.
#
# While the student improves fast, its average lags behind it: the teacher can lead only once the curve is flat. The study
# `python -m training study lead` keeps momentum and learning rate constant to show it, see `docs/studies.md`.
#
# ---
# **In the paper**: section 5.2 and its figure and table; the last paragraph of the appendix "Additional Ablations".
#
# **An open question.** A teacher that is slower is calmer and older. Nobody computes the best momentum for a network as we
# did for one weight: could it be read off the run while it trains?
