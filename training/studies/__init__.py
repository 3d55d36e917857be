"""Ablations of the paper as small grids of runs: `python -m training study` runs one of `grids.STUDIES`."""
