"""A store in memory that speaks just enough Swift, in the test's own event loop, and misbehaves as a test demands.

A test gives `behave`: called with each request before it is answered; what it returns is done instead: bytes are sent
as they are, `HANG` answers nothing, `CLOSE` and `RESET` end the connection, an awaitable is waited for first.
"""

import asyncio
import dataclasses
import hashlib
import inspect
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import unquote

import httptools

Store = TypeVar("Store", bound="TinyStore")
HANG, CLOSE, RESET = object(), object(), object()


@dataclasses.dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    peer_port: int

    @property
    def name(self) -> str:
        """The path without /v1/AUTH_test/ and the query."""
        return unquote(self.path.split("?")[0]).removeprefix("/v1/AUTH_test").removeprefix("/")


Behave = Callable[[Seen], object]


class TinyStore:
    """Containers with objects; every request that came."""

    def __init__(self, behave: Behave | None = None) -> None:
        self.containers: dict[str, dict[str, bytes]] = {}
        self.seen: list[Seen] = []
        self.tokens_count = 0
        self.port = 0
        self.behave = behave or (lambda seen: None)
        self.connections: set[asyncio.Transport] = set()

    @property
    def auth_url(self) -> str:
        """Where a token is to be had."""
        return f"http://127.0.0.1:{self.port}/auth/v1.0"

    @property
    def storage_url(self) -> str:
        """Where objects are."""
        return f"http://127.0.0.1:{self.port}/v1/AUTH_test"

    def requests(self, method: str) -> list[str]:
        """Names that were asked for with a method."""
        return [seen.name for seen in self.seen if seen.method == method]

    def answer(self, seen: Seen) -> bytes:
        """What a store that behaves says."""
        if seen.path.startswith("/auth"):
            self.tokens_count += 1
            return response(200, b"", f"X-Storage-Url: {self.storage_url}", f"X-Auth-Token: token{self.tokens_count}")
        container, _, name = seen.name.partition("/")
        return self._object(seen, container, name) if name else self._container(seen, container)

    def _container(self, seen: Seen, container: str) -> bytes:
        if seen.method == "PUT":
            self.containers.setdefault(container, {})
            return response(201)
        if container not in self.containers:
            return response(404)
        if seen.method == "DELETE":
            held = self.containers[container]
            if not held:
                del self.containers[container]
            return response(409 if held else 204)
        listed = [{"name": name, "bytes": len(body)} for name, body in sorted(self.containers[container].items())]
        return response(200, json.dumps([] if "marker=my" in seen.path else listed).encode())

    def _object(self, seen: Seen, container: str, name: str) -> bytes:
        held = self.containers.get(container, {})
        if seen.method == "PUT" and container in self.containers:
            held[name] = seen.body
            return response(201, b"", f"Etag: {hashlib.md5(seen.body).hexdigest()}")
        if name not in held:
            return response(404)
        if seen.method == "DELETE":
            del held[name]
            return response(204)
        return response(200, held[name])


def response(status: int, body: bytes = b"", *headers: str) -> bytes:
    """A response's bytes."""
    lines = [f"HTTP/1.1 {status} Said", "X-Trans-Id: tx42", *headers]
    if status != 204:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self, store: TinyStore) -> None:
        self._store = store
        self._parser = httptools.HttpRequestParser(self)
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._store.connections.add(transport)
        self._peer_port: int = transport.get_extra_info("peername")[1]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._store.connections.discard(self._transport)
        for task in self._tasks:
            task.cancel()

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", {}, []  # type: ignore[var-annotated]

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        seen = Seen(
            self._parser.get_method().decode(),
            self._path.decode(),
            self._headers,
            b"".join(self._body),
            self._peer_port,
        )
        self._store.seen.append(seen)
        done = self._store.behave(seen)
        if inspect.isawaitable(done):
            task = asyncio.ensure_future(self._wait(done, seen))
            self._tasks.add(task)
        else:
            self._do(done, seen)

    async def _wait(self, waiting: Awaitable[object], seen: Seen) -> None:
        self._do(await waiting, seen)

    def _do(self, done: object, seen: Seen) -> None:
        if done is HANG:
            return
        if done is CLOSE:
            self._transport.close()
        elif done is RESET:
            made: socket.socket = self._transport.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        else:
            self._transport.write(done if isinstance(done, bytes) else self._store.answer(seen))
            if seen.headers.get("connection") == "close":
                self._transport.close()


@asynccontextmanager
async def serving(behave: Behave | None = None) -> AsyncIterator[TinyStore]:
    """A store that listens on loopback."""
    async with serving_store(TinyStore(behave)) as store:
        yield store


@asynccontextmanager
async def serving_store(store: Store, address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Store]:
    """The same of a store that is given, at an address and a port."""
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(store), address, port)
    store.port = server.sockets[0].getsockname()[1]
    try:
        yield store
    finally:
        server.close()
        for connection in list(store.connections):
            connection.close()
