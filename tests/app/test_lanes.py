import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from app.errors import Busy
from app.lanes import Lane


@pytest.fixture
def run(portal: BlockingPortal) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    return lambda work: portal.call(work)


class Gate:
    """Work that ends when it is let go, and says whether it has begun."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.free.wait(20)
        return "done"


async def begun(gate: Gate) -> None:
    while not gate.begun.is_set():
        await asyncio.sleep(0.001)


def test_first_come_is_first_served_and_hears_its_place(run):
    async def three() -> tuple[list[str], list[list[int]]]:
        lane, gate, order = Lane("the model", 1, most=5), Gate(), []
        places: list[list[int]] = [[], [], []]

        async def visitor(number: int) -> None:
            def hear(news: dict) -> None:
                if news["state"] == "waiting":
                    places[number].append(news["place"])

            work = gate if number == 0 else lambda: order.append(str(number))
            await lane.run(work, tell=hear)

        first = asyncio.ensure_future(visitor(0))
        await begun(gate)
        others = [asyncio.ensure_future(visitor(number)) for number in (1, 2)]
        await asyncio.sleep(0.01)
        gate.free.set()
        await asyncio.gather(first, *others)
        return order, places

    order, places = run(three)
    assert order == ["1", "2"]
    assert places == [[], [0], [1, 0]]


def test_who_comes_when_the_line_is_full_is_told_so(run):
    async def full() -> None:
        lane, gate = Lane("the model", 1, most=2), Gate()
        busy = [asyncio.ensure_future(lane.run(gate)) for _ in range(3)]
        await begun(gate)
        with pytest.raises(Busy, match="Too many visitors wait for the model"):
            await lane.run(gate)
        gate.free.set()
        assert await asyncio.gather(*busy) == ["done"] * 3

    run(full)


def test_nobody_fills_the_line_alone(run):
    async def greedy() -> None:
        lane, gate = Lane("objects", 1, most=30, most_of_one=3), Gate()
        busy = [asyncio.ensure_future(lane.run(gate, owner="greedy")) for _ in range(3)]
        await begun(gate)
        with pytest.raises(Busy, match="Enough of this picture waits"):
            await lane.run(gate, owner="greedy")
        other = asyncio.ensure_future(lane.run(gate, owner="modest"))
        gate.free.set()
        assert await asyncio.gather(*busy, other) == ["done"] * 4
        assert await lane.run(gate, owner="greedy") == "done", "when the line is short again"

    run(greedy)


def test_who_asks_once_comes_before_the_second_question_of_who_asks_many(run):
    async def three_owners() -> tuple[list[str], list[dict]]:
        lane, gate, order, told = Lane("the model", 1, most=30), Gate(), [], []
        asked = [asyncio.ensure_future(lane.run(gate, owner="many"))]
        await begun(gate)

        def ask(owner: str, name: str, tell=lambda news: None) -> None:
            asked.append(asyncio.ensure_future(lane.run(lambda: order.append(name), owner=owner, tell=tell)))

        for number in range(3):
            ask("many", f"many {number}")
        await asyncio.sleep(0)
        ask("few", "few 0")
        ask("few", "few 1")
        ask("once", "once", told.append)
        await asyncio.sleep(0.01)
        gate.free.set()
        await asyncio.gather(*asked)
        return order, told

    order, told = run(three_owners)
    assert order[:2] == ["few 0", "once"]
    assert told[0] == {"state": "waiting", "place": 1}
    assert [name for name in order if name.startswith("many")] == ["many 0", "many 1", "many 2"]


def test_in_a_full_line_who_asks_most_gives_way(run):
    async def full() -> None:
        lane, gate = Lane("the model", 1, most=3), Gate()
        busy = asyncio.ensure_future(lane.run(gate, owner="first"))
        await begun(gate)
        many = [asyncio.ensure_future(lane.run(lambda: "late", owner="many")) for _ in range(3)]
        await asyncio.sleep(0)
        one, other = (asyncio.ensure_future(lane.run(lambda: "served", owner=name)) for name in "ab")
        await asyncio.sleep(0.01)
        with pytest.raises(Busy, match="Too many visitors"):
            await lane.run(gate, owner="c")  # nobody waits for more than one by now
        gate.free.set()
        assert [await each for each in (busy, one, other)] == ["done", "served", "served"]
        results = await asyncio.gather(*many, return_exceptions=True)
        assert results[0] == "late"
        assert all(isinstance(each, Busy) and "ask for less at once" in str(each) for each in results[1:])
        assert not lane._line
        assert not lane._at_work

    run(full)


def test_who_leaves_the_line_lets_the_next_one_up(run):
    async def leave() -> list[int]:
        lane, gate, places = Lane("the model", 1, most=5), Gate(), []
        first = asyncio.ensure_future(lane.run(gate))
        await begun(gate)
        leaving = asyncio.ensure_future(lane.run(lambda: pytest.fail("nobody wants this")))
        await asyncio.sleep(0)
        staying = asyncio.ensure_future(
            lane.run(lambda: "mine", tell=lambda news: places.append(news.get("place")))
        )
        await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.sleep(0.01)
        gate.free.set()
        assert await staying == "mine"
        await first
        return places

    assert run(leave)[:2] == [1, 0]


def test_work_that_nobody_waits_for_keeps_its_place_until_it_ends(run):
    """Else two threads would work on one model."""

    async def abandon() -> None:
        lane, gate, second = Lane("the model", 1, most=5), Gate(), Gate()
        first = asyncio.ensure_future(lane.run(gate))
        await begun(gate)
        first.cancel()
        first.cancel()
        next_one = asyncio.ensure_future(lane.run(second))
        await asyncio.sleep(0.05)
        assert not second.begun.is_set()
        gate.free.set()
        second.free.set()
        assert await next_one == "done"
        with pytest.raises(asyncio.CancelledError):
            await first

    run(abandon)


def test_failed_work_frees_the_lane(run):
    async def fail() -> None:
        lane = Lane("the model", 1, most=1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await lane.run(lambda: 1 // 0)

    run(fail)


def test_one_kind_of_work_never_takes_the_threads_of_another(run):
    async def crowd() -> None:
        slow, gate = Lane("objects", 60, most=100), Gate()
        crowd = [asyncio.ensure_future(slow.run(gate)) for _ in range(60)]  # more than anyio's own forty
        await begun(gate)
        assert await asyncio.wait_for(Lane("the model", 1, most=1).run(lambda: "quick"), 5) == "quick"
        gate.free.set()
        await asyncio.gather(*crowd)

    run(crowd)
