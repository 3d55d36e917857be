"""Diagnose a collapse from the metrics of a log. The bounds are far below the values of runs that learn."""

import math
from collections.abc import Mapping

COLLAPSED_KL = 0.01
"""nats."""
UNIFORM_KL = 0.05
"""nats; next to an entropy of ln K, a KL below it is noise about the uniform output."""
FEW_PROTOTYPES = 2.0
"""Prototypes in use by a batch."""
MIN_INFORMATION = 0.05
"""nats of mutual information between image and prototype."""
COLLAPSED_SPREAD = 0.05
"""Value of `losses.spread`."""
ONE_PROTOTYPE_REMEDY = (
    "keep --teacher-output centering, lower --center-momentum or raise --teacher-temperature"
)


def collapse(logs: Mapping[str, float]) -> str | None:
    """Name the collapse of a teacher's output and the option to change, or return None.

    Let H be the mean entropy of the teacher's outputs. Section 5.3 of the paper names two collapses: one
    prototype for all images (H = 0) and all prototypes equal (H = ln K). In both the divergence from the
    student falls to 0, but it falls last. Two values of a batch show a collapse earlier: the number of
    prototypes in use, exp of the entropy of the mean output, and the mutual information of image and
    prototype, which is the logarithm of that number minus H.

    Args:
        logs: Metrics by name. `teacher_entropy`, `kl` and `ln_k` in nats are required for a diagnosis;
            `prototypes`, the number in use by a batch, is optional.
    """
    if not {"teacher_entropy", "kl", "ln_k"} <= logs.keys():
        return None
    entropy, kl, uniform = logs["teacher_entropy"], logs["kl"], logs["ln_k"]
    number = math.exp(uniform)
    used = max(1.0, logs.get("prototypes", math.inf))
    all_equal, information = entropy > 0.99 * uniform, math.log(used) - entropy
    if used < min(FEW_PROTOTYPES, number / 8):
        return (
            f"collapse to one prototype: a batch uses {used:.1f} of {number:.0f}, "
            f"teacher entropy {entropy:.3f}, KL {kl:.4f}; {ONE_PROTOTYPE_REMEDY}"
        )
    if kl >= (UNIFORM_KL if all_equal else COLLAPSED_KL) and information >= MIN_INFORMATION:
        return None
    if entropy < 0.05 * uniform:
        return (
            f"collapse to one prototype: teacher entropy {entropy:.3f} is near 0 and KL {kl:.4f}; "
            f"{ONE_PROTOTYPE_REMEDY}"
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


def sameness(logs: Mapping[str, float], remedy: str) -> str | None:
    """Describe nearly equal projections of different images and the remedy, or return None.

    Args:
        logs: Metrics by name; `spread`, 0 to 1, is required for a diagnosis.
        remedy: Options to change.
    """
    spread = logs.get("spread", 1.0)
    if spread >= COLLAPSED_SPREAD:
        return None
    return f"collapse: projections of different images are nearly equal, spread {spread:.4f} of 1; {remedy}"
