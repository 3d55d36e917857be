import pytest

from dino_model import photographs


def test_table_tells_the_truth_about_every_file():
    masks = {file.stem for file in photographs.FOLDER.glob("*.png")}
    assert {file.stem for file in photographs.FOLDER.glob("*.jpg")} == set(photographs.table())
    assert masks == set(photographs.names())
    assert masks.isdisjoint(photographs.landscapes())
    assert 20 <= len(masks) <= 30
    for name, photograph in photographs.table().items():
        assert photograph.license in photographs.LICENSES, name
        assert photograph.source.startswith("https://"), name
        assert photograph.author, name
        assert photograph.title, name
    for name in photographs.names():
        mask = photographs.mask(name)
        assert photographs.table()[name].share == pytest.approx(mask.mean(), abs=5e-5), name
        assert mask[photographs.pin(name)], name


def test_unknown_name_lists_known_ones():
    assert photographs.credit("owl") == "Owl on a branch, by Lepale, CC0-1.0"
    with pytest.raises(ValueError, match=r"unknown image 'cat'; available: kitten, "):
        photographs.image("cat")
    with pytest.raises(ValueError, match=r"canyon is a landscape without an object; those with one: kitten"):
        photographs.mask("canyon")
