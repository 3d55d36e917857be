"""Training and test images of a data set, and errors."""

from pathlib import Path

import pytest
import torch

from tests.training.runs import write_rectangles
from training.evaluation.datasets import draw_labeled, every_fifth, open_split


def test_open_split_tests_every_fifth_image_by_name(shapes):
    split = open_split(shapes)
    assert split.test.names == ("a/004.png", "a/009.png", "c/004.png")
    assert len(split.train) == 10 + 4 + 7 - 3
    assert split.classes == ("a", "b", "c")
    assert split.test.notes == ("6 images of BACKGROUND_Google, which is no class, left out",)
    assert split.labels(split.test).tolist() == [0, 0, 2]
    with pytest.raises(ValueError, match="No class has five images"):
        every_fifth(torch.arange(4))


def test_open_split_matches_classes_by_name(tmp_path: Path):
    train = write_rectangles(tmp_path / "train", {"a": 3, "b": 3, "c": 3})
    test = write_rectangles(tmp_path / "val", {"b": 2, "c": 1}, shade=100)
    for split in (open_split(train, test=test), open_split(tmp_path)):
        assert (len(split.train), len(split.test), split.rule) == (9, 3, "those in val")
        assert split.classes == ("a", "b", "c")
        assert split.labels(split.test).tolist() == [1, 1, 2]
    with pytest.raises(ValueError, match="Test classes without training images: a"):
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


def test_open_split_with_empty_class_or_loose_image_raises(shapes, tmp_path: Path):
    (shapes / "empty").mkdir()
    with pytest.raises(ValueError, match=r"The class folder .*empty holds no image: fill"):
        open_split(shapes)
    (shapes / "empty").rmdir()
    (shapes / "loose.png").write_bytes((shapes / "a" / "000.png").read_bytes())
    with pytest.raises(ValueError, match=r"1 image of 28 in no class folder, the first is loose\.png"):
        open_split(shapes)
    with pytest.raises(ValueError, match="have no classes: 10 images of 10 in no class folder"):
        open_split(shapes / "a")
    only = write_rectangles(tmp_path / "only", {"BACKGROUND_Google": 5, "a": 10})
    with pytest.raises(ValueError, match="All training images are of one class, 'a': two are needed"):
        open_split(only)


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
    with pytest.raises(ValueError, match="The share of labels is 150%"):
        draw_labeled(labels, 0, "abc", "150%")


@pytest.mark.parametrize(
    ("train", "test", "rule"),
    [
        ("train", "val", "those in val"),
        ("Train", "VALID", "those in VALID"),
        ("training_set", "test_set", "those in test_set"),
        ("Training", "Testing", "those in Testing"),
        ("data/train", "data/validation", "those in validation"),
        (".", "val", "those in val"),
    ],
)
def test_open_split_finds_split_folders_of_any_name(tmp_path: Path, train: str, test: str, rule: str):
    write_rectangles(tmp_path / train, {"a": 3, "b": 3})
    write_rectangles(tmp_path / test, {"a": 1, "b": 2}, shade=100)
    split = open_split(tmp_path)
    assert (len(split.train), len(split.test), split.classes, split.rule) == (6, 3, ("a", "b"), rule)


def test_open_split_names_unused_images_and_takes_one_tested_class(tmp_path: Path):
    write_rectangles(tmp_path / "train", {"a": 5, "b": 5})
    write_rectangles(tmp_path / "val", {"b": 2}, shade=100)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "1.png").write_bytes((tmp_path / "train" / "a" / "000.png").read_bytes())
    assert "2 classes (a, b); not used: 1 image (test)" in str(open_split(tmp_path))
    write_rectangles(tmp_path / "unlabeled", {"c": 2})
    unused = {*str(open_split(tmp_path)).split("; ")[1:]}
    assert unused == {"not used: 1 image (test)", "not used: 2 images (outside of them)"}
    assert open_split(tmp_path / "train", tmp_path / "val").labels(open_split(tmp_path).test).tolist() == [
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("header", "trained", "tested", "other"),
    [
        ("image,label,split", "train", "val", "test"),
        ("image,kind,Partition", "TRAINING", "Valid", "unlabeled"),
        ("image;set;breed", "train", "test", ""),
        ("image,label,is_valid", "False", "True", None),
        ("image,label,is_training_image", "1", "0", None),
        ("image,label,is_training_img", "1", "0", None),
        ("class id,labels,data set", "train", "valid", "test"),
        ("image,label,set", "train", "valid", "unlabeled"),
        ("image,label,split", "0", "1", "2"),
        ("image,label,split", "train", "validate", ""),
        ("image,label,split", ' "train"', ' "val"', ' "test"'),
        ("", "TRAIN", "VALIDATION", "TEST"),
        ("path label split", "train", "val", "test"),
    ],
)
@pytest.mark.parametrize("as_labels", [False, True])
def test_open_split_follows_the_column_of_a_table(tmp_path: Path, header, trained, tested, other, as_labels):
    folder = write_rectangles(tmp_path / "images", {"train": 6, "b": 6})
    words = [*(trained, tested, trained), *(trained, tested, trained if other is None else other)] * 2
    separator = ";" if ";" in header else " " if header == "path label split" else ","
    rows = [
        separator.join(
            [f"images/{name}/{number:03d}.png", *((word, name) if ";" in header else (name, word))]
        )
        for name, numbers in (("train", range(6)), ("b", range(6, 12)))
        for number, word in zip(range(6), (words[each] for each in numbers), strict=True)
    ]
    table = tmp_path / "table.csv"
    table.write_text("\n".join([header, *rows]))
    split = open_split(folder, labels=table) if as_labels else open_split(table)
    left = 0 if other is None else 2
    assert (len(split.train), len(split.test), split.classes) == (8 - left, 4, ("b", "train"))
    assert ("not used: 2 images" in str(split)) == bool(left)
    assert all("001.png" in name or "004.png" in name for name in split.test.names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("0 1", "has a column 'split' with 0, 1: expected train, val and test, or 0, 1 and 2; write these"),
        ("query gallery", "has a column 'split' with gallery, query: expected train"),
        (
            "train holdout",
            "has training images and others, and none of val or test: name its test images test",
        ),
        ("train val train", r"has lines of images/a/000\.png with train and val: remove one of them"),
    ],
)
@pytest.mark.parametrize("as_labels", [False, True])
def test_open_split_refuses_a_column_of_splits_that_it_cannot_follow(tmp_path, words, message, as_labels):
    folder, (first, *others) = write_rectangles(tmp_path / "images", {"a": 6, "b": 6}), words.split()
    rows = [f"images/{name}/{number:03d}.png,{name},{first}" for name in "ab" for number in range(6)]
    rows += [f"images/a/{number:03d}.png,a,{word}" for number, word in enumerate(others)]
    table = tmp_path / "table.csv"
    table.write_text(
        "\n".join(["image,label,split", *(rows if len(others) > 1 else [*rows[1:6], *rows[6:]])])
    )
    with pytest.raises(ValueError, match=message):
        open_split(folder, labels=table) if as_labels else open_split(table)


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
        open_split(tmp_path)
