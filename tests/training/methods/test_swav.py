from dataclasses import replace

import torch

from tests.training.methods.tiny import build, random_batch, step
from training import losses
from training.methods.head import HeadConfig
from training.methods.swav_config import SwAVConfig

HEAD = HeadConfig(20, layers=2, hidden=32, bottleneck=16, batch_norm=True, activation="relu")
SWAV = SwAVConfig(HEAD)


def test_swav_prototypes_train_at_length_one_after_freezing():
    swav = build(SWAV)  # one frozen epoch of three steps
    start = swav.prototypes.detach().clone()
    torch.testing.assert_close(start.norm(dim=-1), torch.ones(20))
    step(swav, random_batch(), 2)
    torch.testing.assert_close(swav.prototypes.detach(), start)
    step(swav, random_batch(), 3)
    assert (swav.prototypes - start).abs().max() > 1e-3
    torch.testing.assert_close(swav.prototypes.detach().norm(dim=-1), torch.ones(20))


def test_swav_queue_is_used_once_it_is_full():
    swav = build(replace(SWAV, queue=8, queue_start_epoch=1))
    scores = losses.unit(torch.randn(2, 4, 16)) @ swav.prototypes.T.detach()
    alone = losses.sinkhorn_knopp(scores, 0.05, 3)
    for number, seen in enumerate((0, 0, 0, 0, 4)):
        assert swav.queue.total == seen
        torch.testing.assert_close(swav.codes(scores), alone)
        step(swav, random_batch(step=number), number, lr=0.0)
    together = swav.codes(scores)
    assert together.shape == alone.shape
    assert (together - alone).abs().max() > 1e-3
    torch.testing.assert_close(together.sum(-1), torch.ones(2, 4))
