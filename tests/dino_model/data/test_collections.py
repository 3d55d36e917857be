"""Folders, tars, lists, patterns and remote shards as one sequence of images."""

import io
import os
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from PIL import Image

from dino_model.data import index, remote
from dino_model.data.channels import ChannelRange
from dino_model.data.classes import LabelOptions
from dino_model.data.collections import Images, ShardError, open_images
from dino_model.data.images import ImageError

PETS = ("cat/a.PNG", "cat/b.png", "cat/c.jpg", "dog/a.png", "dog/b.webp")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path / "cache"))


def content(member: bytes | int) -> bytes:
    """Encode a number as an image of that value."""
    if isinstance(member, bytes):
        return member
    stream = io.BytesIO()
    Image.new("RGB", (5, 4), (member, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def write_tar(path: Path, members: dict[str, bytes | int]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, member in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content(member))
            tar.addfile(info, io.BytesIO(content(member)))
    return path


def write_folder(path: Path, members: dict[str, bytes | int]) -> Path:
    for name, member in members.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content(member))
    return path


def values(images: Images) -> list[int]:
    return [int(images.read(i)[0, 0, 0]) for i in range(len(images))]


def columns(images: Images) -> tuple:
    return images.names, images.labels, images.classes


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three cats, two dogs, and files that are no images."""
    folder = write_folder(tmp_path / "pets", dict.fromkeys(PETS, b""))
    for number, name in enumerate(PETS):
        Image.new("RGB", (5 + number, 4), (40 * number, 0, 0)).save(folder / name)
    return write_folder(folder, {"readme.txt": b"cats and dogs", "dog/._a.png": b"metadata of macOS"})


def pack(folder: Path, top: str = "pets", mode: str = "w") -> Path:
    with tarfile.open(folder.parent / "pets.tar", mode) as archive:
        archive.add(folder, arcname=top)
    return folder.parent / "pets.tar"


@pytest.fixture(params=["folder", "tar"])
def source(request: pytest.FixtureRequest, pets: Path) -> Path:
    return pets if request.param == "folder" else pack(pets)


def test_open_folder_sorts_labels_and_skips_hidden_folders_and_links_that_lead_up(pets: Path):
    (pets / "cat" / "up").symlink_to(pets, target_is_directory=True)
    found = open_images(pets)
    assert columns(found) == (PETS, (0, 0, 0, 1, 1), ("cat", "dog"))
    assert (len(found), found.ignored, found.read(0).shape) == (5, 2, (4, 5, 3))
    write_folder(pets, {".cache/z.png": 1})
    (pets / "linked").symlink_to(write_folder(pets.parent / "aside", {"z.png": 1}), target_is_directory=True)
    (pets / "link.png").symlink_to(pets / "cat" / "b.png")
    found = open_images(pets)
    assert (found.names, found.ignored) == ((*PETS, "link.png", "linked/z.png"), 2)
    places = dict(zip(found.names, found.places(), strict=True))
    assert places["link.png"] == places["cat/b.png"] != places["cat/c.jpg"]


def test_open_folders_of_one_name_labels_by_those_above(tmp_path: Path):
    for name in ("n01", "n02"):  # as in Tiny ImageNet
        write_folder(tmp_path / name, {f"images/{name}_0.JPEG": 1, f"{name}_boxes.txt": b"0 0 1 1"})
    found = open_images(tmp_path)
    assert (found.classes, found.labels) == (("n01", "n02"), (0, 1))
    assert found.remarks() == ["2 other files ignored"]
    assert columns(open_images(tmp_path / "n01" / "images")) == (("n01_0.JPEG",), None, ())


@pytest.mark.parametrize("top", ["pets", "./pets", "."])
def test_open_tar_equals_its_folder(pets: Path, top: str):
    tarred, folder = open_images(pack(pets, top)), open_images(pets)
    assert columns(tarred) == columns(folder)
    assert (tarred.ignored, tarred.inventory()) == (folder.ignored, folder.inventory())
    assert all(tarred.read_bytes(index) == folder.read_bytes(index) for index in range(5))


def test_links_in_a_tar_are_the_files_that_they_name(pets: Path):
    (pets / "dog" / "hard.png").hardlink_to(pets / "dog" / "a.png")
    (pets / "cat" / "soft.png").symlink_to("../dog/hard.png")
    (pets / "cat" / "gone.png").symlink_to("../.git/annex/gone.png")
    tarred, folder = open_images(pack(pets)), open_images(pets)
    assert columns(tarred) == columns(folder)
    for name in ("dog/hard.png", "cat/soft.png"):
        assert tarred.read_bytes(tarred.names.index(name)) == (pets / "dog" / "a.png").read_bytes()
    with pytest.raises(ImageError, match=r"cat/gone\.png is a link to a file that pets\.tar does not hold"):
        tarred.read(tarred.names.index("cat/gone.png"))


def test_open_list_is_relative_to_its_own_folder(pets: Path):
    (pets / "some.txt").write_text(f"# two\ndog/a.png\n\n{pets / 'cat' / 'b.png'}\n")
    found = open_images(pets / "some.txt")
    assert found.classes == ("cat", "dog")
    assert sorted(values(found)) == [40, 120]
    (pets / "some.txt").write_text("cat/b.png\ncat/ghost.png\n")
    with pytest.raises(ImageError, match=r"lists 2 files, and 1 .* the first is cat/ghost\.png"):
        open_images(pets / "some.txt")


def test_open_exclude_leaves_out_named_images(source: Path, tmp_path: Path):
    names = tmp_path / "names.txt"
    names.write_text("cat/b.png\ndog/b.webp\n")
    found = open_images(source, exclude=names)
    assert (found.names, found.labels) == (("cat/a.PNG", "cat/c.jpg", "dog/a.png"), (0, 0, 1))
    assert found.read(2).shape == (4, 8, 3)
    names.write_text("cat/ghost.png\n")
    with pytest.raises(ImageError, match=r"names 1 images that do not exist, the first is cat/ghost\.png"):
        open_images(source, exclude=names)
    names.write_text("\n".join(PETS))
    with pytest.raises(ImageError, match="leaves no image: it names all 5"):
        open_images(source, exclude=names)


def test_open_exclude_of_one_tar_leaves_out_the_same_images_among_several(pets: Path, tmp_path: Path):
    tarred, names = pack(pets, "pets"), tmp_path / "names.txt"
    other = write_folder(tmp_path / "other", {"cat/d.png": 1, "dog/a.png": 2})
    names.write_text("\n".join(sorted(PETS)[1:]))
    assert open_images(tarred, exclude=names).names == (sorted(PETS)[0],)
    with pytest.raises(
        ImageError, match=r"dog/a\.png, which can be other/dog/a\.png or .*/dog/a\.png: write"
    ):
        open_images([tarred, other], exclude=names)
    names.write_text(names.read_text().replace("dog/a.png", "pets/dog/a.png"))
    left_over = open_images([tarred, other], exclude=names).names
    expected = ["other/cat/d.png", "other/dog/a.png", sorted(PETS)[0]]
    assert [name.rpartition("pets/")[2] for name in left_over] == expected


def test_subset_pickled_keeps_order_labels_and_content(source: Path):
    chosen = open_images(source).subset([4, 0])
    some = pickle.loads(pickle.dumps(chosen))
    assert columns(some) == (("dog/b.webp", "cat/a.PNG"), (1, 0), ("cat", "dog"))
    assert some.inventory() == chosen.inventory()
    assert some.subset([1]).read(0).shape == (4, 5, 3)


def test_images_of_tar_pickled_map_the_index_instead_of_copying_it(tmp_path: Path):
    images = open_images(write_tar(tmp_path / "many.tar", {f"{i:0100}.png": b"x" for i in range(500)}))
    assert len(pickle.dumps(images)) < 2000
    with pytest.raises(IndexError):
        images.names[500]
    assert isinstance(pickle.loads(pickle.dumps(images)).names.table, np.memmap)


def test_fingerprint_changes_with_names_order_and_content(source: Path, pets: Path):
    found = open_images(source)
    subsets = [found.subset(indices).fingerprint() for indices in ([0, 1], [1, 0], [0, 1, 2])]
    assert len({found.fingerprint(), *subsets}) == 4
    assert open_images(source).fingerprint() == found.fingerprint()
    before = found.fingerprint()
    os.utime(pets / "cat" / "b.png" if source == pets else source, ns=(1, 1))
    assert open_images(source).fingerprint() != before
    assert open_images(source).inventory() == found.inventory()


def test_open_no_collection_names_the_reason(pets: Path):
    with zipfile.ZipFile(pets / "pets.zip", "w") as archive:
        archive.write(pets / "cat" / "b.png")
    write_folder(pets, {"empty/b.mp4": b"", "b.bin": 1})
    for name, message in {
        pack(pets, mode="w:gz"): "is compressed: unpack it",
        pets / "pets.zip": r"pets\.zip is compressed: unpack it",
        pets / "nowhere": "nowhere cannot be opened: No such file",
        pets / "missing.png": r"missing\.png",
        pets / "b.bin": "is no folder, no tar and no text",
        pets / "empty": r"no images in .*empty: found 1 files, none of them \.jpg",
    }.items():
        with pytest.raises(ImageError, match=message):
            open_images(name)


@pytest.mark.parametrize("packed", [False, True])
def test_open_tars_of_classes_by_pattern_or_in_one_tar_makes_folders(tmp_path: Path, packed: bool):
    for number, name in enumerate(("n02", "n01")):
        write_tar(tmp_path / "train" / f"{name}.tar", {f"{name}_{i}.png": 10 * number + i for i in range(2)})
    source = tmp_path / "train" / "*.tar"
    if packed:
        tars = {tar.name: tar.read_bytes() for tar in source.parent.iterdir()}
        source = write_tar(tmp_path / "all.tar", tars)
    images = open_images(source, options=None if packed else LabelOptions(sources="classes"))
    assert images.names == ("n01/n01_0.png", "n01/n01_1.png", "n02/n02_0.png", "n02/n02_1.png")
    assert (images.classes, images.labels) == (("n01", "n02"), (0, 0, 1, 1))
    assert values(images) == [10, 11, 0, 1]


def test_open_webdataset_shards_labels_by_cls_files(tmp_path: Path):
    for number in (8, 9, 10):
        members = {f"{number}{i}.png": i for i in range(2)}
        members |= {f"{number}{i}.cls": str(7 * i).encode() for i in range(2)}
        write_tar(tmp_path / "shards" / f"s-{number:03}.tar", members)
    images = open_images(str(tmp_path / "shards" / "s-{009..010}.tar"))
    assert images.names == ("s-009/90.png", "s-009/91.png", "s-010/100.png", "s-010/101.png")
    assert (images.classes, images.labels) == (("0", "7"), (0, 1, 0, 1))


def test_open_list_of_tars_equals_the_tars(tmp_path: Path):
    tars = [write_tar(tmp_path / "a" / f"{name}.tar", {f"{name}.png": i}) for i, name in enumerate("xyz")]
    (tmp_path / "a" / "list.txt").write_text("# two\nz.tar\n\nx.tar\n")
    images = open_images(tmp_path / "a" / "list.txt")
    assert images.names == ("x/x.png", "z/z.png")
    assert images.inventory() == open_images([tars[0], tars[2]]).inventory()
    (tmp_path / "a" / "list.txt").write_text("x.tar\ngone.tar\n")
    with pytest.raises(ImageError, match=r"gone\.tar cannot be opened"):
        open_images(tmp_path / "a" / "list.txt")


def test_open_folder_and_tar_together_is_one_collection(tmp_path: Path):
    folder = write_folder(tmp_path / "loose", {"cat/1.png": 1, "dog/1.png": 2})
    tar = write_tar(tmp_path / "t" / "more.tar", {"dog/2.png": 3, "emu/3.png": 4})
    images = open_images([folder, tar])
    assert images.names == ("loose/cat/1.png", "loose/dog/1.png", "more/dog/2.png", "more/emu/3.png")
    assert (images.classes, images.labels) == (("cat", "dog", "emu"), (0, 1, 1, 2))
    assert values(images) == [1, 2, 3, 4]
    part = images.subset([3, 1])
    assert values(part) == [4, 2]
    assert len({images.inventory(), part.inventory(), images.fingerprint(), part.fingerprint()}) == 4
    assert len(set(images.places())) == 4
    assert images.places()[2:] == open_images(tar).places()
    unlabeled = open_images([folder / "dog", folder / "cat"], options=LabelOptions(sources="classes"))
    assert (unlabeled.names, unlabeled.classes) == (("cat/1.png", "dog/1.png"), ("cat", "dog"))


def test_open_images_and_patterns_of_images_equals_their_folder(pets: Path):
    folder = open_images(pets)
    patterns = [f"{pets}/*/*{suffix}" for suffix in (".PNG", ".png", ".jpg", ".webp")]
    for found in (open_images(patterns), open_images([pets / name for name in reversed(PETS)])):
        assert columns(found) == columns(folder)
        assert found.inventory() == folder.inventory()
    single = open_images(pets / PETS[0])
    assert (single.names, single.classes, values(single)) == (("a.PNG",), (), [0])


def test_index_of_tars_is_made_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, source = tmp_path / "a", str(tmp_path / "a" / "*.tar")
    for name in "xy":
        write_tar(folder / f"{name}.tar", {f"{i}.png": i for i in range(2)})
    first, size = open_images(source), (folder / "x.tar").stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(index, "read_members", lambda path: pytest.fail("indexed again"))
        assert open_images(source).inventory() == first.inventory()
    write_tar(folder / "x.tar", {f"{i}.png": i for i in (3, 4)})
    assert (folder / "x.tar").stat().st_size == size
    assert open_images(source).names == ("x/3.png", "x/4.png", "y/0.png", "y/1.png")
    (tmp_path / "named").mkdir()
    for name, tar in {"cat": "x", "dog": "y"}.items():  # other names of the same tars
        (tmp_path / "named" / f"{name}.tar").symlink_to(folder / f"{tar}.tar")
    assert open_images(tmp_path / "named" / "*.tar").names == (
        "cat/3.png",
        "cat/4.png",
        "dog/0.png",
        "dog/1.png",
    )


def test_tar_missing_damaged_cut_or_changed_is_named(tmp_path: Path):
    folder, pattern = tmp_path / "a", str(tmp_path / "a" / "*.tar")
    zero = write_tar(folder / "0.tar", {"x.png": 1})
    with pytest.raises(ImageError, match=r"1\.tar cannot be opened"):
        open_images(str(folder / "{0..1}.tar"))
    (folder / "1.tar").write_bytes(b"no tar" * 200)
    with pytest.raises(ImageError, match=r"1\.tar is no whole, uncompressed tar"):
        open_images(pattern)
    write_tar(folder / "1.tar", {"y.png": 2, "z.png": bytes(9999)})
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


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """URL of a folder with two shards of two images."""
    root = f"memory://bucket{tmp_path}"
    system, place = fsspec.url_to_fs(root)
    system.makedirs(place)
    for number in range(2):
        tar = write_tar(tmp_path / "made" / f"{number}.tar", {f"{i}.png": 2 * number + i for i in range(2)})
        system.put_file(str(tar), f"{place}/{number}.tar")
    return root


@pytest.mark.parametrize("pattern", ["*.tar", "{0..1}.tar"])
def test_remote_pattern_equals_the_local_one_and_is_fetched_once(shards, tmp_path, pattern, monkeypatch):
    images = open_images(f"{shards}/{pattern}")
    assert images.names == ("0/0.png", "0/1.png", "1/0.png", "1/1.png")
    assert values(images) == [0, 1, 2, 3]
    assert images.inventory() == open_images(str(tmp_path / "made" / "*.tar")).inventory()
    monkeypatch.setattr(remote.fsspec, "url_to_fs", lambda url: pytest.fail("fetched again"))
    assert values(images) == [0, 1, 2, 3]


def test_remote_cache_keeps_to_its_limit_and_holds_no_part_cut_short(tmp_path: Path, monkeypatch):
    data = bytes(range(200)) * 500
    fsspec.url_to_fs("memory://")[0].pipe("/many", data)
    assert remote.read("memory://many", 99_900, 200, 1) == data[-100:]
    assert not list((tmp_path / "cache").rglob("*"))
    monkeypatch.setattr(remote, "BUCKETS", 1)
    monkeypatch.setenv("DINO_SHARD_CACHE", str(300 / 1e9))
    for offset in range(0, 40_000, 100):
        assert remote.read("memory://many", offset, 100, 1) == data[offset : offset + 100]
    assert all(len(list(folder.iterdir())) <= 3 for folder in (tmp_path / "cache" / "shards").iterdir())
    monkeypatch.setenv("DINO_SHARD_CACHE", "much")
    with pytest.raises(OSError, match="DINO_SHARD_CACHE is 'much'"):
        remote.read("memory://many", 50, 100, 1)


def test_remote_missing_shard_is_named(shards: str):
    for source in (f"{shards}/{{0..2}}.tar", "nowhere://bucket/{0..1}.tar"):
        with pytest.raises(ImageError, match=r"2\.tar cannot be opened|nowhere://"):
            open_images(source)
    images = open_images(f"{shards}/*.tar")
    system, place = fsspec.url_to_fs(f"{shards}/1.tar")
    system.rm(place)
    with pytest.raises(ShardError, match=r"1\.tar cannot be opened.*reading 1/0\.png"):
        images.read(2)


def test_fingerprint_and_inventory_change_with_the_range_of_the_channels(pets: Path):
    images = open_images(pets)
    read = [replace(images, channel_range=ChannelRange((0.0,) * 3, (high,) * 3)) for high in (255.0, 99.0)]
    for hashed in (Images.fingerprint, Images.inventory, Images.name_hash):
        assert len({hashed(collection) for collection in (images, *read)}) == 3
