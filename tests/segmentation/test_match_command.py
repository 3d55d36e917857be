import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs
from segmentation.commands.match import Match


def written(path: Path, picture: np.ndarray) -> Path:
    Image.fromarray(picture).save(path)
    return path


def test_a_photograph_and_a_part_of_it_match_where_they_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    picture = photographs.picture("owl")
    a, b = written(tmp_path / "a.png", picture), written(tmp_path / "b.png", picture[40:, 60:])
    y, x = (side // 2 for side in picture.shape[:2])
    options = {"size": 128, "scales": (1.0,)}
    Match(a=a, b=b, output=tmp_path / "out", point=f"{y},{x}", **options).run()
    found = json.loads((tmp_path / "out" / "matches.json").read_text())
    assert len(found["matches"]) >= 20
    off = [np.subtract(match["a"], match["b"]) - (40, 60) for match in found["matches"]]
    patch = 8 * min(picture.shape[:2]) / 128
    assert np.mean(np.abs(off).max(axis=1) <= patch) > 0.9
    assert np.abs(np.subtract(found["point"]["a"], found["point"]["b"]) - (40, 60)).max() <= 2 * patch
    assert found["scale"] == 1.0
    for name in ("lines", "colors", "foreground", "point"):
        sheet = np.asarray(Image.open(tmp_path / "out" / f"{name}.png"))
        assert sheet.shape == (picture.shape[0], 2 * picture.shape[1] - 60 + 8, 3)
        assert sheet.std() > 10
    assert "mutual matches, B at 1 of its size" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"b": "flat.png"}, "flat.png has no texture"),
        ({"b": "missing.png"}, "missing.png cannot be opened"),
        ({"scales": ()}, r"--scales is \(\)"),
        ({"scales": (0.0,)}, r"--scales is \(0.0,\)"),
        ({"ratio": 2.0}, "--ratio is 2.0"),
        ({"point": "9"}, "--point is '9'"),
        ({"point": "5000,3"}, "--point 5000,3 is outside of the image"),
        ({"b": "long.png"}, "more than 16,384"),
    ],
)
def test_what_cannot_be_matched_is_told_and_nothing_is_written(options: dict, message: str, tmp_path: Path):
    written(tmp_path / "a.png", photographs.picture("owl"))
    written(tmp_path / "flat.png", np.full((40, 50, 3), 7, np.uint8))
    written(tmp_path / "long.png", np.random.default_rng(0).integers(0, 256, (1, 4000, 3), dtype=np.uint8))
    options = {"a": "a.png", "b": "a.png", "scales": (1.0,), "size": 64} | options
    options |= {name: tmp_path / options[name] for name in ("a", "b")}
    with pytest.raises(ValueError, match=message):
        Match(**options, output=tmp_path / "out").run()
    assert not (tmp_path / "out" / "matches.json").exists()
