"""Copies: how they are made and scored."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from training.evaluation import copy_detection
from training.evaluation.copy_detection import (
    COPY_TYPES,
    average_precisions,
    compute_whitening,
    make_copy,
)


def test_make_copy_follows_seed_and_type():
    image = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    for copy_type in COPY_TYPES:
        copy = make_copy(image, copy_type, 3)
        assert (copy.dtype, copy.shape[2]) == (np.uint8, 3)
        assert np.array_equal(copy, make_copy(image, copy_type, 3)), copy_type
        assert copy.shape != image.shape or not np.array_equal(copy, image), copy_type
    assert np.array_equal(make_copy(image, "mirrored", 0), image[:, ::-1])
    height, width = make_copy(image, "crop", 0).shape[:2]
    assert height * width / (60 * 80) == pytest.approx(0.5, abs=0.03)
    blurred = Image.fromarray(image).filter(ImageFilter.GaussianBlur(0.02 * 60))
    assert np.array_equal(make_copy(image, "blur", 0), np.asarray(blurred))
    stream = BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=10)
    assert np.array_equal(make_copy(image, "jpeg 10", 0), np.asarray(Image.open(stream)))
    ramps = np.indices((60, 80)).astype(np.uint8).transpose(1, 2, 0)[..., [0, 1, 1]]
    corners = [make_copy(ramps, "crop", seed)[0, 0, :2].tolist() for seed in range(199)]
    for starts, (side, kept) in zip(np.transpose(corners), ((60, 42), (80, 57)), strict=True):
        assert (min(starts), max(starts)) == (0, side - kept)
    with pytest.raises(ValueError, match="Unknown copy type 'fax'"):
        make_copy(image, "fax", 0)


def test_printed_copy_is_faded_noisy_on_paper_and_rotated_by_up_to_four_degrees():
    image, angles, values = np.zeros((100, 120, 3), np.uint8), [], []
    image[:, 60:] = 200
    for seed in range(60):
        copy = make_copy(image, "print", seed).astype(float)
        assert copy.shape == (110, 130, 3)  # 5 % of the short side on each side
        dark = (copy[8:-8, 20:-20].mean(axis=2) < 110).sum(axis=1)  # width of the dark half in each row
        angles.append(np.degrees(np.arctan(np.polyfit(np.arange(len(dark)), dark, 1)[0])))
        values.append([copy[30:80, 20:50], copy[30:80, 80:110]])
    assert (min(angles), max(angles)) == pytest.approx((-4, 4), abs=0.4)
    assert np.mean(angles) == pytest.approx(0, abs=0.7)
    dark, light = np.moveaxis(values, 1, 0)
    assert (dark.mean(), light.mean()) == pytest.approx((30, 30 + 0.8 * 200), abs=0.5)
    assert light.std() == pytest.approx(12, abs=0.3)
    assert np.array_equal(light[..., 0], light[..., 2])  # the noise is gray
    border = np.mean([make_copy(image, "print", seed)[2, 20:-20] for seed in range(60)], axis=(0, 1))
    assert border == pytest.approx([30 + 0.8 * color for color in (245, 242, 235)], abs=2)


def test_whitening_raises_small_variances_and_needs_two_descriptors():
    descriptors = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    found = compute_whitening(descriptors)
    torch.testing.assert_close(found.variances, torch.tensor([1, 1e-5], dtype=torch.float64))
    assert found(descriptors)[:, 0].abs().tolist() == pytest.approx([1, 1])


def test_copies_are_of_200_images_or_of_all(tmp_path: Path, evaluate, monkeypatch):
    described = []
    monkeypatch.setattr(copy_detection, "evaluate_models", lambda *given: described.append(given[2]))
    for kind in "pq":
        (tmp_path / "data" / kind).mkdir(parents=True)
        for number in range(505 if kind == "p" else 500):
            (tmp_path / "data" / kind / f"{number}.png").write_bytes(b"not read")
    words = ("copy-detection", "synthetic", "--data", tmp_path / "data")
    with pytest.raises(FileNotFoundError):  # nothing is written
        evaluate(*words)
    assert "; 200 images copied in each way (seed 0), searched among 201 of data" in described[0]
    with pytest.raises(ValueError, match="--copies is 202: expected at most 201, the number of test images"):
        evaluate(*words, "--copies", 202)


def test_average_precision_counts_ranks_below_the_depth():
    similarity = torch.tensor([[0.9, 0.8, 0.7, 0.6]])
    assert average_precisions(similarity, [[0, 2]], depth=3) == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)
    assert average_precisions(similarity, [[0, 2]], depth=2) == pytest.approx(1 / 2)
    assert average_precisions(similarity, [[2]], depth=2) == 0


def write_images(folder: Path, *names: str) -> Path:
    """Write images whose content follows from the first four letters of their names."""
    for name in names:
        random = np.random.default_rng(sum(map(ord, Path(name).stem[:4])))
        small = Image.fromarray(random.integers(0, 256, (6, 6, 3), np.uint8))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image = small.resize((64, 48), Image.Resampling.BICUBIC)
        image.save(folder / name, quality=40 if "copy" in name else 95)
    return folder


def test_copy_detection_reads_copydays_layout(tmp_path: Path, evaluate, capsys):
    write_images(tmp_path, "original/2000.jpg", "original/2001.jpg", "original/2002.jpg")
    write_images(tmp_path, "strong/2000copy.jpg", "strong/2002copy.jpg")
    others = write_images(tmp_path / "others", *(f"x{number}.jpg" for number in range(7)))
    words = ("copy-detection", "--data", tmp_path, "--size", 32)
    content = evaluate(*words, "--distractors", others, "--model", "pixels")
    assert content["results"][0]["metrics"]["map"] == 100
    evaluate(*words, "--distractors", others, "--whitening", others, "--official")
    shown = capsys.readouterr().out
    assert "2 strong copies, 7 distractors, released whitening from 7 images, the first 20 ranks" in shown
    one = write_images(tmp_path / "one", "x1.jpg")
    with pytest.raises(ValueError, match="Whitening needs at least two descriptors, found 1"):
        evaluate(*words, "--whitening", one)
    write_images(tmp_path, "strong/more/9999copy.jpg")
    with pytest.raises(ValueError, match=r"1 of 3 strong copies, such as more/9999copy\.jpg,"):
        evaluate(*words)
    with pytest.raises(ValueError, match=r"original is missing: Copydays is published at https"):
        evaluate("copy-detection", "--data", others)


def test_synthetic_copies_are_scored_and_cached(tmp_path: Path, evaluate, capsys, monkeypatch):
    names = (f"{kind}/{kind}{letter}{letter}.jpg" for kind in "pq" for letter in "abcdefghij")
    data = write_images(tmp_path / "data", *names)
    words = ("copy-detection", "synthetic", "--data", data, "--size", 32, "--model", "pixels")
    evaluate(*words)
    shown = capsys.readouterr().out
    assert "4 images copied in each way" in shown
    assert "jpeg 10 100.0" in shown
    cached = (*words, "--copies", 3, "--cache", tmp_path / "cache")
    scores = evaluate(*cached)["results"]
    found = scores[0]["metrics"]
    assert found["mirrored"] == pytest.approx(100 * (1 + 1 + 1 / 6) / 3)  # first, first and third
    assert found["map"] == pytest.approx((400 + found["mirrored"]) / 5)
    monkeypatch.setattr(copy_detection, "make_copy", None)
    assert evaluate(*cached)["results"] == scores
    with pytest.raises(TypeError):  # other copies are not read from the cache
        evaluate(*cached, "--seed", 1)
    (data / "q" / "qee.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match="Cannot read 1 image, listed above"):
        evaluate(*words)
