"""Short logs: means of the steps of long ones."""

import json
from pathlib import Path

from tools.thin_log import main


def test_thin_log_writes_means_of_steps_and_numbers_runs(tmp_path: Path):
    folders = (tmp_path / "one", tmp_path / "two")
    lines = [{"step": 0, "loss": 1}, {"step": 1, "loss": 2.0002}, {"step": 2, "loss": 6, "knn_teacher": 30}]
    for folder in folders:
        folder.mkdir()
        (folder / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    main(folders, tmp_path / "short.jsonl", every=2)
    first, last = {"step": 1, "loss": 1.5001}, {"step": 2, "loss": 6.0, "knn_teacher": 30.0}
    expected = [{"phase": phase} | line for phase in (1, 2) for line in (first, last)]
    assert [json.loads(line) for line in (tmp_path / "short.jsonl").read_text().splitlines()] == expected
