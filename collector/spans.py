"""Exchanges as spans of traces: each root request, everything done for it, and where its time went.

Parents come from `collector.links`, the ledger from `collector.critical_path`. A trace is a root and all below it;
`trace_id` is the root's `exchange_id`. Work put off until after the answer stays in the trace, with an empty ledger.
"""

from collections.abc import Iterable
from itertools import chain

import numpy as np
import polars as pl
import pyarrow as pa

from collector.columns import coded, nullable, nullable_where
from collector.critical_path import NONE, Ledger, Longs, Nodes, make_ledger
from collector.links import find_links
from collector.schema import EXCHANGES, ID_STRIDE, LinkReason, conform
from collector.stamps import stacked, stamps
from collector.waits import BEGAN, first_answers, taken_up
from tracer import _core

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
REASONS = pa.array([LinkReason.TRANSACTION_ID.value, LinkReason.TIMING.value])


def link(exchanges: pa.Table) -> pa.Table:
    """The table `spans` of a table `exchanges` (at least `COLUMNS`), in its row order."""
    return link_all([exchanges])


def link_all(exchanges: Iterable[pa.Table]) -> pa.Table:
    """As `link`, of a table that comes in parts. Memory: about 400 bytes for each exchange, no texts among them."""
    frame = _in_numbers(exchanges)
    ids = frame["exchange_id"].to_numpy()
    links = find_links(frame)
    frame = frame.select("service", pl.col("^.*_trace_ns$"), *STALLS)  # the rest is memory
    parent = links.parent
    forest = _core.trace_forest(parent)
    nodes = make_nodes(with_waits(frame, parent), parent, forest["depth"])
    del frame
    ledger = make_ledger(nodes)
    is_root = parent == NONE
    reason = np.where(links.by_id, 0, 1).astype(np.int32)
    spans = {
        "trace_id": nullable(ids[forest["root"]]),
        "span_id": nullable(ids),
        "parent_span_id": nullable_where(ids[parent], is_root),
        "link_reason": coded(reason, REASONS, np.packbits(~is_root, bitorder="little")),
        "confidence": nullable_where(links.confidence, is_root),
        "depth": nullable(forest["depth"].astype(np.uint16)),
        "critical_ns": nullable(ledger.critical_ns),
    }
    spans |= {name: nullable(getattr(ledger, name)) for name in LEDGER_COLUMNS}
    return conform("spans", pa.table(spans))


def _in_numbers(parts: Iterable[pa.Table]) -> pl.DataFrame:
    """`COLUMNS` of all parts, with small numbers in place of texts. Of transaction ids it is a 64-bit hash: one in 10^7
    traces errs by that. What daemons ask was asked by nobody's request, so it has no client to look for."""
    ids = ("transaction_id", "response_transaction_id")
    hashes = [pl.when(pl.col(name).is_not_null()).then(pl.col(name).hash()) for name in ids]
    every = (part.select(COLUMNS) for part in chain([EXCHANGES.empty_table()], parts))
    frame = stacked(pl.DataFrame(part).with_columns(hashes) for part in every)
    hosts, services = pl.concat([frame["client_host"], frame["server_host"]]), frame["service"]
    by_daemon = pl.col("background").fill_null(value=False)
    return frame.with_columns(
        pl.col("client_host", "server_host").cast(_texts_of(hosts)),
        pl.col("service").cast(_texts_of(services)),
        transaction_id=_ids(frame),
    ).with_columns(client_host=pl.when(~by_daemon).then("client_host"))


def _ids(exchanges: pl.DataFrame) -> pl.Series:
    """The transaction id of each exchange: its request's, or its response's where others show that one.

    A client's own id (`X-Request-Id`) may end at the first server, which names another in its answer and in its calls.
    """
    asked, answered = exchanges["transaction_id"], exchanges["response_transaction_id"]
    if answered.null_count() == len(answered):
        return asked
    goes_on = answered.is_in(asked.drop_nulls().implode())
    return pl.select(pl.when(goes_on).then(answered).otherwise(asked)).to_series()


def _texts_of(column: pl.Series) -> pl.Enum:
    return pl.Enum(column.unique().drop_nulls().cast(pl.String).sort())


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

    connect_stall, request_stall, response_stall = (
        exchanges[name].cast(pl.Int64).fill_null(0).to_numpy() for name in STALLS
    )
    return Nodes(
        parent=parent,
        depth=depth,
        start=stamps(exchanges, *BEGAN),
        connected=stamps(exchanges, "connected"),
        sent=stamps(exchanges, "request_first_sent"),
        head_arrived=stamps(exchanges, "request_first_received"),
        continued=stamps(exchanges, "continue_sent"),
        asked_for=stamps(exchanges, "continue_received"),
        body_sent=stamps(exchanges, "body_sent"),
        arrived=stamps(exchanges, "request_last_received", "request_first_received"),
        answered=stamps(exchanges, "response_first_sent"),
        first_returned=stamps(exchanges, "response_first_received", "response_first_sent", "given_up"),
        ended=stamps(exchanges, "response_last_received", "response_last_sent", "given_up"),
        taken_up=exchanges["taken_up"].to_numpy(),
        first_answered=exchanges["first_answered"].to_numpy(),
        connect_stall=connect_stall,
        request_stall=request_stall,
        response_stall=response_stall,
    )
