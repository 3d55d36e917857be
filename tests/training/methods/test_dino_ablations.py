"""The variants that the paper ablates: of the teacher, its output, the loss, the predictor."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dino_model.runtime.errors import SettingError
from tests.training.methods.tiny import build, random_batch, step
from training import losses
from training.augmentation.crop_config import CropConfig
from training.methods.dino import DINO
from training.methods.dino_ablations import least_attended
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.methods.network import cls_tokens

HEAD = HeadConfig(32, hidden=16, bottleneck=8)


def variant(**settings):
    return build(AblationsConfig(HEAD, **{"freeze_last_layer_epochs": 0} | settings))


def outputs(dino, batch):
    """Logits of student and teacher, computed outside of the method."""
    with torch.no_grad():
        return dino.student(*batch.crops, randomness=batch.randomness), dino.teacher(batch.crops.views)


@pytest.mark.parametrize(
    ("teacher", "source"),
    [
        ("previous-iteration", lambda step: max(0, step - 1)),
        ("previous-epoch", lambda step: step // 3 * 3),
        ("student-copy", lambda step: step),
    ],
)
def test_teacher_has_the_weights_of_the_student_before_the_named_step(teacher, source):
    dino = variant(teacher=teacher)
    students, teachers = [], []
    for number in range(6):  # two epochs
        for network, weights in ((dino.student, students), (dino.teacher, teachers)):
            weights.append(
                torch.cat([network.state_dict()[name].flatten() for name in dino.teacher.state_dict()])
            )
        step(dino, random_batch(step=number), number)
    for number in range(6):
        assert [torch.equal(teachers[number], student) for student in students].index(True) == source(number)


SINKHORN = {"teacher_output": "sinkhorn-knopp"}
NCE = {"loss": "infonce", "teacher_output": "none"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, lambda t, c: losses.sharpen(t - c, 0.04)),
        ({"teacher_output": "none"}, lambda t, _: losses.sharpen(t, 0.04)),
        ({"sharpen": False}, lambda t, c: losses.sharpen(t - c, 0.1)),
        (
            {"teacher_temperature": 0.0, "teacher_temperature_start": 0.0},
            lambda t, c: F.one_hot((t - c).argmax(-1), 32).float(),
        ),
        ({"teacher_output": "softmax-batch"}, lambda t, _: losses.sinkhorn_knopp(t, 0.05, 1)),
        (SINKHORN | {"sinkhorn_temperature": 0.06}, lambda t, _: losses.sinkhorn_knopp(t, 0.06, 3)),
        (SINKHORN | {"sinkhorn_iterations": 1}, lambda t, _: losses.sinkhorn_knopp(t, 0.05, 1)),
    ],
)
def test_targets_follow_the_options(settings, expected):
    dino, batch = variant(**settings), random_batch()
    dino.center.normal_(std=0.05)
    student, teacher = outputs(dino, batch)
    targets, loss = expected(teacher, dino.center), dino(batch, 0)
    torch.testing.assert_close(loss.value.detach(), losses.multi_crop_cross_entropy(student, targets, 0.1))
    torch.testing.assert_close(loss.logs["teacher_entropy"], losses.entropy(targets))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"loss": "mse"}, lambda s, t, d: losses.multi_crop_mse(s, t - d.center)),
        ({"loss": "mse", "teacher_output": "none"}, lambda s, t, d: losses.multi_crop_mse(s, t)),
        (NCE | {"queue": 16}, lambda s, t, d: losses.multi_crop_info_nce(s, t, 0.2, d.queue.vectors)),
    ],
)
def test_other_losses_compare_outputs_without_softmax(settings, expected):
    dino, batch = variant(**settings), random_batch()
    dino.center.normal_()
    student, teacher = outputs(dino, batch)
    loss = dino(batch, 0)
    torch.testing.assert_close(loss.value.detach(), expected(student, teacher, dino))
    if dino.queue:
        dino.after_step(0, [loss.carry])
        torch.testing.assert_close(dino.queue.vectors[:8], losses.unit(teacher).flatten(0, 1))


def test_predictor_is_in_the_student_only_and_trains():
    dino = variant(predictor=12)
    names = dino.student.state_dict().keys() - dino.teacher.state_dict().keys()
    assert {name.rsplit(".", 2)[0] for name in names} == {"head.predictor"}
    assert dino.student.head.predictor[0].out_features == 12
    before = {name: dino.student.state_dict()[name].clone() for name in names}
    step(dino, random_batch(), 0)
    assert not any(torch.equal(dino.student.state_dict()[name], before[name]) for name in names)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"masking": "attention"}, "pass --kept-tokens below 1"),
        ({"alignment": 5.0, "head": HeadConfig(bottleneck=None)}, "--alignment needs the head's bottleneck"),
        ({"loss": "mse", "teacher_output": "sinkhorn-knopp"}, "--loss mse compares no probabilities"),
        ({"loss": "infonce"}, "pass --teacher-output none"),
        ({"queue": 8}, "--queue is for --loss infonce"),
    ],
)
def test_dino_config_with_unusable_settings_raises(settings, words):
    with pytest.raises(SettingError, match=words):
        AblationsConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "crops", "words"),
    [
        ({"views": 1}, {"global_crops": 1, "local_crops": 2}, "--views 1 needs one global crop"),
        ({"views": 1}, {"global_crops": 3}, "--views 1 needs one global crop"),
        ({}, {"global_crops": 1}, "the loss compares two crops"),
        ({"spreading": 0.3}, {}, "--spreading needs the whole batch at once"),
        ({"koleo": 0.1}, {}, "--koleo needs the whole batch at once"),
        (SINKHORN, {}, "--teacher-output sinkhorn-knopp needs the whole batch at once"),
        (NCE, {}, "--loss infonce without --queue needs the whole batch"),
        (NCE | {"queue": 12}, {}, "--queue is 12, no multiple of the batch of 8"),
    ],
)
def test_dino_check_with_unusable_batches_raises(settings, crops, words):
    usual = {"batch_size": 4, "accumulate": 2, "classes": 0}
    AblationsConfig(HEAD).check(CropConfig(local_crops=0), **usual)
    with pytest.raises(SettingError, match=words):
        AblationsConfig(HEAD, **settings).check(CropConfig(**{"local_crops": 0} | crops), **usual)


@pytest.mark.parametrize("chosen", [{}, {"loss": "mse"}, {"views": 1}, {"predictor": 8}, {"sharpen": False}])
def test_method_is_algorithm_1_unless_an_option_next_to_it_is_chosen(chosen):
    config = AblationsConfig(HEAD, center_momentum=0.5, **chosen).resolve()
    plain = DINOConfig(HEAD, center_momentum=0.5)
    assert config == (AblationsConfig(HEAD, center_momentum=0.5, **chosen) if chosen else plain)
    assert (type(build(config)) is DINO) == (not chosen)


def test_ablations_with_the_defaults_equal_dino():
    batch, methods = random_batch(), [build(kind(HEAD)) for kind in (DINOConfig, AblationsConfig)]
    outputs = [method(batch, 0) for method in methods]
    assert torch.equal(outputs[0].value, outputs[1].value)
    assert outputs[0].logs == outputs[1].logs
    for method in methods:
        step(method, batch)
    for name, tensor in methods[0].state_dict().items():
        assert torch.equal(tensor, methods[1].state_dict()[name])


@pytest.mark.parametrize("hint", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("num_visible", [2, 9])
def test_least_attended_patches_stay_visible_with_hints_of_the_others(hint, num_visible):
    attention, numbers = torch.rand(2, 3, 12), torch.rand(2, 3, 12)
    found = least_attended(attention, numbers, num_visible, hint)
    for values, drawn, kept in zip(
        *(part.flatten(0, 1) for part in (attention, numbers, found)), strict=True
    ):
        ranked = values.argsort().tolist()
        hints = min(num_visible, round(hint * (12 - num_visible)))
        shown, others = ranked[: num_visible - hints], ranked[num_visible - hints :]
        chosen = sorted(range(len(others)), key=lambda place: float(drawn[place]))[:hints]
        assert kept.tolist() == shown + [others[place] for place in chosen]


def test_schedules_of_dino_count_epochs_in_steps():
    config = DINOConfig(
        teacher_momentum=0.9,
        teacher_temperature_start=0.04,
        teacher_temperature=0.07,
        teacher_temperature_warmup_epochs=3,
        freeze_last_layer_epochs=2,
    )
    schedules = config.schedules(5, 4)
    assert schedules.frozen_steps == 8
    assert schedules.teacher_temperature.tolist() == pytest.approx([*[0.04] * 4, *[0.055] * 4, *[0.07] * 12])
    steps = np.arange(20)
    expected = 1 - 0.1 * (1 + np.cos(np.pi * steps / 20)) / 2
    np.testing.assert_allclose(schedules.teacher_momentum, expected)


@pytest.mark.parametrize("views", [1, 2])
def test_terms_beside_the_loss_have_their_weights_and_signs(views):
    batch, settings = random_batch(), {"spreading": 0.3, "alignment": 2.0, "koleo": 0.5}
    plain, dino = variant(views=views), variant(views=views, **settings)
    dino.load_state_dict(plain.state_dict())
    crops = batch.crops.views[2 - views :], batch.crops.locals
    with torch.no_grad():
        features = dino.student.features(*crops, randomness=batch.randomness)
        student = dino.student.head.project(cls_tokens(features))
        teacher = dino.teacher.head.project(cls_tokens(dino.teacher.features(batch.crops.views[:views])))
    same = views == 2  # the first crops of the student are those of the teacher
    pairs = [(c, view) for view in range(views) for c in range(len(student)) if not (same and c == view)]
    cosines = torch.stack([F.cosine_similarity(student[crop], teacher[view], dim=-1) for crop, view in pairs])
    rate, misalignment = losses.coding_rate(student[:views]).mean(), (1 - cosines).mean()
    spacing = losses.koleo(features[0].cls).sum()
    expected = plain(batch, 0).value - 0.3 * rate + 2 * misalignment + 0.5 * spacing
    found = dino(batch, 0)
    torch.testing.assert_close(found.value, expected)
    logged = {"coding_rate": rate, "misalignment": misalignment, "koleo": spacing}
    torch.testing.assert_close({name: found.logs[name] for name in logged}, logged)
    assert not any(value.requires_grad for value in found.logs.values())
