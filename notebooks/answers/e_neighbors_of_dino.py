# %% [markdown]
# ## Answers
#
# **Break.** A batch of eight images.

# %%
BATCH = 8
for name in ("contrast", "self-distillation"):
    torch.manual_seed(0)
    network = methods[name]()
    stored, tested = token_features(network, images), token_features(network, test_images)
    accuracy = distillation.knn_accuracy(stored["[CLS]"], labels, tested["[CLS]"], test_labels)
    print(f"batch of 8, {name}: {accuracy:.0f} %, before {accuracies[name]['[CLS]']:.0f} %")

# %% [markdown]
# Both have seen a quarter of the images, so both lose. Contrast has only seven other images as negatives; MoCo keeps keys of
# earlier batches in a queue for this reason. The loss of self-distillation compares crops of one image; its center is a running
# mean over batches, and batch normalization in its head still needs the batch.
#
# **Argue.** The stop-gradient, the slow teacher and the predictor together: the predictor has to follow the mean of the outputs
# for an image, and the teacher lags behind. The experiment removes one part at a time and looks at the spread of the outputs
# over images, as lesson 4 does with the entropy. In the paper's table 7, BYOL without momentum fails.
