"""Base of the benchmarks: a computation and its plain reference, alternating in one run."""

import gc
import inspect
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from timeit import timeit

from dino_model.runtime.files import write_json

PROCESS = Path("/proc/self")
"""Linux reports and resets the peak memory of a process here."""

Computation = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Options of every benchmark. A subclass defines `package`, `reference` and `compare`.

    Seconds are those of a processor: set OMP_NUM_THREADS=1, so that they are those of a clock, too.
    """

    repeats: int = 3
    """Timed turns of each side, at least 1."""
    json: Path | None = None
    """Write the results to this file."""

    def package(self) -> Computation:
        """Load what is needed and return the computation of this project."""
        raise NotImplementedError

    def reference(self) -> Computation:
        """Load what is needed and return the plain computation."""
        raise NotImplementedError

    def compare(self) -> tuple[str, ...]:
        """Compare both results; describe settings and agreement.

        Raises:
            SystemExit: The results differ.
        """
        raise NotImplementedError

    def run(self) -> None:
        """Compare, measure seconds and memory, print the ratios and the machine's load."""
        name, remarks = Path(inspect.getfile(type(self))).stem, self.compare()
        package, reference = median_seconds(self.package(), self.reference(), self.repeats)
        ratio = reference / package
        results = {"name": name, "package": package, "reference": reference, "ratio": ratio}
        print(f"{name}: package {package:.3f} s, reference {reference:.3f} s: {ratio:.2f} times faster")
        if (PROCESS / "clear_refs").exists():
            extra, plain = extra_memory(self.package), extra_memory(self.reference)
            results |= {"package_memory": extra, "reference_memory": plain}
            print(f"  extra memory: package {extra:,} bytes, reference {plain:,} bytes")
        print(*(f"  {remark}" for remark in remarks), sep="\n")
        if hasattr(os, "getloadavg"):  # not on Windows
            print(f"  load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        if self.json:
            write_json(self.json, results | {"remarks": remarks})


def processor_seconds() -> float:
    """Processor time of this process and of its children that have ended; other programs do not count."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def median_seconds(package: Computation, reference: Computation, repeats: int = 3) -> tuple[float, float]:
    """Return the median processor seconds of two computations in turns, after one warm-up each."""
    package()
    reference()
    turns = [
        tuple(timeit(side, timer=processor_seconds, number=1) for side in (package, reference))
        for _ in range(repeats)
    ]
    return median(turn[0] for turn in turns), median(turn[1] for turn in turns)


def extra_memory(build: Callable[[], Computation]) -> int:
    """Measure the peak memory in bytes of one computation, above what was loaded before it.

    Args:
        build: Picklable function that loads what is needed and returns the computation. A new process
            runs it.
    """
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_extra_memory_here, build).result()


def _extra_memory_here(build: Callable[[], Computation]) -> int:
    compute = build()
    gc.collect()
    (PROCESS / "clear_refs").write_text("5")  # sets the peak to the memory in use
    before = _status("VmRSS")
    compute()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    fields = dict(line.split(":", 1) for line in (PROCESS / "status").read_text().splitlines())
    return int(fields[field].split()[0]) * 1024
