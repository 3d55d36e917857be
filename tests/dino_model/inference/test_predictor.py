import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dino_model.inference.predictor import AttentionPredictor
from dino_model.inference.resize import fed_size
from dino_model.models.attention import attention_rows
from dino_model.models.load import LoadedModel
from tests.dino_model.small_models import made

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def tiny_predictor(family: str = "ViT, no bias", **options) -> AttentionPredictor:
    """Three blocks of three heads, patches of 8."""
    model = LoadedModel("tiny", made(family), MEAN, STD, "made here", None)
    return AttentionPredictor(**{"model": model, "size": 32, "precision": "fp32", "device": "cpu"} | options)


def photo(height: int = 40, width: int = 60, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def by_hand(image: np.ndarray, height: int, width: int) -> Tensor:
    """Resize by Pillow and normalize: [1, 3, height, width]."""
    resized = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(((resized / 255 - MEAN) / STD).astype(np.float32)).permute(2, 0, 1)[None]


@torch.no_grad()
@pytest.mark.parametrize(("family", "prefix"), [("ViT, no bias", 1), ("ViT, registers", 5)])
def test_maps_and_tokens_equal_direct_computation(family: str, prefix: int):
    predictor, image = tiny_predictor(family), photo()
    predictor.set_image(image)
    vit, pixels = predictor.model.backbone, by_hand(image, 32, 48)
    assert (predictor.image_size, predictor.input_size, predictor.grid) == ((40, 60), (32, 48), (4, 6))
    assert (predictor.heads, predictor.blocks, predictor.patch_size) == (3, 3, 8)
    assert predictor.prefix_tokens == prefix
    normed = vit.forward_intermediates(pixels, 3, norm=True, intermediates_only=True)
    plain = vit.forward_intermediates(pixels, 3, intermediates_only=True)
    for block in (0, 1, -1):
        rows = attention_rows(vit, pixels, None, block)[0, :, :, prefix:].unflatten(-1, (4, 6))
        np.testing.assert_allclose(predictor.cls_attention(block), rows[:, 0], atol=5e-6)
        found = predictor.point_attention(39, 0, block)  # bottom left
        np.testing.assert_allclose(found, rows[:, prefix + 3 * 6], atol=5e-6)
        assert (found.dtype, found.shape) == (np.float32, (3, 4, 6))
        tokens = predictor.token_features(block)
        np.testing.assert_allclose(tokens, normed[block][0].permute(1, 2, 0), atol=2e-5)
        assert tokens.dtype == np.float32
        np.testing.assert_allclose(predictor.token_norms(block), plain[block][0].norm(dim=0), rtol=1e-4)
    assert (predictor.cls_attention().sum((1, 2)) < 1).all(), "the prefix tokens keep their share"


def test_features_of_batch_equal_single_images():
    predictor, images = tiny_predictor(), [photo(seed=seed) for seed in range(3)]
    predictor.set_image(images[0])
    batch = predictor.features(images[1:])
    assert (batch.shape, batch.dtype) == ((2, 4, 6, 48), torch.float32)
    before = predictor.token_features()
    for image, features in zip(images[1:], batch, strict=True):
        predictor.set_image(image)
        np.testing.assert_allclose(predictor.token_features(), features, atol=1e-5)
    predictor.set_image(images[0])
    np.testing.assert_array_equal(predictor.token_features(), before)


@pytest.mark.parametrize(
    ("image", "fed"),
    [
        ((480, 854), (480, 832)),  # the sizes of DAVIS
        ((480, 910), (480, 896)),
        ((500, 500), (480, 448)),  # as the official code has it: the height counts as the short side
    ],
)
def test_fed_size_davis_equals_official_protocol(image: tuple[int, int], fed: tuple[int, int]):
    assert fed_size(*image, 480, "davis", 16) == fed


def test_half_a_patch_is_rounded_up_as_in_the_browser():
    assert fed_size(720, 640, 224, "short-side", 8) == (256, 224)


@pytest.fixture(scope="module")
def native() -> AttentionPredictor:
    return tiny_predictor(resize="native")


@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 90), width=st.integers(1, 90), data=st.data())
def test_patch_at_covers_every_pixel(
    native: AttentionPredictor, height: int, width: int, data: st.DataObject
):
    native.set_image(photo(height, width))
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    patch = native.patch_at(y, x)
    sizes = zip(patch, (y, x), (height, width), native.input_size, native.grid, strict=True)
    for index, pixel, side, fed, count in sizes:
        assert 0 <= index < count
        assert index * 8 <= (pixel + 0.5) * fed / side < (index + 1) * 8


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (np.zeros((4, 4), np.uint8), r"uint8 array of shape \(4, 4\)"),
        (np.zeros((4, 4, 3), np.float32), "float32 array"),
        (np.zeros((0, 4, 3), np.uint8), r"\(0, 4, 3\)"),
        ("photo.jpg", "str"),
    ],
)
def test_set_image_of_other_arrays_keeps_the_former_image(image: object, found: str):
    predictor = tiny_predictor()
    predictor.set_image(photo())
    message = rf"expected a uint8 array \[height, width, 3\], found .*{found}"
    for take in (predictor.set_image, lambda image: predictor.features([image])):
        with pytest.raises(ValueError, match=message):
            take(image)
    assert predictor.image_size == (40, 60)


def test_predictor_without_image_or_with_invalid_arguments_raises():
    predictor = tiny_predictor()
    for ask in (predictor.cls_attention, predictor.queries_keys, predictor.describe, lambda: predictor.grid):
        with pytest.raises(ValueError, match="no image is set: call set_image first"):
            ask()
    predictor.set_image(photo(40, 60))
    outside, no_pixel = "is outside of the image: y ends at 39, x at 59", "is not a pixel: expected whole"
    for ask, arguments, message in (
        *((predictor.point_attention, point, outside) for point in ((40, 0), (0, 60), (-1, 0))),
        *((predictor.point_attention, point, no_pixel) for point in ((float("nan"), 0), (1.5, 0), ("1", 0))),
        (predictor.cls_attention, (3,), "no block 3"),
        (predictor.token_features, (-4,), "no block -4"),
        (predictor.features, ([],), "expected images of one size, found"),
        (predictor.features, ([photo(), photo(8, 8)],), "expected images of one size, found"),
        (predictor.set_image, (photo(20, 100_000),), "20 × 100000 has 4 × 20000 patches, more than 16,384"),
    ):
        with pytest.raises(ValueError, match=message):
            ask(*arguments)


def test_set_image_with_nan_output_raises():
    early, late = tiny_predictor(), tiny_predictor()
    with torch.no_grad():
        early.model.backbone.blocks[0].mlp.fc1.bias[0] = float("nan")
        late.model.backbone.blocks[2].attn.qkv.weight[0] = float("nan")
    message = "tiny outputs NaN or infinity in fp32: its weights are broken"
    with pytest.raises(ValueError, match=message):
        early.set_image(photo())
    late.set_image(photo())
    late.cls_attention(0)
    for ask in (late.cls_attention, late.token_features, lambda: late.features([photo()])):
        with pytest.raises(ValueError, match=message):
            ask()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"resize": "stretch"}, "unknown resize 'stretch': choose one of short-side, squash, native, davis"),
        ({"std": (0.5, 0.5, 0.0)}, "expected 3 values from 0 to 1, for std above 0"),
        ({"std": (0.5, 0.5)}, "expected 3 values from 0 to 1"),
        ({"mean": (0.5, 0.5, 1.01)}, "expected 3 values from 0 to 1"),
        ({"mean": (-0.01, 0.5, 0.5)}, "expected 3 values from 0 to 1"),
        ({"resize": "davis"}, "needs at least 64"),
    ],
)
def test_predictor_with_invalid_settings_raises(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        tiny_predictor(**options).set_image(photo())


def test_limits_of_a_predictor_are_the_last_values_that_it_takes(native):
    tiny_predictor(size=1, mean=(0, 0.5, 1), std=(0.1, 0.5, 1)).set_image(photo())
    assert AttentionPredictor("random:vit_tiny/16").size == 480
    assert native.check_patches(np.zeros((1024, 1024, 3), np.uint8)).shape == (1024, 1024, 3)
    with pytest.raises(ValueError, match="has 128 × 129 patches, more than 16,384"):
        native.check_patches(np.zeros((1024, 1028, 3), np.uint8))
    assert fed_size(64, 130, 64, "davis", 16) == (64, 128)


def test_resize_davis_samples_without_antialiasing():
    image = photo(150, 300)
    davis, native, smooth = (
        AttentionPredictor("random:vit_tiny/16", size=64, resize=resize, precision="fp32")
        for resize in ("davis", "native", "short-side")
    )
    davis.set_image(image)
    assert davis.input_size == (64, 128)
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].double()
    between_two = F.interpolate(pixels, (64, 128), mode="bilinear")[0].permute(1, 2, 0)
    native.set_image(between_two.round().byte().numpy())
    np.testing.assert_allclose(davis.tokens(), native.tokens(), atol=0.05)
    smooth.set_image(image)
    assert np.abs(smooth.tokens() - native.tokens()).max() > 0.5
