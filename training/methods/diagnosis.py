"""What the figures of a log say is wrong, in one sentence each."""

import math
from collections.abc import Mapping

COLLAPSED_KL = 0.01
"""nats; far below any KL that a learning run shows."""
UNIFORM_KL = 0.05
"""nats; beside an entropy of ln K it is noise about the uniform output, not what pictures differ in."""
FEW_PROTOTYPES = 2.0
"""In use by a batch; no learning run of many prototypes shows so few."""
COLLAPSED_SPREAD = 0.05
"""Far below any `losses.spread` that a learning run shows."""


def collapse(logs: Mapping[str, float]) -> str | None:
    """Name the collapse of a teacher's output, come or coming, and the likely knob, or None.

    With H the entropy of the teacher's output and KL its divergence from the student's, a KL of zero means an
    output that no longer depends on the picture; H then tells which of the two collapses it is, one prototype
    for all (H = 0) or all prototypes alike (H = ln K). Source: section 5.3 of the paper. The KL falls last:
    where H is near 0 and a batch uses hardly more than one prototype, the student has only to follow.

    Args:
        logs: holds `teacher_entropy`, `kl` and `ln_k` in nats, without one of which nothing is said; and
            maybe `prototypes`, how many a batch uses.
    """
    if not {"teacher_entropy", "kl", "ln_k"} <= logs.keys():
        return None
    entropy, kl, uniform = logs["teacher_entropy"], logs["kl"], logs["ln_k"]
    all_alike, one_wins = entropy > 0.99 * uniform, entropy < 0.05 * uniform
    used = logs.get("prototypes", math.inf)
    remedy = "the center does not hold it back: lower --center-momentum or raise --teacher-temperature"
    if one_wins and kl >= COLLAPSED_KL and used < FEW_PROTOTYPES:
        return (
            f"collapse to one prototype, which the student follows: a batch uses {used:.1f} of "
            f"{math.exp(uniform):.0f}, teacher entropy {entropy:.3f}, KL {kl:.4f}; {remedy}"
        )
    if kl >= (UNIFORM_KL if all_alike else COLLAPSED_KL):
        return None
    if one_wins:
        return f"collapse to one prototype: teacher entropy {entropy:.3f} is near 0 and KL {kl:.4f}; {remedy}"
    if all_alike:
        return (
            f"collapse to the uniform output: teacher entropy {entropy:.3f} is ln K = {uniform:.3f}, "
            f"KL {kl:.4f}; sharpen the teacher: lower --teacher-temperature, or warm it up over more epochs"
        )
    return (
        f"KL {kl:.4f} is near 0: the teacher's output hardly depends on the picture; "
        "lower --teacher-temperature or the learning rate"
    )


def sameness(logs: Mapping[str, float], remedy: str) -> str | None:
    """Say that different pictures are projected to nearly the same, and what to do; or None.

    Args:
        logs: holds `spread`, 0 to 1; without it nothing is said.
        remedy: the method's knobs.
    """
    spread = logs.get("spread", 1.0)
    if spread >= COLLAPSED_SPREAD:
        return None
    return (
        f"collapse: different pictures are projected to nearly the same, spread {spread:.4f} of 1; {remedy}"
    )
