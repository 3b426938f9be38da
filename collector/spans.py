"""Exchanges as spans of traces: each root request, everything done for it, and where its time went.

Parents come from `collector.links`, the ledger from `collector.critical_path`. A trace is a root and all below it;
`trace_id` is the root's `exchange_id`. Work put off until after the answer stays in the trace, with an empty ledger.
"""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa

from collector.critical_path import NONE, UNSEEN, Ledger, Longs, Nodes, make_ledger
from collector.links import find_links
from collector.schema import ID_STRIDE, conform
from collector.waits import first_answers, taken_up

LEDGER_COLUMNS = (
    *("client_ns", "connect_ns", "request_network_ns", "queue_ns", "work_ns", "quorum_ns"),
    *("response_network_ns", "stall_ns"),
)
"""The stretches of a span, in order of time; stalls may be in any part of the network's."""

STALLS = ("connect_stall_ns", "request_stall_ns", "response_stall_ns")

COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service"),
    *("transaction_id", "response_transaction_id", "background", "request_bytes", "response_bytes"),
    *("connect_start_trace_ns", "connected_trace_ns", "request_first_sent_trace_ns", "request_first_received_trace_ns"),
    *("continue_sent_trace_ns", "continue_received_trace_ns", "body_sent_trace_ns", "request_last_received_trace_ns"),
    *("response_first_sent_trace_ns", "response_first_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns", *STALLS),
]
"""Of the table `exchanges`, what is needed here."""
MOST_GAPS = 4
"""The last id of a partition may be so many times their number, and they are still looked up by place."""
CHUNK_ROWS = 1 << 18
"""Spans whose ledgers are made at once, traces kept whole: bounds memory to about 500 bytes for each of so many."""


def link(exchanges: pa.Table) -> pa.Table:
    """The table `spans` of a table `exchanges` (at least `COLUMNS`), in its row order."""
    frame = pl.from_arrow(exchanges.select(COLUMNS))
    assert isinstance(frame, pl.DataFrame)
    ids = frame["exchange_id"]
    links = pl.DataFrame(ids).join(_links(frame), on="exchange_id", how="left", maintain_order="left")
    parent = places(ids, links["parent_id"])
    root, depth = _roots(parent)
    ledger = _ledger(frame, parent, depth, root)
    spans = links.select(
        trace_id=pl.Series(ids.to_numpy()[root]),
        span_id=ids,
        parent_span_id="parent_id",
        link_reason="link_reason",
        confidence="confidence",
        depth=pl.Series(depth),
        critical_ns=pl.Series(ledger.critical_ns),
        **ledger_series(ledger),
    )
    return conform("spans", spans.to_arrow())


def _links(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`find_links`, with small numbers in place of texts. Of transaction ids it is a 64-bit hash: one in 10^7 traces
    errs by that. What daemons ask was asked by nobody's request, so it has no client to look for."""
    hosts, services = pl.concat([exchanges["client_host"], exchanges["server_host"]]), exchanges["service"]
    by_daemon = pl.col("background").fill_null(value=False)
    return find_links(
        exchanges.with_columns(
            pl.col("client_host", "server_host").cast(_texts_of(hosts)),
            pl.col("service").cast(_texts_of(services)),
            transaction_id=_ids(exchanges),
        ).with_columns(client_host=pl.when(~by_daemon).then("client_host"))
    )


def _ids(exchanges: pl.DataFrame) -> pl.Series:
    """The transaction id of each exchange, as a hash: its request's, or its response's where others show that one.

    A client's own id (`X-Request-Id`) may end at the first server, which names another in its answer and in its calls.
    """
    asked, answered = (
        exchanges.select(pl.when(pl.col(name).is_not_null()).then(pl.col(name).hash())).to_series()
        for name in ("transaction_id", "response_transaction_id")
    )
    if answered.null_count() == len(answered):
        return asked
    goes_on = answered.is_in(asked.drop_nulls().implode())
    return pl.select(pl.when(goes_on).then(answered).otherwise(asked)).to_series()


def _texts_of(column: pl.Series) -> pl.Enum:
    return pl.Enum(column.unique().drop_nulls().cast(pl.String).sort())


def _ledger(exchanges: pl.DataFrame, parent: Longs, depth: Longs, root: Longs) -> Ledger:
    """The ledgers of all traces, some at a time."""
    exchanges = with_waits(exchanges, parent)
    order = np.argsort(root, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first = np.flatnonzero(np.diff(root[order], prepend=NONE))
    edges = np.unique(first[np.searchsorted(first, np.arange(0, len(order), CHUNK_ROWS), side="right") - 1])
    whole = Ledger(*(np.zeros(len(order), dtype=np.int64) for _ in fields(Ledger)))
    for start, end in pairwise([*edges.tolist(), len(order)]):
        rows = order[start:end]
        of = parent[rows]
        nodes = make_nodes(exchanges[rows], np.where(of == NONE, NONE, place[of] - start), depth[rows])
        ledger = make_ledger(nodes)
        for field in fields(Ledger):
            getattr(whole, field.name)[rows] = getattr(ledger, field.name)
    return whole


def ledger_series(ledger: Ledger) -> dict[str, pl.Series]:
    """The ledger's stretches by column name."""
    return {name: pl.Series(getattr(ledger, name)) for name in LEDGER_COLUMNS}


def places(ids: pl.Series, wanted: pl.Series) -> Longs:
    """The row of each wanted id; NONE where it is null, or none of the ids.

    Cost: linear where ids hardly have gaps within each partition's, as exchanges are numbered; else that of a join.
    """
    known = ids.to_numpy()
    partitions = known // ID_STRIDE
    sizes = np.zeros(int(partitions.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(sizes, partitions, known % ID_STRIDE + 1)
    if known.min(initial=0) < 0 or sizes.sum() > MOST_GAPS * len(known):
        rows = pl.DataFrame({"id": ids}).with_row_index("row")
        found = pl.DataFrame({"id": wanted}).join(rows, on="id", how="left", maintain_order="left")["row"]
        return found.cast(pl.Int64).fill_null(NONE).to_numpy()
    first = np.cumsum(sizes) - sizes
    row_of = np.full(int(sizes.sum()) + 1, NONE)  # the last for what is asked in vain
    row_of[first[partitions] + known % ID_STRIDE] = np.arange(len(known))
    sought = wanted.fill_null(-1).to_numpy()
    partition = np.clip(sought // ID_STRIDE, 0, len(sizes) - 1)
    number = sought - partition * ID_STRIDE
    is_inside = (number >= 0) & (number < sizes[partition])
    return row_of[np.where(is_inside, first[partition] + number, -1)]


def with_waits(exchanges: pl.DataFrame, parent: Longs) -> pl.DataFrame:
    """`exchanges` with `taken_up` and `first_answered`; arguments as `collector.waits.taken_up`."""
    return exchanges.with_columns(
        taken_up=pl.Series(taken_up(exchanges, parent)), first_answered=pl.Series(first_answers(exchanges, parent))
    )


def make_nodes(exchanges: pl.DataFrame, parent: Longs, depth: Longs) -> Nodes:
    """The stamps of `exchanges`, as `with_waits` gives them, that bound their stretches.

    A client that was not captured leaves the server's stamps: such a root begins when its request arrived and ends
    when its response had left. A request that was never answered lasts until its client gave it up.
    """

    def stamp(*names: str) -> Longs:
        seen = pl.coalesce(*(f"{name}_trace_ns" for name in names))
        return exchanges.select(seen.fill_null(UNSEEN)).to_series().to_numpy().astype(np.int64)

    connect_stall, request_stall, response_stall = (
        exchanges[name].fill_null(0).to_numpy().astype(np.int64) for name in STALLS
    )
    return Nodes(
        parent=parent,
        depth=depth,
        start=stamp("connect_start", "request_first_sent", "request_first_received"),
        connected=stamp("connected"),
        sent=stamp("request_first_sent"),
        head_arrived=stamp("request_first_received"),
        continued=stamp("continue_sent"),
        asked_for=stamp("continue_received"),
        body_sent=stamp("body_sent"),
        arrived=stamp("request_last_received", "request_first_received"),
        answered=stamp("response_first_sent"),
        first_returned=stamp("response_first_received", "response_first_sent", "given_up"),
        ended=stamp("response_last_received", "response_last_sent", "given_up"),
        taken_up=exchanges["taken_up"].to_numpy(),
        first_answered=exchanges["first_answered"].to_numpy(),
        connect_stall=connect_stall,
        request_stall=request_stall,
        response_stall=response_stall,
    )


def _roots(parent: Longs) -> tuple[Longs, Longs]:
    """Each node's root and its depth below it. Steps double, so chains of requests cost their length's logarithm."""
    linked = parent != NONE
    root, depth = np.where(linked, parent, np.arange(len(parent))), linked.astype(np.int64)
    while not np.array_equal(further := root[root], root):
        depth, root = depth + depth[root], further
    return root, depth
