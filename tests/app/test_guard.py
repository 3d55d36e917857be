"""HTTP security before Gradio: names, passwords, sizes, foreign addresses, headers."""

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app.limits import guard
from app.limits.bounds import MEGABYTE, Limits
from app.limits.guard import Guard, read_users

USERS = {"ada": "engine", "grete": "with:colon"}
FOREIGN = {"path": "https://example.com/a.png", "meta": {"_type": "gradio.FileData"}}
RUN, UPLOAD = "/gradio_api/run/x", "/gradio_api/upload"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the number of bytes of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await PlainTextResponse(str(size))(scope, receive, send)


def guarded(**options: Any) -> TestClient:
    return TestClient(Guard(echo, **options), base_url="http://localhost")


def status(response: httpx.Response) -> int:
    """The status of a response; a refusal must be one sentence."""
    if response.status_code >= 400:
        sentence = response.json()["error"]
        assert sentence.endswith(".")
        assert "/" not in sentence
    return response.status_code


def test_users_are_read_from_file_or_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(guard.USERS_VARIABLE, "ada:engine")
    assert read_users(None) == {"ada": "engine"}
    file = tmp_path / "users"
    file.write_text("ada:engine\n\ngrete:with:colon\n")
    assert read_users(file) == USERS
    for text in ("", "ada", "ada:", ":engine"):
        file.write_text(text)
        with pytest.raises(ValueError, match="USER:PASSWORD"):
            read_users(file)


@pytest.mark.parametrize(
    ("path", "host", "expected"),
    [*(("", host, 400) for host in ("localhost.evil.example", "localhost.", "", "1.evil.example", "[::1")),
     *(("", host, 200) for host in ("172.17.0.2:7860", "[fd00::2]", "127.0.0.1:7860", "LocalHost:80")),
     ("gradio_api/file=https://example.com", "localhost", 403), ("file=HTTP://10.0.0.1/", "localhost", 403),
     ("gradio_api/file/https:x", "localhost", 403), ("monitoring/summary", "localhost", 404),
     ("gradio_api/proxy=http://a", "localhost", 404)],
)  # fmt: skip
def test_other_names_foreign_files_and_unused_routes_of_gradio_are_refused(path, host, expected):
    assert status(guarded().get("/" + path, headers={"Host": host})) == expected


@pytest.mark.parametrize(
    ("method", "mode", "expected"),
    [("GET", "no-cors", 403), ("GET", "navigate", 200), ("POST", "navigate", 403)],
)
def test_pages_of_other_sites_may_link_here_but_not_request(method, mode, expected):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode}
    assert status(guarded().request(method, "/", headers=headers)) == expected


def test_guard_closes_web_sockets():
    with pytest.raises(WebSocketDisconnect) as closed, guarded().websocket_connect("/"):
        pass
    assert closed.value.code == 1008  # policy violation


def test_every_response_carries_the_policy_and_is_not_stored():
    for host in ("localhost", "evil.example"):
        headers = guarded().get("/", headers={"Host": host}).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy
        found = [headers[name] for name in ("x-frame-options", "x-content-type-options", "referrer-policy")]
        assert found == ["DENY", "nosniff", "no-referrer"]
        assert "no-store" in headers["cache-control"]
    embedded = guarded(frame_ancestors=["https://course.example"]).get("/").headers
    assert "frame-ancestors https://course.example" in embedded["content-security-policy"]
    assert "x-frame-options" not in embedded
    for path in ("/assets/index-abc.js", "/lab/static/abc/page.js"):
        assert "immutable" in guarded().get(path).headers["cache-control"]


def test_only_a_user_with_the_right_password_is_answered():
    client = guarded(users=USERS)
    assert client.get("/").headers["www-authenticate"].startswith("Basic")
    for user, password in USERS.items():
        assert status(client.get("/", auth=(user, password))) == 200
    for wrong in (("ada", "wrong"), ("nobody", ""), ("", ""), ("ada", ""), ("grete", "with")):
        assert status(client.get("/", auth=wrong)) == 401
    for header in ("", "Basic ===", "Bearer " + base64.b64encode(b"ada:engine").decode(), "Basic \xff"):
        assert status(client.get("/", headers={"Authorization": header.encode("latin-1")})) == 401


def test_body_larger_than_allowed_is_refused_and_its_memory_is_released(monkeypatch):
    """Of 1 MB: four files an upload; base64 text, a third more, of one; and 1 MB for the rest."""
    client = guarded(limits=Limits(max_upload_mb=1))
    for path, most in ((UPLOAD, 5_000_000), (RUN, 3_000_000)):
        for size in (most, most + 1):
            for content in (b" " * size, iter([b" " * size])):  # with and without a length
                assert status(client.post(path, content=content)) == (200 if size == most else 413)
    assert status(client.post("/", content=b"{}", headers={"Content-Length": "many"})) == 400
    monkeypatch.setattr(guard, "BODIES_HELD", 1)  # of 4 MB
    for _ in range(4):
        assert client.post(UPLOAD, content=b"x" * 4 * MEGABYTE).text == str(4 * MEGABYTE)


def test_bodies_under_way_have_at_most_the_size_of_16_uploads():
    """Bodies of 4.9 MB that never end, while 64 MB are allowed."""
    guard_, sent = Guard(echo, limits=Limits(max_upload_mb=1)), list[int]()

    async def upload(size: int) -> None:
        bodies = iter([{"type": "http.request", "body": b"x" * size, "more_body": True}])
        scope = {"type": "http", "method": "POST", "path": UPLOAD, "headers": [(b"host", b"localhost")]}

        async def receive() -> dict[str, Any]:
            return next(bodies, None) or await asyncio.sleep(60)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("status", 0))

        await guard_(scope, receive, send)

    async def many() -> None:
        for size in (*[4_900_000] * 13, 300_000, 1):
            begun = asyncio.ensure_future(upload(size))
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            tasks.append(begun)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    tasks = list[asyncio.Future[None]]()
    asyncio.run(many())
    assert [task.cancelled() for task in tasks] == [True] * 14 + [False]  # 64,000,000 bytes, and one more
    assert sent[0] == 503
    assert guard_._held_bytes == 0


@pytest.mark.parametrize(("path", "most"), [("/", 400), (RUN, 8)])
def test_requests_of_one_address_under_way_are_bounded(path: str, most: int):
    async def many() -> list[int]:
        released = asyncio.Event()

        async def hold(scope: Scope, receive: Receive, send: Send) -> None:
            await released.wait()
            await PlainTextResponse("late")(scope, receive, send)

        transport = httpx.ASGITransport(Guard(hold))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            together = [asyncio.ensure_future(client.get(path)) for _ in range(most + 2)]
            await asyncio.wait(together, return_when=asyncio.FIRST_COMPLETED)
            released.set()
            found = await asyncio.gather(*together)
            return [response.status_code for response in (*found, await client.get(path))]

    *together, later = asyncio.run(many())
    assert (sorted(together), later) == ([200] * most + [429] * 2, 200)


def test_body_that_stops_arriving_is_refused(monkeypatch):
    monkeypatch.setattr(guard, "SILENCE_SECONDS", 0.05)
    sent: list[dict] = []

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(echo)(scope, lambda: asyncio.sleep(60), send))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize(
    "body",
    [json.dumps({"data": [[{"deep": [FOREIGN]}]]}), '{"data": [{"p\\u0061th": "https://example.com"}]}',
     '{"data": [{"path": " HTTPS://example.com"}]}', '{"data": [{"path": "\\u0068ttp://example.com"}]}',
     json.dumps({"data": [FOREIGN]}).encode("utf-16"), '{"path": ' + "[" * 100_000, '{"path": broken'],
)  # fmt: skip
def test_body_that_names_a_foreign_file_or_cannot_be_read_is_refused(body):
    assert status(guarded().post(RUN, content=body)) in (400, 403)


def test_body_without_foreign_file_is_passed_on_whole():
    body = json.dumps({"data": [{"path": "local.png"}, "https://example.com in a text", "ü"]}).encode()
    assert guarded().post(RUN, content=body).text == str(len(body))


def test_page_is_compressed_and_scripts_are_not():
    for accept, encoding in (("text/html", "gzip"), ("*/*", None)):
        client = TestClient(Guard(PlainTextResponse("a" * 5_000)), base_url="http://localhost")
        assert client.get("/", headers={"Accept": accept}).headers.get("Content-Encoding") == encoding
