"""Classes of images by their folders, files and tables."""

import io
import re
import tarfile
from pathlib import Path

import pytest

from dino_model.data.collections import open_images
from dino_model.data.images import ImageError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))


def make_folder(root: Path, names: str) -> Path:
    for name in names.split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    return root


def make_tar(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content.encode("utf-8", "surrogateescape"))
            tar.addfile(info, io.BytesIO(content.encode("utf-8", "surrogateescape")))
    return path


def class_names(images) -> list[str]:
    return ["|".join(images.label_names(index)) for index in range(len(images))]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("a/apartment/outdoor/1.jpg c/church/outdoor/1.jpg", "a/apartment/outdoor c/church/outdoor"),
        ("airplanes/2020/1.jpg butterfly/2021/1.jpg", "airplanes/2020 butterfly/2021"),
        ("cat/1.jpg cat/extra/2.jpg dog/1.jpg", "cat cat dog"),
        ("a/airfield/1.jpg a/apartment/outdoor/1.jpg b/bar/1.jpg", "a/airfield a/apartment/outdoor b/bar"),
        ("animals/cat/1.jpg cars/1.jpg", "animals/cat cars"),
        ("train/cat/1.jpg train/dog/1.jpg valid/cat/2.jpg valid/dog/2.jpg", "cat dog cat dog"),
        ("Train/cat/1.jpg VALIDATION/dog/1.jpg", "cat dog"),
        ("training_set/cat/1.jpg test_set/dog/1.jpg", "dog cat"),
        ("train2017/cat/1.jpg val2017/dog/1.jpg", "cat dog"),
        ("cat/1.jpg dog/1.jpg val/cat/2.jpg val/dog/2.jpg", "cat dog cat dog"),
        ("cat/train/1.jpg cat/test/2.jpg dog/train/1.jpg", "cat cat dog"),
        ("birds/train/cat/1.jpg birds/val/dog/1.jpg", "cat dog"),
        ("bus/1.jpg car/1.jpg train/1.jpg", "bus car train"),
        ("train/bus/1.jpg train/train/1.jpg val/train/2.jpg", "bus train train"),
        ("train/images/cat/1.jpg val/images/dog/1.jpg", "cat dog"),
        ("n01/images/1.jpg n02/images/1.jpg", "n01 n02"),
        ("top/only/cat/1.jpg top/only/dog/1.jpg", "cat dog"),
        ("cat/1.jpg cat/@eaDir/1.jpg/THUMB.jpg dog/1.jpg __MACOSX/cat/._1.jpg", "cat dog"),
        ("only/1.jpg only/2.jpg", "only only"),
        ("train/cat/1.jpg dev/cat/2.jpg dev/dog/3.jpg", "cat dog cat"),
        ("training/egg/1.jpg validation/egg/1.jpg evaluation/rice/1.jpg", "rice egg egg"),
        ("trainval/cat/1.jpg test/cat/1.jpg test/dog/1.jpg", "cat dog cat"),
        (
            "seg_train/seg_train/sea/1.jpg seg_test/seg_test/sea/1.jpg seg_test/seg_test/ice/1.jpg",
            "ice sea sea",
        ),
        ("1_train/cat/1.jpg 2_val_256/cat/1.jpg 2_val_256/dog/1.jpg", "cat cat dog"),
        ("train1/cat/1.jpg train2/dog/1.jpg test/cat/1.jpg", "cat cat dog"),
        ("train/caf\u00e9/1.jpg val/cafe\u0301/2.jpg val/dog/3.jpg", "caf\u00e9 caf\u00e9 dog"),
        ("bus/1.jpg test_tube/1.jpg train_station/1.jpg", "bus test_tube train_station"),
    ],
)
def test_class_is_the_path_below_the_split_folder(tmp_path: Path, names: str, expected: str):
    folder = make_folder(tmp_path / "data", names)
    assert class_names(open_images(folder)) == expected.split()
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(folder, arcname="data")
    assert class_names(open_images(tmp_path / "data.tar")) == expected.split()


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("1.jpg 2.jpg", "2 images of 2 in no class folder, the first is 1.jpg"),
        ("train/1.jpg test/2.jpg", "2 images of 2 in no class folder, in the split 'test'"),
        ("Train/1.jpg Val/2.jpg Valid/3.jpg", "3 images of 3 in no class folder"),
        ("images/train/1.jpg images/val/2.jpg", "2 images of 2 in no class folder"),
        ("train/cat/1.jpg train/dog/2.jpg test/3.jpg", "1 image of 3 .* split 'test', .* test/3.jpg"),
        ("cat/1.jpg dog/2.jpg test/3.jpg", "1 image of 3 .* split 'test', .* test/3.jpg"),
        ("cat/1.jpg dog/2.jpg loose.jpg", "1 image of 3 in no class folder, the first is loose.jpg"),
        (
            "train/cat/1.jpg test/dog/1.jpg unlabeled/1.jpg",
            "outside of the split folders, .* unlabeled/1.jpg",
        ),
        ("train/cat/1.jpg train/dog/1.jpg test1/1.jpg", "outside of the split folders, .* test1/1.jpg"),
        ("x/train/N/1.jpg x/val/P/1.jpg readme/1.png", "outside of the split folders, .* readme/1.png"),
        (
            "x/train/N/1.jpg x/val/P/1.jpg x/x/train/N/2.jpg",
            "outside of the split folders, .* x/x/train/N/2.jpg",
        ),
        (
            "a_train/a_train/A/1.jpg a_test/a_test/A_test.jpg",
            "1 image of 2 in no class folder, in the split 'test'",
        ),
        (
            "train/images/1.jpg train/masks/1.png val/images/1.jpg",
            "its folders are kinds of files: images, masks",
        ),
    ],
)
def test_images_outside_class_folders_give_no_classes_and_the_reason(tmp_path, names: str, reason: str):
    images = open_images(make_folder(tmp_path / "data", names))
    assert (images.labels, images.classes) == (None, ())
    assert re.search(reason, images.no_classes)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("cat dog", "cat dog"),
        ("train val", ""),
        ("Train/ TEST/", ""),
        ("shard-000 shard-001", ""),
        ("n01440764 n01443537", "n01440764 n01443537"),
    ],
)
def test_flat_sources_are_classes_unless_splits_or_shards(tmp_path: Path, sources: str, expected: str):
    folders = [make_folder(tmp_path / name, "1.jpg") for name in sources.split()]
    tars = [make_tar(tmp_path / f"{folder.name}.tar", {"1.jpg": folder.name}) for folder in folders]
    for group in (folders, tars):
        images = open_images(group)
        assert images.classes == tuple(expected.split())
        assert bool(images.no_classes) == (not expected)


def test_sources_of_one_name_are_named_after_the_folders_above_too(tmp_path: Path):
    tars = []
    for name in "ab":
        folder = make_folder(tmp_path / name, "1.jpg")
        tars.append(make_tar(folder / "x.tar", {"1.jpg": name}))
    assert open_images(tars).names == ("a/x/1.jpg", "b/x/1.jpg")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"a.b.c.jpg": "", "a.b.c.cls": "7", "d.jpg": "", "d.cls": "3"}, "7 3"),
        ({"a.left.jpg": "", "a.cls": "7", "d.left.jpg": "", "d.cls": "3"}, "7 3"),
        ({"x.1/a.b.jpg": "", "x.1/a.cls": "cat\n", "x.1/c.jpg": "", "x.1/c.cls": "dog"}, "cat dog"),
        ({"a.jpg": "", "a.json": '{"label": 3}', "b.jpg": "", "b.json": '{"label": 12}'}, "3 12"),
        ({"a.jpg": "", "a.json": '{"Class": "cat"}', "b.jpg": "", "b.json": '{"cls": "dog"}'}, "cat dog"),
        ({"a.jpg": "", "a.json": '{"category": 2.0}', "b.jpg": "", "b.json": '{"target": 1}'}, "2 1"),
        ({"a.jpg": "", "a.json": '{"cls": "\udce9"}', "b.jpg": "", "b.json": '{"cls": "b"}'}, "\\xe9 b"),
        ({"a.jpg": "", "a.cls": "caf\udce9", "b.jpg": "", "b.cls": "caf\udce8"}, "caf\\xe9 caf\\xe8"),
        ({"a.jpg": "", "a.json": '{"labels": ["x", "y"]}', "b.jpg": "", "b.json": '{"labels": []}'}, "x|y "),
        ({"a.jpg": "", "a.json": '{"label": 1}', "a.cls": "9", "b.jpg": "", "b.cls": "8"}, "9 8"),
        (
            {"cat/a.jpg": "", "cat/a.json": '{"width": 5}', "dog/b.jpg": "", "dog/b.json": "damaged"},
            "cat dog",
        ),
    ],
)
def test_webdataset_labels_of_keys_with_dots_and_of_json(tmp_path: Path, members, expected: str):
    assert class_names(open_images(make_tar(tmp_path / "s.tar", members))) == expected.split(" ")


def test_webdataset_sample_without_label_is_named_and_numbers_sort_by_value(tmp_path: Path):
    members = {f"{i}.{suffix}": str(i) for i in (2, 10) for suffix in ("jpg", "cls")}
    assert open_images(make_tar(tmp_path / "s.tar", members)).classes == ("2", "10")
    images = open_images(make_tar(tmp_path / "t.tar", members | {"3.jpg": ""}))
    assert (images.labels, images.no_classes) == (None, "1 image of 3 without a class")


TABLES = {
    "header.csv": "filename,label\na/1.jpg,cat\n2.jpg,dog\n",
    "order.csv": "breed,id\ncat,1\ndog,2\n",
    "index.csv": ",image_path,Class Name,width\n0,a/1.jpg,cat,5\n1,data/b/2.jpg,dog,5\n",
    "plain.csv": "a/1.jpg,cat\nb/2.jpg,dog\n",
    "tabs.tsv": "a/1.jpg\tcat\t0\t5\nb/2.jpg\tdog\t3\t4\n",
    "spaces.txt": "./a/1.jpg cat\n./b/2.jpg dog\n",
    "boxes.txt": "a/1.jpg cat 0 5\nb/2.jpg dog 3 4\n",
    "semicolons.csv": "Path;Label\r\na\\1.jpg;cat\r\nb\\2.jpg;dog\r\n",
    "quotes.csv": '"path","label"\n"a/1.jpg","cat"\n"b/2.jpg","dog"\n',
    "flags.csv": "image,cat,dog\n1.jpg,1,0\n2.jpg,0,1\n",
    "numbers.csv": "class id,filepaths,labels\n2,a/1.jpg,cat\n1,b/2.jpg,dog\n",
    "ids.csv": "img_id,img_filename,y\n2,a/1.jpg,cat\n1,b/2.jpg,dog\n",
    "empty.csv": "path,label\n1.jpg,cat\n2.jpg,dog\n3.jpg,NaN\n",
    "others.csv": "path,label\n1.jpg,cat\n2.jpg,dog\n9.jpg,emu\n",
}


def test_paths_of_another_machine_mean_the_longest_name_they_end_with(tmp_path: Path):
    folder = make_folder(tmp_path / "data", "1.jpg a/1.jpg b/1.jpg")
    (tmp_path / "t.csv").write_text(
        "path,label\n/home/u/a/1.jpg,cat\nC:\\x\\b\\1.jpg,dog\n/home/u/1.jpg,emu\n"
    )
    assert class_names(open_images(folder, labels=tmp_path / "t.csv")) == ["emu", "cat", "dog"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", TABLES)
def test_table_of_labels_in_any_common_form(tmp_path: Path, name: str, encoding: str):
    folder = make_folder(tmp_path / "data", "a/1.jpg b/2.jpg c/3.jpg")
    (tmp_path / name).write_text(TABLES[name], encoding=encoding, newline="")
    images = open_images(folder, labels=tmp_path / name)
    assert images.names == ("a/1.jpg", "b/2.jpg")
    assert class_names(images) == ["cat", "dog"]
    assert f"1 image without a class in {name} left out" in str(images)
    assert ("1 row of others.csv without an image" in str(images)) == (name == "others.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path,labels\n1.jpg,cat|dog\n2.jpg,dog\n3.jpg,\n", "cat|dog dog "),
        ("1.jpg cat dog\n2.jpg dog\n3.jpg emu\n", "cat|dog dog emu"),
        ("image labels\n1.jpg cat dog\n2.jpg dog\n", "cat|dog dog"),
        ("1.jpg cat|dog\n2.jpg dog\n", "cat|dog dog"),
        ("1.jpg,cat,dog\n2.jpg,dog,\n", "cat|dog dog"),
        ("image,cat,dog\n1.jpg,1,1\n2.jpg,0,1\n3.jpg,0,0\n", "cat|dog dog "),
        ("path,label\n1.jpg,cat\n1.jpg,dog\n2.jpg,dog\n", "cat|dog dog"),
        ("path,tags\n1.jpg,\"['cat', 'dog']\"\n2.jpg,['dog']\n", "cat|dog dog"),
    ],
)
def test_table_of_several_classes_an_image(tmp_path: Path, text: str, expected: str):
    folder = make_folder(tmp_path / "data", "1.jpg 2.jpg 3.jpg")
    (tmp_path / "t.csv").write_text(text)
    images = open_images(folder, labels=tmp_path / "t.csv")
    assert images.labels is None
    assert class_names(images) == expected.split(" ")
    assert class_names(images.subset([1, 0])) == expected.split(" ")[1::-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "path,label\n9.jpg,cat\n",
            r"names no image of .*: names look like a/1\.jpg, its first path is '9\.jpg'",
        ),
        ("path,label\n1.jpg,cat\n", r"names 1\.jpg, which can be a/1\.jpg or b/1\.jpg: write the whole name"),
        ("a/1.jpg\nb/1.jpg\n", "has paths and no classes: expected a column 'label'"),
        ("path,width,height\na/1.jpg,3,4\nb/1.jpg,5,6\n", "has paths and no classes"),
        ("a/1.jpg,0,1\nb/1.jpg,1,0\n", "columns of 0 and 1: expected a header"),
        ("a/1.jpg 0 1\nb/1.jpg 1 0\n", "columns of 0 and 1: expected a header"),
        ("path width height\na/1.jpg 3 4\n", "has paths and no classes"),
        ("image,label,fold\n9.jpg,cat,1\n8.jpg,dog,1\n", r"names no image of .* its first path is '9\.jpg'"),
        ("", "is empty"),
    ],
)
def test_table_without_these_images_or_classes_raises(tmp_path: Path, text: str, message: str):
    folder = make_folder(tmp_path / "data", "a/1.jpg b/1.jpg")
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ImageError, match=message):
        open_images(folder, labels=tmp_path / "t.csv")
