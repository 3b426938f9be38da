"""Capture windows: a lone packet whose other end was not capturing at that time is `outside_window`, not lost.

Captures of several hosts start and stop 10-250 ms apart, so this needs aligned clocks and comes after them.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.matching import STATES
from collector.schema import HopState
from collector.store import HostInfo
from collector.timescale import to_trace_ns


def settle_windows(hops: pa.Table, hosts: Sequence[HostInfo], clocks: pa.Table, edge_ns: int = 0) -> pa.Table:
    """`hops` (aligned) with lone packets `outside_window` where the other host was not capturing when it came by.

    The other end's time is taken to be the lone end's plus the median delay between the two hosts (less, for a packet
    seen only at its receiver). Packets vary around it, so within `edge_ns` of a window's edge the other host counts as
    not capturing. A host with no capture at all is never capturing.
    """
    lone = hops["send_trace_ns"].null_count + hops["receive_trace_ns"].null_count
    if not lone:
        return hops
    captured = [host for host in hosts if host.first_host_ns is not None]
    names = pa.array([host.host for host in captured])
    starts = to_trace_ns(names, pa.array([host.first_host_ns for host in captured]), clocks)
    ends = to_trace_ns(names, pa.array([host.last_host_ns for host in captured]), clocks)
    windows = pl.DataFrame({"host": names.to_pylist(), "window_start": starts + edge_ns, "window_end": ends - edge_ns})
    frame = pl.DataFrame(hops.select(["send_host", "receive_host", "send_trace_ns", "receive_trace_ns", "state"]))
    outside = _outside(frame.with_columns(pl.col("send_host", "receive_host", "state").cast(pl.String)), windows)
    states = hops["state"].combine_chunks()
    codes = np.where(outside, STATES.index(HopState.OUTSIDE_WINDOW).as_py(), states.indices.to_numpy())
    index = hops.schema.get_field_index("state")
    return hops.set_column(index, "state", pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), STATES))


def _outside(hops: pl.DataFrame, windows: pl.DataFrame) -> NDArray[np.bool_]:
    delay = (pl.col("receive_trace_ns") - pl.col("send_trace_ns")).median().over("send_host", "receive_host")
    lone_send, lone_receive = pl.col("receive_trace_ns").is_null(), pl.col("send_trace_ns").is_null()
    typical = delay.fill_null(0).cast(pl.Int64)
    missing = hops.with_columns(
        other=pl.when(lone_send).then("receive_host").when(lone_receive).then("send_host"),
        at=pl.when(lone_send).then(pl.col("send_trace_ns") + typical).otherwise(pl.col("receive_trace_ns") - typical),
    ).join(windows, left_on="other", right_on="host", how="left", maintain_order="left")
    unseen = pl.col("state").is_in([HopState.LOST, HopState.CAPTURE_DROPPED, HopState.UNMATCHED])
    beyond = pl.col("window_start").is_null() | ~pl.col("at").is_between("window_start", "window_end")
    outside = unseen & (lone_send | lone_receive) & beyond
    return missing.select(outside.fill_null(False)).to_series().to_numpy()
