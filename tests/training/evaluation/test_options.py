"""Options of the evaluations: errors before the work."""

import pytest

from dino_model.models.catalogue import WeightsError
from dino_model.runtime.errors import SettingError
from training.evaluation import options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("knn --k 0", "--k is"),
        ("knn --temperature nan", "--temperature is nan"),
        ("knn --size 64 --resize-to 32", "--size 64 cannot be cropped from 32 pixels"),
        ("knn --test a --split b", "both name test images"),
        ("linear --epochs 0", "--epochs is 0, expected at least 1"),
        ("linear --rates 0", "--rates must be above 0"),
        ("linear --features four", "--features four is unknown"),
        ("logistic --l2 0", "--l2 is 0"),
        ("logistic --seeds 0", "--seeds is 0"),
        ("logistic --shares many", "--shares many is no share"),
        ("retrieval --batch-size 0", "--batch-size is 0"),
        ("copy-detection synthetic --copies 0", "--copies is 0"),
        ("finetune --output out --batch 1", "--batch is 1, expected at least 2"),
        ("finetune --output out --epochs 0", "--epochs is 0"),
        ("finetune --output out --rate 0", "--rate is 0"),
        ("throughput --batch 0", "--batch is 0, expected at least 1"),
    ],
)
def test_invalid_option_is_refused_before_data_is_read(words, message, evaluate, tmp_path):
    data = () if words.startswith("throughput") else ("--data", tmp_path / "absent")
    with pytest.raises(SettingError, match=message):
        evaluate(*words.split(), *data)


DEFAULTS = {
    "Knn": {"k": (20,), "temperature": 0.07, "size": 112, "resize_to": None},
    "Linear": {"epochs": 100, "batch": 256, "features": ("1", "4", "1+average"), "augment": False},
    "Logistic": {"shares": ("1%", "10%", "100%"), "seeds": 5, "l2": 0.1},
    "Retrieval": {"size": 224, "multiscale": False, "official": False, "dataset": "roxford5k"},
    "CopyDetection": {"size": 224, "official": False},
    "CopyDetectionSynthetic": {"size": 112, "copies": None},
    "Throughput": {"batch": 128, "size": 224},
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_evaluations_have_the_defaults_of_their_protocols(kind, tmp_path):
    found = getattr(options, kind)(**{} if kind == "Throughput" else {"data": tmp_path})
    assert {name: getattr(found, name) for name in DEFAULTS[kind]} == DEFAULTS[kind]


@pytest.mark.parametrize("name", ["embeded", "random:vit_smal/16", "absent.pth", "hf:nobody"])
def test_unknown_model_is_refused_before_data_is_read(name, evaluate, tmp_path):
    with pytest.raises(WeightsError, match=name):
        evaluate("knn", "--data", tmp_path / "absent", "--model", "embedded", "--model", name)
