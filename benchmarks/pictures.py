"""The pictures of the page that the repository shows, made anew once page or embedded model have changed.

python -m benchmarks.pictures

Writes docs/explore.png, docs/segment.png, docs/class-map.png, and app/static/preview.jpg, which links show.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from PIL import Image

from benchmarks.page import browser, what_is_missing
from benchmarks.serving import serving

REPOSITORY = Path(__file__).parents[1]
SHOWN_WITHIN = 180_000  # milliseconds
EXPLORE = "#explore .lab-view[data-token]"
LOADED = "() => [...document.images].every((image) => image.complete || image.loading === 'lazy')"
"""Gradio keeps a connection open, so the network is never idle."""
PREVIEW = (1200, 630)  # what links show, by the Open Graph protocol


@dataclass(frozen=True)
class Shot:
    """One picture: what the page is asked for, how it is seen that this is shown, and what is done first."""

    file: str
    query: str
    ready: str
    size: tuple[int, int] = (1280, 900)
    act: Callable[[Any], None] = lambda page: None
    whole: bool = False


def click_the_object(page: Any) -> None:
    """Click the sheep where a click is suggested."""
    x, y = page.evaluate("() => { const { x, y } = lab('segment').suggested; return [x, y]; }")
    box = page.locator("#segment .lab-stage").bounding_box()
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    page.get_by_role("rowheader", name="Your mask").wait_for()
    page.mouse.move(0, 0)


SHOTS = (
    Shot("docs/explore.png", "", EXPLORE),
    Shot(
        "docs/segment.png",
        "?tab=segment&photo=sheep",
        "#segment .lab-view[data-token^=sheep]",
        act=click_the_object,
    ),
    Shot("docs/class-map.png", "?tab=class-map", "#class-map .lab-view[data-token]", whole=True),
    Shot("app/static/preview.jpg", "", EXPLORE, PREVIEW),
)


@dataclass(frozen=True)
class Pictures:
    """Take every picture of the page that the repository shows."""

    output: Path = REPOSITORY
    """Folder below which they are written."""

    def run(self) -> None:
        """Serve, look, write.

        Raises:
            SystemExit: there is no browser here.
        """
        if missing := what_is_missing():
            raise SystemExit(f"no picture was taken, because {missing}")
        with serving("--port", "0") as served, browser() as chromium:
            for shot in SHOTS:
                take(shot, chromium, served.address, self.output)


def take(shot: Shot, chromium: Any, address: str, output: Path) -> None:
    """Write one picture of the page at an address, under its name below a folder."""
    width, height = shot.size
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.set_default_timeout(SHOWN_WITHIN)
    page.goto(f"{address}/{shot.query}")
    page.wait_for_selector(shot.ready)
    page.wait_for_function(LOADED)
    shot.act(page)
    file = output / shot.file
    file.parent.mkdir(parents=True, exist_ok=True)
    kind = {"type": "jpeg", "quality": 82} if file.suffix == ".jpg" else {}
    page.screenshot(path=file, full_page=shot.whole, **kind)
    page.close()
    print(f"{file} {Image.open(file).size}")


if __name__ == "__main__":
    tyro.cli(Pictures, prog="python -m benchmarks.pictures").run()
