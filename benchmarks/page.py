"""The page in Chromium: cold start, time per pointer move, frames per second, new and known images.

python -m benchmarks.page [--json FILE]
"""

import importlib.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import tyro
from PIL import Image

from benchmarks.serving import serving
from dino_model.files import write_json

SHOWN_WITHIN = 180_000  # milliseconds
CHROMIUM_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
SETTINGS = (("embedded", 224), ("random:vit_small/16", 480), ("random:vit_small/8", 480))
"""Models and resolutions: 784, 900 and 3,600 patches. Random weights cost what DINO's cost."""
GOALS = {
    "move_median_ms": 3.0,
    "move_p95_ms": 8.0,
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
        results = [measured(model, size, self.moves, self.images) for model, size in SETTINGS]
        for row in results:
            print(f"page, {row['model']}, {row['patches']:,} patches:")
            for name, value in row.items():
                if isinstance(value, float | int):
                    print(f"  {name}: {value:.3g}" + (f" (goal {GOALS[name]})" if name in GOALS else ""))
        if self.json is not None:
            write_json(
                self.json, {"name": "page", "cores": os.cpu_count(), "goals": GOALS, "settings": results}
            )


def missing_for_browser() -> str:
    """Name what a browser needs and this machine lacks; empty if nothing is missing."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install -r requirements-dev.txt"
    if shutil.which("chromium") is None:
        return "Chromium is not installed: make browser"
    return ""


def measured(model: str, size: int, moves: int, images: int) -> dict[str, Any]:
    """Measure one setting, with a server and a browser of its own."""
    options = ("--port", "0", "--model", model, "--size", str(size))
    with serving(*options) as served, browser() as chromium, tempfile.TemporaryDirectory() as folder:
        requests: list[str] = []
        cold = []
        for _ in range(3):  # each time with an empty cache; the server knows the image
            page = new_visitor(chromium, requests)
            page.goto(served.address)
            page.wait_for_function("() => window.shown", timeout=SHOWN_WITHIN)
            cold.append(page.evaluate("() => window.shown") / 1000)
        cold_mb = page.evaluate(TRANSFERRED) / 1e6
        new = [seconds_to_upload(page, file) for file in noise_images(Path(folder), images)]
        known = [seconds_to_example(page, name) for name in ("sheep", "kitten") * (1 + images)]
        seconds_to_upload(page, noise_images(Path(folder), 1)[0])
        page.evaluate(MOVE, 30)  # until the browser has compiled the code
        asked = len(requests)
        times = page.evaluate(MOVE, moves)
        return {
            "model": model,
            **page.evaluate(FACTS),
            "cold_s": median(cold),
            "cold_mb": cold_mb,
            "new_image_s": median(new),
            "known_image_s": median(known[2:]),  # the first two were new
            "move_median_ms": median(times),
            "move_p95_ms": quantiles(times, n=20)[-1],
            "move_requests": len(requests) - asked,
            "frames_per_second": page.evaluate(FRAMES, 3),
            "foreign_requests": sum(
                not url.startswith((served.address, "data:", "blob:")) for url in requests
            ),
            "load": os.getloadavg()[0],
        }


def new_visitor(chromium: Any, requests: list[str]) -> Any:
    """Open an empty page with an empty cache; `requests` collects the addresses that it asks for."""
    page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.add_init_script(WATCH)
    return page


@contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        chromium = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_OPTIONS))
        yield chromium
        chromium.close()


def noise_images(folder: Path, count: int) -> list[Path]:
    """Write new images of smooth noise, 640 × 640 pixels."""
    files = [folder / f"{secrets.token_hex(8)}.jpg" for _ in range(count)]
    for file in files:
        noise = np.random.default_rng().integers(0, 256, (10, 10, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((640, 640), Image.Resampling.BICUBIC).save(file)
    return files


def seconds_to_upload(page: Any, file: Path) -> float:
    """Time from a chosen file to its maps."""
    page.set_input_files("#images input[type=file]", file)
    return seconds_waited(page)


def seconds_to_example(page: Any, name: str) -> float:
    """Time from a click on an example to its maps."""
    page.locator(f"#strip img[src*='/{name}.jpg']").first.click()
    return seconds_waited(page)


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
FACTS = """() => {
  const { encoding } = lab("explore");
  const blocks = performance.getEntriesByType("resource").filter(({ name }) => name.includes("/blocks/"));
  return {
    patches: encoding.rows * encoding.columns,
    precision: Object.fromEntries(encoding.value.facts).Precision,
    block_mb: blocks.at(-1).decodedBodySize / 1e6,
  };
}"""
# Every move goes to another patch; the next one waits until it has been drawn.
MOVE = """async (moves) => {
  const { encoding, viewer } = lab("explore");
  const { rows, columns } = encoding;
  const times = [];
  for (let move = 0; move < moves; move++) {
    const patch = { row: (7 * move) % rows, column: (11 * move + Math.floor(move / columns)) % columns };
    const start = performance.now();
    viewer.point(patch);
    times.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return times;
}"""
FRAMES = """async (seconds) => {
  const stage = document.querySelector("#explore .lab-stage");
  const box = stage.getBoundingClientRect();
  const start = performance.now();
  let frames = 0;
  while (performance.now() - start < 1000 * seconds) {
    const along = (frames * 0.013) % 1;
    const clientX = box.left + box.width * along;
    const clientY = box.top + box.height * ((3 * along) % 1);
    stage.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
    await new Promise(requestAnimationFrame);
    frames++;
  }
  return (1000 * frames) / (performance.now() - start);
}"""


if __name__ == "__main__":
    tyro.cli(Page, prog="python -m benchmarks.page").run()
