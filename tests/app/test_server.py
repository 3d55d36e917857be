import asyncio
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from app.__main__ import main
from app.routes.page import STATIC, version
from app.security import host_names
from app.server import address, listen

MODEL = "random:vit_tiny/16"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def token(encode, photo) -> str:
    return encode(photo).key.token


def test_page_and_its_files_are_served(client):
    page = client.get("/").text
    files = re.findall(r'(?:src|href)="(static/[^"]+)"', page)
    assert len(files) >= 2
    for path in (*files, "api/facts", "api/openapi.json"):
        assert client.get(f"/{path}").status_code == 200, path


def test_document_is_small_and_tells_the_facts(client):
    page = client.get("/")
    assert len(page.content) < 120_000
    assert page.headers["cache-control"] == "no-cache"
    told = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page.text, re.DOTALL)
    assert json.loads(told.group(1)) == client.get("/api/facts").json()


def test_scripts_are_kept_for_ever_under_an_address_of_their_version(client):
    answer = client.get(f"/static/{version()}/page.css")
    assert "immutable" in answer.headers["cache-control"]
    assert client.get("/static/0123456789ab/page.css").status_code == 404
    assert client.get("/static/page.css").status_code == 404


def test_another_content_is_another_version(tmp_path, monkeypatch):
    (tmp_path / "a.js").write_text("1")
    monkeypatch.setattr("app.routes.page.STATIC", tmp_path)
    versions = set()
    for content in ("1", "2", "1"):
        (tmp_path / "a.js").write_text(content)
        version.cache_clear()
        versions.add(version())
    assert len(versions) == 2
    monkeypatch.undo()
    version.cache_clear()
    assert STATIC.is_dir()


def test_picture_and_blocks_are_behind_their_names(client, encode, photo, token):
    picture = client.get(f"/api/photos/{photo}/picture.jpg")
    assert picture.headers["content-type"] == "image/jpeg"
    assert "no-store" in picture.headers["cache-control"]
    content = client.get(f"/api/encodings/{token}/blocks/11").content
    queries, keys = encode(photo).queries_keys(11)
    np.testing.assert_array_equal(
        np.frombuffer(content, "<f2"), np.concatenate([queries.ravel(), keys.ravel()])
    )
    for path in (
        "encodings/guessed/blocks/11",
        "encodings/guessed/files/mask.png?block=11",
        "photos/x/picture.jpg",
    ):
        answer = client.get(f"/api/{path}")
        assert answer.status_code == 404
        assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("files/mask.png?block=99", 422),
        ("files/mask.png?block=-1", 422),
        ("files/mask.png?block=x", 422),
        ("files/mask.png", 422),
        ("files/mask.png?block=11&mass=nan", 422),
        ("files/mask.png?block=11&query=99,99", 422),
        ("files/overlay.png?block=11&colormap=../../x", 422),
        ("files/overlay.png?block=11&layer=secret", 422),
        ("files/secret.png?block=11", 404),
        ("blocks/nan", 422),
        ("colors/3?quantity=attention", 422),
    ],
)
def test_impossible_requests_are_refused_without_a_trace(client, token, query, status):
    answer = client.get(f"/api/encodings/{token}/{query}")
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")
    assert "Traceback" not in answer.text
    assert str(ROOT) not in answer.text


def test_pictures_are_drawn_at_a_screens_size_unless_asked(client, as_file):
    large = client.post("/api/photos", content=as_file(np.zeros((100, 2000, 3), np.uint8), "PNG")).json()
    asked = {"photo": large["photo"], "model": MODEL, "size": 32}
    token = client.post("/api/encode", json=asked).json()["token"]
    widths = []
    for full in ("", "&full=true"):
        for file in ("overlay.png", "mask.png"):
            answer = client.get(f"/api/encodings/{token}/files/{file}?block=11&show=mean{full}").content
            widths.append(int.from_bytes(answer[16:20], "big"))
    assert widths == [1600, 1600, 2000, 2000]
    mask = client.get(f"/api/encodings/{token}/files/mask.json?block=11").json()
    assert mask["size"] == [100, 2000]


def test_what_is_served_names_no_path(client):
    for path in ("/", "/api/facts", "/api/openapi.json"):
        text = client.get(path).text
        assert str(ROOT) not in text
        assert str(Path.home()) + "/" not in text


def test_fault_of_ours_is_admitted_in_a_sentence(client, lab, monkeypatch):
    monkeypatch.setattr(type(lab.models), "offered", lambda self: 1 // 0)
    answer = client.get("/api/facts")
    assert answer.status_code == 500
    assert answer.json() == {"error": "Something went wrong in the server: try again, or tell who runs it."}


def test_next_free_port_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with listen("127.0.0.1", port) as listening:
            assert port < listening.getsockname()[1] < port + 100


def test_answers_do_not_wait_for_acknowledgements():
    async def no_delay(listening: socket.socket) -> int:
        asked = asyncio.get_running_loop().create_future()

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            asked.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(answer, sock=listening):
            await asyncio.open_connection(*listening.getsockname())
            return await asked

    # In a thread, because Playwright keeps an event loop in the one where its tests have run.
    with listen("127.0.0.1", 0) as listening, ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, no_delay(listening)).result() != 0


def test_listening_everywhere_wants_the_names_of_the_host():
    with pytest.raises(ValueError, match="--allowed-hosts"):
        host_names("0.0.0.0")
    assert host_names("0.0.0.0", ["lab.example"]) == ["127.0.0.1", "localhost", "::1", "lab.example"]
    assert host_names("192.168.1.5")[-1] == "192.168.1.5"


def test_address_of_the_sixth_version_is_written_in_brackets():
    assert address("::1", 80) == "http://[::1]:80"
    assert address("::", 80) == "http://localhost:80"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "no_such_model_at_all"], "no_such_model_at_all"),
        (["--models-dir", "no/such/folder"], "no/such/folder"),
        (["--host", "0.0.0.0"], "--allowed-hosts"),
        (["--max-patches", "0"], "--max-patches"),
        (["--port", "70000"], "--port"),
        (["--size", "0"], "size is 0"),
        (["--size", "9999"], "choose a lower resolution"),
        (["--frame-ancestors", "course.example"], "--frame-ancestors"),
        (["--frame-ancestors", "https://a.example; script-src *"], "--frame-ancestors"),
        (["--model", "dino_vits8", "--no-downloads"], "dino_vits8"),
    ],
)
def test_wrong_options_end_in_one_sentence(arguments, message, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert len(str(end.value)) < 800
