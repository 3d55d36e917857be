"""Our own photographs: the table tells of every file what is true."""

import pytest

from dino_model import photographs

MOST_BYTES = 2_000_000


def test_photographs_table_matches_files():
    pictures = {file.stem for file in photographs.FOLDER.glob("*.jpg")}
    masks = {file.stem for file in photographs.FOLDER.glob("*.png")}
    assert pictures == set(photographs.table())
    assert masks == set(photographs.names())
    assert masks.isdisjoint(photographs.landscapes())
    assert 20 <= len(masks) <= 30


def test_photographs_have_free_licenses_and_authors():
    for photograph in photographs.table().values():
        assert photograph.license in photographs.LICENSES, photograph.name
        assert photograph.source.startswith("https://"), photograph.name
        assert photograph.author, photograph.name
        assert photograph.title, photograph.name


def test_photographs_share_and_pin_match_masks():
    for name in photographs.names():
        mask = photographs.mask(name)
        assert photographs.table()[name].share == pytest.approx(mask.mean(), abs=5e-5), name
        assert mask[photographs.pin(name)], name


def test_photographs_unknown_name_lists_known_ones():
    assert photographs.credit("owl") == "Owl on a branch, by Lepale, CC0-1.0"
    with pytest.raises(ValueError, match=r"no photograph 'cat'; there are kitten, "):
        photographs.image("cat")
    with pytest.raises(ValueError, match=r"canyon is a landscape without an object; those with one: kitten"):
        photographs.mask("canyon")
