"""Notebooks of the lessons: equal to their sources, set-up cell, and the list of required packages."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("IPython")
import nbformat

from notebooks import ipynb
from notebooks.execute import LessonError, lessons, read

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "https://github.com/owner/name"


@pytest.mark.parametrize("lesson", lessons(), ids=lambda lesson: lesson.stem)
def test_committed_notebook_has_the_cells_of_its_lesson_and_no_outputs(lesson):
    notebook = nbformat.read(ipynb.FOLDER / f"{lesson.stem}.ipynb", as_version=4)
    current = ipynb.convert_lesson(lesson, ipynb.project_address())
    sources = [[(cell.cell_type, cell.source) for cell in book.cells] for book in (notebook, current)]
    assert sources[0] == sources[1], "run `make ipynb`"
    assert [ipynb.move_links(cell.source, ipynb.project_address()) for cell in read(lesson).cells] == [
        cell.source for number, cell in enumerate(notebook.cells) if number not in (1, 2)
    ]
    assert not [cell for cell in notebook.cells if cell.get("outputs")]


def test_notebooks_belong_to_lessons():
    assert {file.stem for file in ipynb.FOLDER.iterdir()} == {lesson.stem for lesson in lessons()}


def test_links_open_the_repository_that_is_named_once(tmp_path):
    ipynb.Write(tmp_path, ADDRESS).run()
    cells = nbformat.read(tmp_path / "3_self_distillation.ipynb", as_version=4).cells
    path = "owner/name/blob/notebooks/3_self_distillation.ipynb"
    assert f"https://colab.research.google.com/github/{path}" in cells[1].source
    assert f'REPOSITORY = "{ADDRESS}"' in cells[2].source
    assert f"]({ADDRESS}/raw/main/docs/figures/dino.svg)" in "".join(cell.source for cell in cells)
    assert ipynb.links_of(lessons()[0], "") == ipynb.NO_ADDRESS


def test_notebooks_link_to_existing_files():
    for file in ipynb.FOLDER.iterdir():
        for target in re.findall(r"\]\((\.[^)#]+)", file.read_text()):
            assert (file.parent / target).exists(), f"{file.name}: {target}"


def test_readme_names_the_published_site():
    address = ipynb.project_address() or "OWNER/NAME"
    owner, name = address.split("/")[-2:]
    assert f"https://{owner}.github.io/{name}/".lower() in (ROOT / "README.md").read_text().lower()


def test_published_site_and_notebooks_get_the_repository_of_the_workflow():
    workflow = (ROOT / ".github" / "workflows" / "pages.yml").read_text()
    target = re.search(r"make (\w+) REPOSITORY=", workflow)
    assert target
    command = ["make", "-n", target[1], f"REPOSITORY={ADDRESS}"]
    printed = subprocess.check_output(command, cwd=ROOT, text=True).replace("\\\n", "").splitlines()
    assert [line for line in printed if "-b html" in line and f"-D repository={ADDRESS}" in line]
    assert [line for line in printed if "notebooks.ipynb" in line and f"--repository {ADDRESS}" in line]


def test_outputs_of_an_executed_lesson_are_copied_and_of_other_code_refused(tmp_path):
    lesson = lessons()[0]
    executed = read(lesson)
    codes = [cell for cell in executed.cells if cell.cell_type == "code"]
    for number, cell in enumerate(codes):
        cell.outputs = [nbformat.v4.new_output("stream", text=f"{number}")]
    nbformat.write(executed, tmp_path / "0.ipynb")
    notebook = ipynb.convert_lesson(lesson, ADDRESS)
    ipynb.copy_outputs(tmp_path / "0.ipynb", notebook)
    texts = [[output.text for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]
    assert texts == [[], *([str(number)] for number in range(len(codes)))]
    folded = [bool(cell.metadata) for cell in notebook.cells if cell.cell_type == "code"]
    assert folded == [False, False, True]
    for file in (tmp_path / "missing.ipynb", ipynb.FOLDER / "a_video.ipynb"):
        with pytest.raises(LessonError, match=r"has no outputs of the present code\. Run `make notebooks"):
            ipynb.copy_outputs(file, notebook)


def test_code_of_tagged_cells_is_folded():
    (lesson,) = lessons(("d",))
    cells = ipynb.convert_lesson(lesson, ADDRESS).cells
    folded = [cell.source for cell in cells if cell.metadata.get("jupyter", {}).get("source_hidden")]
    assert [source for source in folded if "def random_crops" in source] == folded != []


def run_set_up(monkeypatch, folder: Path, repository: str, installed: bool) -> list[list[str]]:
    """Run the set-up cell in a folder and return its commands; none is executed."""
    commands: list[list[str]] = []
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(subprocess, "run", lambda words, check: commands.append(words))
    found = [object()] if installed else []
    monkeypatch.setattr("importlib.metadata.distributions", lambda name: found)
    code = ipynb.convert_lesson(lessons()[0], repository).cells[2].source
    values: dict = {}
    exec(code, values)
    assert sys.path[0] == str(values["clone"])
    return commands


def test_set_up_cell_clones_installs_and_needs_neither_after_a_restart(monkeypatch, tmp_path, capsys):
    clone = tmp_path / "dino-attention-lab"
    git, packages, project = run_set_up(monkeypatch, tmp_path, ADDRESS, installed=False)
    assert git[:2] == ["git", "clone"]
    assert git[-2:] == [ADDRESS, str(clone)]
    assert packages[-2:] == ["-r", str(clone / "requirements-lessons.txt")]
    assert project[-3:] == ["--no-deps", "--editable", str(clone)]
    assert capsys.readouterr().out.startswith(f"Cloning {ADDRESS} into {clone}.\nInstalling ")
    (clone / "notebooks").mkdir(parents=True)
    (clone / "notebooks" / "checks.py").touch()
    assert run_set_up(monkeypatch, tmp_path, ADDRESS, installed=True) == []
    assert run_set_up(monkeypatch, clone / "notebooks", "", installed=True) == []
    assert capsys.readouterr().out == f"The lesson uses the packages in {clone}.\n" * 2


def test_set_up_cell_without_clone_and_address_says_what_to_do(monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match="Open this notebook in a clone"):
        run_set_up(monkeypatch, tmp_path, "", installed=True)


IMPORTS = """
import json, sys
for code in json.load(sys.stdin):
    exec(code, {})
print(json.dumps(sorted(m.__file__ for m in [*sys.modules.values()] if getattr(m, "__file__", None))))
"""
DISTRIBUTIONS = {"IPython": "ipython", "PIL": "pillow", "cv2": "opencv-python"}
DISTRIBUTIONS |= {"skimage": "scikit-image", "sklearn": "scikit-learn"}
OWN = {"app", "dino_model", "segmentation", "training", "notebooks"}
KERNEL = "ipykernel"  # the notebook runs in it
COMMANDS = {"fsspec", "gradio", "jupytext", "nbclient", "nbformat", "pycocotools", "threadpoolctl"}
"""Imported in functions that no lesson calls."""


def _third_parties(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module))
    tops = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    return {DISTRIBUTIONS.get(name, name) for name in tops - OWN}


def test_lessons_import_what_the_list_has_and_nothing_else():
    trees = [ast.parse(lesson.read_text()) for lesson in lessons()]
    imports = [
        [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)] for tree in trees
    ]
    codes = ["\n".join(map(ast.unparse, nodes)) for nodes in imports]
    codes.append("import segmentation.commands.head, training.commands.pretrain")  # lesson F runs them
    command = [sys.executable, "-c", IMPORTS]
    printed = subprocess.run(
        command, cwd=ROOT, input=json.dumps(codes), capture_output=True, text=True, check=True
    )
    files = [Path(name) for name in json.loads(printed.stdout)]
    packages = [ROOT / name for name in OWN]
    own = [ast.parse(file.read_text()) for file in files if not set(packages).isdisjoint(file.parents)]
    found = set().union(*map(_third_parties, trees + own))
    lines = (ROOT / "requirements-lessons.txt").read_text().splitlines()
    required = {re.split("[>=<]", line)[0] for line in lines if not line.startswith("#")}
    assert found - COMMANDS == required - {KERNEL}


def test_list_of_the_lessons_has_the_versions_of_the_other_lists():
    lists = [(ROOT / f"requirements{part}.txt").read_text().splitlines() for part in ("", "-notebooks")]
    lines = (ROOT / "requirements-lessons.txt").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} <= {*lists[0], *lists[1]}
