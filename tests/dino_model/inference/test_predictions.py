"""Predictions of own images as a table."""

from pathlib import Path

import pytest
import torch

from dino_model.inference.predictions import write_predictions


@pytest.mark.parametrize(
    ("several", "rows"),
    [(False, "a.jpg,y,0.6000,n b.jpg,x,0.4999,m"), (True, "a.jpg,y|z,0.6000|0.5000,n b.jpg,,,m")],
)
def test_predictions_are_the_most_probable_class_or_all_from_one_half_on(tmp_path: Path, several, rows):
    shares = torch.tensor([[0.123456, 0.6, 0.5], [0.4999, 0.1, 0.3]])
    file, names = tmp_path / "p.csv", ["a.jpg", "b.jpg"]
    write_predictions(file, names, shares, "xyz", several=several, nearest=[["n"], ["m"]])
    assert file.read_text().split() == ["path,class,score,nearest_1", *rows.split()]
