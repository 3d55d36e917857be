"""The faults that `python -m tools.mutants` applies fit the code."""

import pytest

from tools.mutants.__main__ import ROOT, TABLES, read_mutants


@pytest.mark.parametrize("package", sorted(path.stem for path in TABLES.glob("*.toml")))
def test_every_fault_replaces_one_place(package):
    for mutant in read_mutants(package):
        assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, mutant.name
