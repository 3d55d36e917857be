"""Fair turns at a shared resource: the first request of every client before the second request of any.

Gradio serves the events of a `concurrency_id` in their order of arrival, so one client could fill the queue.
Events that use the model therefore run without a concurrency limit and take a turn from `FairTurns`.
"""

import asyncio
import contextlib
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
import gradio as gr

from app.limits.bounds import Limits
from app.limits.errors import Busy, LabError

Result = TypeVar("Result")
RECHECK_SECONDS = 1.0
"""Longest time after which a waiting event yields, so that Gradio can end it when its client has left."""


@dataclass(eq=False)
class _Ticket:
    client: Hashable


class FairTurns:
    """A queue with `width` requests at work and a fair order among the clients that wait. For one event loop.

    Args:
        name: What clients wait for, as it appears in messages: "the model".
        max_waiting: Number of waiting requests from which on only clients without any are taken in.
        max_per_client: Number of requests that one client may have waiting or running.
    """

    def __init__(
        self, name: str, width: int = 1, max_waiting: int = Limits.max_waiting, max_per_client: int = 24
    ) -> None:
        self.name, self.width = name, width
        self.max_waiting, self.max_per_client = max_waiting, max_per_client
        self._waiting: list[_Ticket] = []
        self._running: list[_Ticket] = []
        self._moved = asyncio.Event()
        self._last_turn: dict[Hashable, int] = {}
        self._turns = 0

    async def wait(self, client: Hashable) -> AsyncIterator[int]:
        """Wait for a turn, and hold it until the generator is closed.

        Yields:
            The number of requests ahead, at least every `RECHECK_SECONDS`; 0 once the turn has come.

        Raises:
            Busy: The queue is full: it takes only the first request of a client.
        """
        own = sum(ticket.client == client for ticket in (*self._waiting, *self._running))
        full = len(self._waiting) >= self.max_waiting
        if own >= self.max_per_client or (own and full):
            reason = "and many of other clients" if full else "the most that one client may have"
            raise Busy(
                f"{own} of your requests wait for {self.name}, {reason}: send the next when one is answered."
            )
        ticket = _Ticket(client)
        self._waiting.append(ticket)
        try:
            while ahead := self._requests_ahead(ticket):
                yield ahead
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._moved.wait(), RECHECK_SECONDS)
            yield 0
        finally:
            for tickets in (self._waiting, self._running):
                if ticket in tickets:
                    tickets.remove(ticket)
            if not self._waiting and not self._running:
                self._last_turn.clear()
            self._moved.set()
            self._moved = asyncio.Event()

    @contextlib.asynccontextmanager
    async def turn(self, client: Hashable) -> AsyncIterator[None]:
        """Wait for a turn, as `wait`, and hold it until the end of the block."""
        async with contextlib.aclosing(self.wait(client)) as places:  # type: ignore[type-var]
            async for ahead in places:
                if not ahead:
                    yield
                    return

    async def run(self, client: Hashable, work: Callable[..., Result], *inputs: Any) -> Result:
        """Run a blocking function as `in_thread` when its turn comes."""
        async with self.turn(client):
            return await in_thread(work, *inputs)

    def _requests_ahead(self, ticket: _Ticket) -> int:
        """Return the number of requests before this one; at 0 the ticket moves from waiting to running.

        Every client's first request is served before the second request of any.
        """
        earlier: Counter[Hashable] = Counter()
        keys = {}
        for arrival, other in enumerate(self._waiting):
            keys[other] = (earlier[other.client], self._last_turn.get(other.client, 0), arrival)
            earlier[other.client] += 1
        place = sum(key < keys[ticket] for key in keys.values())
        if place or len(self._running) >= self.width:
            return place + len(self._running)
        self._waiting.remove(ticket)
        self._running.append(ticket)
        self._turns += 1
        self._last_turn[ticket.client] = self._turns
        return 0


MODEL = FairTurns("the model")
"""Turns at the models: one encoding at a time uses all cores, or the accelerator."""
LOADING = FairTurns("a model that is being loaded", width=16)
"""Turns at downloads and at reading weights; they do not delay other requests."""
READING = FairTurns("maps that are being computed", width=2)
"""Turns at arrays of encodings in memory."""
FINDING = FairTurns("objects that are being computed", max_per_client=4)
"""Turns at finding objects in encodings, which takes seconds of all cores: more from one client would delay
the maps of others."""
DECODING = FairTurns("images that are being read", width=2)
"""Turns at decoding uploads."""


def in_turn(
    function: Callable[..., Any],
    prepare: Callable[..., Callable[[], object] | None] | None = None,
    turns: FairTurns | None = None,
    hold: Callable[..., contextlib.AbstractContextManager[object]] | None = None,
) -> Callable[..., AsyncIterator[Any]]:
    """Wrap a blocking event handler so that it takes a turn and runs in a thread.

    Use the result as `fn` of an event with `concurrency_limit=None`. While it waits, its outputs stay.

    Args:
        function: The handler.
        prepare: Returns what these inputs have to load first, as `Models.loader`; None for nothing.
        turns: Default: `MODEL`.
        hold: Returns a context for these inputs that lasts until the handler has ended.
    """

    async def handler(request: gr.Request, progress=gr.Progress(), *inputs):  # type: ignore[no-untyped-def]
        with hold(*inputs) if hold else contextlib.nullcontext():
            load = await in_thread(prepare, *inputs) if prepare else None
            stages = [(LOADING, load)] * bool(load) + [(turns or MODEL, partial(function, *inputs))]
            for queue, work in stages:
                async with contextlib.aclosing(queue.wait(client_of(request))) as places:
                    async for ahead in places:
                        if ahead:
                            progress(0, desc=f"{ahead} ahead of you")
                            yield gr.skip()
                        else:
                            result = await in_thread(work)
        yield result

    handler.__name__ = getattr(function, "__name__", "handler")
    return handler


class Canceled(LabError):
    """The client of this work has left."""


_CANCELED: ContextVar[threading.Event | None] = ContextVar("canceled", default=None)


def stop_if_canceled(*_: object) -> None:
    """Raise `Canceled` in a thread of `in_thread` whose caller was canceled. The blocks of models call it."""
    canceled = _CANCELED.get()
    if canceled and canceled.is_set():
        raise Canceled("The client has left.")


async def in_thread(work: Callable[..., Result], *inputs: Any) -> Result:
    """Run a blocking function in its own thread. A canceled caller waits for it, see `stop_if_canceled`."""
    canceled = threading.Event()

    def run() -> Result:
        _CANCELED.set(canceled)  # of a copy of the context
        try:
            return work(*inputs)
        except gr.Error:
            raise
        except Exception as error:
            traceback.print_exc()
            raise LabError("Something went wrong in the server: try again.") from error

    task = asyncio.ensure_future(anyio.to_thread.run_sync(run, limiter=anyio.CapacityLimiter(1)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        canceled.set()
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not report it
        raise


def client_of(request: gr.Request | None) -> Hashable:
    """Return address and session of the client that sent a request."""
    client = getattr(request, "client", None)
    return (client.host if client else "", getattr(request, "session_hash", None))
