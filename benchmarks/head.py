"""Fit of a segmentation head at the size of the images against one on enlarged images.

python -m benchmarks.head --data CAMVID [--json FILE]
"""

import contextlib
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import Benchmark
from segmentation.commands.head import Fit, Score

PLAIN_SIZE = 480
LARGEST_LOSS = 0.3
"""Size of the reference in pixels, and the largest loss of mean IoU in percent points."""


@dataclass(frozen=True, kw_only=True)
class HeadFit(Benchmark):
    """Seconds of `segmentation head fit` on masks of one size."""

    data: Path
    """Folder with images, masks, train.txt and test.txt, such as CamVid."""
    model: str = "embedded"
    """Name of a model."""
    repeats: int = 1
    """Timed turns of each side, after one to warm up."""

    def package(self) -> Callable[[], object]:
        """Fit as the command does by default."""
        return lambda: self._fit(0)

    def reference(self) -> Callable[[], object]:
        """Fit on images that are enlarged."""
        return lambda: self._fit(PLAIN_SIZE)

    def compare(self) -> tuple[str, ...]:
        """Compare the mean IoU of both heads on the test images."""
        package, reference = (self._score(size) for size in (0, PLAIN_SIZE))
        remark = f"mean IoU: package {package:.1f} %, reference {reference:.1f} %"
        if package < reference - LARGEST_LOSS:
            raise SystemExit(remark)
        return (remark,)

    def _fit(self, size: int, output: Path | None = None) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            inputs: dict[str, Any] = {"images": self.data / "images", "masks": self.data / "masks"}
            head = output or Path(folder, "head.safetensors")
            names = self.data / "train.txt"
            Fit(**inputs, image_list=names, model=self.model, size=size, output=head, overwrite=True).run()

    def _score(self, size: int) -> float:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            head, scores = Path(folder, "head.safetensors"), Path(folder, "scores.json")
            self._fit(size, head)
            inputs: dict[str, Any] = {"images": self.data / "images", "masks": self.data / "masks"}
            Score(**inputs, image_list=self.data / "test.txt", head=head, json=scores).run()
            return float(json.loads(scores.read_text())["miou"])


if __name__ == "__main__":
    tyro.cli(HeadFit, description=__doc__).run()
