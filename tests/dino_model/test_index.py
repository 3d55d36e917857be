"""Names and numbers of millions of pictures, shared by processes: they read as the tuples they stand for."""

import pickle

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from dino_model import index
from dino_model.index import Numbers, Texts, keep, letters_of, mapped

NAMES = ("a/1.png", "b/äöü.png", "", "z/\N{SNOWMAN}.jpg")


@pytest.fixture
def columns(tmp_path):
    letters, ends = letters_of(NAMES)
    table = np.arange(8).reshape(4, 2)
    keep(
        tmp_path / "index",
        {"letters": letters, "ends": ends, "table": table, "none": ends[:0]},
        {"told": "so"},
    )
    arrays, told = mapped(tmp_path / "index")
    assert told == {"told": "so"}
    assert len(arrays["none"]) == 0
    return Texts(arrays["letters"], arrays["ends"]), Numbers(arrays["table"])


def test_what_was_kept_reads_as_it_was(columns):
    texts, numbers = columns
    assert texts == NAMES
    assert texts != NAMES[:3]
    assert texts != (*NAMES[:3], "x")
    assert (texts[1], texts[-1], texts[1:3]) == (NAMES[1], NAMES[-1], NAMES[1:3])
    with pytest.raises(IndexError):
        texts[4]
    assert numbers == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert torch.tensor(np.asarray(numbers)).shape == (4, 2)


def test_some_of_some_are_taken_without_copying(columns):
    texts, numbers = columns
    some = texts.take(np.array([3, 0, 1])).take(np.array([1, 2]))
    assert some == (NAMES[0], NAMES[1])
    assert some.letters is texts.letters
    assert numbers.take(np.array([3])) == ((6, 7),)


def test_another_process_maps_the_file_instead_of_being_sent_it(columns, tmp_path):
    texts, numbers = columns
    many = Texts(*letters_of(["name"] * 100_000))
    keep(tmp_path / "many", {"letters": many.letters, "ends": many.ends}, {})
    arrays, _ = mapped(tmp_path / "many")
    sent = pickle.dumps(Texts(arrays["letters"], arrays["ends"]))
    assert len(sent) < 1000 < len(pickle.dumps(many))
    assert isinstance(pickle.loads(sent).letters, np.memmap)
    assert pickle.loads(pickle.dumps((texts, numbers.take(np.array([1]))))) == (NAMES, ((2, 3),))


def test_a_full_disk_is_an_error_of_the_system_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(index, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        keep(tmp_path / "index", {"ends": np.arange(3)}, {})
    assert not list(tmp_path.iterdir())
