"""What surrounds the lessons: checks of answers of any kind, the kernel, data, and how they are executed."""

import ast
import builtins
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("IPython")
from notebooks import checks, execute, start

LESSONS = sorted(execute.LESSONS.glob("[1-9]_*.py"))
ANSWERS = ["18", 18, 3.5, True, None, [1, 2], np.zeros((2, 3)), torch.zeros(4), float("nan"), {}, object()]


@pytest.mark.parametrize("exercise", sorted(checks.CHECKS))
def test_an_answer_of_any_kind_gets_a_sentence_and_no_traceback(exercise, capsys):
    for answer in ANSWERS:
        assert checks.check(exercise, answer) in (True, False)
        assert capsys.readouterr().out.startswith(f"Exercise {exercise}: ")


@pytest.mark.parametrize("exercise", sorted(checks.CHECKS))
def test_three_dots_ask_for_an_answer(exercise, capsys):
    assert not checks.check(exercise, ...)
    assert "in place of the three dots" in capsys.readouterr().out


def test_a_text_instead_of_a_number_is_told(capsys):
    assert not checks.check("3.1", "18")
    assert "leave out the quotation marks" in capsys.readouterr().out


@pytest.mark.parametrize("exercise", sorted(checks.CHECKS))
def test_no_mistake_that_a_check_knows_looks_like_the_right_answer_or_another(exercise, monkeypatch):
    told, tolerances = {}, []

    def record(answer, right, mistakes=None, tolerance=1e-3):
        told.update({"right": right} | (mistakes or {}))
        tolerances.append(tolerance)

    monkeypatch.setattr(checks, "number", record)
    monkeypatch.setattr(checks, "array", record)
    checks.CHECKS[exercise](lambda *given: np.zeros(1))
    for (one, first), (other, second) in itertools.combinations(told.items(), 2):
        alike = np.shape(first) == np.shape(second) and np.allclose(first, second, rtol=tolerances[0])
        assert not alike, f"{one}, and {other}, give the same"


def test_percent_and_share_are_told_from_each_other(capsys):
    assert not checks.check("2.2", 100 / 3)
    assert "looks as if it were percent" in capsys.readouterr().out
    assert not checks.check("6.2a", 0.6)
    assert "looks as if it were a share, not percent" in capsys.readouterr().out


def test_answers_of_numpy_and_torch_are_numbers_too():
    for answer in (np.float32(18), np.array(18), np.array([18.0]), torch.tensor(18)):
        assert checks.check("3.1", answer)
    assert checks.check(
        "3.2", lambda logits, center, by: torch.softmax((logits - center) / by, -1).requires_grad_()
    )
    assert checks.check("4.3", " Slow")


def test_an_unknown_exercise_names_those_there_are():
    with pytest.raises(KeyError, match=r"choose one of 1\.1"):
        checks.check("9.9", 1)


def test_a_mistake_that_is_known_is_named(capsys):
    assert not checks.check("5.1", 50)
    assert "mean age" in capsys.readouterr().out


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem[0])
def test_every_lesson_has_exercises_with_checks_and_solutions(lesson):
    asked = set(re.findall(r'check\("([^"]+)"', lesson.read_text()))
    solved = set(
        re.findall(r'assert check\("([^"]+)"', (lesson.parent / "solutions" / lesson.name).read_text())
    )
    assert asked == solved
    assert asked <= checks.CHECKS.keys()
    assert len({number.rstrip("ab") for number in asked}) == 3


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem[0])
def test_every_lesson_says_what_it_teaches_what_it_needs_and_what_is_open(lesson):
    text = lesson.read_text()
    for words in ("**You will be able to**", "**You need**", "**In the paper**", "**An open question.**"):
        assert words in text


def test_jupyter_opens_a_lesson_as_a_notebook(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for stamp in ("installed", "installed-notebooks"):
        (tmp_path / f".{stamp}").touch()
    asked = subprocess.run(
        ["make", "--no-print-directory", "-n", "lab", f"VENV={tmp_path}"],
        cwd=execute.LESSONS.parent, capture_output=True, text=True, check=True,
    ).stdout.replace("\\\n", "")  # fmt: skip
    setting, start_jupyter = asked.strip().splitlines()[-2:]
    assert start_jupyter.endswith("jupyter lab notebooks")
    bin_of_this = Path(sys.executable).parent
    subprocess.run(setting.replace(f"{tmp_path}/bin", str(bin_of_this)), shell=True, check=True)
    (written,) = tmp_path.rglob("*.json")
    assert written.relative_to(tmp_path).parts[:3] == ("etc", "jupyter", "labconfig")
    assert '"python": "Jupytext Notebook"' in written.read_text()


def test_an_old_kernel_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(start, "OLDEST", (99, 0))
    with pytest.raises(RuntimeError, match=r"the lessons need 99\.0 or newer: choose another kernel"):
        start.ready()


@pytest.mark.parametrize("version", [(3, 7), (3, 8)])
def test_an_old_python_can_read_what_tells_it_that_it_is_old(version):
    first = LESSONS[0].read_text().split("# %%\n")[1]
    for text in (first, Path(start.__file__).read_text(), (execute.LESSONS / "__init__.py").read_text()):
        ast.parse(text, feature_version=version)


def test_a_kernel_without_the_packages_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(start, "NEEDED", ("torch", "no_such_package"))
    with pytest.raises(
        RuntimeError, match="this kernel has no no_such_package: start Jupyter with `make lab`"
    ):
        start.ready()


def test_a_data_folder_that_is_not_there_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DINO_DATA", str(tmp_path / "gone"))
    said = "which is no folder: correct it, or leave it unset"
    with pytest.raises(RuntimeError, match=said):
        start.data("caltech101_112px.tar")
    monkeypatch.setattr(execute, "execute", lambda *given: pytest.fail("a lesson was begun"))
    with pytest.raises(RuntimeError, match=said):
        execute.Execute(("4",)).run()


def test_without_data_a_stand_in_is_announced_and_can_be_trained_on(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("DINO_DATA", raising=False)
    assert start.data("caltech101_112px.tar") is None
    assert "a stand-in is used" in capsys.readouterr().out
    pictures = start.pieces(tmp_path)
    assert len(pictures) == 1000
    assert len(pictures.classes) == 10


def test_a_lesson_outside_the_project_says_how_to_start_it(tmp_path):
    first = LESSONS[0].read_text().split("# %%\n")[1]
    code = f"import sys\nsys.path = [p for p in sys.path if p]\n{first}"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "is not inside the project: start Jupyter with `make lab`" in answer.stderr


@pytest.mark.parametrize("package", ["ipykernel", "jupytext", "nbclient", "nbformat"])
def test_without_jupyter_a_sentence_says_what_installs_it(package, monkeypatch, tmp_path):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(execute.LessonError, match=f"{package} is missing: `make notebooks` installs"):
        execute.execute(LESSONS[0], tmp_path)


def test_a_name_that_no_lesson_begins_with_is_told():
    with pytest.raises(execute.LessonError, match="no lesson begins with '9'"):
        execute.lessons(("9",))


def test_lessons_come_with_their_solutions():
    assert [path.parent.name for path in execute.lessons(("3",))] == ["notebooks", "solutions"]


def test_a_lesson_that_fails_ends_in_a_sentence_that_names_it(tmp_path, monkeypatch):
    lesson = tmp_path / "9_wrong.py"
    lesson.write_text("# %%\nraise ValueError('this is wrong')\n")
    monkeypatch.setattr(execute, "LESSONS", tmp_path)
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(Path(__file__).parents[2]))
    with pytest.raises(execute.LessonError, match=r"9_wrong\.py: (.|\n)*this is wrong"):
        execute.execute(lesson, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_threads_of_a_lesson_leave_others_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lesson = tmp_path / "9_asks.py"
    lesson.write_text("# %%\nimport os\nassert os.environ['OMP_WAIT_POLICY'] == 'passive'\n")
    monkeypatch.setattr(execute, "LESSONS", tmp_path)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    execute.execute(lesson, tmp_path / "out")
