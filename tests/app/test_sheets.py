"""Files of several photographs: each shows what the file of one photograph shows."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from segmentation import drawing
from tests.app.conftest import MODEL


@pytest.fixture
def token(client):
    return client.post("/api/encode", json={"photo": "kitten", "size": 64, "model": MODEL}).json()["token"]


VIEW = {"block": 11, "quantity": "attention", "show": "mean", "layer": "heat"}


def test_zip_has_the_files_of_every_photograph_under_its_own_query(client, token):
    pictures = [{"token": token, "query": query, "name": "my photo.jpg"} for query in ("cls", "1,2")]
    answer = client.post("/api/sheets/views.zip", params=VIEW, json={"pictures": pictures})
    assert answer.headers["content-disposition"] == 'attachment; filename="attention-views.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert len(archive.namelist()) == 6
        for number, query in enumerate(("cls", "1,2"), 1):
            for file in ("overlay.png", "mask.png"):
                alone = client.get(f"/api/encodings/{token}/files/{file}", params=VIEW | {"query": query})
                found = archive.read(f"{number:02d}-kitten-{file}")  # an example goes by its own name
                np.testing.assert_array_equal(pixels(found), pixels(alone.content))


def pixels(content: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content)))


def test_sheet_grows_with_its_photographs_four_in_a_row(client, token):
    sizes = []
    for count in (1, 4, 5):
        asked = {"pictures": [{"token": token}] * count}
        sizes.append(pixels(client.post("/api/sheets/sheet.png", params=VIEW, json=asked).content).shape)
    (one, wide, *_), (same, wider, *_), (two, as_wide, *_) = sizes
    assert one == same < two
    assert wide < wider == as_wide


def test_name_however_long_is_one_short_line_on_the_sheet(client, encode, photo, monkeypatch):
    """Letters that do not fit are taken off one by one: a million of them would take the server for hours."""
    titles, token = [], encode(photo).key.token
    monkeypatch.setattr(drawing, "caption", lambda picture, title, **_: titles.append(title) or picture)
    for name in ("a" * 10_000, "one\nline\0"):
        asked = {"pictures": [{"token": token, "name": name}]}
        assert client.post("/api/sheets/sheet.png", params=VIEW, json=asked).status_code == 200
    assert titles == ["a" * 100, "one line"]


def test_colours_of_components_have_no_mask(client, token):
    asked = {"pictures": [{"token": token}]}
    answer = client.post("/api/sheets/views.zip", params={"block": 3, "quantity": "key-pca"}, json=asked)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["01-kitten-overlay.png", "01-kitten-maps.npz"]


@pytest.mark.parametrize(
    ("file", "pictures", "status"),
    [("sheet.png", 0, 422), ("sheet.png", 49, 422), ("sheet.exe", 1, 404)],
)
def test_impossible_sheets_get_one_sentence(client, token, file, pictures, status):
    asked = {"pictures": [{"token": token}] * pictures}
    answer = client.post(f"/api/sheets/{file}", params=VIEW, json=asked)
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")


def test_sheet_of_what_is_not_here_says_so(client):
    asked = {"pictures": [{"token": "nobody.64.bW9kZWw"}]}
    answer = client.post("/api/sheets/sheet.png", params=VIEW, json=asked)
    assert (answer.status_code, "error" in answer.json()) == (404, True)
