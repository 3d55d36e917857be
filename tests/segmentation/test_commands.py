"""`python -m segmentation`: the list of commands."""

import pytest

from segmentation.__main__ import COMMANDS, command, main


def test_unknown_command_prints_usage_with_first_lines_of_docstrings(monkeypatch, capsys):
    assert {name: command(name).__doc__.splitlines()[0] for name in COMMANDS} == COMMANDS
    monkeypatch.setattr("sys.argv", ["segmentation", "attend"])
    with pytest.raises(SystemExit, match=r"^2$"):
        main()
    assert "usage: python -m segmentation COMMAND" in capsys.readouterr().err
