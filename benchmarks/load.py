"""Forty visitors of the page, ten of whom misbehave, for five minutes: what the other thirty notice of it.

python -m benchmarks.load [--visitors N] [--misbehaving N] [--seconds S] [--json FILE]

Visitors open the page once; then they upload an image of their own, have it encoded, fetch blocks, look for
objects, and repeat. Those who misbehave send bodies that are too large, ask forty heavy questions at once,
close connections in the middle, and choose a model whose download hangs. Before, one visitor is alone on a
page of the same kind, for comparison. Pages run on this machine only. Linux: memory is read from /proc.
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
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image

from benchmarks.serving import Served, serving
from dino_model.files import write_json
from dino_model.predictor import AttentionPredictor

MODEL, HANGING, SIZE = "embedded", "dino_vits16", 224
OPTIONS = f"--port 0 --model {MODEL} --size {SIZE} --precision fp32 --device cpu".split()
LIMITS = ("--max-memory-mb", "100", "--max-upload-mb", "5")
"""Small caches are full within a minute; memory that grows afterwards is a leak."""
PAUSE = (3.0, 12.0)
"""Seconds between two images of a visitor."""
SAME_IMAGE = 8.0
"""Mean difference of gray levels that JPEG may cause; two of the images here differ by about 40."""
SAME_MAPS, GROWTH, SLOWER = 1e-3, 0.15, 10.0
"""Largest difference of recomputed maps; largest growth of memory; slowdown of the first maps."""
UPLOAD, QUEUE = "/gradio_api/upload", "/gradio_api/queue"
WARM, ALONE, CHECKED, TIMEOUT = 5, 20, 20, 120


@dataclass
class Visits:
    """Answers that the visitors received; lists may be appended to from several threads."""

    first_maps: list[float] = field(default_factory=list)
    """Seconds from a chosen image to the first block received."""
    kept: list[tuple[NDArray[np.uint8], NDArray[np.float32]]] = field(default_factory=list)
    """Images and their maps [heads, rows, columns], to be recomputed."""
    errors: list[str] = field(default_factory=list)
    mixed_up: list[str] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    """Status codes of answers to those who misbehave."""


@dataclass(frozen=True)
class Load:
    """Visitors of the page, some of whom misbehave."""

    visitors: int = 40
    """Visitors in all."""
    misbehaving: int = 10
    """Visitors that misbehave."""
    seconds: float = 300.0
    """Duration; memory is compared between its half, when caches are full, and its end."""
    json: Path | None = None
    """Write the results to this file."""

    def run(self) -> None:
        """Serve, visit, recompute, print; exit with an error if a promise is broken."""
        with page() as served:
            quiet = Visits()
            alone = Visitor(served.address, self.visitors, quiet)
            for _ in range(WARM + ALONE):
                alone.look_once()
            del quiet.first_maps[:WARM]
        with page() as served:
            visits, memory = visit(served, self.visitors - self.misbehaving, self.misbehaving, self.seconds)
        results = self.results(quiet, visits, memory)
        print("load:", *(f"  {name.replace('_', ' ')}: {value}" for name, value in results.items()), sep="\n")
        if self.json is not None:
            write_json(self.json, {"name": "load"} | results)
        if broken := faults(results):
            sys.exit("error: " + "; ".join(broken))

    def results(self, quiet: Visits, visits: Visits, memory: list[tuple[float, int]]) -> dict[str, Any]:
        """Summarize; times in seconds, memory in MB."""
        sample = visits.kept[:: max(1, len(visits.kept) // CHECKED)][:CHECKED]
        errors = quiet.errors + visits.errors
        early, late = (around(memory, second) / 1e6 for second in (self.seconds / 2, self.seconds))
        alone, busy = (percentile_95(one.first_maps) for one in (quiet, visits))
        return {
            "visitors": self.visitors,
            "misbehaving": self.misbehaving,
            "seconds": self.seconds,
            "images": len(visits.first_maps),
            "errors": len(errors),
            "first_error": errors[0] if errors else None,
            "mixed_up": len(visits.mixed_up),
            "recomputed": len(sample),
            "largest_difference": largest_difference(sample),
            "alone_p95": alone,
            "median": median(visits.first_maps or [0.0]),
            "p95": busy,
            "slowdown": busy / alone if alone else None,
            "memory_early": early,
            "memory_late": late,
            "memory_growth": late / early - 1,
            "refused": dict(sorted(visits.refused.items())),
        }


def faults(results: dict[str, Any]) -> list[str]:
    """List the broken promises in words."""
    checks = {
        f"{results['errors']} errors, the first: {results['first_error']}": results["errors"] > 0,
        "no image was answered": not results["recomputed"],
        "a visitor received what belongs to another image": results["mixed_up"] > 0
        or results["largest_difference"] > SAME_MAPS,
        f"the first maps take {results['slowdown']} times as long": (results["slowdown"] or 0) >= SLOWER,
        f"memory grew by {results['memory_growth']:+.0%}": results["memory_growth"] > GROWTH,
        "no misbehavior was refused": results["misbehaving"] > 0 and not results["refused"],
    }
    return [fault for fault, found in checks.items() if found]


@contextmanager
def page() -> Iterator[Served]:
    """Serve a page whose downloads hang: the proxy accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent, TemporaryDirectory() as folder:
        proxy = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"https_proxy": proxy, "HTTPS_PROXY": proxy, "no_proxy": "127.0.0.1,localhost"}
        with serving(*OPTIONS, *LIMITS, env=env | {"DINO_CACHE": folder, "HF_HUB_OFFLINE": "1"}) as served:
            yield served


def visit(
    served: Served, well: int, misbehaving: int, seconds: float
) -> tuple[Visits, list[tuple[float, int]]]:
    """Send all visitors; return what the well-behaved saw, and the page's memory in bytes by second."""
    memory: list[tuple[float, int]] = []
    visits, done, start = Visits(), threading.Event(), time.monotonic()
    arriving = min(60.0, seconds / 5)
    people = [Visitor(served.address, number, visits) for number in range(well)]
    people += [Misbehaving(served.address, well + number, visits) for number in range(misbehaving)]
    random.Random(0).shuffle(people)
    watching = threading.Thread(target=watch_memory, args=(served.process.pid, start, memory, done))
    watching.start()
    with ThreadPoolExecutor(len(people)) as pool:
        arrivals = [start + arriving * order / len(people) for order in range(len(people))]
        list(pool.map(lambda one, arrival: one.stay(arrival, start + seconds), people, arrivals))
    done.set()
    watching.join()
    return visits, memory


class Visitor:
    """A visitor who behaves well.

    Args:
        address: Address of the page.
        number: Unique number, the seed of the visitor's images and pauses.
        visits: Collects what the visitor sees.
    """

    def __init__(self, address: str, number: int, visits: Visits) -> None:
        self.address, self.number, self.visits = address, number, visits
        self.turn, self.random = 0, random.Random(number)
        self.session, self.events = uuid.uuid4().hex, dict[str, int]()

    def stay(self, arrival: float, until: float) -> None:
        """Come at a time and stay until another."""
        time.sleep(max(0.0, arrival - time.monotonic()))
        while time.monotonic() < until:
            self.look_once()
            time.sleep(self.random.uniform(*PAUSE))

    def open(self, browser: httpx.Client) -> None:
        """Fetch the page and its first files, once."""
        if not self.events:
            document = browser.get("/").raise_for_status().text
            for path in sorted(set(re.findall(r"lab/static/[\w./-]+", document)))[:6]:
                browser.get(f"/{path}").raise_for_status()
            self.events = events_of(browser)

    def look_once(self) -> None:
        """Look at a new image."""
        try:
            with browser_of(self.address) as browser:
                self.open(browser)
                self.look(browser)
        except Exception as error:
            self.visits.errors.append(f"{type(error).__name__}: {error}"[:200])
        self.turn += 1

    def ask(self, browser: httpx.Client, event: str, data: list[Any]) -> Any:
        """Trigger an event of the visitor's page and return its first output."""
        return ask(browser, self.session, self.events[event], data)[0]

    def look(self, browser: httpx.Client) -> None:
        """Upload an image, fetch its first maps and two more blocks, look for objects."""
        image, before = new_image(self.number, self.turn), time.monotonic()
        content = as_png(image)
        photo = self.ask(browser, "keep", [[upload(browser, content)], "kitten"])
        seen = self.ask(browser, "look", [photo, MODEL, SIZE])
        last = seen["blocks"] - 1
        arrays = browser.get(f"/{seen['arrays']}/blocks/{last}").raise_for_status().content
        self.visits.first_maps.append(time.monotonic() - before)
        for block in self.random.sample(range(last), 2):
            browser.get(f"/{seen['arrays']}/blocks/{block}").raise_for_status()
        encoded = base64.b64encode(content).decode()
        found = self.ask(browser, "objects", [encoded, MODEL, SIZE, "tokencut", 1, False])["objects"][0]
        shown = np.array(
            Image.open(io.BytesIO(browser.get(f"/{seen['picture']}").raise_for_status().content))
        )
        if (
            (seen["photo"], seen["model"], seen["size"]) != (photo, MODEL, SIZE)
            or shown.shape != image.shape
            or np.abs(shown.astype(int) - image).mean() > SAME_IMAGE
            or [seen["height"], seen["width"]] != found["segmentation"]["size"]
        ):
            self.visits.mixed_up.append(f"visitor {self.number}, image {self.turn}")
        if self.turn == 1 + self.number % 4 or self.turn % 20 == 0:  # a sample: they stay in memory
            self.visits.kept.append((image, maps_of(arrays, seen)))


class Misbehaving(Visitor):
    """A visitor who always misbehaves in the same way, chosen by the number."""

    def look_once(self) -> None:
        """Misbehave, whatever the page answers."""
        kinds = (self.send_too_much, self.ask_forty_at_once, self.close_in_the_middle, self.choose_hanging)
        with (
            suppress(httpx.HTTPError, OSError, KeyError),
            browser_of(self.address) as browser,
        ):
            kinds[self.number % len(kinds)](browser)
        self.turn += 1

    def note(self, answer: httpx.Response) -> None:
        """Count a refusal; a server error that does not tell the client what to do is an error of the page.

        Gradio sends every `gr.Error` of /gradio_api/run, with status 500.
        """
        if answer.status_code >= 500 and not re.search("try again in a moment|fewer requests", answer.text):
            self.visits.errors.append(f"{answer.status_code}: {answer.text}"[:200])
        elif answer.is_error:
            self.visits.refused[answer.status_code] += 1

    def send_too_much(self, browser: httpx.Client) -> None:
        """Send 80 MB where files are accepted and where they are not, with and without a length."""
        for path in (UPLOAD, f"{QUEUE}/join"):
            with suppress(httpx.HTTPError):
                self.note(browser.post(path, content=bytes(80_000_000)))
            with suppress(httpx.HTTPError):
                self.note(browser.post(path, content=(bytes(100_000) for _ in range(800))))

    def ask_forty_at_once(self, browser: httpx.Client) -> None:
        """Ask forty times for objects with refined edges."""
        image = base64.b64encode(as_png(new_image(self.number, self.turn))).decode()
        asked = {"data": [image, MODEL, SIZE, "maskcut", 6, True]}
        with ThreadPoolExecutor(40) as pool:
            for answer in pool.map(lambda _: browser.post("/gradio_api/run/objects", json=asked), range(40)):
                self.note(answer)

    def close_in_the_middle(self, browser: httpx.Client) -> None:
        """Break off an upload, and an answer."""
        host, port = self.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as line:
            line.sendall(
                f"POST {UPLOAD} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4000000\r\n\r\n".encode()
            )
            line.sendall(bytes(1_000_000))
        size = self.random.choice((224, 336, 480))
        session = uuid.uuid4().hex
        join(browser, session, events_of(browser)["look"], ["sheep", MODEL, size])
        with browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session}) as answer:
            next(answer.iter_raw(), None)

    def choose_hanging(self, browser: httpx.Client) -> None:
        """Choose a model whose download hangs; leave after 20 seconds."""
        session = uuid.uuid4().hex
        join(browser, session, events_of(browser)["look"], ["kitten", HANGING, SIZE])
        until = time.monotonic() + 20
        with browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session}) as answer:
            for _ in answer.iter_lines():
                if time.monotonic() > until:
                    return


def browser_of(address: str) -> httpx.Client:
    """Return a client for many requests at once, without certificates, which take long to load."""
    return httpx.Client(base_url=address, timeout=TIMEOUT, verify=False)


def events_of(browser: httpx.Client) -> dict[str, int]:
    """Find the numbers of the events "keep" (an upload), "look" (an image of the header) and "objects"."""
    config = browser.get("/config").raise_for_status().json()
    (asking,) = (one["id"] for one in config["components"] if one["props"].get("elem_id") == "ask")
    events = {one["api_name"]: one["id"] for one in config["dependencies"]}
    # Handlers of other tabs are named `look` as well; the header's one follows the hidden counter.
    (look,) = (
        one["id"] for one in config["dependencies"] if one["outputs"] and [asking, "change"] in one["targets"]
    )
    return {"keep": events["keep"], "look": look, "objects": events["objects"]}


def ask(browser: httpx.Client, session: str, event: int, data: list[Any]) -> list[Any]:
    """Trigger an event of the page and return its outputs.

    Raises:
        RuntimeError: The page refused.
    """
    join(browser, session, event, data)
    output: dict[str, Any] = {"error": f"event {event} ended without an answer"}
    with browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session}) as answer:
        for line in answer.raise_for_status().iter_lines():  # to its end, as browsers do
            told = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
            if told.get("msg") == "process_completed":
                output = told["output"]
    if "data" not in output:
        raise RuntimeError(output.get("error"))
    return list(output["data"])


def join(browser: httpx.Client, session: str, event: int, data: list[Any]) -> None:
    """Put an event into the queue of a session."""
    asked = {"data": data, "fn_index": event, "session_hash": session}
    browser.post(f"{QUEUE}/join", json=asked).raise_for_status()


def upload(browser: httpx.Client, content: bytes) -> dict[str, Any]:
    """Upload a PNG file; return what Gradio's components send of it."""
    sent = browser.post(UPLOAD, files={"files": ("own.png", content, "image/png")}).raise_for_status()
    return {"path": sent.json()[0], "orig_name": "own.png", "meta": {"_type": "gradio.FileData"}}


def new_image(visitor: int, turn: int) -> NDArray[np.uint8]:
    """Draw an image with random smooth colors and a size of its own."""
    noise = np.random.default_rng([visitor, turn]).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.array(Image.fromarray(noise).resize((640 + visitor, 480 + turn % 32)))


def as_png(image: NDArray[np.uint8]) -> bytes:
    """Encode an image as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def maps_of(content: bytes, seen: dict[str, Any]) -> NDArray[np.float32]:
    """Compute [CLS] attention [heads, rows, columns] from queries and keys as the browser receives them."""
    tokens = seen["prefix"] + seen["rows"] * seen["columns"]
    queries, keys = np.frombuffer(content, "<f2").reshape(2, seen["heads"], tokens, -1).astype(np.float32)
    logits = np.einsum("hd,hnd->hn", queries[:, 0], keys) / keys.shape[-1] ** 0.5
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights[:, seen["prefix"] :].reshape(-1, seen["rows"], seen["columns"])


def largest_difference(answers: list[tuple[NDArray[np.uint8], NDArray[np.float32]]]) -> float:
    """Compare received maps with those that the library computes of the same images."""
    predictor, largest = AttentionPredictor(MODEL, size=SIZE, precision="fp32", device="cpu"), 0.0
    for image, maps in answers:
        predictor.set_image(image)
        largest = max(largest, float(np.abs(predictor.cls_attention() - maps).max()))
    return largest


def watch_memory(process: int, start: float, memory: list[tuple[float, int]], done: threading.Event) -> None:
    """Append second and resident bytes of a process, twice a second."""
    while not done.wait(0.5):
        if found := re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text()):
            memory.append((time.monotonic() - start, int(found[1]) * 1024))


def around(memory: list[tuple[float, int]], second: float) -> float:
    """Take the median memory within five seconds of a moment, in bytes."""
    return median([size for at, size in memory if abs(at - second) <= 5])


def percentile_95(values: list[float]) -> float:
    """Compute the 95th percentile; 0 for fewer than two values."""
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else 0.0


if __name__ == "__main__":
    tyro.cli(Load).run()
