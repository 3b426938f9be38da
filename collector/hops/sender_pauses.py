"""Pauses of senders that had more to send, and the TCP mechanism that caused each pause.

The core finds pauses while it matches (`collector/core/matching/src/pauses.rs`): a sender that resumes at the moment an
acknowledgement arrives was waiting for it. The state of the connection at that moment gives the reason:

| why | the sender had |
|---|---|
| `zero_window` | a closed window, or less than a segment left of it, for more than two round trips: nobody reads |
| `small_window` | the same, for about a round trip: more could have been on the way |
| `delayed_ack` | room, and a small segment to send behind an unacknowledged one; the ACK came 30 to 510 ms late |
| `slow_start` | been idle, and now fewer bytes on the way than before that; the ACK came after a round trip |

A window smaller than the path's capacity fills up once every round trip, and its last ACK often announces 0: the bytes
have arrived and are read a moment later. So a closed window shows that the receiver does not read only if it lasts.

All other pauses are normal for TCP: a new connection's slow start, recovery from a loss.

Source: RFC 9293 §3.8.6 (windows), RFC 1122 §4.2.3.2 (an ACK is delayed less than 0.5 s; Linux 40 ms, others 200 ms) and
§4.2.3.4 (Nagle), RFC 5681 §4.1 (restart of idle connections).
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa

from collector.capture_files.records import Columns
from collector.clocks.alignment import to_trace_ns
from collector.trace.arrow import dictionary_array, nullable, nullable_where
from collector.trace.threshold import threshold

USUAL_MSS_BYTES = 1448
"""The MSS assumed if no handshake was captured."""
STAMPS = ("stopped", "released", "resumed")
UNKNOWN = -1
MAY_BE_UNKNOWN = ("full_ns", "rtt_ns")
"""Columns of `pause_table` that are null where the capture does not show it."""
PLACE = ["why", "send_host", "receive_host"]
GROUP_COLUMNS = {
    **dict.fromkeys(PLACE, pl.String),
    **dict.fromkeys(("count", "connections", "cost_ns", "begin_ns", "end_ns", "worst_ns"), pl.Int64),
    **dict.fromkeys(("connection_id", "span_id", "from_trace_ns", "to_trace_ns", "in_flight_bytes"), pl.Int64),
}
"""Columns of `pauses_by_host_pair`."""


@dataclass(frozen=True, slots=True)
class PauseThresholds:
    """By which the reason for a sender's pause is recognised."""

    delayed_ack_least_ns: int = threshold(
        30_000_000, "a delayed ACK comes so long after the round trip: on Linux at least 40 ms, less a timer tick"
    )
    delayed_ack_most_ns: int = threshold(
        510_000_000, "an ACK may be delayed by less than 500 ms (RFC 1122 §4.2.3.2), plus a timer tick"
    )
    receiver_delay_ratio: float = threshold(
        2.0, "chosen: an ACK that takes more round trips was delayed by the receiver, not by the network"
    )
    restart_least_segments_count: int = threshold(
        2, "segments in flight after an idle time: the smallest restart window (RFC 5681 §4.1)"
    )
    least_ns: int = threshold(
        1_000_000,
        "shorter pauses are ignored if they only end what a retransmission had interrupted; the core notes pauses from "
        "the same length on (`pauses.rs`, `MIN_PAUSE_NS`)",
    )


DEFAULT_LIMITS = PauseThresholds()
HOLDS: dict[str, type[np.generic]] = {
    "connection_id": np.int64,
    "from_client": np.bool_,
    "stream_offset": np.int64,
    "is_reader": np.bool_,
}
"""Columns of `tcp_holds`."""


def pause_table(found: Columns, hosts: pa.StringArray) -> pa.Table:
    """The core's pauses as a table: `connection_id, from_client, host` (the sender), `*_ns` of its own clock, bytes.

    Arguments: `found`, the core's columns, in which -1 means unknown; the names of hosts. Times that are not known
    become null, since they are subtracted from others.
    """
    columns = {name: nullable(values) for name, values in found.items() if values.dtype != bool}
    columns |= {name: nullable_where(found[name], found[name] == UNKNOWN) for name in MAY_BE_UNKNOWN}
    columns |= {name: pa.array(values) for name, values in found.items() if values.dtype == bool}
    return pa.table(columns | {"host": dictionary_array(found["host"].astype("i4"), hosts)})


def align_pauses(pauses: pa.Table, clocks: pa.Table) -> pa.Table:
    """`pauses` with the columns `stopped_trace_ns, released_trace_ns, resumed_trace_ns`."""
    for name in STAMPS if pauses.num_rows else ():
        stamps = to_trace_ns(pauses["host"].combine_chunks(), pauses[f"{name}_ns"], clocks)
        pauses = pauses.append_column(f"{name}_trace_ns", pa.array(stamps))
    return pauses


def tcp_holds(pauses: pa.Table | None) -> Columns:
    """The pauses in which TCP held the sender back, as columns for the core: `connection_id`, `from_client`,
    `stream_offset` of the bytes sent next, and `is_reader`, whether the receiver's window was closed.

    Omitted are pauses that end with less than a segment and have no TCP reason: there the application paused. Always
    by the default thresholds, since the ledger depends on it.
    """
    if pauses is None or not pauses.num_rows:
        return {name: np.empty(0, kind) for name, kind in HOLDS.items()}
    rows = pl.DataFrame(pauses).with_columns(why=_reason(DEFAULT_LIMITS))
    rows = rows.filter(pl.col("why").is_not_null() | (pl.col("resumed_bytes") >= _segment_bytes()))
    rows = rows.with_columns(is_reader=(pl.col("why") == "zero_window").fill_null(value=False))
    return {name: np.ascontiguousarray(rows[name].to_numpy(), dtype=kind) for name, kind in HOLDS.items()}


def pauses_by_host_pair(
    pauses: pa.Table | None, hops: pa.Table, limits: PauseThresholds, streams: pl.Series | None = None
) -> pl.DataFrame:
    """Pauses grouped by their reason, one row for each `why, send_host, receive_host`.

    Arguments: `pauses` from `align_pauses`; all hops of their connections, with exchanges; thresholds; `streams`, ids
    of exchanges that are streams: in these only `zero_window` counts, since nobody waits for the end of a request.
    Returns: columns `GROUP_COLUMNS`: `count` (pauses), `connections`, `cost_ns` (of all pauses; for `zero_window` since
    the window was full, even if bytes were retransmitted meanwhile), `begin_ns, end_ns` (first to last), and for the
    longest pause `worst_ns, connection_id, span_id, from_trace_ns, to_trace_ns, in_flight_bytes`; costliest first.
    """
    if pauses is None or not pauses.num_rows:
        return _no_pauses()
    stood = (pl.col("resumed_ns") - pl.col("stopped_ns") >= limits.least_ns) | (pl.col("resumed_bytes") == 0)
    rows = pl.DataFrame(pauses).with_columns(why=_reason(limits)).filter(pl.col("why").is_not_null() & stood)
    rows = _with_exchanges(rows, hops)
    if streams is not None and len(streams):
        of_stream = pl.col("exchange_id").is_in(streams.implode()).fill_null(value=False)
        rows = rows.filter(~of_stream | (pl.col("why") == "zero_window"))
    rows = rows.with_columns(
        send_host=pl.col("host").cast(pl.String), stopped_trace_ns=pl.col("stopped_trace_ns") - _full_window_ns()
    ).with_columns(cost_ns=pl.col("resumed_trace_ns") - pl.col("stopped_trace_ns"))
    found = (
        rows.sort("cost_ns", descending=True, maintain_order=True)
        .group_by(PLACE, maintain_order=True)
        .agg(
            pl.len().alias("count"),
            pl.col("cost_ns").sum(),
            connections=pl.col("connection_id").n_unique(),
            begin_ns=pl.col("stopped_trace_ns").min(),
            end_ns=pl.col("resumed_trace_ns").max(),
            worst_ns=pl.col("cost_ns").first(),
            connection_id=pl.col("connection_id").first(),
            span_id=pl.col("exchange_id").first(),
            from_trace_ns=pl.col("stopped_trace_ns").first(),
            to_trace_ns=pl.col("resumed_trace_ns").first(),
            in_flight_bytes=pl.col("in_flight_bytes").first(),
        )
    )
    return found.select(pl.col(name).cast(kind) for name, kind in GROUP_COLUMNS.items())


@cache
def _no_pauses() -> pl.DataFrame:
    return pl.DataFrame(schema=GROUP_COLUMNS)


def merge_groups(groups: pl.DataFrame) -> pl.DataFrame:
    """Rows of several partitions, merged to one for each of `PLACE`."""
    worst = [
        name for name in GROUP_COLUMNS if name not in {*PLACE, "count", "connections", "cost_ns", "begin_ns", "end_ns"}
    ]
    return (
        groups.sort("worst_ns", descending=True, maintain_order=True)
        .group_by(PLACE, maintain_order=True)
        .agg(
            pl.col("count", "connections", "cost_ns").sum(),
            pl.col("begin_ns").min(),
            pl.col("end_ns").max(),
            pl.col(worst).first(),
        )
        .sort("cost_ns", descending=True, maintain_order=True)
    )


def _segment_bytes() -> pl.Expr:
    return pl.when(pl.col("mss_bytes") > 0).then("mss_bytes").otherwise(USUAL_MSS_BYTES)


def _full_window_ns() -> pl.Expr:
    """For `zero_window`: how long the window had been full before the last retransmission of sent bytes."""
    before = (pl.col("stopped_ns") - pl.col("full_ns")).clip(lower_bound=0).fill_null(0)
    return pl.when(pl.col("why") == "zero_window").then(before).otherwise(0)


def _reason(limits: PauseThresholds) -> pl.Expr:
    paused = pl.col("resumed_ns") - pl.col("stopped_ns")
    segment = _segment_bytes()
    round_trip = pl.col("rtt_ns").clip(lower_bound=0)
    full = pl.col("room_bytes").is_between(0, segment - 1)
    late = paused > limits.receiver_delay_ratio * round_trip
    small = (pl.col("resumed_bytes") < segment) & pl.col("waiting_bytes").is_between(1, 2 * segment - 1)
    delayed = (paused - round_trip).is_between(limits.delayed_ack_least_ns, limits.delayed_ack_most_ns)
    idle = (pl.col("idle_ns") > 0) & ~pl.col("resent")
    least = limits.restart_least_segments_count * segment
    fewer = pl.col("in_flight_bytes").is_between(least, pl.col("in_flight_before_idle_bytes") - 1)
    closed = pl.col("window_closed")
    unread = (closed & late.fill_null(value=True)) | (full & late)
    held = pl.when(unread).then(pl.lit("zero_window")).when(closed | full).then(pl.lit("small_window"))
    held = held.when(small & delayed).then(pl.lit("delayed_ack"))
    return held.when(idle & fewer & ~late).then(pl.lit("slow_start"))


HELD_BACK = (_reason(DEFAULT_LIMITS) == "delayed_ack").fill_null(value=False)
"""Whether a pause, of columns as from `pause_table`, may be one for a delayed ACK."""


def _with_exchanges(rows: pl.DataFrame, hops: pa.Table) -> pl.DataFrame:
    """`rows` with `receive_host` and `exchange_id` of the bytes that waited, or of the bytes before if none
    followed."""
    flow = ["connection_id", "from_client"]
    frame = pl.DataFrame(hops.select([*flow, "kind", "stream_start", "receive_host", "exchange_id"]))
    mine = frame.join(rows.select(flow).unique(), on=flow, how="semi").filter(pl.col("kind").cast(pl.String) == "data")
    mine = mine.with_columns(pl.col("receive_host").cast(pl.String)).drop("kind").sort("stream_start")
    return rows.sort("stream_offset").join_asof(
        mine, left_on="stream_offset", right_on="stream_start", by=flow, check_sortedness=False
    )
