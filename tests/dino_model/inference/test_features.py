"""Features come in the order of the images, framed as in the official evaluation, and once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torchvision.transforms import v2

from dino_model.data.collection import Images, open_images
from dino_model.data.framing import Framing
from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD, ImageError
from dino_model.inference import features as features_module
from dino_model.inference.features import OUTPUT, FeatureExtractor, FeatureType, gem
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.load import LoadedModel
from tests.dino_model.small_models import made

STATISTICS = (IMAGENET_MEAN, IMAGENET_STD)
FRAMING = Framing(32, *STATISTICS)


def extractor(
    vit: nn.Module, kind: FeatureType = OUTPUT, framing: Framing = FRAMING, **how: Any
) -> FeatureExtractor:
    model = LoadedModel("test", vit, *STATISTICS, "test", None)
    return FeatureExtractor(model, framing, kind, **{"device": "cpu", "precision": "fp32"} | how)


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """Eleven images of different sizes and colors."""
    random = np.random.default_rng(0)
    for number in range(11):
        noise = random.integers(0, 256, (20 + 5 * number, 70 - 4 * number, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number:02}.png")
    return open_images(tmp_path)


@pytest.fixture
def vit() -> nn.Module:
    torch.manual_seed(0)
    shape = {"patch_size": 8, "image_size": 32, "width": 24, "depth": 3, "heads": 3}
    return create_backbone(BackboneConfig(**shape, drop_path=0.5)).eval()


def official_view(size: int, resize_to: int, statistics: tuple = STATISTICS) -> v2.Transform:
    """Resize, crop and normalize as the official evaluation does, by torchvision on a Pillow image."""
    return v2.Compose(
        [
            v2.Resize(resize_to, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(size),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*statistics),
        ]
    )


def test_framing_names_scales_other_than_the_whole():
    assert str(Framing(32, *STATISTICS, scales=(0.5,))).endswith(", mean of the scales 0.5")
    assert "scale" not in str(FRAMING)


@settings(deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(8, 48), st.integers(0, 7), st.integers(0, 99))
def test_view_equals_official_transform(height: int, width: int, resize_to: int, cut: int, seed: int):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    framing = Framing(resize_to - cut, *STATISTICS, resize_to)
    expected = official_view(resize_to - cut, resize_to)(Image.fromarray(image))
    torch.testing.assert_close(framing.normalize(framing.crop(image)[None])[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "height", "width", "expected"),
    [("squash", 31, 50, (40, 40)), ("long-side", 31, 50, (25, 40)), ("long-side", 20, 31, (20, 31))],
)
def test_squash_changes_the_shape_and_long_side_makes_smaller_only(mode, height, width, expected):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))
    method = Image.Resampling.BICUBIC if mode == "squash" else Image.Resampling.LANCZOS
    framed = Framing(40, *STATISTICS, mode=mode).crop(np.asarray(image)).permute(1, 2, 0)
    assert framed.shape[:2] == expected
    np.testing.assert_allclose(framed, image.resize(expected[::-1], method), atol=1)


@torch.no_grad()
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_extract_equals_single_images_in_order(images: Images, vit: nn.Module, batch_size: int):
    view = official_view(32, 32)
    batch = torch.stack([view(Image.fromarray(images.read(i))) for i in range(len(images))])
    tokens = vit.forward_features(batch)
    expected = torch.cat([vit(batch), gem(tokens[:, 1:])], dim=1)
    found = extractor(vit, FeatureType(1, "gem", "cls"), batch_size=batch_size).extract(images).features
    assert (found.shape, found.dtype) == ((11, 48), torch.float32)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_gem_is_the_root_of_the_mean_of_fourth_powers():
    tokens = torch.randn(2, 5, 3)
    expected = (tokens.double().clamp(min=1e-6) ** 4).mean(dim=1) ** 0.25
    torch.testing.assert_close(gem(tokens).double(), expected, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(gem(-tokens.abs()), torch.full((2, 3), 1e-6), rtol=1e-4, atol=0)


def test_large_jpegs_are_reduced_to_twice_the_crop_or_more(tmp_path: Path, vit: nn.Module, monkeypatch):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (272, 272, 3), np.uint8)).save(
        tmp_path / "a.jpg"
    )
    sides, crop = [], Framing.crop
    monkeypatch.setattr(Framing, "crop", lambda *given: sides.append(given[1].shape[0]) or crop(*given))
    for resize_to, reduced in ((34, False), (34, True), (35, True)):
        framing = Framing(32, *STATISTICS, resize_to)
        extractor(vit, framing=framing, reduced=reduced).extract(open_images(tmp_path))
    assert sides == [272, 68, 136]
    assert open_images(tmp_path).read(0).shape == (272, 272, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0, expected at least 1"),
        ({"kind": (0, "none")}, "blocks is 0: expected at least 1"),
        ({"kind": (-1, "gem")}, "blocks is -1: expected at least 1"),
        ({"kind": (1, "gem")}, "one vector of its last layer"),
    ],
)
def test_impossible_features_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        extractor(nn.Identity(), **options | {"kind": FeatureType(*options.get("kind", ()))})


def test_extract_with_box_uses_that_part(images: Images, vit: nn.Module):
    boxes = [None] * 10 + [(0, 0, 999, 9)]
    with pytest.raises(ValueError, match=r"10\.png: the box \(0, 0, 999, 9\) is not inside the image"):
        extractor(vit).extract(images, boxes=boxes)


@torch.no_grad()
def test_extract_with_scales_averages_them(images: Images, vit: nn.Module):
    framing = Framing(35, *STATISTICS, scales=(1.0, 0.5), cut=8)
    image = framing.normalize(framing.crop(images.read(0))[None])
    half = nn.functional.interpolate(image, scale_factor=0.5, mode="bilinear")
    expected = (vit(image[..., :32, :32]) + vit(half[..., :16, :16])) / 2
    found = extractor(vit, OUTPUT, framing).extract(images.subset([0])).features
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_extract_leaves_out_broken_image(images: Images, vit: nn.Module, tmp_path: Path, capsys):
    sound = extractor(vit).extract(images).features
    (images.root / "07.png").write_bytes(b"no more")
    keeping = extractor(vit, batch_size=2, cache=tmp_path / "cache")
    rest = [i for i in range(11) if i != 7]
    for _ in ("computed", "cached"):
        found = keeping.extract(images, title="work")
        torch.testing.assert_close(found.features, sound[rest], rtol=0, atol=1e-5)
        assert found.images.names == images.subset(rest).names
        assert "left out (1): 07.png is not an image" in capsys.readouterr().err
    with pytest.raises(
        ImageError, match=r"none of the 1 images can be read; the first: 07\.png is not an image"
    ):
        keeping.extract(images.subset([7]))


def test_extract_of_nan_features_raises(images: Images, tmp_path: Path):
    class Broken(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            return torch.full((len(batch), 3), torch.nan)

    with pytest.raises(ValueError, match=r"test outputs NaN or infinity .* needs --precision fp32"):
        extractor(Broken(), cache=tmp_path / "cache").extract(images)
    assert list((tmp_path / "cache").iterdir()) == []


def test_extract_with_cache_computes_once_until_a_change(images: Images, vit: nn.Module, tmp_path: Path):
    calls: list[int] = []
    vit.register_forward_hook(lambda *_: calls.append(1))

    def extract(**how: object) -> Tensor:
        return extractor(vit, cache=tmp_path / "cache", **how).extract(images).features

    first = extract()
    torch.testing.assert_close(extract(), first, rtol=0, atol=0)
    assert len(calls) == 1
    extract(precision="bf16")
    assert len(calls) == 2
    with torch.no_grad():
        vit.norm.bias += 1
    torch.testing.assert_close(extract(), first + 1, rtol=0, atol=1e-5)
    assert len(calls) == 3


def test_key_changes_with_every_setting(images: Images, vit: nn.Module):
    kinds = [(), (2, "none", "cls"), (1, "average", "cls"), (1, "gem", "cls"), (0, "gem")]
    kinds += [(1, "none", tokens) for tokens in ("cls", "mean")]
    framings = (
        *(Framing(32, *STATISTICS, mode=mode) for mode in ("long-side", "squash")),
        *(Framing(32, *STATISTICS, **how) for how in ({"resize_to": 40}, {"scales": (1.0, 0.5)}, {"cut": 8})),
        *(Framing(32, *pair) for pair in ((IMAGENET_STD, IMAGENET_STD), (IMAGENET_MEAN, IMAGENET_MEAN))),
    )
    plain = extractor(vit)
    keys = [
        *(extractor(vit, FeatureType(*kind)).key(images) for kind in kinds),
        *(extractor(vit, OUTPUT, framing).key(images) for framing in framings),
        *(plain.key(images, [box] * len(images)) for box in (None, (0.0, 0.0, 9.0, 9.0))),
        plain.key(images.subset(range(5))),
    ]
    vit.norm.eps *= 2
    keys.append(plain.key(images))
    assert len({json.dumps(key) for key in keys}) == len(keys)


def test_extract_interrupted_continues_after_finished_parts(
    images: Images, vit: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(features_module, "IMAGES_AT_ONCE", 4)
    sound = extractor(vit).extract(images, title="work").features
    printed = capsys.readouterr().err
    assert printed.count("11/11") == printed.count("\n") == 1
    keeping, computed = extractor(vit, cache=tmp_path / "cache"), []

    def interrupt(_: nn.Module, batch: tuple[Tensor]) -> None:
        computed.append(len(batch[0]))
        if len(computed) == 3:
            with next((tmp_path / "cache").glob("*.partial")).open("ab") as file:
                file.write(b"half a row")
            raise KeyboardInterrupt

    with vit.register_forward_pre_hook(interrupt):
        with pytest.raises(KeyboardInterrupt):
            keeping.extract(images)
        assert torch.equal(keeping.extract(images, title="work").features, sound)
    assert computed == [4, 4, 3, 3]
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".npy"]
    printed = capsys.readouterr().err
    assert printed.count("11/11") == printed.count("\n") == 1


def test_cache_file_damaged_is_named(images: Images, vit: nn.Module, tmp_path: Path):
    keeping = extractor(vit, cache=tmp_path / "cache")
    keeping.extract(images)
    (file,) = (tmp_path / "cache").glob("*.npy")
    file.write_bytes(b"half")
    with pytest.raises(ValueError, match=rf"{file.name} is no feature file of this program: delete it"):
        keeping.extract(images)


VIT: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2}
VIT |= {"num_heads": 3, "num_classes": 0}
MEAN = "the mean of the patches after the final norm"


@torch.no_grad()
@pytest.mark.parametrize(
    ("pool", "title"),
    [
        ({"global_pool": "avg"}, "the mean of the patches, then the final norm"),
        ({"global_pool": "avg", "class_token": False}, "the mean of the patches, then the final norm"),
        ({"global_pool": "avg", "fc_norm": False}, MEAN),
        ({"global_pool": "map", "class_token": False}, "the attention-pooled patches after the final norm"),
    ],
)
def test_features_of_pooling_model_are_what_their_description_says(pool: dict[str, Any], title: str):
    torch.manual_seed(0)
    model = VisionTransformer(**VIT | pool).eval()
    for tensor in model.parameters():
        tensor.add_(0.3 * torch.randn_like(tensor))
    pixels = torch.randn(2, 3, 32, 32)
    tokens = model.blocks(model._pos_embed(model.patch_embed(pixels)))
    patches = tokens[:, model.num_prefix_tokens :]
    norm = model.fc_norm if "then" in title else model.norm
    outputs = {
        "the mean of the patches, then the final norm": lambda: norm(patches.mean(dim=1)),
        MEAN: lambda: norm(patches).mean(dim=1),
        "the attention-pooled patches after the final norm": lambda: model.attn_pool(norm(patches)),
    }
    assert OUTPUT.describe(model) == title
    torch.testing.assert_close(OUTPUT.compute(model, pixels), outputs[title](), rtol=0, atol=1e-5)
    kind = FeatureType(1, "none", "mean")
    assert kind.describe(model) == MEAN
    torch.testing.assert_close(kind.compute(model, pixels), norm(patches).mean(dim=1), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=rf"outputs {title}, not a \[CLS\] token: choose the tokens output"):
        FeatureType(1, "none", "cls").compute(model, pixels)


@torch.no_grad()
@pytest.mark.parametrize(
    ("create", "title"),
    [
        (lambda: VisionTransformer(**VIT), "[CLS] after the final norm"),
        (
            lambda: VisionTransformerDistilled(**VIT),
            "the mean of [CLS] and the distillation token after the final norm",
        ),
        (lambda: made("CaiT"), "the class token after the final norm"),
        (lambda: timm.create_model("resnet10t", num_classes=0), "the pooled output of a ResNet"),
    ],
)
def test_output_is_that_of_the_model_and_is_named(create: Any, title: str):
    model, pixels = create().eval(), torch.randn(2, 3, 32, 32)
    assert OUTPUT.describe(model) == title
    torch.testing.assert_close(OUTPUT.compute(model, pixels), model(pixels))
