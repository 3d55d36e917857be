"""Every kind of image file becomes the right pixels or one sentence."""

import io
import struct
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from dino_model.data import channels, images
from dino_model.data.images import ImageError
from tests.dino_model.data.samples import png

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encode(image: Image.Image | np.ndarray, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(np.ascontiguousarray(image))
    image.save(stream, kind, **options)
    return stream.getvalue()


def tiff(*pages: np.ndarray) -> bytes:
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as file:
        for page in pages:
            file.write(page)
    return stream.getvalue()


def gradient(height: int = 8, width: int = 12) -> np.ndarray:
    """An image in which no two pixels are equal."""
    row, column = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([20 * row, 20 * column, 255 - 9 * (row + column)], axis=-1)


def assert_image(image: np.ndarray, height: int, width: int) -> None:
    assert (image.dtype, image.shape) == (np.uint8, (height, width, 3))
    assert image.flags.writeable, "torch.from_numpy needs writable arrays"


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "JPEG", "WEBP", "AVIF", "HEIF"])
def test_read_format_keeps_the_pixels(kind: str, tmp_path: Path):
    if kind not in images.FORMATS:
        pytest.skip(f"no decoder of {kind} is installed")
    smooth = np.asarray(Image.fromarray(gradient()).resize((96, 64), Image.Resampling.BILINEAR))
    data = encode(smooth, kind, quality=95)
    image = images.read(data)
    assert_image(image, 64, 96)
    lossless = kind in ("PNG", "BMP", "TIFF", "PPM")
    assert np.abs(image.astype(int) - smooth).mean() <= (0 if lossless else 4)
    (tmp_path / "a").write_bytes(data)
    assert np.array_equal(images.read(tmp_path / "a"), image)


def test_read_gray_bilevel_and_palette_gives_rgb():
    drawn = Image.new("RGB", (4, 2), "white")
    drawn.paste("black", (0, 0, 2, 2))
    for mode in ("1", "L", "P"):
        image = images.read(encode(drawn.convert(mode), "PNG"))
        assert_image(image, 2, 4)
        assert (image[:, :2].max(), image[:, 2:].min()) == (0, 255)


BIG_ENDIAN = b"P5 2 2 65535\n" + np.array([[0, 256], [512, 1024]], dtype=">u2").tobytes()
FLOATS = np.array([[-1.0, 0.0, 1.0], [np.nan, np.inf, -np.inf]], dtype=np.float32)
RAMP = np.linspace(0, 4095, 16).round().astype(np.uint16).reshape(2, 8)


@pytest.mark.parametrize(
    ("file", "gray"),
    [
        (BIG_ENDIAN, [[0, 64], [128, 255]]),
        (encode(FLOATS, "TIFF"), [[0, 128, 255], [0, 255, 0]]),
        (encode(RAMP, "PNG"), (RAMP / 4095 * 255).round().tolist()),
        (encode(RAMP, "TIFF"), (RAMP / 4095 * 255).round().tolist()),
        *((encode(np.full((1, 1), n, np.uint16), "PNG"), [[n // 257]]) for n in (0, 128 * 257, 65535)),
    ],
)
def test_read_many_bits_stretches_finite_values_and_keeps_constants(file: bytes, gray: list):
    image = images.read(file)
    assert image[..., 0].tolist() == gray
    assert (image == image[..., :1]).all()


DEEP = np.random.default_rng(0).integers(0, 4000, (16, 20, 3), dtype=np.uint16)
FOUR = np.dstack([DEEP, DEEP[..., :1]]).astype(np.uint8)


def encode_tiff(array: np.ndarray, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, **options)
    return stream.getvalue()


def encode_png(array: np.ndarray) -> bytes:
    return cv2.imencode(".png", array[..., [2, 1, 0, 3][: array.shape[2]]])[1].tobytes()


RGB_TIFF = {"photometric": "rgb"}
NO_DATA = [(42113, "s", 0, "65535", True)]
REFUSED: dict[str, tuple[bytes, str]] = {
    "12 bits in a PNG": (encode_png(DEEP), "--channels 3"),
    "gray of 16 bits with alpha": (
        png(16, 20, 16, 4, (DEEP[..., :2] * 16).astype(">u2").view(np.uint8).reshape(16, -1)),
        "--channels 4",
    ),
    "10 bits in a PPM": (b"P6 20 16 65535\n" + (DEEP // 4).astype(">u2").tobytes(), "--channels 3"),
    "missing data in a TIFF": (
        encode_tiff(np.where(DEEP > 3000, 65535, DEEP).astype(np.uint16), extratags=NO_DATA, **RGB_TIFF),
        "--channels 3",
    ),
    "four pages": (encode_tiff(np.moveaxis(FOUR, 2, 0), photometric="minisblack"), "--channels 4"),
    "planes of 16 bits": (
        encode_tiff(np.moveaxis(DEEP * 16, 2, 0), planarconfig="separate", **RGB_TIFF),
        "--channels 3",
    ),
    "infrared": (encode_tiff(FOUR, extrasamples=["unspecified"], **RGB_TIFF), "--channels 4"),
    "gray and another": (
        encode_tiff(
            FOUR[..., :2], extrasamples=["unspecified"], photometric="minisblack", planarconfig="contig"
        ),
        "--channels 2",
    ),
    "inks and another": (
        encode_tiff(FOUR[..., [0, 1, 2, 3, 3]], extrasamples=["unspecified"], photometric="separated"),
        "--channels 5",
    ),
    "decimals": (encode_tiff(DEEP.astype(np.float32), **RGB_TIFF), "--channels 3"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_channels_that_would_be_lost_name_the_option_that_reads_them(form: str):
    data, option = REFUSED[form]
    with pytest.raises(ImageError, match=f"{option} ") as caught:
        images.read(data)
    assert "not an image" not in str(caught.value)
    assert channels.read_channels(data, int(option[-1]), form).shape == (16, 20, int(option[-1]))


@pytest.mark.parametrize(
    ("bright", "value", "is_read"), [(3, 65535, False), (4, 4096, True), (4, 4095, False)]
)
def test_colors_of_16_bits_need_more_than_a_thousandth_from_4096_on(bright: int, value: int, is_read: bool):
    dark = np.full((20, 50, 3), 4095, np.uint16)  # of 3,000 values
    dark.ravel()[:bright] = value
    if is_read:
        np.testing.assert_array_equal(images.read(encode_png(dark)), dark >> 8)
    else:
        with pytest.raises(ImageError, match="--channels 3 "):
            images.read(encode_png(dark))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("rest", "is_read"), [(1000, True), (999, False), (0, True)])
def test_gray_values_but_one_are_in_an_eighth_of_the_range_or_more(sign: int, rest: int, is_read: bool):
    gray = sign * np.array([[0.0, 8000, *np.linspace(8000 - rest, 8000, 9)]], np.float32)
    if is_read:
        shares = (gray - gray.min()) / 8000 * 255
        np.testing.assert_array_equal(images.read(encode(gray, "TIFF"))[..., 0], shares.round())
    else:
        with pytest.raises(ImageError, match="which would share few grays"):
            images.read(encode(gray, "TIFF"))


DARK = np.random.default_rng(1).integers(0, 16, (16, 20, 4), dtype=np.uint8)
OPAQUE = np.where(np.arange(4) == 3, np.uint8(255), DARK)
INKS = {
    "inks": encode(Image.fromarray(DARK, "CMYK"), "TIFF"),
    "CIELAB": encode(Image.fromarray(DARK[..., :3], "LAB"), "TIFF"),
    "YCbCr": encode(Image.fromarray(DARK[..., :3], "YCbCr"), "TIFF", compression="jpeg"),
}
READ: dict[str, tuple[bytes, Any]] = {
    "8 bits in a PPM": (encode(DARK[..., :3], "PPM"), DARK[..., :3]),
    "8 bits in a PNG": (encode(DARK[..., :3], "PNG"), DARK[..., :3]),
    "planes of 8 bits": (
        encode_tiff(np.moveaxis(DARK[..., :3], 2, 0), planarconfig="separate", **RGB_TIFF),
        DARK[..., :3],
    ),
    "associated alpha": (encode_tiff(OPAQUE, extrasamples=["assocalpha"], **RGB_TIFF), DARK[..., :3]),
    "gray of 8 bits with alpha": (
        encode(Image.fromarray(OPAQUE[..., 2:], "LA"), "PNG"),
        DARK[..., [2, 2, 2]],
    ),
    **{name: (data, np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))) for name, data in INKS.items()},
}


@pytest.mark.parametrize("form", READ)
def test_declared_channels_of_8_bits_are_read(form: str):
    data, expected = READ[form]
    np.testing.assert_array_equal(images.read(data), expected)


def test_normalization_is_that_of_imagenet():
    assert (images.IMAGENET_MEAN, images.IMAGENET_STD) == (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


def test_depth_alpha_and_missing_data_are_those_that_the_file_declares():
    bright = DEEP * 16
    for data in (encode_png(bright), encode_tiff(bright, **RGB_TIFF)):
        np.testing.assert_array_equal(images.read(data), bright >> 8)
    alpha = encode_tiff(FOUR, extrasamples=["unassalpha"], **RGB_TIFF)
    share = FOUR[..., 3:] / 255
    blended = FOUR[..., :3] * share + 255 * (1 - share)
    np.testing.assert_allclose(images.read(alpha), blended, atol=1)
    for kind, missing in ((np.float32, -9999), (np.uint16, 65535), (np.int16, -32768)):
        gray = DEEP[..., 0].astype(kind)
        expected = np.vstack([np.zeros((2, 20, 3), np.uint8), images.read(encode_tiff(gray[2:]))])
        gray[:2] = missing
        data = encode_tiff(gray, extratags=[(42113, "s", 0, str(missing), True)])
        np.testing.assert_array_equal(images.read(data), expected)
        assert np.isnan(channels.read_channels(data, 1, "gray")[:2]).all()
    white = encode_tiff(DEEP[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(images.read(white), 255 - images.read(encode_tiff(DEEP[..., 0])))


def test_read_cmyk_jpeg_gives_colors_with_and_without_adobe_marker():
    red = encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    assert images.read(red)[8, 8].tolist() == pytest.approx(RED, abs=4)
    data = encode(Image.new("CMYK", (16, 16), (0, 255, 255, 255)), "JPEG", quality=95)  # stored: 255, 0, 0, 0
    marker = data.index(b"\xff\xee")
    length = int.from_bytes(data[marker + 2 : marker + 4], "big")
    cyan = data[:marker] + data[marker + 2 + length :]
    assert images.read(cyan)[8, 8].tolist() == pytest.approx((0, 255, 255), abs=4)


def test_read_transparency_becomes_white():
    drawn = Image.new("RGBA", (3, 1))
    drawn.putdata([(*RED, 255), (*RED, 0), (0, 0, 0, 51)])
    assert images.read(encode(drawn, "PNG")).tolist() == [[[*RED], [*WHITE], [204, 204, 204]]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, *GREEN])
    palette.putdata([0, 1])
    for kind in ("PNG", "GIF"):
        assert images.read(encode(palette, kind, transparency=1)).tolist() == [[[*RED], [*WHITE]]]
    both = np.array([[RED, BLUE]], np.uint8)
    assert images.read(encode(both, "PNG", transparency=RED)).tolist() == [[[*WHITE], [*BLUE]]]


TURNS = {
    1: lambda image: image,
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.transpose(1, 0, 2),
    6: lambda image: np.rot90(image, 1),
    7: lambda image: image.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda image: np.rot90(image, -1),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", TURNS)
def test_read_applies_exif_orientation_once(kind: str, orientation: int):
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:, :16] = RED
    upright[:8, :16] = WHITE  # white above red on the left: no symmetry
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = images.read(encode(TURNS[orientation](upright), kind, exif=exif, quality=95, lossless=True))
    assert_image(image, 16, 32)
    assert np.abs(image[2:-2, 2:-2].astype(int) - upright[2:-2, 2:-2]).mean() < 6


def test_read_damaged_exif_keeps_the_image():
    data = encode(Image.new("RGB", (8, 4), RED), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff garbage")
    assert_image(images.read(data), 4, 8)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_read_animation_gives_first_frame(kind: str):
    first, *rest = (Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE))
    assert (images.read(encode(first, kind, save_all=True, append_images=rest, lossless=True)) == RED).all()


def test_read_max_pixels_is_the_largest_number_decoded(monkeypatch):
    data = encode(Image.new("RGB", (20, 10)), "PNG")
    assert_image(images.read(data, max_pixels=200), 10, 20)
    with pytest.raises(ImageError, match="at most 199 pixels"):
        images.read(data, max_pixels=199)
    with monkeypatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 80)  # Pillow refuses twice as many
        assert_image(images.read(data, max_pixels=200), 10, 20)
    for side in (12_000, 2_000_000):
        with pytest.raises(ImageError, match=r"^bomb\.png is too large: at most 100,000,000 pixels"):
            images.read(png(side, side, 8, 2), name="bomb.png")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM"])
def test_read_cut_file_is_refused_and_named(kind: str):
    data = encode(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8), kind)
    for share in (0.05, 0.5, 0.9):
        with pytest.raises(ImageError, match=r"^a is (damaged or cut short|not an image)") as raised:
            images.read(data[: int(share * len(data))], name="a")
        assert "\n" not in str(raised.value)


@settings(deadline=None)
@given(st.data())
def test_read_damaged_bytes_give_an_image_or_one_sentence(data: st.DataObject):
    file = bytearray(encode(gradient(), data.draw(st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "WEBP"]))))
    for place in data.draw(st.lists(st.integers(0, len(file) - 1), min_size=1, max_size=8)):
        file[place] = data.draw(st.integers(0, 255))
    try:
        image = images.read(bytes(file), max_pixels=1_000_000)
    except ImageError as error:
        assert str(error).startswith("the image is ")  # noqa: PT017 (either way is right)
    else:
        assert_image(image, *image.shape[:2])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"^note\.jpg is empty \(0 bytes\)$"),
        (b"this is a letter\n", r"^note\.jpg is not an image of a known format \(JPEG, PNG"),
        (encode(np.array([[-3.4e38, 1, 2]], np.float32), "TIFF"), r"^note\.jpg has -3\.4e\+38 .*GDAL_NODATA"),
        (encode(np.array([[0, 9000]], np.uint16), "PNG", transparency=9), "transparent .*--channels 1"),
        (tiff(np.array([[-5, 10]], np.int8)), r"^note\.jpg has signed values of 8 bits: pass --channels 1"),
        (tiff(np.zeros((8, 8), np.uint8), np.zeros((64, 48), np.uint8)), r"^note\.jpg has 2 pages: save"),
        (b"version https://git-lfs.github.com/spec/v1\n", r"is a pointer, not the image: run `git lfs pull`"),
        (b"/annex/objects/SHA256E-s9--0.jpg\n", r"is a pointer, not the image: .* or `git annex get`"),
        (None, r"^note\.jpg cannot be opened: No such file"),
    ],
)
def test_read_no_image_names_the_reason(content: bytes | None, sentence: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "note.jpg").write_bytes(content)
    with pytest.raises(ImageError, match=sentence):
        images.read(tmp_path / "note.jpg")


def test_read_at_least_makes_large_jpegs_smaller_and_no_other_image(tmp_path):
    smooth = np.linspace(0, 255, 1200 * 900 * 3).reshape(900, 1200, 3).astype(np.uint8)
    upright = Image.fromarray(smooth)
    exif = upright.getexif()
    exif[274] = 6  # rotated by a quarter
    upright.save(tmp_path / "a.jpg", quality=95)
    upright.save(tmp_path / "rotated.jpg", quality=95, exif=exif)
    upright.save(tmp_path / "a.png")
    for name, at_least, size in (
        ("a.jpg", 0, (900, 1200)),
        ("a.jpg", 451, (900, 1200)),
        ("a.jpg", 450, (450, 600)),
        ("a.jpg", 113, (225, 300)),
        ("rotated.jpg", 450, (600, 450)),
        ("a.png", 100, (900, 1200)),
    ):
        found = images.read(tmp_path / name, at_least=at_least)
        assert found.shape[:2] == size
    reduced = images.read(tmp_path / "a.jpg", at_least=450)
    assert np.abs(reduced.astype(float) - smooth[::2, ::2]).mean() < 3


@pytest.mark.parametrize(
    ("max_pixels", "kind", "options", "expected"),
    [
        (2400, "JPEG", {}, (40, 60, 3)),
        (2399, "JPEG", {}, (20, 30, 3)),
        (600, "JPEG", {}, (20, 30, 3)),
        (599, "JPEG", {}, None),
        (2399, "JPEG", {"progressive": True}, None),
        (2399, "PNG", {}, None),
    ],
)
def test_read_halves_jpegs_of_up_to_four_times_the_pixels(max_pixels, kind, options, expected):
    data = encode(Image.new("RGB", (60, 40)), kind, **options)
    if expected:
        assert images.read(data, max_pixels=max_pixels, halve=True).shape == expected
    else:
        with pytest.raises(ImageError, match=f"at most {max_pixels:,} pixels"):
            images.read(data, max_pixels=max_pixels, halve=True)


@pytest.mark.parametrize(("kind", "is_read"), [(1, True), (4, True), (2, False), (5, True)])
def test_second_page_that_is_declared_as_a_copy_or_mask_is_not_read(kind: int, is_read: bool):
    stream, tag = io.BytesIO(), "<HHII"
    with tifffile.TiffWriter(stream, byteorder="<") as file:
        file.write(DARK[..., 0])
        file.write(DARK[..., 1], subfiletype=2)
    data = stream.getvalue().replace(struct.pack(tag, 254, 4, 1, 2), struct.pack(tag, 254, 4, 1, kind))
    with nullcontext() if is_read else pytest.raises(ImageError, match="has 2 pages: pass --channels 2"):
        np.testing.assert_array_equal(images.read(data)[..., 0], DARK[..., 0])


@pytest.mark.parametrize("size", [(16, 12), (12, 20), (20, 12)])
def test_second_page_that_is_not_smaller_in_both_directions_is_refused(size):
    page = np.zeros((16, 20), np.uint8)
    with pytest.raises(ImageError, match="has 2 pages: save each"):
        images.read(tiff(page, page[:1].repeat(size[0], 0)[:, :1].repeat(size[1], 1)))
    assert images.read(tiff(page, page[:15, :19])).shape == (16, 20, 3)
