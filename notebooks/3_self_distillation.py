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
# # 3 · Self-distillation
#
# **Question.** How can a network learn features from a target that it produces itself?
#
# You need lesson 1 and PyTorch's optimizers. You write the three lines that make DINO; with them a small network trains
# from random weights until its features beat pixels. No label is used in training.

# %%
import copy

import torch

from dino_model.textures import CLASSES
from notebooks import distillation, drawing
from notebooks.checks import check
from notebooks.distillation import Network, features, knn_accuracy, random_crops

# %% [markdown]
# ## The data
#
# The images are 16 kinds of gray textures, drawn by a program. Phase, scale, rotation, contrast and brightness of each
# image are random, so that neither brightness nor position identifies a class. The labels only evaluate features.

# %%
train_images, train_labels = distillation.textures(seed=0, per_class=200)
test_images, test_labels = distillation.textures(seed=1, per_class=100)
drawing.images(
    [train_images[train_labels == label][0, 0].numpy() for label in range(16)],
    CLASSES,
    caption="One image of each class. Each image is scaled to its own maximum.",
    alt="Sixteen gray textures: bars, bricks, checkers, dots, grids and others.",
    columns=8,
)

# %% [markdown]
# ## Two crops of one image
#
# DINO takes two random *crops* of each image, with random brightness and contrast, and asks for the same output. What stays
# the same in all crops of an image is what the network has to compute: here, the texture.

# %%
torch.manual_seed(0)
images = distillation.normalized(train_images)
samples = images[::200]
views = zip(samples[:4], random_crops(samples[:4]), random_crops(samples[:4]), strict=True)
drawing.images(
    [(image - image.min())[0].numpy() for triple in views for image in triple],
    ["image", "crop 1", "crop 2"] * 4,
    caption="Two crops of an image show the same texture at another place, scale and contrast.",
    alt="Four textures, bars, bricks, checkers and dots, and two random crops of each.",
    columns=6,
)

# %% [markdown]
# ## Student and teacher
#
# ![Student and teacher: crops, networks, softmax, loss, moving average](../docs/figures/dino.svg)
#
# Two networks of one architecture output a score for each of $K$ *prototypes*, classes without names. The *student* is
# trained with gradients. The *teacher* is not: its weights follow the student's. The paper's teacher receives two large
# (*global*) crops, its student these and several small (*local*) crops; this lesson uses two crops only.
#
# **Exercise 3.1 (check).** With eight local crops, the loss compares every output of the teacher with every output of the
# student, except for the same crop. How many pairs are that?

# %%
pairs = check("3.1", ...)

# %% [markdown]
# **Exercise 3.2 (code).** The teacher's scores become a distribution: subtract the *center* $c$, a running mean of the
# teacher's outputs, divide by a small temperature $\tau_t$ (*sharpening*), and apply the softmax:
# $P_t = \mathrm{softmax}((g_t - c) / \tau_t)$.


# %%
def sharpen(logits: torch.Tensor, center: torch.Tensor, temperature: float) -> torch.Tensor:
    """Teacher logits [crops, B, K] and center [K] -> distributions [crops, B, K]."""
    return ...


sharpen = check("3.2", sharpen)

# %% [markdown]
# **Exercise 3.3 (code).** The loss is the cross-entropy of the teacher's distribution for one crop and the student's for the
# *other* crop: $-\sum_k P_t^{(k)}(x) \log P_s^{(k)}(x')$, averaged over both orders and the batch.


# %%
def dino_loss(targets: torch.Tensor, logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Teacher distributions [2, B, K] and student logits [2, B, K] -> loss, one number."""
    return ...


dino_loss = check("3.3", dino_loss)

# %% [markdown]
# **Exercise 3.4 (code).** After each step, every weight of the teacher moves toward the student's: an *exponential moving
# average* with momentum $\lambda$, $\theta_t \leftarrow \lambda \theta_t + (1 - \lambda) \theta_s$.


# %%
def ema(teacher: torch.Tensor, student: torch.Tensor, momentum: float) -> torch.Tensor:
    """Weights of one shape -> the teacher's new weights."""
    return ...


ema = check("3.4", ema)

# %% [markdown]
# ## Training
#
# The loop is Algorithm 1 of the paper with your functions. Every 50 steps, *k-NN* evaluates the features of both
# networks: each test image gets the class of its 10 most similar training images.
#
# **Prediction.** Chance is 6 %. The untrained network and plain pixels are the baselines. Sketch the accuracy of teacher
# and student over 400 steps: which network is ahead, and when do the features beat pixels?

# %%
STEPS, BATCH = 400, 32
torch.manual_seed(0)
student = Network()
teacher, center = copy.deepcopy(student), torch.zeros(distillation.PROTOTYPES)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=STEPS + 1, pct_start=0.1)


def step(images: torch.Tensor, momentum: float) -> tuple[float, float]:
    """Train on one batch and return loss and entropy of the teacher's outputs, in nats."""
    global center
    crops = torch.cat([random_crops(images), random_crops(images)])
    with torch.no_grad():
        logits = teacher(crops)
    targets = sharpen(logits.unflatten(0, (2, -1)), center, distillation.TEACHER_TEMPERATURE)
    loss = dino_loss(targets, student(crops).unflatten(0, (2, -1)), distillation.STUDENT_TEMPERATURE)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    center = ema(center, logits.mean(dim=0), distillation.CENTER_MOMENTUM)
    with torch.no_grad():
        for old, new in zip(teacher.state_dict().values(), student.state_dict().values(), strict=True):
            old.copy_(ema(old, new, momentum) if old.is_floating_point() else new)
    return float(loss.detach()), float(torch.special.entr(targets).sum(dim=-1).mean())


def evaluate(network: Network) -> float:
    """k-NN accuracy of the features of a network in percent."""
    found = (features(network, distillation.normalized(part)) for part in (train_images, test_images))
    return knn_accuracy(next(found), train_labels, next(found), test_labels)


curves = {"teacher": [], "student": []}
for number in range(STEPS + 1):
    if number % 50 == 0:
        curves["teacher"].append(evaluate(teacher))
        curves["student"].append(evaluate(student))
    batch = images[torch.randint(len(images), (BATCH,))]
    loss, entropy = step(batch, momentum=0.98 + 0.015 * number / STEPS)

# %%
shrunk = (distillation.pixel_features(part) for part in (train_images, test_images))
pixels = knn_accuracy(next(shrunk), train_labels, next(shrunk), test_labels)
teacher_knn, student_knn = curves["teacher"][-1], curves["student"][-1]
untrained = curves["teacher"][0]
print(
    f"k-NN: untrained {untrained:.0f} %, pixels {pixels:.0f} %, teacher {teacher_knn:.0f} %, student {student_knn:.0f} %"
)
print(f"last step: loss {loss:.1f}, entropy of the teacher {entropy:.1f} nats")
assert teacher_knn > 10 + max(pixels, untrained)
with drawing.plot(
    caption="The features of both networks pass the pixels; the teacher is behind its student while learning is fast.",
    alt="k-NN accuracy over 400 steps: both curves rise from 24 % to above 60 %, past the line of the pixels at 40 %.",
) as axis:
    for label, curve in curves.items():
        axis.plot(range(0, STEPS + 1, 50), curve, marker="o", label=label)
    axis.axhline(pixels, color="black", linewidth=1, label="pixels")
    axis.axhline(100 / 16, color="gray", linewidth=1, linestyle=":", label="chance")
    axis.set(xlabel="step", ylabel="k-NN accuracy (%)", ylim=(0, 100))
    axis.legend()

# %% [markdown]
# Without any label the features rise from about **24** % to about **63** %, past the pixels (**40** %). The student is ahead
# while learning is fast, because the teacher averages over the past; at the end both are equal. The paper's teacher leads
# its student for most of the training, which is a thousand times longer.
#
# **Exercise (break).** Call `step` with `momentum=0` in the loop, which makes the teacher a copy of the student. Predict the
# curve first. Lesson 4 explains what you see.
#
# **Exercise (argue).** The teacher never sees a label and never receives a gradient. Why are its outputs a useful target?
#
# **Summary.**
# - The student predicts, for one crop, the teacher's distribution for another crop of the same image.
# - The teacher is a moving average of the student; its output is centered and sharpened.
# - Features that all crops of an image share are learned; here they name the texture.
#
# **References.** Caron et al. 2021, section 3.1, equations 1 to 4 and algorithm 1; Hinton et al. 2015,
# [Distilling the Knowledge in a Neural Network](https://arxiv.org/abs/1503.02531).
