"""Order of operations on streams: which are known to be complete when another one begins.

Streams run at the same time. Only events and waits order two operations on different streams. Vector clocks
find this order (C. Fidge 1988, F. Mattern 1989). Each actor, a stream or the host, has a number for every
stream. All operations of the stream up to this number are complete before the actor's next operation begins.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

RECORD, WAIT, WAIT_FOR_EVENT, WAIT_FOR_STREAM, WAIT_FOR_DEVICE, QUERY_EVENT, QUERY_STREAM = range(7)
"""Calls that the stub reports."""
HOST = "host"
Actor = int | str


@dataclass
class Usage:
    """Use of a piece of memory."""

    home: int
    """Stream that allocated it, and that may use it again once it is freed."""
    write: tuple[int, int] | None = None
    """Stream and number of the last operation that wrote it."""
    accesses: dict[int, int] = field(default_factory=dict)
    """Last operation of every stream since the last write, the write included."""
    recorded: set[int] = field(default_factory=set)
    """Streams of `record_stream`."""


class Order:
    """Order of the operations of streams and host. The device is slow: work completes when the host waits."""

    def __init__(self) -> None:
        self.clocks: defaultdict[Actor, Counter[int]] = defaultdict(Counter)
        self.events: dict[int, Counter[int]] = {}
        self.issued: Counter[int] = Counter()
        """Number of operations of every stream."""

    def issue(self, stream: int) -> int:
        """Put an operation on a stream; return its number."""
        self.issued[stream] += 1
        clock = self.clocks[stream] | self.clocks[HOST]
        clock[stream] = self.issued[stream]
        self.clocks[stream] = clock
        return clock[stream]

    def note_call(self, what: int, first: int, second: int) -> bool:
        """Take a call of the runtime; return whether a query finds unfinished work."""
        if what == RECORD:
            self.events[first] = self.clocks[second].copy()
        elif what == WAIT:
            self.clocks[first] |= self.events.get(second, Counter())
        elif what == WAIT_FOR_EVENT:
            self.clocks[HOST] |= self.events.get(first, Counter())
        elif what == WAIT_FOR_STREAM:
            self.clocks[HOST] |= self.clocks[first]
        elif what == WAIT_FOR_DEVICE:
            self.clocks[HOST] |= self.issued
        else:
            awaited = self.events.get(first, Counter()) if what == QUERY_EVENT else self.clocks[first]
            return not awaited <= self.clocks[HOST]
        return False

    def is_complete(self, actor: Actor, stream: int, number: int) -> bool:
        """Test if an operation of a stream is complete before whatever the actor does next."""
        return actor == stream or self.clocks[actor][stream] >= number

    def access(self, usage: Usage, stream: int, number: int, *, write: bool) -> str | None:
        """Note that an operation uses memory; describe its conflict with another stream."""
        before = usage.accesses.items() if write else [usage.write] if usage.write else []
        conflict = next((other for other, last in before if not self.is_complete(stream, other, last)), None)
        if write:
            usage.write, usage.accesses = (stream, number), {}
        usage.accesses[stream] = number
        return None if conflict is None else f"stream {stream} does not wait for stream {conflict}"

    def free(self, usage: Usage) -> str | None:
        """Describe a stream that still uses memory which its home stream may use again."""
        for stream, last in usage.accesses.items():
            if stream not in usage.recorded and not self.is_complete(usage.home, stream, last):
                return f"memory of stream {usage.home} is freed while stream {stream} uses it"
        return None
