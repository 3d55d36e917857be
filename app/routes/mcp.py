"""The endpoints for programs as tools of a language model: the Model Context Protocol, JSON-RPC over HTTP.

Nothing is computed here: a tool's call goes through the whole application as a program's question would, past
every gate and limit, and whoever ends the connection ends the work.

Source: modelcontextprotocol.io, specification 2025-06-18, "Streamable HTTP", "Lifecycle" and "Tools".
"""

import base64
import json
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter
from starlette.types import Message

from app.routes.asking import Answer
from app.security import UPLOADS

VERSION = "2025-06-18"  # the one before wants batches answered
INSTRUCTIONS = (
    "A vision transformer trained without labels. Send a photograph with `photos`, or name an example such "
    "as kitten, sheep or owl; `encode` it, and ask everything else with the token of its answer."
)
INVALID, UNKNOWN_METHOD, WRONG_ARGUMENTS, UNREADABLE = -32600, -32601, -32602, -32700
JSON: TypeAdapter[Any] = TypeAdapter(Any)
"""Unlike Python's `json`, it refuses what no answer can repeat: halves of characters, endless nesting."""
FILE_SCHEMA = {
    "type": "object",
    "properties": {
        "content": {"type": "string", "description": "the file in base64"},
        "name": {"type": "string"},
    },
    "required": ["content"],
}


class _Wrong(Exception):
    """A question that is answered by a code and a sentence."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def routes() -> APIRouter:
    """The address /mcp."""
    router = APIRouter(include_in_schema=False)

    @router.post("/mcp")
    async def answer(request: Request) -> Response:
        number = None
        try:
            asked = _question(await request.body())
            if "id" not in asked:  # a notification
                return Response(status_code=202)
            number = _number(asked["id"])
            result = await _result(request, str(asked["method"]), _params(asked))
            told: Answer = {"result": result}
        except _Wrong as error:
            told = {"error": {"code": error.code, "message": str(error)}}
        return JSONResponse({"jsonrpc": "2.0", "id": number} | told)

    return router


def _question(body: bytes) -> dict[str, Any]:
    try:
        asked = JSON.validate_json(body)
    except ValueError as error:
        raise _Wrong(UNREADABLE, "The request is no JSON.") from error
    if not isinstance(asked, dict) or not isinstance(asked.get("method"), str):
        raise _Wrong(INVALID, "The request is no question of JSON-RPC: its method is missing.")
    return asked


def _number(told: Any) -> str | int:
    """What a question is known by."""
    if not isinstance(told, str | int) or isinstance(told, bool):
        raise _Wrong(INVALID, "The id must be text or a whole number.")
    return told


def _params(asked: dict[str, Any]) -> dict[str, Any]:
    params = asked.get("params") or {}
    if not isinstance(params, dict):
        raise _Wrong(WRONG_ARGUMENTS, "The params must be an object, by name.")
    return params


async def _result(request: Request, method: str, params: dict[str, Any]) -> Answer:
    if method == "initialize":
        return {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "dino-attention-lab", "version": "1"},
            "instructions": INSTRUCTIONS,
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": list(_tools(request.app).values())}
    if method == "tools/call":
        return await _called(request, params)
    raise _Wrong(UNKNOWN_METHOD, f"There is no method {method}: this server has tools.")


def _tools(app: FastAPI) -> dict[str, Answer]:
    """Every address for programs, by its last part, as its OpenAPI description has it."""
    schema = app.openapi()
    return {
        path.removeprefix("/api/"): _tool(path, way["post"], schema) for path, way in schema["paths"].items()
    }


def _tool(path: str, told: Answer, schema: Answer) -> Answer:
    body = told.get("requestBody", {}).get("content", {}).get("application/json")
    asked = FILE_SCHEMA
    if body:
        definitions = schema["components"]["schemas"]
        text = json.dumps(definitions[body["schema"]["$ref"].rpartition("/")[2]])
        asked = json.loads(text.replace("#/components/schemas/", "#/$defs/")) | {"$defs": definitions}
    return {"name": path.removeprefix("/api/"), "description": told["description"], "inputSchema": asked}


async def _called(request: Request, params: dict[str, Any]) -> Answer:
    """What a tool answers; a refusal is an answer too, so that a model can mend what it asked."""
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or name not in _tools(request.app):
        raise _Wrong(WRONG_ARGUMENTS, f"There is no tool {name}: ask for tools/list.")
    if not isinstance(arguments, dict):
        raise _Wrong(WRONG_ARGUMENTS, f"The arguments of {name} must be an object, by name.")
    path, query, body = f"/api/{name}", "", json.dumps(arguments).encode()
    if path in UPLOADS:
        query = urlencode({"name": arguments["name"]} if "name" in arguments else {})
        try:
            body = base64.b64decode(str(arguments.get("content", "")), validate=True)
        except ValueError as error:
            raise _Wrong(WRONG_ARGUMENTS, "The content must be a file in base64.") from error
    status, content = await _asked(request, path, query, body)
    answer = json.loads(content)
    if status >= HTTPStatus.BAD_REQUEST:
        return {"content": [{"type": "text", "text": answer["error"]}], "isError": True}
    return {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer}


async def _asked(request: Request, path: str, query: str, body: bytes) -> tuple[int, bytes]:
    """Status and body of the application's own answer at another address, for whoever asks here."""
    dropped = (b"content-length", b"content-type", b"accept", b"transfer-encoding")
    headers = [(name, value) for name, value in request.scope["headers"] if name not in dropped]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    own = ("type", "http_version", "scheme", "client", "server", "asgi")
    scope = {name: value for name, value in request.scope.items() if name in own}
    scope |= {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    sent: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, content = 0, bytearray()

    async def receive() -> Message:
        return sent.pop() if sent else await request.receive()  # who leaves here leaves there

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        content.extend(message.get("body", b""))

    await request.app({**scope, "headers": headers, "root_path": ""}, receive, send)
    return status, bytes(content)
