"""Turns at the model: order, bounds, and what happens when a client leaves."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gradio as gr
import pytest

from app import fairness
from app.errors import Busy, LabError
from app.fairness import FairTurns, in_thread, in_turn


@pytest.fixture
def run() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run a coroutine function in an event loop of its own."""

    async def call(work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()

    def in_new_loop(work: Callable[[], Awaitable[Any]]) -> Any:
        with ThreadPoolExecutor(1) as pool:  # browser tests leave a loop in the thread of the tests
            return pool.submit(asyncio.run, call(work)).result()

    return in_new_loop


async def asked(clients: str, **bounds: int) -> tuple[str, list[str]]:
    """Clients in the order of service, and refusals, if all ask while somebody holds the turn."""
    turns, order, refusals = FairTurns("the model", **bounds), [], []

    async def ask(client: str) -> None:
        try:
            async with turns.turn(client):
                order.append(client)
        except Busy as error:
            refusals.append(f"{client}: {error}")

    async with turns.turn("holder"):
        tasks = [asyncio.ensure_future(ask(client)) for client in clients]
        await asyncio.sleep(0.01)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    return "".join(order), refusals


def test_first_request_of_every_client_precedes_second_request_of_any(run):
    assert run(lambda: asked("aaaabbc", max_per_client=9)) == ("abcabaa", [])


@pytest.mark.parametrize(("patience", "expected"), [(10.0, ["image", "object"]), (0.0, ["object", "image"])])
def test_queue_waits_for_the_one_that_goes_first(run, monkeypatch, patience, expected):
    monkeypatch.setattr(fairness, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(fairness, "RECHECK_SECONDS", 0.01)

    async def order() -> list[str]:
        first, found = FairTurns("the model"), []
        second = FairTurns("objects", after=first)

        async def ask(turns: FairTurns, name: str) -> None:
            async with turns.turn(name):
                found.append(name)

        async with first.turn("holder"):
            tasks = [asyncio.ensure_future(ask(second, "object")), asyncio.ensure_future(ask(first, "image"))]
            await asyncio.sleep(0.05)
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        return found

    assert run(order) == expected


def test_client_with_too_many_requests_is_refused_and_others_are_not(run):
    served, refusals = run(lambda: asked("aaaab", max_per_client=2))
    assert (served, len(refusals)) == ("aba", 2)
    assert all(text.startswith("a: ") and text.endswith("moment.") for text in refusals)


def test_full_queue_drops_newest_request_of_greediest_client(run):
    served, refusals = run(lambda: asked("aaaabcd", max_waiting=4, max_per_client=9))
    assert (served, [text[0] for text in refusals]) == ("abcd", ["a", "a", "a"])


def event(turns: FairTurns, client: str, work: Callable[..., Any], progress: Any = None, **more: Any) -> Any:
    """The updates of an event of a client, with the inputs 5 and "x"."""
    progress = progress or (lambda *_, **__: None)
    return in_turn(work, turns=turns, **more)(gr.Request(session_hash=client), progress, 5, "x")


def test_waiting_event_yields_skip_then_result_and_reports_requests_ahead(run):
    seen: list[tuple[Any, ...]] = []

    def prepare(*inputs: Any) -> str:
        seen.append(inputs)
        time.sleep(0.01)
        return "never shown"

    async def updates() -> tuple[list[Any], list[str]]:
        turns, places = FairTurns("the model"), []

        def progress(share: float, desc: str) -> None:
            places.append(desc)

        async def collect() -> list[Any]:
            waiting = event(turns, "b", lambda one, other: f"{one} {other}", progress, prepare=prepare)
            return [update async for update in waiting]

        async with turns.turn("a"):
            task = asyncio.ensure_future(collect())
            await asyncio.sleep(0.05)
        return await task, places

    found, places = run(updates)
    assert found[-1] == "5 x"
    assert all(update == gr.skip() for update in found[:-1])
    assert places[0] == "1 ahead of you"
    assert seen == [(5, "x")]


def test_client_that_leaves_while_waiting_frees_its_place(run):
    async def order() -> list[str]:
        turns, ran = FairTurns("the model"), []
        async with turns.turn("a"):
            leaving = event(turns, "b", lambda *_: ran.append("b"))
            assert await anext(leaving) == gr.skip()
            await leaving.aclose()
        await turns.run("c", ran.append, "c")
        return ran

    assert run(order) == ["c"]


def test_cancelled_work_keeps_its_turn_until_its_thread_ends(run):
    async def free_after_cancel() -> tuple[bool, bool]:
        turns, begun, free = FairTurns("the model"), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert free.wait(10)

        task = asyncio.ensure_future(turns.run("a", work))
        await in_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0.02)
        early = task.done()
        free.set()
        await asyncio.wait((task,), timeout=10)
        return early, task.cancelled()

    assert run(free_after_cancel) == (False, True)


def test_handler_that_fails_says_one_sentence(run, capsys):
    with pytest.raises(LabError, match=r"^Something went wrong in the server: try again\.$"):
        run(lambda: in_thread(lambda: 1 // 0))
    assert "ZeroDivisionError" in capsys.readouterr().err
