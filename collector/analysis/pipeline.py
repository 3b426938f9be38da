"""The stages of an analysis in their order, and `analyse`, which runs them over the captures of several hosts."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from collector.analysis.link_stage import Linking, SpansOfPart
from collector.analysis.match_stage import ClockFacts, LookNearSteps, MatchedPart, MatchedParts, MatchStage
from collector.analysis.options import AnalysisOptions
from collector.analysis.period import PeriodEdges, RequestsOfPeriod, in_order, range_to_read
from collector.analysis.places import HerePlaces, Places
from collector.analysis.rebuild_stage import Aligned, RebuildStage, RebuiltPart, RebuiltParts
from collector.capture_files.kept import Kept
from collector.clocks import evidence as clock_evidence
from collector.clocks.alignment import Alignment, share_clocks, to_trace_ns
from collector.clocks.solve import own_clocks, solve
from collector.clocks.steps import Frames, refine_steps
from collector.decode.activity import DropSpan, Span
from collector.decode.capture_sets import not_overlapping
from collector.decode.captures import Scan, scan
from collector.decode.host_capture import HostSource
from collector.decode.input_limits import LARGE_PARTITION
from collector.execution import memory
from collector.execution.ordered_pool import with_work_behind
from collector.execution.progress import SILENT, CountedProgress, Progress, Stage
from collector.findings import diagnosis, symptoms
from collector.findings.finding import with_names_of_peers
from collector.findings.requests import EXCHANGE_COLUMNS, SPAN_COLUMNS
from collector.hops import coverage, damaged
from collector.hops.capture_windows import CaptureWindows
from collector.hops.captured_until import CapturedUntil, captured_until
from collector.hops.coverage import HostCoverage, union
from collector.hops.sampling import sampling_of
from collector.requests import chunked, outcomes
from collector.requests.streams import answering_streams, requests_of, turns_of_streams, with_streams
from collector.requests.unread_connections import unread_counters
from collector.services.choices import Choices, Watched, sampled_share
from collector.services.naming import name_services, servers_to_watch, with_peer_names
from collector.services.operators_names import names_of_hosts, names_of_nothing
from collector.services.rings import Places as RingPlaces
from collector.services.servers import Server, Servers
from collector.services.service_names import ServiceNames, rename_services
from collector.trace.model import CommandInfo, CounterInfo, HostInfo, TraceInfo
from collector.trace.peer_names import PeerNames
from collector.trace.schema import TABLES
from collector.trace.table_store import ROW_GROUP_ROWS
from collector.trace.time_columns import Int64Array
from collector.trace.writing import TraceWriter, write_trace
from tracer import secret_rules

if TYPE_CHECKING:
    from collector.annotations.records import Record

DEFAULT_OPTIONS = AnalysisOptions()


def analyse(
    sources: Sequence[HostSource],
    trace_url: str,
    *,
    command: CommandInfo | None = None,
    samples: pa.Table | None = None,
    options: AnalysisOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
    places: Places | None = None,
) -> TraceInfo:
    """Run all stages over the captures of several hosts and write the trace.

    Arguments: `sources`, one for each host; `trace_url`, a directory or any fsspec URL; `command`, what ran meanwhile;
    `samples`, the hosts' usage meanwhile (omitted for hosts without a capture, since their clocks cannot be aligned);
    `progress`, which is notified of each stage; `places`, where the stages run (by default in threads of this process).
    Raises: `InputError` for a file that is no capture, captures without a TCP packet, or logs that cannot be read or
    are of no captured host; `ResourceError` if the trace cannot be written.
    """
    with (
        places or HerePlaces(trace_url, options.workers) as where,
        scan(
            sources,
            where.spill,
            options.partition_bits,
            progress,
            options.addresses,
            options.limits,
            options.keys,
            options.wanted if options.period is None else range_to_read(options.period),
            where.read,
            options.carried,
            options.hosts_files,
        ) as captures,
    ):
        renamed = {host.file_name: host.host for host in captures.hosts if host.file_name}
        options = replace(options, names=names_of_hosts(options.names, renamed))
        records, unread = _read_annotations(options, captures.hosts)
        options = replace(options, records=(*options.records, *records))
        info = TraceInfo(
            created_ns=time.time_ns(),
            tool_version=version("twintap"),
            hosts=tuple(_with_names_of_files(host, options.file_names) for host in captures.hosts),
            counters=(*captures.counters, *options.counters, *unread),
            command=command and replace(command, host=renamed.get(command.host, command.host)),
            names=captures.names,
            secrets=secret_rules.choice(),
            thresholds=options.thresholds.changes(),
            period=options.period,
        )
        with write_trace(trace_url) as writer:
            used = None if samples is None else _of_hosts(samples, info, renamed)
            if used is not None:
                writer.write_table("samples", used)
            info = Pipeline(captures, info, options, writer, where, used, progress).run()
            writer.write_info(info)
    memory.give_back_if_much()
    progress.end()
    return info


def _read_annotations(
    options: AnalysisOptions, hosts: Sequence[HostInfo]
) -> tuple[tuple["Record", ...], tuple[CounterInfo, ...]]:
    if not (options.logs.places or options.spans):
        return (), ()
    from collector.annotations.stage import read_records  # noqa: PLC0415 - most analyses have none, and would wait

    return read_records(options.logs, options.spans, hosts)


class Pipeline:
    """The stages of one analysis, in their order; tables are written as they are completed. For one `run`."""

    def __init__(
        self,
        captures: Scan,
        info: TraceInfo,
        options: AnalysisOptions,
        writer: TraceWriter,
        places: Places,
        samples: pa.Table | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self._captures, self._info, self._options, self._writer = captures, info, options, writer
        self._places, self._samples, self._progress = places, samples, progress
        self._clock_facts = ClockFacts(captures.frames, captures.absurd, captures.clock_of)
        self._at_once = 1 if captures.largest > LARGE_PARTITION else None
        self._evidence = clock_evidence.Evidence(captures.frames, thinned=clock_evidence.are_many(captures.frames))
        self._servers = Servers(captures.clues)
        self._matched, self._rebuilt = MatchedParts(), RebuiltParts()
        self._jobs: list[Future[None]] = []

    def run(self) -> TraceInfo:
        """Run all stages; returns the trace's info with the hosts' coverage and the names of services filled in."""
        memory.give_back_if_much()  # what packets took that are in a file now
        self._match_partitions()
        servers = self._servers.all()
        watched = self._watched_servers(servers)
        alignment = self._solve_clocks()
        captured, windows = self._find_coverage(alignment)
        self._rebuild_partitions(alignment, captured, windows, watched)
        self._name_services(servers, watched)
        self._progress.begin(Stage.LINK)
        with ThreadPoolExecutor() as self._pool:
            self._run_alongside(memory.give_back_if_much)
            merged = self._pool.submit(self._merged_symptoms)
            streams = self._link_exchanges(alignment)
            self._build_findings(merged, alignment, captured, streams)
            self._write_annotations(alignment)
            for job in self._jobs:
                job.result()
        self._add_counters(unread_counters(self._rebuilt.unread, streams, are_cut=self._captures.are_cut))
        return self._info

    def _add_counters(self, counters: Iterable[CounterInfo]) -> None:
        self._info = replace(self._info, counters=(*self._info.counters, *counters))

    def _run_alongside(self, job: Callable[..., None], *arguments: Any) -> None:
        """Run a job on another thread, while this one goes on with a stage that takes one thread."""
        self._jobs.append(self._pool.submit(job, *arguments))

    def _match_partitions(self) -> None:
        self._progress.begin(Stage.PAIR)
        done = CountedProgress(self._progress, len(self._captures))

        def store(number: int, part: MatchedPart | None) -> None:
            done.note_completed(part.events_count if part else 0, 1)
            if part is not None:
                self._store_matched(number, part)

        stage = MatchStage.of(
            self._captures, self._places.tables, self._places.encoder, self._options.thresholds, self._servers.asked
        )
        numbers = range(len(self._captures))
        self._places.engine.run(stage, numbers, store, at_once=self._at_once)
        self._captures.close()

    def _store_matched(self, number: int, part: MatchedPart) -> None:
        self._matched.add(number, part)
        self._options.limits.check_connections(self._matched.connections_count)
        for name, rows in part.encoded.items():
            self._writer.append_encoded(name, rows)
        self._evidence.add(part.ways)
        self._servers.add(part.servers)

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
            evidence = refine_steps(self._evidence, self._ways_near)
            alignment = solve(evidence, windows, captures.ticks_ns)
        alignment = share_clocks(alignment, captures.clock_of, [host.host for host in self._info.hosts])
        self._writer.write_table("clocks", alignment.clocks)
        return alignment

    def _ways_near(self, between: Frames) -> Sequence[clock_evidence.Ways]:
        """The evidence for clocks of each partition, near steps; as `hops_near`."""
        found: list[clock_evidence.Ways] = []
        look = LookNearSteps(self._clock_facts, self._places.tables, between)
        numbers = self._matched.events_counts
        self._places.engine.run(look, numbers, lambda _, ways: found.append(ways), at_once=self._at_once)
        return found

    def _find_coverage(self, alignment: Alignment) -> tuple[CapturedUntil, CaptureWindows]:
        """When each host and point captured, also noted in the trace's info."""
        captures, clocks = self._captures, alignment.clocks
        missing, lost = (coverage.merge_missing(each) for each in (self._matched.missing, self._matched.lost))
        covered = coverage.coverages(captures.activities, missing, clocks, lost)
        self._info = _with_coverage(self._info, captures, covered)
        self._add_counters(captures.copies(np.sum(self._matched.copies, axis=0).tolist()))
        self._add_counters(not_overlapping([host for host in self._info.hosts if not host.on_path], clocks))
        sampling, depths = sampling_of(captures.kept, clocks), self._matched.depths
        end_ns = _last_capture_end_ns(self._info, alignment)
        captured = captured_until(covered, clocks, end_ns, sampling, pl.concat(depths) if depths else None)
        return captured, CaptureWindows(covered, captures.activities, clocks, self._options.edge_ns, sampling)

    def _rebuild_partitions(
        self, alignment: Alignment, captured: CapturedUntil, windows: CaptureWindows, watched: Watched
    ) -> None:
        """Align and rebuild each partition, and write or keep the results."""
        self._progress.begin(Stage.REBUILD)
        matched, progressed = self._matched, CountedProgress(self._progress, len(self._matched.events_counts))
        # A live window is analysed twice a second: what was cut short there is not computed.
        last = [] if self._options.edge_ns else matched.last
        aligned = Aligned(
            alignment=alignment,
            captured=captured,
            windows=windows,
            damaged=damaged.find_damaged(matched.suspects, self._captures.look),
            cut_short=chunked.cut_short(last, self._captures.payloads),
            watched=watched,
        )

        def store(number: int, part: RebuiltPart) -> None:
            progressed.note_completed(matched.events_counts[number], 1)
            self._rebuilt.add(part)
            self._options.limits.check_exchanges(self._rebuilt.exchanges_count)
            self._writer.append_encoded("hops", part.hops)
            self._writer.append_encoded("quality", part.quality)

        places = self._places
        stage = RebuildStage(places.tables, places.runs, places.encoder, self._options.thresholds, aligned)
        places.engine.run(stage, matched.events_counts, store, at_once=self._at_once)

    def _name_services(self, servers: Sequence[Server], watched: Watched) -> None:
        choices = Choices(watched, self._rebuilt.calls)
        services = name_services(servers, dict(self._options.names), choices.are_replicas)
        self._info = replace(
            self._info, services=with_peer_names(services, servers, self._info.names, PeerNames(self._info))
        )

    def _merged_symptoms(self) -> symptoms.Symptoms:
        """The symptoms of all partitions."""
        return symptoms.with_services(symptoms.merge_symptoms(self._rebuilt.parts), ServiceNames(self._info.services))

    def _link_exchanges(self, alignment: Alignment) -> pa.Table:
        """Link the exchanges of all partitions, and write them, their silences, spans and streams.

        Returns: the streams.
        """
        silences, streams = self._rebuilt.all_silences(), self._rebuilt.streams.table()
        period = self._options.period
        if period is None:
            self._write_spans(self._write_exchanges(self._final_exchanges()), silences, None)
        else:
            edges = PeriodEdges.on(period, alignment.clocks)
            chosen = RequestsOfPeriod(edges, in_order(self._write_spans(self._final_exchanges(), silences, edges)))
            deque(self._write_exchanges(map(chosen.exchanges, self._final_exchanges())), maxlen=0)
            silences = chosen.silences(silences)
            streams = streams.filter(edges.overlap(streams["begin_trace_ns"], streams["end_trace_ns"]))
        self._writer.write_table("silences", silences)
        self._writer.write_table("streams", _with_names(streams, ServiceNames(self._info.services)))
        self._run_alongside(memory.give_back_if_much)
        return streams

    def _write_spans(
        self, exchanges: Iterable[pa.Table], silences: pa.Table, edges: PeriodEdges | None
    ) -> Sequence[Int64Array]:
        """Link exchanges and write the spans; returns the ids of those of a period, if `edges` are given."""
        ids: list[Int64Array] = []

        def store(part: SpansOfPart) -> None:
            self._writer.append_encoded("spans", part.rows)
            ids.append(part.ids)

        Linking(silences, self._places, self._options.cuts, edges, store).link(map(requests_of, exchanges))
        self._writer.finish("spans")
        return ids

    def _write_exchanges(self, slabs: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The same slabs of exchanges; each is written while the next one is merged."""
        yield from with_work_behind(slabs, lambda slab: self._writer.append("exchanges", slab))
        self._writer.finish("exchanges")

    def _final_exchanges(self) -> Iterator[pa.Table]:
        """All exchanges by time, a slab at a time, with final outcomes, streams, and names of services and of S3's
        operations, which need all partitions."""
        names, answering = ServiceNames(self._info.services), frozenset(self._rebuilt.answering)
        triggered, s3 = self._rebuilt.streams.triggered_connections(), self._rebuilt.s3.names()
        for slab in self._places.runs.slabs(ROW_GROUP_ROWS):
            final = outcomes.final_outcomes(with_streams(slab, triggered), answering)
            yield _with_names(s3.with_names(final), names)

    def _build_findings(
        self,
        merged: Future[symptoms.Symptoms],
        alignment: Alignment,
        captured: CapturedUntil,
        streams: pa.Table,
    ) -> None:
        self._writer.finish("connections")
        memory.give_back_if_much()
        info, written = self._info, self._writer.written
        columns, answering = (*EXCHANGE_COLUMNS, "is_stream"), answering_streams(streams)
        exchanges = written.batches("exchanges", columns)
        turns = (turns_of_streams(part, answering) for part in written.batches("exchanges", columns))
        found = diagnosis.build_findings(
            merged.result(),
            map(requests_of, exchanges),
            written.batches("spans", SPAN_COLUMNS),
            alignment.clocks,
            info,
            captured,
            self._samples,
            lambda columns: written.batches("connections", columns),
            RingPlaces(self._options.rings, {address: host.host for host in info.hosts for address in host.addresses}),
            self._options.thresholds,
            turns if len(answering) else (),
            (lambda columns: written.batches("exchanges", columns)) if streams.num_rows else None,
            streams.select(diagnosis.STREAM_ENDS),
            self._places.spill,
        )
        if info.period is not None:
            edges = PeriodEdges.on(info.period, alignment.clocks)
            found = found.filter(edges.overlap(found["from_trace_ns"], found["to_trace_ns"]))
        found = with_names_of_peers(found, PeerNames(info))
        self._writer.write_table("findings", found)

    def _write_annotations(self, alignment: Alignment) -> None:
        """What logs and other tracers say, with the requests that it is about."""
        records, table = self._options.records, TABLES["annotations"].empty_table()
        if records:
            from collector.annotations import stage  # noqa: PLC0415 - as in `_read_annotations`

            for job in self._jobs:
                job.result()
            table = stage.join_to_requests(records, alignment.clocks, self._writer.written.batches)
            if self._info.period is not None:
                edges = PeriodEdges.on(self._info.period, alignment.clocks)
                ends = pc.add(table["start_trace_ns"], table["duration_ns"])
                table = stage.with_numbers(table.filter(edges.overlap(table["start_trace_ns"], ends)))
        self._writer.write_table("annotations", table)


def _with_names(table: pa.Table, names: ServiceNames) -> pa.Table:
    """`table` with the names of services in place of `host:port`."""
    return table.set_column(
        table.schema.get_field_index("service"), "service", rename_services(table["service"], names)
    )


def _with_names_of_files(host: HostInfo, names: Mapping[str, str]) -> HostInfo:
    return replace(host, files=tuple(names.get(file, file) for file in host.files)) if names else host


def _with_coverage(info: TraceInfo, captures: Scan, covered: Mapping[str, HostCoverage]) -> TraceInfo:
    """`info` with the coverage of each host and each of its points."""
    hosts = (
        replace(
            _covered_host(host, captures.interfaces[host.host], covered[host.host]),
            sampled=_sampling_times(host, captures.kept.get(host.host)),
        )
        for host in info.hosts
    )
    return replace(info, hosts=tuple(hosts))


def _sampling_times(host: HostInfo, kept: Kept | None) -> tuple[tuple[int, int, int], ...]:
    """When a host's agent kept only one connection in 2^n, and n; before its first statement, what that says held."""
    if kept is None or not kept.most_depth or host.first_host_ns is None or host.last_host_ns is None:
        return ()
    edges = [host.first_host_ns, *(change.since_ns for change in kept.changes[1:]), host.last_host_ns]
    found = zip(edges[:-1], edges[1:], kept.changes, strict=True)
    return tuple((begin, end, change.depth) for begin, end, change in found if change.depth and begin < end)


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


def _of_hosts(samples: pa.Table, info: TraceInfo, renamed: Mapping[str, str]) -> pa.Table:
    """The samples of the trace's hosts, ordered by host, metric and time."""
    host, known = pl.col("host").cast(pl.String), [host.host for host in info.hosts]
    named = pl.DataFrame(samples).with_columns(host.replace(dict(renamed)) if renamed else host)
    return named.filter(pl.col("host").is_in(known)).sort("host", "metric", "host_ns").to_arrow()


def _last_capture_end_ns(info: TraceInfo, alignment: Alignment) -> int:
    """When the last capture ended, in trace time."""
    ends = [(host.host, host.last_host_ns) for host in info.hosts if host.last_host_ns is not None and not host.on_path]
    names, stamps = (pa.array(column) for column in zip(*ends, strict=True))
    return int(to_trace_ns(names, stamps, alignment.clocks).max())
