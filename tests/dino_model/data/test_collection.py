"""Folders, tars, lists, patterns and remote shards as one sequence of images."""

import os
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest

from dino_model.data import collection, remote
from dino_model.data.channels import ChannelRange
from dino_model.data.classes import LabelOptions, Row
from dino_model.data.collection import Images, ShardError, make_table, open_images
from dino_model.data.folders import read_folder
from dino_model.data.images import ImageError
from tests.dino_model.data.samples import make_folder, make_tar

PETS = {"cat/a.PNG": 0, "cat/b.png": 40, "cat/c.jpg": 80, "dog/a.png": 120, "dog/b.webp": 160}
OF_SOURCES = LabelOptions(sources="classes")


def values(images: Images) -> list[int]:
    return [int(images.read(i)[0, 0, 0]) for i in range(len(images))]


def columns(images: Images) -> tuple:
    return tuple(images.names), images.labels, images.classes


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three cats, two dogs, and files that are no images."""
    return make_folder(make_folder(tmp_path / "pets", PETS), "readme.txt dog/._a.png")


def pack(folder: Path, top: str = "pets", mode: str = "w") -> Path:
    with tarfile.open(folder.parent / "pets.tar", mode) as archive:
        archive.add(folder, arcname=top)
    return folder.parent / "pets.tar"


@pytest.fixture(params=["folder", "tar"])
def source(request: pytest.FixtureRequest, pets: Path) -> Path:
    return pets if request.param == "folder" else pack(pets)


def test_folder_is_sorted_labeled_and_without_hidden_folders_and_links_that_lead_up(pets: Path):
    (pets / "cat" / "up").symlink_to(pets, target_is_directory=True)
    found = open_images(pets)
    assert columns(found) == (tuple(PETS), (0, 0, 0, 1, 1), ("cat", "dog"))
    assert all(found.names != other for other in ((*PETS, "x"), tuple(PETS)[:4], tuple(PETS)[::-1], 5))
    assert (found.notes, found.read(0).shape) == (("2 other files ignored",), (4, 5, 3))
    make_folder(pets, ".cache/z.png")
    (pets / "linked").symlink_to(make_folder(pets.parent / "aside", "z.png"), target_is_directory=True)
    (pets / "link.png").symlink_to(pets / "cat" / "b.png")
    found = open_images(pets)
    assert (found.names, found.notes[0]) == ((*PETS, "link.png", "linked/z.png"), "2 other files ignored")
    places = dict(zip(found.names, found.places(), strict=True))
    assert places["link.png"] == places["cat/b.png"] != places["cat/c.jpg"]


@pytest.mark.parametrize(
    "folder",
    ["@eaDir", "a/@eaDir/1.jpg", "__MACOSX", "a/.thumbnails", "$RECYCLE.BIN", "#recycle"],
)
def test_system_folder_is_left_out_and_named(tmp_path: Path, folder: str):
    root = make_folder(tmp_path / "pets", f"{folder}/t.jpg a/1.jpg b/._2.jpg b/Thumbs.db b/2.jpg")
    is_listed = not folder.endswith("jpg")
    for source, others in ((root, 2), (pack(root), 3)):  # of a tar, the left out image is a file, too
        images = open_images(source)
        assert images.names == ("a/1.jpg", "b/2.jpg")
        left_out = f"1 folder left out: {folder.removesuffix('/1.jpg')}"
        assert images.notes[1:] == (left_out,) if source == root else set(images.notes) >= {left_out}
        assert f"{others} other files ignored" in images.notes or not is_listed


def test_unreadable_folder_is_named_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_folder(tmp_path, "a/1.jpg b/2.jpg b/c/3.jpg")
    scan = os.scandir

    def refuse(path: str):
        if str(path).endswith(("b", "c")):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert read_folder(tmp_path, {".jpg"}).notes == ("1 folder cannot be read: b (Permission denied)",)
    with pytest.raises(ImageError, match=r"no images in .*b: 1 folder cannot be read"):
        open_images(tmp_path / "b")


@pytest.mark.parametrize("top", ["pets", "./pets", "."])
def test_tar_equals_its_folder(pets: Path, top: str):
    (pets / "dog" / "hard.png").hardlink_to(pets / "dog" / "a.png")
    (pets / "cat" / "soft.png").symlink_to("../dog/hard.png")
    tarred, folder = open_images(pack(pets, top)), open_images(pets)
    assert columns(tarred) == columns(folder)
    assert (tarred.notes, values(tarred)) == (folder.notes, values(folder))
    assert all(tarred.read_bytes(index) == folder.read_bytes(index) for index in range(7))
    if top == "pets":
        (pets / "cat" / "gone.png").symlink_to("../.git/annex/gone.png")
        tarred = open_images(pack(pets))
        with pytest.raises(ImageError, match=r"a link to a file that pets\.tar does not hold"):
            tarred.read(tarred.names.index("cat/gone.png"))


def test_exclude_leaves_out_the_images_of_a_list(source: Path, tmp_path: Path):
    names = tmp_path / "names.txt"
    names.write_text("cat/b.png\ndog/b.webp\n")
    found = open_images(source, exclude=names)
    assert (found.names, found.labels) == (("cat/a.PNG", "cat/c.jpg", "dog/a.png"), (0, 0, 1))
    assert values(found) == [0, 80, 120]
    for text, reason in (
        ("cat/ghost.png", r"do not exist.* cat/ghost\.png"),
        ("\n".join(PETS), "all 5"),
        ("image,split\ncat/b.png,train\n", "--split-column none"),
        ("cat/b.png 0\ndog/b.webp 1\n", r"more columns \(column 2\).*--split-column none"),
    ):
        names.write_text(text)
        with pytest.raises(ImageError, match=reason):
            open_images(source, exclude=names)


def test_exclude_of_one_source_serves_for_several_by_the_ends_of_names(pets: Path, tmp_path: Path):
    tarred, names = pack(pets), tmp_path / "names.txt"
    other = make_folder(tmp_path / "other", "cat/d.png dog/a.png")
    names.write_text("\n".join(sorted(PETS)[1:]))
    assert open_images(tarred, exclude=names).names == (sorted(PETS)[0],)
    with pytest.raises(ImageError, match=r"can be other/dog/a\.png or .*dog/a\.png: write"):
        open_images([tarred, other], exclude=names)
    names.write_text(names.read_text().replace("dog/a.png", "pets/dog/a.png"))
    left_over = open_images([tarred, other], exclude=names).names
    assert left_over == ("other/cat/d.png", "other/dog/a.png", f"pets/pets/{sorted(PETS)[0]}")


def test_pickled_subset_keeps_order_labels_and_content(source: Path):
    images = open_images(source)
    chosen = images.subset([4, 0])
    some = pickle.loads(pickle.dumps(chosen))
    assert columns(some) == (("dog/b.webp", "cat/a.PNG"), (1, 0), ("cat", "dog"))
    assert (some.inventory(), values(some.subset([1]))) == (chosen.inventory(), [0])
    assert isinstance(pickle.loads(pickle.dumps(images)).table, np.memmap) == (source.suffix == ".tar")
    with pytest.raises(IndexError):
        images.names[5]


def test_hashes_change_with_names_order_content_and_range(source: Path, pets: Path):
    found = open_images(source)
    subsets = [found.subset(indices).fingerprint() for indices in ([0, 1], [1, 0], [0, 1, 2])]
    assert len({found.fingerprint(), *subsets}) == 4
    ranges = [replace(found, channel_range=ChannelRange((0.0,) * 3, (high,) * 3)) for high in (255.0, 99.0)]
    for hashed in (Images.fingerprint, Images.inventory, Images.name_hash):
        assert len({hashed(images) for images in (found, *ranges)}) == 3
    before = found.fingerprint()
    os.utime(pets / "cat" / "b.png" if source == pets else source, ns=(1, 1))
    assert open_images(source).fingerprint() != before
    assert open_images(source).inventory() == found.inventory()


def test_source_that_is_no_collection_is_refused_with_the_reason(pets: Path):
    with zipfile.ZipFile(pets / "pets.zip", "w") as archive:
        archive.write(pets / "cat" / "b.png")
    make_folder(pets, "empty/b.mp4")
    (pets / "b.bin").write_bytes(b"\0" * 99)
    for name, message in {
        pack(pets, mode="w:gz"): "is compressed",
        pets / "pets.zip": "is compressed",
        pets / "nowhere": "nowhere cannot be opened",
        pets / "missing.png": r"missing\.png cannot be opened",
        pets / "b.bin": "is no folder, no tar and no text",
        pets / "empty": "found 1 files, none of them",
    }.items():
        with pytest.raises(ImageError, match=message):
            open_images(name)
        with pytest.raises(ImageError, match=message):
            open_images([pets, name])


@pytest.mark.parametrize("packed", [False, True])
def test_tars_of_classes_by_pattern_or_in_one_tar_are_folders(tmp_path: Path, packed: bool):
    for number, name in enumerate(("n02", "n01")):
        make_tar(tmp_path / "train" / f"{name}.tar", {f"{name}_{i}.png": 10 * number + i for i in range(2)})
    source = tmp_path / "train" / "*.tar"
    if packed:
        source = make_tar(tmp_path / "all.tar", {t.name: t.read_bytes() for t in source.parent.iterdir()})
    images = open_images(source, options=None if packed else OF_SOURCES)
    names = ("n01/n01_0.png", "n01/n01_1.png", "n02/n02_0.png", "n02/n02_1.png")
    assert (columns(images), values(images)) == ((names, (0, 0, 1, 1), ("n01", "n02")), [10, 11, 0, 1])


def test_shards_of_a_range_are_labeled_by_their_cls_files(tmp_path: Path):
    for number in (8, 9, 10):
        members = {f"{number}{i}.png": i for i in range(2)}
        make_tar(
            tmp_path / f"s-{number:03}.tar", members | {f"{number}{i}.cls": str(7 * i) for i in range(2)}
        )
    names = ("s-009/90.png", "s-009/91.png", "s-010/100.png", "s-010/101.png")
    images = open_images(str(tmp_path / "s-{009..010}.tar"))
    assert columns(images) == (names, (0, 1, 0, 1), ("0", "7"))


def test_list_of_tars_equals_the_tars(tmp_path: Path):
    tars = [make_tar(tmp_path / f"{name}.tar", {f"{name}.png": i}) for i, name in enumerate("xyz")]
    listed = tmp_path / "list.txt"
    listed.write_text("# two\nz.tar\n\nx.tar\n")
    images = open_images(listed)
    assert images.names == ("x/x.png", "z/z.png")
    assert images.inventory() == open_images([tars[0], tars[2]]).inventory()
    make_folder(tmp_path, "1.jpg")
    for other in ("gone.tar", "1.jpg"):
        listed.write_text(f"x.tar\n{other}\n")
        with pytest.raises(ImageError, match=r"gone\.tar|images and tars"):
            open_images(listed)


def test_folder_and_tar_together_are_one_collection(tmp_path: Path):
    folder = make_folder(tmp_path / "loose", {"cat/1.png": 1, "dog/1.png": 2})
    tar = make_tar(tmp_path / "t" / "more.tar", {"dog/2.png": 3, "emu/3.png": 4})
    images = open_images([tar, folder])
    names = ("loose/cat/1.png", "loose/dog/1.png", "more/dog/2.png", "more/emu/3.png")
    assert columns(images) == (names, (0, 1, 1, 2), ("cat", "dog", "emu"))
    part = images.subset([3, 1])
    assert (values(images), values(part)) == ([1, 2, 3, 4], [4, 2])
    assert len({images.inventory(), part.inventory(), images.fingerprint(), part.fingerprint()}) == 4
    assert len(set(images.places())) == 4
    assert images.places()[2:] == open_images(tar).places()


def test_sources_of_one_name_stay_apart(tmp_path: Path):
    for name in "ab":
        make_tar(make_folder(tmp_path / name, "1.jpg") / "x.tar", {"1.jpg": name})
    assert open_images([tmp_path / "b/x.tar", tmp_path / "a/x.tar"]).names == ("a/x/1.jpg", "b/x/1.jpg")
    make_folder(tmp_path / "a" / "x", "2.jpg")
    assert open_images([tmp_path / "a/x.tar", tmp_path / "a/x"]).names == ("x.tar/1.jpg", "x/2.jpg")


def test_images_and_patterns_of_images_equal_their_folder(pets: Path):
    folder = open_images(pets)
    patterns = [f"{pets}/*/*{suffix}" for suffix in (".PNG", ".png", ".jpg", ".webp")]
    for found in (open_images(patterns), open_images([pets / name for name in reversed(PETS)])):
        assert columns(found) == columns(folder)
        assert found.inventory() == folder.inventory()
    assert columns(open_images(pets / "cat" / "a.PNG")) == (("a.PNG",), None, ())


@pytest.mark.parametrize("name", [".hidden/3.jpg", "sub/.private", ".hidden/*.jpg"])
def test_hidden_path_that_is_named_is_opened(tmp_path: Path, name: str):
    make_folder(tmp_path, ".hidden/3.jpg sub/.private/5.jpg a/1.jpg")
    assert len(open_images(tmp_path / name)) == 1
    assert len(open_images([tmp_path / name, tmp_path / "a/1.jpg"])) == 2


def test_index_of_tars_is_made_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, source = tmp_path / "a", str(tmp_path / "a" / "*.tar")
    for name in "xy":
        make_tar(folder / f"{name}.tar", {f"{i}.png": i for i in range(2)})
    first, size = open_images(source), (folder / "x.tar").stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(collection, "read_tar", lambda *_, **__: pytest.fail("indexed again"))
        assert open_images(source).inventory() == first.inventory()
    make_tar(folder / "x.tar", {f"{i}.png": i for i in (3, 4)})
    assert (folder / "x.tar").stat().st_size == size
    assert open_images(source).names == ("x/3.png", "x/4.png", "y/0.png", "y/1.png")
    (tmp_path / "named").mkdir()
    for name, tar in {"cat": "x", "dog": "y"}.items():  # other names of the same tars
        (tmp_path / "named" / f"{name}.tar").symlink_to(folder / f"{tar}.tar")
    images = open_images(tmp_path / "named" / "*.tar")
    assert images.names == ("cat/3.png", "cat/4.png", "dog/0.png", "dog/1.png")


def test_tar_missing_damaged_cut_or_changed_is_named(tmp_path: Path):
    folder, pattern = tmp_path / "a", str(tmp_path / "a" / "*.tar")
    zero = make_tar(folder / "0.tar", {"x.png": 1})
    with pytest.raises(ImageError, match=r"1\.tar cannot be opened"):
        open_images(str(folder / "{0..1}.tar"))
    (folder / "1.tar").write_bytes(b"no tar" * 200)
    with pytest.raises(ImageError, match=r"1\.tar is no whole, uncompressed tar"):
        open_images(pattern)
    make_tar(folder / "1.tar", {"y.png": 2, "z.png": bytes(9999)})
    images = open_images(pattern)
    with (folder / "1.tar").open("r+b") as file:
        file.truncate(520)
    with pytest.raises(ShardError, match=r"1/y\.png is cut short: 1\.tar ends within it"):
        images.read(1)
    os.utime(zero, ns=(1, 1))
    with pytest.raises(ShardError, match=r"0\.tar was changed while it was in use"):
        images.read(0)
    zero.unlink()
    with pytest.raises(ShardError, match=r"0\.tar': no such file"):
        images.read(0)
    replaced = open_images(make_tar(zero, {"x.png": 7}))
    assert replaced.read(0)[0, 0, 0] == 7  # not of the file that was open before


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """URL of a folder with two shards of two images."""
    root = f"memory://bucket{tmp_path}"
    system, place = fsspec.url_to_fs(root)
    system.makedirs(place)
    for number in range(2):
        tar = make_tar(tmp_path / "made" / f"{number}.tar", {f"{i}.png": 2 * number + i for i in range(2)})
        system.put_file(str(tar), f"{place}/{number}.tar")
    return root


@pytest.mark.parametrize("pattern", ["*.tar", "{0..1}.tar"])
def test_remote_pattern_equals_the_local_one_and_is_fetched_once(shards, tmp_path, pattern, monkeypatch):
    images = open_images(f"{shards}/{pattern}")
    assert images.names == ("0/0.png", "0/1.png", "1/0.png", "1/1.png")
    assert values(images) == [0, 1, 2, 3]
    assert images.inventory() == open_images(str(tmp_path / "made" / "*.tar")).inventory()
    (tmp_path / "list.txt").write_text(f"{shards}/1.tar\n{shards}/0.tar\n")
    assert open_images(tmp_path / "list.txt").inventory() == images.inventory()
    monkeypatch.setattr(remote.fsspec, "url_to_fs", lambda url: pytest.fail("fetched again"))
    assert values(images) == [0, 1, 2, 3]


def test_remote_cache_keeps_to_its_limit_and_holds_no_part_cut_short(tmp_path: Path, monkeypatch):
    data = bytes(range(200)) * 500
    fsspec.url_to_fs("memory://")[0].pipe("/many", data)
    assert remote.read("memory://many", 99_900, 200, 1) == data[-100:]
    assert not list((tmp_path / "cache").rglob("*"))
    monkeypatch.delenv("DINO_SHARD_CACHE", raising=False)  # 20 gigabytes
    monkeypatch.setattr(remote, "BUCKETS", 2_000_000_000)
    for size, count in ((11, 0), (10, 1)):
        assert remote.read("memory://many", 0, size, 1) == data[:size]
        assert len([file for file in (tmp_path / "cache").rglob("*") if file.is_file()]) == count
    monkeypatch.setattr(remote, "BUCKETS", 1)
    monkeypatch.setenv("DINO_SHARD_CACHE", str(300 / 1e9))
    for offset in range(0, 40_000, 100):
        assert remote.read("memory://many", offset, 100, 1) == data[offset : offset + 100]
    assert all(len(list(folder.iterdir())) <= 3 for folder in (tmp_path / "cache" / "shards").iterdir())
    monkeypatch.setenv("DINO_SHARD_CACHE", "much")
    with pytest.raises(OSError, match="DINO_SHARD_CACHE is 'much'"):
        remote.read("memory://many", 50, 100, 1)


@pytest.mark.parametrize(("count", "step"), [(1999, 1), (2000, 2)])
def test_statistics_are_of_1000_images_or_more_at_even_distances(count: int, step: int, monkeypatch):
    images, read = Images(make_table(Row(f"{i}.npy") for i in range(count)), Path()), list[int]()
    monkeypatch.setattr(Images, "read_bytes", lambda _, index: read.append(index) or b"broken")
    assert list(images.raw_channels(3)) == []
    assert read == list(range(0, count, step))


def test_remote_missing_shard_is_named(shards: str):
    for source in (f"{shards}/{{0..2}}.tar", "nowhere://bucket/{0..1}.tar"):
        with pytest.raises(ImageError, match=r"2\.tar cannot be opened|nowhere://"):
            open_images(source)
    images = open_images(f"{shards}/*.tar")
    system, place = fsspec.url_to_fs(f"{shards}/1.tar")
    system.rm(place)
    with pytest.raises(ShardError, match=r"1\.tar cannot be opened.*reading 1/0\.png"):
        images.read(2)
