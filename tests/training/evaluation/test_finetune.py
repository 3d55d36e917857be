"""Fine-tuning: its rates, the file it writes, and resuming after an interruption."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.amp import GradScaler

from dino_model.models.load import load_model
from training.augmentation.randomness import mix
from training.evaluation import finetune as protocol
from training.evaluation.finetune import RECIPES, FinetuneRecipe, learning_rate, output_file
from training.evaluation.options import Finetune
from training.evaluation.run import random_view

TINY = ("--model", "random:embedded", "--size", 32)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of the only network in a folder."""
    (file,) = folder.glob("*.safetensors")
    return load_model(str(file)).backbone.state_dict()


def test_learning_rate_warms_up_and_falls_to_zero():
    recipe = FinetuneRecipe(epochs=100, batch=2, rate=1.0)
    assert [learning_rate(recipe, epoch) for epoch in (0, 2.5, 5, 100)] == [0, 0.5, 1, 0]
    assert learning_rate(recipe, 52.5) == pytest.approx(0.5)
    assert learning_rate(FinetuneRecipe(4, 2, 1.0), 2) == 1  # warm-up of half the epochs at most
    rates = {name: (recipe.rate, recipe.batch, recipe.epochs) for name, recipe in RECIPES.items()}
    assert rates["imagenet"] == (5e-4, 1024, 300)
    assert rates["own"] == (1e-4, 64, 50)
    assert rates["inat18"] == rates["inat19"] == (5e-5 * 1024 / 512, 1024, 300)
    assert rates["cifar10"] == rates["flowers"] == rates["cars"] == (7.5e-6, 768, 1000)
    assert rates["cifar100"] == (5e-6, 768, 1000)


def test_finetune_after_interruption_gives_same_weights(shapes, tmp_path: Path, evaluate, monkeypatch):
    words = ("finetune", "--data", shapes, *TINY, "--epochs", 3, "--batch", 8)
    (result,) = evaluate(*words, "--output", tmp_path / "one", "--rate", 0.001)["results"]
    assert result["network"] == str(tmp_path / "one" / "random_embedded-on-shapes.safetensors")
    changed, before = weights(tmp_path / "one"), load_model("random:embedded").backbone.state_dict()
    assert not torch.equal(changed["blocks.0.attn.qkv.weight"], before["blocks.0.attn.qkv.weight"])

    seeds, batches = [], protocol._batches

    def interrupted(*arguments):
        seeds.append(arguments[-1])
        if len(seeds) == 2:
            raise KeyboardInterrupt
        return batches(*arguments)

    monkeypatch.setattr(protocol, "_batches", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(*words, "--output", tmp_path / "two", "--rate", 0.001)
    resumed = (*words, "--output", tmp_path / "two", "--resume", "--rate")
    (result,) = evaluate(*resumed, 0.001)["results"]
    assert seeds == [mix(0, epoch) for epoch in (0, 1, 1, 2)]
    assert {path.suffix for path in (tmp_path / "two").iterdir()} == {".safetensors", ".json", ".jsonl"}
    for name, tensor in weights(tmp_path / "two").items():
        torch.testing.assert_close(tensor, changed[name], rtol=0, atol=1e-4)
    assert evaluate(*resumed, 0.001)["results"] == [result]
    assert len(seeds) == 4, "a finished network is not trained again"


def test_finetune_in_half_precision_changes_weights_as_in_fp32(shapes, tmp_path: Path, evaluate):
    """One epoch of nine steps: with casts kept from the first step, later steps train on stale weights."""
    words = ("finetune", "--data", shapes, *TINY, "--epochs", 1, "--batch", 2, "--rate", 0.001)
    before, changes = load_model("random:embedded").backbone.state_dict(), []
    for precision in ("fp32", "bf16", "fp16"):
        evaluate(*words, "--precision", precision, "--output", tmp_path / precision)
        after = weights(tmp_path / precision)
        changes.append(torch.cat([(after[name] - tensor).flatten() for name, tensor in before.items()]))
    for change in changes[1:]:
        assert torch.cosine_similarity(changes[0], change, dim=0) > 0.9


def test_train_epoch_with_infinite_loss_raises(monkeypatch):
    mixups = []

    def mixup(*strengths, **options):
        mixups.append((*strengths, options["label_smoothing"]))
        return lambda images, labels: (images, torch.eye(2))

    monkeypatch.setattr(protocol, "Mixup", mixup)
    network = torch.nn.Linear(1, 2)
    optimizer, scaler = torch.optim.SGD(network.parameters()), GradScaler("cpu", enabled=False)
    batches = [(torch.full((2, 1), value), torch.arange(2), 1.0) for value in (0.0, torch.nan, 0.0)]
    with pytest.raises(ValueError, match="The loss is nan"):
        protocol._train_epoch(network, optimizer, scaler, batches, [0.0] * 3, 2, "fp32")
    assert mixups == [(0.8, 1.0, 0.1)]


@pytest.mark.parametrize(("batch", "parts"), [(7, [(0, 6), (7, 13), (14, 18)]), (17, [(0, 16)])])
def test_a_batch_of_one_process_has_its_plain_mean_loss(
    batch, parts, shapes, tmp_path: Path, evaluate, monkeypatch
):
    """Of 18 images. The last one of an odd batch is left out, and does not weaken the loss of the others."""
    batches, chosen, given, cut = [], [], [], protocol.random_batches

    def record(*arguments):
        given.extend((*arguments, np.random.random()))  # noqa: NPY002 (timm's mixup draws from it)
        batches.extend(arguments[3])

    monkeypatch.setattr(protocol, "_train_epoch", record)
    monkeypatch.setattr(protocol, "random_batches", lambda *part: chosen.extend(part[1]) or cut(*part))
    words = ("--epochs", 1, "--batch", batch, "--output", tmp_path / "out")
    evaluate("finetune", "--data", shapes, *TINY, *words)
    order = torch.randperm(18, generator=torch.Generator().manual_seed(mix(0, 0))).tolist()
    assert chosen == [order[first:last] for first, last in parts]
    assert [len(labels) for _, labels, _ in batches] == [last - first for first, last in parts]
    assert all(weight == 1 for *_, weight in batches)
    network, optimizer, rates, drawn = given[0], given[1], given[4], given[-1]
    assert drawn == np.random.RandomState(mix(0, 0) % 2**32).random()
    steps = -(-18 // batch)
    assert rates == [learning_rate(FinetuneRecipe(1, 7), (step + 1) / steps) for step in range(steps)]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, 0.05]
    assert float(network[1].weight.detach().std()) == pytest.approx(2e-5, rel=0.1)


def test_output_file_keeps_dots_of_names(tmp_path: Path):
    options = Finetune(data=tmp_path / "shapes", output=tmp_path)
    names = [output_file(options, name).name for name in ("runs/a.lr1", "runs/a.lr2", "b.pth")]
    assert names == [f"{stem}-on-shapes.safetensors" for stem in ("runs_a.lr1", "runs_a.lr2", "b")]


def test_random_views_have_8_to_100_percent_of_the_area_and_every_second_is_flipped():
    image = np.zeros((200, 200, 3), np.uint8)
    image[..., 0], image[..., 1] = np.linspace(0, 250, 200), np.linspace(0, 250, 200)[:, None]
    areas, ratios, flipped = [], [], []
    for seed in range(300):
        across, down, _ = random_view(image, 5, seed).float()
        width, height = (float(side[-1] - side[0]) / 4 * 5 / 250 for side in (across[2], down[:, 2]))
        areas.append(abs(width) * height)
        ratios.append(abs(width) / height)
        flipped.append(width < 0)
    assert (min(areas), np.mean(flipped)) == pytest.approx((0.08, 0.5), abs=0.02)
    assert 0.9 < max(areas) <= 1
    assert (min(ratios), max(ratios)) == pytest.approx((3 / 4, 4 / 3), abs=0.08)
    assert torch.equal(random_view(image, 32, 5), random_view(image, 32, 5))
