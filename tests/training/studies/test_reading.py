"""What results say in words, on results written out by hand."""

import math

import pytest

from training.recipe import Recipe
from training.studies import reading
from training.studies.grids import STUDIES
from training.studies.report import table
from training.studies.study import Result, Variant

LN_K = math.log(256)


def result(variant, knn, *, kl=1.0, entropy=0.5, seed=0, student=None, untrained=45.0):
    figures = {"kl": kl, "teacher_entropy": entropy * LN_K, "ln_k": LN_K, "seconds": 0.1}
    probe = {"knn_teacher": knn, "knn_student": knn - 1 if student is None else student}
    lines = [{"step": step} | figures | (probe if step % 5 == 4 else {}) for step in range(20)]
    return Result(variant, seed, tuple(lines), untrained)


def variants(paper):
    return [Variant(name, name, Recipe(), figure) for name, figure in paper.items()]


def read(name, results):
    study = STUDIES[name]
    return study.read(study, study.make(10), results)


COLLAPSED = {"no-centering": (0.0, 0.0), "no-sharpening": (0.0, 1.0), "neither": (0.0, 0.95)}


def collapses(**other):
    ends = {"both": (1.0, 0.6)} | COLLAPSED | {name.replace("_", "-"): end for name, end in other.items()}
    return [result(name, 50.0, kl=kl, entropy=entropy) for name, (kl, entropy) in ends.items()]


def test_the_paper_s_two_collapses_show():
    found = read("collapse", collapses())
    assert found.shows
    assert "No centering: at the end KL 0.00 nats and entropy 0% of ln K (collapsed to one prototype)." in (
        found.sentences
    )
    assert found.sentences[-1] == "The paper's conclusion shows at this scale."


@pytest.mark.parametrize(
    ("other", "missing"),
    [
        ({"both": (0.01, 0.99)}, "with both the KL stays above 0"),
        ({"no_centering": (0.9, 0.6)}, "without centering the entropy goes to 0"),
        ({"no_sharpening": (0.0, 0.5)}, "without sharpening it goes to ln K"),
    ],
)
def test_a_collapse_that_is_missing_is_denied(other, missing):
    found = read("collapse", collapses(**other))
    assert not found.shows
    assert missing in found.sentences[-1]


TEACHERS = {"momentum": 53.0, "previous-epoch": 48.0, "previous-iteration": 32.0, "student-copy": 22.0}


def teachers(student=52.0, **other):
    knn = TEACHERS | {name.replace("_", "-"): value for name, value in other.items()}
    return [result(name, value, student=student) for name, value in knn.items()]


def test_a_momentum_teacher_that_is_best_and_ahead_shows():
    found = read("teacher", teachers())
    assert found.shows
    assert "Student copy: k-NN 22.0 %, worse than the untrained network's 45.0" in found.sentences[3]
    assert "ahead in 4 of 4 probes, by +1.0 points" in found.sentences[4]


@pytest.mark.parametrize(
    ("other", "missing"),
    [
        ({"student": 54.0}, "ahead of its student"),
        ({"previous_epoch": 60.0}, "the momentum teacher is best"),
        ({"student_copy": 52.0}, "the student copy fails"),
    ],
)
def test_what_a_teacher_does_not_show_is_denied(other, missing):
    found = read("teacher", teachers(**other))
    assert not found.shows
    assert missing in found.sentences[-1]


PAPER = {"a": 60.0, "b": 50.0, "c": 50.5}


def test_differences_are_counted_against_the_noise_between_seeds():
    results = [
        result(name, knn + seed, seed=seed)
        for name, knn in (("a", 55), ("b", 50), ("c", 49))
        for seed in (0, 1)
    ]
    assert reading.spread(results) == pytest.approx(math.sqrt(0.5))
    found = reading.pairs(STUDIES["heads"], variants(PAPER), results)
    # The paper's b and c are less than a point apart, so that two differences are left.
    assert found.shows
    assert (
        "from 1.4 points on (twice the standard error, 2 seeds). The paper's (2): 2 seen here too"
        in found.sentences[1]
    )


def test_a_reversed_difference_is_named_and_denies_the_conclusion():
    results = [result(name, knn) for name, knn in (("a", 40.0), ("b", 55.0), ("c", 41.0))]
    found = reading.pairs(STUDIES["heads"], variants(PAPER), results)
    assert not found.shows
    assert "Reversed: a is below b." in found.sentences
    assert "Better before any training: a (45.0 %), c (45.0 %)." in found.sentences
    assert "does not show" in found.sentences[-1]


def test_a_group_that_training_harmed_as_a_whole_is_named_once():
    made = [
        Variant(n, n, Recipe(), paper, group=n[0]) for n, paper in (("a1", 60.0), ("a2", 50.0), ("b1", 50.0))
    ]
    found = reading.pairs(
        STUDIES["heads"], made, [result("a1", 40.0), result("a2", 41.0), result("b1", 40.0)]
    )
    assert "Better before any training: every a (45.0 %), b: b1 (45.0 %)." in found.sentences


def test_the_noise_of_one_seed_is_that_of_counting():
    assert reading.spread([result("a", 50.0)]) == pytest.approx(100 * math.sqrt(0.25 / reading.PROBED))


def test_only_variants_of_one_group_are_compared():
    two = [Variant("a", "a", Recipe(), 60.0, group="one"), Variant("b", "b", Recipe(), 50.0, group="two")]
    found = reading.pairs(STUDIES["heads"], two, [result("a", 40.0), result("b", 60.0, untrained=50.0)])
    assert "networks before training 45.0 % and 50.0 %." in found.sentences[0]
    assert "The paper's (0): 0 seen here too" in found.sentences[1]


def test_the_table_has_the_paper_s_figure_beside_ours():
    lines = table(STUDIES["heads"], variants({"a": 60.0, "b": None}), [result("a", 51.0), result("b", 52.0)])
    assert lines[2] == "| a | 51.0 | 45.0 | 1.00 | 0.50 | 2 | 60.0 |"
    assert lines[3].endswith("| – |")


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_study_s_variants_are_recipes_that_can_be(study):
    made = study.make(4)
    names = [variant.name for variant in made]
    assert len(set(names)) == len(names)
    assert all(variant.recipe.epochs == (2 if variant.group == "ResNet-50" else 4) for variant in made)
    recipes = [variant.recipe for variant in made]
    same = [name for i, name in enumerate(names) if recipes[i] in recipes[:i]]
    # Two groups of one study may share the base setting, two variants of a group never.
    assert all(
        len({id(v) for v in made if v.group == group})
        == len({str(v.recipe) for v in made if v.group == group})
        for group in {v.group for v in made}
    ), same


def test_methods_are_sixteen_runs():
    assert len(STUDIES["methods"].make(2)) == 16
