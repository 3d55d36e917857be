"""What every tab takes from a client is checked: requests of views, images by name, albums."""

import pytest

from app import page
from app.errors import LabError
from app.shared import split
from app.view import View

REQUEST = {
    "block": 11,
    "query": "1,2",
    "quantity": "attention",
    "show": "mean",
    "layer": "light",
    "mass": 0.6,
    "opacity": 1,
    "colormap": "inferno",
}


def test_view_of_a_request_has_its_settings_and_ignores_other_keys():
    expected = View(block=11, query="1,2", show="mean", colormap="inferno", opacity=1.0)
    assert View.of({**REQUEST, "token": "x", "path": "/etc/passwd"}) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"block": "11"},
        {"block": True},
        {"token": "x", "block": None},
        {"query": "1;2"},
        {"query": None},
        {"quantity": "everything"},
        {"show": ["mean"]},
        {"layer": "dark"},
        {"mass": float("nan")},
        {"mass": 7},
        {"opacity": "1"},
        {"colormap": "../x"},
    ],
)
def test_view_of_a_request_with_a_wrong_setting_raises_one_sentence(change):
    with pytest.raises(LabError) as refused:
        View.of({**REQUEST, **change})
    assert str(refused.value).endswith(".")


def test_split_returns_name_and_clean_title():
    assert split("kitten") == ("kitten", "")
    assert split("kitten/other.jpg") == ("kitten", "")
    assert split("ab12/../../a\nb.jpg") == ("ab12", "a b.jpg")
    with pytest.raises(LabError):
        split(["kitten"])


def test_head_preloads_every_module_of_the_first_view(lab):
    tags = page.head(lab)
    for name in ("attention_view.js", "viewer.js", "attention.js", "views.css", "blocks/11"):
        assert name in tags
