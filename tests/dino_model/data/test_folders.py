"""Classes and splits of folders."""

import tarfile
from pathlib import Path

import pytest

from dino_model.data.collections import open_images
from tests.dino_model.data.samples import make_folder, make_tar, read_labels

SPLITS = "refused: --split-folders"
TOP = "refused: --class-level --split-folders"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        # the path of the folders, without the levels that all images share
        ("cat/1.jpg dog/1.jpg", {}, "cat dog"),
        ("top/only/cat/1.jpg top/only/dog/1.jpg", {}, "cat dog"),
        ("n01/images/1.jpg n02/images/1.jpg", {}, "n01 n02"),
        ("a/apartment/out/1.jpg b/bar/1.jpg c/church/out/1.jpg", {}, "a/apartment/out b/bar c/church/out"),
        ("animals/cat/1.jpg animals/dog/1.jpg cars/1.jpg", {}, "animals/cat animals/dog cars"),
        ("bus/city/1.jpg car/sedan/1.jpg train/metro/1.jpg", {}, "bus/city car/sedan train/metro"),
        ("cat/@eaDir/1.jpg/t.jpg cat/1.jpg dog/1.jpg __MACOSX/cat/._1.jpg", {}, "cat dog"),
        ("only/1.jpg only/2.jpg", {}, "only only"),
        ("1.jpg 2.jpg", {}, "refused: --labels"),
        # words in names are no rule
        ("control/1.jpg test/1.jpg", {}, "control test"),
        ("train/1.jpg bus/1.jpg", {}, "bus train"),
        ("mask/1.jpg image/1.jpg labels/1.jpg", {}, "image labels mask"),
        ("Dev/1.jpg Eva/1.jpg evaluation/1.jpg", {}, "Dev Eva evaluation"),
        ("test_tube/1.jpg train_station/1.jpg", {}, "test_tube train_station"),
        ("1/1.jpg 2/1.jpg 10/1.jpg extra/1.jpg", {}, "1 10 2 extra"),
        # the level of the class
        ("a/x/cat/1.jpg a/y/dog/1.jpg b/z/cat/1.jpg", {"class_level": "top"}, "a a b"),
        ("a/x/cat/1.jpg a/y/dog/1.jpg b/z/owl/1.jpg", {"class_level": "last"}, "cat dog owl"),
        ("control/m0/1.jpg control/m1/1.jpg test/m0/2.jpg", {"class_level": "top"}, "control control test"),
        ("cat/1.jpg cat/2.jpg cat/extra/3.jpg dog/1.jpg", {}, "refused: --class-level"),
        ("cat/1.jpg cat/2.jpg cat/extra/3.jpg dog/1.jpg", {"class_level": "top"}, "cat cat cat dog"),
        # images beside or above class folders
        ("loose.jpg cat/1.jpg dog/1.jpg", {}, "cat dog"),
        ("a/cat/1.jpg a/dog/1.jpg a/preview.jpg b/fern/1.jpg", {}, "a/cat a/dog b/fern"),
        ("BACKGROUND_Google/1.jpg cat/1.jpg dog/1.jpg", {}, "cat dog"),
        # splits
        ("train/cat/1.jpg train/dog/1.jpg val/dog/2.jpg", {}, "train:cat train:dog val:dog"),
        ("Train/cat/1.jpg VALIDATION/cat/1.jpg Test/dog/1.jpg", {}, "test:dog train:cat val:cat"),
        (
            "x/train/n1/images/1.jpg x/train/n2/images/1.jpg x/valid/n1/images/2.jpg",
            {},
            "train:n1 train:n2 val:n1",
        ),
        ("train/bus/1.jpg train/train/1.jpg test/train/2.jpg", {}, "test:train train:bus train:train"),
        ("train/cat/1.jpg val/cat/2.jpg unlabeled/1.jpg", {}, "train:cat val:cat"),
        (
            "train/good/1.jpg test/good/2.jpg test/bad/3.jpg ground_truth/bad/3.jpg",
            {},
            "test:bad test:good train:good",
        ),
        ("train/cat/1.jpg train/dog/1.jpg test/3.jpg", {}, SPLITS),
        ("train/1.jpg val/2.jpg", {}, SPLITS),
        ("train/n1/images/1.jpg train/n2/images/1.jpg val/images/1.jpg", {}, SPLITS),
        ("A/train/cat/1.jpg A/test/cat/2.jpg B/train/cat/1.jpg B/test/cat/2.jpg", {}, SPLITS),
        (
            "bottle/train/good/1.jpg bottle/test/bad/1.jpg cable/train/good/1.jpg cable/test/cut/2.jpg",
            {},
            SPLITS,
        ),
        ("cat/train/1.jpg cat/test/2.jpg dog/train/1.jpg", {}, SPLITS),
        ("Training/cat/1.jpg Training/dog/1.jpg Testing/cat/2.jpg Testing/dog/2.jpg", {}, TOP),
        ("Training/cat/1.jpg Training/dog/1.jpg Testing/cat/2.jpg", {}, TOP),
        ("siteA/cat/1.jpg siteA/dog/1.jpg siteB/cat/2.jpg siteB/dog/2.jpg", {}, TOP),
        ("cat/1.jpg dog/1.jpg val/cat/2.jpg val/dog/2.jpg", {}, TOP),
        # splits by option
        ("train/1.jpg test/2.jpg", {"split_folders": "none"}, "test train"),
        (
            "siteA/cat/1.jpg siteB/cat/2.jpg siteB/dog/2.jpg",
            {"split_folders": "none"},
            "siteA/cat siteB/cat siteB/dog",
        ),
        (
            "s_train/s_train/sea/1.jpg s_train/s_train/ice/1.jpg s_test/s_test/sea/1.jpg s_pred/1.jpg",
            {"split_folders": "train=s_train,test=s_test"},
            "test:sea train:ice train:sea",
        ),
        (
            "A/train/cat/1.jpg A/test/cat/2.jpg B/train/dog/1.jpg B/test/cat/2.jpg",
            {"split_folders": "train=train,test=test"},
            "test:cat train:cat test:cat train:dog",
        ),
        (
            "cat/train/1.jpg cat/test/2.jpg dog/train/1.jpg",
            {"split_folders": "train=train,test=test"},
            "test:cat train:cat train:dog",
        ),
        (
            "cat/1.jpg dog/1.jpg val/cat/2.jpg val/dog/2.jpg",
            {"split_folders": "val=val"},
            "train:cat train:dog val:cat val:dog",
        ),
        ("a/cat/1.jpg b/cat/1.jpg", {"split_folders": "train=a,test=c"}, SPLITS),
    ],
)
def test_classes_and_splits_of_folders(tmp_path: Path, names: str, options: dict, expected: str):
    folder = make_folder(tmp_path / "data", names)
    assert read_labels(folder, **options) == expected
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(folder, arcname="data")
    assert read_labels(tmp_path / "data.tar", **options) == expected


def test_images_without_class_stay_and_are_named_where_classes_are_used(tmp_path: Path):
    images = open_images(make_folder(tmp_path, "a/cat/1.jpg a/dog/1.jpg a/preview.jpg b/fern/1.jpg"))
    assert len(images) == 4
    assert images.label_names(images.names.index("a/preview.jpg")) == ()
    assert "1 image" in images.require_classes().notes[0]
    assert "a/preview.jpg" in images.require_classes().notes[0]


@pytest.mark.parametrize(
    ("sources", "options", "expected"),
    [
        ("cat dog", {}, "refused: --sources"),
        ("cat dog", {"sources": "classes"}, "cat dog"),
        ("train val", {"sources": "classes"}, "train val"),
        ("shard-000 shard-001", {}, "refused: --sources"),
    ],
)
def test_sources_are_classes_by_option_only(tmp_path: Path, sources: str, options: dict, expected: str):
    folders = [make_folder(tmp_path / name, "1.jpg") for name in sources.split()]
    tars = [make_tar(tmp_path / f"{folder.name}.tar", {"1.jpg": folder.name}) for folder in folders]
    assert read_labels(folders, **options) == expected
    assert read_labels(tars, **options) == expected


def test_sources_of_one_name_are_named_after_the_folders_above_too(tmp_path: Path):
    tars = []
    for name in "ab":
        folder = make_folder(tmp_path / name, "1.jpg")
        tars.append(make_tar(folder / "x.tar", {"1.jpg": name}))
    assert open_images(tars).names == ("a/x/1.jpg", "b/x/1.jpg")
