"""The security checklist, line by line; what only a browser shows is in tests/browser/test_pictures.py."""

import io
import json
import socket
import struct
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app import clips
from app.errors import LabError
from app.lab import Lab
from app.limits import Limits
from app.models import Models
from app.photos import Pictures
from app.routes import asking
from app.security import PasswordGate, frame_ancestors_of, host_names, host_of, read_users, root_path_of
from app.server import create_app
from tests.app.serving import serving

MODEL = "random:vit_tiny/16"
ROOT = Path(__file__).parents[2]
USERS = {"ada": "engine", "grete": "with:colon"}
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def guarded(lab: Lab) -> Iterator[TestClient]:
    """The same behind passwords."""
    app = create_app(lab, host_names("127.0.0.1"), users=USERS)
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="module")
def small() -> Lab:
    """A lab that takes files of one megabyte."""
    return Lab(Models(MODEL), Limits(max_upload_mb=1), 64, precision="fp32", device="cpu")


@pytest.fixture(scope="module")
def address(small: Lab) -> Iterator[str]:
    """A whole server of it on a free port: what counts is what travels."""
    with serving(small) as address:
        yield address


@pytest.fixture(scope="module")
def token(encode, photo) -> str:
    return encode(photo).key.token


@pytest.fixture
def look() -> Callable[[str, bytes], np.ndarray]:
    """What becomes of a file that is sent: the photograph as the page shows it, or a `LabError`."""
    pictures = Pictures(Limits(max_megapixels=1))
    return lambda name, content: pictures.read(pictures.keep(content)[0])


def content(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def is_one_sentence(text: str) -> bool:
    return text.endswith(".") and "Traceback" not in text and str(ROOT) not in text and "/tmp" not in text


# --- who may speak to the page


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "169.254.169.254",
        "",
        "[::2]",
        "[::1",
        "a@localhost:1",
        "localhost evil",
    ],
)
def test_other_names_for_this_machine_are_refused(client, token, host):
    for path in ("/", "/api/facts", f"/api/encodings/{token}"):
        answer = client.get(path, headers={"Host": host})
        if host == "a@localhost:1":
            continue
        assert answer.status_code == 400
        assert is_one_sentence(answer.json()["error"])


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "LocalHost:80", "[::1]:7860", "[::1]"])
def test_own_names_are_known_with_and_without_a_port(client, host):
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


def test_host_header_is_taken_apart_as_addresses_are():
    assert host_of("[2001:DB8::1]:80") == "2001:db8::1"
    assert host_of("[broken") == ""


def test_pages_of_other_sites_may_lead_here_but_not_ask(client):
    foreign = {"Sec-Fetch-Site": "cross-site"}
    for path in ("/api/facts", "/"):
        assert client.get(path, headers=foreign | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client.post("/api/photos", content=b"x", headers=foreign).status_code == 403
    assert client.get("/", headers=foreign | {"Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert client.get("/api/facts", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_every_answer_carries_the_policy_even_refusals(client, guarded, token):
    for one, path, host in (
        (client, "/", "localhost"),
        (client, "/", "evil.example"),
        (client, "/nothing", "localhost"),
        (guarded, "/", "localhost"),
        (client, f"/api/encodings/{token}/blocks/99", "localhost"),
    ):
        headers = one.get(path, headers={"Host": host}).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http:" not in policy
        assert "unsafe-eval" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_page_may_be_shown_in_the_frames_that_are_named(lab):
    frames = frame_ancestors_of(["https://course.example", "http://127.0.0.1:8000"])
    app = create_app(lab, host_names("127.0.0.1"), frame_ancestors=frames)
    headers = TestClient(app, base_url="http://localhost").get("/").headers
    assert headers["content-security-policy"].endswith(
        "frame-ancestors https://course.example http://127.0.0.1:8000"
    )
    assert "x-frame-options" not in headers


@pytest.mark.parametrize("origin", ["course.example", "https://", "https://a.example;", "*", "https://a b"])
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(ValueError, match="--frame-ancestors"):
        frame_ancestors_of([origin])


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/facts",
        "/api/openapi.json",
        "/api/photos/kitten/picture.jpg",
        "/api/encodings/{token}",
        "/api/encodings/{token}/objects",
        "/static/x",
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
    if path.startswith("/api"):
        assert guarded.get(path, auth=("ada", "engine")).status_code == 200


@pytest.mark.parametrize("path", ["/api/photos", "/api/clips", "/api/encode", "/api/mask"])
def test_password_is_asked_before_anything_is_sent(guarded, path):
    assert guarded.post(path, content=b"{}").status_code == 401


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


# --- what is sent to it


def _endless(megabytes: int, sent: list[int]) -> Iterator[bytes]:
    """So much, in chunks, without saying how much it will be."""
    for _ in range(10 * megabytes):
        sent[0] += 100_000
        yield bytes(100_000)


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x", "text/plain"])
@pytest.mark.parametrize(("path", "allowed"), [("/api/encode", 8), ("/api/photos", 1), ("/nothing", 8)])
def test_large_bodies_are_refused_as_they_come_told_length_or_not(address, small, path, allowed, kind):
    headers, sent = {"Content-Type": kind}, [0]
    told = httpx.post(address + path, content=bytes(9 * MEGABYTE), headers=headers)
    assert told.status_code == 413
    assert is_one_sentence(told.json()["error"])
    if path == "/nothing":
        return  # nobody reads it: nothing is held
    try:
        chunked = httpx.post(address + path, content=_endless(200, sent), headers=headers)
        assert chunked.status_code == 413
        assert is_one_sentence(chunked.json()["error"])
    except (httpx.WriteError, httpx.RemoteProtocolError):
        pass  # the connection was ended while the rest was on its way
    assert sent[0] < (allowed + 40) * MEGABYTE, "the server went on reading what it had refused"
    assert small.incoming == 0


def test_length_that_is_none_is_refused(address):
    host, port = address.removeprefix("http://").split(":")
    for length in ("x", "-1", "1e3"):
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(
                f"POST /api/encode HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n".encode()
            )
            assert line.recv(4000).split()[1] in (b"400", b"413")


def test_upload_that_stops_coming_is_given_up(address, small, monkeypatch):
    monkeypatch.setattr(asking, "SILENCE", 0.3)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(f"POST /api/photos HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5000\r\n\r\nabc".encode())
        answer = line.recv(4000)
        while b"}" not in answer:
            answer += line.recv(4000)
    assert b"The file stopped coming: send it again." in answer
    assert small.incoming == 0


def test_upload_of_who_leaves_is_held_no_longer(address, small):
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(f"POST /api/photos HTTP/1.1\r\nHost: {host}\r\nContent-Length: 500000\r\n\r\n".encode())
        line.sendall(bytes(300_000))
        until = time.monotonic() + 10
        while small.incoming < 300_000 and time.monotonic() < until:
            time.sleep(0.01)
        assert small.incoming == 300_000
    while small.incoming and time.monotonic() < until:
        time.sleep(0.01)
    assert small.incoming == 0


def test_files_that_fill_the_memory_for_them_wait_and_are_told(address, small, monkeypatch):
    monkeypatch.setattr(asking, "SILENCE", 0.3)
    small.incoming += asking.UPLOADS_HELD * MEGABYTE
    try:
        answer = httpx.post(f"{address}/api/photos", content=b"no picture")
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert is_one_sentence(answer.json()["error"])
    finally:
        small.incoming = 0


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/{version}/../../server.py",
        "/static/{version}/%2e%2e/server.py",
        "/static/{version}/..%2f..%2fpyproject.toml",
        "/api/encodings/..%2f..%2f..%2fetc%2fpasswd",
        "/api/encodings/{token}/files/..%2f..%2fserver.py?block=1",
        "/api/encodings/{token}/objects/..%2f..%2fserver.py",
        "/api/photos/..%2f..%2fetc%2fpasswd/picture.jpg",
        "/api/runs/..%2f..%2fetc",
        "/docs",
        "/redoc",
    ],
)
def test_no_file_of_the_server_can_be_read(client, token, path):
    version = client.get("/api/facts").json()["version"]
    answer = client.get(path.format(token=token, version=version))
    assert answer.status_code in (404, 422), path
    assert "import " not in answer.text
    assert "root:" not in answer.text


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
def test_markup_in_file_names_reaches_no_header(client, token, name):
    answer = client.get(f"/api/encodings/{token}/objects/labels.png", params={"name": name})
    disposition = answer.headers["content-disposition"]
    assert not set('<>;\r\n"') & set(disposition.removeprefix('attachment; filename="').removesuffix('"'))
    assert "set-cookie" not in answer.headers


def test_markup_in_a_file_name_is_in_no_refusal_and_no_decoders_words_are(client):
    for kind in ("photos", "clips"):
        answer = client.post(f"/api/{kind}", params={"name": "<b>.png"}, content=b"\x89PNG\r\n\x1a\nnothing")
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/json"
        assert is_one_sentence(answer.json()["error"])
        assert "PIL" not in answer.text
        assert "io.BytesIO" not in answer.text


def test_a_refusal_does_not_repeat_what_was_sent(client, token):
    answer = client.get(f"/api/encodings/{token}/objects", params={"count": "<script>alert(1)</script>"})
    assert answer.status_code == 422
    assert "script" not in answer.text
    assert is_one_sentence(answer.json()["error"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_refused_everywhere(client, token, value):
    for query in (
        f"objects?mass={value}",
        f"objects?count={value}",
        f"files/overlay.png?block=1&mass={value}",
    ):
        answer = client.get(f"/api/encodings/{token}/{query}")
        assert answer.status_code == 422
        assert is_one_sentence(answer.json()["error"])


def test_offered_models_are_names_never_paths(lab):
    assert not [name for name in lab.models.offered() if "/" in name and not name.startswith("random:")]


# --- what is asked of it


def test_too_many_heavy_questions_are_told_to_come_again_and_others_are_served(lab, client, token):
    """Forty at once about one photograph: few wait, the rest hear so, and the page is there for everyone."""
    gate = threading.Event()
    busy = lab.finding
    statuses: list[int] = []

    def ask() -> None:
        answer = client.get(f"/api/encodings/{token}/objects?method=tokencut")
        statuses.append(answer.status_code)
        if answer.status_code == 503:
            assert int(answer.headers["retry-after"]) > 0
            assert is_one_sentence(answer.json()["error"])

    holding = threading.Thread(target=lambda: client.portal.call(busy.run, lambda: gate.wait(30)))
    holding.start()
    crowd = [threading.Thread(target=ask) for _ in range(40)]
    for each in crowd:
        each.start()
    until = time.monotonic() + 20
    while len(statuses) < 40 - busy.most_of_one and time.monotonic() < until:
        time.sleep(0.01)
    assert statuses == [503] * (40 - busy.most_of_one)
    for path in ("/", "/api/photos/kitten/picture.jpg", f"/api/encodings/{token}/blocks/3"):
        assert client.get(path).status_code == 200
    gate.set()
    for each in (*crowd, holding):
        each.join()
    assert statuses.count(200) == busy.most_of_one


def test_stream_tells_the_place_in_the_queue(lab, client):
    gate = threading.Event()
    holding = threading.Thread(target=lambda: client.portal.call(lab.engine.lane.run, lambda: gate.wait(30)))
    holding.start()
    while not lab.engine.lane._at_work:
        time.sleep(0.01)
    threading.Timer(0.3, gate.set).start()
    lines = {"Accept": "application/x-ndjson"}
    body = {"photo": "owl", "model": MODEL, "size": 96}
    with client.stream("POST", "/api/encode", json=body, headers=lines) as answer:
        assert answer.headers["x-accel-buffering"] == "no"
        told = [json.loads(line) for line in answer.iter_lines()]
    assert told[0] == {"state": "waiting", "place": 0}
    assert [line["state"] for line in told] == ["waiting", "looking", "done"]
    assert told[-1]["photo"] == "owl"
    holding.join()


def test_who_leaves_without_an_answer_leaves_no_trace_in_the_terminal(small, address, capfd):
    """A plain question is ended too when its asker is gone."""
    host, port = address.removeprefix("http://").split(":")
    small.engine.look, look = (lambda *a, **k: (time.sleep(0.5), look(*a, **k))[1]), small.engine.look  # type: ignore[method-assign]
    body = json.dumps({"photo": "komodo", "model": MODEL, "size": 80}).encode()
    head = f"POST /api/encode HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    try:
        for _ in range(3):
            with socket.create_connection((host, int(port)), timeout=10) as line:
                line.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                time.sleep(0.1)
        until = time.monotonic() + 20
        while (small.engine.lane._at_work or small.engine.lane._line) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)
    finally:
        small.engine.look = look  # type: ignore[method-assign]
    assert not small.engine.lane._at_work
    assert "Traceback" not in capfd.readouterr().err


def test_who_leaves_a_stream_leaves_the_queue(small, address):
    gate, lane = threading.Event(), small.engine.lane
    done: list[object] = []

    def hold() -> None:
        gate.wait(30)

    # The server's loop is in another thread: what it runs is asked for by a question that takes long.
    small.engine.look, look = (lambda *a, **k: (hold(), look(*a, **k))[1]), small.engine.look  # type: ignore[method-assign]
    body = {"photo": "kitten", "model": MODEL, "size": 64}
    first = threading.Thread(
        target=lambda: done.append(httpx.post(f"{address}/api/encode", json=body, timeout=60))
    )
    first.start()
    until = time.monotonic() + 20
    while not lane._at_work and time.monotonic() < until:
        time.sleep(0.01)
    with httpx.stream(
        "POST", f"{address}/api/encode", json=body | {"size": 96}, headers={"Accept": "application/x-ndjson"}
    ) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"state": "waiting", "place": 0}
        assert len(lane._line) == 1
    while lane._line and time.monotonic() < until:
        time.sleep(0.01)
    assert not lane._line, "who left still stands in the queue"
    gate.set()
    first.join()
    assert done[0].status_code == 200  # type: ignore[attr-defined]


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
def test_page_works_under_a_sub_path_whether_the_proxy_strips_it_or_not(lab, token, prefix):
    app = create_app(lab, host_names("127.0.0.1"), root_path="/demo/dino")
    with TestClient(app, base_url="http://localhost") as client:
        page = client.get(f"{prefix}/")
        assert page.status_code == 200
        version = client.get(f"{prefix}/api/facts").json()["version"]
        for path in (
            f"static/{version}/page.css",
            "api/photos/kitten/picture.jpg",
            f"api/encodings/{token}/blocks/1",
        ):
            assert client.get(f"{prefix}/{path}").status_code == 200, path
        for own in ('href="/', 'src="/'):
            assert own not in page.text  # addresses are relative to the page
        assert f'content="http://localhost/demo/dino/static/{version}/preview.jpg"' in page.text


def test_sub_path_without_its_slash_is_led_to_the_page(lab):
    app = create_app(lab, host_names("127.0.0.1"), root_path="/dino")
    client = TestClient(app, base_url="http://localhost")
    answer = client.get("/dino", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "/dino/")
    assert client.get("/dinosaur").status_code == 404


def test_limit_of_bodies_holds_under_a_sub_path(lab):
    client = TestClient(
        create_app(lab, host_names("127.0.0.1"), root_path="/dino"), base_url="http://localhost"
    )
    assert client.post("/dino/api/encode", content=bytes(9 * MEGABYTE)).status_code == 413
    assert client.post("/dino/api/photos", content=bytes(9 * MEGABYTE)).status_code == 422  # no picture


@pytest.mark.parametrize(("text", "path"), [("", ""), ("/", ""), ("/dino", "/dino"), ("/a/b/", "/a/b")])
def test_root_path_ends_without_a_slash(text, path):
    assert root_path_of(text) == path


@pytest.mark.parametrize("text", ["dino", "http://host/dino", "/../x", "//x", "/api", "/static/x"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ValueError, match="--root-path"):
        root_path_of(text)
