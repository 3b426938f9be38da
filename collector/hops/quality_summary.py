"""Summarises how far a trace can be trusted: matching by hosts and by connection, clock steps, and translated
addresses.

`tracer report`, the collector's API and the viewer all show this summary. The tables it reads are small compared with
the hops.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa

from collector.hops import quality
from collector.hops.capture_drops import CaptureDrops, capture_drops
from collector.hops.quality import ConnectionQuality, Counts, HostPair
from collector.trace.durations import with_uncertainty
from collector.trace.peer_names import PeerNames
from collector.trace.reading import Trace
from collector.trace.schema import TABLES

WORST_COUNT = 20
"""How many of the worst connections are named by default."""
_HALVES = ("client_addr", "server_addr", "server_port")
_TRANSLATED = tuple(f"translated_{name}" for name in _HALVES)
NAMES = {
    "split_count": "split",
    "retransmitted_count": "sent again",
    "lost_count": "lost",
    "capture_dropped_count": "dropped",
    "outside_window_count": "outside",
    "ambiguous_count": "ambiguous",
    "unmatched_count": "unmatched",
    "early_count": "early",
}
"""Counts other than hops and matched hops, in the order in which they are shown, with their wording."""


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A clock that was set, or changed its rate, while its host was captured."""

    host: str
    frame: int  # the host's first frame with a timestamp after the step
    at_trace_ns: int
    step_ns: int  # forwards if positive
    uncertainty_ns: int | None

    @property
    def words(self) -> str:
        """In one line."""
        size = with_uncertainty(self.step_ns, self.uncertainty_ns or 0)
        return f"clock of {self.host} stepped by {'+' * (self.step_ns >= 0)}{size} before its frame {self.frame:,}"


@dataclass(frozen=True, slots=True)
class Translation:
    """A connection's addresses at the client's host, and those of the same ends at the server's host."""

    client_addr: str
    server_addr: str
    server_port: int
    translated_client_addr: str
    translated_server_addr: str
    translated_server_port: int
    connections_count: int

    @property
    def words(self) -> str:
        """In one line."""
        server = f"{_end(self.server_addr, self.server_port)}"
        inner = f"{_end(self.translated_server_addr, self.translated_server_port)}"
        parts = [f"{server} is {inner} at the server"] if server != inner else [f"towards {server}"]
        if self.client_addr != self.translated_client_addr:
            parts.append(f"the client {self.client_addr} is {self.translated_client_addr} there")
        elif server == inner:
            parts.append(f"the ports of the client {self.client_addr} are others there")
        plural = "s" * (self.connections_count != 1)
        return f"translated: {', '.join(parts)} ({self.connections_count:,} connection{plural})"


@dataclass(frozen=True, slots=True)
class Pairing:
    """How far a trace can be trusted."""

    total: Counts
    host_pairs: tuple[HostPair, ...]  # worst first
    imperfect_connections_count: int  # in which matching failed or packets were lost
    worst_connections: tuple[ConnectionQuality, ...]  # of these, worst first
    clock_steps: tuple[ClockStep, ...]
    translations: tuple[Translation, ...]  # most used first
    capture_drops: tuple[CaptureDrops, ...] = ()  # packets that captures report as dropped, and when

    @property
    def words(self) -> str:
        """The share of matched bytes, with the exact count of bytes."""
        if not self.total.bytes:
            return "no bytes to pair"
        return f"{self.total.bytes_share} of {self.total.bytes:,} bytes paired"

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each capture with drops, each clock step and each translation."""
        drops, steps = (each.words for each in self.capture_drops), (each.words for each in self.clock_steps)
        return (*drops, *steps, *(each.words for each in self.translations))

    @property
    def hops_words(self) -> str:
        """The count of hops, and of those received before they were sent, which prove that clocks are wrong."""
        hops, early = self.total.hops_count, self.total.early_count
        clocks = f"{early:,} of them received before sent" if early else "none received before it was sent"
        return f"{hops:,} hop{'s' * (hops != 1)}, {clocks}"


def read_pairing(trace: Trace, most_connections: int = WORST_COUNT) -> Pairing:
    """The summary of a trace, naming at most `most_connections`.

    Raises: `InputError` if it is no trace.
    """
    clocks, info = trace.read("clocks"), trace.info()
    summary = quality.summary_of(trace.batches("quality", TABLES["quality"].names), most_connections)
    return Pairing(
        total=summary.total,
        host_pairs=summary.host_pairs,
        imperfect_connections_count=summary.imperfect_count,
        worst_connections=with_names_of_ends(
            quality.connections_of(
                summary.worst, trace.batches("connections", quality.CONNECTION_COLUMNS) if len(summary.worst) else ()
            ),
            PeerNames(info),
        ),
        clock_steps=clock_steps(clocks),
        translations=translations(
            trace.batches_with_any("connections", (*_HALVES, *_TRANSLATED), ["translated_server_addr"])
        ),
        capture_drops=capture_drops(info, clocks),
    )


def with_names_of_ends(connections: Iterable[ConnectionQuality], peers: PeerNames) -> tuple[ConnectionQuality, ...]:
    """`connections` with the names of ends that were not captured."""
    return tuple(
        replace(each, client_peer=peers.of(each.client_addr), server_peer=peers.of(each.server_addr))
        for each in connections
    )


def clock_steps(clocks: pa.Table) -> tuple[ClockStep, ...]:
    """The steps between one line of a host's clock and the next in the table `clocks`, by host, then by time."""
    rows = clocks.to_pylist()
    hosts = dict.fromkeys(row["host"] for row in rows)
    return tuple(step for host in hosts for step in _steps([row for row in rows if row["host"] == host]))


def translations(slabs: Iterable[pa.Table]) -> tuple[Translation, ...]:
    """The rewritten addresses of the table `connections`, most used first."""
    nothing = TABLES["connections"].empty_table().select([*_HALVES, *_TRANSLATED])
    found = [_translations_of_slab(slab) for slab in (nothing, *slabs)]
    rows = pl.concat(found).group_by(*_HALVES, *_TRANSLATED).agg(pl.col("connections_count").sum())
    rows = rows.sort("connections_count", *_HALVES, *_TRANSLATED, descending=[True, *[False] * 6])
    return tuple(Translation(**row) for row in rows.iter_rows(named=True))


def _translations_of_slab(slab: pa.Table) -> pl.DataFrame:
    translated = slab.filter(slab["translated_server_addr"].is_valid())
    rows = pl.DataFrame(translated).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return rows.group_by(*_HALVES, *_TRANSLATED).agg(connections_count=pl.len().cast(pl.Int64))


def connection_name(connection: ConnectionQuality) -> str:
    """`client 10.0.0.1:40000 → proxy 10.0.0.2:8080`."""
    client = _end(connection.client_addr, connection.client_port)
    server = _end(connection.server_addr, connection.server_port)
    names = (connection.client_host or connection.client_peer, connection.server_host or connection.server_peer)
    return f"{names[0] or ''} {client} → {names[1] or ''} {server}".strip()


def pair_name(pair: HostPair) -> str:
    """`client → proxy`."""
    return f"{pair.send_host or 'not captured'} → {pair.receive_host or 'not captured'}"


def trouble_words(counts: Counts) -> str:
    """The counts that show trouble: `1 lost, 2 ambiguous of 40 hops`."""
    words = [f"{count:,} {NAMES[name]}" for name in NAMES if name != "split_count" and (count := getattr(counts, name))]
    return f"{', '.join(words)} of {counts.hops_count:,} hops"


def _end(address: str | None, port: int | None) -> str:
    shown = f"[{address}]" if ":" in (address or "") else address or "?"
    return f"{shown}:{port}"


def _steps(rows: list[dict[str, Any]]) -> Iterator[ClockStep]:
    """The steps between the clock lines of one host."""
    for before, after in pairwise(sorted(rows, key=lambda row: row["from_frame"] or 0)):
        drift_ns = before["skew_ppb"] * (before["to_host_ns"] - before["from_host_ns"]) // 1_000_000_000
        bars = (before["uncertainty_ns"], after["uncertainty_ns"])
        yield ClockStep(
            host=after["host"],
            frame=after["from_frame"] or 0,
            at_trace_ns=after["from_host_ns"] - after["offset_ns"],
            step_ns=after["offset_ns"] - before["offset_ns"] - drift_ns,
            uncertainty_ns=None if None in bars else sum(bars),
        )


def skew_doubt_ppb(row: Mapping[str, Any]) -> int:
    """The uncertainty of a clock's rate (ppb), from a row of `clocks`.

    In the worst case the line is too early at one end and too late at the other, by the full uncertainty of its times.
    """
    lasted_ns = max(1, row["to_host_ns"] - row["from_host_ns"])
    return int(2 * (row["uncertainty_ns"] or 0) * 1_000_000_000 // lasted_ns)
