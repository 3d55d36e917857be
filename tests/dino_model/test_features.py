"""Features come in the pictures' order, from the view the official evaluation has, and once."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.features import (
    FeatureCache,
    View,
    cls_features,
    features,
    gem,
    last_blocks,
    model_fingerprint,
    patch_tokens,
)
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD, ImageError, Images, open_images

CPU = {"device": "cpu", "precision": "fp32"}
VIEW = {"size": 32, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}


@pytest.fixture
def pictures(tmp_path: Path) -> Images:
    """Eleven pictures of different sizes and colours."""
    random = np.random.default_rng(0)
    for number in range(11):
        noise = random.integers(0, 256, (20 + 5 * number, 70 - 4 * number, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number:02}.png")
    return open_images(tmp_path)


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    torch.manual_seed(0)
    config = BackboneConfig(
        "vit_tiny", patch_size=8, image_size=32, width=24, depth=3, heads=3, drop_path=0.5
    )
    return create_backbone(config).eval()


# --- what the network is shown


def official_view(size: int, resize_to: int) -> v2.Transform:
    """Resize, crop and normalise as the official evaluation does, by torchvision on a Pillow picture."""
    return v2.Compose(
        [
            v2.Resize(resize_to, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(size),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )


@settings(deadline=None)
@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    resize_to=st.integers(8, 48),
    cut=st.integers(0, 7),
    seed=st.integers(0, 99),
)
def test_the_view_is_the_official_one(height: int, width: int, resize_to: int, cut: int, seed: int):
    picture = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    view = View(resize_to - cut, IMAGENET_MEAN, IMAGENET_STD, resize_to)
    ours = view.normalise(view.crop(picture)[None])[0]
    expected = official_view(resize_to - cut, resize_to)(Image.fromarray(picture))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


def test_the_view_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="cannot crop 64 pixels from a short side of 32"):
        View(64, IMAGENET_MEAN, IMAGENET_STD, resize_to=32)
    with pytest.raises(ValueError, match="cannot crop 0 pixels"):
        View(0, IMAGENET_MEAN, IMAGENET_STD)
    with pytest.raises(ValueError, match="takes 1 channels, pictures have 3"):
        View(32, (0.5,), (0.2,))


# --- features of collections


@pytest.mark.parametrize("batch_size", [1, 3, 11, 64])
def test_features_are_those_of_single_pictures_in_order(pictures: Images, vit: nn.Module, batch_size: int):
    found = cls_features(vit, pictures, **VIEW, batch_size=batch_size, **CPU)
    view = official_view(32, 32)
    with torch.no_grad():
        single = [vit(view(Image.fromarray(pictures.read(i)))[None]) for i in range(len(pictures))]
    assert found.shape == (11, 24)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.cat(single), rtol=0, atol=1e-5)


def test_bf16_features_point_the_same_way(pictures: Images, vit: nn.Module):
    exact = cls_features(vit, pictures, **VIEW, **CPU)
    fast = cls_features(vit, pictures, **VIEW, device="cpu", precision="bf16")
    assert fast.dtype == torch.float32
    assert not torch.equal(fast, exact)
    assert torch.cosine_similarity(fast, exact).min() > 0.999


def test_training_mode_is_left_for_the_features_and_restored(pictures: Images, vit: nn.Module):
    exact = cls_features(vit, pictures, **VIEW, **CPU)
    vit.train()  # drop path 0.5 would show
    try:
        torch.testing.assert_close(cls_features(vit, pictures, **VIEW, **CPU), exact, rtol=0, atol=0)
        assert vit.training
        assert all(module.training for module in vit.modules())
    finally:
        vit.eval()


def test_resnet_gives_its_pooled_feature(pictures: Images):
    resnet = create_backbone(BackboneConfig("resnet50"))
    assert cls_features(resnet, pictures.subset([0, 1]), **VIEW, **CPU).shape == (2, 2048)


def test_any_function_of_a_batch_can_be_the_feature(pictures: Images, vit: nn.Module):
    view = View(**VIEW)
    grids = features(lambda images: patch_tokens(vit, images), pictures, view, batch_size=4, **CPU)
    assert grids.shape == (11, 4, 4, 24)


def test_a_broken_picture_ends_it_by_name(pictures: Images, vit: nn.Module):
    (pictures.root / "07.png").write_bytes(b"no more")
    with pytest.raises(ImageError, match=r"^07\.png is not a picture"):
        cls_features(vit, pictures, **VIEW, batch_size=2, **CPU)


def test_no_pictures_are_one_sentence(pictures: Images, vit: nn.Module):
    with pytest.raises(ValueError, match="no pictures"):
        cls_features(vit, pictures.subset([]), **VIEW, **CPU)


# --- features of a batch


def normed_blocks(vit: nn.Module, images: Tensor) -> list[Tensor]:
    """Tokens after each block and the final norm, one block after the other."""
    found = []
    hooks = [block.register_forward_hook(lambda _m, _i, out: found.append(out)) for block in vit.blocks]
    vit(images)
    for hook in hooks:
        hook.remove()
    return [vit.norm(tokens) for tokens in found]


@pytest.mark.parametrize("height", [32, 43])
@torch.no_grad()
def test_patch_tokens_and_last_blocks_are_the_normed_outputs_of_blocks(vit: nn.Module, height: int):
    images = torch.randn(2, 3, height, 64, generator=torch.Generator().manual_seed(0))
    blocks = normed_blocks(vit, images)
    rows = -(-height // 8)
    expected = blocks[-1][:, 1:].reshape(2, rows, 8, 24)
    torch.testing.assert_close(patch_tokens(vit, images), expected, rtol=0, atol=1e-6)
    for count in (1, 2, 3):
        expected = torch.cat([tokens[:, 0] for tokens in blocks[-count:]], dim=1)
        torch.testing.assert_close(last_blocks(vit, images, count), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(last_blocks(vit, images, 1), vit(images), rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [0, 4])
def test_blocks_that_are_not_there_are_one_sentence(vit: nn.Module, count: int):
    with pytest.raises(ValueError, match=rf"last {count} blocks of a ViT with 3"):
        last_blocks(vit, torch.zeros(1, 3, 32, 32), count)


@settings(deadline=None)
@given(power=st.floats(1, 6), seed=st.integers(0, 99))
def test_gem_is_the_power_mean_of_what_is_positive(power: float, seed: int):
    tokens = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    plain = np.maximum(tokens.numpy(), 1e-6) ** power
    np.testing.assert_allclose(gem(tokens, power).numpy(), plain.mean(axis=1) ** (1 / power), rtol=1e-9)


# --- the cache


def count_calls(backbone: nn.Module) -> list[int]:
    calls: list[int] = []
    backbone.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_features_are_computed_once_and_again_when_anything_changes(pictures: Images, tmp_path: Path):
    cache = FeatureCache(tmp_path / "cache")
    backbone = create_backbone(BackboneConfig("vit_tiny", 16, 32, width=12, depth=1, heads=1))
    calls = count_calls(backbone)

    def ask(images: Images = pictures, **settings: object) -> Tensor:
        return cls_features(backbone, images, **VIEW | CPU | settings, batch_size=64, cache=cache)  # type: ignore[arg-type]

    first = ask()
    torch.testing.assert_close(ask(), first, rtol=0, atol=0)
    assert len(calls) == 1
    for changed in ({"size": 24}, {"resize_to": 40}, {"mean": (0.5, 0.5, 0.5)}, {"precision": "bf16"}):
        before = len(calls)
        ask(**changed)
        assert len(calls) == before + 1, changed
    ask(pictures.subset(range(5)))
    with torch.no_grad():
        backbone.norm.bias += 1
    before = len(calls)
    torch.testing.assert_close(ask(), first + 1, rtol=0, atol=1e-5)
    assert len(calls) == before + 1


def test_nothing_is_left_when_the_computation_fails(tmp_path: Path):
    cache = FeatureCache(tmp_path)

    def fail() -> Tensor:
        raise ImageError("a.png is empty")

    with pytest.raises(ImageError):
        cache.get({"a": "b"}, fail)
    assert list(tmp_path.iterdir()) == []
    cache.get({"a": "b"}, lambda: torch.ones(2))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_damaged_cache_file_is_named(tmp_path: Path):
    cache = FeatureCache(tmp_path)
    cache.get({"a": "b"}, lambda: torch.ones(2))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"half")
    with pytest.raises(ValueError, match=rf"{file.name} is no feature file of this program: delete it"):
        cache.get({"a": "b"}, lambda: torch.ones(2))


def test_the_fingerprint_tells_apart_models_of_equal_weights():
    config = BackboneConfig("vit_tiny", 16, 32, width=24, depth=1, heads=2)
    one = create_backbone(config)
    same = create_backbone(config)
    same.load_state_dict(one.state_dict())
    assert model_fingerprint(one) == model_fingerprint(same.train())
    for other in (
        BackboneConfig("vit_tiny", 16, 32, width=24, depth=1, heads=3),
        BackboneConfig("vit_tiny", 16, 32, width=24, depth=1, heads=2, position_mode="official"),
    ):
        different = create_backbone(other)
        different.load_state_dict(one.state_dict())
        assert model_fingerprint(one) != model_fingerprint(different)
    with torch.no_grad():
        same.cls_token[0, 0, 0] += 1e-3
    assert model_fingerprint(one) != model_fingerprint(same)
