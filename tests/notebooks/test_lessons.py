"""Lessons: exercises and their checks, the form of each lesson, claims against outputs, and the command."""

import ast
import importlib
import itertools
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("IPython")
import jupytext
import nbformat

from dino_model import quantities
from notebooks import checks, execute, solutions
from segmentation.masks import keep_mass_of_maps
from segmentation.metrics import jaccard
from training.evaluation.knn import neighbors, votes
from training.losses import multi_crop_cross_entropy

pytestmark = pytest.mark.slow

LESSONS = execute.lessons()
EXECUTED = Path(__file__).resolve().parents[2] / execute.OUTPUT
CONTINUES = "The lesson continues with the solution."


def stem(lesson: Path) -> str:
    return lesson.stem


# --- checks


@pytest.mark.parametrize("exercise", checks.EXERCISES)
def test_check_accepts_the_solution_and_returns_it(exercise: str, capsys: pytest.CaptureFixture[str]):
    solution = checks.EXERCISES[exercise].solution
    assert checks.check(exercise, solution) is solution
    assert capsys.readouterr().out == f"Exercise {exercise}: correct.\n"


@pytest.mark.parametrize("exercise", checks.EXERCISES)
def test_check_names_each_mistake_and_returns_the_solution(exercise: str, capsys: pytest.CaptureFixture[str]):
    entry = checks.EXERCISES[exercise]
    for sentence, wrong in entry.mistakes.items():
        assert checks.check(exercise, wrong) is entry.solution
        assert capsys.readouterr().out == f"Exercise {exercise}: {sentence} {CONTINUES}\n"


@pytest.mark.parametrize("exercise", checks.EXERCISES)
def test_check_of_any_other_answer_prints_a_sentence(exercise: str, capsys: pytest.CaptureFixture[str]):
    entry = checks.EXERCISES[exercise]
    for answer in ("18", 3.5, True, None, [1, 2], np.zeros((2, 3)), torch.zeros(4), float("nan"), object()):
        assert checks.check(exercise, answer) is entry.solution
        assert capsys.readouterr().out.endswith(f"{CONTINUES}\n")
    for unanswered in (..., lambda *inputs: ...) if callable(entry.solution) else (...,):
        assert checks.check(exercise, unanswered) is entry.solution
        assert "replace the three dots" in capsys.readouterr().out


def test_check_of_a_number_accepts_arrays_and_names_percent(capsys: pytest.CaptureFixture[str]):
    for answer in (np.float32(18), np.array([18.0]), torch.tensor(18)):
        assert checks.check("3.1", answer) is answer
    checks.check("5.2", 1 / 3)
    assert "give percent" in capsys.readouterr().out


def test_check_of_an_array_of_wrong_shape_names_both_shapes(capsys: pytest.CaptureFixture[str]):
    checks.check("3.2", lambda logits, center, temperature: logits[0])
    assert "Found shape (3, 5), expected shape (2, 3, 5)." in capsys.readouterr().out


def test_check_of_an_unknown_exercise_lists_the_exercises():
    with pytest.raises(KeyError, match=r"Available: 1\.1"):
        checks.check("9.9", 1)


def test_solutions_equal_the_packages():
    generator = np.random.default_rng(0)
    queries, keys, values = torch.randn(3, 1, 2, 5, 8)
    _, weights = solutions.attention(queries, keys, values)
    expected = quantities.attention(queries[0].numpy(), keys[0].numpy(), token=3)
    np.testing.assert_allclose(weights[0, :, 3], expected, atol=1e-6)
    heat = generator.random((1, 6, 7))
    np.testing.assert_array_equal(solutions.keep_mass(heat[0], 0.6), keep_mass_of_maps(heat, 0.6)[0])
    mask, truth = generator.random((2, 6, 7)) > 0.4
    assert solutions.jaccard(mask, truth) == pytest.approx(float(jaccard(mask, truth)))
    targets, logits = torch.randn(2, 4, 6).softmax(-1), torch.randn(2, 4, 6)
    torch.testing.assert_close(
        solutions.dino_loss(targets, logits, 0.1), multi_crop_cross_entropy(logits, targets, 0.1)
    )
    stored = torch.nn.functional.normalize(torch.randn(20, 4), dim=1)
    labels = torch.arange(20) % 3
    found = solutions.vote(stored[0].numpy(), stored.numpy(), labels.numpy(), 7, 0.07)
    expected = votes(*neighbors(stored, labels, stored[:1], 7), 0.07, 3)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


# --- lessons


@pytest.mark.parametrize("lesson", LESSONS, ids=stem)
def test_lesson_has_question_prediction_figure_exercises_summary_and_references(lesson: Path):
    text = lesson.read_text()
    for part in (
        "# **Question.**",
        "# **Prediction.**",
        "drawing.",
        "# **Exercise",
        "# **Summary.**",
        "# **References.**",
    ):
        assert part in text
    summary = text.split("# **Summary.**\n")[1].split("#\n")[0]
    assert summary.count("# - ") == 3
    set_up = text.split("# %%\n")[1]
    assert all(
        line.startswith(("import ", "from ")) for line in set_up.split("\n# %%")[0].split("\n") if line
    )


def test_each_exercise_belongs_to_one_lesson_and_has_a_stub_for_its_answer():
    asked = [number for lesson in LESSONS for number in re.findall(r'check\("([^"]+)"', lesson.read_text())]
    assert sorted(asked) == sorted(checks.EXERCISES)
    for lesson, number in itertools.product(LESSONS, checks.EXERCISES):
        if f'check("{number}"' in lesson.read_text():
            assert number[0].lower() == lesson.name[0]
            assert f"# **Exercise {number} (" in lesson.read_text()


NUMBER = r"-?\d+(?:[.,]\d+)*"
TOLERANCE = 0.2
"""Relative tolerance of `about **0.5**`, for values that depend on the machine."""


def claims(text: str) -> list[tuple[str, str]]:
    """Bold numbers in the prose of a lesson, each with "about " or "" before it."""
    return re.findall(rf"(about\s(?:#\s)?)?\*\*({NUMBER})\*\*", text)


def is_printed(claim: tuple[str, str], printed: set[str]) -> bool:
    about, number = claim
    return number in printed or (
        bool(about)
        and any(
            math.isclose(float(value.replace(",", "")), float(number), rel_tol=TOLERANCE) for value in printed
        )
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=stem)
def test_every_claimed_number_is_in_the_output_of_a_cell_before_it(lesson: Path):
    file = EXECUTED / f"{lesson.stem}.ipynb"
    source = jupytext.read(lesson)
    assert any(claims(cell.source) for cell in source.cells if cell.cell_type == "markdown")
    executed = nbformat.read(file, as_version=4) if file.is_file() else None
    if executed is None or code(executed) != code(source):
        pytest.skip(
            f"the outputs are missing or old: `make notebooks LESSONS={lesson.name[0]}` computes them"
        )
    outputs = iter([cell.outputs for cell in executed.cells if cell.cell_type == "code"])
    printed: set[str] = set()
    for cell in source.cells:
        if cell.cell_type == "code":
            streams = (output.text for output in next(outputs) if output.output_type == "stream")
            printed |= set(re.findall(NUMBER, "\n".join(streams)))
        elif cell.cell_type == "markdown":
            assert all(is_printed(claim, printed) for claim in claims(cell.source)), cell.source


def code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source.strip() for cell in notebook.cells if cell.cell_type == "code"]


# --- execution


def test_jupyter_opens_a_lesson_as_a_notebook(tmp_path: Path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for stamp in ("installed", "installed-notebooks"):
        (tmp_path / f".{stamp}").touch()
    commands = subprocess.run(
        ["make", "--no-print-directory", "-n", "lab", f"VENV={tmp_path}"],
        cwd=execute.LESSONS.parent, capture_output=True, text=True, check=True,
    ).stdout.replace("\\\n", "")  # fmt: skip
    setting, start_jupyter = commands.strip().splitlines()[-2:]
    assert start_jupyter.endswith("jupyter lab notebooks")
    setting = setting.replace(f"{tmp_path}/bin", str(Path(sys.executable).parent))
    subprocess.run(setting, shell=True, check=True)
    (written,) = tmp_path.rglob("*.json")
    assert '"python": "Jupytext Notebook"' in written.read_text()


def test_execute_writes_outputs_and_kernels_are_offline_with_passive_threads(tmp_path: Path):
    lesson = tmp_path / "9_environment.py"
    lesson.write_text(
        "# %%\nimport os, notebooks\nprint(os.environ['OMP_WAIT_POLICY'], os.environ['HF_HUB_OFFLINE'])\n"
    )
    written = nbformat.read(execute.execute(lesson, tmp_path / "out"), as_version=4)
    assert written.cells[0].outputs[0].text == "passive 1\n"


def test_execute_of_a_failing_lesson_names_lesson_and_error(tmp_path: Path):
    lesson = tmp_path / "9_wrong.py"
    lesson.write_text("# %%\nraise ValueError('this is wrong')\n")
    with pytest.raises(execute.LessonError, match=r"9_wrong\.py: (.|\n)*this is wrong"):
        execute.execute(lesson, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_lessons_of_an_unknown_name_lists_the_lessons():
    assert [lesson.stem for lesson in execute.lessons(("3", "a"))] == ["3_self_distillation", "a_video"]
    with pytest.raises(execute.LessonError, match="No lesson begins with '9'"):
        execute.lessons(("9",))


def test_lessons_import_names_that_exist():
    for file in LESSONS:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    if not hasattr(module, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")
