"""The students' release: it checks answers without showing them, and lacks what belongs to teachers."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from notebooks import solutions
from notebooks.execute import LessonError
from notebooks.student import Student

USE = """
from notebooks import solutions
from notebooks.checks import check
check("2.2", solutions.jaccard)
for _ in range(3):
    check("2.2", lambda mask, truth: 0.5)
"""


def test_release_checks_answers_and_shows_no_solution(tmp_path):
    folder = tmp_path / "lab"
    Student(folder).run()
    printed = subprocess.check_output([sys.executable, "-c", USE], cwd=folder, text=True)
    assert printed.startswith("Exercise 2.2: correct.")
    assert "The solution is with your teacher." in printed
    body = "(mask & truth).sum() / (mask | truth).sum()"
    assert body in Path(str(solutions.__file__)).read_text()
    files = {name.relative_to(folder).as_posix(): name for name in folder.rglob("*") if name.is_file()}
    texts = {
        name: file.read_bytes() for name, file in files.items() if name.endswith((".py", ".ipynb", ".md"))
    }
    assert not [name for name, text in texts.items() if body.encode() in text]
    assert not [name for name in files if name.startswith(("tests/", "notebooks/answers", "docs/teaching"))]
    assert {"notebooks/ipynb/3_self_distillation.ipynb", "requirements-lessons.txt"} <= files.keys()
    page = (folder / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links
    assert not [link for link in links if not (folder / link).exists()]
    assert set(re.findall(r"`(make \w+|python -m [\w.]+)", page)) == {"make lab", "make notebooks"}
    subprocess.check_call([sys.executable, "-m", "notebooks.execute", "t"], cwd=folder)
    with zipfile.ZipFile(tmp_path / "lab.zip") as archive:
        assert "lab/notebooks/checks.py" in archive.namelist()
    with pytest.raises(LessonError, match="exists"):
        Student(folder).run()
