"""The paper's ablations as small grids of runs; `python -m training study NAME` runs one of `STUDIES`."""

from training.studies.grids import STUDIES
from training.studies.study import Reading, Result, Study, Variant

__all__ = ["STUDIES", "Reading", "Result", "Study", "Variant"]
