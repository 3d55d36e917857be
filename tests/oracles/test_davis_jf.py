"""J and F agree with the official DAVIS evaluator, frame by frame."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from segmentation.davis_eval import score_folders


@pytest.fixture(scope="module")
def expected(oracle_folder: Path) -> dict[str, Any]:
    return json.loads((oracle_folder / "davis_jf" / "expected.json").read_text())


@pytest.fixture(scope="module")
def found(oracle_folder: Path) -> dict[str, Any]:
    return score_folders(oracle_folder / "davis_jf" / "gt", oracle_folder / "davis_jf" / "pred").as_json()


def test_every_object_has_the_official_scores(expected: dict[str, Any], found: dict[str, Any]):
    assert found["per_object"].keys() == expected["per_object"].keys()
    for name, official in expected["per_object"].items():
        for figure, value in official.items():
            np.testing.assert_allclose(
                found["per_object"][name][figure], value, rtol=0, atol=1e-6, err_msg=f"{name} {figure}"
            )


def test_the_dataset_has_the_official_scores(expected: dict[str, Any], found: dict[str, Any]):
    assert found["dataset"].keys() == expected["dataset"].keys()
    for figure, value in expected["dataset"].items():
        assert found["dataset"][figure] == pytest.approx(value, abs=1e-6), figure
