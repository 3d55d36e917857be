"""Errors for users, and the check of values that clients send."""

import pytest

from app.handlers.attention_maps import MapSettings
from app.limits.errors import LabError
from app.page import split


def test_value_of_a_client_has_defaults_and_ignores_other_fields():
    sent = {"block": 11, "query": "1,2", "show": "mean", "mass": 1, "path": "/etc/passwd"}
    assert MapSettings.of(sent) == MapSettings(block=11, query="1,2", show="mean", mass=1.0)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("block", [None, "1", 1.5, True]),
        ("mass", [7, float("nan"), float("inf"), "0.5"]),
        *((name, ["x", 3]) for name in ("query", "quantity", "show")),
    ],
)
def test_value_of_wrong_type_or_range_is_refused_in_one_sentence(field, values):
    for value in values:
        with pytest.raises(LabError, match=rf"^Invalid {field}: .*\.$"):
            MapSettings.of({"block": 1, field: value})
    for value in (None, [], "kitten"):
        with pytest.raises(LabError, match=r"^Invalid request: "):
            MapSettings.of(value)


def test_message_for_the_toast_is_escaped():
    error = LabError("<img src=x> is no model.")
    assert (str(error), error.message) == ("<img src=x> is no model.", "&lt;img src=x&gt; is no model.")


def test_split_returns_name_and_clean_title():
    assert split("kitten/other.jpg") == ("kitten", "")
    assert split("ab12/../../a\nb.jpg") == ("ab12", "a b.jpg")
    with pytest.raises(LabError):
        split(["kitten"])
