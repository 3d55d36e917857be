"""The page in Chromium: cold start, processor time per pointer move, new and known images.

python -m benchmarks.page [--json FILE]
"""

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import tyro

from benchmarks.load import as_png, new_image
from benchmarks.serving import browser, missing_for_browser, serving
from dino_model.runtime.files import write_json

SHOWN_WITHIN = 180_000  # milliseconds
SETTINGS = (("embedded", 224), ("random:vit_small/16", 480), ("random:vit_small/8", 480))
"""Models and resolutions: 784, 900 and 3,600 patches. Random weights cost what DINO's cost."""
GOALS = {
    "move_processor_ms": 8.0,
    "known_image_s": 0.3,
    "cold_mb": 1.6,
    "foreign_requests": 0,
}


@dataclass(frozen=True)
class Page:
    """Measure the tab Explore in Chromium."""

    moves: int = 200
    """Timed moves of the pointer."""
    images: int = 5
    """Timed new images."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Start a server for each setting, measure, print."""
        if missing := missing_for_browser():
            print(f"page: not measured, because {missing}")
            return
        results = [measure_page(model, size, self.moves, self.images) for model, size in SETTINGS]
        for row in results:
            print(f"page, {row['model']}, {row['patches']:,} patches:")
            for name, value in row.items():
                if isinstance(value, float | int):
                    print(f"  {name}: {value:.3g}" + (f" (goal {GOALS[name]})" if name in GOALS else ""))
        if self.json is not None:
            write_json(self.json, {"name": "page", "goals": GOALS, "settings": results})


def measure_page(model: str, size: int, moves: int, images: int) -> dict[str, Any]:
    """Measure one setting, with a server and a browser of its own."""
    options = ("--port", "0", "--model", model, "--size", str(size))
    with serving(*options) as served, browser() as chromium:
        requests: list[str] = []
        cold = []
        for _ in range(3):  # each time with an empty cache; the server knows the image
            page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.on("request", lambda request: requests.append(request.url))
            page.add_init_script(WATCH)
            page.goto(served.address)
            page.wait_for_function("() => window.shown", timeout=SHOWN_WITHIN)
            cold.append(page.evaluate("() => window.shown") / 1000)
        cold_mb = page.evaluate(TRANSFERRED) / 1e6
        new = [seconds_to_upload(page, number) for number in range(images)]
        known = []
        for name in ("sheep", "kitten") * (1 + images):
            page.locator(f"#images img[src*='/{name}.jpg']").first.click()
            known.append(seconds_waited(page))
        seconds_to_upload(page, images)
        page.evaluate(MOVE, 30)  # until the browser has compiled the code
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before, begun = len(requests), thread_seconds(session)
        page.evaluate(MOVE, moves)
        spent, own = thread_seconds(session) - begun, (served.address, "data:", "blob:")
        return {
            "model": model,
            "patches": page.evaluate(PATCHES),
            "cold_s": median(cold),
            "cold_mb": cold_mb,
            "new_image_s": median(new),
            "known_image_s": median(known[2:]),  # the first two were new
            "move_processor_ms": 1000 * spent / moves,
            "move_requests": len(requests) - before,
            "foreign_requests": sum(not url.startswith(own) for url in requests),
            "load": os.getloadavg()[0],
        }


def seconds_to_upload(page: Any, number: int) -> float:
    """Time from a chosen file to its maps; each number has an image of its own."""
    file = {"name": "new.png", "mimeType": "image/png", "buffer": as_png(new_image(0, number)[:480, :480])}
    page.set_input_files("#rail input[type=file]", file)
    return seconds_waited(page)


def thread_seconds(session: Any) -> float:
    """Processor time that the thread of a page has taken for scripts, layout and drawing."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))


def seconds_waited(page: Any) -> float:
    """Time from the last question to its maps."""
    page.wait_for_function("() => window.asked && window.shown > window.asked", timeout=SHOWN_WITHIN)
    return float(page.evaluate("() => window.shown - window.asked")) / 1000


# Runs before the page's own scripts: `shown` is when maps were last drawn, `asked` when they were asked for,
# in milliseconds since the address was opened.
WATCH = """
  window.asked = 0;
  const note = () => (window.shown = performance.now());
  new MutationObserver(note).observe(document, { subtree: true, attributeFilter: ["data-token"] });
  for (const kind of ["change", "click"]) {
    document.addEventListener(kind, () => (window.asked = performance.now()), true);
  }
"""
TRANSFERRED = """() => {
  const entries = ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type));
  return entries.reduce((sum, { transferSize }) => sum + transferSize, 0);
}"""
PATCHES = "() => viewOf('explore').encoding.rows * viewOf('explore').encoding.columns"
# Every move goes to another patch; the next one waits until it has been drawn.
MOVE = """async (moves) => {
  const view = viewOf("explore");
  const { encoding } = view;
  const { rows, columns } = encoding;
  for (let move = 0; move < moves; move++) {
    const patch = { row: (7 * move) % rows, column: (11 * move + Math.floor(move / columns)) % columns };
    view.point(encoding.placeOf(patch));
    await new Promise(requestAnimationFrame);
  }
}"""


if __name__ == "__main__":
    tyro.cli(Page, prog="python -m benchmarks.page").run()
