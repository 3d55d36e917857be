"""`python -m segmentation`: every command is there, explains itself, and nothing else is."""

import subprocess
import sys

import pytest

from segmentation.__main__ import COMMANDS, command, main


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_command_exits_with_zero(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["segmentation", name, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert f"python -m segmentation {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_summary_equals_docstring_of_command(name):
    assert COMMANDS[name] == command(name).__doc__.splitlines()[0]


@pytest.mark.parametrize("arguments", [[], ["attend"]])
def test_unknown_command_prints_usage(arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["segmentation", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "usage: python -m segmentation COMMAND" in capsys.readouterr().err


def test_help_of_all_commands_does_not_import_torch():
    program = (
        "import sys\n"
        "from segmentation.__main__ import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    sys.argv = ['segmentation', name, '--help']\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit:\n"
        "        pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL).returncode == 0
