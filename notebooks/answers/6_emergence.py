# %% [markdown]
# ## Answers
#
# **Break.** The lift of one image, then the checkpoint of half of the gain for each of the 30 images.

# %%
owl = by_checkpoint[:, names.index("owl")]
print("owl:", *(f"{score:.2f}" for score in owl))
print(f"owl: half of the gain by step {half_gain_step(steps, owl):,}")
gains = by_checkpoint[-1] - by_checkpoint[0]
halves = [
    half_gain_step(steps, by_checkpoint[:, image]) for image in np.flatnonzero(gains > 0)
]
features_first = half_gain_step(steps, accuracies)
late = sum(step > features_first for step in halves)
print(
    f"{late} of {len(halves)} images have half of the gain after step {features_first:,};",
    f"{sum(gains < 0)} images lose lift",
)

# %% [markdown]
# The owl has half of its gain by step **8,000**, earlier than k-NN, and its lift then falls and rises again. Only **11** of
# **28** images have half of their gain later than k-NN. One image can show any order, so an order needs many images.
#
# **Argue.** This run cannot answer: time, resolution and the terms of the loss changed together. You need at least two more
# runs. One run keeps the low resolution to the end, and one run has the high resolution from the start. Both need several
# seeds and checkpoints at the same steps. The effect of the loss needs a third pair of runs.
