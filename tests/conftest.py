"""Fixtures shared by every test: where the oracles and the real data stand."""

import atexit
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Oracle = Callable[[str], dict[str, np.ndarray]]
atexit.register(gc.unfreeze)  # extensions report what is not collected at the end as leaks
gc.disable()  # while modules are imported: passes over their objects take half of the time
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
"""jsonschema of Gradio and Jupyter compiles its grammar in a second; no test checks that format."""


def pytest_collection_finish() -> None:
    """Collect garbage from here on, without the objects of modules."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup() -> None:
    """Seed PyTorch, so that no test depends on those before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in tests/browser."""
    for item in items:
        if "browser" in item.path.parts:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def oracle_folder() -> Path:
    """Folder of the reference numbers: DINO_ORACLES when set, else the copy beside the oracle tests."""
    folder = Path(os.environ.get("DINO_ORACLES") or Path(__file__).parent / "oracles" / "data").resolve()
    assert folder.is_dir(), f"DINO_ORACLES names no folder: {folder}"
    return folder


@pytest.fixture(scope="session")
def oracle(oracle_folder: Path) -> Oracle:
    """`oracle("vit")` or `oracle("vit.npz")`: every array of that file, by key, freshly read."""

    def read(name: str) -> dict[str, np.ndarray]:
        with np.load(oracle_folder / f"{name.removesuffix('.npz')}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return read


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the real images, named by DINO_DATA; without it the test is skipped."""
    named = os.environ.get("DINO_DATA")
    if not named:
        pytest.skip("DINO_DATA is not set: no real data to test on")
    folder = Path(named).resolve()
    assert folder.is_dir(), f"DINO_DATA names no folder: {folder}"
    return folder
