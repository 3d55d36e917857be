"""One set of labels for masks of every form: values, colors, ids, palettes, names."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from segmentation.annotations import (
    LabelSet,
    MaskReader,
    MaskRules,
    NamedClass,
    find_classes,
    read_classes,
    read_labels,
)
from segmentation.labels import VOID, DataError, palette, write_mask_png
from segmentation.mask_files import find_mask

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
    np.testing.assert_array_equal(MaskReader(rules=MaskRules(1)).read(file), labels > 0)


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
    np.testing.assert_array_equal(MaskReader(rules=MaskRules(1)).read(file), read_labels(file) > 0)


def test_colors_have_one_number_in_all_files_and_unknown_ones_are_named(tmp_path):
    red, blue = (
        np.where(LABELS[..., None] == 1, RED_GREEN_BLUE[place], 0).astype(np.uint8) for place in (1, 3)
    )
    files = write_images(tmp_path, red, blue, np.zeros_like(LABELS))
    for order in (files, files[::-1]):
        reader = MaskReader(order)
        assert [set(np.unique(reader.read(file))) for file in files] == [{0, 2}, {0, 1}, {0}]
        assert reader.label_set.values == (0, 0xFF, 0xFF0000)
        rows = [(row["class"], row["files"]) for row in reader.summary()["classes"]]
        assert rows == [("background", 3), ("#0000ff", 1), ("#ff0000", 1)]
    assert reader.palette()[:3].tolist() == [[0, 0, 0], [0, 0, 255], [255, 0, 0]]
    again = MaskReader(label_set=LabelSet.from_json(json.loads(json.dumps(asdict(reader.label_set)))))
    np.testing.assert_array_equal(again.read(files[0]), reader.read(files[0]))
    with pytest.raises(DataError, match=r"1\.png has #0000ff, which has no label"):
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
    np.testing.assert_array_equal(MaskReader(rules=MaskRules(100)).read(file), brightest >= 100)


LOSSY: dict[str, Callable[[Image.Image, Path], None]] = {
    "a.jpg": lambda image, file: image.save(file),
    "a.tif": lambda image, file: image.save(file, compression="jpeg"),
    "a.webp": lambda image, file: image.save(file),
    "a.png": lambda image, file: image.save(file, "JPEG"),  # the encoding decides
}


@pytest.mark.parametrize("name", LOSSY)
def test_mask_of_a_lossy_encoding_needs_a_threshold(name, tmp_path):
    values = np.where(LABELS == 1, 255, 0).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    LOSSY[name](Image.fromarray(values), tmp_path / name)
    with pytest.raises(DataError, match="--threshold 128"):
        read_labels(tmp_path / name)
    np.testing.assert_array_equal(MaskReader(rules=MaskRules(128)).read(tmp_path / name), values > 0)


@pytest.mark.parametrize("name", ["a.webp", "a.pgm", "a.gif", "a.PNG", "a.tif"])
def test_every_exact_encoding_is_read(name, tmp_path):
    file = tmp_path / name
    Image.fromarray(LABELS).save(file, **({"lossless": True} if name.endswith("webp") else {}))
    np.testing.assert_array_equal(read_labels(file), LABELS)
    assert find_mask(tmp_path, "a") == file
    for kind in (np.int64, np.uint16, np.uint32):
        tifffile.imwrite(tmp_path / "b.tif", LABELS.astype(kind))
        np.testing.assert_array_equal(read_labels(tmp_path / "b.tif"), LABELS.astype(kind))


NAMES: dict[str, tuple[str, str, str]] = {  # stem, mask, --mask-name
    "suffix": ("scene_1", "scene_1_mask.png", "{stem}_mask"),
    "two suffixes": ("a", "a.jpg.png", "{stem}.jpg"),
    "Cityscapes": ("x_leftImg8bit", "x_gtFine_labelIds.png", "leftImg8bit=gtFine_labelIds"),
    "in a folder": ("b/a", "b/task-a-tag.png", "task-{stem}-tag"),
}


@pytest.mark.parametrize("form", NAMES)
def test_missing_mask_shows_the_nearest_names_and_a_template_finds_it(form, tmp_path):
    stem, name, template = NAMES[form]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    for file in (tmp_path / name, (tmp_path / name).with_name("zzz.png")):
        Image.fromarray(LABELS).save(file)
    with pytest.raises(DataError, match=rf"{re.escape(Path(name).name)}.*--mask-name"):
        find_mask(tmp_path, stem)
    assert find_mask(tmp_path, stem, template) == tmp_path / name


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
    with pytest.raises(DataError, match="--threshold 128"):
        read_labels(file)


REFUSED: dict[str, tuple[Callable[[np.random.Generator], np.ndarray], str]] = {
    "colors of an image": (
        lambda rng: rng.integers(0, 255, (40, 40, 3), np.uint8),
        r"--threshold 128",
    ),
    "too many ids": (lambda _: np.arange(400, dtype=np.uint16).reshape(20, 20), "have 399 ids"),
    "shares": (lambda _: LABELS / np.float32(3), "values that are no ids"),
    "negative ids": (lambda _: -LABELS.astype(np.int32), "--ignore -3"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_image_that_is_no_mask_is_refused(form, tmp_path):
    make, message = REFUSED[form]
    (file,) = write_images(tmp_path, make(np.random.default_rng(0)), suffix="tif")
    with pytest.raises(DataError, match=message):
        read_labels(file)


def write_palettes(folder: Path, *masks: tuple[np.ndarray, np.ndarray]) -> list[Path]:
    files = [folder / f"{number}.png" for number in range(len(masks))]
    for file, (labels, colors) in zip(files, masks, strict=True):
        file.parent.mkdir(exist_ok=True)
        image = Image.fromarray(labels, mode="P")
        image.putpalette(colors.astype(np.uint8).tobytes().ljust(768, b"\0"))
        image.save(file)
    return files


GRAY = np.arange(256)[:, None].repeat(3, 1)
SAME: dict[str, np.ndarray] = {  # palettes of a second mask whose indices mean what they mean in the first
    "same": RED_GREEN_BLUE,
    "without what the mask lacks": RED_GREEN_BLUE[:3],
    "other colors of what the mask lacks": np.vstack([RED_GREEN_BLUE[:3], [[9, 9, 9]]]),
    "gray": GRAY,
    "white background": np.vstack([[[255] * 3], RED_GREEN_BLUE[1:]]),
}


@pytest.mark.parametrize("form", SAME)
def test_indices_are_labels_where_palettes_agree(form, tmp_path):
    files = write_palettes(tmp_path, (LABELS, RED_GREEN_BLUE), (LABELS % 3, SAME[form]))
    for order in (files, files[::-1]):
        reader = MaskReader(order)
        np.testing.assert_array_equal(reader.read(files[0]), LABELS)
        np.testing.assert_array_equal(reader.read(files[1]), LABELS % 3)
        np.testing.assert_array_equal(reader.palette()[1:4], RED_GREEN_BLUE[1:])


def test_colors_are_labels_where_palettes_exchange_them(tmp_path):
    """A PNG optimizer numbers the colors of each file anew."""
    order = np.array([0, 3, 1, 2])
    files = write_palettes(
        tmp_path,
        (LABELS, RED_GREEN_BLUE),
        (order[LABELS].astype(np.uint8), RED_GREEN_BLUE[np.argsort(order)]),
    )
    for given in (files, files[::-1]):
        reader = MaskReader(given)
        np.testing.assert_array_equal(*(reader.read(file) for file in files))
        assert reader.label_set.kind == "colors"


def test_palettes_with_more_colors_than_indices_need_an_option(tmp_path):
    other = np.array([[0, 0, 0], [90, 0, 0], [0, 90, 0], [0, 0, 90]])
    files = write_palettes(tmp_path, (LABELS, RED_GREEN_BLUE), (LABELS, other))
    with pytest.raises(DataError, match=r"--palette index .* --palette color"):
        MaskReader(files)
    for scope, chosen, highest in (("folder", "index", 3), ("folder", "color", 6), ("image", None, 3)):
        reader = MaskReader(files, MaskRules(palette=chosen), scope=scope)
        assert max(reader.read(file).max() for file in files) == highest
    adaptive = write_palettes(tmp_path / "adaptive", (LABELS, RED_GREEN_BLUE[[1, 0, 2, 3]]))
    with pytest.raises(DataError, match=r"index 0 .* is #ff0000.*--palette index .* --palette color"):
        MaskReader(adaptive)


def test_white_of_one_bit_masks_is_255_beside_masks_of_bytes(tmp_path):
    files = write_images(tmp_path, LABELS, LABELS > 0)
    assert set(np.unique(read_labels(files[1]))) == {0, 1}
    for order in (files, files[::-1]):
        assert set(np.unique(MaskReader(order).read(files[1]))) == {0, VOID}


SCRIBBLES = np.array([3, 1, 2, 0], np.uint8)[LABELS]
SAID: dict[str, tuple[np.ndarray, MaskRules, np.ndarray]] = {  # masks, options, labels
    "ignored 0, background 3": (
        SCRIBBLES,
        MaskRules(ignore=("0",), background="3"),
        np.array([0, 1, 2, VOID], np.uint8)[LABELS],
    ),
    "ignored by name": (
        LABELS,
        MaskRules(ignore=("b",), classes=tuple(map(NamedClass, ["ground", "a", "b", "c"]))),
        np.array([0, 1, VOID, 3], np.uint8)[LABELS],
    ),
    "white background": (
        np.vstack([[[255] * 3], RED_GREEN_BLUE[1:]]).astype(np.uint8)[LABELS],
        MaskRules(background="#ffffff"),
        np.array([0, 3, 2, 1], np.uint8)[LABELS],
    ),
    "no background": (
        np.array([[9, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)[LABELS],
        MaskRules(background="none"),
        np.array([3, 4, 2, 1], np.uint8)[LABELS],
    ),
    "ignored color": (
        RED_GREEN_BLUE[LABELS],
        MaskRules(ignore=("#00ff00",)),
        np.array([0, 2, VOID, 1], np.uint8)[LABELS],
    ),
    "background -1": (LABELS.astype(np.int32) - 1, MaskRules(background="-1", ignore=("0",)), None),
}


@pytest.mark.parametrize("form", SAID)
def test_options_say_what_values_mean(form, tmp_path):
    stored, rules, labels = SAID[form]
    (file,) = write_images(tmp_path, stored, suffix="tif")
    if form != "ignored by name":
        with suppress(DataError):
            assert (MaskReader([file]).read(file) != labels).any()
    expected = np.array([0, VOID, 1, 2], np.uint8)[LABELS] if labels is None else labels
    np.testing.assert_array_equal(MaskReader([file], rules).read(file), expected)


def test_classes_are_matched_by_name_and_color(tmp_path):
    masks = tmp_path / "SegmentationClass"
    masks.mkdir()
    (file,) = write_images(masks, RED_GREEN_BLUE[LABELS])
    (tmp_path / "labelmap.txt").write_text(
        "# label:color_rgb\nbackground:0,0,0::\nred:255,0,0::\nblue:0,0,255::\ngreen:0,255,0::\n"
    )
    named = MaskReader([file], MaskRules(classes=find_classes(masks, ())))
    np.testing.assert_array_equal(named.read(file), np.array([0, 1, 3, 2], np.uint8)[LABELS])
    assert named.label_set.names == ("background", "red", "blue", "green")
    lists = {
        "names": "background\ngreen\nblue\nred\n",
        "colors": "green #00ff00\nblue #0000ff\nred #ff0000\n",
    }
    for content in lists.values():
        (tmp_path / "classes.txt").write_text(content)
        classes = find_classes(masks, read_classes(tmp_path / "classes.txt"))
        reader = MaskReader([file], MaskRules(classes=classes))
        np.testing.assert_array_equal(reader.read(file), np.array([0, 3, 1, 2], np.uint8)[LABELS])
        assert reader.label_set.names == ("background", "green", "blue", "red")
    (tmp_path / "classes.txt").write_text("background\nred\nblue\n")
    with pytest.raises(DataError, match=r"differ in green"):
        find_classes(masks, read_classes(tmp_path / "classes.txt"))
    (tmp_path / "labelmap.txt").unlink()
    three = read_classes(tmp_path / "classes.txt")
    with pytest.raises(DataError, match="write `background #rrggbb`"):
        MaskReader([file], MaskRules(classes=find_classes(masks, three)))
    with pytest.raises(DataError, match="label 3, and there are 3 names"):
        MaskReader(write_images(tmp_path, LABELS), MaskRules(classes=three))


def test_masks_of_two_kinds_are_refused(tmp_path):
    files = write_images(tmp_path, LABELS, RED_GREEN_BLUE[LABELS])
    for order in (files, files[::-1]):
        with pytest.raises(DataError, match=r"0\.png is gray with the value 1, but others are in color"):
            MaskReader(order)
    with pytest.raises(DataError, match="--threshold is 0"):
        MaskReader(rules=MaskRules(0))
    with pytest.raises(DataError, match="--binary"):
        MaskReader(write_images(tmp_path, (LABELS > 0) * np.uint8(255)))
