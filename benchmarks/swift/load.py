"""A load generator that is not the bottleneck: `python -m benchmarks.swift.load AUTH_URL USER KEY METHOD SIZE …`.

Closed loop: each worker has one kept-alive connection and sends its next request when the last is answered. The
protocol does as little as it can with an answer (status, length), so that the machine's time goes to the store. Used
for every store alike; prints one JSON line. METHOD is PUT, GET, or before these PREPARE: the container, what is read.
"""

import asyncio
import json
import os
import sys
import time
from typing import cast
from urllib.parse import urlsplit

import uvloop

READ_OBJECTS_COUNT = 64
CONTAINER = "bench"
WARM_UP_S = 1.0
GIVE_UP_S = 60.0


class Connection(asyncio.Protocol):
    """One request at a time; its status when the whole answer is there, 0 if the connection breaks."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[int] | None = None
        self._head = b""
        self._left: int | None = None
        self._status = 0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        self.closed = True
        self._on_done(0)

    def data_received(self, data: bytes) -> None:
        if self._left is None:
            head, found, rest = (self._head + data).partition(b"\r\n\r\n")
            if not found:
                self._head = head
                return
            self._head = b""
            self._status = int(head[9:12])
            lowered = head.lower()
            at = lowered.find(b"\r\ncontent-length:")
            self._left = int(lowered[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            data = rest
        self._left -= len(data)
        if self._left <= 0:
            self._left = None
            self._on_done(self._status)

    async def call(self, message: bytes, body: bytes = b"") -> int:
        """Send it; the answer's status."""
        if self.closed:
            return 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines([message, body])
        return await self._answer

    def _on_done(self, status: int) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(status)


async def main(auth_url: str, user: str, key: str, method: str, size: str, concurrency: str, duration_s: str) -> None:
    """Load the store and print what came of it."""
    address, path, token = await _authenticate(auth_url, user, key)
    headers = f"Host: {address[0]}:{address[1]}\r\nX-Auth-Token: {token}\r\n"
    if method == "PREPARE":
        await _prepare(address, path, headers, int(size))
        return
    run = _Run(address, path, headers, method, int(size), float(duration_s))
    await run.all(int(concurrency))
    print(json.dumps(run.result()))


class _Run:
    def __init__(
        self, address: tuple[str, int], path: str, headers: str, method: str, size: int, duration_s: float
    ) -> None:
        self._address, self._path, self._headers, self._method = address, path, headers, method
        self._body = os.urandom(size) if method == "PUT" else b""
        now = time.perf_counter()
        self._begin, self._end = now + WARM_UP_S, now + WARM_UP_S + duration_s
        self._latencies: list[float] = []
        self._last = self._begin
        self.failures = 0
        self.statuses: dict[int, int] = {}

    async def all(self, concurrency: int) -> None:
        await asyncio.gather(*(self._work(worker) for worker in range(concurrency)))

    async def _work(self, worker: int) -> None:
        connection = await _connect(self._address)
        count = 0
        while (start := time.perf_counter()) < self._end:
            name = f"r{(worker * 7 + count) % READ_OBJECTS_COUNT}" if self._method == "GET" else f"w{worker}-{count}"
            head = f"{self._method} {self._path}/{CONTAINER}/{name} HTTP/1.1\r\n{self._headers}"
            if self._method == "PUT":
                head += f"Content-Length: {len(self._body)}\r\nContent-Type: application/octet-stream\r\n"
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    status = await connection.call(f"{head}\r\n".encode(), self._body)
            except TimeoutError:
                status = 0
            now = time.perf_counter()
            count += 1
            if now >= self._begin:
                self._latencies.append(now - start)
                self.failures += status not in (200, 201)
                self.statuses[status] = self.statuses.get(status, 0) + 1
                self._last = max(self._last, now)
            if status == 0 or connection.closed:
                connection = await _connect(self._address)

    def result(self) -> dict[str, float | str]:
        ordered = sorted(self._latencies) or [0.0]
        count = len(ordered)
        return {
            "requests_per_s": round((len(self._latencies) - self.failures) / max(1e-9, self._last - self._begin), 1),
            "p50_ms": round(ordered[count // 2] * 1e3, 2),
            "p99_ms": round(ordered[min(count - 1, int(count * 0.99))] * 1e3, 2),
            "requests_count": count,
            "failures_count": self.failures,
            "statuses": " ".join(f"{status}:{count}" for status, count in sorted(self.statuses.items())),
            "client_cpu_s": round(time.process_time(), 2),
        }


async def _connect(address: tuple[str, int]) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, *address)
    return connection


async def _authenticate(auth_url: str, user: str, key: str) -> tuple[tuple[str, int], str, str]:
    """Address and path of the account, and a token."""
    parts = urlsplit(auth_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(
        f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n"
        f"X-Auth-User: {user}\r\nX-Auth-Key: {key}\r\n\r\n".encode()
    )
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    writer.close()
    given = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    proxy = urlsplit(given["x-storage-url"])
    assert proxy.hostname and proxy.port
    return (os.environ.get("STORE_ADDRESS", proxy.hostname), proxy.port), proxy.path, given["x-auth-token"]


async def _prepare(address: tuple[str, int], path: str, headers: str, size: int) -> None:
    connection = await _connect(address)
    status = await connection.call(f"PUT {path}/{CONTAINER} HTTP/1.1\r\n{headers}Content-Length: 0\r\n\r\n".encode())
    assert status in (201, 202), f"the container cannot be made: {status}"
    for index in range(READ_OBJECTS_COUNT):
        head = f"PUT {path}/{CONTAINER}/r{index} HTTP/1.1\r\n{headers}Content-Length: {size}\r\n\r\n"
        status = await connection.call(head.encode(), os.urandom(size))
        assert status == 201, f"an object to read cannot be put: {status}"


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
