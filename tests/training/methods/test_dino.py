from dataclasses import replace

import torch
import torch.nn.functional as F

from dino_model.models.attention import attention_rows
from tests.training.methods.tiny import build, random_batch
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.dino import DINO, update_center
from training.methods.dino_ablations import least_attended
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.head import HeadConfig
from training.methods.method import Batch

CONFIG = AblationsConfig(HeadConfig(32, hidden=16, bottleneck=8), freeze_last_layer_epochs=1)


def method(**settings) -> DINO:
    return build(replace(CONFIG, **settings))


def test_only_the_student_has_gradients_and_stochastic_depth_and_its_last_layer_is_frozen_at_first():
    dino = method()
    for step, frozen in ((0, True), (2, True), (3, False)):
        dino.zero_grad(set_to_none=True)
        dino(random_batch(), step).value.backward()
        dino.after_backward(step)
        assert all(p.grad is None for p in dino.teacher.parameters())
        untrained = {n for n, p in dino.student.named_parameters() if p.requires_grad and p.grad is None}
        assert untrained == ({"head.last_layer.weight_v"} if frozen else set())
    assert max(layer.drop_prob for layer in dino.student.drop_paths) > 0
    assert not dino.teacher.drop_paths


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
    dino, batch = method(kept_tokens=0.3, freeze_last_layer_epochs=0).eval(), random_batch()
    seen = []
    for step in (4, 4, 5):
        views, locals_ = (crop.clone().requires_grad_() for crop in batch.crops)
        chance = Randomness(0, step, 0, 4)
        dino(Batch(Crops(views, locals_), None, chance), step).value.backward()
        seen.append(F.max_pool2d(views.grad.abs().amax(2), 8) > 0)  # [views, batch, rows, columns]
        assert (F.max_pool2d(locals_.grad.abs().amax(2), 8) > 0).all()
    assert (seen[0].sum((-1, -2)) == 5).all()  # of 16 patches
    assert len({tuple(view.flatten().tolist()) for images in seen[0] for view in images}) > 4
    assert torch.equal(seen[0], seen[1])  # a resumed run repeats the step
    assert not torch.equal(seen[0], seen[2])


def test_attention_masking_hides_the_patches_that_the_teacher_attends_to():
    dino, batch = method(kept_tokens=0.25, masking="attention", mask_hint=0.0), random_batch(num_images=4)
    kept = dino.visible_patches(batch.crops.views, batch.randomness)
    attention = attention_rows(dino.teacher.backbone, batch.crops.views.flatten(0, 1), [0])
    patches = attention[:, :, 0, 1:].mean(1).unflatten(0, (2, 4))
    expected = least_attended(patches, patches, 4, 0.0)  # [2, 4, 4 of 16]
    assert torch.equal(kept.sort().values, expected.sort().values)
    assert dino(batch, 0).value.isfinite()


def test_update_center_ignores_logits_that_overflow_in_fp16():
    center = torch.ones(1, 3)
    update_center(center, torch.tensor([[[2.0, float("inf"), float("nan")]]]), 0.9)
    torch.testing.assert_close(center, torch.tensor([[1.1, 1.0, 1.0]]))
