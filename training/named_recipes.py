"""Recipes of `pretrain --recipe`: those of a method's TOML file; `small-data` is also fitted to the images.

A recipe is a complete set of settings, a `training.recipe.Recipe`; options of the command change it.

The file has a table for each recipe, the default first. `NAME.recipe` holds the settings that differ from
the defaults of the configuration classes. `source` names the origin of the settings, `expected` published
scores, hardware and time; this project repeated none of them.

"paper" is ResNet-50 as the method's own paper trains it (DINO: ViT-S/16). "comparison" is ViT-S/16 in the
setting of the DINO paper (section 4.1, appendix "Methodology Comparison"): it gives heads and crops of the
other methods; optimizer, rates and batch size, which it leaves open, are those of DINO. The values were
compared with the authors' code: BYOL's byol/configs/byol.py, MoCo's main_moco.py, SwAV's scripts, DeiT's
main.py and their READMEs.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from dino_model.models.configs import BackboneConfig
from dino_model.runtime.errors import SettingError, pluralize
from training.crop_config import CropConfig
from training.methods.config import SmallData
from training.methods.table import METHODS
from training.recipe import OptimizerConfig, Recipe
from training.settings import at_least, restore_settings

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


def recipe_tables(method: str) -> dict[str, dict[str, Any]]:
    """Tables of a method's TOML file by the name of the recipe, the default first.

    Raises:
        SettingError: No TOML, no recipe, or an entry that is missing or unknown.
    """
    file = METHODS[method].recipes_file()
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{file} is no TOML: {error}") from None
    if not tables:
        raise SettingError(f"{file} has no recipe")
    for name, table in tables.items():
        if name != SMALL_DATA:
            _check_entries(f"{file}: {name}", table, ("source",), ("expected", "recipe"))
            continue
        _check_entries(f"{file}: {name}", table, ("recipe",))
        _check_entries(f"{file}: {name}.recipe", table["recipe"], ("batch_size",), ("crops", "method"))
    return tables


def _check_entries(
    where: str, table: Mapping[str, Any], needed: tuple[str, ...], allowed: tuple[str, ...] = ()
) -> None:
    if missing := [name for name in needed if name not in table]:
        raise SettingError(f"{where} lacks {missing[0]}")
    if unknown := [name for name in table if name not in needed + allowed]:
        raise SettingError(f"{where} has {unknown[0]}, expected only {', '.join(needed + allowed)}")


def recipe_names() -> list[str]:
    """Names of the recipes of all methods."""
    return list(dict.fromkeys(name for method in METHODS for name in recipe_tables(method)))


def choose_recipe(method: str | None, name: str | None) -> tuple[str, str]:
    """Choose method and recipe, of which either may be left out.

    The default method is the first of the table. A recipe that it lacks belongs to the only other method that
    has it. The default recipe is the method's first.

    Raises:
        SettingError: The method, or every method, lacks the recipe; or several others have it.
    """
    default, owners = next(iter(METHODS)), [owner for owner in METHODS if name in recipe_tables(owner)]
    if method is None and (name is None or default in owners):
        method = default
    elif method is None and len(owners) == 1:
        (method,) = owners
    elif method is None and owners:
        raise SettingError(f"several methods have a recipe {name!r}: pass --method {' or '.join(owners)}")
    elif method is None:
        raise SettingError(f"no method has a recipe {name!r}: choose {', '.join(recipe_names())}")
    names = list(recipe_tables(method))
    if name is not None and name not in names:
        elsewhere = f"; --method {' or '.join(owners)} has it" if owners else ""
        raise SettingError(f"{method} has no recipe {name!r}: choose {' or '.join(names)}{elsewhere}")
    return method, name or names[0]


def read_recipe(method: str, name: str) -> NamedRecipe:
    """Read a method's recipe that does not depend on the images."""
    table = recipe_tables(method)[name]
    recipe = restore_settings(Recipe(method=METHODS[method]()), table.get("recipe", {}))
    return NamedRecipe(recipe, table["source"], table.get("expected", ""))


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
    settings: Mapping[str, Any] = recipe_tables(method)[SMALL_DATA]["recipe"]
    batch_size = settings["batch_size"] if batch_size is None else batch_size
    epochs = 100 if epochs is None else epochs
    given = SimpleNamespace(
        epochs=epochs, batch_size=batch_size, patch_size=1 if patch_size is None else patch_size
    )
    at_least(given, epochs=1, batch_size=1, patch_size=1)
    unit = patch_size or 16
    side = max(-(-32 // unit) * unit, min(224, short_side) // unit * unit)  # in whole patches
    patch_size = patch_size or (16 if side >= 96 else 8)
    local = max(-(-16 // patch_size), side * 3 // 7 // patch_size) * patch_size  # 96 of 224
    lr = 0.0003 * math.sqrt(16 / batch_size) * 256 / 16  # for 256 images; 0.0003 at a batch of 16
    crops = CropConfig(global_size=side, local_size=local, local_crops=6)
    warmup = max(1, min(10, epochs // 10)) if epochs > 1 else 0
    fixed = restore_settings(METHODS[method](), settings.get("method", {}))
    recipe = Recipe(
        backbone=BackboneConfig("vit_tiny", patch_size, image_size=side, depth=6, heads=6),
        method=fixed.fit(SmallData(images, batch_size, epochs)),
        crops=restore_settings(crops, settings.get("crops", {})),
        optimizer=OptimizerConfig(lr=round(lr, 6), warmup_epochs=warmup),
        epochs=epochs,
        batch_size=batch_size,
    )
    return NamedRecipe(
        recipe,
        f"this project, for {pluralize(images, 'image')} with a short side of {short_side} pixels: crops of "
        f"{side} and {local} pixels, learning rate {lr * batch_size / 256:.3g} ({lr:.3g} for 256 images)",
    )
