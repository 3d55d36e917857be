"""Scribbles: heads trained on strokes, their files, and requests that any client may send."""

import io
import re
import zipfile

import numpy as np
import pytest
from PIL import Image

from app import STATIC
from app.handlers import scribbles
from app.limits.errors import LabError
from app.store.clips import runs_of
from app.store.images import png
from dino_model.inference.classifier import read_classifier
from segmentation.commands.head import Apply
from segmentation.heads import PatchTask

SIZE = (60, 90)


@pytest.fixture(scope="module")
def halves(backend) -> str:
    """The token of an image that is dark on the left and light on the right."""
    image = np.full((*SIZE, 3), 40, np.uint8)
    image[:, 48:] = 220
    image += np.random.default_rng(0).integers(0, 9, image.shape, dtype=np.uint8)
    return backend.encode(backend.images.keep(png(image)), backend.models.first, 64).key.token


@pytest.fixture(scope="module")
def marked(halves) -> dict[str, object]:
    """A stroke of color 1 on the left and one of color 2 on the right."""
    strokes = np.zeros(SIZE, np.uint8)
    strokes[20:40, 5:40], strokes[20:40, 52:85] = 1, 2
    return {"token": halves, "rows": 60, "columns": 90, "runs": list(runs_of(strokes)), "name": "halves.jpg"}


def test_one_image_gives_a_palette_mask_and_several_a_zip(backend, marked, halves):
    name, content = scribbles.export_file(backend, {"images": [marked]})
    mask = Image.open(io.BytesIO(content))
    assert (name, mask.mode, mask.size) == ("halves.png", "P", SIZE[::-1])
    other = {"token": halves, "name": "../../halves.png"}
    plain = backend.images.keep(png(np.full((40, 40, 3), 90, np.uint8)))
    own = [f"{plain}/plain.jpg", "kitten", "forgotten/other.jpg"]
    name, content = scribbles.export_file(backend, {"images": [marked, other], "own": own})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert (name, archive.namelist()) == ("masks.zip", ["halves.png", "2-halves.png", "plain.png"])
        second = np.array(Image.open(io.BytesIO(archive.read("2-halves.png"))))
    np.testing.assert_array_equal(second, np.array(mask))


def test_command_applies_the_head_file_with_the_same_masks(backend, marked, halves, tmp_path):
    _, content = scribbles.export_file(backend, {"images": [marked], "file": "head.safetensors"})
    head, image, output = tmp_path / "head.safetensors", tmp_path / "halves.png", tmp_path / "out"
    head.write_bytes(content)
    assert read_classifier(head, PatchTask).task.labels == (0, 1)
    image.write_bytes(png(backend.images.read(backend.encoding(halves).key.image)))
    Apply(inputs=(image,), head=head, output=output, device="cpu", precision="fp32").run()
    _, mask = scribbles.export_file(backend, {"images": [marked]})
    applied = np.array(Image.open(output / "masks" / "halves.png"))
    np.testing.assert_array_equal(applied, np.array(Image.open(io.BytesIO(mask))))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"runs": [1, 5400]}, "second"), ({"runs": [0, 5400]}, "Nothing is marked"),
     ({"runs": [1, 10**30]}, "does not fit"), ({"token": "../../etc/passwd"}, "token"),
     ({"runs": [8, 5400]}, "does not fit")],
)  # fmt: skip
def test_invalid_strokes_are_refused(backend, marked, change, sentence):
    with pytest.raises(LabError, match=sentence):
        scribbles.segment_image(backend, {"images": [marked | change]})


def test_requests_are_accepted_up_to_the_ends_of_their_ranges(marked):
    """1,024 cells of a side, as in app/static/views/mask_view.js, and 7 colors: background and 6 classes."""
    (side,) = re.findall(
        r"LONG_SIDE = (\d+); // cells of a mask", (STATIC / "views/mask_view.js").read_text()
    )
    ends = {"rows": (1, int(side)), "columns": (1, int(side))}
    for field, (lowest, highest) in ends.items():
        for value in (lowest, highest):
            assert getattr(scribbles.Scribble.of(marked | {field: value}), field) == value
        for value in (lowest - 1, highest + 1):
            with pytest.raises(LabError, match=f"Invalid {field}"):
                scribbles.Scribble.of(marked | {field: value})
    assert len(scribbles.Scribble.of(marked | {"runs": [1] * 200_000}).runs) == 200_000
    with pytest.raises(LabError, match="Invalid runs"):
        scribbles.Scribble.of(marked | {"runs": [1] * 200_001})
    assert scribbles.Scribble(token="", rows=2, columns=2, runs=[0, 1, 1, 1, 7, 2]).labels().tolist() == [
        [255, 0],
        [6, 6],
    ]
    for field, most in (("images", 8), ("own", 200)):
        values = [marked if field == "images" else "a"] * most
        request = {"images": [marked]} | {field: values}
        assert len(getattr(scribbles.ScribbleRequest.of(request), field)) == most
        with pytest.raises(LabError, match=f"Invalid {field}"):
            scribbles.ScribbleRequest.of(request | {field: [*values, values[0]]})


def test_invalid_requests_and_images_of_several_resolutions_are_refused(backend, marked, halves):
    for wanted in (None, 3, {"images": []}, {"images": [{}] * 9}):
        with pytest.raises(LabError, match="Invalid"):
            scribbles.segment_image(backend, wanted)
        with pytest.raises(LabError, match=r"Invalid|two classes"):
            scribbles.export_file(backend, wanted)
    other = backend.encode(backend.encoding(halves).key.image, backend.models.first, 96).key.token
    with pytest.raises(LabError, match="several"):
        scribbles.segment_image(backend, {"images": [marked, {"token": other}]})


@pytest.mark.parametrize(("shape", "cells"), [((60, 90), (60, 90)), ((1000, 720), (640, 461))])
def test_shown_labels_have_a_long_side_of_at_most_640_cells(backend, shape, cells):
    image = np.random.default_rng(0).integers(0, 90, (*shape, 3), np.uint8)
    image[:, shape[1] // 2 :] += 150
    token = backend.encode(backend.images.keep(png(image)), backend.models.first, 64).key.token
    strokes = np.zeros((6, 9), np.uint8)
    strokes[2:4, 1:4], strokes[2:4, 5:8] = 1, 2
    marked = {"token": token, "rows": 6, "columns": 9, "runs": list(runs_of(strokes))}
    found = scribbles.segment_image(backend, {"images": [marked], "key": "k"})
    assert (found["token"], found["key"], found["rows"], found["columns"]) == (token, "k", *cells)
    values, counts = np.reshape(found["runs"], (-1, 2)).T
    labels = np.repeat(values, counts).reshape(cells)
    head, encoding = scribbles.fit(backend, scribbles.ScribbleRequest.of({"images": [marked]}).images)
    np.testing.assert_array_equal(labels, head.segment(encoding.patch_features(), cells))
