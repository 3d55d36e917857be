"""What a reader runs after an exercise: right, or which mistake the answer looks like.

A check knows its answer by computing it, with the project's own functions where there is one.
"""

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray

from dino_model import photographs, quantities
from dino_model.predictor import AttentionPredictor
from segmentation.masks import keep_mass_of_maps
from segmentation.metrics import contour_radius, jaccard

CHECKS: dict[str, Callable[[Any], str | None]] = {}
"""By number of the exercise: None for a right answer, else one sentence."""


def check(exercise: str, answer: Any) -> bool:
    """Say whether an answer is right, and return that.

    Args:
        exercise: its number, such as "1.2".
        answer: a number, an array, or a function, as the exercise asks; `...` for none yet.

    Raises:
        KeyError: no such exercise.
    """
    if exercise not in CHECKS:
        raise KeyError(f"there is no exercise {exercise!r}: choose one of {', '.join(sorted(CHECKS))}")
    if answer is ...:
        print(f"Exercise {exercise}: put your answer in place of the three dots.")
        return False
    complaint = CHECKS[exercise](answer)
    print(f"Exercise {exercise}: {complaint or 'right.'}")
    return complaint is None


def exercise(number: str) -> Callable[[Callable[[Any], str | None]], Callable[[Any], str | None]]:
    """Register a function that looks at the answer of one exercise."""

    def register(look: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        CHECKS[number] = look
        return look

    return register


def number(
    answer: Any, right: float, mistakes: Mapping[str, float] | None = None, tolerance: float = 1e-3
) -> str | None:
    """None for a number within `tolerance` (relative) of the right one, else a sentence.

    Args:
        answer: what the reader gave, of any kind.
        right: the answer.
        mistakes: what an answer was probably made with, by the number that it gives.
        tolerance: relative.
    """
    if isinstance(answer, np.ndarray | torch.Tensor) and math.prod(answer.shape) == 1:
        answer = answer.item()
    if isinstance(answer, str):
        return f"found the text {answer!r}, expected a number: leave out the quotation marks."
    if isinstance(answer, bool) or not isinstance(answer, Real):
        found = (
            f"an array of shape {tuple(answer.shape)}" if hasattr(answer, "shape") else type(answer).__name__
        )
        return f"found {found}, expected one number."

    def near(other: float) -> bool:
        return math.isclose(float(answer), other, rel_tol=tolerance, abs_tol=1e-9)

    if near(right):
        return None
    units = {"it were percent": 100 * right, "it were a share, not percent": right / 100}
    for words, wrong in (dict(mistakes or {}) | units).items():
        if near(wrong):
            return f"{answer:g} is not it. It looks as if {words}."
    return f"{answer:g} is not it; no mistake we know gives that."


def array(answer: Any, right: np.ndarray, mistakes: Mapping[str, np.ndarray] | None = None) -> str | None:
    """As `number`, for arrays of one shape: equal to 1e-5, or the same truth values."""
    if not hasattr(answer, "shape"):
        return f"found {type(answer).__name__}, expected an array of shape {right.shape}."
    found = np.asarray(answer.detach() if isinstance(answer, torch.Tensor) else answer)
    if found.shape != right.shape:
        return f"found an array of shape {found.shape}, expected {right.shape}."
    if np.allclose(found, right, atol=1e-5):
        return None
    for words, wrong in (mistakes or {}).items():
        if np.allclose(found, wrong, atol=1e-5):
            return f"not it. It looks as if {words}."
    return f"not it: {np.mean(~np.isclose(found, right, atol=1e-5)):.0%} of the values differ."


# --- 1: what a ViT sees


@exercise("1.1")
def _tokens(answer: Any) -> str | None:
    mistakes = {"[CLS] is missing": 3600, "a patch were 16 pixels": 901, "only one side were counted": 61}
    return number(answer, 3601, mistakes, tolerance=1e-6)


@exercise("1.2")
def _attention(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    generator = np.random.default_rng(0)
    queries, keys = generator.normal(size=(2, 3, 7, 16))  # 3 heads, 7 tokens
    row = answer(queries, keys, 2)
    if row is ...:
        return "the function still returns the three dots."
    products = np.einsum("hd,htd->ht", queries[:, 2], keys)
    return array(
        row,
        quantities.attention(queries, keys, 2),
        {
            "the products were not divided by √d": scipy.special.softmax(products, axis=1),
            "the products were divided by d, not by √d": scipy.special.softmax(products / 16, axis=1),
            "the softmax were taken over the heads": scipy.special.softmax(products / 4, axis=0),
            "the softmax were missing": products / 4,
            "queries and keys were swapped": quantities.attention(keys, queries, 2),
        },
    )


@exercise("1.3")
def _to_itself(answer: Any) -> str | None:
    predictor = AttentionPredictor(size=224, precision="fp32")
    predictor.set_image(photographs.picture("sheep"))
    patches = predictor.cls_attention().sum(axis=(1, 2))
    mistakes = {
        "this is what the patches get": float(patches.mean()),
        "this is the first head alone": float(1 - patches[0]),
        "the heads were added, not averaged": float((1 - patches).sum()),
    }
    return number(answer, float(1 - patches.mean()), mistakes, tolerance=0.01)


# --- 2: from attention to a mask


@exercise("2.1")
def _keep_mass(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    attention = np.random.default_rng(2).random((5, 6)) ** 2  # no mistake below keeps the same patches
    kept = answer(attention, 0.6)
    if kept is ...:
        return "the function still returns the three dots."
    strongest_first = np.sort(attention.ravel())[::-1]
    reached = np.cumsum(strongest_first) / attention.sum()
    crossing = strongest_first[int((reached < 0.6).sum())]
    return array(
        kept,
        keep_mass_of_maps(attention, 0.6),
        {
            "the patch that crosses the threshold were left out": attention > crossing,
            "60 % of the patches were kept, not of the mass": attention >= np.quantile(attention, 0.4),
            "patches above 60 % of the strongest were kept": attention >= 0.6 * attention.max(),
            "the weakest were kept": ~keep_mass_of_maps(attention, 0.4),
        },
    )


@exercise("2.2")
def _moved_square(answer: Any) -> str | None:
    mistakes = {"the shared area were divided by one square, or this is Dice's coefficient": 50 / 100}
    return number(answer, 1 / 3, mistakes, tolerance=0.01)


def random_heads() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Six masks that know nothing for each of 200 pictures, and their ground truths, all of half the area.

    Returns:
        bool [pictures, heads, rows, columns] and [pictures, rows, columns].
    """
    blobs = np.random.default_rng(2).random((200, 7, 4, 4)) > 0.5
    enlarged = blobs.repeat(4, axis=2).repeat(4, axis=3)
    return enlarged[:, 1:], enlarged[:, 0]


@exercise("2.3")
def _gain(answer: Any) -> str | None:
    heads, truths = random_heads()
    scores = np.stack([jaccard(masks, truth[None]) for masks, truth in zip(heads, truths, strict=True)])
    first, best = float(scores[:, 0].mean()), float(scores.max(axis=1).mean())
    mistakes = {
        "this is the best head's mean itself": best,
        "one head were chosen for all pictures": float(scores.mean(axis=0).max() - first),
        "the sign were turned": first - best,
    }
    return number(answer, best - first, mistakes, tolerance=0.01)


# --- 3: self-distillation


@exercise("3.1")
def _pairs(answer: Any) -> str | None:
    mistakes = {
        "pairs of the same crop were counted": 20,
        "the teacher saw the local crops too": 90,
        "only the local crops were compared": 16,
    }
    return number(answer, 18, mistakes, tolerance=1e-6)


@exercise("3.2")
def _sharpen(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    generator = torch.Generator().manual_seed(6)
    logits, center = torch.randn(2, 3, 5, generator=generator), torch.randn(5, generator=generator)
    given = answer(logits, center, 0.04)
    if given is ...:
        return "the function still returns the three dots."

    def softmax(values: torch.Tensor, axis: int = -1) -> NDArray[np.float32]:
        return torch.softmax(values, axis).numpy()

    return array(
        given,
        softmax((logits - center) / 0.04),
        {
            "the center were subtracted after the division": softmax(logits / 0.04 - center),
            "the center were added": softmax((logits + center) / 0.04),
            "the center were left out": softmax(logits / 0.04),
            "it were multiplied by the temperature": softmax((logits - center) * 0.04),
            "the softmax were taken over the batch": softmax((logits - center) / 0.04, 1),
            "the softmax were taken over the views": softmax((logits - center) / 0.04, 0),
            "the softmax were missing": ((logits - center) / 0.04).numpy(),
            "its logarithm were returned": torch.log_softmax((logits - center) / 0.04, -1).numpy(),
        },
    )


@exercise("3.3")
def _left(answer: Any) -> str | None:
    mistakes = {
        "this is what the student's later weights make up": 1 - 0.996**1000,
        "it fell by the same amount each step": 1 - 0.004 * 1000,
    }
    return number(answer, 0.996**1000, mistakes, tolerance=0.01)


# --- 4: why it does not collapse


@exercise("4.1")
def _uniform(answer: Any) -> str | None:
    mistakes = {
        "it were in bits": 8.0,
        "the logarithm were that to base 10": math.log10(256),
        "it were the weight of one answer": 1 / 256,
        "the sign were lost": -math.log(256),
    }
    return number(answer, math.log(256), mistakes)


@exercise("4.2")
def _sharpened(answer: Any) -> str | None:
    def first(temperature: float) -> float:
        return float(scipy.special.softmax(np.array([1, 0, 0]) / temperature)[0])

    mistakes = {
        "this is the weight at 1, or the first were divided by the second": first(1),
        "the numbers were multiplied by the temperature": first(10) / first(1),
        "this is the weight at 0.1": first(0.1),
    }
    return number(answer, first(0.1) / first(1), mistakes)


@exercise("4.3")
def _verdict(answer: Any) -> str | None:
    if not isinstance(answer, str):
        return f"found {answer!r}, expected one of the three texts, in quotation marks."
    mistakes = {
        "collapsed": "a collapsed run has a KL of 0: this one's answers still depend on the picture.",
        "learning fast": "an entropy so near ln K says that the answers of two pictures hardly differ yet.",
    }
    said = answer.strip().lower()
    if said == "slow":
        return None
    return mistakes.get(said, f"found {answer!r}, expected 'collapsed', 'slow' or 'learning fast'.")


# --- 5: the teacher leads


@exercise("5.1")
def _half_life(answer: Any) -> str | None:
    right = math.log(0.5) / math.log(0.98)
    mistakes = {"it were the mean age, 1 / (1 - m)": 50.0, "it fell by the same amount each step": 25.0}
    return number(answer, right, mistakes, tolerance=0.03)


@exercise("5.2")
def _average(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    values = np.random.default_rng(5).normal(size=30)
    given = answer(values.copy(), 0.9)
    if given is ...:
        return "the function still returns the three dots."

    def averaged(momentum: float, start: float) -> NDArray[np.float64]:
        teacher, course = start, []
        for value in values:
            teacher = momentum * teacher + (1 - momentum) * value
            course.append(teacher)
        return np.array(course)

    return array(
        np.asarray(given),
        averaged(0.9, values[0]),
        {
            "momentum and its rest were exchanged": averaged(0.1, values[0]),
            "the teacher began at 0, not as the student": averaged(0.9, 0.0),
            "all of the past weighed the same": values.cumsum() / np.arange(1, 31),
        },
    )


@exercise("5.3")
def _too_slow(answer: Any) -> str | None:
    mistakes = {
        "it were the share that has gone": 1 - 0.999**300,
        "it fell by the same amount each step": 0.7,
    }
    return number(answer, 0.999**300, mistakes, tolerance=0.01)


# --- 6: features without labels


@exercise("6.1")
def _vote(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    generator = np.random.default_rng(5)
    vectors = generator.normal(size=(31, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = generator.integers(0, 4, 30)
    votes = answer(vectors[0], vectors[1:], labels, 7, 0.07)
    if votes is ...:
        return "the function still returns the three dots."
    ascending = np.argsort(cosines := vectors[1:] @ vectors[0])

    def counted(voters: NDArray[np.intp], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(labels[voters], weights[voters], minlength=4).astype(np.float64)

    weights = np.exp(cosines / 0.07)
    return array(
        votes,
        counted(ascending[-7:], weights),
        {
            "all had a vote, not the k nearest": counted(ascending, weights),
            "the farthest voted": counted(ascending[:7], weights),
            "all votes weighed the same": counted(ascending[-7:], np.ones(30)),
            "the temperature were left out": counted(ascending[-7:], np.exp(cosines)),
            "the cosine itself were the weight": counted(ascending[-7:], cosines),
        },
    )


@exercise("6.2a")
def _largest_class(answer: Any) -> str | None:
    return number(answer, 60, {"this is the mean over classes": 100 / 3})


@exercise("6.2b")
def _mean_of_classes(answer: Any) -> str | None:
    return number(answer, 100 / 3, {"the pictures were averaged, not the classes": 60}, tolerance=0.02)


@exercise("6.3")
def _average_precision(answer: Any) -> str | None:
    mistakes = {
        "only the last rank were looked at": 0.4,
        "it were divided by the ten ranks, not by the four right ones": 3 / 10,
        "the ranks were inverted, without counting the right ones before": (1 + 1 / 2 + 1 / 5 + 1 / 10) / 4,
    }
    return number(answer, 0.75, mistakes, tolerance=0.01)


# --- 7: following an object


@exercise("7.1")
def _new_label(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    generator = np.random.default_rng(4)
    cosines, labels = generator.uniform(-1, 1, 40), np.eye(3)[generator.integers(0, 3, 40)]
    given = answer(cosines, labels, 5, 0.1)
    if given is ...:
        return "the function still returns the three dots."

    def average(neighbours: NDArray[np.intp], temperature: float) -> NDArray[np.float64]:
        return scipy.special.softmax(cosines[neighbours] / temperature) @ labels[neighbours]

    ascending = np.argsort(cosines)
    return array(
        given,
        average(ascending[-5:], 0.1),
        {
            "all neighbours had a say, not the k most alike": average(ascending, 0.1),
            "the temperature were left out": average(ascending[-5:], 1.0),
            "the least alike were taken": average(ascending[:5], 0.1),
            "all k weighed the same": labels[ascending[-5:]].mean(axis=0),
            "the weights were not divided by their sum": np.exp(cosines[ascending[-5:]] / 0.1)
            @ labels[ascending[-5:]],
        },
    )


@exercise("7.2")
def _candidates(answer: Any) -> str | None:
    mistakes = {
        "the first frame were forgotten": 25 * 25 * 7,
        "the window were 12 wide, not 12 in every direction": 12 * 12 * 8,
        "the patch's own row and column were left out": 24 * 24 * 8,
        "it were one frame only": 25 * 25,
    }
    return number(answer, 25 * 25 * 8, mistakes, tolerance=1e-6)


@exercise("7.3")
def _near(answer: Any) -> str | None:
    mistakes = {
        "it were not rounded up": 0.008 * math.hypot(854, 480),
        "it were rounded down, or were 0.8 % of the width": 7,
    }
    return number(answer, contour_radius(480, 854), mistakes)


# --- 8: objects without any label


@exercise("8.1")
def _positive_similarities(answer: Any) -> str | None:
    if not callable(answer):
        return f"found {type(answer).__name__}, expected the function."
    features = np.random.default_rng(3).normal(size=(9, 4))
    counted = answer(features.copy())
    if counted is ...:
        return "the function still returns the three dots."
    products = features @ features.T
    return array(
        counted,
        (products > 0).sum(axis=1) - 1,
        {
            "each patch were counted as like itself": (products > 0).sum(axis=1),
            "the products were added, not counted": products.sum(axis=1),
            "negative products were counted": (products < 0).sum(axis=1),
        },
    )


@exercise("8.2")
def _normalised_cut(answer: Any) -> str | None:
    mistakes = {
        "each edge within the rest were counted once, not at both its ends": 1 + 1 / 4,
        "w(B, V) left out the edge that is cut": 1 + 1 / 6,
        "this is the cut itself, not normalised": 1.0,
        "only one side were divided by": 1 / 7,
    }
    return number(answer, 1 + 1 / 7, mistakes)


@exercise("8.3")
def _boxes(answer: Any) -> str | None:
    mistakes = {
        "the shared area were counted twice in the union": 600 / 1700,
        "it were divided by the found box alone": 600 / 800,
        "it were divided by the object's box alone": 600 / 900,
    }
    return number(answer, 600 / 1100, mistakes, tolerance=0.01)
