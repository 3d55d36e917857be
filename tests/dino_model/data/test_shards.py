"""Classes of tars in the form of WebDataset."""

import os
import tarfile
from pathlib import Path
from unittest import mock

import pytest

from dino_model.data import shards
from dino_model.data.classes import LabelOptions
from dino_model.data.collection import open_images
from tests.dino_model.data.samples import make_tar, read_labels

KEY = "refused: --class-key"
SEPARATOR = "refused: --label-separator"
LISTS = '{"y": ["x", "y"]}'
DIVIDED = {"train/a.jpg": "", "train/a.cls": "7", "val/b.jpg": "", "val/b.cls": "7"}
JSON = '{"caption": "x", "label": 1, "name": "cat"}'


@pytest.mark.parametrize(
    ("members", "options", "expected"),
    [
        ({"a.jpg": "", "a.cls": "7", "d.jpg": "", "d.cls": "3\n"}, {}, "7 3"),
        ({"0001.left.jpg": "", "0001.cls": "7", "0002.left.jpg": "", "0002.cls": "3"}, {}, "7 3"),
        ({"a.jpg": "", "a.json": '{"label": 1}', "a.cls": "9", "b.jpg": "", "b.cls": "8"}, {}, "9 8"),
        ({"a.jpg": "", "a.cls": "9", "b.jpg": ""}, {}, "9"),
        ({"d.1/a.b.c.jpg": "", "d.1/a.x.y.cls": "9", "b.v2.jpg": "", "b.x.y.cls": "8"}, {}, "8 9"),
        # further images of a sample
        ({"a.left.jpg": "", "a.right.jpg": "", "a.cls": "7"}, {}, "refused: --image-key"),
        ({"a.jpg": "", "a.mask.png": "", "a.cls": "7"}, {"image_key": "jpg"}, "7"),
        ({"a.jpg": "", "a.cls": "7"}, {"image_key": "png"}, "refused: --image-key"),
        # JSON
        ({"a.jpg": "", "a.json": '{"Class": "cat"}', "b.jpg": "", "b.json": '{"Class": 2.0}'}, {}, "cat 2"),
        ({"a.jpg": "", "a.json": JSON}, {}, KEY),
        ({"a.jpg": "", "a.json": '"cat"', "b.jpg": "", "b.json": "0"}, {}, "cat 0"),
        ({"a.jpg": "", "a.json": '{"y": NaN}', "b.jpg": "", "b.json": '{"y": "cat"}'}, {}, "cat"),
        ({"a.jpg": "", "a.cls2": "7"}, {"class_key": "cls2"}, "7"),
        ({"a.jpg": "", "a.json": JSON}, {"class_key": "json:name"}, "cat"),
        ({"a.jpg": "", "a.json": JSON}, {"class_key": "json:gone"}, KEY),
        ({"a.jpg": "", "a.json": '{"label": {"x": 1}}'}, {}, "refused: "),
        ({"a.jpg": "", "a.json": '{"y": ["x"]}'}, {}, SEPARATOR),
        (
            {"a.jpg": "", "a.json": LISTS, "b.jpg": "", "b.json": '{"y": []}'},
            {"label_separator": ","},
            "x|y ",
        ),
        ({"a.jpg": "", "a.cls": "x|y"}, {}, SEPARATOR),
        ({"a.jpg": "", "a.cls": "x|y", "b.jpg": "", "b.cls": "x"}, {"label_separator": "|"}, "x|y x"),
        ({"cat/a.jpg": "", "cat/a.json": JSON, "dog/b.jpg": ""}, {"class_key": "none"}, "cat dog"),
        ({"cat/a.jpg": "", "cat/a.json": '{"by": "ann"}', "dog/b.jpg": ""}, {}, KEY),
        # splits by folders
        (DIVIDED, {}, "refused: --split-folders"),
        (DIVIDED, {"split_folders": "train=train,val=val"}, "train:7 val:7"),
        # text
        ({"a.jpg": "", "a.txt": "cat"}, {}, KEY),
        ({"a.jpg": "", "a.txt": "cat"}, {"class_key": "txt"}, "cat"),
        ({"a.jpg": "", "a.x.cls": "1", "a.y.cls": "2"}, {"class_key": "y.cls"}, "2"),
        # no WebDataset
        ({"cat/a.jpg": "", "dog/b.jpg": "", "readme.txt": "", "meta.json": JSON}, {}, "cat dog"),
    ],
)
def test_classes_of_samples(tmp_path: Path, members: dict[str, str], options: dict, expected: str):
    tar = make_tar(tmp_path / "s.tar", members)
    open_images(tar)  # an index without options is cached
    assert read_labels(tar, **options) == expected


@pytest.mark.parametrize(("size", "expected"), [(1_000_000, "cat"), (1_000_001, KEY)])
def test_classes_are_read_from_files_of_at_most_a_megabyte(tmp_path: Path, size: int, expected: str):
    tar = make_tar(tmp_path / "s.tar", {"a.jpg": "", "a.json": '{"label": "cat"}'.ljust(size)})
    assert read_labels(tar) == expected


def test_files_that_a_later_one_replaces_are_counted(tmp_path: Path):
    tar, again = tmp_path / "s.tar", make_tar(tmp_path / "t.tar", {"a.jpg": "", "a.cls": "7"})
    with tarfile.open(tar, "w") as file:
        for path in (again, again):
            with tarfile.open(path) as part:
                for member in part:
                    file.addfile(member, part.extractfile(member))
    images = open_images(tar)
    assert images.names == ("a.jpg",)
    assert "2 files replaced by a later one of its name: a.jpg, a.cls" in images.notes


@pytest.mark.parametrize("key", [None, "jpg"])
def test_further_images_of_a_sample_are_named(tmp_path: Path, key: str | None):
    tar = make_tar(tmp_path / "s.tar", {"a.jpg": "", "a.mask.png": "", "a.cls": "7"})
    images = open_images(tar, options=LabelOptions(image_key=key))
    assert images.names == ("a.jpg", "a.mask.png")[: 1 if key else 2]
    assert "a.mask.png" in images.notes[1]


@pytest.mark.skipif(not hasattr(os, "pread"), reason="Windows opens a tar for each read")
def test_tar_stays_open_while_it_is_read_although_other_tars_push_it_out(tmp_path: Path):
    tar, honest = make_tar(tmp_path / "a.tar", {"a.txt": "first"}), os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        shards._open_tar.cache_clear()  # as other threads do
        return honest(descriptor, size, offset)

    with mock.patch("os.pread", pread):
        assert shards.read_part(tar, 512, 5, shards.stamp(tar)) == b"first"
