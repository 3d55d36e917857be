import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dino_model.attention import ReadableViT, attention_rows
from dino_model.backbones import BackboneConfig, create_backbone, forward_tokens
from dino_model.options import ModelOptions
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
def test_maps_from_the_cache_equal_those_computed_directly(registers: int):
    model = tiny_model(reg_tokens=registers)
    predictor, image = tiny_predictor(model=model), photo()
    predictor.set_image(image)
    assert (predictor.image_size, predictor.input_size, predictor.grid) == ((40, 60), (32, 48), (4, 6))
    assert (predictor.heads, predictor.blocks, predictor.patch_size) == (3, 3, 8)
    assert predictor.prefix_tokens == 1 + registers
    pixels = by_hand(image, 32, 48)
    for block in (0, 1, -1):
        rows = attention_rows(model.backbone, pixels, None, block)[0, :, :, 1 + registers :].unflatten(
            -1, (4, 6)
        )
        np.testing.assert_allclose(predictor.cls_attention(block), rows[:, 0], atol=5e-6)
        found = predictor.point_attention(39, 0, block)  # bottom left
        np.testing.assert_allclose(found, rows[:, 1 + registers + 3 * 6], atol=5e-6)
        assert found.dtype == np.float32
        assert found.shape == (3, 4, 6)
    assert (predictor.cls_attention().sum((1, 2)) < 1).all(), "the prefix tokens keep their share"


def test_queries_and_keys_give_the_same_maps():
    predictor = tiny_predictor(model=tiny_model(reg_tokens=2))
    predictor.set_image(photo())
    for block in (0, -1):
        query, key = predictor.queries_keys(block)
        assert query.dtype == key.dtype == np.float16
        assert query.shape == key.shape == (3, 3 + 4 * 6, 8)
        scores = query[:, 0].astype(np.float32)[:, None] @ key.astype(np.float32).transpose(0, 2, 1) / 8**0.5
        attention = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        maps = attention[:, 0, predictor.prefix_tokens :].reshape(3, 4, 6)
        np.testing.assert_allclose(maps, predictor.cls_attention(block), atol=2e-3)


def test_token_features_are_the_normed_patch_tokens_of_any_block():
    model = tiny_model()
    predictor, image = tiny_predictor(model=model), photo()
    predictor.set_image(image)
    with torch.no_grad():
        expected = forward_tokens(model.backbone, by_hand(image, 32, 48))[0, 1:].unflatten(0, (4, 6))
        _, between = model.backbone.forward_intermediates(by_hand(image, 32, 48), [0, 1], norm=True)
    np.testing.assert_allclose(predictor.token_features(), expected, atol=1e-5)
    for block in (0, 1):
        np.testing.assert_allclose(
            predictor.token_features(block), between[block][0].permute(1, 2, 0), atol=1e-5
        )
    assert predictor.token_features().dtype == np.float32


def test_features_of_a_batch_equal_those_one_by_one_and_leave_the_picture_alone():
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


def test_everything_after_set_image_comes_from_one_encoding(monkeypatch: pytest.MonkeyPatch):
    predictor, runs = tiny_predictor(), []
    embed = ReadableViT.embed
    monkeypatch.setattr(ReadableViT, "embed", lambda *arguments: runs.append(1) or embed(*arguments))
    predictor.set_image(photo())
    for block in range(3):
        predictor.cls_attention(block)
        predictor.point_attention(1, 1, block)
        predictor.queries_keys(block)
        predictor.token_features(block)
    assert len(runs) == 1
    predictor.set_image(photo())
    assert len(runs) == 1, "the same picture again is not encoded again"


def test_pictures_are_remembered_by_content_and_forgotten_by_age(monkeypatch: pytest.MonkeyPatch):
    predictor, encoded = tiny_predictor(remember=2), []
    encode = predictor._encode
    monkeypatch.setattr(predictor, "_encode", lambda image: encoded.append(1) or encode(image))
    first, second, third = (photo(seed=seed) for seed in range(3))
    maps = {}
    for name, image in {"first": first, "second": second}.items():
        predictor.set_image(image)
        maps[name] = predictor.cls_attention()
    predictor.set_image(first.copy())
    np.testing.assert_array_equal(predictor.cls_attention(), maps["first"])
    assert len(encoded) == 2
    predictor.set_image(third)  # forgets the second, looked at longest ago
    predictor.set_image(first)
    assert len(encoded) == 3
    predictor.set_image(second)
    assert len(encoded) == 4
    np.testing.assert_array_equal(predictor.cls_attention(), maps["second"])


def test_the_same_bytes_in_another_shape_are_another_picture():
    predictor = tiny_predictor()
    predictor.set_image(photo(40, 60))
    predictor.set_image(photo(40, 60).reshape(60, 40, 3))
    assert predictor.grid == (6, 4)


def test_bf16_is_close_to_fp32():
    model, image = tiny_model(), photo(64, 64)
    exact, fast = (tiny_predictor(model=model, precision=precision) for precision in ("fp32", "bf16"))
    for predictor in (exact, fast):
        predictor.set_image(image)
    assert (exact.precision, fast.precision) == ("fp32", "bf16")
    for block in (0, -1):
        difference = np.abs(fast.cls_attention(block) - exact.cls_attention(block)).max()
        assert 0 < difference < 0.02
    features, expected = fast.features([image]).numpy(), exact.features([image]).numpy()
    assert 0 < np.linalg.norm(features - expected) / np.linalg.norm(expected) < 0.03


def test_maps_of_a_picture_of_any_channels():
    predictor = tiny_predictor(model=tiny_model(in_channels=1))
    predictor.set_image(photo(40, 60, 1))
    assert predictor.cls_attention().shape == (3, 4, 6)
    assert tiny_predictor(model=tiny_model(in_channels=1), resize="davis", size=64).features(
        [photo(40, 60, 1)]
    ).shape == (1, 8, 8, 24)


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(1, 2000),
    width=st.integers(1, 2000),
    size=st.integers(1, 700),
    resize=st.sampled_from(["short-side", "squash", "native"]),
    patch=st.sampled_from([5, 8, 14, 16]),
)
def test_fed_sizes_are_whole_patches_near_what_was_asked(height, width, size, resize, patch):
    fed = fed_size(height, width, size, resize, patch)
    scale = size / min(height, width)
    asked = {"short-side": (height * scale, width * scale), "squash": (size, size), "native": (height, width)}
    for side, wanted in zip(fed, asked[resize], strict=True):
        assert side % patch == 0
        assert side >= patch
        assert abs(side - wanted) <= patch / 2 + 1e-6 or side == patch
    assert fed_size(width, height, size, resize, patch) == fed[::-1]


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
def test_davis_sizes_are_those_of_the_official_protocol(picture: tuple[int, int], fed: tuple[int, int]):
    assert fed_size(*picture, 480, "davis", 16) == fed


def test_davis_pads_to_whole_patches_and_says_so():
    predictor = tiny_predictor(resize="davis", size=68)
    predictor.set_image(photo(68, 130))
    assert (predictor.input_size, predictor.grid) == ((68, 128), (9, 16))
    assert "resized (davis) to 68 × 128, padded by 4 × 0 = 9 × 16 patches of 8" in predictor.describe()


def test_a_description_says_what_happened_to_the_picture():
    predictor = tiny_predictor()
    predictor.set_image(photo(33, 51))
    assert predictor.describe() == (
        "33 × 51 picture, resized (short-side) to 32 × 48 = 4 × 6 patches of 8; tiny, fp32 on cpu"
    )


@settings(max_examples=30, deadline=None)
@given(height=st.integers(1, 90), width=st.integers(1, 90), data=st.data())
def test_every_pixel_has_a_patch_that_covers_it(height: int, width: int, data: st.DataObject):
    predictor = shared_predictor()
    predictor.set_image(photo(height, width))
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    patch = predictor.patch_at(y, x)
    for index, pixel, side, fed, count in zip(
        patch, (y, x), (height, width), predictor.input_size, predictor.grid, strict=True
    ):
        assert 0 <= index < count
        centre = (pixel + 0.5) * fed / side
        assert index * 8 <= centre < (index + 1) * 8


def shared_predictor(kept: list[AttentionPredictor] = []) -> AttentionPredictor:  # noqa: B006 (made once)
    if not kept:
        kept.append(tiny_predictor(resize="native"))
    return kept[0]


def test_a_single_pixel_and_a_long_strip_work():
    predictor = tiny_predictor()
    predictor.set_image(photo(1, 1))
    assert predictor.grid == (4, 4)
    assert predictor.patch_at(0, 0) == (2, 2)
    predictor.set_image(photo(10, 1000))
    assert predictor.grid == (4, 400)
    assert np.isfinite(predictor.cls_attention()).all()


def test_a_picture_of_too_many_patches_is_refused_with_a_remedy():
    with pytest.raises(
        ValueError, match="20 × 100000 makes 4 × 20000 patches, more than 16,384: choose a smaller"
    ):
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
def test_what_is_no_picture_is_told(image: object, found: str):
    predictor = tiny_predictor()
    predictor.set_image(photo())
    for take in (predictor.set_image, lambda picture: predictor.features([picture])):
        with pytest.raises(ValueError, match=rf"must be a uint8 array \[height, width, 3\], found .*{found}"):
            take(image)
    assert predictor.image_size == (40, 60), "the picture before stays"


def test_questions_that_have_no_answer_are_told():
    predictor = tiny_predictor()
    for ask in (predictor.cls_attention, predictor.queries_keys, predictor.describe, lambda: predictor.grid):
        with pytest.raises(ValueError, match="no picture is set: call set_image first"):
            ask()
    predictor.set_image(photo(40, 60))
    for point in ((40, 0), (0, 60), (-1, 0)):
        with pytest.raises(ValueError, match="is outside of the picture: y ends at 39, x at 59"):
            predictor.point_attention(*point)
    for point in ((float("nan"), 0), (1.5, 0), ("1", 0), (None, 0)):
        with pytest.raises(ValueError, match="is not a pixel: give whole numbers"):
            predictor.point_attention(*point)
    with pytest.raises(ValueError, match="no block 3"):
        predictor.cls_attention(3)
    with pytest.raises(ValueError, match="no block -4"):
        predictor.token_features(-4)
    for images in ([], [photo(), photo(8, 8)]):
        with pytest.raises(ValueError, match="expected pictures of one size, found"):
            predictor.features(images)


def test_a_model_that_answers_with_nan_is_refused():
    early, late = tiny_model(), tiny_model()
    with torch.no_grad():
        early.backbone.blocks[0].mlp.fc1.bias[0] = float("nan")
        late.backbone.blocks[2].attn.qkv.weight[0] = float("nan")
    message = "tiny answers with NaN or infinity in fp32: its weights are broken"
    with pytest.raises(ValueError, match=message):
        tiny_predictor(model=early).set_image(photo())
    predictor = tiny_predictor(model=late)
    predictor.set_image(photo())
    predictor.cls_attention(0)
    for ask in (predictor.cls_attention, predictor.token_features, lambda: predictor.features([photo()])):
        with pytest.raises(ValueError, match=message):
            ask()


def test_queries_beyond_float16_are_refused():
    model = tiny_model()
    with torch.no_grad():
        model.backbone.blocks[0].attn.qkv.weight[:24] *= 1e6
    predictor = tiny_predictor(model=model)
    predictor.set_image(photo())
    with pytest.raises(ValueError, match="block 0 of tiny are too large for float16"):
        predictor.queries_keys(0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"remember": 0}, "remember is 0"),
        ({"resize": "stretch"}, "unknown resize 'stretch': choose one of short-side, squash, native, davis"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"mean": (0.5,)}, "expected 3 figures"),
        ({"std": (0.5, 0.5, 0)}, "expected 3 figures, for std above 0"),
    ],
)
def test_settings_that_cannot_be_are_told(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        tiny_predictor(**settings)
    with pytest.raises(ValueError, match="choose 64 or more"):
        tiny_predictor(resize="davis", size=32).set_image(photo())


def test_a_resnet_is_refused():
    resnet = create_backbone(BackboneConfig("resnet50"))
    with pytest.raises(ValueError, match="attention of a ResNet cannot be read"):
        tiny_predictor(model=LoadedModel("rn50", resnet, MEAN, STD, "made here", None))


def test_own_normalisation_replaces_the_models():
    model, image = tiny_model(), photo()
    other = tiny_predictor(model=model, mean=(0.1, 0.1, 0.1), std=(1, 1, 1)).features([image])
    assert not torch.allclose(other, tiny_predictor(model=model).features([image]))
    same = tiny_predictor(model=model, mean=MEAN, std=STD).features([image])
    torch.testing.assert_close(same, tiny_predictor(model=model).features([image]))


def test_davis_pictures_are_sampled_without_antialiasing():
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


def test_command_predictor_gives_the_same_maps_whatever_it_saw_before():
    """Maps depend on the image and the settings alone, not on the number of images before."""
    images = [np.random.default_rng(seed).integers(0, 256, (64, 80, 3), np.uint8) for seed in range(5)]
    predictor = ModelOptions(model="random:vit_tiny/16", size=64, device="cpu").predictor()
    maps = []
    for image in [images[0], *images[1:], images[0]]:
        predictor.set_image(image)
        maps.append(predictor.cls_attention())
    assert np.array_equal(maps[0], maps[-1])
    assert predictor.computed == f"{predictor.precision} on cpu"


def test_token_norms_are_the_lengths_of_the_blocks_output():
    predictor = AttentionPredictor("random:vit_tiny/16", size=64, precision="fp32", device="cpu")
    image = np.random.default_rng(0).integers(0, 256, (64, 80, 3), np.uint8)
    predictor.set_image(image)
    vit = predictor.model.backbone
    with torch.no_grad():
        tokens = vit._pos_embed(vit.patch_embed(predictor._prepare(image)))
        for block in vit.blocks[:3]:
            tokens = block(tokens)
    expected = tokens[0, 1:].norm(dim=-1).reshape(4, 5).numpy()
    np.testing.assert_allclose(predictor.token_norms(2), expected, rtol=1e-4)
    assert predictor.token_norms().shape == (4, 5)
