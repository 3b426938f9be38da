"""Collects the servers of a trace, with their callers and the clues in their messages.

A server is a host and a port (the host as captured, else its address). Callers are counted from connections, partition
by partition. Clues were counted while packets were decoded (`EndpointClues` of `collector.capture_files.readers`), by
address and port as in each capture. This module combines both. For addresses that several hosts may have (loopback, a
container's own network), only the captures of a connection's own two hosts count, unless neither is known.

Memory: about 1 KiB a server; servers beyond `MOST_SERVERS`, which only a port scan reaches, are ignored.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.readers import EndpointClues
from collector.trace.arrow import numbers, plain_texts, value_codes

MOST_SERVERS = 1 << 14
OUTSIDE = ""
"""A caller on a host that was not captured."""
Clues = Mapping[tuple[str, int], Sequence[EndpointClues]]
"""The clues in a host's captures, by address and port."""
_SERVER = ("server_host", "server_addr", "server_port", "translated_server_addr", "translated_server_port")
_CLIENT = ("client_host", "client_addr", "client_port")
_ASKED = "tls_server_name"
_OWNER = ("server_process", "server_exe", "server_unit", "server_container", "server_pod")
_SCHEME_AND_AUTHORITY = re.compile(r" https?://[^/ ]*/?", re.IGNORECASE)
MOST_OWNERS = 16
"""At most so many owners are kept of a server."""
MOST_ASKED = 16
"""At most so many names that clients ask for are kept of a server."""


class ServerOwner(NamedTuple):
    """What agents say of who owns a server's end; None for what is not known."""

    process: str | None
    exe: str | None
    unit: str | None
    container: str | None
    pod: str | None


class Server(Struct):
    """One server."""

    host: str
    port: int
    callers: Counter[str] = field(default_factory=Counter)  # connections by the client's host
    ends: set[tuple[str, str, int]] = field(default_factory=set)  # capturing host, address and port that it saw
    counts: Counter[int] = field(default_factory=Counter)  # messages with each clue, by its place
    requests_count: int = 0
    answers_count: int = 0
    sample: list[str] = field(default_factory=list)  # method and target of some of its requests
    asked_names: set[str] = field(default_factory=set)  # that clients of TLS asked for (SNI)
    owners: set[ServerOwner] = field(default_factory=set)  # of its connections, as agents say

    @property
    def key(self) -> tuple[str, int]:
        return self.host, self.port


class ServerRows(NamedTuple):
    """What the connections of a partition show of servers, one row for each different one, with its `count`."""

    servers: pl.DataFrame
    swapped: pl.DataFrame
    """Of connections whose client's port was asked by others, with both ends swapped."""
    owners: pl.DataFrame
    """Without a count."""


def server_rows(connections: pa.Table, asked: NDArray[np.uint16]) -> ServerRows:
    """What these connections show of servers. Arguments: `asked`, as `Servers.asked`."""
    at_asked = _frame(connections.filter(pa.array(np.isin(numbers(connections["client_port"]), asked))))
    swapped = at_asked.select(
        server_host="client_host", server_addr="client_addr", server_port="client_port", client_host="server_host",
        translated_server_addr=pl.lit(None), translated_server_port=pl.lit(None), tls_server_name=pl.lit(None),
    )  # fmt: skip
    is_owned = [column.is_valid() for column in connections.select(_OWNER).columns if column.null_count < len(column)]
    owned = connections.filter(reduce(pc.or_, is_owned)) if is_owned else connections.slice(0, 0)
    owners = _frame(owned).select(*_SERVER, *_OWNER).unique()
    servers = _distinct(connections.select([*_SERVER, "client_host", _ASKED]))
    return ServerRows(servers, swapped.group_by(pl.all()).len("count"), owners)


def _frame(connections: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(plain_texts(connections.select([*_SERVER, *_CLIENT, _ASKED, *_OWNER])))


def _distinct(rows: pa.Table) -> pl.DataFrame:
    """Each different row once, with the number of such rows (`count`). Only these are made into texts."""
    group, first = np.zeros(rows.num_rows, np.int32), np.arange(min(rows.num_rows, 1))
    for column in rows.columns:
        if column.null_count < len(column):
            group, first = _core.row_groups([group, value_codes(column)])
    counts = np.bincount(group, minlength=len(first)).astype(np.uint32)
    return pl.DataFrame(plain_texts(rows.take(pa.array(first)))).with_columns(count=pl.Series(counts))


class Servers:
    """The servers in the connections of all partitions.

    Arguments: `clues`, by captured host. `asked`: the ports at which clues show requests.
    """

    def __init__(self, clues: Mapping[str, Clues]) -> None:
        self._clues, self._found = clues, dict[tuple[str, int], Server]()
        asked = {port for of in clues.values() for (_, port), seen in of.items() if any(map(_is_asked, seen))}
        self.asked = np.array(sorted(asked), dtype=np.uint16)

    def add(self, found: ServerRows) -> None:
        """Add the servers of a partition."""
        for row in found.servers.rows(named=True):
            self._note(row, row["translated_server_port"] or row["server_port"])
        self._note_owners(found.owners)
        for row in filter(self._is_server, found.swapped.rows(named=True)):
            self._note(row, row["server_port"])

    def all(self) -> list[Server]:
        """All servers with their clues, by port and host."""
        for server in self._found.values():
            for host, address, port in sorted(server.ends):
                for seen in self._clues.get(host, {}).get((address, port), ()):
                    server.counts.update({place: count for place, count in enumerate(seen.counts) if count})
                    server.requests_count += seen.requests_count
                    server.answers_count += seen.answers_count
                    server.sample.extend(map(_in_origin_form, seen.sample))
            server.ends.clear()
        return sorted(self._found.values(), key=lambda server: (server.port, server.host))

    def _note_owners(self, owners: pl.DataFrame) -> None:
        """Note who owns the servers' ends of connections."""
        for row in owners.rows(named=True):
            port = row["translated_server_port"] or row["server_port"]
            server = self._found.get((str(row["server_host"] or row["server_addr"]), int(port)))
            if server is not None and len(server.owners) < MOST_OWNERS:
                server.owners.add(ServerOwner(*(row[name] for name in _OWNER)))

    def _is_server(self, row: Mapping[str, object]) -> bool:
        end = (str(row["server_addr"]), int(str(row["server_port"])))
        hosts = {str(one) for one in (row["server_host"], row["client_host"]) if one} or set(self._clues)
        return any(_is_asked(seen) for host in hosts for seen in self._clues.get(host, {}).get(end, ()))

    def _note(self, row: Mapping[str, object], port: object) -> None:
        host, address = row["server_host"], row["server_addr"]
        key = (str(host or address), int(str(port)))
        if key not in self._found:
            if len(self._found) >= MOST_SERVERS:
                return
            self._found[key] = Server(*key)
        server = self._found[key]
        client, asked = row["client_host"], row[_ASKED]
        if asked and len(server.asked_names) < MOST_ASKED:
            server.asked_names.add(str(asked))
        server.callers[str(client or OUTSIDE)] += int(str(row["count"]))
        ends = [(address, row["server_port"]), (row["translated_server_addr"], row["translated_server_port"])]
        seen_at = {str(one) for one in (host, client) if one} or set(self._clues)
        server.ends |= {(one, str(at), int(str(number))) for one in seen_at for at, number in ends if at and number}


def _in_origin_form(request: str) -> str:
    """Method and target without scheme and authority, which a forward proxy is sent and a server is not (RFC 9112
    §3.2)."""
    return _SCHEME_AND_AUTHORITY.sub(" /", request, count=1)


def _is_asked(seen: EndpointClues) -> bool:
    return seen.requests_count > 0 or seen.is_asked
