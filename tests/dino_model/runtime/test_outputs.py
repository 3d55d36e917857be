"""Output folders of commands: refused, replaced, resumed, and described by their provenance."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dino_model.runtime.errors import SettingError
from dino_model.runtime.outputs import OutputError, OutputFolder, OutputOptions, run_command

SETTINGS = {"model": "embedded", "precision": "fp32", "mass": 0.6}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with the finished item a, which was made from a.jpg."""
    (tmp_path / "a.jpg").write_text("pixels")
    write(OutputFolder(tmp_path / "out", SETTINGS), "a", tmp_path / "a.jpg")
    return tmp_path / "out"


def write(folder: OutputFolder, name: str, *inputs: Path) -> None:
    file = folder.path("masks", f"{name}.txt")
    file.write_text(name)
    folder.add(name, {"letters": len(name)}, inputs=inputs)


def test_provenance_records_command_versions_model_and_settings(out: Path):
    assert json.loads((out / "provenance.json").read_text())["finished"] is None
    OutputFolder(out, SETTINGS, resume=True).finish()
    content = json.loads((out / "provenance.json").read_text())
    assert content["settings"] == SETTINGS
    assert (content["model"], content["precision"]) == ("embedded", "fp32")
    assert {"python", "torch", "timm"} <= set(content["versions"])
    assert content["command"]
    assert content["contents"] == ["masks"]
    assert content["finished"] >= content["started"]


def change_contents(out: Path, **entries: object) -> None:
    file = out / "provenance.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (entries or {"contents": ["../a.jpg"]})))


def change_format(out: Path) -> None:
    change_contents(out, format=1)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (None, {"overwrite": True, "resume": True}, "choose one of the two"),
        (lambda out: (out / "provenance.json").unlink(), {}, r"holds files of other origin \(masks, "),
        (lambda out: (out / "provenance.json").unlink(), {"overwrite": True}, "holds files of other origin"),
        (change_contents, {"overwrite": True}, "which is no entry"),
        (change_format, {"resume": True}, "of another version .format 1, expected 2"),
        (lambda out: (out / "provenance.json").write_text("{"), {"resume": True}, "json is damaged"),
        (lambda out: (out / "progress.jsonl").write_text("[]\n"), {"resume": True}, "jsonl is damaged"),
    ],
)
def test_folder_that_must_not_be_written_to_stays(out: Path, change: Callable | None, options, message):
    if change:
        change(out)
    with pytest.raises(OutputError, match=message):
        OutputOptions(output=out, **options).open_output(SETTINGS)
    assert (out.parent / "a.jpg").exists()
    assert (out / "masks" / "a.txt").exists()


def test_item_is_finished_for_all_of_its_inputs_only(out: Path, tmp_path: Path):
    first, second = (tmp_path / f"{name}.jpg" for name in "ab")
    second.write_text("more")
    write(OutputFolder(out, SETTINGS, resume=True), "pair", first, second)
    folder = OutputFolder(out, SETTINGS, resume=True)
    assert folder.has("pair", [first, second])
    assert not folder.has("pair", [first])


def test_earlier_results_are_removed_at_the_first_result_and_not_before(out: Path):
    folder = OutputFolder(out, SETTINGS | {"mass": 0.8}, overwrite=True)
    assert (out / "masks" / "a.txt").exists()
    folder.path("b.txt").write_text("b")
    assert sorted(file.name for file in out.iterdir()) == ["b.txt", "progress.jsonl", "provenance.json"]
    folder.discard()
    folder.finish()
    assert sorted(file.name for file in out.iterdir()) == ["progress.jsonl", "provenance.json"]


@pytest.mark.parametrize(
    ("end", "code", "printed"),
    [
        (None, 0, ""),
        (SettingError("--mass is 2"), 1, "error: --mass is 2\n"),
        (FileNotFoundError(2, "No such file", "a.jpg"), 1, "error: cannot use 'a.jpg'"),
        (FileNotFoundError(2, "No such file", "\udce9.jpg"), 1, r"error: cannot use '\xe9.jpg'"),
        (KeyboardInterrupt(), 130, "Finished results are kept"),
    ],
)
def test_end_of_a_command_gives_its_exit_code(capsys, end, code, printed):
    def run() -> int | None:
        if isinstance(end, BaseException):
            raise end
        return end

    assert run_command(run) == code
    assert printed in capsys.readouterr().err


def started(work: str) -> subprocess.Popen:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"from dino_model.runtime.outputs import run_command; sys.exit(run_command({work}))"
    )
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75)]
)
def test_signal_gives_its_exit_code(number, code):
    with started("lambda: (print('ready', flush=True), time.sleep(60))") as process:
        process.stdout.readline()
        os.kill(process.pid, number)
        assert b"Finished results are kept" in process.communicate()[1]
    assert process.returncode == code


def test_closed_pipe_prints_no_traceback():
    with started("lambda: print('x' * 10_000_000)") as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
