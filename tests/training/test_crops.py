import numpy as np
import pytest
import torch
from PIL import Image

from training.crops import CropConfig, Crops, GaussianBlur, MultiCrop, check, crop, normalise, widen


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


def test_views_differ_in_blur_and_solarisation_only():
    """Steps of the pipelines with their probabilities, read off the transforms themselves."""

    def steps(view):
        return {type(step).__name__: getattr(step, "p", None) for step in view.transforms}

    def blur_of(view):
        return view.transforms[4].p

    cut = MultiCrop(CropConfig())
    assert [blur_of(view) for view in (cut.first, cut.second, cut.local)] == [1.0, 0.1, 0.5]
    assert [steps(view)["RandomSolarize"] for view in (cut.first, cut.second, cut.local)] == [0.0, 0.2, 0.0]
    assert [steps(view)["RandomGrayscale"] for view in (cut.first, cut.second, cut.local)] == [0.2] * 3


def test_operations_happen_as_often_as_they_should():
    torch.manual_seed(0)
    red = Image.new("RGB", (20, 20), (200, 30, 30))
    cut = crop(16, (0.9, 1.0), blur=0.0, solarise=0.0)
    results = [cut(red) for _ in range(600)]
    grey = np.mean([bool((result[0] == result[1]).all()) for result in results])
    unchanged = np.mean([bool((result[0] == 200).all() and (result[1] == 30).all()) for result in results])
    assert grey == pytest.approx(0.2, abs=0.06)  # greyed
    assert unchanged == pytest.approx(0.2 * 0.8, abs=0.06)  # neither jittered nor greyed


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
    for view in (cut.first, cut.second, cut.local):
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


def test_normalise_is_the_formula():
    crops = Crops(
        torch.randint(0, 256, (2, 1, 3, 4, 4), dtype=torch.uint8), torch.empty(0, 1, 3, 2, 2).byte()
    )
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    normal = normalise(crops, mean, std, torch.device("cpu"))
    expected = (crops.views / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(normal.views, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"global_scale": (0.0, 1.0)}, "global_scale"),
        ({"local_scale": (0.5, 0.4)}, "local_scale"),
        ({"local_size": 8}, "local_size is 8 pixels, less than one patch of 16"),
        ({"local_crops": -1}, "local_crops"),
        ({"margin": -0.1}, "margin is -0.1, expected 0 to 1"),
    ],
)
def test_crops_that_cannot_be_are_named(settings, named):
    with pytest.raises(ValueError, match=named):
        check(CropConfig(**settings), patch_size=16)
