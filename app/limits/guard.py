"""HTTP security: allowed hosts, passwords, size limits, refused addresses and response headers."""

import asyncio
import base64
import hmac
import ipaddress
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.limits.bounds import MEGABYTE, Limits

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "  # Gradio compiles its templates
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors "
)
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::", "")
USERS_VARIABLE = "DINO_LAB_AUTH"
UPLOAD = re.compile(r"/gradio_api/upload/?$")
STARTUP = re.compile(r"/gradio_api/startup-events/?$")
"""Gradio requests this path from itself when it starts, without a password. The response holds no data."""
UNUSED = re.compile(
    r"/(monitoring|proxy=|deep_link|process_recording|vibe-|undo-vibe|dev/|profiling|custom_component)"
)
"""Routes of Gradio that the app does not need: they fetch foreign pages, keep snapshots or list visitors."""
FOREIGN_FILE = re.compile(r"/file[=/]\s*https?:", re.IGNORECASE)
FOREIGN = "Files of other addresses are refused: upload the file."
VERSIONED = re.compile(r"/(assets|lab/static)/")
"""Scripts and styles of Gradio and of the app: their addresses contain a hash of their content."""
CALLS = re.compile(r"/gradio_api/(run|api)/")
"""Calls of the API outside of Gradio's queue. Gradio prepares a session even for those that are refused."""
FILES_PER_UPLOAD = 4
"""Largest request with several files, in multiples of the largest file."""
BODIES_HELD = 16
"""Largest sum of all bodies under way, in multiples of the largest request."""
SILENCE_SECONDS = 20.0
"""Time without a byte after which a request is refused."""


class Guard:
    """ASGI middleware that checks every request before Gradio and sets the headers of every response.

    Args:
        hosts: Names under which the app may be addressed, see `host_names`.
        users: Passwords by user. Without users, no password is needed.
        frame_ancestors: Origins of pages that may show the app in a frame.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Sequence[str] = LOCAL_NAMES,
        users: Mapping[str, str] | None = None,
        frame_ancestors: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        self.app, self.limits = app, limits or Limits()
        self._compressed = GZipMiddleware(app)
        self._hosts = frozenset(name.lower() for name in hosts)
        self._users = {user.encode(): password.encode() for user, password in (users or {}).items()}
        self._under_way: Counter[str] = Counter()
        self._held_bytes = 0
        self._headers = {
            "Content-Security-Policy": POLICY + (" ".join(frame_ancestors) or "'none'"),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        } | ({} if frame_ancestors else {"X-Frame-Options": "DENY"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with a refusal."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":  # the app has no web sockets
            return await send({"type": "websocket.close", "code": 1008})
        address = scope["client"][0] if scope.get("client") else ""
        most = {address: self.limits.max_requests_per_address}
        if CALLS.search(scope["path"]):
            most[f"{address} calls"] = self.limits.max_calls_per_address
        answer: ASGIApp = self._refusal(scope, Headers(scope=scope), most) or self._check
        kept = VERSIONED.search(scope["path"])
        store = "private, max-age=31536000, immutable" if kept else "private, no-store"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("Cache-Control", store if message["status"] == 200 else "no-store")
            await send(message)

        self._under_way.update(most.keys())
        try:
            await answer(scope, receive, send_with_headers)
        finally:
            self._under_way -= Counter(most.keys())  # drops addresses with nothing under way

    def _refusal(self, scope: Scope, headers: Headers, most: Mapping[str, int]) -> Response | None:
        """Return the response to a request that can be refused by its head alone.

        `most` has the names under which the request is counted, and how many of each may be under way.
        """
        path, method = scope["path"], scope["method"]
        host = host_of(headers.get("host", ""))
        if host not in self._hosts and not is_address(host):
            return refuse(400, "Unknown host name: the server allows names by --allowed-hosts.")
        opened = headers.get("sec-fetch-mode") == "navigate" and method in ("GET", "HEAD")
        if headers.get("sec-fetch-site") == "cross-site" and not opened:
            return refuse(403, "Requests from pages of other sites are refused.")
        if self._users and not STARTUP.search(path) and not self._knows(headers.get("authorization", "")):
            challenge = {"WWW-Authenticate": 'Basic realm="DINO attention lab", charset="UTF-8"'}
            return refuse(401, "A user and a password are required.", challenge)
        if UNUSED.search(path):
            return refuse(404, "Unknown address.")
        if FOREIGN_FILE.search(path):
            return refuse(403, FOREIGN)
        for name, bound in most.items():
            if self._under_way[name] >= bound:
                sentence = f"{bound} of your requests are under way, the most allowed: try again later."
                return refuse(429, sentence)
        if not headers.get("content-length", "0").isdecimal():
            return refuse(400, "The length of the request is no number.")
        return None

    def _knows(self, authorization: str) -> bool:
        scheme, _, credentials = authorization.partition(" ")
        try:
            user, _, password = base64.b64decode(credentials, validate=True).partition(b":")
        except ValueError:
            return False
        # An unknown user is compared too, so that the time does not reveal which users exist.
        right = hmac.compare_digest(self._users.get(user, b""), password)
        return right and user in self._users and scheme.lower() == "basic"

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Bodies are counted as they arrive; JSON is inspected before."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            # Gradio compresses scripts and styles. The page itself has no suffix and is sent as it is.
            is_page = "text/html" in Headers(scope=scope).get("accept", "")
            return await (self._compressed if is_page else self.app)(scope, receive, send)
        is_upload = UPLOAD.search(scope["path"]) is not None
        files = FILES_PER_UPLOAD if is_upload else 2  # base64 takes a third more
        largest = self.limits.max_upload_bytes * files + MEGABYTE
        arrived = 0

        def check_size(size: int) -> None:
            if size > largest:
                raise HTTPException(413, f"The request is larger than the {largest // MEGABYTE} MB allowed.")

        async def receive_limited() -> Message:
            nonlocal arrived
            try:
                message = await asyncio.wait_for(receive(), SILENCE_SECONDS)
            except TimeoutError as error:
                raise HTTPException(408, "The file stopped arriving: send it again.") from error
            arrived += len(message.get("body", b""))
            self._held_bytes += len(message.get("body", b""))
            if self._held_bytes > BODIES_HELD * FILES_PER_UPLOAD * self.limits.max_upload_bytes:
                raise HTTPException(503, "Too many files are under way: try again in a moment.")
            check_size(arrived)
            return message

        try:
            check_size(int(Headers(scope=scope).get("content-length", "0")))
            if is_upload:
                return await self.app(scope, receive_limited, send)
            body = await Request(scope, receive_limited).body()
            check_json(body)
            pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def replay() -> Message:
                return pending.pop() if pending else await receive()

            await self.app(scope, replay, send)
        except ClientDisconnect:
            pass
        except HTTPException as error:
            await refuse(error.status_code, error.detail)(scope, receive, send)
        finally:
            self._held_bytes -= arrived


def check_json(body: bytes) -> None:
    """Refuse a body that is no UTF-8 or has a file by a foreign address, which Gradio would download."""
    if b"\0" in body:
        raise HTTPException(400, "The request is not JSON in UTF-8.")
    if b'"path"' not in body and b"\\u" not in body:
        return

    def check(pairs: Sequence[tuple[str, object]]) -> None:
        if any(name == "path" and re.match(r"\s*https?:", str(value), re.I) for name, value in pairs):
            raise HTTPException(403, FOREIGN)

    try:
        json.loads(body, object_pairs_hook=check)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The request is not JSON.") from error


def refuse(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return a refusal that closes the connection: the rest of the request is not awaited."""
    closing = {"Connection": "close", **(headers or {})}
    return JSONResponse({"error": sentence}, status_code=status, headers=closing)


def host_of(header: str) -> str:
    """Return name or address of a Host header, without port and brackets; empty if it cannot be read."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """Return True for an IP address, as in probes of health: only a name can be rebound to this server."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def trusted_addresses(proxies: Sequence[str]) -> list[str]:
    """Return addresses and networks whose X-Forwarded headers are trusted: `proxies` and this machine."""
    try:
        return ["127.0.0.1", "::1", *(str(ipaddress.ip_network(proxy, strict=False)) for proxy in proxies)]
    except ValueError as error:
        raise ValueError(f"--proxies: {error}; expected addresses such as 10.0.0.0/8") from error


def host_names(host: str, further: Sequence[str] = ()) -> list[str]:
    """Return the names under which the app may be addressed; others are refused, against DNS rebinding."""
    everywhere = host in EVERY_ADDRESS
    if everywhere and not further:
        raise ValueError(
            f"--host {host!r} listens on every address: "
            "name the hosts that users type with --allowed-hosts NAME …"
        )
    return [*LOCAL_NAMES, *([] if everywhere else [host]), *further]


def read_users(file: Path | None) -> dict[str, str]:
    """Read passwords by user from a file with lines USER:PASSWORD, or from the variable `USERS_VARIABLE`."""
    if file is not None and not file.is_file():
        raise FileNotFoundError(
            f"--auth names no file: write USER:PASSWORD into one, or set {USERS_VARIABLE}"
        )
    text = os.environ.get(USERS_VARIABLE, "") if file is None else file.read_text(encoding="utf-8")
    lines = [line.strip().partition(":") for line in text.splitlines() if line.strip()]
    if not all(user and password for user, _, password in lines) or (file and not lines):
        raise ValueError("--auth expects a line USER:PASSWORD for each user, found another line or none")
    return {user: password for user, _, password in lines}


def check_root_path(path: str) -> None:
    """Raise ValueError if text is no path under which a proxy may show the app."""
    if not re.fullmatch(r"(/(?!\.+(/|$))[^/]+)*/?", path):
        raise ValueError(f"--root-path is {path!r}, expected a path such as /dino")


def check_frame_ancestors(origins: Sequence[str]) -> None:
    """Raise ValueError if text is no origin of a page that may show the app in a frame."""
    for origin in origins:
        if not re.fullmatch(r"https?://[^\s/;,'\"]+", origin):
            expected = "expected the origin of a page such as https://course.example"
            raise ValueError(f"--frame-ancestors has {origin!r}, {expected}")
