"""The folder of uploads: bounded, private, removed; no other file can be read through it."""

import os
import time

import pytest

from app.limits import bounds
from app.limits.bounds import take_upload, temporary_folder, trim
from app.limits.errors import LabError


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a test is not that of the next one."""
    monkeypatch.setenv(bounds.VARIABLE, "")


def test_folder_is_private_trimmed_while_it_is_used_and_removed_at_the_end(monkeypatch):
    monkeypatch.setattr(bounds, "TRIM_SECONDS", 0.02)
    with temporary_folder(100) as folder:
        assert os.environ[bounds.VARIABLE] == str(folder)
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "a").mkdir()
        (folder / "a" / "large").write_bytes(bytes(200))
        until = time.monotonic() + 10
        while (folder / "a" / "large").exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not (folder / "a" / "large").exists()
        (folder / "a" / "small").write_bytes(b"x")
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


def test_only_files_of_the_folder_are_read(tmp_path, monkeypatch):
    folder = tmp_path / "uploads"
    folder.mkdir()
    monkeypatch.setenv(bounds.VARIABLE, str(folder))
    (folder / "mine").write_bytes(b"mine")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    assert take_upload(str(folder / "mine"), 10) == b"mine"
    assert not (folder / "mine").exists()  # memory has it
    (folder / "mine").write_bytes(b"mine")
    with pytest.raises(LabError, match="larger than"):
        take_upload(str(folder / "mine"), 3)
    assert not (folder / "mine").exists()
    others = (tmp_path / "secret", folder / "link", folder / ".." / "secret", folder, folder / "gone")
    for path in (*map(str, others), None, [], "", "\0", "https://example.com/a.png"):
        with pytest.raises(LabError, match=r"open it again\.$"):
            take_upload(path, 10)
    assert (tmp_path / "secret").exists()
