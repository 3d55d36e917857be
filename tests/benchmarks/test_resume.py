import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_trainings_killed_twice_are_bit_for_bit_the_one_that_went_through(tmp_path):
    """With stochastic depth; one without workers, one with two. In a process of its own, which forks."""
    file = tmp_path / "resume.json"
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.resume", "--trials", "2", "--json", str(file)],
        cwd=REPOSITORY,
        check=False,
    )
    found = json.loads(file.read_text())
    assert (ended.returncode, found["equal"]) == (0, 2)
    assert all(0 < moment < 48 for moments in found["killed_at"] for moment in moments)
