"""All that is counted of hops, in one pass over them: by flow, by hosts, by link and time; and who tells of trouble.

The table `quality` is made of it (`collector.hops.quality`), and what findings tell of connections and links
(`collector.findings.symptoms`, `collector.hops.path_traffic`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from collector.hops.path_traffic import LATE_NS, SLICE_NS
from collector.trace.arrow import codes, indices, nullable, nullable_where, numbers
from collector.trace.schema import HopKind, HopState
from collector.trace.time_columns import Int64Array
from tracer import _core
from tracer.records import Columns

KINDS, STATES = ([*map(str, names)] for names in (HopKind, HopState))
"""In the order of the core's codes."""
PLAIN = (
    *("connection_id", "from_client", "send_frame", "receive_frame", "stream_start", "stream_end", "attempt"),
    *("one_way_delay_ns", "send_trace_ns", "receive_trace_ns"),
)


@dataclass(frozen=True, slots=True)
class HopCounts:
    """Hops of whole connections, counted."""

    flows: Columns
    """One row a flow, if they were asked for, as `tracer/core/hops/src/flows.rs` counts and explains: `start` (its
    first row in `hops`), `state_<code>`, `split`, `retransmitted`, `early`, `bytes`, `matched_bytes`; all int64."""
    telling: Int64Array
    """Rows of the connections in which anything but plain success happened."""
    sent: pl.DataFrame
    """`send_host, receive_host, sent`: data hops of each pair of hosts."""
    traffic: pl.DataFrame
    """As `collector.hops.path_traffic` says, as are `rates`."""
    rates: pl.DataFrame


def hop_counts(hops: pa.Table, by_flow: bool = True) -> HopCounts:
    """The counts of some hops.

    Arguments: `hops`, whole connections, in the order that matching gives them: a connection's direction is one run of
    rows; `by_flow`, whether flows are asked for. Cost: ~20 ns a hop.
    """
    columns: Columns = {name: numbers(hops[name]) for name in PLAIN}
    columns |= {"kind": codes(hops["kind"], KINDS), "state": codes(hops["state"], STATES)}
    columns["send_host"], senders = indices(hops["send_host"])
    columns["receive_host"], receivers = indices(hops["receive_host"])
    apart = np.array([one != other for one in senders for other in receivers], dtype=np.bool_)
    counted = _core.count_hops(columns, apart, len(receivers), SLICE_NS, LATE_NS, by_flow)
    sent, traffic, rates = (_named(counted[name], senders, receivers) for name in ("sent", "traffic", "rates"))
    return HopCounts(counted["flows"], counted["telling"], sent, traffic, rates)


def _named(sums: Columns, senders: Sequence[str], receivers: Sequence[str]) -> pl.DataFrame:
    """Sums with the names of hosts, `send_host` and `receive_host`, in place of places."""
    ends = {"send_host": _texts(senders, sums["sender"]), "receive_host": _texts(receivers, sums["receiver"])}
    counts = {name: nullable(values) for name, values in sums.items() if name not in ("sender", "receiver")}
    frame = pl.from_arrow(pa.table(ends | counts))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _texts(texts: Sequence[str], places: Int64Array) -> pa.StringArray:
    """Texts by their places; -1 is null."""
    return pa.array(texts, pa.string()).take(nullable_where(places, places < 0))
