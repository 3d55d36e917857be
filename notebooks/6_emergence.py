# %% [markdown]
# # 6 · Emergence over training
#
# **Question.** When do useful features and attention to objects appear during training, and how certain is their order?
#
# You need lessons 2 and 5. You write two metrics, the lift and the step of half the gain. With these metrics you compare seven
# states of the model `embedded-dino`: DINO, with terms of SimDINO after step 30,559. So the last states are not DINO alone.

# %%
import json

import numpy as np
import torch

from app.notebook import show
from dino_model import photographs
from dino_model.data.textures import CLASSES
from notebooks import distillation, drawing
from notebooks.checks import check
from notebooks.execute import LESSONS
from notebooks.scores import accuracy_error, mean_error
from notebooks.solutions import vote

# %% [markdown]
# ## Seven checkpoints
#
# A *checkpoint* is a copy of the weights during training. No network is trained in this lesson. The file `emergence.npz`
# contains outputs of seven checkpoints of the model `embedded-dino`. The first checkpoint has random weights (step 0). Each
# checkpoint has two outputs:
#
# - the attention of [CLS] in the last block for 30 images, averaged over the attention heads,
# - the features of the textures of lesson 5.

# %%
stored = np.load(LESSONS / "emergence.npz")
steps = stored["steps"]  # [checkpoints]
maps = stored["maps"].astype(float)  # [checkpoints, images, 28, 28], the sum of each map is 1
masks = stored["masks"]  # objects on the patches, bool [images, 28, 28]
names = photographs.names()
print("steps:", *(f"{step:,}" for step in steps))

# %% [markdown]
# **Prediction.** Which output changes first, the features or the attention? At which of these steps does the map show the
# sheep? Write down both answers.

# %%
SHOWN = ("sheep", "kitten", "owl", "crab")
drawing.images([photographs.image(name) for name in SHOWN], SHOWN, figure="6.1")
figures = {
    f"{step:,}": drawing.grid([of[names.index(name)] for name in SHOWN], SHOWN)
    for step, of in zip(steps, maps, strict=True)
}
drawing.slider(figures, "step", figure="6.2")

# %% [markdown]
# At step 19,370 the brightest patches are on edges. At the last step, bright patches cover most of the object. The next cell
# shows the first and the last checkpoint in the view of the app, for the patch under the pointer.

# %%
show(photographs.image("sheep"), ["random:embedded", "embedded-dino"], size=96)

# %% [markdown]
# The next section measures the change.
#
# ## The lift
#
# The *lift* is a score of one map: the object's share of the attention, divided by the object's share of the patches. A
# uniform map has a lift of 1.
#
# **Exercise 6.1 (code).** Compute the lift. The values of the map need not add up to 1.


# %%
def lift(attention: np.ndarray, mask: np.ndarray) -> float:
    """Non-negative map and object mask, both [rows, columns] -> lift, at least 0."""
    return ...


lift = check("6.1", lift)

# %% [markdown]
# **Exercise 6.2 (check).** An object covers 20 % of the patches. What is the largest lift that a map can have?

# %%
largest = check("6.2", ...)

# %% [markdown]
# ## Both curves
#
# **Prediction.** Sketch two curves over the steps: the lift, and the k-NN accuracy on textures (chance is 6 %).


# %%
def unit(features: np.ndarray) -> np.ndarray:
    """Scale vectors [images, width] to unit length."""
    return features / np.linalg.norm(features.astype(float), axis=1, keepdims=True)


labels = np.repeat(np.arange(len(CLASSES)), 10)
by_checkpoint = np.array(
    [[lift(attention, mask) for attention, mask in zip(of, masks, strict=True)] for of in maps]
)  # [checkpoints, images]
lifts, errors = mean_error(by_checkpoint.T)
accuracies = []
for train, test in zip(stored["train"], stored["test"], strict=True):
    neighbors = unit(train)
    predicted = [vote(feature, neighbors, labels, 10, 0.07).argmax() for feature in unit(test)]
    accuracies.append(100 * np.mean(np.array(predicted) == labels))
accuracies = np.array(accuracies)
spreads = accuracy_error(accuracies, len(labels))
rows = zip(steps, accuracies, spreads, lifts, errors, strict=True)
for step, accuracy, spread, score, error in rows:
    print(
        f"step {step:,}: k-NN {accuracy:.0f} ± {spread:.0f} %, lift {score:.2f} ± {error:.2f}"
    )
share = (lifts[1] - lifts[0]) / (lifts[-1] - lifts[0])
print(f"gain of the lift by step {steps[1]:,}: {100 * share:.0f} % of the total gain")

with drawing.plot(figure="6.3", columns=2, width=9) as (left, right):
    left.errorbar(
        steps,
        accuracies,
        spreads,
        marker="o",
        capsize=4,
        label="160 test images, ± standard error",
    )
    left.axhline(100 / 16, color="gray", linewidth=1, linestyle=":", label="chance")
    left.set(xlabel="step", ylabel="k-NN accuracy on textures (%)", ylim=(0, 100))
    right.errorbar(
        steps, lifts, errors, marker="o", capsize=4, label="30 images, ± standard error"
    )
    right.axhline(1, color="gray", linewidth=1, linestyle=":", label="uniform map")
    right.set(xlabel="step", ylabel="lift of the mean attention", ylim=(0, 2.2))
    for axis in (left, right):
        axis.legend()

# %% [markdown]
# At step 19,370 the k-NN accuracy is **71** %, and at the last step **87** %. At the same steps the lift is **1.38** and **1.88**. At
# this step, the accuracy has more than half of its gain. The lift has **44** % of its gain.
#
# These scores differ from those of lessons 2 and 5 for the same weights. This lesson has 10 training images per class instead of
# 50, and its images are squashed to squares.
#
# **Exercise 6.3 (code).** Compute one number for each curve: the first step at which the score has at least half of its total
# gain. The total gain is the last score minus the first score.


# %%
def half_gain_step(steps: np.ndarray, scores: np.ndarray) -> int:
    """Steps and scores, both [checkpoints] -> step of half the gain."""
    return ...


half_gain_step = check("6.3", half_gain_step)
for label, scores in {"k-NN": accuracies, "lift": lifts}.items():
    print(f"{label}: half of the gain by step {half_gain_step(steps, scores):,}")

# %% [markdown]
# The k-NN accuracy has half of its gain by step **19,370**, the lift by step **30,559**. Is this order certain? At step 19,370 the
# lift has almost half of its gain, and 30 images are few. The next cell draws 30 images with replacement, 1,000 times. It counts
# how often the lift also has half of its gain by step 19,370.

# %%
generator = np.random.default_rng(0)
draws = generator.integers(len(masks), size=(1000, len(masks)))
same = np.mean(
    [half_gain_step(steps, by_checkpoint[:, draw].mean(axis=1)) <= steps[1] for draw in draws]
)
print(f"half of the gain of the lift by step {steps[1]:,}: {100 * same:.0f} % of the draws")

# %% [markdown]
# In about **30** % of the draws, both scores have half of their gain by the same checkpoint. The first checkpoint after step 0 is
# at 39 % of the run, so checkpoints alone do not show the order. The log of the run has more steps.
#
# ## Between the first two checkpoints
#
# The log of `embedded-dino` has the k-NN accuracy of every 1,000 steps, on images that no training read. No checkpoint of these
# steps exists, so their lift is unknown. But the lift at step 19,370 is known: it has less than half of its gain.
#
# **Prediction.** At which step does the k-NN accuracy of the log have half of its gain?

# %%
LOG = LESSONS.parent / "dino_model" / "embedded_dino" / "log.jsonl"
lines = [json.loads(line) for line in LOG.read_text().splitlines()]
probes = np.array(
    [
        (line["step"] + (line["phase"] > 1) * 11_000, line["knn_teacher"])
        for line in lines
        if line["phase"] <= 2 and "knn_teacher" in line
    ]
)
final = max(line["knn_teacher"] for line in lines if "knn_teacher" in line)
middle = (probes[0, 1] + final) / 2
early = int(probes[np.argmax(probes[:, 1] >= middle), 0])
print(f"k-NN of the log: {probes[0, 1]:.0f} % at step 1,000, at most {final:.0f} % in the run")
print(f"half of this gain by step {early:,}")
with drawing.plot(figure="6.4") as axis:
    gain = 100 * (probes[:, 1] - probes[0, 1]) / (final - probes[0, 1])
    lift_gain = 100 * (lifts - lifts[0]) / (lifts[-1] - lifts[0])
    axis.plot(probes[:, 0], gain, marker=".", label="k-NN, log of the run")
    axis.plot(steps, lift_gain, marker="o", label="lift, checkpoints")
    axis.axhline(50, color="gray", linewidth=1, linestyle=":", label="half of the gain")
    axis.set(xlabel="step", ylabel="share of the total gain (%)", ylim=(0, 105))
    axis.legend()

# %% [markdown]
# The k-NN accuracy of the log has half of its gain by step **10,000**. More than 9,000 steps later, the lift has less than half of
# its gain. So in this run the features come first, unless the lift was larger before step 19,370 and fell again. One limit
# remains: in about 30 % of the draws of images, the lift has half of its gain by step 19,370, which is still later than k-NN.
#
# ## The first steps, at a small scale
#
# No checkpoint of `embedded-dino` exists before step 19,370. A small run can be watched from its first step: the network of lesson 4
# (two blocks, crops of 24 pixels) trains with DINO on 1,600 textures. The test has 320 scenes: a disk with a texture before a
# gray background. This scale is far from the paper's: one run, 300 steps, and objects that differ from the background by
# texture only.
#
# **Prediction.** Does the order stay the same: k-NN first, then the lift? Sketch both curves over the 300 steps.

# %% tags=["hide-input"]
images, texture_labels = distillation.textures(seed=0, per_class=100)
test_images, test_labels = distillation.textures(seed=1, per_class=20)
images, (small, disks) = distillation.normalized(images), distillation.scenes(test_images, 0)
small, test_images = map(distillation.normalized, (small, test_images))
early_log, film = [], {}


def watch(step: int, teacher: distillation.Network) -> None:
    """Evaluate features and attention of the teacher at some steps."""
    if step not in (0, 25, 50, 75, 100, 150, 200, 250, 300):
        return
    parts = (distillation.features(teacher, part) for part in (images, test_images))
    train_features, test_features = parts
    accuracy = distillation.knn_accuracy(
        train_features, texture_labels, test_features, test_labels
    )
    teacher.eval()
    with torch.no_grad():
        _, attention = distillation.tokens_and_attention(teacher.backbone, small)
    teacher.train()
    means = attention.mean(dim=1).view(-1, 6, 6).double().numpy()
    pairs = zip(means, disks, strict=True)
    by_scene = [lift(attention, disk) for attention, disk in pairs if disk.any()]
    early_log.append((step, accuracy, *mean_error(by_scene)))
    film[f"{step}"] = drawing.grid(
        [*(image[0].numpy() + 3 for image in small[10::80]), *means[10::80]],
        ["scene"] * 4 + ["attention"] * 4,
        columns=4,
    )


distillation.train(images, distillation.Variant(), 300, watch=watch)
drawing.slider(film, "step", figure="6.5")
for step, accuracy, score, error in early_log:
    print(f"step {step}: k-NN {accuracy:.0f} %, lift {score:.2f} ± {error:.2f}")

# %%
early_steps, early_knn, early_lift, early_error = np.array(early_log).T
with drawing.plot(figure="6.6", columns=2, width=9) as (left, right):
    left.plot(early_steps, early_knn, "o-")
    left.set(xlabel="step", ylabel="k-NN accuracy on textures (%)", ylim=(0, 100))
    right.errorbar(early_steps, early_lift, early_error, marker="o", capsize=4)
    right.axhline(1, color="gray", linewidth=1, linestyle=":")
    right.set(xlabel="step", ylabel="lift of the mean attention")

# %% [markdown]
# The order is the same. k-NN rises from about **23** % to about **49** % by step 150 and to about **57** % by step 200. The lift is about
# **1.18** at step 150, about **1.73** at step 200 and about **2.98** at step 300: it rises most when k-NN has almost ended its rise.
# Here no checkpoint is missing, and the standard errors are far below the differences. The film shows why a single
# early checkpoint can mislead: until step 100 the maps are uniform, although the features have changed.
#
# ## A control: the masks of other images
#
# Objects are often in the middle of an image. A map with its maximum always in the middle would also have a lift above 1. The
# control combines each map with the mask of the next image. If the lift of the control is above 1, this part of the lift does
# not depend on the object.
#
# **Prediction.** How large is the lift of the control at the last step?

# %%
others = np.roll(masks, -1, axis=0)
controls = [np.mean([lift(*pair) for pair in zip(of, others, strict=True)]) for of in maps]
print("masks of other images:", *(f"{score:.2f}" for score in controls))
with drawing.plot(figure="6.7") as axis:
    axis.plot(steps, lifts, marker="o", label="mask of the image")
    axis.plot(steps, controls, marker="s", label="mask of another image")
    axis.axhline(1, color="gray", linewidth=1, linestyle=":", label="uniform map")
    axis.set(xlabel="step", ylabel="lift of the mean attention", ylim=(0, 2.2))
    axis.legend()

# %% [markdown]
# With masks of other images, the lift is **1.30** at the last step: about a third of the gain is attention to the middle of the
# image. At step 19,370 the control is **0.99**, so the lift of 1.38 at this step comes from the objects.
#
# Training changed more than the number of steps. The run had three resolutions (48, 80 and 112 pixels; 112 pixels from step
# 25,374 on), and after step 30,559 its loss had two more terms. Curves of one run cannot separate the effects of such changes.
#
# **Exercise (break).** Compute the lift of one image instead of the mean, such as the image `names.index("owl")`. Does the
# lift reach half of its gain at a later checkpoint than the k-NN accuracy?
#
# **Exercise (argue).** Is the higher lift an effect of longer training or of higher resolution? Which runs would you need?
#
# **Summary.**
# - In both runs features come first: k-NN has half of its gain before the lift, by thousands of steps in the long run.
# - The lift needs a control, because objects and attention are both often in the middle.
# - One run with several changes shows no cause. More checkpoints and images are needed for the order.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# sections 4.2.2 and 5; the scores of the last step are in the [card of the model](../dino_model/embedded_dino/card.md).
