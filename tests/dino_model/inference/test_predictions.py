"""Predictions of own images as a table."""

import csv
from pathlib import Path

import pytest
import torch

from dino_model.inference.predictions import write_predictions


@pytest.mark.parametrize(
    ("several", "rows"),
    [
        (False, [["a.jpg", "y", "0.6000", "n1", "n2"], ["b.jpg", "x", "0.4999", "n3", "n4"]]),
        (True, [["a.jpg", "y|z", "0.6000|0.5000", "n1", "n2"], ["b.jpg", "", "", "n3", "n4"]]),
    ],
)
def test_predictions_are_the_most_probable_class_or_all_from_one_half_on(tmp_path: Path, several, rows):
    probabilities = torch.tensor([[0.123456, 0.6, 0.5], [0.4999, 0.1, 0.3]])
    nearest = [["n1", "n2"], ["n3", "n4"]]
    file = tmp_path / "p.csv"
    write_predictions(file, ["a.jpg", "b.jpg"], probabilities, "xyz", several=several, nearest=nearest)
    header = ["path", "class", "score", "nearest_1", "nearest_2"]
    assert list(csv.reader(file.read_text().splitlines())) == [header, *rows]
