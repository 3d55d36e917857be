import pytest

from dino_model.progress import following


def test_following_several_ranges_prints_one_line(capsys: pytest.CaptureFixture[str]):
    track = following("work", 7)
    assert [*track(range(2, 4)), *track(range(4, 7))] == [2, 3, 4, 5, 6]
    printed = capsys.readouterr().err
    assert printed.count("7/7") == 1
    assert printed.count("\n") == 1
