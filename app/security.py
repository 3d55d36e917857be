"""What stands between the page and everybody: names it answers to, passwords, sizes, what a browser loads."""

import base64
import binascii
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing comes from another machine, and no script stands in the document; styles of elements do.
POLICY = (
    "default-src 'self'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "media-src 'self' blob:",
    "connect-src 'self'",
    "worker-src 'self' blob:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
)
OWN_FOLDERS = ("api", "static")  # a root path of that name is no sign of its own
LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
USERS_VARIABLE = "DINO_LAB_AUTH"
EVERY_ADDRESS = ("0.0.0.0", "::", "")
NOT_KEPT = (b"cache-control", b"private, no-store")
UPLOADS = ("/api/photos", "/api/clips")
"""Addresses that take files; they count for themselves."""


class SecurityHeaders:
    """Adds to every answer what a browser may load, who may show the page in a frame, who may keep it.

    Nobody may keep what does not say so itself: it may be somebody's photograph.

    Args:
        app: what answers.
        frame_ancestors: origins, such as https://course.example; none may without.
    """

    def __init__(self, app: ASGIApp, frame_ancestors: Sequence[str] = ()) -> None:
        self.app = app
        ancestors = " ".join(frame_ancestors) or "'none'"
        policy = "; ".join((*POLICY, f"frame-ancestors {ancestors}"))
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            *([] if frame_ancestors else [(b"x-frame-options", b"DENY")]),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, with the headers added."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *self._headers]
                kept = any(name.lower() == b"cache-control" for name, _ in headers)
                message["headers"] = headers if kept else [*headers, NOT_KEPT]
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class HostGate:
    """Answers only to its own names, and to no page of another site: neither name nor page can be borrowed.

    Args:
        app: what is behind the gate.
        names: as `host_names` gives them.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self.app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with 400 or 403."""
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        if host_of(headers.get("host", "")) not in self._names:
            return _refuse(400, "This page does not answer to that name: see --allowed-hosts.")
        foreign = headers.get("sec-fetch-site") == "cross-site"
        if foreign and headers.get("sec-fetch-mode") != "navigate":
            return _refuse(403, "This page answers to no page of another site.")
        return None


def host_of(header: str) -> str:
    """The name or address in a Host header, without port and brackets; empty where there is none."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


class PasswordGate:
    """Lets in who names a user and the password (HTTP Basic): to page, files, routes and endpoints alike.

    Args:
        app: what is behind the gate.
        users: passwords by user.
    """

    def __init__(self, app: ASGIApp, users: Mapping[str, str]) -> None:
        self.app = app
        self._users = {user.encode(): password.encode() for user, password in users.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with 401."""
        if scope["type"] == "lifespan" or self._knows(Headers(scope=scope).get("authorization", "")):
            await self.app(scope, receive, send)
            return
        refusal = JSONResponse(
            {"error": "This page asks for a user and a password."},
            status_code=401,
            headers={"WWW-Authenticate": 'Basic realm="DINO attention lab", charset="UTF-8"'},
        )
        await refusal(scope, receive, send)

    def _knows(self, authorization: str) -> bool:
        scheme, _, credentials = authorization.partition(" ")
        try:
            user, _, password = base64.b64decode(credentials, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        # Compared with something in any case, so that the time taken tells nobody which users there are.
        right = hmac.compare_digest(self._users.get(user, b""), password)
        return right and user in self._users and scheme.lower() == "basic"


class RootPath:
    """Takes off the path under which a proxy shows the page, where the proxy has left it on.

    Every address in the page is relative, but that of the picture that links show of it.

    Args:
        app: what is shown there.
        root_path: see `root_path_of`.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does at the path without the proxy's part."""
        app = self.app
        if scope["type"] == "http":
            path: str = scope["path"]
            if path == self._root_path:  # without the slash, what is relative would go astray
                app = RedirectResponse(f"{self._root_path}/")
            elif path.startswith(f"{self._root_path}/"):
                scope = {**scope, "path": path.removeprefix(self._root_path)}
            scope = {**scope, "app_root_path": self._root_path}  # of whole addresses, as links' pictures have
        await app(scope, receive, send)


class BodyLimit:
    """Counts every body as it comes, told length or not, and refuses what is larger than the page ever sends.

    Files are counted where they are taken in, see `app.routes.asking.upload`.

    Args:
        app: what is behind the limit.
        most: bytes.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with 413."""
        if scope["type"] != "http" or (scope["path"] in UPLOADS and scope["method"] == "POST"):
            await self.app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most:
            await _refuse(413, "The request is larger than allowed.")(scope, receive, send)
            return
        come = 0

        async def counted() -> Message:
            nonlocal come
            message = await receive()
            come += len(message.get("body", b""))
            if come > self._most:
                raise HTTPException(413, "The request is larger than allowed.")
            return message

        await self.app(scope, counted, send)


def _refuse(status: int, sentence: str) -> JSONResponse:
    """A refusal after which the connection ends: what is still on its way is not waited for."""
    return JSONResponse({"error": sentence}, status_code=status, headers={"Connection": "close"})


def read_users(file: Path | None) -> dict[str, str]:
    """Passwords by user, from a file with a line USER:PASSWORD for each, or else from `USERS_VARIABLE`.

    Neither stands in the list of processes, as an option's value would. No users at all: no password asked.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line without user or password, or a file without lines.
    """
    text = os.environ.get(USERS_VARIABLE, "")
    if file is not None:
        if not file.is_file():
            raise FileNotFoundError(
                "--auth names no file: write USER:PASSWORD into a file and pass its name, "
                f"or set {USERS_VARIABLE}"
            )
        text = file.read_text(encoding="utf-8")
    users = dict(_user(line) for line in text.splitlines() if line.strip())
    if file is not None and not users:
        raise ValueError("the file that --auth names is empty: expected a line USER:PASSWORD for each user")
    return users


def _user(line: str) -> tuple[str, str]:
    user, _, password = line.strip().partition(":")
    if not user or not password:
        raise ValueError("found a line without user or password; --auth expects USER:PASSWORD on each")
    return user, password


def root_path_of(text: str) -> str:
    """The path under which a proxy shows the page: begins with a slash and ends without one, or is empty.

    Raises:
        ValueError: no path.
    """
    path = text.rstrip("/")
    if path and not (path.startswith("/") and all(part.strip(".") for part in path[1:].split("/"))):
        raise ValueError(f"--root-path is {text!r}, expected a path such as /dino")
    if path.partition("/")[2].partition("/")[0] in OWN_FOLDERS:
        raise ValueError(f"--root-path is {text!r}, but the page has a folder of that name: choose another")
    return path


def frame_ancestors_of(origins: Sequence[str]) -> tuple[str, ...]:
    """Origins of pages that may show this one in a frame.

    Raises:
        ValueError: no origin.
    """
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.hostname or set(origin) & set(" ;,'\"\r\n"):
            raise ValueError(
                f"--frame-ancestors has {origin!r}, expected the origin of a page such as https://course.example"
            )
    return tuple(origins)


def host_names(host: str, further: Sequence[str] = ()) -> list[str]:
    """The names under which the page may be addressed.

    Any other is refused, so that no foreign name can be made to point at it (DNS rebinding).

    Raises:
        ValueError: the page listens on every address of the machine and no name is given.
    """
    if host in EVERY_ADDRESS and not further:
        raise ValueError(
            f"--host {host!r} listens on every address: "
            "name the hosts that visitors type with --allowed-hosts NAME …"
        )
    return [*LOCAL_NAMES, *([] if host in EVERY_ADDRESS else [host]), *further]
