from dino_model.errors import sentence


def test_a_systems_error_names_the_file_and_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    try:
        (tmp_path / "file" / "below").mkdir()
    except OSError as error:
        told = sentence(error)
    assert told == f"cannot use '{tmp_path / 'file' / 'below'}': not a directory"


def test_our_own_errors_are_told_as_they_are():
    assert sentence(ValueError("K is 1, expected at least 2")) == "K is 1, expected at least 2"
    assert sentence(OSError("no space left for the maps")) == "no space left for the maps"
