"""Which connections each host kept when: an agent with a CPU budget keeps one connection in 2^n (`tracer.cpu_budget`).

What another host saw of a connection that this one had left out has no other end, and is no loss; a wait in it is no
wait. Each connection has a *depth*, the same at both ends and in every agent: a host that keeps one connection in 2^n
keeps those of at least depth n. So for each host, depth and time it is known whether its packets were kept.

    host A  |  1/1      |  1/4                  |  1/2        depth 1 left out while 1/4; depth 0 also while 1/2
    host B  |  1/1                                            keeps all: its lone packets are `outside_window`

1. Of each host, the times at which it kept less than all, on the trace's timescale (`Sampling`).
2. Of each connection, its depth at either end, by the addresses that this end has (`with_depths`): a NAT in between
   changes them, and then the two ends keep different connections.

Limits: the times are exact by the host's own clock, but when a packet passed it is estimated for one that it did not
keep. So a connection counts as left out `EDGE_NS` before and after; a packet that was lost then is not called lost.
Two agents at one time under one host's name are taken for one.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.capture_files.kept import Keeping, Kept
from collector.clocks.alignment import to_trace_ns
from collector.decode.activity import Span
from tracer import _capture

EDGE_NS = 200_000_000
"""More than delays vary."""
EVER_NS = 1 << 61
"""Earlier than this, and later, is no time."""
ENDS = [f"{end}_{what}" for end in ("client", "server") for what in ("addr", "port", "host")]
TRANSLATED = [f"translated_{end}_{what}" for end in ("client", "server") for what in ("addr", "port")]
DEPTHS = ["client_host", "client_depth", "server_depth"]


class Sampling(Struct, frozen=True):
    """`spans`: of each host that ever kept less than all connections, when (trace time, ns) and with which depth;
    `most_depths`, the largest of each host."""

    spans: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    most_depths: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.most_depths)

    def left_out(self, host: str, depth: int) -> tuple[Span, ...]:
        """When a host may have left out connections of a depth: ascending, disjoint, in trace time (ns)."""
        joined: list[Span] = []
        for begin, end, least in self.spans.get(host, ()):
            if depth >= least:
                continue
            if joined and begin - EDGE_NS <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], end + EDGE_NS)
            else:
                joined.append((begin - EDGE_NS, end + EDGE_NS))
        return tuple(joined)

    def leaves_out(self, hosts: pl.Series, depths: pl.Series, from_ns: pl.Series, to_ns: pl.Series) -> pl.Series:
        """Whether each host left out connections of a depth at some time between two, all of one length."""
        rows = pl.DataFrame({"host": hosts, "depth": depths, "from": from_ns, "to": to_ns}).with_row_index("row")
        found = np.zeros(len(rows), dtype=np.bool_)
        mine = rows.filter(pl.col("host").is_in(list(self.spans))).drop_nulls()
        for (host, depth), group in mine.group_by("host", "depth"):
            number = group["row"].to_numpy()
            for begin, end in self.left_out(str(host), int(str(depth))):
                found[number] |= (group["from"].to_numpy() <= end) & (group["to"].to_numpy() >= begin)
        return pl.Series("leaves_out", found)

    def seen_throughout(self, rows: pa.Table, depths: pl.DataFrame, host: str, from_ns: str, to_ns: str) -> pa.Table:
        """The rows whose host kept their connection between two trace times, all given by their columns."""
        if not rows.num_rows:
            return rows
        frame = pl.DataFrame(rows.select(["connection_id", host, from_ns, to_ns])).with_columns(
            pl.col(host).cast(pl.String)
        )
        at = with_depths(frame, depths).select(
            pl.col(host), depth_at(host).alias("depth"), pl.col(from_ns), pl.col(to_ns)
        )
        return rows.filter(pa.array(~self.leaves_out(*at.get_columns())))

    def without_left_out(self, rows: pa.Table, depths: pl.DataFrame, host: str) -> pa.Table:
        """The rows whose host, given by its column, kept their connection all the time."""
        if not rows.num_rows:
            return rows
        frame = pl.DataFrame(rows.select(["connection_id", host])).with_columns(pl.col(host).cast(pl.String))
        return rows.filter(pa.array(~self.ever_left_out(with_depths(frame, depths), host)))

    def without_holes(self, unseen: pl.DataFrame, depths: pl.DataFrame) -> pl.DataFrame:
        """`gaps.missed_bytes`, with no gaps where a host left out the connection at some time: its capture missed
        nothing. The connections stay: nobody knows what was answered meanwhile."""
        left_out = pl.Series(self.ever_left_out(with_depths(unseen, depths), "host"))
        return unseen.with_columns(
            pl.when(left_out).then(0).otherwise(pl.col(name)).alias(name) for name in ("gaps", "bytes")
        )

    def ever_left_out(self, rows: pl.DataFrame, host: str) -> NDArray[np.bool_]:
        """Whether the host named by a column left out the connection of each row at any time (columns `DEPTHS`)."""
        most = rows[host].replace_strict(dict(self.most_depths), default=0, return_dtype=pl.Int64)
        return (rows.select(depth_at(host)).to_series() < most).fill_null(value=False).to_numpy()


ALL_KEPT = Sampling()


def sampling_of(kept: Mapping[str, Kept], clocks: pa.Table) -> Sampling:
    """Arguments: by host, what its agents stated; `clocks` as in the trace."""
    some = {host: each for host, each in kept.items() if each.most_depth}
    spans = {host: _trace_spans(host, each.changes, clocks) for host, each in some.items()}
    return Sampling(spans, {host: each.most_depth for host, each in some.items()})


def _trace_spans(host: str, changes: Sequence[Keeping], clocks: pa.Table) -> list[tuple[int, int, int]]:
    """Before the first change, what it states held already."""
    since = pa.array([change.since_ns for change in changes], pa.int64())
    at = to_trace_ns(pa.array([host] * len(changes), pa.string()), since, clocks).tolist()
    edges = [-EVER_NS, *at[1:], EVER_NS]
    found = zip(edges[:-1], edges[1:], changes, strict=True)
    # Where the clock was set back, both times hold in between.
    return sorted((min(begin, end), max(begin, end), change.depth) for begin, end, change in found if change.depth)


def connection_depths(connections: pa.Table) -> pl.DataFrame:
    """`connection_id`, and the columns `DEPTHS` of each connection."""
    rows = pl.DataFrame(connections.select(["connection_id", *ENDS, *TRANSLATED])).with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )
    at_client = rows.select("client_addr", "client_port", "server_addr", "server_port")
    at_server = rows.select(
        pl.coalesce(f"translated_{end}_{what}", f"{end}_{what}")
        for end in ("client", "server")
        for what in ("addr", "port")
    )
    client, server = (
        pl.Series(_capture.sampling_depths(ends.rows()), dtype=pl.Int64) for ends in (at_client, at_server)
    )
    return rows.select("connection_id", "client_host").with_columns(client_depth=client, server_depth=server)


def with_depths(rows: pl.DataFrame, depths: pl.DataFrame) -> pl.DataFrame:
    """`rows` in their order, with the columns `DEPTHS` of their connection (`connection_id`)."""
    mine = rows.drop([name for name in DEPTHS if name in rows.columns])
    return mine.join(depths, on="connection_id", how="left", maintain_order="left")


def depth_at(host: str) -> pl.Expr:
    """The depth of a row's connection at the host that the column names (columns `DEPTHS`)."""
    at_client = pl.col(host).cast(pl.String) == pl.col("client_host")
    return pl.when(at_client.fill_null(value=False)).then("client_depth").otherwise("server_depth")
