"""Videos in and out, attention as a video, and how much memory it takes."""

import json
import wave
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from dino_model.images import ImageError
from dino_model.predictor import AttentionPredictor
from segmentation.commands.video import Video
from segmentation.labels import LabelError, read_labels, write_mask_png
from segmentation.video import (
    VIEWS,
    FrameFolder,
    VideoError,
    VideoFile,
    VideoWriter,
    attention_video,
    draw_labels,
    frame_files,
    open_frames,
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


def write_images(path: Path, images: list[np.ndarray], fps: float = 12.5) -> Path:
    with VideoWriter(path, fps) as writer:
        for image in images:
            writer.write(image)
    return path


# --- folders of frames


def test_frame_files_are_ordered_by_number(tmp_path: Path):
    folder = write_folder(tmp_path / "a", [f"frame-{number}.png" for number in range(8, 13)])
    (folder / "notes.txt").write_text("not a frame")
    (folder / ".hidden.png").write_bytes(b"")
    assert [file.name for file in frame_files(folder)] == [f"frame-{number}.png" for number in range(8, 13)]
    named = write_folder(tmp_path / "b", ["b.png", "a.png"])
    assert [file.name for file in frame_files(named)] == ["a.png", "b.png"]


def test_wrong_folder_of_frames_is_named(tmp_path: Path):
    names = [f"{number:05d}.jpg" for number in (0, 5, 10, 15)]  # a constant step is no gap
    folder = write_folder(tmp_path / "a", names)
    assert len(frame_files(folder)) == 4
    Image.fromarray(pictures(1)[0]).save(folder / "cover.png")
    with pytest.raises(VideoError, match=r"holds 4 numbered frames and cover\.png without a number"):
        frame_files(folder)
    (folder / "cover.png").unlink()
    (folder / "00010.jpg").unlink()
    with pytest.raises(VideoError, match=r"from 00005\.jpg to 00015\.jpg, a gap"):
        frame_files(folder)
    with pytest.raises(VideoError, match=r"holds no image; it has folders: a"):
        frame_files(tmp_path)
    write_folder(tmp_path / "twice", ["1.png", "01.png", "2.png"])
    with pytest.raises(VideoError, match=r"two frames of one number"):
        frame_files(tmp_path / "twice")


def test_unreadable_or_other_sized_frame_is_named(tmp_path: Path):
    folder = write_folder(tmp_path / "a", ["0.png", "1.png", "2.png"])
    Image.fromarray(pictures(1, (32, 40))[0]).save(folder / "2.png")
    with pytest.raises(VideoError, match=r"the frame .*2\.png is 40x32 pixels, the first 64x48"):
        list(FrameFolder(folder))
    (folder / "1.png").write_bytes(b"\x89PNG")
    with pytest.raises(ImageError, match=r"1\.png"):
        list(FrameFolder(folder))


# --- video files


def test_wrong_video_file_is_named(tmp_path: Path):
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(VideoError, match=r"text\.mp4 cannot be opened as a video"):
        open_frames(tmp_path / "text.mp4")
    with pytest.raises(VideoError, match="does not exist"):
        open_frames(tmp_path / "none.mp4")
    with pytest.raises(VideoError, match=r"ends in \.webm or \.mp4"):
        VideoWriter(tmp_path / "clip.gif", 10)
    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(1600))
    with pytest.raises(VideoError, match=r"sound\.wav holds no video, only audio"):
        open_frames(tmp_path / "sound.wav")


@pytest.mark.parametrize("size", [(48, 64), (51, 33)], ids=["even", "odd"])
def test_written_video_is_read_again(tmp_path: Path, size: tuple[int, int]):
    path = write_images(tmp_path / "clip.webm", pictures(7, size))
    frames = open_frames(path)
    found = list(frames)
    assert len(found) == 7 == frames.expected
    assert frames.fps == pytest.approx(12.5)
    assert found[0].shape == (size[0] + size[0] % 2, size[1] + size[1] % 2, 3)
    for frame, picture in zip(found, pictures(7, size), strict=True):
        assert frame.dtype == np.uint8
        assert np.abs(frame[: size[0], : size[1]].astype(int) - picture).mean() < 12  # lossy
    before = path.read_bytes()
    with pytest.raises(VideoError, match="the first was"):
        write_images(path, [*pictures(1), *pictures(1, (32, 32))])
    assert path.read_bytes() == before  # an error leaves the earlier file alone
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


# --- attention


@pytest.fixture(scope="module")
def predictor() -> AttentionPredictor:
    return AttentionPredictor(MODEL, size=64, precision="fp32", device="cpu")


def test_attention_video_uses_color_range_of_first_frame(predictor: AttentionPredictor):
    first, *others = pictures(4)
    drawn = list(attention_video([first, *others, first], predictor))
    views, mask = drawn[0]
    for view, last in zip(views, drawn[-1][0], strict=True):
        np.testing.assert_array_equal(view, last)
    assert views[1].shape == views[2].shape == first.shape
    assert mask.shape == first.shape[:2]
    assert 0 < mask.mean() < 1
    other, _ = next(attention_video(others, predictor))
    assert (other[1] != drawn[1][0][1]).any()


def test_draw_labels_has_fixed_legend():
    frame, labels = pictures(1, (60, 200))[0], np.zeros((60, 200), np.uint8)
    empty = draw_labels(frame, labels, (1, 3))
    labels[5:30, 5:90] = 3
    drawn = draw_labels(frame, labels, (1, 3))
    assert drawn.shape == empty.shape
    assert (drawn[:60] != empty[:60]).any(-1).mean() > 0.1
    np.testing.assert_array_equal(drawn[60:], empty[60:])
    assert shrunk(frame, 100).shape == (30, 100, 3)


# --- the command


@pytest.mark.parametrize("suffix", ["webm", "mp4"])
def test_video_writes_attention(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str):
    clip = write_images(tmp_path / "clip.webm", pictures(4, (50, 34)))
    options = {"output": tmp_path / "out", "model": MODEL, "size": 32, "format": suffix}
    Video(clip, **options).run()
    assert "4 frames written" in capsys.readouterr().out
    for view in VIEWS:
        assert len(list(VideoFile(tmp_path / "out" / f"{view}.{suffix}"))) == 4
    masks = sorted((tmp_path / "out" / "masks").iterdir())
    assert [mask.name for mask in masks] == [f"{number:05d}.png" for number in range(4)]
    assert read_labels(masks[0]).shape == (50, 34)
    loaded = COCO(tmp_path / "out" / "masks_images.json").loadRes(str(tmp_path / "out" / "masks.json"))
    assert [image["file_name"] for image in loaded.dataset["images"]] == [mask.name for mask in masks]
    with pytest.raises(ValueError, match="--overwrite"):
        Video(clip, **options).run()


def test_video_propagates_labels_of_folder(tmp_path: Path):
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


def test_wrong_mask_of_video_is_named(tmp_path: Path):
    frames = write_folder(tmp_path / "frames", ["0.png", "1.png"])
    for size, value, message in (((10, 10), 1, r"is 10x10 pixels, the frames"), ((48, 64), 255, "--binary")):
        write_mask_png(tmp_path / "mask.png", np.full(size, value, np.uint8))
        with pytest.raises(LabelError, match=message):
            Video(frames, output=tmp_path / "out", mask=tmp_path / "mask.png", model=MODEL).run()
    with pytest.raises(VideoError, match="--fps is 0; expected"):
        Video(frames, output=tmp_path / "out", model=MODEL, fps=0.0).run()


@pytest.mark.parametrize("propagated", [False, True])
def test_interrupted_video_keeps_finished_frames_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, propagated: bool, capsys: pytest.CaptureFixture[str]
):
    frames = write_folder(tmp_path / "frames", [f"{number}.png" for number in range(5)], (64, 64))
    mask = np.zeros((64, 64), np.uint8)
    mask[10:40, 10:40] = 1
    write_mask_png(tmp_path / "mask.png", mask)
    view = "labels" if propagated else "mean"
    common = {"output": tmp_path / "out", "model": MODEL, "size": 64}
    common |= {"mask": tmp_path / "mask.png"} if propagated else {}
    written: list[Path] = []

    def write(file: Path, labels: np.ndarray) -> None:
        written.append(file)
        if len(written) == 4:
            raise KeyboardInterrupt
        write_mask_png(file, labels)

    with monkeypatch.context() as patch:
        patch.setattr("segmentation.commands.video.write_mask_png", write)
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


def test_frames_keep_their_times_and_missing_end_is_reported(tmp_path: Path, monkeypatch, capsys):
    times = [0.0, 0.1, 0.5, 0.6, 1.0]
    with VideoWriter(tmp_path / "clip.webm", 25) as writer:
        for picture, time in zip(pictures(5), times, strict=True):
            writer.write(picture, time)
    video = VideoFile(tmp_path / "clip.webm")
    assert video.expected == 5
    video.expected = 9
    monkeypatch.setattr("segmentation.commands.video.open_frames", lambda path, fps: video)
    Video(tmp_path / "clip.webm", output=tmp_path / "out", model=MODEL, size=32).run()
    assert "promises 9 frames, 5 could be decoded" in capsys.readouterr().out
    drawn = VideoFile(tmp_path / "out" / "mean.webm")
    assert len(list(drawn)) == 5
    assert drawn.times == pytest.approx(times, abs=0.002)


def test_rotated_video_is_read_upright(tmp_path: Path):
    plain = tmp_path / "plain.mp4"
    with av.open(str(plain), "w") as container:
        stream = container.add_stream("mpeg4", rate=10, width=64, height=48, pix_fmt="yuv420p")
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pictures(1)[0], format="rgb24")))
        container.mux(stream.encode(None))
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
