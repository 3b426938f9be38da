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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from collector.capture_files.readers import TlsKeys
from collector.clocks import evidence as clock_evidence
from collector.clocks.alignment import Alignment, align, share_clocks, to_trace_ns
from collector.clocks.solve import own_clocks, solve
from collector.clocks.steps import refine_steps
from collector.decode.activity import DropSpan, Span
from collector.decode.capture_sets import not_overlapping
from collector.decode.captures import Scan, scan
from collector.decode.host_capture import HostSource
from collector.decode.input_limits import LARGE_PARTITION, LIMITED, InputLimits
from collector.decode.time_range import TimeRange
from collector.execution import memory
from collector.execution.deferred_writes import DeferredWrites
from collector.execution.external_sort import SortedRuns
from collector.execution.ordered_pool import run_in_order
from collector.execution.partition_cache import PartitionCache
from collector.execution.progress import SILENT, CountedProgress, Progress, Stage
from collector.findings import diagnosis, symptoms
from collector.findings.requests import EXCHANGE_COLUMNS, SPAN_COLUMNS
from collector.findings.thresholds import DEFAULTS, Thresholds
from collector.hops import coverage, damaged, matching, sender_pauses
from collector.hops.capture_windows import CaptureWindows, settle_windows
from collector.hops.captured_until import CapturedUntil, captured_until
from collector.hops.counts import hop_counts
from collector.hops.coverage import HostCoverage, union
from collector.hops.host_drops import host_drops
from collector.hops.quality import quality_of
from collector.hops.sampling import Sampling, connection_depths, sampling_of
from collector.requests import chunked, gaps, outcomes, spans
from collector.requests.endings import closing_data, with_endings
from collector.requests.exchanges import Built, build_exchanges
from collector.requests.s3_names import S3Evidence, s3_evidence
from collector.requests.stream_evidence import StreamEvidence
from collector.requests.streams import (
    StreamJudge,
    overlapping_streams,
    requests_of,
    turns_of_streams,
    with_streams,
)
from collector.requests.unread_connections import unread_counters, unread_counts
from collector.services.choices import Choices, Watched, sampled_share
from collector.services.naming import name_services, servers_to_watch
from collector.services.operators_names import names_of_nothing
from collector.services.rings import Places, Ring
from collector.services.servers import Server, Servers
from collector.services.service_names import ServiceNames, rename_services
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, TraceInfo
from collector.trace.request_times import earliest_ns
from collector.trace.schema import ID_STRIDE, TABLES, HopState, conform
from collector.trace.table_store import ROW_GROUP_ROWS, EncodedRows
from collector.trace.writing import TraceWriter, write_trace
from tracer import secret_rules

__all__ = ["AnalysisOptions", "HostSource", "analyse"]


SYMPTOMS_AT_ONCE = 64
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
    thresholds: Thresholds = DEFAULTS
    """By which findings are judged."""
    keys: TlsKeys = field(default_factory=TlsKeys)
    """Secrets that open connections of TLS. They are in no table, and nothing shows them."""
    wanted: TimeRange | None = None
    """The time to analyse, by each host's clock; None for all of it."""


class _Kept(NamedTuple):
    """The tables of a matched partition that are kept until its requests are rebuilt."""

    hops: pa.Table
    messages: pa.Table
    connections: pa.Table
    pauses: pa.Table
    crossings: pa.Table  # as `matching.Matched.crossings`
    drops: pa.Table  # as `host_drops`
    fins: pa.Table  # as `closing_data`


@dataclass(frozen=True, slots=True)
class _Part:
    """One partition after matching: tables to write, tables for later stages, and the evidence for clocks."""

    encoded: dict[str, EncodedRows]
    kept: _Kept
    ways: clock_evidence.Ways
    missing: pl.DataFrame  # as `coverage.missing_packets`
    lost: pl.DataFrame  # likewise, where captures dropped packets
    suspects: pl.DataFrame  # as `damaged.suspects`
    last: pl.DataFrame  # as `chunked.last_packets`
    depths: pl.DataFrame | None  # as `connection_depths`, if a host kept only some connections
    events_count: int


@dataclass(frozen=True, slots=True)
class _Matched:
    """What later stages need of all partitions after matching, in their order; fields as in `_Part`."""

    missing: list[pl.DataFrame] = field(default_factory=list)
    lost: list[pl.DataFrame] = field(default_factory=list)
    suspects: list[pl.DataFrame] = field(default_factory=list)
    last: list[pl.DataFrame] = field(default_factory=list)
    depths: list[pl.DataFrame] = field(default_factory=list)
    events_counts: dict[int, int] = field(default_factory=dict)
    connections_counts: list[int] = field(default_factory=list)

    def add(self, number: int, part: _Part) -> None:
        self.missing.append(part.missing)
        self.lost.append(part.lost)
        self.suspects.append(part.suspects)
        self.last.append(part.last)
        self.depths.extend([] if part.depths is None else [part.depths])
        self.events_counts[number] = part.events_count
        self.connections_counts.append(part.kept.connections.num_rows)


@dataclass(frozen=True, slots=True)
class _Aligned:
    """What is known of all captures once the clocks are solved, and is used to rebuild each partition."""

    alignment: Alignment
    captured: CapturedUntil
    windows: CaptureWindows
    damaged: pl.DataFrame  # as `damaged.find_damaged`
    cut_short: pl.Series  # as `chunked.cut_short`
    watched: Watched  # the calls to keep


@dataclass(frozen=True, slots=True)
class _Requests:
    """One partition after its requests are rebuilt."""

    hops: pa.Table
    exchanges: pa.Table
    silences: pa.Table
    streams: StreamEvidence
    quality: EncodedRows
    symptoms: symptoms.Symptoms
    calls: pl.DataFrame  # as `Watched.calls`
    s3: S3Evidence
    unread: Counter[str]  # as `unread_counts`


@dataclass(slots=True)
class _Rebuilt:
    """The results of all partitions: `parts` of their symptoms, the silences of their messages, servers that answered,
    calls to servers that may be replicas."""

    parts: list[symptoms.Symptoms] = field(default_factory=list)
    silences: list[pa.Table] = field(default_factory=list)
    streams: StreamJudge = field(default_factory=StreamJudge)
    s3: S3Evidence = field(default_factory=S3Evidence)
    answering: set[outcomes.Server] = field(default_factory=set)
    calls: list[pl.DataFrame] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    exchanges_count: int = 0

    def add(self, requests: _Requests) -> None:
        """Add the results of one partition."""
        self.silences.append(requests.silences)
        self.unread += requests.unread
        self.streams.add(requests.streams)
        self.s3.add(requests.s3)
        self.answering.update(outcomes.answering_servers(requests.exchanges))
        self.calls.append(requests.calls)
        self.parts.append(requests.symptoms)
        if len(self.parts) == SYMPTOMS_AT_ONCE:
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
        scan(
            sources,
            spill,
            options.partition_bits,
            progress,
            options.addresses,
            options.limits,
            options.keys,
            options.wanted,
        ) as captures,
        PartitionCache(spill) as partitions,
        SortedRuns(spill) as by_time,
    ):
        info = TraceInfo(
            created_ns=time.time_ns(),
            tool_version=version("twintap"),
            hosts=captures.hosts,
            counters=(*captures.counters, *options.counters),
            command=command,
            secrets=secret_rules.choice(),
            thresholds=options.thresholds.changes(),
        )
        with write_trace(trace_url) as writer:
            used = None if samples is None else _of_hosts(samples, info)
            if used is not None:
                writer.write_table("samples", used)
            info = Pipeline(captures, info, options, writer, partitions, by_time, used, progress).run()
            writer.write_info(info)
    memory.give_back()
    progress.end()
    return info


class Pipeline:
    """The stages of one analysis, in their order; tables are written as they are completed. For one `run`.

    Arguments: `partitions` keeps tables until the clocks are solved, `by_time` exchanges until all are rebuilt.
    """

    def __init__(
        self,
        captures: Scan,
        info: TraceInfo,
        options: AnalysisOptions,
        writer: TraceWriter,
        partitions: PartitionCache,
        by_time: SortedRuns,
        samples: pa.Table | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self._captures, self._info, self._options, self._writer = captures, info, options, writer
        self._partitions, self._by_time, self._samples, self._progress = partitions, by_time, samples, progress
        self._workers = 1 if captures.largest > LARGE_PARTITION else options.workers or os.cpu_count() or 1
        self._evidence, self._servers = clock_evidence.Evidence(captures.frames), Servers(captures.clues)
        self._matched, self._rebuilt = _Matched(), _Rebuilt()
        self._jobs: list[Future[None]] = []
        self._deferred_hops = DeferredWrites(lambda table: writer.append("hops", table))

    def run(self) -> TraceInfo:
        """Run all stages; returns the trace's info with the hosts' coverage and the names of services filled in."""
        with ThreadPoolExecutor(self._workers) as self._pool:
            self._match_partitions()
            servers = self._servers.all()
            watched = self._watched_servers(servers)
            alignment = self._solve_clocks()
            captured, windows = self._find_coverage(alignment)
            self._rebuild_partitions(alignment, captured, windows, watched)
            self._name_services(servers, watched)
            self._progress.begin(Stage.LINK)
            self._run_alongside(memory.give_back)
            self._run_alongside(self._deferred_hops.write_all)
            merged = self._pool.submit(self._merged_symptoms)
            linked, streams = self._link_exchanges()
            self._build_findings(merged, linked, alignment, captured, streams)
            self._wait_for_jobs()
        self._add_counters(unread_counters(self._rebuilt.unread, streams))
        return self._info

    def _add_counters(self, counters: Iterable[CounterInfo]) -> None:
        self._info = replace(self._info, counters=(*self._info.counters, *counters))

    def _run_alongside(self, job: Callable[..., None], *arguments: Any) -> None:
        """Run a job on another thread, while this one goes on with a stage that takes one thread."""
        self._jobs.append(self._pool.submit(job, *arguments))

    def _wait_for_jobs(self) -> None:
        for job in self._jobs:
            job.result()

    def _match_partitions(self) -> None:
        self._progress.begin(Stage.PAIR)
        done = CountedProgress(self._progress, len(self._captures))

        def store(number: int, part: _Part | None) -> None:
            done.note_completed(part.events_count if part else 0, 1)
            if part is not None:
                self._store_matched(number, part)

        run_in_order(self._pool, self._workers, range(len(self._captures)), self._match, store)
        self._captures.close()

    def _match(self, number: int) -> _Part | None:
        """Match one partition; None if it is empty."""
        captures = self._captures
        decoded = captures.take(number)
        if decoded is None:
            return None
        matched = matching.match(decoded, number * ID_STRIDE + 1)
        ways = self._evidence.essential(_clock_ways(matched.hops, captures))
        tables = {"events": matched.events, "messages": matched.messages, "connections": matched.connections}
        encoded = {name: self._writer.encode(name, table) for name, table in tables.items()}
        sampling = Sampling(most_depths=captures.most_depths)
        depths = connection_depths(matched.connections) if sampling else None
        both = matched.hops, matched.connections
        missing, lost = coverage.missing_packets(*both, sampling=sampling, depths=depths), coverage.NOTHING_MISSING
        if captures.has_drops:
            lost = coverage.missing_packets(*both, (HopState.LOST,), sampling, depths)
        drops = host_drops(
            matched.events, matched.hops, decoded.events["sack_hash"], self._options.thresholds.host_drops
        )
        fins = closing_data(matched.events)
        of_requests = (matched.hops, matched.messages, matched.connections, matched.pauses, matched.crossings)
        kept = _Kept(*of_requests, drops, fins)
        suspects = damaged.suspects(matched.events, matched.hops, captures.marking)
        last = chunked.last_packets(matched.events, matched.hops, matched.messages)
        return _Part(encoded, kept, ways, missing, lost, suspects, last, depths, matched.events.num_rows)

    def _store_matched(self, number: int, part: _Part) -> None:
        self._matched.add(number, part)
        self._options.limits.check_connections(sum(self._matched.connections_counts))
        for name, rows in part.encoded.items():
            self._writer.append_encoded(name, rows)
        self._partitions.put(number, *part.kept)
        self._evidence.add(part.ways)
        self._servers.add(part.kept.connections)

    def _watched_servers(self, servers: Sequence[Server]) -> Watched:
        """The servers whose calls are kept, to see which of them are replicas."""
        names = self._options.names
        if not self._options.edge_ns:  # a live window need not hold each server
            self._add_counters(names_of_nothing(names, servers))
        return replace(
            servers_to_watch(servers, dict(names)), share=sampled_share(sum(self._matched.events_counts.values()))
        )

    def _solve_clocks(self) -> Alignment:
        captures = self._captures
        windows = captures.clock_windows
        alignment = own_clocks(windows)
        if self._options.align_clocks:
            evidence = refine_steps(self._evidence, self._ways_again)
            alignment = solve(evidence, windows, captures.ticks_ns)
        alignment = share_clocks(alignment, captures.clock_of, [host.host for host in self._info.hosts])
        self._writer.write_table("clocks", alignment.clocks)
        return alignment

    def _ways_again(self) -> Iterator[clock_evidence.Ways]:
        """The evidence for clocks of each partition, read once more."""
        numbers = self._partitions.numbers()
        return (_clock_ways(self._partitions.look(number)[0], self._captures) for number in numbers)

    def _find_coverage(self, alignment: Alignment) -> tuple[CapturedUntil, CaptureWindows]:
        """When each host and point captured, also noted in the trace's info."""
        captures, clocks = self._captures, alignment.clocks
        missing, lost = (coverage.merge_missing(each) for each in (self._matched.missing, self._matched.lost))
        covered = coverage.coverages(captures.activities, missing, clocks, lost)
        self._info = _with_coverage(self._info, captures, covered)
        self._add_counters(captures.copies())
        self._add_counters(not_overlapping([host for host in self._info.hosts if not host.on_path], clocks))
        sampling, depths = sampling_of(captures.kept, clocks), self._matched.depths
        end_ns = _last_capture_end_ns(self._info, alignment)
        captured = captured_until(covered, clocks, end_ns, sampling, pl.concat(depths) if depths else None)
        return captured, CaptureWindows(covered, captures.activities, clocks, self._options.edge_ns, sampling)

    def _rebuild_partitions(
        self, alignment: Alignment, captured: CapturedUntil, windows: CaptureWindows, watched: Watched
    ) -> None:
        """Align and rebuild each partition, and write or keep the results.

        Services are still named `host:port`: which of them are replicas is decided when all exchanges are known.
        """
        self._progress.begin(Stage.REBUILD)
        matched, progressed = self._matched, CountedProgress(self._progress, len(self._matched.events_counts))
        # A live window is analysed twice a second: what was cut short there is not computed.
        last = [] if self._options.edge_ns else matched.last
        aligned = _Aligned(
            alignment=alignment,
            captured=captured,
            windows=windows,
            damaged=damaged.find_damaged(matched.suspects, self._captures.look),
            cut_short=chunked.cut_short(last, self._captures.payloads),
            watched=watched,
        )

        def rebuild(number: int) -> _Requests:
            return self._rebuild(number, aligned)

        def store(number: int, requests: _Requests) -> None:
            progressed.note_completed(matched.events_counts[number], 1)
            self._store_rebuilt(requests)

        run_in_order(self._pool, self._workers, self._partitions.numbers(), rebuild, store)

    def _rebuild(self, number: int, aligned: _Aligned) -> _Requests:
        """The requests of one partition."""
        hops, messages, connections, pauses, crossings, drops, fins = self._partitions.take(number)
        undelivered = None
        damaged_here = aligned.damaged.filter(pl.col("connection_id") // ID_STRIDE == number)
        if len(damaged_here):
            hops, undelivered = damaged.mark_undelivered(hops, damaged_here, aligned.alignment.clocks)
            drops = damaged.drops_of_intact(drops, damaged_here)
        sampling = aligned.windows.sampling
        depths = connection_depths(connections) if sampling else None
        pauses = sender_pauses.align_pauses(pauses, aligned.alignment.clocks)
        if depths is not None:
            pauses = sampling.seen_throughout(pauses, depths, "host", "stopped_trace_ns", "resumed_trace_ns")
            drops = sampling.without_left_out(drops, depths, "receive_host")
        hops = settle_windows(align(hops, aligned.alignment), connections, aligned.windows)
        hops = gaps.doubt_losses(hops)
        hops = conform("hops", hops.append_column("exchange_id", pa.nulls(hops.num_rows, pa.int64())))
        pieces = gaps.Pieces(gaps.find_gaps(hops, rows, messages)) if len(rows := gaps.gapped_flows(hops)) else None
        built = exchanges_of_partition(
            hops, messages, connections, ServiceNames(()), number * ID_STRIDE + 1, pauses, pieces, crossings
        )
        ended = with_endings(built.exchanges, built.hops, fins, aligned.cut_short)
        ended = ended if pieces is None else pieces.without_endings(ended)
        built = built._replace(exchanges=outcomes.with_outcomes(ended))
        thresholds = self._options.thresholds
        counts = hop_counts(built.hops, late_ns=thresholds.network.late_least_ns)
        found = symptoms.collect_symptoms(
            built.hops, connections, built.exchanges, aligned.captured, pauses, counts, drops, undelivered, pieces,
            thresholds.of_symptoms,
        )  # fmt: skip
        if depths is not None:
            found = replace(found, unseen=sampling.without_holes(found.unseen, depths))
        quality = self._writer.encode("quality", quality_of(built.hops, counts))
        calls = aligned.watched.calls(requests_of(built.exchanges))
        s3 = s3_evidence(built.exchanges)
        unread = unread_counts(connections, built.exchanges["connection_id"])
        return _Requests(built.hops, built.exchanges, built.silences, built.streams, quality, found, calls, s3, unread)

    def _store_rebuilt(self, requests: _Requests) -> None:
        rebuilt = self._rebuilt
        rebuilt.exchanges_count += requests.exchanges.num_rows
        self._options.limits.check_exchanges(rebuilt.exchanges_count)
        room_bytes = MOST_WITH_LINKS_BYTES - BYTES_AN_EXCHANGE * rebuilt.exchanges_count
        self._deferred_hops.put(requests.hops, room_bytes)
        self._writer.append_encoded("quality", requests.quality)
        self._by_time.put(requests.exchanges, earliest_ns(requests.exchanges))
        rebuilt.add(requests)

    def _name_services(self, servers: Sequence[Server], watched: Watched) -> None:
        choices = Choices(watched, self._rebuilt.calls)
        services = name_services(servers, dict(self._options.names), choices.are_replicas)
        self._info = replace(self._info, services=services)

    def _merged_symptoms(self) -> symptoms.Symptoms:
        """The symptoms of all partitions."""
        return symptoms.with_services(symptoms.merge_symptoms(self._rebuilt.parts), ServiceNames(self._info.services))

    def _link_exchanges(self) -> tuple[pa.Table, pa.Table]:
        """Link the exchanges of all partitions, and write them, their silences, spans and streams.

        Returns: what findings need of the spans; the streams.
        """
        silences = self._rebuilt.all_silences()
        self._writer.write_table("silences", silences)
        linked = spans.link_all(map(requests_of, self._write_exchanges()), silences)
        streams = self._rebuilt.streams.table()
        self._writer.write_table("streams", _with_names(streams, ServiceNames(self._info.services)))
        self._run_alongside(memory.give_back)
        self._run_alongside(self._writer.write_table, "spans", linked)
        return linked.select(SPAN_COLUMNS), streams

    def _write_exchanges(self) -> Iterator[pa.Table]:
        """All exchanges by time, a slab at a time; each is written while the next one is merged."""
        before: Future[None] | None = None
        for slab in self._final_exchanges():
            if before is not None:
                before.result()
            before = self._pool.submit(self._writer.append, "exchanges", slab)
            yield slab
        if before is not None:
            before.result()
        self._writer.finish("exchanges")

    def _final_exchanges(self) -> Iterator[pa.Table]:
        """All exchanges by time, a slab at a time, with final outcomes, streams, and names of services and of S3's
        operations, which need all partitions."""
        names, answering = ServiceNames(self._info.services), frozenset(self._rebuilt.answering)
        triggered, s3 = self._rebuilt.streams.triggered_connections(), self._rebuilt.s3.names()
        for slab in self._by_time.slabs(ROW_GROUP_ROWS):
            final = outcomes.final_outcomes(with_streams(slab, triggered), answering)
            yield _with_names(s3.with_names(final), names)

    def _build_findings(
        self,
        merged: Future[symptoms.Symptoms],
        linked: pa.Table,
        alignment: Alignment,
        captured: CapturedUntil,
        streams: pa.Table,
    ) -> None:
        self._writer.finish("connections")
        info, written = self._info, self._writer.written
        columns, overlapping = (*EXCHANGE_COLUMNS, "is_stream"), overlapping_streams(streams)
        exchanges = written.batches("exchanges", columns)
        turns = (turns_of_streams(part, overlapping) for part in written.batches("exchanges", columns))
        found = diagnosis.build_findings(
            merged.result(),
            map(requests_of, exchanges),
            linked,
            alignment.clocks,
            info,
            captured,
            self._samples,
            lambda: written.batches("connections", diagnosis.CONNECTION_COLUMNS),
            Places(self._options.rings, {address: host.host for host in info.hosts for address in host.addresses}),
            self._options.thresholds,
            turns if len(overlapping) else (),
        )
        self._writer.write_table("findings", found)


def exchanges_of_partition(
    hops: pa.Table,
    messages: pa.Table,
    connections: pa.Table,
    names: ServiceNames,
    first_id: int,
    pauses: pa.Table,
    pieces: gaps.Pieces | None,
    crossings: pa.Table | None = None,
) -> Built:
    """The exchanges of a partition; connections with gaps in the captures are rebuilt piece by piece."""
    if pieces is None or pieces.gaps.is_empty():
        return build_exchanges(hops, messages, connections, names, first_id, pauses, crossings)
    parts = pieces.hops(hops), pieces.heads(messages, hops), pieces.connections(connections)
    crossings = None if crossings is None else pieces.crossings(crossings)
    return pieces.rejoin(build_exchanges(*parts, names, first_id, pauses, crossings), hops)


def _clock_ways(hops: pa.Table, captures: Scan) -> clock_evidence.Ways:
    """The hops that are evidence for clocks, by clock."""
    ways = clock_evidence.without(clock_evidence.ways_of(hops), captures.absurd)
    return clock_evidence.by_clock(ways, captures.clock_of)


def _with_names(table: pa.Table, names: ServiceNames) -> pa.Table:
    """`table` with the names of services in place of `host:port`."""
    return table.set_column(
        table.schema.get_field_index("service"), "service", rename_services(table["service"], names)
    )


def _with_coverage(info: TraceInfo, captures: Scan, covered: Mapping[str, HostCoverage]) -> TraceInfo:
    """`info` with the coverage of each host and each of its points."""
    hosts = (_covered_host(host, captures.interfaces[host.host], covered[host.host]) for host in info.hosts)
    return replace(info, hosts=tuple(hosts))


def _covered_host(host: HostInfo, interfaces: Sequence[str], covered: HostCoverage) -> HostInfo:
    spans_by_interface: dict[str, list[Span]] = {}
    dropped: dict[str, tuple[DropSpan, ...]] = {}
    for name, of_point, drops in zip(interfaces, covered.points, covered.drops, strict=True):
        spans_by_interface.setdefault(name, []).extend(of_point)
        dropped[name] = dropped.get(name, ()) + drops
    points = [
        replace(
            point,
            coverage=union(spans_by_interface.get(point.interface, ())),
            dropped=_numbers(dropped.get(point.interface, ())),
        )
        for point in host.points
    ]
    return replace(host, points=tuple(points), coverage=covered.whole, dropped=_numbers(covered.in_part))


def _numbers(drops: Iterable[DropSpan]) -> tuple[tuple[int, int, int], ...]:
    return tuple((drop.from_ns, drop.to_ns, drop.count) for drop in drops)


def _of_hosts(samples: pa.Table, info: TraceInfo) -> pa.Table:
    """The samples of the trace's hosts, ordered by host, metric and time."""
    known = pl.col("host").is_in([host.host for host in info.hosts])
    return pl.DataFrame(samples).filter(known).sort("host", "metric", "host_ns").to_arrow()


def _last_capture_end_ns(info: TraceInfo, alignment: Alignment) -> int:
    """When the last capture ended, in trace time."""
    ends = [(host.host, host.last_host_ns) for host in info.hosts if host.last_host_ns is not None and not host.on_path]
    names, stamps = (pa.array(column) for column in zip(*ends, strict=True))
    return int(to_trace_ns(names, stamps, alignment.clocks).max())
