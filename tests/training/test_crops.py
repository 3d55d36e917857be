from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import RandomResizedCrop

from dino_model.errors import SettingError
from training.crop_config import CropConfig, Photometry, ViewSpec
from training.crops import (
    TRIES,
    Crops,
    GaussianBlur,
    MultiCrop,
    crop,
    cut,
    finish,
    normalize,
    random_box,
    widen,
)
from training.photometry import NUMBERS


@pytest.fixture
def picture():
    rows, columns = np.mgrid[0:90, 0:120]
    pixels = np.stack([rows * 2, columns * 2, (rows + columns) % 255], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def test_crops_have_their_sizes_and_numbers(picture):
    crops = MultiCrop(CropConfig(global_size=64, local_size=24, local_crops=5))(picture)
    assert crops.views.shape == (2, 3, 64, 64)
    assert crops.locals.shape == (5, 3, 24, 24)
    assert crops.views.dtype == crops.locals.dtype == torch.uint8


def test_no_local_crops_are_possible(picture):
    assert MultiCrop(CropConfig(global_size=32, local_size=16, local_crops=0))(picture).locals.shape == (
        0,
        3,
        16,
        16,
    )


def test_the_same_seed_gives_the_same_crops(picture):
    cut = MultiCrop(CropConfig(global_size=32, local_size=16, local_crops=2))
    torch.manual_seed(3)
    first = cut(picture)
    torch.manual_seed(3)
    again, other = cut(picture), cut(picture)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first.views, other.views)


def test_dinos_views_differ_in_blur_and_solarisation_only():
    config = CropConfig()
    first, second = config.views
    assert (first.photometry.blur, second.photometry.blur, config.locals.photometry.blur) == (1.0, 0.1, 0.5)
    assert (first.photometry.solarize, second.photometry.solarize) == (0.0, 0.2)
    same = replace(second.photometry, blur=1.0, solarize=0.0)
    assert first == replace(second, photometry=same)
    assert config.locals.photometry == replace(first.photometry, blur=0.5)
    assert (config.locals.size, config.locals.scale) == (96, (0.05, 0.4))


def test_more_global_crops_go_on_in_turn():
    views = CropConfig(global_crops=5).views
    assert [view.photometry.blur for view in views] == [1.0, 0.1, 1.0, 0.1, 1.0]
    assert len(CropConfig(global_crops=1).views) == 1


NOTHING = Photometry(blur=0.0, solarize=0.0, jitter=0.0, gray=0.0)


def share(what, photometry, flip=0.0, times=500):
    """How often `what` is seen in crops of a reddish picture that is darker on its left."""
    torch.manual_seed(0)
    pixels = np.zeros((24, 24, 3), np.uint8)
    pixels[:, :12], pixels[:, 12:] = (100, 20, 20), (220, 60, 60)
    cut = crop(ViewSpec(24, (1.0, 1.0), replace(photometry, radius=(1.5, 2.0)), flip))
    picture = Image.fromarray(pixels)
    return np.mean([bool(what(cut(picture).float())) for _ in range(times)])


def is_grey(view):
    return (view[0] == view[1]).all()


def is_flipped(view):
    return view[0, :, :8].mean() > view[0, :, -8:].mean()


def is_solarized(view):
    return view[0, 12, 20] < 100  # 220 becomes 35


def is_blurred(view):
    return len(view[0, 12].unique()) > 6


def has_other_colours(view):
    return (view[:, 0, 0] - torch.tensor([100.0, 20.0, 20.0])).abs().max() > 1


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gray", is_grey),
        ("solarize", is_solarized),
        ("blur", is_blurred),
        ("jitter", has_other_colours),
    ],
)
def test_operations_happen_as_often_as_they_are_told(name, what, probability):
    times = 10_000 if probability == 0.2 else 500
    found = share(what, replace(NOTHING, **{name: probability}), times=times)
    assert found == pytest.approx(probability, abs=4 * (probability * (1 - probability) / times) ** 0.5)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_left_and_right_are_exchanged_as_often_as_they_are_told(probability):
    assert share(is_flipped, NOTHING, probability) == pytest.approx(
        probability, abs=0.07 if probability == 0.5 else 0
    )


def test_the_numbers_of_dino_are_the_published_ones():
    """Those of BYOL's appendix B."""
    for view in (*CropConfig().views, CropConfig().locals):
        photometry = view.photometry
        assert (photometry.jitter, photometry.gray, view.flip) == (0.8, 0.2, 0.5)
        assert photometry.strengths == (0.4, 0.4, 0.2, 0.1)
        assert photometry.radius == (0.1, 2.0)


@pytest.mark.parametrize(
    ("strengths", "low", "high"),
    [((0.4, 0.0, 0.0, 0.0), 0.6, 1.4), ((0.2, 0.0, 0.0, 0.0), 0.8, 1.2)],
)
def test_the_jitter_is_as_strong_as_it_is_told(strengths, low, high):
    torch.manual_seed(0)
    cut = crop(ViewSpec(8, (1.0, 1.0), replace(NOTHING, jitter=1.0, strengths=strengths), flip=0.0))
    picture = Image.new("RGB", (8, 8), (100, 100, 100))
    factors = [cut(picture)[0, 0, 0].item() / 100 for _ in range(300)]
    assert low - 0.01 <= min(factors) < low + 0.05
    assert high - 0.05 < max(factors) <= high + 0.01


def test_every_crop_covers_the_share_of_the_picture_it_is_told_to():
    """Measured on a picture whose red is its column and whose green is its row."""
    torch.manual_seed(0)
    rows, columns = np.mgrid[0:200, 0:200]
    picture = Image.fromarray(np.stack([columns, rows, 0 * rows], axis=-1).astype(np.uint8))
    cut = crop(ViewSpec(100, (0.1, 0.3), NOTHING, flip=0.0))
    areas = []
    for _ in range(200):
        view = cut(picture).float()
        wide, high = (view[0, 50, 95] - view[0, 50, 5]) / 0.9, (view[1, 95, 50] - view[1, 5, 50]) / 0.9
        areas.append(float(wide * high) / 200**2)
    assert 0.09 < min(areas) < 0.13
    assert 0.26 < max(areas) < 0.32


def test_blur_keeps_a_flat_picture_and_smooths_an_edge():
    blur = GaussianBlur((1.0, 2.0))
    flat = Image.new("RGB", (16, 16), (10, 20, 30))
    assert np.array_equal(np.asarray(blur(flat)), np.asarray(flat))
    edge = np.zeros((16, 16, 3), np.uint8)
    edge[:, 8:] = 255
    assert len(np.unique(np.asarray(blur(Image.fromarray(edge))))) > 2


def test_the_radius_of_the_blur_is_the_configured_one():
    edge = np.zeros((64, 64, 3), np.uint8)
    edge[:, 32:] = 255
    widths = []
    for radius in (0.0, 1.0, 4.0):
        row = np.asarray(GaussianBlur((radius, radius))(Image.fromarray(edge)))[32, :, 0]
        widths.append(int(((row > 0) & (row < 255)).sum()))
    assert widths[0] == 0
    assert 2 <= widths[1] < 10 < widths[2]
    cut = MultiCrop(CropConfig(blur=(0.25, 0.75)))
    for view in (*cut.views, cut.local):
        found = view.transforms[4].transforms[0]
        assert (found.low, found.high) == (0.25, 0.75)


def test_margin_is_the_picture_mirrored():
    pixels = torch.randint(0, 256, (8, 12, 3), dtype=torch.uint8).numpy()
    wide = np.asarray(widen(Image.fromarray(pixels), 0.25))
    assert wide.shape == (12, 18, 3)
    assert np.array_equal(wide[2:-2, 3:-3], pixels)
    assert np.array_equal(wide[:2], wide[2:4][::-1])
    assert np.array_equal(wide[:, -3:], wide[:, -6:-3][:, ::-1])
    assert np.array_equal(np.asarray(widen(Image.fromarray(pixels), 0.0)), pixels)


def test_crops_are_cut_from_the_picture_and_its_margin():
    picture = Image.new("RGB", (64, 64))
    picture.paste((255, 255, 255), (0, 0, 64, 16))  # and so is the whole margin above
    for margin, share in ((0.0, 16 / 64), (0.25, 32 / 96)):
        whole = MultiCrop(CropConfig(48, 16, 0, global_scale=(1.0, 1.0), blur=(0.0, 0.0), margin=margin))
        view = whole(picture).views[0].float().mean(0)
        bright = view > (view.min() + view.max()) / 2
        assert bright.float().mean().item() == pytest.approx(share, abs=0.02)


def test_normalize_is_the_formula():
    crops = Crops(
        torch.randint(0, 256, (2, 1, 3, 4, 4), dtype=torch.uint8), torch.empty(0, 1, 3, 2, 2).byte()
    )
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    normal = normalize(crops, mean, std, torch.device("cpu"))
    expected = (crops.views / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(normal.views, expected, atol=1e-5, rtol=1e-5)


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
def test_crops_that_cannot_be_are_named(settings, named):
    with pytest.raises(SettingError, match=named):
        CropConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"local_size": 8}, "--local-size is 8 pixels, no multiple of the patch of 16: choose 16$"),
        (
            {"global_size": 100},
            "--global-size is 100 pixels, no multiple .* choose 96 or 112",
        ),
    ],
)
def test_crops_that_would_be_padded_are_refused(settings, named):
    with pytest.raises(SettingError, match=named):
        CropConfig(**settings).check_sizes(16)


def test_a_size_that_is_not_cut_does_not_matter():
    CropConfig(local_size=100, local_crops=0).check_sizes(16)


@pytest.mark.parametrize(("width", "height"), [(150, 112), (112, 150), (400, 30), (30, 400)])
def test_boxes_lie_inside_and_are_drawn_as_torchvision_draws_them(width, height):
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


def test_a_cut_is_its_box_as_pillow_resizes_it(picture, monkeypatch):
    monkeypatch.setattr("training.crops.random_box", lambda *_: (5, 10, 75, 70))
    tensor = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
    expected = picture.crop((5, 10, 75, 70)).resize((24, 24), Image.Resampling.BICUBIC)
    found = cut(tensor, ViewSpec(24, (0.9, 1.0)))
    assert found.dtype == torch.uint8
    assert np.abs(found.permute(1, 2, 0).numpy().astype(int) - np.asarray(expected).astype(int)).max() <= 1


def test_crops_are_mirrored_by_their_last_chance():
    pixels = torch.arange(24, dtype=torch.uint8).view(1, 1, 4, 6).expand(200, 3, 4, 6)
    view = ViewSpec(4, (0.5, 1.0), Photometry(blur=0, jitter=0, gray=0))
    torch.manual_seed(0)
    chances = torch.rand(200, NUMBERS + 1)
    found = finish(view, pixels, chances)
    mirrored = chances[:, -1] < 0.5
    assert 70 < mirrored.sum() < 130
    assert torch.equal(found[mirrored], pixels[mirrored].flip(-1))
    assert torch.equal(found[~mirrored], pixels[~mirrored])


def test_batched_photometry_finishes_what_was_only_cut(picture):
    config = CropConfig(global_size=32, local_size=16, local_crops=3, augment="batch")
    pipeline = MultiCrop(config)
    torch.manual_seed(0)
    tensor = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
    crops, chances = pipeline(tensor), pipeline.random_params(tensor)
    assert (crops.views.shape, crops.locals.shape) == ((2, 3, 32, 32), (3, 3, 16, 16))
    batch = [Crops(*(group[:, None] for group in groups)) for groups in (crops, chances)]
    done = pipeline.finish(*batch)
    first, second, local = (partial(finish, view) for view in (*config.views, config.locals))
    assert torch.equal(done.views[0], first(crops.views[:1], chances.views[:1]))
    assert torch.equal(done.views[1], second(crops.views[1:], chances.views[1:]))
    assert torch.equal(done.locals[:, 0], local(crops.locals, chances.locals))
    assert MultiCrop(CropConfig()).finish(*batch) is batch[0]


@pytest.mark.parametrize(
    ("augmentation", "strengths", "jitter", "grey", "blur"),
    [
        ("moco-v2", (0.4, 0.4, 0.4, 0.1), 0.8, 0.2, 0.5),
        ("swav", (0.8, 0.8, 0.8, 0.2), 0.8, 0.2, 0.5),
        ("supervised", (0.3, 0.3, 0.3, 0.0), 1.0, 0.0, 0.0),
    ],
)
def test_other_methods_have_their_papers_colours_in_every_crop(augmentation, strengths, jitter, grey, blur):
    config = CropConfig(augmentation=augmentation)
    for view in (*config.views, config.locals):
        colours = view.photometry
        assert (colours.strengths, colours.jitter, colours.gray) == (strengths, jitter, grey)
        assert (colours.blur, colours.solarize) == (blur, 0.0)


@pytest.mark.parametrize("augment", ["workers", "batch"])
def test_deits_crops_go_through_randaugment(augment, monkeypatch):
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
def test_every_way_to_augment_gives_crops_of_the_same_statistics(picture, augment):
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


def test_stages_without_curriculum_is_one():
    assert CropConfig().stages(16) == [(1.0, CropConfig())]


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
def test_curriculum_that_is_no_whole_training_is_refused(curriculum, words):
    with pytest.raises(SettingError, match=words):
        CropConfig(112, 40, curriculum=curriculum)
