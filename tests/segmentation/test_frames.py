"""Order of frames by the numbers in their names."""

from pathlib import Path

import pytest

from segmentation.frames import describe_order, frame_files, order_names
from segmentation.labels import DataError

ORDERED = [  # names in their right order
    "cam_2024-05-01_12-00-30 cam_2024-05-01_12-00-59 cam_2024-05-01_12-01-00 cam_2024-05-01_12-01-29",
    "0.5 1.0 1.5 10.0",
    "a B c",
    "frame~(1) frame~(2) frame~(10)",
    "img1 img02 img003 img10",
    "1,000 2,000 10,000",
]
REFUSED = [
    "1.9 1.10",
    "t-1.0 t-0.5 t0.0 t0.5",
    "left_1 left_2 right_1 right_2",
    "0 1 cover",
    "frame_2 Frame_3",
    "1 01 2",
]


@pytest.mark.parametrize("names", ORDERED)
def test_names_are_ordered_by_all_numbers_from_the_left(names):
    files = [f"{name.replace('~', ' ')}.png" for name in names.split()]
    assert order_names(sorted(files)) == files
    assert order_names(files[::-1]) == files


@pytest.mark.parametrize("names", REFUSED)
def test_other_names_are_refused_and_have_the_order_of_a_list(names, tmp_path: Path, capsys):
    folder, listed = tmp_path / "seq", tmp_path / "frames.txt"
    folder.mkdir()
    stems = names.split()
    for stem in [*stems, "unlisted"]:
        (folder / f"{stem}.png").touch()
    with pytest.raises(DataError, match="--frames LIST"):
        order_names([f"{stem}.png" for stem in stems])
    for form in ("{}", "{}.png", "seq/{}.png", "/JPEGImages/480p/seq/{}.jpg /Annotations/480p/seq/{}.png"):
        lines = ["other/0.png"] * form.startswith("seq") + [form.replace("{}", stem) for stem in stems]
        listed.write_text("\n".join(lines))
        assert [file.stem for file in frame_files(folder, listed)] == stems
        assert capsys.readouterr().out == f"{folder}: 1 image not in frames.txt left out\n"
    listed.write_text("\n".join(["# a comment", *stems]))
    assert [file.stem for file in frame_files(folder, listed)] == stems
    (folder / f"{stems[0]}.png.png").touch()  # its stem is the name of another file
    listed.write_text(f"{stems[0]}.png")
    assert [file.name for file in frame_files(folder, listed)] == [f"{stems[0]}.png"]
    for lines in ([*stems, "gone"], [*stems, stems[0]], []):
        listed.write_text("\n".join(lines) or "elsewhere/0.png")
        with pytest.raises(DataError, match=r"frames\.txt lists"):
            frame_files(folder, listed)


def test_order_is_described_by_the_first_two_and_the_last():
    files = [Path(f"a/{number}.png") for number in range(4)]
    assert describe_order(files[:3]) == "0.png, 1.png, 2.png"
    assert describe_order(files) == "0.png, 1.png … 3.png"


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
