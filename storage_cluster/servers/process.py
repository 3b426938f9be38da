"""One server process: builds the server, opens its socket and log, and shuts it down.

Which coroutine answers, what is closed at the end: decided here for each kind of service, so that tests and
processes start the very same thing. A process imports its own kind of server only: with all of them each of a cluster's
fifteen takes twice as long to start.
"""

import asyncio
import contextlib
import dataclasses
import functools
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from storage_cluster import services
from storage_cluster.ring import Rings, file_of
from storage_cluster.servers.disks.audit import audit
from storage_cluster.servers.disks.devices import Devices
from storage_cluster.servers.http.access_log import AccessLog, proxy_line, storage_line
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.front import Front, given_transaction_id, own_transaction_id, segments
from storage_cluster.servers.http.inbound import Writing
from storage_cluster.servers.http.messages import Call
from storage_cluster.servers.processor import SUFFIX, Processor
from storage_cluster.topology import (
    GATEWAY_SERVICE,
    PROXY_SERVICE,
    RESERVATIONS_SERVICE,
    ROUTING_SERVICE,
    Service,
    Topology,
    User,
)


def bind(service: Service) -> socket.socket:
    """A socket on the service's address. Raises: OSError."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if services.kind_of(service.name).has_workers:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # they share the port
    bound.bind((service.address, service.port))
    return bound


@contextlib.asynccontextmanager
async def running(
    service: Service, topology: Topology, bound: socket.socket, data_dir: Path, log_file: Path
) -> AsyncIterator[None]:
    """The server answers while the context is open. `data_dir` holds this host's devices, and lies beside the rings."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    text_file = log_file.with_suffix(".log")
    faces_clients = services.kind_of(service.name).faces_clients
    line_of = functools.partial(proxy_line if faces_clients else storage_line, service.name)
    with open(log_file, "a", encoding="utf-8") as stream, open(text_file, "a", encoding="utf-8") as text:
        log = AccessLog(stream, text, line_of)
        backend = _backend(service, topology, data_dir.parent)
        devices = Devices(topology, service.host, data_dir)
        devices.make()
        try:
            async with contextlib.AsyncExitStack() as closing:
                front = SERVERS[service.name](_Parts(topology, backend, devices, log, log_file), closing)
                front.writing = Writing(topology.backend.answers == "pieces", topology.backend.nodelay)
                modelled = topology.host(service.host).processor
                if request_ms := modelled.request_ms.get(service.name):
                    s_per_byte = modelled.ms_per_mb.get(service.name, 0.0) / 1e9
                    file = log_file.with_suffix(SUFFIX)
                    front.processor = Processor(modelled.cores, request_ms / 1e3, file, s_per_byte=s_per_byte)
                    closing.callback(front.processor.close)
                async with _serving(front, bound):
                    yield
        finally:
            await backend.close()


@contextlib.asynccontextmanager
async def _serving(front: Front, bound: socket.socket) -> AsyncIterator[None]:
    listening = await front.serve(bound)
    try:
        yield
    finally:
        listening.close()
        await front.shutdown()


def _backend(service: Service, topology: Topology, data_root: Path) -> Backend:
    """What asks the servers of the same store; a service that is part of none asks nobody through it."""
    store = topology.host(service.host).store
    rings = Rings(file_of(data_root, store)) if services.kind_of(service.name).needs_rings else {}
    return Backend(topology.of_store(store), rings, f"{service.name}-server")


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What a server is made from."""

    topology: Topology
    backend: Backend
    devices: Devices
    log: AccessLog
    log_file: Path


def _proxy(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.proxy import server as proxy  # noqa: PLC0415

    return Front(proxy.proxy_server(parts.backend), parts.log, proxy.names_of, proxy.transaction_id_of)


def _gateway(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.s3 import server as s3  # noqa: PLC0415

    cache_file = parts.log_file.with_suffix(".cache.json")
    return Front(s3.gateway_server(parts.backend, cache_file), parts.log, s3.names_of, own_transaction_id, s3.reply_to)


def _routing(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.routing import server as routing  # noqa: PLC0415
    from storage_cluster.servers.s3 import server as s3  # noqa: PLC0415

    server = routing.routing_server(parts.topology, parts.devices)
    closing.push_async_callback(server.close)
    return Front(server, parts.log, s3.names_of, own_transaction_id, s3.reply_to)


def _auth(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers import auth  # noqa: PLC0415

    names_of = segments(auth.PATH_SEGMENT_COUNT)
    return Front(auth.AuthServer(parts.backend).handle, parts.log, names_of, auth.transaction_id_of)


def _account(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.databases import account  # noqa: PLC0415

    server = account.AccountServer(parts.devices)
    closing.callback(server.close)
    return Front(server.handle, parts.log, segments(account.PATH_SEGMENT_COUNT), given_transaction_id)


def _container(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.databases import container  # noqa: PLC0415

    server = container.ContainerServer(parts.devices, parts.backend)
    closing.callback(server.close)
    return Front(server.handle, parts.log, segments(container.PATH_SEGMENT_COUNT), given_transaction_id)


def _object(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.object import server as object_server  # noqa: PLC0415

    server = object_server.ObjectServer(parts.devices, parts.backend, parts.log_file.with_suffix(".turns.jsonl"))
    closing.callback(server.close)
    for disk in parts.topology.host(parts.devices.host).disks:
        if disk.audit_reads_per_s:
            auditing = asyncio.create_task(audit(parts.devices.medium(disk.name), disk.audit_reads_per_s))
            closing.callback(auditing.cancel)
    return Front(server.handle, parts.log, segments(object_server.PATH_SEGMENT_COUNT), given_transaction_id)


def _reservations(parts: _Parts, closing: contextlib.AsyncExitStack) -> Front:
    from storage_cluster.servers.reservations import server as reservations  # noqa: PLC0415
    from storage_cluster.servers.reservations.book import Book  # noqa: PLC0415
    from storage_cluster.servers.s3.authentication import Authenticator  # noqa: PLC0415

    rules = reservations.admission_rules(parts.backend)
    book = Book(parts.devices.root / "reservations.sqlite", rules)
    closing.callback(book.close)
    authenticator = Authenticator(parts.backend.topology.users)

    def user_of(call: Call) -> User | None:
        requester = authenticator.authenticate(call).requester
        return None if requester is None else requester.user

    server = reservations.BookServer(parts.backend, book, user_of, time.time)
    names_of = segments(reservations.PATH_SEGMENT_COUNT)
    return Front(server.handle, parts.log, names_of, given_transaction_id, reservations.reply_to)


SERVERS: dict[str, Callable[[_Parts, contextlib.AsyncExitStack], Front]] = {
    PROXY_SERVICE: _proxy,
    GATEWAY_SERVICE: _gateway,
    ROUTING_SERVICE: _routing,
    RESERVATIONS_SERVICE: _reservations,
    "auth": _auth,
    "account": _account,
    "container": _container,
    "object": _object,
}
"""What makes each server of the table of services, and registers what is to be closed when it ends."""
