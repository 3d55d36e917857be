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
# **Question.** How can a network without labels learn useful features from its own outputs?
#
# You need lesson 1 and PyTorch's optimizers. You write the three functions of DINO: the target, the loss and the moving
# average. With these functions, a small network trains from random weights until its features are better than pixels.

# %%
import copy
import math

import torch

from dino_model.data.textures import CLASSES
from notebooks import distillation, drawing
from notebooks.checks import check
from notebooks.distillation import Network, features, knn_accuracy, random_crops

# %% [markdown]
# ## The data
#
# A program draws gray images of 16 kinds of textures. Phase, scale, rotation, contrast and brightness of each image are
# random, so neither brightness nor position identifies a class. Labels are used for evaluation only, never for training.

# %%
train_images, train_labels = distillation.textures(seed=0, per_class=200)
test_images, test_labels = distillation.textures(seed=1, per_class=100)
drawing.images(
    [train_images[train_labels == label][0, 0].numpy() for label in range(16)],
    CLASSES,
    figure="3.1",
    columns=8,
)

# %% [markdown]
# ## Two crops of one image
#
# DINO takes two random *crops* of each image and changes their brightness and contrast at random. Training makes the outputs
# for the two crops equal. The outputs can only depend on properties that all crops of an image share.
#
# **Prediction.** Which property do all crops of a texture share? Which properties differ from crop to crop?

# %%
torch.manual_seed(0)
images = distillation.normalized(train_images)
samples = images[::200]  # the first image of each class
triples = zip(samples[:4], random_crops(samples[:4]), random_crops(samples[:4]), strict=True)
drawing.images(
    [(image - image.min())[0].numpy() for triple in triples for image in triple],
    ["image", "crop 1", "crop 2"] * 4,
    figure="3.2",
    columns=6,
)

# %% [markdown]
# All crops of an image share the kind of texture. Place, scale, brightness and contrast differ. A network with equal outputs
# for all crops of an image therefore has to recognize the kind of texture.
#
# ## Student and teacher
#
# ![Student and teacher: crops, networks, softmax, loss, moving average](../docs/figures/dino.svg)
#
# Two networks have the same architecture. For each crop, each network outputs one score (*logit*) for each of $K$
# *prototypes*, which are classes without names. Gradients train the *student*. The *teacher* receives no gradient: its
# weights are a moving average of the student's weights.
#
# In the paper, the teacher receives two large (*global*) crops of each image. The student receives the two global crops and
# several small (*local*) crops. This lesson uses two crops for both networks.
#
# **Exercise 3.1 (check).** In the paper, an image has two global crops and eight local crops. The loss compares each output
# of the teacher with each output of the student. Pairs of the same crop are left out. How many pairs remain per image?

# %%
pairs = check("3.1", ...)

# %% [markdown]
# **Exercise 3.2 (code).** The teacher's logits $g_t$ become a distribution $P_t$ over the prototypes in three steps:
#
# 1. Subtract the *center* $c$, a running mean of the teacher's logits (*centering*).
# 2. Divide by a small temperature $\tau_t$ (*sharpening*).
# 3. Apply the softmax over the prototypes.
#
# As a formula: $P_t = \mathrm{softmax}((g_t - c) / \tau_t)$. $B$ is the number of images in a batch.


# %%
def sharpen(logits: torch.Tensor, center: torch.Tensor, temperature: float) -> torch.Tensor:
    """Teacher logits [crops, B, K] and center [K] -> distributions [crops, B, K]."""
    return ...


sharpen = check("3.2", sharpen)

# %% [markdown]
# **Exercise 3.3 (code).** The student's logits $g_s$ become a distribution without a center:
# $P_s = \mathrm{softmax}(g_s / \tau_s)$. The loss is a cross-entropy: of the teacher's distribution for one crop $x$ and the
# student's distribution for the *other* crop $x'$:
#
# $$-\sum_{k=1}^{K} P_t^{(k)}(x) \log P_s^{(k)}(x')$$
#
# Return its mean over both orders of the crops and over the batch.


# %%
def dino_loss(targets: torch.Tensor, logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Teacher distributions and student logits [2, B, K] -> loss, a tensor with one value."""
    return ...


dino_loss = check("3.3", dino_loss)

# %% [markdown]
# **Exercise 3.4 (code).** After each step, the teacher's weights $\theta_t$ move toward the student's weights $\theta_s$:
# $\theta_t \leftarrow \lambda \theta_t + (1 - \lambda) \theta_s$. This is an *exponential moving average* (EMA) with the
# momentum $\lambda$.


# %%
def ema(teacher: torch.Tensor, student: torch.Tensor, momentum: float) -> torch.Tensor:
    """Weights of one shape -> the teacher's new weights."""
    return ...


ema = check("3.4", ema)

# %% [markdown]
# ## Training
#
# The next cell trains with your functions as in Algorithm 1 of the paper. The teacher computes under `torch.no_grad()`: this
# is the *stop-gradient* of the figure. `ema` updates the teacher and also the center.
#
# Every 50 steps, *k-NN* evaluates the features of both networks. A *feature* is the vector of [CLS] after the last block. The
# 10 training images with the most similar features vote for the class of each test image.
#
# **Prediction.** Chance is 6 %. The baselines are the untrained network and plain pixels. Sketch the accuracy of teacher
# and student over 400 steps. Which network is ahead, and at which step are the features better than pixels?

# %%
STEPS, BATCH = 400, 32
torch.manual_seed(0)
student = Network()
teacher, center = copy.deepcopy(student), torch.zeros(distillation.PROTOTYPES)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 1e-3, total_steps=STEPS + 1, pct_start=0.1
)


def step(images: torch.Tensor, momentum: float) -> tuple[float, float]:
    """Train on one batch; return the loss and the entropy of the teacher's outputs in nats."""
    global center
    crops = torch.cat([random_crops(images), random_crops(images)])
    with torch.no_grad():
        logits = teacher(crops)
    targets = sharpen(logits.unflatten(0, (2, -1)), center, distillation.TEACHER_TEMPERATURE)
    loss = dino_loss(
        targets, student(crops).unflatten(0, (2, -1)), distillation.STUDENT_TEMPERATURE
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    center = ema(center, logits.mean(dim=0), distillation.CENTER_MOMENTUM)
    with torch.no_grad():
        for old, new in zip(
            teacher.state_dict().values(), student.state_dict().values(), strict=True
        ):
            old.copy_(ema(old, new, momentum) if old.is_floating_point() else new)
    return float(loss.detach()), float(torch.special.entr(targets).sum(dim=-1).mean())


def evaluate(network: Network) -> float:
    """Compute the k-NN accuracy of the features of a network, in percent."""
    train_features = features(network, distillation.normalized(train_images))
    test_features = features(network, distillation.normalized(test_images))
    return knn_accuracy(train_features, train_labels, test_features, test_labels)


curves, history = {"teacher": [], "student": []}, []
for number in range(STEPS + 1):
    if number % 50 == 0:
        curves["teacher"].append(evaluate(teacher))
        curves["student"].append(evaluate(student))
        latest = ", ".join(f"{label} {curve[-1]:.0f} %" for label, curve in curves.items())
        print(f"step {number} of {STEPS}: {latest}")
    batch = images[torch.randint(len(images), (BATCH,))]
    history.append(step(batch, momentum=0.98 + 0.015 * number / STEPS))

# %%
train_pixels, test_pixels = (
    distillation.pixel_features(part) for part in (train_images, test_images)
)
pixels = knn_accuracy(train_pixels, train_labels, test_pixels, test_labels)
teacher_knn, student_knn = curves["teacher"][-1], curves["student"][-1]
untrained = curves["teacher"][0]
largest = math.log(distillation.PROTOTYPES)  # entropy of equal probabilities
loss, entropy = torch.tensor(history[-50:]).mean(dim=0).tolist()
print(
    f"k-NN: untrained {untrained:.0f} %, pixels {pixels:.0f} %,",
    f"teacher {teacher_knn:.0f} %, student {student_knn:.0f} %",
)
print(
    f"mean of the last 50 steps: loss {loss:.1f},",
    f"entropy of the teacher {entropy:.1f} of at most {largest:.1f} nats",
)
assert teacher_knn > 10 + max(pixels, untrained)
with drawing.plot(
    figure="3.3",
) as axis:
    for label, curve in curves.items():
        axis.plot(range(0, STEPS + 1, 50), curve, marker="o", label=label)
    axis.axhline(pixels, color="black", linewidth=1, label="pixels")
    axis.axhline(100 / 16, color="gray", linewidth=1, linestyle=":", label="chance")
    axis.set(xlabel="step", ylabel="k-NN accuracy (%)", ylim=(0, 100))
    axis.legend()

# %% [markdown]
# Without labels, the accuracy of the features rises from about **24** % to about **66** %; pixels reach **40** % (lesson 5 has
# fewer training images, so its pixels reach less). The student is
# ahead while the accuracy rises, because the teacher averages over past weights; at the end both are equal. In the paper, the
# teacher is ahead for most of a much longer training (figure 6).
#
# The entropy of the teacher is about **2.7** nats. It is 0 if one prototype has all probability, and **5.5** if all prototypes
# have the same probability. Both extremes are failures of the training; lesson 4 shows them.
#
# **Exercise (break).** Call `step` with `momentum=0`, which makes the teacher a copy of the student. Predict the curves and the
# entropy. Then run the cell of the training and the cell of the figure again. Does the copy fail, as it does in the paper?
# Lesson 4 compares both teachers.
#
# **Exercise (argue).** The teacher receives neither labels nor gradients. Why are its outputs a useful target?
#
# **Summary.**
# - The student predicts, for one crop, the teacher's distribution for another crop of the same image.
# - The teacher's weights are a moving average of the student's weights; its logits are centered and sharpened.
# - Training keeps the properties that all crops of an image share; here, the kind of texture.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# section 3.1, equations 1 to 4 and algorithm 1; Hinton et al. 2015,
# [Distilling the Knowledge in a Neural Network](https://arxiv.org/abs/1503.02531).
