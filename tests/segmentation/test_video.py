"""Folders of frames, video files, and the command `video`."""

import io
import json
import struct
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from dino_model.data.images import ImageError
from dino_model.inference.predictor import AttentionPredictor
from segmentation import drawing, video
from segmentation.annotations import read_labels
from segmentation.commands.video import Video
from segmentation.labels import DataError, write_mask_png
from segmentation.masks import enlarge, keep_mass_of_maps
from segmentation.video import VideoWriter
from segmentation.video_input import FrameFolder, VideoFile, open_frames
from tests.segmentation.coco import load_results

MODEL = "random:vit_tiny/16"


def draw_frames(count: int, size: tuple[int, int] = (48, 64)) -> list[np.ndarray]:
    """Make smooth images, each with its own brightness."""
    y, x = np.mgrid[: size[0], : size[1]]
    first = np.stack([x * 255 // size[1], y * 255 // size[0], (x + y) % 256], axis=-1)
    return [np.clip(first // 2 + 10 * number, 0, 255).astype(np.uint8) for number in range(count)]


def write_folder(folder: Path, names: list[str], size: tuple[int, int] = (48, 64)) -> Path:
    folder.mkdir()
    for name, frame in zip(names, draw_frames(len(names), size), strict=True):
        Image.fromarray(frame).save(folder / name)
    return folder


def write_video(path: Path, images: list[np.ndarray], *times: float) -> Path:
    with VideoWriter(path, 12.5) as writer:
        for image, time in zip_longest(images, times):
            writer.write(image, time)
    return path


def test_unreadable_or_other_sized_frame_is_named(tmp_path):
    folder = write_folder(tmp_path / "a", ["0.png", "1.png"])
    Image.new("RGB", (40, 32)).save(folder / "1.png")
    with pytest.raises(DataError, match=r"the frame .*1\.png is 40x32 pixels, the first 64x48"):
        list(FrameFolder(folder))
    (folder / "1.png").write_bytes(b"\x89PNG")
    with pytest.raises(ImageError, match=r"1\.png"):
        list(FrameFolder(folder))


def encode(kind: str, image: Image.Image, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def song_with_cover() -> bytes:
    """Make an MP3 with an ID3 tag that holds a JPEG."""
    picture = b"\0image/jpeg\0\3\0" + encode("JPEG", Image.new("RGB", (32, 32)))
    tag = b"APIC" + struct.pack(">IH", len(picture), 0) + picture
    size = bytes(len(tag) >> shift & 127 for shift in (21, 14, 7, 0))
    silence = b"\xff\xfb\x90\x00" + bytes(413)  # a frame of MPEG-1 layer III
    return b"ID3\3\0\0" + size + tag + silence * 20


PAGES = [Image.new("L", (32, 24), 60 * number) for number in range(4)]
WRONG = {  # content of a file, and what the message has
    "text.mp4": (lambda: b"no video", "cannot be opened as a video"),
    "empty.mp4": (lambda: b"", r"is empty \(0 bytes\)"),
    "lfs.mp4": (
        lambda: b"version https://git-lfs.github.com/spec/v1\n",
        "Git LFS pointer: run `git lfs pull`",
    ),
    "none.mp4": (None, "does not exist"),
    "song.mp3": (song_with_cover, "holds no video, only audio, a cover image"),
    "one.webp": (lambda: encode("WEBP", PAGES[0]), "is an image of one frame"),
    "jpeg.mp4": (lambda: encode("JPEG", PAGES[0]), "is an image of one frame"),
    "cut.webp": (lambda: encode("WEBP", PAGES[0])[:20], "cannot be read as an animated image"),
    "deep.tif": (
        lambda: encode("TIFF", PAGES[0].convert("I"), save_all=True, append_images=[PAGES[1].convert("I")]),
        "has values of more than 8 bits",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_file_that_is_no_video_is_called_that(tmp_path, name):
    content, message = WRONG[name]
    if content:
        (tmp_path / name).write_bytes(content())
    with pytest.raises(DataError, match=rf"{name} .*{message}"):
        open_frames(tmp_path / name)


def test_tiff_of_pages_is_a_video(tmp_path):
    PAGES[0].save(tmp_path / "a.tif", save_all=True, append_images=PAGES[1:])
    frames = open_frames(tmp_path / "a.tif")
    assert [frame[0, 0, 0] for frame in frames] == [0, 60, 120, 180]
    np.testing.assert_allclose(np.diff(frames.times), 1 / 24)


def test_written_video_is_read_again(tmp_path):
    images = draw_frames(7, (51, 33))
    path = write_video(tmp_path / "clip.webm", images)
    frames = open_frames(path)
    found = list(frames)
    assert len(found) == 7 == frames.expected
    assert frames.fps == pytest.approx(12.5)
    for frame, image in zip(found, images, strict=True):
        assert (frame.shape, frame.dtype) == ((52, 34, 3), np.uint8)
        assert np.abs(frame[:51, :33].astype(int) - image).mean() < 12  # lossy
    before = path.read_bytes()
    with pytest.raises(DataError, match="the first was"):
        write_video(path, [*images, *draw_frames(1, (32, 32))])
    assert path.read_bytes() == before  # an error leaves the earlier file alone
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def write_stream(path: Path, codec: str, pixels: str, images: list[np.ndarray]) -> Path:
    """Write images of any PyAV codec at 10 frames per second."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width, stream.pix_fmt = *images[0].shape[:2], pixels
        for image in images:
            frame = av.VideoFrame.from_ndarray(image, format="rgba" if image.shape[-1] == 4 else "rgb24")
            container.mux(stream.encode(frame.reformat(format=pixels)))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize(("codec", "suffix"), [("png", "mov"), ("mjpeg", "mkv"), ("mjpeg", "avi")])
@pytest.mark.parametrize("damaged", [(3,), (1, 6, 7)])
def test_damaged_packets_are_skipped_and_named(tmp_path, codec, suffix, damaged):
    pixels = "rgb24" if codec == "png" else "yuvj420p"
    path = write_stream(tmp_path / f"clip.{suffix}", codec, pixels, draw_frames(10))
    whole, content = list(VideoFile(path)), bytearray(path.read_bytes())
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux() if packet.size]
    for number in damaged:
        at = content.index(packets[number])
        content[at : at + len(packets[number])] = b"\xff" * len(packets[number])
    path.write_bytes(content)
    frames = VideoFile(path)
    for frame, expected in zip(frames, np.delete(whole, damaged, axis=0), strict=True):
        np.testing.assert_array_equal(frame, expected)
    assert [text.split(" (")[0] for text in frames.damaged] == [f"packet {number}" for number in damaged]
    expected_times = np.delete(np.arange(10) / 10, damaged)
    np.testing.assert_allclose(frames.times, expected_times, atol=0.002)


def test_video_with_a_damaged_packet_ends_with_its_count(tmp_path):
    path = write_stream(tmp_path / "clip.mov", "png", "rgb24", draw_frames(4))
    with av.open(str(path)) as container:
        packet = [bytes(packet) for packet in container.demux() if packet.size][2]
    path.write_bytes(path.read_bytes().replace(packet, b"\0" * len(packet)))
    with pytest.raises(ValueError, match=r"skipped 1 of 4 packets: clip\.mov: packet 2 \(Invalid data"):
        Video(path, output=tmp_path / "out", model=MODEL, size=32).run()
    assert len(list(VideoFile(tmp_path / "out" / "mean.webm"))) == 3
    assert json.loads((tmp_path / "out" / "provenance.json").read_text())["finished"]


TIMES = {  # of the file in milliseconds, and those that are read
    "even": ((0, 100, 200, 300), (0, 0.1, 0.2, 0.3)),
    "late start": ((5000, 5100, 5300, 5400), (0, 0.1, 0.3, 0.4)),
    "restart of the first interval": ((200, 300, 200, 300), (0, 0.1, 0.2, 0.3)),
    "restart at once": ((0, 0, 0, 0), (0, 0.0015, 0.003, 0.0045)),
    "two restarts": ((500, 0, 100, 0), (0, 0.1, 0.2, 0.3)),
    "nearly equal": ((0, 1, 2, 300), (0, 0.0015, 0.003, 0.3)),
    "little backwards": ((0, 100, 99, 200), (0, 0.1, 0.1015, 0.2)),
}


def test_link_to_a_missing_frame_is_skipped_and_counted(tmp_path, capsys):
    folder = write_folder(tmp_path / "frames", ["0.png", "2.png"])
    (folder / "1.png").symlink_to(tmp_path / "annexed.png")
    with pytest.raises(
        ValueError, match=r"skipped 1 of 3 frames: frames: 1\.png \(a link to a missing file\)"
    ):
        Video(folder, output=tmp_path / "out", model=MODEL, size=32).run()
    assert "\n2 frames\n" in capsys.readouterr().out
    for name in ("0.png", "2.png"):
        (folder / name).unlink()
    with pytest.raises(DataError, match="only links to missing files"):
        open_frames(folder)


@pytest.mark.parametrize("form", TIMES)
def test_times_become_strictly_increasing(tmp_path, monkeypatch, form):
    stored, expected = TIMES[form]
    path = write_stream(tmp_path / "clip.mov", "png", "rgb24", draw_frames(4))
    decode = VideoFile._decode

    def decode_at(self, *arguments):
        for frame, time in zip(decode(self, *arguments), stored, strict=False):
            frame.pts, frame.time_base = time, Fraction(1, 1000)
            yield frame

    monkeypatch.setattr(VideoFile, "_decode", decode_at)
    frames = VideoFile(path)
    images = list(frames)
    assert frames.times == pytest.approx(expected)
    write_video(tmp_path / "copy.webm", images, *frames.times)
    copied = VideoFile(tmp_path / "copy.webm")
    monkeypatch.undo()
    assert len(list(copied)) == 4
    assert (np.diff(copied.times) > 0).all()


def test_joined_transport_streams_are_read_to_the_end(tmp_path):
    part = write_stream(tmp_path / "part.ts", "mpeg2video", "yuv420p", draw_frames(5))
    (tmp_path / "both.ts").write_bytes(part.read_bytes() * 2)
    frames = VideoFile(tmp_path / "both.ts")
    images = list(frames)
    assert len(images) == len(frames.times) == 10
    write_video(tmp_path / "both.webm", images, *frames.times)
    assert len(list(VideoFile(tmp_path / "both.webm"))) == 10


@pytest.mark.parametrize("form", ["webp", "gif", "apng", "mov", "qtrle.mov", "webm"])
def test_alpha_is_over_white_in_every_animation(tmp_path, form):
    images = [
        np.dstack([np.full((32, 48, 3), 60 + 60 * number, np.uint8), np.full((32, 48), 255, np.uint8)])
        for number in range(3)
    ]
    for image in images:
        image[:, :24, 3] = 0
    path = tmp_path / f"clip.{form}"
    streams = {"mov": ("png", "rgba"), "qtrle.mov": ("qtrle", "argb"), "webm": ("libvpx-vp9", "yuva420p")}
    if form in streams:
        write_stream(path, *streams[form], images)
    else:
        first, *others = map(Image.fromarray, images)
        options = {"webp": {"lossless": True}, "gif": {"disposal": 2}, "apng": {"format": "PNG"}}[form]
        first.save(path, save_all=True, append_images=others, duration=[100, 50, 200], **options)
    frames = open_frames(path)
    for frame, image in zip(frames, images, strict=True):
        assert (frame[:, :22] == 255).all()
        assert np.abs(frame[:, 26:].astype(int) - image[:, 26:, :3]).max() <= 2
    assert frames.times == pytest.approx([0, 0.1, 0.2 if form in streams else 0.15], abs=0.011)
    assert len(frames.times) == frames.expected == 3
    assert form not in ("webp", "apng") or frames.fps == pytest.approx(20)  # of the shortest frame


def test_frames_of_a_folder_have_their_rate(tmp_path):
    for number in range(3):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
    assert FrameFolder(tmp_path, fps=5).times == pytest.approx([0, 0.2, 0.4])
    assert FrameFolder(tmp_path).fps == 24


def test_error_of_ffmpeg_names_the_users_file(tmp_path):
    with pytest.raises(DataError, match=rf"{tmp_path}.clip\.webm cannot be written: "):
        write_video(tmp_path / "clip.webm", draw_frames(2), 0.2, 0.1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "matrix",
    [
        (1, 0, 0, 1),
        (-1, 0, 0, 1),
        (1, 0, 0, -1),
        (-1, 0, 0, -1),
        (0, 1, 1, 0),
        (0, 1, -1, 0),
        (0, -1, 1, 0),
        (0, -1, -1, 0),
    ],
)
def test_video_is_turned_and_mirrored_as_its_matrix_says(tmp_path, matrix):
    content = bytearray(write_video(tmp_path / "plain.mp4", draw_frames(1)).read_bytes())
    numbers = [value << 16 for value in (1, 0, 0, 0, 1, 0, 0, 0)] + [
        1 << 30
    ]  # of a track, as ISO 14496-12 states
    a, b, c, d = matrix
    turned = [value << 16 for value in (a, b, 0, c, d, 0, 0, 0)] + [1 << 30]
    at = content.index(struct.pack(">9i", *numbers), content.index(b"tkhd"))
    content[at : at + 36] = struct.pack(">9i", *turned)
    (tmp_path / "turned.mp4").write_bytes(content)
    plain, shown = (next(iter(VideoFile(tmp_path / f"{name}.mp4"))) for name in ("plain", "turned"))
    assert shown.shape[:2] == (plain.shape[:2] if a else plain.shape[1::-1])
    for y, x in ((0, 0), (5, 9), (47, 63)):  # the pixel (x, y) is shown at (ax + cy, bx + dy)
        place = np.array([b * x + d * y, a * x + c * y]) - np.minimum(0, [63 * b + 47 * d, 63 * a + 47 * c])
        np.testing.assert_array_equal(shown[tuple(place)], plain[y, x])


def test_attention_video_uses_color_range_of_first_frame():
    predictor = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    first, *others = draw_frames(4)
    (views, mask), (second, _), *_, (last, _) = video.attention_video([first, *others, first], predictor)
    for view, again in zip(views, last, strict=True):
        np.testing.assert_array_equal(view, again)
    predictor.set_image(first)
    attention = predictor.cls_attention()
    *heads, most = np.quantile([*attention, attention.mean(0)], 0.995, axis=(1, 2)).tolist()
    kept = enlarge(keep_mass_of_maps(attention.mean(0), 0.6), first.shape[:2])
    np.testing.assert_array_equal(views[1], drawing.overlay_heat(first, attention.mean(0), (0, most)))
    np.testing.assert_array_equal(views[2], drawing.overlay_masks(first, kept))
    np.testing.assert_array_equal(mask, kept)
    tiles = [("frame", first)]
    for number, (head, bright) in enumerate(zip(attention, heads, strict=True)):
        heat = drawing.heat_map(head, first.shape[:2], value_range=(0, bright), interpolation="bilinear")
        tiles.append((f"head {number}", heat))
    mosaic = drawing.contact_sheet([tiles[:2], tiles[2:]], height=len(first))  # three heads
    np.testing.assert_array_equal(views[0], mosaic)
    other, _ = next(video.attention_video(others, predictor))
    assert (other[1] != second[1]).any()


def test_attention_mask_of_a_frame_that_is_drawn_smaller_has_its_size():
    predictor = AttentionPredictor(MODEL, size=16, precision="fp32", device="cpu")
    (frame,) = draw_frames(1, (96, 2 * video.MAX_SIDE))
    (views, mask), *_ = video.attention_video([frame], predictor)
    assert views[1].shape == views[2].shape == (48, video.MAX_SIDE, 3)
    assert mask.shape == frame.shape[:2]


def test_draw_labels_has_fixed_legend():
    frame, labels = draw_frames(1, (60, 200))[0], np.zeros((60, 200), np.uint8)
    empty = video.draw_labels(frame, labels, (1, 3))
    labels[5:30, 5:90] = 3
    drawn = video.draw_labels(frame, labels, (1, 3))
    tinted = drawing.overlay_masks(frame, labels == 3, colors=drawing.head_colors(3)[2:])
    np.testing.assert_array_equal(drawn[:60], tinted)
    np.testing.assert_array_equal(empty[:60], frame)
    np.testing.assert_array_equal(drawn[60:], empty[60:])
    assert video.shrunk(frame, 100).shape == (30, 100, 3)


@pytest.mark.parametrize("suffix", ["webm", "mp4"])
def test_video_writes_attention_with_times_and_reports_missing_end(tmp_path, monkeypatch, capsys, suffix):
    times = [0.0, 0.1, 0.5, 0.6]
    clip = VideoFile(write_video(tmp_path / "clip.webm", draw_frames(4, (50, 34)), *times))
    clip.expected = 9
    monkeypatch.setattr("segmentation.commands.video.open_frames", lambda path, fps, listed: clip)
    out = tmp_path / "out"
    options = {"input": tmp_path / "clip.webm", "output": out, "model": MODEL, "size": 32, "format": suffix}
    Video(**options).run()
    printed = capsys.readouterr().out
    assert "promises 9 frames, 4 could be decoded" in printed
    for view in video.VIEWS:
        drawn = VideoFile(out / f"{view}.{suffix}")
        assert len(list(drawn)) == 4
        assert drawn.times == pytest.approx(times, abs=0.002)
    masks = sorted((out / "masks").iterdir())
    assert [mask.name for mask in masks] == [f"{number:05d}.png" for number in range(4)]
    assert read_labels(masks[0]).shape == (50, 34)
    loaded = load_results(out)
    assert [image["file_name"] for image in loaded.dataset["images"]] == [mask.name for mask in masks]
    with pytest.raises(DataError, match="--fps is 0; expected"):
        Video(**options | {"output": tmp_path / "new"}, fps=0.0).run()


def test_interrupted_video_with_labels_keeps_finished_frames_and_is_resumed(tmp_path, monkeypatch, capsys):
    names, out, file = [f"{number}.png" for number in range(8, 13)], tmp_path / "out", tmp_path / "mask.png"
    mask = np.pad(np.full((30, 30), 4, np.uint8), 17)
    write_mask_png(file, mask)
    options = {"input": write_folder(tmp_path / "frames", names, (64, 64)), "output": out, "model": MODEL}
    options |= {"size": 64, "fps": 5, "mask": (str(file),)}
    written: list[Path] = []

    def write(file: Path, labels: np.ndarray) -> None:
        written.append(file)
        if len(written) == 4:
            raise KeyboardInterrupt
        write_mask_png(file, labels)

    with monkeypatch.context() as patch:
        patch.setattr("segmentation.commands.video.write_mask_png", write)
        with pytest.raises(KeyboardInterrupt):
            Video(**options).run()
    assert "3 of 5 frames are finished and kept" in capsys.readouterr().out
    assert len(list((out / "masks").iterdir())) == 3
    assert len(list(VideoFile(out / "labels.webm"))) >= 3
    Video(**options, resume=True).run()
    assert {file.name for file in (out / "masks").iterdir()} == set(names)
    clip = VideoFile(out / "labels.webm")
    assert (len(list(clip)), clip.fps) == (5, pytest.approx(5))
    np.testing.assert_array_equal(read_labels(out / "masks" / "8.png"), mask)
    assert {each["category_id"] for each in json.loads((out / "masks.json").read_text())} == {4}


def test_masks_of_any_frames_are_propagated_and_wrong_ones_named(tmp_path):
    folder, masks = write_folder(tmp_path / "frames", [f"f{k}.png" for k in range(4)]), tmp_path / "masks"
    clip = write_video(tmp_path / "clip.webm", draw_frames(4))
    masks.mkdir()
    label = np.zeros((48, 64), np.uint8)
    label[8:40, 8:40] = 3
    other = write_folder(tmp_path / "other", ["0.png"])
    for name in ("f1.png", "f3.png"):
        write_mask_png(masks / name, label)
    write_mask_png(tmp_path / "0002.png", np.where(label, 5, 0).astype(np.uint8))
    options = {"model": MODEL, "size": 64}
    Video(folder, output=tmp_path / "a", masks=masks, mask=(f"2={tmp_path / '0002.png'}",), **options).run()
    written = [read_labels(tmp_path / "a" / "masks" / f"f{number}.png") for number in range(4)]
    for labels, value in zip(written[1:], (3, 5, 3), strict=True):  # each mask covers the objects before
        np.testing.assert_array_equal(labels == value, label > 0)
    Video(clip, output=tmp_path / "b", mask=(f"3={masks / 'f3.png'}",), **options).run()
    assert (read_labels(tmp_path / "b" / "masks" / "00000.png") == 3).any()
    wrong = {
        "f1.png; expected numbers of frames": {"input": clip, "masks": masks},
        "a mask belongs to frame 9": {"input": folder, "mask": (f"9={masks / 'f1.png'}",)},
        "f3.png has the name of frame 3: pass --mask 3=": {"input": folder, "mask": (f"{masks}/f3.png",)},
        "two masks belong to one frame": {"input": folder, "masks": masks, "mask": (f"1={masks}/f1.png",)},
        "has f1.png; expected the name of a frame": {"input": other, "masks": masks},
    }
    for message, faulty in wrong.items():
        with pytest.raises(DataError, match=message):
            Video(**faulty, output=tmp_path / "c", **options).run()
