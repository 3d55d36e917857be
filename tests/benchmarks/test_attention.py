import numpy as np
import pytest

from benchmarks import attention


@pytest.fixture(autouse=True)
def _small_picture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attention, "SIZE", 48)


def test_the_plain_reference_and_the_predictor_give_the_same_maps():
    model = attention.sharpened_model()
    image = attention.pictures()[0]
    plain = attention.plain_maps(model)(image)
    fused = attention.fused_maps(attention.predictor("fp32"))(image)
    assert plain.shape == (6, 6, 6)
    np.testing.assert_allclose(fused, plain, atol=1e-6)


def test_the_compared_maps_have_peaks():
    maps = attention.plain_maps(attention.sharpened_model())(attention.pictures()[0])
    assert maps.max() > 4 * maps.mean()


def test_maps_that_differ_end_the_benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attention, "AGREEMENT", -1.0)
    with pytest.raises(SystemExit, match="differ"):
        attention.compare()
