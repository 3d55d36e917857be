"""The security checklist, line by line; what only a browser shows is in tests/browser/test_pictures.py."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app import clips, photos
from app.api import Api
from app.engine import LabError
from app.limits import Limits
from app.security import PasswordGate, host_names, read_users, root_path_of
from app.server import create_app

MODEL = "random:vit_tiny/16"
ROOT = Path(__file__).parents[2]
USERS = {"ada": "engine", "grete": "with:colon"}
MAX_PIXELS = 1_000_000


@pytest.fixture(scope="module")
def client(engine, start) -> Iterator[TestClient]:
    app = create_app(engine, start, host_names("127.0.0.1"))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="module")
def guarded(engine, start) -> Iterator[TestClient]:
    """The same behind passwords."""
    app = create_app(engine, start, host_names("127.0.0.1"), users=USERS)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="module")
def token(engine, photo) -> str:
    return engine.encode(photo, MODEL, 64)


@pytest.fixture
def look(engine, tmp_path) -> Callable[[str, bytes], np.ndarray]:
    """What becomes of an uploaded file: the photograph as the page shows it, or a `LabError`."""

    def bring(name: str, content: bytes) -> np.ndarray:
        path = tmp_path / name.replace("/", "_")
        path.write_bytes(content)
        return engine.encoding(
            engine.encode(photos.from_file(path, max_pixels=MAX_PIXELS), MODEL, 32)
        ).picture

    return bring


def content(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def is_one_sentence(text: str) -> bool:
    return text.endswith(".") and "Traceback" not in text and str(ROOT) not in text and "/tmp" not in text


# --- who may speak to the page


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "169.254.169.254", ""])
def test_other_names_for_this_machine_are_refused(client, host):
    for path in ("/", "/config", "/lab/static/page.css", "/gradio_api/info"):
        assert client.get(path, headers={"Host": host}).status_code == 400


def test_every_answer_carries_the_policy_even_refusals(client, guarded):
    for one, path in (
        (client, "/"),
        (client, "/lab/nothing"),
        (guarded, "/"),
        (client, "/gradio_api/file=/x"),
    ):
        headers = one.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "http:" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/config",
        "/theme.css",
        "/gradio_api/info",
        "/gradio_api/startup-events",
        "/lab/static/page.css",
        "/lab/encodings/{token}/picture.jpg",
        "/lab/encodings/{token}/objects/found",
        "/openapi.json",
        "/nothing",
    ],
)
def test_password_is_asked_for_everything(guarded, token, path):
    path = path.format(token=token)
    answer = guarded.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    for user, password in (
        ("ada", ""),
        ("ada", "Engine"),
        ("", ""),
        ("nobody", "engine"),
        ("ada", "with:colon"),
    ):
        assert guarded.get(path, auth=(user, password)).status_code == 401
    for pair in USERS.items():
        assert guarded.get(path, auth=pair).status_code != 401
    if path.startswith(("/lab", "/config")):
        assert guarded.get(path, auth=("ada", "engine")).status_code == 200


@pytest.mark.parametrize("path", ["/gradio_api/queue/join", "/gradio_api/upload", "/gradio_api/call/encode"])
def test_password_is_asked_before_anything_is_sent(guarded, path):
    assert guarded.post(path, json={"data": []}).status_code == 401


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Bearer YWRhOmVuZ2luZQ==", "Basic YWRh", "YWRhOmVuZ2luZQ=="]
)
def test_anything_but_a_users_password_is_refused(guarded, header):
    assert guarded.get("/", headers={"Authorization": header}).status_code == 401


def test_passwords_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    (tmp_path / "users").write_text("ada:engine\n\ngrete:with:colon\n")
    assert read_users(tmp_path / "users") == USERS
    monkeypatch.delenv("DINO_LAB_AUTH", raising=False)
    assert read_users(None) == {}
    monkeypatch.setenv("DINO_LAB_AUTH", "ada:engine")
    assert read_users(None) == {"ada": "engine"}


@pytest.mark.parametrize("text", ["", "ada", "ada:", ":engine", "\n"])
def test_a_file_without_users_does_not_open_the_page_to_all(tmp_path, text):
    (tmp_path / "users").write_text(text)
    with pytest.raises(ValueError, match="USER:PASSWORD"):
        read_users(tmp_path / "users")


def test_gate_without_matching_user_compares_nothing_away():
    gate = PasswordGate(lambda *_: None, {"ada": "engine"})  # type: ignore[arg-type, return-value]
    assert not gate._knows("Basic " + "Ym9iOg==")  # bob with an empty password


def test_gradio_keeps_nothing_and_tells_nobody(client):
    told = client.get("/config").json()
    for switch in ("analytics_enabled", "run_history", "show_error", "mcp_server"):
        assert told[switch] is False, switch
    assert told["footer_links"] == []
    (page,) = (
        route.app.get_blocks()
        for route in client.app.routes
        if isinstance(getattr(route, "app", None), gr.routes.App)
    )
    assert page.delete_cache == (600, 3600)  # seconds: looked for, and old enough to be removed
    assert page._queue.max_size == Limits().max_waiting >= 64
    assert not page.share
    assert not page.enable_monitoring
    assert not page.allowed_paths


def test_only_the_documented_endpoints_have_public_names(client):
    events = client.get("/config").json()["dependencies"]
    public = {event["api_name"] for event in events if event["api_visibility"] != "private"}
    assert public == {"encode", "attention", "mask", "discover", "propagate"}


# --- what is sent to it


def test_bodies_larger_than_an_upload_are_refused_before_they_are_read(client):
    length = {"Content-Length": str(10**9), "Content-Type": "application/json"}
    answer = client.post("/gradio_api/call/encode", content=b"{}", headers=length)
    assert answer.status_code == 413
    assert is_one_sentence(answer.json()["detail"])
    answer = client.post("/gradio_api/call/encode", content=iter([b"{", b"}"]))  # in chunks, without a length
    assert answer.status_code == 411


@pytest.mark.parametrize(
    "path",
    [
        "/lab/static/../server.py",
        "/lab/static/%2e%2e/server.py",
        "/lab/static/..%2f..%2fpyproject.toml",
        "/lab/encodings/..%2f..%2f..%2fetc%2fpasswd/picture.jpg",
        "/lab/encodings/{token}/..%2f..%2fserver.py",
        "/lab/encodings/{token}/objects/..%2f..%2fserver.py",
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=../../../../etc/passwd",
        "/gradio_api/file=app/server.py",
        "/static/../app/server.py",
    ],
)
def test_no_file_of_the_server_can_be_read(client, token, path):
    answer = client.get(path.format(token=token))
    assert answer.status_code in (401, 403, 404, 422), path
    assert "import " not in answer.text
    assert "root:" not in answer.text


def test_addresses_inside_are_not_fetched_for_a_visitor(client):
    for url in ("http://127.0.0.1:22/", "http://169.254.169.254/latest/meta-data", "file:///etc/passwd"):
        answer = client.get(f"/gradio_api/file={url}")
        assert answer.status_code in (403, 404)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("PNG", "a.png"),
        ("JPEG", "a.jpg"),
        ("WEBP", "a.webp"),
        ("BMP", "a.bmp"),
        ("TIFF", "a.tif"),
        ("GIF", "a.gif"),
    ],
)
def test_cut_short_files_are_refused_in_words(look, kind, name):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    whole = content(noise, kind)
    for length in (0, 1, 20, len(whole) // 2):
        with pytest.raises(LabError) as error:
            look(name, whole[:length])
        assert is_one_sentence(str(error.value))
        assert name in str(error.value)
    assert look(name, whole).shape == (64, 64, 3)  # and the server lives on


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"plain text",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.4",
        b"\x00" * 1000,
        b"PK\x03\x04",
    ],
)
def test_what_is_no_picture_is_refused_in_words(look, wrong):
    with pytest.raises(LabError) as error:
        look("claims.png", wrong)
    assert is_one_sentence(str(error.value))


def test_pixel_bombs_are_refused_before_they_are_decoded(look):
    """A PNG of a few bytes that claims 40,000 × 40,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 40_000, 40_000, 1, 0, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(LabError, match="too large"):
        look("bomb.png", bomb)
    with pytest.raises(LabError, match="too large"):
        look("large.png", content(Image.new("1", (1001, 1000)), "PNG"))


def test_ribbons_are_refused_by_their_patches(look):
    with pytest.raises(LabError, match="choose a lower resolution or crop it"):
        look("ribbon.png", content(Image.new("RGB", (60_000, 8)), "PNG"))


def test_every_kind_of_pixel_comes_out_right(look):
    ramp = np.repeat(np.linspace(0, 255, 64).astype(np.uint8)[None], 48, axis=0)
    kinds = {
        "sixteen_bit.png": content(Image.fromarray(ramp.astype(np.uint16) * 257), "PNG"),
        "cmyk.jpg": content(Image.fromarray(ramp).convert("CMYK"), "JPEG", quality=95),
        "palette.png": content(Image.fromarray(ramp).convert("P"), "PNG"),
        "grey.png": content(Image.fromarray(ramp), "PNG"),
    }
    for name, file in kinds.items():
        difference = np.abs(look(name, file).astype(int) - ramp[..., None])
        assert difference.max() < 12, name


def test_rotation_of_cameras_is_applied(look):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert look("rotated.jpg", content(Image.new("RGB", (60, 40)), "JPEG", exif=exif)).shape == (60, 40, 3)


def test_animations_show_their_first_frame(look):
    frames = [Image.new("RGB", (20, 20), color) for color in ("red", "lime")]
    for kind in ("GIF", "PNG", "WEBP"):
        film = content(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)
        red, green, _ = look(f"moving.{kind.lower()}", film).reshape(-1, 3).mean(axis=0)
        assert red > 200 > 60 > green


@pytest.mark.parametrize("name", ["<img src=x onerror=boom()>.png", '"; drop.png', "a\r\nSet-Cookie: b.png"])
def test_markup_in_file_names_reaches_no_header_and_no_page(client, engine, tmp_path, name):
    photo = photos.Photo(name, f"named:{name}", lambda: np.zeros((32, 32, 3), np.uint8))
    answer = client.get(f"/lab/encodings/{engine.encode(photo, MODEL, 32)}/objects/labels.png")
    disposition = answer.headers["content-disposition"]
    assert not set('<>;\r\n"') & set(disposition.removeprefix('attachment; filename="').removesuffix('"'))
    assert "set-cookie" not in answer.headers


def test_a_refusal_does_not_repeat_what_was_sent(client, token):
    answer = client.get(
        f"/lab/encodings/{token}/objects/found", params={"count": "<script>alert(1)</script>"}
    )
    assert answer.status_code == 422
    assert "script" not in answer.text
    assert is_one_sentence(answer.json()["detail"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_refused_everywhere(engine, client, token, value):
    api = Api(engine)
    asked = [
        lambda: api.mask(token, mass=value),
        lambda: api.attention(token, block=value),  # type: ignore[arg-type]
        lambda: api.discover(token, count=value),  # type: ignore[arg-type]
    ]
    for ask in asked:
        with pytest.raises(LabError, match="must be"):
            ask()
    for query in (
        f"objects/found?mass={value}",
        f"objects/found?count={value}",
        f"overlay.png?block=1&mass={value}",
    ):
        answer = client.get(f"/lab/encodings/{token}/{query}")
        assert answer.status_code == 422
        assert is_one_sentence(answer.json()["detail"])


@pytest.mark.parametrize(
    "model", ["/etc/passwd", "../x.pth", "https://evil.example/x.pth", "hf-hub:a/b", "vit_small"]
)
def test_models_are_names_of_the_list_never_paths_or_addresses(engine, photo, model):
    with pytest.raises(LabError, match="no model of that name"):
        engine.encode(photo, model, 64)
    assert not [name for name in engine.models if "/" in name and not name.startswith("random:")]


# --- clips


def test_zip_bombs_and_zip_names_are_refused(tmp_path):
    limits = Limits(max_upload_mb=1)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.png", bytes(20_000_000))
    with zipfile.ZipFile(tmp_path / "names.zip", "w") as archive:
        for name in ("../../1.png", "/etc/2.png"):
            archive.writestr(name, content(Image.new("RGB", (8, 8)), "PNG"))
    for name in ("bomb.zip", "names.zip"):
        with pytest.raises(LabError) as error:
            clips.read(tmp_path / name, limits)
        assert is_one_sentence(str(error.value))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bomb.zip",
        "names.zip",
    ]  # nothing was unpacked


# --- behind a proxy


@pytest.mark.parametrize("prefix", ["", "/demo/dino"])
def test_page_works_under_a_sub_path_whether_the_proxy_strips_it_or_not(engine, start, photo, prefix):
    app = create_app(engine, start, host_names("127.0.0.1"), root_path="/demo/dino")
    token = engine.encode(photo, MODEL, 64)
    with TestClient(app, base_url="http://localhost") as client:
        page = client.get(f"{prefix}/")
        assert page.status_code == 200
        for path in (
            "config",
            "lab/static/page.css",
            "lab/static/segment.js",
            f"lab/encodings/{token}/picture.jpg",
        ):
            assert client.get(f"{prefix}/{path}").status_code == 200, path
        assert client.get(f"{prefix}/config").json()["root"].endswith("/demo/dino")
        assert 'href="/lab' not in page.text  # addresses of ours are relative to the page


@pytest.mark.parametrize(("text", "path"), [("", ""), ("/", ""), ("/dino", "/dino"), ("/a/b/", "/a/b")])
def test_root_path_ends_without_a_slash(text, path):
    assert root_path_of(text) == path


@pytest.mark.parametrize("text", ["dino", "http://host/dino", "/../x", "//x", "/lab", "/gradio_api/x"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ValueError, match="--root-path"):
        root_path_of(text)
