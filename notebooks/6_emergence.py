# %% [markdown]
# # 6 · Emergence over training
#
# **Question.** When do useful features and attention to objects appear during training, and how certain is their order?
#
# You need lessons 2 and 5. You write two metrics, the lift and the step of half the gain. With these metrics you compare
# fourteen states of the model `embedded-dino`: DINO, with terms of SimDINO after step 30,559. So the last states are not DINO
# alone.

# %%
import numpy as np

from app.notebook import show
from dino_model import photographs
from dino_model.data.textures import CLASSES
from notebooks import drawing
from notebooks.checks import check
from notebooks.execute import LESSONS
from notebooks.scores import accuracy_error, mean_error
from notebooks.solutions import vote

# %% [markdown]
# ## Fourteen checkpoints
#
# A *checkpoint* is a copy of the weights during training. No network is trained in this lesson. The file `emergence.npz`
# contains outputs of fourteen checkpoints. The first one has random weights (step 0). Each checkpoint has two outputs:
#
# - the attention of [CLS] in the last block for 30 images, averaged over the attention heads,
# - the features of the textures of lesson 5.
#
# The first run of `embedded-dino` kept no checkpoint before step 19,370. So the checkpoints up to step 11,000 are from a
# second run with the settings of its first phase, which is DINO alone. The others are from the first run.

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
# Until step 500 the maps are uniform. Then single patches become bright: corners and edges with a high contrast. From step
# 30,559 on bright patches cover more and more of the object. The next cell shows the first and the last checkpoint in the
# view of the app, for the patch under the pointer.

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
    left.set(ylabel="k-NN accuracy on textures (%)", ylim=(0, 100))
    right.errorbar(
        steps, lifts, errors, marker="o", capsize=4, label="30 images, ± standard error"
    )
    right.axhline(1, color="gray", linewidth=1, linestyle=":", label="uniform map")
    right.set(ylabel="lift of the mean attention", ylim=(0, 2.2))
    for axis in (left, right):
        axis.set_xscale("symlog", linthresh=500)  # linear to step 500
        axis.set(xlabel="step", xlim=(-50, 70_000))
        axis.legend()

# %% [markdown]
# Both curves leave their start between steps 1,000 and 2,000. At step 5,000 the k-NN accuracy is **41** % and the lift
# **1.26**, at the last step **87** % and **1.88**.
#
# These scores differ from those of lessons 2 and 5 for the same weights. This lesson has 10 training images per class instead
# of 50, and its images are squashed to squares.
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
# The k-NN accuracy has half of its gain by step **19,370**, the lift by step **30,559**. So the features come first. Or do
# they? One number for a curve says nothing about its other parts.
#
# ## The share of the gain
#
# The *share of the gain* of a score at a step is its gain up to this step, divided by its total gain. It is 0 at the first
# step and 1 at the last, so that both scores fit on one axis.
#
# **Prediction.** Which curve is ahead at step 3,000? By how much?

# %%
gains = [(scores - scores[0]) / (scores[-1] - scores[0]) for scores in (accuracies, lifts)]
generator = np.random.default_rng(0)
draws = generator.integers(len(masks), size=(1000, len(masks)))  # 30 images with replacement
drawn = np.array([by_checkpoint[:, draw].mean(axis=1) for draw in draws])
drawn = (drawn - drawn[:, :1]) / (drawn[:, -1:] - drawn[:, :1])
low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
with drawing.plot(figure="6.4") as axis:
    axis.plot(steps, 100 * gains[0], marker="o", label="k-NN")
    axis.plot(steps, 100 * gains[1], marker="s", label="lift, 95 % interval")
    axis.fill_between(steps, 100 * low, 100 * high, alpha=0.2, color="C1", linewidth=0)
    axis.set_xscale("symlog", linthresh=500)
    axis.set(xlabel="step", ylabel="share of the total gain (%)", xlim=(-50, 70_000))
    axis.legend()
for row in zip(steps, *(100 * part for part in (*gains, low, high)), strict=True):
    print("step {:,}: k-NN {:.0f} %, lift {:.0f} % ({:.0f} to {:.0f})".format(*row))

# %% [markdown]
# Until step 5,000 both scores have the same share of their gain, within the interval: **31** % and **30** % at the end. So
# neither comes first. Then the curves part. At step 11,000 k-NN has **43** %, the lift only **20** % (3 to 39). The largest
# difference is at step 28,629: **90** % against **36** % (30 to 44). Most of the gain of the lift is later, when that of the
# features is almost complete. The order "features first" is true for the second half of the gain, and not shown for the first
# third.
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
with drawing.plot(figure="6.5") as axis:
    axis.plot(steps, lifts, marker="o", label="mask of the image")
    axis.plot(steps, controls, marker="s", label="mask of another image")
    axis.axhline(1, color="gray", linewidth=1, linestyle=":", label="uniform map")
    axis.set(xlabel="step", ylabel="lift of the mean attention", ylim=(0, 2.2))
    axis.legend()

# %% [markdown]
# With masks of other images, the lift is **1.30** at the last step: about a third of the gain is attention to the middle of
# the image. Until step 19,370 the control is at most **1.06**, so the lift of these steps comes from the objects.
#
# Training changed more than the number of steps. It had three resolutions (48 pixels until step 11,000, 112 pixels from step
# 25,374 on), and after step 30,559 its loss had two more terms. Curves of one run cannot separate the effects of such
# changes.
#
# **Exercise (break).** Compute the lift of one image instead of the mean, such as the image `names.index("owl")`. Does the
# lift reach half of its gain at a later checkpoint than the k-NN accuracy?
#
# **Exercise (argue).** Is the higher lift an effect of longer training or of higher resolution? Which runs would you need?
#
# **Summary.**
# - Features and attention to objects appear together, between steps 1,000 and 2,000. Later, features are ahead.
# - The lift needs a control, because objects and attention are both often in the middle.
# - One number hides other parts of a curve, and one run with several changes shows no cause.
#
# **References.** Caron et al. 2021, [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294),
# sections 4.2.2 and 5; the scores of the last step are in the [card of the model](../dino_model/embedded_dino/card.md).
