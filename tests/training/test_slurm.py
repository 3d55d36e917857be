"""The Slurm job script, with stand-ins for srun, python and scontrol."""

import os
import subprocess
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "deploy" / "slurm" / "pretrain.sbatch"
PROGRAMS = {
    "srun": 'while [[ $1 == --* ]]; do echo "$1"; shift; done; '
    'exec env SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NTASKS=16 "$@"',
    "python": "kill -s $SIGNAL $PPID; "
    'echo "rank $RANK local $LOCAL_RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT: $*"; exit $CODE',
    "scontrol": """[ "$1" = show ] && printf 'node1\\nnode2\\n' || echo "scontrol $*" """,
}


@pytest.mark.parametrize(("code", "again"), [(75, True), (0, False), (1, False)])
def test_slurm_job_is_queued_again_after_exit_code_75(tmp_path, code, again):
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CODE": str(code), "SLURM_JOB_ID": "20007"}
    variables |= {"SLURM_CPUS_PER_TASK": "10", "SIGNAL": "USR1" if code == 75 else "0"}
    ended = subprocess.run(
        ["bash", str(JOB), "my images", "runs/a"],
        env=os.environ | variables | {"SLURM_JOB_NODELIST": "node[1-2]"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code
    assert ended.stdout.splitlines()[:2] == ["--cpus-per-task=10", "--kill-on-bad-exit=1"]
    assert not list(tmp_path.glob("*.stopped"))
    assert "rank 3 local 1 of 16 at node1:20007: -m training pretrain" in ended.stdout
    assert "--data my images --output runs/a --resume" in ended.stdout
    assert ("scontrol requeue 20007" in ended.stdout) == again
