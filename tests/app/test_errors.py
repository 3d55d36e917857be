"""Errors for users, and the check of values that clients send."""

from typing import Any

import pytest
from pydantic import Field

from app.errors import ClientValue, LabError


class Question(ClientValue):
    """A value with a field of every kind."""

    count: int = Field(default=3, ge=1)
    share: float = Field(default=0.5, ge=0, le=1)
    name: str = "a"
    exact: bool = False
    runs: list[int] = Field(default_factory=list)


def test_client_value_has_defaults_and_ignores_other_fields():
    found = Question.of({"share": 1, "path": "/etc/passwd"})
    assert (found.count, found.share, found.exact) == (3, 1.0, False)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        *((value, "request") for value in (None, [], "kitten", 3)),
        *(({"count": count}, "count") for count in (0, True, 1.5, "2", None)),
        *(({"share": share}, "share") for share in (-1, float("nan"), float("inf"), True, "0.5")),
        ({"name": 3}, "name"),
        ({"exact": 1}, "exact"),
        ({"runs": [1, 2.5]}, "runs.1"),
    ],
)
def test_client_value_of_wrong_type_or_range_is_refused_in_one_sentence(value: Any, field: str):
    with pytest.raises(LabError, match=rf"^Invalid {field}: input should be .*\.$"):
        Question.of(value)


def test_message_for_the_toast_is_escaped():
    error = LabError("<img src=x> is no model.")
    assert str(error) == "<img src=x> is no model."
    assert error.message == "&lt;img src=x&gt; is no model."
