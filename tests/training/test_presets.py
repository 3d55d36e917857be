from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dino_model.backbones import BackboneConfig, create_backbone, traits
from dino_model.errors import SettingError
from dino_model.weights import load_model
from training import presets
from training.plan import Plan
from training.recipe import METHODS, OptimizerConfig


def test_paper_is_the_papers():
    recipe = presets.PRESETS["dino"]["paper"].recipe
    assert (recipe.crops.local_crops, recipe.crops.global_scale, recipe.crops.local_scale) == (
        10,
        (0.25, 1.0),
        (0.05, 0.25),
    )
    assert (recipe.batch_size, recipe.epochs, recipe.method.head.prototypes) == (1024, 300, 65536)
    method = recipe.method
    temperatures = (method.teacher_temperature_start, method.teacher_temperature)
    assert temperatures == (0.04, 0.07)
    assert method.teacher_temperature_warmup_epochs == 30


def test_official_default_is_the_official_codes():
    recipe = presets.PRESETS["dino"]["official-default"].recipe
    assert (recipe.batch_size, recipe.epochs, recipe.crops.local_crops) == (512, 100, 8)
    assert (recipe.method.teacher_temperature, recipe.backbone.drop_path, recipe.optimizer.clip_grad) == (
        0.04,
        0.1,
        3,
    )
    lr = Plan.of(recipe, pictures=10 * 512).lr
    assert lr.max() == pytest.approx(1e-3)
    assert lr[0] == 0


@given(st.integers(64, 2_000_000), st.integers(20, 2000), st.sampled_from([8, 64, 256]), st.integers(1, 300))
def test_small_data_fits_any_collection(pictures, short_side, batch_size, epochs):
    if pictures < batch_size:
        return
    advice = presets.small_data("dino", pictures, short_side, batch_size=batch_size, epochs=epochs)
    assert advice.recipe.batch_size == batch_size  # a recipe that could not be would have raised
    assert 0.9 <= advice.recipe.method.teacher_momentum < 1
    assert any(f"K = {advice.recipe.method.head.prototypes}" in reason for reason in advice.reasons)


def test_more_pictures_get_more_prototypes():
    sizes = [
        presets.small_data("dino", n, 224).recipe.method.head.prototypes
        for n in (5_000, 50_000, 200_000, 1_000_000)
    ]
    assert sizes == sorted(set(sizes))


def test_every_preset_names_its_sources_and_expected_scores():
    for method, named in presets.PRESETS.items():
        for preset in named.values():
            assert preset.reasons
            assert preset.expected
            assert preset.recipe.method.name == method


@pytest.mark.parametrize("short_side", [32, 96, 112, 144, 208, 500])
def test_small_data_crops_are_whole_patches(short_side):
    recipe = presets.small_data("dino", 5_000, short_side).recipe
    assert recipe.crops.global_size % recipe.backbone.patch_size == 0
    assert recipe.crops.local_size % recipe.backbone.patch_size == 0


def test_the_official_default_differs_from_the_official_code_in_nothing_that_is_a_setting():
    recipe = presets.PRESETS["dino"]["official-default"].recipe
    paper = presets.PRESETS["dino"]["paper"].recipe
    assert recipe.backbone.position_mode == paper.backbone.position_mode == "official"
    assert recipe.optimizer == OptimizerConfig("adamw", 5e-4, 1e-6, 10, 0.04, 0.4, 3.0)
    head = recipe.method.head
    assert (head.layers, head.hidden, head.bottleneck, head.train_gain) == (3, 2048, 256, False)
    assert recipe.crops.augmentation == "dino"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: {"epochs": 0}, "--epochs is 0"),
        (lambda r: {"batch_size": 0}, "--batch-size is 0"),
        (lambda r: {"epochs": 5}, "--warmup-epochs 10 is longer than training of 5 epochs"),
        (lambda r: {"backbone": replace(r.backbone, in_channels=4)}, "--in-channels is 4"),
        (lambda r: {"backbone": replace(r.backbone, patch_size=15)}, "no multiple of the patch of 15"),
        (
            lambda r: {"backbone": BackboneConfig("resnet50"), "crops": replace(r.crops, local_size=16)},
            "--local-size is 16 pixels, .* choose 17 or more",
        ),
        (lambda r: {"std": (1.0, 0.0, 1.0)}, "--std"),
        (lambda r: {"optimizer": replace(r.optimizer, lr=float("nan"))}, "--lr is nan"),
        (lambda r: {"method": replace(r.method, freeze_last_layer_epochs=101)}, "--freeze-last-layer-epochs"),
    ],
)
def test_recipes_that_cannot_be_are_named(change, words):
    recipe = presets.PRESETS["dino"]["official-default"].recipe
    with pytest.raises(SettingError, match=words):
        replace(recipe, **change(recipe))


def test_a_method_without_such_a_recipe_names_those_it_has():
    assert presets.find_preset("dino", None) == "official-default"
    with pytest.raises(SettingError, match="dino has no recipe 'other': choose official-default or paper or"):
        presets.find_preset("dino", "other")


def test_every_method_has_presets():
    assert presets.PRESETS.keys() == METHODS.keys()
    names = {name for method in METHODS for name in presets.preset_names(method)}
    assert names == set(get_args(presets.PresetName))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pictures", [64, 7_000, 1_300_000])
def test_the_small_recipe_of_every_method_fits_any_collection(method, pictures):
    recipe = presets.small_data(method, pictures, 112).recipe
    Plan.of(recipe, pictures)
    crops = recipe.crops
    facts = {"accumulate": 1, "views": crops.global_crops, "local_crops": crops.local_crops, "classes": 10}
    recipe.method.check(recipe.batch_size, **facts)


@pytest.mark.parametrize(
    ("method", "name", "architecture", "optimizer", "peak", "last", "decay", "epochs", "batch_size"),
    [
        ("byol", "paper", "resnet50", "lars", 4.8, 0.0, 1e-6, 300, 4096),
        ("moco-v2", "paper", "resnet50", "sgd", 0.03, 0.0, 1e-4, 200, 256),
        ("swav", "paper", "resnet50", "lars", 4.8, 0.0048, 1e-6, 800, 4096),
        ("swav", "small-batch", "resnet50", "lars", 0.6, 0.0006, 1e-6, 200, 256),
        ("supervised", "deit", "vit_small", "adamw", 0.001, 1e-5, 0.05, 300, 1024),
        ("supervised", "resnet50", "resnet50", "sgd", 0.1, 0.0, 1e-4, 100, 256),
        ("byol", "comparison", "vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
        ("moco-v2", "comparison", "vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
        ("swav", "comparison", "vit_small", "adamw", 0.002, 1e-6, 0.4, 300, 1024),
        ("dino", "resnet50", "resnet50", "sgd", 0.06, 1e-6, 1e-4, 100, 512),
    ],
)
def test_rates_are_the_papers(method, name, architecture, optimizer, peak, last, decay, epochs, batch_size):
    recipe = presets.PRESETS[method][name].recipe
    plan = Plan.of(recipe, pictures=20 * batch_size)
    assert recipe.backbone.architecture == architecture
    assert recipe.optimizer.name == optimizer
    assert plan.lr.max() == pytest.approx(peak)
    assert plan.lr[-1] == pytest.approx(last, abs=1e-3 * peak)
    assert plan.weight_decay.max() == pytest.approx(decay, rel=1e-3)
    assert (recipe.epochs, recipe.batch_size) == (epochs, batch_size)


@pytest.mark.parametrize(
    ("method", "name", "crops", "scales", "augmentation"),
    [
        ("byol", "paper", (2, 0), (0.08, 1.0), "dino"),
        ("moco-v2", "paper", (2, 0), (0.2, 1.0), "moco-v2"),
        ("swav", "paper", (2, 6), (0.14, 1.0), "swav"),
        ("byol", "comparison", (2, 0), (0.14, 1.0), "dino"),
        ("moco-v2", "comparison", (2, 0), (0.14, 1.0), "dino"),
        ("swav", "comparison", (2, 6), (0.25, 1.0), "dino"),
        ("supervised", "deit", (1, 0), (0.08, 1.0), "deit"),
    ],
)
def test_crops_are_the_papers(method, name, crops, scales, augmentation):
    found = presets.PRESETS[method][name].recipe.crops
    assert (found.global_crops, found.local_crops) == crops
    assert (found.global_scale, found.augmentation) == (scales, augmentation)


def test_the_papers_moco_has_a_larger_head_with_a_norm():
    head = presets.PRESETS["moco-v2"]["comparison"].recipe.method.head
    assert (head.layers, head.batch_norm, head.prototypes, head.bottleneck) == (3, True, 256, None)


def test_swavs_small_batches_are_assigned_along_with_a_queue():
    method = presets.PRESETS["swav"]["small-batch"].recipe.method
    assert (method.epsilon, method.queue, method.queue_start_epoch) == (0.05, 3840, 15)


def test_embedded_recipe_trains_the_shipped_architecture_in_three_stages():
    recipe = presets.PRESETS["dino"]["embedded"].recipe
    assert traits(load_model("embedded").backbone) == traits(create_backbone(recipe.backbone))
    plan = Plan.of(recipe, pictures=1600)
    assert [(s.end, s.crops.global_size, s.crops.local_size) for s in plan.stages] == [
        (2000, 48, 24),
        (3200, 80, 32),
        (4000, 112, 40),
    ]
    assert plan.at(2000)["global_size"] == 80
    assert plan.lr.max() == pytest.approx(0.0006)
