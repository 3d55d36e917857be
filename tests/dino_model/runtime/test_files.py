import pytest

from dino_model.runtime.files import make_room, replace_file, write_text


def test_write_text_creates_folder_and_keeps_the_old_file_if_interrupted(tmp_path):
    path = tmp_path / "new" / "note.txt"
    write_text(path, "grüße")

    def fail():
        with replace_file(path) as beside:
            beside.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text(encoding="utf-8") == "grüße"
    assert [entry.name for entry in path.parent.iterdir()] == ["note.txt"]


def test_make_room_of_impossible_path_raises(tmp_path):
    (tmp_path / "file").write_text("")
    make_room(None, tmp_path / "new" / "scores.json")
    assert (tmp_path / "new").is_dir()
    for path in (tmp_path / "file" / "scores.json", tmp_path):
        with pytest.raises(OSError, match=r"\[Errno"):
            make_room(path)
