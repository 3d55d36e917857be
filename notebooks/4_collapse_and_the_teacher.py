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
# # 4 · Collapse and the teacher
#
# **Question.** What prevents student and teacher from agreeing on an output that ignores the image?
#
# You need lesson 3. You predict six short runs, write the two values that reveal a collapse, and let the *doctor* of this
# project, a program that reads the log of a run, diagnose each run.

# %%
import numpy as np
import torch

from notebooks import distillation, drawing
from notebooks.checks import check
from notebooks.distillation import Variant, train
from training.doctor import Facts, findings

# %% [markdown]
# ## Two ways to collapse
#
# If the output does not depend on the image, student and teacher agree perfectly, and nothing is learned. Two such outputs
# are easy to find: all probability on one prototype, or the same probability on all $K$ prototypes.
#
# **Exercise 4.1 (check).** The runs below have $K = 256$. What is the entropy of the uniform output, in nats?

# %%
uniform_entropy = check("4.1", ...)

# %% [markdown]
# The loss is the cross-entropy of teacher and student. It is the sum of the *entropy* of the teacher,
# $h(P_t) = -\sum_k P_t \log P_t$, and the *Kullback-Leibler divergence* (KL), $\sum_k P_t \log (P_t / P_s)$, which is 0 if
# both agree. The loss alone does not show a collapse; these two values do.
#
# **Exercise 4.2 (code).** Compute both, averaged over the batch.


# %%
def entropy_and_kl(targets: torch.Tensor, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive distributions of teacher and student [B, K] -> mean entropy and mean KL in nats."""
    return ...


entropy_and_kl = check("4.2", entropy_and_kl)
one_prototype = torch.full((4, 256), 1e-9).index_fill(1, torch.tensor(7), 1.0)
uniform = torch.full((4, 256), 1 / 256)
for label, output in {"one prototype": one_prototype, "uniform output": uniform}.items():
    entropy, kl = entropy_and_kl(output, output)
    print(f"{label}: entropy {entropy:.2f}, KL {kl:.2f} nats")

# %% [markdown]
# ## Four runs
#
# *Centering* subtracts a running mean, so that no prototype can win for all images. *Sharpening* divides by a temperature
# below the student's, so that outputs cannot become uniform. The runs use both, one, or none of them.
#
# **Prediction.** Sketch entropy and KL over the steps for each run, four curves each.

# %%
STEPS = 240
images, labels = distillation.textures(seed=0, per_class=100)
test_images, test_labels = distillation.textures(seed=1, per_class=50)
images, test_images = distillation.normalized(images), distillation.normalized(test_images)
variants = {
    "both": Variant(),
    "no centering": Variant(centering=False),
    "no sharpening": Variant(sharpening=False),
    "neither": Variant(centering=False, sharpening=False),
}
runs = {label: train(images, variant, STEPS) for label, variant in variants.items()}


def smooth(log: list[dict[str, float]], name: str) -> np.ndarray:
    """Mean of a field of a log over 10 steps."""
    return np.convolve([line[name] for line in log], np.full(10, 0.1), mode="valid")


with drawing.plot(
    caption="Without centering one prototype takes all weight; without sharpening the output becomes uniform.",
    alt="Left: entropy falls to 0 without centering, rises to 1 without sharpening, and stays near 0.5 with both. Right: KL falls to 0 in all runs except with both.",
    width=9,
    columns=2,
) as (left, right):
    for label, (_, log) in runs.items():
        left.plot(smooth(log, "teacher_entropy") / uniform_entropy, label=label)
        right.plot(smooth(log, "kl"), label=label)
    left.set(xlabel="step", ylabel="entropy of the teacher / ln K", ylim=(-0.02, 1.05))
    right.set(xlabel="step", ylabel="KL of teacher and student (nats)", ylim=(0, None))
    right.legend()
for label, (_, log) in runs.items():
    share, kl = smooth(log, "teacher_entropy")[-1] / uniform_entropy, smooth(log, "kl")[-1]
    print(f"{label}: entropy {share:.0%} of ln K, KL {kl:.2f}")
    assert kl > 0.5 if label == "both" else kl < 0.1

# %% [markdown]
# Only the run with both operations keeps a divergence. Without centering the entropy falls to **0** % of $\ln K$: one
# prototype wins. Without sharpening it rises to **100** %. With neither, the output settles at about **92** % and is the same
# for all images. In the three collapsed runs the KL is below 0.1 nats: the student knows the output without the image.
#
# ## Diagnosis
#
# `python -m training doctor RUN` reads the log of a run. Here the same functions read the four logs.
#
# **Prediction.** Which runs will the doctor call collapsed, and to which output?


# %%
def diagnose(label: str, log: list[dict[str, float]], momentum: float) -> None:
    """Print the findings of the doctor."""
    facts = Facts(steps=STEPS, steps_per_epoch=50, batch_size=32, teacher_momentum=momentum)
    sentences = [finding.sentence for finding in findings(log, facts)]
    print(f"{label}: {'; '.join(sentences) or 'no finding'}")


for label, (_, log) in runs.items():
    diagnose(label, log, variants[label].momentum)

# %% [markdown]
# The doctor names all three collapses and finds nothing in the run with both. It reads what you computed, and the number of
# prototypes that a batch uses: about **1.0** of 256 without centering.
#
# ## How slow is the teacher?
#
# The teacher is an average of past students: a student of $n$ steps ago counts $\lambda^n$ as much as the current one.
#
# **Exercise 4.3 (check).** With a momentum $\lambda$ of 0.98, after how many steps does a student count half as much?

# %%
half_life = check("4.3", ...)

# %% [markdown]
# Averaging removes noise but adds delay. One weight shows both: a student moves toward 1 with noise in each step, and three
# teachers follow it.

# %%
noise = np.random.default_rng(0).normal(size=300)
weights = [0.0]
for shock in noise:
    weights.append(weights[-1] + 0.05 * (1 - weights[-1]) + 0.08 * shock)
followers = {}
for momentum in (0.5, 0.95, 0.995):
    followers[momentum] = [0.0]
    for weight in weights[1:]:
        followers[momentum].append(momentum * followers[momentum][-1] + (1 - momentum) * weight)
with drawing.plot(
    caption="A fast teacher keeps the noise of its student, a slow one has not arrived.",
    alt="A noisy curve that rises to 1 and three smoother curves: the slowest has reached only 0.7 at step 300.",
) as axis:
    axis.plot(weights, color="gray", linewidth=0.8, label="student")
    for momentum, values in followers.items():
        axis.plot(values, label=f"teacher, λ = {momentum}")
    axis.axhline(1, color="black", linewidth=1)
    axis.set(xlabel="step", ylabel="weight")
    axis.legend(loc="lower center", ncols=2)
for label, values in {"student": weights, **followers}.items():
    print(f"{label}: distance from 1 {np.sqrt(np.mean((np.array(values)[150:] - 1) ** 2)):.2f}")

# %% [markdown]
# ## Three teachers
#
# **Prediction.** Order the k-NN accuracies: a teacher that copies its student ($\lambda = 0$), one that averages over about
# 50 steps ($\lambda = 0.98$, the run above), and one that hardly moves ($\lambda = 0.9999$).

# %%
teachers = {"copy": Variant(momentum=0.0), "0.98": variants["both"], "0.9999": Variant(momentum=0.9999)}
runs |= {
    label: train(images, variant, STEPS) for label, variant in teachers.items() if variant.momentum != 0.98
}
runs["0.98"] = runs["both"]


def knn(network: distillation.Network) -> float:
    """k-NN accuracy of the features of a network in percent."""
    found = distillation.features(network, images), distillation.features(network, test_images)
    return distillation.knn_accuracy(found[0], labels, found[1], test_labels)


torch.manual_seed(0)
accuracies = {"untrained": knn(distillation.Network(depth=2))} | {
    label: knn(runs[label][0]) for label in teachers
}
errors = [np.sqrt(value * (100 - value) / len(test_images)) for value in accuracies.values()]
with drawing.plot(
    caption="A teacher over about 50 steps is best; a copy is worse, and a teacher that hardly moves stays untrained.",
    alt="k-NN accuracy with error bars: untrained 21 %, copy 47 %, momentum 0.98 58 %, momentum 0.9999 21 %.",
) as axis:
    axis.errorbar(list(accuracies), list(accuracies.values()), errors, fmt="o", capsize=4)
    axis.set(xlabel="momentum of the teacher", ylabel="k-NN accuracy (%)", ylim=(0, 80))
for label, accuracy in accuracies.items():
    print(f"{label}: k-NN {accuracy:.0f} %")
assert accuracies["0.98"] > 5 + max(accuracies["copy"], accuracies["0.9999"])
for label in ("copy", "0.9999"):
    diagnose(label, runs[label][1], teachers[label].momentum)

# %% [markdown]
# The order is the paper's: averaging helps (about **58** % against about **47** % for the copy), and a teacher that is too slow
# is still the untrained network (about **21** %). The error bars show the uncertainty of the 800 test images only; another
# seed moves the trained values by a few points. The doctor sees the slow teacher, but not the copy: its log looks healthy.
#
# **Exercise (break).** Find the largest momentum with which the run still beats the untrained network. Compare it with the
# momentum that the doctor advises.
#
# **Exercise (argue).** Centering and sharpening balance each other because the temperatures were chosen well. How would a
# loss look in which collapse is not a minimum?
#
# **Summary.**
# - A collapsed run has a KL near 0; its entropy says to which output it collapsed.
# - Centering prevents one prototype from winning, sharpening prevents the uniform output; DINO needs both.
# - The teacher must be slower than the student, but fast enough to move during the run.
#
# **References.** Caron et al. 2021, sections 5.2 and 5.3, figures 6 and 7; Polyak and Juditsky 1992, on averaging iterates.
