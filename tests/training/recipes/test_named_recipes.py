import re
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.errors import SettingError
from training.methods.head import HeadConfig
from training.methods.table import METHODS
from training.recipes import named_recipes
from training.recipes.recipe import Plan, Recipe


def test_stages_of_a_curriculum_end_at_the_nearest_steps():
    official = named_recipes.read_recipe("dino", "official-default").recipe
    crops = replace(official.crops, curriculum=("96:0.25", "160:0.45", "224:0.3"))
    short = replace(official, crops=crops, epochs=1, optimizer=replace(official.optimizer, warmup_epochs=0))
    plan = Plan.of(replace(short, method=replace(short.method, freeze_last_layer_epochs=0)), 7 * 512)
    assert [end for end, _ in plan.stages] == [2, 5, 7]  # of 1.75, 4.9 and 7
    assert [plan.at(step)["global_size"] for step in range(7)] == [96, 96, 160, 160, 160, 224, 224]


# Architecture, optimizer, peak and last learning rate, last weight decay, epochs, batch size.
RATES = {
    ("dino", "paper"): ("vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
    ("dino", "official-default"): ("vit_small", "adamw", 0.001, 1e-6, 0.4, 100, 512),
    ("dino", "resnet50"): ("resnet50", "sgd", 0.06, 1e-6, 1e-4, 100, 512),
    ("byol", "paper"): ("resnet50", "lars", 4.8, 0.0, 1e-6, 300, 4096),
    ("byol", "comparison"): ("vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
    ("moco-v2", "paper"): ("resnet50", "sgd", 0.03, 0.0, 1e-4, 200, 256),
    ("moco-v2", "comparison"): ("vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
    ("swav", "paper"): ("resnet50", "lars", 4.8, 0.0048, 1e-6, 800, 4096),
    ("swav", "small-batch"): ("resnet50", "lars", 0.6, 0.0006, 1e-6, 200, 256),
    ("swav", "comparison"): ("vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
    ("supervised", "deit"): ("vit_small", "adamw", 0.001, 1e-5, 0.05, 300, 1024),
    ("supervised", "resnet50"): ("resnet50", "sgd", 0.1, 0.0, 1e-4, 100, 256),
}


@pytest.mark.parametrize(("method", "name"), RATES)
def test_recipes_have_the_rates_of_the_papers(method, name):
    architecture, optimizer, peak, last, decay, epochs, batch_size = RATES[method, name]
    recipe = named_recipes.read_recipe(method, name).recipe
    plan = Plan.of(recipe, num_images=20 * batch_size)
    assert (recipe.backbone.architecture, recipe.optimizer.name) == (architecture, optimizer)
    assert (plan.lr.max(), plan.weight_decay.max()) == pytest.approx((peak, decay), rel=1e-3)
    assert plan.lr[-1] == pytest.approx(last, abs=1e-3 * peak)
    assert recipe.optimizer.min_lr == last
    assert (recipe.epochs, recipe.batch_size) == (epochs, batch_size)
    assert recipe.optimizer.clip_grad == (3 if method == "dino" or name == "comparison" else 0)
    assert recipe.backbone.drop_path == (0 if architecture == "resnet50" else 0.1)
    assert recipe.batch_norm == (architecture == "resnet50" or method in ("byol", "moco-v2", "swav"))


DINO_PAPER = {
    "teacher_temperature_start": 0.04,
    "teacher_temperature": 0.07,
    "teacher_temperature_warmup_epochs": 30,
}
# Warm-up epochs, global and local crops, their scales, and settings of the method.
DETAILS = {
    ("dino", "official-default"): (10, 2, 8, (0.4, 1.0), (0.05, 0.4), {}),
    ("dino", "paper"): (10, 2, 10, (0.25, 1.0), (0.05, 0.25), DINO_PAPER),
    ("dino", "resnet50"): (10, 2, 8, (0.14, 1.0), (0.05, 0.14), {}),
    ("byol", "paper"): (10, 2, 0, (0.08, 1.0), None, {"teacher_momentum": 0.99}),
    ("byol", "comparison"): (10, 2, 0, (0.14, 1.0), None, {"teacher_momentum": 0.996}),
    ("moco-v2", "paper"): (0, 2, 0, (0.2, 1.0), None, {}),
    ("moco-v2", "comparison"): (10, 2, 0, (0.14, 1.0), None, {"head.prototypes": 256, "head.layers": 3}),
    ("swav", "paper"): (10, 2, 6, (0.14, 1.0), (0.05, 0.14), {"queue": 0}),
    ("swav", "small-batch"): (0, 2, 6, (0.14, 1.0), (0.05, 0.14), {"queue": 3840}),
    ("swav", "comparison"): (10, 2, 6, (0.25, 1.0), (0.05, 0.25), {}),
    ("supervised", "deit"): (5, 1, 0, (0.08, 1.0), None, {"mixup": 0.8}),
    ("supervised", "resnet50"): (5, 1, 0, (0.08, 1.0), None, {"mixup": 0, "cutmix": 0, "label_smoothing": 0}),
    ("distill", "embedded"): (0.36, 1, 0, (0.4, 1.0), None, {"average": 0.998}),
}


@pytest.mark.parametrize(("method", "name"), DETAILS)
def test_recipes_have_the_crops_and_settings_of_the_papers(method, name):
    warmup, global_crops, local_crops, scale, local_scale, settings = DETAILS[method, name]
    recipe = named_recipes.read_recipe(method, name).recipe
    crops = recipe.crops
    assert (crops.global_crops, crops.local_crops, crops.global_scale) == (global_crops, local_crops, scale)
    assert local_scale is None or crops.local_scale == local_scale
    assert recipe.optimizer.warmup_epochs == warmup
    assert {path: attrgetter(path)(recipe.method) for path in settings} == settings


def test_recipe_of_the_embedded_model_is_that_of_its_card():
    recipe = named_recipes.read_recipe("distill", "embedded").recipe
    backbone, optimizer = recipe.backbone, recipe.optimizer
    assert (backbone.patch_size, backbone.image_size, backbone.depth, backbone.heads) == (8, 112, 6, 6)
    assert (recipe.epochs, recipe.batch_size, recipe.head_only_epochs) == (60, 48, 0.16)
    assert (optimizer.lr, optimizer.min_lr, optimizer.hold, optimizer.clip_grad) == (0.008, 1.5e-5, 0.4, 1)
    assert (optimizer.weight_decay, optimizer.weight_decay_end) == (0.05, 0.05)


def test_warmup_may_be_a_fraction_of_an_epoch():
    official = named_recipes.read_recipe("dino", "official-default").recipe
    short = replace(official, epochs=1, optimizer=replace(official.optimizer, warmup_epochs=0.25))
    plan = Plan.of(replace(short, batch_size=256), num_images=40 * 256)  # 40 steps
    assert plan.lr.argmax() == 9  # the tenth step reaches the peak


@given(
    st.integers(64, 2_000_000),
    st.integers(20, 2000),
    st.sampled_from([8, 64, 256]),
    st.integers(1, 300),
    st.sampled_from([None, 8, 14, 32]),
)
@settings(deadline=None)
def test_small_data_of_any_collection_is_a_valid_recipe(images, short_side, batch_size, epochs, patch_size):
    for method in METHODS if images >= batch_size else ():
        recipe = named_recipes.small_data(method, images, short_side, batch_size, epochs, patch_size).recipe
        assert recipe.batch_size == batch_size
        assert recipe.backbone.patch_size == patch_size or patch_size is None
        assert 0.9 <= getattr(recipe.method, "teacher_momentum", 0.9) < 1


SMALL_DATA = {
    # method, images, short side, images of a step: settings by their place in the recipe
    ("dino", 10_000, 300, 16): {
        "crops.global_size": 224,
        "crops.local_size": 96,
        "crops.local_crops": 6,
        "backbone.patch_size": 16,
        "backbone.depth": 6,
        "backbone.heads": 6,
        "optimizer.lr": 0.0048,  # 0.0003 for 16 images
        "optimizer.warmup_epochs": 10,
        "method.head.prototypes": 1024,
        "method.teacher_momentum": 0.99968,  # over 20 of 62,500 steps
        "method.teacher_temperature": 0.04,
        "method.center_momentum": 0.98,
        "method.freeze_last_layer_epochs": 1,
    },
    ("dino", 50_000, 100, 64): {
        "crops.global_size": 96,
        "crops.local_size": 32,
        "backbone.patch_size": 16,
        "optimizer.lr": 0.0024,  # half, for four times the images
        "method.head.prototypes": 4096,
        "method.teacher_momentum": 0.99974,
        "method.center_momentum": 0.9224,  # 0.98 ** 4
    },
    ("dino", 200_000, 90, 64): {
        "crops.global_size": 80,
        "crops.local_size": 32,
        "backbone.patch_size": 8,
        "method.head.prototypes": 16_384,
        "method.teacher_momentum": 0.99975,  # 0.996 ** (64 / 1024): 0.996 is for batches of 1024
        "method.teacher_temperature": 0.07,
        "method.teacher_temperature_warmup_epochs": 30,
    },
    ("dino", 20_000, 300, 16): {"method.head.prototypes": 4096},
    ("dino", 99_999, 300, 16): {"method.head.prototypes": 4096, "method.teacher_temperature": 0.04},
    ("dino", 100_000, 300, 16): {"method.head.prototypes": 16_384, "method.teacher_temperature": 0.07},
    ("dino", 500_000, 300, 16): {"method.head.prototypes": 65_536},
    ("byol", 10_000, 300, 32): {"method.teacher_momentum": 0.99936, "crops.local_crops": 0},
    ("moco-v2", 10_000, 300, 32): {"method.queue": 1248, "method.teacher_momentum": 0.99936},
    ("moco-v2", 1_000, 300, 100): {"method.queue": 100, "method.teacher_momentum": 0.99},
    ("moco-v2", 1_000_000, 300, 100): {"method.queue": 65_500},
    ("swav", 10_000, 300, 64): {"method.head.prototypes": 200},
    ("swav", 1_000_000, 300, 64): {"method.head.prototypes": 3000},
    ("swav", 500, 300, 64): {"method.head.prototypes": 16},
    ("distill", 100_000, 300, 48): {"method.average": 0.998},
    ("distill", 1_000, 300, 50): {"method.average": 0.99},
    # the default batch
    ("dino", 10_000, 300, None): {
        "batch_size": 16,
        "method.head.hidden": 1024,
        "method.head.bottleneck": 128,
    },
    ("byol", 10_000, 300, None): {
        "batch_size": 32,
        "method.head.prototypes": 128,
        "method.head.hidden": 1024,
        "method.predictor": 1024,
    },
    ("moco-v2", 10_000, 300, None): {"batch_size": 32, "method.head.hidden": 1024, "crops.local_crops": 0},
    ("swav", 10_000, 300, None): {"batch_size": 64, "method.head.hidden": 1024, "method.epsilon": 0.03},
    ("supervised", 10_000, 300, None): {"batch_size": 64, "crops.global_crops": 1, "crops.local_crops": 0},
    ("distill", 10_000, 300, None): {"batch_size": 32, "crops.global_crops": 1, "crops.local_crops": 0},
}


@pytest.mark.parametrize(("method", "images", "short_side", "batch_size"), SMALL_DATA)
def test_small_data_has_the_settings_of_its_formulas(method, images, short_side, batch_size):
    recipe = named_recipes.small_data(method, images, short_side, batch_size).recipe
    expected = SMALL_DATA[method, images, short_side, batch_size]
    assert {path: attrgetter(path)(recipe) for path in expected} == pytest.approx(expected)
    assert recipe.epochs == 100


@pytest.mark.parametrize(
    ("epochs", "warmup", "temperature_warmup", "frozen", "momentum"),
    [(1, 0, 0, 0, 0.9), (2, 1, 0, 1, 0.94872), (40, 4, 13, 1, 0.996), (89, 8, 29, 1, 0.996)],
)
def test_small_data_of_few_epochs_has_short_phases(epochs, warmup, temperature_warmup, frozen, momentum):
    """195 steps of 1,024 images an epoch, of images too small for the smallest crop."""
    small = named_recipes.small_data("dino", 200_000, 20, 1024, epochs)
    recipe, method = small.recipe, small.recipe.method
    assert (recipe.optimizer.warmup_epochs, method.freeze_last_layer_epochs) == (warmup, frozen)
    assert method.teacher_temperature_warmup_epochs == temperature_warmup
    assert (method.teacher_momentum, method.center_momentum) == (momentum, 0.9)
    assert (recipe.crops.global_size, recipe.crops.local_size, recipe.backbone.patch_size) == (32, 16, 8)
    assert "learning rate 0.0024 (0.0006 for 256 images)" in small.source  # 0.0003 * sqrt(64)
    swav = named_recipes.small_data("swav", 200_000, 20, 1024, epochs).recipe.method
    assert swav.freeze_last_layer_epochs == frozen


def test_small_data_refuses_numbers_below_1():
    for change in ({"batch_size": 0}, {"epochs": 0}, {"patch_size": 0}):
        (name,) = change
        with pytest.raises(SettingError, match=f"--{name.replace('_', '-')} is 0, expected at least 1"):
            named_recipes.small_data("dino", 1000, 100, **change)
    assert named_recipes.small_data("dino", 1000, 100, 1, 1, 1).recipe.backbone.patch_size == 1


DEFAULTS = {  # numbers other than 0
    "dino": {  # the official code's
        "head": HeadConfig(65536, 3, 2048, 256),
        "student_temperature": 0.1,
        "teacher_temperature_start": 0.04,
        "teacher_temperature": 0.04,
        "teacher_momentum": 0.996,
        "teacher_momentum_end": 1.0,
        "center_momentum": 0.9,
        "freeze_last_layer_epochs": 1,
        "sinkhorn_temperature": 0.05,
        "sinkhorn_iterations": 3,
        "infonce_temperature": 0.2,
        "views": 2,
        "kept_tokens": 1.0,
        "mask_hint": 0.1,
    },
    "byol": {
        "head": HeadConfig(256, 2, 4096, None, batch_norm=True, activation="relu"),
        "predictor": 4096,
        "teacher_momentum": 0.996,
    },
    "moco-v2": {
        "head": HeadConfig(128, 2, 2048, None, activation="relu"),
        "temperature": 0.2,
        "teacher_momentum": 0.999,
        "queue": 65_536,
    },
    "swav": {
        "head": HeadConfig(3000, 2, 2048, 128, batch_norm=True, activation="relu"),
        "temperature": 0.1,
        "epsilon": 0.05,
        "sinkhorn_iterations": 3,
        "freeze_last_layer_epochs": 1,
        "queue_start_epoch": 15,
    },
    "supervised": {"label_smoothing": 0.1, "mixup": 0.8, "cutmix": 1.0},
    "distill": {
        **dict.fromkeys(("patch_weight", "cls_weight", "attention_weight", "rows_weight"), 1.0),
        "sampled_rows": 32,
        "view_scales": (0.57, 0.71, 0.86, 0.86, 1.0, 1.0, 1.0, 1.0, 1.29, 1.57, 2.0),
        "aligned": 0.7,
        "jitter": 0.3,
        "gray": 0.1,
        "average": 0.998,
    },
    "crops": {  # from here on, of all methods
        "global_size": 224,
        "global_crops": 2,
        "global_scale": (0.4, 1.0),
        "local_size": 96,
        "local_crops": 8,
        "local_scale": (0.05, 0.4),
        "blur": (0.1, 2.0),
        "canvas_size": 384,
    },
    "optimizer": {
        "lr": 0.0005,
        "min_lr": 1e-6,
        "warmup_epochs": 10,
        "weight_decay": 0.04,
        "weight_decay_end": 0.4,
        "clip_grad": 3.0,
    },
    "backbone": {"patch_size": 16, "image_size": 224, "in_channels": 3, "drop_path": 0.1},
    "recipe": {
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
        "epochs": 100,
        "batch_size": 512,
    },
}


@pytest.mark.parametrize("part", DEFAULTS)
def test_methods_have_the_defaults_of_their_papers(part):
    recipe = Recipe()
    config = METHODS[part]() if part in METHODS else recipe if part == "recipe" else getattr(recipe, part)
    numbers = {name: value for name, value in vars(config).items() if not isinstance(value, (str, bool))}
    kept = {
        name: value for name, value in numbers.items() if isinstance(value, (int, float, tuple, HeadConfig))
    }
    assert {name: value for name, value in kept.items() if value} == DEFAULTS[part]


OUTSIDE = {  # values just outside of the accepted range
    "dino": {
        **dict.fromkeys(
            ("student_temperature", "sinkhorn_temperature", "infonce_temperature", "kept_tokens"), 0
        ),
        **dict.fromkeys(("teacher_momentum", "teacher_momentum_end", "center_momentum", "mask_hint"), 1.1),
        **dict.fromkeys(("teacher_temperature", "teacher_temperature_start", "spreading", "alignment"), -0.1),
        **{"koleo": -0.1, "predictor": -1, "queue": -1, "sinkhorn_iterations": 0},
    },
    "byol": {"teacher_momentum": 1.1, "predictor": -1},
    "moco-v2": {"temperature": 0, "teacher_momentum": 1.1, "queue": 0},
    "swav": {"temperature": 0, "epsilon": 0, "sinkhorn_iterations": 0, "queue": -1, "queue_start_epoch": -1},
    "supervised": {"label_smoothing": 1.1, "mixup": -0.1, "cutmix": -0.1},
    "distill": {
        **dict.fromkeys(("patch_weight", "cls_weight", "attention_weight", "rows_weight"), -0.1),
        **{"teacher_size": -1, "sampled_rows": 0, "attention_spread": -0.1, "jitter": 0.51},
        **{"aligned": 1.1, "gray": 1.1, "average": 1.1, "view_scales": (1.0, 0.0)},
    },
    "crops": {
        **{"global_size": 0, "local_size": 0, "local_crops": -1, "global_crops": 0, "canvas_size": 0},
        **{"margin": 1.1, "blur": (-0.1, 1), "global_scale": (0, 1), "local_scale": (0.5, 0.4)},
    },
    "optimizer": {
        "lr": -1,
        "min_lr": -1,
        "weight_decay": -1,
        "weight_decay_end": -1,
        "clip_grad": -1,
        "hold": 1.1,
    },
    "recipe": {"epochs": 0, "batch_size": 0, "head_only_epochs": -1},
}


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, row in OUTSIDE.items() for name in row])
def test_number_outside_its_range_is_refused_with_its_option(part, name):
    recipe = Recipe()
    config = METHODS[part]() if part in METHODS else recipe if part == "recipe" else getattr(recipe, part)
    with pytest.raises(SettingError, match=f"--{name.replace('_', '-')} is"):
        replace(config, **{name: OUTSIDE[part][name]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda r: {"method": replace(r.method, teacher="momentun")},
            "'momentun', expected momentum or prev",
        ),
        (
            lambda r: {"optimizer": replace(r.optimizer, name="adam")},
            "name of OptimizerConfig is 'adam', expected",
        ),
        (lambda r: {"epochs": 5}, "--warmup-epochs is 10, expected 0 to the 5 epochs of training: lower it"),
        (lambda r: {"backbone": replace(r.backbone, in_channels=4)}, "4 channels need a range"),
        (lambda r: {"crops": replace(r.crops, local_size=8)}, "--local-size is 8, .* of 16: choose 16$"),
        (
            lambda r: {"backbone": BackboneConfig("resnet50"), "crops": replace(r.crops, local_size=16)},
            "--local-size is 16, expected at least 17",
        ),
        (lambda r: {"std": (1.0, 0.0, 1.0)}, "--std"),
        (lambda r: {"method": replace(r.method, freeze_last_layer_epochs=101)}, "--freeze-last-layer-epochs"),
    ],
)
def test_recipe_with_invalid_settings_raises(change, words):
    recipe = named_recipes.read_recipe("dino", "official-default").recipe
    with pytest.raises(SettingError, match=words):
        replace(recipe, **change(recipe))


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        (None, None, ("dino", "official-default")),
        ("swav", None, ("swav", "paper")),
        (None, "paper", ("dino", "paper")),
        (None, "other", "dino has no recipe 'other': choose official-default or paper or resnet50 or"),
        (None, "small-batch", "dino has no recipe 'small-batch': choose .*; --method swav has it"),
    ],
)
def test_choose_recipe_takes_the_first_or_names_the_choices(method, name, expected):
    if isinstance(expected, tuple):
        assert named_recipes.choose_recipe(method, name) == expected
    else:
        with pytest.raises(SettingError, match=expected):
            named_recipes.choose_recipe(method, name)


def test_documentation_lists_every_recipe_of_every_method():
    text = (Path(__file__).parents[3] / "docs" / "training.md").read_text()
    rows = set(re.findall(r"^\| `([a-z][a-z0-9-]*)`, `([a-z0-9-]+)` \|", text, re.MULTILINE))
    names = {(method, name) for method in METHODS for name in named_recipes.list_recipes(method)}
    rows -= {("moco-v2", "swav")}  # of the table of differences
    assert rows == {(method, name) for method, name in names if name != named_recipes.SMALL_DATA}
