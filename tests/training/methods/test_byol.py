import torch
import torch.nn.functional as F

from tests.training.methods.tiny import build, random_batch, state
from training import losses
from training.methods.byol_config import BYOLConfig
from training.methods.head import HeadConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, batch_norm=True, activation="relu")
BYOL = BYOLConfig(HEAD, predictor=24, teacher_momentum=0.9)


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


def test_byol_forward_changes_no_state_and_after_step_moves_the_weights_of_the_teacher_only():
    byol = build(BYOL)
    before = state(byol)
    loss = byol(random_batch(), 0)
    torch.testing.assert_close(state(byol), before, rtol=0, atol=0)
    own = {name: tensor.clone() for name, tensor in byol.teacher.named_buffers()}
    assert any(not torch.equal(tensor, byol.student.get_buffer(name)) for name, tensor in own.items())
    with torch.no_grad():
        for parameter in byol.student.parameters():
            parameter += 1.0
    momentum = byol.schedules.teacher_momentum[3]
    assert 0.9 < momentum < 1
    byol.after_step(3, [loss.carry])
    for name, parameter in byol.teacher.named_parameters():
        expected = (before[f"teacher.{name}"] + (1 - momentum)).float()
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(dict(byol.teacher.named_buffers()), own, rtol=0, atol=0)
