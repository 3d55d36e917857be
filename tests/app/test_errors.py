"""Errors for users, and the check of values that clients send."""

import pytest

from app.errors import LabError
from app.objects import Recipe
from app.scribbles import Scribble
from app.shared import split
from app.view import View


def test_value_of_a_client_has_defaults_and_ignores_other_fields():
    sent = {"block": 11, "query": "1,2", "show": "mean", "opacity": 1, "path": "/etc/passwd"}
    assert View.of(sent) == View(block=11, query="1,2", show="mean", opacity=1.0)


@pytest.mark.parametrize(
    ("kind", "value", "field"),
    [
        *((View, value, "request") for value in (None, [], "kitten")),
        *((View, {"block": block}, "block") for block in (None, "1", 1.5, True)),
        *((View, {"block": 1, "mass": mass}, "mass") for mass in (7, float("nan"), float("inf"), "0.5")),
        *((View, {"block": 1, name: "x"}, name) for name in ("quantity", "show", "layer", "colormap")),
        (View, {"block": 1, "query": "1;2"}, "query"),
        (View, {"block": 1, "opacity": -1}, "opacity"),
        (Recipe, {"refined": 1}, "refined"),
        (Scribble, {"token": "a", "runs": [1, 2.5]}, "runs.1"),
    ],
)
def test_value_of_wrong_type_or_range_is_refused_in_one_sentence(kind, value, field):
    with pytest.raises(LabError, match=rf"^Invalid {field}: .*\.$"):
        kind.of(value)


def test_message_for_the_toast_is_escaped():
    error = LabError("<img src=x> is no model.")
    assert str(error) == "<img src=x> is no model."
    assert error.message == "&lt;img src=x&gt; is no model."


def test_split_returns_name_and_clean_title():
    assert split("kitten/other.jpg") == ("kitten", "")
    assert split("ab12/../../a\nb.jpg") == ("ab12", "a b.jpg")
    with pytest.raises(LabError):
        split(["kitten"])
