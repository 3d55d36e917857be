"""HTTP security before Gradio: names, passwords, sizes, foreign addresses, headers."""

import asyncio
import base64
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import gradio as gr
import httpx
import pytest
from gradio_client import Client
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app import guard
from app.guard import Guard, check_frame_ancestors, check_root_path, host_names, read_users
from app.limits import Limits

USERS = {"ada": "engine", "grete": "with:colon"}
MEGABYTE = 1_000_000
FOREIGN = {"path": "https://example.com/a.png", "meta": {"_type": "gradio.FileData"}}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the number of bytes of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await PlainTextResponse(str(size))(scope, receive, send)


def guarded(**options: Any) -> TestClient:
    return TestClient(Guard(echo, **options), base_url="http://localhost")


def is_one_sentence(response: httpx.Response) -> bool:
    sentence = response.json()["error"]
    return sentence.endswith(".") and "Traceback" not in sentence and "/" not in sentence


# --- options


def test_options_that_are_invalid_are_refused():
    for host in ("0.0.0.0", "::", ""):
        assert host_names(host, ["lab.example"])[-1] == "lab.example"
        with pytest.raises(ValueError, match="--allowed-hosts"):
            host_names(host)
    check_frame_ancestors(["https://a.example:8000"])
    for origin in (
        "course.example",
        "https://",
        "javascript:alert(1)",
        "https://a b",
        "https://a;script-src *",
    ):
        with pytest.raises(ValueError, match="--frame-ancestors"):
            check_frame_ancestors([origin])
    for path in ("", "/", "/dino/", "/a/b.c"):
        check_root_path(path)
    for path in ("dino", "/../x", "/a//b", "http://a"):
        with pytest.raises(ValueError, match="--root-path"):
            check_root_path(path)


def test_users_are_read_from_file_or_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(guard.USERS_VARIABLE, raising=False)
    assert read_users(None) == {}
    monkeypatch.setenv(guard.USERS_VARIABLE, "ada:engine")
    assert read_users(None) == {"ada": "engine"}
    file = tmp_path / "users"
    file.write_text("ada:engine\n\ngrete:with:colon\n")
    assert read_users(file) == USERS
    for text in ("", "ada", "ada:", ":engine"):
        file.write_text(text)
        with pytest.raises(ValueError, match="USER:PASSWORD"):
            read_users(file)
    with pytest.raises(FileNotFoundError, match="--auth"):
        read_users(tmp_path / "missing")


# --- names and addresses


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [("", "evil.example", 400), ("", "localhost.evil.example", 400), ("", "169.254.169.254", 400),
     ("", "", 400), ("", "[::2]", 400), ("", "[::1", 400), ("", "127.0.0.1:7860", 200),
     ("", "LocalHost:80", 200), ("", "[::1]:7860", 200),
     ("gradio_api/file=https://example.com", "localhost", 403), ("file=HTTP://10.0.0.1/", "localhost", 403),
     ("gradio_api/file/https:x", "localhost", 403), ("monitoring/summary", "localhost", 404),
     ("gradio_api/proxy=http://a", "localhost", 404)],
)  # fmt: skip
def test_other_names_foreign_files_and_unused_routes_of_gradio_are_refused(path, host, status):
    response = guarded().get("/" + path, headers={"Host": host})
    assert response.status_code == status
    assert status == 200 or is_one_sentence(response)


def test_pages_of_other_sites_may_link_here_but_not_request():
    foreign = {"Sec-Fetch-Site": "cross-site"}
    client = guarded()
    assert client.get("/", headers=foreign | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.get("/", headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert client.post("/", headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status_code == 403


def test_guard_closes_web_sockets():
    with pytest.raises(WebSocketDisconnect) as closed, guarded().websocket_connect("/"):
        pass
    assert closed.value.code == 1008


# --- headers


def test_every_response_carries_the_policy_and_is_not_stored():
    for path, host in (("/", "localhost"), ("/", "evil.example")):
        headers = guarded().get(path, headers={"Host": host}).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "no-store" in headers["cache-control"]
    embedded = guarded(frame_ancestors=["https://course.example"]).get("/").headers
    assert "frame-ancestors https://course.example" in embedded["content-security-policy"]
    assert "x-frame-options" not in embedded
    for path in ("/assets/index-abc.js", "/lab/static/abc/page.js"):
        assert "immutable" in guarded().get(path).headers["cache-control"]


# --- passwords


@pytest.mark.parametrize("path", ["/", "/gradio_api/info", "/lab/arrays/a/b/0"])
def test_every_path_needs_the_password(path):
    client = guarded(users=USERS)
    response = client.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Basic")
    for user, password in USERS.items():
        assert client.get(path, auth=(user, password)).status_code == 200
    for wrong in (("ada", "wrong"), ("nobody", ""), ("", ""), ("ada", ""), ("grete", "with")):
        assert client.get(path, auth=wrong).status_code == 401
    for header in ("Basic", "Basic ===", "Bearer " + base64.b64encode(b"ada:engine").decode(), "Basic \xff"):
        raw = {"Authorization": header.encode("latin-1")}
        assert client.get(path, headers=raw).status_code == 401


# --- sizes


def test_body_larger_than_allowed_is_refused_with_and_without_length():
    client = guarded(limits=Limits(max_upload_mb=1))
    for content in (bytes(5 * MEGABYTE), (bytes(100_000) for _ in range(60))):
        response = client.post("/gradio_api/run/x", content=content)
        assert response.status_code == 413
        assert is_one_sentence(response)
    assert client.post("/gradio_api/upload", content=b"x" * 4 * MEGABYTE).text == str(4 * MEGABYTE)
    assert client.post("/gradio_api/upload", content=b"x" * 6 * MEGABYTE).status_code == 413
    assert client.post("/", content=b"{}", headers={"Content-Length": "many"}).status_code == 400


def test_uploads_of_one_address_are_bounded_within_an_hour(monkeypatch):
    client = guarded(limits=Limits(max_upload_mb=1, max_uploads_mb_per_hour=5))
    answers = [client.post("/gradio_api/upload", content=bytes(2 * MEGABYTE)).status_code for _ in range(4)]
    assert answers == [200, 200, 429, 429]
    now = guard.time.time()
    monkeypatch.setattr(guard.time, "time", lambda: now + 3600)
    assert client.post("/gradio_api/upload", content=bytes(2 * MEGABYTE)).status_code == 200


@pytest.mark.parametrize(
    ("path", "bounds"),
    [("/", {"max_requests_per_address": 3}), ("/gradio_api/run/objects", {"max_calls_per_address": 3})],
)
def test_requests_of_one_address_under_way_are_bounded(path: str, bounds: dict[str, int]):
    async def hold(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.2)
        await PlainTextResponse("late")(scope, receive, send)

    async def many() -> list[int]:
        transport = httpx.ASGITransport(Guard(hold, limits=Limits(**bounds)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            together = await asyncio.gather(*(client.get(path) for _ in range(5)))
            return [response.status_code for response in (*together, await client.get(path))]

    *together, later = asyncio.run(many())
    assert (sorted(together), later) == ([200, 200, 200, 429, 429], 200)


def test_body_that_stops_arriving_is_given_up(monkeypatch):
    monkeypatch.setattr(guard, "SILENCE_SECONDS", 0.05)
    sent: list[dict] = []

    async def never() -> dict:
        await asyncio.sleep(60)
        return {}

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(echo)(scope, never, send))
    assert sent[0]["status"] == 408


# --- foreign files


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"data": [FOREIGN]}),
        json.dumps({"data": [[{"deep": [FOREIGN]}]]}),
        '{"data": [{"p\\u0061th": "https://example.com"}]}',
        '{"data": [{"path": " HTTPS://example.com"}]}',
        '{"data": [{"path": "\\u0068ttp://example.com"}]}',
        json.dumps({"data": [FOREIGN]}).encode("utf-16"),
        '{"path": ' + "[" * 100_000,
        '{"path": broken',
    ],
)
def test_body_that_names_a_foreign_file_or_cannot_be_read_is_refused(body):
    response = guarded().post("/gradio_api/run/x", content=body)
    assert response.status_code in (400, 403)
    assert is_one_sentence(response)


def test_body_without_foreign_file_is_passed_on_whole():
    body = json.dumps({"data": [{"path": "local.png"}, "https://example.com in a text", "ü"]}).encode()
    assert guarded().post("/gradio_api/run/x", content=body).text == str(len(body))


# --- in front of Gradio


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Gradio app behind the guard and a password."""

    def three() -> int:
        return 3

    with gr.Blocks() as demo:
        gr.File()
        gr.api(three, api_name="three")
    middleware = [Middleware(Guard, users=USERS, limits=Limits(max_upload_mb=1))]
    _, address, _ = demo.queue().launch(
        prevent_thread_lock=True, quiet=True, max_file_size="1mb", app_kwargs={"middleware": middleware}
    )
    yield address
    demo.close()


def test_upload_cut_in_the_middle_leaves_the_server_alive(address):
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    token = base64.b64encode(b"ada:engine")
    for length in (b"900000", b"90000000"):
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(
                b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + token
            )
            line.sendall(b"\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: " + length)
            line.sendall(b"\r\n\r\n--b\r\n" + bytes(100_000))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    too_large = httpx.post(
        address + "gradio_api/upload", files={"files": bytes(3 * MEGABYTE)}, auth=("ada", "engine")
    )
    assert too_large.status_code == 413
    assert httpx.get(address).status_code == 401
    headers = {"Authorization": "Basic " + token.decode()}
    assert Client(address, headers=headers, verbose=False).predict(api_name="/three") == 3


def test_page_is_compressed():
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("a" * 5_000)(scope, receive, send)

    client = TestClient(Guard(large), base_url="http://localhost")
    assert client.get("/", headers={"Accept": "text/html"}).headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in client.get("/lab/arrays/a").headers
