"""The endpoints as tools of a language model, by the Model Context Protocol."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.security import host_names
from app.server import create_app
from tests.app.conftest import MODEL


@pytest.fixture(scope="module")
def tools(lab):
    app = create_app(lab, host_names("127.0.0.1"), users={"me": "secret"}, mcp=True)
    with TestClient(app, base_url="http://localhost") as client:
        client.auth = ("me", "secret")
        yield client


def _ask(client: TestClient, method: str, **params: Any) -> dict[str, Any]:
    told = client.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).json()
    assert (told["jsonrpc"], told["id"]) == ("2.0", 7)
    return told


def _call(client: TestClient, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return _ask(client, "tools/call", name=tool, arguments=arguments)["result"]


def _file(content: str) -> bytes:
    params = {"name": "photos", "arguments": {"content": content}}
    return json.dumps({"id": 1, "method": "tools/call", "params": params}).encode()


def test_without_the_option_there_are_no_tools(client):
    assert client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 404


@pytest.mark.parametrize("wanted", ["2025-06-18", "2025-03-26", "2099-01-01", None])
def test_a_client_is_greeted_in_the_version_that_is_spoken(tools, wanted):
    told = _ask(tools, "initialize", protocolVersion=wanted, capabilities={}, clientInfo={"name": "test"})
    assert told["result"]["protocolVersion"] == "2025-06-18"
    assert "tools" in told["result"]["capabilities"]
    note = tools.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (note.status_code, note.content) == (202, b"")
    assert _ask(tools, "ping")["result"] == {}


def test_every_public_address_is_a_tool_with_its_own_words(tools, client):
    public = client.get("/api/openapi.json").json()["paths"]
    found = {tool["name"]: tool for tool in _ask(tools, "tools/list")["result"]["tools"]}
    assert set(found) == {path.removeprefix("/api/") for path in public}
    assert found["attention"]["description"] == public["/api/attention"]["post"]["description"]
    schema = found["mask"]["inputSchema"]
    assert schema["required"] == ["token"]
    assert schema["properties"]["mass"]["maximum"] == 1
    assert schema["properties"]["ground_truth"]["anyOf"][0]["$ref"].rpartition("/")[2] in schema["$defs"]


def test_a_photograph_is_sent_encoded_and_asked(tools, client, pixels, as_file):
    content = base64.b64encode(as_file(pixels)).decode()
    photo = _call(tools, "photos", content=content, name="noise.png")["structuredContent"]
    assert (photo["name"], photo["width"], photo["height"]) == ("noise.png", 90, 60)
    seen = _call(tools, "encode", photo=photo["photo"], model=MODEL, size=64)
    token = seen["structuredContent"]["token"]
    assert json.loads(seen["content"][0]["text"]) == seen["structuredContent"]
    maps = _call(tools, "attention", token=token)["structuredContent"]["maps"]
    same = client.post("/api/attention", json={"token": token}).json()["maps"]
    np.testing.assert_array_equal(maps, same)


def test_what_cannot_be_is_told_so_that_a_model_can_mend_it(tools):
    refused = _call(tools, "encode", photo="kitten", model="nobody")
    assert refused["isError"]
    assert "There is no model of that name here" in refused["content"][0]["text"]
    assert _call(tools, "mask", token="x", mass=3)["content"][0]["text"] == "The mass must be at most 1.0."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no json", -32700),
        (b"[]", -32600),
        (b'{"id": 1}', -32600),
        (b'{"id": 1, "method": "resources/list"}', -32601),
        (b'{"id": 1, "method": "tools/call", "params": {"name": "../facts"}}', -32602),
        (b'{"id": 1, "method": "tools/call", "params": {"name": ["x"]}}', -32602),
        (b'{"id": 1, "method": "initialize", "params": [1]}', -32602),
        (b'{"id": 1, "method": "tools/call", "params": {"name": "mask", "arguments": [1]}}', -32602),
        (_file("?"), -32602),
        (_file("\u00fc"), -32602),  # no ASCII
        (b'{"id": NaN, "method": "ping"}', -32600),
        (b'{"id": 1e999, "method": "ping"}', -32600),  # infinite
        (b'{"id": null, "method": "ping"}', -32600),
        (b'{"id": true, "method": "ping"}', -32600),
        (b'{"id": "\\ud800", "method": "ping"}', -32700),  # half a character
        (b'{"id": 1, "method": "\\udc00"}', -32700),
        (_file("").replace(b'"content": ""', b'"name": "\\ud800", "content": ""'), -32700),
        (b"[" * 100_000, -32700),
        (b'{"id": 1, "method": "ping", "params": ' + b'{"a": ' * 100_000, -32700),
    ],
)
def test_what_is_no_question_has_a_code_and_a_sentence(tools, body, code):
    told = tools.post("/mcp", content=body).json()
    assert told["error"]["code"] == code
    assert told["error"]["message"].endswith(".")


def test_tools_are_behind_the_password(tools):
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert tools.post("/mcp", json=ping, auth=("me", "wrong")).status_code == 401
