"""Requests between servers over real sockets: a connection for each, or kept ones; who does not answer is a value."""

import asyncio
import dataclasses
import io
import socket
from collections.abc import Awaitable, Callable

import pytest

from storage_cluster import topology as topologies
from storage_cluster.servers.http.access_log import AccessLog
from storage_cluster.servers.http.backend import NO_ANSWER, Backend
from storage_cluster.servers.http.front import Front, segments
from storage_cluster.servers.http.messages import Call, Reply, reply
from storage_cluster.topology import BackendOptions, Service, TopologyError


async def who(call: Call) -> Reply:
    """The peer's address and what it sent."""
    return reply(200, {"Content-Type": "t"}, call.peer.encode() + b" " + await call.body.read(1000))


def with_server(connections: str, script: Callable[[Backend, Service, Front], Awaitable[None]]) -> None:
    """Run a script with a backend and a server that it can ask."""

    async def run() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        service = Service("object", "here", *bound.getsockname())
        topology = dataclasses.replace(
            topologies.load(topologies.BUNDLED_FILE), backend=BackendOptions(connections=connections)
        )
        front = Front(who, AccessLog(io.StringIO()), segments(2), lambda path, headers: "tx")
        listening = await front.serve(bound)
        backend = Backend(topology, {}, "proxy")
        await script(backend, service, front)
        await backend.close()
        listening.close()
        await front.shutdown()

    asyncio.run(run())


async def upload(backend: Backend, service: Service, chunks: list[bytes], headers: dict[str, str]) -> bytes:
    """What the server says to an upload."""
    upload = await backend.upload(service, "/a", headers)
    assert upload is not None
    for chunk in (*chunks, b""):
        upload.send(chunk)
    return (await upload.answer()).body


@pytest.mark.parametrize(("connections", "peers_count"), [("new", 4), ("pooled", 1)])
def test_requests_have_connections_of_their_own_or_share_one(connections: str, peers_count: int) -> None:
    async def script(backend: Backend, service: Service, _: Front) -> None:
        bodies = [(await backend.request(service, "PUT", "/a", {}, b"one")).body]
        bodies.append(await upload(backend, service, [b"t", b"wo"], {}))
        bodies.append(await upload(backend, service, [b"three"], {"Content-Length": "5"}))
        stream = await backend.open(service, "GET", "/a", {})
        assert stream is not None
        bodies.append(b"".join([chunk async for chunk in stream.chunks()]))
        stream.close()
        assert [body.split(b" ")[1] for body in bodies] == [b"one", b"two", b"three", b""]
        assert len({body.split(b" ")[0] for body in bodies}) == peers_count

    with_server(connections, script)


def test_a_kept_connection_that_the_server_closed_is_replaced() -> None:
    async def script(backend: Backend, service: Service, front: Front) -> None:
        first = await backend.request(service, "GET", "/a", {})
        await front.shutdown()  # closes what is idle; the port still accepts
        second = await backend.request(service, "GET", "/a", {})
        assert (first.status, second.status) == (200, 200)
        assert first.body != second.body

    with_server("pooled", script)


def test_a_stream_that_is_not_read_to_its_end_takes_its_connection_along() -> None:
    async def script(backend: Backend, service: Service, _: Front) -> None:
        stream = await backend.open(service, "PUT", "/a", {})
        assert stream is not None
        stream.close()
        stream = await backend.open(service, "GET", "/a", {})
        assert stream is not None
        assert b"".join([chunk async for chunk in stream.chunks()]).startswith(b"127.0.0.1:")
        stream.close()

    with_server("pooled", script)


def test_nobody_there_is_no_answer() -> None:
    async def script(backend: Backend, _: Service, __: Front) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets it
            silent = Service("object", "here", *taken.getsockname())
            assert (await backend.request(silent, "GET", "/a", {})).status == NO_ANSWER
            assert await backend.open(silent, "GET", "/a", {}) is None
            assert await backend.upload(silent, "/a", {}) is None

    with_server("new", script)


def test_the_option_has_two_values() -> None:
    with pytest.raises(TopologyError, match="'some'"):
        BackendOptions(connections="some")
