# %% [markdown]
# ## Answers
#
# **Break.** Three momenta between 0.98 and 0.9999.

# %%
for momentum in (0.99, 0.995, 0.998):
    network, log = train(images, Variant(momentum=momentum), STEPS)
    print(f"λ = {momentum}: k-NN {knn(network):.0f} %")
    diagnose(f"λ = {momentum}", log, momentum)

# %% [markdown]
# The accuracy falls as the momentum rises: from about 57 % at 0.98 to **48** % at 0.99, **39** % at 0.995 and **32** % at 0.998. These
# teachers are better than the untrained network (about 21 %). The doctor advises against all of them: a momentum $\lambda$ averages
# over about $1 / (1 - \lambda)$ steps, which has to be short compared with the run. Each value is from one run.
#
# **Argue.** A collapsed output has no information about the image. A loss can therefore contain a term that is large for equal
# outputs of different images. Examples are the negatives of MoCo (the output must differ from that of other images), the variance
# term of VICReg (each dimension must vary in a batch), and KoLeo (neighbors in a batch are pushed apart). In SwAV, an equal
# partition of the batch over the prototypes excludes the collapse by construction.
