"""Work in lanes: of each kind so much at once, in turn, and so many who wait.

Everything slow runs in a lane, in a thread of its own: no kind of work can take the threads of another, and
who waits is told how many are before him. Whoever leaves, leaves the line.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from app.errors import Busy

Result = TypeVar("Result")
Tell = Callable[[dict[str, Any]], None]
"""Takes what a visitor who waits is told next, such as {"state": "waiting", "place": 2}."""


def silent(news: dict[str, Any]) -> None:
    """Tell nobody."""


async def in_thread(work: Callable[[], Result]) -> Result:
    """What `work` returns, from a thread of its own; brought to its end although nobody waits any more."""
    task = asyncio.ensure_future(anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():  # whatever it works on is not free before
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        raise


class _Ticket:
    """A place in the line, and for whom."""

    def __init__(self, owner: Hashable) -> None:
        self.owner = owner
        self.moved = asyncio.Event()
        self.given_up = False


class Lane:
    """One kind of work. Who asks once is not kept waiting by one who asks forty times.

    Args:
        name: what visitors read it is, such as "the model".
        width: how much of it is done at once.
        most: how many may wait.
        most_of_one: how much of one owner may wait or be at work: nobody fills the line alone.
    """

    def __init__(self, name: str, width: int, most: int, most_of_one: int = 8) -> None:
        self.name, self.width, self.most, self.most_of_one = name, width, most, most_of_one
        self._line: list[_Ticket] = []
        self._at_work: list[_Ticket] = []
        self._turns: dict[Hashable, int] = {}  # owner -> number of the last turn, of this crowd
        self._count = 0

    async def run(
        self,
        work: Callable[[], Result],
        *,
        owner: Hashable = None,
        tell: Tell = silent,
        state: str = "looking",
    ) -> Result:
        """What `work` returns, done in a thread when its turn comes; `state` is told when it does.

        Work that has begun is brought to its end although nobody waits for it any more: it keeps its place
        until then.

        Raises:
            Busy: too many wait.
        """
        async with self.turn(owner, tell):
            tell({"state": state})
            return await in_thread(work)

    @contextlib.asynccontextmanager
    async def turn(self, owner: Hashable = None, tell: Tell = silent) -> AsyncIterator[None]:
        """One's turn, from when it comes to the end of the block.

        Args:
            owner: who asks, and about which picture; None is nobody in particular.
            tell: hears of the place in the line, 0 for the next.

        Raises:
            Busy: too many wait.
        """
        self._make_room(owner)
        ticket = _Ticket(owner)
        self._line.append(ticket)
        try:
            place = -1
            while len(self._at_work) >= self.width or self._in_turn()[0] is not ticket:
                if place != (place := self._in_turn().index(ticket)):
                    tell({"state": "waiting", "place": place})
                ticket.moved.clear()
                await ticket.moved.wait()
                if ticket.given_up:
                    raise Busy(
                        f"Others wait for {self.name}: ask for less at once, or try again in a moment."
                    )
            self._at_work.append(ticket)
            self._count += 1
            if ticket.owner is not None:
                self._turns[ticket.owner] = self._count
        finally:
            if not ticket.given_up:
                self._line.remove(ticket)
            self._move_up()
        try:
            yield
        finally:
            self._at_work.remove(ticket)
            self._move_up()

    def _make_room(self, owner: Hashable) -> None:
        """See that one more of `owner` may wait; who waits for most gives up what he asked for last.

        Raises:
            Busy: nobody waits for more than this owner.
        """
        own = sum(ticket.owner == owner for ticket in (*self._line, *self._at_work))
        if owner is not None and own >= self.most_of_one:
            raise Busy(f"Enough of this picture waits for {self.name}: try again in a moment.")
        if len(self._line) < self.most:
            return
        waiting = Counter(ticket.owner for ticket in self._line if ticket.owner is not None)
        greedy, most = max(waiting.items(), key=lambda item: item[1], default=(None, 0))
        if most <= waiting[owner] + 1:
            raise Busy(f"Too many visitors wait for {self.name}: try again in a moment.")
        last = next(ticket for ticket in reversed(self._line) if ticket.owner == greedy)
        last.given_up = True
        last.moved.set()
        self._line.remove(last)

    def _in_turn(self) -> list[_Ticket]:
        """The line as it will be served: everybody's first before anybody's second, whose turn was longest
        ago first.
        """
        seen: Counter[Hashable] = Counter()
        order = []
        for arrival, ticket in enumerate(self._line):
            order.append((seen[ticket.owner], self._turns.get(ticket.owner, 0), arrival))
            seen[ticket.owner] += ticket.owner is not None
        return [self._line[arrival] for *_, arrival in sorted(order)]

    def _move_up(self) -> None:
        if not self._line and not self._at_work:
            self._turns.clear()
        for ticket in self._line:
            ticket.moved.set()
