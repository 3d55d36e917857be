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


def test_image_matches_its_own_crop(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    picture = photographs.image("owl")
    a, b = written(tmp_path / "a.png", picture), written(tmp_path / "b.png", picture[40:, 60:])
    y, x = (side // 2 for side in picture.shape[:2])
    Match(a=a, b=b, output=tmp_path / "out", point=f"{y},{x}", size=128).run()
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


def test_wrong_input_is_named_and_nothing_written(tmp_path: Path):
    a = written(tmp_path / "a.png", photographs.image("owl"))
    flat = written(tmp_path / "flat.png", np.full((40, 50, 3), 7, np.uint8))
    wrong = {
        "flat.png has no texture": {"b": flat},
        "--ratio is 2.0": {"ratio": 2.0},
        "--point is '9'": {"point": "9"},
        "--point 5000,3 is outside of the image": {"point": "5000,3"},
    }
    for message, options in wrong.items():
        with pytest.raises(ValueError, match=message):
            Match(**{"a": a, "b": a, "size": 64} | options, output=tmp_path / "out").run()
    assert not (tmp_path / "out").exists()
