from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dino_model.attention import attention_rows
from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.predictor import AttentionPredictor
from dino_model.resize import fed_size
from dino_model.weights import LoadedModel

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def tiny_model(reg_tokens: int = 0, in_channels: int = 3, **settings) -> LoadedModel:
    """Three blocks of three heads, patches of 8, weights large enough for uneven attention."""
    config = BackboneConfig(
        patch_size=8, image_size=32, in_channels=in_channels, width=24, depth=3, heads=3, **settings
    )
    vit = create_backbone(config)
    if reg_tokens:
        vit.reg_token = torch.nn.Parameter(torch.zeros(1, reg_tokens, 24))
        vit.num_prefix_tokens, vit.no_embed_class = 1 + reg_tokens, True
        vit.pos_embed = torch.nn.Parameter(torch.zeros(1, 16, 24))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in vit.parameters():
            tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))
    return LoadedModel("tiny", vit.eval(), MEAN[:in_channels], STD[:in_channels], "made here", config)


def tiny_predictor(**settings) -> AttentionPredictor:
    options = {"model": tiny_model(), "size": 32, "precision": "fp32", "device": "cpu"}
    return AttentionPredictor(**options | settings)


def photo(height: int = 40, width: int = 60, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def by_hand(image: np.ndarray, height: int, width: int) -> Tensor:
    """Resized by Pillow and normalised: [1, 3, height, width]."""
    resized = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(((resized / 255 - MEAN) / STD).astype(np.float32)).permute(2, 0, 1)[None]


@pytest.mark.parametrize("registers", [0, 4])
def test_predictor_maps_equal_direct_computation(registers: int):
    model = tiny_model(reg_tokens=registers)
    predictor, image = tiny_predictor(model=model), photo()
    predictor.set_image(image)
    assert (predictor.image_size, predictor.input_size, predictor.grid) == ((40, 60), (32, 48), (4, 6))
    assert (predictor.heads, predictor.blocks, predictor.patch_size) == (3, 3, 8)
    assert predictor.prefix_tokens == 1 + registers
    pixels = by_hand(image, 32, 48)
    for block in (0, 1, -1):
        rows = attention_rows(model.backbone, pixels, None, block)[0, :, :, 1 + registers :]
        rows = rows.unflatten(-1, (4, 6))
        np.testing.assert_allclose(predictor.cls_attention(block), rows[:, 0], atol=5e-6)
        found = predictor.point_attention(39, 0, block)  # bottom left
        np.testing.assert_allclose(found, rows[:, 1 + registers + 3 * 6], atol=5e-6)
        assert found.dtype == np.float32
        assert found.shape == (3, 4, 6)
    assert (predictor.cls_attention().sum((1, 2)) < 1).all(), "the prefix tokens keep their share"


def test_token_features_and_norms_equal_tokens():
    model = tiny_model()
    predictor, image = tiny_predictor(model=model), photo()
    predictor.set_image(image)
    with torch.no_grad():
        expected = model.backbone.forward_features(by_hand(image, 32, 48))[0, 1:].unflatten(0, (4, 6))
        _, between = model.backbone.forward_intermediates(by_hand(image, 32, 48), [0, 1], norm=True)
        _, plain = model.backbone.forward_intermediates(by_hand(image, 32, 48), [0, 1, 2])
    np.testing.assert_allclose(predictor.token_features(), expected, atol=1e-5)
    for block in (0, 1):
        tokens = between[block][0].permute(1, 2, 0)
        np.testing.assert_allclose(predictor.token_features(block), tokens, atol=1e-5)
    assert predictor.token_features().dtype == np.float32
    for block in range(3):
        np.testing.assert_allclose(predictor.token_norms(block), plain[block][0].norm(dim=0), rtol=1e-4)


def test_features_of_batch_equal_single_images():
    predictor, images = tiny_predictor(), [photo(seed=seed) for seed in range(3)]
    predictor.set_image(images[0])
    batch = predictor.features(images[1:])
    assert batch.shape == (2, 4, 6, 24)
    assert batch.dtype == torch.float32
    before = predictor.token_features()
    for image, features in zip(images[1:], batch, strict=True):
        predictor.set_image(image)
        np.testing.assert_allclose(predictor.token_features(), features, atol=1e-5)
    predictor.set_image(images[0])
    np.testing.assert_array_equal(predictor.token_features(), before)


@pytest.mark.parametrize(
    ("picture", "fed"),
    [
        ((480, 854), (480, 832)),  # the sizes of DAVIS
        ((480, 910), (480, 896)),
        ((1080, 1920), (480, 832)),
        ((854, 480), (832, 480)),
        ((500, 500), (480, 448)),  # as the official code has it: the height counts as the short side
    ],
)
def test_fed_size_davis_equals_official_protocol(picture: tuple[int, int], fed: tuple[int, int]):
    assert fed_size(*picture, 480, "davis", 16) == fed


@cache
def shared_predictor() -> AttentionPredictor:
    return tiny_predictor(resize="native")


@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 90), width=st.integers(1, 90), data=st.data())
def test_patch_at_covers_every_pixel(height: int, width: int, data: st.DataObject):
    predictor = shared_predictor()
    predictor.set_image(photo(height, width))
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    patch = predictor.patch_at(y, x)
    sizes = zip(patch, (y, x), (height, width), predictor.input_size, predictor.grid, strict=True)
    for index, pixel, side, fed, count in sizes:
        assert 0 <= index < count
        centre = (pixel + 0.5) * fed / side
        assert index * 8 <= centre < (index + 1) * 8


def test_set_image_with_too_many_patches_raises():
    with pytest.raises(ValueError, match="20 × 100000 has 4 × 20000 patches, more than 16,384: choose a"):
        tiny_predictor().set_image(photo(20, 100_000))


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (np.zeros((4, 4), np.uint8), r"uint8 array of shape \(4, 4\)"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 array of shape \(4, 4, 4\)"),
        (np.zeros((4, 4, 3), np.float32), "float32 array"),
        (np.zeros((0, 4, 3), np.uint8), r"\(0, 4, 3\)"),
        ("photo.jpg", "str"),
        (None, "NoneType"),
    ],
)
def test_set_image_of_other_arrays_raises(image: object, found: str):
    predictor = tiny_predictor()
    predictor.set_image(photo())
    message = rf"expected a uint8 array \[height, width, 3\], found .*{found}"
    for take in (predictor.set_image, lambda picture: predictor.features([picture])):
        with pytest.raises(ValueError, match=message):
            take(image)
    assert predictor.image_size == (40, 60), "the picture before stays"


def test_predictor_without_image_or_block_raises():
    predictor = tiny_predictor()
    for ask in (predictor.cls_attention, predictor.queries_keys, predictor.describe, lambda: predictor.grid):
        with pytest.raises(ValueError, match="no image is set: call set_image first"):
            ask()
    predictor.set_image(photo(40, 60))
    for point in ((40, 0), (0, 60), (-1, 0)):
        with pytest.raises(ValueError, match="is outside of the image: y ends at 39, x at 59"):
            predictor.point_attention(*point)
    for point in ((float("nan"), 0), (1.5, 0), ("1", 0), (None, 0)):
        with pytest.raises(ValueError, match="is not a pixel: expected whole numbers"):
            predictor.point_attention(*point)
    with pytest.raises(ValueError, match="no block 3"):
        predictor.cls_attention(3)
    with pytest.raises(ValueError, match="no block -4"):
        predictor.token_features(-4)
    for images in ([], [photo(), photo(8, 8)]):
        with pytest.raises(ValueError, match="expected images of one size, found"):
            predictor.features(images)


def test_set_image_with_nan_output_raises():
    early, late = tiny_model(), tiny_model()
    with torch.no_grad():
        early.backbone.blocks[0].mlp.fc1.bias[0] = float("nan")
        late.backbone.blocks[2].attn.qkv.weight[0] = float("nan")
    message = "tiny outputs NaN or infinity in fp32: its weights are broken"
    with pytest.raises(ValueError, match=message):
        tiny_predictor(model=early).set_image(photo())
    predictor = tiny_predictor(model=late)
    predictor.set_image(photo())
    predictor.cls_attention(0)
    for ask in (predictor.cls_attention, predictor.token_features, lambda: predictor.features([photo()])):
        with pytest.raises(ValueError, match=message):
            ask()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"resize": "stretch"}, "unknown resize 'stretch': choose one of short-side, squash, native, davis"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"device": "tpu"}, "device 'tpu' is not available"),
        ({"std": (0.5,)}, "expected 3 values"),
        ({"std": (0.5, 0.5, 0)}, "expected 3 values, for std above 0"),
    ],
)
def test_predictor_with_invalid_settings_raises(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        tiny_predictor(**settings)
    with pytest.raises(ValueError, match="needs at least 64"):
        tiny_predictor(resize="davis", size=32).set_image(photo())


def test_resize_davis_samples_without_antialiasing():
    """As OpenCV samples: between the two source pixels around each target's centre, whatever lies between."""
    picture = np.random.default_rng(0).integers(0, 256, (150, 300, 3), dtype=np.uint8)
    predictor = AttentionPredictor("random:vit_tiny/16", size=64, resize="davis", precision="fp32")
    predictor.set_image(picture)
    assert predictor.input_size == (64, 128)
    plain = AttentionPredictor("random:vit_tiny/16", resize="native", precision="fp32")
    plain.set_image(between_two(picture, (64, 128)))
    np.testing.assert_allclose(predictor.tokens(), plain.tokens(), atol=0.05)
    smooth = AttentionPredictor("random:vit_tiny/16", size=64, precision="fp32")
    smooth.set_image(picture)
    assert np.abs(smooth.tokens() - plain.tokens()).max() > 0.5


def between_two(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear by its definition, one axis after the other, rounded at the end: uint8 [*size, 3]."""
    values = picture.astype(np.float64)
    for axis, length in enumerate(size):
        centres = (np.arange(length) + 0.5) * values.shape[axis] / length - 0.5
        low = np.floor(centres).astype(int).clip(0, values.shape[axis] - 2)
        share = (centres - low).reshape([-1 if one == axis else 1 for one in range(3)])
        values = values.take(low, axis) * (1 - share) + values.take(low + 1, axis) * share
    return np.rint(values).astype(np.uint8)
