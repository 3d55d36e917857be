"""Time and memory of two ways to compute the same result, alternating in one run."""

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from dino_model.files import write_text

PROCESS = Path("/proc/self")
"""Linux reports and resets the peak memory of a process here."""

Computation = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """Median seconds of this implementation and of the reference.

    Attributes:
        name: Name of the benchmark's module.
        ours, reference: Duration of one computation.
        ours_memory, reference_memory: Peak above the loaded model, in bytes; None if not measured.
        remarks: Sentences on settings, precision and agreement.
    """

    name: str
    ours: float
    reference: float
    ours_memory: int | None = None
    reference_memory: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Cost of the reference over ours."""
        return self.reference / self.ours

    @property
    def memory_ratio(self) -> float | None:
        """Extra memory of ours over that of the reference; None if either was not measured."""
        if self.ours_memory is None or not self.reference_memory:
            return None
        return self.ours_memory / self.reference_memory


def report(result: Result, file: Path | None = None) -> None:
    """Print a result and the machine's load; write it to a JSON file if one is given."""
    print(
        f"{result.name}: ours {result.ours:.3f} s, reference {result.reference:.3f} s: "
        f"{result.ratio:.2f} times faster"
    )
    if result.memory_ratio is not None:
        print(
            f"  extra memory: ours {result.ours_memory:,} bytes, {result.memory_ratio:.2f} of the reference's"
        )
    print(*(f"  {remark}" for remark in result.remarks), sep="\n")
    if hasattr(os, "getloadavg"):  # not on Windows
        print(f"  load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if file is not None:
        values = asdict(result) | {"ratio": result.ratio, "memory_ratio": result.memory_ratio}
        write_text(file, json.dumps(values, indent=2) + "\n")


def median_seconds(ours: Computation, reference: Computation, repeats: int = 3) -> tuple[float, float]:
    """Return the median seconds of two computations in turns, after one warm-up each.

    Turns let other load slow both alike.
    """
    ours()
    reference()
    turns = [(_seconds(ours), _seconds(reference)) for _ in range(repeats)]
    return median(turn[0] for turn in turns), median(turn[1] for turn in turns)


def extra_memory(build: Callable[[], Computation]) -> int | None:
    """Measure the peak memory of one computation above what was loaded before it.

    Args:
        build: Module-level function that loads what is needed and returns the computation. It runs in a new
            process.

    Returns:
        Bytes; None on systems other than Linux.
    """
    if not (PROCESS / "clear_refs").exists():
        return None
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_extra_memory_here, build).result()


def measure(
    name: str,
    build_ours: Callable[[], Computation],
    build_reference: Callable[[], Computation],
    *,
    repeats: int,
    remarks: tuple[str, ...],
    memory_of: Callable[[Callable[[], Computation]], int | None] = extra_memory,
) -> Result:
    """Measure seconds and extra memory of both computations in `repeats` turns.

    Args:
        name, remarks: See `Result`.
        build_ours, build_reference: See `extra_memory`.
        repeats: Timed turns of each, at least 1.
        memory_of: Measures the extra memory; a GPU needs another function.
    """
    ours, reference = median_seconds(build_ours(), build_reference(), repeats)
    return Result(name, ours, reference, memory_of(build_ours), memory_of(build_reference), remarks)


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


def _seconds(compute: Computation) -> float:
    start = time.perf_counter()
    compute()
    return time.perf_counter() - start
