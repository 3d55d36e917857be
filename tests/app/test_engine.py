from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import timm

from app.engine import Key, look
from app.errors import LabError, NotHere
from app.lab import Lab
from app.limits import Limits
from dino_model.predictor import AttentionPredictor
from dino_model.weights import LoadedModel
from tests.app.conftest import MODEL, small_lab


def _noise(seed: int, height: int = 48, width: int = 64) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def send(as_file) -> Callable[[Lab, np.ndarray], str]:
    """Keeps an image and returns its name."""
    return lambda lab, picture: lab.images.keep(as_file(picture))


def test_arrays_of_an_encoding_are_the_predictors(encode, photo, predictor):
    encoding = encode(photo)
    for block in (0, 11):
        for found, expected in zip(encoding.queries_keys(block), predictor.queries_keys(block), strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(encoding.features(block), predictor.tokens(block), atol=5e-3)
    assert (encoding.predictor.grid, encoding.predictor.heads, encoding.predictor.blocks) == (
        predictor.grid,
        3,
        12,
    )


@pytest.mark.parametrize(
    "question",
    [(["kitten"], MODEL, 64), ("kitten", None, 64), ("kitten", MODEL, "64"), ("kitten", MODEL, True),
     ("kitten", MODEL, 31), ("kitten", MODEL, 4096), ("kitten", "/etc/passwd", 64), ("../x", MODEL, 64)],
)  # fmt: skip
def test_encode_with_invalid_arguments_raises_one_sentence(lab, question):
    with pytest.raises(LabError):
        lab.encode(*question)


def test_block_that_does_not_exist_and_values_beyond_16_bits_are_refused(encode, photo, monkeypatch):
    encoding = encode(photo)
    for arrays in (encoding.queries_keys, encoding.features):
        for block in (-1, 12):
            with pytest.raises(LabError, match="blocks 0 to 11"):
                arrays(block)
    monkeypatch.setattr(AttentionPredictor, "tokens", lambda *_: np.full((25, 192), 1e6, np.float32))
    with pytest.raises(LabError, match="exceed 16 bits"):
        encoding.features(6)


def test_same_content_model_and_size_are_encoded_once_and_have_one_token(encode, lab, pixels, send):
    first, second = (encode(send(lab, pixels)) for _ in range(2))
    assert first is second
    others = {
        encode(send(lab, pixels), MODEL, 48).key.token,
        encode("kitten").key.token,
        encode(send(lab, pixels), "random:embedded", 64).key.token,
    }
    assert len({first.key.token, *others}) == 4


@pytest.mark.parametrize(
    "key", [Key("a" * 32, "random:vit_tiny/16", 2048, "17f3"), Key("komodo", "mein Modell (ä, ü).pth", 32)]
)
def test_key_of_its_token_is_the_same_key(key):
    assert Key.of(key.token) == key
    assert all(letter.isalnum() or letter in ".-_" for letter in key.token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "kitten.224",
        "kitten.x.ZW1iZWRkZWQ",
        "kitten.-1.ZW1iZWRkZWQ",
        "kitten.0224.ZW1iZWRkZWQ",
        "a.1.!.b.c",
    ],
)
def test_key_of_an_invalid_token_is_refused(token):
    with pytest.raises(NotHere, match="open the image again"):
        Key.of(token)


def test_concurrent_requests_each_get_their_own_encoding(encode, lab, send):
    pictures = {send(lab, _noise(seed)): _noise(seed) for seed in range(10, 22)}
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda photo: encode(photo, MODEL, 48), pictures))
    predictor = AttentionPredictor(MODEL, size=48, precision="fp32", device="cpu")
    for encoding, (photo, picture) in zip(found, pictures.items(), strict=True):
        assert encoding.key.photo == photo
        predictor.set_image(picture)
        np.testing.assert_array_equal(encoding.queries_keys(3)[0], predictor.queries_keys(3)[0])


def test_forgotten_image_is_refused(encode, send):
    lab = small_lab(Limits(max_memory_mb=1))
    first = send(lab, _noise(1, 300, 300))  # a file of 0.27 MB; files have a quarter of 1 MB
    send(lab, _noise(2, 300, 300))
    with pytest.raises(NotHere, match="open it again"):
        encode(first, by=lab)


def test_forgotten_encoding_is_computed_again_behind_the_same_token(encode):
    lab = small_lab(Limits(max_memory_mb=4))
    first = encode("kitten", MODEL, 224, by=lab)  # 2.1 MB; encodings have a half of 4 MB
    encode("komodo", MODEL, 224, by=lab)
    again = lab.encoding(first.key.token)
    assert again is not first
    np.testing.assert_array_equal(again.queries_keys(0)[0], first.queries_keys(0)[0])


def test_image_with_too_many_patches_is_refused_before_it_is_encoded(encode, lab, monkeypatch, send):
    monkeypatch.setattr(AttentionPredictor, "set_image", lambda *_: pytest.fail("it was encoded"))
    with pytest.raises(LabError, match=r"6000 × 10 pixels .* choose a lower resolution or crop it\.$"):
        encode(send(lab, _noise(3, 10, 6000)), MODEL, 64)


def test_failure_of_the_model_is_reported_without_paths(encode, photo, monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("cannot allocate /dev/secret")

    monkeypatch.setattr(AttentionPredictor, "set_image", fail)
    with pytest.raises(LabError, match=r"^random:vit_tiny/16 cannot encode this image") as caught:
        encode(photo, MODEL, 80)
    assert "secret" not in str(caught.value)
    assert "/dev/secret" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("beit_base_patch16_224", {}), ("vit_base_patch16_siglip_224", {"dynamic_img_size": True}),
     ("cait_xxs24_224", {}), ("xcit_nano_12_p16_224", {})],
)  # fmt: skip
def test_models_whose_attention_does_not_follow_from_queries_keys_and_cls_are_refused(architecture, options):
    small = timm.create_model(architecture, depth=2, num_classes=0, **options).eval()
    model = LoadedModel(architecture, small, (0.5,) * 3, (0.5,) * 3, "random", None)
    with pytest.raises(LabError, match="needs more than queries, keys"):
        look(Key("kitten", architecture, 64), AttentionPredictor(model), _noise(0), Limits())
