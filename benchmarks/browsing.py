"""What a visitor of the page sees in Chromium while others keep the model busy."""

import shutil

from playwright.sync_api import TimeoutError as NothingShown
from playwright.sync_api import sync_playwright

OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
POSITION = r"() => document.body.innerText.match(/queue:?\s*\d+\s*\/\s*\d+/i)?.[0]"


def seen_queue_position(address: str, timeout: float) -> str | None:
    """The place in the queue that the page shows to somebody who opens it now; None where none is shown.

    Args:
        address: of a page whose model is busy.
        timeout: seconds to look.

    Raises:
        RuntimeError: Chromium is not installed.
    """
    if not (chromium := shutil.which("chromium")):
        raise RuntimeError("Chromium is not installed: make browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        try:
            page = browser.new_page()
            page.goto(address, timeout=1000 * timeout)
            return page.wait_for_function(POSITION, timeout=1000 * timeout).json_value()
        except NothingShown:
            return None
        finally:
            browser.close()
