"""Search of an index in the page: results of the whole image and of the part between pins."""

from pathlib import Path
from typing import Any

from benchmarks.serving import serving
from dino_model.commands import main
from tests.browser.actions import MODEL
from tests.ports import free_port

PHOTOGRAPHS = Path(__file__).parents[2] / "dino_model" / "photographs"
CAPTION = "#search-results .caption-label"


def test_search_finds_the_image_itself_first_and_then_a_part_of_it(browser: Any, lab: Any, tmp_path: Path):
    index = tmp_path / "index.safetensors"
    (tmp_path / "images").mkdir()
    for file in PHOTOGRAPHS.glob("*.jpg"):
        (tmp_path / "images" / file.name).write_bytes(file.read_bytes())
    main(["index", str(tmp_path / "images"), "--output", str(index), "--size", "64"])
    options = f"--model {MODEL} --size 64 --port {free_port()} --device cpu --search {index}"
    with serving(*options.split(), env={"NO_PROXY": "127.0.0.1,localhost"}) as server:
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.goto(f"{server.address}/?photo=sheep&pins=1,1;2,2")
        page.wait_for_selector("#explore [data-token]", state="attached")
        page.locator("#search").get_by_text("Search my images").click()
        page.locator("#search-whole").click()
        page.wait_for_selector(CAPTION)
        assert "sheep.jpg" in page.locator(CAPTION).first.inner_text()
        lab.screenshot(page, "search")
        whole = page.locator(CAPTION).all_inner_texts()
        page.locator("#search-part").click()
        page.wait_for_function(
            f"(whole) => document.querySelector('{CAPTION}').innerText !== whole", arg=whole[0]
        )
        assert page.locator(CAPTION).count() == len(whole) == 12
        page.close()
