"""All values of the paper's tables, from paper.csv in this folder.

Columns: table (its number in the paper, "Figure N", or "unnumbered"), section, title, system, architecture,
setting, measure, value. Differences of two other values are left out.
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
"""Model name -> system and architecture in the tables."""


@dataclass(frozen=True)
class Published:
    """One value of the paper."""

    table: str
    section: str
    title: str
    system: str
    architecture: str
    setting: str
    measure: str
    printed: str
    """The value with its printed decimals."""

    @property
    def value(self) -> float:
        """The value as a number."""
        return float(self.printed)

    @property
    def where(self) -> str:
        """Table or figure, and section."""
        numbered = self.table if self.table.startswith("Figure") else f"Table {self.table}"
        return f"{'a table' if self.table == 'unnumbered' else numbered}, section {self.section}"

    def __str__(self) -> str:
        setting = f" ({self.setting})" if self.setting else ""
        return f"{self.printed} {self.measure}{setting} of {self.system} {self.architecture}, {self.where}"


@cache
def published() -> tuple[Published, ...]:
    """Return every value, in the order of the paper."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(Published(*row.values()) for row in csv.DictReader(file))


def of_model(model: str, table: str, *measures: str) -> list[Published]:
    """Return the values of a model in one table for these measures; none if the paper has no such model."""
    system, architecture = ROW_OF.get(model, ("", ""))
    return [
        value
        for value in published()
        if (value.table, value.system, value.architecture) == (table, system, architecture)
        and value.measure in measures
    ]
