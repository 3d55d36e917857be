"""Views, targets and terms of distillation, compared with their formulas."""

import math

import pytest
import torch
import torch.nn.functional as F
from torchvision.transforms.v2 import functional

from training.methods import distill_loss
from training.methods.distill_loss import StudentView, draw_view
from training.recipes.schedules import hold_and_decay

GRID, PATCH = 6, 8
ALIGNED = StudentView(4, 1 / 6, 2 / 6, 4 / 6, mirrored=False, aligned=True)
MIRRORED = StudentView(4, 1 / 6, 2 / 6, 4 / 6, mirrored=True, aligned=True)
FREE = StudentView(5, 0.21, 0.13, 0.55, mirrored=False, aligned=False)
FREE_MIRRORED = StudentView(7, 0.05, 0.3, 0.62, mirrored=True, aligned=False)


def coordinates(side: int) -> torch.Tensor:
    """Maps [2, 2, side, side] of the row and column of each cell's center, as shares of the side."""
    centers = (torch.arange(side) + 0.5) / side
    return torch.stack(torch.meshgrid(centers, centers, indexing="ij")).expand(2, -1, -1, -1)


@pytest.mark.parametrize("view", [ALIGNED, MIRRORED, FREE, FREE_MIRRORED])
def test_targets_of_a_view_are_at_the_places_of_its_pixels(view):
    """A teacher whose tokens are their coordinates, on a square whose colors are theirs."""
    colors = (coordinates(GRID * PATCH) * 255).round().byte()
    pixels = view.crop(colors, PATCH)
    assert pixels.shape == (2, 2, view.cells * PATCH, view.cells * PATCH)
    patches = F.avg_pool2d(pixels.float() / 255, PATCH)
    torch.testing.assert_close(view.cut(coordinates(GRID)), patches, atol=0.01, rtol=0)


@pytest.mark.parametrize("view", [ALIGNED, MIRRORED])
def test_places_are_the_patches_that_the_view_shows(view):
    numbers = torch.arange(GRID**2)
    shown = view.cut(numbers.float().view(1, 1, GRID, GRID)).flatten().long()
    places, inside = view.places(numbers, GRID)
    assert inside.tolist() == [number in shown for number in numbers.tolist()]
    torch.testing.assert_close(shown[places[inside]], numbers[inside])
    assert places.amin() >= 0
    assert places.amax() < view.cells**2


def test_draw_view_depends_on_seed_and_step_and_stays_inside():
    views = [draw_view(0, step, 14, (0.57, 1.0, 1.29), 0.7) for step in range(300)]
    assert views == [draw_view(0, step, 14, (0.57, 1.0, 1.29), 0.7) for step in range(300)]
    assert views != [draw_view(1, step, 14, (0.57, 1.0, 1.29), 0.7) for step in range(300)]
    aligned = [view for view in views if view.aligned]
    assert 180 < len(aligned) < 240
    assert {view.cells for view in aligned} == {8, 14}
    assert {view.cells for view in views if not view.aligned} == {8, 14, 18}
    assert 120 < sum(view.mirrored for view in views) < 180
    for view in views:
        assert min(view.top, view.left) >= 0
        assert max(view.top, view.left) + view.side <= 1 + 1e-9
        assert view.side >= (0.6 if view.cells == 18 else 0.4)
    free = {cells: [v.side for v in views if v.cells == cells and not v.aligned] for cells in (8, 14, 18)}
    assert max(min(free[8]), min(free[14])) < 0.5, "only enlarged views have larger boxes"
    assert min(free[18]) < 0.7
    assert min(map(max, free.values())) > 0.95
    for cells, places in ((8, range(7)), (14, range(1))):
        chosen = [view for view in aligned if view.cells == cells]
        for starts in ([view.top for view in chosen], [view.left for view in chosen]):
            assert {round(14 * start, 9) for start in starts} == set(places)


@pytest.mark.parametrize("lead", [(1, 3), (2, 1)])
def test_log_attention_is_the_softmax_over_patches_of_chosen_tokens(lead):
    query, key, bias = torch.randn(2, 3, 7, 4), torch.randn(2, 3, 7, 4), torch.randn(*lead, 7, 7)
    tokens = torch.tensor([[0, 5], [6, 2]])
    found = distill_loss.log_attention(query, key, tokens, 2, bias).exp()
    for image, rows in enumerate(tokens.tolist()):
        for place, row in enumerate(rows):
            scores = (query[image, :, row, None] * key[image]).sum(-1) / math.sqrt(4)
            scores += bias[image % lead[0], :, row]
            whole = scores.softmax(-1)[:, 2:]
            torch.testing.assert_close(found[image, :, place], whole / whole.sum(-1, keepdim=True))


def test_attention_divergence_is_kl_by_head_or_of_the_mean_of_heads():
    student, teacher = torch.rand(2, 3, 4, 9).softmax(-1), torch.rand(2, 3, 4, 9).softmax(-1)
    expected = (teacher * (teacher / student).log()).sum(-1).mean(1)
    torch.testing.assert_close(distill_loss.attention_divergence(student.log(), teacher), expected)
    means = student.mean(1), teacher[:, :2].mean(1)
    expected = (means[1] * (means[1] / means[0]).log()).sum(-1)
    torch.testing.assert_close(distill_loss.attention_divergence(student.log(), teacher[:, :2]), expected)


def test_change_colors_without_strength_changes_nothing_and_stays_in_range():
    pixels, numbers = torch.rand(8, 3, 5, 5) * 255, torch.rand(8, 4)
    torch.testing.assert_close(distill_loss.jitter_colors(pixels, numbers, 0.0, 0.0), pixels)
    colored, changed = (distill_loss.jitter_colors(pixels, numbers, 0.5, gray) for gray in (0.0, 1.0))
    assert (colored.amin(), colored.amax()) == (0, 255)
    torch.testing.assert_close(changed[:, 0], changed[:, 2])  # gray


def test_change_colors_equals_torchvision_with_twice_the_strength_for_saturation():
    pixels, numbers = 100 + torch.rand(8, 3, 5, 5) * 50, torch.rand(8, 4)
    numbers[:, 3] = torch.tensor([0.05, 0.09, 0.11, 0.2] * 2)  # the first two of four are below `gray`
    found = distill_loss.jitter_colors(pixels, numbers, jitter=0.2, gray=0.1)
    for image, (brightness, contrast, saturation, gray), ours in zip(
        pixels / 255, numbers, found, strict=True
    ):
        expected = functional.adjust_brightness(image, 0.8 + 0.4 * brightness.item())
        expected = functional.adjust_contrast(expected, 0.8 + 0.4 * contrast.item())
        expected = functional.adjust_saturation(expected, 0.6 + 0.8 * saturation.item())
        if gray < 0.1:
            expected = functional.rgb_to_grayscale(expected, 3)
        torch.testing.assert_close(ours, expected * 255, atol=0.2, rtol=0)


def test_hold_and_decay_is_constant_then_linear():
    rates = hold_and_decay(1.0, 0.0, 10, warmup_steps=2, hold=0.4)
    assert rates.tolist() == pytest.approx([0, 1, 1, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


def test_renormalized_rows_sum_to_one():
    cut = ALIGNED.cut(torch.rand(2, 5, GRID, GRID) / 1000).flatten(2)
    torch.testing.assert_close(distill_loss.renormalize(cut).sum(-1), torch.ones(2, 5))
