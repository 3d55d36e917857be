"""The Slurm job script, with stand-ins for srun, python and scontrol."""

import os
import subprocess
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "deploy" / "slurm" / "pretrain.sbatch"
PROGRAMS = {
    "srun": 'env SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NTASKS=16 "$@"; exit $CODE',
    "python": 'echo "rank $RANK local $LOCAL_RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT: $*"',
    "scontrol": """[ "$1" = show ] && printf 'node1\\nnode2\\n' || echo "scontrol $*" """,
}


@pytest.mark.parametrize(("code", "again"), [(75, True), (0, False), (1, False)])
def test_slurm_job_is_queued_again_after_exit_code_75(tmp_path, code, again):
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CODE": str(code), "SLURM_JOB_ID": "20007"}
    ended = subprocess.run(
        ["bash", str(JOB), "my images", "runs/a"],
        env=os.environ | variables | {"SLURM_JOB_NODELIST": "node[1-2]"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code
    assert "rank 3 local 1 of 16 at node1:20007: -m training pretrain" in ended.stdout
    assert "--data my images --output runs/a --resume" in ended.stdout
    assert ("scontrol requeue 20007" in ended.stdout) == again
