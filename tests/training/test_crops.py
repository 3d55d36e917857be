from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import RandomResizedCrop

from dino_model.errors import SettingError
from training.crop_config import CropConfig, ViewSpec
from training.crops import (
    TRIES,
    Crops,
    MultiCrop,
    finish,
    random_box,
    widen,
)
from training.photometry import NUMBERS


@pytest.fixture
def picture():
    rows, columns = np.mgrid[0:90, 0:120]
    pixels = np.stack([rows * 2, columns * 2, (rows + columns) % 255], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def test_dino_views_differ_in_blur_and_solarization_only():
    config = CropConfig()
    first, second = config.views
    assert (first.blur, second.blur, config.locals.blur) == (1.0, 0.1, 0.5)
    assert (first.solarize, second.solarize) == (0.0, 0.2)
    assert first == replace(second, blur=1.0, solarize=0.0)
    assert config.locals == replace(first, blur=0.5, size=96, scale=(0.05, 0.4))
    assert (config.locals.size, config.locals.scale) == (96, (0.05, 0.4))


def test_widen_mirrors_the_image():
    pixels = torch.randint(0, 256, (8, 12, 3), dtype=torch.uint8).numpy()
    wide = np.asarray(widen(Image.fromarray(pixels), 0.25))
    assert wide.shape == (12, 18, 3)
    assert np.array_equal(wide[2:-2, 3:-3], pixels)
    assert np.array_equal(wide[:2], wide[2:4][::-1])
    assert np.array_equal(wide[:, -3:], wide[:, -6:-3][:, ::-1])
    assert np.array_equal(np.asarray(widen(Image.fromarray(pixels), 0.0)), pixels)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"global_scale": (0.0, 1.0)}, "--global-scale"),
        ({"local_scale": (0.5, 0.4)}, "--local-scale"),
        ({"local_size": 0}, "--local-size is 0"),
        ({"local_crops": -1}, "--local-crops is -1"),
        ({"global_crops": 0}, "--global-crops is 0"),
        ({"blur": (2.0, 1.0)}, "--blur"),
        ({"margin": -0.1}, "--margin is -0.1, expected 0 to 1"),
    ],
)
def test_crop_config_with_invalid_settings_raises(settings, named):
    with pytest.raises(SettingError, match=named):
        CropConfig(**settings)


def test_check_sizes_with_partial_patches_raises():
    with pytest.raises(
        SettingError, match=r"--local-size is 8, no multiple of the patch size of 16: choose 16$"
    ):
        CropConfig(local_size=8).check_sizes(16)
    with pytest.raises(SettingError, match=r"--global-size is 100, no multiple .* choose 96 or 112"):
        CropConfig(global_size=100).check_sizes(16)


def test_random_box_covers_a_share_within_the_scale():
    torch.manual_seed(0)
    boxes = [random_box(150, 112, (0.05, 0.1), torch.rand(2 * TRIES + 2).tolist()) for _ in range(300)]
    shares = [(right - left) * (bottom - top) / (150 * 112) for left, top, right, bottom in boxes]
    assert 0.047 < min(shares) < 0.06
    assert 0.09 < max(shares) < 0.104


@pytest.mark.parametrize(("width", "height"), [(150, 112), (112, 150), (400, 30), (30, 400)])
def test_random_box_has_the_distribution_of_torchvision(width, height):
    torch.manual_seed(0)
    picture = Image.new("RGB", (width, height))
    theirs = RandomResizedCrop(16, (0.2, 0.9))
    boxes = [random_box(width, height, (0.2, 0.9), torch.rand(2 * TRIES + 2).tolist()) for _ in range(1500)]
    left, top, right, bottom = np.array(boxes).T
    assert min(left.min(), top.min()) >= 0
    assert (right.max() <= width, bottom.max() <= height) == (True, True)
    drawn = [theirs.make_params([picture]) for _ in range(1500)]
    for ours, name in ((left, "left"), (top, "top"), (right - left, "width"), (bottom - top, "height")):
        plain = np.array([params[name] for params in drawn])
        assert ours.mean() == pytest.approx(plain.mean(), abs=0.02 * max(width, height))
        assert ours.std() == pytest.approx(plain.std(), abs=0.02 * max(width, height))


def test_finish_flips_crops_by_their_last_number():
    pixels = torch.arange(24, dtype=torch.uint8).view(1, 1, 4, 6).expand(200, 3, 4, 6)
    view = ViewSpec(4, (0.5, 1.0), blur=0, jitter=0, gray=0)
    torch.manual_seed(0)
    chances = torch.rand(200, NUMBERS + 1)
    found = finish(view, pixels, chances)
    mirrored = chances[:, -1] < 0.5
    assert 70 < mirrored.sum() < 130
    assert torch.equal(found[mirrored], pixels[mirrored].flip(-1))
    assert torch.equal(found[~mirrored], pixels[~mirrored])


@pytest.mark.parametrize("augment", ["workers", "batch"])
def test_multi_crop_deit_applies_randaugment(augment, monkeypatch):
    asked = []
    colour = Image.new("RGB", (8, 8), (1, 2, 3))
    done = colour if augment == "workers" else torch.tensor([1, 2, 3]).byte().view(3, 1, 1).expand(3, 8, 8)
    monkeypatch.setattr(
        "training.crops.transforms.RandAugment",
        lambda operations, magnitude: asked.append((operations, magnitude)) or (lambda _: done),
    )
    config = CropConfig(8, 8, 1, global_crops=1, augmentation="deit", augment=augment)
    cut = MultiCrop(config)
    white = Image.new("RGB", (9, 9), "white")
    crops = cut(white if augment == "workers" else torch.full((3, 9, 9), 255, dtype=torch.uint8))
    assert set(asked) == {(2, 9)}
    assert all((group == torch.tensor([1, 2, 3]).view(3, 1, 1)).all() for group in crops)
    assert not any(view.randaugment for view in CropConfig().views)


@pytest.mark.parametrize("augment", ["batch", "device"])
def test_augment_modes_give_the_same_statistics(picture, augment):
    """Mean, contrast and detail of 300 pictures' crops, each kind of crop by itself."""
    tensor = torch.from_numpy(np.array(picture)).permute(2, 0, 1)

    def statistics(augment, source):
        pipeline = MultiCrop(CropConfig(global_size=32, local_size=16, local_crops=1, augment=augment))
        torch.manual_seed(0)
        pairs = [(pipeline(source), pipeline.random_params(source)) for _ in range(300)]
        batch = [
            Crops(*(torch.stack(many, 1) for many in zip(*group, strict=True)))
            for group in zip(*pairs, strict=True)
        ]
        done = pipeline.finish(*batch)
        kinds = [pixels.float() for pixels in (*done.views, *done.locals)]
        detail = [pixels.diff(dim=-1).abs().mean() for pixels in kinds]
        bright = [(pixels.mean(), pixels.std((1, 2, 3)).mean()) for pixels in kinds]
        return torch.tensor([[*both, fine * 10] for both, fine in zip(bright, detail, strict=True)])

    found, expected = statistics(augment, tensor), statistics("workers", picture)
    torch.testing.assert_close(found, expected, rtol=0.08, atol=2)


def test_curriculum_stages_scale_local_crops_and_blur_with_the_global_size():
    config = CropConfig(112, 40, blur=(0.0, 1.12), curriculum=("48:0.5", "80:0.3", "112:0.2"))
    stages = config.stages(8)
    assert [share for share, _ in stages] == [0.5, 0.3, 0.2]
    assert [(crops.global_size, crops.local_size) for _, crops in stages] == [(48, 24), (80, 32), (112, 40)]
    assert [crops.blur for _, crops in stages] == [pytest.approx((0.0, size / 100)) for size in (48, 80, 112)]


@pytest.mark.parametrize(
    ("curriculum", "words"),
    [
        (("48",), "a stage '48', expected SIZE:SHARE such as 48:0.5"),
        (("0:0.5", "112:0.5"), "a stage '0:0.5'"),
        (("48:-1", "112:2"), "a stage '48:-1'"),
        (("48:0.5", "112:0.4"), "add up to 0.9, expected 1"),
        (("48:0.5", "80:0.5"), "ends at 80 pixels, but --global-size is 112: pass --global-size 80"),
    ],
)
def test_crop_config_with_invalid_curriculum_raises(curriculum, words):
    with pytest.raises(SettingError, match=words):
        CropConfig(112, 40, curriculum=curriculum)
