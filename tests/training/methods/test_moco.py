import pytest
import torch
import torch.nn.functional as F

from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, random_batch
from training.methods.configs import MoCoConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, activation="relu")
CONFIG = MoCoConfig(HEAD, queue=12, teacher_momentum=0.9)


@pytest.mark.parametrize("local", [0, 3])
def test_moco_loss_equals_the_formula(local):
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
