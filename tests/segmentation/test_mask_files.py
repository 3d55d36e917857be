"""One reader of mask files: labels, colors, wide ids, antialiased masks."""

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from segmentation.labels import VOID, DataError, palette, write_mask_png
from segmentation.mask_files import MaskReader, mask_file, read_labels

LABELS = np.zeros((24, 32), np.uint8)
LABELS[2:12, 3:15], LABELS[14:22, 18:30], LABELS[1:3, 28:30] = 1, 2, 3
RED_GREEN_BLUE = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)


def soften(mask: np.ndarray, blur: float = 1.2) -> np.ndarray:
    """Make edges as antialiasing does: values 0 to 255."""
    return cv2.GaussianBlur(mask.astype(np.uint8) * 255, (0, 0), blur)


@pytest.mark.parametrize("kind", ["palette", "gray", "filtered", "many parts", "one bit"])
def test_read_labels_returns_stored_values(kind, tmp_path):
    size, file = (480, 500) if kind == "many parts" else (40, 31), tmp_path / "mask.png"
    labels = np.random.default_rng(0).integers(0, 200, (9, 7), dtype=np.uint8).repeat(80, 0).repeat(70, 1)
    labels = labels[: size[0], : size[1]]
    if kind == "filtered":
        labels.sort(axis=0)  # so that the writer stores differences to the row above
        cv2.imwrite(str(file), labels, [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP])
    elif kind == "one bit":
        labels = (labels > 99).astype(np.uint8)
        Image.fromarray(labels > 0).save(file)
    elif kind == "gray":
        Image.fromarray(labels).save(file)
    else:
        write_mask_png(file, labels)
        with Image.open(file) as image:
            np.testing.assert_array_equal(np.array(image.convert("RGB")), palette()[labels])
    np.testing.assert_array_equal(read_labels(file), labels)
    np.testing.assert_array_equal(MaskReader(threshold=1).read(file), labels > 0)


def test_unusable_mask_raises_label_error(tmp_path):
    file = tmp_path / "mask.png"
    with pytest.raises(DataError, match=r"mask\.png is missing"):
        read_labels(file)
    Image.fromarray(np.random.default_rng(0).integers(0, 4, (60, 50), dtype=np.uint8)).save(file)
    whole = file.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in (60, len(whole) - 30)]
    for content in (b"no image", whole[:60], *flipped):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"mask\.png (is not an image of PNG|cannot be read)"):
            read_labels(file)


def write_images(folder: Path, *arrays: np.ndarray, suffix: str = "png") -> list[Path]:
    files = [folder / f"{number}.{suffix}" for number in range(len(arrays))]
    for file, array in zip(files, arrays, strict=True):
        Image.fromarray(array).save(file)
    return files


ids = LABELS.astype(np.uint16)
FORMS: dict[str, tuple[np.ndarray, np.ndarray]] = {  # stored, labels
    "gray with alpha": (np.stack([LABELS, (LABELS > 0) * np.uint8(255)], axis=-1), LABELS),
    "transparent gray": (np.stack([LABELS, (LABELS != 3) * np.uint8(9)], axis=-1), LABELS % 3),
    "colors": (RED_GREEN_BLUE[LABELS], np.array([0, 3, 2, 1], np.uint8)[LABELS]),
    "transparent colors": (
        np.dstack([RED_GREEN_BLUE[LABELS], LABELS % 2 * np.uint8(255)]),
        2 * (LABELS % 2) - (LABELS == 3),
    ),
    "VOC's colors": (palette()[LABELS * 5], LABELS * 5),
    "gray as RGB": (np.dstack([LABELS] * 3), LABELS),
    "16 bits": (ids, LABELS),
    "wide ids": (
        np.array([0, 26001, 24000, 65535], np.uint16)[LABELS],
        np.array([0, 2, 1, VOID], np.uint8)[LABELS],
    ),
    "32 bits": (ids.astype(np.int32) * 70_000, LABELS),
    "four objects of one pixel": (
        np.where(np.arange(768).reshape(24, 32) % 150 == 149, LABELS + 4, LABELS),
        None,
    ),
}


@pytest.mark.parametrize(
    ("form", "suffix"),
    [(form, suffix) for form in FORMS for suffix in ("png", "tif") if (form, suffix) != ("32 bits", "png")],
)
def test_every_form_of_mask_gives_labels(form, suffix, tmp_path):
    stored, labels = FORMS[form]
    (file,) = write_images(tmp_path, stored, suffix=suffix)
    np.testing.assert_array_equal(read_labels(file), stored if labels is None else labels)
    np.testing.assert_array_equal(MaskReader(threshold=1).read(file), read_labels(file) > 0)


def test_colors_have_one_number_in_all_files_and_unknown_ones_are_named(tmp_path):
    red, blue = (
        np.where(LABELS[..., None] == 1, RED_GREEN_BLUE[place], 0).astype(np.uint8) for place in (1, 3)
    )
    files = write_images(tmp_path, red, blue)
    reader = MaskReader(files)
    assert [set(np.unique(reader.read(file))) for file in files] == [{0, 2}, {0, 1}]
    assert reader.describe() == "colors of masks: 1 = #0000ff, 2 = #ff0000"
    assert reader.palette()[:3].tolist() == [[0, 0, 0], [0, 0, 255], [255, 0, 0]]
    again = MaskReader(kind=reader.kind, values=reader.values)
    np.testing.assert_array_equal(again.read(files[0]), reader.read(files[0]))
    with pytest.raises(DataError, match=r"1\.png has the color #0000ff, which has no label: .*1 = #ff0000"):
        MaskReader(files[:1]).read(files[1])
    write_mask_png(tmp_path / "p.png", LABELS % 3, reader.palette())
    assert set(np.unique(reader.read(tmp_path / "p.png"))) == {0, 1, 2}  # a palette's colors, too


def through_jpeg(values: np.ndarray) -> np.ndarray:
    """Save a mask as a JPEG and read it back."""
    large = values.repeat(4, 0).repeat(4, 1)
    return cv2.imdecode(cv2.imencode(".jpg", large, [cv2.IMWRITE_JPEG_QUALITY, 90])[1], cv2.IMREAD_GRAYSCALE)


SOFT = {
    "antialiased": soften(LABELS == 1),
    "blurred far": soften(LABELS == 2, 3),
    "antialiased in two rows": np.repeat(np.uint8([[0, 0, 120, *[255] * 9, 60, 0, 0]]).T, 20, 1),
    "antialiased to 128": soften(LABELS == 1) // 2,
    "antialiased RGB": np.dstack([soften(LABELS == 1)] * 3),
    "antialiased red": np.dstack([soften(LABELS == 1), *[0 * LABELS] * 2]),
    "labels from a JPEG": through_jpeg(LABELS * 120),
    "binary from a JPEG": through_jpeg((LABELS == 1) * np.uint8(255)),
    "enlarged labels": cv2.resize(LABELS * 60, (100, 90), interpolation=cv2.INTER_CUBIC),
}


@pytest.mark.parametrize("form", SOFT)
def test_antialiased_mask_names_the_options_that_read_it(form, tmp_path):
    (file,) = write_images(tmp_path, SOFT[form])
    with pytest.raises(DataError, match=r"0\.png has many values in thin edges.* --threshold 128 .*--binary"):
        read_labels(file)
    brightest = SOFT[form] if SOFT[form].ndim == 2 else SOFT[form].max(-1)
    np.testing.assert_array_equal(MaskReader(threshold=100).read(file), brightest >= 100)


def test_jpeg_mask_needs_a_threshold(tmp_path):
    image = np.where(LABELS == 1, 255, 0).astype(np.uint8).repeat(4, 0).repeat(4, 1)
    (file,) = write_images(tmp_path, image, suffix="jpg")
    with pytest.raises(DataError, match=r"0\.jpg is not an image of PNG, TIFF, BMP"):
        read_labels(file)
    np.testing.assert_array_equal(MaskReader(threshold=128).read(file), image > 0)
    assert (mask_file(tmp_path, "0"), mask_file(tmp_path, "1")) == (file, tmp_path / "1.png")


def test_mask_of_pages_alpha_or_16_bit_colors_is_refused(tmp_path):
    file = tmp_path / "m.tif"
    first, second = (Image.fromarray((label == LABELS).astype(np.uint8)) for label in (1, 2))
    first.save(file, save_all=True, append_images=[second])
    with pytest.raises(DataError, match=r"m\.tif has 2 pages; expected one"):
        read_labels(file)
    (file,) = write_images(tmp_path, np.dstack([0 * LABELS] * 3 + [(LABELS > 0) * np.uint8(255)]))
    with pytest.raises(DataError, match="is black, with an object in its alpha channel"):
        read_labels(file)
    cv2.imwrite(str(file), np.dstack([LABELS.astype(np.uint16)] * 3))
    with pytest.raises(DataError, match="has colors of 16 bits"):
        read_labels(file)
    file.write_bytes(cv2.imencode(".jpg", LABELS)[1].tobytes())
    with pytest.raises(DataError, match="A JPEG changes labels: --threshold 128 reads it"):
        read_labels(file)


REFUSED: dict[str, tuple[Callable[[np.random.Generator], np.ndarray], str]] = {
    "colors of an image": (
        lambda rng: rng.integers(0, 255, (40, 40, 3), np.uint8),
        r"have 1\d+ colors, .*at most 254",
    ),
    "too many ids": (lambda _: np.arange(400, dtype=np.uint16).reshape(20, 20), "have 399 ids"),
    "shares": (lambda _: LABELS / np.float32(3), "values that are no ids"),
    "negative ids": (lambda _: -LABELS.astype(np.int32), "values that are no ids"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_image_that_is_no_mask_is_refused(form, tmp_path):
    make, message = REFUSED[form]
    (file,) = write_images(tmp_path, make(np.random.default_rng(0)), suffix="tif")
    with pytest.raises(DataError, match=message):
        read_labels(file)


GREEN_RED = RED_GREEN_BLUE[[0, 2, 1, 3]]
PALETTES = {  # of the second mask; the first has red, green and blue at 1, 2 and 3
    "same": (RED_GREEN_BLUE, "a"),
    "without what the mask lacks": (RED_GREEN_BLUE[:3], "a"),
    "other colors of what the mask lacks": (np.vstack([RED_GREEN_BLUE[:3], [[9, 9, 9]]]), "a"),
    "black for what the mask lacks": (RED_GREEN_BLUE * [[1], [1], [1], [0]], "a"),
    "gray": (np.arange(256)[:, None].repeat(3, 1), "a"),
    "gray, read first": (np.arange(256)[:, None].repeat(3, 1), "a"),
    "another folder": (GREEN_RED, "b"),
    "exchanged": (GREEN_RED, "a"),
    "moved up": (RED_GREEN_BLUE[[0, 2, 3]], "a"),
}


@pytest.mark.parametrize("form", PALETTES)
def test_labels_whose_colors_are_exchanged_within_a_folder_are_refused(form, tmp_path):
    second, folder = PALETTES[form]
    files = [tmp_path / "a" / "0.png", tmp_path / folder / "1.png"]
    for file, labels, colors in zip(files, (LABELS, LABELS % 3), (RED_GREEN_BLUE, second), strict=True):
        file.parent.mkdir(exist_ok=True)
        image = Image.fromarray(labels, mode="P")
        image.putpalette(colors.astype(np.uint8).tobytes())
        image.save(file)
    reader = MaskReader(files)
    reader.read(files[form in ("black for what the mask lacks", "gray, read first")])
    if form in ("exchanged", "moved up"):
        with pytest.raises(DataError, match=r"1\.png has label 1 in #00ff00, 0\.png in #ff0000: a PNG opt"):
            reader.read(files[1])
    else:
        np.testing.assert_array_equal(reader.read(files[1]), LABELS % 3)
        np.testing.assert_array_equal(reader.read(files[0]), LABELS)


def test_label_that_appears_in_a_later_mask_keeps_its_color(tmp_path):
    """Files with the colors in use only: label 2 is green, then blue, which was label 3."""
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, places in zip(files, ([0, 1], [0, 1, 2], [0, 1, 3]), strict=True):
        image = Image.fromarray(LABELS % len(places), mode="P")
        image.putpalette(RED_GREEN_BLUE[places].tobytes().ljust(768, b"\0"))
        image.save(file)
    reader = MaskReader(files)
    for file in files[:2]:
        reader.read(file)
    np.testing.assert_array_equal(reader.palette(tmp_path)[:4], [*RED_GREEN_BLUE[:3], palette()[3]])
    with pytest.raises(DataError, match=r"2\.png has label 2 in #0000ff, 1\.png in #00ff00: .* 1\.png's pal"):
        reader.read(files[2])


def test_masks_of_two_kinds_are_refused(tmp_path):
    files = write_images(tmp_path, LABELS, RED_GREEN_BLUE[LABELS], ids * 300)
    reader = MaskReader(files)
    with pytest.raises(DataError, match=r"1\.png is in color, but others are not"):
        reader.read(files[1])
    with pytest.raises(DataError, match=r"2\.png has the id 900; others have none above 255"):
        reader.read(files[2])
    with pytest.raises(DataError, match="--threshold is 0"):
        MaskReader(threshold=0)
