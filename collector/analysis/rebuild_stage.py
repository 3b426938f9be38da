"""The second pass over the partitions: hops are aligned and requests rebuilt, once the clocks are solved.

Services are still named `host:port`: which of them are replicas is decided when all exchanges are known.
"""

from collections import Counter

import polars as pl
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from collector.clocks.alignment import Alignment, align
from collector.execution.engine import Runs, Tables
from collector.findings import symptoms
from collector.findings.thresholds import Thresholds
from collector.hops import damaged, sender_pauses
from collector.hops.capture_windows import CaptureWindows, settle_windows
from collector.hops.captured_until import CapturedUntil
from collector.hops.counts import hop_counts
from collector.hops.quality import quality_of
from collector.hops.sampling import connection_depths
from collector.requests import gaps, outcomes
from collector.requests.endings import with_endings
from collector.requests.exchanges import Built, build_exchanges
from collector.requests.s3_names import S3Evidence, s3_evidence
from collector.requests.stream_evidence import StreamEvidence
from collector.requests.streams import StreamJudge, requests_of
from collector.requests.unread_connections import unread_counts
from collector.services.choices import Watched
from collector.services.service_names import ServiceNames
from collector.trace.request_times import earliest_ns
from collector.trace.schema import ID_STRIDE, TABLES, conform
from collector.trace.table_store import EncodedRows
from collector.trace.writing import RowEncoder

SYMPTOMS_AT_ONCE = 64
"""After so many partitions their symptoms are merged: otherwise they would be most of the memory."""


class Aligned(Struct, frozen=True):
    """What is known of all captures once the clocks are solved, and is used to rebuild each partition."""

    alignment: Alignment
    captured: CapturedUntil
    windows: CaptureWindows
    damaged: pl.DataFrame  # as `damaged.find_damaged`
    cut_short: pl.Series  # as `chunked.cut_short`
    watched: Watched  # the calls to keep


class RebuiltPart(Struct, frozen=True):
    """One partition after its requests are rebuilt; its exchanges are among the runs of `RebuildStage`."""

    hops: EncodedRows
    quality: EncodedRows
    exchanges_count: int
    silences: pa.Table
    streams: StreamEvidence
    symptoms: symptoms.Symptoms
    calls: pl.DataFrame  # as `Watched.calls`
    s3: S3Evidence
    unread: Counter[str]  # as `unread_counts`
    answering: frozenset[outcomes.Server]  # servers that answered


class RebuiltParts(Struct):
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

    def add(self, part: RebuiltPart) -> None:
        """Add the results of one partition."""
        self.exchanges_count += part.exchanges_count
        self.silences.append(part.silences)
        self.unread += part.unread
        self.streams.add(part.streams)
        self.s3.add(part.s3)
        self.answering |= part.answering
        self.calls.append(part.calls)
        self.parts.append(part.symptoms)
        if len(self.parts) == SYMPTOMS_AT_ONCE:
            self.parts[:] = [symptoms.merge_symptoms(self.parts)]

    def all_silences(self) -> pa.Table:
        """The table `silences`, by exchange."""
        return pa.concat_tables([TABLES["silences"].empty_table(), *self.silences], promote_options="none")


class RebuildStage(Struct, frozen=True):
    """Aligns and rebuilds a partition.

    Arguments: `kept`, where `MatchStage` put its tables; `by_time`, to which its exchanges go.
    """

    kept: Tables
    by_time: Runs
    encoder: RowEncoder
    thresholds: Thresholds
    aligned: Aligned

    def __call__(self, number: int) -> RebuiltPart:
        """The requests of one partition."""
        aligned = self.aligned
        hops, messages, connections, pauses, crossings, drops, fins = self.kept.take(number)
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
        counts = hop_counts(built.hops, late_ns=self.thresholds.network.late_least_ns)
        found = symptoms.collect_symptoms(
            built.hops, connections, built.exchanges, aligned.captured, pauses, counts, drops, undelivered, pieces,
            self.thresholds.of_symptoms,
        )  # fmt: skip
        if depths is not None:
            found = replace(found, unseen=sampling.without_holes(found.unseen, depths))
        self.by_time.put(number, built.exchanges, earliest_ns(built.exchanges))
        return RebuiltPart(
            hops=self.encoder.encode("hops", built.hops),
            quality=self.encoder.encode("quality", quality_of(built.hops, counts)),
            exchanges_count=built.exchanges.num_rows,
            silences=built.silences,
            streams=built.streams,
            symptoms=found,
            calls=aligned.watched.calls(requests_of(built.exchanges)),
            s3=s3_evidence(built.exchanges),
            unread=unread_counts(connections, built.exchanges["connection_id"]),
            answering=frozenset(outcomes.answering_servers(built.exchanges)),
        )


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
