"""From the results of a study to plain words: what shows, and what does not. Pure functions."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, variance

from training.studies.study import Reading, Result, Study, Variant, of_variant

NOTHING = 0.1
"""A KL in nats that is as good as 0: an output that hardly depends on the picture."""
CERTAIN, UNIFORM = 0.1, 0.97
"""Shares of ln K below and above which an entropy is as good as 0 and as ln K."""
PROBED = 1000
"""Pictures that a study's k-NN names, for the noise of a single run."""


def collapse(study: Study, variants: Sequence[Variant], results: Sequence[Result]) -> Reading:
    """KL and entropy at the end, of each variant; judged: the three that the paper shows."""
    ends = {variant.name: _ends(results, variant.name) for variant in variants}
    sentences = [
        f"{variant.label.capitalize()}: at the end KL {ends[variant.name][0]:.2f} nats and entropy "
        f"{ends[variant.name][1]:.0%} of ln K ({_state(*ends[variant.name])})."
        for variant in variants
    ]
    kl, _ = ends["both"]
    missing = [
        words
        for words, true in (
            ("with both the KL stays above 0", _state(*ends["both"]) == LEARNS),
            ("without centering the entropy goes to 0", ends["no-centering"][1] < CERTAIN),
            ("without sharpening it goes to ln K", ends["no-sharpening"][1] > UNIFORM),
            ("without centering the KL goes to 0", ends["no-centering"][0] < max(NOTHING, kl / 3)),
            ("without sharpening the KL goes to 0", ends["no-sharpening"][0] < max(NOTHING, kl / 3)),
        )
        if not true
    ]
    return Reading(not missing, (*sentences, _verdict(missing)))


LEARNS = "it learns"


def _ends(results: Sequence[Result], name: str) -> tuple[float, float]:
    """KL, and entropy as a share of ln K, means over the seeds."""
    runs = of_variant(results, name)
    figures = [[run.late(figure) or 0.0 for figure in ("kl", "teacher_entropy", "ln_k")] for run in runs]
    return fmean(kl for kl, _, _ in figures), fmean(entropy / (top or 1) for _, entropy, top in figures)


def _state(kl: float, entropy: float) -> str:
    if entropy < CERTAIN:
        return "collapsed to one prototype" if kl < NOTHING else "on its way to one prototype"
    if entropy > UNIFORM:
        return "collapsed to the uniform output" if kl < NOTHING else "near the uniform output"
    return "hardly depends on the picture" if kl < NOTHING else LEARNS


def teacher(study: Study, variants: Sequence[Variant], results: Sequence[Result]) -> Reading:
    """Which teacher is best, whether the momentum teacher is ahead of its student, and who collapses."""
    sentences, missing = [], []
    best = {variant.name: fmean(r.knn() for r in of_variant(results, variant.name)) for variant in variants}
    untrained = fmean(result.untrained for result in results)
    noise = 2 * spread(results) * math.sqrt(2 / max(1, len({result.seed for result in results})))
    for variant in variants:
        kl, entropy = _ends(results, variant.name)
        gain = best[variant.name] - untrained
        than = "better than" if gain > noise else "worse than" if gain < -noise else "no better than"
        sentences.append(
            f"{variant.label.capitalize()}: k-NN {best[variant.name]:.1f} %, {than} the untrained network's "
            f"{untrained:.1f}; KL {kl:.2f}, entropy {entropy:.0%} of ln K."
        )
    ahead, times, mean = lead([r for r in results if r.variant == "momentum"])
    sentences.append(
        f"The momentum teacher is level with its student or ahead in {ahead} of {times} probes, "
        f"by {mean:+.1f} points on average."
    )
    others = {name: knn for name, knn in best.items() if name != "momentum"}
    if best["momentum"] < max(others.values()):
        missing.append("the momentum teacher is best")
    if ahead <= times / 2:
        missing.append("it is ahead of its student most of the time")
    for name in ("student-copy", "previous-iteration"):
        if best[name] > untrained + noise:
            missing.append(f"the {name.replace('-', ' ')} fails")
    return Reading(not missing, (*sentences, _verdict(missing)))


def lead(results: Sequence[Result]) -> tuple[int, int, float]:
    """In how many probes the teacher is not behind the student, of how many, and by how many points."""
    pairs = [
        (line["knn_teacher"], line["knn_student"])
        for result in results
        for _, line in result.probes
        if {"knn_teacher", "knn_student"} <= line.keys()
    ]
    ahead = [teacher - student for teacher, student in pairs]
    return sum(gain >= 0 for gain in ahead), len(ahead), fmean(ahead) if ahead else 0.0


def pairs(study: Study, variants: Sequence[Variant], results: Sequence[Result]) -> Reading:
    """Every difference that the paper has between two variants of a group, beside ours.

    A difference of the paper counts from one point on, ours from twice its standard error. The conclusion
    shows where none of the paper's is reversed and half of them or more are there.
    """
    noise = spread(results)
    seeds = max(1, len({result.seed for result in results}))
    least = 2 * noise * math.sqrt(2 / seeds)
    means = {variant.name: fmean(r.knn() for r in of_variant(results, variant.name)) for variant in variants}
    same: list[tuple[Variant, Variant]] = []
    reversed_: list[tuple[Variant, Variant]] = []
    lost: list[tuple[Variant, Variant]] = []
    for one, other in combinations(variants, 2):
        if one.group != other.group or one.paper is None or other.paper is None:
            continue
        if abs(one.paper - other.paper) < 1:
            continue
        better, worse = (one, other) if one.paper > other.paper else (other, one)
        gain = means[better.name] - means[worse.name]
        (same if gain > least else reversed_ if gain < -least else lost).append((better, worse))
    total = len(same) + len(reversed_) + len(lost)
    ranked = sorted(variants, key=lambda variant: -means[variant.name])
    before = {v.name: fmean(r.untrained for r in of_variant(results, v.name)) for v in variants}
    untrained = {
        v.group: [before[other.name] for other in variants if other.group == v.group] for v in variants
    }
    starts = dict.fromkeys(f"{fmean(values):.1f} %" for values in untrained.values())
    sentences = [
        f"Best {_called(ranked[0])} with {means[ranked[0].name]:.1f} %, last {_called(ranked[-1])} with "
        f"{means[ranked[-1].name]:.1f} %; networks before training {' and '.join(starts)}.",
        f"Differences count from {least:.1f} points on (twice the standard error, {_many(seeds)}). "
        f"The paper's ({total}): {len(same)} seen here too, {len(lost)} lost in the noise, "
        f"{len(reversed_)} reversed.",
    ]
    sentences += [
        f"Reversed: {_called(better)} is below {_called(worse)}." for better, worse in reversed_[:3]
    ]
    if worse_now := [variant for variant in variants if means[variant.name] < before[variant.name]]:
        sentences.append(f"Better before any training: {', '.join(_listed(worse_now, variants, before))}.")
    shows = not reversed_ and 2 * len(same) >= total > 0
    said = "" if shows else f" ({len(reversed_)} reversed, {len(same)} of {total} there)"
    return Reading(
        shows,
        (*sentences, f"The paper's conclusion {'shows' if shows else 'does not show'} at this scale{said}."),
    )


def spread(results: Sequence[Result]) -> float:
    """Standard deviation of one run's k-NN in points: between seeds, pooled; with one seed, of counting."""
    groups: dict[str, list[float]] = {}
    for result in results:
        groups.setdefault(result.variant, []).append(result.knn())
    several = [values for values in groups.values() if len(values) > 1]
    if several:
        degrees = sum(len(values) - 1 for values in several)
        return math.sqrt(sum(variance(values) * (len(values) - 1) for values in several) / degrees)
    share = fmean(value for values in groups.values() for value in values) / 100
    return 100 * math.sqrt(share * (1 - share) / PROBED)


def _called(variant: Variant) -> str:
    return f"{variant.group}: {variant.label}" if variant.group else variant.label


def _listed(some: Sequence[Variant], of: Sequence[Variant], before: Mapping[str, float]) -> list[str]:
    """Each with its figure before training, a whole group of several in one."""
    found: dict[str, None] = {}
    for one in some:
        group = [variant for variant in of if variant.group == one.group]
        whole = one.group and len(group) > 1 and all(variant in some for variant in group)
        called = f"every {one.group}" if whole else _called(one)
        found[f"{called} ({before[one.name]:.1f} %)"] = None
    return list(found)


def _many(seeds: int) -> str:
    return f"{seeds} seeds" if seeds > 1 else "one seed, of counting pictures only"


def _verdict(missing: Sequence[str]) -> str:
    if not missing:
        return "The paper's conclusion shows at this scale."
    unseen = ", nor that ".join(missing)
    return f"The paper's conclusion does not show in full at this scale: not seen that {unseen}."
