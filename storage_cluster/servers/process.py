"""One server process: builds the server, opens its socket and log, and shuts it down.

Which coroutine answers, what is closed at the end: decided here for each of the five services, so that tests and
processes start the very same thing.
"""

import contextlib
import functools
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from storage_cluster.ring import FILE_NAME as RINGS_FILE_NAME
from storage_cluster.ring import Rings
from storage_cluster.servers import auth
from storage_cluster.servers.databases import account, container
from storage_cluster.servers.disks.devices import Devices
from storage_cluster.servers.http.access_log import AccessLog, proxy_line, storage_line
from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.front import Front, given_transaction_id, segments
from storage_cluster.servers.object import server as object_server
from storage_cluster.servers.proxy import server as proxy
from storage_cluster.topology import Service, Topology


def bind(service: Service) -> socket.socket:
    """A socket on the service's address. Raises: OSError."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((service.address, service.port))
    return bound


@contextlib.asynccontextmanager
async def running(
    service: Service, topology: Topology, bound: socket.socket, data_dir: Path, log_file: Path
) -> AsyncIterator[None]:
    """The server answers while the context is open. `data_dir` holds this host's devices, and lies beside the rings."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    text_file = log_file.with_suffix(".log")
    line_of = functools.partial(proxy_line if service.name in ("proxy", "auth") else storage_line, service.name)
    with open(log_file, "a", encoding="utf-8") as stream, open(text_file, "a", encoding="utf-8") as text:
        log = AccessLog(stream, text, line_of)
        backend = Backend(topology, Rings(data_dir.parent / RINGS_FILE_NAME), f"{service.name}-server")
        try:
            async with (
                _front(service, backend, data_dir, log) as front,
                _serving(front, bound),
            ):
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


@contextlib.asynccontextmanager
async def _front(service: Service, backend: Backend, data_dir: Path, log: AccessLog) -> AsyncIterator[Front]:
    devices = Devices(backend.topology, service.host, data_dir)
    devices.make()
    if service.name == "proxy":
        yield Front(proxy.proxy_server(backend), log, proxy.names_of, proxy.transaction_id_of)
    elif service.name == "auth":
        yield Front(auth.AuthServer(backend).handle, log, segments(auth.PATH_SEGMENT_COUNT), auth.transaction_id_of)
    elif service.name == "account":
        accounts = account.AccountServer(devices)
        yield Front(accounts.handle, log, segments(account.PATH_SEGMENT_COUNT), given_transaction_id)
        accounts.close()
    elif service.name == "container":
        containers = container.ContainerServer(devices, backend)
        yield Front(containers.handle, log, segments(container.PATH_SEGMENT_COUNT), given_transaction_id)
        containers.close()
    else:
        assert service.name == "object", service.name
        stored = object_server.ObjectServer(devices, backend)
        yield Front(stored.handle, log, segments(object_server.PATH_SEGMENT_COUNT), given_transaction_id)
        stored.close()
