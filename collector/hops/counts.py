"""Counts hops in one pass: by flow, by pair of hosts, and by network path and time; and selects connections in trouble.

The table `quality` (`collector.hops.quality`) and the findings about connections and network paths
(`collector.findings.symptoms`, `collector.hops.path_traffic`) are computed from these counts.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector import _core
from collector.capture_files.records import Columns, by_name
from collector.hops.path_traffic import LATE_NS, SLICE_NS
from collector.trace.arrow import codes, indices, nullable, nullable_where, numbers
from collector.trace.schema import HopKind, HopState
from collector.trace.time_columns import Int64Array

KINDS, STATES = ([*map(str, names)] for names in (HopKind, HopState))
"""In the order of the core's codes."""
PLAIN = (
    *("connection_id", "from_client", "send_frame", "receive_frame", "stream_start", "stream_end", "attempt"),
    *("one_way_delay_ns", "send_trace_ns", "receive_trace_ns"),
)


class HopCounts(Struct, frozen=True):
    """Hops of whole connections, counted."""

    flows: Columns
    """One row for each flow, if requested. The columns are explained in `collector/core/hops/src/flows.rs`: `start`
    (its first row in `hops`), `state_<code>`, `split`, `retransmitted`, `early`, `bytes`, `matched_bytes`; all
    int64."""
    notable_rows: Int64Array
    """Rows in `hops` of the connections in which at least one packet did not simply arrive once, as far as captures
    could show it, or nothing was answered."""
    sent: pl.DataFrame
    """`send_host, receive_host, sent`: data hops of each pair of hosts."""
    traffic: pl.DataFrame
    """As described in `collector.hops.path_traffic`."""
    rates: pl.DataFrame
    """As described in `collector.hops.path_traffic`."""


def hop_counts(hops: pa.Table, by_flow: bool = True, late_ns: int = LATE_NS) -> HopCounts:
    """Count the hops of whole connections.

    Arguments: `hops`, in the order of matching: the rows of one direction of a connection are consecutive; `by_flow`,
    whether to count each flow, too; `late_ns`, the delay from which on a packet shows a path's rate.
    Cost: ~20 ns a hop.
    """
    columns: Columns = {name: numbers(hops[name]) for name in PLAIN}
    columns |= {"kind": codes(hops["kind"], KINDS), "state": codes(hops["state"], STATES)}
    columns["send_host"], senders = indices(hops["send_host"])
    columns["receive_host"], receivers = indices(hops["receive_host"])
    apart = np.array([one != other for one in senders for other in receivers], dtype=np.bool_)
    counted = _core.count_hops(columns, apart, len(receivers), SLICE_NS, late_ns, by_flow)
    sums = (counted["sent"], counted["traffic"], counted["rates"])
    sent, traffic, rates = (_with_host_names(by_name(each), senders, receivers) for each in sums)
    return HopCounts(by_name(counted["flows"]), counted["notable_rows"], sent, traffic, rates)


def _with_host_names(sums: Columns, senders: Sequence[str], receivers: Sequence[str]) -> pl.DataFrame:
    """Sums, with host numbers replaced by the columns `send_host` and `receive_host`."""
    ends = {"send_host": _texts(senders, sums["sender"]), "receive_host": _texts(receivers, sums["receiver"])}
    counts = {name: nullable(values) for name, values in sums.items() if name not in ("sender", "receiver")}
    frame = pl.from_arrow(pa.table(ends | counts))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _texts(texts: Sequence[str], places: Int64Array) -> pa.StringArray:
    """The text at each index of `places`; -1 is null."""
    return pa.array(texts, pa.string()).take(nullable_where(places, places < 0))
