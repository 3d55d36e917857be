import torch
import torch.nn.functional as F

from tests.training.methods.tiny import build, random_batch
from training.methods.head import HeadConfig
from training.methods.moco_config import MoCoConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, activation="relu")
MOCO = MoCoConfig(HEAD, queue=12, teacher_momentum=0.9)


def test_moco_loss_with_local_crops_equals_the_formula():
    moco, batch = build(MOCO), random_batch()
    torch.testing.assert_close(moco.queue.vectors.norm(dim=-1), torch.ones(12))
    loss = moco(batch, 0).value
    with torch.no_grad():
        keys = F.normalize(moco.teacher(batch.crops.views[1:2])[0], dim=-1)
        queries = moco.student(batch.crops.views[:1], batch.crops.locals, randomness=batch.randomness)
    queries = F.normalize(queries, dim=-1)  # [4, batch, width]
    logits = torch.cat([(queries * keys).sum(-1, keepdim=True), queries @ moco.queue.vectors.T], dim=-1)
    expected = F.cross_entropy(logits.flatten(0, 1) / 0.2, torch.zeros(16, dtype=torch.long))
    torch.testing.assert_close(loss, expected)
