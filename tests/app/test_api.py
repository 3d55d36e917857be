import base64
import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn
from gradio_client import Client
from gradio_client.exceptions import AppError
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.api import mask_of, number, run_lengths, whole
from app.catalogue import catalogue
from app.engine import Engine, LabError
from app.limits import Limits
from app.security import host_names
from app.server import create_app, listen
from segmentation.masks import decode, enlarge, keep_mass_of_maps, rle

MODEL = "random:vit_tiny/16"
ROOT = Path(__file__).parents[2]
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
WRONG = (-1, 1e9, "0.6", None, True, [0.6], {"mass": 0.6})


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Room for the embedded model's patches of 8 pixels, which the snippet uses."""
    return Engine(catalogue(MODEL), Limits(max_patches=1200), precision="fp32", device="cpu")


@pytest.fixture(scope="module")
def address(engine, start) -> Iterator[str]:
    """A whole server on a free port."""
    with listen("127.0.0.1", 0) as listening:
        app = create_app(engine, start, host_names("127.0.0.1"))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def ask(address) -> Callable[..., dict]:
    """Calls an endpoint by its name."""
    client = Client(address, verbose=False)
    return lambda name, *arguments, **named: client.predict(*arguments, **named, api_name=f"/{name}")


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (60, 90, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def sent(picture) -> str:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture(scope="module")
def token(ask, sent) -> str:
    return ask("encode", sent, model=MODEL, size=64)["token"]


def refused(ask, name: str, *arguments, **named) -> str:
    """The sentence that comes back."""
    with pytest.raises(AppError) as error:
        ask(name, *arguments, **named)
    sentence = str(error.value)
    assert sentence.endswith("."), sentence
    assert str(ROOT) not in sentence
    assert "Traceback" not in sentence
    return sentence


def test_documented_snippet_runs_as_it_stands(address, tmp_path, monkeypatch, capsys, picture):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL).group(1)
    assert "http://127.0.0.1:7860" in code
    Image.fromarray(picture).resize((300, 200)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(code.replace("http://127.0.0.1:7860", address), "docs/api.md", "exec"), names)
    assert names["pixels"].shape == (200, 300)
    assert names["best"]["head"] == "0"
    assert names["best"]["jaccard"] == 1
    assert "agrees best" in capsys.readouterr().out


def test_objects_are_followed_through_a_clip(ask):
    buffer = io.BytesIO()
    noise = np.random.default_rng(2).integers(0, 256, (3, 48, 64, 3), dtype=np.uint8)
    first, *others = (Image.fromarray(frame) for frame in noise)
    first.save(buffer, "PNG", save_all=True, append_images=others)
    mask = np.zeros((48, 64), bool)
    mask[:, 32:] = True
    clip = base64.b64encode(buffer.getvalue()).decode()
    answer = ask("propagate", clip, [rle(mask)], model=MODEL, size=48)
    assert [image["id"] for image in answer["images"]] == [1, 2, 3]
    np.testing.assert_array_equal(decode(answer["annotations"][0]["segmentation"]), mask)
    assert "no film" in refused(ask, "propagate", "AAAA", [rle(mask)], model=MODEL, size=48)


def test_every_endpoint_is_documented(address):
    named = Client(address, verbose=False).view_api(return_format="dict")["named_endpoints"]
    documented = set(re.findall(r"^\| `(/\w+)` \|", (ROOT / "docs/api.md").read_text(), re.MULTILINE))
    assert set(named) == documented


def test_answers_agree_with_the_engine(ask, engine, token):
    encoding = engine.encoding(token)
    predictor_maps = np.array(ask("attention", token)["maps"])
    with engine.looking_at(encoding) as predictor:
        np.testing.assert_allclose(predictor_maps, predictor.cls_attention(), atol=1e-3)
    assert ask("attention", token, block=0, patch=[1, 2])["block"] == 0
    kept = ask("mask", token, mass=0.4, head="1")
    expected = enlarge(keep_mass_of_maps(predictor_maps.astype(np.float32)[1], 0.4), (60, 90))
    np.testing.assert_array_equal(decode(kept["segmentation"]), expected)
    assert kept["area"] == pytest.approx(expected.mean())


def test_best_head_is_the_one_that_made_the_ground_truth(ask, token):
    truth = ask("mask", token, mass=0.3, head="2")["segmentation"]
    best = ask("mask", token, mass=0.3, head="best", ground_truth=truth)
    assert (best["head"], best["jaccard"]) == ("2", 1)


@pytest.mark.parametrize("method", ["lost", "tokencut", "several"])
@pytest.mark.parametrize("refined", [False, True])
def test_discovered_objects_have_run_lengths_of_the_photographs_size(ask, token, method, refined):
    for found in ask("discover", token, method=method, refined=refined)["objects"]:
        mask = decode(found["segmentation"])
        assert mask.shape == (60, 90)
        assert found["area"] == pytest.approx(mask.mean())
        assert set(found) == {"segmentation", "bbox", "area", "seed"}


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
def test_models_are_chosen_by_the_names_on_the_page_only(ask, sent, model):
    assert "no model of that name" in refused(ask, "encode", sent, model=model, size=64)


@pytest.mark.parametrize(
    "picture",
    ["", "not base64!", "/etc/passwd", "http://127.0.0.1/a.png", "YWJj", {"path": "/etc/passwd"}, None, 5],
)
def test_what_is_no_picture_is_refused_in_words(ask, picture):
    refused(ask, "encode", picture, model=MODEL, size=64)


@pytest.mark.parametrize("value", [*WRONG, 0, 31, 2049, 64.5])
def test_resolution_is_checked(ask, sent, value):
    assert "size" in refused(ask, "encode", sent, model=MODEL, size=value)


@pytest.mark.parametrize("value", [*WRONG, 0, 1.01])
def test_mass_is_checked(ask, token, value):
    assert "mass" in refused(ask, "mask", token, mass=value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("attention", {"block": 99}),
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
    ],
)
def test_impossible_arguments_get_one_sentence(ask, token, name, arguments):
    refused(ask, name, token, **arguments)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("encode", '"{sent}", "{model}", {value}'),
        ("attention", '"{token}", {value}, null'),
        ("attention", '"{token}", -1, [{value}, 0]'),
        ("mask", '"{token}", {value}, "mean", false, null'),
        ("discover", '"{token}", "several", {value}, false'),
    ],
)
def test_numbers_that_json_does_not_know_get_one_sentence(address, token, sent, value, name, arguments):
    """Clients that keep to the standard cannot send them, so this one is written by hand."""
    body = '{"data": [' + arguments.format(token=token, sent=sent, model=MODEL, value=value) + "]}"
    json = {"Content-Type": "application/json"}
    called = httpx.post(f"{address}/gradio_api/call/{name}", content=body, headers=json, timeout=30)
    told = called.text
    if called.status_code == 200:
        told = httpx.get(f"{address}/gradio_api/call/{name}/{called.json()['event_id']}", timeout=30).text
        assert "event: error" in told
        assert "must be" in told
    assert "Traceback" not in told
    assert str(ROOT) not in told


@pytest.mark.parametrize("wrong", ["guessed", "", "../..", None, 5, {"path": "/etc/passwd"}])
@pytest.mark.parametrize("name", ["attention", "mask", "discover"])
def test_who_does_not_know_the_token_learns_nothing(ask, name, wrong):
    refused(ask, name, wrong)


def test_the_pages_own_events_have_no_names(address):
    named = Client(address, verbose=False).view_api(return_format="dict")
    assert named["unnamed_endpoints"] == {}
    assert not any(name.startswith(("/open", "/look")) for name in named["named_endpoints"])


# --- arguments, without a server


@pytest.mark.parametrize("value", [*WRONG, *NOT_FINITE])
def test_numbers_are_finite_and_within_bounds(value):
    with pytest.raises(LabError, match="from 0 to 1"):
        number("mass", value, 0, 1)
    with pytest.raises(LabError, match="whole number"):
        whole("count", value, 0, 1)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.randoms(use_true_random=False))
def test_run_lengths_of_strangers_decode_to_the_mask_they_were_made_of(height, width, random):
    mask = np.array([[random.random() < 0.5 for _ in range(width)] for _ in range(height)])
    encoded = dict(rle(mask))
    assert sum(run_lengths(encoded["counts"])) == mask.size
    np.testing.assert_array_equal(mask_of(encoded, mask.shape), mask)


@settings(deadline=None)
@given(st.text(alphabet="".join(map(chr, range(40, 120))), max_size=30))
def test_any_other_text_is_refused_or_covers_the_picture(counts):
    try:
        mask_of({"size": [6, 7], "counts": counts}, (6, 7))
    except LabError:
        return
    runs = run_lengths(counts)
    assert sum(runs) == 42
    assert min(runs) >= 0
