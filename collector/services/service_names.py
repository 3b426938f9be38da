"""Looks up the names of servers by host and port, for all stages, findings and views.

A server without evidence for a name is `host:port`. Names are decided once for each trace (`collector.services.naming`)
and kept in its `trace.json`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.trace.arrow import indices, numbers
from collector.trace.model import ServiceInfo

OF_CONNECTIONS = ("server_host", "server_addr", "server_port", "translated_server_port")
"""Columns of `connections` that identify the server."""


class Endpoints(NamedTuple):
    """The servers of connections."""

    place: NDArray[np.int32]  # for each connection, its server's index in the lists below
    hosts: list[str]  # the host as captured, else the address; empty if neither is known
    ports: list[int]


class ServiceNames:
    """Names of servers.

    Arguments: `services`, as in `TraceInfo.services`; one without a host holds for all hosts.
    """

    def __init__(self, services: Iterable[ServiceInfo]) -> None:
        self._names = {(service.host, service.port): service.name for service in services}

    def of(self, host: str, port: int) -> str:
        """The service of the server at `port` of `host` (as captured, else its address)."""
        known = self._names.get((host, port)) or self._names.get(("", port))
        return known or host_and_port(host, port)

    def of_connections(self, connections: pa.Table) -> tuple[NDArray[np.int32], list[str]]:
        """The service of each connection's server, as an index in a list of names.

        Arguments: `connections`, with at least `OF_CONNECTIONS`.
        """
        found = endpoints_of(connections)
        names = [self.of(host, port) for host, port in zip(found.hosts, found.ports, strict=True)]
        distinct = list(dict.fromkeys(names))
        number = {name: place for place, name in enumerate(distinct)}
        return np.array([number[name] for name in names], dtype=np.int32)[found.place], distinct

    def of_rows(self, rows: pl.DataFrame) -> pl.Series:
        """The service of each row's `server_host`, `server_addr`, `server_port`."""
        hosts = rows.select(pl.coalesce(pl.col("server_host", "server_addr").cast(pl.String), pl.lit(""))).to_series()
        return pl.Series(
            "service", [self.of(*each) for each in zip(hosts, rows["server_port"], strict=True)], pl.String
        )


def host_and_port(host: str, port: int) -> str:
    """`web1:8080`, `[fd00::1]:8080`; `port 8080` if the host is unknown."""
    if not host:
        return f"port {port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def place_of(name: str) -> tuple[str, int]:
    """The host (empty if unknown) and the port of a name from `host_and_port`."""
    if name.startswith("port "):
        return "", int(name.removeprefix("port "))
    host, _, port = name.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def rename_services(column: pa.ChunkedArray | pa.Array, names: ServiceNames) -> pa.DictionaryArray:
    """The column with services named instead of `host:port`."""
    codes, places = indices(column)
    found = [names.of(*place_of(place)) for place in places]
    distinct = list(dict.fromkeys(found))
    number = {name: place for place, name in enumerate(distinct)}
    same = np.array([*(number[name] for name in found), -1], dtype=np.int32)[codes]
    return pa.DictionaryArray.from_arrays(pa.array(same, mask=same < 0), pa.array(distinct, pa.string()))


def endpoints_of(connections: pa.Table) -> Endpoints:
    """The servers of `connections`; if addresses were translated on the way, by those at the server's host."""
    host, hosts = indices(connections["server_host"])
    address, addresses = indices(connections["server_addr"])
    port = numbers(connections["server_port"]).astype(np.int32)
    translated = numbers(connections["translated_server_port"]).astype(np.int32)
    port = np.where(translated > 0, translated, port)
    address = np.where(host < 0, address, np.int32(-1))
    if not len(port):
        return Endpoints(np.zeros(0, np.int32), [], [])
    place, first = _core.row_groups([host, address, port])
    hosts, addresses = [*hosts, ""], [*addresses, ""]  # -1 is the last
    named = [hosts[h] or addresses[a] for h, a in zip(host[first], address[first], strict=True)]
    return Endpoints(place, named, port[first].tolist())
