"""Output folders of commands: refused, replaced, resumed, and described by their provenance."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dino_model.errors import SettingError
from dino_model.outputs import OutputError, OutputFolder, OutputOptions, SkippedInputs, run_command

SETTINGS = {"model": "embedded", "precision": "fp32", "mass": 0.6}


def write(folder: OutputFolder, name: str, *inputs: Path) -> None:
    file = folder.path("masks", f"{name}.txt")
    file.write_text(name)
    folder.add(name, {"letters": len(name)}, inputs=inputs, files=[file])


def test_new_folder_records_command_versions_model_and_settings(tmp_path):
    folder = OutputFolder(tmp_path / "out", SETTINGS)
    write(folder, "a")
    content = json.loads((tmp_path / "out/provenance.json").read_text())
    assert content["finished"] is None
    folder.finish()
    content = json.loads((tmp_path / "out/provenance.json").read_text())
    assert content["settings"] == SETTINGS
    assert (content["model"], content["precision"]) == ("embedded", "fp32")
    assert {"python", "torch", "timm"} <= set(content["versions"])
    assert content["command"]
    assert content["contents"] == ["masks"]
    assert content["finished"] >= content["started"]


def test_existing_results_without_option_are_refused(tmp_path):
    write(OutputFolder(tmp_path / "out", SETTINGS), "a")
    with pytest.raises(OutputError, match="--resume to continue them, --overwrite to replace them"):
        OutputOptions(output=tmp_path / "out").check_output()
    with pytest.raises(OutputError, match="--overwrite"):
        OutputFolder(tmp_path / "out", SETTINGS)


def test_overwrite_removes_earlier_results_and_nothing_else(tmp_path):
    write(OutputFolder(tmp_path / "out", SETTINGS), "a")
    (tmp_path / "out/notes.txt").write_text("of the user")
    folder = OutputFolder(tmp_path / "out", SETTINGS | {"mass": 0.8}, overwrite=True)
    assert folder.finished == {}
    found = sorted(entry.name for entry in (tmp_path / "out").iterdir())
    assert found == ["notes.txt", "progress.jsonl", "provenance.json"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_with_foreign_files_is_refused(tmp_path, overwrite):
    (tmp_path / "holiday.jpg").write_bytes(b"of the user")
    with pytest.raises(OutputError, match=r"holds files of other origin \(holiday\.jpg\)"):
        OutputFolder(tmp_path, SETTINGS, overwrite=overwrite)
    assert (tmp_path / "holiday.jpg").exists()


def test_overwrite_with_foreign_paths_in_provenance_removes_nothing(tmp_path):
    write(OutputFolder(tmp_path / "out", SETTINGS), "a")
    (tmp_path / "valuable").write_text("of the user")
    file = tmp_path / "out/provenance.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"contents": ["../valuable"]}))
    with pytest.raises(OutputError, match="which is no entry"):
        OutputFolder(tmp_path / "out", SETTINGS, overwrite=True)
    assert (tmp_path / "valuable").exists()


@pytest.mark.parametrize("changed", ["nothing", "input", "result", "removed result"])
def test_resumed_item_is_finished_unless_its_files_changed(tmp_path, changed):
    image, result = tmp_path / "a.jpg", tmp_path / "out/masks/a.txt"
    image.write_text("pixels")
    write(OutputFolder(tmp_path / "out", SETTINGS), "a", image)
    if changed == "removed result":
        result.unlink()
    elif changed != "nothing":
        (image if changed == "input" else result).write_text("other pixels")
    folder = OutputFolder(tmp_path / "out", SETTINGS, resume=True)
    assert folder.finished == {"a": {"letters": 1}}
    assert folder.has("a", [image]) == (changed == "nothing")
    assert not folder.has("b")


def test_log_cut_off_within_a_line_loses_that_item_only(tmp_path):
    folder = OutputFolder(tmp_path / "out", SETTINGS)
    write(folder, "a")
    write(folder, "b")
    log = tmp_path / "out/progress.jsonl"
    log.write_text(log.read_text()[:-5])
    assert list(OutputFolder(tmp_path / "out", SETTINGS, resume=True).finished) == ["a"]


def test_skipped_inputs_are_named_and_counted(capsys):
    skipped = SkippedInputs()
    skipped.check(3)
    skipped.add("a.jpg", ValueError("a.jpg is damaged"))
    skipped.add("b.jpg", ValueError("too many patches"))
    assert "skipped b.jpg: too many patches" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"skipped 2 of 3 images: a\.jpg is damaged; b\.jpg: too many"):
        skipped.check(3)


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("run", "code", "printed"),
    [
        (lambda: None, 0, ""),
        (lambda: 3, 3, ""),
        (lambda: fail(SettingError("--mass is 2")), 1, "error: --mass is 2\n"),
        (lambda: fail(FileNotFoundError(2, "No such file", "a.jpg")), 1, "error: cannot use 'a.jpg'"),
        (lambda: fail(KeyboardInterrupt()), 130, "Finished results are kept"),
    ],
)
def test_end_of_a_command_gives_its_exit_code(capsys, run, code, printed):
    assert run_command(run) == code
    assert printed in capsys.readouterr().err


def started(program: str) -> subprocess.Popen:
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_signal_gives_its_exit_code(number, code):
    program = (
        "import sys, time; from dino_model.outputs import run_command\n"
        "def work():\n    print('ready', flush=True); time.sleep(60)\n"
        "sys.exit(run_command(work))"
    )
    with started(program) as process:
        process.stdout.readline()
        os.kill(process.pid, number)
        assert b"Finished results are kept" in process.communicate()[1]
    assert process.returncode == code


def test_closed_pipe_prints_no_traceback():
    program = (
        "import sys; from dino_model.outputs import run_command\n"
        "sys.exit(run_command(lambda: print('x' * 10_000_000)))"
    )
    with started(program) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
