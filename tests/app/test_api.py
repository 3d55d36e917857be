"""Endpoints through `gradio_client`, `curl` and MCP; every event with nonsense."""

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

from app.__main__ import Serve, free_port
from app.limits.bounds import Limits
from app.limits.guard import LOCAL_NAMES
from app.store.images import png
from segmentation.masks import decode, enlarge, keep_mass_of_maps, rle
from tests.app.conftest import MODEL, library_maps, write_video

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/api.md"
NONSENSE: tuple[Any, ...] = (
    *(None, -1, 1e308, True, "", "../../etc/passwd", "<img src=x onerror=alert(1)>", [], [[None]], {}),
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
    {"token": "kitten.64.ZW1iZWRkZWQ", "method": 5, "mass": "x", "pins": [1], "runs": [9**9]},
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A whole page with small limits, guarded, with MCP."""
    limits = Limits(max_upload_mb=1, max_megapixels=1, max_patches=1200)
    page = Serve(model=MODEL, size=64, precision="fp32", device="cpu", mcp=True, limits=limits)
    port = free_port("127.0.0.1", 0)
    demo = page.launch_blocks(port, LOCAL_NAMES, {})
    yield f"http://127.0.0.1:{port}"
    demo.close(verbose=False)


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False, httpx_kwargs={"timeout": 120})


@pytest.fixture(scope="module")
def file(pixels: np.ndarray) -> str:
    """An image of noise as base64 text."""
    return base64.b64encode(png(pixels)).decode()


def test_documented_python_and_curl_run_as_they_stand(address, tmp_path, monkeypatch, pixels):
    text = DOCUMENT.read_text().replace("http://127.0.0.1:7860", address)
    (python,), (bash,) = (re.findall(rf"```{name}\n(.*?)```", text, re.DOTALL) for name in ("python", "bash"))
    Image.fromarray(pixels).resize((300, 200)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(python, "docs/api.md", "exec"), names)
    assert names["pixels"].shape == (200, 300)
    assert (names["best"]["head"], names["best"]["jaccard"]) == ("0", 1)
    assert names["matches"]
    for line in bash.strip().splitlines():
        ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=True)
        assert "data" in json.loads(ended.stdout), line


def test_document_api_and_mcp_list_the_same_endpoints(address):
    documented = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    info = httpx.get(f"{address}/gradio_api/info").json()
    assert {name.removeprefix("/") for name in info["named_endpoints"]} == documented
    parameters = {name: endpoint["parameters"] for name, endpoint in info["named_endpoints"].items()}
    defaults = {
        (name, one["parameter_name"]): one["parameter_default"]
        for name, each in parameters.items()
        for one in each
        if type(one.get("parameter_default")) in (int, float)
    }
    assert defaults == {(name, "size"): 224 for name in parameters} | {
        ("/attention", "block"): -1,
        ("/masks", "mass"): 0.6,
        ("/objects", "count"): 3,
        ("/matches", "ratio"): 1.0,
    }
    tools = httpx.get(f"{address}/gradio_api/mcp/schema", follow_redirects=True).json()
    assert sorted(tool["name"].rpartition("_")[2] for tool in tools) == sorted(documented)


def test_attention_and_masks_are_the_librarys(client, file, predictor):
    found = client.predict(file, MODEL, 64, api_name="/attention")
    np.testing.assert_allclose(found["maps"], predictor.cls_attention(), atol=1e-3)
    assert (found["rows"], found["columns"], found["block"]) == (*predictor.grid, 12)
    assert client.predict(file, MODEL, 64, 12, api_name="/attention") == found
    of_patch = client.predict(file, MODEL, 64, -11, 1, 2, api_name="/attention")
    assert of_patch["block"] == 2
    expected = library_maps(predictor, "attention", 1 + 6 + 2, 1)
    np.testing.assert_allclose(of_patch["maps"], expected, atol=1e-3)
    kept = client.predict(file, MODEL, 64, mass=0.4, head="1", api_name="/masks")
    expected = enlarge(keep_mass_of_maps(predictor.cls_attention()[1], 0.4), (60, 90))
    assert (decode(kept["segmentation"]) == expected).mean() > 0.99  # queries and keys travel in 16 bits
    best = client.predict(file, MODEL, 64, 0.4, "best", False, kept["segmentation"], api_name="/masks")
    assert (best["head"], best["jaccard"]) == ("1", 1)
    mean = client.predict(file, MODEL, 64, 0.4, ground_truth=kept["segmentation"], api_name="/masks")
    assert mean["head"] == "mean"
    assert 0 < mean["jaccard"] < 1


def test_objects_and_matches_are_those_of_the_image(client, file):
    for found in client.predict(file, MODEL, 64, "maskcut", 3, True, api_name="/objects")["objects"]:
        assert decode(found["segmentation"]).shape == (60, 90)
        assert set(found) == {"segmentation", "bbox", "area", "seed"}
    found = client.predict(file, file, MODEL, 64, api_name="/matches")
    assert found["scale"] in found["scales"]
    assert all(0 <= match["ratio"] <= 1 for match in found["matches"])


@pytest.mark.parametrize(
    "send",
    [
        lambda content, path: handle_file(path),
        lambda content, path: base64.encodebytes(content).decode(),
        lambda content, path: base64.urlsafe_b64encode(content).decode().rstrip("="),
        lambda content, path: f"data:image/png;base64,{base64.b64encode(content).decode()}",
        lambda content, path: base64.b64encode(content.ljust(900_000, b"\0")).decode(),  # 1.2 MB as text
    ],
    ids=["handle_file", "wrapped", "url-safe", "data", "nearly 1 MB"],
)
def test_file_is_read_in_every_form(client, file, tmp_path, send):
    content, path = base64.b64decode(file), tmp_path / "photo.png"
    path.write_bytes(content)
    first, second = (
        client.predict(each, MODEL, 64, api_name="/attention") for each in (file, send(content, path))
    )
    assert first == second


def test_parallel_calls_of_one_client_are_all_answered(client):
    jobs = [client.submit("kitten", MODEL, 64, api_name="/attention") for _ in range(20)]
    assert {job.result(60)["block"] for job in jobs} == {12}


def test_too_few_values_are_refused_in_a_sentence(address):
    response = httpx.post(f"{address}/gradio_api/run/attention", json={"data": ["kitten"]})
    assert response.json()["error"] == "attention takes 6 values, found 1: see /gradio_api/info."


def test_objects_are_followed_through_a_clip(client, tmp_path):
    clip = base64.b64encode(write_video(tmp_path / "square.webm", 3).read_bytes()).decode()
    mask = np.zeros((48, 64), bool)
    mask[:, 32:] = True
    masks = {"0": [dict(rle(mask))], "2": [None, dict(rle(~mask))]}
    found = client.predict(clip, masks, MODEL, 48, api_name="/track")
    assert [image["id"] for image in found["images"]] == [1, 2, 3]
    first, *_, last = found["annotations"]
    np.testing.assert_array_equal(decode(first["segmentation"]), mask)
    np.testing.assert_array_equal(decode(last["segmentation"]), ~mask)
    assert [(each["image_id"], each["category_id"]) for each in found["annotations"]] == [
        (1, 1),
        (2, 1),
        (3, 2),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("attention", ["nobody"], "name of an example"),
        ("attention", [base64.b64encode(bytes(29)).decode()], "name of an example"),
        ("attention", [base64.b64encode(bytes(30)).decode()], "not an image of a known format"),
        ("attention", ["a" * 1_333_334], "not an image of a known format"),  # 1 MB, which is no image
        ("attention", ["a" * 1_333_335], "larger than the 1 MB allowed"),
        ("attention", ["kitten", MODEL, 64, 1, -1, 0], "Invalid row"),
        ("attention", ["kitten", MODEL, 64, 1, 0, -1], "Invalid column"),
        ("attention", ["kitten", MODEL, 64, -13], "no block -13"),
        ("attention", ["kitten", MODEL, 64, 99], "no block 99"),
        ("attention", ["kitten", MODEL, 64, 0], "blocks 1 to 12"),
        ("masks", ["kitten", MODEL, 64, 0.6, "first"], 'found "first", expected "mean" or the number'),
        ("attention", [{"path": "/etc/passwd"}], "no file of yours"),
        ("attention", ["kitten", MODEL, 64, -1, 0], "row and a column"),
        ("masks", ["kitten", MODEL, 64, 0.6, "99"], "no head 99"),
        ("masks", ["kitten", MODEL, 64, 0.6, "best"], "ground truth"),
        ("masks", ["kitten", MODEL, 64, 0.6, "mean", False, {"size": [2, 2], "counts": "04"}], "size"),
        ("objects", ["kitten", MODEL, 64, "magic"], "Unknown discovery method 'magic'"),
        ("objects", ["kitten", MODEL, 64, "maskcut", 1000], "a number of objects from 1 to 6"),
        ("matches", ["kitten", "sheep", MODEL, 64, 7], "ratio"),
        ("track", ["nobody", {}], "name of an example"),
        ("track", ["sheep", {}, MODEL, 48], "Nothing is marked"),
        ("track", ["sheep", {"first": []}], "by number of the frame"),
        ("track", ["sheep", {"0": []}], "list of 1 to 8"),
        ("track", ["sheep", {"0": [None] * 9}], "list of 1 to 8"),
        ("track", ["sheep", {"0": [None] * 8}, MODEL, 48], "Nothing is marked"),
        ("track", ["sheep", {"0": [{"size": [48, 64], "counts": "0"}]}], "size"),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(client, name, arguments, sentence):
    with pytest.raises(AppError) as error:
        client.predict(*arguments, api_name=f"/{name}")
    assert sentence in str(error.value).partition("\n")[0]
    assert str(ROOT) not in str(error.value)


def test_every_event_answers_nonsense_with_a_sentence_or_nothing(address):
    """Hidden events are public too: any client may call them by their number."""
    config = httpx.get(f"{address}/config").json()
    events = [event for event in config["dependencies"] if event["backend_fn"]]
    assert len(events) > 20
    with httpx.Client(base_url=address, timeout=60) as http:
        for event in events:
            for value in NONSENSE:
                body = {"data": [value] * max(1, len(event["inputs"])), "fn_index": event["id"]}
                body |= {"session_hash": "nonsense", "event_data": value}
                answer = http.post("/gradio_api/run/predict", json=body)
                assert answer.status_code in (200, 403, 404, 422, 500), (event["targets"], value)
                text = answer.text
                for secret in ("Traceback", str(ROOT), "root:x:", "/site-packages/"):
                    assert secret not in text, (event["targets"], value, text[:300])
        assert http.get("/").status_code == 200
