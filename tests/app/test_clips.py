"""Clips on their way in, through a model and out again, without a page."""

import io
import json
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools.coco import COCO

from app import clips
from app.clip_files import davis_zip, masks_json, overlay_webm
from app.clips import MAX_OBJECTS, Clip
from app.errors import LabError, NotHere
from app.example_clips import EXAMPLES, FRAMES, example
from app.files import labels_png
from app.following import Following, begin, from_runs, steps
from app.lab import Clips
from app.limits import Limits
from app.photos import Pictures
from dino_model.predictor import AttentionPredictor
from segmentation.datasets import open_davis, read_first_mask, read_labels
from segmentation.propagation import propagate_frames
from segmentation.video import VideoFile, VideoWriter

MODEL = "random:vit_tiny/16"
SMALL = Limits(max_frames=6)


def _frames(count: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """A bright square that moves to the right over noise."""
    noise = np.random.default_rng(0).integers(0, 90, (height, width, 3), dtype=np.uint8)
    frames = []
    for number in range(count):
        frame = noise.copy()
        frame[12:28, 4 + 2 * number : 20 + 2 * number] = (250, 200, 60)
        frames.append(frame)
    return frames


def _first_mask(height: int = 48, width: int = 64) -> np.ndarray:
    mask = np.zeros((height, width), np.uint8)
    mask[12:28, 4:20] = 1
    mask[32:48, 32:64] = 2
    return mask


def _webm(path: Path, count: int, fps: float = 10) -> Path:
    with VideoWriter(path, fps) as video:
        for frame in _frames(count):
            video.write(frame)
    return path


def _zip(path: Path, names: list[str], size: tuple[int, int] = (48, 64)) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, frame in zip(names, _frames(len(names), *size), strict=True):
            archive.writestr(name, cv2.imencode(".png", frame[..., ::-1])[1].tobytes())
    return path


@pytest.fixture
def clip(tmp_path: Path) -> Clip:
    """Six frames of 64 × 48 pixels."""
    return clips.read(_zip(tmp_path / "square.zip", [f"{number:05d}.png" for number in range(6)]), SMALL)


@pytest.fixture(scope="module")
def predictor() -> AttentionPredictor:
    return AttentionPredictor(MODEL, size=48, precision="fp32", device="cpu")


@pytest.fixture
def followed(predictor, clip) -> Following:
    following = begin("square", clip, _first_mask(), predictor, MODEL, Limits())
    assert len(list(steps(following, _first_mask(), predictor))) == 6
    return following


# ---- in


def test_video_becomes_its_frames(tmp_path):
    clip = clips.read(_webm(tmp_path / "square.webm", 5), SMALL)
    assert (len(clip.frames), clip.size, clip.fps, clip.note) == (5, (48, 64), 10, "")
    for ours, decoded in zip(clip.pictures(), VideoFile(tmp_path / "square.webm"), strict=True):
        assert np.abs(ours.astype(int) - decoded).mean() < 4  # a JPEG of the decoded frame


def test_long_video_is_cut_and_no_frame_beyond_is_kept(tmp_path):
    clip = clips.read(_webm(tmp_path / "long.webm", 40), SMALL)
    assert len(clip.frames) == 6
    assert clip.note == "Only the first 6 of 40 frames are used: that is the limit."


def test_ten_minutes_are_cut_before_they_are_decoded(tmp_path, monkeypatch):
    path = _webm(tmp_path / "long.webm", 600, fps=1)  # ten minutes
    decoded = []
    frames = VideoFile.__iter__
    monkeypatch.setattr(
        VideoFile, "__iter__", lambda self: (decoded.append(1) or one for one in frames(self))
    )
    clip = clips.read(path, Limits(max_clip_seconds=8))
    assert len(clip.frames) == 8
    assert len(decoded) == 9  # one more tells that there is more
    assert "8 of 600" in clip.note


def test_frames_of_a_zip_come_in_the_order_of_their_numbers(tmp_path):
    shuffled = ["clip/frame10.png", "clip/frame9.png", "clip/frame1.png", "__MACOSX/._frame1.png"]
    clip = clips.read(_zip(tmp_path / "frames.zip", shuffled), SMALL)
    places = [int(np.argmax(picture[20].sum(axis=1) > 450)) for picture in clip.pictures()]
    assert places == [8, 6, 4]  # the square of the third, second and first frame written


def test_animated_picture_becomes_its_frames(tmp_path):
    pictures = [Image.fromarray(frame) for frame in _frames(4)]
    for name in ("square.gif", "square.webp", "square.png"):
        pictures[0].save(tmp_path / name, save_all=True, append_images=pictures[1:], duration=50)
        clip = clips.read(tmp_path / name, SMALL)
        assert (len(clip.frames), clip.size, clip.fps) == (4, (48, 64), 20), name


def test_large_frames_are_made_smaller(tmp_path):
    clip = clips.read(_zip(tmp_path / "large.zip", ["1.png", "2.png"], (1000, 2000)), SMALL)
    assert (clip.size, clip.sent_size) == ((427, 854), (1000, 2000))
    assert clip.picture(0).shape == (427, 854, 3)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_move_and_have_no_border(name):
    clip = example(name)
    first, last = clip.picture(0), clip.picture(len(clip.frames) - 1)
    assert first.shape == (*clip.size, 3)
    assert np.abs(first.astype(int) - last).mean() > 10


def _refused(path: Path, limits: Limits = SMALL) -> str:
    with pytest.raises(LabError) as caught:
        clips.read(path, limits)
    sentence = str(caught.value)
    assert sentence.startswith(path.name)
    assert sentence.endswith(".")
    assert str(path.parent) not in sentence
    return sentence


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.mp4", b"", "empty or not a known video format"),
        ("text.mp4", b"not a video at all", "not a known video format"),
        ("playlist.mp4", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "not a known video format"),
        ("concat.mp4", b"ffconcat version 1.0\nfile /etc/passwd\n", "not a known video format"),
        ("cut.mp4", b"\0\0\0\x18ftypmp42" + bytes(40), "no frame that can be decoded"),
        ("cut.webm", b"\x1a\x45\xdf\xa3\x93\x42\x82\x84webm" + bytes(40), "no frame that can be decoded"),
        ("cut.gif", b"GIF89a" + bytes(3), "damaged or cut short"),
        ("cut.zip", b"PK\x03\x04" + bytes(30), "damaged zip"),
    ],
)
def test_what_is_no_clip_is_told_in_one_sentence(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert said in _refused(tmp_path / name)


def test_sound_alone_is_told_in_one_sentence(tmp_path):
    riff = (
        b"RIFF"
        + struct.pack("<I", 36 + 800)
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    )
    (tmp_path / "sound.avi").write_bytes(riff + b"data" + struct.pack("<I", 800) + bytes(800))
    assert "not a known video format" in _refused(tmp_path / "sound.avi")


def test_single_picture_is_no_clip(tmp_path):
    Image.fromarray(_frames(1)[0]).save(tmp_path / "still.png")
    assert "single image" in _refused(tmp_path / "still.png")


@pytest.mark.parametrize(
    "name", ["../up.png", "/etc/up.png", "a/../../up.png", "..\\up.png", "C:\\up.png", "a\\..\\up.png"]
)
def test_zip_whose_names_lead_out_is_refused(tmp_path, name):
    assert "leads out" in _refused(_zip(tmp_path / "names.zip", ["1.png", name]))


def test_zip_with_links_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "links.zip", "w") as archive:
        link = zipfile.ZipInfo("1.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "links" in _refused(tmp_path / "links.zip")


def test_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was unpacked"))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.png", bytes(5_000_000))
    assert (tmp_path / "bomb.zip").stat().st_size < 10_000
    assert "unpack to 5 MB, more than the 4 MB" in _refused(tmp_path / "bomb.zip", Limits(max_upload_mb=1))


def test_zip_of_too_many_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(clips.MAX_ZIP_ENTRIES + 1):
            archive.writestr(f"{number}.png", b"")
    assert "10,001 files" in _refused(tmp_path / "many.zip")


@pytest.mark.parametrize(
    ("names", "said"),
    [(["notes.txt"], "no image"), (["a/1.png", "b/1.png"], "images in 2 folders"), ([], "no image")],
)
def test_zip_without_one_folder_of_frames_is_refused(tmp_path, names, said):
    assert said in _refused(_zip(tmp_path / "frames.zip", names))


def test_frames_of_several_sizes_are_refused(tmp_path):
    _zip(tmp_path / "sizes.zip", ["1.png"])
    with zipfile.ZipFile(tmp_path / "sizes.zip", "a") as archive:
        archive.writestr("2.png", cv2.imencode(".png", np.zeros((20, 30, 3), np.uint8))[1].tobytes())
    assert "64 × 48 and 30 × 20 pixels" in _refused(tmp_path / "sizes.zip")


def test_pixel_bomb_is_refused_before_it_is_decoded(tmp_path):
    huge, limits = (1000, 1200), Limits(max_frame_megapixels=1)
    assert "too large" in _refused(_zip(tmp_path / "huge.zip", ["1.png", "2.png"], huge), limits)
    pictures = [Image.fromarray(frame) for frame in _frames(2, *huge)]
    pictures[0].save(tmp_path / "huge.png", save_all=True, append_images=pictures[1:])
    assert "1200 × 1000 pixels" in _refused(tmp_path / "huge.png", limits)
    with VideoWriter(tmp_path / "huge.webm", 10) as video:
        video.write(_frames(1, *huge)[0])
    assert "1200 × 1000 pixels" in _refused(tmp_path / "huge.webm", limits)


def test_damaged_frame_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "frames.zip", "w") as archive:
        archive.writestr("1.png", b"\x89PNG nothing")
        archive.writestr("2.png", b"\x89PNG nothing")
    assert "1.png" in _refused(tmp_path / "frames.zip")


# ---- through


def test_masks_are_those_of_the_library(predictor, clip, followed):
    expected = list(propagate_frames(clip.pictures(), _first_mask(), predictor))
    assert len(followed.masks) == len(expected) == 6
    for number, labels in enumerate(expected):
        np.testing.assert_array_equal(followed.labels(number), labels)


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (np.zeros((48, 64), np.uint8), "Nothing is marked"),
        (np.zeros((10, 10), np.uint8), "10 × 10 pixels"),
        (np.arange(48 * 64, dtype=np.uint8).reshape(48, 64) % 12, "11 objects"),
        (np.pad(np.full((2, 2), 1, np.uint8), ((0, 46), (0, 62))), "smaller than a patch"),
    ],
)
def test_masks_that_cannot_be_followed_are_refused(predictor, clip, mask, said):
    with pytest.raises(LabError, match=said):
        begin("square", clip, mask, predictor, MODEL, Limits())


def test_resolution_beyond_the_patches_allowed_is_refused(clip):
    predictor = AttentionPredictor(MODEL, size=640, precision="fp32", device="cpu")
    with pytest.raises(LabError, match="more than the 400 allowed"):
        begin("square", clip, _first_mask(), predictor, MODEL, Limits(max_patches=400))


@given(st.lists(st.tuples(st.integers(0, MAX_OBJECTS), st.integers(1, 9)), min_size=1))
def test_runs_are_read_in_reading_order(runs):
    labels = [label for label, length in runs for _ in range(length)]
    flat = [value for run in runs for value in run]
    assert from_runs(flat, (1, len(labels))).tolist() == [labels]


@pytest.mark.parametrize(
    "runs",
    [[0], [0, 3], [0, 5], [-1, 4], [0, -4, 0, 8], [9, 4], [], [0.0, 4], [True, 4], "04", None, {"0": 4}],
)
def test_impossible_runs_are_refused(runs):
    with pytest.raises(LabError, match="The mask does not fit this image"):
        from_runs(runs, (2, 2))


def test_clips_are_named_by_content_in_bounded_memory(clip, tmp_path):
    limits = Limits(max_clips_mb=1, max_frames=6)
    here = Clips(limits, Pictures(limits))
    files = [_zip(tmp_path / f"{count}.zip", [f"{n}.png" for n in range(count)]) for count in (5, 6)]
    first, second = (here.keep(file, "mine.zip")[0] for file in files)
    assert here.keep(files[1], "theirs.zip")[0] == second != first
    assert len(here.get(first).frames) == 5
    assert here.get(first).name == "clip", "what a visitor calls it is nobody else's"
    for size in range(60, 200, 20):  # each of them weighs more than the one before
        here.keep(_zip(tmp_path / "more.zip", [f"{n}.png" for n in range(6)], (4 * size, 5 * size)), "more")
    for token in (first, "guessed", ""):
        with pytest.raises(NotHere, match="open it again"):
            here.get(token)
    assert len(here.get("sheep").frames) == FRAMES, "an example is there again"


def test_first_frame_is_a_photograph_that_comes_back_with_its_clip(tmp_path):
    limits = Limits(max_frames=6)
    pictures = Pictures(limits)
    here = Clips(limits, pictures)
    _, clip = here.keep(_zip(tmp_path / "a.zip", ["1.png", "2.png"]), "a.zip")
    np.testing.assert_array_equal(pictures.read(here.photo_of(clip)), clip.picture(0))
    assert here.photo_of(clip) == here.photo_of(clip)


def test_header_of_giant_frames_is_refused_in_a_sentence(tmp_path):
    """An animated PNG of a hundred bytes that claims 100,000 × 100,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    content += (
        chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )
    (tmp_path / "bomb.png").write_bytes(content)
    assert _refused(tmp_path / "bomb.png").endswith(
        "has frames of more pixels than are allowed: send it smaller."
    )


# ---- out


def test_overlay_webm_has_every_finished_frame_with_its_objects_tinted(clip, followed, tmp_path):
    (tmp_path / "overlay.webm").write_bytes(overlay_webm(followed))
    film = list(VideoFile(tmp_path / "overlay.webm"))
    assert len(film) == 6
    assert film[0].shape[0] > 48  # a legend below
    changed = np.abs(film[0][:48].astype(int) - clip.picture(0)).mean(axis=2)
    assert changed[_first_mask() > 0].mean() > 3 * changed[_first_mask() == 0].mean()


def test_zip_is_a_davis_folder_from_which_the_library_computes_the_same(predictor, followed, tmp_path):
    zipfile.ZipFile(io.BytesIO(davis_zip(followed))).extractall(tmp_path)
    davis = open_davis(tmp_path)
    assert davis.sequences == ("square",)
    sequence = davis.clip("square")
    first_mask = read_first_mask(sequence)
    pictures = [cv2.imread(str(frame))[..., ::-1].copy() for frame in sequence.frames]
    for number, labels in enumerate(propagate_frames(pictures, first_mask, predictor)):
        found = read_labels(tmp_path / "Annotations/480p/square" / f"{number:05d}.png")
        assert (found == labels).mean() > 0.99  # another JPEG decoder may round otherwise
        np.testing.assert_array_equal(found, followed.labels(number))


def test_zip_that_was_downloaded_can_be_sent_again(followed, tmp_path):
    (tmp_path / "again.zip").write_bytes(davis_zip(followed))
    again = clips.read(tmp_path / "again.zip", SMALL)
    assert (len(again.frames), again.size) == (6, (48, 64))


def test_run_lengths_decode_to_the_masks(followed, tmp_path):
    (tmp_path / "masks.json").write_bytes(masks_json(followed))
    assert json.loads(masks_json(followed))["info"]["fps"] == 24
    read = COCO(tmp_path / "masks.json")
    for image in read.loadImgs(read.getImgIds()):
        labels = np.zeros((image["height"], image["width"]), np.uint8)
        for annotation in read.loadAnns(read.getAnnIds(imgIds=image["id"])):
            labels[read.annToMask(annotation) > 0] = annotation["category_id"]
        np.testing.assert_array_equal(labels, followed.labels(image["id"] - 1))


@given(st.integers(1, 20), st.integers(1, 20), st.randoms(use_true_random=False))
def test_mask_files_keep_their_labels(height, width, random):
    labels = np.array(
        [[random.randint(0, MAX_OBJECTS) for _ in range(width)] for _ in range(height)], dtype=np.uint8
    )
    np.testing.assert_array_equal(np.array(Image.open(io.BytesIO(labels_png(labels)))), labels)


def test_objects_of_a_davis_zip_come_along_with_its_frames(tmp_path):
    labels = np.zeros((48, 64), np.uint8)
    labels[10:20, 5:30], labels[30:40, 40:60], labels[0] = 1, 2, 255  # two objects, and void
    _zip(tmp_path / "davis.zip", [f"JPEGImages/480p/square/{number:05d}.png" for number in range(3)])
    with zipfile.ZipFile(tmp_path / "davis.zip", "a") as archive:
        for number in range(3):
            image = Image.fromarray(np.roll(labels, number), mode="P")
            image.putpalette(list(range(256)) * 3)
            buffer = io.BytesIO()
            image.save(buffer, "PNG")
            archive.writestr(f"Annotations/480p/square/{number:05d}.png", buffer.getvalue())
    clip = clips.read(tmp_path / "davis.zip", SMALL)
    assert len(clip.frames) == 3
    np.testing.assert_array_equal(from_runs(clip.marked, (48, 64)), np.where(labels == 255, 0, labels))


def test_black_and_white_annotations_are_one_object_and_damaged_ones_are_named(tmp_path):
    white = np.zeros((48, 64), np.uint8)
    white[10:20, 5:30] = 255
    for content, name in ((white, "white.zip"), (b"\x89PNG\r\n\x1a\nnothing", "damaged.zip")):
        _zip(tmp_path / name, ["frames/1.png", "frames/2.png"])
        buffer = io.BytesIO()
        if isinstance(content, np.ndarray):
            Image.fromarray(content).save(buffer, "PNG")
        with zipfile.ZipFile(tmp_path / name, "a") as archive:
            archive.writestr("Annotations/1.png", buffer.getvalue() or content)
    clip = clips.read(tmp_path / "white.zip", SMALL)
    np.testing.assert_array_equal(from_runs(clip.marked, (48, 64)), white // 255)
    assert "1.png in the folder Annotations" in _refused(tmp_path / "damaged.zip")
