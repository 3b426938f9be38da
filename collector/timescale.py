"""The trace's timescale: host stamps to trace times by the table `clocks`, and each hop's delay with its uncertainty.

Only here is a `host_ns` converted to a `trace_ns`. Source of the clocks: `collector.clocks`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Alignment:
    """`clocks` as `schema.CLOCKS`; `pairs` bounds each pair's own difference, tighter than two error bars added up.

    `pairs`: one row for each host pair and knot: `send_host, receive_host, at_trace_ns, uncertainty_ns`.
    """

    clocks: pa.Table
    pairs: pa.Table


def to_trace_ns(
    hosts: pa.Array, host_ns: pa.Array, clocks: pa.Table, frames: pa.Array | None = None
) -> NDArray[np.int64]:
    """Stamps of hosts on the trace's timescale; shape as `host_ns`. Null stamps come out as 0.

    Arguments: `frames` tells on which side of a step a stamp is; without it the interval that holds it does, or the
    nearest. A stamp outside its host's intervals is extrapolated.
    """
    stamps = host_ns.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    at_frame = None if frames is None else frames.fill_null(0).to_numpy(zero_copy_only=False)
    names = hosts if isinstance(hosts, pa.DictionaryArray) else hosts.dictionary_encode()
    codes = names.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    known = names.dictionary.to_pylist()
    result = stamps.copy()
    rows_of = {host: [row for row in clocks.to_pylist() if row["host"] == host] for host in known}
    for code, host in enumerate(known):
        rows = rows_of[host]
        for number, row in enumerate(rows):
            of_row = codes == code
            if len(rows) > 1:
                of_row &= _interval(rows, stamps, at_frame) == number
            elapsed = stamps[of_row] - row["from_host_ns"]
            drift = np.rint(row["skew_ppb"] * (elapsed / NS_PER_S)).astype(np.int64)
            result[of_row] = stamps[of_row] - row["offset_ns"] - drift
    return result


def _interval(
    rows: list[dict[str, Any]], stamps: NDArray[np.int64], frames: NDArray[np.uint32] | None
) -> NDArray[np.int64]:
    """Number of the row that each stamp belongs to, were it this host's."""
    if frames is not None:
        return np.searchsorted(np.array([row["from_frame"] for row in rows]), frames, side="right") - 1
    away = [np.maximum(row["from_host_ns"] - stamps, stamps - row["to_host_ns"]).clip(min=0) for row in rows]
    return np.argmin(away, axis=0)


def align(hops: pa.Table, alignment: Alignment) -> pa.Table:
    """`hops` with `send_trace_ns, receive_trace_ns, one_way_delay_ns, uncertainty_ns`.

    A hop within one host has uncertainty 0: both stamps are of one clock. A lone packet has that of its host's clock.
    """
    ends: dict[str, NDArray[np.int64]] = {}
    missing: dict[str, NDArray[np.bool_]] = {}
    for end in ("send", "receive"):
        stamps = hops[f"{end}_host_ns"].combine_chunks()
        host, frames = (hops[f"{end}_{what}"].combine_chunks() for what in ("host", "frame"))
        ends[end] = to_trace_ns(host, stamps, alignment.clocks, frames)
        missing[end] = stamps.is_null().to_numpy(zero_copy_only=False)
    lone = missing["send"] | missing["receive"]
    columns = {f"{end}_trace_ns": pa.array(ends[end], mask=missing[end]) for end in ends}
    columns["one_way_delay_ns"] = pa.array(ends["receive"] - ends["send"], mask=lone)
    uncertainty = np.full(hops.num_rows, -1, dtype=np.int64)
    at = np.where(missing["send"], ends["receive"], ends["send"])
    frame = pl.DataFrame(
        {
            "row": np.arange(hops.num_rows),
            "at": at,
            "send": pl.from_arrow(hops["send_host"]).cast(pl.String),
            "receive": pl.from_arrow(hops["receive_host"]).cast(pl.String),
        }
    )
    _bound_by_pairs(frame.filter(~lone), alignment.pairs, uncertainty)
    seen_at = pl.when(pl.Series(missing["send"])).then("receive").otherwise("send")
    _bound_by_clocks(frame.with_columns(host=seen_at).filter(lone), alignment.clocks, uncertainty)
    columns["uncertainty_ns"] = pa.array(uncertainty, mask=uncertainty < 0)
    return pa.table({name: hops[name] for name in hops.column_names} | columns)


def _bound_by_pairs(matched: pl.DataFrame, pairs: pa.Table, uncertainty: NDArray[np.int64]) -> None:
    knots = dict(pl.DataFrame(pairs).group_by("send_host", "receive_host"))
    for (send, receive), rows in matched.group_by("send", "receive"):
        index = rows["row"].to_numpy()
        if send == receive:
            uncertainty[index] = 0
        elif (known := knots.get((send, receive))) is not None:
            known = known.sort("at_trace_ns")
            bound = np.interp(
                rows["at"].to_numpy(), known["at_trace_ns"].to_numpy(), known["uncertainty_ns"].to_numpy()
            )
            uncertainty[index] = np.ceil(bound).astype(np.int64)


def _bound_by_clocks(lone: pl.DataFrame, clocks: pa.Table, uncertainty: NDArray[np.int64]) -> None:
    bounds = {row["host"]: row["uncertainty_ns"] for row in clocks.sort_by("uncertainty_ns").to_pylist()}
    for (host,), rows in lone.group_by("host"):
        bound = bounds.get(host)
        uncertainty[rows["row"].to_numpy()] = -1 if bound is None else bound
