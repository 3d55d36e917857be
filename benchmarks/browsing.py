"""What a visitor of the page sees in Chromium while others keep the model busy."""

import re
import shutil

from playwright.sync_api import sync_playwright

OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
POSITION = re.compile(r"queue:?\s*\d+\s*/\s*\d+", re.IGNORECASE)


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
            page.wait_for_function(
                "pattern => new RegExp(pattern, 'i').test(document.body.innerText)",
                arg=POSITION.pattern,
                timeout=1000 * timeout,
            )
            found = POSITION.search(page.inner_text("body"))
            return found.group() if found else None
        except TimeoutError:
            return None
        finally:
            browser.close()
