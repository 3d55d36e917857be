# %% [markdown]
# ## Answers
#
# **Break.** A teacher with random weights.

# %%
_, film = distill(LOSSES["attention"], load_model("random:embedded").backbone)
print(
    "random teacher, lift:",
    *(f"step {step}: {score:.2f}," for step, (score, _) in film.items()),
)

# %% [markdown]
# The lift falls to about 1: the student takes over any attention, also one that ignores the image. The loss does not know what is
# useful; the teacher decides.
#
# **Argue.** The output of a block is the sum of its input and of what attention adds. Two blocks can reach the same sum by
# different weights: the values of many patches are similar, the MLP can compensate, and the residual connection carries what
# earlier blocks have read. The last block adds little to the tokens, so its attention is hardly constrained by them.
