"""Adds connections that were never established to the spans, since requests waited for them.

A SYN that nobody answers leaves no exchange. So the time until its client gave up and tried another server would count
as the client's own work: "in swift-proxy" for half a second in which the proxy waited for storage2. This module makes
such a connection a child of the request for which it was opened. It lasts from the SYN until that request called
another server of the same service, or, if no server of that service was called, another server's same port (a server
that never sent anything may have another name than its replicas).

The request is inferred by time: of the host's open requests, the one with the last action before the SYN (it arrived,
or it called another server, or that server answered).

Limits: if a host serves many requests at once, the last action may be that of another request. A connection whose
request called no other server has no known end, and is omitted.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.clocks.alignment import to_trace_ns
from collector.reporting.request_rows import NEVER, RequestRows
from collector.services.service_names import OF_CONNECTIONS, ServiceNames
from collector.trace.arrow import plain_texts
from collector.trace.schema import CONNECTIONS
from collector.trace.time_columns import in_one_chunk

ReadConnections = Callable[[Sequence[str]], Iterable[pa.Table]]
"""From the names of columns: the table `connections`, in parts."""
SOON_NS = 50_000_000
"""A request continues within this time, even on a busy host."""
_MARKS = ("request_first_received_trace_ns", "parent_span_id", "start_trace_ns", "end_trace_ns")
"""Columns of all rows that say when a request did something last."""
CONNECTION_COLUMNS = (*("connection_id", "client_host", *OF_CONNECTIONS, "client_isn", "server_isn", "first_host_ns"),)
AT_ONCE_NS = 10_000_000
"""Servers called within this time are called together; a later call is another try."""


def failed_connect_rows(
    rows: RequestRows, connections: ReadConnections, clocks: pa.Table, services: ServiceNames
) -> pl.DataFrame | None:
    """A row for each connection that was never established, as a child with a negative `exchange_id`; None if none.

    Arguments: the `rows` of a trace, or of some of its requests; its `connections` and table `clocks`; servers' names.
    """
    failed = _unanswered_syns(connections, clocks, services)
    if failed.is_empty():
        return None
    owned = _with_ends(_with_requests(failed, rows.among or rows), rows.among or rows, connections)
    made = owned.select(
        exchange_id=-pl.col("connection_id"),
        connection_id="connection_id",
        client_host="client_host",
        server_host="server_host",
        service="service",
        trace_id="trace_id",
        parent_span_id="parent",
        depth=pl.col("depth") + 1,
        connect_start_trace_ns="at",
        connected_trace_ns="until",
        start_trace_ns="at",
        end_trace_ns="until",
        pause_ns=pl.lit(0, pl.Int64),
        request_first_sent_trace_ns="until",
        given_up_trace_ns="until",
        complete=pl.lit(value=False),
    )
    if rows.among is not None:
        made = made.filter(pl.col("trace_id").is_in(rows.columns("trace_id")["trace_id"].unique().implode()))
    return None if made.is_empty() else made


def with_rows(rows: pl.DataFrame, more: pl.DataFrame | None) -> pl.DataFrame:
    """`rows` followed by those columns of `more`, from `failed_connect_rows`, that they have. Memory: the rows, and one
    more column."""
    if more is None:
        return rows
    known = more.select(name for name in more.columns if name in rows.columns)
    together = pl.concat([rows, known], how="diagonal_relaxed", rechunk=False)
    del rows
    return in_one_chunk(together)


def _unanswered_syns(connections: ReadConnections, clocks: pa.Table, services: ServiceNames) -> pl.DataFrame:
    """SYNs of captured clients that no server answered: `connection_id, client_host, server_host, service, at`."""
    parts = chain([CONNECTIONS.empty_table().select(CONNECTION_COLUMNS)], connections(CONNECTION_COLUMNS))
    lone = pl.concat(pl.DataFrame(plain_texts(part.filter(_is_lone(part)))) for part in parts)
    at = to_trace_ns(lone["client_host"].to_arrow().cast(pa.string()), lone["first_host_ns"].to_arrow(), clocks)
    server = pl.coalesce("server_host", "server_addr")  # of a server that sent nothing, only its address may be known
    return lone.select("connection_id", "client_host", "server_port", server_host=server).with_columns(
        service=services.of_rows(lone), at=pl.Series(at, dtype=pl.Int64)
    )


def _is_lone(connections: pa.Table) -> pa.ChunkedArray:
    """Whether each is of a captured client whose SYN no server answered."""
    is_asked = pc.and_(connections["client_isn"].is_valid(), connections["client_host"].is_valid())
    return pc.and_(is_asked, connections["server_isn"].is_null())


def _with_requests(failed: pl.DataFrame, rows: RequestRows) -> pl.DataFrame:
    """The failed connections opened for a request (`parent, trace_id, depth`). Memory: what requests did shortly before
    one of the connections."""
    times, hosts = np.sort(failed["at"].drop_nulls().to_numpy()), failed["client_host"].unique().implode()
    marks = pl.concat(_marks_near(part, times) for part in rows.batches("exchange_id", *_MARKS))
    parents = marks["parent"].unique().implode()
    columns = ("exchange_id", "trace_id", "depth", "server_host", "response_first_sent_trace_ns")
    served = pl.concat(
        part.filter(pl.col("exchange_id").is_in(parents))
        .with_columns(pl.col("server_host").cast(pl.String))
        .filter(pl.col("server_host").is_in(hosts))
        for part in rows.batches(*columns)
    ).rename(dict(zip(columns, ("parent", "trace_id", "depth", "client_host", "answered"), strict=True)))
    near = failed.sort("at").join_asof(
        marks.join(served, on="parent").sort("mark"),
        left_on="at", right_on="mark", by="client_host", tolerance=SOON_NS, check_sortedness=False,
    )  # fmt: skip
    return near.drop_nulls("parent").filter((pl.col("answered") > pl.col("at")).fill_null(value=True))


def _marks_near(rows: pl.DataFrame, times: NDArray[np.int64]) -> pl.DataFrame:
    """When requests did something, at most `SOON_NS` before one of `times` (ascending): `parent, mark`."""
    of_requests = (("exchange_id", _MARKS[0]), ("parent_span_id", "start_trace_ns"), ("parent_span_id", "end_trace_ns"))
    marks = pl.concat(rows.select(parent=parent, mark=mark) for parent, mark in of_requests).drop_nulls()
    mark = marks["mark"].to_numpy()
    after = np.append(times, NEVER)[np.searchsorted(times, mark)]
    return marks.filter(pl.Series(after <= mark + SOON_NS))


def _with_ends(near: pl.DataFrame, rows: RequestRows, connections: ReadConnections) -> pl.DataFrame:
    """Those of the failed connections with an end, and it (`until`): when their request called another server."""
    parents = near["parent"].unique().implode()
    columns = ("parent_span_id", "start_trace_ns", "service", "connection_id")
    calls = pl.concat(part.filter(pl.col("parent_span_id").is_in(parents)) for part in rows.batches(*columns))
    ids, parts = calls["connection_id"].unique().implode(), connections(["connection_id", "server_port"])
    ports = pl.concat(pl.DataFrame(part).filter(pl.col("connection_id").is_in(ids)) for part in parts)
    tries = calls.join(ports, on="connection_id", how="left").select(
        pl.col("service").cast(pl.String), "server_port", parent="parent_span_id", until="start_trace_ns"
    )
    tries = tries.drop_nulls("until").sort("until")
    later = near.with_columns(after=pl.col("at") + AT_ONCE_NS).sort("after")
    for of in ("service", "server_port"):
        later = later.join_asof(
            tries.select("parent", of, "until").drop_nulls(), left_on="after", right_on="until", by=["parent", of],
            strategy="forward", check_sortedness=False,
        ).rename({"until": f"until_{of}"})  # fmt: skip
    return later.with_columns(until=pl.coalesce("until_service", "until_server_port")).drop_nulls("until")
