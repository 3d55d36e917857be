"""Order of frames by the numbers in their names."""

from pathlib import Path

import pytest

from segmentation.frames import frame_files, order_names
from segmentation.labels import DataError

ORDERED = [  # names in their right order
    "cam_2024-05-01_12-00-30 cam_2024-05-01_12-00-59 cam_2024-05-01_12-01-00 cam_2024-05-01_12-01-29",
    "0.5 1.0 1.5 10.0",
    "f0001_cam2 f0002_cam2 f0010_cam2",
    "20240501T115959.998_left 20240501T115959.999_left 20240501T120030.000_left",
    "shot_v2.0009 shot_v2.0010 shot_v2.0100",
    "a B c",
    "frame~(1) frame~(2) frame~(10)",
    "img1 img02 img003 img10",
    "1_of_10 2_of_10 10_of_10",
    "1,000 2,000 10,000",
]
REFUSED = [
    "1.9 1.10",
    "30-Jan-2024 30-Feb-2024",
    "left_1 left_2 right_1 right_2",
    "i_0 i_0_mask i_1 i_1_mask",
    "frame_2 Frame_3",
    "1 01 2",
]


@pytest.mark.parametrize("names", ORDERED)
def test_names_are_ordered_by_all_numbers_from_the_left(names):
    files = [f"{name.replace('~', ' ')}.png" for name in names.split()]
    assert order_names(sorted(files)) == files
    assert order_names(files[::-1]) == files


@pytest.mark.parametrize("names", REFUSED)
def test_other_names_are_refused(names):
    with pytest.raises(DataError, match="rename them with one number"):
        order_names([f"{stem}.png" for stem in names.split()])


def test_folder_of_frames_is_listed_with_gaps_and_without_other_files(tmp_path: Path):
    for name in ("3.png", "20.JPG", "8.png", "notes.txt", ".hidden.png"):
        (tmp_path / name).touch()
    assert [file.name for file in frame_files(tmp_path)] == ["3.png", "8.png", "20.JPG"]
    (tmp_path / "8.jpg").touch()
    with pytest.raises(
        DataError, match=rf"the frames of {tmp_path} have no .* 8.jpg and 8.png have the same numbers"
    ):
        frame_files(tmp_path)
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no image; it has folders: inside"):
        frame_files(tmp_path / "empty")
