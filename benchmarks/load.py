"""Twenty visitors at once, each with new pictures, for two minutes: no error, no mix-up, steady memory.

python -m benchmarks.load [--users N] [--seconds S] [--json FILE]

It starts a page of its own, on this machine only, and ends it. Linux: memory is read from /proc.
"""

import base64
import io
import json
import re
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import tyro
from gradio_client import Client
from numpy.typing import NDArray
from PIL import Image

from benchmarks.browsing import seen_queue_position
from benchmarks.serving import serving
from dino_model.files import write_text
from dino_model.predictor import AttentionPredictor

SIZE = 224
MEMORY_MB = 100
"""Of the page's cache. Full within seconds, so that what grows afterwards is a leak."""
SAME_PICTURE = 8.0
"""Mean difference of grey levels that JPEG may make; two of the pictures here differ by about 40."""
SAME_MAPS = 1e-3
STEADY = 0.1
CHECKED = 20
"""So many answers are computed again by the library afterwards."""


@dataclass(frozen=True)
class Load:
    """Visitors who encode pictures and ask for attention by the endpoints, as fast as they are served."""

    users: int = 20
    """How many at once."""
    seconds: float = 120.0
    """For how long; memory is compared between the first quarter's end and the end."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Serve, visit, look again, print; ends with an error where something was not as it should be."""
        options = f"--port 0 --size {SIZE} --precision fp32 --device cpu --max-memory-mb {MEMORY_MB}".split()
        with serving(*options) as page:
            visits, memory, position = visit(page.address, page.process.pid, self.users, self.seconds)
        figures = summary(visits, memory, position, self)
        print(as_text(figures))
        if self.json is not None:
            write_text(self.json, json.dumps(asdict(figures), indent=2) + "\n")
        if found := figures.faults():
            sys.exit("error: " + "; ".join(found))


@dataclass(frozen=True)
class Answer:
    """What one visitor got for one picture."""

    picture: NDArray[np.uint8]
    maps: NDArray[np.float32]
    """[heads, rows, columns]"""
    seconds: float
    """From the picture sent to the maps received."""


@dataclass
class Visits:
    """What all visitors saw; lists are safe to append to from several threads."""

    times: list[float] = field(default_factory=list)
    kept: list[Answer] = field(default_factory=list)
    """Some of the answers, to be computed again."""
    errors: list[str] = field(default_factory=list)
    mixed_up: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    """What a run found; times in seconds, memory in MB."""

    users: int
    seconds: float
    pictures: int
    errors: int
    first_error: str | None
    mixed_up: int
    computed_again: int
    """Answers that the library computed again, and their largest difference from what came back."""
    largest_difference: float
    median_seconds: float
    p95_seconds: float
    memory_early: float
    memory_late: float
    queue_position: str | None

    @property
    def memory_growth(self) -> float:
        """As a share of the early one."""
        return self.memory_late / self.memory_early - 1

    def faults(self) -> list[str]:
        """What was not as it should be, in words."""
        checks = {
            f"{self.errors} errors, the first: {self.first_error}": self.errors > 0,
            "no picture was answered": self.computed_again == 0,
            "somebody got what belongs to another picture": self.mixed_up > 0
            or self.largest_difference > SAME_MAPS,
            f"memory changed by {self.memory_growth:+.0%}": abs(self.memory_growth) > STEADY,
            "no queue position was seen in the page": self.queue_position is None,
        }
        return [fault for fault, found in checks.items() if found]


def visit(
    address: str, process: int, users: int, seconds: float
) -> tuple[Visits, list[tuple[float, int]], str | None]:
    """Let all visitors in for a while; what they saw, the page's memory by second, a queue position seen."""
    memory: list[tuple[float, int]] = []
    visits, done = Visits(), threading.Event()
    clients = [Client(address, verbose=False) for _ in range(users)]
    start = time.monotonic()
    with ThreadPoolExecutor(users) as pool:
        running = [
            pool.submit(visitor, client, user, start + seconds, address, visits)
            for user, client in enumerate(clients)
        ]
        watching = threading.Thread(target=watch_memory, args=(process, start, memory, done))
        watching.start()
        position = seen_queue_position(address, timeout=seconds)
        for each in running:
            each.result()
        done.set()
        watching.join()
    return visits, memory, position


def visitor(client: Client, user: int, until: float, address: str, visits: Visits) -> None:
    """Send new pictures, one after the other, and check that what comes back is theirs."""
    turn = 0
    while time.monotonic() < until:
        picture, before = new_picture(user, turn), time.monotonic()
        try:
            seen = client.predict(as_base64(picture), size=SIZE, api_name="/encode")
            maps = client.predict(seen["token"], api_name="/attention")["maps"]
            shown = fetch_picture(f"{address}/lab/encodings/{seen['token']}/picture.jpg")
        except Exception as error:
            visits.errors.append(f"{type(error).__name__}: {error}"[:200])
            continue
        finally:
            turn += 1
        answer = Answer(picture, np.array(maps, np.float32), time.monotonic() - before)
        visits.times.append(answer.seconds)
        if shown.shape != picture.shape or np.abs(shown.astype(int) - picture).mean() > SAME_PICTURE:
            visits.mixed_up.append(f"visitor {user} sent picture {turn} and was shown another")
        if turn == 1 + user % 4 or turn % 20 == 0:  # not only early ones, and not all: they stay in memory
            visits.kept.append(answer)


def new_picture(user: int, turn: int) -> NDArray[np.uint8]:
    """Nobody else's: smooth random colours, and a width and height of its own."""
    rng = np.random.default_rng([user, turn])
    noise = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    width, height = 640 + user, 480 + turn % 32
    return np.array(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def as_base64(picture: NDArray[np.uint8]) -> str:
    """The picture as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode()


def fetch_picture(address: str) -> NDArray[np.uint8]:
    """What the page shows of an encoding: [height, width, 3]."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return np.array(Image.open(io.BytesIO(answer.read())))


def watch_memory(process: int, start: float, memory: list[tuple[float, int]], done: threading.Event) -> None:
    """Append second and resident bytes of a process, twice a second."""
    status = Path(f"/proc/{process}/status")
    while not done.wait(0.5):
        resident = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        if resident:
            memory.append((time.monotonic() - start, int(resident[1]) * 1024))


def summary(visits: Visits, memory: list[tuple[float, int]], position: str | None, load: Load) -> Figures:
    """The figures, with a sample of the answers computed again by the library."""
    times = sorted(visits.times)
    sample = visits.kept[:: max(1, len(visits.kept) // CHECKED)][:CHECKED]
    return Figures(
        users=load.users,
        seconds=load.seconds,
        pictures=len(times),
        errors=len(visits.errors),
        first_error=visits.errors[0] if visits.errors else None,
        mixed_up=len(visits.mixed_up),
        computed_again=len(sample),
        largest_difference=largest_difference(sample),
        median_seconds=median(times or [0.0]),
        p95_seconds=times[int(0.95 * (len(times) - 1))] if times else 0.0,
        memory_early=around(memory, load.seconds / 4) / 1e6,
        memory_late=around(memory, load.seconds) / 1e6,
        queue_position=position,
    )


def around(memory: list[tuple[float, int]], second: float) -> float:
    """Median memory of the samples within five seconds, in bytes.

    Raises:
        ValueError: none was taken.
    """
    near = [size for at, size in memory if abs(at - second) <= 5]
    if not near:
        raise ValueError(f"no memory was read around second {second:.0f}: the run was too short")
    return median(near)


def largest_difference(answers: list[Answer]) -> float:
    """Between the maps that came back and those the library computes of the same pictures."""
    predictor = AttentionPredictor("embedded", size=SIZE, precision="fp32", device="cpu")
    largest = 0.0
    for answer in answers:
        predictor.set_image(answer.picture)
        largest = max(largest, float(np.abs(predictor.cls_attention() - answer.maps).max()))
    return largest


def as_text(of: Figures) -> str:
    """The lines a person reads."""
    return "\n".join(
        (
            f"load: {of.users} visitors for {of.seconds:.0f} s: {of.pictures} pictures, {of.errors} errors, "
            f"{of.mixed_up} mixed up",
            f"  picture to maps: median {of.median_seconds:.2f} s, 95 % within {of.p95_seconds:.2f} s",
            f"  {of.computed_again} answers computed again: largest difference {of.largest_difference:.1e}",
            f"  memory: {of.memory_early:.0f} MB after a quarter, {of.memory_late:.0f} MB at the end "
            f"({of.memory_growth:+.1%})",
            f"  a visitor of the page meanwhile reads: {of.queue_position}",
        )
    )


if __name__ == "__main__":
    tyro.cli(Load).run()
