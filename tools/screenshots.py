"""Retake the screenshots of the page in the repository, after a change of the page or the embedded model.

python -m tools.screenshots

Writes docs/explore.jpg, docs/segment.jpg, docs/class-map.png and app/static/preview.jpg (for links).
"""

from pathlib import Path
from typing import Any, NamedTuple

import tyro

from benchmarks.serving import browser, missing_for_browser, serving

REPOSITORY = Path(__file__).parents[1]
EXPLORE = "#explore .lab-view[data-walk=over]"
LOADED = """() => !document.querySelector(".pending")
  && [...document.images].every((image) => image.complete || image.loading === "lazy")"""
"""Gradio keeps a connection open, so the network is never idle; it fades what it waits for."""


class Shot(NamedTuple):
    """A screenshot: file, query of the address, selector of what must be shown, size in pixels."""

    file: str
    query: str
    ready: str
    size: tuple[int, int] = (1280, 800)


SHOTS = (
    Shot("docs/explore.jpg", "", EXPLORE),
    Shot("docs/segment.jpg", "?tab=segment&image=sheep", "#segment .lab-view[data-token^=sheep]"),
    Shot("docs/class-map.png", "?tab=class-map", "#class-map .lab-view[data-token]"),
    Shot("app/static/preview.jpg", "", EXPLORE, (1200, 630)),
)


def main(output: Path = REPOSITORY) -> None:
    """Take every screenshot.

    Args:
        output: Folder below which they are written.

    Raises:
        SystemExit: There is no browser.
    """
    if missing := missing_for_browser():
        raise SystemExit(f"no screenshot was taken, because {missing}")
    with serving("--port", "0") as served, browser() as chromium:
        for shot in SHOTS:
            take(shot, chromium, served.address, output)


def take(shot: Shot, chromium: Any, address: str, output: Path) -> None:
    """Write one screenshot of the page at an address, under its name below a folder."""
    width, height = shot.size
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.set_default_timeout(180_000)
    page.goto(f"{address}/{shot.query}")
    page.wait_for_selector(shot.ready)
    page.wait_for_function(LOADED)
    if "segment" in shot.query:
        click_the_object(page)
    if "class-map" in shot.query:  # the lecture names its classes
        page.evaluate("viewOf('class-map').openMap('caltech101')")
        page.wait_for_selector("#class-map [data-map=caltech101]")
        page.wait_for_timeout(500)  # it draws with the next frame
        page.wait_for_function(LOADED)
    file = output / shot.file
    file.parent.mkdir(parents=True, exist_ok=True)
    kind = {"type": "jpeg", "quality": 82} if file.suffix == ".jpg" else {}
    target = page.locator(shot.ready) if "class-map" in shot.query else page  # a slide shows the map alone
    target.screenshot(path=file, **kind)
    page.close()
    print(file)


def click_the_object(page: Any) -> None:
    """Click where the tab Segment suggests it."""
    x, y = page.evaluate("() => { const { x, y } = viewOf('segment').suggested; return [x, y]; }")
    box = page.locator("#segment .lab-stage").bounding_box()
    page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    page.get_by_role("rowheader", name="Your mask").wait_for()
    page.mouse.move(0, 0)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.screenshots")
