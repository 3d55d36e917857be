"""`python -m notebooks.student`: write a release for students, without readable solutions."""

import base64
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import tyro

from dino_model.runtime.outputs import run_command
from notebooks.execute import LESSONS, LessonError

ENCODED = ("notebooks/checks.py", "notebooks/solutions.py")
"""Modules that a student can import but not read: the answers, and the mistakes, which are close to them."""
LEFT_OUT = (
    "notebooks/README.md",
    "notebooks/answers/",
    "notebooks/grade.py",
    "notebooks/ipynb.py",
    "notebooks/quiz.py",
    "notebooks/solve.py",
    "notebooks/student.py",
    "docs/teaching.md",
    "tests/",
    "tools/",
    "benchmarks/",
    "deploy/",
    ".ci/",
    ".github/",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
"""Beginnings of paths that students do not get."""
LOADER = '''"""Encoded for the students' release; the solutions are with your teacher."""

import base64
import zlib

exec(compile(zlib.decompress(base64.b85decode("{code}")), __name__, "exec"))
'''


@dataclass(frozen=True)
class Student:
    """Write the project without answers, tests and readable solutions.

    The encoding keeps an answer from being read by accident. It is no protection against decoding.
    """

    output: Path = Path("build/student/dino-attention-lab")
    """New folder of the release, and name of the .zip file next to it."""

    def run(self) -> None:
        """Copy the files of the repository, then pack them.

        Raises:
            LessonError: The folder exists, or the project is not in a git repository.
        """
        root = LESSONS.parent
        if self.output.exists():
            raise LessonError(f"{self.output} exists. Delete it or pass --output NEW_FOLDER.")
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False
        )
        if listed.returncode:
            raise LessonError(f"{root} is no git repository: {listed.stderr.strip()}. Run this in a clone.")
        names = [name for name in listed.stdout.split("\0") if name and not name.startswith(LEFT_OUT)]
        for name in names:
            source, target = root / name, self.output / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in ENCODED:
                target.write_text(encode(source.read_text(encoding="utf-8")), encoding="utf-8")
            elif name == "README.md":
                target.write_text(students_page(), encoding="utf-8")
            elif source.is_file():
                shutil.copyfile(source, target)
        archive = shutil.make_archive(str(self.output), "zip", self.output.parent, self.output.name)
        print(f"{len(names)} files in {self.output}, packed in {archive}")


def students_page() -> str:
    """Return the part of the lessons' page that is for students, with links from the folder above."""
    page = (LESSONS / "README.md").read_text(encoding="utf-8").split("\n## For teachers")[0]
    return page.replace("](", "](notebooks/")


def encode(source: str) -> str:
    """Return a module that behaves as the source and does not show it."""
    return LOADER.format(code=base64.b85encode(zlib.compress(source.encode(), 9)).decode())


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Student, prog="python -m notebooks.student").run))
