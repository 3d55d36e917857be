# %% [markdown]
# ## Answers
#
# **Exercise.** The next cell divides the share of the attention by the share of the area (the lift of lesson 2), and prints the
# three smallest values. In such an image, another structure gets attention: a second object, an edge or a bright area.

# %%
predictor = AttentionPredictor("embedded", size=224, precision="fp32")
lifts = {}
for name in photographs.names():
    predictor.set_image(photographs.image(name))
    truth = photographs.mask(name)
    lifts[name] = share_inside(predictor.cls_attention().mean(axis=0), truth) / truth.mean()
for name in sorted(lifts, key=lifts.get)[:3]:
    print(f"{name}: {lifts[name]:.2f}")
