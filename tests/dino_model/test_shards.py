"""Several tars as one collection."""

import io
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from dino_model import shards
from dino_model.images import ImageError, open_images


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
