import pytest
import torch

from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, changed, random_batch, state
from training import losses
from training.methods.configs import BYOLConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, batch_norm=True, activation="relu")
CONFIG = BYOLConfig(HEAD, predictor=24, teacher_momentum=0.9)


@pytest.mark.parametrize("local", [0, 3])
def test_byol_loss_equals_the_formula(local):
    byol, batch = build(CONFIG), random_batch(local=local)
    loss, logs, _ = byol(batch, 0)
    with torch.no_grad():
        projections = byol.teacher(batch.crops.views)
        predictions = byol.student(*batch.crops, randomness=batch.randomness)

    def distance(a, b):
        return (a / a.norm(dim=-1, keepdim=True) - b / b.norm(dim=-1, keepdim=True)).square().sum(-1).mean()

    pairs = [distance(predictions[v], projections[g]) for g in range(2) for v in range(2 + local) if v != g]
    torch.testing.assert_close(loss, 2 * torch.stack(pairs).mean())
    torch.testing.assert_close(logs["spread"], losses.spread(projections))


def test_byol_forward_changes_no_state_and_after_step_moves_teacher():
    byol = build(CONFIG)
    before = state(byol)
    loss = byol(random_batch(), 0)
    assert not changed(before, byol)
    with torch.no_grad():
        for parameter in byol.student.parameters():
            parameter += 1.0
    momentum = byol.schedules.teacher_momentum[3]
    assert 0.9 < momentum < 1
    byol.after_step(3, [loss.carry])
    for name, parameter in byol.teacher.named_parameters():
        expected = before[f"teacher.{name}"] + (1 - momentum)
        torch.testing.assert_close(parameter.detach(), expected.float(), atol=1e-5, rtol=0)
