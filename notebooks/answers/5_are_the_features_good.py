# %% [markdown]
# ## Answers
#
# **Break.** The test images are rotated by 90 degrees. The training images keep their direction.

# %%
rotated = torch.rot90(test_images, dims=(2, 3))
for label, extract in kinds.items():
    neighbors = train_features[label]
    predicted = np.array(
        [vote(f, neighbors, train_labels, 10, 0.07).argmax() for f in extract(rotated)]
    )
    print(f"{label}: {100 * np.mean(predicted == test_labels):.0f} %")
    for number, name in enumerate(CLASSES):
        found = predicted[test_labels == number]
        if label == "trained" and np.mean(found == number) < 0.8:
            wrong = np.bincount(found[found != number]).argmax()
            share = np.mean(found == number)
            print(f"  {name}: {share:.0%} correct, most often called {CLASSES[wrong]}")

# %% [markdown]
# The accuracy of the trained features falls from about 96 % to about **68** %. Bars and stripes are exchanged: a rotated bar has the
# direction of a stripe. Bricks are called grid, and zigzag is called hatch. Classes without a direction, such as dots and rings,
# remain. The features describe direction. That is an error for this test, but it is useful if the direction names the class.
#
# **Argue.** k-NN measures the distances of the features as they are. A linear classifier can weight dimensions: it measures which
# information is present. Features can have the information in dimensions of small variance, and k-NN does not use it. The lesson
# has such a case: pixels are better than random weights with k-NN, and worse with a linear classifier. Many users train a linear
# classifier, so its accuracy is close to their use.
