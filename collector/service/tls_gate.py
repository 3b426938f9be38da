"""TLS before the collector's port: a connection is handed to HTTP after its handshake, and handshakes have limits.

asyncio gives a handshake 60 s and as many as there are descriptors, so a stranger who opens connections and sends
nothing could hold the port. Here a handshake must be complete within `handshake_seconds`, and the number of unfinished
ones is limited, in total and by address. At a limit a newcomer replaces the oldest unfinished one: of its own address,
or else of the address that has most of them. The limits of connections come after that (`collector.service.door`).

    TCP connection → Gate → handshake → the protocol behind it → HTTP

It needs asyncio's own event loop: uvloop reads before TLS does, whatever the protocol says, and the hello is lost.

Source: RFC 4987 §3 (the same defence against half-open TCP connections).
"""

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from collector.service.handshakes import CROWDED, LATE, Handshakes
from tracer.tls import PEER, Peer


@dataclass(frozen=True, slots=True)
class HandshakeLimits:
    """Of all handshakes of a collector that are not finished."""

    unfinished_count: int = 256
    unfinished_of_address_count: int = 64
    handshake_seconds: float = 10.0


@dataclass(slots=True)
class TlsGate:
    """The handshakes that are not finished."""

    context: ssl.SSLContext
    handshakes: Handshakes
    limits: HandshakeLimits = field(default_factory=HandshakeLimits)
    clock: Callable[[], float] = time.monotonic
    _unfinished: dict[str, dict["GatedConnection", None]] = field(default_factory=lambda: defaultdict(dict))

    def unfinished_count(self) -> int:
        """How many are not finished."""
        return sum(map(len, self._unfinished.values()))

    def admit(self, newcomer: "GatedConnection") -> None:
        """Let a connection begin, in place of another one if there are too many."""
        of_address = self._unfinished[newcomer.address]
        if len(of_address) >= self.limits.unfinished_of_address_count:
            self._refuse_oldest(of_address)
        elif self.unfinished_count() >= self.limits.unfinished_count:
            self._refuse_oldest(max(self._unfinished.values(), key=len))
        self._unfinished[newcomer.address][newcomer] = None

    def forget(self, connection: "GatedConnection") -> None:
        """Its handshake is finished, or it is closed."""
        those = self._unfinished.get(connection.address, {})
        those.pop(connection, None)
        if not those:
            self._unfinished.pop(connection.address, None)

    def _refuse_oldest(self, connections: dict["GatedConnection", None]) -> None:
        oldest = next(iter(connections))
        self.handshakes.count(CROWDED, oldest.address)
        oldest.abort()


class GatedConnection(asyncio.Protocol):
    """A connection of which the handshake is not finished; then the protocol behind takes its place."""

    gate: TlsGate
    behind: type[asyncio.Protocol]

    def __init__(self, **given: Any) -> None:
        """`given` is what the protocol behind is made with."""
        self._given = given
        self._early: list[bytes] = []
        self.address = ""

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake."""
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._transport, self._began = transport, self.gate.clock()
        transport.pause_reading()  # until TLS reads
        self.gate.admit(self)
        self._task = asyncio.get_running_loop().create_task(self._secure())

    def data_received(self, data: bytes) -> None:
        """Keep what was read between the end of the handshake and the change of protocols."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed before the protocol behind has it."""
        self.gate.forget(self)

    def abort(self) -> None:
        """Close it at once."""
        self.gate.forget(self)
        self._transport.abort()

    async def _secure(self) -> None:
        seconds, peer = self.gate.limits.handshake_seconds, Peer(self.address)
        PEER.set(peer)
        try:
            secured = await asyncio.get_running_loop().start_tls(
                self._transport, self, self.gate.context, server_side=True, ssl_handshake_timeout=seconds
            )
        except OSError:  # an ssl.SSLError was counted by the context; the others are cut off, or too late
            if not peer.is_refused and self.gate.clock() - self._began >= seconds:
                self.gate.handshakes.count(LATE, self.address)
            self._transport.abort()
            return
        finally:
            self.gate.forget(self)
        if secured is not None and not secured.is_closing():  # it may have been closed before its handshake began
            self._hand_over(secured)

    def _hand_over(self, secured: asyncio.Transport) -> None:
        """From now on HTTP has it, with what was read meanwhile."""
        behind = self.behind(**self._given)
        secured.set_protocol(behind)
        behind.connection_made(secured)
        for data in self._early:
            behind.data_received(data)


def protocol_with_tls(gate: TlsGate, behind: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    """The protocol of a server that speaks TLS and, behind it, the other protocol."""
    return type("GatedBy", (GatedConnection,), {"gate": gate, "behind": behind})
