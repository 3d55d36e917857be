"""Statistics of a study, and its sentence, figure, table and page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from training.studies.laws import Law


class Interval(NamedTuple):
    """Mean and 95 % confidence interval."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], smallest: float = -math.inf, largest: float = math.inf) -> Interval:
    """Compute the mean and its 95 % interval by Student's t distribution; infinite for a single value.

    Args:
        values: One for each seed or image.
        smallest, largest: Bounds of the quantity, which also bound the interval.
    """
    from scipy.stats import t as student_t  # a second to import

    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(student_t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, max(mean - half, smallest), min(mean + half, largest))


@dataclass(frozen=True)
class Outcome:
    """Values of a study."""

    law: Law
    values: Mapping[str, Sequence[float]]
    """Values by variant, one per seed (emergence: one per image)."""
    baselines: Mapping[str, float]
    """Values without training: pixels and untrained weights."""
    seconds: Mapping[str, float]
    """Training time of one run of each variant."""
    is_short: bool = False
    """True if the runs are shorter than those of the law."""

    @property
    def effect(self) -> Interval:
        """The law's contrast, paired by seed or image."""
        better, worse = (self.values[name] for name in self.law.contrast)
        differences = [high - low for high, low in zip(better, worse, strict=True)]
        return interval(differences, -self.law.largest, self.law.largest)

    @property
    def is_shown(self) -> bool:
        """Test if the whole interval lies on the law's side of zero."""
        return self.effect.low > 0


def verdict(outcome: Outcome) -> str:
    """Return the finding with its effect and interval, or the cause why it is not shown."""
    law, (mean, low, high) = outcome.law, outcome.effect
    count, digits = len(outcome.values[law.contrast[0]]), 1 if law.unit == "points" else 2
    size = f"{mean:.{digits}f} {law.unit}"
    if count < 2:
        return f"Not shown: too few runs; one run gives {size} and no interval."
    bounds = f"95 % interval {low:.{digits}f} to {high:.{digits}f}"
    if outcome.is_shown:
        return f"{law.finding.format(effect=size)}, {bounds}."
    if high < 0:
        return f"Not shown: the measured effect has the other sign, {size}, {bounds}."
    if mean <= 0:
        return f"Not shown: the mean effect has the other sign, {size}; zero is inside the {bounds}."
    cause = "the runs are too short" if outcome.is_short else f"{count} runs are too few"
    return f"Not shown: {cause} for the measured effect, {size}, {bounds}."


def outcome_table(outcome: Outcome) -> list[str]:
    """Return the lines of a Markdown table: a row for each variant and baseline."""
    law = outcome.law
    header = f"| variant | {law.quantity} | 95 % interval | paper, ImageNet | seconds of a run |"
    lines = [header, "|---|---|---|---|---|"]
    for name, values in outcome.values.items():
        mean, low, high = interval(values, 0, law.largest)
        spread = f"{low:.2f} to {high:.2f}" if math.isfinite(low) else "–"
        paper = f"{law.paper[name]:.1f}" if name in law.paper else "–"
        seconds = f"{outcome.seconds[name]:.0f}" if name in outcome.seconds else "–"
        lines.append(f"| {name} | {mean:.2f} | {spread} | {paper} | {seconds} |")
    return lines + [f"| {name} | {value:.2f} | – | – | – |" for name, value in outcome.baselines.items()]


def draw_outcome(outcome: Outcome, path: Path) -> None:
    """Draw a point with its interval for each variant, and lines at the baselines, under the result."""
    from training.run import figures  # imports matplotlib

    law, blue = outcome.law, figures.COLORS[0]
    result = "shown" if outcome.is_shown else "not shown"
    with figures.style(figures.STYLE):
        title = f"{law.title} ({law.source}): {result}"
        figure, ((axes,),) = figures.create_page(1, 1, title, width=8, height=4)
        for place, values in enumerate(outcome.values.values()):
            mean, low, high = interval(values, 0, law.largest)
            error = [[mean - low], [high - mean]] if math.isfinite(low) else None
            axes.errorbar(place, mean, error, fmt="o", color=blue)
            axes.plot([place + 0.08] * len(values), values, ".", color=blue)
        for number, (name, value) in enumerate(outcome.baselines.items()):
            line = figures.LINES[number % len(figures.LINES)]
            axes.axhline(value, color="black", linestyle=line, label=f"{name} {value:.1f}")
        names = list(outcome.values)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        if law.unit == "points":
            axes.set_ylim(top=min(axes.get_ylim()[1], 100))
        axes.set_ylabel(law.quantity)
        if outcome.baselines:
            axes.legend()
        figures.save(figure, path)


def outcome_page(outcome: Outcome) -> str:
    """Return title, verdict, figure, table and command as Markdown."""
    law, sentence = outcome.law, verdict(outcome)
    unit = "image" if law.name == "emergence" else "seed"
    parts = [
        f"# {law.title}",
        f"{sentence} The paper: {law.source}.",
        f"![{sentence}]({law.name}.png)",
        "\n".join(outcome_table(outcome)),
        f"Points are means with 95 % intervals, small points are {unit}s. The effect is paired by {unit}.",
        f"`python -m training study {law.name} --output FOLDER`",
    ]
    return "\n\n".join(parts) + "\n"


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return verdict, effect and values for --json."""
    return {
        "study": outcome.law.name,
        "is_shown": outcome.is_shown,
        "verdict": verdict(outcome),
        "effect": outcome.effect._asdict(),
        "unit": outcome.law.unit,
        "values": outcome.values,
        "baselines": outcome.baselines,
        "seconds": outcome.seconds,
    }
