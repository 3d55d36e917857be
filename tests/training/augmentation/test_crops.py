"""Crops of workers, batches and devices, against torchvision's and Pillow's."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from dino_model.runtime.errors import SettingError
from training.augmentation.crop_config import CropConfig, ViewSpec
from training.augmentation.crops import (
    BOX_NUMBERS,
    Crops,
    MultiCrop,
    crop,
    normalize,
    random_box,
    resized_crops,
    widen,
)
from training.augmentation.photometry import NUMBERS, change_colors, plan_colors


def test_views_and_local_crops_differ_in_size_scale_blur_and_solarization_only():
    config = CropConfig()
    first, second = config.views
    assert first == replace(ViewSpec(), blur=1.0, solarize=0.0)
    assert second == replace(first, blur=0.1, solarize=0.2)
    assert config.locals == replace(first, blur=0.5, size=96, scale=(0.05, 0.4))
    assert replace(config, global_crops=3).views == (first, second, first)


AUGMENTED = {
    # probability of jitter, its strengths, probability of gray; of blur and solarization of locals and views
    "dino": (0.8, (0.4, 0.4, 0.2, 0.1), 0.2, [(0.5, 0), (1, 0), (0.1, 0.2)]),  # Table 6 of BYOL
    "moco-v2": (0.8, (0.4, 0.4, 0.4, 0.1), 0.2, [(0.5, 0)] * 3),  # main_moco.py --aug-plus
    "swav": (0.8, (0.8, 0.8, 0.8, 0.2), 0.2, [(0.5, 0)] * 3),  # appendix A of SimCLR
    "supervised": (1, (0.3, 0.3, 0.3, 0), 0, [(0, 0)] * 3),
    "deit": (0, None, 0, [(0, 0)] * 3),
    "none": (0, None, 0, [(0, 0)] * 3),
}


@pytest.mark.parametrize("name", AUGMENTED)
def test_augmentation_has_the_probabilities_and_strengths_of_its_paper(name):
    jitter, strengths, gray, pairs = AUGMENTED[name]
    config = CropConfig(augmentation=name)
    for spec, pair in zip((config.locals, *config.views), pairs, strict=True):
        assert (spec.jitter, spec.gray, (spec.blur, spec.solarize)) == (jitter, gray, pair)
        assert strengths is None or spec.strengths == strengths
        assert (spec.flip, spec.radius, spec.randaugment) == (0.5, (0.1, 2), name == "deit")


def test_crop_config_accepts_the_ends_of_its_ranges():
    CropConfig(1, 1, 0, (0.5, 0.5), (1.0, 1.0), (0.0, 0.0), margin=1.0, global_crops=1, canvas_size=1)
    CropConfig(blur=(1.0, 1.0), margin=0.0)


def test_images_are_decoded_so_large_that_the_smallest_and_narrowest_box_is_not_enlarged():
    """A box of 5 % of a square, with sides 3 : 4, is 0.194 of its side wide."""
    config = CropConfig()
    assert config.decoded_side == math.ceil(96 / math.sqrt(0.05 * 3 / 4)) == 496
    assert replace(config, local_crops=0).decoded_side == math.ceil(224 / math.sqrt(0.4 * 3 / 4)) == 409
    assert replace(config, augment="device").decoded_side == 384


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"global_scale": (0.5, 1.1)}, "--global-scale"),
        ({"blur": (2.0, 1.0)}, "--blur"),
        ({"augmentation": "deit", "augment": "device"}, "pass --augment batch"),
        ({"curriculum": ("48",)}, "a stage '48', expected SIZE:SHARE such as 48:0.5"),
        ({"curriculum": ("0:0.5", "224:0.5")}, "a stage '0:0.5'"),
        ({"curriculum": ("48:-1", "224:2")}, "a stage '48:-1'"),
        ({"curriculum": ("48:0.5", "224:0.4")}, "add up to 0.9, expected 1"),
        ({"curriculum": ("48:0.5", "80:0.5")}, "ends at 80 pixels, but --global-size is 224: pass"),
    ],
)
def test_crop_config_with_invalid_settings_raises(settings, words):
    with pytest.raises(SettingError, match=words):
        CropConfig(**settings)


def test_curriculum_stages_scale_local_crops_and_blur_with_the_global_size():
    config = CropConfig(112, 40, blur=(0.0, 1.12), curriculum=("48:0.5", "80:0.3", "112:0.2"))
    shares, stages = zip(*config.stages(8), strict=True)
    assert shares == (0.5, 0.3, 0.2)
    assert [(crops.global_size, crops.local_size) for crops in stages] == [(48, 24), (80, 32), (112, 40)]
    assert [crops.canvas_size for crops in stages] == [165, 275, 384]  # rounded up from 164.6 and 274.3
    assert [crops.blur for crops in stages] == [pytest.approx((0.0, size / 100)) for size in (48, 80, 112)]
    ((share, _),) = CropConfig(curriculum=("224:1",)).stages(8)
    assert share == 1


@pytest.mark.parametrize(
    ("augmentation", "device", "expected"),
    [("dino", "cuda", "device"), ("dino", "cpu", "workers"), ("deit", "cuda", "batch")],
)
def test_augment_auto_depends_on_the_device(augmentation, device, expected):
    assert CropConfig(augmentation=augmentation).for_device(device).augment == expected


def test_widen_mirrors_the_image():
    pixels = torch.randint(0, 256, (11, 15, 3), dtype=torch.uint8).numpy()  # of 2.75 and 3.75 pixels
    wide = np.asarray(widen(Image.fromarray(pixels), 0.25))
    assert np.array_equal(wide, np.pad(pixels, ((2, 2), (3, 3), (0, 0)), "symmetric"))
    assert np.array_equal(np.asarray(widen(Image.fromarray(pixels), 0.0)), pixels)


def test_random_box_has_a_uniform_area_and_a_log_uniform_ratio_of_its_sides():
    numbers = torch.rand(1000, BOX_NUMBERS, generator=torch.Generator().manual_seed(0)).tolist()
    boxes = torch.tensor([random_box(100, 100, (0.1, 0.5), row, whole=False) for row in numbers])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    for values, low, high in ((width * height / 1e4, 0.1, 0.5), ((width / height).log2(), -0.415, 0.415)):
        assert (values.min(), values.max()) == pytest.approx((low, high), abs=0.005)  # 2 ** 0.415 is 4 : 3
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.02)
        assert values.std() == pytest.approx((high - low) / 12**0.5, abs=0.02)
    independent = torch.stack([width * height, (width / height).log(), boxes[:, 0] / (100 - width)])
    assert (torch.corrcoef(independent) - torch.eye(3)).abs().max() < 0.1


def test_first_box_as_wide_or_as_high_as_the_image_fits():
    wide = (math.log(10 / 9) / math.log(4 / 3) + 1) / 2  # a ratio of 100 : 90; the other tries have 1 : 1
    shares = [0.75, *[0.5] * 9]
    for width, height, shape, expected in (
        (100, 120, wide, (0, 15, 100, 105)),
        (120, 100, 1 - wide, (15, 0, 105, 100)),
    ):
        numbers = [*shares, shape, *[0.5] * 9, 0.5, 0.5]
        assert random_box(width, height, (0, 1), numbers) == expected


@pytest.mark.parametrize("whole", [True, False])
def test_without_a_box_that_fits_the_largest_one_is_in_the_center(whole):
    numbers = [0.99] * BOX_NUMBERS  # nearly the whole image, with sides 4 : 3
    assert random_box(400, 30, (0.2, 0.9), numbers, whole=whole) == (180, 0, 220, 30)
    assert random_box(30, 400, (0.2, 0.9), numbers, whole=whole) == (0, 180, 30, 220)


def test_workers_blur_crops_by_a_radius_of_the_range(monkeypatch):
    radii = []
    monkeypatch.setattr(
        "training.augmentation.crops.ImageFilter.GaussianBlur", lambda r: radii.append(r) or ImageFilter.BLUR
    )
    pipeline = MultiCrop(CropConfig(8, 8, 0, blur=(0.5, 1.5), augment="workers"))
    for _ in range(300):
        pipeline(Image.new("RGB", (20, 20)))
    assert (min(radii), max(radii), np.mean(radii)) == pytest.approx((0.5, 1.5, 1.0), abs=0.06)


def test_numbers_of_a_device_crop_are_independent_of_its_box():
    multi = MultiCrop(CropConfig(32, 16, 2, augment="device"))
    params = torch.cat([multi.random_params(Image.new("RGB", (100, 100))).views for _ in range(300)])
    left, top, right, bottom = params[:, -4:].T
    box = torch.stack(
        [(right - left) * (bottom - top), (right - left) / (bottom - top), left / (1 - right + left)]
    )
    correlation = torch.corrcoef(torch.cat([params[:, :-4].T, box]))
    assert (correlation - torch.eye(len(correlation))).abs().max() < 0.25


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 200), (100, 1000)])
def test_box_without_rounding_is_that_of_whole_pixels_up_to_two(height, width):
    numbers = torch.rand(200, BOX_NUMBERS, generator=torch.Generator().manual_seed(0)).tolist()
    found, rounded = (
        torch.tensor([random_box(width, height, (0.05, 1.0), row, whole=whole) for row in numbers])
        for whole in (False, True)
    )
    assert ((found >= 0) & (found <= torch.tensor([width, height] * 2) + 1e-3)).all()
    assert ((found - rounded).abs().amax(1) > 2).sum() <= 4  # of 200: they fit only before or after rounding


@pytest.mark.parametrize(
    ("box", "size"),
    [((0, 0, 120, 120), 32), ((10, 20, 90, 60), 48), ((5, 7, 30, 25), 96), ((40, 3, 57, 113), 57)],
)
def test_resized_crops_at_whole_pixels_equal_torchvision(box, size):
    rows, columns = torch.meshgrid(torch.arange(120.0), torch.arange(120.0), indexing="ij")
    waves = torch.stack([rows * 2, 127 + 120 * torch.sin(columns / 3), (rows * columns) % 251])
    canvas = waves.clamp(0, 255).round()[None]
    left, top, width, height = box
    expected = functional.resized_crop(
        canvas, top, left, height, width, [size, size], InterpolationMode.BICUBIC, antialias=True
    )
    edges = torch.tensor([[left, top, left + width, top + height]]) / 120
    ((found,),) = resized_crops(canvas, edges, (1,), (size,))
    assert found.dtype == torch.uint8
    assert (found.float() - expected.clamp(0, 255)).abs().max() <= 0.51


@pytest.mark.parametrize(("box", "size"), [((3.4, 7.3, 40.7, 30.2), 16), ((10.6, 5.5, 19.1, 25.4), 24)])
def test_resized_crops_between_pixels_equal_the_formula(box, size):
    """Weights of a Catmull-Rom kernel, widened when it shrinks, of the pixels with centers inside the box."""

    def weights(start, end):
        scale, pixels = (end - start) / size, np.arange(48) + 0.5
        centers = start + (np.arange(size)[:, None] + 0.5) * scale
        d = abs(pixels - centers) / max(scale, 1)
        near, far = 1.5 * d**3 - 2.5 * d**2 + 1, -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2
        found = np.where(d < 1, near, np.where(d < 2, far, 0)) * ((pixels > start) & (pixels < end))
        return found / found.sum(1, keepdims=True)

    left, top, right, bottom = box
    canvas = np.random.default_rng(0).integers(0, 256, (3, 48, 48))
    expected = weights(top, bottom) @ canvas @ weights(left, right).T
    ((found,),) = resized_crops(torch.tensor(canvas[None]).float(), torch.tensor([box]) / 48, (1,), (size,))
    np.testing.assert_allclose(found[0], expected.clip(0, 255), atol=0.6)


def test_change_colors_flips_crops_by_their_last_number():
    pixels = torch.arange(24, dtype=torch.uint8).view(1, 1, 4, 6).expand(200, 3, 4, 6)
    view = ViewSpec(4, (0.5, 1.0), blur=0, jitter=0, gray=0)
    chances = torch.rand(200, NUMBERS + 1, generator=torch.Generator().manual_seed(0))
    mirrored = (chances[:, -1] < 0.5).view(-1, 1, 1, 1)
    assert 70 < mirrored.sum() < 130
    assert torch.equal(
        change_colors(pixels, *plan_colors([view], [chances])), torch.where(mirrored, pixels.flip(-1), pixels)
    )


@pytest.mark.parametrize("augment", ["workers", "batch"])
def test_multi_crop_deit_applies_two_operations_of_magnitude_9(augment, monkeypatch):
    def create(operations, magnitude):
        assert (operations, magnitude) == (2, 9)
        return lambda image: Image.new("RGB", image.size) if augment == "workers" else 0 * image

    monkeypatch.setattr("training.augmentation.crops.transforms.RandAugment", create)
    white = Image.new("RGB", (9, 9), "white")
    crops = MultiCrop(CropConfig(8, 8, 1, augmentation="deit", augment=augment))(
        white if augment == "workers" else functional.pil_to_tensor(white)
    )
    assert not any(group.any() for group in crops)


def test_pixels_are_normalized_by_the_statistics_of_their_channel():
    white_and_black = torch.tensor([255, 0], dtype=torch.uint8).expand(1, 2, 1, 2)
    crops = Crops(white_and_black, white_and_black[:0])
    views, _ = normalize(crops, (0.5, 0.2), (0.25, 0.4), torch.device("cpu"))
    torch.testing.assert_close(views.flatten(2)[0], torch.tensor([[2.0, -2.0], [2.0, -0.5]]))


def finish(pipeline, pairs):
    """Crops of a batch, by the crops and the random numbers of each of its images."""
    crops, params = (
        Crops(*(torch.stack(many, 1) for many in zip(*group, strict=True)))
        for group in zip(*pairs, strict=True)
    )
    return pipeline.finish(crops, pipeline.plan(params))


def test_device_crops_of_an_image_are_those_of_a_batch_of_one():
    pipeline = MultiCrop(CropConfig(global_size=16, local_size=8, local_crops=3, augment="device"))
    images = [torch.randint(0, 256, (3, 20 + 10 * i, 30), dtype=torch.uint8) for i in range(3)]
    pairs = [(pipeline(image), pipeline.random_params(image)) for image in images]
    together = finish(pipeline, pairs)
    for number, pair in enumerate(pairs):
        for group, alone in zip(together, finish(pipeline, [pair]), strict=True):
            assert (group[:, number].int() - alone[:, 0].int()).abs().max() <= 1


@pytest.mark.parametrize("augment", ["batch", "device"])
def test_augment_modes_give_the_same_statistics(augment):
    """Mean, contrast and detail over 300 images of every kind of crop."""
    rows, columns = np.mgrid[0:90, 0:120]
    pixels = np.stack([rows * 2, columns * 2, (rows + columns) % 255], axis=-1).astype(np.uint8)

    def statistics(augment, image):
        pipeline = MultiCrop(CropConfig(global_size=32, local_size=16, local_crops=1, augment=augment))
        torch.manual_seed(0)
        pairs = [(pipeline(image), pipeline.random_params(image)) for _ in range(300)]
        done = finish(pipeline, pairs)
        kinds = [crops.float() for crops in (*done.views, *done.locals)]
        return torch.tensor(
            [(x.mean(), x.std((1, 2, 3)).mean(), 10 * x.diff(dim=-1).abs().mean()) for x in kinds]
        )

    found = statistics(augment, torch.from_numpy(pixels).permute(2, 0, 1))
    torch.testing.assert_close(found, statistics("workers", Image.fromarray(pixels)), rtol=0.08, atol=2)


def test_crops_of_workers_flip_gray_and_solarize_from_128():
    image = np.random.default_rng(0).permutation(np.arange(768) % 256).reshape(16, 16, 3).astype(np.uint8)
    whole = ViewSpec(size=16, scale=(1.0, 1.0), flip=0.0, jitter=0.0, gray=0.0, blur=0.0, solarize=0.0)
    for change, expected in (
        ({}, image),
        ({"flip": 1.0}, image[:, ::-1]),
        ({"solarize": 1.0}, np.where(image < 128, image, 255 - image)),
        ({"gray": 1.0}, np.repeat(np.asarray(Image.fromarray(image).convert("L"))[..., None], 3, axis=2)),
    ):
        found = crop(replace(whole, **change))(Image.fromarray(image))
        np.testing.assert_array_equal(found.permute(1, 2, 0), expected)
