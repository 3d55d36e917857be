"""J and F agree with the official DAVIS evaluator, frame by frame."""

import json
from pathlib import Path

import numpy as np

from segmentation.davis_eval import score_folders


def test_every_object_and_the_dataset_have_the_official_scores(oracle_folder: Path):
    folder = oracle_folder / "davis_jf"
    expected = json.loads((folder / "expected.json").read_text())
    found = score_folders(folder / "gt", folder / "pred")
    pairs = {"dataset": (found["dataset"], expected["dataset"])}
    assert found["per_object"].keys() == expected["per_object"].keys()
    pairs |= {name: (found["per_object"][name], scores) for name, scores in expected["per_object"].items()}
    for name, (scores, official) in pairs.items():
        assert scores.keys() >= official.keys()
        for metric, value in official.items():
            message = f"{name} {metric}"
            np.testing.assert_allclose(scores[metric], value, rtol=0, atol=1e-6, err_msg=message)
