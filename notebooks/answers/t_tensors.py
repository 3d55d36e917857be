# %% [markdown]
# ## Answers
#
# **Break.** Both ways to join the heads.

# %%
for label, joined in {"flatten": heads.flatten(2), "transpose": heads.transpose(1, 2)}.items():
    joined = joined.flatten(2)
    print(label, tuple(joined.shape), joined.shape == tokens.shape and joined.equal(tokens))

# %% [markdown]
# `transpose` first gives the tokens. `flatten` alone joins tokens and values of one head: its shape has the heads in place of the
# tokens, and a row has the values of all tokens.
#
# **Argue.** `unflatten` names the axis and the lengths, so it can only divide this axis. `reshape` may also move a border between
# two other axes. The shape is then correct although the values are in other places.
