"""Opens the index of a trace from a folder of files, and builds it first if it is missing or outdated.

The index is in the trace's folder under `.index`; if that cannot be written, it is in the user's cache. A trace on an
object store has it there as one object, of which only what is looked at is read (`timeline.pack`); `publish_index`
writes it when the trace is made. Without it, the index is built in the user's cache. It contains the fingerprint of its
tables, so an outdated index is never used. A small trace is indexed in memory each time.
"""

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.hops.quality_summary import Pairing, read_pairing
from collector.queries.answers import Request
from collector.queries.lanes import command_span, lane_order
from collector.queries.span_trees import SpanTrees, build_trees
from collector.queries.stored_requests import StoredRequests, build_requests
from collector.queries.timeline.build import (
    Progress,
    build_columns,
    build_groups,
    chunks,
    problem_rows,
    read_hosts,
    read_times,
)
from collector.queries.timeline.columns import STATES, ArrowClass, HopColumns, Pairs, Seen
from collector.queries.timeline.connection_kinds import ConnectionKinds
from collector.queries.timeline.pack import PackedShelf, write_pack
from collector.queries.timeline.shelf import Shelf
from collector.queries.timeline.windows import HopIndex, build_windows
from collector.reporting import story
from collector.reporting.request_rows import RequestRows
from collector.reporting.story import Story
from collector.services.service_names import ServiceNames
from collector.trace.model import TraceInfo
from collector.trace.object_errors import object_errors
from collector.trace.reading import Trace
from collector.trace.table_store import INDEX_FOLDER
from tracer import scratch

VERSION = 12
"""Of the index; another one is built anew."""
SMALL_BYTES, SMALL_ROWS = 4 << 20, 1 << 18
"""Tables of hops with less of both are indexed in memory: it takes less than a second. (Packets that are all alike take
less than a bit each.)"""
CACHE = "twintap"
LISTED = 200
"""So many of the slowest requests are kept ready for a list."""


class Facts(Struct, frozen=True):
    """Facts about the whole trace; times relative to its start."""

    start_ns: int
    end_ns: int
    hosts: tuple[str, ...]  # the lanes, in order
    host_services: tuple[tuple[str, ...], ...]  # that each was seen to serve
    services: tuple[str, ...]  # what `Pairs.service` counts
    processes: tuple[str, ...]  # what `Pairs.client_process` counts; none if no owner is known
    connections_count: int
    clocks_apart_ns: int  # how far at most a host's own stamp is from its trace time
    first_hop_ns: int | None
    last_hop_ns: int | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    class_counts: tuple[int, ...]
    state_counts: tuple[int, ...]
    story: Story
    pairing: Pairing


class _Stamp(Struct, frozen=True):
    version: int
    fingerprint: str


class _Listed(Struct, frozen=True):
    slowest: tuple[Request, ...]


class TraceIndex(Struct, frozen=True):
    """An opened index."""

    facts: Facts
    hops: HopIndex
    trees: SpanTrees
    requests: StoredRequests
    request_first: NDArray[np.int64]  # where each request's hops begin in `request_rows`
    request_rows: NDArray[np.uint32]
    request_problems: NDArray[np.int32]  # how many of them are in trouble
    slowest: tuple[Request, ...]  # of clients, slowest first: all, or `LISTED`

    @classmethod
    def read(cls, shelf: Shelf) -> "TraceIndex":
        """From a shelf that `build` filled."""
        trees = SpanTrees(shelf)
        return cls(
            facts=shelf.document("facts", Facts),
            hops=HopIndex(shelf),
            trees=trees,
            requests=StoredRequests(shelf, trees),
            request_first=shelf.array("request-first"),
            request_rows=shelf.array("request-rows"),
            request_problems=shelf.array("request-problems"),
            slowest=shelf.document("listed", _Listed).slowest,
        )


def open_index(trace: Trace, info: TraceInfo, progress: Progress | None = None) -> TraceIndex:
    """The index of a trace, built if there is none.

    Arguments: `progress` is called with the share completed while it is built.
    Raises: `InputError` if a table is missing or damaged.
    """
    if _is_small(trace):
        shelf = Shelf()
        build(shelf, trace, info, progress or _no_progress)
        return TraceIndex.read(shelf)
    mark = trace.fingerprint(info)
    packed = _read_pack(trace, mark)
    if packed is not None:
        return packed
    for folder in _places(trace):
        found = _read_index(folder, mark)
        if found is not None:
            return found
    for folder in _places(trace):
        made = _build_index(folder, mark, lambda shelf: build(shelf, trace, info, progress or _no_progress))
        if made is not None:
            return made
    with tempfile.TemporaryDirectory(prefix=f"{CACHE}-") as temporary:  # mapped files live on without their names
        shelf = Shelf(Path(temporary))
        build(shelf, trace, info, progress or _no_progress)
        return TraceIndex.read(Shelf(Path(temporary)))


def publish_index(url: str) -> None:
    """Write the index of a trace on an object store beside it; nothing for a directory, or a small trace.

    Cost: as `build`, and reading the hops that were written.
    Raises: `InputError` if there is no trace, `ResourceError` if the index cannot be made or written.
    """
    trace = Trace(url)
    objects = trace.objects
    if objects is None or _is_small(trace):
        return
    info = trace.info()
    mark = trace.fingerprint(info)
    with (
        object_errors(url, "write the index of the trace"),
        tempfile.TemporaryDirectory(prefix=f"{CACHE}-") as temporary,
    ):
        shelf = Shelf(Path(temporary))
        build(shelf, trace, info, _no_progress)
        del shelf
        write_pack(objects, _pack_name(mark), Path(temporary))


def _is_small(trace: Trace) -> bool:
    """Whether a trace is indexed in memory."""
    return trace.table_bytes("hops") < SMALL_BYTES and trace.rows_count("hops") < SMALL_ROWS


def build(shelf: Shelf, trace: Trace, info: TraceInfo, progress: Progress) -> None:
    """Fill a shelf from the tables of a trace."""
    clocks = trace.read("clocks")
    span = command_span(info.command, clocks)
    times = read_times(trace, span, progress)
    empty = frozenset.union(*(trace.empty_columns(name) for name in ("exchanges", "spans")))
    build_trees(shelf, RequestRows.of_trace(trace), trace.read("silences"), times.start_ns, empty)
    the_story = story.story_of_trace(trace, info, clocks)
    progress(0.3)
    trees = SpanTrees(shelf)
    build_requests(shelf, trees, max(1, times.end_ns - times.start_ns))
    hosts = lane_order(info, read_hosts(trace), trees.serving_depth())
    kinds = ConnectionKinds.read(trace, ServiceNames(info.services), len(hosts))
    pairs = build_columns(shelf, trace, times, hosts, kinds, trees.span_ids, _part_of(progress, 0.3, 0.8))
    columns = HopColumns.of_shelf(shelf)
    problems = problem_rows(columns.arrow_class)
    shelf.put("problem-rows", problems)
    shelf.put("problem-times-ns", columns.anchor_ns[problems])
    build_windows(shelf, pairs)
    progress(0.9)
    of_span = np.append(trees.request_of_span, np.int32(-1))
    build_groups(shelf, "request", lambda rows: of_span[columns.span[rows]], len(columns), len(trees))
    troubled = of_span[columns.span[problems]]
    shelf.put("request-problems", np.bincount(troubled[troubled >= 0], minlength=len(trees)).astype(np.int32))
    served = _services_by_host(trees, trace.read("streams", ["server_host", "service"]))
    count = trace.rows_count("connections")
    first, last = _first_and_last(columns)
    median, high = _delays(columns, pairs)
    facts = Facts(
        start_ns=times.start_ns,
        end_ns=times.end_ns,
        hosts=tuple(hosts),
        host_services=tuple(served.get(host, ()) for host in hosts),
        services=kinds.services,
        processes=kinds.processes,
        connections_count=count,
        clocks_apart_ns=times.apart_ns,
        first_hop_ns=first,
        last_hop_ns=last,
        delay_p50_ns=median,
        delay_p99_ns=high,
        class_counts=_tally(columns.arrow_class, len(ArrowClass)),
        state_counts=_tally(columns.state, len(STATES)),
        story=the_story,
        pairing=read_pairing(trace),
    )
    shelf.put_document("facts", facts)
    shelf.put_document("listed", _list_slowest(shelf, trees))
    progress(1.0)


def request_row(trees: SpanTrees, first: NDArray[np.int64], problems: NDArray[np.int32], number: int) -> Request:
    """A request as a row of a list; `first` and `problems` as in `TraceIndex`."""
    root = trees.root(number)
    return Request(
        number=number,
        title=root.title,
        service=root.service,
        client=root.client,
        server=root.server,
        status=root.status,
        result=root.result,
        complete=root.complete,
        outcome=root.outcome,
        start_ns=int(trees.start_ns[number]),
        end_ns=int(trees.end_ns[number]),
        duration_ns=int(trees.durations_ns[number]),
        ended=root.ended,
        spans_count=trees.spans_count(number),
        hops_count=int(first[number + 1] - first[number]),
        problems_count=int(problems[number]),
    )


def _list_slowest(shelf: Shelf, trees: SpanTrees) -> _Listed:
    first, problems = shelf.array("request-first"), shelf.array("request-problems")
    return _Listed(tuple(request_row(trees, first, problems, int(each)) for each in trees.slowest[:LISTED]))


def _services_by_host(trees: SpanTrees, streams: pa.Table) -> dict[str, tuple[str, ...]]:
    """The services that each host serves; those that only serve streams are marked."""
    served = trees.services()
    pairs = zip(streams["server_host"].to_pylist(), streams["service"].to_pylist(), strict=True)
    for host, service in sorted((host, service) for host, service in set(pairs) if host and service):
        if service not in served.get(host, ()):
            served[host] = (*served.get(host, ()), f"{service} (streams)")
    return served


def _no_progress(share: float) -> None:
    """A progress that is ignored."""


def _part_of(progress: Progress, begin: float, end: float) -> Progress:
    return lambda share: progress(begin + (end - begin) * share)


def _places(trace: Trace) -> list[Path]:
    """Where an index of the trace may be, best first."""
    folder = trace.folder
    name = hashlib.sha256(str(folder.resolve() if folder else trace.url).encode()).hexdigest()[:32]
    cached = _cache_folder() / name
    return [folder / INDEX_FOLDER, cached] if folder else [cached]


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / CACHE


def _pack_name(mark: str) -> str:
    return f"{INDEX_FOLDER}/{mark[:32]}-{VERSION}.pack"


def _read_pack(trace: Trace, mark: str) -> TraceIndex | None:
    """The index that is beside a trace on an object store; None if there is none, or it is damaged."""
    if trace.objects is None:
        return None
    folder = _cache_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        return TraceIndex.read(PackedShelf(trace.objects, _pack_name(mark), folder if folder.is_dir() else None))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _read_index(folder: Path, mark: str) -> TraceIndex | None:
    """The index in a folder, if it is complete and matches the tables; otherwise None."""
    shelf = Shelf(folder)
    try:
        if shelf.document("stamp", _Stamp) != _Stamp(VERSION, mark):
            return None
        shelf.table("spans")  # now, so that a damaged one is noticed
        return TraceIndex.read(shelf)
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged
        return None


def _build_index(folder: Path, mark: str, fill: Callable[[Shelf], None]) -> TraceIndex | None:
    """Build an index and move it into place atomically; None if there is no room for it."""
    staging = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.partial")
    if folder.name == INDEX_FOLDER:  # beside the trace, so that one that is replaced meanwhile holds nothing foreign
        staging = folder.parent.with_name(f".{folder.parent.name}{staging.name}")
    try:
        if folder.name == INDEX_FOLDER and not os.access(folder.parent, os.W_OK):
            return None
        scratch.make(staging)
    except OSError:
        return None
    try:
        shelf = Shelf(staging)
        fill(shelf)
        shelf.put_document("stamp", _Stamp(VERSION, mark))
        del shelf
        return _move_into_place(staging, folder, mark)
    except OSError:  # no room for it
        return None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        scratch.release(staging)


def _move_into_place(staging: Path, folder: Path, mark: str) -> TraceIndex | None:
    old = staging.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return _read_index(folder, mark)


def _first_and_last(columns: HopColumns) -> tuple[int | None, int | None]:
    if not len(columns):
        return None, None
    received = max(int(columns.received_ns[part].max()) for part in chunks(len(columns)))
    return int(columns.anchor_ns[0]), max(int(columns.anchor_ns[-1]), received)


def _delays(columns: HopColumns, pairs: Pairs) -> tuple[int | None, int | None]:
    """Median and 99th percentile of the delays of hops that were seen at both ends, on two hosts."""
    found = []
    for part in chunks(len(columns)):
        seen = (columns.seen[part] == Seen.BOTH) & (pairs.source != pairs.target)[columns.pair[part]]
        found.append((columns.received_ns[part] - columns.anchor_ns[part])[seen])
    delays = np.concatenate(found) if found else np.zeros(0, np.int64)
    if not len(delays):
        return None, None
    median, high = np.percentile(delays, (50, 99), method="nearest")
    return int(median), int(high)


def _tally(values: NDArray[np.uint8], kinds: int) -> tuple[int, ...]:
    counts = sum((np.bincount(values[part], minlength=kinds) for part in chunks(len(values))), np.zeros(kinds, int))
    return tuple(int(count) for count in counts)
