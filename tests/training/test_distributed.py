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
from training import losses
from training.distributed import all_mean, gather, rank, share, world

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]


def test_collectives_without_process_group_return_their_input():
    tensor = torch.rand(3)
    assert all(of(tensor) is tensor for of in (all_mean, gather))
    assert torch.equal(share(tensor), tensor)
    assert (rank(), world()) == (0, 1)


PART = """
import pickle, sys, torch, torch.distributed as dist
from dino_model import ranks
from tests.training.test_distributed import features_of
from training import losses
from training.distributed import all_mean, gather, rank, share, world
number, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
own = torch.tensor([1.0, 3.0 * number])
logits = torch.load(f"{folder}/logits.pt")[:, 4 * number : 4 * number + 4]  # of this rank's pictures
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
    "own": own, "mean": all_mean(own), "rank": rank(), "world": world(),
    "gathered": gather(logits.transpose(0, 1)),
    "share": share(torch.arange(5)),
    "assigned": losses.sinkhorn_knopp(logits, 0.05, 3),
}, f"{folder}/{number}.pt")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory):
    """Logits [views, pictures, K], and what each of two ranks made of its half of the pictures."""
    folder = tmp_path_factory.mktemp("ranks")
    logits = torch.randn(2, 8, 6)
    torch.save(logits, folder / "logits.pt")
    pictures = noise(folder / "pictures", 7, 2, 20, 20)
    (pictures / "class0" / "0.png").write_bytes(b"broken")
    started = [
        subprocess.Popen([sys.executable, "-c", PART, str(number), str(folder)], cwd=REPOSITORY)
        for number in (0, 1)
    ]
    assert [process.wait(timeout=200) for process in started] == [0, 0]
    return logits, [torch.load(folder / f"{number}.pt", weights_only=True) for number in (0, 1)], pictures


def test_all_mean_is_equal_on_all_ranks(together):
    for number, part in enumerate(together[1]):
        assert torch.equal(part["own"], torch.tensor([1.0, 3.0 * number]))  # left alone
        assert torch.equal(part["mean"], torch.tensor([1.0, 1.5]))
        assert (part["rank"], part["world"]) == (number, 2)


def test_gather_is_in_the_order_of_the_ranks(together):
    logits, parts, _ = together
    for part in parts:
        assert torch.equal(part["gathered"], logits.transpose(0, 1))


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
    parts = together[1]
    assert [part["asked"] for part in parts] == [[[0, 1], [6, 7]], [[2, 3, 4], [5], [8, 9]]]
    for part in parts:
        assert [rows[:, 0].tolist() for rows in part["rows"]] == [[0, 1, 4, 9, 16], [25]]
        assert part["nothing"] is None
        assert part["refused"] == "no square of nine"


def test_gather_rows_sends_each_feature_once(together):
    """1,024 rows of 384 figures are 1.6 MB; pickled as views of their batches they were 101 MB."""
    for part in together[1]:
        assert part["sent"] < 1024 * 384 * 4 + 10_000


def test_features_of_two_ranks_equal_those_of_one(together):
    names, features, broken = features_of(together[2])
    assert len(names) == 6
    for part in together[1]:
        found = part["features"]
        assert (found[0], found[2]) == (names, broken)
        torch.testing.assert_close(found[1], features)


def test_share_over_ranks_has_every_row_once(together):
    rows = torch.cat([part["share"] for part in together[1]])
    assert sorted(rows.tolist()) == [0, 1, 2, 3, 4]


def test_sinkhorn_over_ranks_balances_the_whole_batch(together):
    logits, parts, _ = together
    assigned = torch.cat([part["assigned"] for part in parts], dim=1)
    torch.testing.assert_close(assigned, losses.sinkhorn_knopp(logits, 0.05, 3))
