"""Turns at the model: order, bounds, and events whose client leaves."""

import asyncio
import base64
import re
import threading
from pathlib import Path
from unittest.mock import Mock

import gradio as gr
import numpy as np
import pytest

from app.handlers.api import Endpoints
from app.limits import fairness
from app.limits.bounds import Limits
from app.limits.errors import Busy, LabError
from app.limits.fairness import FairTurns, in_thread, in_turn
from app.page import Page
from app.store.images import png
from tests.app.conftest import MODEL, run, small_backend


async def serve(turns: FairTurns, clients: str) -> tuple[str, list[str]]:
    """Clients in the order of service, and refusals, if all enter while somebody holds a turn at `turns`."""
    order, refusals = [], []

    async def enter(client: str) -> None:
        try:
            async with turns.turn(client):
                order.append(client)
        except Busy as error:
            refusals.append(f"{client}: {error}")

    async with turns.turn("holder"):
        tasks = [asyncio.ensure_future(enter(client)) for client in clients]
        await asyncio.sleep(0.05)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    return "".join(order), refusals


@pytest.mark.parametrize(
    ("clients", "bounds", "served", "refused"),
    [
        ("aaaabbc", {"max_per_client": 9}, "abcabaa", ""),
        ("aaaab", {"max_per_client": 2}, "aba", "aa"),
        ("aaaaabac", {"max_waiting": 4, "max_per_client": 9}, "abcaaa", "aa"),
    ],
)
def test_order_and_bounds_of_a_queue(clients, bounds, served, refused):
    turns = FairTurns("the model", **bounds)
    found, refusals = run(serve(turns, clients))
    assert (found, "".join(sentence[0] for sentence in refusals)) == (served, refused)
    assert all("requests wait for the model" in sentence for sentence in refusals)


def test_turns_have_their_widths_and_bounds_and_one_client_those_of_the_documentation():
    guide = " ".join((Path(__file__).parents[2] / "docs" / "api.md").read_text().split())
    most, of_finding = re.findall(r"at most (\d+) waiting calls, (\d+) of them of `masks`", guide)[0]

    async def count(turns: FairTurns) -> int:
        """Requests of as many clients that hold a turn at the same time."""
        waits = [turns.wait(client) for client in range(20)]
        held = sum([await anext(wait) == 0 for wait in waits])
        for wait in waits:
            await wait.aclose()
        return held

    for name, width, bound in (
        ("MODEL", 1, most),
        ("LOADING", 16, most),
        ("READING", 2, most),
        ("FINDING", 1, of_finding),
        ("DECODING", 2, most),
    ):
        turns = getattr(fairness, name)
        assert run(count(turns)) == width, name
        assert (turns.max_waiting, turns.max_per_client) == (Limits().max_waiting, int(bound)), name


def test_waiting_event_yields_skip_then_result_and_reports_requests_ahead():
    loads: list = []
    progress, turns = Mock(), FairTurns("the model")
    prepare = Mock(return_value=lambda: loads.append("loaded"))
    handler = in_turn(lambda one, other: f"{one} {other}", prepare, turns)

    async def updates() -> list:
        waiting = handler(gr.Request(session_hash="b"), progress, 5, "x")
        async with turns.turn("a"):
            first = await anext(waiting)
        return [first, *[update async for update in waiting]]

    assert run(updates()) == [gr.skip(), "5 x"]
    progress.assert_called_once_with(0, desc="1 ahead of you")
    prepare.assert_called_once_with(5, "x")
    assert loads == ["loaded"]


def test_client_that_leaves_while_waiting_frees_its_place():
    turns, served = FairTurns("the model"), []

    async def leave() -> None:
        async with turns.turn("a"):
            leaving = in_turn(served.append, turns=turns)(gr.Request(session_hash="b"), Mock(), "b")
            assert await anext(leaving) == gr.skip()
            await leaving.aclose()
        await turns.run("c", served.append, "c")

    run(leave())
    assert served == ["c"]


def test_cancelled_work_keeps_its_turn_until_its_thread_ends():
    turns, begun, free = FairTurns("the model"), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert free.wait(10)

    async def cancel() -> tuple[bool, bool]:
        task = asyncio.ensure_future(turns.run("a", work))
        await in_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0.02)
        early = task.done()
        free.set()
        await asyncio.wait((task,), timeout=10)
        return early, task.cancelled()

    assert run(cancel()) == (False, True)


def test_handler_that_fails_reports_one_sentence(capsys):
    with pytest.raises(LabError, match=r"^Something went wrong in the server: try again\.$"):
        run(in_thread(lambda: 1 // 0))
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("door", ["page", "api"])
def test_image_of_waiting_call_stays_in_bounded_memory_until_it_is_answered(door, monkeypatch):
    monkeypatch.setattr(fairness, "MODEL", FairTurns("the model"))
    backend, random = small_backend(Limits(max_memory_mb=1)), np.random.default_rng(0)

    def new_file() -> bytes:
        return png(random.integers(0, 256, (60, 90, 3), dtype=np.uint8))  # 15 of them fit

    file = new_file()
    name = backend.images.keep(file)

    async def call_page() -> object:
        read = Page(backend).in_turn(backend.encode)
        *_, found = [update async for update in read(gr.Request(session_hash="b"), Mock(), name, MODEL, 64)]
        return found

    async def call_while_others_send_files() -> object:
        calls = {
            "page": call_page,
            "api": lambda: Endpoints(backend).attention(base64.b64encode(file).decode(), MODEL),
        }
        async with fairness.MODEL.turn("a"):
            waiting = asyncio.ensure_future(calls[door]())
            while not fairness.MODEL._waiting:
                await asyncio.sleep(0.01)
            for _ in range(30):
                backend.images.keep(new_file())
        return await waiting

    assert run(call_while_others_send_files())
    assert backend.images._files.weight <= 250_000
    for _ in range(30):
        backend.images.keep(new_file())
    assert not backend.images.holds(name)
