"""Folders of frames, video files, and the command `video`."""

import json
import wave
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from dino_model.data.images import ImageError
from dino_model.inference.predictor import AttentionPredictor
from segmentation import video
from segmentation.commands.video import Video
from segmentation.labels import DataError, write_mask_png
from segmentation.mask_files import read_labels
from segmentation.video import FrameFolder, VideoFile, VideoWriter, open_frames

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


def test_wrong_video_file_is_named(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(1600))
    wrong = {"text.mp4": "cannot be opened", "none.mp4": "does not exist", "sound.wav": "holds no video"}
    for name, message in wrong.items():
        with pytest.raises(DataError, match=rf"{name} {message}"):
            open_frames(tmp_path / name)
    with pytest.raises(DataError, match=r"ends in \.webm or \.mp4"):
        VideoWriter(tmp_path / "clip.gif", 10)


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


def test_rotated_video_is_read_upright(tmp_path):
    content = bytearray(write_video(tmp_path / "plain.mp4", draw_frames(1)).read_bytes())
    one, none, last = (1 << 16).to_bytes(4, "big"), bytes(4), (1 << 30).to_bytes(4, "big")
    upright = one + none * 3 + one + none * 3 + last  # of a track, as ISO 14496-12 states
    turned = none + one + none + (-(1 << 16)).to_bytes(4, "big", signed=True) + none * 4 + last
    at = content.index(upright, content.index(b"tkhd"))
    content[at : at + len(upright)] = turned
    (tmp_path / "turned.mp4").write_bytes(content)
    first, clockwise = (next(iter(VideoFile(tmp_path / f"{name}.mp4"))) for name in ("plain", "turned"))
    np.testing.assert_array_equal(clockwise, np.rot90(first, -1))


def test_attention_video_uses_color_range_of_first_frame():
    predictor = AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")
    first, *others = draw_frames(4)
    (views, mask), (second, _), *_, (last, _) = video.attention_video([first, *others, first], predictor)
    for view, again in zip(views, last, strict=True):
        np.testing.assert_array_equal(view, again)
    assert views[1].shape == views[2].shape == first.shape
    assert mask.shape == first.shape[:2]
    assert 0 < mask.mean() < 1
    other, _ = next(video.attention_video(others, predictor))
    assert (other[1] != second[1]).any()


def test_draw_labels_has_fixed_legend():
    frame, labels = draw_frames(1, (60, 200))[0], np.zeros((60, 200), np.uint8)
    empty = video.draw_labels(frame, labels, (1, 3))
    labels[5:30, 5:90] = 3
    drawn = video.draw_labels(frame, labels, (1, 3))
    assert (drawn[:60] != empty[:60]).any(-1).mean() > 0.1
    np.testing.assert_array_equal(drawn[60:], empty[60:])
    assert video.shrunk(frame, 100).shape == (30, 100, 3)


@pytest.mark.parametrize("suffix", ["webm", "mp4"])
def test_video_writes_attention_with_times_and_reports_missing_end(tmp_path, monkeypatch, capsys, suffix):
    times = [0.0, 0.1, 0.5, 0.6]
    clip = VideoFile(write_video(tmp_path / "clip.webm", draw_frames(4, (50, 34)), *times))
    clip.expected = 9
    monkeypatch.setattr("segmentation.commands.video.open_frames", lambda path, fps: clip)
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
    loaded = COCO(out / "masks_images.json").loadRes(str(out / "masks.json"))
    assert [image["file_name"] for image in loaded.dataset["images"]] == [mask.name for mask in masks]
    with pytest.raises(ValueError, match="--overwrite"):
        Video(**options).run()
    with pytest.raises(DataError, match="--fps is 0; expected"):
        Video(**options, fps=0.0).run()


@pytest.mark.parametrize("view", ["mean", "labels"])
def test_interrupted_video_keeps_finished_frames_and_is_resumed(tmp_path, monkeypatch, view, capsys):
    names, out, file = [f"{number}.png" for number in range(8, 13)], tmp_path / "out", tmp_path / "mask.png"
    mask = np.pad(np.full((30, 30), 4, np.uint8), 17)
    write_mask_png(file, mask)
    options = {"input": write_folder(tmp_path / "frames", names, (64, 64)), "output": out, "model": MODEL}
    options |= {"size": 64, "fps": 5, "mask": file if view == "labels" else None}
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
    assert len(list(VideoFile(out / f"{view}.webm"))) >= 3
    with pytest.raises(ValueError, match="--resume"):
        Video(**options).run()
    Video(**options, resume=True).run()
    assert {file.name for file in (out / "masks").iterdir()} == set(names)
    clip = VideoFile(out / f"{view}.webm")
    assert (len(list(clip)), clip.fps) == (5, pytest.approx(5))
    if view == "labels":
        np.testing.assert_array_equal(read_labels(out / "masks" / "8.png"), mask)
        assert {each["category_id"] for each in json.loads((out / "masks.json").read_text())} == {4}
    Video(**options, resume=True).run()
    assert "is finished already" in capsys.readouterr().out
