"""The folder of uploads: bounded, private, removed; no other file can be read through it."""

import os
import time

import pytest

from app.limits import bounds
from app.limits.bounds import take_upload, temporary_folder, trim


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
    assert take_upload(str(mine), 10) == b"mine"
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
