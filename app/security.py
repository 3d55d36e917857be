"""What stands between the page and everything else: which names it answers to, what a browser may load."""

from collections.abc import Sequence

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
LOCAL_NAMES = ("127.0.0.1", "localhost")
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
