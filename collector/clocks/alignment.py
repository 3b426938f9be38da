"""The trace's timescale: host stamps to trace times by the table `clocks`, and each hop's delay with its uncertainty.

Only here is a `host_ns` converted to a `trace_ns`. Source of the clocks: `collector.clocks.solve`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns
from collector.trace.arrow import indices, nullable_where, numbers
from collector.trace.schema import ERRORS

NS_PER_S = 1e9
NO_FRAME = 0
"""Frame of an end that was not captured, in the core's columns; frames count from 1."""
ENDS = ("send", "receive")


class Alignment(Struct, frozen=True):
    """`clocks` as `schema.CLOCKS`; `pairs` bounds each pair's own difference, tighter than two error bars added up.

    `pairs`: one row for each host pair and knot: `send_host, receive_host, at_trace_ns, uncertainty_ns,
    likely_error_ns`.
    """

    clocks: pa.Table
    pairs: pa.Table


def share_clocks(alignment: Alignment, clock_of: Mapping[str, str], hosts: Sequence[str]) -> Alignment:
    """`alignment` of `hosts`, some of which go by the clock of another host (`clock_of`): between those of one clock a
    delay is certain."""
    if not clock_of:
        return alignment
    of_clock: dict[str, list[str]] = {}
    for host in hosts:
        of_clock.setdefault(clock_of.get(host, host), []).append(host)
    clocks = [
        row | {"host": host, "reference": row["reference"] and number == 0}
        for row in alignment.clocks.to_pylist()
        for number, host in enumerate(of_clock.get(row["host"], ()))
    ]
    pairs = [
        row | {"send_host": send, "receive_host": receive}
        for row in alignment.pairs.to_pylist()
        for send in of_clock.get(row["send_host"], ())
        for receive in of_clock.get(row["receive_host"], ())
    ]
    pairs += [
        {"send_host": send, "receive_host": receive, "at_trace_ns": 0} | dict.fromkeys(ERRORS, 0.0)
        for together in of_clock.values()
        for send in together
        for receive in together
        if send != receive
    ]
    return Alignment(
        pa.Table.from_pylist(clocks, alignment.clocks.schema), pa.Table.from_pylist(pairs, alignment.pairs.schema)
    )


def to_trace_ns(
    hosts: pa.Array, host_ns: pa.Array, clocks: pa.Table, frames: pa.Array | None = None
) -> NDArray[np.int64]:
    """Stamps of hosts on the trace's timescale; shape as `host_ns`. Null stamps come out as 0.

    Arguments: `frames` shows on which side of a step a stamp is; without it the interval that holds it does, or the
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
    """`hops` with `send_trace_ns, receive_trace_ns, one_way_delay_ns, uncertainty_ns, likely_error_ns`.

    A hop within one host has an error of 0: both stamps are of one clock. A lone packet has that of its host's clock.
    The loop over hops is the core's (`collector/core/hops/src/align.rs`). Cost: ~10 ns a hop.
    """
    named = {end: indices(hops[f"{end}_host"]) for end in ENDS}
    hosts = sorted({*alignment.clocks["host"].to_pylist(), *named["send"][1], *named["receive"][1]})
    number = {host: place for place, host in enumerate(hosts)}
    ends: dict[str, Columns] = {
        end: {
            "host": place,
            "numbers": np.array([number[host] for host in texts], dtype=np.uint16),
            "frame": numbers(hops[f"{end}_frame"], NO_FRAME),
            "host_ns": numbers(hops[f"{end}_host_ns"]),
        }
        for end, (place, texts) in named.items()
    }
    lines, knots = _line_columns(alignment.clocks, number), _knot_columns(alignment.pairs, number)
    found = _core.align_hops(ends["send"], ends["receive"], lines, knots)
    missing = {end: ends[end]["frame"] == NO_FRAME for end in ENDS}
    columns = {
        "send_trace_ns": nullable_where(found["send_trace_ns"], missing["send"]),
        "receive_trace_ns": nullable_where(found["receive_trace_ns"], missing["receive"]),
    }
    columns["one_way_delay_ns"] = nullable_where(found["one_way_delay_ns"], missing["send"] | missing["receive"])
    columns["uncertainty_ns"] = nullable_where(found["uncertainty_ns"], found["uncertainty_ns"] < 0)
    columns["likely_error_ns"] = nullable_where(found["likely_error_ns"], found["likely_error_ns"] < 0)
    return pa.table({name: hops[name] for name in hops.column_names} | columns)


def _line_columns(clocks: pa.Table, number: Mapping[str, int]) -> Columns:
    """Each host's lines by frame, and each host's errors: the largest of its lines', -1 if one has none."""
    rows = sorted(clocks.to_pylist(), key=lambda row: (number[row["host"]], row["from_frame"]))
    hosts = [number[row["host"]] for row in rows]
    kinds = {"from_frame": np.uint32, "from_host_ns": np.int64, "offset_ns": np.int64, "skew_ppb": np.int64}
    columns: Columns = {name: np.array([row[name] for row in rows], dtype=kind) for name, kind in kinds.items()}
    columns["starts"] = np.searchsorted(hosts, np.arange(len(number) + 1)).astype(np.uint32)
    for name in ERRORS:
        of_host: dict[int, list[int | None]] = {place: [] for place in number.values()}
        for host, row in zip(hosts, rows, strict=True):
            of_host[host].append(row[name])
        columns[name] = np.array([_largest(known) for known in of_host.values()], dtype=np.int64)
    return columns


def _largest(errors: Sequence[int | None]) -> int:
    """The largest; -1 if one is not known, or there is none."""
    known = [error for error in errors if error is not None]
    return max(known) if known and len(known) == len(errors) else -1


def _knot_columns(pairs: pa.Table, number: Mapping[str, int]) -> Columns:
    """Each pair's errors by time; pairs by the number of the sending host, then of the receiving one."""
    ends = [[number[host] for host in pairs[f"{end}_host"].to_pylist()] for end in ENDS]
    pair = np.array(ends[0], dtype=np.int64) * len(number) + np.array(ends[1], dtype=np.int64)
    at_ns = pairs["at_trace_ns"].to_numpy()
    order = np.lexsort((at_ns, pair))
    starts = np.searchsorted(pair[order], np.arange(len(number) ** 2 + 1)).astype(np.uint32)
    return {"starts": starts, "at_trace_ns": at_ns[order]} | {name: pairs[name].to_numpy()[order] for name in ERRORS}
