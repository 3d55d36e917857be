"""The page without any network: in a namespace where there is nothing but the loopback."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAYS = (("unshare", "--net"), ("unshare", "--map-root-user", "--net"))


def _way_in() -> tuple[str, ...] | None:
    """The command that runs another one in an empty network namespace; None where that is not permitted."""
    if shutil.which("unshare") is None:
        return None
    tried = (way for way in WAYS if subprocess.run([*way, "true"], capture_output=True).returncode == 0)
    return next(tried, None)


def test_page_works_in_an_empty_network_namespace(browser):
    way = _way_in()
    if way is None:
        pytest.skip("network namespaces are not permitted here (unshare --net): offline use is not shown")
    answer = subprocess.run(
        [*way, sys.executable, str(Path(__file__).parent / "offline.py")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    seen = json.loads(answer.stdout.splitlines()[-1])
    assert seen["interfaces"] == ["lo"]
    assert seen["encoded"] == "kitten"
    tabs = "Explore, Segment, Compare, Match, Class map, Video, Training, Learn"
    assert ", ".join(seen["tabs"]) == tabs
    assert seen["faults"] == []
