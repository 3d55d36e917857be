import pytest
import torch
import torch.nn.functional as F

from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, changed, random_batch, state
from training.methods.configs import MoCoConfig
from training.methods.moco import MoCo

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, activation="relu")
CONFIG = MoCoConfig(HEAD, queue=12, teacher_momentum=0.9)


def test_its_defaults_are_the_papers():
    config = MoCoConfig()
    head = config.head
    assert (head.layers, head.hidden, head.prototypes, head.bottleneck) == (2, 2048, 128, None)
    assert (head.batch_norm, head.activation) == (False, "relu")
    assert (config.temperature, config.queue, config.teacher_momentum) == (0.2, 65536, 0.999)


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


def test_only_the_student_has_gradients():
    moco = build(CONFIG)
    moco(random_batch(), 0).value.backward()
    assert all(p.grad is None for p in moco.teacher.parameters())
    assert all(p.grad is not None for p in moco.student.parameters() if p.requires_grad)


def test_a_loss_changes_nothing_and_the_step_puts_its_keys_in_the_queue():
    moco, batch = build(CONFIG), random_batch()
    before = state(moco)
    loss = moco(batch, 0)
    assert not changed(before, moco)
    moco.after_step(0, [loss.carry])
    expected = F.normalize(moco.teacher(batch.crops.views[1:2])[0], dim=-1)
    torch.testing.assert_close(moco.queue.vectors[:4], expected.detach())
    torch.testing.assert_close(moco.queue.vectors[4:], before["queue.vectors"][4:])


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


def test_a_split_batch_gives_the_same_loss_gradient_and_queue():
    whole, parts, batch = build(CONFIG), build(CONFIG), random_batch()
    loss = whole(batch, 0)
    loss.value.backward()
    whole.after_step(0, [loss.carry])
    split = [parts(part, 0) for part in batch.split(2)]
    (sum(part.value for part in split) / 2).backward()
    parts.after_step(0, [part.carry for part in split])
    torch.testing.assert_close(sum(part.value for part in split) / 2, loss.value)
    for one, other in zip(whole.student.parameters(), parts.student.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(whole.queue.vectors, parts.queue.vectors)


def test_the_student_is_what_is_evaluated():
    moco = build(CONFIG)
    assert next(iter(moco.backbones().items())) == ("student", moco.student.backbone)


def test_collapse_is_named():
    assert "collapse" in MoCo.diagnose({"spread": 0.001})
    assert MoCo.diagnose({"spread": 0.5}) is None


@pytest.mark.parametrize(
    ("batch", "views", "words"),
    [(5, 2, "--queue is 12, no multiple of the batch of 5: choose 10 or 15"), (4, 1, "--global-crops is 1")],
)
def test_batches_and_views_that_do_not_fit_are_refused(batch, views, words):
    with pytest.raises(SettingError, match=words):
        CONFIG.check(batch, accumulate=1, views=views, local_crops=0, classes=0)
    CONFIG.check(4, accumulate=1, views=2, local_crops=0, classes=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0}, "--temperature is 0"),
        ({"teacher_momentum": -0.1}, "--teacher-momentum is -0.1"),
        ({"queue": 0}, "--queue is 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(SettingError, match=words):
        MoCoConfig(**settings)
