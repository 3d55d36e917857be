"""The variants that the paper ablates: of the teacher, its output, the loss, the predictor."""

import pytest
import torch

from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, changed, random_batch, state, step
from training import losses
from training.methods.configs import BatchUse
from training.methods.dino_config import DINOConfig

HEAD = HeadConfig(32, hidden=16, bottleneck=8)


def variant(**settings):
    return build(DINOConfig(HEAD, **{"freeze_last_layer_epochs": 0} | settings))


def outputs(dino, batch):
    """Of student and teacher, computed beside the method."""
    with torch.no_grad():
        return dino.student(*batch.crops, randomness=batch.randomness), dino.teacher(batch.crops.views)


def weights(network):
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


# --- the teacher (section 5.2)


def trained(teacher, steps):
    """Weights of the student before each step, and of the teacher with which the step's loss was computed."""
    dino = variant(teacher=teacher)
    students, teachers = [], []
    for number in range(steps):
        students.append(weights(dino.student))
        teachers.append(weights(dino.teacher))
        step(dino, random_batch(step=number), number)
    return students, teachers


def test_teacher_previous_iteration_has_the_weights_before_the_step():
    students, teachers = trained("previous-iteration", 4)
    assert equal(students[0], teachers[0])
    for number in (1, 2, 3):
        assert equal(students[number - 1], teachers[number])
        assert not equal(students[number], teachers[number])


def test_teacher_previous_epoch_is_constant_for_an_epoch():
    students, teachers = trained("previous-epoch", 6)  # two epochs of three steps
    for number in range(6):
        assert equal(students[number // 3 * 3], teachers[number])
    assert not equal(students[0], students[3])


# --- its output (appendix "Relation to SwAV", section 5.3)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, lambda t, c: losses.sharpen(t - c, 0.04)),
        ({"teacher_output": "none"}, lambda t, _: losses.sharpen(t, 0.04)),
        ({"sharpen": False}, lambda t, c: losses.sharpen(t - c, 0.1)),
        (
            {"teacher_temperature": 0.0, "teacher_temperature_start": 0.0},
            lambda t, c: torch.nn.functional.one_hot((t - c).argmax(-1), 32).float(),
        ),
        (
            {"teacher_output": "softmax-batch", "sinkhorn_temperature": 0.06},
            lambda t, _: losses.sinkhorn_knopp(t, 0.06, 1),
        ),
        (
            {"teacher_output": "sinkhorn-knopp", "sinkhorn_temperature": 0.06},
            lambda t, _: losses.sinkhorn_knopp(t, 0.06, 3),
        ),
        (
            {"teacher_output": "sinkhorn-knopp", "sinkhorn_iterations": 1},
            lambda t, _: losses.sinkhorn_knopp(t, 0.05, 1),
        ),
    ],
)
def test_targets_follow_the_options(settings, expected):
    dino, batch = variant(**settings), random_batch()
    dino.center.normal_(std=0.05)
    student, teacher = outputs(dino, batch)
    probabilities = expected(teacher, dino.center)
    loss = dino(batch, 0)
    torch.testing.assert_close(
        loss.value.detach(), losses.multi_crop_cross_entropy(student, probabilities, 0.1)
    )
    torch.testing.assert_close(loss.logs["teacher_entropy"], losses.entropy(probabilities))


# --- the loss (appendix "Relation to MoCo-v2 and BYOL")


@pytest.mark.parametrize("teacher_output", ["centering", "none"])
def test_mse_compares_unit_outputs_centered_or_not(teacher_output):
    dino, batch = variant(loss="mse", teacher_output=teacher_output), random_batch()
    dino.center.normal_()
    student, teacher = outputs(dino, batch)
    if teacher_output == "centering":
        teacher = teacher - dino.center
    torch.testing.assert_close(dino(batch, 0).value.detach(), losses.multi_crop_mse(student, teacher))


def test_infonce_with_a_queue_keeps_the_views_of_the_last_batches():
    dino, batch = variant(loss="infonce", teacher_output="none", queue=16), random_batch()
    student, teacher = outputs(dino, batch)
    loss = dino(batch, 0)
    expected = losses.multi_crop_info_nce(student, teacher, 0.2, dino.queue.vectors)
    torch.testing.assert_close(loss.value.detach(), expected)
    dino.after_step(0, [loss.carry])
    torch.testing.assert_close(dino.queue.vectors[:8], losses.unit(teacher).flatten(0, 1))


# --- the predictor


def test_predictor_is_in_the_student_only_and_trains():
    dino = variant(predictor=12)
    names = dino.student.state_dict().keys() - dino.teacher.state_dict().keys()
    assert {name.rsplit(".", 2)[0] for name in names} == {"head.predictor"}
    assert dino.student.head.predictor[0].out_features == 12
    before = state(dino)
    step(dino, random_batch(), 0)
    assert {f"student.{name}" for name in names} <= changed(before, dino)


# --- settings that cannot be


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"student_temperature": 0.0}, "--student-temperature is 0.0, expected a number above 0"),
        ({"teacher_temperature": float("nan")}, "--teacher-temperature is nan"),
        ({"teacher_momentum": 1.5}, "--teacher-momentum is 1.5, expected 0 to 1"),
        ({"center_momentum": -0.1}, "--center-momentum is -0.1"),
        ({"kept_tokens": 0.0}, "--kept-tokens is 0.0, expected a number above 0"),
        ({"spreading": -1.0}, "--spreading is -1.0, expected a number of at least 0"),
        ({"alignment": 5.0, "head": HeadConfig(bottleneck=None)}, "--alignment needs the head's bottleneck"),
        ({"loss": "mse", "teacher_output": "sinkhorn-knopp"}, "--loss mse compares no probabilities"),
        ({"loss": "infonce"}, "pass --teacher-output none"),
        ({"queue": 8}, "--queue is for --loss infonce"),
        ({"sinkhorn_iterations": 0}, "--sinkhorn-iterations is 0"),
        ({"sinkhorn_temperature": 0.0}, "--sinkhorn-temperature is 0.0"),
        ({"predictor": -1}, "--predictor is -1"),
    ],
)
def test_dino_config_with_unusable_settings_raises(settings, words):
    with pytest.raises(SettingError, match=words):
        DINOConfig(**settings)


NCE = {"loss": "infonce", "teacher_output": "none"}


@pytest.mark.parametrize(
    ("settings", "use", "words"),
    [
        ({"views": 1}, {"views": 1, "local_crops": 2}, "--views 1 needs a global crop for each network"),
        ({}, {"views": 1}, "the loss compares two crops"),
        ({"spreading": 0.3}, {}, "--spreading needs the whole batch at once"),
        ({"teacher_output": "sinkhorn-knopp"}, {}, "--teacher-output sinkhorn-knopp needs the whole batch"),
        ({"teacher_output": "softmax-batch"}, {}, "--teacher-output softmax-batch needs the whole batch"),
        (NCE, {}, "--loss infonce without --queue needs the whole batch"),
        (NCE | {"queue": 12}, {}, "--queue is 12, no multiple of the batch of 8"),
    ],
)
def test_dino_check_with_unusable_batches_raises(settings, use, words):
    usual = BatchUse(batch_size=4, accumulate=2, views=2, local_crops=0, classes=0)
    DINOConfig(HEAD).check(usual)
    with pytest.raises(SettingError, match=words):
        DINOConfig(HEAD, **settings).check(usual._replace(**use))
