"""Images of N channels: how files are read, which range they have, how a model of RGB is adapted."""

import gc
import io
import time
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from dino_model.data.channels import ChannelRange, measure_channels, parse_channels, read_channels
from dino_model.data.images import ImageError
from dino_model.models.adaptation import adapt_channels, fit_channels
from dino_model.models.load import load_model
from dino_model.runtime.errors import SettingError

BANDS = np.random.default_rng(0).integers(0, 10_000, (7, 9, 5)).astype(np.uint16)
PAGES = np.moveaxis(BANDS, 2, 0)


def saved(write, array, **options) -> bytes:
    stream = io.BytesIO()
    write(stream, array, **options)
    return stream.getvalue()


def header(descr: str, *shape: int) -> bytes:
    """The beginning of a .npy file without values."""
    stream = io.BytesIO()
    facts = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, facts)
    return stream.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        saved(np.save, BANDS),
        saved(np.save, PAGES),
        saved(tifffile.imwrite, BANDS, photometric="minisblack", planarconfig="contig"),
        saved(tifffile.imwrite, PAGES, photometric="minisblack", compression="zlib"),
    ],
    ids=["npy", "npy, channels first", "tiff", "tiff of pages"],
)
def test_read_channels_returns_stored_values(data):
    np.testing.assert_array_equal(read_channels(data, 5, "bands"), BANDS)


def test_read_channels_of_png_keeps_16_bits_and_makes_color_gray_for_one_channel():
    stored = BANDS[..., :3]
    data = cv2.imencode(".png", stored[..., ::-1])[1].tobytes()
    np.testing.assert_array_equal(read_channels(data, 3, "png"), stored)
    gray = cv2.imencode(".png", stored[..., 0])[1].tobytes()
    np.testing.assert_array_equal(read_channels(gray, 1, "png")[..., 0], stored[..., 0])
    color = Image.fromarray(stored.astype(np.uint8))
    data = saved(lambda stream, image: image.save(stream, "png"), color)
    np.testing.assert_array_equal(read_channels(data, 1, "png")[..., 0], np.asarray(color.convert("L")))
    data = saved(lambda stream, image: image.save(stream, "png"), color.convert("LA"))  # gray with opacity
    np.testing.assert_array_equal(read_channels(data, 1, "png")[..., 0], np.asarray(color.convert("L")))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (saved(np.save, BANDS), r"bands has the shape \(7, 9, 5\), expected 4 channels"),
        (saved(np.save, BANDS)[:300], "bands is damaged"),
        (saved(np.save, np.array([{"a": 1}], object), allow_pickle=True), "bands is damaged"),
        (saved(np.save, BANDS[..., :4].astype(complex)), "bands holds values of type complex"),
        (saved(tifffile.imwrite, BANDS)[:200], "bands is damaged"),
        (b"no image at all", "bands is damaged, too large or of no known format"),
        (header("<f8", 10**4, 10**4, 5) + bytes(64), "bands is damaged, too large"),
    ],
)
def test_read_channels_of_unusable_file_names_it(data, message):
    with pytest.raises(ImageError, match=message):
        read_channels(data, 4, "bands")


def test_measure_channels_spans_the_values_and_leaves_8_bits_as_they_are():
    statistics = measure_channels([BANDS])
    expected = np.percentile(BANDS, (0.1, 99.9), axis=(0, 1))
    np.testing.assert_allclose((statistics.range.low, statistics.range.high), expected, rtol=1e-6)
    shares = statistics.range.to_uint8(BANDS) / 255
    assert (shares.min(), shares.max()) == (0, 1)
    np.testing.assert_allclose(shares.mean((0, 1)), statistics.mean, atol=1e-6)
    np.testing.assert_allclose(shares.std((0, 1)), statistics.std, atol=1e-6)
    assert all(value == round(value, 6) for value in (*statistics.mean, *statistics.std))
    images = np.random.default_rng(2).integers(10, 99, (2, 6, 6, 1)).astype(np.uint8)
    assert measure_channels(images).range == ChannelRange((0.0,), (255.0,))
    values = np.array([[[np.nan], [np.inf], [2.0], [3.0], [9.0], [-9.0]]])
    scaled = ChannelRange((0.0,), (4.0,)).to_uint8(values).ravel()
    np.testing.assert_array_equal(scaled, [0, 255, 128, 191, 255, 0])
    with pytest.raises(SettingError, match="channel 3 has the value 7 everywhere"):
        measure_channels([np.where(np.arange(5) == 3, 7, BANDS)])


def test_measure_channels_of_large_images_takes_pixels_from_all_over():
    """A ramp from the top to the bottom."""
    ramp = np.repeat(np.linspace(100, 900, 200, dtype=np.float32), 200).reshape(200, 200, 1)
    span, mean, std = measure_channels([ramp])
    np.testing.assert_allclose((*span.low, *span.high), np.percentile(ramp, (0.1, 99.9)), atol=10)
    shares = (ramp - 100) / 800
    np.testing.assert_allclose((*mean, *std), (shares.mean(), shares.std()), atol=0.01)


def test_measure_channels_takes_every_nth_pixel_of_4096_or_more():
    for rows, step in ((64, 2), (63, 1)):
        ramp = np.arange(rows * 128.0).reshape(rows, 128, 1)
        span = measure_channels([ramp]).range
        np.testing.assert_allclose((*span.low, *span.high), np.percentile(ramp.ravel()[::step], (0.1, 99.9)))


def test_array_of_at_most_the_allowed_values_is_read():
    for write in (np.save, tifffile.imwrite):
        data = saved(write, BANDS)
        assert read_channels(data, 5, "bands", 63).shape == (7, 9, 5)
        with pytest.raises(ImageError, match="too large"):
            read_channels(data, 5, "bands", 62)


def test_model_of_rgb_is_adapted_to_one_channel_or_more():
    model = load_model("random:vit_tiny/16")
    assert fit_channels(model, [BANDS[..., :1]], 1).backbone.patch_embed.proj.in_channels == 1
    with pytest.raises(SettingError, match="--channels is 0, but random:vit_tiny/16 takes at least 1"):
        fit_channels(model, None, 0)


def test_adapt_channels_sums_weights_for_gray():
    model = load_model("random:vit_tiny/16")
    gray = adapt_channels(model, measure_channels([BANDS[..., :1]])).backbone
    image = torch.randn(1, 1, 32, 32)
    with torch.no_grad():
        expected = model.backbone(image.expand(-1, 3, -1, -1))
        torch.testing.assert_close(gray(image), expected, atol=1e-4, rtol=0)


def test_parse_shown_refuses_missing_channel():
    assert parse_channels("3,2,1", 4) == (3, 2, 1)
    assert [parse_channels(None, count) for count in (6, 3, 2)] == [(0, 1, 2), (0, 1, 2), (0, 0, 0)]
    for text in ("4,2,1", "2,1", "3,2,1,0", "-1,0,1"):
        with pytest.raises(SettingError, match="three of the channels 0 to 3"):
            parse_channels(text, 4)


def test_read_npy_in_several_threads_gives_every_array():
    def let_other_threads_run(*_: object) -> None:
        time.sleep(1e-5)

    data, thresholds = saved(np.save, BANDS), gc.get_threshold()
    gc.callbacks.append(let_other_threads_run)
    gc.set_threshold(11)
    try:
        with ThreadPoolExecutor(8) as pool:
            arrays = list(pool.map(lambda _: read_channels(data, 5, "bands.npy"), range(1500)))
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(let_other_threads_run)
    assert all(np.array_equal(array, BANDS) for array in arrays)
