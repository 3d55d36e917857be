"""Fair turns at a shared resource: the first request of every client before the second request of any.

Gradio serves the events of a `concurrency_id` in their order of arrival, so one client could fill the queue.
Events that use the model therefore run without a concurrency limit and take a turn from `FairTurns`.
"""

import asyncio
import contextlib
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import gradio as gr

from app.errors import Busy, LabError

Result = TypeVar("Result")
PATIENCE_SECONDS = 10.0
"""Longest time that a request waits only because a queue that goes first is busy."""
RECHECK_SECONDS = 1.0
"""Longest time after which a waiting event yields, so that Gradio can end it when its client has left."""


class _Ticket:
    def __init__(self, client: Hashable) -> None:
        self.client, self.moved, self.evicted = client, asyncio.Event(), False
        self.arrival = time.monotonic()

    async def wait(self) -> None:
        """Wait until the queue has moved, at most `RECHECK_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.moved.wait(), RECHECK_SECONDS)
        self.moved.clear()


class FairTurns:
    """A queue with `width` places at work and a fair order among the clients that wait. For one event loop.

    Args:
        name: What clients wait for, as it appears in messages: "the model".
        width: Number of requests that run at once.
        max_waiting: Number of requests that may wait.
        max_per_client: Number of requests that one client may have waiting or running.
        after: A queue whose requests go first; they share the processor.
    """

    def __init__(
        self,
        name: str,
        width: int = 1,
        max_waiting: int = 64,
        max_per_client: int = 8,
        after: "FairTurns | None" = None,
    ) -> None:
        self.name, self.width, self.after = name, width, after
        self.max_waiting, self.max_per_client = max_waiting, max_per_client
        self._waiting: list[_Ticket] = []
        self._running: list[_Ticket] = []
        self._last_turn: dict[Hashable, int] = {}
        self._turns = 0

    async def run(
        self, client: Hashable, work: Callable[[], Result], progress: Callable[..., Any] | None = None
    ) -> AsyncIterator[Any]:
        """Run `work` in a thread when its turn comes; for event handlers that are asynchronous generators.

        Args:
            client: See `client_of`.
            work: A blocking function.
            progress: A `gr.Progress` that shows the number of requests ahead.

        Yields:
            `gr.skip()` while the request waits, then the result of `work`.

        Raises:
            Busy: Too many requests wait.
        """
        ticket = self._join(client)
        try:
            while ahead := self._requests_ahead(ticket):
                if progress is not None:
                    progress(0, desc=f"{ahead} ahead of you")
                yield gr.skip()
                await ticket.wait()
            result = await in_thread(work)
        finally:
            self._leave(ticket)
        yield result

    @contextlib.asynccontextmanager
    async def turn(self, client: Hashable) -> AsyncIterator[None]:
        """Wait for a turn and hold it until the end of the block; for endpoints. Raises Busy as `run`."""
        ticket = self._join(client)
        try:
            while self._requests_ahead(ticket):
                await ticket.wait()
            yield
        finally:
            self._leave(ticket)

    def _join(self, client: Hashable) -> _Ticket:
        own = sum(ticket.client == client for ticket in (*self._waiting, *self._running))
        if own >= self.max_per_client:
            raise Busy(f"{own} of your requests wait for {self.name} already: try again in a moment.")
        if len(self._waiting) >= self.max_waiting:
            self._evict_for(own)
        ticket = _Ticket(client)
        self._waiting.append(ticket)
        return ticket

    def _evict_for(self, own: int) -> None:
        """Drop the newest request of the client that waits for most, if that is more than `own`."""
        greedy, most = Counter(ticket.client for ticket in self._waiting).most_common(1)[0]
        if most <= own + 1:
            raise Busy(f"Too many requests wait for {self.name}: try again in a moment.")
        last = next(ticket for ticket in reversed(self._waiting) if ticket.client == greedy)
        last.evicted = True
        last.moved.set()
        self._waiting.remove(last)

    def _requests_ahead(self, ticket: _Ticket) -> int:
        """Return the number of requests before this one; at 0 the ticket moves from waiting to running."""
        if ticket.evicted:
            raise Busy(f"Others wait for {self.name}: send fewer requests at once.")
        place = self._order().index(ticket)
        if place or len(self._running) >= self.width:
            return place + len(self._running)
        if self.after and self.after.busy and time.monotonic() - ticket.arrival < PATIENCE_SECONDS:
            return 1
        self._waiting.remove(ticket)
        self._running.append(ticket)
        self._turns += 1
        self._last_turn[ticket.client] = self._turns
        return 0

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

    def _order(self) -> list[_Ticket]:
        """Return waiting requests in the order of service: every client's first one, then the second ones."""
        earlier: Counter[Hashable] = Counter()
        keys = {}
        for arrival, ticket in enumerate(self._waiting):
            keys[ticket] = (earlier[ticket.client], self._last_turn.get(ticket.client, 0), arrival)
            earlier[ticket.client] += 1
        return sorted(self._waiting, key=keys.__getitem__)

    def _leave(self, ticket: _Ticket) -> None:
        for tickets in (self._waiting, self._running):
            if ticket in tickets:
                tickets.remove(ticket)
        if not self._waiting and not self._running:
            self._last_turn.clear()
        for other in self._waiting:
            other.moved.set()


MODEL = FairTurns("the model")
"""Turns at the models: one encoding at a time uses all cores, or the accelerator."""
LOADING = FairTurns("models that are being loaded", width=16, max_per_client=2)
"""Turns at downloads and at reading weights; they do not delay other requests."""
READING = FairTurns("maps that are being computed", width=2, max_per_client=24)
"""Turns at arrays of encodings in memory."""
FINDING = FairTurns("objects that are being computed", max_per_client=4, after=MODEL)
"""Turns at finding objects in encodings, which takes seconds; images that are opened go first."""
DECODING = FairTurns("images that are being read", width=2)
"""Turns at decoding uploads."""


def in_turn(
    function: Callable[..., Any], prepare: Callable[..., Any] | None = None, turns: FairTurns | None = None
) -> Callable[..., AsyncIterator[Any]]:
    """Wrap a blocking event handler so that it takes a turn and runs in a thread.

    Use the result as `fn` of an event with `concurrency_limit=None`. While it waits, its outputs stay.

    Args:
        function: The handler.
        prepare: Runs first with the same inputs, for example a download that must not hold a turn.
        turns: Default: `MODEL`.
    """

    async def handler(request: gr.Request, progress=gr.Progress(), *inputs):  # type: ignore[no-untyped-def]
        stages = [(turns or MODEL, function)]
        if prepare is not None:
            stages.insert(0, (LOADING, prepare))
        for queue, work in stages:
            updates = queue.run(client_of(request), partial(answered, work, *inputs), progress)
            async with contextlib.aclosing(updates):  # type: ignore[type-var]
                async for update in updates:
                    if work is function or update == gr.skip():
                        yield update

    handler.__name__ = getattr(function, "__name__", "handler")
    return handler


def answered(function: Callable[..., Result], *inputs: Any) -> Result:
    """Call a handler; print any error but a `LabError`, and raise a `LabError` for it."""
    try:
        return function(*inputs)
    except gr.Error:
        raise
    except Exception as error:
        traceback.print_exc()
        raise LabError("Something went wrong in the server: try again.") from error


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run `work` in its own thread. A cancelled caller waits for the end of `work`."""
    task = asyncio.ensure_future(anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        raise


def client_of(request: gr.Request | None) -> Hashable:
    """Return address and session of the client that sent a request."""
    if request is None:
        return ("", None)
    host = request.client.host if getattr(request, "client", None) else ""
    return (host, request.session_hash)
