"""The page in a real Chromium: cold start, milliseconds per move, frames per second, first and second look.

python -m benchmarks.page [--json FILE]

Time is the wall's, and beside it the page's own processor time, which other programs on the machine hardly
slow.
"""

import importlib.util
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import tyro
from PIL import Image

from benchmarks.serving import serving
from dino_model.files import write_text

SHOWN_WITHIN = 180  # seconds
CHROMIUM_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
SECONDS_MOVING = 3


@dataclass(frozen=True)
class Setting:
    """A model and a resolution, for a square image."""

    model: str
    size: int
    patches: int
    script_goal: float | None
    """Milliseconds per move, 95th percentile."""
    first_goal: float | None
    """Seconds from a picture to its maps."""


SETTINGS = (
    Setting("embedded", 224, 784, 8.0, 1.0),
    Setting("random:vit_small/16", 480, 900, 8.0, None),
    # In the place of DINO's weights, which cost the same.
    Setting("random:vit_small/8", 480, 3600, 10.0, 1.3),
)
READY_GOAL, SECOND_GOAL = 1.2, 0.3  # seconds
COLD_GOAL = 1.6  # MB


@dataclass(frozen=True)
class Figures:
    """What was measured in one setting."""

    model: str
    patches: int
    precision: str
    ready: float
    """Seconds from the address to the first maps, for a new visitor; the picture was encoded before."""
    cold_mb: float
    """Transferred to a new visitor until the first maps are drawn."""
    first_look: float
    """Seconds from a new picture to its maps, median."""
    second_look: float
    """Seconds from choosing a picture seen before to its maps, median."""
    script: float
    """Milliseconds of script per move: median."""
    script_95: float
    """95th percentile."""
    processor: float
    """Milliseconds of the page's own processor time per move, style and layout included: mean."""
    frames_per_second: float
    """While the pointer moves."""
    payload_mb: float
    """Queries and keys of a block."""
    foreign_requests: int
    """Requests that left the machine."""
    load: float
    """The machine's load average while it was measured; above its cores, the wall's times are others' too."""


@dataclass(frozen=True)
class Page:
    """Measure the tab Explore in Chromium, at 784, 900 and 3,600 patches."""

    moves: int = 200
    """Moves of the pointer that are timed."""
    pictures: int = 5
    """New pictures that are timed."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Start a server per setting, measure, print."""
        if missing := what_is_missing():
            print(f"page: not measured, because {missing}")
            return
        found = [measured(setting, self.moves, self.pictures) for setting in SETTINGS]
        for setting, figures in zip(SETTINGS, found, strict=True):
            print(as_text(setting, figures))
        if self.json is not None:
            content = {"name": "page", "cores": os.cpu_count(), "settings": [asdict(one) for one in found]}
            write_text(self.json, json.dumps(content, indent=2) + "\n")


def what_is_missing() -> str:
    """Why nothing can be measured; empty where it can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install -r requirements-dev.txt"
    if shutil.which("chromium") is None:
        return "Chromium is not installed: make browser"
    return ""


def as_text(setting: Setting, figures: Figures) -> str:
    """The lines a person reads."""
    script = f" (goal {setting.script_goal:.0f})" if setting.script_goal else ""
    first = f" (goal {setting.first_goal:.0f})" if setting.first_goal else ""
    return "\n".join(
        [
            f"page, {figures.model}, {figures.patches:,} patches, {figures.precision}, "
            f"load {figures.load:.1f}:",
            f"  script per move: {figures.script:.1f} ms, "
            f"95th percentile {figures.script_95:.1f} ms{script}; "
            f"{figures.processor:.1f} ms of processor time",
            f"  {figures.frames_per_second:.0f} frames per second while moving",
            f"  new picture to maps: {figures.first_look:.2f} s{first}; "
            f"seen before: {figures.second_look:.3f} s (goal {SECOND_GOAL})",
            f"  cold page ready: {figures.ready:.2f} s (goal {READY_GOAL}), "
            f"{figures.cold_mb:.2f} MB transferred (goal {COLD_GOAL}); "
            f"{figures.payload_mb:.1f} MB per block; {figures.foreign_requests} requests to other machines",
        ]
    )


def measured(setting: Setting, moves: int, pictures: int) -> Figures:
    """All figures of one setting, on a server and in a browser of its own."""
    options = ("--port", "0", "--model", setting.model, "--size", str(setting.size))
    with serving(*options) as served, browser() as chromium, tempfile.TemporaryDirectory() as folder:
        address = served.address
        requests: list[str] = []
        ready = []
        for _ in range(3):  # each time with nothing kept from before
            page = new_visitor(chromium, requests)
            ready.append(seconds_to_open(page, address))
        cold_mb = page.evaluate(TRANSFERRED) / 1e6
        looks = [seconds_to_picture(page, file) for file in square_pictures(Path(folder), pictures)]
        seen = [seconds_to_example(page, name) for name in ("sheep", "kitten") * (1 + pictures)]
        seconds_to_picture(page, square_pictures(Path(folder), 1)[0])
        told = page.evaluate(TOLD)
        if told["patches"] != setting.patches:
            raise RuntimeError(f"{told['patches']} patches, expected {setting.patches}")
        script, processor = milliseconds_per_move(page, moves)
        return Figures(
            model=setting.model,
            patches=setting.patches,
            precision=told["precision"],
            ready=median(ready),
            cold_mb=cold_mb,
            first_look=median(looks),
            second_look=median(seen[2:]),  # the first two were new
            script=median(script),
            script_95=quantiles(script, n=20)[-1],
            processor=processor,
            frames_per_second=page.evaluate(FRAMES, SECONDS_MOVING),
            payload_mb=told["bytes"] / 1e6,
            foreign_requests=sum(not url.startswith((address, "data:", "blob:")) for url in requests),
            load=os.getloadavg()[0],
        )


def new_visitor(chromium: Any, requests: list[str]) -> Any:
    """An empty page of a browser that has kept nothing; `requests` hears every address it asks for."""
    page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.add_init_script(WATCH)
    return page


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(CHROMIUM_OPTIONS)
        )
        yield chromium
        chromium.close()


def square_pictures(folder: Path, count: int) -> list[Path]:
    """Photographs that no server has seen: squares of smooth noise, 640 pixels wide."""
    files = [folder / f"{secrets.token_hex(8)}.jpg" for _ in range(count)]
    for file in files:
        noise = np.random.default_rng().integers(0, 256, (10, 10, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((640, 640), Image.Resampling.BICUBIC).save(file)
    return files


# Runs before the page's own scripts. `shown` is when maps were last drawn, `asked` when they were asked for,
# both in milliseconds since the address was opened.
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
TOLD = """() => {
  const { encoding } = lab("explore");
  const blocks = performance.getEntriesByType("resource").filter(({ name }) => name.includes("/blocks/"));
  return {
    patches: encoding.rows * encoding.columns,
    precision: Object.fromEntries(encoding.value.facts).Precision,
    bytes: blocks.at(-1).decodedBodySize,
  };
}"""
# Each move goes to another patch, and the next one waits until it has been drawn.
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


def seconds_to_open(page: Any, address: str) -> float:
    """From the address to the first maps."""
    page.goto(address)
    page.wait_for_function("() => window.shown", timeout=SHOWN_WITHIN * 1000)
    return page.evaluate("() => window.shown") / 1000


def seconds_to_picture(page: Any, file: Path) -> float:
    """From a file in the browser's hands to its maps."""
    page.set_input_files("#images input[type=file]", file)
    return seconds_waited(page)


def seconds_to_example(page: Any, name: str) -> float:
    """From a click on an example to its maps."""
    page.locator(f"#strip img[src*='/{name}.jpg']").first.click()
    return seconds_waited(page)


def seconds_waited(page: Any) -> float:
    """From asking, which has happened, to the maps."""
    page.wait_for_function("() => window.asked && window.shown > window.asked", timeout=SHOWN_WITHIN * 1000)
    return page.evaluate("() => window.shown - window.asked") / 1000


def milliseconds_per_move(page: Any, moves: int) -> tuple[list[float], float]:
    """Script of every move, on the wall's clock; and the page's processor time per move."""
    page.evaluate(MOVE, 30)  # until the browser has compiled what is used
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = processor_seconds(session)
    times = page.evaluate(MOVE, moves)
    return times, 1000 * (processor_seconds(session) - before) / moves


def processor_seconds(session: Any) -> float:
    """Processor time that the page's thread has spent on tasks."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


if __name__ == "__main__":
    tyro.cli(Page, prog="python -m benchmarks.page").run()
