"""ImageNet's own tars: a tar of tars to learn from, a flat one to test on, and the kit that names classes."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tests.training.evaluation.pictures import write_pictures
from training.evaluation.datasets import IMAGENET_KIT as KIT
from training.evaluation.datasets import IMAGENET_TRAIN as TRAIN
from training.evaluation.datasets import IMAGENET_VAL as VAL
from training.evaluation.datasets import open_split


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Two classes of three pictures, and three validation pictures of the classes 2, 1, 2."""
    pictures = write_pictures(tmp_path / "pictures", {"n01": 3, "n02": 3})
    folder = tmp_path / "imagenet"
    folder.mkdir()
    with tarfile.open(folder / TRAIN, "w") as outer:
        for name in ("n02", "n01"):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for file in sorted((pictures / name).iterdir()):
                    tar.add(file, f"{name}_{file.name}")
            member = tarfile.TarInfo(f"{name}.tar")
            member.size = len(inner.getvalue())
            inner.seek(0)
            outer.addfile(member, inner)
    val = write_pictures(tmp_path / "val", {"x": 3}, shade=100)
    with tarfile.open(folder / VAL, "w") as tar:
        for number, file in enumerate(sorted((val / "x").iterdir()), 1):
            tar.add(file, f"ILSVRC2012_val_{number:08}.png")
    data = tmp_path / KIT / "data"
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("2\n1\n2\n")
    synsets = np.array([(1, "n01"), (2, "n02")], dtype=[("ILSVRC2012_ID", "i4"), ("WNID", "O")])
    savemat(data / "meta.mat", {"synsets": synsets})
    with tarfile.open(folder / f"{KIT}.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / KIT, KIT)
    return folder


def test_open_split_reads_imagenet_tars(published: Path, tmp_path: Path):
    split = open_split(published)
    assert split.classes == ("n01", "n02")
    assert split.labels(split.train).tolist() == [0, 0, 0, 1, 1, 1]
    assert split.labels(split.test).tolist() == [1, 0, 1]
    assert split.train.names[4] == "n02/n02_001.png"
    assert split.train.read_bytes(4) == (tmp_path / "pictures" / "n02" / "001.png").read_bytes()


def test_open_split_names_missing_imagenet_file(published: Path):
    (published / f"{KIT}.tar.gz").unlink()
    with pytest.raises(ValueError, match=r"devkit_t12\.tar\.gz is missing.* from https://image-net\.org"):
        open_split(published)
    (published / VAL).unlink()
    with pytest.raises(ValueError, match=r"ILSVRC2012_img_val\.tar is missing"):
        open_split(published)
