import torch

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training.crops import Crops
from training.methods.dino import DINO, DINOConfig
from training.pretrain import build_dino
from training.recipes import Recipe

RECIPE = Recipe(
    backbone=BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=3, drop_path=0.3),
    head=HeadConfig(32, hidden=16, bottleneck=8),
    dino=DINOConfig(freeze_last_layer_epochs=1),
    epochs=2,
)


def method() -> DINO:
    torch.manual_seed(0)
    return build_dino(RECIPE, steps_per_epoch=3)


def random_crops(batch=4, local=3):
    return Crops(torch.randn(2, batch, 3, 32, 32), torch.randn(local, batch, 3, 16, 16))


def test_teacher_starts_equal_and_shares_no_memory():
    dino = method()
    student, teacher = dino.student.state_dict(), dino.teacher.state_dict()
    assert student.keys() == teacher.keys()
    assert all(torch.equal(student[name], teacher[name]) for name in student)
    assert not {t.data_ptr() for t in student.values()} & {t.data_ptr() for t in teacher.values()}


def test_only_the_student_has_gradients_and_stochastic_depth():
    dino = method()
    loss, _ = dino.training_loss(random_crops(), step=3)
    loss.backward()
    assert all(p.grad is None for p in dino.teacher.parameters())
    assert all(p.grad is not None for p in dino.student.parameters() if p.requires_grad)
    rates = [
        [m.drop_prob for m in net.modules() if hasattr(m, "drop_prob")]
        for net in (dino.student, dino.teacher)
    ]
    assert max(rates[0]) > 0
    assert not any(rates[1])


def test_last_layer_has_no_gradient_while_it_is_frozen():
    dino = method()
    for step, frozen in ((0, True), (2, True), (3, False)):
        dino.zero_grad(set_to_none=True)
        dino.training_loss(random_crops(), step)[0].backward()
        assert (dino.student.head.last_layer.weight_v.grad is None) == frozen


def test_center_moves_once_a_step_and_after_the_loss():
    crops = random_crops()
    one, other = method(), method()
    other.center.value += 1.0  # adds the same to every prototype: softmax does not see it
    for dino in (one, other):
        dino.eval()
    torch.testing.assert_close(one.training_loss(crops, 0)[0], other.training_loss(crops, 0)[0])
    assert one.center.value.norm() > 0
    with torch.no_grad():
        expected = 0.1 * one.teacher(crops.views).mean((0, 1))[None]
    torch.testing.assert_close(one.center.value, expected)


def test_logged_loss_is_entropy_plus_divergence():
    loss, logs = method().training_loss(random_crops(), 0)
    torch.testing.assert_close(loss.detach(), logs["teacher_entropy"] + logs["kl"])
    assert logs["kl"] >= 0


def test_training_without_local_crops_works():
    loss, _ = method().training_loss(random_crops(local=0), 0)
    assert loss.isfinite()


def test_crops_of_one_size_share_a_forward_pass_without_changing_it():
    dino = method().eval()
    crops = random_crops()
    together = dino.student(*crops)
    alone = torch.cat([dino.student(crop[None]) for group in crops for crop in group])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
