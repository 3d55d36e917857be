"""Lists of images and of names as people write them, and names as they are on disks."""

import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from dino_model.data.classes import LabelOptions
from dino_model.data.collection import Images, open_images
from dino_model.data.framing import Framing
from dino_model.data.images import ImageError
from dino_model.data.tables import NameIndex, read_names
from dino_model.inference.embedding import embed, read_features
from dino_model.inference.features import FeatureExtractor
from dino_model.models.load import LoadedModel
from dino_model.runtime.files import printable, write_json
from dino_model.runtime.outputs import run_command
from tests.dino_model.data.samples import make_folder

LATIN = os.fsdecode(b"caf\xe9.jpg")
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images with names of all kinds."""
    make_folder(tmp_path, "a/1.jpg b/2.jpg .hidden/3.jpg b/x,y.jpg #4.jpg n.txt sub/.private/5.jpg")
    return make_folder(tmp_path, {"noend": 1})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("b/2.jpg\r\n\r\na/1.jpg\r\n", "b/2.jpg a/1.jpg"),
        (".\\b\\2.jpg\r\na\\1.jpg", "b/2.jpg a/1.jpg"),
        ("# first\nb/2.jpg\n#4.jpg", "b/2.jpg #4.jpg"),
        (".hidden/3.jpg\nHERE/noend\n", ".hidden/3.jpg noend"),
        ("'b/2.jpg'\n\"a/1.jpg\"\n", "b/2.jpg a/1.jpg"),
        ('path,width\n"b/x,y.jpg",5\na/1.jpg,5\n', "b/x,y.jpg a/1.jpg"),
        ("b/2.jpg 1 2 3\na/1.jpg 0\n", "b/2.jpg a/1.jpg"),
    ],
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_list_in_any_common_form_keeps_its_order(photos: Path, text: str, names: str, encoding: str):
    (photos / "list.txt").write_text(text.replace("HERE", str(photos)), encoding=encoding, newline="")
    options = LabelOptions(class_column="none")
    assert open_images(photos / "list.txt", options=options).names == tuple(names.split())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("text", "names", "repeated"),
    [
        ("./dog/\r\n\r\nJPEGImages/480p/bear\r\n", "dog bear", ""),
        ("name,split\nbear,val\n", "bear", ""),
        ("# all\nbear\ndog\n./bear\n", "bear dog", "1"),
        ("my dog\n'bear'\n./gone\n", "my dog|bear|gone", ""),
    ],
)
def test_names_of_a_list_in_any_common_form(tmp_path: Path, text, names, repeated, encoding):
    (tmp_path / "val.txt").write_text(text, encoding=encoding)
    found, note = read_names(tmp_path / "val.txt", ["bear", "dog", "my dog"])
    assert (found, note[:1]) == (tuple(names.split("|" if "|" in names else " ")), repeated)


def test_names_that_are_ambiguous_or_missing_raise(tmp_path: Path):
    for text, message in (("a\n", r"names a, which can be x/a or y/a"), ("# none\n", "val.txt is empty")):
        (tmp_path / "val.txt").write_text(text)
        with pytest.raises(ImageError, match=message):
            read_names(tmp_path / "val.txt", ["x/a", "y/a"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x/a/b.png", "a/b.png"),  # the longest end
        ("a/b", "a/b.png a/b.jpg"),
        ("b", "b.png a/b.png a/b.jpg"),
        (".\\a\\b.jpg", "a/b.jpg"),
        ("b.jpg", "a/b.jpg"),
        ("c/b.gif", ""),
        ("'a/b.jpg'", "a/b.jpg"),
        ("'", ""),
    ],
)
def test_paths_mean_the_names_with_the_longest_common_end(text: str, found: str):
    assert NameIndex(["b.png", "a/b.png", "a/b.jpg"]).find(text) == found.split()


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_of_a_list_and_a_table_may_be_in_another_form_than_the_names(tmp_path: Path, form: Any):
    kinds: tuple[Any, Any] = ("NFC", "NFD")
    names = [
        f"{folder}/{unicodedata.normalize(kind, 'é')}.png" for folder, kind in zip("ab", kinds, strict=True)
    ]
    make_folder(tmp_path / "data", " ".join(names))
    rows = [f"{folder}/{unicodedata.normalize(form, 'é')}.png" for folder in "ab"]
    (tmp_path / "data" / "list.txt").write_text("\n".join(rows))
    assert open_images(tmp_path / "data" / "list.txt").names == tuple(names)
    table = [f"{row},{unicodedata.normalize(kind, 'ü')}" for row, kind in zip(rows, kinds, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(table))
    assert open_images(tmp_path / "data", options=LabelOptions(labels=tmp_path / "t.csv")).classes == ("ü",)


def test_list_is_relative_to_working_folder_if_its_own_has_none(photos: Path, tmp_path_factory, monkeypatch):
    listed = tmp_path_factory.mktemp("lists") / "l.txt"
    listed.write_text("b/2.jpg\na/1.jpg\n")
    monkeypatch.chdir(photos)
    images = open_images(listed)
    assert (images.names, images.read_bytes(1)) == (("b/2.jpg", "a/1.jpg"), b"a/1.jpg")


def test_list_of_files_in_and_outside_of_its_folder_keeps_the_names_inside(photos: Path, tmp_path_factory):
    other = make_folder(tmp_path_factory.mktemp("other"), "c/1.jpg c/2.jpg")
    for text, names, root in (
        (f"{other}/c/1.jpg\na/1.jpg\n", (f"{other}/c/1.jpg", "a/1.jpg"), photos),
        (f"{other}/c/1.jpg\n{other}/c/2.jpg\n", ("1.jpg", "2.jpg"), other / "c"),
    ):
        (photos / "list.txt").write_text(text)
        images = open_images(photos / "list.txt")
        assert (images.names, images.root) == (names, root)


def test_list_of_find_counts_folders_other_files_and_repetitions(photos: Path):
    (photos / "list.txt").write_text(".\n./a\n./a/1.jpg\n./list.txt\n./n.txt\n./b/2.jpg\na/1.jpg\n")
    images = open_images(photos / "list.txt")
    assert images.names == ("a/1.jpg", "b/2.jpg")
    assert sorted(note[:6] for note in images.notes) == ["1 line", "4 line"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a/1.jpg\nghost.jpg\nb/ghost.jpg\n", r"3 files, and 2 of them do not exist, .* ghost\.jpg"),
        ("https://example.org/1.jpg\n", "https://example.org/1.jpg: images are read from disks"),
        ("n.json", r"n\.json is JSON"),
        ("n.txt\n", r"lists no image: 1 line without an image: n\.txt"),
        ("", "lists no image: it is empty"),
        ('image,label\n"a/1.jpg,cat\nb/2.jpg,dog\n', "a quote without its end"),
    ],
)
def test_list_without_its_images_raises(photos: Path, text: str, message: str):
    name = text if text == "n.json" else "list.txt"
    (photos / name).write_text(text)
    with pytest.raises(ImageError, match=message):
        open_images(photos / name)


@pytest.fixture
def odd(tmp_path: Path) -> Images:
    """An image whose name is Latin-1, a dangling link, and one in order."""
    folder = make_folder(tmp_path / "data", {"a/1.jpg": 0, f"b/{LATIN}": 0})
    (folder / "b" / "gone.jpg").symlink_to(folder / ".git" / "annex" / "gone.jpg")
    (folder / "mounted").symlink_to(folder / "nowhere", target_is_directory=True)
    return open_images(folder)


def test_dangling_link_is_an_unreadable_image(odd: Images, tmp_path: Path):
    assert [printable(name) for name in odd.names] == ["a/1.jpg", "b/caf\\xe9.jpg", "b/gone.jpg"]
    assert [note[:7] for note in odd.notes] == ["1 other", "1 folde"]
    assert len({odd.fingerprint(), odd.inventory(), *odd.places()}) == 5
    with pytest.raises(ImageError, match=r"b/gone\.jpg cannot be opened"):
        odd.read(2)
    (tmp_path / "list.txt").write_text("data/b/gone.jpg\ndata/a/1.jpg\n")
    assert len(open_images(tmp_path / "list.txt")) == 2


def test_name_that_is_not_utf8_is_hashed_listed_and_written_escaped(odd: Images, tmp_path: Path, capfd):
    assert odd.read(1).shape == (4, 5, 3)
    (tmp_path / "list.txt").write_bytes(os.fsencode(f"data/{odd.names[1]}\n"))
    assert open_images(tmp_path / "list.txt").names == (f"data/{odd.names[1]}",)
    (tmp_path / "labels.csv").write_text("caf\\xe9.jpg,cat\n1.jpg,dog\n")
    labeled = open_images(odd.root, options=LabelOptions(labels=tmp_path / "labels.csv"))
    assert labeled.classes == ("cat", "dog")
    write_json(tmp_path / "x.json", {odd.names[1]: [odd.names[1]]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"b/caf\\xe9.jpg": ["b/caf\\xe9.jpg"]}
    pool, zeros, ones = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (0.0,) * 3, (1.0,) * 3
    extractor = FeatureExtractor(
        LoadedModel("mean", pool, zeros, ones, "", None), Framing(4, zeros, ones), device="cpu"
    )
    for suffix in (".npz", ".safetensors"):
        embed(odd, extractor, tmp_path / f"f{suffix}")
        assert read_features(tmp_path / f"f{suffix}").names == ["a/1.jpg", "b/caf\\xe9.jpg"]
    run_command(lambda: print(odd.names[1]))
    assert capfd.readouterr().out.endswith("\nb/caf\\xe9.jpg\n")
