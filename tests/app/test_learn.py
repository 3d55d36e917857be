"""Settings and numbers of the tab Learn."""

import re

import numpy as np
import pytest

from app import STATIC
from app.handlers.attention_maps import attention
from app.limits.errors import LabError
from app.tabs import learn
from app.tabs.learn import lessons, numbers, settings
from segmentation.masks import keep_mass_of_maps


def entropies_of(maps: np.ndarray) -> np.ndarray:
    shares = maps.reshape(len(maps), -1)
    shares = shares / shares.sum(axis=1, keepdims=True)
    return -(shares * np.log(shares)).sum(axis=1)


def test_numbers_of_the_texts_are_those_of_the_maps(backend, encoding):
    """4 × 6 patches; the second model has other weights."""
    other = backend.encode(encoding.key.image, "random:embedded", 48)
    maps, found = attention(encoding), numbers(encoding, other)
    entropies = entropies_of(maps)
    narrow, wide = int(entropies.argmin()), int(entropies.argmax())

    def area(values: np.ndarray) -> str:
        share = 100 * keep_mass_of_maps(values, 0.6).mean()
        return f"{share:.1f} %" if share % 1 > 0.05 else f"{share:.0f} %"

    assert found == {
        "grid": "6 × 4 = 24",
        "tokens": "25",
        "finer": "97",  # four times the patches, and [CLS]
        "narrowest": f"head {narrow} with {entropies[narrow]:.2f} of {np.log(24):.2f} nats",
        "widest": f"head {wide} with {entropies[wide]:.2f} of {np.log(24):.2f} nats",
        "area": area(maps[narrow]),
        "trained_area": area(maps.mean(axis=0)),
        "random_area": area(attention(other).mean(axis=0)),
        "first_entropy": f"{entropies_of(attention(encoding, 0)).mean():.2f} nats",
        "last_entropy": f"{entropies.mean():.2f} nats",
    }
    assert "60 % of the mass" in lessons()[3].body
    assert settings(3, encoding)["head"] == str(narrow)


def test_topics_have_their_settings_of_the_view(encoding):
    """Masks are of the topics after the slider of the style sheet, on Masks and Labels."""
    (slider,) = re.findall(r'data-lesson="(\d)"\]\) #lesson-mass', (STATIC / "page.css").read_text())
    found = [settings(index, encoding) for index in range(len(lessons()))]
    assert [one["lesson"] for one in found] == list(range(8))
    assert [one["layer"] for one in found] == ["light"] * 3 + ["mask"] * 2 + ["light"] * 3
    assert found[int(slider)]["layer"] == "mask"
    assert [one["opacity"] > 0 for one in found] == [False] + [True] * 7  # patches alone, then maps
    assert {(one["mass"], one["block"]) for one in found} == {(60, 0)}  # of the last block
    assert [one["head"] for one in found if one["layer"] == "light"] == ["mean", "heads", *["mean"] * 4]
    assert [one.get("center", False) for one in found] == [False, False, True] + [False] * 5


def test_weights_are_chosen_in_the_topic_of_the_style_sheet_only(page, photo):
    (topic,) = re.findall(r'data-lesson="(\d)"\]\) #lesson-weights', (STATIC / "page.css").read_text())
    assert "random weights" in lessons()[int(topic)].body
    for index in (0, int(topic), 7):
        value, _, weights, body, *_ = learn._show(page, index, "random:embedded", photo, 48)
        chosen = "random:embedded" if index == int(topic) else "embedded-dino"
        assert (weights, value["model"]) == (chosen, chosen)
        assert "…" not in body
    for index in (-1, 8, True, "0"):
        with pytest.raises(LabError, match="a number from 0 to 7"):
            learn._show(page, index, None, photo, 48)
