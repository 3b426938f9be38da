"""Limits connections to the collector's port: their number, and the time for heads and bodies.

A connection is in one of three phases: waiting for a request's head, receiving its body, or processing the request.
Only in the first two can its client be late: a head must be complete `head_seconds` after the connection was opened, or
after the previous answer; a body must make progress every `idle_seconds` and be complete within `body_seconds`. While
this side pauses reading, because its disk is slow, no client is late. The number of connections is limited, in total
and by address. At a limit, a new connection replaces the oldest one that has not sent a complete head, so that
half-sent requests block nobody; if there is none, the new connection is refused.

Source: RFC 9112 §9.5 (closing idle connections), RFC 6585 §5 (431).
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class Phase(Enum):
    """What a connection waits for."""

    HEAD = "head"
    BODY = "body"
    WORK = "work"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of all connections of a collector."""

    connections_count: int = 512
    connections_of_address_count: int = 128
    head_bytes: int = 64 << 10
    head_seconds: float = 10.0
    idle_seconds: float = 15.0
    body_seconds: float = 300.0
    look_seconds: float = 1.0  # how often a connection's phase is looked at


@dataclass(slots=True)
class Door:
    """The connections that are open."""

    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    closed_count: int = 0  # for a limit's sake
    _open: dict[str, list["GuardedConnection"]] = field(default_factory=lambda: defaultdict(list))

    def admit(self, newcomer: "GuardedConnection") -> bool:
        """Accept a connection, in place of another one if there are too many; False if none can be closed."""
        of_address = self._open[newcomer.address]
        everyone = [each for those in self._open.values() for each in those]
        for those, most in (
            (of_address, self.limits.connections_of_address_count),
            (everyone, self.limits.connections_count),
        ):
            if len(those) >= most and not self._make_room(those):
                return False
        of_address.append(newcomer)
        return True

    def forget(self, connection: "GuardedConnection") -> None:
        """It is closed."""
        those = self._open.get(connection.address, [])
        if connection in those:
            those.remove(connection)
        if not those:
            self._open.pop(connection.address, None)

    def _make_room(self, connections: list["GuardedConnection"]) -> bool:
        owing = [each for each in connections if each.phase() is Phase.HEAD]
        if not owing:
            return False
        oldest = min(owing, key=lambda each: each.since)
        self.forget(oldest)
        oldest.refuse(b"408 Request Timeout")
        return True


class GuardedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that keeps to its door's limits."""

    door: Door

    def connection_made(self, transport: Any) -> None:
        """Open it, if the door lets it in."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self.since = self.heard = self.door.clock()
        self.head_len = 0
        self._before = Phase.HEAD
        self._look: asyncio.TimerHandle | None = None
        if self.door.admit(self):
            self._look = self.loop.call_later(self.door.limits.look_seconds, self.look)
        else:
            self.refuse(b"503 Service Unavailable")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._look is not None:
            self._look.cancel()
        self.door.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the next bytes, within the limits."""
        self._note(self.phase())
        if self._before is Phase.HEAD:
            self.head_len += len(data)
        super().data_received(data)
        self.heard = self.door.clock()
        self._note(self.phase())
        if self._before is Phase.HEAD and self.head_len > self.door.limits.head_bytes:
            self.refuse(b"431 Request Header Fields Too Large")

    def phase(self) -> Phase:
        """What it waits for."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return Phase.HEAD
        return Phase.BODY if cycle.more_body else Phase.WORK

    def look(self) -> None:
        """Close it if its client is late."""
        limits, now = self.door.limits, self.door.clock()
        self._note(self.phase())
        reads = not self.flow.read_paused
        self.heard = self.heard if reads else now
        late = (self._before is Phase.HEAD and now - self.since > limits.head_seconds) or (
            self._before is Phase.BODY
            and reads
            and (now - self.heard > limits.idle_seconds or now - self.since > limits.body_seconds)
        )
        if late:
            self.refuse(b"408 Request Timeout")
        else:
            self._look = self.loop.call_later(limits.look_seconds, self.look)

    def refuse(self, status: bytes) -> None:
        """Answer with that status, if nothing was answered yet, and close."""
        self.door.closed_count += 1
        if self._before is Phase.HEAD and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            self.transport.close()
        else:
            self.transport.abort()

    def _note(self, phase: Phase) -> None:
        if phase is not self._before:
            self._before, self.since, self.head_len = phase, self.door.clock(), 0


def protocol_behind(door: Door) -> type[asyncio.Protocol]:
    """The protocol of a server behind a door."""
    return type("GuardedBy", (GuardedConnection,), {"door": door})
