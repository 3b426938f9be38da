"""Converts exchanges to spans of traces: each root request, all requests made for it, and where its time went.

Parents come from `collector.requests.parents`, the ledger from `collector.requests.critical_path`. A trace is a root
span and all spans below it; `trace_id` is the root's `exchange_id`. Work deferred until after the answer belongs to the
trace, with an empty ledger.
"""

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.execution import memory
from collector.requests.critical_path import NONE, Int64Array, Ledger, Nodes, make_ledger
from collector.requests.endings import as_clients_saw
from collector.requests.exchanges import NO_BYTE, RANGE
from collector.requests.hedged_calls import find_hedged_calls
from collector.requests.openings import Bounds, find_bounds
from collector.requests.parents import find_links, with_own_ids
from collector.requests.silences import SUM_COLUMNS, silences_by_row
from collector.requests.waits import waits
from collector.trace.arrow import (
    coalesce,
    dictionary_array,
    indices,
    nullable,
    nullable_where,
    numbers,
    sharing_nulls,
    texts,
)
from collector.trace.request_times import ARRIVED, FIRST_RETURN, RESPONSE_END
from collector.trace.schema import EXCHANGES, ID_STRIDE_BITS, SILENCES, SPANS, LinkReason, conform
from collector.trace.time_columns import UNSEEN, first_times

LEDGER_COLUMNS = tuple(SPANS.names[SPANS.names.index("critical_ns") + 1 :])
"""The stretches of a span, in order of time; stalls may occur in any network stretch."""

STALLS = ("connect_stall_ns", "request_stall_ns", "response_stall_ns")

COLUMNS = [
    *("exchange_id", "connection_id", "client_host", "server_host", "service"),
    *("background", "method", "protocol", "request_bytes", "response_bytes"),
    *("connect_start_trace_ns", "connected_trace_ns", "connected_received_trace_ns", "greeting_sent_trace_ns"),
    *("greeting_received_trace_ns", "tls_start_trace_ns", "tls_end_trace_ns"),
    *("request_first_sent_trace_ns", "request_last_sent_trace_ns", "request_first_received_trace_ns"),
    *("continue_sent_trace_ns", "continue_received_trace_ns", "body_sent_trace_ns", "request_last_received_trace_ns"),
    *("response_first_sent_trace_ns", "response_first_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns", *STALLS, *SUM_COLUMNS),
    *("ending", "closed_trace_ns", "status"),
]
"""Columns of `exchanges` needed beside `target`, `transaction_id` and `response_transaction_id`."""
NO_IDS: NDArray[np.uint64] = np.empty(0, np.uint64)
REASONS = pa.array([LinkReason.TRANSACTION_ID.value, LinkReason.TIMING.value])


def link(exchanges: pa.Table, silences: pa.Table | None = None) -> pa.Table:
    """The table `spans` of a table `exchanges` (at least `COLUMNS`, targets and transaction ids), in its row order.

    Arguments: `silences`, the table of their messages' silences; without it, silences count as network.
    """
    return link_all([exchanges], SILENCES.empty_table() if silences is None else silences)


def link_all(exchanges: Iterable[pa.Table], silences: pa.Table) -> pa.Table:
    """The result of `link` for a table `exchanges` in parts. Memory: about 430 bytes for each exchange, no texts."""
    rows, shown_id, words, asked, paths = _numeric_columns(exchanges)
    memory.give_back()
    ids = coalesce(rows, ["exchange_id"], NONE)
    links = find_links(rows, shown_id, words, paths)
    del shown_id, words, paths
    parent = links.parent
    forest = _core.trace_forest(parent)
    rows = as_clients_saw(rows)
    bounds = find_bounds(rows, parent)
    nodes = make_nodes(rows, parent, forest["depth"], bounds, asked)
    silent = silences_by_row(silences, rows)
    del rows
    memory.give_back()
    ledger = make_ledger(nodes, silent)
    del nodes
    is_root = parent == NONE
    reason = np.where(links.by_id, 0, 1).astype(np.int32)
    spans = {
        "trace_id": nullable(ids[forest["root"]]),
        "span_id": nullable(ids),
        "parent_span_id": nullable_where(ids[parent], is_root),
        "link_reason": dictionary_array(reason, REASONS, np.packbits(~is_root, bitorder="little")),
        "confidence": nullable_where(links.confidence, is_root),
        "alternative_parent_span_id": nullable_where(ids[links.alternative], links.alternative == NONE),
        "alternative_confidence": nullable_where(links.alternative_confidence, links.alternative == NONE),
        "depth": nullable(forest["depth"].astype(np.uint16)),
        "start_trace_ns": nullable_where(bounds.start, bounds.start == UNSEEN),
        "end_trace_ns": nullable_where(bounds.end, bounds.end == UNSEEN),
        "pause_ns": nullable(bounds.pause),
        "critical_ns": nullable(ledger.critical_ns),
    }
    spans |= {name: nullable(getattr(ledger, name)) for name in LEDGER_COLUMNS}
    return conform("spans", pa.table(spans))


def _numeric_columns(
    parts: Iterable[pa.Table],
) -> tuple[pa.Table, NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64]]:
    """`COLUMNS` of all parts; 64-bit hashes of their transaction ids, 0 without one (they collide in one of 10^7
    traces); the words of targets and byte ranges, hashed to 32 bits; whole targets as from
    `target_numbers`; and, likewise, targets without their queries."""
    tables, asked, answered = [EXCHANGES.empty_table().select(COLUMNS)], [NO_IDS], [NO_IDS]
    targets, paths = [NO_IDS], [NO_IDS]
    words = [_words(EXCHANGES.empty_table())]
    for part in parts:
        tables.append(sharing_nulls(part.select(COLUMNS)))
        words.append(_words(part))
        targets.append(target_numbers(part["target"]))
        paths.append(_hashes(part["target"], _core.path_numbers))
        asked.append(_hashes(part["transaction_id"]))
        answered.append(_hashes(part["response_transaction_id"]))
    shown = _shown_ids(np.concatenate(asked), np.concatenate(answered))
    return pa.concat_tables(tables), shown, np.concatenate(words), np.concatenate(targets), np.concatenate(paths)


def target_numbers(targets: pa.ChunkedArray) -> NDArray[np.uint64]:
    """A number for each target, 0 if unknown."""
    return _hashes(targets)


def _words(exchanges: pa.Table) -> NDArray[np.uint32]:
    """The words of targets. A gateway names an object of a store of its own after the bucket's id and the object that
    it was asked for, with `_` between (RADOS Gateway): there the first `_` ends a word."""
    ranges = {name: numbers(exchanges[name], NO_BYTE) for name in RANGE}
    own, target = with_own_ids(exchanges), exchanges["target"]
    if own.any():
        parts = pc.replace_substring(target, "_", "/", max_replacements=1)
        target = pc.if_else(pa.array(own), parts, target)
    return _core.linking_words(texts(target) | ranges)


def _hashes(
    ids: pa.ChunkedArray, numbers_of: Callable[[Columns], NDArray[np.uint64]] = _core.text_numbers
) -> NDArray[np.uint64]:
    if ids.null_count == len(ids):
        return np.zeros(len(ids), np.uint64)
    found = numbers_of(texts(ids))
    if ids.null_count:
        found[ids.is_null().to_numpy()] = 0
    return found


def _shown_ids(asked: NDArray[np.uint64], answered: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The transaction id of each exchange: its request's, or its response's if other exchanges show that one.

    A client's own id (`X-Request-Id`) may end at the first server, which uses another one in its answer and its calls.
    """
    if not answered.any():
        return asked
    goes_on = (answered != 0) & np.isin(answered, asked)
    return np.where(goes_on, answered, asked)


def ledger_series(ledger: Ledger) -> dict[str, pl.Series]:
    """The ledger's stretches by column name."""
    return {name: pl.Series(getattr(ledger, name)) for name in LEDGER_COLUMNS}


def places(ids: pl.Series, wanted: pl.Series) -> Int64Array:
    """The row of each wanted id; NONE if it is null or not among the ids."""
    return _core.places(ids.to_numpy(), [wanted.fill_null(NONE).to_numpy()], ID_STRIDE_BITS)[0]


def _is_http(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Whether each exchange is HTTP's: a server that asks for the body before it has begun to work on the request."""
    codes, names = indices(exchanges["protocol"])
    return np.array([*((name or "").startswith("http/") for name in names), False])[codes]


def make_nodes(
    exchanges: pa.Table, parent: Int64Array, depth: Int64Array, bounds: Bounds, asked: NDArray[np.uint64]
) -> Nodes:
    """The timestamps of `exchanges` that bound their stretches, and their waits (`collector.requests.waits`).

    Arguments: `asked`, from `target_numbers`.

    A call abandoned for another one's answer delayed its parent only until that other call began
    (`collector.requests.hedged_calls`). If the client was not captured, only the server's timestamps are known: such a
    root begins when its request arrived and ends when its response had left. A request that was never answered lasts
    until its client gave it up.
    """
    connect_stall, request_stall, response_stall = (coalesce(exchanges, [name], 0) for name in STALLS)
    head_arrived = first_times(exchanges, "request_first_received")
    continue_sent = first_times(exchanges, "continue_sent")
    found = waits(
        parent,
        indices(exchanges["service"])[0],
        began=bounds.start,
        ended=RESPONSE_END.times(exchanges),
        asked_for_body=np.where(_is_http(exchanges), continue_sent, UNSEEN),
        arrived=head_arrived,
    )
    returned, ended = FIRST_RETURN.times(exchanges), bounds.end
    left, until = find_hedged_calls(exchanges, parent, bounds.start, asked)
    if len(left):
        returned, ended = returned.copy(), ended.copy()
        returned[left], ended[left] = until, until
    return Nodes(
        parent=parent,
        depth=depth,
        start=bounds.start,
        connected=bounds.connected,
        connected_received=first_times(exchanges, "connected_received"),
        greeting_sent=first_times(exchanges, "greeting_sent"),
        greeted=bounds.greeted,
        tls_start=bounds.tls_start,
        tls_end=bounds.tls_end,
        sent=bounds.sent,
        last_sent=first_times(exchanges, "request_last_sent"),
        head_arrived=head_arrived,
        continue_sent=continue_sent,
        continue_received=first_times(exchanges, "continue_received"),
        body_sent=first_times(exchanges, "body_sent"),
        arrived=ARRIVED.times(exchanges),
        answered=first_times(exchanges, "response_first_sent"),
        first_received=first_times(exchanges, "response_first_received"),
        response_begin=returned,
        ended=ended,
        connect_stall=connect_stall,
        request_stall=request_stall,
        response_stall=response_stall,
        **found,
    )
