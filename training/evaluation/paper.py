"""The figures of the paper's tables, all rows, from one file beside this one: paper.csv.

Columns: table (its number in the paper, "Figure N", or "unnumbered"), section, title, system, architecture,
setting, measure, value. What is only a difference of two others is left out.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("paper.csv")
ROW_OF = {
    "dino_vits16": ("DINO", "ViT-S/16"),
    "dino_vits8": ("DINO", "ViT-S/8"),
    "dino_vitb16": ("DINO", "ViT-B/16"),
    "dino_vitb8": ("DINO", "ViT-B/8"),
    "dino_resnet50": ("DINO", "RN50"),
    "deit_small_patch16_224.fb_in1k": ("Supervised", "ViT-S/16"),
    "deit_base_patch16_224.fb_in1k": ("Supervised", "ViT-B/16"),
}
"""Names of models, and the system and architecture that the tables call them."""


@dataclass(frozen=True)
class Published:
    """One figure of the paper."""

    table: str
    section: str
    title: str
    system: str
    architecture: str
    setting: str
    measure: str
    printed: str
    """The figure as it stands there, with its decimals."""

    @property
    def value(self) -> float:
        """The figure."""
        return float(self.printed)

    @property
    def where(self) -> str:
        """Table or figure and section, as a reader looks it up."""
        numbered = self.table if self.table.startswith("Figure") else f"Table {self.table}"
        return f"{'a table' if self.table == 'unnumbered' else numbered}, section {self.section}"

    def __str__(self) -> str:
        setting = f" ({self.setting})" if self.setting else ""
        return f"{self.printed} {self.measure}{setting} of {self.system} {self.architecture}, {self.where}"


@cache
def published() -> tuple[Published, ...]:
    """Every figure, in the order of the paper."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Published(*row.values()) for row in csv.DictReader(file))


def of_model(model: str, table: str, *measures: str) -> list[Published]:
    """What one table says of a model; empty where the paper has no such model.

    Args:
        model: its name, as commands take it.
        table: as in the file.
        measures: which; none: all.
    """
    system, architecture = ROW_OF.get(model, ("", ""))
    return [
        one
        for one in published()
        if (one.table, one.system, one.architecture) == (table, system, architecture)
        and (not measures or one.measure in measures)
    ]
