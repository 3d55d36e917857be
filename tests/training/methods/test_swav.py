import math

import pytest
import torch

from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, changed, losses_of, random_batch, state, step
from training import losses
from training.methods.configs import SwAVConfig
from training.methods.swav import SwAV

HEAD = HeadConfig(20, layers=2, hidden=32, bottleneck=16, batch_norm=True, activation="relu")
CONFIG = SwAVConfig(HEAD)


def test_its_defaults_are_the_papers():
    config = SwAVConfig()
    head = config.head
    assert (head.layers, head.hidden, head.prototypes, head.bottleneck) == (2, 2048, 3000, 128)
    assert (head.batch_norm, head.activation) == (True, "relu")
    assert (config.temperature, config.epsilon, config.sinkhorn_iterations) == (0.1, 0.05, 3)


@pytest.mark.parametrize("local", [0, 3])
def test_the_loss_swaps_codes_and_predictions(local):
    swav, batch = build(CONFIG), random_batch(local=local)
    loss = swav(batch, 0)
    with torch.no_grad():
        embeddings = losses.unit(swav.student(*batch.crops, randomness=batch.randomness))
        scores = embeddings @ swav.prototypes.T
        codes = torch.stack([losses.sinkhorn_knopp(view, 0.05, 3) for view in scores[:2]])
        pairs = [
            -(codes[g] * (scores[v] / 0.1).log_softmax(-1)).sum(-1).mean()
            for g in range(2)
            for v in range(2 + local)
            if v != g
        ]
    torch.testing.assert_close(loss.value, torch.stack(pairs).mean())
    torch.testing.assert_close(loss.value.detach(), loss.logs["code_entropy"] + loss.logs["kl"])
    assert loss.logs["ln_k"].item() == pytest.approx(math.log(20))


def test_a_loss_changes_nothing_and_no_gradient_goes_through_the_codes():
    swav, batch = build(CONFIG), random_batch()
    before = state(swav)
    loss = swav(batch, 0)
    assert not changed(before, swav)
    assert not swav.codes(torch.randn(2, 4, 20, requires_grad=True)).requires_grad
    loss.value.backward()
    assert all(p.grad is not None for p in swav.parameters())


def test_prototypes_are_trained_at_length_one_once_they_are_thawed():
    swav = build(CONFIG)  # one frozen epoch of three steps
    start = swav.prototypes.detach().clone()
    torch.testing.assert_close(start.norm(dim=-1), torch.ones(20))
    step(swav, random_batch(), 2)
    torch.testing.assert_close(swav.prototypes.detach(), start)
    step(swav, random_batch(), 3)
    assert (swav.prototypes - start).abs().max() > 1e-3
    torch.testing.assert_close(swav.prototypes.detach().norm(dim=-1), torch.ones(20))


def test_the_queue_begins_with_its_epoch_and_is_used_once_it_is_full():
    swav = build(SwAVConfig(HEAD, queue=8, queue_start_epoch=1))
    scores = losses.unit(torch.randn(2, 4, 16)) @ swav.prototypes.T.detach()
    alone = losses.sinkhorn_knopp(scores, 0.05, 3)
    seen = []
    for number in range(6):
        seen.append(int(swav.queue.seen))
        torch.testing.assert_close(swav.codes(scores), alone) if seen[-1] < 8 else None
        step(swav, random_batch(step=number), number, lr=0.0)
    assert seen == [0, 0, 0, 0, 4, 8]
    together = swav.codes(scores)
    assert together.shape == alone.shape
    assert (together - alone).abs().max() > 1e-3
    torch.testing.assert_close(together.sum(-1), torch.ones(2, 4))


def test_the_queue_holds_both_views_of_a_picture_apart():
    swav = build(SwAVConfig(HEAD, queue=4, queue_start_epoch=0))
    embeddings = losses.unit(torch.randn(2, 4, 16))
    swav.after_step(0, [{"embeddings": embeddings[:, :2]}, {"embeddings": embeddings[:, 2:]}])
    scores = losses.unit(torch.randn(2, 4, 16)) @ swav.prototypes.T.detach()
    earlier = embeddings @ swav.prototypes.T.detach()
    expected = losses.sinkhorn_knopp(torch.cat([earlier, scores], 1), 0.05, 3)[:, 4:]
    torch.testing.assert_close(swav.codes(scores), expected)


def test_training_on_a_batch_lowers_the_loss():
    swav, batch = build(SwAVConfig(HEAD, freeze_last_layer_epochs=0)), random_batch()
    found = losses_of(swav, batch)
    assert found[-1] < 0.8 * found[0]


def test_prototypes_are_trained_beside_the_network():
    swav = build(CONFIG)
    trained = {id(p) for group in swav.parameter_groups() for p in group["params"]}
    assert id(swav.prototypes) in trained
    assert trained == {id(p) for p in swav.parameters()}
    assert list(swav.backbones()) == ["student"]


def test_collapse_is_named():
    line = {"code_entropy": 2.99, "ln_k": 3.0, "kl": 0.001}
    assert "collapse" in SwAV.diagnose(line)
    assert SwAV.diagnose(line | {"kl": 0.5}) is None
    assert SwAV.diagnose({}) is None


@pytest.mark.parametrize(
    ("config", "facts", "words"),
    [
        (CONFIG, {"accumulate": 2}, "whole batch at once: leave out --accumulate 2"),
        (CONFIG, {"views": 1}, "--global-crops is 1"),
        (SwAVConfig(HEAD, queue=10), {}, "--queue is 10, no multiple of the batch of 4: choose 8 or 12"),
    ],
)
def test_what_it_cannot_train_on_is_refused(config, facts, words):
    facts = {"accumulate": 1, "views": 2, "local_crops": 0, "classes": 0} | facts
    with pytest.raises(SettingError, match=words):
        config.check(4, **facts)


def test_a_queue_that_never_begins_is_refused():
    config = SwAVConfig(HEAD, queue=8, queue_start_epoch=15)
    with pytest.raises(SettingError, match="--queue-start-epoch is 15, but training ends after 15 epochs"):
        config.schedules(15, 10)
    assert config.schedules(16, 10).queue_step == 150
    assert SwAVConfig(HEAD, queue=0).schedules(15, 10).frozen_steps == 10


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0}, "--temperature is 0"),
        ({"epsilon": float("nan")}, "--epsilon is nan"),
        ({"sinkhorn_iterations": 0}, "--sinkhorn-iterations is 0"),
        ({"head": HeadConfig(20, bottleneck=None)}, "--bottleneck"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(SettingError, match=words):
        SwAVConfig(**settings)
