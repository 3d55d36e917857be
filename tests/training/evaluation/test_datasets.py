"""Training and test images of a data set, and errors."""

from pathlib import Path

import pytest
import torch

from dino_model.data.classes import LabelOptions
from dino_model.data.images import ImageError
from tests.training.runs import write_rectangles
from training.evaluation.datasets import draw_labeled, every_fifth, open_split


def test_open_split_tests_every_fifth_image_by_name(shapes):
    split = open_split(shapes)
    assert split.test.names == ("a/004.png", "a/009.png", "c/004.png")
    assert len(split.train) == 10 + 4 + 7 - 3
    assert split.classes == ("a", "b", "c")
    assert split.test.notes[0].startswith("6 images without a class left out: BACKGROUND_Google/")
    assert split.train.reading.endswith("a/000.png is 'a'")
    assert split.labels(split.test).tolist() == [0, 0, 2]
    with pytest.raises(ValueError, match="No class has five images"):
        every_fifth(torch.arange(4))


def test_open_split_matches_classes_by_name(tmp_path: Path):
    train = write_rectangles(tmp_path / "train", {"a": 3, "b": 3, "c": 3})
    test = write_rectangles(tmp_path / "val", {"b": 2, "c": 1}, shade=100)
    for split in (open_split(train, test=test), open_split(tmp_path)):
        assert (len(split.train), len(split.test)) == (9, 3)
        assert split.classes == ("a", "b", "c")
        assert split.labels(split.test).tolist() == [1, 1, 2]
    with pytest.raises(ValueError, match=r"Test classes without training images: 1 class \(a\)"):
        open_split(test, test=train)


def test_open_split_reads_list_of_names_with_or_without_folders(shapes, tmp_path: Path):
    names = tmp_path / "test.txt"
    names.write_text("c/006.png\n009.png\na/001.png\n")
    split = open_split(shapes, split=names)
    assert split.test.names == ("a/001.png", "a/009.png", "c/006.png")
    assert len(split.train) == 10 + 4 + 7 - 3
    assert not set(split.train.names) & set(split.test.names)
    names.write_text("a/001.png\nghost.JPEG\n")
    with pytest.raises(ValueError, match=r"names 1 images that do not exist, the first is ghost\.JPEG"):
        open_split(shapes, split=names)


def test_open_split_with_shared_image_or_link_raises(tmp_path: Path):
    train = write_rectangles(tmp_path / "one", {"a": 3, "b": 3})
    test = write_rectangles(tmp_path / "two", {"a": 2, "b": 1}, shade=100)
    open_split(train, test=test)
    link = test / "b" / "link.png"
    link.symlink_to(train / "b" / "002.png")
    with pytest.raises(ValueError, match=r"1 test image among the training images.* b/link\.png: remove"):
        open_split(train, test=test)
    link.unlink()
    (test / "a" / "001.png").write_bytes((train / "a" / "001.png").read_bytes())
    with pytest.raises(ValueError, match=r"1 test image among the training images.* a/001\.png: remove"):
        open_split(train, test=test)


def test_open_split_with_empty_class_or_one_class_raises(shapes, tmp_path: Path):
    (shapes / "empty").mkdir()
    with pytest.raises(ValueError, match=r"The class folder .*empty holds no image: fill"):
        open_split(shapes)
    (shapes / "empty").rmdir()
    with pytest.raises(ImageError, match="--labels"):
        open_split(shapes / "a")
    only = write_rectangles(tmp_path / "only", {"BACKGROUND_Google": 5, "a": 10})
    with pytest.raises(ValueError, match="All training images are of one class, 'a': two are needed"):
        open_split(only)
    (shapes / "loose.png").write_bytes((shapes / "a" / "000.png").read_bytes())
    assert open_split(shapes).train.notes[0].startswith("7 images without a class left out: ")


def test_draw_labeled_is_stratified_and_seeded():
    labels = torch.tensor([0] * 100 + [1] * 10 + [2])
    few = draw_labeled(labels, 3, "abc", "10%")
    assert labels[few].bincount().tolist() == [10, 1, 1]
    assert torch.equal(few, draw_labeled(labels, 3, "abc", "10%"))
    assert not torch.equal(few, draw_labeled(labels, 4, "abc", "10%"))
    assert len(draw_labeled(labels, 0, "abc", "100%")) == 111
    assert labels[draw_labeled(labels[:110], 0, "abc", "5")].bincount().tolist() == [5, 5]
    with pytest.raises(ValueError, match="Class 'c' has 1 training image, expected 5"):
        draw_labeled(labels, 0, "abc", "5")
    for wanted, sentence in (("150%", "is 150%"), ("0%", "is 0%"), ("0", "expected 0")):
        with pytest.raises(ValueError, match=sentence):
            draw_labeled(labels, 0, "abc", wanted)


def test_open_split_names_unused_images_and_takes_one_tested_class(tmp_path: Path):
    write_rectangles(tmp_path / "train", {"a": 5, "b": 5})
    write_rectangles(tmp_path / "Validation", {"b": 2}, shade=100)
    write_rectangles(tmp_path / "unlabeled", {"c": 2})
    split = open_split(tmp_path)
    assert (len(split.train), split.labels(split.test).tolist()) == (10, [1, 1])
    assert any("unlabeled/c" in note for note in split.train.notes)
    assert len(open_split(tmp_path, tmp_path / "Validation").train) == 10


@pytest.mark.parametrize(
    ("splits", "options", "expected"),
    [
        ("train val test", {}, (4, 4)),
        ("train TEST x", {"split_values": "train=train,test=TEST"}, (4, 4)),
        ("train train train", {}, "training and test images are needed"),
        ("a b c", {}, "--split-values"),
        ("a b c", {"split_column": "none"}, (10, 2)),
    ],
)
@pytest.mark.parametrize("as_labels", [False, True])
def test_open_split_follows_the_column_of_a_table(tmp_path: Path, splits, options, expected, as_labels):
    folder = write_rectangles(tmp_path / "images", {"a": 6, "b": 6})
    rows = [f"images/{n}/{i:03d}.png,{n},{splits.split()[i % 3]}" for n in "ab" for i in range(6)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["image,label,split", *rows]))
    chosen = LabelOptions(labels=table if as_labels else None, **options)

    def opened():
        return open_split(folder if as_labels else table, options=chosen)

    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            opened()
    else:
        assert (len(opened().train), len(opened().test)) == expected


def test_open_split_of_a_table_with_two_splits_of_an_image_raises(tmp_path: Path):
    write_rectangles(tmp_path / "images", {"a": 2})
    (tmp_path / "t.csv").write_text("image,label,split\nimages/a/000.png,a,train\nimages/a/000.png,a,val\n")
    with pytest.raises(ValueError, match=r"of train and .* of val"):
        open_split(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ({"a": 5, "b": 5}, {"a": 1, "b": 1}, []),
        ({"a": 5, "b": 5}, {"a": 1}, ["1 of 2 classes have no test image: b"]),
        ({"a": 5, "b": 3}, {"a": 1, "b": 1}, ["1 of 2 classes have fewer than 5 images: b"]),
        (
            {"a": 5, "b": 4, "c": 1},
            {"a": 1},
            ["2 of 3 classes have no test image: b, c", "2 of 3 classes have fewer than 5 images: b, c"],
        ),
    ],
)
def test_warnings_name_classes_of_few_images(tmp_path: Path, train, test, expected: list[str]):
    folders = [
        write_rectangles(tmp_path / "x", train),
        write_rectangles(tmp_path / "y", test, shade=100),
    ]
    assert open_split(*folders).warnings() == expected


def test_open_split_of_folds_that_share_an_image_raises(tmp_path: Path):
    write_rectangles(tmp_path / "fold1" / "train", {"a": 3, "b": 3})
    write_rectangles(tmp_path / "fold2" / "val", {"a": 2})
    with pytest.raises(ValueError, match=r"2 test images among the training images.* fold2/val/a/000\.png"):
        open_split(tmp_path, options=LabelOptions(split_folders="train=train,val=val"))
