"""One picture for each study."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from training import figures
from training.studies.study import Result, Study, Variant, of_variant


def draw(study: Study, variants: Sequence[Variant], results: Sequence[Result], path: Path) -> None:
    """Write the picture of a study as PNG."""
    with figures.style(figures.STYLE):
        kinds: dict[str, Callable[..., None]] = {"collapse": _collapse, "teacher": _teacher, "bars": _bars}
        kinds[study.picture](study, variants, results, path)


def _collapse(study: Study, variants: Sequence[Variant], results: Sequence[Result], path: Path) -> None:
    figure, axes = figures.page(1, 2, f"{study.title}: {study.source}")
    left, right = axes[0]
    for number, variant in enumerate(variants):
        lines = of_variant(results, variant.name)[0].lines
        steps = [line["step"] + 1 for line in lines]
        figures.curve(left, steps, [line["teacher_entropy"] for line in lines], variant.label, number)
        figures.curve(right, steps, [line["kl"] for line in lines], variant.label, number)
    top = results[0].late("ln_k")
    if top is not None:
        left.axhline(top, color="black", linewidth=1, linestyle=":")
        left.text(0, top, "ln K ", va="bottom", fontsize=9)
        left.set_ylim(-0.1, top * 1.12)
    left.set(title="entropy of the teacher's output", xlabel="step", ylabel="nats")
    right.set(title="KL of teacher and student", xlabel="step", ylabel="nats")
    right.set_ylim(-0.05, None)
    left.legend(fontsize=9)
    figures.save(figure, path)


def _teacher(study: Study, variants: Sequence[Variant], results: Sequence[Result], path: Path) -> None:
    figure, axes = figures.page(1, 2, f"{study.title}: {study.source}")
    left, right = axes[0]
    momentum = of_variant(results, "momentum")[0]
    for number, network in enumerate(("teacher", "student")):
        steps = [0, *(step for step, _ in momentum.probes)]
        values = [momentum.untrained, *(line[f"knn_{network}"] for _, line in momentum.probes)]
        figures.curve(left, steps, values, f"momentum: {network}", number)
    left.set(title="teacher and student while they train", xlabel="step", ylabel="k-NN top-1 (%)")
    left.legend(fontsize=9)
    _bars_of(right, variants, results)
    right.set_title("by kind of teacher")
    figures.save(figure, path)


def _bars(study: Study, variants: Sequence[Variant], results: Sequence[Result], path: Path) -> None:
    groups = list(dict.fromkeys(variant.group for variant in variants))
    rows = len(groups)
    tallest = max(sum(variant.group == group for variant in variants) for group in groups)
    figure, axes = figures.page(
        rows, 2, f"{study.title}: {study.source}", height=max(2.4, 0.36 * tallest + 1.2)
    )
    for (ours, theirs), group in zip(axes, groups, strict=True):
        members = [variant for variant in variants if variant.group == group]
        _bars_of(ours, members, results)
        ours.set_title(f"{group}: here" if group else "here")
        _paper(theirs, members)
        theirs.set_title("in the paper")
    figures.save(figure, path)


def _bars_of(axes: Axes, variants: Sequence[Variant], results: Sequence[Result]) -> None:
    """k-NN of each variant with the deviation over its seeds; a line for the untrained network."""
    values = [[result.knn() for result in of_variant(results, variant.name)] for variant in variants]
    means = [fmean(many) for many in values]
    errors = [stdev(many) if len(many) > 1 else 0.0 for many in values]
    untrained = fmean(
        result.untrained for variant in variants for result in of_variant(results, variant.name)
    )
    places = range(len(variants))
    axes.barh(
        places, means, xerr=errors if any(errors) else None, color="#a6c8e0", edgecolor="#0072b2", capsize=3
    )
    axes.axvline(untrained, color="black", linestyle=":", linewidth=1.5)
    axes.text(untrained, -0.72, " untrained", fontsize=8, va="center")
    for place, mean, error in zip(places, means, errors, strict=True):
        axes.text(mean + error, place, f" {mean:.1f}", va="center", fontsize=9)
    _names(axes, variants)
    low = min([untrained, *means])
    axes.set_xlim(max(0, low - 12), max(max(means) + max(errors), untrained) + 4)
    axes.set_xlabel("k-NN top-1 (%)")


def _paper(axes: Axes, variants: Sequence[Variant]) -> None:
    for place, variant in enumerate(variants):
        if variant.paper is not None:
            axes.barh(place, variant.paper, color="#f0d9b5", edgecolor="#a06a00")
        told = "not told" if variant.paper is None else f" {variant.paper:.1f}"
        axes.text(variant.paper or 0, place, told, va="center", fontsize=9)
    _names(axes, variants)
    axes.set_xlim(0, 90)
    axes.set_xlabel("top-1 (%)")


def _names(axes: Axes, variants: Sequence[Variant]) -> None:
    axes.set_yticks(range(len(variants)), [variant.label for variant in variants])
    axes.set_ylim(len(variants) - 0.4, -0.9)
    axes.grid(visible=False, axis="y")
