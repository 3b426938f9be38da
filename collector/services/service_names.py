"""What the servers of a trace are called: one look-up, by host and port, for every stage, finding and view.

A server that no evidence names is `host:port`. The names themselves are decided once for each trace
(`collector.services.naming`) and kept in its `trace.json`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.trace.arrow import indices, numbers
from collector.trace.model import ServiceInfo
from tracer import _core

OF_CONNECTIONS = ("server_host", "server_addr", "server_port", "translated_server_port")
"""Columns of `connections` that say which server each leads to."""


class Endpoints(NamedTuple):
    """The servers that connections lead to."""

    place: NDArray[np.int32]  # of each connection, its server's place in the lists below
    hosts: list[str]  # the host as captured, else the address; empty where neither is known
    ports: list[int]


class ServiceNames:
    """Names of servers.

    Arguments: as `TraceInfo.services` has them; one without a host is for all hosts.
    """

    def __init__(self, services: Iterable[ServiceInfo]) -> None:
        self._names = {(service.host, service.port): service.name for service in services}

    def of(self, host: str, port: int) -> str:
        """The service of the server at `port` of `host` (as captured, else its address)."""
        known = self._names.get((host, port)) or self._names.get(("", port))
        return known or host_and_port(host, port)

    def of_connections(self, connections: pa.Table) -> tuple[NDArray[np.int32], list[str]]:
        """The service that each connection leads to, as its place in a list of names.

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
    """`web1:8080`, `[fd00::1]:8080`; `port 8080` where the host is not known."""
    if not host:
        return f"port {port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def place_of(name: str) -> tuple[str, int]:
    """The host, empty where it is not known, and the port of a name that `host_and_port` made."""
    if name.startswith("port "):
        return "", int(name.removeprefix("port "))
    host, _, port = name.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def renamed(column: pa.ChunkedArray | pa.Array, names: ServiceNames) -> pa.DictionaryArray:
    """Services called `host:port`, by their names."""
    codes, places = indices(column)
    found = [names.of(*place_of(place)) for place in places]
    distinct = list(dict.fromkeys(found))
    number = {name: place for place, name in enumerate(distinct)}
    same = np.array([*(number[name] for name in found), -1], dtype=np.int32)[codes]
    return pa.DictionaryArray.from_arrays(pa.array(same, mask=same < 0), pa.array(distinct, pa.string()))


def endpoints_of(connections: pa.Table) -> Endpoints:
    """The servers that `connections` lead to, where addresses were rewritten on the way as their hosts know them."""
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
