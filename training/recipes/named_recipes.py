"""Recipes of `pretrain --recipe`: those of a method's config, and `small-data`, fitted to the images.

A recipe is a complete set of settings, a `training.recipes.recipe.Recipe`; options of the command change it.

"paper" is ResNet-50 as the method's own paper trains it (DINO: ViT-S/16). "comparison" is ViT-S/16 in the
setting of the DINO paper (section 4.1, appendix "Methodology Comparison"): it gives heads and crops of the
other methods; optimizer, rates and batch size, which it leaves open, are those of DINO. The values were
compared with the authors' code: BYOL's byol/configs/byol.py, MoCo's main_moco.py, SwAV's scripts, DeiT's
main.py and their READMEs.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

from dino_model.models.configs import BackboneConfig
from dino_model.runtime.errors import SettingError, pluralize
from training.augmentation.crop_config import CropConfig
from training.methods.config import SmallData
from training.methods.table import METHODS
from training.recipes.recipe import OptimizerConfig, Recipe
from training.recipes.validation import at_least, restore_settings

SMALL_DATA = "small-data"
NOMINAL_IMAGES = (10_000, 224)
"""Number and short side of images for `--help`, where the images are not known."""


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe and the source of its settings."""

    recipe: Recipe
    source: str
    expected: str = ""
    """Published scores, hardware and time; none of them was repeated by this project."""


def list_recipes(method: str) -> list[str]:
    """Names of a method's recipes, the default first.

    Raises:
        SettingError: The method has none.
    """
    config = METHODS[method]
    names = [*config.recipes, *([SMALL_DATA] if config.small_data else [])]
    if not names:
        raise SettingError(f"{config.__name__} has no recipe: add one to its `recipes`")
    return names


def recipe_names() -> list[str]:
    """Names of the recipes of all methods."""
    return list(dict.fromkeys(name for method in METHODS for name in list_recipes(method)))


def choose_recipe(method: str | None, name: str | None) -> tuple[str, str]:
    """Choose method and recipe: where one is left out, the first of the table, or of the method.

    Raises:
        SettingError: The method lacks the recipe.
    """
    method = method or next(iter(METHODS))
    names = list_recipes(method)
    if name is not None and name not in names:
        owners = [owner for owner in METHODS if name in list_recipes(owner)]
        elsewhere = f"; --method {' or '.join(owners)} has it" if owners else ""
        raise SettingError(f"{method} has no recipe {name!r}: choose {' or '.join(names)}{elsewhere}")
    return method, name or names[0]


def read_recipe(method: str, name: str) -> NamedRecipe:
    """Read a method's recipe that does not depend on the images."""
    config = METHODS[method]
    changes = config.recipes[name]
    with _name_errors(method, name):
        recipe = restore_settings(Recipe(method=config()), changes.settings)
    return NamedRecipe(recipe, changes.source, changes.expected)


@contextmanager
def _name_errors(method: str, recipe: str) -> Iterator[None]:
    try:
        yield
    except SettingError as error:
        raise SettingError(f"recipe {recipe} of {method}: {error}") from None


def small_data(
    method: str,
    images: int,
    short_side: int,
    batch_size: int | None = None,
    epochs: int | None = None,
    patch_size: int | None = None,
) -> NamedRecipe:
    """Recipe for thousands of images instead of a million, on one machine.

    Batches are small: after 36,000 images the KL divergence of DINO was 0.5 nats with batches of 64 and 0.8
    nats with batches of 16 (rates and momenta adapted to each). A larger divergence means more training.

    Args:
        method: Name of the method.
        images: Number of training images.
        short_side: Short side of a typical image in pixels.
        batch_size: Images per step; None: that of the method.
        epochs: Passes over the images; None: 100.
        patch_size: Side of a patch in pixels; None: 16, or 8 for crops below 96.

    Raises:
        SettingError: Epochs, batch size or patch size below 1.
    """
    settings = METHODS[method].small_data
    if settings is None:
        raise SettingError(
            f"{method} has no recipe {SMALL_DATA!r}: choose {' or '.join(list_recipes(method))}"
        )
    own = {"method": {}} | dict(settings)
    batch_size = own["batch_size"] if batch_size is None else batch_size
    epochs = 100 if epochs is None else epochs
    unit = 16 if patch_size is None else patch_size
    sizes = SimpleNamespace(epochs=epochs, batch_size=batch_size, patch_size=unit)
    at_least(sizes, epochs=1, batch_size=1, patch_size=1)
    side = max(-(-32 // unit) * unit, min(224, short_side) // unit * unit)  # in whole patches
    patch_size = patch_size or (16 if side >= 96 else 8)
    local = max(-(-16 // patch_size), side * 3 // 7 // patch_size) * patch_size  # 96 of 224
    lr = 0.0003 * math.sqrt(16 / batch_size) * 256 / 16  # for 256 images; 0.0003 at a batch of 16
    warmup = max(1, min(10, epochs // 10)) if epochs > 1 else 0
    with _name_errors(method, SMALL_DATA):
        fixed = restore_settings(METHODS[method](), own.pop("method"))
    recipe = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size, image_size=side, depth=6, heads=6),
        method=fixed.fit(SmallData(images, batch_size, epochs)),
        crops=CropConfig(global_size=side, local_size=local, local_crops=6),
        optimizer=OptimizerConfig(lr=round(lr, 6), warmup_epochs=warmup),
        epochs=epochs,
    )
    with _name_errors(method, SMALL_DATA):
        recipe = restore_settings(recipe, own | {"batch_size": batch_size, "epochs": epochs})
    crops = f"{side} and {local}" if recipe.crops.local_crops else f"{side}"
    return NamedRecipe(
        recipe,
        f"this project, for {pluralize(images, 'image')} with a short side of {short_side} pixels: crops of "
        f"{crops} pixels, learning rate {lr * batch_size / 256:.3g} ({lr:.3g} for 256 images)",
    )
