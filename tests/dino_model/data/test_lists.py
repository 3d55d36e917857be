"""Lists of images as people write them, and names as they are on disks."""

import io
import json
import os
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torch import nn

from dino_model.data.classes import LabelOptions
from dino_model.data.collections import Images, open_images
from dino_model.data.folders import walk
from dino_model.data.framing import Framing
from dino_model.data.images import ImageError
from dino_model.data.tables import read_names
from dino_model.inference.embedding import embed, read_features
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import LoadedModel
from dino_model.runtime.files import printable, write_json
from dino_model.runtime.outputs import run_command

EXTRACTOR = FeatureExtractor(
    LoadedModel(
        "mean", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (0.0,) * 3, (1.0,) * 3, "", None
    ),
    Framing(4, (0.0,) * 3, (1.0,) * 3),
    device="cpu",
)
LATIN = os.fsdecode(b"caf\xe9.jpg")


def picture(value: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (value, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images with names of all kinds."""
    names = (
        "a/1.jpg",
        "b/2.jpg",
        "b/with space.jpg",
        ".hidden/3.jpg",
        "b/x,y.jpg",
        "#4.jpg",
        "noend",
        "n.txt",
    )
    for name in (*names, "sub/.private/5.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(picture())
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("./b/2.jpg\n./a/1.jpg\n", "b/2.jpg a/1.jpg"),
        ("b/2.jpg\r\n\r\na/1.jpg\r\n", "b/2.jpg a/1.jpg"),
        ("b\\2.jpg\na\\1.jpg", "b/2.jpg a/1.jpg"),
        ("# first\nb/2.jpg\n#4.jpg", "b/2.jpg #4.jpg"),
        ("HERE/.hidden/3.jpg\nHERE/sub/.private/5.jpg\n", ".hidden/3.jpg sub/.private/5.jpg"),
        (".hidden/3.jpg\nnoend\n", ".hidden/3.jpg noend"),
        ("a/../b/2.jpg\n  a/1.jpg  \n", "b/2.jpg a/1.jpg"),
        ("'b/2.jpg'\n\"a/1.jpg\"\n", "b/2.jpg a/1.jpg"),
        ("filename\nb/2.jpg\na/1.jpg\n", "b/2.jpg a/1.jpg"),
        ("\ufeffb/2.jpg\n\ufeffa/1.jpg\n", "b/2.jpg a/1.jpg"),
        ("path,width,height\nb/2.jpg,5,4\na/1.jpg,5,4\n", "b/2.jpg a/1.jpg"),
        (".\\b\\2.jpg\r\na\\1.jpg\r\n", "b/2.jpg a/1.jpg"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_list_in_any_common_form_keeps_its_order(photos: Path, text: str, names: str, encoding: str):
    (photos / "list.txt").write_text(text.replace("HERE", str(photos)), encoding=encoding, newline="")
    assert open_images(photos / "list.txt").names == tuple(names.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b/2.jpg 1\na/1.jpg 0\n", {"b/2.jpg": "1", "a/1.jpg": "0"}),
        ("b/with space.jpg\tcat\na/1.jpg\tdog\n", {"b/with space.jpg": "cat", "a/1.jpg": "dog"}),
        ("b/with space.jpg cat\nb/x,y.jpg dog\n", {"b/with space.jpg": "cat", "b/x,y.jpg": "dog"}),
        ("b/x,y.jpg\na/1.jpg\n", {"b/x,y.jpg": "b", "a/1.jpg": "a"}),
        ('image,label\n"b/x,y.jpg","a, b"\na/1.jpg,dog\n', {"b/x,y.jpg": "a, b", "a/1.jpg": "dog"}),
    ],
)
def test_list_with_classes_labels_its_images(photos: Path, text: str, expected: dict[str, str]):
    (photos / "list.csv").write_text(text)
    images = open_images(photos / "list.csv")
    found = {name: "|".join(images.label_names(number)) for number, name in enumerate(images.names)}
    assert (list(found), found) == (list(expected), expected)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize(
    ("text", "names", "note"),
    [
        ("dog\nbear\n", "dog bear", ""),
        ("./dog/\r\n\r\nJPEGImages/480p/bear\r\n", "dog bear", ""),
        ("dog 1\nbear -1\n", "dog bear", ""),
        ("name,split\nbear,val\n", "bear", ""),
        ("# all\nbear\ndog\n./bear\n", "bear dog", "1 line with a name that is listed before"),
        ("my dog\n'bear'\n./gone\n", "my dog|bear|gone", ""),
    ],
)
def test_names_of_a_list_in_any_common_form(tmp_path: Path, text: str, names: str, note: str, encoding: str):
    (tmp_path / "val.txt").write_text(text, encoding=encoding)
    found, found_note = read_names(tmp_path / "val.txt", ["bear", "dog", "my dog"])
    assert found == tuple(names.split("|" if "|" in names else " "))
    assert found_note.startswith(note)
    assert bool(found_note) == bool(note)


def test_names_that_are_ambiguous_or_missing_raise(tmp_path: Path):
    for text, message in (("a\n", r"names a, which can be x/a or y/a"), ("# none\n", "val.txt is empty")):
        (tmp_path / "val.txt").write_text(text)
        with pytest.raises(ImageError, match=message):
            read_names(tmp_path / "val.txt", ["x/a", "y/a"])


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_of_a_list_and_a_table_may_be_in_another_form_than_the_names(tmp_path: Path, form: Any):
    names = [
        f"{folder}/{unicodedata.normalize(kind, 'é')}.png" for folder, kind in (("a", "NFC"), ("b", "NFD"))
    ]
    for name in names:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(picture())
    rows = [f"{folder}/{unicodedata.normalize(form, 'é')}.png" for folder in "ab"]
    (tmp_path / "data" / "list.txt").write_text("\n".join(rows))
    assert open_images(tmp_path / "data" / "list.txt").names == tuple(names)
    kinds = ("NFC", "NFD")
    table = [f"{row},{unicodedata.normalize(kind, 'ü')}" for row, kind in zip(rows, kinds, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(table))
    assert open_images(tmp_path / "data", options=LabelOptions(labels=tmp_path / "t.csv")).classes == ("ü",)


def test_list_is_relative_to_working_folder_if_its_own_has_none(photos: Path, tmp_path_factory, monkeypatch):
    (tmp_path_factory.mktemp("lists") / "l.txt").write_text("b/2.jpg\na/1.jpg\n")
    monkeypatch.chdir(photos)
    images = open_images(tmp_path_factory.getbasetemp() / "lists0" / "l.txt")
    assert (images.names, len(images.read(1))) == (("b/2.jpg", "a/1.jpg"), 4)


def test_images_of_several_lists_are_in_the_order_of_the_lists_names(photos: Path):
    for name, text in (("z.txt", "a/1.jpg\n"), ("k.txt", "b/2.jpg\na/1.jpg\n")):
        (photos / name).write_text(text)
    images = open_images([photos / "z.txt", photos / "k.txt"])
    assert images.names == ("k/b/2.jpg", "k/a/1.jpg", "z/a/1.jpg")


def test_list_of_find_names_folders_other_files_and_repetitions(photos: Path):
    (photos / "list.txt").write_text(".\n./a\n./a/1.jpg\n./list.txt\n./n.txt\n./b/2.jpg\na/1.jpg\n")
    images = open_images(photos / "list.txt")
    assert images.names == ("a/1.jpg", "b/2.jpg")
    assert "4 lines without an image, the first is" in str(images)
    assert "1 line with an image that is listed before, which counts once" in str(images)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a/1.jpg\nghost.jpg\nb/ghost.jpg\n",
            r"lists 3 files, and 2 of them do not exist, the first is ghost\.jpg",
        ),
        ("https://example.org/1.jpg\n", "lists https://example.org/1.jpg: images are read from disks"),
        ("n.json", r"n\.json is JSON: expected a text or CSV"),
        ("n.txt\n", r"lists no image: 1 line without an image, the first is n\.txt"),
        ("", "lists no image: it is empty"),
        ("file name\n", "lists no image: it is empty"),
    ],
)
def test_list_without_its_images_raises(photos: Path, text: str, message: str):
    name = text if text == "n.json" else "list.txt"
    (photos / name).write_text(text)
    with pytest.raises(ImageError, match=message):
        open_images(photos / name)


@pytest.mark.parametrize("name", [".hidden/3.jpg", "sub/.private", ".hidden/*.jpg"])
def test_hidden_path_that_is_named_is_opened(photos: Path, name: str):
    assert len(open_images(photos / name)) == 1
    assert len(open_images([photos / name, photos / "a/1.jpg"])) == 2


@pytest.mark.parametrize(
    "folder",
    [
        "@eaDir",
        "a/@eaDir/1.jpg",
        "__MACOSX",
        ".ipynb_checkpoints",
        "a/.thumbnails",
        "$RECYCLE.BIN",
        "#recycle",
    ],
)
def test_system_folder_is_left_out_and_named(tmp_path: Path, folder: str):
    for name in (f"{folder}/t.jpg", "a/1.jpg", "b/._2.jpg", "b/Thumbs.db", "b/2.jpg"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"")
    images = open_images(tmp_path / "data")
    assert (images.names, images.ignored) == (("a/1.jpg", "b/2.jpg"), 2)
    named = folder.removesuffix("/1.jpg")
    assert images.remarks() == ["2 other files ignored", f"1 folder left out: {named}"]


def test_unreadable_folder_is_named_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a/1.jpg", "b/2.jpg", "b/c/3.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    scan = os.scandir

    def refuse(path: str):
        if str(path).endswith(("b", "c")):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert walk(tmp_path).unreadable == ["b (Permission denied)"]
    assert "1 folder cannot be read: b (Permission denied)" in str(open_images(tmp_path))
    with pytest.raises(
        ImageError, match=r"no images in .*b: 1 folder cannot be read: \. \(Permission denied\)"
    ):
        open_images(tmp_path / "b")


@pytest.fixture
def odd(tmp_path: Path) -> Images:
    """An image whose name is Latin-1, a dangling link, and one in order."""
    folder = tmp_path / "data"
    for name in ("a/1.jpg", f"b/{LATIN}"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(picture())
    (folder / "b" / "gone.jpg").symlink_to(folder / ".git" / "annex" / "gone.jpg")
    (folder / "mounted").symlink_to(folder / "nowhere", target_is_directory=True)
    return open_images(folder)


def test_dangling_link_is_an_unreadable_image(odd: Images, tmp_path: Path):
    assert [printable(name) for name in odd.names] == ["a/1.jpg", "b/caf\\xe9.jpg", "b/gone.jpg"]
    assert odd.remarks() == [
        "1 other file ignored",
        "1 folder cannot be read: mounted (a link to a missing folder)",
    ]
    assert len({odd.fingerprint(), odd.inventory(), *odd.places()}) == 5
    with pytest.raises(ImageError, match=r"b/gone\.jpg cannot be opened: No such file"):
        odd.read(2)
    (tmp_path / "list.txt").write_text("data/b/gone.jpg\ndata/a/1.jpg\n")
    assert len(open_images(tmp_path / "list.txt")) == 2


def test_name_that_is_not_utf8_is_hashed_listed_and_written_escaped(odd: Images, tmp_path: Path, capfd):
    assert odd.read(1).shape == (4, 5, 3)
    (tmp_path / "list.txt").write_bytes(os.fsencode(f"data/{odd.names[1]}\n"))
    assert open_images(tmp_path / "list.txt").names == (f"data/{odd.names[1]}",)
    (tmp_path / "labels.csv").write_text("caf\\xe9.jpg,cat\n1.jpg,dog\n")
    assert open_images(odd.root, options=LabelOptions(labels=tmp_path / "labels.csv")).classes == (
        "cat",
        "dog",
    )
    write_json(tmp_path / "x.json", {odd.names[1]: [odd.names[1]]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"b/caf\\xe9.jpg": ["b/caf\\xe9.jpg"]}
    for suffix in (".csv", ".npz", ".safetensors", *[".parquet"] * bool(find_spec("pyarrow"))):
        embed(odd, EXTRACTOR, tmp_path / f"f{suffix}")
        assert read_features(tmp_path / f"f{suffix}").names == ["a/1.jpg", "b/caf\\xe9.jpg"]
    run_command(lambda: print(odd.names[1]))
    assert capfd.readouterr().out.endswith("\nb/caf\\xe9.jpg\n")
