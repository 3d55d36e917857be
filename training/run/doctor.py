"""Diagnose a run from its log: one finding per cause, with the option that addresses it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from training.methods.config import MethodConfig
from training.recipes.recipe import recipe_of
from training.run.log import Line

COLLAPSED_KL = 0.01  # nats; this and the next bounds are far below the values of runs that learn
UNIFORM_KL = 0.05  # nats; next to an entropy of ln K, a KL below it is noise about the uniform output
FEW_PROTOTYPES = 2.0  # in use by a batch
MIN_INFORMATION = 0.05  # nats of mutual information between image and prototype
COLLAPSED_SPREAD = 0.05  # value of `losses.spread`
COLLAPSE_METRICS = {"teacher_entropy", "code_entropy", "spread"}  # a log without them shows no collapse
LATE_STEPS = 50  # at the end, which describe the present state; at most a tenth of the run
MIN_STEPS_PER_EPOCH = 5  # with fewer, schedules that change once an epoch jump
MAX_TEACHER_MEMORY = 1 / 3  # share of a run that its teacher may average over
MIN_MOMENTUM = 0.9  # smallest advised momentum
MAX_WAITING = 0.5  # largest share of a step spent waiting for data
MIN_STEPS = 20  # before speed, gradients and trends are diagnosed
LOW_RANK = 3.0  # RankMe below which features lie on a line or two
LOST_RANK = 1 / 3  # share of its highest value that RankMe may fall to
LARGE_GRADIENT = GRADIENT_GROWTH = 20.0  # norm, and multiple of the run's median, above which norms explode
MIN_JUDGED_STEPS = 300
"""Steps of a run before it can be called healthy: collapses of short runs show by then."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run that its log does not hold."""

    steps: int
    """Steps of the whole training."""
    steps_per_epoch: int
    batch_size: int
    teacher_momentum: float | None = None
    """Momentum at the start, 0 for a copy of the student; None: the teacher is no moving average."""
    remedy: str = MethodConfig.remedy
    """Options of the method that avoid equal outputs."""
    rank_remedy: str = MethodConfig.rank_remedy
    """Options of the method that avoid features of few dimensions."""


def run_settings(config: Mapping[str, Any]) -> RunSettings:
    """Return the settings of a run's configuration that its diagnosis needs."""
    recipe = recipe_of(config)
    method: Any = recipe.method
    per_epoch = config["num_images"] // recipe.batch_size
    teacher, momentum = getattr(method, "teacher", None), getattr(method, "teacher_momentum", None)
    if teacher == "student-copy":
        momentum = 0.0
    elif teacher != "momentum" and (teacher or momentum == 0):  # the doctor knows no option against it
        momentum = None
    remedies = method.remedy, method.rank_remedy
    return RunSettings(recipe.epochs * per_epoch, per_epoch, recipe.batch_size, momentum, *remedies)


def findings(lines: Sequence[Line], run: RunSettings) -> dict[str, str]:
    """Describe the problems of a log by cause, the gravest first; metrics that it lacks are left out."""
    if not lines:
        return {}
    collapsed = collapse(lines, run.remedy)
    waiting = late(lines[1:], "data_wait") or 0.0  # workers start in the first step
    problems = {
        "gradients": exploding_gradients(lines),
        "collapse": collapsed,
        "rank": None if collapsed else lost_rank(lines, run.rank_remedy),  # a collapse lowers it
        "data": (waiting > MAX_WAITING and len(lines) >= MIN_STEPS)
        and f"the data loader starves training: {waiting:.0%} of a step is spent waiting for images; raise "
        "--workers, pass --augment device or batch, or store the images smaller",
        "epochs": run.steps_per_epoch < MIN_STEPS_PER_EPOCH
        and f"too few steps per epoch: {run.steps_per_epoch}, as a batch is {run.batch_size} images; "
        "schedules that change once an epoch (temperature, warm-up) jump: lower --batch-size or add images",
        "momentum": slow_teacher(run),
        "copy": run.teacher_momentum == 0  # Table 7, "student copy": 0.1 % k-NN
        and "the teacher is a copy of the student, so the targets follow every step of the student and the "
        "features stay poor; use --teacher momentum with --teacher-momentum 0.99 or higher",
    }
    return {cause: sentence for cause, sentence in problems.items() if sentence}


def late(lines: Sequence[Line], name: str) -> float | None:
    """Compute the mean of a metric over the last steps that have it; None where it is not logged."""
    recent = lines[-max(1, min(LATE_STEPS, len(lines) // 10)) :]
    values = [line[name] for line in recent if name in line]
    return fmean(values) if values else None


def collapse(lines: Sequence[Line], remedy: str) -> str | None:
    """Find a collapse of the method, now or after as many steps as the last half if the trend continues."""
    names = [name for name in lines[-1] if not name.startswith(("knn_", "lift_", "rank_"))]
    now = {name: value for name in names if (value := late(lines, name)) is not None}
    recent = lines[len(lines) // 2 :]
    if (sentence := diagnose(now, remedy)) or len(recent) < MIN_STEPS:
        return sentence
    later = {name: extrapolate([line[name] for line in recent if name in line]) for name in now}
    sentence = diagnose(later, remedy)
    trend = f"on its way, if the next {len(recent)} steps go like the last {len(recent)}"
    return f"{trend}: {sentence}" if sentence else None


def diagnose(logs: Line, remedy: str = MethodConfig.remedy) -> str | None:
    """Describe the collapse that the metrics of a step show, with the option to change; or return None.

    Let H be the mean entropy of DINO's targets. Section 5.3 of the paper names two collapses: one prototype
    for all images (H = 0) and all prototypes equal (H = ln K). In both the divergence from the student falls
    to 0, but it falls last. Two values of a batch show a collapse earlier. The number of prototypes in use is
    exp of the entropy of the mean output. The mutual information of image and prototype is the logarithm of
    this number minus H.

    Args:
        logs: Metrics by name: `teacher_entropy`, `kl` and `ln_k` of DINO (`prototypes` is optional),
            `code_entropy` and `kl` of SwAV, or `spread`.
        remedy: Options that avoid equal outputs, of the method.
    """
    if "code_entropy" in logs and logs["kl"] < COLLAPSED_KL:
        entropy = f"entropy {logs['code_entropy']:.3f} of {logs['ln_k']:.3f}"
        return f"collapse: the codes hardly depend on the image ({entropy}, KL {logs['kl']:.4f}); {remedy}"
    if logs.get("spread", 1.0) < COLLAPSED_SPREAD:
        spread = f"spread {logs['spread']:.4f} of 1"
        return f"collapse: projections of different images are nearly equal, {spread}; {remedy}"
    if not logs.keys() >= {"teacher_entropy", "kl", "ln_k"}:
        return None
    entropy, kl, uniform = logs["teacher_entropy"], logs["kl"], logs["ln_k"]
    number, used = math.exp(uniform), max(1.0, logs.get("prototypes", math.inf))
    all_equal, information = entropy > 0.99 * uniform, math.log(used) - entropy
    few = used < min(FEW_PROTOTYPES, number / 8)
    if not few and kl >= (UNIFORM_KL if all_equal else COLLAPSED_KL) and information >= MIN_INFORMATION:
        return None
    if few or entropy < 0.05 * uniform:
        batch = f"a batch uses {used:.1f} of {number:.0f}, " if few else ""
        return (
            f"collapse to one prototype: {batch}teacher entropy {entropy:.3f}, KL {kl:.4f}; "
            "keep --teacher-output centering, lower --center-momentum or raise --teacher-temperature"
        )
    if all_equal:
        return (
            f"collapse to the uniform output: teacher entropy {entropy:.3f} is ln K = {uniform:.3f}, "
            f"KL {kl:.4f}; sharpen the teacher: lower --teacher-temperature, or warm it up over more epochs"
        )
    measured = f", mutual information {information:.3f} nats" if math.isfinite(information) else ""
    return (
        f"collapse to one output for all images: KL {kl:.4f} is near 0{measured}; keep --teacher-output "
        "centering, lower --teacher-temperature or the learning rate"
    )


def extrapolate(values: Sequence[float]) -> float:
    """Extrapolate a falling metric to as many steps again, at the slowest of its rates.

    Rates are ratios of the means of neighboring quarters: a fall that levels off, as in a healthy run,
    continues as slowly as it ends. A metric that did not fall all the way, or is not positive, stays.
    """
    quarter = len(values) // 4
    means = [fmean(values[i * quarter : (i + 1) * quarter]) for i in range(4)] if quarter else []
    if not means or min(means) <= 0:
        return fmean(values)
    rate = max(after / before for before, after in pairwise(means))
    return means[-1] * min(1.0, rate) ** 4


def lost_rank(lines: Sequence[Line], remedy: str = MethodConfig.rank_remedy) -> str | None:
    """Find features that fill few dimensions, or ever fewer (RankMe, of the first probed network)."""
    ranks = [next((line[name] for name in line if name.startswith("rank_")), None) for line in lines]
    probes = [value for value in ranks if value]
    if not probes or (probes[-1] >= LOW_RANK and probes[-1] >= LOST_RANK * max(probes)):
        return None
    return (
        f"rank collapse: the features of all images fill {probes[-1]:.1f} dimensions (RankMe), at most "
        f"{max(probes):.1f} before; {remedy}"
    )


def exploding_gradients(lines: Sequence[Line]) -> str | None:
    """Find gradients far larger than before."""
    for part in ("backbone", "head"):
        norms = [line[name] for line in lines if (name := f"gradient_norm_{part}") in line]
        now = late(lines, f"gradient_norm_{part}")
        if now is None or len(norms) < MIN_STEPS:
            continue
        usual = median(norms[: len(norms) // 2])
        if not now <= max(LARGE_GRADIENT, GRADIENT_GROWTH * usual):  # also true for NaN
            return (
                f"exploding norms: the {part}'s gradient has norm {now:.3g}, {usual:.3g} in the first "
                "half of the run; lower --lr, lengthen --warmup-epochs or pass --clip-grad 0.3"
            )
    return None


def slow_teacher(run: RunSettings) -> str | None:
    """Find a teacher that hardly moves during the run.

    The advised momentum averages over a twentieth of the steps, and is never below `MIN_MOMENTUM`: with a
    momentum near 0 the teacher is a copy of the student, and the run collapses.
    """
    momentum, largest = run.teacher_momentum, 1 - 1 / (MAX_TEACHER_MEMORY * run.steps)
    if momentum is None or momentum <= largest:
        return None
    averaged = f"{1 / (1 - momentum):,.0f}" if momentum < 1 else "all"
    advised = max(MIN_MOMENTUM, 1 - 20 / run.steps)
    steps = round(1 / (MAX_TEACHER_MEMORY * (1 - MIN_MOMENTUM)))
    remedy = (
        f"lower --teacher-momentum to {advised:.3g} or train longer"
        if advised <= largest
        else f"train for {steps} steps or more: raise --epochs or lower --batch-size"
    )
    return (
        f"the teacher is too slow for this run: momentum {momentum:g} averages over {averaged} steps, "
        f"and the run has {run.steps:,}; {remedy}"
    )
