# %% [markdown]
# ## Answers
#
# **Break.** The next cell trains with a short memory.

# %%
short = train(momentum_at_start=0.9, figure="3.4", steps=200)
print(f"k-NN {short[-1]['teacher']:.0f} %, entropy {short[-1]['entropy']:.0%} of ln K")

# %% [markdown]
# A memory of ten steps is between the copy and the long memory. Compare the prototypes in use at step 200, not only the accuracy: few
# prototypes announce the stall. This is one run; lesson 4 compares more teachers.
#
# **Argue.** The teacher's weights are an average of many past students. The average has less noise than one student, so its outputs
# are more similar for two crops of one image. Its output for the other crop also has information that the student lacks for its own
# crop. Sharpening makes the target more certain than the student's output. The targets do not need to name true classes: they have
# to be equal for crops of one image and different for different images.
