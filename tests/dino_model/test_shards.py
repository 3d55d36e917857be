"""Several tars as one collection."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dino_model import shards
from dino_model.images import ImageError, ShardError, open_images


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))


def write(path, members):
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def png(value):
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (value, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def test_tars_of_classes_are_one_collection_of_these_classes(tmp_path):
    folder = tmp_path / "train"
    for number, name in enumerate(("n02", "n01")):
        write(folder / f"{name}.tar", {f"{name}_{i}.png": png(10 * number + i) for i in range(3)})
    images = open_images(folder / "*.tar")
    assert images.classes == ("n01", "n02")
    assert images.names[0] == "n01/n01_0.png"
    assert images.labels == (0, 0, 0, 1, 1, 1)
    assert [int(images.read(i)[0, 0, 0]) for i in range(6)] == [10, 11, 12, 0, 1, 2]
    part = images.subset([5, 0])
    assert [int(part.read(i)[0, 0, 0]) for i in range(2)] == [2, 10]
    assert part.inventory() != images.inventory()


def test_shards_of_webdataset_have_the_classes_that_they_tell(tmp_path):
    for number in range(2):
        members = {}
        for i in range(2):
            members |= {f"{number}{i}.png": png(i), f"{number}{i}.cls": str(7 * i).encode()}
        write(tmp_path / "shards" / f"s-00{number}.tar", members)
    images = open_images(str(tmp_path / "shards" / "s-{000..001}.tar"))
    assert images.names == ("s-000/00.png", "s-000/01.png", "s-001/10.png", "s-001/11.png")
    assert images.classes == ("0", "7")
    assert images.labels == (0, 1, 0, 1)


def test_a_tar_is_read_once_and_again_when_it_changes(tmp_path, monkeypatch):
    tar = write(tmp_path / "a" / "b.tar", {"x.png": png(1)})
    first = shards.index(tar)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "_read", lambda path: pytest.fail("read again"))
        assert shards.index(tar) == first
    write(tar, {"x.png": png(1), "y.png": png(2)})
    os.utime(tar, ns=(1, 1))
    assert set(shards.index(tar).members) == {"x.png", "y.png"}


def test_missing_damaged_and_cut_tars_are_named(tmp_path):
    write(tmp_path / "a" / "0.tar", {"x.png": png(1)})
    with pytest.raises(ImageError, match=r"1\.tar cannot be opened"):
        open_images(str(tmp_path / "a" / "{0..1}.tar"))
    (tmp_path / "a" / "1.tar").write_bytes(b"no tar" * 200)
    with pytest.raises(ImageError, match=r"1\.tar is no whole, uncompressed tar"):
        open_images(str(tmp_path / "a" / "*.tar"))
    write(tmp_path / "a" / "1.tar", {"y.png": png(2), "z.png": bytes(np.arange(99, dtype=np.uint8)) * 99})
    images = open_images(str(tmp_path / "a" / "*.tar"))
    with (tmp_path / "a" / "1.tar").open("r+b") as file:
        file.truncate(520)
    with pytest.raises(ImageError, match=r"1/y\.png is cut short: 1\.tar ends within it"):
        images.read(1)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a{08..10}", ["a08", "a09", "a10"]),
        ("{a,b}/{1..2}", ["a/1", "a/2", "b/1", "b/2"]),
        ("plain", ["plain"]),
    ],
)
def test_braces_are_expanded_as_a_shell_does(pattern, names):
    assert list(shards.expanded(pattern)) == names


def test_a_list_of_tars_and_the_tars_are_the_same(tmp_path):
    tars = [write(tmp_path / "a" / f"{name}.tar", {f"{name}.png": png(i)}) for i, name in enumerate("xyz")]
    (tmp_path / "a" / "list.txt").write_text("# two\nz.tar\n\nx.tar\n")
    images = open_images(tmp_path / "a" / "list.txt")
    assert images.names == ("x/x.png", "z/z.png")
    assert images.inventory() == open_images([tars[0], tars[2]]).inventory()
    (tmp_path / "a" / "list.txt").write_text("x.tar\ngone.tar\n")
    with pytest.raises(ImageError, match=r"gone\.tar cannot be opened"):
        open_images(tmp_path / "a" / "list.txt")


def test_tars_of_one_name_keep_their_pictures_apart(tmp_path):
    tars = [write(tmp_path / folder / "0.tar", {"x.png": png(i)}) for i, folder in enumerate("ab")]
    assert open_images(tars).names == ("a/0/x.png", "b/0/x.png")


def test_folders_lists_and_tars_are_one_collection(tmp_path):
    for name, value in (("cat", 1), ("dog", 2)):
        (tmp_path / "loose" / name).mkdir(parents=True)
        (tmp_path / "loose" / name / "1.png").write_bytes(png(value))
    tar = write(tmp_path / "t" / "more.tar", {"dog/2.png": png(3), "emu/3.png": png(4)})
    images = open_images([tmp_path / "loose", tar])
    assert images.names == ("loose/cat/1.png", "loose/dog/1.png", "more/dog/2.png", "more/emu/3.png")
    assert images.classes == ("cat", "dog", "emu")
    assert images.labels == (0, 1, 1, 2)
    assert [int(images.read(i)[0, 0, 0]) for i in range(4)] == [1, 2, 3, 4]
    part = images.subset([3, 1])
    assert [int(part.read(i)[0, 0, 0]) for i in range(2)] == [4, 2]
    assert len({images.inventory(), part.inventory(), images.fingerprint(), part.fingerprint()}) == 4
    assert images.places()[2][0] == str(tar)
    (tmp_path / "out.txt").write_text("loose/cat/1.png\n")
    assert open_images([tmp_path / "loose", tar], exclude=tmp_path / "out.txt").names == images.names[1:]


def test_sources_without_classes_are_classes_themselves(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(png(1))
    images = open_images([tmp_path / "cat", tmp_path / "dog"])
    assert (images.classes, images.labels) == (("cat", "dog"), (0, 1))


def test_the_index_of_a_collection_is_made_once_and_anew_when_a_tar_or_the_exclusion_changes(
    tmp_path, monkeypatch
):
    for name in "xy":
        write(tmp_path / "a" / f"{name}.tar", {f"{i}.png": png(i) for i in range(2)})
    source, out = str(tmp_path / "a" / "*.tar"), tmp_path / "out.txt"
    first = open_images(source)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "index", lambda path: pytest.fail("indexed again"))
        again = open_images(source)
    assert (again.names, again.inventory()) == (first.names, first.inventory())
    assert first.inventory() == first.subset(range(4)).inventory()
    out.write_text("x/0.png\n")
    assert open_images(source, exclude=out).names == first.names[1:]
    out.write_text("x/1.png\n")
    assert open_images(source, exclude=out).names == (first.names[0], *first.names[2:])
    size = (tmp_path / "a" / "x.tar").stat().st_size
    write(tmp_path / "a" / "x.tar", {f"{i}.png": png(i) for i in (3, 4)})
    assert (tmp_path / "a" / "x.tar").stat().st_size == size
    assert open_images(source).names == ("x/3.png", "x/4.png", "y/0.png", "y/1.png")


def test_a_tar_that_changes_in_use_is_named(tmp_path):
    tar = write(tmp_path / "a" / "0.tar", {"x.png": png(1)})
    images = open_images(tar)
    os.utime(tar, ns=(1, 1))
    with pytest.raises(ShardError, match=r"0\.tar was changed while it was in use"):
        images.read(0)
    tar.unlink()
    with pytest.raises(ShardError, match=r"cannot use .*0\.tar': no such file"):
        images.read(0)


def test_without_a_place_to_keep_it_an_index_is_made_each_time(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    tar = write(tmp_path / "a" / "0.tar", {"x.png": png(7)})
    assert int(open_images(tar).read(0)[0, 0, 0]) == 7


def test_dots_in_the_names_of_folders_are_no_suffixes():
    assert shards.titles([Path("people/dr.smith"), Path("people/dr.jones")]) == ["dr.smith", "dr.jones"]
    assert shards.titles([Path("v1.0/train.tar"), Path("v1.1/train.tar")]) == ["v1.0/train", "v1.1/train"]


def test_other_names_of_the_same_tars_have_an_index_of_their_own(tmp_path):
    for number, name in enumerate(("cat", "dog")):
        blob = write(tmp_path / "blobs" / f"h{number}.tar", {f"{i}.png": png(i) for i in range(2)})
        (tmp_path / "named").mkdir(exist_ok=True)
        (tmp_path / "named" / f"{name}.tar").symlink_to(blob)
    assert open_images(tmp_path / "blobs" / "*.tar").classes == ("h0", "h1")
    assert open_images(tmp_path / "named" / "*.tar").classes == ("cat", "dog")
