"""Detects clients that run out of ports for one server.

A client needs one port for each connection to a server's port, and the port of a connection that it closed first stays
reserved for a while (TIME_WAIT). When none is left, `connect()` fails before any packet is sent, so a capture only
shows the state before: within that time, the client's ports fill a range without gaps, or they are as many as Linux has
by default.

Systems that assign ports in ascending order fill a range, too, and are excluded. Linux first assigns every second port
of its range, and the others only when these are used up.

Source: RFC 9293 §3.6.1 (TIME-WAIT; Linux waits 60 s, TCP_TIMEWAIT_LEN), RFC 6056 (choice of ports); Linux,
Documentation/networking/ip-sysctl.rst (ip_local_port_range) and net/ipv4/inet_hashtables.c.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import _core
from collector.clocks.alignment import to_trace_ns
from collector.findings.finding import Finding, times
from collector.findings.observations import Observations, Parts
from collector.services.ends import end_name
from collector.trace.arrow import numbers, one_chunk, texts
from collector.trace.durations import in_words
from collector.trace.threshold import threshold
from collector.trace.time_columns import concat_rows

CONNECTION_COLUMNS = [
    *("connection_id", "client_host", "server_host", "client_addr", "client_port", "server_addr", "server_port"),
    *("first_host_ns", "last_host_ns"),
]
_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
NO_ADDRESS, NEVER = -1, np.iinfo(np.int64).min
PAIR = ["client_addr", "server_addr", "server_port"]


@dataclass(frozen=True, slots=True)
class PortThresholds:
    """By which a client counts as out of ports."""

    time_wait_ns: int = threshold(
        60_000_000_000, "a port stays reserved for so long after its connection (Linux, TCP_TIMEWAIT_LEN)"
    )
    default_ports_count: int = threshold(28_232, "Linux's default range of ports for clients, 32768 to 60999")
    least_ports_count: int = threshold(24, "chosen: fewer ports may fill a range by chance")
    used_share: float = threshold(0.9, "chosen: other servers' connections have some ports of the range")
    ascending_share: float = threshold(
        0.5,
        "chosen: if this share of new connections has the port after the last one's, ports are assigned in ascending "
        "order, so a range without gaps shows nothing",
    )


class _Used(NamedTuple):
    """What ports pairs of addresses used, one value for each pair."""

    pair: NDArray[np.uint64]  # as `_pair_numbers`
    connections: NDArray[np.int64]  # how many
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]


def find(seen: Observations, limits: PortThresholds) -> list[Finding]:
    """All findings about clients' ports."""
    return port_findings(seen.connections, seen.clocks, limits)


def port_findings(connections: Parts | None, clocks: pa.Table, limits: PortThresholds) -> list[Finding]:
    """One finding for each client and server port.

    Arguments: `connections`; table `clocks`; thresholds.

    Cost: a pass; a sort for each client with that many connections to one server. Memory: those connections.
    """
    if connections is None:
        return []
    dense = _dense_pairs([_used_ports(part) for part in connections([*PAIR, "client_port"])], limits)
    if not len(dense):
        return []
    rows = concat_rows(_of_pairs(part, dense, clocks) for part in connections(CONNECTION_COLUMNS))
    rows = rows[np.lexsort((rows["connection_id"], rows["at"].fill_null(NEVER)))]
    return [found for _, group in rows.group_by(PAIR, maintain_order=True) for found in _port_findings(group, limits)]


def _used_ports(connections: pa.Table) -> _Used:
    """How many connections each pair has, and its lowest and highest port."""
    pair, port = _pair_numbers(connections), numbers(connections["client_port"])
    return _merge_pairs(_Used(pair, np.ones(len(pair), np.int64), port, port))


def _merge_pairs(used: _Used) -> _Used:
    """Each pair once."""
    order = np.argsort(used.pair, kind="stable")
    pair = used.pair[order]
    first = np.flatnonzero(np.append(True, pair[1:] != pair[:-1])[: len(pair)])
    if not len(first):
        return used
    sums = ((np.add, used.connections), (np.minimum, used.low), (np.maximum, used.high))
    return _Used(pair[first], *(add.reduceat(values[order], first) for add, values in sums))


def _dense_pairs(parts: Sequence[_Used], limits: PortThresholds) -> NDArray[np.uint64]:
    """The pairs that have used most ports between their lowest and highest."""
    if not parts:
        return np.empty(0, np.uint64)
    many = _merge_pairs(_Used(*(np.concatenate(column) for column in zip(*parts, strict=True))))
    span = many.high.astype(np.int64) - many.low + 1
    usual = limits.used_share * np.minimum(span, limits.default_ports_count)
    return many.pair[many.connections >= np.maximum(limits.least_ports_count, usual)]


def _pair_numbers(connections: pa.Table) -> NDArray[np.uint64]:
    """A 64-bit hash of each connection's `PAIR`: a flood has as many addresses as connections, and as texts of a view
    they would take 150 bytes each. Pairs that share one are separated when they are examined."""
    found = numbers(connections["server_port"]).astype(np.uint64)
    for name in ("client_addr", "server_addr"):
        addresses = one_chunk(connections[name]).dictionary_encode()
        hashes = np.append(_core.text_numbers(texts(addresses.dictionary)), np.uint64(0))
        found = found * _ODD + hashes[numbers(addresses.indices, NO_ADDRESS)]
    return found


def _of_pairs(connections: pa.Table, pairs: NDArray[np.uint64], clocks: pa.Table) -> pl.DataFrame:
    """`PAIR, client_port, connection_id, client, server, at` of connections of these pairs."""
    chosen = np.isin(_pair_numbers(connections), pairs)
    rows = pl.DataFrame(connections.select(CONNECTION_COLUMNS).filter(pa.array(chosen)))
    host = rows.select(pl.coalesce("client_host", "server_host").cast(pl.String)).to_series()
    began = to_trace_ns(host.to_arrow().cast(pa.string()), rows["first_host_ns"].to_arrow(), clocks)
    kept = rows.select(*PAIR, "client_port", "connection_id", client="client_host", server="server_host")
    return kept.with_columns(at=pl.Series(began, dtype=pl.Int64))


def _span() -> pl.Expr:
    port = pl.col("client_port").cast(pl.Int64)
    return port.max() - port.min() + 1


def _port_findings(rows: pl.DataFrame, limits: PortThresholds) -> Iterable[Finding]:
    """The finding, if any, about the connections (in order of time) of one client to one server port."""
    span = rows.select(_span()).item()
    ascending = rows.select((pl.col("client_port").cast(pl.Int64).diff() == 1).mean()).item() or 0
    used = _most_within(limits.time_wait_ns, rows)
    ports = used["client_port"].n_unique()
    is_dense = ports >= max(limits.least_ports_count, limits.used_share * span)
    fills_range = is_dense and ascending < limits.ascending_share
    if not fills_range and ports < limits.used_share * limits.default_ports_count:
        return
    last = used.row(-1, named=True)
    again = len(used) - ports
    lowest, highest = used.select(low=pl.col("client_port").min(), high=pl.col("client_port").max()).row(0)
    yield Finding(
        severity="warning",
        kind="port_exhaustion",
        host=last["client"],
        touches=frozenset({last["server"]} - {None}),
        connection_id=last["connection_id"],
        from_trace_ns=used["at"].min(),  # type: ignore[arg-type]
        to_trace_ns=last["at"],
        count=ports,
        text=f"{end_name(last['client'], last['client_addr'])} used {times(ports, 'port')} ({lowest} to {highest}) for "
        f"connections to {end_name(last['server'], last['server_addr'])}:{last['server_port']} within "
        f"{in_words(last['at'] - used['at'][0])}, "
        + (f"all ports of its range ({again:,} of them again)" if again else "all ports of its range")
        + ": further connections fail, or wait until a port is free again "
        f"({limits.time_wait_ns / 1e9:g} s after its connection ended)",
        remedy="keep connections open and reuse them; otherwise widen net.ipv4.ip_local_port_range, set "
        "net.ipv4.tcp_tw_reuse=1, or let the server listen on several addresses",
    )


def _most_within(interval_ns: int, rows: pl.DataFrame) -> pl.DataFrame:
    """The connections of the interval with the most ports; intervals begin every half of their length."""
    half = (pl.col("at") - pl.col("at").min()) // max(1, interval_ns // 2)
    numbered = rows.select("client_port", stretch=half)
    both = pl.concat([numbered, numbered.with_columns(pl.col("stretch") - 1)])
    counts = both.group_by("stretch").agg(ports=pl.col("client_port").n_unique()).sort("ports", "stretch")
    most = counts["stretch"][-1]
    return rows.filter(half.is_between(most, most + 1))
