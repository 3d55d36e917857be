import pytest
import torch
import torch.nn.functional as F

from dino_model.errors import SettingError
from tests.training.methods.tiny import build, random_batch
from training.crops import Crops
from training.methods.configs import BatchUse, SupervisedConfig
from training.methods.method import Batch
from training.randomness import Randomness

PLAIN = SupervisedConfig(label_smoothing=0.0, mixup=0.0, cutmix=0.0)
LABELS = torch.tensor([0, 1, 2, 1])


def pictures(step=0, batch=4, side=32):
    """Crops of which picture i is i everywhere."""
    crops = [
        torch.arange(batch).float().view(1, -1, 1, 1, 1).expand(n, -1, 3, s, s)
        for n, s in ((2, side), (1, 16))
    ]
    return Batch(Crops(*crops), torch.arange(batch), Randomness(0, step, 0, batch, batch))


def test_supervised_without_mixing_is_cross_entropy():
    method, batch = build(PLAIN, classes=3), random_batch(labels=LABELS, views=1)
    loss = method(batch, 0)
    with torch.no_grad():
        logits = method.student(*batch.crops, randomness=batch.randomness)
    assert logits.shape == (4, 4, 3)
    torch.testing.assert_close(loss.value, F.cross_entropy(logits.flatten(0, 1), LABELS.repeat(4)))
    hits = (logits.argmax(-1) == LABELS).float().mean() * 100
    torch.testing.assert_close(loss.logs["accuracy"], hits)


def test_smooth_equals_torch():
    method = build(SupervisedConfig(label_smoothing=0.1, mixup=0, cutmix=0), classes=3)
    batch = random_batch(labels=LABELS, local=0, views=1)
    with torch.no_grad():
        logits = method.student(*batch.crops, randomness=batch.randomness)[0]
    expected = F.cross_entropy(logits, LABELS, label_smoothing=0.1)
    torch.testing.assert_close(method(batch, 0).value.detach(), expected)


def test_mixup_blends_every_crop_and_its_label_by_one_share():
    method = build(SupervisedConfig(mixup=0.8, cutmix=0), classes=4)
    shares = set()
    for number in range(5):
        crops, share = method.mix(pictures(number))
        expected = share * torch.arange(4.0) + (1 - share) * torch.tensor([1.0, 0, 3, 2])
        for group in crops:
            torch.testing.assert_close(group[0, :, 0, 0, 0], expected)
        shares.add(share)
    assert len(shares) == 5
    assert method.mix(pictures(4))[1] == share  # the same step draws the same


def test_cutmix_pastes_a_box_as_large_as_its_share_says():
    method = build(SupervisedConfig(mixup=0, cutmix=1.0), classes=4)
    boxes = 0
    for number in range(20):
        crops, share = method.mix(pictures(number, side=320))
        for group in crops:
            own = (group[0, :, 0] == torch.arange(4.0).view(-1, 1, 1)).float().mean((1, 2))
            pixel = 3.2 / group.shape[-1]  # edges are whole pixels
            torch.testing.assert_close(own, torch.full((4,), share), atol=pixel, rtol=0)
            others = (group[0, :, 0] == torch.tensor([1.0, 0, 3, 2]).view(-1, 1, 1)).float().mean((1, 2))
            torch.testing.assert_close(own + others, torch.ones(4))
        boxes += share < 0.9
    assert boxes > 5


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"classes": 0}, "these have none"),
        ({"classes": 1}, "they are all of one"),
        ({"accumulate": 4}, "a part of 1 images is odd"),
    ],
)
def test_supervised_check_with_unusable_images_raises(facts, words):
    usual = BatchUse(batch_size=4, accumulate=1, views=1, local_crops=0, classes=3)
    with pytest.raises(SettingError, match=words):
        SupervisedConfig().check(usual._replace(**facts))
    PLAIN.check(usual._replace(accumulate=2))
