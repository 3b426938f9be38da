"""Connections to other servers: each request gets one, new or kept from an earlier request.

A connection that was kept may have been closed by the server meanwhile. That shows when it is used: the server has not
heard the request then, which is sent again on another one. One that was idle for long is not used, since a request
whose body was sent piece by piece cannot be sent again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from storage_cluster.servers.http.outbound import NODE_TIMEOUT_S, OutboundConnection

CONNECT_TIMEOUT_S = 0.5
IDLE_MAX_S = 30.0
"""Half of what our servers wait for the next request (`inbound.CLIENT_TIMEOUT_S`), and less than others do."""
_MORE_TURNS = 10

T = TypeVar("T")

Address = tuple[str, int]


class Connections:
    """The connections of one client of servers."""

    def __init__(self, *, are_kept: bool, patience_s: float = NODE_TIMEOUT_S) -> None:
        """`patience_s`: how long a server may be silent while somebody waits for it."""
        self.are_kept = are_kept
        self._patience_s = patience_s
        self._idle: dict[Address, list[tuple[OutboundConnection, float]]] = {}  # with the time of its last use

    def close(self) -> None:
        """Close those that are kept."""
        for connections in self._idle.values():
            for connection, _ in connections:
                connection.close()
        self._idle.clear()

    async def ask(
        self, address: Address, ask: Callable[[OutboundConnection], Awaitable[T]]
    ) -> tuple[OutboundConnection, T]:
        """Send a request; returns its connection and the result. Raises: OSError."""
        while True:
            connection = await self._get(address)
            begun = False
            try:
                answer = await ask(connection)
                begun = True
                return connection, answer
            except ConnectionError:
                if not connection.reused:
                    raise  # else the server has closed it meanwhile, and has not heard the request
            finally:
                if not begun:
                    connection.close()

    def release(self, address: Address, connection: OutboundConnection) -> None:
        """Keep a connection that is not needed any more, or close it."""
        if self.are_kept and connection.reusable:
            self._idle.setdefault(address, []).append((connection, time.monotonic()))
        else:
            connection.close()

    async def _get(self, address: Address) -> OutboundConnection:
        idle = self._idle.get(address)
        while idle:
            connection, used_s = idle.pop()
            if connection.reusable and time.monotonic() - used_s < IDLE_MAX_S:
                connection.reused = True
                return connection
            connection.close()
        return await _connect(address, self._patience_s)


async def _connect(address: Address, patience_s: float) -> OutboundConnection:
    """A new connection. Raises: OSError.

    A loop that was busy for the whole time looks at its timers before its sockets, and a connection takes some turns
    to be ready; so it gets a few turns more before a server is called unreachable.
    """
    making = asyncio.get_running_loop().create_connection(lambda: OutboundConnection(patience_s=patience_s), *address)
    connecting = asyncio.ensure_future(making)
    try:
        done, _ = await asyncio.wait((connecting,), timeout=CONNECT_TIMEOUT_S)
        for _ in range(0 if done else _MORE_TURNS):
            await asyncio.sleep(0)
        if not connecting.done():
            raise TimeoutError(f"{address[0]}:{address[1]} does not accept a connection")
        return connecting.result()[1]
    finally:
        connecting.cancel()
