import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import recipes
from training.pretrain import check, rates


def test_paper_is_the_papers():
    recipe = recipes.paper().recipe
    assert (recipe.crops.local_crops, recipe.crops.global_scale, recipe.crops.local_scale) == (
        10,
        (0.25, 1.0),
        (0.05, 0.25),
    )
    assert (recipe.batch_size, recipe.epochs, recipe.head.prototypes) == (1024, 300, 65536)
    dino = recipe.dino
    temperatures = (dino.teacher_temperature_start, dino.teacher_temperature)
    assert temperatures == (0.04, 0.07)
    assert dino.teacher_temperature_warmup_epochs == 30


def test_official_default_is_the_official_codes():
    recipe = recipes.official_default().recipe
    assert (recipe.batch_size, recipe.epochs, recipe.crops.local_crops) == (512, 100, 8)
    assert (recipe.dino.teacher_temperature, recipe.backbone.drop_path, recipe.optimizer.clip_grad) == (
        0.04,
        0.1,
        3,
    )
    lr = rates(recipe, steps_per_epoch=10).lr
    assert lr.max() == pytest.approx(1e-3)
    assert lr[0] == 0


@given(st.integers(64, 2_000_000), st.integers(20, 2000), st.sampled_from([8, 64, 256]), st.integers(1, 300))
def test_small_data_fits_any_collection(pictures, short_side, batch_size, epochs):
    if pictures < batch_size:
        return
    advice = recipes.small_data(pictures, short_side, batch_size=batch_size, epochs=epochs)
    check(advice.recipe, pictures)
    assert 0.9 <= advice.recipe.dino.teacher_momentum < 1
    assert any(f"K = {advice.recipe.head.prototypes}" in reason for reason in advice.reasons)


def test_more_pictures_get_more_prototypes():
    sizes = [recipes.small_data(n, 224).recipe.head.prototypes for n in (5_000, 50_000, 200_000, 1_000_000)]
    assert sizes == sorted(set(sizes))


def test_every_recipe_says_where_it_comes_from():
    for make in recipes.PUBLISHED.values():
        assert make().reasons
        assert "Command: python -m training pretrain" in (make.__doc__ or "")


@pytest.mark.parametrize("short_side", [32, 96, 112, 144, 208, 500])
def test_small_data_crops_are_whole_patches(short_side):
    recipe = recipes.small_data(5_000, short_side).recipe
    assert recipe.crops.global_size % recipe.backbone.patch_size == 0
    assert recipe.crops.local_size % recipe.backbone.patch_size == 0
