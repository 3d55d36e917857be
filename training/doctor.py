"""What is wrong with a run, in words, from its log: one finding for each cause, with the knob to turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

Line = Mapping[str, float]
"""One line of a log: metrics by name."""
Diagnose = Callable[[Line], str | None]
"""`Method.diagnose`."""

LATE = 50
"""Steps at the end that tell how a run is now; at most a tenth of it."""
FEW_STEPS = 5
"""Below so many steps in an epoch, schedules that change once an epoch jump."""
LONG_MEMORY = 1 / 3
"""Share of a run that its teacher may average over."""
LEAST_MOMENTUM = 0.9
"""Smallest momentum that is advised."""
WAITING = 0.5
"""Share of a step that may go by waiting for pictures."""
ENOUGH = 20
"""Steps before speed and gradients are judged."""
LOW_RANK = 3.0
"""RankMe below which features lie on a line or two."""
LOST_RANK = 1 / 3
"""Share of its highest RankMe that a run may fall to."""
LARGE_GRADIENT, GROWN = 20.0, 20.0
"""Gradient norm, and times the run's median, above which norms explode."""


@dataclass(frozen=True)
class Facts:
    """What a log does not tell of its run."""

    steps: int
    """Of the whole training."""
    steps_per_epoch: int
    batch_size: int
    teacher_momentum: float | None = None
    """At the start; None: the teacher is no moving average."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    cause: str
    """In a word or two, for programs."""
    sentence: str
    """For people: figures, and what to do."""


def facts(config: Mapping[str, Any]) -> Facts:
    """From a run's configuration."""
    recipe = config["recipe"]
    method, per_epoch = recipe["method"], config["pictures"] // recipe["batch_size"]
    averages = method.get("teacher", "momentum") == "momentum"
    return Facts(
        steps=recipe["epochs"] * per_epoch,
        steps_per_epoch=per_epoch,
        batch_size=recipe["batch_size"],
        teacher_momentum=method.get("teacher_momentum") if averages else None,
    )


def findings(lines: Sequence[Line], diagnose: Diagnose, run: Facts) -> list[Finding]:
    """Everything that is wrong, the gravest first; nothing for a log without lines.

    Args:
        lines: of the log, in order; figures that it does not have are not judged.
        diagnose: names the collapses of the run's method.
        run: what else is known.
    """
    if not lines:
        return []
    found = [
        diverging(lines),
        collapse(lines, diagnose),
        lost_rank(lines),
        starving(lines),
        short_epochs(run),
        slow_teacher(run),
    ]
    causes = {finding.cause for finding in found if finding}
    return [
        finding
        for finding in found
        if finding and not (finding.cause == "rank" and "collapse" in causes)  # which is why it is low
    ]


def late(lines: Sequence[Line], name: str) -> float | None:
    """Mean of a figure over the last steps that have it; None where it is not logged."""
    values = [line[name] for line in lines[-max(1, min(LATE, len(lines) // 10)) :] if name in line]
    return fmean(values) if values else None


def collapse(lines: Sequence[Line], diagnose: Diagnose) -> Finding | None:
    """The method's own collapse; or the one that its figures are falling to."""
    names = [name for name in lines[-1] if not name.startswith(("knn_", "lift_", "rank_"))]
    now = {name: value for name in names if (value := late(lines, name)) is not None}
    if told := diagnose(now):
        return Finding("collapse", told)
    recent = lines[len(lines) // 2 :]
    if len(recent) < ENOUGH:
        return None
    told = diagnose({name: heading([line[name] for line in recent if name in line]) for name in now})
    words = f"on its way, if the next {len(recent)} steps go like the last {len(recent)}"
    return Finding("collapse", f"{words}: {told}") if told else None


def heading(values: Sequence[float]) -> float:
    """Where a figure will be after as many steps again, if it goes on falling at the slowest of its paces.

    Paces are ratios of the means of neighbouring quarters: a fall that levels off, as a healthy run's does,
    is taken to go on as slowly as it ends. A figure that did not fall all the way, or is not positive, stays.
    """
    quarter = len(values) // 4
    means = [fmean(values[i * quarter : (i + 1) * quarter]) for i in range(4)] if quarter else []
    if not means or min(means) <= 0:
        return fmean(values)
    pace = max(after / before for before, after in pairwise(means))
    return means[-1] * min(1.0, pace) ** 4


def lost_rank(lines: Sequence[Line]) -> Finding | None:
    """Features that fill few dimensions, or ever fewer (RankMe, of the first probed network)."""
    probes = [
        value for line in lines if (value := next((line[n] for n in line if n.startswith("rank_")), None))
    ]
    if not probes or (probes[-1] >= LOW_RANK and probes[-1] >= LOST_RANK * max(probes)):
        return None
    return Finding(
        "rank",
        f"rank collapse: the features of all pictures fill {probes[-1]:.1f} dimensions (RankMe), at most "
        f"{max(probes):.1f} before; lower --lr or --weight-decay-end, or pass --spreading 0.3",
    )


def diverging(lines: Sequence[Line]) -> Finding | None:
    """Gradients far larger than they were."""
    for part in ("backbone", "head"):
        norms = [line[name] for line in lines if (name := f"gradient_norm_{part}") in line]
        now = late(lines, f"gradient_norm_{part}")
        usual = median(norms[: max(1, len(norms) // 2)]) if norms else 0.0
        if (
            now is not None and len(norms) >= ENOUGH and not now <= max(LARGE_GRADIENT, GROWN * usual)
        ):  # NaN, too
            return Finding(
                "gradients",
                f"exploding norms: the {part}'s gradient has norm {now:.3g}, {usual:.3g} in the first "
                "half of the run; lower --lr, lengthen --warmup-epochs or pass --clip-grad 0.3",
            )
    return None


def starving(lines: Sequence[Line]) -> Finding | None:
    """A loop that waits for pictures; the first step, when workers begin, does not count."""
    share = late(lines[1:], "data_wait")
    if share is None or share <= WAITING or len(lines) < ENOUGH:
        return None
    return Finding(
        "data",
        f"the data loader starves training: {share:.0%} of a step goes by waiting for pictures; raise "
        "--workers, pass --augment device or batch, or store the pictures smaller",
    )


def short_epochs(run: Facts) -> Finding | None:
    """Epochs of few steps."""
    if run.steps_per_epoch >= FEW_STEPS:
        return None
    return Finding(
        "epochs",
        f"too few steps per epoch: {run.steps_per_epoch}, as a batch is {run.batch_size} pictures; what "
        "changes once an epoch (temperature, warm-up) jumps: lower --batch-size or add pictures",
    )


def slow_teacher(run: Facts) -> Finding | None:
    """Find a teacher that hardly moves during the run.

    The advised momentum averages over a twentieth of the steps, and is never below `LEAST_MOMENTUM`: with a
    momentum near 0 the teacher is a copy of the student, and the run collapses.
    """
    momentum = run.teacher_momentum
    if momentum is None or momentum <= 1 - 1 / (LONG_MEMORY * run.steps):
        return None
    averaged = f"{1 / (1 - momentum):,.0f}" if momentum < 1 else "all"
    advised = max(LEAST_MOMENTUM, 1 - 20 / run.steps)
    steps = round(1 / (LONG_MEMORY * (1 - LEAST_MOMENTUM)))
    remedy = (
        f"lower --teacher-momentum to {advised:.3g} or train longer"
        if advised <= 1 - 1 / (LONG_MEMORY * run.steps)
        else f"train for {steps} steps or more: raise --epochs or lower --batch-size"
    )
    return Finding(
        "momentum",
        f"the teacher is too slow for this run: momentum {momentum:g} averages over {averaged} steps, "
        f"and the run has {run.steps:,}; {remedy}",
    )
