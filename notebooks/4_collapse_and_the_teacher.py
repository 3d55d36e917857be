# %% [markdown]
# # 4 · Collapse and the teacher
#
# **Question.** How do student and teacher avoid an output that is the same for all images?
#
# You need lesson 3. You predict the result of six short runs and write two metrics that reveal a collapse. The *doctor*, a
# program of this project that reads the log of a run, then diagnoses each run.

# %%
import numpy as np
import torch

from notebooks import distillation, drawing
from notebooks.checks import check
from notebooks.distillation import Variant, train
from notebooks.scores import accuracy_error
from training.run.doctor import RunSettings, findings

# %% [markdown]
# ## Two kinds of collapse
#
# If the output does not depend on the image, student and teacher agree perfectly, and no feature is learned. This is a
# *collapse*. Two such outputs exist for any image: all probability on one prototype, or the same probability on all $K$
# prototypes (the *uniform* output).
#
# **Exercise 4.1 (check).** The runs of this lesson have $K = 256$ prototypes. The entropy of a distribution $P$ is
# $-\sum_k P_k \ln P_k$, in nats. What is the entropy of the uniform output?

# %%
uniform_entropy = check("4.1", ...)

# %% [markdown]
# The loss is the cross-entropy of teacher and student, which is a sum of two terms:
#
# - the *entropy* of the teacher, $h(P_t) = -\sum_k P_t^{(k)} \ln P_t^{(k)}$,
# - the *Kullback-Leibler divergence* (KL), $\sum_k P_t^{(k)} \ln (P_t^{(k)} / P_s^{(k)})$, which is 0 if teacher and student
#   agree.
#
# The loss alone does not show a collapse, but its two terms do.
#
# **Exercise 4.2 (code).** Compute the entropy of the teacher and the KL, each averaged over the batch.


# %%
def entropy_and_kl(
    targets: torch.Tensor, outputs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive distributions of teacher and student [B, K] -> mean entropy and KL in nats."""
    return ...


entropy_and_kl = check("4.2", entropy_and_kl)

# %% [markdown]
# **Prediction.** If teacher and student output the same, which entropy and which KL have the two kinds of collapse?

# %%
one_prototype = torch.full((4, 256), 1e-9).index_fill(1, torch.tensor(7), 1.0)
uniform = torch.full((4, 256), 1 / 256)
for label, output in {"one prototype": one_prototype, "uniform output": uniform}.items():
    entropy, kl = entropy_and_kl(output, output)
    print(f"{label}: entropy {entropy:.2f}, KL {kl:.2f} nats")

# %% [markdown]
# In both kinds of collapse the KL is **0.00**. The entropy shows which kind it is: **0.00** for one prototype, and **5.55**,
# which is $\ln 256$, for the uniform output.
#
# ## Four runs
#
# *Centering* subtracts a running mean of the teacher's logits, so that no prototype has the highest value for all images.
# *Sharpening* divides the teacher's logits by a smaller temperature than the student's, so that the output is not uniform.
# The four runs use both operations, one of them, or neither.
#
# **Prediction.** Sketch the entropy of the teacher over 240 steps for each run. Sketch the KL for each run as well.

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
runs = {}
for label, variant in variants.items():
    runs[label] = train(images, variant, STEPS)
    print(f"{label}: trained for {STEPS} steps")


def smooth(log: list[dict[str, float]], name: str) -> np.ndarray:
    """Average a metric of a log over 10 steps."""
    return np.convolve([line[name] for line in log], np.full(10, 0.1), mode="valid")


with drawing.plot(figure="4.1", width=9, columns=2) as (left, right):
    for label, (_, log) in runs.items():
        left.plot(smooth(log, "teacher_entropy") / uniform_entropy, label=label)
        right.plot(smooth(log, "kl"), label=label)
    left.set(xlabel="step", ylabel="entropy of the teacher / ln K", ylim=(-0.02, 1.05))
    right.set(xlabel="step", ylabel="KL (nats)", ylim=(0, None))
    right.legend()
for label, (_, log) in runs.items():
    share, kl = smooth(log, "teacher_entropy")[-1] / uniform_entropy, smooth(log, "kl")[-1]
    print(f"{label}: entropy {share:.0%} of ln K, KL {kl:.2f} nats")
    assert kl > 0.5 if label == "both" else kl < 0.1

# %% [markdown]
# Only the run with both operations keeps a KL above 0.1 nats. Without centering the entropy falls to **0** % of $\ln K$: all
# probability is on one prototype. Without sharpening the entropy rises to **100** % of $\ln K$: the output is uniform. With
# neither operation the entropy is about **92** %. A KL near 0 shows that this output hardly depends on the image.
#
# ## Diagnosis
#
# `python -m training doctor RUN` diagnoses a run of this project from its log. This section applies the same functions to
# the four logs.
#
# **Prediction.** In which runs does the doctor find a collapse, and to which output?


# %%
def diagnose(label: str, log: list[dict[str, float]], momentum: float) -> None:
    """Print the findings of the doctor."""
    settings = RunSettings(
        steps=STEPS, steps_per_epoch=50, batch_size=32, teacher_momentum=momentum
    )
    print(f"{label}: {'; '.join(findings(log, settings).values()) or 'no finding'}")


for label, (_, log) in runs.items():
    diagnose(label, log, variants[label].momentum)

# %% [markdown]
# The doctor finds a collapse in three runs and no problem in the run with both operations. It reads your two metrics and the
# number of prototypes that a batch uses: about **1.0** of 256 without centering. The options in its advice belong to
# `python -m training pretrain`.
#
# ## The delay of the teacher
#
# The teacher's weights are an average of past weights of the student. In this average, the weights of $n$ steps ago count
# $\lambda^n$ times as much as the newest weights.
#
# **Exercise 4.3 (check).** The momentum $\lambda$ is 0.98. After how many steps do the weights of a step count half as much?

# %%
half_life = check("4.3", ...)

# %% [markdown]
# Averaging removes noise and adds delay. The next cell shows both effects on a single weight. The student's weight moves
# toward 1 with random noise in each step. Three teachers average it with different momentum.
#
# **Prediction.** Which of the momenta 0.5, 0.95 and 0.995 gives the smallest distance from 1 in the last 150 steps?

# %%
noise = np.random.default_rng(0).normal(size=300)
student = [0.0]
for value in noise:
    student.append(student[-1] + 0.05 * (1 - student[-1]) + 0.08 * value)
teachers = {}
for momentum in (0.5, 0.95, 0.995):
    teachers[momentum] = [0.0]
    for weight in student[1:]:
        teachers[momentum].append(momentum * teachers[momentum][-1] + (1 - momentum) * weight)
with drawing.plot(figure="4.2") as axis:
    axis.plot(student, color="gray", linewidth=0.8, label="student")
    for momentum, values in teachers.items():
        axis.plot(values, label=f"teacher, λ = {momentum}")
    axis.axhline(1, color="black", linewidth=1)
    axis.set(xlabel="step", ylabel="value of the weight")
    axis.legend(loc="lower center", ncols=2)
print("root mean square distance from 1 in the last 150 steps:")
for label, values in {"student": student, **teachers}.items():
    print(f"  {label}: {np.sqrt(np.mean((np.array(values)[-150:] - 1) ** 2)):.2f}")

# %% [markdown]
# The momentum 0.95 has the smallest distance, **0.13**. With the momentum 0.5, most of the noise remains (**0.23**, student
# **0.24**). With the momentum 0.995, the delay is too long (**0.37**).
#
# ## Teachers of three speeds
#
# **Prediction.** Order the k-NN accuracies of three teachers:
#
# - a copy of the student ($\lambda = 0$),
# - an average over about 50 steps ($\lambda = 0.98$, the run with both operations),
# - a teacher that hardly changes ($\lambda = 0.9999$).

# %%
momenta = {"copy, λ = 0": 0.0, "λ = 0.98": 0.98, "λ = 0.9999": 0.9999}
for label, momentum in momenta.items():
    runs[label] = (
        runs["both"] if momentum == 0.98 else train(images, Variant(momentum=momentum), STEPS)
    )


def knn(network: distillation.Network) -> float:
    """Compute the k-NN accuracy of the features of a network, in percent."""
    stored, tested = (distillation.features(network, part) for part in (images, test_images))
    return distillation.knn_accuracy(stored, labels, tested, test_labels)


torch.manual_seed(0)
accuracies = {"untrained": knn(distillation.Network(depth=2))}
accuracies |= {label: knn(runs[label][0]) for label in momenta}
errors = [accuracy_error(value, len(test_images)) for value in accuracies.values()]
with drawing.plot(figure="4.3") as axis:
    axis.errorbar(list(accuracies), list(accuracies.values()), errors, fmt="o", capsize=4)
    axis.axhline(100 / 16, color="gray", linewidth=1, linestyle=":", label="chance")
    axis.set(xlabel="momentum λ of the teacher", ylabel="k-NN accuracy (%)", ylim=(0, 80))
    axis.legend()
for (label, accuracy), error in zip(accuracies.items(), errors, strict=True):
    print(f"{label}: k-NN {accuracy:.0f} ± {error:.0f} %")
assert accuracies["λ = 0.98"] > 5 + max(accuracies["copy, λ = 0"], accuracies["λ = 0.9999"])
for label, momentum in momenta.items():
    diagnose(label, runs[label][1], momentum)

# %% [markdown]
# Averaging over 50 steps reaches about **57** % and the copy about **42** %. The paper has the same order, but its copy fails
# (0.1 % on ImageNet). Here the copy learns: the run is short, and centering and sharpening avoid its collapse. The teacher that
# hardly changes is as good as the untrained network (about **21** %). The error bars cover the 800 test images only; each
# accuracy is from one run. The doctor advises against the copy and against the slow teacher.
#
# **Exercise (break).** Train with other momenta, such as `train(images, Variant(momentum=0.99), STEPS)`. Which is the
# largest momentum whose teacher is better than the untrained network? Compare it with the advice of the doctor.
#
# **Exercise (argue).** Centering and sharpening balance each other only for suitable temperatures. Describe a loss without
# a minimum at a collapsed output.
#
# **Summary.**
# - A collapsed run has a KL near 0; its entropy shows to which output it collapsed.
# - Centering prevents the collapse to one prototype, sharpening prevents the uniform output; DINO needs both.
# - The teacher must change more slowly than the student, but fast enough to change during the run.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# sections 5.2 and 5.3, figures 6 and 7; Polyak and Juditsky 1992, on averaging iterates.
