"""Time and memory of two ways to compute the same thing, measured side by side in one run."""

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dino_model.files import write_text

PROCESS = Path("/proc/self")  # Linux tells and resets a process's peak memory here

Computation = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """What one benchmark found.

    Attributes:
        name: of the benchmark's module.
        ours, reference: median cost of one computation, in `unit`.
        unit: of both, "s" unless said otherwise.
        ours_memory, reference_memory: peak above the loaded model, in bytes; None where not measured.
        remarks: sentences to print below the figures: settings, precision, agreement of both results.
    """

    name: str
    ours: float
    reference: float
    unit: str = "s"
    ours_memory: int | None = None
    reference_memory: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.reference / self.ours

    @property
    def memory_ratio(self) -> float | None:
        """Extra memory of ours as a share of the reference's; None where either is unknown."""
        if self.ours_memory is None or not self.reference_memory:
            return None
        return self.ours_memory / self.reference_memory

    def as_text(self) -> str:
        """The lines a person reads."""
        lines = [
            f"{self.name}: ours {self.ours:.3f} {self.unit}, reference {self.reference:.3f} {self.unit}: "
            f"{self.ratio:.2f} times faster"
        ]
        if self.memory_ratio is None:
            lines.append("  extra memory: not measured")
        else:
            lines.append(
                f"  extra memory: ours {_megabytes(self.ours_memory)}, "
                f"reference {_megabytes(self.reference_memory)}: {self.memory_ratio:.2f} of it"
            )
        return "\n".join(lines + [f"  {remark}" for remark in self.remarks])

    def as_json(self) -> dict[str, str | float | None]:
        """The figures a program reads; memory in bytes, null where not measured."""
        return {
            "name": self.name,
            "ratio": self.ratio,
            "ours": self.ours,
            "reference": self.reference,
            "unit": self.unit,
            "memory_ratio": self.memory_ratio,
            "ours_memory": self.ours_memory,
            "reference_memory": self.reference_memory,
        }


def report(result: Result, file: Path | None = None) -> None:
    """Print the result and the machine's load; where a file is named, write the figures there as JSON."""
    print(result.as_text())
    if hasattr(os, "getloadavg"):  # not on Windows
        print(f"  load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if file is not None:
        write_text(file, json.dumps(result.as_json(), indent=2) + "\n")


def median_seconds(ours: Computation, reference: Computation, repeats: int = 3) -> tuple[float, float]:
    """Median wall time of both in seconds, after one warm-up each.

    They take turns, so that whatever else the machine does slows both alike.

    Raises:
        ValueError: `repeats` below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, found {repeats}")
    ours()
    reference()
    turns = [(_seconds(ours), _seconds(reference)) for _ in range(repeats)]
    return median(turn[0] for turn in turns), median(turn[1] for turn in turns)


def extra_memory(build: Callable[[], Computation]) -> int | None:
    """Peak memory of one computation in bytes, above what stands loaded before it.

    Args:
        build: module-level function that loads what is needed and returns the computation. It runs in a
            fresh process, so that nothing else counts.

    Returns:
        None where the system does not tell a process its peak (all but Linux).
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
    """Seconds and extra memory of both computations.

    Args:
        name: of the benchmark's module.
        build_ours, build_reference: see `extra_memory`.
        repeats: timed turns of each, at least 1.
        remarks: see `Result`.
        memory_of: measures what one computation adds, in bytes; another is needed off the CPU.
    """
    ours, reference = median_seconds(build_ours(), build_reference(), repeats)
    memory, reference_memory = (memory_of(build) for build in (build_ours, build_reference))
    return Result(name, ours, reference, "s", memory, reference_memory, remarks)


def _extra_memory_here(build: Callable[[], Computation]) -> int:
    compute = build()
    gc.collect()
    (PROCESS / "clear_refs").write_text("5")  # the peak falls back to what is in use now
    before = _status("VmRSS")
    compute()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    """A memory figure of this process in bytes."""
    fields = dict(line.split(":", 1) for line in (PROCESS / "status").read_text().splitlines())
    return int(fields[field].split()[0]) * 1024


def _seconds(compute: Computation) -> float:
    start = time.perf_counter()
    compute()
    return time.perf_counter() - start


def _megabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:,.0f} MB"
