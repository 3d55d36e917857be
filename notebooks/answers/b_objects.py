# %% [markdown]
# ## Answers
#
# **Break.** First an image that its object fills, then a sheep in front of two kinds of background.

# %%
predictor = AttentionPredictor("embedded", size=224, precision="fp32")
largest = max(names, key=lambda name: photographs.mask(name).mean())
sheep, sheep_mask = photographs.image("sheep"), photographs.mask("sheep")
height, width = sheep_mask.shape
canyon = photographs.image("canyon")
canyon = canyon[np.arange(height) % len(canyon)][:, np.arange(width) % canyon.shape[1]]
left = np.arange(width) < width // 2
mixed = np.where((left & ~sheep_mask)[..., None], canyon, sheep)
rows, columns = (
    np.flatnonzero(photographs.mask(largest).any(1)),
    np.flatnonzero(photographs.mask(largest).any(0)),
)
box = np.s_[rows[0] : rows[-1], columns[0] : columns[-1]]
cases = {
    f"{largest}, cut at its box": (
        photographs.image(largest)[box],
        photographs.mask(largest)[box],
    ),
    "sheep, two backgrounds": (mixed, sheep_mask),
}
pictures, titles = [], []
for label, (picture, truth) in cases.items():
    placement = set_resized(predictor, np.ascontiguousarray(picture))
    features = last_keys(predictor)
    print(f"{label}: the object has {truth.mean():.0%} of the area")
    for method, find in {"LOST": lost, "TokenCut": tokencut}.items():
        mask = placement.mask(find(features).mask)
        print(f"  {method}: Jaccard {jaccard(mask, truth):.2f}")
        pictures.append(drawing.masked(np.ascontiguousarray(picture), mask))
        titles.append(f"{method}: {label}")
drawing.show(
    drawing.grid(pictures, titles),
    "LOST and TokenCut when their assumptions fail.",
    "Four images with masks.",
)

# %% [markdown]
# LOST assumes that the background is larger than the object. If the object fills the image, its patches are the majority, and the
# seed can be on the background: both methods then return poor masks. TokenCut assumes two groups. With two kinds of background, the
# best cut can separate the backgrounds. Here the sheep differs more from both backgrounds than they differ from each other, so both
# methods still find it. Try backgrounds that differ more.
#
# **Argue.** Leave out the patches of the first object and search in the rest, as MaskCut does. The background is then the larger part
# of the remaining patches. Patches of the first object are neither background nor a candidate: they must not change the number of
# similar patches or the cut.
