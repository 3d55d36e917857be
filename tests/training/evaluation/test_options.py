"""Options of the evaluations: errors before the work."""

from dataclasses import replace

import pytest

from dino_model.models.catalogue import WeightsError
from dino_model.runtime.errors import SettingError
from training.evaluation import options
from training.evaluation.finetune import RECIPES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("knn --k 0", "--k is"),
        ("knn --temperature nan", "--temperature is nan"),
        ("knn --size 64 --resize-to 32", "--size 64 cannot be cropped from 32 pixels"),
        ("knn --test a --split b", "both name test images"),
        ("linear --rates 0", "--rates must be above 0"),
        ("linear --features four", "--features four is unknown"),
        ("logistic --l2 0", "--l2 is 0"),
        ("logistic --shares many", "--shares many is no share"),
        ("finetune --output out --rate 0", "--rate is 0"),
    ],
)
def test_invalid_option_is_refused_before_data_is_read(words, message, evaluate, tmp_path):
    with pytest.raises(SettingError, match=message):
        evaluate(*words.split(), "--data", tmp_path / "absent")


LOWEST = {
    "Knn": {"batch_size": 1, "size": 1},
    "Linear": {"epochs": 1, "batch": 1},
    "Logistic": {"seeds": 1},
    "CopyDetectionSynthetic": {"copies": 1},
    "Throughput": {"batch": 1, "size": 1},
    "FinetuneRecipe": {"epochs": 1, "batch": 2},
}
"""Smallest accepted numbers."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, row in LOWEST.items() for name in row])
def test_number_below_the_smallest_is_refused_with_its_option(kind, name, tmp_path):
    lowest = LOWEST[kind][name]

    def create(value):
        if kind == "FinetuneRecipe":
            return replace(RECIPES["own"], **{name: value})
        data = {} if kind == "Throughput" else {"data": tmp_path}
        return getattr(options, kind)(**data, **{name: value})

    assert getattr(create(lowest), name) == lowest
    with pytest.raises(SettingError, match=f"--{name.replace('_', '-')} is {lowest - 1}, expected at least"):
        create(lowest - 1)


DEFAULTS = {
    "Knn": {"resize_to": None},
    "Linear": {"features": ("1", "4", "1+average"), "augment": False, "seed": 0},
    "Logistic": {"shares": ("1%", "10%", "100%")},
    "Retrieval": {"multiscale": False, "official": False, "dataset": "roxford5k"},
    "CopyDetection": {"official": False},
    "CopyDetectionSynthetic": {"copies": None, "seed": 0},
    "Finetune": {"recipe": "own", "seed": 0},
}
"""Defaults of protocols that are no numbers above 0, which tests/test_contract.py has."""


@pytest.mark.parametrize("kind", DEFAULTS)
def test_evaluations_have_the_defaults_of_their_protocols(kind, tmp_path):
    output = {"output": tmp_path} if kind == "Finetune" else {}
    found = getattr(options, kind)(data=tmp_path, **output)
    assert {name: getattr(found, name) for name in DEFAULTS[kind]} == DEFAULTS[kind]


def test_rates_of_the_linear_grid_are_1_2_and_5_times_powers_of_ten(tmp_path):
    rates = [digit * 10.0**power for power in (-4, -3, -2, -1) for digit in (1, 2, 5)]
    assert options.Linear(data=tmp_path).rates == pytest.approx([*rates, 1.0])


@pytest.mark.parametrize("name", ["embeded", "random:vit_smal/16", "absent.pth", "hf:nobody"])
def test_unknown_model_is_refused_before_data_is_read(name, evaluate, tmp_path):
    with pytest.raises(WeightsError, match=name):
        evaluate("knn", "--data", tmp_path / "absent", "--model", "embedded", "--model", name)
