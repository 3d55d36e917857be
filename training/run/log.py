"""Log of a run, RUN/log.jsonl, without importing torch: a JSON line per step, written by `logging`.

The doctor, the page and every other reader take lines, metrics and panels from this module.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

Line = Mapping[str, Any]
"""Metrics of a step by name; `step` is an integer."""
LOOP_METRICS = re.compile(
    r"step|phase|loss|gradient_norm_\w+|loss_scale|skipped|lr|weight_decay|teacher_(momentum|temperature)|"
    r"global_size|images_per_second|data_wait|device_memory|(knn|lift|rank)_\w+"
)
"""Names in the log that are the loop's; all others are the method's."""
MAX_STEPS = 10**12
"""Steps above every run's: a larger number is a damaged line of a log."""


class Panel(NamedTuple):
    """A plot of metrics that have one unit."""

    title: str
    """Title, with the unit in parentheses."""
    pattern: str
    """Matches the names of its metrics."""
    labels: Mapping[str, str] = {}
    """Labels of metrics whose names, without what the title says, are no labels."""

    def select(self, names: Iterable[str]) -> dict[str, str]:
        """Return the labels of its metrics by name, in the order of `names`."""
        chosen = [name for name in names if re.fullmatch(self.pattern, name)]
        texts = [re.sub("^(knn|rank|gradient_norm)_", "", name).replace("_", " ") for name in chosen]
        return {
            name: self.labels.get(name, text[:1].upper() + text[1:])
            for name, text in zip(chosen, texts, strict=True)
        }


LOSS = Panel("Loss", "loss")  # its terms depend on the method
TERMS = Panel(
    "Terms of the loss",
    r"(teacher|code)_entropy|kl|ln_k|(patch|cls|attention|rows)_loss",
    {
        "teacher_entropy": "Teacher entropy (nats)",
        "code_entropy": "Entropy of the codes (nats)",
        "kl": "KL(teacher, student) (nats)",
        "ln_k": "ln K",
        "patch_loss": "Patches",
        "cls_loss": "[CLS] (1 - cos)",
        "attention_loss": "[CLS] attention (KL)",
        "rows_loss": "Patch attention (KL)",
    },
)
KNN = Panel("k-NN top-1 on training images (%)", r"knn_\w+")
PANELS = (
    LOSS,
    TERMS,
    Panel("Spread of projections", "spread"),
    Panel("Prototypes in use", "prototypes"),
    KNN,
    Panel("Feature rank (RankMe)", r"rank_\w+"),
    Panel("Gradient norm", r"gradient_norm_\w+"),
    Panel("Throughput (images per second)", "images_per_second"),
    Panel("Share of a step spent waiting", "data_wait"),
)
"""Plots of a log, where it has their metrics; each other metric of a method has its own."""


def panels(lines: Sequence[Line]) -> list[tuple[Panel, dict[str, str]]]:
    """Return the panels of a log, with the labels of their metrics by name."""
    others = [
        Panel(name.replace("_", " ").capitalize(), re.escape(name))
        for name in metric_names(lines)
        if not any(re.fullmatch(panel.pattern, name) for panel in PANELS)
    ]
    logged = logged_names(lines)
    return [(panel, labels) for panel in (*PANELS, *others) if (labels := panel.select(logged))]


def logged_names(lines: Iterable[Line]) -> list[str]:
    """Names in a log, in the order in which they appear."""
    return list(dict.fromkeys(name for line in lines for name in line))


def metric_names(lines: Iterable[Line]) -> list[str]:
    """Names of the metrics of a method in a log, in the order in which they appear."""
    return [name for name in logged_names(lines) if not LOOP_METRICS.fullmatch(name)]


def read_log(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Read the whole lines of a log, which may still grow.

    Returns:
        The records, each with an integer `step`; and the numbers, from 1, of lines that are no such record.
    """
    records: list[dict[str, Any]] = []
    damaged: list[int] = []
    lines = path.read_bytes().split(b"\n")[:-1]  # after the last newline a line is still being written
    for number, line in enumerate(lines, 1):
        record: Any = None
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
        step = record.get("step") if isinstance(record, dict) else None
        if type(step) is int and 0 <= step < MAX_STEPS:
            records.append(record)
        else:
            damaged.append(number)
    return records, damaged
