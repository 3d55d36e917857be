"""Every kind of picture file becomes the right pixels or one sentence; folders, tars and lists agree."""

import io
import pickle
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from PIL import Image

from dino_model import images
from dino_model.images import ImageError, open_images

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def saved(picture: Image.Image, suffix: str, **options: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, suffix, **options)
    return stream.getvalue()


def colours(height: int = 8, width: int = 12) -> np.ndarray:
    """A picture in which no two pixels are equal."""
    row, column = np.mgrid[:height, :width].astype(np.uint8)
    return np.stack([20 * row, 20 * column, 255 - 9 * (row + column)], axis=-1)


def assert_picture(picture: np.ndarray, height: int, width: int) -> None:
    assert picture.dtype == np.uint8
    assert picture.shape == (height, width, 3)
    assert picture.flags.writeable, "torch.from_numpy wants arrays it may write to"


# --- one picture


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats_keep_every_pixel(kind: str):
    picture = images.read(saved(Image.fromarray(colours()), kind))
    assert_picture(picture, 8, 12)
    np.testing.assert_array_equal(picture, colours())


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "AVIF"])
def test_lossy_formats_keep_the_picture(kind: str):
    if kind not in images.FORMATS:
        pytest.skip(f"Pillow was built without {kind} here")
    gradient = np.asarray(Image.fromarray(colours()).resize((96, 64), Image.Resampling.BILINEAR))
    picture = images.read(saved(Image.fromarray(gradient), kind, quality=95))
    assert_picture(picture, 64, 96)
    assert np.abs(picture.astype(int) - gradient).mean() < 4


def test_a_path_its_bytes_and_a_stream_give_the_same_picture(tmp_path: Path):
    data = saved(Image.fromarray(colours()), "PNG")
    path = tmp_path / "a.png"
    path.write_bytes(data)
    for source in (path, str(path), data, io.BytesIO(data)):
        np.testing.assert_array_equal(images.read(source), colours())


def test_one_pixel_is_a_picture():
    picture = images.read(saved(Image.new("RGB", (1, 1), RED), "PNG"))
    assert picture.tolist() == [[[255, 0, 0]]]


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_grey_bilevel_and_palette_become_rgb(mode: str):
    drawn = Image.new("RGB", (4, 2), "white")
    drawn.paste("black", (0, 0, 2, 2))
    picture = images.read(saved(drawn.convert(mode), "PNG"))
    assert_picture(picture, 2, 4)
    assert picture[:, :2].max() == 0
    assert picture[:, 2:].min() == 255


def test_colours_of_a_palette_survive():
    drawn = Image.new("P", (3, 1))
    drawn.putpalette([*RED, *GREEN, *BLUE])
    drawn.putdata([2, 0, 1])
    assert images.read(saved(drawn, "PNG")).tolist() == [[[*BLUE], [*RED], [*GREEN]]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("top", [4095, 65535])
def test_sixteen_bits_are_stretched_from_minimum_to_maximum(kind: str, top: int):
    values = np.linspace(0, top, 512).round().astype(np.uint16).reshape(16, 32)
    picture = images.read(saved(Image.fromarray(values), kind))
    assert_picture(picture, 16, 32)
    assert (picture[..., 0] == picture[..., 1]).all()
    np.testing.assert_allclose(picture[..., 0], values / top * 255, atol=0.51)


def test_big_endian_sixteen_bits_are_read_in_their_order():
    values = np.array([[0, 256], [512, 1024]], dtype=">u2")
    picture = images.read(b"P5 2 2 65535\n" + values.tobytes())
    assert picture[..., 0].tolist() == [[0, 64], [128, 255]]


def test_floats_are_stretched_and_what_is_no_number_is_black():
    values = np.array([[-1.0, 0.0, 1.0], [np.nan, np.inf, -np.inf]], dtype=np.float32)
    picture = images.read(saved(Image.fromarray(values), "TIFF"))
    assert picture[..., 0].tolist() == [[0, 128, 255], [0, 255, 0]]


@pytest.mark.parametrize(("value", "grey"), [(0, 0), (65535, 255), (32768, 128)])
def test_sixteen_bits_of_one_value_keep_their_brightness(value: int, grey: int):
    picture = images.read(saved(Image.fromarray(np.full((2, 2), value, np.uint16)), "PNG"))
    assert (picture == grey).all()


@settings(deadline=None)
@given(st_np.arrays(np.float64, st_np.array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e9, 1e9)))
def test_stretching_keeps_the_order_of_values(values: np.ndarray):
    stretched = images._stretch(values)
    order = np.argsort(values, axis=None)
    assert (np.diff(stretched.ravel()[order].astype(int)) >= 0).all()
    if values.min() < values.max():
        assert stretched.min() == 0
        assert stretched.max() == 255


def test_inks_of_a_cmyk_jpeg_are_not_taken_for_their_negative():
    red = saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    assert b"Adobe" in red
    assert images.read(red)[8, 8].tolist() == pytest.approx(RED, abs=4)


def test_a_cmyk_jpeg_without_adobes_marker_holds_its_inks_as_they_are():
    data = saved(Image.new("CMYK", (16, 16), (0, 255, 255, 255)), "JPEG", quality=95)  # stored: 255, 0, 0, 0
    marker = data.index(b"\xff\xee")
    length = int.from_bytes(data[marker + 2 : marker + 4], "big")
    cyan = data[:marker] + data[marker + 2 + length :]
    assert images.read(cyan)[8, 8].tolist() == pytest.approx((0, 255, 255), abs=4)


def test_cmyk_tiff_becomes_rgb():
    data = saved(Image.new("CMYK", (4, 4), (255, 0, 0, 0)), "TIFF")
    assert images.read(data)[0, 0].tolist() == [0, 255, 255]


def test_transparency_lies_on_white():
    drawn = Image.new("RGBA", (3, 1))
    drawn.putdata([(*RED, 255), (*RED, 0), (0, 0, 0, 51)])
    for kind in ("PNG", "TIFF"):
        assert images.read(saved(drawn, kind)).tolist() == [[[*RED], [*WHITE], [204, 204, 204]]]


def test_transparent_colours_of_a_palette_lie_on_white():
    drawn = Image.new("P", (2, 1))
    drawn.putpalette([*RED, *GREEN])
    drawn.putdata([0, 1])
    assert images.read(saved(drawn, "PNG", transparency=1)).tolist() == [[[*RED], [*WHITE]]]
    assert images.read(saved(drawn, "GIF", transparency=1)).tolist() == [[[*RED], [*WHITE]]]


def test_one_transparent_colour_without_a_palette_lies_on_white():
    grey = Image.fromarray(np.array([[0, 200]], np.uint8))
    assert images.read(saved(grey, "PNG", transparency=0)).tolist() == [[[*WHITE], [200, 200, 200]]]
    both = Image.fromarray(np.array([[RED, BLUE]], np.uint8))
    assert images.read(saved(both, "PNG", transparency=RED)).tolist() == [[[*WHITE], [*BLUE]]]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(kind: str, orientation: int):
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:, :16] = RED
    upright[:8, :16] = WHITE  # white above red on the left: no symmetry
    turn = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright.transpose(1, 0, 2)[::-1, ::-1],
        8: np.rot90(upright, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turn[orientation]))
    picture = images.read(saved(stored, kind, exif=exif, quality=95, lossless=True))
    assert_picture(picture, 16, 32)
    assert np.abs(picture[2:-2, 2:-2].astype(int) - upright[2:-2, 2:-2]).mean() < 6


def test_exif_orientation_turns_sixteen_bits_too():
    exif = Image.Exif()
    exif[0x0112] = 6
    values = np.array([[0, 100], [200, 65535]], np.uint16)
    picture = images.read(saved(Image.fromarray(values), "PNG", exif=exif))
    assert picture[0, 1].tolist() == [0, 0, 0]
    assert picture[1, 0].tolist() == [255, 255, 255]


def test_damaged_exif_leaves_the_picture_as_it_is():
    data = saved(Image.new("RGB", (8, 4), RED), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff garbage")
    assert_picture(images.read(data), 4, 8)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_stands_for_an_animation(kind: str):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, GREEN, BLUE)]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert (images.read(data) == RED).all()


# --- what is no picture


def png_header(width: int, height: int) -> bytes:
    """A PNG that says it is this large and holds nothing."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", b""),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("side", [12_000, 30_000, 2_000_000])
def test_a_pixel_bomb_is_refused_from_its_header(side: int):
    with pytest.raises(ImageError, match=r"^bomb\.png is too large: at most 100,000,000 pixels are read$"):
        images.read(png_header(side, side), name="bomb.png")


def test_the_cap_counts_pixels():
    data = saved(Image.new("RGB", (20, 10)), "PNG")
    assert_picture(images.read(data, max_pixels=200), 10, 20)
    with pytest.raises(ImageError, match="at most 199 pixels"):
        images.read(data, max_pixels=199)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_a_cut_file_is_named_and_never_half_a_picture(kind: str, share: float, tmp_path: Path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = saved(Image.fromarray(noise), kind)
    path = tmp_path / "cut.bin"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ImageError, match=r"^cut\.bin is (damaged or cut short|not a picture)") as raised:
        images.read(path)
    assert "\n" not in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


@settings(deadline=None)
@given(st.data())
def test_damage_anywhere_is_a_picture_or_one_sentence(data: st.DataObject):
    kind = data.draw(st.sampled_from(["JPEG", "PNG", "GIF", "TIFF", "BMP", "WEBP"]))
    file = bytearray(saved(Image.fromarray(colours()), kind))
    for place in data.draw(st.lists(st.integers(0, len(file) - 1), min_size=1, max_size=8)):
        file[place] = data.draw(st.integers(0, 255))
    try:
        picture = images.read(bytes(file), max_pixels=1_000_000)
    except ImageError as error:
        sentence = str(error)
    else:
        assert_picture(picture, *picture.shape[:2])
        sentence = "the picture is there"
    assert sentence.startswith("the picture is ")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"^note\.jpg is empty \(0 bytes\)$"),
        (
            b"this is a letter, not a photograph\n",
            r"^note\.jpg is not a picture of a known format \(JPEG, PNG",
        ),
        (b"%PDF-1.7\n" + bytes(500), r"^note\.jpg is not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", r"^note\.jpg is not a picture"),
    ],
)
def test_a_file_that_is_no_picture_is_told_apart(content: bytes, sentence: str, tmp_path: Path):
    (tmp_path / "note.jpg").write_bytes(content)
    with pytest.raises(ImageError, match=sentence):
        images.read(tmp_path / "note.jpg")


def test_a_missing_file_and_a_folder_are_one_sentence(tmp_path: Path):
    with pytest.raises(ImageError, match=r"^gone\.jpg cannot be opened: No such file"):
        images.read(tmp_path / "gone.jpg")
    with pytest.raises(ImageError, match="cannot be opened"):
        images.read(tmp_path)


# --- many pictures


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three cats, two dogs, and things that are no pictures."""
    folder = tmp_path / "pets"
    for number, name in enumerate(["cat/b.png", "cat/a.PNG", "cat/c.jpg", "dog/a.png", "dog/b.webp"]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4 + number, 4), (40 * number, 0, 0)).save(path)
    (folder / "readme.txt").write_text("cats and dogs")
    (folder / "dog" / "._a.png").write_bytes(b"what macOS leaves behind")
    return folder


PETS = ("cat/a.PNG", "cat/b.png", "cat/c.jpg", "dog/a.png", "dog/b.webp")


def pack(folder: Path, tar: Path, top: str, mode: str = "w") -> Path:
    with tarfile.open(tar, mode) as archive:
        archive.add(folder, arcname=top)
    return tar


def test_a_folder_is_searched_sorted_and_labelled_by_parent_folder(pets: Path):
    found = open_images(pets)
    assert found.names == PETS
    assert found.classes == ("cat", "dog")
    assert found.labels == (0, 0, 0, 1, 1)
    assert found.ignored == 2
    assert len(found) == 5
    assert found.read(0).shape == (4, 5, 3)


def test_a_link_back_up_is_not_followed(pets: Path):
    expected = open_images(pets).names
    (pets / "cat" / "up").symlink_to(pets, target_is_directory=True)
    assert open_images(pets).names == expected
    aside = pets.parent / "aside"
    aside.mkdir()
    Image.new("RGB", (3, 3)).save(aside / "z.png")
    (pets / "linked").symlink_to(aside, target_is_directory=True)
    assert open_images(pets).names == (*expected, "linked/z.png")


def test_hidden_folders_are_no_classes(pets: Path):
    expected = open_images(pets)
    (pets / ".cache").mkdir()
    Image.new("RGB", (3, 3)).save(pets / ".cache" / "z.png")
    assert open_images(pets).classes == expected.classes
    tar = pets.parent / "hidden.tar"
    with tarfile.open(tar, "w") as archive:
        archive.add(pets, arcname="pets")
    assert open_images(tar).classes == expected.classes


def test_folders_of_one_name_are_labelled_by_those_above(tmp_path: Path):
    """The layout of Tiny ImageNet."""
    for name in ("n01", "n02"):
        (tmp_path / name / "images").mkdir(parents=True)
        Image.new("RGB", (3, 3)).save(tmp_path / name / "images" / f"{name}_0.JPEG")
        (tmp_path / name / f"{name}_boxes.txt").write_text("0 0 1 1")
    found = open_images(tmp_path)
    assert found.classes == ("n01", "n02")
    assert found.labels == (0, 1)
    assert str(found) == f"2 pictures of {tmp_path.name} in 2 classes; 2 other files ignored"


def test_a_flat_folder_has_no_labels(pets: Path):
    found = open_images(pets / "cat")
    assert found.names == ("a.PNG", "b.png", "c.jpg")
    assert found.labels is None
    assert found.classes == ()


def test_deeper_folders_are_labelled_by_the_last_one(pets: Path):
    found = open_images(pets.parent)
    assert found.names[0] == "pets/cat/a.PNG"
    assert found.classes == ("cat", "dog")


@pytest.mark.parametrize("top", ["pets", "./pets", "."])
def test_a_tar_is_its_folder(pets: Path, top: str):
    tarred = open_images(pack(pets, pets.parent / "pets.tar", top))
    folder = open_images(pets)
    assert (tarred.names, tarred.labels, tarred.classes) == (folder.names, folder.labels, folder.classes)
    assert tarred.ignored == folder.ignored
    for index in range(len(folder)):
        assert tarred.read_bytes(index) == folder.read_bytes(index)
        np.testing.assert_array_equal(tarred.read(index), folder.read(index))


def test_a_list_is_relative_to_its_own_folder(pets: Path):
    text = "# two of them\ndog/a.png\n\n" + f"{pets / 'cat' / 'b.png'}\n"
    (pets / "some.txt").write_text(text)
    found = open_images(pets / "some.txt")
    assert found.classes == ("cat", "dog")
    assert sorted(found.labels or ()) == [0, 1]
    folder = open_images(pets)
    assert {found.read_bytes(0), found.read_bytes(1)} == {folder.read_bytes(1), folder.read_bytes(3)}


def test_excluded_names_are_left_out_of_folder_and_tar_alike(pets: Path):
    unwanted = pets.parent / "unwanted.txt"
    unwanted.write_text("cat/b.png\ndog/b.webp\n")
    for path in (pets, pack(pets, pets.parent / "pets.tar", "pets")):
        found = open_images(path, exclude=unwanted)
        assert found.names == ("cat/a.PNG", "cat/c.jpg", "dog/a.png")
        assert found.labels == (0, 0, 1)
        assert found.read(2).shape == (4, 7, 3)


def test_a_subset_keeps_the_meaning_of_labels(pets: Path):
    for path in (pets, pack(pets, pets.parent / "pets.tar", "pets")):
        some = open_images(path).subset([4, 0])
        assert some.names == ("dog/b.webp", "cat/a.PNG")
        assert some.labels == (1, 0)
        assert some.classes == ("cat", "dog")
        assert some.read(0).shape == (4, 8, 3)


def test_images_survive_pickling(pets: Path):
    for path in (pets, pack(pets, pets.parent / "pets.tar", "pets")):
        found = open_images(path)
        copy = pickle.loads(pickle.dumps(found))
        assert vars(copy) == vars(found)
        np.testing.assert_array_equal(copy.read(3), found.read(3))


def test_a_broken_picture_is_found_when_it_is_read_and_named_with_its_folder(pets: Path):
    (pets / "cat" / "c.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    for path in (pets, pack(pets, pets.parent / "pets.tar", "pets")):
        found = open_images(path)
        with pytest.raises(ImageError, match=r"^cat/c\.jpg is "):
            found.read(2)


def test_the_fingerprint_changes_with_names_order_and_content(pets: Path):
    for path in (pets, pack(pets, pets.parent / "pets.tar", "pets")):
        found = open_images(path)
        assert found.fingerprint() == open_images(path).fingerprint()
        assert found.fingerprint() != found.subset([0, 1, 2]).fingerprint()
        assert found.subset([1, 0]).fingerprint() != found.subset([0, 1]).fingerprint()
    before = open_images(pets).fingerprint()
    Image.new("RGB", (9, 9), GREEN).save(pets / "cat" / "b.png")
    assert open_images(pets).fingerprint() != before


@pytest.mark.parametrize(("mode", "kind"), [("w:gz", "gzip"), ("w:bz2", "bzip2"), ("w:xz", "xz")])
def test_a_compressed_tar_is_one_sentence(pets: Path, mode: str, kind: str):
    with pytest.raises(ImageError, match=rf"is compressed \({kind}\): unpack it"):
        open_images(pack(pets, pets.parent / "pets.tar", "pets", mode))


def test_a_cut_tar_is_one_sentence(pets: Path):
    tar = pack(pets, pets.parent / "pets.tar", "pets")
    whole = tar.read_bytes()
    found = open_images(tar)
    tar.write_bytes(whole[: found.extents[3][0] + 10])  # type: ignore[index]
    with pytest.raises(ImageError, match=r"dog/.* is cut short: pets\.tar ends within it"):
        found.read(3)
    with pytest.raises(ImageError, match="is no whole, uncompressed tar"):
        open_images(tar)


def test_what_is_no_collection_is_one_sentence(pets: Path):
    with pytest.raises(ImageError, match=r"nowhere cannot be opened: No such file"):
        open_images(pets / "nowhere")
    with pytest.raises(ImageError, match="is no folder, no tar and no text"):
        open_images(pets / "cat" / "b.png")
    empty = pets / "empty"
    empty.mkdir()
    with pytest.raises(ImageError, match=r"no pictures in .*empty: found 0 files"):
        open_images(empty)
    (empty / "a.txt").touch()
    (empty / "b.mp4").touch()
    with pytest.raises(ImageError, match=r"found 2 files, none of them \.jpg"):
        open_images(empty)


def test_a_list_or_exclusion_of_unknown_names_is_one_sentence(pets: Path):
    names = pets / "names.txt"
    names.write_text("cat/b.png\ncat/ghost.png\n")
    with pytest.raises(
        ImageError, match=r"lists 2 files, and 1 of them do not exist, the first is cat/ghost\.png"
    ):
        open_images(names)
    with pytest.raises(ImageError, match=r"names 1 pictures that are not there, the first is cat/ghost\.png"):
        open_images(pets, exclude=names)
    names.write_text("\n".join(PETS))
    with pytest.raises(ImageError, match="leaves no picture: it names all 5"):
        open_images(pets, exclude=names)


def test_caltech_has_its_published_size(data_root: Path):
    caltech = open_images(data_root / "caltech101_112px.tar")
    assert len(caltech) == 9144
    assert len(caltech.classes) == 102
    assert caltech.names[0] == "BACKGROUND_Google/image_0001.jpg"
    assert min(caltech.read(5000).shape[:2]) == 112
