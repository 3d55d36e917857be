from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from app import engine as engine_module
from app.catalogue import catalogue
from app.engine import Engine, LabError
from app.limits import Limits
from app.photos import Photo
from dino_model.checkpoints import WeightsError
from dino_model.download import DownloadError
from dino_model.images import ImageError
from dino_model.predictor import AttentionPredictor

MODEL = "random:vit_tiny/16"


def _noise(seed: int, height: int = 48, width: int = 64) -> Photo:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Photo(f"{seed}.png", f"noise {seed}", lambda: pixels)


def test_queries_and_keys_are_the_predictors(engine, photo):
    encoding = engine.encoding(engine.encode(photo, MODEL, 64))
    predictor = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    predictor.set_image(photo.read())
    for block in (0, 11):
        for ours, expected in zip(
            engine.queries_keys(encoding, block), predictor.queries_keys(block), strict=True
        ):
            np.testing.assert_array_equal(ours, expected)
    assert (encoding.grid, encoding.heads, encoding.blocks) == (predictor.grid, 3, 12)


def test_features_are_the_predictors_tokens(engine, photo):
    encoding = engine.encoding(engine.encode(photo, MODEL, 64))
    predictor = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    predictor.set_image(photo.read())
    for block in (0, 11):
        found = engine.features(encoding, block)
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, predictor.tokens(block), atol=5e-3)
        assert engine.features(encoding, block) is found  # from memory


def test_blocks_that_are_not_there_are_refused(engine, photo):
    encoding = engine.encoding(engine.encode(photo, MODEL, 64))
    for arrays in (engine.queries_keys, engine.features):
        for block in (-1, 12):
            with pytest.raises(LabError, match="blocks 0 to 11"):
                arrays(encoding, block)


def test_features_beyond_sixteen_bits_are_refused(engine, photo, monkeypatch):
    encoding = engine.encoding(engine.encode(photo, MODEL, 64))
    monkeypatch.setattr(AttentionPredictor, "tokens", lambda *_: np.full((25, 192), 1e6, np.float32))
    with pytest.raises(LabError, match="too large for 16 bits"):
        engine.features(encoding, 6)


def test_same_content_is_encoded_once_under_two_tokens(engine, photo):
    first, second = (engine.encode(photo, MODEL, 64) for _ in range(2))
    assert first != second
    assert engine.encoding(first).picture is engine.encoding(second).picture


def test_same_photograph_keeps_the_name_its_visitor_gave_it(engine, photo):
    mine, theirs = (replace(photo, name=name) for name in ("mine.png", "secret party.png"))
    tokens = [engine.encode(one, MODEL, 64) for one in (theirs, mine)]
    assert [engine.encoding(token).name for token in tokens] == ["secret party.png", "mine.png"]


def test_other_block_of_an_earlier_picture_is_that_pictures(engine):
    earlier, later = (engine.encoding(engine.encode(_noise(seed), MODEL, 48)) for seed in (1, 2))
    fresh = Engine(catalogue(MODEL), Limits(), precision="fp32", device="cpu")
    expected = fresh.queries_keys(fresh.encoding(fresh.encode(_noise(1), MODEL, 48)), 4)
    found = engine.queries_keys(earlier, 4)  # the predictor has looked at `later` since
    np.testing.assert_array_equal(found[0], expected[0])
    assert not np.array_equal(engine.queries_keys(later, 4)[0], expected[0])


def test_many_visitors_at_once_each_get_their_own(engine):
    pictures = [_noise(seed) for seed in range(10, 22)]
    with ThreadPoolExecutor(6) as pool:
        tokens = list(pool.map(lambda photo: engine.encode(photo, MODEL, 48), pictures))
        blocks = list(pool.map(lambda token: engine.queries_keys(engine.encoding(token), 3)[0], tokens))
    for photo, token, block in zip(pictures, tokens, blocks, strict=True):
        encoding = engine.encoding(token)
        assert encoding.content == photo.key
        np.testing.assert_array_equal(block, engine.queries_keys(encoding, 3)[0])
    assert len({block.tobytes() for block in blocks}) == len(pictures)


def test_forgotten_picture_says_so():
    engine = Engine(catalogue(MODEL), Limits(max_memory_mb=1), precision="fp32", device="cpu")
    first = engine.encode(_noise(1, 400, 400), MODEL, 32)  # 0.48 MB; pictures have a third of 1 MB
    engine.encode(_noise(2, 400, 400), MODEL, 32)
    with pytest.raises(LabError, match="open it again"):
        engine.encoding(first)
    with pytest.raises(LabError, match="open it again"):
        engine.encoding("a token nobody gave out")


def test_forgotten_queries_are_computed_again(photo):
    engine = Engine(catalogue(MODEL), Limits(max_memory_mb=1), precision="fp32", device="cpu")
    encoding = engine.encoding(engine.encode(photo, MODEL, 224))
    blocks = [engine.queries_keys(encoding, block) for block in range(12)]  # 0.23 MB each
    np.testing.assert_array_equal(engine.queries_keys(encoding, 0)[0], blocks[0][0])


def test_ribbon_is_refused_before_it_costs_anything(engine, monkeypatch):
    monkeypatch.setattr(AttentionPredictor, "set_image", lambda *_: pytest.fail("it was encoded"))
    with pytest.raises(LabError, match=r"2000 × 10 pixels .* choose a lower resolution or crop it\.$"):
        engine.encode(_noise(3, 10, 2000), MODEL, 64)


def test_unknown_model_is_answered_with_the_known_ones(engine, photo):
    for name in ("nonsense", "/etc/passwd", "https://example.org/model.pth", "../run"):
        with pytest.raises(LabError, match="choose one of random:vit_tiny/16, embedded"):
            engine.encode(photo, name, 64)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DownloadError("could not download x from y: put it at /home/me/x"), "could not be downloaded"),
        (WeightsError("/srv/models/x.pth is no readable checkpoint"), "cannot be loaded"),
        (RuntimeError("cannot allocate /dev/secret"), "the terminal says why"),
        (FileNotFoundError("/srv/models/x.pth"), "the terminal says why"),
    ],
)
def test_trouble_with_a_model_is_told_without_paths(engine, photo, monkeypatch, capsys, error, sentence):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(engine_module, "AttentionPredictor", fail)
    with pytest.raises(LabError, match=sentence) as caught:
        engine.encode(photo, "dino_vits8", 64)
    assert "/" not in str(caught.value)
    assert str(error) in capsys.readouterr().err  # the terminal does say why


def test_unreadable_picture_is_one_sentence(engine):
    def fail() -> None:
        raise ImageError("cat.jpg is damaged or cut short")

    with pytest.raises(LabError, match=r"^cat\.jpg is damaged or cut short\.$"):
        engine.encode(Photo("cat.jpg", "broken", fail), MODEL, 64)
