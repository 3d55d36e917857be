"""Masks, label propagation and the scores of DAVIS agree with the official code."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from segmentation.davis_eval import score_folders
from segmentation.masks import keep_mass
from segmentation.propagation import DINO, hard_labels, propagate_step


def test_kept_mass_equals_the_official_one_to_the_last_patch(oracle):
    reference = oracle("mass_threshold")
    attention = torch.from_numpy(reference["attention"])
    masks = {key: value for key, value in reference.items() if key.startswith("mask_")}
    assert masks
    for key, expected in masks.items():
        kept = keep_mass(attention, int(key.removeprefix("mask_")) / 100)
        np.testing.assert_array_equal(kept.numpy().reshape(expected.shape), expected, err_msg=key)


@pytest.mark.parametrize("case", ["a", "b", "c", "d"])
def test_soft_and_hard_labels_are_the_official_ones(oracle, case):
    arrays = oracle(f"propagation_{case}")
    grid = int(arrays["grid_height"]), int(arrays["grid_width"])
    settings = {name: arrays[name].item() for name in ("radius", "topk", "temperature")}
    target, contexts = (torch.from_numpy(arrays[f"{name}_features"]) for name in ("target", "context"))
    soft = propagate_step(
        F.normalize(target, dim=-1).unflatten(0, grid),
        F.normalize(contexts, dim=-1).unflatten(1, grid),
        torch.from_numpy(arrays["context_labels"]),
        replace(DINO, **settings),
    )
    np.testing.assert_allclose(soft[None].numpy(), arrays["target_labels"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(hard_labels(soft, int(arrays["patch_size"])), arrays["hard_labels"])


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
