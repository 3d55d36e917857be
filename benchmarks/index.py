"""The index of a made-up collection of 14 million pictures: seconds to open, and memory of a worker.

python -m benchmarks.index [--entries N] [--json FILE]
"""

import json as json_format
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tyro

from dino_model import files
from dino_model.images import Images
from dino_model.index import Numbers, Texts, keep, mapped

PER_TAR = 14_000
READS = 200_000
"""Pictures that a worker asks for: as many as it decodes in some minutes."""


@dataclass(frozen=True)
class Index:
    """Against tuples of Python's objects from JSON, as a plain program has them; of these a share is made."""

    entries: int = 14_000_000
    """Pictures, in tars of 14,000."""
    share: int = 20
    """The plain way has one picture in so many."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Make both, measure, print."""
        with tempfile.TemporaryDirectory() as folder:
            ours, plain = Path(folder) / "index.safetensors", Path(folder) / "index.json"
            write(ours, self.entries)
            write_plain(plain, self.entries // self.share)
            size = ours.stat().st_size
            found = {
                "ours": in_a_process(partial(measured, partial(opened, ours))),
                "reference": in_a_process(partial(measured, partial(opened_plain, plain))),
            }
        seconds, memory, worker = found["ours"]
        plain_seconds, plain_memory = (value * self.share for value in found["reference"][:2])
        few, plain_worker = self.entries // self.share, found["reference"][2]
        print(
            f"index: {self.entries:,} pictures, {size / 1e6:,.0f} MB on disk: {seconds:.3f} s to open, "
            f"{memory / 1e6:,.0f} MB; after {READS:,} reads {worker / 1e6:,.1f} MB of each worker's own"
        )
        print(
            f"  tuples from JSON, {self.share} times those of {few:,}: {plain_seconds:.1f} s, "
            f"{plain_memory / 1e6:,.0f} MB; of {few:,} already {plain_worker / 1e6:,.0f} MB of each worker's"
        )
        if self.json:
            figures = {"name": "index", "entries": self.entries, "unit": "s", "ours": seconds}
            figures |= {"reference": plain_seconds, "ratio": plain_seconds / seconds, "bytes": size}
            figures |= {"ours_memory": memory, "reference_memory": plain_memory}
            files.write_json(self.json, figures | {"worker": worker, "reference_worker": plain_worker})


def name_of(number: int) -> str:
    """As ImageNet-21k's are: class and number."""
    tar, inside = divmod(number, PER_TAR)
    return f"n{tar:08d}/n{tar:08d}_{inside:05d}.JPEG"


def write(path: Path, entries: int) -> None:
    """As `images.open_images` keeps it."""
    letters = np.frombuffer("".join(map(name_of, range(entries))).encode(), np.uint8)
    ends = np.arange(1, entries + 1) * len(name_of(0))
    sizes = np.random.default_rng(0).integers(20_000, 200_000, entries)
    tars = (np.arange(entries) // PER_TAR).astype("<i4")
    extents = np.stack([np.cumsum(sizes), sizes], axis=1)
    keep(path, {"letters": letters, "ends": ends, "extents": extents, "tar_of": tars, "labels": tars}, {})
    with path.open("rb+") as file:
        os.fsync(file)  # what is not on the disk yet would count as written to by whoever reads it


def write_plain(path: Path, entries: int) -> None:
    """Names with offset, size, tar and label, as JSON."""
    rows = {name_of(i): (i * 100_000, 100_000, i // PER_TAR, i // PER_TAR) for i in range(entries)}
    path.write_text(json_format.dumps(rows), encoding="utf-8")


def opened(path: Path) -> Images:
    """The collection, mapped."""
    arrays, _ = mapped(path)
    extents, tars, labels = (Numbers(arrays[name]) for name in ("extents", "tar_of", "labels"))
    names = Texts(arrays["letters"], arrays["ends"])
    return Images(names, labels, (), Path(), extents, tar_of=tars)


def opened_plain(path: Path) -> Images:
    """The collection as tuples."""
    rows = json_format.loads(path.read_text(encoding="utf-8"))
    offsets, sizes, tars, labels = zip(*rows.values(), strict=True)
    return Images(tuple(rows), labels, (), Path(), tuple(zip(offsets, sizes, strict=True)), tar_of=tars)


def measured(make: Callable[[], Images]) -> list[float]:
    """Seconds to make a collection, bytes that it takes, and bytes that a worker adds who reads from it."""
    before, begun = private(), time.perf_counter()
    images = make()
    seconds = time.perf_counter() - begun
    return [seconds, private() - before, in_a_process(lambda: [read(images)])[0]]


def read(images: Images) -> float:
    """Ask for names and places all over the collection; returns the bytes that became this process's own."""
    places = np.random.default_rng(1).integers(0, len(images), READS).tolist()
    before = private()
    assert images.extents is not None
    assert images.labels is not None
    total = sum(len(images.names[i]) + images.extents[i][1] + images.labels[i] for i in places)
    assert total
    return private() - before


def private() -> float:
    """Bytes of this process that no other has: what was written to, or copied."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return 1024.0 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))


def in_a_process(work: Callable[[], Sequence[float]]) -> list[float]:
    """What `work` finds in a process forked from this one, as a worker is."""
    with tempfile.NamedTemporaryFile() as answer:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                Path(answer.name).write_text(json_format.dumps(list(work())), encoding="ascii")
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("a measuring process failed")
        return [float(value) for value in json_format.loads(Path(answer.name).read_text(encoding="ascii"))]


if __name__ == "__main__":
    tyro.cli(Index).run()
