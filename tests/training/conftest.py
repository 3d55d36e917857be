"""Images and a run that tests of training share; none of them changes these."""

from pathlib import Path

import pytest

from tests.training.runs import noise, pretrain


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of ten images in two classes."""
    return noise(tmp_path_factory.mktemp("images"), 10, 2, 40, 48)


@pytest.fixture(scope="session")
def trained(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six steps with three probes."""
    run = tmp_path_factory.mktemp("trained") / "run"
    assert pretrain(images, run, "--probe-every", 3) == 0
    return run
