"""Partitions: packets grouped by connection, in memory or on disk, so that stages can process one partition at a time.

All packets of a 4-tuple, in both directions and from all hosts, are in one partition. So are 4-tuples that may be one
connection through a NAT or load balancer (`collector.decode.handshakes`). The core loops over the packets
(`collector/core/partitions/src/lib.rs`), and keeps them until their partition is taken.

Cost: ~80 ns a packet to distribute; about 35 bytes a packet in memory, or once to disk and back if they do not fit.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.readers import CaptureReader, Rows
from collector.capture_files.records import Columns, by_name
from collector.decode.containers import Passage
from collector.decode.copies import Copying
from collector.decode.handshakes import Handshakes
from collector.decode.merged_captures import Sighted
from collector.execution.spill import spill_errors

ELSEWHERE = 0xFFFF
"""Number of an interface whose packets are ignored."""
MOST_IN_MEMORY_BYTES = 1 << 29
"""Packets are written to disk beyond this size."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Facts about a host from its packets; addresses are by number."""

    events_count: int
    unknown_count: int  # packets whose direction the capture does not record
    first_ns: int | None
    last_ns: int | None
    pairs: dict[tuple[int, int], int]  # packets by source and destination, while there are few pairs
    own: frozenset[int]  # addresses that the host sent from or received at
    others: frozenset[int]  # at the other end of these; an address in both only passed through
    gaps_ns: dict[tuple[int, int], tuple[int, int, int]]  # as `host_addresses.Traffic.gaps_ns`


@dataclass(frozen=True, slots=True)
class Activity:
    """When a host's interfaces captured, as far as timestamps show (ns); interfaces and addresses are by number."""

    interfaces: tuple[tuple[int, tuple[int, int], int], ...]  # each one's first and last stamp, and its packets
    silences: tuple[tuple[int, tuple[int, int]], ...]  # longer times without a packet, and of which interface
    passed: tuple[tuple[int, int, int, int], ...]  # source, destination, interface, packets
    passages: tuple[Passage, ...]  # of a sample of packets that several interfaces saw


@dataclass(frozen=True, slots=True)
class HostView:
    """The facts needed to interpret a host's packets: its own addresses (with loopback ones) and its first point; for
    addresses that are lanes, each one's number, host and interface; and the copies in its capture."""

    own: NDArray[np.bool_]  # by number
    first_point: int
    lanes: tuple[tuple[int, int, int], ...] = ()
    copying: tuple[Copying, ...] = ()


@dataclass(frozen=True, slots=True)
class AddressOrder:
    """`rank`: an address's position among all sorted texts, by number; `is_loopback`, by rank."""

    rank: NDArray[np.uint32]
    is_loopback: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition's packets and excerpts by column, the ranks of their addresses (ascending), and for each capture the
    number of packets omitted as copies."""

    events: Columns
    excerpts: Columns
    addresses: NDArray[np.uint32]
    copies: NDArray[np.uint32]


class Partitions:
    """Packets by partition; those that do not fit in memory are in an unnamed file in `spill`."""

    def __init__(
        self, bits: int, hosts_count: int, spill: Path | None, most_in_memory_bytes: int = MOST_IN_MEMORY_BYTES
    ) -> None:
        self.bits = bits
        self._spill, self._lock, self._handshakes = spill, Lock(), Handshakes(spill)
        self._core = _core.Partitions(bits, hosts_count, spill or tempfile.gettempdir(), most_in_memory_bytes)

    def __len__(self) -> int:
        return 1 << self.bits

    def add(
        self, host: int, reader: CaptureReader, rows: Rows, frames_before: int, interfaces: NDArray[np.uint16]
    ) -> None:
        """Add the rows that `reader` returned last, in order for each host. Safe to call from several threads.

        Arguments: `frames_before`, packets of the host's earlier files; `interfaces`, for each of the file's its number
        at the host, or `ELSEWHERE` if it is another host's.
        Raises: `ResourceError` if they fit neither in memory nor on disk.
        """
        with spill_errors(self._spill):
            syns = reader.spread(rows, self._core, host, frames_before, interfaces)
        with self._lock:
            if self.bits:
                self._handshakes.add(host, syns, syns["key"])

    def largest(self, host: int) -> int:
        """The most packets of a host in one partition so far."""
        return self._core.largest(host)

    def notes(self, host: int) -> Notes:
        """The facts about a host from its packets so far."""
        events_count, unknown_count, first_ns, last_ns, pairs, own, others, answers = self._core.notes(host)
        by_pair = {(src, dst): count for src, dst, count in pairs}
        gaps_ns = {(ack, seq): (asker, answerer, ns) for ack, seq, asker, answerer, ns in answers}
        ends = (frozenset(own), frozenset(others))
        return Notes(events_count, unknown_count, first_ns, last_ns, by_pair, *ends, gaps_ns)

    def file_span(self, host: int, frames_before: int) -> tuple[int, int] | None:
        """First and last timestamp (ns) of the host's file that was added last; None if it has no packet.

        Arguments: `frames_before`, packets of the host's earlier files.
        """
        found = self._core.last_file(host)
        return None if found is None or found[0] != frames_before else found[1:]

    def activity(self, host: int) -> Activity:
        """When the interfaces of a host captured, so far."""
        interfaces, silences, passed, passages = self._core.activity(host)
        spans = tuple((number, (first, last), count) for number, first, last, count in interfaces)
        silent = tuple((number, (begin, end)) for number, begin, end in silences)
        return Activity(spans, silent, tuple(passed), tuple(passages))

    def sights(self, host: int) -> Sequence[Sighted]:
        """The sights of a sample of a host's packets so far."""
        return self._core.sights(host)

    def address_number(self, text: str) -> int:
        """The number of an address, new or known."""
        return self._core.address_number(text)

    def addresses(self) -> list[str]:
        """All addresses, by number."""
        return self._core.addresses()

    def finish(self) -> None:
        """Put 4-tuples that may be one connection into one partition, after all packets have been added.

        Raises: `ResourceError` as `add`.
        """
        moves = self._handshakes.moves()
        with spill_errors(self._spill):
            self._core.finish(moves.keys, moves.to)

    def take(self, number: int, views: Sequence[HostView], order: AddressOrder) -> Taken | None:
        """Remove and return the packets of a partition, by host and frame; None if it is empty."""
        hosts = [(view.own, view.first_point, list(view.lanes), list(view.copying)) for view in views]
        with spill_errors(self._spill):
            taken = self._core.take(number, hosts, order.rank, order.is_loopback)
        if taken is None:
            return None
        events, excerpts, addresses, copies = taken
        return Taken(by_name(events), by_name(excerpts), addresses, copies)

    def close(self) -> None:
        """Release everything, also on disk."""
        self._handshakes.close()
        self._core = _core.Partitions(0, 0, tempfile.gettempdir(), 0)
