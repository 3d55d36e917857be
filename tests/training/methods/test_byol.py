import pytest
import torch

from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, changed, losses_of, random_batch, state
from training import losses
from training.methods.byol import BYOL
from training.methods.configs import BYOLConfig

HEAD = HeadConfig(16, layers=2, hidden=32, bottleneck=None, batch_norm=True, activation="relu")
CONFIG = BYOLConfig(HEAD, predictor=24, teacher_momentum=0.9)


def test_its_defaults_are_the_papers():
    config = BYOLConfig()
    head = config.head
    assert (head.layers, head.hidden, head.prototypes, head.bottleneck) == (2, 4096, 256, None)
    assert (head.batch_norm, head.activation) == (True, "relu")
    assert (config.predictor, config.teacher_momentum) == (4096, 0.996)


def test_only_the_student_has_a_predictor_with_a_norm_and_the_rest_starts_equal():
    byol = build(CONFIG)
    student, teacher = byol.student.state_dict(), byol.teacher.state_dict()
    assert {name.split(".")[1] for name in student.keys() - teacher.keys()} == {"predictor"}
    assert isinstance(byol.student.head.predictor[1], torch.nn.BatchNorm1d)
    assert byol.student.head.predictor[0].out_features == 24
    assert all(torch.equal(student[name], teacher[name]) for name in teacher)
    assert not {t.data_ptr() for t in student.values()} & {t.data_ptr() for t in teacher.values()}


@pytest.mark.parametrize("local", [0, 3])
def test_the_loss_is_the_papers_distance_of_predictions_and_projections(local):
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


def test_only_the_student_has_gradients_and_all_of_it():
    byol = build(CONFIG)
    byol(random_batch(), 0).value.backward()
    assert all(p.grad is None and not p.requires_grad for p in byol.teacher.parameters())
    assert all(p.grad is not None for p in byol.student.parameters() if p.requires_grad)
    trained = {id(p) for group in byol.parameter_groups() for p in group["params"]}
    assert trained == {id(p) for p in byol.student.parameters() if p.requires_grad}


def test_a_loss_changes_nothing_and_the_step_moves_the_teacher_by_its_momentum():
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


def test_the_teachers_statistics_are_its_own():
    byol = build(CONFIG)
    with torch.no_grad():
        byol.student.head.mlp[1].running_mean += 7
    byol.after_step(0, [{}])
    assert byol.teacher.head.mlp[1].running_mean.abs().max() == 0


def test_momentum_rises_from_its_start_towards_one():
    momentum = BYOLConfig(teacher_momentum=0.9).schedules(10, 5).teacher_momentum
    assert len(momentum) == 50
    assert momentum[0] == pytest.approx(0.9)
    assert 0.999 < momentum[-1] < 1


def test_the_student_is_what_is_evaluated():
    byol = build(CONFIG)
    networks = byol.backbones()
    assert next(iter(networks)) == "student"
    assert networks["student"] is byol.student.backbone
    assert networks["teacher"] is byol.teacher.backbone


def test_training_on_a_batch_lowers_the_loss():
    byol, batch = build(CONFIG), random_batch()
    found = losses_of(byol, batch)
    assert found[-1] < 0.7 * found[0]


def test_a_predictor_can_be_left_out():
    byol = build(BYOLConfig(HEAD, predictor=0))
    assert byol.student.state_dict().keys() == byol.teacher.state_dict().keys()


def test_collapse_is_named():
    assert "collapse" in BYOL.diagnose({"spread": 0.001})
    assert "--predictor" in BYOL.diagnose({"spread": 0.001})
    assert BYOL.diagnose({"spread": 0.5}) is None
    assert BYOL.diagnose({}) is None


@pytest.mark.parametrize("views", [1, 3])
def test_other_numbers_of_views_are_refused(views):
    with pytest.raises(SettingError, match="--global-crops"):
        CONFIG.check(8, accumulate=1, views=views, local_crops=0, classes=0)
    CONFIG.check(8, accumulate=1, views=2, local_crops=4, classes=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"teacher_momentum": 1.5}, "--teacher-momentum is 1.5"), ({"predictor": -1}, "--predictor is -1")],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(SettingError, match=words):
        BYOLConfig(**settings)
