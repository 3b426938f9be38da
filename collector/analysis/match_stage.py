"""The first pass over the partitions: packets are matched, which yields the evidence for the clocks.

What is needed of all captures is in the `MatchStage` itself, so that any process can run it.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.clocks import evidence as clock_evidence
from collector.clocks.steps import Frames, hops_near
from collector.decode.captures import Scan
from collector.decode.decoded import Decoder
from collector.execution.engine import Tables
from collector.findings.thresholds import Thresholds
from collector.hops import coverage, damaged, matching
from collector.hops.host_drops import host_drops
from collector.hops.sampling import Sampling, connection_depths
from collector.requests import chunked
from collector.requests.endings import closing_data
from collector.services.servers import ServerRows, server_rows
from collector.trace.schema import ID_STRIDE, HopState
from collector.trace.table_store import EncodedRows
from collector.trace.writing import RowEncoder


class ClockFacts(Struct, frozen=True):
    """What is known of all captures' clocks; fields as in `Scan`."""

    frames: Mapping[str, int]
    absurd: Mapping[str, NDArray[np.uint32]]
    clock_of: Mapping[str, str]

    def ways(self, hops: pa.Table) -> clock_evidence.Ways:
        """The hops that are evidence for clocks, by clock."""
        ways = clock_evidence.without(clock_evidence.ways_of(hops), self.absurd)
        return clock_evidence.by_clock(ways, self.clock_of)


class MatchedPart(Struct, frozen=True):
    """One partition after matching: what to write, and what later stages need of all partitions."""

    encoded: dict[str, EncodedRows]
    ways: clock_evidence.Ways
    servers: ServerRows
    missing: pl.DataFrame  # as `coverage.missing_packets`
    lost: pl.DataFrame  # likewise, where captures dropped packets
    suspects: pl.DataFrame  # as `damaged.suspects`
    last: pl.DataFrame  # as `chunked.last_packets`
    depths: pl.DataFrame | None  # as `connection_depths`, if a host kept only some connections
    copies: NDArray[np.uint32]  # as in `Decoded`
    events_count: int
    connections_count: int


class MatchedParts(Struct):
    """What later stages need of all partitions after matching, in their order; fields as in `MatchedPart`."""

    missing: list[pl.DataFrame] = field(default_factory=list)
    lost: list[pl.DataFrame] = field(default_factory=list)
    suspects: list[pl.DataFrame] = field(default_factory=list)
    last: list[pl.DataFrame] = field(default_factory=list)
    depths: list[pl.DataFrame] = field(default_factory=list)
    copies: list[NDArray[np.uint32]] = field(default_factory=list)
    events_counts: dict[int, int] = field(default_factory=dict)
    connections_count: int = 0

    def add(self, number: int, part: MatchedPart) -> None:
        """Add the results of one partition."""
        self.missing.append(part.missing)
        self.lost.append(part.lost)
        self.suspects.append(part.suspects)
        self.last.append(part.last)
        self.depths.extend([] if part.depths is None else [part.depths])
        self.copies.append(part.copies)
        self.events_counts[number] = part.events_count
        self.connections_count += part.connections_count


class MatchStage(Struct, frozen=True):
    """Matches the packets of a partition.

    Arguments: `kept`, where the partition's tables go that `RebuildStage` needs; `asked`, as `Servers.asked`; others as
    in `Scan`.
    """

    decoder: Decoder
    clocks: ClockFacts
    kept: Tables
    encoder: RowEncoder
    thresholds: Thresholds
    asked: NDArray[np.uint16]
    most_depths: Mapping[str, int]
    marking: frozenset[str]
    has_drops: bool

    @classmethod
    def of(
        cls, captures: Scan, kept: Tables, encoder: RowEncoder, thresholds: Thresholds, asked: NDArray[np.uint16]
    ) -> "MatchStage":
        """The stage for these captures."""
        clocks = ClockFacts(captures.frames, captures.absurd, captures.clock_of)
        known = (captures.most_depths, captures.marking, captures.has_drops)
        return cls(captures.decoder, clocks, kept, encoder, thresholds, asked, *known)

    def __call__(self, number: int) -> MatchedPart | None:
        """Match one partition; None if it is empty."""
        decoded = self.decoder.take(number)
        if decoded is None:
            return None
        matched = matching.match(decoded, number * ID_STRIDE + 1)
        tables = {"events": matched.events, "messages": matched.messages, "connections": matched.connections}
        sampling = Sampling(most_depths=self.most_depths)
        depths = connection_depths(matched.connections) if sampling else None
        both = matched.hops, matched.connections
        lost = coverage.NOTHING_MISSING
        if self.has_drops:
            lost = coverage.missing_packets(*both, (HopState.LOST,), sampling, depths)
        drops = host_drops(matched.events, matched.hops, decoded.events["sack_hash"], self.thresholds.host_drops)
        part = MatchedPart(
            encoded={name: self.encoder.encode(name, table) for name, table in tables.items()},
            ways=clock_evidence.essential(self.clocks.ways(matched.hops), self.clocks.frames),
            servers=server_rows(matched.connections, self.asked),
            missing=coverage.missing_packets(*both, sampling=sampling, depths=depths),
            lost=lost,
            suspects=damaged.suspects(matched.events, matched.hops, self.marking),
            last=chunked.last_packets(matched.events, matched.hops, matched.messages),
            depths=depths,
            copies=decoded.copies,
            events_count=matched.events.num_rows,
            connections_count=matched.connections.num_rows,
        )
        of_requests = (matched.hops, matched.messages, matched.connections, matched.pauses, matched.crossings)
        self.kept.put(number, *of_requests, drops, closing_data(matched.events))
        return part


class LookNearSteps(Struct, frozen=True):
    """Looks again at the hops of a partition, for those where a clock may have been stepped."""

    clocks: ClockFacts
    kept: Tables
    between: Frames

    def __call__(self, number: int) -> clock_evidence.Ways:
        """As `steps.hops_near`."""
        return hops_near(self.clocks.ways(self.kept.look(number)[0]), self.between)
