"""Order of frames by the numbers in their names."""

from pathlib import Path

import pytest

from segmentation.frames import frame_files, order_names
from segmentation.labels import DataError

ORDERED = [  # names in their right order
    "cam_2024-05-01_12-00-30 cam_2024-05-01_12-00-59 cam_2024-05-01_12-01-00 cam_2024-05-01_12-01-29",
    "0.5 1.0 1.5 10.0",
    "t0.98 t1.96 t2.94 t10.78",
    "s1_003 s2_001",
    "f0001_cam2 f0002_cam2 f0010_cam2",
    "0.25 0.5 0.75 1.0",  # evenly spaced
    "0.0 0.04 0.2 0.24",  # no part of a name is numbered 04 next to 2
    "1.1 1.9 1.10",  # 1.1 and 1.10 are one decimal
    "12.4.1 12.30.59 12.31.0",  # two points are no decimal
    "frame-3 frame-8 frame-13",
    "t-1.0 t-0.5 t0.0 t0.5",
    "t-1.75 t-0.5 t0.25",
    "IMG_20240501_120030 IMG_20240501_120030_1 IMG_20240501_120031",
    "10.00.00_AM 12.01.00_PM 9.15.30_PM",
    "30-Jan-2024_1 30-Feb-2024_1 30-Mar-2024_1",
    "frame_2 Frame_3 frame-10",
    "shot_v2.0009 shot_v2.0010 shot_v2.0100",
    "a b c",
    "frame~(1) frame~(2) frame~(10)",
    "20240501T115959 20240501T120030",
    "img1 img02 img003 img10",
    "1_of_10 2_of_10 10_of_10",
    "f0x0A f0x0B f0x10",
    "1,000 2,000 10,000",
    "DSC_9999 DSC_10000",
]
REFUSED = {
    "1.9 1.10": r"1\.10\.png, 1\.9\.png by the numbers .*, or 1\.9\.png, 1\.10\.png with 1\.2 as two numbers",
    "01-05-2024 02-04-2024": r"01-05-2024\.png, 02.* or 02-04-2024\.png, 01-05-2024\.png as day, month, year",
    "01-01-2024 12-31-2023": r"or 12-31-2023\.png, 01-01-2024\.png as month, day, year",
    "left_1 left_2 right_1 right_2": r"right_1\.png, left_2\.png.* or left_2\.png, right_1\.png",
    "0 1 cover": r"are 2 numbered files and cover\.png without a number",
    "0a 0b 1a 10": r"1a\.png, 10\.png by .*, or 10\.png, 1a\.png as hexadecimal numbers",
    "04de 3fa8 b17c": "two sensible orders.* as hexadecimal numbers",
    "i_0 i_0_mask i_1 i_1_mask": r"include i_0\.png and i_0_mask\.png, two frames of one number",
    "i_1 i_1-copy i_2": "two frames of one number",
    "1 01 2": "two frames of one number",
}


@pytest.mark.parametrize("names", ORDERED)
def test_names_are_ordered_by_all_numbers_from_the_left(names):
    files = [f"{name.replace('~', ' ')}.png" for name in names.split()]
    assert order_names(sorted(files)) == files
    assert order_names(files[::-1]) == files


@pytest.mark.parametrize("names", REFUSED)
def test_names_without_one_sensible_order_are_refused(names):
    with pytest.raises(DataError, match=REFUSED[names]):
        order_names([f"{name}.png" for name in names.split()])


def test_folder_of_frames_is_listed_with_gaps_and_without_other_files(tmp_path: Path):
    for name in ("3.png", "20.JPG", "8.png", "notes.txt", ".hidden.png"):
        (tmp_path / name).touch()
    assert [file.name for file in frame_files(tmp_path)] == ["3.png", "8.png", "20.JPG"]
    (tmp_path / "8.jpg").touch()
    with pytest.raises(
        DataError, match=rf"the frames of {tmp_path} include 8.jpg and 8.png, two frames of one"
    ):
        frame_files(tmp_path)
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no image; it has folders: inside"):
        frame_files(tmp_path / "empty")
