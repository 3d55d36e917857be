"""Tasks of Slurm without the variables of a process group."""

import pytest
import torch

from dino_model.runtime.errors import SettingError
from dino_model.runtime.ranks import process_group


def test_several_slurm_tasks_without_rank_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(SettingError, match="torchrun"), process_group(torch.device("cpu")):
        pass
    monkeypatch.setenv("SLURM_NTASKS", "1")
    with process_group(torch.device("cpu")) as device:
        assert device.type == "cpu"
