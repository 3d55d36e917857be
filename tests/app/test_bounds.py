"""The folder of uploads: bounded, private, removed; no other file can be read through it."""

import math
import os
import re
import time
from pathlib import Path

import pytest

from app.handlers.api import RunLengths
from app.handlers.own import Named, Sent
from app.limits import bounds
from app.limits.bounds import BoundedCache, Limits, take_upload, temporary_folder, trim
from app.limits.errors import LabError
from app.store.engine import Key, NotHere
from app.tabs.video import Marking


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a test is not that of the next one."""
    monkeypatch.setenv(bounds.VARIABLE, "")


def test_folder_is_private_trimmed_while_it_is_used_and_removed_at_the_end(monkeypatch):
    monkeypatch.setattr(bounds, "TRIM_SECONDS", 0.02)
    with temporary_folder(100) as folder:
        assert os.environ[bounds.VARIABLE] == str(folder)
        assert folder.stat().st_mode & 0o077 == 0
        large = folder / "large"
        large.write_bytes(bytes(200))
        until = time.monotonic() + 10
        while large.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not large.exists()
    assert not folder.exists()


def test_limits_have_their_defaults_and_are_1_or_more():
    """Uploads: the proxy of deploy/nginx.conf takes four of them. A frame of 4K has 3840 × 2160 pixels."""
    proxy = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text()
    (largest,) = re.findall(r"client_max_body_size (\d+)m;", proxy)
    assert vars(Limits()) == {
        "max_upload_mb": int(largest) / 4,
        "max_megapixels": 50,
        "max_patches": 64 * 128,
        "max_memory_mb": 1000,
        "max_weights_mb": 2000,
        "max_waiting": 64,
        "max_frames": 120,
        "max_clip_seconds": 10,
        "max_frame_megapixels": math.ceil(3840 * 2160 / 1e6),
        "max_clips_mb": 400,
        "max_disk_mb": 1000,
        "max_requests_per_address": 400,
        "max_calls_per_address": 8,
    }
    for name in vars(Limits()):
        assert getattr(Limits(**{name: 1}), name) == 1
        with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} is 0, expected at least 1"):
            Limits(**{name: 0})
    assert Limits(max_upload_mb=3).max_upload_bytes == 3_000_000


def test_cache_holds_its_capacity_and_drops_the_least_recently_used():
    cache = BoundedCache[str, int](10)
    assert cache.put("a", 1, 4) == cache.put("b", 2, 6) == []
    assert cache.get("a") == 1  # used
    assert cache.put("c", 3, 1) == [2]
    assert (cache.weight, cache.get("b")) == (5, None)
    assert cache.put("a", 4, 9) == []  # replaced
    assert cache.weight == 10
    with cache.pinned(["a"]):
        assert cache.put("d", 5, 1) == [3]
    assert cache.put("e", 6, 99) == [4, 5]
    assert (cache.weight, cache.get("e")) == (99, 6)  # the newest stays
    cache.drop(lambda key, value: key == "e" and value == 6)
    assert cache.weight == 0


def test_oldest_files_are_deleted_beyond_the_limit(tmp_path):
    for age, name in ((30, "a/old"), (20, "b/middle"), (10, "c/new")):
        file = tmp_path / name
        file.parent.mkdir()
        file.write_bytes(bytes(100))
        os.utime(file, (time.time() - age,) * 2)
    for limit, names in ((300, {"old", "middle", "new"}), (250, {"middle", "new"}), (0, set())):
        trim(tmp_path, limit)
        assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == names


def test_only_files_of_the_folder_are_read_and_then_deleted(tmp_path, monkeypatch):
    from app.limits.errors import LabError

    folder, secret = tmp_path / "uploads", tmp_path / "secret"
    folder.mkdir()
    monkeypatch.setenv(bounds.VARIABLE, str(folder))
    mine = folder / "mine"
    mine.write_bytes(b"mine")
    assert take_upload(str(mine), 4) == b"mine"
    assert not mine.exists()
    mine.write_bytes(b"mine")
    with pytest.raises(LabError, match="larger than"):
        take_upload(str(mine), 3)
    assert not mine.exists()
    secret.write_bytes(b"secret")
    (folder / "link").symlink_to(secret)
    others = (secret, folder / "link", folder / ".." / "secret", folder, folder / "gone")
    for path in (*map(str, others), None, [], "", "\0", "https://example.com/a.png"):
        with pytest.raises(LabError, match=r"open it again\.$"):
            take_upload(path, 10)
    assert secret.exists()


@pytest.mark.parametrize(
    ("kind", "value", "field", "largest"),
    [
        (Sent, {"kind": "image", "path": "a"}, "title", "x" * 1000),
        (Named, {"kind": "image"}, "name", "x" * 1000),
        (RunLengths, {"counts": "0"}, "size", [4, 6]),
        (Marking, {"clip": "a", "run": 0}, "marks", [{"frame": 0, "runs": [], "objects": []}] * 1000),
    ],
)
def test_value_of_a_client_is_bounded(kind, value, field, largest):
    kind.of(value | {field: largest})
    with pytest.raises(LabError):
        kind.of(value | {field: largest + largest[:1]})


@pytest.mark.parametrize("size", [-1, 0, 1, 10**6 - 1, 10**6])
def test_token_has_a_size_in_pixels(size):
    key = Key("a", "embedded", size)
    if 0 < size < 10**6:
        assert Key.of(key.token) == key
    else:
        with pytest.raises(NotHere):
            Key.of(key.token)
