from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from dino_model.attention import attention_rows
from dino_model.backbones import BackboneConfig
from dino_model.errors import SettingError
from dino_model.head import HeadConfig
from training import losses
from training.crops import Crops
from training.methods import ablations
from training.methods.configs import BatchUse
from training.methods.dino import DINO, update_center
from training.methods.dino_config import DINOConfig
from training.methods.method import Batch
from training.randomness import Randomness

BACKBONE = BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=3, drop_path=0.3)
CONFIG = DINOConfig(HeadConfig(32, hidden=16, bottleneck=8), freeze_last_layer_epochs=1)


def method(**settings) -> DINO:
    torch.manual_seed(0)
    config = replace(CONFIG, **settings)
    return config.build(BACKBONE, config.schedules(epochs=2, steps_per_epoch=3), classes=0)


def random_batch(size=4, local=3):
    crops = Crops(torch.randn(2, size, 3, 32, 32), torch.randn(local, size, 3, 16, 16))
    return Batch(crops, None, Randomness(0, 0, 0, size, size))


def test_teacher_starts_equal_and_shares_no_memory():
    dino = method()
    student, teacher = dino.student.state_dict(), dino.teacher.state_dict()
    assert student.keys() == teacher.keys()
    assert all(torch.equal(student[name], teacher[name]) for name in student)
    assert not {t.data_ptr() for t in student.values()} & {t.data_ptr() for t in teacher.values()}


def test_only_the_student_has_gradients_and_stochastic_depth():
    dino = method()
    dino(random_batch(), step=3).value.backward()
    assert all(p.grad is None for p in dino.teacher.parameters())
    assert all(p.grad is not None for p in dino.student.parameters() if p.requires_grad)
    rates = [
        [m.drop_prob for m in net.modules() if hasattr(m, "drop_prob")]
        for net in (dino.student, dino.teacher)
    ]
    assert max(rates[0]) > 0
    assert not any(rates[1])


def test_frozen_last_layer_has_no_gradient():
    dino = method()
    for step, frozen in ((0, True), (2, True), (3, False)):
        dino.zero_grad(set_to_none=True)
        dino(random_batch(), step).value.backward()
        dino.after_backward(step)
        assert (dino.student.head.last_layer.weight_v.grad is None) == frozen


def test_center_update_uses_the_mean_of_all_micro_batches():
    batch = random_batch()
    dino, split = method(), method()
    with torch.no_grad():
        expected = 0.1 * dino.teacher(batch.crops.views).mean((0, 1))[None]
    dino.after_step(0, [dino(batch, 0).carry])
    split.after_step(0, [split(part, 0).carry for part in batch.split(2)])
    assert dino.center.norm() > 0
    torch.testing.assert_close(dino.center, expected)
    torch.testing.assert_close(split.center, expected)


def test_micro_batches_give_the_gradient_of_the_batch():
    """Stochastic depth included: what is dropped goes by the place in the global batch."""
    whole, split, batch = method(), method(), random_batch(size=6)
    whole(batch, 3).value.backward()
    for part in batch.split(3):
        (split(part, 3).value / 3).backward()
    for (name, expected), found in zip(
        whole.student.named_parameters(), split.student.parameters(), strict=True
    ):
        if expected.grad is not None:
            torch.testing.assert_close(found.grad, expected.grad, atol=1e-6, rtol=1e-4, msg=name)


def test_teacher_moves_by_the_momentum_of_the_step():
    dino = method()
    with torch.no_grad():
        for parameter in dino.student.parameters():
            parameter += 1
    before = dino.teacher.head.mlp[0].weight.clone()
    kept = dino(random_batch(), 4).carry
    dino.after_step(4, [kept])
    momentum = dino.schedules.teacher_momentum[4]
    assert 0.996 < momentum < 1
    torch.testing.assert_close(dino.teacher.head.mlp[0].weight, before + (1 - momentum), rtol=0, atol=1e-6)


def test_views_1_compares_different_crops_only():
    dino, batch = method(views=1).eval(), random_batch()
    crops, (loss, _, carry) = batch.crops, dino(batch, 0)
    dino.after_step(0, [carry])
    with torch.no_grad():
        first = dino.teacher(crops.views[:1])  # all that the teacher sees
        student = dino.student(crops.views[1:], crops.locals)  # all that the student sees
    torch.testing.assert_close(dino.center, 0.1 * first.mean((0, 1))[None])
    pairs = [-(F.softmax(first[0] / 0.04, -1) * F.log_softmax(s / 0.1, -1)).sum(-1).mean() for s in student]
    torch.testing.assert_close(loss.detach(), torch.stack(pairs).mean(), rtol=1e-4, atol=1e-4)


def test_kept_tokens_reduces_views_only():
    dino, batch = method(kept_tokens=0.25, freeze_last_layer_epochs=0).eval(), random_batch()
    seen = []
    for step in (4, 4, 5):
        views, locals_ = (crop.clone().requires_grad_() for crop in batch.crops)
        chance = Randomness(0, step, 0, 4, 4)
        dino(Batch(Crops(views, locals_), None, chance), step).value.backward()
        seen.append(F.max_pool2d(views.grad.abs().amax(2), 8) > 0)  # [views, batch, rows, columns]
        assert (F.max_pool2d(locals_.grad.abs().amax(2), 8) > 0).all()
    assert (seen[0].sum((-1, -2)) == 4).all()  # of 16 patches
    assert len({tuple(view.flatten().tolist()) for picture in seen[0] for view in picture}) > 4
    assert torch.equal(seen[0], seen[1])  # by the step, so that a resumed run repeats it …
    assert not torch.equal(seen[0], seen[2])  # … and another at the next


@pytest.mark.parametrize("views", [1, 2])
def test_spreading_and_alignment_are_added_and_logged_apart(views):
    batch = random_batch()
    crops, plain = batch.crops, method(views=views).eval()(batch, 0).value
    dino = method(views=views, spreading=0.3, alignment=5.0).eval()
    loss, logs, _ = dino(batch, 0)
    teacher, student = crops.views[:views], crops.views[2 - views :]
    with torch.no_grad():
        z, other = dino.student.project(student, crops.locals), dino.teacher.project(teacher)
    assert z.norm(dim=-1) == pytest.approx(1.0, abs=1e-5)
    torch.testing.assert_close(logs["coding_rate"], losses.coding_rate(z[:views]).mean())
    apart = losses.multi_crop_mse(z, other, 2 if views == 2 else 0) / 2
    torch.testing.assert_close(logs["misalignment"], apart)
    torch.testing.assert_close(loss, plain - 0.3 * logs["coding_rate"] + 5 * logs["misalignment"])
    torch.testing.assert_close(plain.detach(), logs["teacher_entropy"] + logs["kl"])
    assert not logs["coding_rate"].requires_grad


def test_attention_masking_hides_the_patches_that_the_teacher_attends_to():
    dino, batch = method(kept_tokens=0.25, masking="attention", mask_hint=0.0), random_batch(size=4)
    kept = ablations.visible_patches(dino.config, dino.teacher, batch.crops.views, batch.randomness)
    attention = attention_rows(dino.teacher.backbone, batch.crops.views.flatten(0, 1), [0])
    patches = attention[:, :, 0, 1:].mean(1).unflatten(0, (2, 4))
    assert kept.shape == (2, 4, 4)  # of 16
    visible = torch.zeros_like(patches, dtype=torch.bool).scatter(-1, kept, True)
    assert (patches.masked_fill(~visible, 0).amax(-1) <= patches.masked_fill(visible, 1).amin(-1)).all()
    assert dino(batch, 0).value.isfinite()


@pytest.mark.parametrize(("hint", "hints"), [(0.0, 0), (0.25, 3), (1.0, 4)])
def test_least_attended_with_hint_shows_some_of_the_most_attended(hint, hints):
    generator = torch.Generator().manual_seed(0)
    attention, numbers = torch.rand(50, 16, generator=generator), torch.rand(50, 16, generator=generator)
    kept = ablations.least_attended(attention, numbers, 4, hint)
    ranks = attention.argsort().argsort().gather(-1, kept)
    assert all(len(set(row)) == 4 for row in kept.tolist())
    assert ((ranks < 4 - hints).sum(-1) >= 4 - hints).all()
    hinted = ranks[:, 4 - hints :]
    assert (hinted >= 4 - hints).all()
    assert len(set(hinted.flatten().tolist())) == (12 + hints if hints else 0)  # any of them, over 50 images


def test_network_output_is_independent_of_grouped_crops():
    dino = method().eval()
    crops = random_batch().crops
    together = dino.student(*crops)
    alone = torch.cat([dino.student(crop[None]) for group in crops for crop in group])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"student_temperature": 0.0}, "--student-temperature is 0.0, expected a number above 0"),
        ({"teacher_temperature": float("nan")}, "--teacher-temperature is nan"),
        ({"teacher_momentum": 1.5}, "--teacher-momentum is 1.5, expected 0 to 1"),
        ({"center_momentum": -0.1}, "--center-momentum is -0.1"),
        ({"kept_tokens": 0.0}, "--kept-tokens is 0.0, expected a number above 0"),
        ({"spreading": -1.0}, "--spreading is -1.0, expected a number of at least 0"),
        ({"alignment": float("nan")}, "--alignment is nan"),
        ({"alignment": 5.0, "head": HeadConfig(bottleneck=None)}, "--alignment needs the head's bottleneck"),
    ],
)
def test_dino_config_with_invalid_settings_raises(settings, words):
    with pytest.raises(SettingError, match=words):
        DINOConfig(**settings)


def test_dino_check_with_unusable_batches_raises():
    usual = BatchUse(batch_size=8, accumulate=1, views=2, local_crops=0, classes=0)
    CONFIG.check(usual)
    with pytest.raises(SettingError, match="--views 1 needs a global crop for each network"):
        replace(CONFIG, views=1).check(usual._replace(views=1, local_crops=2))
    with pytest.raises(SettingError, match="--spreading needs the whole batch at once"):
        replace(CONFIG, spreading=0.3).check(usual._replace(accumulate=2))
    with pytest.raises(SettingError, match="the loss compares two crops"):
        CONFIG.check(usual._replace(views=1))


def test_update_center_ignores_logits_that_overflow_in_fp16():
    center = torch.ones(1, 3)
    update_center(center, torch.tensor([[[2.0, float("inf"), float("nan")]]]), 0.9)
    torch.testing.assert_close(center, torch.tensor([[1.1, 1.0, 1.0]]))
