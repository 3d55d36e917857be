"""One set of labels for masks of every form: values, colors, ids, palettes, names."""

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from PIL import Image

from segmentation.annotations import (
    MaskReader,
    MaskRules,
    NamedClass,
    find_classes,
    read_classes,
    read_labels,
)
from segmentation.commands.common import NamedMaskOptions, list_inputs, open_inputs
from segmentation.commands.truth import TrueMasks
from segmentation.labels import DataError, palette, write_mask_png
from segmentation.mask_files import find_mask
from tests.dino_model.data.samples import png

LABELS = np.zeros((24, 32), np.uint8)
LABELS[2:12, 3:15], LABELS[14:22, 18:30], LABELS[1:3, 28:30] = 1, 2, 3
COLORS = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
WHITE_FIRST = np.vstack([[[255] * 3], COLORS[1:]]).astype(np.uint8)
GRAY = np.arange(256)[:, None].repeat(3, 1)


def mapped(*labels: int) -> np.ndarray:
    return np.array(labels, np.uint8)[LABELS]


def write(path: Path, mask: np.ndarray | tuple[np.ndarray, np.ndarray]) -> Path:
    """Write an array, or indices with their palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(mask, tuple):
        image = Image.fromarray(mask[0], mode="P")
        image.putpalette(mask[1].astype(np.uint8).tobytes().ljust(768, b"\0"))
        image.save(path)
    else:
        Image.fromarray(mask).save(path)
    return path


def soften(mask: np.ndarray, blur: float = 1.2) -> np.ndarray:
    """Make edges as antialiasing does: values 0 to 255."""
    return cv2.GaussianBlur(mask.astype(np.uint8) * 255, (0, 0), blur)


def through_jpeg(values: np.ndarray) -> np.ndarray:
    large = values.repeat(4, 0).repeat(4, 1)
    return cv2.imdecode(cv2.imencode(".jpg", large, [cv2.IMWRITE_JPEG_QUALITY, 90])[1], cv2.IMREAD_GRAYSCALE)


ids = LABELS.astype(np.uint16)
FORMS: dict[str, tuple[np.ndarray | tuple[np.ndarray, np.ndarray], MaskRules, np.ndarray]] = {
    "palette": ((LABELS, palette()), MaskRules(), LABELS),
    "gray": (LABELS, MaskRules(), LABELS),
    "one bit with a threshold": (LABELS > 0, MaskRules(128), mapped(0, 1, 1, 1)),
    "one bit": (LABELS > 0, MaskRules(), mapped(0, 1, 1, 1)),
    "transparent gray": (np.stack([LABELS, (LABELS != 3) * np.uint8(9)], -1), MaskRules(), LABELS % 3),
    "colors": (COLORS[LABELS], MaskRules(), mapped(0, 3, 2, 1)),
    "VOC's colors with void": (palette()[mapped(0, 8, 255, 12)], MaskRules(), mapped(0, 8, 255, 12)),
    "gray as RGB": (np.dstack([LABELS] * 3), MaskRules(), LABELS),
    "ids of 16 bits": (
        np.array([0, 26001, 300, 65535], np.uint16)[LABELS],
        MaskRules(),
        mapped(0, 2, 1, 255),
    ),
    "255 beside 300": (np.array([0, 255, 300, 7], np.uint16)[LABELS], MaskRules(), mapped(0, 2, 3, 1)),
    "four objects of one pixel": (
        np.where(np.arange(768).reshape(24, 32) % 150 == 149, LABELS + 4, LABELS),
        MaskRules(),
        np.where(np.arange(768).reshape(24, 32) % 150 == 149, LABELS + 4, LABELS),
    ),
    "scribbles": (mapped(3, 1, 2, 0), MaskRules(ignore=("0",), background="3"), mapped(0, 1, 2, 255)),
    "class that is ignored": (
        LABELS,
        MaskRules(ignore=("b",), classes=tuple(map(NamedClass, ["Background", "a", "b", "c"]))),
        mapped(0, 1, 255, 3),
    ),
    "label 0 is a class": (
        LABELS,
        MaskRules(background="none", classes=tuple(map(NamedClass, "abcd"))),
        LABELS,
    ),
    "white background as a value": (WHITE_FIRST[LABELS], MaskRules(background="255"), mapped(0, 3, 2, 1)),
    "no background": (
        np.vstack([[[9, 0, 0]], COLORS[1:]]).astype(np.uint8)[LABELS],
        MaskRules(background="none"),
        mapped(3, 4, 2, 1),
    ),
    "ignored color": (COLORS[LABELS], MaskRules(ignore=("#00ff00",)), mapped(0, 2, 255, 1)),
    "inverted": (mapped(255, 0, 0, 0), MaskRules(background="255"), mapped(0, 1, 1, 1)),
    "ignored color of a palette": (
        (LABELS, COLORS),
        MaskRules(ignore=("#00ff00",)),
        mapped(0, 2, 255, 1),
    ),
    "negative background": (
        LABELS.astype(np.int32) - 1,
        MaskRules(background="-1", ignore=("0",)),
        mapped(0, 255, 1, 2),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_mask_gives_labels(form, tmp_path):
    stored, rules, labels = FORMS[form]
    is_png = isinstance(stored, tuple) or stored.dtype != np.int32
    files = [tmp_path / f"a.{suffix}" for suffix in ("png", "tif")[not is_png :]]
    for file in files:
        write(file, stored)
        np.testing.assert_array_equal(MaskReader([file], rules).read(file), labels)
    if rules == MaskRules():
        np.testing.assert_array_equal(MaskReader(rules=MaskRules(1)).read(files[0]), labels > 0)


def save_pages(image: Image.Image, file: Path) -> None:
    image.save(file, save_all=True, append_images=[Image.fromarray(LABELS)])


REFUSED: dict[str, tuple[Callable[[], np.ndarray], str]] = {  # one mask, and what the message has
    "antialiased": (lambda: soften(LABELS == 1), r"--threshold 128 .*--binary"),
    "antialiased in two rows": (
        lambda: np.repeat(np.uint8([[0, 0, 120, *[255] * 9, 60, 0, 0]]).T, 20, 1),
        "--threshold 128",
    ),
    "antialiased RGB": (lambda: np.dstack([soften(LABELS == 1)] * 3), "--threshold 128"),
    "labels from a JPEG": (lambda: through_jpeg(LABELS * 120), "--threshold 128"),
    "enlarged labels": (
        lambda: cv2.resize(LABELS * 60, (100, 90), interpolation=cv2.INTER_CUBIC),
        "--threshold 128",
    ),
    "too many ids": (lambda: np.arange(400, dtype=np.uint16).reshape(20, 20), "have 399 ids"),
    "shares": (lambda: LABELS / np.float32(3), "values that are no ids"),
    "negative ids": (lambda: -LABELS.astype(np.int32), r"--ignore '-3' or --background '-3'"),
    "alpha only": (lambda: np.dstack([0 * LABELS] * 3 + [(LABELS > 0) * np.uint8(255)]), "alpha channel"),
    "0 and 255 only": (lambda: (LABELS > 0) * np.uint8(255), "--binary.*--ignore 255"),
    "0 and 65535 only": (lambda: (LABELS > 0) * np.uint16(65535), "--binary.*--ignore 65535"),
    "values without 0": (lambda: LABELS + np.uint8(1), "--background '1'.*--background none"),
    "ids without 0": (lambda: ids + np.uint16(900), "--background '900'"),
    "colors without black": (lambda: WHITE_FIRST[LABELS], "--background '#ffffff'"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_mask_of_uncertain_meaning_names_the_option(form, tmp_path):
    make, message = REFUSED[form]
    file = write(tmp_path / "0.tif", make())
    with pytest.raises(DataError, match=message):
        MaskReader([file])
    if message.startswith("--threshold"):
        values = make() if make().ndim == 2 else make().max(-1)
        np.testing.assert_array_equal(MaskReader(rules=MaskRules(100)).read(file), values >= 100)


LOSSY: dict[str, Callable[[Image.Image, Path], None]] = {
    "a.tif": lambda image, file: image.save(file, compression="jpeg"),
    "a.webp": lambda image, file: image.save(file),
    "a.png": lambda image, file: image.save(file, "JPEG"),  # the encoding decides
    "white0.tif": lambda image, file: tifffile.imwrite(file, 255 - np.array(image), photometric="miniswhite"),
}


@pytest.mark.parametrize("name", LOSSY)
def test_mask_of_an_encoding_that_changes_values_needs_a_threshold(name, tmp_path):
    values = mapped(0, 255, 0, 0).repeat(8, 0).repeat(8, 1)
    LOSSY[name](Image.fromarray(values), tmp_path / name)
    advice = "may be inverted" if name == "white0.tif" else "--threshold 128"
    with pytest.raises(DataError, match=advice):
        read_labels(tmp_path / name)
    np.testing.assert_array_equal(MaskReader(rules=MaskRules(128)).read(tmp_path / name), values > 0)


EXACT = ["a.webp", "a.pgm", "a.gif", "a.PNG", "a.tif", "filtered.png", "2.png", "4.png", "3.pgm"]


@pytest.mark.parametrize("name", EXACT)
def test_every_exact_encoding_is_read(name, tmp_path):
    file = tmp_path / name
    if name == "filtered.png":  # rows are stored as differences
        cv2.imwrite(str(file), LABELS, [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP])
    elif name == "3.pgm":
        file.write_bytes(b"P5 32 24 3\n" + LABELS.tobytes())
    elif name[0].isdigit():
        bits = np.unpackbits(LABELS[..., None], axis=-1)[..., -int(name[0]) :].reshape(24, -1)
        file.write_bytes(png(24, 32, int(name[0]), 0, np.packbits(bits, axis=1)))
    else:
        Image.fromarray(LABELS).save(file, **({"lossless": True} if name.endswith("webp") else {}))
    np.testing.assert_array_equal(read_labels(file), LABELS)
    assert find_mask(tmp_path, file.stem) == file
    for kind in (np.int64, np.uint16, np.uint32):
        tifffile.imwrite(tmp_path / "b.tif", LABELS.astype(kind))
        np.testing.assert_array_equal(read_labels(tmp_path / "b.tif"), LABELS)


def test_large_palette_mask_keeps_its_values_and_colors(tmp_path):
    labels = np.random.default_rng(0).integers(0, 200, (9, 7), dtype=np.uint8).repeat(80, 0).repeat(70, 1)
    write_mask_png(tmp_path / "a.png", labels)
    with Image.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(np.array(image.convert("RGB")), palette()[labels])
    np.testing.assert_array_equal(read_labels(tmp_path / "a.png"), labels)


def test_unusable_file_is_named(tmp_path):
    file = tmp_path / "mask.png"
    with pytest.raises(DataError, match=r"mask\.png is missing"):
        read_labels(file)
    whole = png(60, 50, 8, 0, np.random.default_rng(0).integers(0, 4, (60, 50), dtype=np.uint8))
    flipped = [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in (60, len(whole) - 30)]
    np.save(tmp_path / "a.npy", LABELS)
    cut = (whole[:size] for size in (20, 28, 36, 60))
    sizes = (png(side, side, 8, 0, LABELS[:0]) for side in (0, 70_000))
    for content in (b"no image", (tmp_path / "a.npy").read_bytes(), *cut, *flipped, *sizes):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"mask\.png (is not an image of PNG|cannot be read)"):
            read_labels(file)
    for name in ("m.tif", "m.png"):
        save_pages(Image.fromarray(mapped(0, 2, 1, 3)).convert("P"), tmp_path / name)
        with pytest.raises(DataError, match=rf"{name} has 2 pages; expected one"):
            read_labels(tmp_path / name)
    cv2.imwrite(str(file), np.dstack([ids] * 3))
    for content in (file.read_bytes(), png(1, 1, 16, 4, np.zeros((1, 4), np.uint8))):  # gray with alpha
        file.write_bytes(content)
        with pytest.raises(DataError, match="has colors of 16 bits"):
            read_labels(file)
    tifffile.imwrite(tmp_path / "signed.tif", -LABELS.astype(np.int8))
    with pytest.raises(DataError, match="signed values of 8 bits"):
        read_labels(tmp_path / "signed.tif")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"the mask .*folder\.png is missing"):
        find_mask(tmp_path, "folder")
    with pytest.raises(DataError, match=r"the folder .*inner is missing: masks are in folders as"):
        find_mask(tmp_path, "inner/a")
    with pytest.raises(DataError, match="--threshold is 0"):
        MaskReader(rules=MaskRules(0))


NAMES: dict[str, tuple[str, str, str]] = {  # stem, mask, --mask-name
    "suffix": ("scene_1", "scene_1_mask.png", "{stem}_mask"),
    "two suffixes": ("a", "a.jpg.png", "{stem}.jpg"),
    "Cityscapes": ("x_leftImg8bit", "x_gtFine_labelIds.png", "leftImg8bit=gtFine_labelIds"),
    "in a folder": ("b/a", "b/task-a-tag.png", "task-{stem}-tag"),
}


@pytest.mark.parametrize("form", NAMES)
def test_missing_mask_shows_the_nearest_names_and_a_template_finds_it(form, tmp_path):
    stem, name, template = NAMES[form]
    for file in (tmp_path / name, (tmp_path / name).with_name("zzz.png")):
        write(file, LABELS)
    with pytest.raises(DataError, match=rf"{Path(name).name}.*--mask-name"):
        find_mask(tmp_path, stem)
    assert find_mask(tmp_path, stem, template) == tmp_path / name


TOGETHER: dict[str, tuple[tuple[str, str], str | None, int]] = {  # image, mask, --mask-name, images in use
    "suffix": (("0.jpg", "0.png"), None, 1),
    "template": (("0.png", "0_mask.png"), "{stem}_mask", 1),
    "replaced": (("0_img.png", "0_mask.png"), "_img=_mask", 1),
    "nothing": (("0.png", "1.png"), None, 0),
}


@pytest.mark.parametrize("form", TOGETHER)
def test_masks_in_the_folder_of_the_images_are_no_images(form, tmp_path, capsys):
    names, template, count = TOGETHER[form]
    for name in names:
        write(tmp_path / name, LABELS)
    images, options = list_inputs(open_inputs([tmp_path])), NamedMaskOptions(mask_name=template)
    if not count:
        with pytest.raises(DataError, match=r"0\.png is its own mask.*--mask-name"):
            TrueMasks(tmp_path, images, options)
        return
    assert [image.file_name for image in TrueMasks(tmp_path, images, options).images] == [names[0]]
    assert "1 file of the images" in capsys.readouterr().out


Masks = Sequence[np.ndarray | tuple[np.ndarray, np.ndarray]]
REORDERED = (np.array([0, 3, 1, 2], np.uint8)[LABELS], COLORS[[0, 2, 3, 1]])
SETS: dict[str, tuple[Masks, MaskRules, Sequence[np.ndarray] | str]] = {  # masks of one command
    "one number for a color": (
        [COLORS[mapped(0, 1, 0, 0)], COLORS[mapped(0, 0, 3, 0)], 0 * LABELS],
        MaskRules(),
        [mapped(0, 2, 0, 0), mapped(0, 0, 1, 0), 0 * LABELS],
    ),
    "palette beside colors": ([COLORS[LABELS], (LABELS, COLORS)], MaskRules(), [mapped(0, 3, 2, 1)] * 2),
    "palette without what the mask lacks": (
        [(LABELS, COLORS), (LABELS % 3, COLORS[:3])],
        MaskRules(),
        [LABELS, LABELS % 3],
    ),
    "gray palette": ([(LABELS, COLORS), (LABELS, GRAY)], MaskRules(), [LABELS] * 2),
    "void of two colors": (
        [(mapped(0, 1, 2, 255), np.vstack([palette()[:255], [color]])) for color in ([9, 8, 7], [1, 2, 3])],
        MaskRules(),
        [mapped(0, 1, 2, 255)] * 2,
    ),
    "white background in one": ([(LABELS, COLORS), (LABELS, WHITE_FIRST)], MaskRules(), [LABELS] * 2),
    "white of one bit beside bytes": (
        [mapped(0, 1, 255, 3), LABELS > 0],
        MaskRules(),
        [mapped(0, 1, 255, 3), mapped(0, *[255] * 3)],
    ),
    "white that no mask of bytes has": ([LABELS, LABELS > 0], MaskRules(), "--ignore 255.*--binary"),
    "white of one bit that is ignored": (
        [LABELS, LABELS > 0],
        MaskRules(ignore=("255",)),
        [LABELS, mapped(0, *[255] * 3)],
    ),
    "one object and void": ([LABELS], MaskRules(1, ignore=("3",)), "--binary.*leave out --ignore"),
    "one object of three classes": (
        [LABELS],
        MaskRules(1, classes=tuple(map(NamedClass, ["background", "a", "b"]))),
        "--binary.*--classes of more than two",
    ),
    "one object everywhere, and void": ([mapped(7, 7, 7, 255)], MaskRules(), [mapped(7, 7, 7, 255)]),
    "no background left": ([LABELS], MaskRules(ignore=("0",)), "--background 3"),
    "classes without the background": (
        [LABELS],
        MaskRules(classes=tuple(map(NamedClass, "abcd"))),
        "'a' would be label 0.*`background`.*--background none",
    ),
    "reordered palette": ([(LABELS, COLORS), REORDERED], MaskRules(), "--palette index.*--palette color"),
    "reordered palette by color": (
        [(LABELS, COLORS), REORDERED],
        MaskRules(palette="color"),
        [mapped(0, 3, 2, 1)] * 2,
    ),
    "reordered palette by index": (
        [(LABELS, COLORS), REORDERED],
        MaskRules(palette="index"),
        [LABELS, mapped(0, 3, 1, 2)],
    ),
    "color at index 0": ([(LABELS, COLORS[[1, 0, 2, 3]])], MaskRules(), "--palette index.*--palette color"),
    "ignored color beside a white background": (
        [(LABELS, WHITE_FIRST)],
        MaskRules(ignore=("#00ff00",)),
        "--background '#ffffff'",
    ),
    "gray beside colors": ([LABELS, COLORS[LABELS]], MaskRules(), r"0\.png is gray with the value 1"),
    "0 and 255 beside labels": ([LABELS, mapped(0, 255, 255, 255)], MaskRules(), "--ignore 255.*--binary"),
    "background among the classes": (
        [COLORS[LABELS]],
        MaskRules(
            classes=tuple(
                map(NamedClass, ["blue", "background", "red", "green"], [0xFF, 0, 0xFF0000, 0xFF00])
            )
        ),
        [mapped(0, 2, 3, 1)],
    ),
    "color without a class": (
        [COLORS[LABELS]],
        MaskRules(classes=(NamedClass("red", 0xFF0000), NamedClass("blue", 0xFF))),
        "has #00ff00, which has no label.*--classes.*--ignore '#00ff00'",
    ),
    "class without a color": (
        [COLORS[LABELS]],
        MaskRules(classes=tuple(map(NamedClass, "abcd"))),
        "`a #rrggbb`",
    ),
    "ids with names": (
        [np.array([0, 301, 300, 7], np.uint16)[LABELS]],
        MaskRules(classes=tuple(map(NamedClass, ["background", "b", "c", "d"]))),
        "--classes cannot name",
    ),
    "color for values": ([LABELS], MaskRules(background="#00ff00"), "is a color"),
    "ignored color that no palette has": (
        [(LABELS, COLORS)],
        MaskRules(ignore=("#e0e0c0",)),
        "no mask has the color #e0e0c0: pass --palette index",
    ),
    "class colors for values": (
        [LABELS],
        MaskRules(classes=(NamedClass("cat", 255), NamedClass("background", 0))),
        "the first class 'cat' has the color #0000ff, not black",
    ),
    "unknown name": ([LABELS], MaskRules(ignore=("sky",)), "'sky' is no label"),
}


@pytest.mark.parametrize("form", SETS)
def test_masks_of_a_command_have_one_set_of_labels_in_any_order(form, tmp_path):
    masks, rules, expected = SETS[form]
    files = [write(tmp_path / f"{n}.png", mask) for n, mask in enumerate(masks)]
    for order in (files, files[::-1]):
        if isinstance(expected, str):
            with pytest.raises(DataError, match=expected):
                MaskReader(order, rules)
            continue
        reader = MaskReader(order, rules)
        for file, labels in zip(files, expected, strict=True):
            np.testing.assert_array_equal(reader.read(file), labels)
            assert reader.labels(file) == set(np.unique(labels).tolist())


OWN = [
    (mapped(0, 1, 2, 255), np.vstack([COLORS[:2], GRAY[2:255], [white]])) for white in ([0] * 3, [9, 8, 7])
]
OBJECTS = np.where(LABELS > 2, 255, LABELS).astype(np.uint8)
Rows = Sequence[tuple[int, str, str, int, str]]
TABLES: dict[str, tuple[Masks, MaskRules, str, Rows, dict[int, str]]] = {  # rows, and colors of labels
    "colors": (
        [COLORS[mapped(0, 1, 0, 0)], COLORS[mapped(0, 3, 3, 0)]],
        MaskRules(),
        "labels of masks: 1 = #0000ff, 2 = #ff0000; 2 files",
        [
            (0, "background", "#000000", 2, "1,200"),
            (1, "#0000ff", "#0000ff", 1, "216"),
            (2, "#ff0000", "#ff0000", 1, "120"),
        ],
        {0: "000000", 1: "0000ff", 2: "ff0000"},
    ),
    "colors of a palette, void without and with one": (
        OWN,
        MaskRules(),
        "masks: values are labels; 2 files",
        [
            (0, "background", "", 2, "1,096"),
            (1, "class 1", "#ff0000", 2, "240"),
            (2, "class 2", "", 2, "192"),
            (255, "void", "", 1, "4"),
            (255, "void", "#090807", 1, "4"),
        ],
        {0: "000000", 1: "ff0000", 2: "020202", 255: "090807"},
    ),
    "palette that ends early": (
        [(LABELS % 3, COLORS[:2])],
        MaskRules(),
        "masks: values are labels; 1 file",
        [
            (0, "background", "", 1, "552"),
            (1, "class 1", "#ff0000", 1, "120"),
            (2, "class 2", "#000000", 1, "96"),
        ],
        {1: "ff0000", 2: "008000"},
    ),
    "negative background": (
        [LABELS.astype(np.int32) - 1],
        MaskRules(background="-1", ignore=("0",)),
        "masks: values are labels; 1 file",
        [
            (0, "background", "", 1, "548"),
            (1, "class 1", "", 1, "96"),
            (2, "class 2", "", 1, "4"),
            (255, "void", "", 1, "120"),
        ],
        {1: "800000"},
    ),
    "gray palette": (
        [(LABELS, GRAY)],
        MaskRules(),
        "masks: values are labels; 1 file",
        [
            (0, "background", "", 1, "548"),
            (1, "class 1", "", 1, "120"),
            (2, "class 2", "", 1, "96"),
            (3, "class 3", "", 1, "4"),
        ],
        {1: "800000", 2: "008000"},  # PASCAL VOC's
    ),
    "ids": (
        [np.array([0, 900, 300, 65535], np.uint16)[LABELS]],
        MaskRules(),
        "labels of masks: 1 = id 300, 2 = id 900; 1 file",
        [
            (0, "background", "id 0", 1, "548"),
            (1, "id 300", "id 300", 1, "96"),
            (2, "id 900", "id 900", 1, "120"),
            (255, "void", "id 65535", 1, "4"),
        ],
        {1: "800000"},
    ),
    "names": (
        [LABELS],
        MaskRules(classes=tuple(map(NamedClass, ["background", "a", "b"])), ignore=("3",)),
        "masks: values are labels; 1 file",
        [
            (0, "background", "", 1, "548"),
            (1, "a", "", 1, "120"),
            (2, "b", "", 1, "96"),
            (255, "void", "", 1, "4"),
        ],
        {1: "800000"},
    ),
    "threshold": (
        [mapped(0, 100, 101, 255)],
        MaskRules(threshold=101),
        "masks: values from 101 on are one object; 1 file",
        [(0, "background", "", 1, "668"), (1, "foreground", "", 1, "100")],
        {1: "800000"},
    ),
}


@pytest.mark.parametrize("form", TABLES)
def test_table_and_palette_show_labels_as_the_files_have_them(form, tmp_path):
    masks, rules, sentence, rows, colors = TABLES[form]
    suffix = "tif" if form == "negative background" else "png"
    reader = MaskReader([write(tmp_path / f"{n}.{suffix}", mask) for n, mask in enumerate(masks)], rules)
    lines = reader.table().splitlines()
    assert (lines[0], lines[1].split()) == (sentence, ["label", "class", "value", "files", "pixels"])
    found = [(line[:5], line[7:31], line[31:41], line[41:48], line[48:]) for line in lines[2:]]
    assert [tuple(map(str.strip, row)) for row in found] == [tuple(map(str, row)) for row in rows]
    assert {label: bytes(reader.palette()[label]).hex() for label in colors} == colors


def test_table_of_images_by_themselves_has_objects_and_what_is_dropped(tmp_path):
    files = [write(tmp_path / f"{n}.png", OBJECTS) for n in range(2)]
    broken = [tmp_path / f"broken{n}.png" for n in range(7)]
    reader = MaskReader([*files, *broken], scope="image")
    lines = reader.table().splitlines()
    assert lines[0] == "masks: labels of each image by itself; 9 files"
    assert [line.split() for line in lines[2:5]] == [
        ["0", "background", "2", "1,096"],
        ["1", "objects", "2", "432"],
        ["255", "void", "2", "8"],
    ]
    assert lines[5:] == [*(f"dropped: the mask {file} is missing" for file in broken[:5]), "dropped: 2 more"]


def test_masks_without_a_label_of_an_earlier_decision_are_dropped(tmp_path):
    red, blue = (write(tmp_path / f"{label}.png", COLORS[mapped(0, label, 0, 0)]) for label in (1, 3))
    again = MaskReader([red, blue], label_set=MaskReader([red]).label_set)
    assert list(again.damaged) == [blue]
    assert "dropped: the mask" in again.table()


@pytest.mark.parametrize("line", ["2 road", "road: 2", "road 2", "2", "road,128,64,128"])
def test_classes_with_numbers_or_columns_are_refused(line, tmp_path):
    (tmp_path / "classes.txt").write_text(f"background\n{line}\n")
    with pytest.raises(DataError, match=f"the line '{line}'; expected `name` or `name #rrggbb`"):
        read_classes(tmp_path / "classes.txt")


@pytest.mark.parametrize(
    ("rules", "labels"), [(MaskRules(), (0, 1, 2, 255)), (MaskRules(background="99"), (255, 1, 2, 0))]
)
def test_value_of_missing_data_is_void_unless_it_is_the_background(rules, labels, tmp_path):
    values = np.array([0 if labels[0] == 0 else 255, 1, 2, 99], np.uint8)[LABELS]
    for value in (99, 0):
        tag = (42113, "s", 0, str(value), True)
        tifffile.imwrite(tmp_path / f"{value}.tif", values, extratags=[tag])
    reader = MaskReader([tmp_path / "99.tif"], rules)
    np.testing.assert_array_equal(reader.read(tmp_path / "99.tif"), mapped(*labels))
    assert ("void: 99, declared as missing data by 1 file" in reader.table()) == (labels[3] == 255)
    if not rules.background:
        with pytest.raises(DataError, match="declares 0 as missing data: pass --background 0 or --ignore 0"):
            MaskReader([tmp_path / "0.tif"])


def test_random_palettes_are_read_by_image(tmp_path):
    other = np.array([[0, 0, 0], [90, 0, 0], [0, 90, 0], [0, 0, 90]])
    files = [write(tmp_path / f"{n}.png", (LABELS, colors)) for n, colors in enumerate((COLORS, other))]
    turned = MaskRules(background="3", ignore=("0",))
    for rules, labels in ((MaskRules(), LABELS), (turned, mapped(255, 1, 2, 0))):
        reader = MaskReader(files, rules, scope="image")
        for file in files:
            np.testing.assert_array_equal(reader.read(file), labels)


def test_classes_of_a_labelmap_are_matched_by_name_and_color(tmp_path):
    masks = tmp_path / "SegmentationClass"
    file = write(masks / "0.png", COLORS[LABELS])
    (tmp_path / "labelmap.txt").write_text(
        "# label:color_rgb\nbackground:0,0,0::\nred:255,0,0::\nblue:0,0,255::\ngreen:0,255,0::\n"
    )
    named = MaskReader([file], MaskRules(classes=find_classes(masks, ())))
    np.testing.assert_array_equal(named.read(file), mapped(0, 1, 3, 2))
    assert named.label_set.names == ("background", "red", "blue", "green")
    for content in ("background\ngreen\nblue\nred\n", "green #00ff00\nblue #0000ff\nred #ff0000\n"):
        (tmp_path / "classes.txt").write_text(content)
        classes = find_classes(masks, read_classes(tmp_path / "classes.txt"))
        reader = MaskReader([file], MaskRules(classes=classes))
        np.testing.assert_array_equal(reader.read(file), mapped(0, 3, 1, 2))
        assert reader.label_set.names == ("background", "green", "blue", "red")
    write(tmp_path / "images/0.png", LABELS)
    write(tmp_path / "SegmentationObject/0.png", COLORS[LABELS] // 2)
    images = list_inputs(open_inputs([tmp_path / "images"]))
    objects = TrueMasks(tmp_path / "SegmentationObject", images, NamedMaskOptions(), scope="image")
    objects.check_files("")
    (tmp_path / "classes.txt").write_text("background\nred\nblue\n")
    with pytest.raises(DataError, match=r"differ in green"):
        find_classes(masks, read_classes(tmp_path / "classes.txt"))
    (tmp_path / "labelmap.txt").write_text("background\nred\nblue\n")
    assert find_classes(masks, read_classes(tmp_path / "classes.txt"))[1].name == "red"
    with pytest.raises(DataError, match=r"not CVAT's.*--classes"):
        find_classes(masks, ())
    assert read_classes(Path("voc"))[1] == ("aeroplane", 0x800000)
