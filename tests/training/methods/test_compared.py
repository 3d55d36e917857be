"""The methods that DINO is compared with: BYOL, MoCo-v2 and SwAV."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, random_batch, state, step
from training import losses
from training.methods.configs import BYOLConfig, MoCoConfig, SwAVConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, batch_norm=True, activation="relu")
BYOL = BYOLConfig(HEAD, predictor=24, teacher_momentum=0.9)
MOCO = MoCoConfig(replace(HEAD, batch_norm=False), queue=12, teacher_momentum=0.9)
SWAV = SwAVConfig(replace(HEAD, prototypes=20, bottleneck=16))


def test_byol_loss_equals_the_formula():
    byol, batch = build(BYOL), random_batch()
    loss, logs, _ = byol(batch, 0)
    with torch.no_grad():
        projections = byol.teacher(batch.crops.views)
        predictions = byol.student(*batch.crops, randomness=batch.randomness)
    student, teacher = F.normalize(predictions, dim=-1), F.normalize(projections, dim=-1)
    pairs = [student[v] - teacher[g] for g in range(2) for v in range(5) if v != g]
    torch.testing.assert_close(loss, 2 * torch.stack(pairs).square().sum(-1).mean())
    torch.testing.assert_close(logs["spread"], losses.spread(projections))


def test_byol_forward_changes_no_state_and_after_step_moves_teacher():
    byol = build(BYOL)
    before = state(byol)
    loss = byol(random_batch(), 0)
    torch.testing.assert_close(state(byol), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in byol.student.parameters():
            parameter += 1.0
    momentum = byol.schedules.teacher_momentum[3]
    assert 0.9 < momentum < 1
    byol.after_step(3, [loss.carry])
    for name, parameter in byol.teacher.named_parameters():
        expected = (before[f"teacher.{name}"] + (1 - momentum)).float()
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-5, rtol=0)


def test_moco_loss_with_local_crops_equals_the_formula():
    moco, batch = build(MOCO), random_batch()
    loss = moco(batch, 0).value
    with torch.no_grad():
        keys = F.normalize(moco.teacher(batch.crops.views[1:2])[0], dim=-1)
        queries = moco.student(batch.crops.views[:1], batch.crops.locals, randomness=batch.randomness)
    queries = F.normalize(queries, dim=-1)  # [4, batch, width]
    logits = torch.cat([(queries * keys).sum(-1, keepdim=True), queries @ moco.queue.vectors.T], dim=-1)
    expected = F.cross_entropy(logits.flatten(0, 1) / 0.2, torch.zeros(16, dtype=torch.long))
    torch.testing.assert_close(loss, expected)


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
        assert swav.queue.seen == seen
        torch.testing.assert_close(swav.codes(scores), alone)
        step(swav, random_batch(step=number), number, lr=0.0)
    together = swav.codes(scores)
    assert together.shape == alone.shape
    assert (together - alone).abs().max() > 1e-3
    torch.testing.assert_close(together.sum(-1), torch.ones(2, 4))
