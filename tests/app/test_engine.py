"""Encodings: their arrays, names, bounds and memory."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest
import timm

from app.limits.bounds import Limits
from app.limits.errors import LabError, NotHere
from app.store.engine import Key, check_patches, encode
from app.store.images import png
from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.load import LoadedModel
from tests.app.conftest import MODEL, small_backend


def noise(seed: int, height: int = 48, width: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "arguments",
    [("kitten", None, 64), ("kitten", MODEL, "64"), ("kitten", MODEL, True),
     ("kitten", MODEL, 31), ("kitten", MODEL, 2049), ("kitten", MODEL, -64),
     ("kitten", "/etc/passwd", 64), ("../x", MODEL, 64)],
)  # fmt: skip
def test_encode_with_invalid_arguments_is_refused(backend, arguments):
    with pytest.raises(LabError):
        backend.encode(*arguments)


def test_block_that_does_not_exist_and_values_beyond_16_bits_are_refused(encoding, monkeypatch):
    for arrays in (encoding.queries_keys, encoding.features):
        for block in (-1, 12):
            with pytest.raises(LabError, match="blocks 0 to 11"):
                arrays(block)
    monkeypatch.setattr(AttentionPredictor, "tokens", lambda *_: np.full((25, 192), 1e6, np.float32))
    with pytest.raises(LabError, match="exceed 16 bits"):
        encoding.features(6)


def test_same_content_model_and_size_are_encoded_once_and_have_one_token(backend, photo, encoding):
    assert backend.encode(photo, MODEL, 64) is encoding
    others = (("kitten", MODEL, 64), (photo, "random:embedded", 64), (photo, MODEL, 48))
    assert len({encoding.key.token, *(backend.encode(*other).key.token for other in others)}) == 4


def test_key_of_its_token_is_the_same_key_and_other_tokens_are_refused():
    for key in (Key("a" * 32, MODEL, 2048, "17f3"), Key("komodo", "mein Modell (ä, ü).pth", 32)):
        assert Key.of(key.token) == key
        assert all(letter.isalnum() or letter in ".-_" for letter in key.token)
    model = "ZW1iZWRkZWQ"
    for token in ("", "kitten.224", *(f"kitten.{size}.{model}" for size in ("x", "0224")), "a.1.!.b.c"):
        with pytest.raises(NotHere, match="open the image again"):
            Key.of(token)


def test_concurrent_requests_each_get_their_own_encoding(backend):
    images = {backend.images.keep(png(noise(seed))): noise(seed) for seed in range(10, 22)}
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda photo: backend.encode(photo, MODEL, 48), images))
    predictor = AttentionPredictor(MODEL, size=48, precision="fp32", device="cpu")
    for encoding, (photo, image) in zip(found, images.items(), strict=True):
        assert encoding.key.image == photo
        predictor.set_image(image)
        np.testing.assert_array_equal(encoding.queries_keys(3)[0], predictor.queries_keys(3)[0])


def test_forgotten_image_is_refused_and_forgotten_encoding_is_computed_again():
    backend = small_backend(Limits(max_memory_mb=1))
    first = backend.images.keep(png(noise(1, 300, 300)))  # 0.27 MB; files have a quarter of 1 MB
    backend.images.keep(png(noise(2, 300, 300)))
    with pytest.raises(NotHere, match="open it again"):
        backend.encode(first, MODEL, 64)
    backend = small_backend(Limits(max_memory_mb=4))
    encoding = backend.encode("kitten", MODEL, 224)  # 2.1 MB; encodings have a half of 4 MB
    backend.encode("komodo", MODEL, 224)
    again = backend.encoding(encoding.key.token)
    assert again is not encoding
    np.testing.assert_array_equal(again.queries_keys(0)[0], encoding.queries_keys(0)[0])


def test_bytes_of_an_encoding_are_those_of_its_tokens_before_and_after_every_block(encoding):
    tokens = np.prod(encoding.predictor.grid) + encoding.predictor.prefix_tokens
    assert encoding.nbytes == (1 + encoding.predictor.blocks) * tokens * 192 * 4  # float32


@pytest.mark.parametrize(
    ("width", "patches", "advice"),
    [
        (2048, None, ""),
        (2064, "8,256", "choose resolution 640"),
        (200_000, "800,000", "longer side to 2.0 t"),
    ],
)
def test_images_have_up_to_8192_patches(width, patches, advice):
    """Of 1,024 pixels, 64 patches of 16 pixels, in height."""
    if patches is None:
        return check_patches((1024, width), 1024, 16, Limits())
    with pytest.raises(LabError, match=rf"has {patches} patches, more than the 8,192 allowed: .*{advice}"):
        check_patches((1024, width), 1024, 16, Limits())


def test_image_with_too_many_patches_is_refused_before_it_is_encoded(backend, monkeypatch):
    monkeypatch.setattr(AttentionPredictor, "set_image", lambda *_: pytest.fail("it was encoded"))
    with pytest.raises(LabError, match=r"6000 × 10 pixels .* to 75\.0 times the shorter one\.$"):
        backend.encode(backend.images.keep(png(noise(3, 10, 6000))), MODEL, 64)


def test_removed_image_is_deleted_with_its_encodings(backend, pixels):
    name = backend.images.keep(png(pixels[::-1].copy()))
    token = backend.encode(name, MODEL, 48).key.token
    assert backend.holds(token)
    backend.forget(name)
    assert not backend.holds(token)
    with pytest.raises(NotHere):
        backend.images.read(name)


def test_failure_of_the_model_is_reported_without_paths(backend, photo, monkeypatch, capsys):
    monkeypatch.setattr(AttentionPredictor, "set_image", Mock(side_effect=RuntimeError("no /dev/secret")))
    with pytest.raises(LabError, match=r"^random:vit_tiny/16 cannot encode this image: [a-z ]+\.$"):
        backend.encode(photo, MODEL, 80)
    assert "/dev/secret" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("beit_base_patch16_224", {}), ("vit_base_patch16_siglip_224", {"dynamic_img_size": True}),
     ("cait_xxs24_224", {}), ("xcit_nano_12_p16_224", {})],
)  # fmt: skip
def test_models_whose_attention_does_not_follow_from_queries_keys_and_cls_are_refused(architecture, options):
    small = timm.create_model(architecture, depth=2, num_classes=0, **options).eval()
    model = LoadedModel(architecture, small, (0.5,) * 3, (0.5,) * 3, "random", None)
    with pytest.raises(LabError, match="that follows from queries and keys"):
        encode(Key("kitten", architecture, 64), AttentionPredictor(model), noise(0), Limits())


def test_choices_of_an_address_that_no_list_has_are_computed_or_refused_in_a_sentence(page):
    assert page.encode("kitten", page.model.preprocess(MODEL), page.size.preprocess("96")).key.size == 96
    with pytest.raises(NotHere, match=r"^There is no model of that name: choose one of "):
        page.encode("kitten", page.model.preprocess("x"), 64)
    with pytest.raises(LabError, match=r"^The resolution must be a whole number from 32 to 2048 pixels\.$"):
        page.encode("kitten", MODEL, page.size.preprocess("9"))
    with pytest.raises(LabError, match="patches, more than the 1,200 allowed"):
        page.encode("kitten", MODEL, page.size.preprocess("2048"))


def test_header_states_parameters_and_patches_of_the_model_and_offers_resolutions(page, photo):
    value = page.show_image(f"{photo}/noise.png", MODEL, 64)
    assert value["facts"] == "5.5 M parameters · 6 × 4 patches of 16 pixels"
    assert value["details"].endswith("12 blocks of 3 heads, fp32 on cpu")
    assert [size for _, size in page.size.choices] == [64, 224, 336, 480, 640]
