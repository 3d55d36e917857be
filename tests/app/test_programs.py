"""What programs ask: the documented examples as they stand, the library's answers, every wrong value."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app.errors import LabError
from app.lab import Lab
from app.run_lengths import Encoded, mask_of
from segmentation.masks import decode, enlarge, keep_mass_of_maps, rle
from tests.app.serving import serving

MODEL = "random:vit_tiny/16"
ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/api.md"
WRONG = (-1, 1e9, "0.6", None, True, [0.6], {"mass": 0.6})


@pytest.fixture(scope="module")
def address(lab: Lab) -> Iterator[str]:
    """A whole server on a free port."""
    with serving(lab) as address:
        yield address


@pytest.fixture(scope="module")
def ask(client: TestClient) -> Callable[..., dict]:
    """What an address answers to a question."""

    def question(name: str, **asked: object) -> dict:
        answer = client.post(f"/api/{name}", json=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return question


@pytest.fixture(scope="module")
def token(ask, photo) -> str:
    return ask("encode", photo=photo, model=MODEL, size=64)["token"]


@pytest.fixture(scope="module")
def refused(client: TestClient) -> Callable[..., str]:
    """The sentence that comes back."""

    def question(name: str, *, status: int = 422, **asked: object) -> str:
        answer = client.post(f"/api/{name}", json=asked)
        assert answer.status_code == status, answer.text
        sentence = answer.json()["error"]
        assert sentence.endswith("."), sentence
        assert str(ROOT) not in sentence
        assert "Traceback" not in sentence
        return sentence

    return question


def test_documented_python_runs_as_it_stands(address, tmp_path, monkeypatch, capsys, pixels):
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL).group(1)
    assert "http://127.0.0.1:7860" in code
    Image.fromarray(pixels).resize((300, 200)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code.replace("http://127.0.0.1:7860", address), "docs/api.md", "exec"), names)
    assert names["pixels"].shape == (200, 300)
    assert names["best"]["head"] == "0"
    assert names["best"]["jaccard"] == 1
    assert "agrees best" in capsys.readouterr().out


def test_documented_shell_runs_as_it_stands(address, tmp_path, pixels):
    code = re.search(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL).group(1)
    Image.fromarray(pixels).resize((300, 200)).save(tmp_path / "photo.jpg")
    script = code.replace("http://127.0.0.1:7860", address).replace("python3", "python")
    ended = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert '"token":' in ended.stdout


def test_every_public_address_is_documented_and_no_other(client):
    documented = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    public = client.get("/api/openapi.json").json()["paths"]
    assert {path.removeprefix("/api/") for path in public} == documented
    assert all(list(way) == ["post"] for way in public.values())


def test_answers_agree_with_the_library(ask, token, encode, photo):
    predictor = encode(photo).predictor
    maps = np.array(ask("attention", token=token)["maps"])
    np.testing.assert_allclose(maps, predictor.cls_attention(), atol=1e-3)
    kept = ask("mask", token=token, mass=0.4, head="1")
    expected = enlarge(keep_mass_of_maps(maps.astype(np.float32)[1], 0.4), (60, 90))
    np.testing.assert_array_equal(decode(kept["segmentation"]), expected)
    assert kept["area"] == pytest.approx(expected.mean())


def test_answers_repeat_what_was_asked(ask, token, photo):
    told = ask("encode", photo=photo, model=MODEL, size=64)
    assert (told["photo"], told["model"], told["size"], told["token"]) == (photo, MODEL, 64, token)
    told = ask("attention", token=token, block=-12, patch=[1, 2])
    assert (told["token"], told["block"], told["patch"]) == (token, 0, [1, 2])
    told = ask("discover", token=token, method="lost")
    assert (told["token"], told["method"], told["refined"]) == (token, "lost", False)


def test_best_head_is_the_one_that_made_the_ground_truth(ask, token):
    truth = ask("mask", token=token, mass=0.3, head="2")["segmentation"]
    best = ask("mask", token=token, mass=0.3, head="best", ground_truth=truth)
    assert (best["head"], best["jaccard"]) == ("2", 1)


@pytest.mark.parametrize("method", ["lost", "tokencut", "maskcut"])
@pytest.mark.parametrize("refined", [False, True])
def test_discovered_objects_have_run_lengths_of_the_photographs_size(ask, token, method, refined):
    for found in ask("discover", token=token, method=method, refined=refined)["objects"]:
        mask = decode(found["segmentation"])
        assert mask.shape == (60, 90)
        assert found["area"] == pytest.approx(mask.mean())
        assert set(found) == {"segmentation", "bbox", "area", "seed"}


@pytest.fixture(scope="module")
def clip(client: TestClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("clip") / "noise.png"
    noise = np.random.default_rng(2).integers(0, 256, (3, 48, 64, 3), dtype=np.uint8)
    first, *others = (Image.fromarray(frame) for frame in noise)
    first.save(file, save_all=True, append_images=others)
    return client.post("/api/clips", content=file.read_bytes()).json()["clip"]


def test_objects_are_followed_through_a_clip(ask, clip):
    mask = np.zeros((48, 64), bool)
    mask[:, 32:] = True
    answer = ask("propagate", clip=clip, masks=[rle(mask)], model=MODEL, size=48)
    assert [image["id"] for image in answer["images"]] == [1, 2, 3]
    np.testing.assert_array_equal(decode(answer["annotations"][0]["segmentation"]), mask)


def test_propagation_tells_how_far_it_came_to_who_asks_line_by_line(client, clip):
    asked = {"clip": clip, "masks": [dict(rle(np.ones((48, 64), bool)))], "model": MODEL, "size": 48}
    lines = {"Accept": "application/x-ndjson"}
    with client.stream("POST", "/api/propagate", json=asked, headers=lines) as answer:
        told = [json.loads(line) for line in answer.iter_lines()]
    done = [line["done"] for line in told if line["state"] == "following"]
    assert done == sorted(done)
    assert done[-1] == told[-2]["frames"] == 3
    assert told[-1]["state"] == "done"
    assert [image["id"] for image in told[-1]["images"]] == [1, 2, 3]


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/json"])
def test_propagation_ends_when_who_asked_hangs_up(lab, client, address, accept):
    height, width = client.get("/api/clips/sheep").json()["sent"]
    mask = np.zeros((height, width), bool)
    mask[80:160, 150:260] = True
    body = json.dumps({"clip": "sheep", "masks": [dict(rle(mask))], "model": MODEL, "size": 224})
    host, port = address.removeprefix("http://").split(":")
    began = set(lab.clips._followings._entries)
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /api/propagate HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        name = _soon(lambda: next(iter(set(lab.clips._followings._entries) - began), None))
        _soon(lambda: len(lab.clips.following(name).masks) >= 2)
    _soon(lambda: not lab.following._at_work)
    assert lab.clips.following(name).state == "stopped"
    assert len(lab.clips.following(name).masks) < 30


def _soon(true: Callable[[], Any]) -> Any:
    """What is true within a minute."""
    for _ in range(6000):
        if found := true():
            return found
        time.sleep(0.01)
    raise AssertionError("it never came true")


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"clip": "guessed"}, 404, "open it again"),
        ({"clip": None}, 422, "The clip must be"),
        ({"masks": []}, 422, "The masks cannot be that"),
        ({"masks": [{}] * 9}, 422, "."),
        ({"masks": [{"size": [48, 64], "counts": "0"}]}, 422, "run lengths"),
        ({"masks": [{"size": [2, 2], "counts": "04"}]}, 422, "size"),
        ({"masks": [dict(rle(np.zeros((48, 64), bool)))]}, 422, "Nothing is marked"),
        ({"model": "../run"}, 404, "choose one of"),
        ({"size": 10**6}, 422, "at most 2048"),
    ],
)
def test_impossible_clips_and_masks_get_one_sentence(refused, clip, change, status, said):
    asked = {"clip": clip, "masks": [dict(rle(np.ones((48, 64), bool)))], "model": MODEL, "size": 48} | change
    assert said in refused("propagate", status=status, **asked)


@pytest.mark.parametrize(
    "model",
    [
        "/etc/passwd",
        "../runs/a",
        "https://evil.example/model.pth",
        "file:///etc/passwd",
        "no such",
        "",
        "a" * 9000,
    ],
)
def test_models_are_chosen_by_the_names_on_the_page_only(refused, photo, model):
    assert "no model of that name" in refused("encode", status=404, photo=photo, model=model, size=64)


@pytest.mark.parametrize("photo", ["", "/etc/passwd", "http://127.0.0.1/a.png", "../kitten"])
def test_photographs_are_names_only(refused, photo):
    assert "open it again" in refused("encode", status=404, photo=photo, model=MODEL, size=64)


@pytest.mark.parametrize("value", [*WRONG, 0, 31, 2049, 64.5])
def test_resolution_is_checked(refused, photo, value):
    assert "size" in refused("encode", photo=photo, model=MODEL, size=value)


@pytest.mark.parametrize("value", [*WRONG, 0, 1.01])
def test_mass_is_checked(refused, token, value):
    assert "mass" in refused("mask", token=token, mass=value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("attention", {"block": 99}),
        ("attention", {"block": -13}),
        ("attention", {"patch": [0, 99]}),
        ("attention", {"patch": [-1, 0]}),
        ("attention", {"patch": [0]}),
        ("attention", {"patch": "0,0"}),
        ("mask", {"head": "99"}),
        ("mask", {"head": "../x"}),
        ("mask", {"head": 3}),
        ("mask", {"head": "best"}),
        ("mask", {"refined": "yes"}),
        ("mask", {"ground_truth": {"size": [60, 90], "counts": "54"}}),
        ("mask", {"ground_truth": {"size": [10**9, 10**9], "counts": ""}}),
        ("mask", {"ground_truth": {"size": [60, 90], "counts": "o" * 10_000}}),
        ("mask", {"ground_truth": {"size": [60, 90], "counts": [5400]}}),
        ("mask", {"ground_truth": [1, 2]}),
        ("discover", {"method": "attention"}),
        ("discover", {"method": "<script>"}),
        ("discover", {"count": 0}),
        ("discover", {"count": 1000}),
        ("discover", {"refined": 1}),
        ("discover", {"anything": "else"}),
    ],
)
def test_impossible_arguments_get_one_sentence(refused, token, name, arguments):
    assert "script" not in refused(name, token=token, **arguments)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("encode", '"photo": "kitten", "size": {value}'),
        ("attention", '"token": "{token}", "block": {value}'),
        ("attention", '"token": "{token}", "patch": [{value}, 0]'),
        ("mask", '"token": "{token}", "mass": {value}'),
        ("discover", '"token": "{token}", "count": {value}'),
    ],
)
def test_numbers_that_json_does_not_know_get_one_sentence(client, token, value, name, arguments):
    """Clients that keep to the standard cannot send them, so this one is written by hand."""
    body = "{" + arguments.format(token=token, value=value) + "}"
    answer = client.post(f"/api/{name}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{}", b"[" * 100_000])
def test_what_is_no_question_gets_one_sentence(client, body):
    answer = client.post("/api/encode", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize("name", ["attention", "mask", "discover"])
def test_who_does_not_know_the_token_learns_nothing(refused, name):
    for wrong in ("guessed", "", "../..", "0" * 32 + ".64.ZW1iZWRkZWQ"):
        refused(name, status=404, token=wrong)
    for wrong in (None, 5, {"path": "/etc/passwd"}):
        refused(name, token=wrong)


def test_run_lengths_of_another_size_are_refused():
    encoded = Encoded(**dict(rle(np.ones((6, 7), bool))))
    assert mask_of(encoded, (6, 7)).all()
    for size, counts in (([7, 6], encoded.counts), ([6, 7], "0"), ([6, 7], "é")):
        with pytest.raises(LabError, match=r"The mask.*\.$"):
            mask_of(Encoded(size=size, counts=counts), (6, 7))
