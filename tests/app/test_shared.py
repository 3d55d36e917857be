"""What every tab takes from a client is checked: requests of views, images by name, albums."""

import pytest

from app import page
from app.errors import LabError
from app.shared import split
from app.view import View, object_patch

REQUEST = {
    "block": 11,
    "query": "1,2",
    "quantity": "attention",
    "show": "mean",
    "layer": "light",
    "mass": 0.6,
    "opacity": 1,
    "colormap": "inferno",
    "scale": "median",
    "smooth": True,
    "shared": False,
    "outline": False,
}


def test_view_of_a_request_has_its_settings_and_ignores_other_keys():
    expected = View(11, "1,2", show="mean", opacity=1.0)
    assert View.of({**REQUEST, "token": "x", "path": "/etc/passwd"}) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"block": "11"},
        {"block": True},
        {"query": "1;2"},
        {"query": None},
        {"quantity": "everything"},
        {"show": ["mean"]},
        {"layer": "dark"},
        {"mass": float("nan")},
        {"mass": 7},
        {"opacity": "1"},
        {"colormap": "../x"},
        {"scale": 3},
        {"smooth": 1},
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


def test_object_patch_is_the_known_place_or_inside_the_border(encode):
    encoding = encode("kitten")
    assert object_patch(encoding, (0.999, 0.5)) == (encoding.grid[0] // 2, encoding.grid[1] - 1)
    row, column = object_patch(encoding, None)
    assert 0 < row < encoding.grid[0] - 1
    assert 0 < column < encoding.grid[1] - 1


def test_head_preloads_every_module_of_the_first_view(lab):
    tags = page.head(lab)
    for name in ("attention_view.js", "viewer.js", "attention.js", "views.css", "blocks/11"):
        assert name in tags
