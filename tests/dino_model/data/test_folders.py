"""Classes and splits of folders."""

import tarfile
from pathlib import Path

import pytest

from dino_model.data.collection import open_images
from tests.dino_model.data.samples import make_folder, make_tar, read_labels

SPLITS = "refused: --split-folders"
TOP = "refused: --class-level --split-folders"


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        # the path of the folders, without the levels that all images share
        ("cat dog", "", "cat dog"),
        ("top/only/cat top/only/dog", "", "cat dog"),
        ("n01/images n02/images", "", "n01 n02"),
        ("a/apartment/out b/bar c/church/out", "", "a/apartment/out b/bar c/church/out"),
        ("animals/cat animals/dog cars", "", "animals/cat animals/dog cars"),
        ("only only", "", "only only"),
        ("1.jpg 2.jpg", "", "refused: --labels"),
        # words in names are no rule
        ("control test", "", "control test"),
        ("train bus", "", "bus train"),
        ("test_tube train_station", "", "test_tube train_station"),
        ("1 2 10 extra", "", "1 10 2 extra"),
        ("caf\udce9 dog", "", "caf\\xe9 dog"),
        # the level of the class
        ("a/x/cat a/y/dog b/z/cat", "class_level=top", "a a b"),
        ("a/x/cat a/y/dog b/z/owl", "class_level=last", "cat dog owl"),
        ("cat cat cat/extra dog", "", "refused: --class-level"),
        ("cat cat/extra dog", "", "refused: --class-level"),
        ("cat cat cat/extra dog", "class_level=top", "cat cat cat dog"),
        # images beside or above class folders
        ("loose.jpg cat dog", "", "cat dog"),
        ("BACKGROUND_Google cat dog", "", "cat dog"),
        # splits
        ("train/cat train/dog val/dog", "", "train:cat train:dog val:dog"),
        ("Train/cat VALIDATION/cat Test/dog", "", "test:dog train:cat val:cat"),
        ("x/train/n1/images x/train/n2/images x/valid/n1/images", "", "train:n1 train:n2 val:n1"),
        ("train/bus train/train test/train", "", "test:train train:bus train:train"),
        ("train/train/cat train/train/dog val/val/cat", "", "train:cat train:dog val:cat"),
        (
            "train/a/cat train/a/dog train/b/cat train/b/dog val/a/cat x",
            "",
            "train:a/cat train:a/dog train:b/cat train:b/dog val:a/cat",
        ),
        ("train/cat val/cat unlabeled", "", "train:cat val:cat"),
        ("old/train/cat old/val/dog train/cat train/dog val/dog", "", "train:cat train:dog val:dog"),
        ("train/cat train/dog test", "", SPLITS),
        ("train val", "", SPLITS),
        ("A/train/cat A/test/cat B/train/cat B/test/cat", "", SPLITS),
        ("cat/train cat/test dog/train", "", SPLITS),
        ("Training/cat Training/dog Testing/cat Testing/dog", "", TOP),
        ("x/train x/test y", "", SPLITS),
        ("siteA/cat siteA/dog siteB/cat siteB/dog", "", TOP),
        ("cat dog val/cat val/dog", "", TOP),
        # splits by option
        ("train test", "split_folders=none", "test train"),
        ("siteA/cat siteB/cat siteB/dog", "split_folders=none", "siteA/cat siteB/cat siteB/dog"),
        ("train/cat eval/cat", "split_folders=train=train,test=eval", "test:cat train:cat"),
        ("a/train a/test b/train", "split_folders=train=train,test=test", "test:a train:a train:b"),
        ("cat dog val/cat val/dog", "split_folders=val=val", "train:cat train:dog val:cat val:dog"),
        ("a/cat b/cat", "split_folders=train=a,test=c", SPLITS),
        ("train/cat train/dog test", "split_folders=train=train,test=test", "train:cat train:dog"),
        ("a/cat a/dog b/cat b/dog c/cat c", "split_folders=test=c", SPLITS),
        ("a/cat a/dog b/cat b/dog c/cat c/dog", "split_folders=test=c", SPLITS),
    ],
)
def test_classes_and_splits_of_folders(tmp_path: Path, names: str, options: str, expected: str):
    folder = make_folder(tmp_path / "data", names)
    assert read_labels(folder, options) == expected
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(folder, arcname="data")
    assert read_labels(tmp_path / "data.tar", options) == expected


def test_images_without_class_stay_and_are_named_where_classes_are_used(tmp_path: Path):
    images = open_images(make_folder(tmp_path, "a/cat/1.jpg a/dog/1.jpg a/preview.jpg b/fern/1.jpg"))
    assert len(images) == 4
    assert images.label_names(images.names.index("a/preview.jpg")) == ()
    assert "a/preview.jpg" in images.require_classes().notes[0]


def test_sources_are_classes_by_option_only(tmp_path: Path):
    folders = [make_folder(tmp_path / name, "1.jpg") for name in ("cat", "dog")]
    tars = [make_tar(tmp_path / f"{folder.name}.tar", {"1.jpg": folder.name}) for folder in folders]
    for sources in (folders, tars):
        assert read_labels(sources) == "refused: --sources"
        assert read_labels(sources, "sources=classes") == "cat dog"
