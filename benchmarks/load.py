"""Forty visitors of the page, ten of whom misbehave, for five minutes: what the other thirty notice of it.

python -m benchmarks.load [--visitors N] [--misbehaving N] [--seconds S] [--json FILE]

Visitors open the page once; then they upload an image of their own, have it encoded, fetch blocks, look for
objects, and repeat. Those who misbehave send bodies that are too large, ask forty heavy questions at once,
and close connections in the middle. Before, one visitor is alone on the page, for comparison. The page runs
on this machine only. Linux: memory is read from /proc.
"""

import base64
import io
import json
import random
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image

from benchmarks.serving import Served, serving
from dino_model.inference.predictor import AttentionPredictor
from dino_model.runtime.files import write_json

MODEL, SIZE = "embedded", 224
OPTIONS = f"--port 0 --model {MODEL} --size {SIZE} --precision fp32 --device cpu --no-downloads"
OPTIONS += " --max-memory-mb 100 --max-upload-mb 5"
"""Small caches are full within a minute; memory that grows afterwards is a leak."""
PAUSE = (3.0, 12.0)
"""Seconds between two images of a visitor."""
SAME_IMAGE = 8.0
"""Mean difference of gray levels that JPEG may cause; two of the images here differ by about 40."""
SAME_ARRAYS, GROWTH, SLOWER = 1e-2, 0.15, 10.0
"""Largest difference of recomputed queries and keys, as a share of the largest; largest growth of memory;
slowdown of the first maps."""
ADVICE = "try again in a moment|send the next when one is answered"
"""Advice of a refusal."""
UPLOAD, QUEUE = "/gradio_api/upload", "/gradio_api/queue"
WARM, ALONE, CHECKED, TIMEOUT = 5, 20, 20, 120


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
        with serving(*OPTIONS.split()) as served:
            alone = Visitor(served.address, self.visitors)
            for _ in range(WARM + ALONE):
                alone.look_once()
            people, (early, late) = self.visit(served)
        errors = [error for one in (alone, *people) for error in one.errors]
        waits = [seconds for one in people for seconds in one.waits]
        responses = [answer for one in people for answer in one.responses]
        if not (len(alone.waits) > WARM and responses):
            sys.exit(f"error: no image was answered: {errors[:1]}")
        alone_p95, p95 = (np.percentile(values, 95) for values in (alone.waits[WARM:], waits))
        refused = Counter(status for one in people for status in one.refused)
        results: dict[str, Any] = {
            "images": len(waits),
            "errors": len(errors),
            "largest_difference": largest_difference(responses),
            "alone_p95_s": alone_p95,
            "median_s": np.median(waits),
            "p95_s": p95,
            "slowdown": p95 / alone_p95,
            "memory_mb": late / 1e6,
            "memory_growth": late / early - 1,
            "refused": dict(sorted(refused.items())),
        }
        print("load:", *(f"  {name}: {value}" for name, value in results.items()), sep="\n")
        if self.json is not None:
            settings = {"visitors": self.visitors, "misbehaving": self.misbehaving, "seconds": self.seconds}
            write_json(self.json, {"name": "load"} | settings | results)
        broken = {
            f"answers were missing or belonged to another image, the first: {errors[:1]}": errors,
            "the arrays belong to another image": results["largest_difference"] > SAME_ARRAYS,
            "the first maps take too long": results["slowdown"] >= SLOWER,
            "memory grew": results["memory_growth"] > GROWTH,
            "no misbehavior was refused": self.misbehaving and not refused,
        }
        if any(broken.values()):
            sys.exit("error: " + "; ".join(fault for fault, is_broken in broken.items() if is_broken))

    def visit(self, served: Served) -> tuple[list["Visitor"], list[float]]:
        """Send all visitors; return them, and the bytes of the page at half of the time and at its end."""
        start, arriving = time.monotonic(), min(60.0, self.seconds / 5)
        kinds = [Misbehaving] * self.misbehaving + [Visitor] * (self.visitors - self.misbehaving)
        random.Random(0).shuffle(kinds)
        people = [kind(served.address, number) for number, kind in enumerate(kinds)]
        with ThreadPoolExecutor(len(people)) as pool:
            for number, one in enumerate(people):
                pool.submit(one.stay, start + arriving * number / len(people), start + self.seconds)
            moments = (start + share * self.seconds for share in (0.5, 1))
            return people, [memory_until(served.process.pid, moment) for moment in moments]


class Visitor:
    """A visitor who behaves well.

    Args:
        address: Address of the page.
        number: Unique number, the seed of the visitor's images and pauses.

    Attributes:
        waits: Seconds from each chosen image to the first block received.
        responses: Some images, and their queries and keys of the last block, to be recomputed.
        errors: Messages.
        refused: Status codes of answers to a visitor who misbehaves.
    """

    def __init__(self, address: str, number: int) -> None:
        self.number, self.random, self.turn = number, random.Random(number), 0
        self.waits, self.errors, self.refused = list[float](), list[str](), list[int]()
        self.responses: list[tuple[NDArray[np.uint8], bytes]] = []
        # Certificates, which take long to load, are not needed.
        self.browser = httpx.Client(base_url=address, timeout=TIMEOUT, verify=False)
        self.session, self.events, self.rail = uuid.uuid4().hex, dict[str, int](), 0

    def stay(self, arrival: float, until: float) -> None:
        """Come at a time and stay until another."""
        time.sleep(max(0.0, arrival - time.monotonic()))
        while time.monotonic() < until:
            self.look_once()
            time.sleep(self.random.uniform(*PAUSE))

    def look_once(self) -> None:
        """Look at a new image."""
        try:
            if not self.events:
                self.open()
            self.visit()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:200])
        self.turn += 1

    def open(self) -> None:
        """Fetch the page and its first files, and find the numbers of its events."""
        document = self.get("").text
        for path in sorted(set(re.findall(r"lab/static/[\w./-]+", document)))[:6]:
            self.get(path)
        config = self.get("config").json()
        self.events = {one["api_name"]: one["id"] for one in config["dependencies"]}
        rails = (one["id"] for one in config["components"] if one["props"].get("elem_id") == "images")
        self.rail = next(rails)

    def get(self, path: str) -> httpx.Response:
        """Fetch a file of the page."""
        return self.browser.get(f"/{path}").raise_for_status()

    def join(self, event: str, data: list[Any], session: str) -> Any:
        """Put an event of the page into the queue; return the stream of messages about it."""
        body = {"data": data, "fn_index": self.events[event], "session_hash": session}
        self.browser.post(f"{QUEUE}/join", json=body).raise_for_status()
        return self.browser.stream("GET", f"{QUEUE}/data", params={"session_hash": session})

    def ask(self, event: str, data: list[Any]) -> Any:
        """Trigger an event of the page and return its outputs.

        Raises:
            RuntimeError: The page refused.
        """
        output: dict[str, Any] = {"error": f"{event} ended without an answer"}
        with self.join(event, data, self.session) as answer:
            for line in answer.raise_for_status().iter_lines():  # to its end, as browsers do
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                if message.get("msg") == "process_completed":
                    output = message["output"]
        if "data" not in output:
            raise RuntimeError(output.get("error"))
        return output["data"]

    def keep(self, path: str) -> str:
        """Let the page read an uploaded file, as its rail does; return the name of the image."""
        call = {"component_id": self.rail, "fn_name": "keep", "session_hash": self.session}
        sent = {"kind": "image", "path": path, "title": "own.png"}
        answer = self.browser.post("/gradio_api/component_server", json=call | {"data": sent})
        found = answer.raise_for_status().json()
        if "name" not in found:
            raise RuntimeError(found.get("error"))
        return str(found["name"])

    def visit(self) -> None:
        """Upload an image, fetch its first maps and two more blocks, look for objects."""
        image, before = new_image(self.number, self.turn), time.monotonic()
        content = as_png(image)
        sent = self.browser.post(UPLOAD, files={"files": ("own.png", content, "image/png")})
        photo = self.keep(sent.raise_for_status().json()[0])
        _, answer, *_ = self.ask("show", [photo, MODEL, SIZE])
        last = answer["blocks"] - 1
        arrays = self.get(f"{answer['arrays']}/blocks/{last}").content
        self.waits.append(time.monotonic() - before)
        for block in self.random.sample(range(last), 2):
            self.get(f"{answer['arrays']}/blocks/{block}")
        encoded = base64.b64encode(content).decode()
        (found,) = self.ask("objects", [encoded, MODEL, SIZE, "tokencut", 1, False])
        record = found["objects"][0]
        image_on_page = np.array(Image.open(io.BytesIO(self.get(answer["image"]).content)))
        if (
            (answer["source"], answer["model"], answer["size"]) != (photo, MODEL, SIZE)
            or image_on_page.shape != image.shape
            or np.abs(image_on_page.astype(int) - image).mean() > SAME_IMAGE
            or [answer["height"], answer["width"]] != record["segmentation"]["size"]
        ):
            raise RuntimeError(f"visitor {self.number} received what belongs to another image")
        if self.turn == 1 + self.number % 4 or self.turn % 20 == 0:  # a sample: they stay in memory
            self.responses.append((image, arrays))


class Misbehaving(Visitor):
    """A visitor who always misbehaves in the same way, chosen by the number."""

    def visit(self) -> None:
        """Misbehave, whatever the page answers."""
        kinds = (self.send_too_much, self.ask_forty_at_once, self.close_in_the_middle)
        with suppress(httpx.HTTPError, OSError):
            kinds[self.number % len(kinds)]()

    def note(self, answer: httpx.Response) -> None:
        """Count a refusal; a server error that does not tell the client what to do is an error of the page.

        Gradio sends every `gr.Error` of /gradio_api/run, with status 500.
        """
        if answer.status_code >= 500 and not re.search(ADVICE, answer.text):
            self.errors.append(f"{answer.status_code}: {answer.text}"[:200])
        elif answer.is_error:
            self.refused.append(answer.status_code)

    def send_too_much(self) -> None:
        """Send 80 MB where files are accepted and where they are not, with and without a length."""
        for path in (UPLOAD, f"{QUEUE}/join"):
            for content in (bytes(80_000_000), (bytes(100_000) for _ in range(800))):
                with suppress(httpx.HTTPError):
                    self.note(self.browser.post(path, content=content))

    def ask_forty_at_once(self) -> None:
        """Ask forty times for objects with refined edges."""
        image = base64.b64encode(as_png(new_image(self.number, self.turn))).decode()
        body = {"data": [image, MODEL, SIZE, "maskcut", 6, True]}
        with ThreadPoolExecutor(40) as pool:
            posts = [pool.submit(self.browser.post, "/gradio_api/run/objects", json=body) for _ in range(40)]
            for post in posts:
                self.note(post.result())

    def close_in_the_middle(self) -> None:
        """Break off an upload, and an answer."""

        def broken_off() -> Iterator[bytes]:
            yield bytes(1_000_000)
            raise OSError

        with suppress(OSError):
            self.browser.post(UPLOAD, content=broken_off(), headers={"Content-Length": "4000000"})
        size = self.random.choice((224, 336, 480))
        with self.join("show", ["sheep", MODEL, size], uuid.uuid4().hex) as answer:
            next(answer.iter_raw(), None)


def new_image(visitor: int, turn: int) -> NDArray[np.uint8]:
    """Draw an image with random smooth colors and a size of its own."""
    noise = np.random.default_rng([visitor, turn]).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.array(Image.fromarray(noise).resize((640 + visitor, 480 + turn % 32)))


def as_png(image: NDArray[np.uint8]) -> bytes:
    """Encode an image as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def largest_difference(answers: list[tuple[NDArray[np.uint8], bytes]]) -> float:
    """Compare received queries and keys with those that the library computes of the same images."""
    predictor, differences = AttentionPredictor(MODEL, size=SIZE, precision="fp32", device="cpu"), []
    for image, content in answers[:: max(1, len(answers) // CHECKED)][:CHECKED]:
        predictor.set_image(image)
        expected = np.stack(predictor.queries_keys()).astype(np.float32)
        values = np.frombuffer(content, "<f2").reshape(expected.shape)
        differences.append(float(np.abs(values - expected).max() / np.abs(expected).max()))
    return max(differences)


def memory_until(process: int, until: float) -> float:
    """Wait until a moment; return the median resident bytes of a process in the five seconds before."""
    time.sleep(max(0.0, until - 5 - time.monotonic()))
    sizes = list[int]()
    while not sizes or time.monotonic() < until:
        (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
        sizes.append(int(kilobytes) * 1024)
        time.sleep(0.5)
    return float(np.median(sizes))


if __name__ == "__main__":
    tyro.cli(Load).run()
