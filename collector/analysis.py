"""From captures to a trace: decode, match, clocks, exchanges, spans, findings, each a pure stage over tables.

Live capture and offline replay both end here. The trace is written as a whole or not at all.

Connections are independent, so all stages except clocks and spans run by partition, on all cores. First every partition
is matched, which yields the evidence for the clocks; then hops are aligned and requests rebuilt. Tables are written as
partitions are completed, in their order, so every run produces the same trace. Exchanges are merged by time while they
are written and linked. Findings run in one thread, so hops are written beside them (`execution.deferred_writes`).

Memory: a few partitions, the evidence for clocks (`clocks.evidence`), and about 700 bytes for each exchange; while that
is little, also hops whose writing is deferred.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import findings
from collector.clocks import evidence as clock_evidence
from collector.clocks.alignment import Alignment, align, shared, to_trace_ns
from collector.clocks.solve import solve, unaligned
from collector.clocks.steps import refined
from collector.decode.activity import DropSpan, Span
from collector.decode.capture_sets import not_overlapping
from collector.decode.captures import Scan, scan
from collector.decode.host_capture import HostSource
from collector.decode.input_limits import LARGE_PARTITION, LIMITED, InputLimits
from collector.execution import memory
from collector.execution.deferred_writes import DeferredWrites
from collector.execution.external_sort import SortedRuns
from collector.execution.ordered_pool import run_in_order
from collector.execution.partition_cache import PartitionCache
from collector.execution.progress import SILENT, Counted, Progress, Stage
from collector.findings import symptoms
from collector.hops import coverage, damaged, matching, sender_pauses
from collector.hops.capture_windows import CaptureWindows, settle_windows
from collector.hops.captured_until import CapturedUntil, captured_until
from collector.hops.counts import hop_counts
from collector.hops.coverage import HostCoverage, union
from collector.hops.host_drops import host_drops
from collector.hops.quality import quality_of
from collector.requests import chunked, gaps, outcomes, spans
from collector.requests.endings import closing_data, with_endings
from collector.requests.exchanges import Built, build_exchanges
from collector.requests.stream_evidence import StreamEvidence
from collector.requests.streams import StreamJudge, requests_of, with_streams
from collector.requests.unread_streams import unread_connections
from collector.services.choices import Choices, Watched, sampled_share
from collector.services.naming import name_services, to_watch
from collector.services.operators_names import names_of_nothing
from collector.services.rings import Places, Ring
from collector.services.servers import Servers
from collector.services.service_names import ServiceNames, rename_services
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, TraceInfo
from collector.trace.schema import ID_STRIDE, TABLES, HopState, conform
from collector.trace.table_store import ROW_GROUP_ROWS, EncodedRows
from collector.trace.writing import TraceWriter, write_trace
from tracer import secret_rules

__all__ = ["AnalysisOptions", "HostSource", "analyse"]


CONNECTIONS = 2
"""Index of the table `connections` among the tables kept of a partition."""
TROUBLES_AT_ONCE = 64
"""After so many partitions their symptoms are merged: otherwise they would be most of the memory."""
MOST_WITH_LINKS_BYTES = 1 << 29
"""Memory for exchanges while they are linked, and for hops that wait to be written meanwhile."""
BYTES_AN_EXCHANGE = 700
"""Memory that linking and findings need for each exchange."""


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Settings of an analysis."""

    align_clocks: bool = True
    """If false, no clock is corrected; then delays may be negative."""
    workers: int | None = None
    """Partitions processed in parallel; None for one on each core."""
    partition_bits: int | None = None
    """2^n partitions; None to choose by the captures' sizes."""
    edge_ns: int = 0
    """An unmatched packet closer to an edge of a host's capture is `outside_window`, not lost."""
    addresses: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Addresses by host, where a capture alone does not show them."""
    rings: tuple[Ring, ...] = ()
    """Ring files, if given: they assign partitions to the devices of a store."""
    counters: tuple[CounterInfo, ...] = ()
    """Counters of events before the analysis, for example during the transfer of captures."""
    limits: InputLimits = LIMITED
    """Limits of the input."""
    names: tuple[tuple[str, str], ...] = ()
    """The operator's names of servers: `HOST:PORT` and the name."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition after matching: tables to write, tables for later stages, and the evidence for clocks."""

    encoded: dict[str, EncodedRows]
    held: tuple[pa.Table, ...]
    ways: clock_evidence.Ways
    missing: pl.DataFrame  # as `coverage.missing_packets`
    lost: pl.DataFrame  # likewise, where captures dropped packets
    suspects: pl.DataFrame  # as `damaged.suspects`
    last: pl.DataFrame  # as `chunked.last_packets`
    events_count: int


@dataclass(frozen=True, slots=True)
class _Matched:
    """What later stages need of all partitions after matching, in their order; fields as in `_Part`."""

    missing: list[pl.DataFrame] = field(default_factory=list)
    lost: list[pl.DataFrame] = field(default_factory=list)
    suspects: list[pl.DataFrame] = field(default_factory=list)
    last: list[pl.DataFrame] = field(default_factory=list)
    events_counts: dict[int, int] = field(default_factory=dict)
    connections_counts: list[int] = field(default_factory=list)

    def add(self, number: int, part: _Part) -> None:
        self.missing.append(part.missing)
        self.lost.append(part.lost)
        self.suspects.append(part.suspects)
        self.last.append(part.last)
        self.events_counts[number] = part.events_count
        self.connections_counts.append(part.held[CONNECTIONS].num_rows)


@dataclass(frozen=True, slots=True)
class _Requests:
    """One partition after its requests are rebuilt."""

    hops: pa.Table
    exchanges: pa.Table
    silences: pa.Table
    streams: StreamEvidence
    quality: EncodedRows
    troubles: symptoms.Symptoms
    calls: pl.DataFrame  # as `Watched.calls`


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """The results of all partitions: `parts` of their symptoms, the silences of their messages, servers that answered,
    calls to servers that may be replicas."""

    parts: list[symptoms.Symptoms] = field(default_factory=list)
    silences: list[pa.Table] = field(default_factory=list)
    streams: StreamJudge = field(default_factory=StreamJudge)
    answering: set[outcomes.Server] = field(default_factory=set)
    calls: list[pl.DataFrame] = field(default_factory=list)

    def add(self, requests: _Requests) -> None:
        """Add the results of one partition."""
        self.silences.append(requests.silences)
        self.streams.add(requests.streams)
        self.answering.update(outcomes.answering(requests.exchanges))
        self.calls.append(requests.calls)
        self.parts.append(requests.troubles)
        if len(self.parts) == TROUBLES_AT_ONCE:
            self.parts[:] = [symptoms.merge_symptoms(self.parts)]

    def all_silences(self) -> pa.Table:
        """The table `silences`, by exchange."""
        return pa.concat_tables([TABLES["silences"].empty_table(), *self.silences], promote_options="none")


def analyse(
    sources: Sequence[HostSource],
    trace_url: str,
    *,
    command: CommandInfo | None = None,
    samples: pa.Table | None = None,
    options: AnalysisOptions = AnalysisOptions(),
    progress: Progress = SILENT,
) -> TraceInfo:
    """Run all stages over the captures of several hosts and write the trace.

    Arguments: `sources`, one for each host; `trace_url`, a directory or any fsspec URL; `command`, what ran meanwhile;
    `samples`, the hosts' usage meanwhile (omitted for hosts without a capture, since their clocks cannot be aligned);
    `progress`, which is notified of each stage.
    Raises: `InputError` for a file that is no capture, or captures without a TCP packet; `ResourceError` if the trace
    cannot be written.
    """
    spill = Path(trace_url).parent if "://" not in trace_url and Path(trace_url).parent.is_dir() else None
    with (
        scan(sources, spill, options.partition_bits, progress, options.addresses, options.limits) as captures,
        PartitionCache(spill) as held,
        SortedRuns(spill) as by_time,
    ):
        info = TraceInfo(
            created_ns=time.time_ns(),
            tool_version=version("twintap"),
            hosts=captures.hosts,
            counters=(*captures.counters, *options.counters),
            command=command,
            secrets=secret_rules.choice(),
        )
        with write_trace(trace_url) as writer:
            used = None if samples is None else _of_hosts(samples, info)
            if used is not None:
                writer.write_table("samples", used)
            info = run_stages(captures, info, options, writer, held, by_time, used, progress)
            writer.write_info(info)
    memory.give_back()
    progress.end()
    return info


def run_stages(
    captures: Scan,
    info: TraceInfo,
    options: AnalysisOptions,
    writer: TraceWriter,
    held: PartitionCache,
    by_time: SortedRuns,
    samples: pa.Table | None = None,
    progress: Progress = SILENT,
) -> TraceInfo:
    """Run all stages in their order and write tables as they are completed; returns `info` with the hosts' coverage and
    the names of services filled in.

    `held` keeps hops until the clocks are solved, `by_time` exchanges until all are rebuilt.
    """
    evidence = clock_evidence.Evidence(captures.frames)
    servers = Servers(captures.clues)
    workers = 1 if captures.largest > LARGE_PARTITION else options.workers or os.cpu_count() or 1
    matched = _Matched()
    progress.begin(Stage.PAIR)
    done = Counted(progress, len(captures))
    with ThreadPoolExecutor(workers) as pool:

        def keep(number: int, part: _Part | None) -> None:
            done.done(part.events_count if part else 0, 1)
            if part is not None:
                matched.add(number, part)
                options.limits.check_connections(sum(matched.connections_counts))
                for name, rows in part.encoded.items():
                    writer.append_encoded(name, rows)
                held.put(number, *part.held)
                evidence.add(part.ways)
                servers.add(part.held[CONNECTIONS])

        run_in_order(
            pool, workers, range(len(captures)), lambda number: _match(captures, number, evidence, writer), keep
        )
        captures.close()
        every = servers.all()
        if not options.edge_ns:  # a live window need not hold each server
            info = replace(info, counters=(*info.counters, *names_of_nothing(options.names, every)))
        watched = replace(
            to_watch(every, dict(options.names)), share=sampled_share(sum(matched.events_counts.values()))
        )
        windows, clock_of = captures.clock_windows, captures.clock_of
        alignment = unaligned(windows)
        if options.align_clocks:
            alignment = solve(
                refined(evidence, lambda: _ways_again(held, clock_of, captures.absurd)), windows, captures.ticks_ns
            )
        alignment = shared(alignment, clock_of, [host.host for host in info.hosts])
        writer.write_table("clocks", alignment.clocks)
        covered = coverage.coverages(
            captures.activities,
            coverage.merge_missing(matched.missing),
            alignment.clocks,
            coverage.merge_missing(matched.lost),
        )
        info = _with_coverage(info, captures, covered)
        info = replace(
            info,
            counters=(
                *info.counters,
                *captures.copies(),
                *not_overlapping([host for host in info.hosts if not host.on_path], alignment.clocks),
            ),
        )
        captured = captured_until(covered, alignment.clocks, _end_ns(info, alignment))
        hops = DeferredWrites(lambda table: writer.append("hops", table))
        progress.begin(Stage.REBUILD)
        progressed = Counted(progress, len(matched.events_counts))
        rebuilt = _rebuild(
            pool, workers, captured, alignment,
            CaptureWindows(covered, captures.activities, alignment.clocks, options.edge_ns),
            writer, hops, held, by_time,
            damaged.find_damaged(matched.suspects, captures.look), _cut_short(matched.last, captures, options), watched,
            lambda number: progressed.done(matched.events_counts[number], 1), options.limits,
        )  # fmt: skip
        choices = Choices(watched, rebuilt.calls)
        info = replace(info, services=name_services(every, dict(options.names), choices.are_replicas))
        progress.begin(Stage.LINK)
        written = [pool.submit(job) for job in (memory.give_back, hops.write_all)]
        places = Places(options.rings, {address: host.host for host in info.hosts for address in host.addresses})
        unread = _put_together(
            pool, info, alignment, captured, rebuilt, writer, _final_exchanges(by_time, info, rebuilt), samples, places
        )
        for job in written:
            job.result()
    return replace(info, counters=(*info.counters, *unread))


def _with_coverage(info: TraceInfo, captures: Scan, covered: Mapping[str, HostCoverage]) -> TraceInfo:
    """`info` with the coverage of each host and each of its points."""

    def with_coverage(host: HostInfo) -> HostInfo:
        of_host = covered[host.host]
        by_name: dict[str, list[Span]] = {}
        dropped: dict[str, tuple[DropSpan, ...]] = {}
        for name, of_point, drops in zip(captures.interfaces[host.host], of_host.points, of_host.drops, strict=True):
            by_name.setdefault(name, []).extend(of_point)
            dropped[name] = dropped.get(name, ()) + drops
        points = [
            replace(
                point,
                coverage=union(by_name.get(point.interface, ())),
                dropped=_numbers(dropped.get(point.interface, ())),
            )
            for point in host.points
        ]
        return replace(host, points=tuple(points), coverage=of_host.whole, dropped=_numbers(of_host.in_part))

    return replace(info, hosts=tuple(with_coverage(host) for host in info.hosts))


def _cut_short(last: Sequence[pl.DataFrame], captures: Scan, options: AnalysisOptions) -> pl.Series:
    """Connections whose last answer was cut short; not computed for a live window, which is analysed twice a second."""
    return chunked.cut_short([] if options.edge_ns else last, captures.payloads)


def _numbers(drops: Iterable[DropSpan]) -> tuple[tuple[int, int, int], ...]:
    return tuple((drop.from_ns, drop.to_ns, drop.count) for drop in drops)


def _put_together(
    pool: ThreadPoolExecutor,
    info: TraceInfo,
    alignment: Alignment,
    captured: CapturedUntil,
    rebuilt: _Rebuilt,
    writer: TraceWriter,
    by_time: Iterator[pa.Table],
    samples: pa.Table | None,
    places: Places,
) -> tuple[CounterInfo, ...]:
    """Link the exchanges of all partitions and build the findings; write these tables.

    Returns: counters of connections that these tables omit.
    """
    names = ServiceNames(info.services)
    wrong = pool.submit(lambda: symptoms.with_services(symptoms.merge_symptoms(rebuilt.parts), names))
    silences = rebuilt.all_silences()
    writer.write_table("silences", silences)
    linked = spans.link_all(map(requests_of, _write_alongside(pool, writer, by_time)), silences)
    streams = rebuilt.streams.table()
    service = streams.schema.get_field_index("service")
    writer.write_table("streams", streams.set_column(service, "service", rename_services(streams["service"], names)))
    beside = [pool.submit(memory.give_back), pool.submit(writer.write_table, "spans", linked)]
    linked = linked.select(findings.SPAN_COLUMNS)
    writer.finish("connections")
    found = findings.build_findings(
        wrong.result(),
        (requests_of(slab) for slab in writer.written.batches("exchanges", (*findings.EXCHANGE_COLUMNS, "is_stream"))),
        linked,
        alignment.clocks,
        info,
        captured,
        samples,
        lambda: writer.written.batches("connections", findings.CONNECTION_COLUMNS),
        places,
    )
    writer.write_table("findings", found)
    for job in beside:
        job.result()
    return unread_connections(streams)


def _final_exchanges(by_time: SortedRuns, info: TraceInfo, rebuilt: _Rebuilt) -> Iterator[pa.Table]:
    """All exchanges by time, a slab at a time, with final outcomes, streams and names of services, which need all
    partitions."""
    names, answering = ServiceNames(info.services), frozenset(rebuilt.answering)
    triggered = rebuilt.streams.triggered_connections()
    for slab in by_time.slabs(ROW_GROUP_ROWS):
        final = outcomes.final_outcomes(with_streams(slab, triggered), answering)
        place = final.schema.get_field_index("service")
        yield final.set_column(place, "service", rename_services(final["service"], names))


def _write_alongside(pool: ThreadPoolExecutor, writer: TraceWriter, by_time: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Pass on the exchanges of `by_time`, and write each slab while the next one is merged."""
    before: Future[None] | None = None
    for slab in by_time:
        if before is not None:
            before.result()
        before = pool.submit(writer.append, "exchanges", slab)
        yield slab
    if before is not None:
        before.result()
    writer.finish("exchanges")


def _of_hosts(samples: pa.Table, info: TraceInfo) -> pa.Table:
    """The samples of the trace's hosts, ordered by host, metric and time."""
    known = pl.col("host").is_in([host.host for host in info.hosts])
    return pl.DataFrame(samples).filter(known).sort("host", "metric", "host_ns").to_arrow()


def _ways_again(
    held: PartitionCache, clock_of: Mapping[str, str], absurd: Mapping[str, NDArray[np.uint32]]
) -> Iterator[clock_evidence.Ways]:
    return (_clock_ways(held.look(number)[0], clock_of, absurd) for number in held.numbers())


def _clock_ways(
    hops: pa.Table, clock_of: Mapping[str, str], absurd: Mapping[str, NDArray[np.uint32]]
) -> clock_evidence.Ways:
    """The hops that are evidence for clocks, by clock."""
    return clock_evidence.by_clock(clock_evidence.without(clock_evidence.ways_of(hops), absurd), clock_of)


def _start_times(exchanges: pa.Table) -> NDArray[np.int64]:
    """The earliest trace time of each exchange."""
    times = pl.DataFrame(exchanges).select(pl.min_horizontal(pl.col("^(request|response)_.*_trace_ns$")))
    return times.to_series().fill_null(0).to_numpy()


def _match(captures: Scan, number: int, evidence: clock_evidence.Evidence, writer: TraceWriter) -> _Part | None:
    decoded = captures.take(number)
    if decoded is None:
        return None
    matched = matching.match(decoded, number * ID_STRIDE + 1)
    ways = evidence.essential(_clock_ways(matched.hops, captures.clock_of, captures.absurd))
    tables = {"events": matched.events, "messages": matched.messages, "connections": matched.connections}
    written = {name: writer.encode(name, table) for name, table in tables.items()}
    missing = coverage.missing_packets(matched.hops, matched.connections)
    lost = coverage.NOTHING_MISSING
    if captures.has_drops:
        lost = coverage.missing_packets(matched.hops, matched.connections, (HopState.LOST,))
    drops = host_drops(matched.events, matched.hops, decoded.events["sack_hash"])
    fins = closing_data(matched.events)
    held = (matched.hops, matched.messages, matched.connections, matched.pauses, drops, fins)
    suspects = damaged.suspects(matched.events, matched.hops, captures.marking)
    last = chunked.last_packets(matched.events, matched.hops, matched.messages)
    return _Part(written, held, ways, missing, lost, suspects, last, matched.events.num_rows)


def _rebuild(
    pool: ThreadPoolExecutor,
    workers: int,
    captured: CapturedUntil,
    alignment: Alignment,
    windows: CaptureWindows,
    writer: TraceWriter,
    put_off: DeferredWrites,
    held: PartitionCache,
    by_time: SortedRuns,
    wrong: pl.DataFrame,
    cut_short: pl.Series,
    watched: Watched,
    done: Callable[[int], None],
    limits: InputLimits,
) -> _Rebuilt:
    """Align and rebuild each partition, and write or keep the results; `done` is called with each one's number.

    Services are still named `host:port`: which of them are replicas is decided when all exchanges are known.
    Arguments: `wrong`, from `damaged.find_damaged`; `cut_short`, from `chunked.cut_short`; `watched`, the calls to
    keep.
    """
    exchanges_count, rebuilt = 0, _Rebuilt()
    names = ServiceNames(())

    def rebuild(number: int) -> _Requests:
        hops, messages, connections, paused, drops, fins = held.take(number)
        spoilt = None
        mine = wrong.filter(pl.col("connection_id") // ID_STRIDE == number)
        if len(mine):
            hops, spoilt = damaged.mark_undelivered(hops, mine, alignment.clocks)
            drops = damaged.drops_of_intact(drops, mine)
        hops = gaps.doubt_losses(settle_windows(align(hops, alignment), connections, windows))
        hops = conform("hops", hops.append_column("exchange_id", pa.nulls(hops.num_rows, pa.int64())))
        first_id = number * ID_STRIDE + 1
        holed = gaps.Pieces(gaps.find_gaps(hops, rows, messages)) if len(rows := gaps.gapped_flows(hops)) else None
        built = _exchanges(hops, messages, connections, names, first_id, paused, holed)
        ended = with_endings(built.exchanges, built.hops, fins, cut_short)
        ended = ended if holed is None else holed.without_endings(ended)
        built = built._replace(exchanges=outcomes.with_outcomes(ended))
        paused = sender_pauses.align_pauses(paused, alignment.clocks)
        counts = hop_counts(built.hops)
        found = symptoms.collect_symptoms(
            built.hops, connections, built.exchanges, captured, paused, counts, drops, spoilt, holed
        )
        return _Requests(
            built.hops, built.exchanges, built.silences, built.streams,
            writer.encode("quality", quality_of(built.hops, counts)), found,
            watched.calls(requests_of(built.exchanges)),
        )  # fmt: skip

    def keep(number: int, requests: _Requests) -> None:
        nonlocal exchanges_count
        done(number)
        exchanges_count += requests.exchanges.num_rows
        limits.check_exchanges(exchanges_count)
        put_off.put(requests.hops, MOST_WITH_LINKS_BYTES - BYTES_AN_EXCHANGE * exchanges_count)
        writer.append_encoded("quality", requests.quality)
        by_time.put(requests.exchanges, _start_times(requests.exchanges))
        rebuilt.add(requests)

    run_in_order(pool, workers, held.numbers(), rebuild, keep)
    return rebuilt


def _exchanges(
    hops: pa.Table,
    messages: pa.Table,
    connections: pa.Table,
    names: ServiceNames,
    first_id: int,
    paused: pa.Table,
    holed: gaps.Pieces | None,
) -> Built:
    """The exchanges of a partition; connections with holes in the captures are rebuilt piece by piece."""
    if holed is None or holed.gaps.is_empty():
        return build_exchanges(hops, messages, connections, names, first_id, paused)
    parts = holed.hops(hops), holed.heads(messages, hops), holed.connections(connections)
    return holed.rejoin(build_exchanges(*parts, names, first_id, paused), hops)


def _end_ns(info: TraceInfo, alignment: Alignment) -> int:
    """When the last capture ended."""
    ends = [(host.host, host.last_host_ns) for host in info.hosts if host.last_host_ns is not None and not host.on_path]
    names, stamps = (pa.array(column) for column in zip(*ends, strict=True))
    return int(to_trace_ns(names, stamps, alignment.clocks).max())
