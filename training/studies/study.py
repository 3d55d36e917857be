"""What a study of the paper is: runs that differ in one thing, and how what they gave is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from training.recipe import Recipe

Line = Mapping[str, float]
"""Of a run's log."""


@dataclass(frozen=True)
class Variant:
    """One row of a study's table."""

    name: str
    """Of its folder, in lower case."""
    label: str
    """What it is called in the picture and the table."""
    recipe: Recipe
    paper: float | None = None
    """What the paper measured for it, in percent; None: it tells no figure."""
    group: str = ""
    """Variants are compared with those of their group only."""
    told: str = ""
    """What the paper shows of it instead of a figure, in words."""


@dataclass(frozen=True)
class Result:
    """What one run gave: its log, read."""

    variant: str
    seed: int
    lines: tuple[Line, ...]
    """The log, a line per step."""
    untrained: float
    """k-NN top-1 of the network before its first step, in percent."""
    diverged: bool = False

    @property
    def probes(self) -> list[tuple[int, Line]]:
        """Steps done and log line wherever the networks were probed."""
        return [(int(line["step"]) + 1, line) for line in self.lines if any("knn_" in name for name in line)]

    def knn(self, network: str | None = None) -> float:
        """k-NN top-1 at the end, in percent: of the network that the method evaluates, or of another.

        Of a run that diverged before it was first probed: the untrained network's.
        """
        if not self.probes:
            return self.untrained
        last = self.probes[-1][1]
        return last[f"knn_{network}"] if network else next(last[n] for n in last if n.startswith("knn_"))

    def late(self, name: str) -> float | None:
        """Mean of a logged figure over the last tenth of the steps; None where it is not logged."""
        tail = self.lines[-max(1, len(self.lines) // 10) :]
        values = [line[name] for line in tail if name in line]
        return fmean(values) if values else None

    @property
    def seconds(self) -> float:
        """That its steps took, probes left out."""
        return sum(line.get("seconds", 0.0) for line in self.lines)


@dataclass(frozen=True)
class Reading:
    """What a study's results say."""

    shows: bool
    """Whether the paper's conclusion shows at this scale."""
    sentences: tuple[str, ...]
    """In plain words, the verdict last."""


@dataclass(frozen=True)
class Study:
    """A question of the paper as a small grid of runs."""

    name: str
    title: str
    source: str
    """Figure or table of the paper."""
    conclusion: str
    """The paper's, in a sentence."""
    make: Callable[[int], Sequence[Variant]]
    """From the number of epochs to the variants."""
    read: Callable[["Study", Sequence[Variant], Sequence[Result]], Reading]
    picture: Literal["collapse", "teacher", "bars"] = "bars"
    seeds: int = 1
    epochs: int = 20
    paper_figure: str = "k-NN top-1 on ImageNet (%)"
    """What `Variant.paper` is."""
    notes: tuple[str, ...] = field(default=())
    """Where it differs from the paper's own, beyond the base setting."""


def of_variant(results: Sequence[Result], name: str) -> list[Result]:
    """The results of a variant, a seed each."""
    return [result for result in results if result.variant == name]


def summary(result: Result) -> dict[str, Any]:
    """One run in few figures, for the table and the JSON file."""
    last = result.probes[-1][1] if result.probes else {}
    return {
        "variant": result.variant,
        "seed": result.seed,
        "steps": len(result.lines),
        "seconds": round(result.seconds, 1),
        "diverged": result.diverged,
        "knn_untrained": result.untrained,
        **{name: value for name, value in last.items() if name.startswith("knn_")},
        **{name: result.late(name) for name in ("loss", "kl", "teacher_entropy", "ln_k", "spread")},
    }
