"""Lessons: exercises and their checks, the parts of each lesson, claims and outputs, and the command."""

import ast
import copy
import importlib
import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("IPython")
import nbformat

from dino_model.inference import quantities
from dino_model.inference.classifier import vote
from notebooks import checks, execute, solutions, solve
from segmentation.masks import keep_mass_of_maps
from segmentation.metrics import jaccard
from training.evaluation.knn import neighbors
from training.losses import multi_crop_cross_entropy

LESSONS = execute.lessons()
EXECUTED = Path(__file__).resolve().parents[2] / execute.OUTPUT
CONTINUES = "The lesson continues with the solution.\n"
OTHER_ANSWERS = ("18", 3.5, True, None, [1, 2], np.zeros((2, 3)), torch.zeros(4), float("nan"), object())
every_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)


# --- checks


@pytest.mark.parametrize("number", checks.EXERCISES)
def test_check_accepts_the_solution_and_describes_any_other_answer(number, capsys, monkeypatch):
    def printed(answer) -> str:
        monkeypatch.setattr(checks, "_wrong_answers", Counter())
        assert checks.check(number, answer) is exercise.solution
        return capsys.readouterr().out

    exercise = checks.EXERCISES[number]
    assert printed(exercise.solution) == f"Exercise {number}: correct.\n"
    for sentence, mistake in exercise.mistakes.items():
        assert printed(mistake) == f"Exercise {number}: {sentence} {CONTINUES}"
    for answer in OTHER_ANSWERS:
        assert printed(answer).endswith(CONTINUES)
    for unanswered in (..., lambda *inputs: ...) if callable(exercise.solution) else (...,):
        assert "replace the three dots" in printed(unanswered)


def test_check_helps_in_three_stages_and_published_lessons_are_quiet(monkeypatch, capsys):
    monkeypatch.setattr(checks, "_wrong_answers", Counter())
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    texts = []
    for _ in range(3):
        checks.check("2.2", lambda a, b: 0.0)
        texts.append(capsys.readouterr().out)
    hint = checks.HINTS["2.2"]
    assert [hint in text for text in texts] == [False, True, True]
    assert [*checks.HINTS] == [*checks.EXERCISES]
    (solution,) = shown
    assert "(mask | truth).sum()" in solution.data
    monkeypatch.setenv(checks.QUIET, "1")
    checks.check("2.3", ...)
    assert not capsys.readouterr().out


def test_hints_are_folded_below_every_exercise_of_the_site():
    texts = [solve.add_hints(lesson.read_text()) for lesson in LESSONS]
    assert sum(text.count("<summary>Solution") for text in texts) == len(checks.EXERCISES)
    assert all(f"# {hint}\n" in "".join(texts) for hint in checks.HINTS.values())


def test_check_accepts_arrays_of_one_number_and_names_exercises():
    for answer in (np.float32(18), np.array([18.0]), torch.tensor(18)):
        assert checks.check("3.1", answer) is answer
    for number, rounded in (("4.1", 5.5), ("B.2", 1.14), ("B.3", 0.55)):  # 5.5, as lesson 3 prints it
        assert checks.check(number, rounded) is rounded
    with pytest.raises(KeyError, match=r"Available: 1\.1"):
        checks.check("9.9", 1)


@pytest.mark.parametrize(
    ("number", "answer", "part"),
    [
        ("1.1", lambda images, p: images.reshape(7), "Your function raises RuntimeError"),
        ("1.1", lambda images, p: None, "Your function returns None"),
        ("1.1", lambda images, p: np.zeros(3), "Found an array, expected a tensor."),
        ("3.2", lambda logits, center, t: logits[0], "Found shape (3, 5), expected shape (2, 3, 5)."),
        ("3.3", lambda p, x, t: solutions.dino_loss(p, x, t).detach(), "Your result has no gradient"),
        ("3.3", lambda p, x, t: p + x, "Found a tensor, expected one value."),
        ("3.3", lambda p, x, t: -solutions.dino_loss(p, x, t), checks.REVERSED),
        ("4.1", -5.545, checks.REVERSED),
        ("5.1", lambda f, s, y, k, t: solutions.vote(f, s, y, k, 0.2), "first of two inputs only"),
        ("5.2", 1 / 3, "give percent"),
        ("5.2", 34, "34 is not correct"),
        ("1.3", lambda q, k, v: list(solutions.attention(q, k, v)), "without brackets"),
        ("6.1", lambda a, m: 100 * solutions.lift(a, m), "You gave percent"),
        ("6.2", 500, "500 % is 5"),
        ("6.3", lambda s, y: int(s[np.argmax(y >= (y[0] + y.max()) / 2)]), "ends at the last score"),
        ("5.1", lambda f, s, y, k, t: np.trim_zeros(solutions.vote(f, s, y, k, t), "b"), "minlength"),
        ("2.1", lambda a, mass: solutions.keep_mass(a, mass).astype(np.uint8), "expected bool values"),
    ],
)
def test_check_names_errors_types_shapes_percent_and_missing_gradients(number, answer, part, capsys):
    assert checks.check(number, answer) is checks.EXERCISES[number].solution
    assert part in capsys.readouterr().out


@pytest.mark.parametrize("number", [key for key, one in checks.EXERCISES.items() if callable(one.solution)])
def test_check_rejects_a_constant_and_every_argument_without_use(number):
    exercise = checks.EXERCISES[number]
    result = exercise.solution(*copy.deepcopy(exercise.inputs))
    assert checks.complaint(number, lambda *inputs: result)
    for place, value in enumerate(exercise.inputs):

        def ignore_argument(*inputs, place=place, value=value):
            return exercise.solution(*inputs[:place], copy.deepcopy(value), *inputs[place + 1 :])

        assert checks.complaint(number, ignore_argument), f"argument {place}"


def test_solutions_equal_the_packages():
    generator = np.random.default_rng(0)
    queries, keys, values = torch.randn(3, 1, 2, 5, 8)
    _, weights = solutions.attention(queries, keys, values)
    expected = quantities.attention(queries[0].numpy(), keys[0].numpy(), token=3)
    np.testing.assert_allclose(weights[0, :, 3], expected, atol=1e-6)
    heat = generator.random((1, 6, 7))
    np.testing.assert_array_equal(solutions.keep_mass(heat[0], 0.6), keep_mass_of_maps(heat, 0.6)[0])
    assert all(solutions.keep_mass(map_, 1.0).all() for map_ in generator.random((50, 6, 7)))
    mask, truth = generator.random((2, 6, 7)) > 0.4
    assert solutions.jaccard(mask, truth) == pytest.approx(float(jaccard(mask, truth)))
    targets, logits = torch.randn(2, 4, 6).softmax(-1), torch.randn(2, 4, 6)
    expected = multi_crop_cross_entropy(logits, targets, 0.1)
    torch.testing.assert_close(solutions.dino_loss(targets, logits, 0.1), expected)
    stored = torch.nn.functional.normalize(torch.randn(20, 4), dim=1)
    labels = torch.arange(20) % 3
    expected = vote(*neighbors(stored, labels, stored[:1], 7), 0.07, 3)[0]
    found = solutions.vote(stored[0].numpy(), stored.numpy(), labels.numpy(), 7, 0.07)
    np.testing.assert_allclose(found / found.sum(), expected, rtol=1e-4)


# --- lessons


@every_lesson
def test_lesson_has_question_prediction_figure_exercises_summary_and_references(lesson):
    text = lesson.read_text()
    headings = ("Question.**", "Prediction.**", "Exercise", "Summary.**", "References.**")
    assert re.search(r"drawing\.|show\(", text)
    assert all(f"# **{heading}" in text for heading in headings)
    assert text.split("# **Summary.**\n")[1].split("#\n")[0].count("# - ") == 3
    set_up = text.split("# %%\n")[1].split("\n# %%")[0]
    assert all(line.startswith(("import ", "from ")) for line in set_up.split("\n") if line)
    code = [cell.source for cell in execute.read(lesson).cells if cell.cell_type == "code"]
    assert max(map(len, "\n".join(code).split("\n"))) <= 95  # a browser shows the whole line


def test_each_exercise_belongs_to_one_lesson_and_has_a_stub_for_its_answer():
    found = []
    for lesson in LESSONS:
        text = lesson.read_text()
        for number in re.findall(r'check\("([^"]+)"', text):
            assert number[0].lower() == lesson.name[0]
            assert f"# **Exercise {number} (" in text
            found.append(number)
    assert sorted(found) == sorted(checks.EXERCISES)


NUMBER = r"-?\d+(?:[.,]\d+)*"
TOLERANCE = 0.2
"""Relative tolerance of `about **0.5**`, for values that depend on the machine."""


def _claims(text: str) -> list[tuple[str, str]]:
    """Return the bold numbers in the prose of a lesson, each with "about " or "" before it."""
    return re.findall(rf"(about\s(?:#\s)?)?\*\*({NUMBER})\*\*", text)


def _is_printed(about: str, number: str, printed: set[str]) -> bool:
    values = [float(value.replace(",", "")) for value in printed] if about else []
    return number in printed or any(math.isclose(value, float(number), rel_tol=TOLERANCE) for value in values)


def _code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source.strip() for cell in notebook.cells if cell.cell_type == "code"]


@every_lesson
def test_every_claimed_number_is_in_the_outputs_before_its_text(lesson):
    file = EXECUTED / f"{lesson.stem}.ipynb"
    import jupytext  # here: a second of every collection

    source = jupytext.read(lesson)
    assert any(_claims(cell.source) for cell in source.cells if cell.cell_type == "markdown")
    executed = nbformat.read(file, as_version=4) if file.is_file() else None
    if executed is None or _code(executed) != _code(source):
        pytest.skip(f"no current outputs: `make notebooks LESSONS={lesson.name[0]}` computes them")
    outputs = iter([cell.outputs for cell in executed.cells if cell.cell_type == "code"])
    printed: set[str] = set()
    for cell in source.cells:
        if cell.cell_type == "code":
            streams = (output.text for output in next(outputs) if output.output_type == "stream")
            printed |= set(re.findall(NUMBER, "\n".join(streams)))
        elif cell.cell_type == "markdown" and (claims := _claims(cell.source)):
            assert all(_is_printed(*claim, printed) for claim in claims), cell.source
            printed = set()  # a text is about the results since the last one


def test_each_caption_belongs_to_one_figure_of_a_lesson():
    from notebooks import drawing  # imports pyplot

    shown = []
    for lesson in LESSONS:
        numbers = re.findall(r'(?:figure=|, |^ +)"(\w\.\d)"', lesson.read_text(), re.MULTILINE)
        assert {number[0].lower() for number in numbers} <= {lesson.stem[0]}
        shown += numbers
    assert shown == [*drawing.CAPTIONS]
    assert all({*text} == {"caption", "alt"} for text in drawing.CAPTIONS.values())


# --- execution


def test_jupyter_opens_a_lesson_as_a_notebook(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for stamp in ("installed", "installed-notebooks"):
        (tmp_path / f".{stamp}").touch()
    command = ["make", "--no-print-directory", "-n", "lab", f"VENV={tmp_path}"]
    commands = subprocess.check_output(command, cwd=execute.LESSONS.parent, text=True)
    setting, start_jupyter = commands.replace("\\\n", "").strip().splitlines()[-2:]
    assert start_jupyter.endswith("jupyter lab notebooks")
    setting = setting.replace(f"{tmp_path}/bin", str(Path(sys.executable).parent))
    subprocess.run(setting, shell=True, check=True)
    (written,) = tmp_path.rglob("*.json")
    assert '"python": "Jupytext Notebook"' in written.read_text()


@pytest.mark.slow
def test_execute_writes_outputs_and_kernels_are_offline_with_passive_threads(tmp_path):
    lesson = tmp_path / "9_environment.py"
    lesson.write_text(
        "# %%\nimport os, notebooks\nprint(os.environ['OMP_WAIT_POLICY'], os.environ['HF_HUB_OFFLINE'])\n"
    )
    written = nbformat.read(execute.execute(lesson, tmp_path / "out"), as_version=4)
    assert written.cells[0].outputs[0].text == "passive 1\n"


@pytest.mark.slow
def test_execute_of_a_failing_lesson_names_lesson_and_error(tmp_path):
    lesson = tmp_path / "9_wrong.py"
    lesson.write_text("# %%\nraise ValueError('this is wrong')\n")
    with pytest.raises(execute.LessonError, match=r"9_wrong\.py: (.|\n)*this is wrong"):
        execute.execute(lesson, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_lessons_of_an_unknown_name_lists_the_lessons():
    assert [lesson.stem for lesson in execute.lessons(("3", "a"))] == ["3_self_distillation", "a_video"]
    with pytest.raises(execute.LessonError, match="No lesson begins with '9'"):
        execute.lessons(("9",))


@every_lesson
def test_lesson_imports_names_that_exist(lesson):
    for node in ast.walk(ast.parse(lesson.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.import_module(f"{node.module}.{alias.name}")
