"""Partitions: packets grouped by connection, in memory or on disk, so that stages can process one partition at a time.

All packets of a 4-tuple, in both directions and from all hosts, are in one partition. So are 4-tuples that may be one
connection through a NAT or load balancer (`collector.decode.handshakes`). The core loops over the packets
(`collector/core/partitions/src/lib.rs`), and keeps them until their partition is taken.

Cost: ~80 ns a packet to distribute; about 35 bytes a packet in memory, or once to disk and back if they do not fit.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.readers import CaptureReader, Rows
from collector.capture_files.records import Columns, by_name
from collector.decode.address_texts import AddressTexts
from collector.decode.containers import Passage
from collector.decode.copies import Copying
from collector.decode.handshakes import Handshakes, Moves
from collector.decode.merged_captures import Sighted
from collector.execution.spill import spill_errors
from collector.trace.arrow import string_array

ELSEWHERE = 0xFFFF
"""Number of an interface whose packets are ignored."""
MOST_IN_MEMORY_BYTES = 1 << 29
"""Packets are written to disk beyond this size."""


class Notes(Struct, frozen=True):
    """Facts about a host from its packets; addresses are by number."""

    events_count: int
    unknown_count: int  # packets whose direction the capture does not record
    first_ns: int | None
    last_ns: int | None
    pairs: dict[tuple[int, int], int]  # packets by source and destination, while there are few pairs
    own: frozenset[int]  # addresses that the host sent from or received at
    others: frozenset[int]  # at the other end of these; an address in both only passed through
    gaps_ns: dict[tuple[int, int], tuple[int, int, int]]  # as `host_addresses.Traffic.gaps_ns`
    servers: frozenset[tuple[int, int]] = frozenset()  # addresses and ports that answered a SYN


class Activity(Struct, frozen=True):
    """When a host's interfaces captured, as far as timestamps show (ns); interfaces and addresses are by number."""

    interfaces: tuple[tuple[int, tuple[int, int], int], ...]  # each one's first and last stamp, and its packets
    silences: tuple[tuple[int, tuple[int, int]], ...]  # longer times without a packet, and of which interface
    passed: tuple[tuple[int, int, int, int], ...]  # source, destination, interface, packets
    passages: tuple[Passage, ...]  # of a sample of packets that several interfaces saw


class HostView(Struct, frozen=True):
    """The facts needed to interpret a host's packets; addresses are by their numbers in these packets.

    `own`, its own addresses (with loopback ones); `rank`, of an address among the sorted texts of all; `first_point`,
    the number of its first one; `lanes`, of addresses that are lanes: address, host and interface; `copying`, the
    copies in its capture.
    """

    own: NDArray[np.bool_]
    rank: NDArray[np.uint32]
    first_point: int
    lanes: tuple[tuple[int, int, int], ...] = ()
    copying: tuple[Copying, ...] = ()

    def with_numbers(self, numbers: NDArray[np.uint32]) -> "HostView":
        """The same facts for packets of which an address has number n where this view has `numbers[n]`."""
        new: dict[int, int] = {}
        if self.lanes or self.copying:
            new = {number: place for place, number in enumerate(numbers.tolist())}
        lanes = [(new[address], host, place) for address, host, place in self.lanes if address in new]
        copying = [
            (new[src], new[dst], place, times, longest_ns)
            for src, dst, place, times, longest_ns in self.copying
            if src in new and dst in new
        ]
        return HostView(self.own[numbers], self.rank[numbers], self.first_point, tuple(lanes), tuple(copying))


SavedPart = tuple[int, int, int, int]
"""The place of a host's packets of a partition in a file: where rows begin, their bytes, their number, the excerpts'
bytes."""


class Taken(Struct, frozen=True):
    """A partition's packets and excerpts by column, the ranks of their addresses (ascending), and for each capture the
    number of packets omitted as copies."""

    events: Columns
    excerpts: Columns
    addresses: NDArray[np.uint32]
    copies: NDArray[np.uint32]


class Packets(Protocol):
    """Packets of all hosts by partition, once they are read: `Partitions`, or in files that processes share."""

    bits: int

    def __len__(self) -> int: ...

    def largest(self, host: int) -> int:
        """The most packets of a host in one partition so far."""

    def sights(self, host: int) -> Sequence[Sighted]:
        """The sights of a sample of a host's packets, none if it saw each once; addresses are by number, of this host's
        or of all."""

    def address_number(self, text: str) -> int:
        """The number of an address, new or known."""

    def addresses(self) -> AddressTexts:
        """All addresses, by number."""

    def finish(self) -> None:
        """Put 4-tuples that may be one connection into one partition. Raises: `ResourceError`."""

    def take(self, number: int, views: Sequence[HostView], is_loopback: NDArray[np.bool_]) -> Taken | None:
        """The packets of a partition, by host and frame; None if it is empty.

        Arguments: `is_loopback`, of each address, by its rank.
        """

    def close(self) -> None:
        """Release everything, also on disk."""


class Partitions:
    """Packets by partition, in this process; those that do not fit in memory are in an unnamed file in `spill`."""

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
            fingerprints, keys = reader.spread(rows, self._core, host, frames_before, interfaces)
        with self._lock:
            if self.bits:
                self._handshakes.add(host, fingerprints, keys)

    def largest(self, host: int) -> int:
        """The most packets of a host in one partition so far."""
        return self._core.largest(host)

    def notes(self, host: int) -> Notes:
        """The facts about a host from its packets so far."""
        events_count, unknown_count, first_ns, last_ns, pairs, own, others, answers, servers = self._core.notes(host)
        by_pair = {(src, dst): count for src, dst, count in pairs}
        gaps_ns = {(ack, seq): (asker, answerer, ns) for ack, seq, asker, answerer, ns in answers}
        ends = (frozenset(own), frozenset(others))
        return Notes(events_count, unknown_count, first_ns, last_ns, by_pair, *ends, gaps_ns, frozenset(servers))

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
        """The sights of a sample of a host's packets so far; none if it saw each once."""
        return self._core.sights(host)

    def address_number(self, text: str) -> int:
        """The number of an address, new or known."""
        return self._core.address_number(text)

    def addresses(self) -> AddressTexts:
        """All addresses, by number."""
        return AddressTexts(string_array(*self._core.addresses()))

    def finish(self) -> None:
        """Put 4-tuples that may be one connection into one partition, after all packets have been added.

        Raises: `ResourceError` as `add`.
        """
        self.regroup(self._handshakes.moves())

    def regroup(self, moves: Moves) -> None:
        """Put packets of some keys into the partitions of others; none can be added any more. Raises: as `finish`."""
        with spill_errors(self._spill):
            self._core.finish(moves.keys, moves.to)

    def save(self, host: int, path: Path) -> list[SavedPart]:
        """Move a host's packets to a new file, from which other processes `load` them; their places, by partition.

        Raises: `ResourceError` if there is no room.
        """
        with spill_errors(path.parent):
            return self._core.save(host, path)

    def save_handshakes(self, path: Path) -> None:
        """Write the fingerprints of handshakes to a new file, for `handshakes.moves_of_files`. Raises: as `save`."""
        with spill_errors(path.parent):
            self._handshakes.save(path)

    def load(self, number: int, host: int, path: Path, saved: SavedPart) -> None:
        """Read into a partition what another process saved of a host; addresses keep the numbers that they had there.

        Raises: `ResourceError` if they fit neither in memory nor on disk.
        """
        with spill_errors(self._spill):
            self._core.load(number, host, path, saved)

    def take(self, number: int, views: Sequence[HostView], is_loopback: NDArray[np.bool_]) -> Taken | None:
        """Remove and return the packets of a partition, by host and frame; None if it is empty.

        Arguments: `is_loopback`, of each address, by its rank.
        """
        hosts = [(view.own, view.rank, view.first_point, list(view.lanes), list(view.copying)) for view in views]
        with spill_errors(self._spill):
            taken = self._core.take(number, hosts, is_loopback)
        if taken is None:
            return None
        events, excerpts, addresses, copies = taken
        return Taken(by_name(events), by_name(excerpts), addresses, copies)

    def close(self) -> None:
        """Release everything, also on disk."""
        self._handshakes.close()
        self._core = _core.Partitions(0, 0, tempfile.gettempdir(), 0)
