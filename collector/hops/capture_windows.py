"""Capture windows: an unmatched packet whose other end was not capturing at that time is `outside_window`, not lost.

Captures of several hosts start and stop 10-250 ms apart, and some have holes (`collector.hops.coverage`). To compare
their times, this stage needs aligned clocks. A host that samples captured only some connections
(`collector.hops.sampling`): what it left out counts as outside. If the other end's capture itself dropped at least as
many packets at that time as seem lost, a packet that seems lost is `unmatched`: it may have arrived.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector.clocks.alignment import to_trace_ns
from collector.decode.activity import HostActivity, Span
from collector.hops.coverage import EDGE_NS, HostCoverage, covers, union
from collector.hops.matching import STATES
from collector.hops.sampling import ALL_KEPT, Sampling, connection_depths, depth_at, with_depths
from collector.trace.arrow import plain_texts
from collector.trace.schema import HopState

NO_ROWS = np.empty(0, dtype=np.int64)
UNSEEN = [HopState.LOST, HopState.CAPTURE_DROPPED, HopState.UNMATCHED]


class CaptureWindows:
    """The intervals in which each host captured, on the trace's timescale.

    Arguments: by host, its `coverages` in its own timestamps, and its `activities`, which name the points that packets
    between two addresses pass; `clocks` as in the trace; `edge_ns`, by how much each window is shortened at each edge;
        `sampling`, which connections each host kept when.
    """

    def __init__(
        self,
        coverages: Mapping[str, HostCoverage],
        activities: Mapping[str, HostActivity],
        clocks: pa.Table,
        edge_ns: int = 0,
        sampling: Sampling = ALL_KEPT,
    ) -> None:
        self._activities, self._edge_ns, self.sampling = activities, edge_ns, sampling
        self._points = {
            host: [trace_spans(host, spans, clocks) for spans in coverage.points]
            for host, coverage in coverages.items()
        }
        self._doubtful = {
            host: [trace_spans(host, spans, clocks) for spans in coverage.doubtful]
            for host, coverage in coverages.items()
            if any(coverage.doubtful)
        }

    def is_capturing(
        self, host: str, at_ns: NDArray[np.int64], pair: tuple[str, str] | None = None
    ) -> NDArray[np.bool_]:
        """Whether a host was capturing at given trace times (shape (n,)), at the points that packets of `pair` pass.

        A host without a capture never is. Without a `pair` of addresses: whether any of its points was.
        """
        activity, spans = self._activities.get(host), self._points.get(host)
        if activity is None or not spans:
            return np.zeros(len(at_ns), dtype=np.bool_)
        places = range(len(spans)) if pair is None else activity.points_of(pair)
        return covers(union(span for place in places for span in spans[place]), at_ns, self._edge_ns)

    def is_doubtful(self, host: str, at_ns: NDArray[np.int64], pair: tuple[str, str]) -> NDArray[np.bool_]:
        """Whether a host's capture dropped packets at given trace times (shape (n,)), at the points that packets of
        `pair` pass: a packet missing there may have arrived."""
        spans = self._doubtful.get(host)
        if not spans:
            return np.zeros(len(at_ns), dtype=np.bool_)
        here = union(span for place in self._activities[host].points_of(pair) for span in spans[place])
        return covers(here, at_ns, -EDGE_NS, -EDGE_NS)


def trace_spans(host: str, spans: tuple[Span, ...], clocks: pa.Table) -> tuple[Span, ...]:
    """Intervals of a host's clock, converted to the trace's timescale."""
    edges = pa.array([edge for span in spans for edge in span], pa.int64())
    at = to_trace_ns(pa.array([host] * len(edges), pa.string()), edges, clocks).tolist()
    return tuple(zip(at[::2], at[1::2], strict=True))


def settle_windows(hops: pa.Table, connections: pa.Table, windows: CaptureWindows) -> pa.Table:
    """`hops` (aligned), with unmatched packets marked `outside_window` if the other host was not capturing then.

    The time at the missing end is estimated with the median delay between the two hosts: added to the send time, or
    subtracted from the receive time. Delays vary around the median, so close to a window's edge the other host counts
    as not capturing (`CaptureWindows`).
    Cost: negligible if every packet is matched, or known to be outside.
    """
    states = hops["state"].combine_chunks()
    unseen = [STATES.index(state).as_py() for state in UNSEEN]
    alone = hops["send_trace_ns"].null_count + hops["receive_trace_ns"].null_count
    if not alone or not np.isin(states.indices.to_numpy(), unseen).any():
        return hops
    names = ["connection_id", "send_host", "receive_host", "send_trace_ns", "receive_trace_ns", "state"]
    frame = pl.DataFrame(plain_texts(hops.select(names)))
    outside, doubtful = _outside_windows(frame, connections, windows)
    codes = states.indices.to_numpy().astype(np.int32)
    lost, unmatched, beyond = (
        STATES.index(state).as_py() for state in (HopState.LOST, HopState.UNMATCHED, HopState.OUTSIDE_WINDOW)
    )
    codes[doubtful[codes[doubtful] == lost]] = unmatched
    codes[outside] = beyond
    index = hops.schema.get_field_index("state")
    return hops.set_column(index, "state", pa.DictionaryArray.from_arrays(pa.array(codes), STATES))


def _outside_windows(
    hops: pl.DataFrame, connections: pa.Table, windows: CaptureWindows
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of unmatched packets whose other host was not capturing then; and rows for which its capture had drops."""
    delay = (pl.col("receive_trace_ns") - pl.col("send_trace_ns")).median().over("send_host", "receive_host")
    lone_send, lone_receive = pl.col("receive_trace_ns").is_null(), pl.col("send_trace_ns").is_null()
    typical = delay.fill_null(0).cast(pl.Int64)
    missing = hops.with_row_index("row").select(
        "row",
        "connection_id",
        "state",
        host=pl.when(lone_send).then("receive_host").when(lone_receive).then("send_host"),
        at=pl.when(lone_send).then(pl.col("send_trace_ns") + typical).otherwise(pl.col("receive_trace_ns") - typical),
        alone=lone_send | lone_receive,
    )
    missing = missing.filter("alone", pl.col("state").is_in(UNSEEN))
    ends = pl.DataFrame(plain_texts(connections.select(["connection_id", "client_addr", "server_addr"])))
    missing = missing.join(ends, on="connection_id", how="left")
    found, doubtful = [NO_ROWS], [NO_ROWS]
    for (host, *pair), rows in missing.group_by("host", "client_addr", "server_addr"):
        at = rows["at"].fill_null(0).to_numpy()
        client, server = (str(address) for address in pair)
        beyond = ~windows.is_capturing(str(host), at, (client, server)) | rows["at"].is_null().to_numpy()
        number = rows["row"].to_numpy().astype(np.int64)
        found.append(number[beyond])
        doubtful.append(number[windows.is_doubtful(str(host), at, (client, server))])
    if windows.sampling:
        found.append(_left_out(missing, connections, windows.sampling))
    return np.concatenate(found), np.concatenate(doubtful)


def _left_out(missing: pl.DataFrame, connections: pa.Table, sampling: Sampling) -> NDArray[np.int64]:
    """Rows whose other host kept only some connections then, and not this one."""
    rows = with_depths(missing, connection_depths(connections))
    depths = rows.select(depth_at("host")).to_series()
    of = sampling.leaves_out(rows["host"], depths, rows["at"], rows["at"])
    return rows.filter(of)["row"].to_numpy().astype(np.int64)
