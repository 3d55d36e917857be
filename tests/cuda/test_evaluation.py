"""Evaluation, features and masks on a CUDA device without a GPU: no mixed devices, few waits."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segmentation.labels import write_mask_png
from tests.cuda import cases
from tests.training.runs import write_rectangles

pytestmark = pytest.mark.slow
MATRIX = pytest.mark.cuda_matrix
VIT, EMBEDDED = "--model random:vit_tiny/16 --size 64", "--model random:embedded --size 32"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """Rectangles in three classes, 22 images."""
    return write_rectangles(tmp_path / "shapes", {"a": 10, "b": 5, "c": 7})


def of_file(counts: dict[str, int], file: str) -> Counter[str]:
    """Counts of the lines of a file, by what was done there."""
    found = Counter()
    for line, count in counts.items():
        if f" at {file}:" in line:
            found[line.partition(" at ")[0]] += count
    return found


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=MATRIX), "fp16"])
def test_fine_tuning_waits_once_per_epoch(on_cuda, shapes, tmp_path, precision):
    words = f"evaluate finetune --data {shapes} {EMBEDDED} --epochs 1 --batch 8 --output {tmp_path / 'out'}"
    waits, pageable = on_cuda(cases.run_command, "training", *words.split(), "--precision", precision)
    reads = of_file(waits, "training/evaluation/finetune.py")
    # The loss is read once, and with fp16 the two numbers of the loss scale.
    assert reads["_local_scalar_dense"] == (3 if precision == "fp16" else 1)
    copying_lines = [line for line in pageable if "training/evaluation/finetune.py" in line]
    assert len(copying_lines) == 1  # that of the network, at the start
    assert not reads["copy to the device"]


@pytest.mark.parametrize("frames", [3, 7])
def test_propagation_waits_for_the_labels_of_a_frame(on_cuda, frames):
    waits, _ = on_cuda(cases.propagate, frames)
    # Of every frame the features are checked, and the labels copied; the first labels come from the host.
    expected = {"_local_scalar_dense": frames, "copy to the host": frames - 1, "synchronization": 1}
    files = ("segmentation/propagation.py", "segmentation/tracking.py")
    assert sum((of_file(waits, file) for file in files), Counter()) == expected


def test_memory_of_throughput_is_that_of_a_pass(on_cuda):
    assert on_cuda(cases.throughput_memory) == 1000 - 700


@MATRIX
def test_probe_runs(on_cuda):
    on_cuda(cases.probe)


@MATRIX
@pytest.mark.parametrize(
    "words",
    [
        f"training evaluate knn --data SHAPES {EMBEDDED} --k 5",
        f"training evaluate linear --data SHAPES {EMBEDDED} --epochs 2",
        f"training evaluate linear --data SHAPES {EMBEDDED} --epochs 2 --augment",
        f"training evaluate logistic --data SHAPES {EMBEDDED}",
        f"training evaluate copy-detection synthetic --data SHAPES {EMBEDDED}",
        f"dino_model embed --data SHAPES {EMBEDDED} --output OUT.npz",
        f"dino_model embed --data SHAPES {EMBEDDED} --output OUT.npz --tokens all",
        f"segmentation discover PHOTOS/images {VIT} --output OUT",
        f"segmentation attention PHOTOS/images {VIT} --output OUT",
        f"segmentation head fit --images PHOTOS/images --masks PHOTOS/masks {VIT} --output OUT.safetensors",
    ],
)
def test_command_runs(on_cuda, shapes, tmp_path, words):
    photos, labels = tmp_path / "photos", np.zeros((96, 128), np.uint8)
    labels[:, :64] = 1
    for folder in ("images", "masks"):
        (photos / folder).mkdir(parents=True)
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 128, 3), np.uint8)
        Image.fromarray(pixels).save(photos / "images" / f"{number}.png")
        write_mask_png(photos / "masks" / f"{number}.png", labels)
    places = {"SHAPES": shapes, "PHOTOS": photos, "OUT": tmp_path / "out"}
    for name, path in places.items():
        words = words.replace(name, str(path))
    on_cuda(cases.run_command, *words.split())
