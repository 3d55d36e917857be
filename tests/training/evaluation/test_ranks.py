"""Evaluations by two processes of gloo give the results of one process."""

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from dino_model.data import collection
from dino_model.models.load import load_model
from dino_model.runtime import ranks
from tests.commands import train
from tests.ports import free_port
from tests.training.ranks import Group
from tests.training.runs import noise

pytestmark = pytest.mark.slow

COMMANDS = {
    "knn": "knn --k 1 5",
    "linear": "linear --epochs 3 --batch 8 --rates 0.1 0.5 1",
    "augmented": "linear --augment --epochs 1 --batch 7 --rates 0.1 1",
    "logistic": "logistic --shares 3 100% --seeds 2",
    "finetune": "finetune --epochs 1 --batch 7 --rate 0.001",
    "copies": "copy-detection synthetic --copies 3",
}
EXACT = ("knn", "linear", "logistic", "copies")
"""Evaluations of fixed features, which are extracted one by one: batches of other sizes round otherwise."""


def words_of(name: str, images: Path, folder: Path) -> list[str]:
    words = [*COMMANDS[name].split(), "--size", "32", "--model", "random:embedded", "--precision", "fp32"]
    words += ["--batch-size", "1"] if name in EXACT else []
    words += ["--device", "cpu", "--json", str(folder / f"{name}.json"), "--data", str(images)]
    return [*words, "--output", str(folder / "tuned")] if name == "finetune" else words


def evaluate_all(images: Path, folder: Path, ports: list[str]) -> int:
    """The processes meet anew for each command, at a port of its own. The first one lists the images."""
    codes, index = [], collection._index

    def index_on_first(*arguments: object) -> collection.Images:
        assert ranks.rank() == 0
        return index(*arguments)

    with patch.object(collection, "_index", index_on_first):
        for name, port in zip(COMMANDS, ports, strict=True):
            os.environ["MASTER_PORT"] = port
            codes.append(train(["evaluate", *words_of(name, images, folder)]))
    return max(codes)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders with the results of one process and of two."""
    images = noise(tmp_path_factory.mktemp("images"), 61, 3, 24, 24)
    single, shared = tmp_path_factory.mktemp("single"), tmp_path_factory.mktemp("shared")
    ports = [str(free_port()) for _ in COMMANDS]
    group = Group(shared / "group", *[(evaluate_all, images, shared, ports)] * 2)
    evaluate_all(images, single, ports)
    assert group.codes() == [0, 0], group.printed(0)
    return single, shared


@pytest.mark.parametrize("name", COMMANDS)
def test_evaluation_by_two_processes_gives_results_of_one(name: str, results: tuple[Path, Path]):
    single, shared = (json.loads((folder / f"{name}.json").read_text()) for folder in results)
    (expected,), (found,) = single["results"], shared["results"]
    rows = (entry.get("each", [entry["metrics"]]) for entry in (expected, found))
    for one, other in zip(*rows, strict=True):
        assert one.pop("labels", None) == other.pop("labels", None)
        ignored = {"gradient": 0.0} if "gradient" in one else {}  # of a fit: it ends in rounding
        assert other | ignored == pytest.approx(one | ignored, rel=0 if name in EXACT else 1e-4, abs=0)
    for one, other in zip(expected.get("grid", []), found.get("grid", []), strict=True):
        assert other == pytest.approx(one, rel=0 if name in EXACT else 1e-4, abs=0)


def test_finetune_by_two_processes_gives_weights_of_one(results: tuple[Path, Path]):
    before = load_model("random:embedded").backbone.state_dict()
    files = (next((folder / "tuned").glob("*.safetensors")) for folder in results)
    single, shared = (load_model(str(file)).backbone.state_dict() for file in files)
    moved = max(float((single[name] - before[name]).abs().max()) for name in before)
    for name, weights in single.items():
        torch.testing.assert_close(shared[name], weights, rtol=0, atol=moved / 100)
