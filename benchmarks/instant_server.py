"""A server that answers at once: what a load generator can be measured against.

It speaks just enough HTTP: a request is a head and as many bytes as its Content-Length says; every one is answered with
the same response. `python -m benchmarks.instant_server PORT` serves until it is ended.
"""

import asyncio
import re
import sys
from typing import cast

import uvloop

RESPONSE = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Trans-Id: tx0123456789abcdef01234-0000000000\r\n"
    b"X-Storage-Url: http://%s/v1/AUTH_test\r\nX-Auth-Token: token\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class InstantServer(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._held = b""
        self._response = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._response = RESPONSE % "{}:{}".format(*transport.get_extra_info("sockname")[:2]).encode()

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._held, 0, end)
            length = end + 4 + (int(found[1]) if found else 0)
            if len(self._held) < length:
                return
            self._answer(b"\r\nConnection: close" in self._held[:end])
            self._held = self._held[length:]

    def _answer(self, last: bool) -> None:
        assert self._transport is not None
        self._transport.write(self._response)
        if last:
            self._transport.close()


async def serve(port: int) -> asyncio.Server:
    """Listen on loopback; port 0 is any free one."""
    return await asyncio.get_running_loop().create_server(InstantServer, "127.0.0.1", port, backlog=4096)


async def _main(port: int) -> None:
    server = await serve(port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1])))
