from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from dino_model.runtime.errors import SettingError
from tests.training.methods.tiny import build, random_batch
from training.augmentation.crop_config import CropConfig
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.method import Batch
from training.methods.supervised_config import SupervisedConfig

LABELS = torch.tensor([0, 1, 2, 1])
ORDER, NEIGHBORS = torch.arange(4.0), torch.tensor([1.0, 0, 3, 2])


def numbered(step=0, side=32):
    """Crops in which every pixel of image i is i."""
    crops = (ORDER.view(-1, 1, 1, 1).expand(n, -1, 3, s, s) for n, s in ((2, side), (1, 16)))
    return Batch(Crops(*crops), torch.arange(4), Randomness(0, step, 0, 4))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_supervised_without_mixing_is_cross_entropy(smoothing):
    config = SupervisedConfig(label_smoothing=smoothing, mixup=0, cutmix=0)
    method, batch = build(config, classes=3), random_batch(labels=LABELS, views=1)
    loss = method(batch, 0)
    with torch.no_grad():
        logits = method.student(*batch.crops, randomness=batch.randomness)
    assert logits.shape == (4, 4, 3)
    expected = F.cross_entropy(logits.flatten(0, 1), LABELS.repeat(4), label_smoothing=smoothing)
    torch.testing.assert_close(loss.value.detach(), expected)
    hits = (logits.argmax(-1) == LABELS).float().mean() * 100
    torch.testing.assert_close(loss.logs["accuracy"], hits)


def test_loss_of_mixed_images_has_both_labels_and_accuracy_that_of_the_larger_share():
    method, shares = build(SupervisedConfig(cutmix=0), classes=3), []
    for step in range(6):
        batch = random_batch(labels=LABELS, views=1, step=step)
        loss, (crops, share) = method(batch, step), method.mix(batch)
        logits = method.student(*crops, randomness=batch.randomness)
        own = 0.9 * F.one_hot(LABELS, 3) + 0.1 / 3
        mixed = share * own + (1 - share) * own[[1, 0, 3, 2]]
        torch.testing.assert_close(loss.value, F.cross_entropy(logits.flatten(0, 1), mixed.repeat(4, 1)))
        larger = LABELS if share > 0.5 else LABELS[[1, 0, 3, 2]]
        hits = (logits.argmax(-1) == larger).float().mean() * 100
        torch.testing.assert_close(loss.logs["accuracy"], hits)
        shares.append(share)
    assert min(shares) < 0.5 < max(shares)


def test_mixup_blends_every_crop_and_its_label_by_one_share():
    method = build(SupervisedConfig(mixup=0.8, cutmix=0), classes=4)
    shares = set()
    for number in range(5):
        crops, share = method.mix(numbered(number))
        for group in crops:
            expected = share * ORDER + (1 - share) * NEIGHBORS
            torch.testing.assert_close(group[0, :, 0, 0, 0], expected)
        shares.add(share)
    assert len(shares) == 5
    assert method.mix(numbered(4))[1] == share  # the same step draws the same


def test_cutmix_pastes_a_box_as_large_as_its_share():
    method = build(SupervisedConfig(mixup=0, cutmix=1.0), classes=4)
    shares = []
    for number in range(20):
        crops, share = method.mix(numbered(number, side=320))
        for group in crops:
            images = group[0, :, 0].flatten(1)  # [4, pixels]
            own, others = ((images == numbers[:, None]).float().mean(1) for numbers in (ORDER, NEIGHBORS))
            pixel = 3.2 / group.shape[-1]  # edges are whole pixels
            torch.testing.assert_close(own, torch.full((4,), share), atol=pixel, rtol=0)
            torch.testing.assert_close(own + others, torch.ones(4))
        shares.append(share)
    assert sum(share < 0.9 for share in shares) > 5


def test_cutmix_boxes_have_the_root_of_their_area_as_sides():
    """Areas u are uniform, and so are centers: the mean of 1 - (√u - u / 4)², sides clipped, is 0.679."""
    method = build(SupervisedConfig(mixup=0, cutmix=1.0), classes=4)
    shares = [method.mix(numbered(number))[1] for number in range(1000)]
    assert sum(shares) / 1000 == pytest.approx(1 - (1 / 2 - 1 / 5 + 1 / 48), abs=0.03)


def test_mixing_is_cutmix_in_half_of_the_steps():
    method = build(SupervisedConfig(), classes=4)
    mixed = (method.mix(numbered(number))[0].views for number in range(200))
    blended = sum(bool((views % 1 > 0).any()) for views in mixed)
    assert 70 < blended < 130


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"classes": 0}, "these have none"),
        ({"classes": 1}, "they are all of one"),
        ({"accumulate": 4}, "a part of 1 images is odd"),
    ],
)
def test_supervised_check_with_unusable_images_raises(facts, words):
    usual = {"crops": CropConfig(), "batch_size": 4, "accumulate": 2, "classes": 3}
    SupervisedConfig().check(**usual)
    with pytest.raises(SettingError, match=words):
        SupervisedConfig().check(**usual | facts)


@pytest.mark.parametrize(
    ("batch_size", "accumulate", "mixing", "refused"),
    [
        (3, 1, {}, False),  # the last image of a whole batch is mixed with itself
        (6, 2, {}, True),
        (6, 2, {"cutmix": 0.0}, True),
        (6, 2, {"mixup": 0.0}, True),
        (6, 2, {"mixup": 0.0, "cutmix": 0.0}, False),
        (8, 2, {}, False),
    ],
)
def test_parts_of_an_odd_number_of_images_cannot_be_mixed_in_pairs(batch_size, accumulate, mixing, refused):
    context = pytest.raises(SettingError, match="of 3 images is odd") if refused else nullcontext()
    with context:
        SupervisedConfig(**mixing).check(CropConfig(), batch_size, accumulate, classes=2)
