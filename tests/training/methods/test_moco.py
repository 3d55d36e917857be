import pytest
import torch
import torch.nn.functional as F

from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, random_batch, state
from training.methods.configs import MoCoConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, activation="relu")
CONFIG = MoCoConfig(HEAD, queue=12, teacher_momentum=0.9)


@pytest.mark.parametrize("local", [0, 3])
def test_the_loss_tells_each_pictures_key_from_the_queue(local):
    moco, batch = build(CONFIG), random_batch(local=local)
    loss = moco(batch, 0).value
    with torch.no_grad():
        keys = F.normalize(moco.teacher(batch.crops.views[1:2])[0], dim=-1)
        queries = moco.student(batch.crops.views[:1], batch.crops.locals, randomness=batch.randomness)
        costs = []
        for query in F.normalize(queries, dim=-1):
            logits = torch.cat([(query * keys).sum(-1, keepdim=True), query @ moco.queue.vectors.T], 1)
            costs.append(F.cross_entropy(logits / 0.2, torch.zeros(4, dtype=torch.long)))
    assert len(costs) == 1 + local
    torch.testing.assert_close(loss, torch.stack(costs).mean())


def test_momentum_is_constant_and_the_teacher_follows_by_it():
    moco = build(CONFIG)
    assert set(moco.schedules.teacher_momentum.tolist()) == {0.9}
    before = state(moco)
    with torch.no_grad():
        for parameter in moco.student.parameters():
            parameter += 1.0
    moco.after_step(0, [{"keys": torch.zeros(4, 16)}])
    for name, parameter in moco.teacher.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[f"teacher.{name}"] + 0.1, atol=1e-5, rtol=0)
