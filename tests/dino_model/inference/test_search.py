"""Nearest neighbors, and the index of a folder."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from dino_model.inference import search
from dino_model.inference.search import nearest
from tests.commands import dino as main
from tests.training.runs import write_rectangles


def test_nearest_ranks_by_cosine_in_chunks(monkeypatch):
    random = torch.Generator().manual_seed(0)
    database, queries = (torch.randn(count, 5, generator=random) for count in (200, 9))
    expected = torch.cosine_similarity(queries[:, None], database[None], dim=-1).topk(7, dim=1)
    for limit in (2**28, 1600):
        monkeypatch.setattr(search, "_MAX_PRODUCT_BYTES", limit)
        cosines, numbers = nearest(queries, search.UnitVectors(database), 7)
        torch.testing.assert_close(cosines, expected.values, rtol=0, atol=1e-6)
        assert torch.equal(numbers, expected.indices)
    assert nearest(queries, search.UnitVectors(database[:3]), 7)[1].shape == (9, 3)


def test_nearest_with_invalid_features_raises():
    with pytest.raises(ValueError, match="Queries have 3 values, the database 2"):
        nearest(torch.ones(1, 3), search.UnitVectors(torch.ones(3, 2)), 1)
    with pytest.raises(ValueError, match="Features hold NaN or infinity"):
        search.UnitVectors(torch.full((3, 2), torch.inf))


def test_contact_sheet_has_a_column_for_each_tile_of_the_longest_row(tmp_path: Path, monkeypatch):
    figures, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **b: figures.append(self) or save(self, *a, **b))
    tiles = [(np.zeros((90, side, 3), np.uint8), "0123456789" * 2 + "x" * 8) for side in (120, 112, 113)]
    search.write_contact_sheet(tmp_path / "sheet.png", [[(tiles[0][0], tiles[0][1] + "y")], tiles])
    assert Image.open(tmp_path / "sheet.png").size == (int(1.3 * 3 * 112), int(1.45 * 2 * 112))
    axes = figures[0].axes
    assert [each.images[0].get_array().shape[:2] for each in axes if each.images] == [
        (84, 112), (84, 112), (90, 112), (89, 112),
    ]  # fmt: skip
    assert [each.get_title() for each in axes] == ["0123456789012…56789xxxxxxxxy", "", "", *[tiles[0][1]] * 3]


def test_search_command_finds_image_of_indexed_folder(tmp_path: Path, capsys):
    shapes = write_rectangles(tmp_path / "shapes", {"a": 3, "b": 3})
    index, sheet, results = (str(tmp_path / name) for name in ("index.safetensors", "sheet.jpg", "q.json"))
    query = ["search", str(shapes / "b" / "001.png"), "--index", index, "--count", "2", "--output", sheet]
    with pytest.raises(ValueError, match=r"does not exist\. Create it with `python -m dino_model index"):
        main(query)
    main(["index", str(shapes), "--output", index, "--size", "32"])
    main([*query, "--json", results])
    assert "1.000  b/001.png" in capsys.readouterr().out
    (found,) = json.loads(Path(results).read_text())["results"]
    assert found["neighbors"][0][0] == "b/001.png"
    assert Image.open(sheet).width == int(1.3 * 3 * 112)
    (shapes / "a" / "000.png").unlink()
    with pytest.raises(ValueError, match=r"1 images of .* are not in .*shapes, such as a/000\.png"):
        main(query)
