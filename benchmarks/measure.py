"""Base of the benchmarks: a computation and its plain references, alternating in one run."""

import inspect
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from timeit import timeit

from dino_model.runtime.files import write_json

Computation = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Options of every benchmark. A subclass defines `peers` and `compare`.

    Seconds are those of a processor: set OMP_NUM_THREADS=1, so that they are those of a clock, too.
    """

    repeats: int = 3
    """Timed turns of each side, at least 1."""
    json: Path | None = None
    """Write the results to this file."""

    def peers(self) -> dict[str, tuple[Computation, Computation]]:
        """Load the computation of this project and that of each peer, by the name of the peer."""
        raise NotImplementedError

    def compare(self) -> tuple[str, ...]:
        """Compare the results; describe settings and agreement.

        Raises:
            SystemExit: The results differ.
        """
        raise NotImplementedError

    def run(self) -> None:
        """Compare, measure seconds, print the ratios and the machine's load."""
        name, remarks, ratios = Path(inspect.getfile(type(self))).stem, self.compare(), {}
        for peer, sides in self.peers().items():
            package, reference = median_seconds(*sides, repeats=self.repeats)
            ratio = reference / package
            ratios[peer] = {"package": package, "reference": reference, "ratio": ratio}
            print(f"{name}: {package:.3f} s, {peer} {reference:.3f} s: {ratio:.2f} times faster", flush=True)
        print(*(f"  {remark}" for remark in remarks), sep="\n")
        if hasattr(os, "getloadavg"):  # not on Windows
            print(f"  load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        if self.json:
            write_json(self.json, {"name": name, "peers": ratios, "remarks": remarks})


def processor_seconds() -> float:
    """Processor time of this process and of its children that have ended; other programs do not count."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def median_seconds(*sides: Computation, repeats: int) -> list[float]:
    """Return the median processor seconds of computations in turns, after one warm-up each."""
    for side in sides:
        side()
    times: dict[Computation, list[float]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side in random.sample(sides, len(sides)):  # each finds the caches as another one left them
            times[side].append(timeit(side, timer=processor_seconds, number=1))
    return [median(times[side]) for side in sides]
