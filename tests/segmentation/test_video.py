"""Videos in and out, attention as a video, and how much memory it takes."""

import gc
import json
import wave
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from dino_model.images import ImageError
from dino_model.predictor import AttentionPredictor
from segmentation.commands.video import Video
from segmentation.labels import LabelError, read_labels, write_mask_png
from segmentation.propagation import ColorPatches, propagate_frames
from segmentation.video import (
    ColorRange,
    FrameFolder,
    VideoError,
    VideoFile,
    VideoWriter,
    attention_video,
    color_range,
    draw_labels,
    frame_files,
    open_frames,
    shown_size,
    shrunk,
)

MODEL = "random:vit_tiny/16"


def pictures(count: int, size: tuple[int, int] = (48, 64)) -> list[np.ndarray]:
    """Smooth pictures, each with its own brightness."""
    y, x = np.mgrid[: size[0], : size[1]]
    one = np.stack([x * 255 // size[1], y * 255 // size[0], (x + y) % 256], axis=-1)
    return [np.clip(one // 2 + 10 * number, 0, 255).astype(np.uint8) for number in range(count)]


def write_folder(folder: Path, names: list[str], size: tuple[int, int] = (48, 64)) -> Path:
    folder.mkdir(parents=True)
    for name, picture in zip(names, pictures(len(names), size), strict=True):
        Image.fromarray(picture).save(folder / name)
    return folder


def write_video(path: Path, count: int, size: tuple[int, int] = (48, 64), fps: float = 12.5) -> Path:
    with VideoWriter(path, fps) as writer:
        for picture in pictures(count, size):
            writer.write(picture)
    return path


# --- folders of frames


def test_frames_come_in_the_order_of_their_numbers(tmp_path: Path):
    folder = write_folder(tmp_path / "a", [f"frame-{number}.png" for number in range(8, 13)])
    (folder / "notes.txt").write_text("not a frame")
    (folder / ".hidden.png").write_bytes(b"")
    assert [file.name for file in frame_files(folder)] == [f"frame-{number}.png" for number in range(8, 13)]
    named = write_folder(tmp_path / "b", ["b.png", "a.png"])
    assert [file.name for file in frame_files(named)] == ["a.png", "b.png"]


def test_a_constant_step_is_no_gap_but_a_missing_frame_is(tmp_path: Path):
    folder = write_folder(tmp_path / "a", [f"{number:05d}.jpg" for number in (0, 5, 10, 15)])
    assert len(frame_files(folder)) == 4
    (folder / "00010.jpg").unlink()
    with pytest.raises(VideoError, match=r"from 00005\.jpg to 00015\.jpg, a gap"):
        frame_files(folder)
    assert len(frame_files(folder, allow_gaps=True)) == 3


def test_what_is_no_folder_of_frames_is_named(tmp_path: Path):
    with pytest.raises(VideoError, match="is no folder"):
        frame_files(tmp_path / "none")
    folder = write_folder(tmp_path / "up" / "down", ["00001.png"]).parent
    with pytest.raises(VideoError, match=r"holds no image; it has folders: down"):
        frame_files(folder)
    write_folder(tmp_path / "twice", ["1.png", "01.png", "2.png"])
    with pytest.raises(VideoError, match=r"two frames of one number"):
        frame_files(tmp_path / "twice")


def test_an_unreadable_frame_is_named(tmp_path: Path):
    folder = write_folder(tmp_path / "a", ["00000.png", "00001.png"])
    (folder / "00001.png").write_bytes(b"\x89PNG")
    frames = iter(FrameFolder(folder))
    next(frames)
    with pytest.raises(ImageError, match=r"00001\.png"):
        next(frames)


# --- video files


@pytest.mark.parametrize("suffix", [".webm", ".mp4"])
@pytest.mark.parametrize(
    "size", [(48, 64), (64, 48), (48, 48), (51, 33)], ids=["wide", "tall", "square", "odd"]
)
def test_a_written_video_is_read_again(tmp_path: Path, suffix: str, size: tuple[int, int]):
    path = write_video(tmp_path / f"clip{suffix}", 7, size)
    frames = open_frames(path)
    found = list(frames)
    assert len(found) == 7 == frames.expected
    assert frames.fps == pytest.approx(12.5)
    assert found[0].shape == (size[0] + size[0] % 2, size[1] + size[1] % 2, 3)
    for frame, picture in zip(found, pictures(7, size), strict=True):
        assert frame.dtype == np.uint8
        assert np.abs(frame[: size[0], : size[1]].astype(int) - picture).mean() < 12  # lossy
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_an_interrupted_video_leaves_nothing_and_spares_the_old_one(tmp_path: Path):
    path = write_video(tmp_path / "clip.webm", 3)
    before = path.read_bytes()
    with pytest.raises(VideoError, match="the first was"):
        write_two_sizes(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.webm"]


def write_two_sizes(path: Path) -> None:
    with VideoWriter(path, 10) as writer:
        writer.write(pictures(1)[0])
        writer.write(pictures(1, (32, 32))[0])


def test_what_is_no_video_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(VideoError, match=r"text\.mp4 cannot be opened as a video"):
        open_frames(tmp_path / "text.mp4")
    with pytest.raises(VideoError, match="does not exist"):
        open_frames(tmp_path / "none.mp4")
    with pytest.raises(VideoError, match=r"ends in \.webm or \.mp4"):
        VideoWriter(tmp_path / "clip.gif", 10)
    write_video(tmp_path / "clip.webm", 2)
    assert capfd.readouterr().err == ""


def test_samples_are_spread_over_the_whole_video(tmp_path: Path):
    video = VideoFile(write_video(tmp_path / "clip.mp4", 21))
    folder = FrameFolder(write_folder(tmp_path / "a", [f"{number}.png" for number in range(21)]))
    for frames in (video, folder):
        brightness = [frame.mean() for frame in frames.sample(3)]
        everything = [frame.mean() for frame in frames]
        np.testing.assert_allclose(brightness, [everything[0], everything[10], everything[20]], atol=1e-9)
        assert len(list(frames.sample(50))) == 21


# --- attention


@pytest.fixture(scope="module")
def predictor() -> AttentionPredictor:
    return AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")


class StillFrames(FrameFolder):
    """A given list of pictures."""

    def __init__(self, frames: list[np.ndarray]) -> None:
        self.frames, self.expected = frames, len(frames)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.frames)

    def sample(self, count: int) -> Iterator[np.ndarray]:
        return iter(self.frames[:count])


def test_the_color_range_is_one_for_the_whole_video(predictor: AttentionPredictor):
    first, *others = pictures(5)
    colours = color_range(StillFrames([first, *others]), predictor)
    assert colours.heads.shape == (predictor.heads,)
    alone = next(attention_video([first], predictor, colours))
    among = list(attention_video([*others, first], predictor, colours))[-1]
    for view in ("heads", "mean", "mask"):
        np.testing.assert_array_equal(alone.views[view], among.views[view])
    brighter = ColorRange(colours.heads / 2, colours.mean / 2)
    drawn = next(attention_video([first], predictor, brighter))
    assert (drawn.views["mean"] != alone.views["mean"]).any()


@pytest.mark.parametrize("size", [(48, 64), (120, 50), (64, 64)], ids=["wide", "tall", "square"])
def test_views_have_the_shape_of_the_video(predictor: AttentionPredictor, size: tuple[int, int]):
    colours = ColorRange(np.full(predictor.heads, 0.1, np.float32), 0.1)
    frame = next(attention_video(pictures(1, size), predictor, colours, max_side=60))
    assert frame.mask.shape == size
    assert 0 < frame.mask.mean() < 1
    shown = shown_size(size, 60)
    assert max(shown) <= 60
    assert frame.views["mean"].shape == frame.views["mask"].shape == (*shown, 3)
    assert frame.views["heads"].shape[1] <= 60
    only = next(attention_video(pictures(1, size), predictor, colours, views=["mean"]))
    assert list(only.views) == ["mean"]
    masks = [next(attention_video(pictures(1, size), predictor, colours, head=head)).mask for head in (0, 1)]
    assert (masks[0] != masks[1]).any()
    with pytest.raises(ValueError, match=r"no head 3; .* has heads 0 to 2"):
        next(attention_video(pictures(1), predictor, colours, head=3))
    with pytest.raises(ValueError, match="unknown view 'heat'"):
        next(attention_video(pictures(1), predictor, colours, views=["heat"]))  # type: ignore[list-item]


def test_a_legend_names_every_object_in_every_frame():
    frame, labels = pictures(1, (60, 200))[0], np.zeros((60, 200), np.uint8)
    empty = draw_labels(frame, labels, (1, 3))
    labels[5:30, 5:90] = 3
    drawn = draw_labels(frame, labels, (1, 3))
    assert drawn.shape == empty.shape
    assert (drawn[:60] != empty[:60]).any(-1).mean() > 0.1
    np.testing.assert_array_equal(drawn[60:], empty[60:])
    assert shrunk(frame, 100).shape == (30, 100, 3)


# --- the command


def test_the_command_draws_attention_of_a_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    clip = write_video(tmp_path / "clip.mp4", 4, (50, 34))
    Video(clip, output=tmp_path / "out", model=MODEL, size=64).run()
    printed = capsys.readouterr().out
    assert "4 frames written" in printed
    for view in ("heads", "mean", "mask"):
        assert len(list(VideoFile(tmp_path / "out" / f"{view}.webm"))) == 4
    masks = sorted((tmp_path / "out" / "masks").iterdir())
    assert [mask.name for mask in masks] == [f"{number:05d}.png" for number in range(4)]
    assert read_labels(masks[0]).shape == (50, 34)
    COCO(tmp_path / "out" / "masks_images.json").loadRes(str(tmp_path / "out" / "masks.json"))
    with pytest.raises(ValueError, match="--overwrite"):
        Video(clip, output=tmp_path / "out", model=MODEL, size=64).run()
    Video(
        clip, output=tmp_path / "out", model=MODEL, size=64, views=("mean",), overwrite=True, format="mp4"
    ).run()
    assert VideoFile(tmp_path / "out" / "mean.mp4").fps == pytest.approx(12.5)


def test_the_command_carries_labels_through_a_folder(tmp_path: Path):
    frames = write_folder(tmp_path / "frames", [f"{number:05d}.png" for number in range(10, 16)], (64, 64))
    mask = np.zeros((64, 64), np.uint8)
    mask[10:40, 10:40] = 4
    write_mask_png(tmp_path / "mask.png", mask)
    Video(frames, output=tmp_path / "out", mask=tmp_path / "mask.png", model=MODEL, size=64, fps=5).run()
    masks = sorted((tmp_path / "out" / "masks").iterdir())
    assert [file.name for file in masks] == [f"{number:05d}.png" for number in range(10, 16)]
    np.testing.assert_array_equal(read_labels(masks[0]), mask)
    assert set(np.unique(read_labels(masks[-1]))) <= {0, 4}
    video = VideoFile(tmp_path / "out" / "labels.webm")
    assert len(list(video)) == 6
    assert video.fps == pytest.approx(5)
    records = json.loads((tmp_path / "out" / "masks.json").read_text())
    assert {record["category_id"] for record in records} == {4}


def test_the_command_names_what_does_not_fit(tmp_path: Path):
    frames = write_folder(tmp_path / "frames", ["0.png", "1.png", "2.png"])
    write_mask_png(tmp_path / "small.png", np.ones((10, 10), np.uint8))
    with pytest.raises(LabelError, match=r"small\.png is 10x10 pixels, the frames of frames 64x48"):
        Video(frames, output=tmp_path / "out", mask=tmp_path / "small.png", model=MODEL).run()
    write_mask_png(tmp_path / "white.png", np.full((48, 64), 255, np.uint8))
    with pytest.raises(LabelError, match="--binary"):
        Video(frames, output=tmp_path / "out", mask=tmp_path / "white.png", model=MODEL).run()
    for wrong in ({"fps": 0.0}, {"fps": -1.0}, {"max_side": 0}):
        with pytest.raises(ValueError, match="expected"):
            Video(frames, output=tmp_path / "out", model=MODEL, **wrong).run()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch is 0"):
        next(propagate_frames(pictures(1), np.ones((48, 64), np.uint8), ColorPatches(size=64), batch=0))
    (frames / "2.png").write_bytes(b"broken")
    with pytest.raises(ImageError, match=r"2\.png"):
        Video(frames, output=tmp_path / "out", model=MODEL, size=64).run()


# --- memory


def peak_of(compute: Callable[[], object]) -> int:
    """Most memory that a computation adds to the process, in bytes."""
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("this system does not tell a process its peak memory")

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(dict(line.split(":", 1) for line in lines)[field].split()[0]) * 1024

    gc.collect()
    reset.write_text("5")
    before = status("VmRSS")
    compute()
    return status("VmHWM") - before


def exhaust(items: Iterator[object]) -> None:
    for _ in items:
        pass


def test_memory_does_not_grow_with_the_length(tmp_path: Path):
    mask = np.zeros((64, 64), np.uint8)
    mask[8:40, 8:40] = 1
    frame = pictures(1, (64, 64))[0]

    def label(count: int) -> None:
        exhaust(propagate_frames(repeat(frame, count), mask, ColorPatches(size=64)))

    label(10)
    assert peak_of(lambda: label(1000)) < 8e6


def test_the_command_keeps_no_frame_of_a_long_video(tmp_path: Path):
    frame = pictures(1, (240, 320))[0]
    for name, count in (("short", 20), ("long", 220)):
        with VideoWriter(tmp_path / f"{name}.mp4", 25) as writer:
            for _ in range(count):
                writer.write(frame)

    def draw(name: str) -> None:
        options = {"model": MODEL, "size": 32, "views": ("mean",), "overwrite": True}
        Video(tmp_path / f"{name}.mp4", output=tmp_path / name, **options).run()  # type: ignore[arg-type]

    draw("short")
    short = peak_of(lambda: draw("short"))
    assert peak_of(lambda: draw("long")) - short < 200 * frame.nbytes / 3


def interrupt_at(monkeypatch: pytest.MonkeyPatch, frame: int) -> None:
    written = []

    def write(file: Path, labels: np.ndarray) -> None:
        written.append(file)
        if len(written) == frame + 1:
            raise KeyboardInterrupt
        write_mask_png(file, labels)

    monkeypatch.setattr("segmentation.commands.video.write_mask_png", write)


@pytest.mark.parametrize("propagated", [False, True])
def test_interrupted_video_keeps_finished_frames_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, propagated: bool, capsys: pytest.CaptureFixture[str]
):
    frames = write_folder(tmp_path / "frames", [f"{number}.png" for number in range(5)], (64, 64))
    mask = np.zeros((64, 64), np.uint8)
    mask[10:40, 10:40] = 1
    write_mask_png(tmp_path / "mask.png", mask)
    view = "labels" if propagated else "mean"
    common = {"output": tmp_path / "out", "model": MODEL, "size": 64, "views": ("mean",)}
    common |= {"mask": tmp_path / "mask.png"} if propagated else {}
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            Video(frames, **common).run()
    assert "3 of 5 frames are finished and kept" in capsys.readouterr().out
    assert len(list((tmp_path / "out" / "masks").iterdir())) == 3
    assert len(list(VideoFile(tmp_path / "out" / f"{view}.webm"))) >= 3
    with pytest.raises(ValueError, match="--resume"):
        Video(frames, **common).run()
    Video(frames, **common, resume=True).run()
    assert len(list((tmp_path / "out" / "masks").iterdir())) == 5
    Video(frames, **common, resume=True).run()
    assert "is finished already" in capsys.readouterr().out


def test_unnumbered_image_among_numbered_frames_is_an_error(tmp_path: Path):
    names = [f"frame{number}.png" for number in range(1, 13)]
    folder = write_folder(tmp_path / "frames", [*names, "cover.png"])
    with pytest.raises(VideoError, match=r"holds 12 numbered frames and cover\.png without a number"):
        frame_files(folder)
    (folder / "cover.png").unlink()
    assert [file.name for file in frame_files(folder)] == names


def test_other_views_leave_no_stale_videos(tmp_path: Path):
    frames = write_folder(tmp_path / "frames", ["0.png", "1.png"])
    common = {"output": tmp_path / "out", "model": MODEL, "size": 32}
    Video(frames, **common, views=("mean", "mask")).run()
    Video(frames, **common, views=("mask",), overwrite=True).run()
    assert [file.name for file in (tmp_path / "out").glob("*.webm")] == ["mask.webm"]
    described = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert described["model"] == MODEL
    assert described["settings"]["views"] == ["mask"]
    assert described["finished"]


def test_coco_names_of_frames_are_those_of_the_files(tmp_path: Path):
    frames = write_folder(tmp_path / "frames", ["0.png", "1.png"])
    Video(frames, output=tmp_path / "out", model=MODEL, size=32, views=("mean",)).run()
    images = json.loads((tmp_path / "out" / "masks_images.json").read_text())["images"]
    assert [image["file_name"] for image in images] == ["0.png", "1.png"]


def test_a_broken_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    clip = write_video(tmp_path / "clip.mp4", 3)

    class Promising(VideoFile):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.expected = 9

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Video.run.__globals__, "open_frames", lambda path, allow_gaps: Promising(path))
        Video(clip, output=tmp_path / "out", model=MODEL, size=64, views=("mean",)).run()
    assert "promises 9 frames, 3 could be decoded" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", [".webm", ".mp4"])
def test_frames_keep_their_times_where_they_last_differently(tmp_path: Path, suffix: str):
    times = [0.0, 0.1, 0.5, 0.6, 1.0]
    with VideoWriter(tmp_path / f"clip{suffix}", 25) as writer:
        for picture, time in zip(pictures(5), times, strict=True):
            writer.write(picture, time)
    Video(tmp_path / f"clip{suffix}", output=tmp_path / "out", model=MODEL, size=32, views=("mean",)).run()
    drawn = VideoFile(tmp_path / "out" / "mean.webm")
    assert drawn.expected == len(list(drawn)) == 5
    assert drawn.times == pytest.approx(times, abs=0.002)
    even = {"model": MODEL, "size": 32, "views": ("mean",), "overwrite": True, "fps": 10.0}
    Video(tmp_path / f"clip{suffix}", output=tmp_path / "out", **even).run()
    list(drawn)
    assert drawn.times == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4], abs=0.002)


def test_a_turned_video_is_seen_upright(tmp_path: Path):
    plain = write_video(tmp_path / "plain.mp4", 2)
    content = bytearray(plain.read_bytes())
    one, none = (1 << 16).to_bytes(4, "big"), bytes(4)
    upright = (
        one + none * 3 + one + none * 3 + (1 << 30).to_bytes(4, "big")
    )  # of a track, as ISO 14496-12 says
    turned = none + one + none + (-(1 << 16)).to_bytes(4, "big", signed=True) + none * 4 + upright[-4:]
    at = content.index(upright, content.index(b"tkhd"))
    content[at : at + len(upright)] = turned
    (tmp_path / "turned.mp4").write_bytes(content)
    first, clockwise = (next(iter(VideoFile(tmp_path / f"{name}.mp4"))) for name in ("plain", "turned"))
    np.testing.assert_array_equal(clockwise, np.rot90(first, -1))


def test_frames_of_several_sizes_are_named_and_not_the_output(tmp_path: Path):
    folder = write_folder(tmp_path / "a", ["0.png", "1.png"])
    Image.fromarray(pictures(1, (32, 40))[0]).save(folder / "2.png")
    with pytest.raises(VideoError, match=r"the frame .*2\.png is 40x32 pixels, the first 64x48"):
        Video(folder, output=tmp_path / "out", model=MODEL, size=32, views=("mean",)).run()


def test_sound_alone_is_no_video(tmp_path: Path):
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(1600))
    with pytest.raises(VideoError, match=r"sound\.wav holds no video, only audio"):
        open_frames(tmp_path / "sound.wav")


def test_opencv_reads_what_is_written(tmp_path: Path):
    capture = cv2.VideoCapture(str(write_video(tmp_path / "clip.webm", 2)))
    code = int(capture.get(cv2.CAP_PROP_FOURCC))
    assert "".join(chr(code >> 8 * place & 255) for place in range(4)) == "VP80"
