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
# # 3 · Self-distillation in fifty lines
#
# **You will be able to** write DINO's training step yourself: crops, student, teacher, loss, center, moving average; and
# show that it is the same, number for number, as the project's own.
#
# **You need** lesson 1, the cross-entropy, and how PyTorch computes gradients.

# %%
import sys
from pathlib import Path

above = [folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "dino_model").is_dir()]
assert above, f"{Path.cwd()} is not inside the project: start Jupyter with `make lab`"
sys.path.insert(0, str(above[0]))

from notebooks.start import ready

ready()

# %%
import copy

import numpy as np
import torch
from PIL import Image

from dino_model import photographs
from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from notebooks import drawing
from notebooks.checks import check
from training.crop_config import CropConfig
from training.crops import Crops, MultiCrop, normalize
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.randomness import Randomness

# %% [markdown]
# ## Crops: many views of one picture
#
# Of every picture, two large *global* crops and some small *local* ones, each with its own colours. The task will be: say
# of every crop the same. What stays the same under cropping and colouring is what the network will have to see.

# %%
torch.manual_seed(0)
sizes = CropConfig(global_size=32, local_size=16, local_crops=3, blur=(0.1, 0.5))
cut = MultiCrop(sizes)


def cut_batch(names: list[str]) -> Crops:
    """uint8 crops of some photographs: views [2, batch, 3, 32, 32], locals [3, batch, 3, 16, 16]."""
    each = [cut(Image.fromarray(photographs.picture(name))) for name in names]
    return Crops(*(torch.stack(group, dim=1) for group in zip(*each, strict=True)))


batch = list(photographs.names()[:8])
crops = cut_batch(batch)
drawing.pictures(
    [crop.permute(1, 2, 0).numpy() for crop in [*crops.views[:, 0], *crops.locals[:, 0]]],
    ["global", "global", "local", "local", "local"],
    alt="Five crops of one photograph: two large parts of it, three small ones, in different colours.",
    columns=5,
    width=8,
)

# %% [markdown]
# ## Two networks of one shape
#
# Student and teacher are the same network, a small ViT and a head that answers with K = 64 numbers (the paper: 65,536),
# and begin with the same weights. Only the student is trained. To compare with later, the project's own DINO lends us its
# networks.

# %%
STUDENT_TEMPERATURE, TEACHER_TEMPERATURE, CENTER_MOMENTUM, TEACHER_MOMENTUM = 0.1, 0.04, 0.9, 0.99
config = DINOConfig(
    head=HeadConfig(prototypes=64, hidden=64, bottleneck=32),
    student_temperature=STUDENT_TEMPERATURE,
    teacher_temperature_start=TEACHER_TEMPERATURE,
    teacher_temperature=TEACHER_TEMPERATURE,
    center_momentum=CENTER_MOMENTUM,
    teacher_momentum=TEACHER_MOMENTUM,
    freeze_last_layer_epochs=0,
)
backbone = BackboneConfig("vit_tiny", patch_size=8, image_size=32, depth=2, heads=3)
theirs = config.build(backbone, config.schedules(epochs=1, steps_per_epoch=100), classes=0)
student, teacher = copy.deepcopy(theirs.student), copy.deepcopy(theirs.teacher)
center = torch.zeros(64)

# %% [markdown]
# **Exercise 3.1.** The teacher sees two global crops, the student those two and eight local ones. The loss compares every
# answer of the teacher with every answer of the student, except where both saw the same crop. How many comparisons?

# %%
pairs = ...
check("3.1", pairs)

# %% [markdown]
# ## The loss
#
# The teacher's K numbers become a distribution: minus the *center*, divided by a low temperature (*sharpening*), softmax.
# The student's become one with a higher temperature. The loss is the cross-entropy of the two, over all pairs of
# different crops. No gradient passes through the teacher.
#
# **Exercise 3.2.** Write the teacher's part.


# %%
def sharpen(logits: torch.Tensor, center: torch.Tensor, temperature: float) -> torch.Tensor:
    """Logits [views, batch, K] and center [K] -> distributions [views, batch, K]."""
    return ...


check("3.2", sharpen)


# %%
def answers(network: torch.nn.Module, groups: list[torch.Tensor]) -> torch.Tensor:
    """Groups of crops [crops, batch, 3, height, width] -> logits [all crops, batch, K]; a group is one forward pass."""
    logits = [network.head(network.backbone(group.flatten(0, 1))) for group in groups]
    return torch.cat([one.unflatten(0, group.shape[:2]) for one, group in zip(logits, groups, strict=True)])


def our_loss(crops: Crops) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of a batch, and the teacher's logits [2, batch, K]."""
    with torch.no_grad():
        teacher_logits = answers(teacher, [crops.views])
        target = torch.softmax((teacher_logits - center) / TEACHER_TEMPERATURE, dim=-1)
    answer = torch.log_softmax(answers(student, [crops.views, crops.locals]) / STUDENT_TEMPERATURE, dim=-1)
    terms = [
        -(target[seen] * answer[asked]).sum(dim=-1).mean()  # over K, then over the pictures
        for seen in range(len(target))
        for asked in range(len(answer))
        if seen != asked
    ]
    return torch.stack(terms).mean(), teacher_logits


# %% [markdown]
# ## Is it the same?
#
# The project's loss on the same tensors; then the gradient of every weight.

# %%
normalised = normalize(crops, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), torch.device("cpu"))
ours, teacher_logits = our_loss(normalised)
ours.backward()
own = theirs(Batch(normalised, None, Randomness(0, 0, 0, len(batch), len(batch))), step=0)
own.value.backward()
torch.testing.assert_close(ours, own.value)
pairs_of_gradients = list(zip(student.named_parameters(), theirs.student.parameters(), strict=True))
for (name, mine), other in pairs_of_gradients:
    assert (mine.grad is None) == (other.grad is None), name
    if mine.grad is not None:
        torch.testing.assert_close(mine.grad, other.grad, atol=1e-6, rtol=1e-4)
print(f"loss {ours:.6f}, the project's {own.value:.6f}; {len(pairs_of_gradients)} gradients agree")

# %% [markdown]
# ## After the step: center and teacher
#
# The center follows the mean of the teacher's logits. The teacher's weights follow the student's: an average over the
# past, in which a step counts less the longer ago it was.
#
# **Exercise 3.3.** The paper begins with a momentum of 0.996. How much of the teacher's first weights is left in it after
# 1,000 steps, if the momentum stays as it is?

# %%
left = ...
check("3.3", left)


# %%
@torch.no_grad()
def after_step(teacher_logits: torch.Tensor) -> None:
    """Move center and teacher."""
    center.mul_(CENTER_MOMENTUM).add_((1 - CENTER_MOMENTUM) * teacher_logits.mean(dim=(0, 1)))
    for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
        slow.mul_(TEACHER_MOMENTUM).add_((1 - TEACHER_MOMENTUM) * fast)


for network in (student, theirs.student):  # the same update of both, by hand
    with torch.no_grad():
        for weight in network.parameters():
            if weight.grad is not None:
                weight -= 0.1 * weight.grad
after_step(teacher_logits)
theirs.after_step(0, [own.carry])
torch.testing.assert_close(center, theirs.center.flatten())
for mine, other in zip(teacher.parameters(), theirs.teacher.parameters(), strict=True):
    torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)
print("center and teacher agree")

# %% [markdown]
# ## Sixty steps
#
# Your loss, your center, your teacher, and an optimizer. What to watch is not the loss but what it is made of: the
# entropy of the teacher's answers, and the Kullback-Leibler divergence of student and teacher. Lesson 4 is about them.

# %%
optimizer = torch.optim.AdamW([weight for weight in student.parameters() if weight.requires_grad], lr=1e-3)
entropies, divergences = [], []
everybody = np.array(photographs.names())
for step in range(60):
    chosen = np.random.default_rng(step).choice(everybody, 8, replace=False)
    crops = normalize(
        cut_batch(list(chosen)), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), torch.device("cpu")
    )
    loss, teacher_logits = our_loss(crops)
    target = torch.softmax((teacher_logits - center) / TEACHER_TEMPERATURE, dim=-1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    after_step(teacher_logits)
    entropies.append(float(-(target * target.clamp_min(1e-12).log()).sum(dim=-1).mean()))
    divergences.append(float(loss.detach()) - entropies[-1])

with drawing.plot(
    "Over sixty steps: the entropy of the teacher's answers and the divergence from the student's."
) as axes:
    axes.plot(entropies, label="entropy of the teacher")
    axes.plot(divergences, label="KL divergence")
    axes.axhline(np.log(64), color="black", linestyle=":", linewidth=1, label="ln K")
    axes.set(xlabel="step", ylabel="nats")
    axes.legend()
print(f"entropy {entropies[0]:.2f} -> {entropies[-1]:.2f}, KL {divergences[0]:.2f} -> {divergences[-1]:.2f}")

# %% [markdown]
# If your curves end as ours do, the teacher answers almost the same to every crop: an entropy near ln K and no
# divergence left to learn from. So few steps on so few pictures end there, or stay there long; lesson 4 asks when a run
# is only slow and when it has collapsed.

# %% [markdown]
# ---
# **In the paper**: algorithm 1, equations 1 to 4 and section 3.1.
#
# **An open question.** The teacher is never better informed than the student: it sees fewer crops and learns from none.
# Why is its answer worth imitating?
