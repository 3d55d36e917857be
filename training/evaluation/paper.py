"""Read the values of the paper's tables from paper.csv in this folder.

Columns: table (its number in the paper, "Figure N", or "unnumbered"), section, title, system, architecture,
setting, measure, value. Differences of two other values are left out.
"""

import csv
from functools import cache
from pathlib import Path
from typing import Any

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

PublishedRow = dict[str, Any]
"""Value of the paper: the columns, with `value` as a number and `printed` with its decimals."""


@cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Return every value, in the order of the paper."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            row | {"value": float(row["value"]), "printed": row["value"]} for row in csv.DictReader(file)
        )


def describe(row: PublishedRow) -> str:
    """Return a value with its measure, system and place in the paper."""
    setting = f" ({row['setting']})" if row["setting"] else ""
    system = f"{row['system']} {row['architecture']}".strip()
    where = f"Table {row['table']}, section {row['section']}"
    return f"{row['printed']} {row['measure']}{setting} of {system}, {where}"


def of_model(model: str, table: str, *measures: str) -> list[PublishedRow]:
    """Return the values of a model in one table for these measures; none if the paper has no such model."""
    return [
        row
        for row in published_rows()
        if (row["system"], row["architecture"]) == ROW_OF.get(model)
        and row["table"] == table
        and row["measure"] in measures
    ]
