"""Converts exchanges to spans of traces: each root request, all requests made for it, and where its time went.

Parents come from `collector.requests.parents`, the ledger from `collector.requests.critical_path`. A trace is a root
span and all spans below it; `trace_id` is the root's `exchange_id`. Work deferred until after the answer belongs to the
trace, with an empty ledger.
"""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.execution import memory
from collector.requests.critical_path import NONE, Int64Array, Ledger, Nodes, make_ledger
from collector.requests.endings import as_clients_saw
from collector.requests.hedged_calls import find_hedged_calls
from collector.requests.linking_columns import OF_LINKS, STALLS, TARGET, linking_columns, shown_ids, words_of
from collector.requests.openings import Bounds, find_bounds
from collector.requests.parents import find_links
from collector.requests.silences import silences_by_row
from collector.requests.waits import waits
from collector.trace.arrow import coalesce, dictionary_array, indices, nullable, nullable_where, numbers
from collector.trace.request_times import ARRIVED, FIRST_RETURN, RESPONSE_END
from collector.trace.schema import ID_STRIDE_BITS, SILENCES, SPANS, LinkReason, conform
from collector.trace.time_columns import UNSEEN, first_times

LEDGER_COLUMNS = tuple(SPANS.names[SPANS.names.index("critical_ns") + 1 :])
"""The stretches of a span, in order of time; stalls may occur in any network stretch."""

REASONS = pa.array([LinkReason.TRANSACTION_ID.value, LinkReason.TIMING.value])


class LinkedRows(Struct, frozen=True):
    """The parent of each of some exchanges, in their order; the next likeliest one need not be among them."""

    parent: Int64Array  # its row; NONE for a root
    by_id: NDArray[np.bool_]
    confidence: NDArray[np.float64]
    alternative_id: Int64Array  # the `exchange_id` of the next likeliest parent; NONE where there is none
    alternative_confidence: NDArray[np.float64]


def link(exchanges: pa.Table, silences: pa.Table | None = None) -> pa.Table:
    """The table `spans` of a table `exchanges` (at least `COLUMNS`, targets and transaction ids), in its row order.

    Arguments: `silences`, the table of their messages' silences; without it, silences count as network.
    """
    return link_all([exchanges], SILENCES.empty_table() if silences is None else silences)


def link_all(exchanges: Iterable[pa.Table], silences: pa.Table) -> pa.Table:
    """The result of `link` for a table `exchanges` in parts. Memory: about 430 bytes for each exchange, no texts."""
    return link_columns([linking_columns(exchanges)], silences)


def link_columns(columns: list[pa.Table], silences: pa.Table) -> pa.Table:
    """The table `spans` of exchanges. Arguments: a list with their `linking_columns`, which are taken from it, to be
    freed as soon as they are used; the silences of their messages."""
    memory.give_back_if_much()
    links = links_of(columns[0])
    return spans_of(columns.pop().drop_columns([*OF_LINKS]), links, silences)


def links_of(columns: pa.Table) -> LinkedRows:
    """The parents of exchanges. Arguments: their `linking_columns`."""
    found = find_links(columns, shown_ids(columns), words_of(columns), numbers(columns["path_number"]))
    ids = coalesce(columns, ["exchange_id"], NONE)
    others = np.where(found.alternative == NONE, NONE, ids[found.alternative]) if len(ids) else ids
    return LinkedRows(found.parent, found.by_id, found.confidence, others, found.alternative_confidence)


def spans_of(columns: pa.Table, links: LinkedRows, silences: pa.Table) -> pa.Table:
    """The table `spans` of exchanges whose parents are known. Arguments: their `linking_columns`, of which `OF_LINKS`
    are not needed; the silences of their messages, and perhaps of others."""
    ids, parent = coalesce(columns, ["exchange_id"], NONE), links.parent
    forest = _core.trace_forest(parent)
    rows = as_clients_saw(columns)
    del columns
    bounds = find_bounds(rows, parent)
    nodes = make_nodes(rows, parent, forest["depth"], bounds, numbers(rows[TARGET]))
    silent = silences_by_row(silences, rows)
    del rows
    memory.give_back_if_much()
    ledger = make_ledger(nodes, silent)
    del nodes
    is_root, has_other = parent == NONE, links.alternative_id != NONE
    reason = np.where(links.by_id, 0, 1).astype(np.int32)
    spans = {
        "trace_id": nullable(ids[forest["root"]]),
        "span_id": nullable(ids),
        "parent_span_id": nullable_where(ids[parent], is_root),
        "link_reason": dictionary_array(reason, REASONS, np.packbits(~is_root, bitorder="little")),
        "confidence": nullable_where(links.confidence, is_root),
        "alternative_parent_span_id": nullable_where(links.alternative_id, ~has_other),
        "alternative_confidence": nullable_where(links.alternative_confidence, ~has_other),
        "depth": nullable(forest["depth"].astype(np.uint16)),
        "start_trace_ns": nullable_where(bounds.start, bounds.start == UNSEEN),
        "end_trace_ns": nullable_where(bounds.end, bounds.end == UNSEEN),
        "pause_ns": nullable(bounds.pause),
        "critical_ns": nullable(ledger.critical_ns),
    }
    spans |= {name: nullable(getattr(ledger, name)) for name in LEDGER_COLUMNS}
    return conform("spans", pa.table(spans))


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

    Arguments: `asked`, a number for each target, as from `collector.requests.linking_columns.target_numbers`.

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
