"""Grading of submitted notebooks: the code of an answer, its result, endless loops, and the CSV file."""

import contextlib
import csv
import os
import socket
import sys
import textwrap

import pytest

pytest.importorskip("IPython")
from notebooks import checks, grade
from notebooks.execute import LessonError, lessons

IMPORT = "from notebooks.checks import check"
RIGHT = "def best_head_gain(scores):\n    return scores.max(axis=1).mean() - scores[:, 0].mean()"


def write(path, *cells: str):
    path.write_text("".join(f"# %%\n{textwrap.dedent(cell)}\n" for cell in cells))
    return path


@pytest.mark.parametrize("lesson", lessons()[1:], ids=lambda lesson: lesson.stem)
def test_code_of_the_answers_of_a_lesson_computes_nothing_else(lesson):
    codes = grade.answers_of(lesson)
    assert [*codes] == [name for name in checks.EXERCISES if name[0].lower() == lesson.stem[0]]
    for code in codes.values():
        assert not {"train(", "Predictor(", "photographs.image", "np.load", "plot("} & {*code.split()}
        assert len(code.splitlines()) < 12


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([IMPORT, RIGHT, 'check("2.3", best_head_gain)'], ("correct", "")),
        ([IMPORT, "HEAD = 0", RIGHT.replace("0]", "HEAD]"), 'check("2.3", best_head_gain)'], ("correct", "")),
        ([IMPORT, "a = [0, 0, 0]\na[0] = 16\na.append(1)\na[0] += 2", 'check("3.1", a[0])'], ("correct", "")),
        ([IMPORT, "n = 16\nn += 2", 'check("3.1", n)'], ("correct", "")),
        (["from notebooks import checks", RIGHT, 'f = checks.check("2.3", best_head_gain)'], ("correct", "")),
        (["from notebooks.checks import *", "n = 18", 'check("3.1", n)'], ("correct", "")),
        ([IMPORT, "%pip list", "raise ValueError", RIGHT, 'check("2.3", best_head_gain)'], ("correct", "")),
        ([IMPORT, 'f = check("2.3", lambda s: 7.0)', 'f = check("2.3", f)'], ("wrong", "are not")),
        ([IMPORT, 'check("2.3", lambda s: ...)'], ("missing", "replace the three dots")),
        ([IMPORT, 'check("2.3", best_head_gain)'], ("error", "NameError: name 'best_head_gain'")),
        (["if False:\n    from notebooks.checks import check\n    check('2.3', 1)"], grade.NOT_CHECKED),
        ([IMPORT, "import sys", 'check("2.3", sys.exit(3))'], ("error", "SystemExit: 3")),
    ],
)
def test_answer_is_executed_with_what_it_depends_on(tmp_path, monkeypatch, cells, expected):
    ((number, code),) = grade.answers_of(write(tmp_path / "a.py", *cells)).items()
    monkeypatch.setattr(checks, "check", checks.check)
    result, message = grade.run_check(checks, number, code)
    assert result == expected[0]
    assert expected[1] in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.ipynb", '{"cells": 3', "Cannot read the notebook"),
        ("a.py", "# %%\nx = (\n", "Cell 1 is not Python"),
        ("a.py", "# %%\nx = 1\n", "checks no exercise"),
    ],
)
def test_file_without_answers_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    (result, found) = grade.grade_submission(tmp_path / name, 1)[""]
    assert result == "error"
    assert message in found


@pytest.mark.slow
def test_process_that_outlives_its_answer_does_not_stop_the_grading(tmp_path):
    released = tmp_path / "released"
    os.mkfifo(released)
    fork = f"""
    import os
    def pairs():
        if os.fork() == 0:
            os.setsid()
            open({str(released)!r}).read()
        return 18
    """
    file = write(tmp_path / "a.py", IMPORT, fork, 'check("3.1", pairs())')
    # a grader that waits for the process waits for these hours
    assert grade.grade_submission(file, 10_000)["3.1"] == ("correct", "")
    with contextlib.suppress(OSError):  # has ended already where the grader could end it
        os.close(os.open(released, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.slow
def test_endless_and_large_answers_end_and_the_others_are_graded_without_network(tmp_path, capsys):
    endless = "def keep_mass(a, mass):\n    while True:\n        pass"
    large = 'check("2.2", bytearray(5 * 2**30))'
    write(
        tmp_path / "a.py",
        *(IMPORT, endless, 'check("2.1", keep_mass)', large, RIGHT, 'check("2.3", best_head_gain)'),
    )
    (tmp_path / "b").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket\nline = socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        write(tmp_path / "b" / "c.py", IMPORT, connect, 'check("2.2", line)')
        grade.Grade(tmp_path, tmp_path / "grades.csv", timeout=3).run()
    with (tmp_path / "grades.csv").open(newline="") as file:
        table = {(line["submission"], line["exercise"]): line["result"] for line in csv.DictReader(file)}
    assert table == {
        ("a.py", "2.1"): "stopped",
        ("a.py", "2.2"): "error" if sys.platform == "linux" else "wrong",
        ("a.py", "2.3"): "correct",
        ("b/c.py", "2.1"): "missing",
        ("b/c.py", "2.2"): "error" if grade.prefix_without_network() else "wrong",
        ("b/c.py", "2.3"): "missing",
    }
    assert "a.py: 1 of 3 correct, 2.1 stopped, 2.2 " in capsys.readouterr().out


def test_processes_have_no_network_or_the_command_says_so(monkeypatch):
    grade.prefix_without_network.cache_clear()
    monkeypatch.setattr(grade, "WITHOUT_NETWORK", ("no-such-command",))
    assert "`no-such-command` does not work" in grade.network_of_submissions()
    grade.prefix_without_network.cache_clear()


def test_folder_without_notebooks_is_an_error(tmp_path):
    with pytest.raises(LessonError, match=r"Found no \.ipynb or \.py file"):
        grade.Grade(tmp_path).run()
