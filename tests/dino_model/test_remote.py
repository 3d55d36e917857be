"""Shards elsewhere: read in ranges, kept up to a bound."""

import fsspec
import pytest

from dino_model import remote
from dino_model.images import ImageError, ShardError, open_images
from tests.dino_model.test_shards import png, write


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["memory", "file"])
def shards(request, tmp_path):
    """Where two shards of two pictures lie, as URLs."""
    root = f"memory://bucket{tmp_path}" if request.param == "memory" else f"file://{tmp_path}/bucket"
    system, place = fsspec.url_to_fs(root)
    system.makedirs(place)
    for number in range(2):
        members = {f"{i}.png": png(2 * number + i) for i in range(2)}
        system.put_file(str(write(tmp_path / "made" / f"{number}.tar", members)), f"{place}/{number}.tar")
    return root


def values(images):
    return [int(images.read(i)[0, 0, 0]) for i in range(len(images))]


@pytest.mark.parametrize("pattern", ["*.tar", "{0..1}.tar"])
def test_patterns_of_urls_are_collections_as_those_of_files(shards, tmp_path, pattern):
    images = open_images(f"{shards}/{pattern}")
    assert images.names == ("0/0.png", "0/1.png", "1/0.png", "1/1.png")
    assert values(images) == [0, 1, 2, 3]
    assert images.inventory() == open_images(str(tmp_path / "made" / "*.tar")).inventory()
    (tmp_path / "list.txt").write_text(f"{shards}/1.tar\n")
    assert values(open_images(tmp_path / "list.txt")) == [2, 3]


def test_what_was_fetched_is_not_fetched_again(shards, monkeypatch):
    images = open_images(f"{shards}/*.tar")
    first = values(images)
    monkeypatch.setattr(remote.fsspec, "url_to_fs", lambda url: pytest.fail("fetched again"))
    assert values(images) == first


def test_no_more_is_kept_than_there_is_room_for(tmp_path, monkeypatch):
    system, _ = fsspec.url_to_fs("memory://")
    system.pipe("/many", bytes(range(200)) * 10)
    monkeypatch.setattr(remote, "BUCKETS", 1)
    monkeypatch.setenv("DINO_SHARD_CACHE", str(300 / 1e9))
    monkeypatch.setattr(
        remote, "sha256", lambda text: type("One", (), {"hexdigest": lambda _: "aa" + text.hex()[-40:]})()
    )
    for offset in range(0, 1000, 100):
        assert remote.read("memory://many", offset, 100, 1) == (bytes(range(200)) * 10)[offset : offset + 100]
    kept = sorted(path.read_bytes()[0] for path in (tmp_path / "cache" / "shards" / "aa").iterdir())
    assert kept == [0, 100, 100]  # the last three
    assert remote.read("memory://many", 0, 400, 1)  # more than there is room for
    assert len(list((tmp_path / "cache" / "shards" / "aa").iterdir())) == 3


def test_what_is_not_there_is_named(shards, monkeypatch):
    with pytest.raises(ImageError, match=r"2\.tar cannot be opened"):
        open_images(f"{shards}/{{0..2}}.tar")
    with pytest.raises(ImageError, match="nowhere://"):
        open_images("nowhere://bucket/{0..1}.tar")
    images = open_images(f"{shards}/*.tar")
    system, place = fsspec.url_to_fs(f"{shards}/1.tar")
    system.rm(place)
    with pytest.raises(ShardError, match=r"1\.tar cannot be opened.*reading 1/0\.png"):
        images.read(2)
    monkeypatch.setenv("DINO_SHARD_CACHE", "much")
    with pytest.raises(ShardError, match="DINO_SHARD_CACHE is 'much'"):
        images.read(0)


def test_what_is_cut_short_is_asked_for_again(shards, tmp_path):
    url = f"{shards}/0.tar"
    with fsspec.open(url, "rb") as file:
        whole = file.read()
    assert len(remote.read(url, 0, len(whole) + 5, 1)) == len(whole)  # as a truncated answer
    assert not list((tmp_path / "cache").rglob("*"))
    remote.read(url, 0, len(whole), 1)
    assert len([path for path in (tmp_path / "cache").rglob("*") if path.is_file()]) == 1


def test_where_nothing_can_be_kept_it_is_read_all_the_same(shards, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert len(remote.read(f"{shards}/0.tar", 0, 512, 1)) == 512
