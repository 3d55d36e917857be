# %% [markdown]
# # C · What attention is not
#
# **Question.** Does the attention of [CLS] show which patches the output of a network depends on?
#
# You need lesson 2. An attention map shows where [CLS] reads in one block. It is tempting to read the map as an explanation of
# the output. This lesson tests this reading: it hides patches and measures how far the output moves.

# %%
import numpy as np
import torch
from torch.nn import functional as F

from app.notebook import show
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.load import load_model
from notebooks import drawing
from notebooks.checks import check
from notebooks.scores import mean_error, plus_minus

# %% [markdown]
# ## Hiding patches
#
# The input is normalized, so a patch of zeros has the mean color of the training images.
#
# **Exercise C.1 (code).** Hide a share of the patches: set the pixels of the patches with the largest scores to 0. Do not
# change the input itself. The number of hidden patches is rounded.


# %%
def hide(image: torch.Tensor, scores: np.ndarray, share: float) -> torch.Tensor:
    """Image [3, H, W], scores [rows, columns], share from 0 to 1 -> image, partly hidden."""
    return ...


hide = check("C.1", hide)

# %% [markdown]
# The next cell hides a quarter of the patches of one image in four orders:
#
# - *attention*: the patches with the most attention of [CLS], mean of the heads, last block,
# - *similarity*: the patches whose token is most similar to [CLS],
# - *center*: the patches nearest to the center of the image,
# - *random*.
#
# **Prediction.** Which orders hide the sheep, and which one hides most of the grass?

# %% tags=["hide-input"]
SIZE, GRID = 112, 14
rows, columns = np.mgrid[-1 : 1 : GRID * 1j, -1 : 1 : GRID * 1j]
random = np.random.default_rng(0)
models = {name: load_model(name) for name in ("embedded", "embedded-dino")}
predictors = {
    name: AttentionPredictor(model, size=SIZE, resize="squash", precision="fp32")
    for name, model in models.items()
}


@torch.no_grad()
def prepare(name: str, photo: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Normalized image [3, 112, 112], unit [CLS] feature, and scores [14, 14] by order."""
    predictor = predictors[name]
    predictor.set_image(photo)
    (image,) = batch = predictor.input_tensor(photo)
    feature = F.normalize(models[name].backbone(batch), dim=1)[0]
    tokens = F.normalize(predictor.features([photo])[0], dim=-1)
    orders = {
        "attention": predictor.cls_attention().mean(axis=0),
        "similarity": (tokens @ feature).numpy(),
        "center": -np.hypot(rows, columns),
        "random": random.random((GRID, GRID)),
    }
    return image, feature, orders


image, _, orders = prepare("embedded", photographs.image("sheep"))
views = [hide(image, scores, 0.25).permute(1, 2, 0).numpy() for scores in orders.values()]
low, high = float(image.min()), float(image.max())
drawing.images(
    [(255 * (view - low) / (high - low)).astype(np.uint8) for view in views],
    list(orders),
    figure="C.1",
)

# %% [markdown]
# Attention, similarity and the center all hide much of the sheep; random patches are everywhere. So a fair control hides central
# patches, too, not only random ones.
#
# ## Thirty images, two networks
#
# The metric is the cosine of the [CLS] feature before and after hiding. A small cosine means that the output depends on the
# hidden patches.
#
# **Prediction.** Which order moves the output most, in `embedded` and in `embedded-dino`? Does random hiding of the same
# number of patches move it less?

# %%
SHARES = (0.1, 0.25, 0.5, 0.75)
cosines = {name: {} for name in models}  # [images, shares] by network and order
for name, model in models.items():
    for photo in photographs.names():
        image, feature, orders = prepare(name, photographs.image(photo))
        hidden = [hide(image, scores, s) for scores in orders.values() for s in SHARES]
        with torch.no_grad():
            moved = F.normalize(model.backbone(torch.stack(hidden)), dim=1)
        table = (moved @ feature).reshape(len(orders), len(SHARES)).numpy()
        for order, row in zip(orders, table, strict=True):
            cosines[name].setdefault(order, []).append(row)
with drawing.plot(figure="C.2", columns=2, width=9) as axes:
    for axis, (name, by_order) in zip(axes, cosines.items(), strict=True):
        for order, values in by_order.items():
            axis.errorbar(SHARES, *mean_error(values), marker="o", capsize=4, label=order)
            print(f"{name}, {order}:", *map(plus_minus, np.transpose(values)))
        difference = np.subtract(by_order["attention"], by_order["random"])[:, 0]
        print(f"{name}, attention minus random at 10 %: {plus_minus(difference)}")
        axis.set(title=name, xlabel="share of hidden patches", ylim=(0, 1))
    axes[0].set(ylabel="cosine with the whole image")
    axes[1].legend()

# %% [markdown]
# In `embedded`, hiding the 10 % most attended patches moves the feature far more than random patches: the cosine is **0.80**
# instead of **0.96**. It is also more than in the order of similarity (**0.92**) or of the center (**0.89**). In this network the map of
# the last block agrees with influence. In `embedded-dino`, the same 10 % give about **0.91**, and random patches **0.93**: a difference of
# **-0.02** ± **0.01**. Its map looks like a map of the object, but the most attended patches have hardly more influence than random
# ones. The map alone does not show which of the two cases is present: compare both maps in the next cell.

# %%
show(photographs.image("sheep"), list(models), size=96)

# %% [markdown]
# ## In larger networks
#
# Darcet et al. (2024) report *artifacts* in some large networks: in DINOv2 ViT-g, about 2 % of the patch tokens have a norm far above
# that of the others (section 2 of the paper). They lie mostly in uniform regions, stand out in the attention maps, and hold more
# information about the whole image and less about their own patch. A bright patch there need not belong to an object. In networks
# trained with additional tokens, *registers*, the outliers disappear and the maps become smoother. The app draws the norms of
# tokens of any model: look whether a network has outliers before you read its maps.
#
# **Exercise (break).** Hide the least attended patches first: pass `-scores`. Are these patches without influence?
#
# **Exercise (argue).** Attention of the last block averages values, not pixels. Name two reasons why a patch with little
# attention can change the output.
#
# **Summary.**
# - An attention map shows weights of one block, not the influence of pixels on the output.
# - Hiding patches measures influence; it needs a control with random patches and one with central patches.
# - How well attention agrees with influence differs between networks of equal architecture.
#
# **References.** Jain and Wallace 2019, [Attention is not Explanation](https://arxiv.org/abs/1902.10186); Darcet et al. 2024,
# [Vision Transformers Need Registers](https://arxiv.org/abs/2309.16588); Caron et al. 2021,
# [Emerging Properties in Self-Supervised Vision Transformers](https://arxiv.org/abs/2104.14294), figures 1 and 3.
