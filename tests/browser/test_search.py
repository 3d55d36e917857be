"""Search of an index in a browser: results of the whole image and of the part between pins."""

from playwright.sync_api import expect

from benchmarks.serving import serving
from dino_model import photographs
from dino_model.commands import main
from tests.browser.actions import MODEL
from tests.browser.conftest import OFFLINE
from tests.ports import free_port


def test_search_finds_the_image_itself_first_and_then_a_part_of_it(open_page, tmp_path):
    images, index = tmp_path / "images.txt", tmp_path / "index.safetensors"
    images.write_text("\n".join(map(str, photographs.FOLDER.glob("*.jpg"))))
    main(["index", str(images), "--output", str(index), "--size", "64"])
    options = f"--model {MODEL} --size 64 --port {free_port()} --device cpu --search {index}"
    with serving(*options.split(), env=OFFLINE) as served:
        page = open_page(query="?photo=sheep&pins=1,1;2,2", address=f"{served.address}/")
        page.locator("#search").get_by_text("Search my images").click()
        page.locator("#search-whole").click()
        captions = page.locator("#search-results .caption-label")
        expect(captions).to_have_count(12)
        whole = captions.first.inner_text()
        assert "sheep.jpg" in whole
        page.locator("#search-part").click()
        expect(captions.first).not_to_have_text(whole)
        expect(captions).to_have_count(12)
