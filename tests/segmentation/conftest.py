"""Fixtures of the commands' tests."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dino_model.predictor import AttentionPredictor


@pytest.fixture
def check_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Interrupt a command at its second image and resume it: its files are those of a whole run.

    Returns the number of images that were encoded.
    """

    def check(command: Callable[..., Any], names: Sequence[str], **options: Any) -> int:
        whole, resumed = tmp_path / "whole", tmp_path / "resumed"
        command(**options, output=whole, json=tmp_path / "whole.json").run()
        encoded, encode = [], AttentionPredictor.set_image

        def stop_at_second(self, image):
            encoded.append(image.shape)
            if len(encoded) == 2:
                raise KeyboardInterrupt
            encode(self, image)

        monkeypatch.setattr(AttentionPredictor, "set_image", stop_at_second)
        with pytest.raises(KeyboardInterrupt):
            command(**options, output=resumed).run()
        with (resumed / "progress.jsonl").open("a") as log:
            log.write('["cup", [')  # as a killed process leaves it
        command(**options, output=resumed, json=tmp_path / "resumed.json", resume=True).run()
        assert (tmp_path / "whole.json").read_text() == (tmp_path / "resumed.json").read_text()
        for name in names:
            assert (whole / name).read_bytes() == (resumed / name).read_bytes()
        return len(encoded)

    return check
