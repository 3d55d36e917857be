"""What every tab takes from a client is checked: requests of views, images by name, albums."""

import pytest

from app import page
from app.errors import LabError
from app.shared import split
from app.view import View


def test_view_of_a_request_has_its_settings_and_ignores_other_keys():
    sent = {"block": 11, "query": "1,2", "show": "mean", "opacity": 1, "path": "/etc/passwd"}
    assert View.of(sent) == View(block=11, query="1,2", show="mean", opacity=1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("block", None), ("query", "1;2"), ("quantity", "everything"), ("show", "best"), ("layer", "dark"),
     ("mass", 7), ("opacity", -1), ("colormap", "../x")],
)  # fmt: skip
def test_view_of_a_request_with_a_wrong_setting_is_refused(name, value):
    with pytest.raises(LabError, match=f"^Invalid {name}: "):
        View.of({"block": 11, name: value})


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
