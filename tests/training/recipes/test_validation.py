"""Checks of settings: the ends of a range are accepted, numbers beyond it are refused."""

from math import inf, nan
from types import SimpleNamespace

import pytest

from dino_model.runtime.errors import SettingError
from training.recipes.validation import at_least, multiple_of, no_longer_than, positive, shares

CHECKS = {
    "at least 2": (lambda one: at_least(one, max_size=2), (2, 1e300), (1.99, inf, nan)),
    "above 0": (lambda one: positive(one, "max_size"), (1e-300, 1e300), (0, inf, nan)),
    "a share": (lambda one: shares(one, "max_size"), (0, 1), (-1e-9, 1 + 1e-9, nan)),
    "no longer than 5": (lambda one: no_longer_than(5, one, "max_size"), (0, 5), (-1, 5.1, nan)),
    "a multiple of 8": (lambda one: multiple_of("max_size", one.max_size, 8, "it"), (0, 16), (5, 15)),
}


@pytest.mark.parametrize("name", CHECKS)
def test_number_is_accepted_up_to_the_ends_of_its_range(name):
    check, accepted, refused = CHECKS[name]
    for value in accepted:
        check(SimpleNamespace(max_size=value))
    for value in refused:
        with pytest.raises(SettingError, match=f"--max-size is {value}, "):
            check(SimpleNamespace(max_size=value))


def test_multiples_to_choose_are_those_next_to_the_value():
    for value, choices in ((5, "choose 8$"), (15, "choose 8 or 16$")):
        with pytest.raises(SettingError, match=choices):
            multiple_of("queue", value, 8, "the batch")
