"""Check answers to the exercises and name the likely mistake.

An exercise is a number or a function. Its right answer comes from `notebooks.solutions`; each known mistake
is the sentence that the reader sees, with the wrong answer that it leads to.
"""

import copy
import html
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, log_softmax, softmax

from notebooks import solutions as right


@dataclass(frozen=True)
class Exercise:
    """An exercise of a lesson."""

    solution: Any
    """A number or a function."""
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    """Sentence for the reader -> wrong answer of the kind of the solution."""
    inputs: tuple[Any, ...] = ()
    """Arguments that a function is called with."""
    other_inputs: tuple[Any, ...] = ()
    """Second arguments, all different: a constant or an argument without use gives a wrong result."""
    tolerance: float = 1e-3
    """Relative tolerance of a number."""


NO_ANSWER = "No answer yet: replace the three dots."
REVERSED = "The sign is reversed."
QUIET = "LESSONS_QUIET"
"""Environment variable of published lessons: an exercise without an answer prints nothing."""
_wrong_answers: Counter[str] = Counter()
"""Wrong answers to each exercise in this session: they select the help that is printed."""


def check(exercise: str, answer: Any) -> Any:
    """Report whether an answer is correct, and return the answer that the lesson continues with.

    The first wrong answer gets the name of the mistake, the second also a hint, the third the solution.

    Args:
        exercise: Number of the exercise, such as "1.2".
        answer: A number or a function; `...` if there is none yet.

    Returns:
        The answer if it is correct, else the solution.

    Raises:
        KeyError: There is no such exercise.
    """
    mistake = complaint(exercise, answer)
    if mistake is None:
        print(f"Exercise {exercise}: correct.")
        return answer
    if mistake != NO_ANSWER or not os.environ.get(QUIET):
        print(f"Exercise {exercise}: {mistake} The lesson continues with the solution.")
    _wrong_answers[exercise] += mistake != NO_ANSWER
    if _wrong_answers[exercise] >= 2:
        print(f"Hint: {HINTS[exercise]}")
    if _wrong_answers[exercise] >= 3:
        show_solution(exercise)
    return EXERCISES[exercise].solution


def show_solution(exercise: str) -> None:
    """Display the solution, folded. A student release has no readable solutions."""
    from IPython.display import HTML, display

    try:
        from notebooks.solve import solution_of
    except ImportError:
        print("The solution is with your teacher.")
        return
    text = f"<details><summary>Solution</summary><pre>{html.escape(solution_of(exercise))}</pre></details>"
    display(HTML(text))


def complaint(number: str, answer: Any) -> str | None:
    """Return the likely mistake of an answer to an exercise, None for a correct answer.

    Raises:
        KeyError: There is no such exercise.
    """
    if number not in EXERCISES:
        raise KeyError(f"Unknown exercise {number!r}. Available: {', '.join(EXERCISES)}.")
    exercise = EXERCISES[number]
    if answer is ...:
        return NO_ANSWER
    if not callable(exercise.solution):
        return _complaint_about_number(exercise, answer)
    if not callable(answer):
        return f"Found {type(answer).__name__}, expected a function."
    first = _complaint_about_function(exercise, answer, exercise.inputs)
    if first is not None:
        return first
    second = _complaint_about_function(exercise, answer, exercise.other_inputs)
    return second and f"Correct for the first of two inputs only; each argument changes the result. {second}"


def _complaint_about_function(exercise: Exercise, answer: Any, inputs: tuple[Any, ...]) -> str | None:
    try:
        found = _call(answer, inputs)
    except Exception as error:
        shapes = ", ".join(str(tuple(v.shape)) for v in inputs if hasattr(v, "shape"))
        reason = f"{type(error).__name__}: {str(error).strip().rstrip('.')}"
        return f"Your function raises {reason}. The check calls it with shapes {shapes}."
    if found is ...:
        return NO_ANSWER
    if found is None:
        return "Your function returns None; end it with a return statement."
    expected = _call(exercise.solution, inputs)
    if getattr(expected, "requires_grad", False) and not getattr(found, "requires_grad", False):
        return "Your result has no gradient; return a tensor without detach(), no_grad(), item() or float()."
    if isinstance(found, list) and isinstance(expected, tuple):
        return "Found a list; return the values separated by a comma, without brackets."
    if _kinds(found) != _kinds(expected):
        return f"Found {_kinds(found)}, expected {_kinds(expected)}."
    if _is_equal(found, expected):
        return None
    for sentence, mistake in exercise.mistakes.items():
        if _is_equal(found, _call(mistake, inputs)):
            return sentence
    for describe in (_shapes, _dtypes):
        if describe(found) != describe(expected):
            return f"Found {describe(found)}, expected {describe(expected)}."
    if _kinds(expected) == "one value":
        (number,), (value,) = _arrays(found), _arrays(expected)
        if _is_equal(number, 100 * value):
            return "You gave percent; do not multiply by 100."
        if _is_equal(number, -value):
            return REVERSED
    difference = _first_difference(found, expected)
    return f"The shape is correct, the values are not: {difference}."


def _complaint_about_number(exercise: Exercise, answer: Any) -> str | None:
    if isinstance(answer, np.ndarray | torch.Tensor) and math.prod(answer.shape) == 1:
        answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, Real):
        return f"Found {type(answer).__name__}, expected one number."

    def near(value: float) -> bool:
        return math.isclose(float(answer), value, rel_tol=exercise.tolerance, abs_tol=1e-9)

    value = float(exercise.solution)
    if near(value):
        return None
    units = {
        "You gave percent; give a share of 1.": 100 * value,
        "You gave a share; give percent.": value / 100,
        REVERSED: -value,
    }
    for sentence, wrong in (dict(exercise.mistakes) | units).items():
        if near(wrong):
            return sentence
    return f"{float(answer):g} is not correct."


def _call(function: Any, inputs: tuple[Any, ...]) -> Any:
    return function(*copy.deepcopy(inputs))


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(part.detach() if isinstance(part, torch.Tensor) else part) for part in _parts(value)]


def _kinds(value: Any) -> str:
    return " and ".join(_kind(part) for part in _parts(value))


def _kind(part: Any) -> str:
    is_array = isinstance(part, np.ndarray | torch.Tensor)
    if isinstance(part, Real) or (is_array and not part.ndim):
        return "one value"
    if isinstance(part, torch.Tensor):
        return "a tensor"
    return "an array" if is_array else f"a {type(part).__name__}"


def _shapes(value: Any) -> str:
    return "shape " + " and ".join(str(array.shape) for array in _arrays(value))


def _dtypes(value: Any) -> str:
    """Tell masks from numbers; the precision of numbers is free."""
    return " and ".join("bool values" if array.dtype == bool else "numbers" for array in _arrays(value))


def _is_equal(found: Any, expected: Any) -> bool:
    is_alike = _shapes(found) == _shapes(expected) and _dtypes(found) == _dtypes(expected)
    return is_alike and _first_difference(found, expected) is None


def _first_difference(found: Any, expected: Any) -> str | None:
    """Describe the first value that differs; None if all values are equal."""
    for a, b in zip(_arrays(found), _arrays(expected), strict=True):
        different = np.argwhere(~np.isclose(a, b, atol=1e-5))
        if len(different):
            index = tuple(int(i) for i in different[0])
            place = f" at index {index}" if index else ""
            return f"found {float(a[index]):.4g}{place}, expected {float(b[index]):.4g}"
    return None


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _patches(images: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Return the patches as a grid [B, rows, columns, C, patch_size, patch_size]."""
    return (
        images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size).permute(0, 2, 3, 1, 4, 5)
    )


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float = 0.25, axis: int = -1) -> Any:
    weights = softmax(q @ k.transpose(-1, -2) * scale, dim=axis)
    return weights @ v, weights


def _shares(attention: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a map from the largest on, and the share of the mass that they reach."""
    ordered = np.sort(attention.ravel())[::-1]
    return ordered, np.cumsum(ordered) / ordered.sum()


def _cross(p: torch.Tensor, x: torch.Tensor, t: float, axis: int = -1) -> torch.Tensor:
    """Return the cross-entropy of the other crop for each image [crops, B]."""
    return -(p * log_softmax(x / t, axis).flip(0)).sum(-1)


def _entropy(p: torch.Tensor) -> torch.Tensor:
    return right.entropy_and_kl(p, p)[0]


def _kl(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return right.entropy_and_kl(p, q)[1]


def _first_step(steps: np.ndarray, scores: np.ndarray, level: float, shift: int = 0) -> int:
    return int(steps[np.argmax(scores >= level) + shift])


def _vote(cosines: np.ndarray, labels: np.ndarray, weights: np.ndarray, k: int) -> np.ndarray:
    nearest = np.argsort(cosines)[-k:]
    return np.bincount(labels[nearest], weights[nearest], minlength=labels.max() + 1)


def _vote_once(cosines: np.ndarray, labels: np.ndarray, k: int, temperature: float, order: int) -> np.ndarray:
    votes = np.zeros(labels.max() + 1)
    nearest = np.argsort(cosines)[-k:][::order]
    votes[labels[nearest]] += np.exp(cosines[nearest] / temperature)
    return votes


def _average(
    cosines: np.ndarray, labels: np.ndarray, k: int, temperature: float, farthest: bool = False
) -> Any:
    order = np.argsort(cosines)
    weights = np.exp(cosines[chosen := order[:k] if farthest else order[-k:]] / temperature)
    return weights @ labels[chosen] / weights.sum()


_UNIT = np.random.default_rng(5).normal(size=(31, 8))
_UNIT /= np.linalg.norm(_UNIT, axis=1, keepdims=True)
_LABELS = np.random.default_rng(6).integers(0, 4, 30)
# the last class is the farthest: votes need a minimum length
_FAR_CLASSES = np.argsort(np.argsort(-_UNIT[2:] @ _UNIT[1])) // 5
_COSINES = np.random.default_rng(4).uniform(-1, 1, 40)

EXERCISES: dict[str, Exercise] = {
    "1.1": Exercise(
        right.patchify,
        {
            "You flattened rows, not patches; split rows and columns.": (
                lambda images, p: images.reshape(len(images), -1, 3 * p * p)
            ),
            "Your vectors have the channels last; put all values of channel 0 first.": (
                lambda images, p: _patches(images, p).permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)
            ),
            "Your patches run down the columns; order them row by row.": (
                lambda images, p: _patches(images, p).transpose(1, 2).flatten(3).flatten(1, 2)
            ),
            "The pixels in your patches run down the columns; order them row by row.": (
                lambda images, p: _patches(images, p).transpose(4, 5).flatten(3).flatten(1, 2)
            ),
            "Your patches contain distant pixels; split the height into (rows, patch_size), the width as well.": (
                lambda images, p: (
                    images.unflatten(3, (p, -1))
                    .unflatten(2, (p, -1))
                    .permute(0, 3, 5, 1, 2, 4)
                    .flatten(3)
                    .flatten(1, 2)
                )
            ),
        },
        (_normal(2, 3, 8, 12), 4),
        (_normal(1, 3, 6, 9), 3),
    ),
    "1.2": Exercise(
        right.TOKENS,
        {
            "[CLS] is missing.": 3600,
            "You used patches of 16 pixels.": 901,
            "You counted the patches of one side; the grid has 60 rows and 60 columns.": 60,
            "You counted the patches of one side and [CLS]; the grid has 60 rows and 60 columns.": 61,
            "You divided by 8 once; divide the height and the width.": 28800,
        },
        tolerance=1e-6,
    ),
    "1.3": Exercise(
        right.attention,
        {
            "You did not divide by √d.": lambda q, k, v: _attend(q, k, v, 1.0),
            "You divided by d; divide by √d.": lambda q, k, v: _attend(q, k, v, 1 / 16),
            "You multiplied by √d; divide by √d.": lambda q, k, v: _attend(q, k, v, 4.0),
            "You used the number of tokens; d is a query's length.": (
                lambda q, k, v: _attend(q, k, v, 1 / math.sqrt(7))
            ),
            "Your softmax runs over queries; use the last axis, keys.": (
                lambda q, k, v: _attend(q, k, v, axis=-2)
            ),
            "Your softmax runs over heads; use the last axis, the keys.": (
                lambda q, k, v: _attend(q, k, v, axis=1)
            ),
            "You exchanged queries and keys.": lambda q, k, v: _attend(k, q, v),
            "The softmax is missing.": lambda q, k, v: (
                (products := q @ k.transpose(-1, -2) / 4) @ v,
                products,
            ),
            "You applied the softmax twice.": lambda q, k, v: (
                (twice := softmax(_attend(q, k, v)[1], -1)) @ v,
                twice,
            ),
            "You divided after the softmax; divide the products of queries and keys.": (
                lambda q, k, v: tuple(part / 4 for part in _attend(q, k, v, 1.0))
            ),
            "Return the weights after the softmax; the output is correct.": (
                lambda q, k, v: (_attend(q, k, v)[0], q @ k.transpose(-1, -2) / 4)
            ),
        },
        tuple(_normal(2, 3, 7, 16, seed=seed) for seed in range(3)),
        tuple(_normal(1, 2, 5, 9, seed=seed) for seed in range(3)),
    ),
    "1.4": Exercise(
        right.block,
        {
            "The residual connections are missing; add the input of each part.": (
                lambda x, a, m, n1, n2: m(n2(a(n1(x))))
            ),
            "The first residual connection is missing.": lambda x, a, m, n1, n2: (y := a(n1(x))) + m(n2(y)),
            "The second residual connection is missing.": lambda x, a, m, n1, n2: m(n2(x + a(n1(x)))),
            "The second residual connection adds the result of the first part.": (
                lambda x, a, m, n1, n2: x + m(n2(x + a(n1(x))))
            ),
            "You added the normalized tokens; add those before it.": (
                lambda x, a, m, n1, n2: (z := n2((y := n1(x)) + a(y))) + m(z)
            ),
            "You normalized after the addition; normalize inputs.": (
                lambda x, a, m, n1, n2: n2((y := n1(x + a(x))) + m(y))
            ),
            "You used norm1 twice; the second part uses norm2.": (
                lambda x, a, m, n1, n2: (y := x + a(n1(x))) + m(n1(y))
            ),
            "The normalization of the second part is missing; use norm2.": (
                lambda x, a, m, n1, n2: (y := x + a(n1(x))) + m(y)
            ),
            "You exchanged norm1 and norm2.": lambda x, a, m, n1, n2: (y := x + a(n2(x))) + m(n1(y)),
            "The normalization is missing.": lambda x, a, m, n1, n2: (y := x + a(x)) + m(y),
            "The second part must receive the result of the first part.": (
                lambda x, a, m, n1, n2: x + a(n1(x)) + m(n2(x))
            ),
            "Your MLP comes first; attention is the first part.": (
                lambda x, a, m, n1, n2: (y := x + m(n2(x))) + a(n1(y))
            ),
        },
        (_normal(1, 5, 8), torch.sin, torch.exp, lambda x: x - 1, lambda x: x / 2),
        (_normal(1, 4, 6, seed=1), torch.cos, torch.tanh, lambda x: x - 2, lambda x: x / 3),
    ),
    "2.1": Exercise(
        right.keep_mass,
        {
            "The patch that crosses the threshold is missing; keep it.": (
                lambda a, mass: a > _shares(a)[0][int((_shares(a)[1] < mass).sum())]
            ),
            "You kept a share of the patches, not of the mass.": lambda a, mass: (
                a >= np.quantile(a, 1 - mass)
            ),
            "You compared with the maximum; add up from the largest on.": lambda a, mass: a >= mass * a.max(),
            "You did not divide by the sum; the mass is a share of the sum of the map.": (
                lambda a, mass: a >= _shares(a)[0][int((np.cumsum(_shares(a)[0]) < mass).sum())]
            ),
            "You kept the weakest patches; begin with the largest.": (
                lambda a, mass: ~right.keep_mass(a, 1 - mass)
            ),
        },
        (np.random.default_rng(2).random((5, 6)) ** 2, 0.6),
        (np.random.default_rng(3).random((4, 7)) ** 2, 0.3),
    ),
    "2.2": Exercise(
        right.jaccard,
        {
            "You divided by the sum of both areas; count the shared pixels once.": (
                lambda a, b: (a & b).sum() / (a.sum() + b.sum())
            ),
            "This is Dice's coefficient; divide by the union.": (
                lambda a, b: 2 * (a & b).sum() / (a.sum() + b.sum())
            ),
            "This is 1 minus the similarity.": lambda a, b: 1 - right.jaccard(a, b),
            "You divided by one mask; divide by the union.": lambda a, b: (a & b).sum() / b.sum(),
            "This is the share of equal pixels, which counts the background.": lambda a, b: (a == b).mean(),
        },
        tuple(np.random.default_rng(seed).random((6, 7)) > 0.4 for seed in (0, 1)),
        tuple(np.random.default_rng(seed).random((5, 8)) > 0.3 for seed in (2, 3)),
    ),
    "2.3": Exercise(
        right.best_head_gain,
        {
            "This is the mean of the best head; subtract that of head 0.": lambda s: s.max(axis=1).mean(),
            "You selected one head for all images; select for each image.": (
                lambda s: s.mean(axis=0).max() - s[:, 0].mean()
            ),
            "Your maximum runs over the images; use the axis of the heads.": (
                lambda s: s.max(axis=0).mean() - s[:, 0].mean()
            ),
            "You subtracted the mean of all heads; subtract that of head 0.": (
                lambda s: s.max(axis=1).mean() - s.mean()
            ),
        },
        (np.random.default_rng(7).random((20, 6)),),
        (np.random.default_rng(8).random((9, 4)),),
    ),
    "3.1": Exercise(
        right.PAIRS,
        {
            "You counted pairs of the same crop.": 20,
            "The teacher receives the global crops only.": 90,
            "The student also receives the global crops.": 16,
            "You counted the crops; count pairs of a teacher's and a student's crop.": 10,
        },
        tolerance=1e-6,
    ),
    "3.2": Exercise(
        right.sharpen,
        {
            "Subtract the center before the division.": lambda x, c, t: softmax(x / t - c, -1),
            "You divided the center only; divide the difference.": lambda x, c, t: softmax(x - c / t, -1),
            "You added the center; subtract it.": lambda x, c, t: softmax((x + c) / t, -1),
            "You left out the center.": lambda x, c, t: softmax(x / t, -1),
            "You left out the temperature.": lambda x, c, t: softmax(x - c, -1),
            "You multiplied by the temperature; divide by it.": lambda x, c, t: softmax((x - c) * t, -1),
            "Your softmax runs over the batch; use the axis of prototypes.": lambda x, c, t: softmax(
                (x - c) / t, 1
            ),
            "Your softmax runs over the crops; use the axis of prototypes.": lambda x, c, t: softmax(
                (x - c) / t, 0
            ),
            "You applied the softmax twice.": lambda x, c, t: softmax(softmax((x - c) / t, -1), -1),
            "The softmax is missing.": lambda x, c, t: (x - c) / t,
            "You returned logarithms; use softmax.": lambda x, c, t: log_softmax((x - c) / t, -1),
        },
        (_normal(2, 3, 5), _normal(5, seed=1), 0.4),
        (_normal(2, 4, 7, seed=2), _normal(7, seed=3), 0.2),
    ),
    "3.3": Exercise(
        right.dino_loss,
        {
            "You compared each crop with itself; use the other crop.": (
                lambda p, x, t: _cross(p, x.flip(0), t).mean()
            ),
            "The student's temperature is missing.": lambda p, x, t: _cross(p, x, 1).mean(),
            "You averaged over the prototypes; sum over them.": (
                lambda p, x, t: _cross(p, x, t).mean() / p.shape[-1]
            ),
            "You added the losses of the images; average over the batch.": (
                lambda p, x, t: len(p[0]) * right.dino_loss(p, x, t)
            ),
            "You added both orders of the crops; average them.": lambda p, x, t: 2 * right.dino_loss(p, x, t),
            "You added orders and images; average over both.": lambda p, x, t: (
                p[..., 0].numel() * right.dino_loss(p, x, t)
            ),
            "You compared one order of the crops; average over both orders.": (
                lambda p, x, t: _cross(p, x, t)[0].mean()
            ),
            "The student's softmax runs over the batch; use the axis of prototypes.": (
                lambda p, x, t: _cross(p, x, t, 1).mean()
            ),
            "The logarithm is missing; use log_softmax for the student.": (
                lambda p, x, t: -(p * softmax(x / t, -1).flip(0)).sum(-1).mean()
            ),
            "You applied the softmax twice; log_softmax takes the logits.": (
                lambda p, x, t: _cross(p, softmax(x / t, -1), 1).mean()
            ),
            "You exchanged teacher and student.": (
                lambda p, x, t: -(softmax(x / t, -1) * p.log().flip(0)).sum(-1).mean()
            ),
            "This is the KL divergence; add the entropy of the teacher.": (
                lambda p, x, t: right.dino_loss(p, x, t) - _entropy(p)
            ),
        },
        (softmax(_normal(2, 4, 6), -1), _normal(2, 4, 6, seed=1).requires_grad_(), 0.1),
        (softmax(_normal(2, 3, 5, seed=2), -1), _normal(2, 3, 5, seed=3).requires_grad_(), 0.3),
    ),
    "3.4": Exercise(
        right.ema,
        {
            "You exchanged the weights; the teacher keeps `momentum`.": lambda t, s, m: (1 - m) * t + m * s,
            "You copied the student.": lambda t, s, m: s,
            "Your factors do not add up to 1; the student's factor is 1 - momentum.": lambda t, s, m: (
                m * t + s
            ),
            "Both factors are `momentum`; the student's factor is 1 - momentum.": lambda t, s, m: m * (t + s),
        },
        (_normal(4, 3), _normal(4, 3, seed=1), 0.9),
        (_normal(2, 5, seed=2), _normal(2, 5, seed=3), 0.6),
    ),
    "4.1": Exercise(
        right.UNIFORM_ENTROPY,
        {
            "You used the logarithm to base 2; nats need the natural logarithm.": 8.0,
            "You used the logarithm to base 10; nats need the natural logarithm.": math.log10(256),
            "This is the probability of one prototype.": 1 / 256,
            "This is the term of one prototype; add 256 of them.": math.log(256) / 256,
        },
        tolerance=0.01,  # 5.5, which lesson 3 prints
    ),
    "4.2": Exercise(
        right.entropy_and_kl,
        {
            "You exchanged teacher and student in the divergence.": lambda p, q: (_entropy(p), _kl(q, p)),
            "You returned the cross-entropy; subtract the entropy of the teacher.": (
                lambda p, q: (_entropy(p), _entropy(p) + _kl(p, q))
            ),
            "You took the entropy of the student; use the teacher's distribution.": (
                lambda p, q: (_entropy(q), _kl(p, q))
            ),
            "You took the entropy of the mean output; average the entropies.": (
                lambda p, q: (_entropy(p.mean(0)), _kl(p, q))
            ),
            "You returned the KL first; return the entropy first.": lambda p, q: (_kl(p, q), _entropy(p)),
            "The sign of the entropy is reversed.": lambda p, q: (-_entropy(p), _kl(p, q)),
            "The sign of the KL is reversed.": lambda p, q: (_entropy(p), -_kl(p, q)),
            "You averaged over the prototypes; sum over them.": (
                lambda p, q: (_entropy(p) / p.shape[1], _kl(p, q) / p.shape[1])
            ),
            "You added the values of the batch; average them.": (
                lambda p, q: (len(p) * _entropy(p), len(p) * _kl(p, q))
            ),
            "You used the logarithm to base 2; nats need base e.": (
                lambda p, q: (_entropy(p) / math.log(2), _kl(p, q) / math.log(2))
            ),
        },
        (softmax(_normal(4, 6), -1), softmax(_normal(4, 6, seed=1), -1)),
        (softmax(_normal(3, 5, seed=2), -1), softmax(_normal(3, 5, seed=3), -1)),
    ),
    "4.3": Exercise(
        right.HALF_LIFE,
        {
            "This is the mean age of the averaged weights, 1 / (1 - λ).": 50.0,
            "The factor is not 1 - 0.02 n; it is 0.98 to the power of n.": 25.0,
        },
        tolerance=0.03,
    ),
    "5.1": Exercise(
        right.vote,
        {
            "All images vote; only the k nearest may.": lambda f, s, y, k, t: _vote(
                s @ f, y, np.exp(s @ f / t), len(s)
            ),
            "The farthest images vote; begin with the largest cosine.": (
                lambda f, s, y, k, t: _vote(-s @ f, y, np.exp(s @ f / t), k)
            ),
            "All votes weigh the same; use exp(cosine / temperature).": (
                lambda f, s, y, k, t: _vote(s @ f, y, np.ones(len(s)), k)
            ),
            "The temperature is missing.": lambda f, s, y, k, t: _vote(s @ f, y, np.exp(s @ f), k),
            "You divided by the sum of the votes; return sums.": (
                lambda *v: right.vote(*v) / right.vote(*v).sum()
            ),
            "Several neighbors of a class count once: `votes[labels] += weights` adds repeated indices once.": (
                lambda f, s, y, k, t: _vote_once(s @ f, y, k, t, 1)
            ),
            "Several neighbors of a class count once; add the votes of all of them.": (
                lambda f, s, y, k, t: _vote_once(s @ f, y, k, t, -1)
            ),
            "The last classes are missing; pass minlength to np.bincount.": (
                lambda *v: np.trim_zeros(right.vote(*v), "b")
            ),
        },
        (_UNIT[1], _UNIT[2:], _FAR_CLASSES, 9, 0.2),
        (_UNIT[0], _UNIT[1:], _LABELS, 7, 0.07),
    ),
    "5.2": Exercise(
        right.BALANCED_ACCURACY,
        {"This is the accuracy over images; average over the classes.": 60.0},
        tolerance=0.0101,  # 33, not 34
    ),
    "6.1": Exercise(
        right.lift,
        {
            "This is the object's share of the attention; divide by its share of the patches.": (
                lambda a, m: float(a[m].sum() / a.sum())
            ),
            "Divide the attention by its sum.": lambda a, m: float(a[m].sum() / m.mean()),
            "You divided by the mean of the background; use all patches.": (
                lambda a, m: float(a[m].mean() / a[~m].mean())
            ),
            "You computed the lift of the background.": lambda a, m: right.lift(a, ~m),
        },
        (np.random.default_rng(6).random((5, 6)), np.arange(30).reshape(5, 6) % 7 < 2),
        (np.random.default_rng(7).random((4, 5)), np.arange(20).reshape(4, 5) % 5 < 2),
    ),
    "6.2": Exercise(
        right.LARGEST_LIFT,
        {
            "This is the lift of a uniform map.": 1.0,
            "All of the attention can be on the object: its share is 1, not 0.8.": 4.0,
            "This is the share of the patches; divide 1 by it.": 0.2,
            "You gave percent; the lift is a quotient of two shares, so 500 % is 5.": 500.0,
        },
    ),
    "6.3": Exercise(
        right.half_gain_step,
        {
            "You returned the index; return the step.": lambda t, s: int(np.argmax(s >= (s[0] + s[-1]) / 2)),
            "This is half of the last score; the gain starts at the first score.": (
                lambda t, s: _first_step(t, s, s[-1] / 2)
            ),
            "You used the largest score; the gain ends at the last score.": (
                lambda t, s: _first_step(t, s, (s[0] + s.max()) / 2)
            ),
            "You returned the step before; return the first step above half.": (
                lambda t, s: _first_step(t, s, (s[0] + s[-1]) / 2, -1)
            ),
        },
        (np.array([0, 10, 30, 60, 100]), np.array([1.0, 1.2, 1.38, 1.9, 1.7])),
        (np.array([0, 5, 20, 70, 90]), np.array([0.2, 0.7, 0.5, 0.9, 1.0])),
    ),
    "A.1": Exercise(
        right.propagate_label,
        {
            "All patches count; use the k most similar.": lambda c, y, k, t: _average(c, y, len(c), t),
            "The temperature is missing.": lambda c, y, k, t: _average(c, y, k, 1.0),
            "You used the least similar patches.": lambda c, y, k, t: _average(c, y, k, t, farthest=True),
            "All k weigh the same; use exp(cosine / temperature).": (
                lambda c, y, k, t: y[np.argsort(c)[-k:]].mean(axis=0)
            ),
            "Divide by the sum of the weights.": (
                lambda c, y, k, t: np.exp((n := np.sort(c)[-k:]) / t) @ y[np.argsort(c)[-k:]] + 0 * n.sum()
            ),
        },
        (_COSINES, np.eye(3)[np.random.default_rng(8).integers(0, 3, 40)], 5, 0.1),
        (_COSINES[::2], np.eye(2)[np.random.default_rng(10).integers(0, 2, 20)], 3, 0.3),
    ),
    "A.2": Exercise(
        right.CANDIDATES,
        {
            "The first frame is missing.": 25 * 25 * 7,
            "The window reaches 12 patches in each direction; it is 25 wide.": 12 * 12 * 8,
            "The patch's own row and column are missing.": 24 * 24 * 8,
            "You counted one frame.": 25 * 25,
        },
        tolerance=1e-6,
    ),
    "B.1": Exercise(
        right.positive_similarities,
        {
            "You counted each patch as similar to itself; subtract 1.": lambda f: (f @ f.T > 0).sum(axis=1),
            "You added the products; count the positive ones.": lambda f: (f @ f.T).sum(axis=1),
            "You counted the negative products.": lambda f: (f @ f.T < 0).sum(axis=1),
        },
        (np.random.default_rng(3).normal(size=(9, 4)),),
        (np.random.default_rng(5).normal(size=(7, 3)),),
    ),
    "B.2": Exercise(
        right.NORMALIZED_CUT,
        {
            "Count each edge of the rest at both ends.": 1 + 1 / 4,
            "w(B, V) includes the edge that is cut.": 1 + 1 / 6,
            "This is the cut; divide it by w(A, V) and by w(B, V).": 1.0,
            "You divided by one side only; add both.": 1 / 7,
        },
        tolerance=0.005,  # 1.14
    ),
    "B.3": Exercise(
        right.BOX_IOU,
        {
            "Count the shared area once in the union.": 600 / 1700,
            "You divided by the predicted box; divide by the union.": 600 / 800,
            "You divided by the object's box; divide by the union.": 600 / 900,
        },
        tolerance=0.01,
    ),
    "C.1": Exercise(
        right.hide,
        {
            "You hid the patches with the smallest scores.": lambda x, s, share: right.hide(x, -s, share),
            "You hid the patches that should stay.": lambda x, s, share: x - right.hide(x, s, share),
            "You kept the share instead of hiding it.": lambda x, s, share: right.hide(x, s, 1 - share),
        },
        (_normal(3, 8, 12), np.random.default_rng(11).random((2, 3)), 0.3),
        (_normal(3, 6, 6, seed=1), np.random.default_rng(12).random((3, 3)), 0.6),
    ),
    "D.1": Exercise(
        right.standardize,
        {
            "You divided without subtracting the mean.": lambda x: x / x.std(dim=(0, 1)),
            "You subtracted the mean and did not divide by the deviation.": lambda x: x - x.mean(dim=(0, 1)),
            "You standardized each token; use the statistics of each channel, over images and tokens.": (
                lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
            ),
            "You standardized each image; use all images.": (
                lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
            ),
            "You used one mean and one deviation; each channel has its own.": lambda x: (
                (x - x.mean()) / x.std()
            ),
            "You divided by the variance; use its root.": (
                lambda x: (x - x.mean(dim=(0, 1))) / x.var(dim=(0, 1))
            ),
        },
        (_normal(3, 5, 4) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1,),
        (_normal(2, 6, 3, seed=1) * 2 - torch.tensor([1.0, 0.0, 3.0]),),
    ),
    "D.2": Exercise(
        right.token_loss,
        {
            "You returned the cosine; subtract it from 1.": lambda s, t: cosine_similarity(
                s, t, dim=-1
            ).mean(),
            "This is the scalar product; divide by both lengths.": lambda s, t: 1 - (s * t).sum(-1).mean(),
            "Your cosine runs over tokens; use the last axis.": (
                lambda s, t: 1 - cosine_similarity(s, t, dim=1).mean()
            ),
            "You added the terms; average them.": lambda s, t: (1 - cosine_similarity(s, t, dim=-1)).sum(),
        },
        (_normal(2, 3, 5).requires_grad_(), _normal(2, 3, 5, seed=1)),
        (_normal(1, 4, 6, seed=2).requires_grad_(), _normal(1, 4, 6, seed=3)),
    ),
    "D.3": Exercise(
        right.attention_loss,
        {
            "This is the cross-entropy; subtract the entropy.": lambda s, t: -(t * s.log()).sum(-1).mean(),
            "You exchanged teacher and student in the divergence.": lambda s, t: right.attention_loss(t, s),
            "You averaged over the patches; add them.": lambda s, t: (t * (t.log() - s.log())).mean(),
            "You averaged the heads first; compare head by head.": (
                lambda s, t: right.attention_loss(s.mean(1), t.mean(1))
            ),
        },
        (softmax(_normal(2, 3, 5), -1).requires_grad_(), softmax(_normal(2, 3, 5, seed=1), -1)),
        (softmax(_normal(1, 2, 4, seed=2), -1).requires_grad_(), softmax(_normal(1, 2, 4, seed=3), -1)),
    ),
    "D.4": Exercise(
        right.LARGEST_KL,
        {
            "This is the logarithm to base 2; use the natural logarithm.": math.log2(196),
            "You counted the patches of one side; the grid has 14 · 14 patches.": math.log(14),
            "You counted [CLS]; the attention is over 196 patches.": math.log(197),
        },
        tolerance=5e-4,
    ),
    "E.1": Exercise(
        right.contrast_loss,
        {
            "The temperature is missing.": lambda q, k, t: right.contrast_loss(q, k, 1.0),
            "You multiplied by the temperature; divide.": lambda q, k, t: right.contrast_loss(q, k, 1 / t),
            "Your softmax runs over the queries; use the keys.": lambda q, k, t: right.contrast_loss(k, q, t),
            "The other keys are missing in the denominator.": lambda q, k, t: -((q * k).sum(-1) / t).mean(),
            "You averaged over all pairs; use the diagonal.": (
                lambda q, k, t: -log_softmax(q @ k.T / t, 1).mean()
            ),
            "The own key is missing in the denominator.": (
                lambda q, k, t: (
                    (p := q @ k.T / t)
                    .masked_fill(torch.eye(len(q), dtype=torch.bool), -torch.inf)
                    .logsumexp(1)
                    - p.diagonal()
                ).mean()
            ),
        },
        (_normal(4, 6).requires_grad_(), _normal(4, 6, seed=1), 0.5),
        (_normal(3, 5, seed=2).requires_grad_(), _normal(3, 5, seed=3), 0.2),
    ),
    "E.2": Exercise(
        right.COLLAPSED_CONTRAST,
        {
            "The own key counts, too: 32 keys have the same probability.": math.log(31),
            "If all keys are equal, their probabilities are equal; the loss is not 0.": 0.0,
            "The probability is 1 / 32; the loss is its negative logarithm.": 1 / 32,
        },
        tolerance=5e-3,
    ),
    "E.3": Exercise(
        right.equal_shares,
        {
            "The last division must be that of the images.": lambda s, n: right.equal_shares(s.T, n).T,
            "You divided by the images only; the prototypes come first.": (
                lambda s, n: s / s.sum(1, keepdim=True)
            ),
            "You did one round; repeat both divisions.": lambda s, n: right.equal_shares(s, 1),
        },
        (_normal(4, 6).exp(), 3),
        (_normal(5, 3, seed=1).exp(), 2),
    ),
    "F.1": Exercise(
        right.divide,
        {
            "You counted all images; count within each class.": (
                lambda labels, n: np.arange(len(labels)) % n == n - 1
            ),
            "You selected the training images.": lambda labels, n: ~right.divide(labels, n),
            "You began with the first image of each class; begin with the n-th.": (
                lambda labels, n: np.array([sum(labels[:i] == y) % n == 0 for i, y in enumerate(labels)])
            ),
        },
        (np.array([0, 0, 1, 0, 1, 1, 0, 2, 2, 2, 0, 2]), 3),
        (np.array([1, 0, 1, 0, 1, 0, 0]), 2),
    ),
    "F.2": Exercise(
        right.standard_error,
        {
            "This is the deviation; divide by the root of the number.": lambda c: float(100 * np.std(c)),
            "You divided by the number of images; divide by its root.": lambda c: float(
                100 * np.std(c) / len(c)
            ),
            "This is the squared error; take its root.": lambda c: float(100 * np.var(c) / len(c)),
            "This is the accuracy, not its error.": lambda c: float(100 * np.mean(c)),
            "You gave a share; give percent.": lambda c: float(np.std(c) / np.sqrt(len(c))),
        },
        (np.arange(10) % 3 > 0,),
        (np.arange(24) % 5 > 1,),
    ),
    "T.1": Exercise(
        right.STORED_VALUE,
        {
            "You exchanged the first two lengths; a step of the first axis skips 3 · 4 values.": 1 * 8
            + 2 * 4,
            "You counted axes from the left; the last axis changes fastest.": 1 + 2 * 2 + 0,
        },
        tolerance=1e-6,
    ),
    "T.2": Exercise(
        right.tiles,
        {
            "Permute before you flatten; the order is missing.": lambda x, size: x.reshape(-1, size, size),
            "Your tiles run down the columns of the grid; order them row by row.": (
                lambda image, size: (
                    image.unflatten(1, (-1, size)).unflatten(0, (-1, size)).permute(2, 0, 1, 3).flatten(0, 1)
                )
            ),
            "The pixels in your tiles are transposed.": (
                lambda image, size: right.tiles(image, size).transpose(1, 2)
            ),
            "Your tiles contain distant pixels; the second length of each division is size.": (
                lambda image, size: (
                    image.unflatten(1, (size, -1)).unflatten(0, (size, -1)).permute(1, 3, 0, 2).flatten(0, 1)
                )
            ),
        },
        (torch.arange(48.0).reshape(6, 8), 2),
        (torch.arange(54.0).reshape(6, 9), 3),
    ),
    "T.3": Exercise(
        right.split_heads,
        {
            "The order did not change; transpose tokens and heads.": lambda x, n: x.unflatten(2, (n, -1)),
            "reshape mixes tokens; divide the last axis first.": (
                lambda x, n: x.reshape(len(x), n, x.shape[1], -1)
            ),
            "A head has neighboring values; the first length is the number of heads.": (
                lambda x, heads: x.unflatten(2, (-1, heads)).permute(0, 3, 1, 2)
            ),
        },
        (_normal(2, 5, 12), 3),
        (_normal(1, 4, 8, seed=1), 2),
    ),
}
"""Exercises by number; optional lessons have letters."""

HINTS: Mapping[str, str] = {
    "1.1": "unflatten gives rows and columns axes of their own; permute orders the axes; flatten joins them.",
    "1.2": "Compute the number of patches on one side, then in the grid, then add [CLS].",
    "1.3": "Compute the products of all queries and keys first, [B, heads, tokens, tokens]; then scale, then softmax.",
    "1.4": "Write one line for each part, of the form tokens = tokens + part(norm(tokens)).",
    "2.1": "np.argsort and np.cumsum of the shares give the sum that is reached before each patch.",
    "2.2": "& and | of Boolean arrays give the pixels in both masks and in at least one mask.",
    "2.3": "scores.max(axis=...) has one value for each image.",
    "3.1": "Multiply the numbers of crops of both networks, then subtract the pairs of the same crop.",
    "3.2": "The order is: subtract, divide, softmax with dim=-1.",
    "3.3": "torch.log_softmax gives the logarithms; flip(0) exchanges the two crops.",
    "3.4": "The two factors add up to 1.",
    "4.1": "All 256 terms of the sum are equal.",
    "4.2": "The KL is the cross-entropy of both distributions minus the entropy of the teacher.",
    "4.3": "Solve λ^n = 0.5 with logarithms.",
    "5.1": "np.bincount(labels, weights, minlength) adds weights by label.",
    "5.2": "Two of the three classes are never predicted.",
    "6.1": "attention[mask].sum() is the attention on the object; mask.mean() is its share of the patches.",
    "6.2": "Which share of the attention can be on the object at most?",
    "6.3": "np.argmax of a Boolean array gives the index of its first True.",
    "A.1": "The weights of the k patches add up to 1.",
    "A.2": "The window has the width 2 · 12 + 1.",
    "B.1": "features @ features.T has all products; its diagonal belongs to the patches themselves.",
    "B.2": "w(B, V) counts an edge inside of B at both of its ends.",
    "B.3": "Compute the width and height of the shared box first.",
    "C.1": "Make a mask of patches from np.argsort(scores.ravel()), then repeat each value to the size of a patch.",
    "D.1": "tokens.mean(dim=(0, 1)) has one value for each channel; std takes the same argument.",
    "D.2": "torch.nn.functional.cosine_similarity(..., dim=-1) gives one cosine for each token.",
    "D.3": "Multiply the teacher's attention with the difference of the logarithms, then sum over the patches.",
    "D.4": "Only the patch with the teacher's attention has a term; its share is 1 in the teacher and 1 / 196 here.",
    "E.1": "queries @ keys.T has the products of all pairs; those of a query and its own key are on the diagonal.",
    "E.2": "All products are equal, so the softmax gives each key the same probability.",
    "E.3": "A sum over dim=0 belongs to a prototype, a sum over dim=1 to an image.",
    "F.1": "np.flatnonzero(labels == label) gives the images of a class; a slice [start::step] selects every n-th.",
    "F.2": "The variance of a value that is 0 or 1 with mean p is p (1 - p).",
    "T.1": "The value is 12 times the first index, plus 4 times the second, plus the third.",
    "T.2": "Divide both axes, then permute so that the two axes of the grid come first.",
    "T.3": "unflatten(2, (heads, -1)) gives [B, tokens, heads, d].",
}
"""Second help for each exercise, after the name of the mistake."""
