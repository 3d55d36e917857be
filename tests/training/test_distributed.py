"""What ranks do together, with processes of gloo on the CPU: as one process would."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.collections import open_images
from dino_model.features import FeatureExtractor
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.views import View
from dino_model.weights import LoadedModel
from tests.training.pictures import noise

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]


PART = """
import pickle, sys, torch, torch.distributed as dist
from dino_model import ranks
from tests.training.test_distributed import features_of
number, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
asked, sent = [], []
def squares(numbers):
    asked.append(list(numbers))
    if 9 in numbers:
        raise ValueError("no square of nine")
    return torch.tensor([[n * n] for n in numbers])
gathered_rows = [ranks.gather_rows(squares, range(5)), ranks.gather_rows(squares, range(5, 6))]
nothing = ranks.gather_rows(lambda numbers: None, range(4))
try:
    ranks.gather_rows(squares, range(6, 10))
except ValueError as error:
    refused = str(error)
large = torch.ones(1024, 384)  # a feature is a row of its batch
into, objects = dist.all_gather_into_tensor, dist.all_gather_object
dist.all_gather_into_tensor = lambda out, own: (sent.append(own.numel() * own.itemsize), into(out, own))[1]
dist.all_gather_object = lambda out, own: (sent.append(len(pickle.dumps(own))), objects(out, own))[1]
ranks.gather_rows(lambda numbers: large[: len(numbers)], range(2048))
dist.all_gather_into_tensor, dist.all_gather_object = into, objects
torch.save({
    "asked": asked, "rows": gathered_rows, "refused": refused, "features": features_of(folder + "/pictures"),
    "nothing": nothing, "sent": sum(sent),
}, f"{folder}/{number}.pt")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory):
    """Results of each of two ranks, and the folder of their pictures."""
    folder = tmp_path_factory.mktemp("ranks")
    pictures = noise(folder / "pictures", 7, 2, 20, 20)
    (pictures / "class0" / "0.png").write_bytes(b"broken")
    started = [
        subprocess.Popen([sys.executable, "-c", PART, str(number), str(folder)], cwd=REPOSITORY)
        for number in (0, 1)
    ]
    assert [process.wait(timeout=200) for process in started] == [0, 0]
    return [torch.load(folder / f"{number}.pt", weights_only=True) for number in (0, 1)], pictures


def features_of(pictures):
    """Of a small ViT."""
    torch.manual_seed(0)
    vit = create_backbone(BackboneConfig("vit_tiny", 8, 16, width=12, depth=2, heads=2))
    model = LoadedModel("small", vit, IMAGENET_MEAN, IMAGENET_STD, "a test", None)
    extracted = FeatureExtractor(
        model, View(16, IMAGENET_MEAN, IMAGENET_STD), precision="fp32", device="cpu"
    ).extract(open_images(pictures))
    return list(extracted.images.names), extracted.features, extracted.broken


def test_gather_rows_computes_shares_and_gives_all_rows_to_all_ranks(together):
    parts = together[0]
    assert [part["asked"] for part in parts] == [[[0, 1], [6, 7]], [[2, 3, 4], [5], [8, 9]]]
    for part in parts:
        assert [rows[:, 0].tolist() for rows in part["rows"]] == [[0, 1, 4, 9, 16], [25]]
        assert part["nothing"] is None
        assert part["refused"] == "no square of nine"


def test_gather_rows_sends_each_feature_once(together):
    """1,024 rows of 384 figures are 1.6 MB; pickled as views of their batches they were 101 MB."""
    for part in together[0]:
        assert part["sent"] < 1024 * 384 * 4 + 10_000


def test_features_of_two_ranks_equal_those_of_one(together):
    names, features, broken = features_of(together[1])
    assert len(names) == 6
    for part in together[0]:
        found = part["features"]
        assert (found[0], found[2]) == (names, broken)
        torch.testing.assert_close(found[1], features)
