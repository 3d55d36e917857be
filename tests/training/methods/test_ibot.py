from dataclasses import replace

import numpy as np
import pytest
import torch

from dino_model.models.backbones import MaskedPatches
from dino_model.runtime.errors import SettingError
from tests.training.methods.tiny import build, random_batch, step
from training.augmentation.randomness import Randomness
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.head import HeadConfig
from training.methods.ibot import random_blocks

CONFIG = AblationsConfig(
    HeadConfig(32, hidden=16, bottleneck=8), freeze_last_layer_epochs=0, patch_loss="ibot"
)


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def plain_loss(student, teacher, masked, tau_s, tau_t, center) -> float:
    """L_MIM of iBOT, patch by patch, divided by the number of masked patches of each view."""
    views, batch = student.shape[:2]
    total = 0.0
    for view in range(views):
        for image in range(batch):
            terms = [
                -(softmax((teacher[view, image, i] - center) / tau_t) * np.log(softmax(s / tau_s))).sum()
                for i, s in enumerate(student[view, image])
                if masked[view, image, i]
            ]
            total += sum(terms) / max(1, len(terms))
    return total / (views * batch)


def test_patch_loss_of_dino_is_the_formula_of_the_paper():
    torch.manual_seed(1)
    dino = build(CONFIG).eval()
    dino.patch_center.normal_()
    student, teacher = (torch.randn(2, 4, 16, 24) for _ in range(2))
    masked = torch.rand(2, 4, 16) < 0.3
    masked[1, 2] = False
    loss, mean = dino.patch_loss(student, teacher, masked, 0.04)
    with torch.no_grad():
        logits = [
            network.head(patches.flatten(0, 2)).unflatten(0, (2, 4, 16)).numpy()
            for network, patches in ((dino.student, student), (dino.teacher, teacher))
        ]
    expected = plain_loss(*logits, masked.numpy(), 0.1, 0.04, dino.patch_center[0].numpy())
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(mean, logits[1].mean((0, 1, 2)), rtol=1e-4, atol=1e-5)


def test_patch_loss_has_no_gradient_at_visible_patches():
    dino, student = build(CONFIG), torch.randn(1, 2, 4, 24, requires_grad=True)
    masked = torch.tensor([[[True, False, False, True], [False] * 4]])
    dino.patch_loss(student, torch.randn(1, 2, 4, 24), masked, 0.04)[0].backward()
    assert torch.equal(student.grad.abs().sum(-1) > 0, masked)


def test_patch_loss_of_views_without_masks_is_zero():
    dino, student = build(CONFIG), torch.randn(1, 2, 4, 24, requires_grad=True)
    loss, _ = dino.patch_loss(student, torch.randn(1, 2, 4, 24), torch.zeros(1, 2, 4, dtype=torch.bool), 0.04)
    loss.backward()
    assert loss.item() == 0
    assert not student.grad.any()


def test_dino_masks_the_student_alone_adds_the_loss_and_centers_the_patches():
    dino, batch = build(CONFIG).eval(), random_batch()
    plain = build(replace(CONFIG, patch_loss="none")).eval()
    loss, logs, carry = dino(batch, 0)
    blocks = dino.masked_blocks(batch.crops.views, batch.randomness)
    assert blocks.any()
    masked = MaskedPatches(blocks, dino.mask_token)
    with torch.no_grad():
        whole = dino.teacher.features(batch.crops.views)[0].patches
        partial = dino.student.features(batch.crops.views, masked=masked)[0].patches
    expected, mean = dino.patch_loss(partial, whole, blocks, 0.04)
    torch.testing.assert_close(logs["patch_loss"], expected.detach())
    torch.testing.assert_close(loss.detach(), logs["teacher_entropy"] + logs["kl"] + expected)
    assert plain(batch, 0).logs["kl"] != logs["kl"]  # [CLS] of the student, too, is that of masked views
    dino.after_step(0, [carry])
    torch.testing.assert_close(dino.patch_center, 0.1 * mean[None])
    step(dino, batch)
    assert dino.mask_token.detach().abs().max() > 0


@pytest.mark.parametrize("grid", [(14, 14), (7, 28)])
def test_random_blocks_are_rectangles_of_the_drawn_share_in_half_of_the_views(grid):
    blocks = random_blocks(Randomness(0, 0, 0, 2000), 2, *grid).unflatten(-1, grid)
    area = blocks.sum((-1, -2))
    assert (area > 0).float().mean() == pytest.approx(0.5, abs=0.03)
    shares = area[area > 0] / 196
    assert shares.min() > 0.1 - 0.03
    assert shares.max() < 0.5 + 0.04
    assert shares.mean() == pytest.approx(0.3, abs=0.02)
    sides = blocks.any(-1).sum(-1) * blocks.any(-2).sum(-1)
    assert torch.equal(sides, area)
    assert blocks.float().mean((0, 1)).min() > 0.01  # every patch is masked at times
    small = random_blocks(Randomness(0, 0, 0, 200, 200), 2, 3, 3).unflatten(-1, (3, 3))
    for axis in (-1, -2):
        assert set(small.any(axis).sum(-1).flatten().tolist()) == {0, 1, 2, 3}


def test_random_blocks_have_ratios_of_height_and_width_that_are_log_uniform_from_0_3_to_its_inverse():
    blocks = random_blocks(Randomness(0, 0, 0, 500), 2, 112, 112).unflatten(-1, (112, 112))
    blocks = blocks[blocks.any(-1).any(-1)]
    heights, widths = blocks.any(-1).sum(-1).float(), blocks.any(-2).sum(-1).float()
    ratios = (heights / widths)[(heights < 112) & (widths < 112)].log()  # those that no edge cuts
    assert ratios.min().exp() == pytest.approx(0.3, abs=0.02)
    assert ratios.max().exp() == pytest.approx(1 / 0.3, abs=0.2)
    assert ratios.mean() == pytest.approx(0, abs=0.1)
    assert (ratios < 0).float().mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("change", [{"kept_tokens": 0.5}, {"views": 1}, {"loss": "mse"}])
def test_patch_loss_with_options_that_hide_patches_or_views_is_refused(change):
    with pytest.raises(SettingError, match="--patch-loss ibot needs"):
        replace(CONFIG, **change)
