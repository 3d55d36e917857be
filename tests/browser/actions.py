"""Actions on the page, and values read from it."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import expect

from app.tabs.explore import MODES
from dino_model import photographs
from dino_model.inference.predictor import AttentionPredictor

MODEL, SIZE = "random:vit_tiny/16", 224
AXE = Path(__file__).parent / "axe" / "axe.min.js"
EXPLORER = "viewOf('explore')"
MESSAGE = ".lab-problem:visible, .toast-body:visible"
FILE = "#rail input[type=file]"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ARRAY = """() => {
  const { array, shape } = %s;
  const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const parts = [];
  for (let at = 0; at < bytes.length; at += 32768)
    parts.push(String.fromCharCode(...bytes.subarray(at, at + 32768)));
  return [btoa(parts.join("")), array instanceof Float32Array ? "<f4" : "u1", shape];
}"""
VIOLATIONS = """async () => {
  const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
  const { violations } = await axe.run(document, { runOnly: rules, resultTypes: ["violations"] });
  return violations.flatMap(({ id, help, nodes }) => nodes.map(({ html, any }) =>
    `${id}: ${help}: ${html.slice(0, 200)} (${any.map(({ message }) => message).join("; ")})`));
}"""


def reference(model: str = MODEL, image: str = "sheep", size: int = SIZE) -> AttentionPredictor:
    """Return a predictor with an image, in fp32 on the CPU as the page computes."""
    predictor = AttentionPredictor(model, size=size, precision="fp32", device="cpu")
    predictor.set_image(photographs.image(image))
    return predictor


def point_attention(predictor: AttentionPredictor, row: int, column: int) -> np.ndarray:
    """Return the attention of a patch: [heads, rows, columns]."""
    (rows, columns), (height, width) = predictor.grid, predictor.image_size
    y, x = int((row + 0.5) * height / rows), int((column + 0.5) * width / columns)
    assert predictor.patch_at(y, x) == (row, column)
    return predictor.point_attention(y, x)


def wait(page: Any, condition: str) -> None:
    """Wait until an expression is true."""
    page.wait_for_function(f"() => {condition}")


def array(page: Any, expression: str) -> np.ndarray:
    """Return an array of the page, `{ array, shape }` in JavaScript; lists of numbers would take seconds."""
    text, kind, shape = page.evaluate(ARRAY % expression)
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


def labels(page: Any, expression: str) -> np.ndarray:
    """Return labels of the page: uint8 [rows, columns]."""
    shape = "(({ values, rows, columns }) => ({ array: values, shape: [rows, columns] }))"
    return array(page, f"{shape}({expression})")


def maps(page: Any, view: str = EXPLORER, patch: str = "") -> np.ndarray:
    """Return the maps that the browser computed for a patch: [heads, rows, columns]."""
    found = f"{view}.mapsOf({patch}).heads"
    size = f"{view}.encoding.rows, {view}.encoding.columns"
    values = f"Float32Array.from({found}.flatMap((map) => [...map]))"
    return array(page, f"{{ array: {values}, shape: [{found}.length, {size}] }}")


def state(page: Any) -> dict[str, Any]:
    """Return the encoding in Explore, and the pins as pairs of row and column."""
    return page.evaluate(
        f"""() => {{
          const {{ encoding, pins }} = {EXPLORER};
          const pairs = pins.list.map((pin) => Object.values(encoding.patchAt(pin)));
          return {{ ...encoding.value, pins: pairs }};
        }}"""
    )


def send(page: Any, selector: str, view: str, *paths: Path) -> None:
    """Upload files and wait for the encoding of the first, or for a sentence."""
    page.evaluate(f"delete document.querySelector('#{view} .lab-view').dataset.token")
    page.set_input_files(selector, paths)
    page.wait_for_selector(f"#{view} .lab-view[data-token], {MESSAGE}", state="attached")


def send_images(page: Any, *paths: Path) -> None:
    """Upload images in Explore."""
    send(page, FILE, "explore", *paths)


def download(page: Any, button: Any) -> tuple[str, bytes]:
    """Click a button; return name and content of the saved file."""
    with page.expect_download() as started:
        button.click()
    return started.value.suggested_filename, Path(started.value.path()).read_bytes()


def export(page: Any, view: str, ending: str, *, last: bool = False, **options: Any) -> tuple[str, bytes]:
    """Export a file of the view with that id, after setting options of its section by label or value.

    Args:
        page: Has the view.
        view: Id of the view.
        ending: Of the file's name.
        last: Of several sections with such a file, take the last.
        options: A bool sets the checkbox with that label, a text the selection.
    """
    page.evaluate(f"viewOf('{view}').export()")
    sections = page.locator(f"dialog section:has([data-ending='{ending}'])")
    section = sections.last if last else sections.first
    for label, value in options.items():
        if isinstance(value, bool):
            for box in section.get_by_label(label).all():  # none if the view has no such part
                box.set_checked(value)
        else:
            section.locator("select").select_option(value)
    saved = download(page, section.locator(f"[data-ending='{ending}']"))
    page.locator("dialog .lab-close").click()
    return saved


def image(content: bytes) -> np.ndarray:
    """Decode an image file: uint8 [height, width] or [height, width, channels]."""
    return np.array(Image.open(io.BytesIO(content)))


def message(page: Any) -> str:
    """Return the sentence of an error in the stage, or of a notice, and close it."""
    shown = page.locator(MESSAGE).last
    words = shown.inner_text()
    shown.locator("button").last.click()
    expect(page.locator(MESSAGE)).to_have_count(0)
    return words


def place(page: Any, stage: str, x: float, y: float) -> dict[str, float]:
    """Return a place of a stage, given as shares of width and height, in CSS pixels."""
    box = page.locator(stage).first.bounding_box()
    return {"x": x * box["width"], "y": y * box["height"]}


def center(page: Any, row: int, column: int) -> dict[str, float]:
    """Return where on Explore's stage the center of a patch lies, in CSS pixels."""
    shown = state(page)
    x, y = (column + 0.5) / shown["columns"], (row + 0.5) / shown["rows"]
    return place(page, "#explore .lab-stage", x, y)


def stroke(page: Any, stage: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag the mouse over a stage, between places given as shares."""
    page.locator(stage).scroll_into_view_if_needed()
    box = page.locator(stage).bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1], steps=5)
    page.mouse.up()


def pick(page: Any, elem_id: str, option: str) -> None:
    """Choose from a list."""
    page.locator(f"#{elem_id} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def slide(page: Any, elem_id: str, value: int) -> None:
    """Set a slider."""
    page.locator(f"#{elem_id} input[type=range]").fill(str(value))


def choose_quantity(page: Any, quantity: str, block: int = 11) -> None:
    """Choose a quantity of Explore and a block counted from 0, and wait until they are shown."""
    if page.evaluate(f"{EXPLORER}.quantity") != quantity:
        mode = next(name for name, variants in MODES.items() if quantity in dict(variants).values())
        page.locator(f"#mode label:has(input[value={mode}])").click()
        if not page.locator("#outline").is_visible():
            page.locator("#more > button").click()
        page.locator(f".of-{mode} label:has(input[value={quantity}])").click()
    choose_block(page, block)
    page.wait_for_selector(f"#explore [data-quantity={quantity}][data-block='{block}']")


def choose_block(page: Any, block: int) -> None:
    """Choose a block, counted from 0, in the film of Explore."""
    page.locator(f"#explore-aside .lab-film [data-key='{block}']").click()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds against WCAG A and AA."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return page.evaluate(VIOLATIONS)
