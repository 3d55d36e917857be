# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# ## Answers
#
# **Break.** The cup moves out of the frame to the right, and returns as far as the middle of the frame. Only the place of the cup
# in the lesson's program changes.

# %%
path = np.concatenate([np.linspace(0, 1.1, 9), np.linspace(1.1, 0.5, 9)[1:]])  # 1.1: outside
returning, true_masks = [], []
scale = 0.5 * HEIGHT / image.shape[0]
for shift in path:
    place = np.array([[scale, 0, 20 + shift * WIDTH], [0, scale, 0.3 * HEIGHT]])
    opacity = cv2.warpAffine(cutout, place, (WIDTH, HEIGHT), flags=cv2.INTER_AREA)
    moved = cv2.warpAffine(image, place, (WIDTH, HEIGHT), flags=cv2.INTER_AREA)
    mixed = background + opacity[..., None] * (moved.astype(float) - background)
    returning.append(np.rint(mixed).astype(np.uint8))
    true_masks.append((opacity > 0.5).astype(np.uint8))
trained = AttentionPredictor("embedded", size=HEIGHT, resize="davis", precision="fp32")
with torch.no_grad():
    vectors = [trained.features([frame])[0].cpu() for frame in returning]
for radius in (3, 12, 40):
    settings = dataclasses.replace(DINO, radius=radius)
    propagator = Propagator(vectors[0], grid_labels(true_masks[0], [1], fed, PATCH), settings)
    for vector in vectors[1:]:
        winner = hard_labels(propagator.step(vector), PATCH)
    last_mask = cv2.resize(winner, (WIDTH, HEIGHT), interpolation=cv2.INTER_NEAREST)
    last_j = jaccard(last_mask > 0, true_masks[-1] > 0)
    print(f"window {radius}: J of the last frame {last_j:.2f}")

# %% [markdown]
# With a window of 3 patches the cup is lost, and with 12 patches it is found. It is outside for fewer frames than the seven previous
# frames of the context, so frames from before it left still have its label near the edge. If it stays outside for longer, only the
# first frame has its label. The cup is then found only if the window reaches its place in the first frame.
#
# **Argue.** Its nearest neighbors are in the background or in another object, so the softmax still gives it one of these labels. A
# better answer is "unknown": the largest cosine is low. A threshold on this cosine can separate new objects, and a person or a
# detector then names them.
