import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.__main__ import main
from app.security import host_names
from app.server import create_app, listen

MODEL = "random:vit_tiny/16"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def client(engine, start) -> Iterator[TestClient]:
    """The whole application, without a port."""
    with TestClient(
        create_app(engine, start, host_names("127.0.0.1")), base_url="http://localhost"
    ) as client:
        yield client


@pytest.fixture(scope="module")
def token(engine, photo) -> str:
    return engine.encode(photo, MODEL, 64)


def test_page_and_its_files_are_served(client):
    for path in ("/", "/config", "/lab/static/explore.js", "/lab/static/page.css"):
        assert client.get(path).status_code == 200, path


def test_foreign_host_names_are_refused(client, token):
    for path in ("/", f"/lab/encodings/{token}/picture.jpg"):
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 400
        assert client.get(path, headers={"Host": "127.0.0.1:7860"}).status_code == 200


def test_every_answer_tells_the_browser_what_it_may_load(client, token):
    for path in ("/", "/lab/static/explore.js", "/nothing", f"/lab/encodings/{token}/picture.jpg"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path",
    [
        "/lab/static/../server.py",
        "/lab/static/%2e%2e/server.py",
        "/lab/static/..%2f..%2fpyproject.toml",
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=app/server.py",
        "/gradio_api/file=../../../../etc/passwd",
        "/monitoring/summary",
        "/docs",
    ],
)
def test_nothing_but_the_page_can_be_read(client, path):
    answer = client.get(path)
    assert answer.status_code in (401, 403, 404), path
    assert "import" not in answer.text
    assert "root:" not in answer.text


def test_picture_and_blocks_are_behind_the_token(client, engine, token):
    picture = client.get(f"/lab/encodings/{token}/picture.jpg")
    assert picture.headers["content-type"] == "image/jpeg"
    assert "no-store" in picture.headers["cache-control"]
    content = client.get(f"/lab/encodings/{token}/blocks/11").content
    queries, keys = engine.queries_keys(engine.encoding(token), 11)
    np.testing.assert_array_equal(
        np.frombuffer(content, "<f2"), np.concatenate([queries.ravel(), keys.ravel()])
    )
    for path in ("picture.jpg", "blocks/11", "mask.png?block=11"):
        answer = client.get(f"/lab/encodings/guessed/{path}")
        assert answer.status_code == 404
        assert answer.json()["detail"].endswith("open it again.")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("mask.png?block=99", 422),
        ("mask.png?block=-1", 422),
        ("mask.png?block=x", 422),
        ("mask.png?block=11&mass=nan", 422),
        ("mask.png?block=11&query=99,99", 422),
        ("overlay.png?block=11&colormap=../../x", 422),
        ("overlay.png?block=11&layer=secret", 422),
        ("secret.png?block=11", 404),
        ("blocks/nan", 422),
    ],
)
def test_impossible_requests_are_refused_without_a_trace(client, token, query, status):
    answer = client.get(f"/lab/encodings/{token}/{query}")
    assert answer.status_code == status
    assert "Traceback" not in answer.text
    assert str(ROOT) not in answer.text


def test_configuration_in_the_browser_names_no_path(client):
    assert str(ROOT) not in client.get("/config").text
    assert str(Path.home()) + "/" not in client.get("/config").text


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
    assert host_names("0.0.0.0", ["lab.example"]) == ["127.0.0.1", "localhost", "lab.example"]
    assert host_names("192.168.1.5") == ["127.0.0.1", "localhost", "192.168.1.5"]


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
    ],
)
def test_wrong_options_end_in_one_sentence(arguments, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert len(str(end.value)) < 800
