"""Classes and splits of tables and lists."""

from pathlib import Path

import pytest

from dino_model.data.classes import LabelOptions
from dino_model.data.collection import open_images
from dino_model.data.images import ImageError
from tests.dino_model.data.samples import class_names, make_folder, read_labels

OTHER_SPLITS = "path,label,split\n1.jpg,cat,query\n2.jpg,dog,gallery\n"
IMAGE = "refused: --class-column --header-row --image-column"
CLASS = "refused: --class-column --class-columns"


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        # titles
        ("filename,label\n1.jpg,cat\n2.jpg,dog\n", "", "cat dog"),
        ("Path;Label\r\n1.jpg;cat\r\n2.jpg;dog\r\n", "", "cat dog"),
        ("path,label\n1.jpg,cat\n2.jpg,dog\n3.jpg,\n", "", "cat dog"),
        ("path,label\nC:\\x\\1.jpg,cat\n/home/u/2.jpg,dog\n9.jpg,emu\n", "", "cat dog"),
        ('path,label\n1.jpg,"tench, Tinca tinca"\n2.jpg,dog\n', "", "refused: --label-separator"),
        (
            'path,label\n1.jpg,"tench, Tinca tinca"\n2.jpg,dog\n',
            "label_separator=none",
            "tench, Tinca tinca dog",
        ),
        ('path,label\n1.jpg,"two\nlines"\n2.jpg,dog\n', "", "two\nlines dog"),
        ('"C:\\Users\\kim\\im, 2\\1.jpg",cat\n"C:\\2.jpg",dog\n', "", "cat dog"),
        ("image,label,label\n1.jpg,x,cat\n2.jpg,x,dog\n", "", CLASS),
        ("image,label,label\n1.jpg,x,cat\n2.jpg,x,dog\n", "class_column=3", "cat dog"),
        ("image label\n1.jpg golden retriever\n2.jpg dog\n", "", IMAGE),
        (",image,Label,width\n0,1.jpg,cat,5\n1,2.jpg,dog,5\n", "", "cat dog"),
        ("filename,species,label\n1.jpg,x,cat\n2.jpg,y,dog\n", "class_column=species", "x y"),
        ("filename,class_id,class\n1.jpg,1,cat\n2.jpg,2,dog\n", "", "cat dog"),
        ("filename,label,class\n1.jpg,x,cat\n2.jpg,x,dog\n", "", "refused: --class-column"),
        ("image,path,label\n1.jpg,1.jpg,cat\n2.jpg,2.jpg,dog\n", "", "refused: --image-column"),
        ("image_id,dx,age\n1,cat,5\n2,dog,6\n", "", IMAGE),
        ("image,dx,age\n1,cat,5\n2,dog,6\n", "", CLASS),
        ("image,dx,age\n1,cat,5\n2,dog,6\n", "class_column=gone", "refused: --class-column"),
        ("image,label\n1,n01 1 2 n02 3\n2,n02 4 5\n", "class_column=label:1", "n01 n02"),
        ("image,label\n1,n01 a\n2,n02 b c\n", "class_column=label:2", "a b"),
        # no titles
        ("1.jpg,cat\n2.jpg,dog\n", "", "cat dog"),
        ("1.jpg cat\n2.jpg dog\n", "", "cat dog"),
        ("1.jpg\tcat\n2.jpg\tdog\n", "", "cat dog"),
        ("a b.jpg cat\n2.jpg dog\n", "", "dog cat"),
        ("#0.jpg,cat\n# 1.jpg,emu\n#x/1.jpg,emu\n2.jpg,dog\n", "", "cat dog"),
        ("path label\n#0.jpg cat\n2.jpg dog\n", "", "cat dog"),
        ("1.jpg golden retriever\n2.jpg german shepherd\n", "", CLASS),
        ("1.jpg golden retriever\n2.jpg dog\n", "class_column=2-", "golden retriever dog"),
        ("1.jpg,cat\n2.jpg,dog\n", "class_column=0", "refused: --class-column"),
        ("1.jpg,cat\n2.jpg,dog\n", "class_column=3", "refused: --class-column"),
        ("1.jpg,cat\n2.jpg,dog\n", "class_column=2", "cat dog"),
        ("1.jpg\tcat\t0\t5\n2.jpg\tdog\t3\t4\n", "", CLASS),
        ("#Image CLASS SPECIES\n1 1 1\n2 2 1\n", "class_column=2", "1 2"),
        ("1,1.jpg\n1,2.jpg\n", "", IMAGE),
        ("ghost.jpg,cat\n2.jpg,dog\n", "", IMAGE),
        ("ghost.jpg,cat\n2.jpg,dog\n", "header_row=0", "dog"),
        ("path,label\nghost.jpg,cat\n", "header_row=3", "refused: --image-column"),
        ("path,label\nghost.jpg,cat\n", "header_row=4", "refused: --header-row"),
        ("path,label\n1.jpg,cat\n2.jpg,\n", "", "cat"),
        # titles below a count
        ("# made by hand\n2\nfile,label\n1.jpg,cat\n2.jpg,dog\n", "header_row=3", "cat dog"),
        ("image label\n1 1.jpg cat\n3 3.jpg dog\n", "header_row=1", IMAGE),
        ("2\ncat dog\n1.jpg 1 -1\n2.jpg -1 1\n", "image_column=1 class_columns=2- header_row=2", "cat dog"),
        # several classes
        ("path,label\n1.jpg,cat|dog\n2.jpg,dog\n", "", "refused: --label-separator"),
        ("path,label\n1.jpg,cat|dog\n2.jpg,dog\n", "label_separator=|", "cat|dog dog"),
        ("path,label\n1.jpg,\"['cat', 'dog']\"\n2.jpg,['dog']\n", "label_separator=,", "cat|dog dog"),
        ("image,label\n1.jpg,cat,dog\n2.jpg,dog\n", "", IMAGE),
        ("image,label,\n1.jpg,cat,\n2.jpg,dog,\n", "", "cat dog"),
        ("path,label\n1.jpg,3 7\n2.jpg,3\n", "", "refused: --label-separator"),
        ("path,label\n1.jpg,01\n2.jpg,1.0\n", "", "refused: "),
        ("path,label\n1.jpg,0;1\n2.jpg,1;0\n", "label_separator=;", "refused: --label-separator"),
        ("image,cat,dog\n1,1,0\n2,0,1\n", "", CLASS),
        ("image,cat,dog\n1,1,1\n2,0,0\n", "class_columns=2-", "cat|dog "),
        ("image,cat,dog\n1,TRUE,false\n2,False,1.0\n", "class_columns=2-", "cat dog"),
        ("image,cat,dog\n1,1,-1\n2,-1,1\n", "class_columns=2-", "cat dog"),
        ("image,cat,dog\n1,1,0\n2,-1,1\n", "class_columns=cat,dog", "refused: --class-columns"),
        ("image,cat,dog\n1,1,5\n2,0,1\n", "class_columns=cat,dog", "refused: --class-columns"),
        ("path,label\n1.jpg,cat\n1.jpg,cat\n2.jpg,dog\n", "", "cat dog"),
        ("path,label\n1.jpg,cat\n1.jpg,dog\n2.jpg,dog\n", "", "refused: --image-column --several-classes"),
        ("path,label\n1.jpg,cat\n1.jpg,dog\n2.jpg,dog\n", "several_classes=rows", "cat|dog dog"),
        # splits
        ("path,label,split\n1.jpg,cat,TRAIN\n2.jpg,dog,validation\n", "", "train:cat val:dog"),
        ("path,label,split\n1.jpg,cat,train\n2.jpg,dog,\n", "", "train:cat :dog"),
        (OTHER_SPLITS, "", "refused: --split-column --split-values"),
        (OTHER_SPLITS, "split_values=train=gallery,test=query", "test:cat train:dog"),
        ("path,label,split\n1.jpg,cat,query\n2.jpg,dog,x\n", "split_column=none", "cat dog"),
        ("path,label,fold\n1.jpg,cat,0\n2.jpg,dog,1\n", "", "cat dog"),
        ("path,label,split\n1.jpg,cat,train\n1.jpg,cat,val\n2.jpg,x,val\n", "", "refused: --split-column"),
        (
            "path,label,fold\n1.jpg,cat,0\n2.jpg,dog,1\n",
            "split_column=fold split_values=train=0,val=1",
            "train:cat val:dog",
        ),
    ],
)
def test_classes_and_splits_of_tables(tmp_path: Path, text: str, options: str, expected: str):
    """A table labels the images of a folder, and is a list of them if it names each by a whole name."""
    folder = make_folder(
        tmp_path / "data",
        {n: 0 for n in ("1.jpg", "2.jpg", "a b.jpg", "#0.jpg") if n in text or n[1:] == ".jpg"},
    )
    table = folder / "t.csv"
    table.write_text(text, newline="")
    assert read_labels(folder, options, labels=table) == expected
    if "1.jpg" in text and not any(word in text for word in ("9.jpg", "ghost", "3.jpg", "C:", "#x")):
        assert sorted(read_labels(table, options).split()) == sorted(expected.split())


@pytest.mark.parametrize(
    ("folder", "paths", "expected"),
    [
        ("Train", "/x/train/1.jpg val/1.jpg", "0"),
        ("train", "val/1.jpg", "refused: --image-column"),
        ("new", "train/1.jpg val/1.jpg", "refused: --data"),
        ("new", "HERE/other/1.jpg", "refused: --image-column"),
        ("new", "/elsewhere/1.jpg", "0"),
        ("link", "HERE/new/1.jpg", "0"),
    ],
)
def test_longer_paths_are_of_the_folder_unless_they_are_other_images(
    tmp_path: Path, folder: str, paths: str, expected: str
):
    make_folder(tmp_path / folder.replace("link", "new"), "1.jpg")
    make_folder(tmp_path / "other", "1.jpg")
    if folder == "link":
        (tmp_path / folder).symlink_to(tmp_path / "new", target_is_directory=True)
    rows = [f"{path},{number}" for number, path in enumerate(paths.replace("HERE", str(tmp_path)).split())]
    (tmp_path / "t.csv").write_text("\n".join(["path,label", *rows]))
    assert read_labels(tmp_path / folder, labels=tmp_path / "t.csv") == expected


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("image,split\na/1.jpg,train\nb/2.jpg,test\n", "", "train:a test:b"),
        ("image,split,id\na/1.jpg,train,7\nb/2.jpg,test,8\n", "class_column=none", "train:a test:b"),
        ("a/1.jpg\n", "", "refused: --class-column"),
        ("a/1.jpg\n", "class_column=none", "a"),
        ("image,label\na/1.jpg,x\ntrain/1.jpg,x\nval/1.jpg,y\n", "", "refused: --split-folders"),
        ("image,label\na/1.jpg,x\ntrain/1.jpg,x\nval/1.jpg,y\n", "split_folders=none", "x x y"),
    ],
)
def test_table_has_only_the_splits_or_the_classes_of_folders(tmp_path, text, options, expected):
    names = "a/1.jpg b/2.jpg" + " train/1.jpg val/1.jpg" * ("train/" in text)
    (tmp_path / "t.csv").write_text(text)
    assert read_labels(make_folder(tmp_path / "data", names), options, labels=tmp_path / "t.csv") == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_table_in_any_encoding_names_its_columns_and_what_is_left_out(tmp_path: Path, encoding: str):
    folder = make_folder(tmp_path / "data", "a/1.jpg b/2.jpg c/3.jpg")
    text = "filename,label,age\na/1.jpg,cat,5\n2.jpg,dog,6\n9.jpg,emu,7\n"
    (tmp_path / "t.csv").write_text(text, encoding=encoding)
    images = open_images(folder, options=LabelOptions(labels=tmp_path / "t.csv"))
    assert class_names(images) == ["cat", "dog"]
    assert all(word in images.reading for word in ("filename", "label", "age", "a/1.jpg"))
    assert [note[0] for note in images.notes] == ["1", "1"]
    assert "9.jpg" in images.notes[1]


@pytest.mark.parametrize(
    "text", ["path,label\n9.jpg,cat\n", "path,label\n1.jpg,cat\n", "", "a/1.jpg\nb/1.jpg\n"]
)
def test_table_without_these_images_or_classes_raises(tmp_path: Path, text: str):
    folder = make_folder(tmp_path / "data", "a/1.jpg b/1.jpg")
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ImageError):
        open_images(folder, options=LabelOptions(labels=tmp_path / "t.csv"))


@pytest.mark.parametrize(
    "text",
    [
        "image,dx,age\n1.jpg,cat,3\n2.jpg,dog,4\n",
        "image,label\n1.jpg,cat\n2.jpg,dog\n1.jpg,emu\n",
        "path label\n1.jpg cat\n2.jpg\n",
        "1.jpg golden retriever\n2.jpg dog\n",
    ],
)
def test_list_with_unclear_classes_opens_where_no_classes_are_used(tmp_path: Path, text: str):
    make_folder(tmp_path, "1.jpg 2.jpg")
    (tmp_path / "list.csv").write_text(text)
    assert read_labels(tmp_path / "list.csv").startswith("refused: --")
    assert open_images(tmp_path / "list.csv").names == ("1.jpg", "2.jpg")
