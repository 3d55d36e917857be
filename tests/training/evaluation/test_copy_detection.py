"""Copies: how they are made and scored."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.training.evaluation.pictures import evaluate
from training.evaluation import copy_detection
from training.evaluation.copy_detection import COPY_TYPES, compute_whitening, make_copy


def test_whitening_is_white_only_if_corrected():
    x = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2, 3, 4]) + 5
    for formula, white in (("corrected", True), ("released", False)):
        out = compute_whitening(x, formula)(x)
        assert torch.allclose(out.T @ out / len(x), torch.eye(4).double(), atol=1e-6) == white
    with pytest.raises(ValueError, match="at least two descriptors, found 1"):
        compute_whitening(x[:1])


def test_make_copy_follows_seed_and_type():
    picture = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    for how in COPY_TYPES:
        copy = make_copy(picture, how, 3)
        assert copy.dtype == np.uint8
        assert copy.shape[2] == 3
        assert np.array_equal(copy, make_copy(picture, how, 3)), how
        assert copy.shape != picture.shape or not np.array_equal(copy, picture), how
    assert np.array_equal(make_copy(picture, "mirrored", 0), picture[:, ::-1])
    height, width = make_copy(picture, "crop", 0).shape[:2]
    assert height * width / (60 * 80) == pytest.approx(0.5, abs=0.03)
    with pytest.raises(ValueError, match="Unknown copy type 'fax'"):
        make_copy(picture, "fax", 0)


def photographs(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True)
    for name in names:
        random = np.random.default_rng(sum(map(ord, Path(name).stem[:4])))
        small = Image.fromarray(random.integers(0, 256, (6, 6, 3), np.uint8))
        image = small.resize((64, 48), Image.Resampling.BICUBIC)
        (folder / name).parent.mkdir(exist_ok=True)
        image.save(folder / name, quality=40 if "copy" in name else 95)


def test_copy_detection_reads_copydays_layout(tmp_path: Path, capsys):
    photographs(tmp_path / "original", ["2000.jpg", "2001.jpg", "2002.jpg"])
    photographs(tmp_path / "strong", ["2000copy.jpg", "2002copy.jpg"])
    photographs(tmp_path / "others", [f"x{i}.jpg" for i in range(7)])
    words = ("--data", tmp_path, "--size", "32", "--distractors", tmp_path / "others")
    figures = tmp_path / "out.json"
    evaluate("copy-detection", *words, "--model", "pixels", "--json", figures)
    assert json.loads(figures.read_text())["results"][0]["metrics"]["map"] == 100
    evaluate("copy-detection", *words, "--whitening", tmp_path / "others", "--official")
    shown = capsys.readouterr().out
    assert "2 strong copies, 7 distractors, released whitening from 7 images, the first 20 ranks" in shown
    photographs(tmp_path / "strong" / "more", ["9999copy.jpg"])
    with pytest.raises(ValueError, match=r"1 strong copies have no original, such as more/9999copy\.jpg"):
        evaluate("copy-detection", *words)
    with pytest.raises(ValueError, match=r"original is missing: Copydays is published at https"):
        evaluate("copy-detection", "--data", tmp_path / "others")


def test_synthetic_copies_are_scored_and_cached(tmp_path: Path, capsys, monkeypatch):
    names = [f"{kind}/{kind}{letter}{letter}.jpg" for kind in "pq" for letter in "abcdefghij"]
    photographs(tmp_path / "one", names)
    words = ("--data", tmp_path / "one", "--size", "32", "--model", "pixels")
    evaluate("copy-detection", "synthetic", *words)
    first = capsys.readouterr().out
    assert "4 images copied in each way" in first
    assert "jpeg 10 100.0" in first
    cached = (*words, "--copies", "3", "--cache", tmp_path / "cache")
    evaluate("copy-detection", "synthetic", *cached)
    scores = capsys.readouterr().out.splitlines()[-1]
    monkeypatch.setattr(copy_detection, "make_copy", None)
    evaluate("copy-detection", "synthetic", *cached)
    assert capsys.readouterr().out.splitlines()[-1] == scores
    with pytest.raises(TypeError):  # other copies are not read from the cache
        evaluate("copy-detection", "synthetic", *cached, "--seed", "1")


def test_synthetic_with_broken_database_image_raises(tmp_path: Path):
    names = [f"{kind}/{kind}{letter}{letter}.jpg" for kind in "pq" for letter in "abcde"]
    photographs(tmp_path / "data", names)
    (tmp_path / "data" / "q" / "qee.jpg").write_bytes(b"no picture")  # the last of the two that are tested
    words = ("--data", tmp_path / "data", "--size", "32", "--copies", "1", "--seed", "1")
    with pytest.raises(ValueError, match="1 images cannot be read"):
        evaluate("copy-detection", "synthetic", *words, "--model", "pixels")
