"""`python -m segmentation`: every command is there, explains itself, and nothing else is."""

import pytest

from segmentation.__main__ import COMMANDS, command, main


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
