"""Arrays and attention of an encoding against the library's."""

from unittest.mock import Mock

import numpy as np
import pytest

from app.handlers.attention_maps import attention, colors_and_variance, norms_and_outliers, rollout
from app.limits.errors import LabError
from dino_model.inference import quantities
from tests.app.conftest import library_maps


def test_arrays_are_the_librarys(encoding, predictor):
    for block, patch, token in ((0, None, 0), (11, (0, 0), 1), (5, (1, 2), 1 + 6 + 2)):
        expected = library_maps(predictor, "attention", token, block)
        np.testing.assert_allclose(attention(encoding, block, patch), expected, atol=1e-3)
        rows = rollout(encoding, block)[token, 1:].reshape(1, 4, 6)
        np.testing.assert_allclose(rows, library_maps(predictor, "rollout", token, block), atol=1e-3)
    colors = colors_and_variance(encoding, 5)
    expected = library_maps(predictor, "key-pca", 0, 5)
    np.testing.assert_allclose(colors[:-3].reshape(expected.shape), expected, atol=5e-3)
    assert colors[-3:].sum() <= 1 and (np.diff(colors[-3:]) <= 0).all()  # noqa: PT018
    norms, outliers = norms_and_outliers(encoding, 11)
    np.testing.assert_allclose(norms, predictor.token_norms(11), atol=1e-3)
    np.testing.assert_array_equal(outliers, quantities.outlier_patches(norms))


def test_rollout_is_of_up_to_3000_patches(monkeypatch):
    monkeypatch.setattr(quantities, "attention_rollout", list)
    encoding = Mock(queries_keys=lambda block: block)
    encoding.predictor.grid = 50, 60
    assert rollout(encoding, 2) == [0, 1, 2]
    encoding.predictor.grid = 1, 3001
    with pytest.raises(LabError, match="3,001, more than 3,000"):
        rollout(encoding, 2)


@pytest.mark.parametrize(
    ("block", "patch", "sentence"),
    [
        (12, None, "blocks 0 to 11"),
        *((11, patch, "4 rows and 6 columns") for patch in ((4, 0), (0, 6), (-1, 0), (0, -1))),
    ],
)
def test_patches_and_blocks_that_do_not_exist_are_refused(encoding, block, patch, sentence):
    with pytest.raises(LabError, match=sentence):
        attention(encoding, block, patch)
