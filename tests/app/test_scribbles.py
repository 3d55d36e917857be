"""Scribbles: heads trained on strokes, their files, and requests that anybody may send."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from app import scribbles
from app.clips import from_runs, runs_of
from app.errors import LabError
from segmentation.commands.head import Apply
from segmentation.heads import read_head

SIZE = (60, 90)


@pytest.fixture(scope="module")
def halves(lab, as_file) -> str:
    """The token of an image that is dark on the left and light on the right."""
    picture = np.full((*SIZE, 3), 40, np.uint8)
    picture[:, 48:] = 220
    picture += np.random.default_rng(0).integers(0, 9, picture.shape, dtype=np.uint8)
    return lab.encode(lab.images.keep(as_file(picture)), lab.start.model, 64).key.token


@pytest.fixture(scope="module")
def marked(halves) -> dict[str, object]:
    """A stroke of color 1 on the left and one of color 2 on the right."""
    strokes = np.zeros(SIZE, np.uint8)
    strokes[20:40, 5:40], strokes[20:40, 52:85] = 1, 2
    return {"token": halves, "rows": 60, "columns": 90, "runs": list(runs_of(strokes)), "name": "halves.jpg"}


def test_strokes_segment_the_image(lab, marked):
    found = scribbles.segmented(lab, {"images": [marked], "key": "7"})
    labels = from_runs(found["runs"], (found["rows"], found["columns"]))
    assert found["key"] == "7"
    assert labels.shape == SIZE
    assert (labels[20:40, 5:35] == 0).mean() > 0.9
    assert (labels[20:40, 60:85] == 1).mean() > 0.9


def test_one_image_gives_a_palette_mask_and_several_a_zip(shared, marked, halves):
    name, content = scribbles.masks_file(shared, {"images": [marked]})
    mask = Image.open(io.BytesIO(content))
    assert (name, mask.mode, mask.size) == ("halves.png", "P", SIZE[::-1])
    other = {"token": halves, "name": "../../halves.png"}
    name, content = scribbles.masks_file(shared, {"images": [marked, other]})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert (name, archive.namelist()) == ("masks.zip", ["halves.png", "2-halves.png"])
        second = np.array(Image.open(io.BytesIO(archive.read("2-halves.png"))))
    np.testing.assert_array_equal(second, np.array(mask))


def test_masks_of_the_users_other_images_are_in_the_zip(shared, marked, as_file):
    photo = shared.lab.images.keep(as_file(np.full((40, 40, 3), 90, np.uint8)))
    album = f"{photo}/plain.jpg\nkitten\nforgotten/other.jpg"
    _, content = scribbles.masks_file(shared, {"images": [marked]}, album)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.namelist() == ["halves.png", "plain.png"]
    for wrong in (None, 3, {"images": []}):
        with pytest.raises(LabError):
            scribbles.masks_file(shared, wrong, [album])


def test_command_applies_the_head_file_with_the_same_masks(lab, shared, marked, halves, tmp_path):
    _, content = scribbles.head_file(lab, {"images": [marked]})
    head, picture = tmp_path / "head.safetensors", tmp_path / "halves.png"
    head.write_bytes(content)
    assert read_head(head).classifier.labels == (0, 1)
    Image.fromarray(lab.images.read(lab.encoding(halves).key.photo)).save(picture)
    output = tmp_path / "out"
    Apply(inputs=(picture,), head=head, output=output, device="cpu", precision="fp32").run()
    _, mask = scribbles.masks_file(shared, {"images": [marked]})
    applied = np.array(Image.open(output / "masks" / "halves.png"))
    np.testing.assert_array_equal(applied, np.array(Image.open(io.BytesIO(mask))))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"runs": [1, 5400]}, "second"), ({"runs": [0, 5400]}, "Nothing is marked"),
     ({"runs": [1, 10**30]}, "does not fit"), ({"runs": [1] * 200_001}, "runs"), ({"rows": 10**9}, "rows"),
     ({"token": "../../etc/passwd"}, "token")],
)  # fmt: skip
def test_wrong_strokes_are_refused_in_a_sentence(lab, marked, change, sentence):
    with pytest.raises(LabError, match=sentence):
        scribbles.segmented(lab, {"images": [marked | change]})


@pytest.mark.parametrize("wanted", [None, {"images": []}, {"images": [{}] * 9}])
def test_wrong_request_is_refused_in_a_sentence(lab, wanted):
    for handler in (scribbles.segmented, scribbles.head_file):
        with pytest.raises(LabError, match=r"Invalid|two classes"):
            handler(lab, wanted)


def test_images_of_several_resolutions_are_refused(lab, marked, halves):
    photo = lab.encoding(halves).key.photo
    other = lab.encode(photo, lab.start.model, 96).key.token
    with pytest.raises(LabError, match="several"):
        scribbles.segmented(lab, {"images": [marked, {"token": other}]})
