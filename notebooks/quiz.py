"""`python -m notebooks.quiz --seed 1`: print a quiz whose numbers depend on a seed, and its answers."""

import itertools
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tyro

from dino_model.runtime.outputs import run_command

QUESTIONS: Sequence[tuple[str, dict[str, tuple[float, ...]], Callable[..., float]]] = (
    (
        "An image of {side} × {side} pixels has patches of {patch} × {patch} pixels. How many tokens?",
        {"side": (112, 224, 448), "patch": (8, 16)},
        lambda side, patch: (side // patch) ** 2 + 1,
    ),
    (
        "A mask has {mask} pixels, the object {object}, both share {both}. What is the Jaccard similarity?",
        {"mask": (80, 100, 120), "object": (50, 60, 90), "both": (30, 40)},
        lambda mask, object, both: both / (mask + object - both),
    ),
    (
        "An image has {globals} global and {locals} local crops. How many pairs does DINO's loss compare?",
        {"globals": (2, 3), "locals": (4, 6, 10)},
        lambda globals, locals: globals * (globals + locals) - globals,
    ),
    (
        "The momentum of the teacher is {momentum}. After how many steps does a weight count half?",
        {"momentum": (0.9, 0.95, 0.99, 0.996)},
        lambda momentum: math.log(0.5) / math.log(momentum),
    ),
    (
        "A teacher has the uniform output over {prototypes} prototypes. What is its entropy in nats?",
        {"prototypes": (64, 1024, 4096, 65536)},
        math.log,
    ),
    (
        "An object covers {area} % of the image and has {share} % of the attention. What is the lift?",
        {"area": (10, 20, 25), "share": (30, 40, 70)},
        lambda area, share: share / area,
    ),
)
"""Text, values of its names, and a function of these values that returns the answer."""


@dataclass(frozen=True)
class Quiz:
    """Print a quiz and its answers."""

    seed: int = 0
    """Number of the variant."""

    def run(self) -> None:
        """Print the questions, then the answers."""
        answers = []
        for number, (text, choices, answer) in enumerate(QUESTIONS, 1):
            variants = list(itertools.product(*choices.values()))
            values = random.Random(f"{self.seed}/{number}").choice(variants)
            print(f"{number}. {text.format(**dict(zip(choices, values, strict=True)))}")
            answers.append(f"{number}. {answer(*values):.4g}")
        print("Answers:", *answers)


if __name__ == "__main__":
    sys.exit(run_command(tyro.cli(Quiz, prog="python -m notebooks.quiz").run))
