"""Scribbles in a browser: strokes of two classes segment the image; the files hold what is shown."""

from typing import Any

import numpy as np
from PIL import Image

from segmentation.heads import read_head

VIEW = "lab('scribbles')"
STAGE = "#scribbles .lab-stage"


def test_strokes_of_two_classes_segment_the_image_and_download(open_shared: Any, lab: Any, tmp_path: Any):
    page = open_shared(query="?tab=segment", ready="#segment .lab-view[data-token]")
    page.locator("#scribbling").get_by_text("Scribbles").click()
    page.wait_for_selector("#scribbles .lab-view[data-token]")
    lab.stroke(page, STAGE, (0.4, 0.5), (0.6, 0.5))
    assert page.evaluate(f"{VIEW}.request") is None  # one class is not enough
    page.locator("#scribbles").get_by_text("Background", exact=True).click()
    lab.stroke(page, STAGE, (0.05, 0.1), (0.95, 0.1))
    page.wait_for_function(f"() => {VIEW}.labels")
    shown = lab.labels(page, f"{VIEW}.labels")
    height, width = shown.shape
    assert (shown[height // 2, int(0.45 * width) : int(0.55 * width)] == 1).mean() > 0.9
    assert (shown[height // 10, width // 10 : -width // 10] == 0).mean() > 0.9
    lab.screenshot(page, "scribbles")
    files = {}
    for name in ("masks", "head"):
        file, content = lab.download(page, page.locator(f"#scribbled-{name}"))
        files[name] = tmp_path / file
        files[name].write_bytes(content)
    mask = np.array(Image.open(files["masks"]))
    whole = Image.fromarray(shown.astype(np.uint8)).resize(mask.shape[::-1], Image.Resampling.NEAREST)
    assert (np.array(whole) == mask).mean() > 0.97
    assert read_head(files["head"]).classifier.labels == (0, 1)
