"""The commands of docs/inputs.md on imitations of the files of public data sets."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

GUIDE = Path(__file__).parents[3] / "docs" / "inputs.md"
WNIDS = ("n01440764", "n01443537")
COMMANDS = dict(re.findall(r"^\| ([\w ,-]+?) \| `(--data .*)` \|$", GUIDE.read_text(), flags=re.MULTILINE))


def save(path: Path, shade: int) -> None:
    """Write an image of its own, whose color is that of its class."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(abs(hash(str(path)))).integers(0, 30, (16, 16, 3))
    Image.fromarray((noise + 90 * shade).astype(np.uint8)).save(path, "JPEG")


def imagenet(root: Path) -> None:
    rows = ["ImageId,PredictionString"]
    for k, wnid in enumerate(WNIDS):
        for n in range(5):
            save(root / "CLS-LOC/train" / wnid / f"{wnid}_{n}.JPEG", k)
            save(root / "CLS-LOC/val" / f"ILSVRC2012_val_{k}{n}.JPEG", k)
            rows.append(f"ILSVRC2012_val_{k}{n},{wnid} 10 20 300 200 " + f"{wnid} 1 2 3 4 " * (n % 2))
    (root / "LOC_val_solution.csv").write_text("\n".join(rows))


def tiny_imagenet(root: Path) -> None:
    rows = []
    for k, wnid in enumerate(WNIDS):
        for n in range(5):
            save(root / "train" / wnid / "images" / f"{wnid}_{n}.JPEG", k)
            save(root / "val/images" / f"val_{k}{n}.JPEG", k)
            rows.append(f"val_{k}{n}.JPEG\t{wnid}\t0\t32\t44\t62")
    (root / "val/val_annotations.txt").write_text("\n".join(rows))


def pets(root: Path) -> None:
    (root / "annotations").mkdir()
    for part, numbers in (("trainval", range(5)), ("test", range(5, 8))):
        rows = [
            f"{name}_{n} {k + 1} 1 {k + 1}"
            for k, name in enumerate(("Abyssinian", "beagle"))
            for n in numbers
        ]
        (root / "annotations" / f"{part}.txt").write_text("\n".join(rows))
        for row in rows:
            save(root / "images" / f"{row.split()[0]}.jpg", int(row.split()[1]) - 1)


def cub(root: Path) -> None:
    names = [f"00{k + 1}.Bird_{k}/Bird_{k}_{n}.jpg" for k in range(2) for n in range(6)]
    for number, name in enumerate(names):
        save(root / "images" / name, number // 6)
    (root / "images.txt").write_text("".join(f"{n} {name}\n" for n, name in enumerate(names, 1)))
    (root / "train_test_split.txt").write_text("".join(f"{n} {int(n % 2)}\n" for n in range(1, 13)))
    (line,) = re.findall(r"^paste .*$", GUIDE.read_text(), flags=re.MULTILINE)
    subprocess.run(["bash", "-c", line], cwd=root, check=True)


def celeba(root: Path) -> None:
    for n in range(10):
        save(root / "img_align_celeba" / f"{n + 1:06d}.jpg", n % 2)
    rows = [f"{n + 1:06d}.jpg  {'1' if n % 2 else '-1'}  {'1' if n % 3 else '-1'}" for n in range(10)]
    (root / "list_attr_celeba.txt").write_text("\n".join(["10", "Bald Male", *rows]))


def ham10000(root: Path) -> None:
    rows = ["lesion_id,image_id,dx,dx_type,age,sex"]
    for n in range(12):
        save(root / f"HAM10000_images_part_{n % 2 + 1}" / f"ISIC_{n}.jpg", n % 2)
        rows.append(f"HAM_{n // 2},ISIC_{n},{('nv', 'mel')[n % 2]},histo,50,male")
    (root / "HAM10000_metadata.csv").write_text("\n".join(rows))


def isic(root: Path) -> None:
    for n in range(12):
        save(root / "ISIC_2019_Training_Input" / f"ISIC_{n}.jpg", n % 2)
    rows = [f"ISIC_{n},{float(n % 2 == 0)},{float(n % 2)},0.0" for n in range(12)]
    (root / "ISIC_2019_Training_GroundTruth.csv").write_text("\n".join(["image,MEL,NV,UNK", *rows]))


def intel(root: Path) -> None:
    for k, name in enumerate(("sea", "street")):
        for n in range(5):
            save(root / "seg_train/seg_train" / name / f"{n}.jpg", k)
            save(root / "seg_test/seg_test" / name / f"{10 + n}.jpg", k)


def mvtec(root: Path) -> None:
    for k, name in enumerate(("good", "broken_large")):
        for n in range(6):
            save(root / "bottle/test" / name / f"{n}.png", k)


def hugging_face(root: Path) -> None:
    rows = ["file_name,label"]
    for n in range(12):
        save(root / "train" / f"{n}.jpg", n % 2)
        rows.append(f"{n}.jpg,{('cat', 'dog')[n % 2]}")
    (root / "train" / "metadata.csv").write_text("\n".join(rows))


def in_shop(root: Path) -> None:
    rows = ["8", "image_name item_id evaluation_status"]
    for k in range(4):
        for n, status in enumerate(("query", *["gallery"] * 6) if k < 2 else ("train", "train")):
            name = f"img/id_{k}/{n}.jpg"
            save(root / name, k % 2)
            rows.append(f"{name} id_{k} {status}")
    (root / "list_eval_partition.txt").write_text("\n".join(rows))


def sop(root: Path) -> None:
    rows = ["image_id class_id super_class_id path"]
    for n in range(12):
        save(root / "bicycle_final" / f"{n}.JPG", n % 2)
        rows.append(f"{n + 1} {n % 2 + 11319} 1 bicycle_final/{n}.JPG")
    (root / "Ebay_test.txt").write_text("\n".join(rows))


@pytest.mark.parametrize(
    ("name", "make", "images", "classes"),
    [
        ("ImageNet, Kaggle", imagenet, (10, 10), 2),
        ("Tiny ImageNet", tiny_imagenet, (10, 10), 2),
        ("Oxford Pets", pets, (10, 6), 2),
        ("CUB", cub, (6, 6), 2),
        ("CelebA", celeba, (8, 2), 2),
        ("HAM10000", ham10000, (10, 2), 2),
        ("ISIC", isic, (10, 2), 2),
        ("Intel scenes", intel, (10, 10), 2),
        ("MVTec", mvtec, (10, 2), 2),
        ("Hugging Face", hugging_face, (10, 2), 2),
        ("In-Shop", in_shop, (12, 2), 2),
        ("SOP", sop, (12, 12), 2),
    ],
)
def test_command_of_the_guide_reads_the_data_set(
    tmp_path: Path, monkeypatch, evaluate, name, make, images, classes
):
    data = tmp_path / "set"
    data.mkdir()
    make(data)
    monkeypatch.chdir(data)
    words = ["knn", "--model", "pixels", "--size", "16", "--k", "1", *shlex.split(COMMANDS[name])]
    result = evaluate(*words)
    protocol = result["protocol"]
    assert protocol["classes"] == classes
    assert [int(number) for number in re.findall(r"(\d+) t\w+ images", protocol["split"])] == [
        images[1],
        images[0],
    ]
    assert protocol["reading"]
    if name in ("In-Shop", "SOP"):
        first, tenth = result["results"][0]["each"]
        assert (first["recall"], tenth["recall"]) == (first["top1"], 100)
