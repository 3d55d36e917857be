# %% [markdown]
# # D · Distillation
#
# **Question.** Can a network take over the attention of another network, and which loss does that?
#
# You need lessons 2 and 3. The shipped model `embedded` was *distilled*: a student started with the weights of
# `embedded-dino` and was trained to reproduce a frozen teacher, DINOv2. On frames of DAVIS its lift rose from 1.91 to 6.83
# ([card](../dino_model/embedded/card.md)). Here `embedded` is the teacher, and you write the loss. The student trains for one
# minute on 20 images; ten other images test it.

# %%
import copy
import dataclasses

import cv2
import numpy as np
import torch
from torch import nn

from app.notebook import show
from dino_model import AttentionPredictor, load_model, photographs
from dino_model.inference.quantities import lift
from notebooks import distillation, drawing
from notebooks.checks import check

# %% [markdown]
# ## A loss for the tokens
#
# Some channels of a network have large values for all images. They would decide every comparison. The tokens of the teacher
# are therefore *standardized*: each channel gets a mean of 0 and a deviation of 1 over many images.
#
# **Exercise D.1 (code).** Standardize the tokens of a batch. Use all tokens of all images for the statistics of a channel.


# %%
def standardize(tokens: torch.Tensor) -> torch.Tensor:
    """Tokens [B, tokens, width] -> standardized tokens of the same shape."""
    return ...


standardize = check("D.1", standardize)

# %% [markdown]
# **Exercise D.2 (code).** The student's tokens should have the direction of the teacher's tokens. Compute 1 - cosine of each
# pair of tokens, and the mean over all tokens and images.


# %%
def token_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Tokens of student and teacher [B, tokens, width] -> loss, a tensor with one value."""
    return ...


token_loss = check("D.2", token_loss)

# %% [markdown]
# ## A loss for the attention
#
# The attention of [CLS] over the patches is a distribution for each attention head. The Kullback-Leibler divergence of
# lesson 4 compares two distributions: $\sum_k P_t^{(k)} \ln (P_t^{(k)} / P_s^{(k)})$.
#
# **Exercise D.3 (code).** Compute the divergence of each head, and the mean over heads and images.


# %%
def attention_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Positive attention of student and teacher [B, heads, patches] -> loss, one value."""
    return ...


attention_loss = check("D.3", attention_loss)

# %% [markdown]
# **Exercise D.4 (check).** The teacher's head attends to one of 196 patches only. The student's head attends to all patches
# equally. What is the divergence, in nats?

# %%
largest = check("D.4", ...)

# %% [markdown]
# ## Three students
#
# Each of three students starts with the weights of `embedded-dino`. The first is trained with the loss of the tokens, the
# second with the loss of the attention, the third with the sum. A linear layer (*head*) maps the student's tokens to the
# teacher's. Both networks receive the same random crops, with the same brightness.

# %% tags=["hide-input"]
names = photographs.names()
train_names = [name for number, name in enumerate(names) if number % 3]
test_names = [name for name in names if name not in train_names]
train_large, test_large = (
    [name for name in part if photographs.mask(name).mean() > 0.1]  # more than 19 patches
    for part in (train_names, test_names)
)
teacher, start = load_model("embedded"), load_model("embedded-dino")
mean, std = (torch.tensor(values)[:, None, None] for values in (teacher.mean, teacher.std))
squares = [
    cv2.resize(photographs.image(name), (160, 160), interpolation=cv2.INTER_AREA)
    for name in train_names
]
photos = torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2) / 255


def random_crops(count: int, size: int = 96) -> torch.Tensor:
    """Normalized random crops of random images, [count, 3, size, size]."""
    crops = []
    for _ in range(count):
        photo = photos[torch.randint(len(photos), ())]
        side = int(torch.randint(80, 161, ()))
        y, x = torch.randint(161 - side, (2,)).tolist()
        crop = photo[None, :, y : y + side, x : x + side]
        crops.append(
            nn.functional.interpolate(crop, size=size, mode="bilinear", antialias=True)
        )
    brightness = 0.7 + 0.6 * torch.rand(count, 1, 1, 1)
    return ((torch.cat(crops) * brightness).clamp(0, 1) - mean) / std


def predictor(network: nn.Module, name: str = "student") -> AttentionPredictor:
    """Return a predictor of a copy of the network."""
    model = dataclasses.replace(start, name=name, backbone=copy.deepcopy(network).eval())
    return AttentionPredictor(model, size=112, resize="squash", precision="fp32")


def evaluate(network: nn.Module, names: list[str]) -> tuple[float, list[np.ndarray]]:
    """Return the mean lift on images, and the mean map of each image."""
    tested, lifts, maps = predictor(network), [], []
    for name in names:
        tested.set_image(photographs.image(name))
        lifts.append(lift(tested.cls_attention(), photographs.mask(name)))
        maps.append(tested.cls_attention().mean(axis=0))
    return float(np.mean(lifts)), maps


LOSSES = {
    "tokens": lambda tokens, attention: token_loss(*tokens),
    "attention": lambda tokens, attention: attention_loss(*attention),
    "both": lambda tokens, attention: token_loss(*tokens) + attention_loss(*attention),
}
STEPS, BATCH, EVERY = 60, 8, 20


def distill(loss_of, teacher: nn.Module) -> tuple[nn.Module, dict[int, tuple]]:
    """Train a student; return it, and lift and maps of the test images by step."""
    torch.manual_seed(0)
    student = copy.deepcopy(start.backbone).requires_grad_(True)
    head = nn.Linear(student.embed_dim, teacher.embed_dim)
    optimizer = torch.optim.AdamW([*student.parameters(), *head.parameters()], lr=5e-4)
    film = {0: evaluate(student, test_large)}
    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = 5e-4 * min(
            step / 10, 2 * (1 - step / (STEPS + 1)), 1
        )
        crops = random_crops(BATCH)
        with torch.no_grad():
            target_tokens, target_attention = distillation.tokens_and_attention(teacher, crops)
        tokens, attention = distillation.tokens_and_attention(student, crops)
        pairs = (head(tokens), standardize(target_tokens)), (attention, target_attention)
        optimizer.zero_grad()
        loss_of(*pairs).backward()
        optimizer.step()
        if step % EVERY == 0:
            film[step] = evaluate(student, test_large)
    return student, film


# %% [markdown]
# **Prediction.** The lift of the student is 1 for uniform attention. Sketch its curve for each of the three losses. Does the
# lift rise if only the tokens are compared?

# %%
students, films = {}, {}
for label, loss in LOSSES.items():
    students[label], films[label] = distill(loss, teacher.backbone)
    print(
        f"{label}, lift:",
        *(f"step {n}: {score:.2f}," for n, (score, _) in films[label].items()),
    )
limit, _ = evaluate(teacher.backbone, test_large)
networks = {"start": start.backbone, **students, "teacher": teacher.backbone}
for label, network in networks.items():
    lifts = [evaluate(network, part)[0] for part in (train_large, test_large)]
    print(f"{label}, lift: {lifts[0]:.2f} on training images, {lifts[1]:.2f} on test images")
with drawing.plot(figure="D.1") as axis:
    for label, film in films.items():
        axis.plot(list(film), [score for score, _ in film.values()], "o-", label=label)
    axis.axhline(limit, color="black", linewidth=1, label="teacher")
    axis.axhline(1, color="gray", linewidth=1, linestyle=":", label="uniform map")
    axis.set(xlabel="step", ylabel="lift on test images", ylim=(0, None))
    axis.legend(ncols=2)

# %% [markdown]
# The lift of the first student falls from **1.74** to about **1.50** on test images: similar tokens do not bring similar attention.
# With the loss of the attention, the student nearly copies its teacher on the training images: about **2.56**, teacher **2.85**. On
# test images it reaches about **1.82** only, the sum of both losses about **2.01**, the teacher **3.62**. So the loss decides what
# is taken over, and the images decide where it holds: 20 images are enough to copy and too few to generalize.
#
# ## The film of a student
#
# **Prediction.** At which step does the map show the object?

# %%
SHOWN = 4
figures = {
    f"{step}": drawing.grid([*before[1][:SHOWN], *after[1][:SHOWN]], test_large[:SHOWN] * 2)
    for (step, before), after in zip(
        films["tokens"].items(), films["attention"].values(), strict=True
    )
}
drawing.slider(figures, "step", figure="D.2")
show(
    photographs.image("sheep"),
    [predictor(start.backbone, "embedded-dino"), predictor(students["attention"])],
)

# %% [markdown]
# Top: the loss of the tokens; bottom: the loss of the attention. The view below has the network before the distillation on the
# left, the student of the attention on the right. Point at a patch: only the attention of [CLS] was trained.
#
# ## The shipped model
#
# `embedded` was trained with both losses for thousands of steps on up to 65,853 images, with more terms and a teacher with
# patches of 14 pixels ([how](../docs/embedded-model.md)). No label was used in this distillation. Whether its teacher was
# fine-tuned with labels is not documented, so its lift is no evidence of what training without labels finds.
#
# **Exercise (break).** Distill from random weights: pass `load_model("random:embedded").backbone` as the teacher, with
# `LOSSES["attention"]`. Predict the lift first.
#
# **Exercise (argue).** The student with the loss of the tokens has nearly the tokens of the teacher, but not its attention. Why
# can two networks with similar tokens attend to different patches?
#
# **Summary.**
# - Distillation trains a student to reproduce the outputs of a frozen teacher, without labels.
# - Similar tokens do not imply similar attention: the loss has to compare what should be taken over.
# - A student is as good a piece of evidence as its teacher: what the teacher has seen counts.
#
# **References.** Hinton et al. 2015, [Distilling the Knowledge in a Neural Network](https://arxiv.org/abs/1503.02531); Wang et al.
# 2022, [Attention Distillation](https://arxiv.org/abs/2210.00944); Ranzinger et al. 2023,
# [AM-RADIO](https://arxiv.org/abs/2312.06709) (cosine of tokens).
