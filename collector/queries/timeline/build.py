"""Builds the index of a trace from its tables, a row group at a time.

The table has hops by connection; the index needs them by time. So the times are read first and sorted, which yields the
position of each hop; then all columns are read and stored there. Memory: 30 bytes for each hop while sorting, and the
memory that polars needs to join the spans; everything else is in files.

Cost: about 1 s of CPU time for each million hops.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from collector.queries.timeline.columns import (
    CARRIED,
    COLUMNS,
    KINDS,
    MISSING_NS,
    NO_LANE,
    PROBLEM_CLASSES,
    RAW_COLUMNS,
    STATES,
    ArrowClass,
    CarriedColumn,
    Pairs,
    Seen,
)
from collector.queries.timeline.connection_kinds import ConnectionKinds
from collector.queries.timeline.places import Places
from collector.queries.timeline.shelf import Shelf
from collector.trace.arrow import indices, numbers
from collector.trace.reading import Trace
from collector.trace.schema import HopKind, HopState
from collector.trace.time_columns import Int64Array

TIMES = ("send_trace_ns", "receive_trace_ns")
RAW_TIMES = ("send_host_ns", "receive_host_ns")
READ = (
    *("connection_id", "kind", "from_client", "send_host", "receive_host", *TIMES),
    *("stream_start", "stream_end", "state", "exchange_id", *(name for name in CARRIED if name != "stream_start")),
)
CHUNK_ROWS = 1 << 20
Progress = Callable[[float], None]
"""Called with the share completed, 0 to 1."""


class Times(Struct, frozen=True):
    """The times of all hops, and each hop's position in the index, in the order of the table."""

    start_ns: int
    end_ns: int
    rank: NDArray[np.uint32]
    anchor_ns: Int64Array  # sorted, relative to start_ns
    apart_ns: int  # how far at most a host's stamp is from its trace time


def read_times(trace: Trace, command_span: tuple[int, int] | None, progress: Progress) -> Times:
    """The times of all hops, sorted. A trace begins with its first packet or, if earlier, its command."""
    anchors: list[Int64Array] = []
    bounds: list[int] = [*(command_span or ())]
    apart_ns = 0
    for share, batch in trace.batches_with_share("hops", (*TIMES, *RAW_TIMES)):
        sent, received = (numbers(batch[name], MISSING_NS) for name in TIMES)
        anchors.append(np.where(sent == MISSING_NS, received, sent))
        for aligned, raw in zip(TIMES, RAW_TIMES, strict=True):
            ends = pc.min_max(batch[aligned]).as_py()
            bounds += [each for each in ends.values() if each is not None]
            apart_ns = max(apart_ns, pc.max(pc.abs(pc.subtract(batch[raw], batch[aligned]))).as_py() or 0)
        bounds = [min(bounds), max(bounds)] if bounds else []
        progress(0.2 * share)
    anchor = np.concatenate(anchors) if anchors else np.zeros(0, np.int64)
    start_ns, end_ns = (min(bounds), max(bounds)) if bounds else (0, 0)
    assert not (anchor == MISSING_NS).any(), "a hop was seen at one end at least"
    anchor -= start_ns
    order = np.argsort(anchor, kind="stable")
    rank = np.empty(len(anchor), np.uint32)
    rank[order] = np.arange(len(anchor), dtype=np.uint32)
    return Times(start_ns, end_ns, rank, anchor[order], apart_ns)


def read_hosts(trace: Trace) -> set[str]:
    """The hosts that sent or received."""
    found: set[str] = set()
    for batch in trace.batches("hops", ("send_host", "receive_host")):
        for name in ("send_host", "receive_host"):
            found.update(host for host in pc.unique(batch[name]).to_pylist() if host is not None)
    return found


def build_columns(
    shelf: Shelf,
    trace: Trace,
    times: Times,
    hosts: Sequence[str],
    kinds: ConnectionKinds,
    span_ids: Int64Array,
    progress: Progress,
) -> Pairs:
    """Put the columns of all hops on the shelf, by time; returns the pairs of ends in use."""
    count = len(times.rank)
    out = {name: shelf.make(name, kind, count) for name, kind in COLUMNS.items()}
    if times.apart_ns:
        out |= {name: shelf.make(name, kind, count) for name, kind in RAW_COLUMNS.items()}
    out["anchor_ns"][:] = times.anchor_ns
    spans, read, first = Places(span_ids), (*READ, *(RAW_TIMES if times.apart_ns else ())), 0
    for share, batch in trace.batches_with_share("hops", read):
        place = times.rank[first : first + batch.num_rows]
        made = _of_batch(batch, times, hosts, kinds, spans)
        made["row"] = np.arange(first, first + batch.num_rows, dtype=np.uint32)
        for name, values in made.items():
            out[name][place] = values
        first += batch.num_rows
        progress(share)
    return _pairs(shelf, out["pair"], len(hosts), kinds)


def chunks(count: int) -> Iterator[slice]:
    """Slices that cover so many rows."""
    for first in range(0, count, CHUNK_ROWS):
        yield slice(first, min(first + CHUNK_ROWS, count))


def build_groups(shelf: Shelf, name: str, group: Callable[[slice], NDArray[np.int32]], rows: int, groups: int) -> None:
    """An index from groups to their rows: `<name>-rows`, group after group, and `<name>-first`, where each begins.

    Arguments: `group`, the group of each row of a slice, or -1.
    """
    counts = np.zeros(groups, np.int64)
    for part in chunks(rows):
        own = group(part)
        counts += np.bincount(own[own >= 0], minlength=groups)
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    shelf.put(f"{name}-first", first)
    out, fill = shelf.make(f"{name}-rows", np.uint32, int(first[-1])), first[:-1].copy()
    for part in chunks(rows):
        own = group(part)
        order = np.argsort(own, kind="stable")
        order = order[np.searchsorted(own[order], 0) :]
        own = own[order]
        begins = np.flatnonzero(np.diff(own, prepend=-1))
        sizes = np.diff(np.append(begins, len(own)))
        within = np.arange(len(own)) - np.repeat(begins, sizes)
        out[fill[own] + within] = (order + part.start).astype(np.uint32)
        fill[own[begins]] += sizes


def _of_batch(
    batch: pa.Table, times: Times, hosts: Sequence[str], kinds: ConnectionKinds, spans: Places
) -> dict[str, NDArray[Any]]:
    sent, received = (_times(batch[name], times.start_ns) for name in TIMES)
    kind, state = (_codes(batch[name], names).astype(np.uint8) for name, names in (("kind", KINDS), ("state", STATES)))
    carried = {name: _index_values(batch[name], column) for name, column in CARRIED.items()}
    source, target = (_codes(batch[name], hosts, NO_LANE) for name in ("send_host", "receive_host"))
    both = (sent != MISSING_NS) & (received != MISSING_NS)
    made = {
        "received_ns": received,
        "seen": np.where(both, Seen.BOTH, np.where(sent == MISSING_NS, Seen.RECEIVED, Seen.SENT)),
        "pair": _pair_keys(batch, source, target, len(hosts), kinds),
        "kind": kind,
        "state": state,
        "arrow_class": _classes(kind, state, carried["attempt"], both & (received < sent)),
        "size_bytes": np.maximum(numbers(batch["stream_end"]) - numbers(batch["stream_start"]), 0),
        "span": spans.of(numbers(batch["exchange_id"], -1)),
        **carried,
    }
    if times.apart_ns:
        raw = (_times(batch[name], times.start_ns) for name in RAW_TIMES)
        made |= dict(zip(RAW_COLUMNS, raw, strict=True))
    return made


def _index_values(column: pa.ChunkedArray, kept: CarriedColumn) -> NDArray[Any]:
    values = numbers(column)
    if kept.most is not None:
        values = np.minimum(values, kept.most)
    if column.null_count:
        values = np.where(numbers(column.is_null()), kept.missing, values)
    return values.astype(kept.dtype)


def _pair_keys(
    batch: pa.Table, source: NDArray[np.uint16], target: NDArray[np.uint16], hosts: int, kinds: ConnectionKinds
) -> NDArray[np.uint32]:
    """Each hop's pair as a number in a dense array of all that there could be."""
    lanes = [np.minimum(lane, hosts).astype(np.uint32) for lane in (source, target)]
    key = (lanes[0] * np.uint32(hosts + 1) + lanes[1]) * np.uint32(len(kinds))
    key += kinds.of(numbers(batch["connection_id"]))
    return np.asarray(2 * key + numbers(batch["from_client"]))


def _pairs(shelf: Shelf, keys: NDArray[np.uint32], hosts: int, kinds: ConnectionKinds) -> Pairs:
    """The pairs in use; their keys are replaced by their numbers."""
    most = 2 * (hosts + 1) ** 2 * len(kinds)
    seen = np.zeros(most, bool)
    for part in chunks(len(keys)):
        seen[keys[part]] = True
    used = np.flatnonzero(seen)
    compact = np.zeros(most, np.uint32)
    compact[used] = np.arange(len(used), dtype=np.uint32)
    for part in chunks(len(keys)):
        keys[part] = compact[keys[part]]
    between, kind = divmod(used // 2, len(kinds))
    source, target = (np.where(end == hosts, NO_LANE, end).astype(np.uint16) for end in divmod(between, hosts + 1))
    processes = kinds.client_process[kind], kinds.server_process[kind]
    pairs = Pairs(source, target, kinds.service[kind], used % 2 == 1, *processes)
    pairs.store(shelf)
    return pairs


def _times(column: pa.ChunkedArray, start_ns: int) -> Int64Array:
    times = numbers(column, MISSING_NS)
    return np.where(times == MISSING_NS, MISSING_NS, times - np.int64(start_ns))


def _codes(column: pa.ChunkedArray, names: Sequence[str], missing: int = 0) -> NDArray[np.uint16]:
    """Position of each text in `names`; `missing` for nulls and other values."""
    place, texts = indices(column)
    position = {name: index for index, name in enumerate(names)}
    lookup = np.array([*(position.get(text, missing) for text in texts), missing], np.uint16)
    return np.asarray(lookup[place])


def _classes(
    kind: NDArray[np.uint8], state: NDArray[np.uint8], attempt: NDArray[np.uint8], early: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    by_kind = {HopKind.DATA: ArrowClass.DATA, HopKind.RST: ArrowClass.LOST}
    handshake = {HopKind.SYN, HopKind.SYN_ACK, HopKind.FIN}
    plain = [by_kind.get(each, ArrowClass.HANDSHAKE if each in handshake else ArrowClass.ACK) for each in KINDS]
    classes = np.array(plain, dtype=np.uint8)[kind]
    again = (attempt > 1) & (classes != ArrowClass.LOST) & (classes != ArrowClass.ACK)
    lost, matched = STATES.index(HopState.LOST), STATES.index(HopState.MATCHED)
    classes[early & (classes != ArrowClass.LOST)] = ArrowClass.EARLY
    classes[again] = ArrowClass.RETRANSMISSION
    classes[(state != matched) & (state != lost)] = ArrowClass.ONE_SIDED
    classes[state == lost] = ArrowClass.LOST
    return classes


def problem_rows(arrow_class: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The rows whose class is a problem, in order."""
    bad = np.zeros(256, bool)
    bad[list(PROBLEM_CLASSES)] = True
    found = [np.flatnonzero(bad[arrow_class[part]]) + part.start for part in chunks(len(arrow_class))]
    return np.concatenate(found).astype(np.uint32) if found else np.zeros(0, np.uint32)
