"""Forty visitors of the page, ten of whom misbehave, for five minutes: what the other thirty notice of it.

python -m benchmarks.load [--visitors N] [--misbehaving N] [--seconds S] [--json FILE]

Visitors arrive within the first minute and do what a browser does: they open the page, upload a photograph
of their own, have it encoded by an event of Gradio's queue, fetch blocks, look for objects, and begin again.
Those who misbehave send bodies that are too large, with and without a length, ask forty heavy questions at
once, close in the middle of answers, and choose a model whose download hangs. First, one visitor is alone on
another page, until the model is compiled, and then for the quiet figure.

It starts pages of its own, on this machine only, and ends them. Linux: memory is read from /proc.
"""

import base64
import io
import json
import random
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import httpx
import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image

from benchmarks.serving import Served, serving
from dino_model.files import write_text
from dino_model.predictor import AttentionPredictor

MODEL, HANGING, SIZE = "embedded", "dino_vits16", 224
MEMORY_MB = 100
"""Of the page's caches. Full within a minute, so that what grows afterwards is a leak."""
UPLOAD_MB = 5
ARRIVALS = 60.0
"""Seconds over which visitors arrive; a fifth of a shorter run."""
PAUSE = (3.0, 12.0)
"""Seconds for which a visitor looks at what is shown."""
SAME_PICTURE = 8.0
"""Mean difference of grey levels that JPEG may make; two of the pictures here differ by about 40."""
SAME_MAPS = 1e-3
STEADY = 0.1
SLOWER = 10.0
"""How many times the quiet figure the first maps may take beside everybody else."""
UPLOAD, QUEUE = "/gradio_api/upload", "/gradio_api/queue"
WARM, ALONE = 5, 20
"""Pictures of the visitor who is alone; the first ones, while the model is compiled, do not count."""
CHECKED = 20
"""So many answers are computed again by the library afterwards."""
TIMEOUT = 120


@dataclass(frozen=True)
class Load:
    """Visitors of the page, some of whom misbehave."""

    visitors: int = 40
    """How many in all."""
    misbehaving: int = 10
    """How many of them misbehave."""
    seconds: float = 300.0
    """For how long; memory is compared between one fifth of it and its end."""
    json: Path | None = None
    """Write the figures to this file."""

    def run(self) -> None:
        """Serve, visit, look again, print; ends with an error where something was not as it should be."""
        well = self.visitors - self.misbehaving
        with page() as served:
            quiet = Visits()
            for number in range(WARM + ALONE):
                Visitor(served.address, 1000 + number, quiet).look_once()
            del quiet.first_maps[:WARM]
        with page() as served:
            visits, memory = visit(served, well, self.misbehaving, self.seconds)
        figures = summary(quiet, visits, memory, self)
        print(as_text(figures))
        if self.json is not None:
            write_text(self.json, json.dumps({"name": "load", **asdict(figures)}, indent=2) + "\n")
        if found := figures.faults():
            sys.exit("error: " + "; ".join(found))


@dataclass(frozen=True)
class Answer:
    """What one visitor got for one picture."""

    picture: NDArray[np.uint8]
    maps: NDArray[np.float32]
    """[heads, rows, columns]"""


@dataclass
class Visits:
    """What visitors saw; lists are safe to append to from several threads."""

    first_maps: list[float] = field(default_factory=list)
    """Seconds from a photograph sent to its first block received."""
    kept: list[Answer] = field(default_factory=list)
    """Some of the answers, to be computed again."""
    errors: list[str] = field(default_factory=list)
    mixed_up: list[str] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """In the queue, as told to those who waited."""
    refused: dict[int, int] = field(default_factory=dict)
    """How often those who misbehave were told which status."""


@dataclass(frozen=True)
class Figures:
    """What a run found; times in seconds, memory in MB."""

    visitors: int
    misbehaving: int
    seconds: float
    pictures: int
    errors: int
    first_error: str | None
    mixed_up: int
    computed_again: int
    """Answers that the library computed again, and their largest difference from what came back."""
    largest_difference: float
    quiet: float
    """First maps with nobody else there: 95th percentile, as below."""
    median: float
    p95: float
    memory_early: float
    memory_late: float
    longest_queue: int
    refused: dict[int, int]

    @property
    def slower(self) -> float:
        """How many times as long first maps take as when nobody else is there."""
        return self.p95 / self.quiet

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
            f"first maps take {self.slower:.1f} times as long": self.slower >= SLOWER,
            f"memory changed by {self.memory_growth:+.0%}": abs(self.memory_growth) > STEADY,
            "nobody who misbehaved was refused": self.misbehaving > 0 and not self.refused,
        }
        return [fault for fault, found in checks.items() if found]


@contextmanager
def page() -> Iterator[Served]:
    """A page whose far models never come: the address they are fetched from accepts, and says nothing."""
    options = f"--port 0 --model {MODEL} --size {SIZE} --precision fp32 --device cpu".split()
    options += f"--max-memory-mb {MEMORY_MB} --max-upload-mb {UPLOAD_MB}".split()
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent, TemporaryDirectory() as folder:
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        away = {"https_proxy": proxy, "HTTPS_PROXY": proxy, "DINO_CACHE": folder, "HF_HUB_OFFLINE": "1"}
        with serving(*options, env=away | {"no_proxy": "127.0.0.1,localhost"}) as served:
            yield served


def visit(
    served: Served, well: int, misbehaving: int, seconds: float
) -> tuple[Visits, list[tuple[float, int]]]:
    """Let all visitors in for a while; what those who behave saw, and the page's memory by second."""
    memory: list[tuple[float, int]] = []
    visits, done, start = Visits(), threading.Event(), time.monotonic()
    until, arriving = start + seconds, min(ARRIVALS, seconds / 5)
    with ThreadPoolExecutor(well + misbehaving) as pool:
        people: list[Visitor] = [Visitor(served.address, number, visits) for number in range(well)]
        people += [
            Misbehaving(served.address, well + number, visits, number % len(MISCHIEF))
            for number in range(misbehaving)
        ]
        random.Random(0).shuffle(people)
        running = [
            pool.submit(one.stay, start + arriving * order / len(people), until)
            for order, one in enumerate(people)
        ]
        watching = threading.Thread(target=watch_memory, args=(served.process.pid, start, memory, done))
        watching.start()
        for each in running:
            each.result()
        done.set()
        watching.join()
    return visits, memory


class Visitor:
    """One who behaves.

    Args:
        address: of the page.
        number: nobody else's.
        visits: takes what was seen.
    """

    def __init__(self, address: str, number: int, visits: Visits) -> None:
        self.address, self.number, self.visits = address, number, visits
        self.turn, self.chance = 0, random.Random(number)
        self.events: dict[str, int] = {}

    def stay(self, arrival: float, until: float) -> None:
        """Come at a time and stay until another."""
        time.sleep(max(0.0, arrival - time.monotonic()))
        while time.monotonic() < until:
            self.look_once()
            time.sleep(self.chance.uniform(*PAUSE))

    def look_once(self) -> None:
        """Open the page as a new visitor, and look at a picture of one's own."""
        try:
            with httpx.Client(base_url=self.address, timeout=TIMEOUT) as browser:
                self.open(browser)
                self.look(browser)
        except Exception as error:
            self.visits.errors.append(f"{type(error).__name__}: {error}"[:200])
        self.turn += 1

    def open(self, browser: httpx.Client) -> None:
        """The document and some of what it names."""
        document = browser.get("/").raise_for_status().text
        for path in sorted(set(re.findall(r"lab/static/[\w./-]+", document)))[:6]:
            browser.get(f"/{path}").raise_for_status()
        browser.get("/lab/pictures/kitten.jpg").raise_for_status()
        self.events = events_of(browser)

    def look(self, browser: httpx.Client) -> None:
        """Upload a picture, see its first maps, move the block slider, look for objects."""
        picture, before = new_picture(self.number, self.turn), time.monotonic()
        content = as_png(picture)
        photo = self.ask(browser, "keep", [[upload(browser, content)], "kitten"])[0]
        seen = self.encode(browser, photo)
        last = seen["blocks"] - 1
        arrays = browser.get(f"/{seen['arrays']}/blocks/{last}").raise_for_status().content
        self.visits.first_maps.append(time.monotonic() - before)
        for block in self.chance.sample(range(last), 2):
            browser.get(f"/{seen['arrays']}/blocks/{block}").raise_for_status()
        image = base64.b64encode(content).decode()
        found = self.ask(browser, "objects", [image, MODEL, SIZE, "tokencut", 1, False])[0]["objects"][0]
        shown = browser.get(f"/{seen['picture']}").raise_for_status().content
        self.check(picture, np.array(Image.open(io.BytesIO(shown))), seen, found)
        if self.turn == 1 + self.number % 4 or self.turn % 20 == 0:  # not all: they stay in memory
            self.visits.kept.append(Answer(picture, maps_of(arrays, seen)))

    def encode(self, browser: httpx.Client, photo: str, model: str = MODEL, size: int = SIZE) -> dict:
        """Ask for an image as the page does; returns the value of its view."""
        seen: dict = self.ask(browser, "look", [photo, model, size])[0]
        if (seen["photo"], seen["model"], seen["size"]) != (photo, model, size):
            self.visits.mixed_up.append(f"visitor {self.number} was answered another question")
        return seen

    def ask(self, browser: httpx.Client, event: str, data: list) -> list:
        """Trigger an event of the page, read its progress as it arrives, and return its outputs.

        Raises:
            RuntimeError: the page refused.
        """
        session = join(browser, self.events[event], data)
        with browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session}) as answer:
            for line in answer.raise_for_status().iter_lines():
                told = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                for step in told.get("progress_data") or []:
                    if ahead := re.match(r"(\d+) ahead of you", step.get("desc") or ""):
                        self.visits.places.append(int(ahead[1]))
                if told.get("msg") == "process_completed":
                    if not told["success"]:
                        raise RuntimeError(told["output"].get("error"))
                    return list(told["output"]["data"])
        raise RuntimeError(f"the page ended {event} without an answer")

    def check(self, picture: NDArray[np.uint8], shown: NDArray[np.uint8], seen: dict, found: dict) -> None:
        """Whether what came is about this picture."""
        other = shown.shape != picture.shape or np.abs(shown.astype(int) - picture).mean() > SAME_PICTURE
        if other or [seen["height"], seen["width"]] != found["segmentation"]["size"]:
            self.visits.mixed_up.append(f"visitor {self.number} was shown another picture")


class Misbehaving(Visitor):
    """One of those who do not, always in the same way: `kind` counts in `MISCHIEF`."""

    def __init__(self, address: str, number: int, visits: Visits, kind: int) -> None:
        super().__init__(address, number, visits)
        self.kind = kind

    def look_once(self) -> None:
        """Do mischief, whatever comes of it."""
        with (
            suppress(httpx.HTTPError, OSError, KeyError),
            httpx.Client(base_url=self.address, timeout=TIMEOUT) as browser,
        ):
            MISCHIEF[self.kind](self, browser)
        self.turn += 1

    def note(self, answer: httpx.Response) -> None:
        """Remember a refusal."""
        if answer.is_error:
            self.visits.refused[answer.status_code] = self.visits.refused.get(answer.status_code, 0) + 1

    def send_too_much(self, browser: httpx.Client) -> None:
        """Eighty megabytes, to where files are taken and to where they are not."""
        for path in (UPLOAD, f"{QUEUE}/join"):
            with suppress(httpx.HTTPError):
                self.note(browser.post(path, content=bytes(80_000_000)))

    def send_without_length(self, browser: httpx.Client) -> None:
        """The same in chunks that do not say how many there will be."""
        for path in (UPLOAD, f"{QUEUE}/join"):
            with suppress(httpx.HTTPError):
                self.note(browser.post(path, content=(bytes(100_000) for _ in range(800))))

    def ask_forty_at_once(self, browser: httpx.Client) -> None:
        """Objects with refined edges, forty times."""
        image = base64.b64encode(as_png(new_picture(self.number, self.turn))).decode()
        asked = {"data": [image, MODEL, SIZE, "maskcut", 6, True]}
        address = f"{self.address}/gradio_api/run/objects"
        with ThreadPoolExecutor(40) as pool:
            for answer in pool.map(lambda _: httpx.post(address, json=asked, timeout=TIMEOUT), range(40)):
                self.note(answer)

    def close_in_the_middle(self, browser: httpx.Client) -> None:
        """Of one's own file, and of an answer."""
        host, port = self.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as line:
            line.sendall(
                f"POST {UPLOAD} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4000000\r\n\r\n".encode()
            )
            line.sendall(bytes(1_000_000))
        size = self.chance.choice((224, 336, 480))
        session = join(browser, events_of(browser)["look"], ["sheep", MODEL, size])
        with browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session}) as answer:
            next(answer.iter_raw(), None)

    def choose_what_never_comes(self, browser: httpx.Client) -> None:
        """A model whose download hangs, and leave after a while."""
        session = join(browser, events_of(browser)["look"], ["kitten", HANGING, SIZE])
        with browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session}) as answer:
            until = time.monotonic() + 20
            for _ in answer.iter_lines():
                if time.monotonic() > until:
                    return


MISCHIEF: tuple[Callable[[Misbehaving, httpx.Client], None], ...] = (
    Misbehaving.send_too_much,
    Misbehaving.send_without_length,
    Misbehaving.ask_forty_at_once,
    Misbehaving.close_in_the_middle,
    Misbehaving.choose_what_never_comes,
)


def events_of(browser: httpx.Client) -> dict[str, int]:
    """Numbers of the events "keep" (an upload), "look" (an image of the header) and "objects"."""
    config = browser.get("/config").raise_for_status().json()
    (ask,) = (one["id"] for one in config["components"] if one["props"].get("elem_id") == "ask")
    events = {one["api_name"]: one["id"] for one in config["dependencies"]}
    # Handlers of other tabs are named `look` as well; the page's own one follows the hidden count.
    (look,) = (
        one["id"] for one in config["dependencies"] if one["outputs"] and [ask, "change"] in one["targets"]
    )
    return {"keep": events["keep"], "look": look, "objects": events["objects"]}


def upload(browser: httpx.Client, content: bytes) -> dict:
    """Upload a PNG file; return what Gradio's components send of it."""
    sent = browser.post(UPLOAD, files={"files": ("own.png", content, "image/png")}).raise_for_status()
    return {"path": sent.json()[0], "orig_name": "own.png", "meta": {"_type": "gradio.FileData"}}


def join(browser: httpx.Client, event: int, data: list) -> str:
    """Put an event into the queue; return the session by which its answer is fetched."""
    session = uuid.uuid4().hex
    asked = {"data": data, "fn_index": event, "session_hash": session}
    browser.post(f"{QUEUE}/join", json=asked).raise_for_status()
    return session


def new_picture(user: int, turn: int) -> NDArray[np.uint8]:
    """Nobody else's: smooth random colours, and a width and height of its own."""
    rng = np.random.default_rng([user, turn])
    noise = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    width, height = 640 + user, 480 + turn % 32
    return np.array(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def as_png(picture: NDArray[np.uint8]) -> bytes:
    """The picture as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def maps_of(content: bytes, seen: dict) -> NDArray[np.float32]:
    """Where [CLS] looks, from queries and keys as the browser gets them: [heads, rows, columns]."""
    tokens = seen["prefix"] + seen["rows"] * seen["columns"]
    queries, keys = np.frombuffer(content, "<f2").reshape(2, seen["heads"], tokens, -1).astype(np.float32)
    logits = np.einsum("hd,hnd->hn", queries[:, 0], keys) / keys.shape[-1] ** 0.5
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights[:, seen["prefix"] :].reshape(-1, seen["rows"], seen["columns"])


def watch_memory(process: int, start: float, memory: list[tuple[float, int]], done: threading.Event) -> None:
    """Append second and resident bytes of a process, twice a second."""
    status = Path(f"/proc/{process}/status")
    while not done.wait(0.5):
        resident = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        if resident:
            memory.append((time.monotonic() - start, int(resident[1]) * 1024))


def summary(quiet: Visits, visits: Visits, memory: list[tuple[float, int]], load: Load) -> Figures:
    """The figures, with a sample of the answers computed again by the library."""
    sample = visits.kept[:: max(1, len(visits.kept) // CHECKED)][:CHECKED]
    errors = quiet.errors + visits.errors
    return Figures(
        visitors=load.visitors,
        misbehaving=load.misbehaving,
        seconds=load.seconds,
        pictures=len(visits.first_maps),
        errors=len(errors),
        first_error=errors[0] if errors else None,
        mixed_up=len(visits.mixed_up),
        computed_again=len(sample),
        largest_difference=largest_difference(sample),
        quiet=percentile_95(quiet.first_maps),
        median=median(visits.first_maps or [0.0]),
        p95=percentile_95(visits.first_maps),
        memory_early=around(memory, load.seconds / 5) / 1e6,
        memory_late=around(memory, load.seconds) / 1e6,
        longest_queue=max(visits.places, default=-1) + 1,
        refused=visits.refused,
    )


def percentile_95(values: list[float]) -> float:
    """Of no fewer than two; 0 of fewer."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else 0.0


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
    predictor = AttentionPredictor(MODEL, size=SIZE, precision="fp32", device="cpu")
    largest = 0.0
    for answer in answers:
        predictor.set_image(answer.picture)
        largest = max(largest, float(np.abs(predictor.cls_attention() - answer.maps).max()))
    return largest


def as_text(of: Figures) -> str:
    """The lines a person reads."""
    refused = ", ".join(f"{count} × {status}" for status, count in sorted(of.refused.items()))
    return "\n".join(
        (
            f"load: {of.visitors} visitors for {of.seconds:.0f} s, {of.misbehaving} of them misbehaving "
            f"(refused: {refused or 'never'}):",
            f"  the others: {of.pictures} pictures, {of.errors} errors, {of.mixed_up} mixed up",
            f"  first maps: median {of.median:.2f} s, 95 % within {of.p95:.2f} s, "
            f"alone {of.quiet:.2f} s: {of.slower:.1f} times (goal below {SLOWER:.0f})",
            f"  {of.computed_again} answers computed again: largest difference {of.largest_difference:.1e}",
            f"  memory: {of.memory_early:.0f} MB after a fifth, {of.memory_late:.0f} MB at the end "
            f"({of.memory_growth:+.1%})",
            f"  longest queue that somebody was told of: {of.longest_queue}",
        )
    )


if __name__ == "__main__":
    tyro.cli(Load).run()
