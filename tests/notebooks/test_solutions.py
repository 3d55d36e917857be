"""The solution tree: completed exercises that the checks accept, and answers to the open exercises."""

import ast
import builtins
import re

import pytest

pytest.importorskip("IPython")
import nbformat

from notebooks import checks, grade, ipynb, solve
from notebooks.execute import lessons, read

every_lesson = pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.stem)


@every_lesson
def test_checks_accept_the_solutions_in_a_solved_lesson(lesson, tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "check", checks.check)
    notebook = ipynb.convert_lesson(lesson, "", solutions=True)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert not [source for source in sources if re.search(r"return \.\.\.|, \.\.\.\)", source)]
    numbers = [name for name in checks.EXERCISES if name[0].lower() == lesson.stem[0]]
    nbformat.write(notebook, tmp_path / "a.ipynb")
    codes = grade.answers_of(tmp_path / "a.ipynb") if numbers else {}
    assert {name: grade.run_check(checks, name, code)[0] for name, code in codes.items()} == dict.fromkeys(
        numbers, "correct"
    )


@every_lesson
def test_open_exercises_have_answers_that_use_names_of_the_lesson(lesson):
    answers = read(solve.ANSWERS / lesson.name).cells
    text = "\n".join(cell.source for cell in answers)
    kinds = re.findall(r"# \*\*Exercise \((break|argue)\)", lesson.read_text())
    assert kinds or "**Exercise.**" in text
    assert all(f"**{kind.capitalize()}.**" in text for kind in kinds)
    known = {*dir(builtins)}
    for cell in [*read(lesson).cells, *answers]:
        for statement in ast.parse(cell.source).body if cell.cell_type == "code" else []:
            bound, used = grade.names_of(statement)
            assert used <= known | bound, used - known - bound
            known |= bound


def test_lab_sheet_has_a_separate_file_of_answers():
    sheet, answers = (
        (folder / name).read_text()
        for folder, name in ((ipynb.LESSONS.parent / "docs", "lab-sheet.md"), (solve.ANSWERS, "lab_sheet.md"))
    )
    questions = re.findall(r"^(\d+)\. ", sheet, re.MULTILINE)
    assert questions == re.findall(r"^(\d+)\. ", answers, re.MULTILINE)
    assert not re.search("^#+ Answers|centered box is as good", sheet, re.MULTILINE)
