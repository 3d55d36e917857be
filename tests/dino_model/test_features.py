"""Features come in the pictures' order, from the view the official evaluation has, and once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

from dino_model import features as features_module
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.collections import Images, open_images
from dino_model.features import CLS, FeatureExtractor, FeatureType, gem
from dino_model.images import IMAGENET_MEAN, IMAGENET_STD, ImageError
from dino_model.views import View
from dino_model.weights import LoadedModel

CPU = {"device": "cpu", "precision": "fp32"}
VIEW = {"size": 32, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}


def extractor(
    vit: nn.Module, kind: FeatureType = CLS, view: View | None = None, **how: Any
) -> FeatureExtractor:
    model = LoadedModel("test", vit, IMAGENET_MEAN, IMAGENET_STD, "test", None)
    return FeatureExtractor(model, view or View(**VIEW), kind, **CPU | how)


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
def test_view_equals_official_transform(height: int, width: int, resize_to: int, cut: int, seed: int):
    picture = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    view = View(resize_to - cut, IMAGENET_MEAN, IMAGENET_STD, resize_to)
    ours = view.normalize(view.crop(picture)[None])[0]
    expected = official_view(resize_to - cut, resize_to)(Image.fromarray(picture))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 3, 11, 64])
def test_extract_equals_single_images_in_order(pictures: Images, vit: nn.Module, batch_size: int):
    found = extractor(vit, batch_size=batch_size).extract(pictures).features
    view = official_view(32, 32)
    with torch.no_grad():
        single = [vit(view(Image.fromarray(pictures.read(i)))[None]) for i in range(len(pictures))]
    assert found.shape == (11, 24)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.cat(single), rtol=0, atol=1e-5)


@torch.no_grad()
def test_compute_of_each_kind_equals_its_formula(pictures: Images, vit: nn.Module):
    view = View(**VIEW)
    images = view.normalize(torch.stack([view.crop(pictures.read(i)) for i in range(len(pictures))]))
    tokens, cls = vit.forward_features(images), FeatureType(2).compute(vit, images)
    patches = tokens[:, 1:]
    expected = {
        FeatureType(2): cls,
        FeatureType(0, "average"): patches.mean(1),
        FeatureType(1, "gem"): torch.cat([cls[:, 24:], gem(patches)], dim=1),
        FeatureType(2, "average"): torch.cat([cls, patches.mean(1)], dim=1),
        FeatureType(tokens="all"): tokens,
    }
    for kind, features in expected.items():
        found = extractor(vit, kind, batch_size=4).extract(pictures).features
        torch.testing.assert_close(found, features, rtol=0, atol=1e-5, msg=str(kind))


def test_extract_with_box_uses_that_part(pictures: Images, vit: nn.Module):
    view, picture = View(**VIEW), pictures.read(5)
    cut = view.crop(picture, (3, 4, 23, 24))
    assert torch.equal(cut, view.crop(picture[4:24, 3:23]))
    boxes = [None] * 10 + [(0, 0, 999, 9)]
    with pytest.raises(ValueError, match=r"10\.png: the box \(0, 0, 999, 9\) is not inside the image"):
        extractor(vit).extract(pictures, boxes=boxes)


@torch.no_grad()
def test_extract_with_scales_averages_them(pictures: Images, vit: nn.Module):
    view = View(35, IMAGENET_MEAN, IMAGENET_STD, scales=(1.0, 0.5), cut=8)
    image = view.normalize(view.crop(pictures.read(0))[None])
    half = nn.functional.interpolate(image, scale_factor=0.5, mode="bilinear")
    expected = (vit(image[..., :32, :32]) + vit(half[..., :16, :16])) / 2
    found = extractor(vit, FeatureType(), view).extract(pictures.subset([0])).features
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_extract_leaves_out_broken_image(pictures: Images, vit: nn.Module, tmp_path: Path, capsys):
    sound = extractor(vit).extract(pictures).features
    (pictures.root / "07.png").write_bytes(b"no more")
    keeping = extractor(vit, batch_size=2, cache=tmp_path / "cache")
    for _ in ("computed", "kept"):
        found = keeping.extract(pictures, title="work")
        rest = [i for i in range(11) if i != 7]
        torch.testing.assert_close(found.features, sound[rest], rtol=0, atol=1e-5)
        assert found.images.names == pictures.subset(rest).names
        assert "left out (1): 07.png is not an image" in capsys.readouterr().err
    with pytest.raises(ImageError, match=r"1 images in a row cannot be read, such as 07\.png"):
        keeping.extract(pictures.subset([7]))


def test_extract_of_nan_features_raises(pictures: Images, vit: nn.Module, tmp_path: Path):
    class Broken(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.full((len(images), 3), torch.nan)

    with pytest.raises(ValueError, match=r"test outputs NaN or infinity .* needs --precision fp32"):
        extractor(Broken(), cache=tmp_path / "cache").extract(pictures)
    assert list((tmp_path / "cache").iterdir()) == []


def test_extract_with_cache_computes_once_until_a_change(pictures: Images, tmp_path: Path):
    cache = tmp_path / "cache"
    backbone = create_backbone(BackboneConfig("vit_tiny", 16, 32, width=12, depth=1, heads=1))
    calls: list[int] = []
    backbone.register_forward_hook(lambda *_: calls.append(1))

    def ask(**settings: object) -> Tensor:
        return extractor(backbone, cache=cache, **settings).extract(pictures).features

    first = ask()
    torch.testing.assert_close(ask(), first, rtol=0, atol=0)
    assert len(calls) == 1
    ask(precision="bf16")
    assert len(calls) == 2
    with torch.no_grad():
        backbone.norm.bias += 1
    before = len(calls)
    torch.testing.assert_close(ask(), first + 1, rtol=0, atol=1e-5)
    assert len(calls) == before + 1


def test_key_changes_with_every_setting(pictures: Images, vit: nn.Module):
    settings = ((1,), (2,), (1, "average"), (1, "gem"), (0, "gem"), (1, "none", "mean"))
    kinds = [FeatureType(*each) for each in settings]
    views = (
        *(View(**VIEW, framing=framing) for framing in ("long-side", "squash")),
        *(View(**VIEW, **how) for how in ({"resize_to": 40}, {"scales": (1.0, 0.5)}, {"cut": 8})),
        *(View(32, *three) for three in ((IMAGENET_STD, IMAGENET_STD), (IMAGENET_MEAN, IMAGENET_MEAN))),
    )
    plain, box = extractor(vit), (0.0, 0.0, 9.0, 9.0)
    keys = [
        *(extractor(vit, kind).key(pictures) for kind in kinds),
        *(extractor(vit, FeatureType(), view).key(pictures) for view in views),
        *(plain.key(pictures, [where] * len(pictures)) for where in (None, box)),
        plain.key(pictures.subset(range(5))),
    ]
    assert len({json.dumps(key) for key in keys}) == len(keys)


def test_extract_interrupted_continues_after_finished_parts(
    pictures: Images, vit: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(features_module, "IMAGES_AT_ONCE", 4)
    sound = extractor(vit).extract(pictures).features
    keeping, computed = extractor(vit, cache=tmp_path / "cache"), []

    def interrupt(_: nn.Module, images: tuple[Tensor]) -> None:
        computed.append(len(images[0]))
        if len(computed) == 3:
            raise KeyboardInterrupt

    with vit.register_forward_pre_hook(interrupt):
        with pytest.raises(KeyboardInterrupt):
            keeping.extract(pictures)
        assert torch.equal(keeping.extract(pictures, title="work").features, sound)
    assert computed == [4, 4, 3, 3]
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".npy"]
    printed = capsys.readouterr().err
    assert printed.count("11/11") == printed.count("\n") == 1


def test_cache_file_damaged_is_named(pictures: Images, vit: nn.Module, tmp_path: Path):
    keeping = extractor(vit, cache=tmp_path / "cache")
    keeping.extract(pictures)
    (file,) = (tmp_path / "cache").glob("*.npy")
    file.write_bytes(b"half")
    with pytest.raises(ValueError, match=rf"{file.name} is no feature file of this program: delete it"):
        keeping.extract(pictures)
