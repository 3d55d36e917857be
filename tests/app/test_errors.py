"""Errors for users, and the check of values that clients send."""

import pytest

from app.handlers.objects import ObjectSettings
from app.limits.errors import Busy, LabError, NotHere
from app.page import split


def test_value_of_a_client_has_defaults_and_ignores_other_fields():
    sent = {"method": "lost", "count": 2, "mass": 1, "path": "/etc/passwd"}
    assert ObjectSettings.of(sent) == ObjectSettings(method="lost", count=2, mass=1.0)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("count", [None, "1", 1.5, True, 0, 7]),
        ("mass", [1.01, 0.009, float("nan"), float("inf"), "0.5"]),
        ("head", ["x", 3]),
    ],
)
def test_value_of_wrong_type_or_range_is_refused_in_one_sentence(field, values):
    ends = [ObjectSettings(count=count, mass=mass) for count, mass in ((1, 0.01), (6, 1))]
    assert [(one.count, one.mass) for one in ends] == [(1, 0.01), (6, 1)]
    assert (ObjectSettings().count, ObjectSettings().mass) == (3, 0.6)
    for value in values:
        with pytest.raises(LabError, match=rf"^Invalid {field}: .*\.$"):
            ObjectSettings.of({field: value})
    for value in (None, [], "kitten"):
        with pytest.raises(LabError, match=r"^Invalid request: "):
            ObjectSettings.of(value)


def test_invalid_value_is_shown_up_to_60_characters():
    for count, shown in ((58, f'"{"x" * 58}"'), (59, f'"{"x" * 59}'), (900, f'"{"x" * 59}')):
        with pytest.raises(LabError) as refusal:
            ObjectSettings.of({"head": "x" * count})
        assert f"found {shown}, expected" in str(refusal.value)


def test_errors_have_the_status_of_their_kind():
    assert [kind.status for kind in (LabError, NotHere, Busy)] == [422, 404, 503]


def test_message_for_the_toast_is_escaped():
    error = LabError("<img src=x> is no model.")
    assert (str(error), error.message) == ("<img src=x> is no model.", "&lt;img src=x&gt; is no model.")


def test_split_returns_name_and_clean_title():
    assert split("kitten/other.jpg") == ("kitten", "")
    assert split("ab12/../../a\nb.jpg") == ("ab12", "a b.jpg")
    with pytest.raises(LabError):
        split(["kitten"])
