"""What stands between the page and everybody: names it answers to, passwords, sizes, what a browser loads."""

import base64
import binascii
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Gradio's front end evaluates its templates and writes styles inline; nothing comes from another machine.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
OWN_FOLDERS = ("lab", "gradio_api", "assets", "static")  # a root path of that name is no sign of its own
LOCAL_NAMES = ("127.0.0.1", "localhost")
USERS_VARIABLE = "DINO_LAB_AUTH"
EVERY_ADDRESS = ("0.0.0.0", "::", "")


class SecurityHeaders:
    """Adds `HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, with `HEADERS` added."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


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
            {"detail": "This page asks for a user and a password."},
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
    """Tells the application where a proxy shows it, whether the proxy strips that from paths or not.

    Args:
        app: what is shown there.
        root_path: see `root_path_of`.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self.app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does at the path as a browser sees it."""
        if scope["type"] != "lifespan":
            path: str = scope["path"]
            whole = path if f"{path}/".startswith(f"{self._root_path}/") else self._root_path + path
            scope = {**scope, "path": whole, "root_path": self._root_path}
        await self.app(scope, receive, send)


class BodyLimit:
    """Refuses bodies that are larger than anything the page sends, before they are read.

    Uploads (multipart/form-data) pass: Gradio counts them while they arrive.

    Args:
        app: what is behind the limit.
        most: bytes.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, or with 411 or 413."""
        refusal = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        if headers.get("content-type", "").startswith("multipart/form-data"):
            return None
        if "chunked" in headers.get("transfer-encoding", ""):
            return JSONResponse({"detail": "The request does not tell its length."}, status_code=411)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) <= self._most:
            return None
        return JSONResponse({"detail": "The request is larger than allowed."}, status_code=413)


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
