"""Captures of several hosts, decoded: packets by partition, hosts, counters.

The first stage. The core decodes a batch at a time and spreads it over partitions (`collector.partitions`); here is
what must be known of whole captures: hosts, their interfaces and own addresses, which give a partition's packets their
meaning when it is taken. Hosts are read side by side.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector import capture_sets, copies, merged_captures
from collector.absurd_stamps import FAR_NS, STAMPS_ABSURD, Absurd, Believed, believed_stamps
from collector.checksums import COOKED_2, Checksum, tcp_checksum, tcp_payload
from collector.containers import containers
from collector.coverage import DropSpan, FileSpan, HostActivity, PointActivity, Span
from collector.forwarders import forwarded_pairs, forwarded_rows, without_forwarded
from collector.hosts import Traffic, is_loopback, own_addresses
from collector.input_limits import LIMITED, InputLimits, PartitionFull, cut_counter
from collector.partitions import ELSEWHERE, Activity, AddressOrder, HostView, Notes, Partitions
from collector.progress import SILENT, Counted, Progress, Stage
from collector.services import clues, id_headers
from collector.store import CounterInfo, HostInfo, PointInfo
from collector.wire_text import head_batch
from tracer import secret_rules
from tracer.errors import InputError
from tracer.plain_text import plain
from tracer.readers import CaptureReader, Drops, EndpointClues, Interface, open_capture
from tracer.records import Columns, Severity

BYTES_PER_PACKET = 90
"""Of a capture file with headers and message heads; only to guess how many partitions are worth while."""
GZIP_RATIO = 6
EVENTS_PER_PARTITION = 500_000
"""Bounds memory: about 400 bytes an event while a partition's stages run."""
MOST_PARTITION_BITS = 10
LAST_BITS, MORE_BITS = 12, 4
"""More partitions than the sizes of files ask for, and how many more at a time, while one holds too much of a host."""
LAST_FRAME = (1 << 32) - 2
"""Of one host; the next number says that there is none. Of a single file the reader leaves out what is beyond it."""
READERS = 2
"""Hosts read side by side."""
LOOKED_AT_ONCE = 1_024
"""Packets that are read again together."""
NO_ADDRESSES: Mapping[str, frozenset[str]] = {}
NOTHING = Notes(0, 0, None, None, {}, frozenset(), frozenset(), {})
NO_ACTIVITY = Activity({}, (), (), (), ())
CAPTURE_DROPPED = "capture_dropped"
"""The counter of packets that a capture says it dropped (`tracer/core/wire/src/counters.rs`)."""
SINCE_PREFIX = "twintap.since="
"""Of the comment in which an agent's sections say when their capture began."""
LONGEST_CAPTURE_NS = 366 * 86_400 * 10**9
"""A capture that says it began longer than that before its first packet, or after it, is not believed."""


@dataclass(frozen=True, slots=True)
class HostSource:
    """The captures of one host, in order. `host` is None where it was not told: then the capture or its name tells."""

    host: str | None
    files: tuple[Path, ...]
    folder: Path | None = None
    """Where the folder is that gave the host its name; None if the name was given, or there is none."""
    interfaces: frozenset[int] | None = None
    """Of its single file those that are its own, in the order in which they occur; None if all are."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Packets of some connections, of all hosts, and the HTTP heads in them.

    `events` by column, as the core's matching takes them (`EVENT_COLUMNS` and what `partitions.Taken` adds); their
    `*_place` and address columns are places in `hosts`, `points` and `addresses`. `heads` as in `HEAD_COLUMNS` and
    `HEAD_STRINGS`, with `event_row`, each one's row in `events`. `forwarded`: rows that a host on the path saw, which
    are no end's (`collector.forwarders`); None if there are none.
    """

    events: Columns
    heads: pa.RecordBatch
    hosts: pa.StringArray
    points: pa.StringArray
    addresses: pa.StringArray
    forwarded: NDArray[np.bool_] | None = None


@dataclass(slots=True)
class _Capture:
    """One host while its files are read."""

    host: str
    files: tuple[str, ...]
    interfaces: list[str] = field(default_factory=list)
    points: tuple[PointInfo, ...] = ()
    packets_count: int = 0
    notes: Notes = NOTHING
    named_addresses: frozenset[int] = frozenset()
    counters: list[CounterInfo] = field(default_factory=list)
    clues: dict[tuple[str, int], list[EndpointClues]] = field(default_factory=dict)
    chosen: frozenset[int] | None = None
    """As `HostSource.interfaces`."""
    absurd: Absurd = field(default_factory=Absurd)
    damaged: list[int] = field(default_factory=list)
    """Frames that an agent marked: their checksums were wrong when they were received."""
    elsewhere_count: int = 0
    """Packets of other hosts' interfaces."""
    is_twice: bool = False
    """Its packets are there twice, and nothing shows whose: it has no own end."""
    copied: copies.Copied | None = None
    """Its packets are there more than once, a moment apart: each is taken once."""
    _places: dict[tuple[str | int, int], int] = field(default_factory=dict)

    _series: int = 0
    file_spans: list[list[FileSpan]] = field(default_factory=list)
    """Of each of `interfaces`."""
    drops: dict[int, list[DropSpan]] = field(default_factory=dict)
    """Of those that dropped packets."""
    _statistics_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last ones' time of each interface and agent's capture."""
    activity: Activity = NO_ACTIVITY

    def note_file(self, reader: CaptureReader, span: Span | None) -> None:
        """Note when a file that has been read captured: `span`, its first and last stamp, if it holds a packet.

        What an agent's first section says of its capture's beginning holds for the file: each segment is one.
        """
        since = next((int(text) for text in map(_since, reader.comments) if text.isdecimal()), None)
        numbers = sorted(set(self.places(reader).tolist()) - {ELSEWHERE})
        self.file_spans += [[] for _ in range(len(self.interfaces) - len(self.file_spans))]
        if span is None:
            return
        if since is not None and not 0 <= span[0] - since <= LONGEST_CAPTURE_NS:
            since = None
        for number, drops in self._drops(reader, span, since):
            self.drops.setdefault(number, []).append(drops)
        for number in numbers:
            self.file_spans[number].append(FileSpan(*span, since))

    def _drops(self, reader: CaptureReader, span: Span, since: int | None) -> Iterator[tuple[int, DropSpan]]:
        """When the file's capture dropped packets by its own statistics, for each place in `interfaces`.

        An agent's statistics are of what happened since those of its segment before, if that is of the same capture.
        Packets that blocks between them say were dropped (`epb_dropcount`) may be from anywhere in the file.
        """
        places = self.places(reader)
        everywhere = sorted(set(places.tolist()) - {ELSEWHERE})
        for interface, place in zip(reader.interfaces, places.tolist(), strict=True):
            if place == ELSEWHERE:
                continue
            of = everywhere if interface.link_type == COOKED_2 else [place]
            for drops in interface.drops:
                begin, end = _statistics_span(drops, span)
                if since is not None:
                    begin = min(begin, self._statistics_ns.get((place, since), since))
                    self._statistics_ns[place, since] = end
                if drops.count:
                    yield from ((number, DropSpan(begin, max(begin, end), drops.count)) for number in of)
        told = sum(interface.dropped_count or 0 for interface in reader.interfaces)
        more = next((each.count for each in reader.counters if each.name == CAPTURE_DROPPED), 0) - told
        if more > 0:
            yield from ((number, DropSpan(*span, more)) for number in everywhere)

    def host_activity(self, texts: Sequence[str]) -> HostActivity:
        """When its points captured, as far as files and packets show; addresses by `texts`."""
        seen = {number: span for number, span, _ in self.activity.interfaces}
        silent = self.activity.silences
        points = [
            PointActivity(
                tuple(files),
                tuple(span for number, span in silent if number == place),
                seen.get(place),
                tuple(sorted(self.drops.get(place, ()), key=lambda drops: drops.from_ns)),
            )
            for place, files in enumerate(self.file_spans)
        ]
        passed: dict[tuple[str, str], set[int]] = {}
        for src, dst, place, _ in self.activity.passed:
            passed.setdefault((texts[src], texts[dst]), set()).add(place)
        return HostActivity(tuple(points), {pair: frozenset(places) for pair, places in passed.items()})

    def begin_file(self, first_ns: int) -> None:
        """Note the first stamp of the next file: one that goes on where the last ended is of the same series."""
        if self.notes.last_ns is not None and first_ns < self.notes.last_ns:
            self._series += 1

    def places(self, reader: CaptureReader) -> NDArray[np.uint16]:
        """Of each interface of the file begun last, its place in `interfaces`, or ELSEWHERE.

        A name is one interface in all files and sections: each of an agent's segments describes its interfaces again,
        and a packet sent again in the next segment is no second sight of the first. Two of one name in a file that no
        agent wrote are two. Interfaces without names are the same in files that follow each other in time
        (`tcpdump -C`), and others in files of the same time.
        """
        found, times = [], Counter[str]()
        for interface in reader.interfaces:
            key = (interface.name, times[interface.name]) if interface.name else (self._series, interface.index)
            times[interface.name] += not reader.host
            if key not in self._places:
                is_own = self.chosen is None or len(self._places) in self.chosen
                self._places[key] = len(self.interfaces) if is_own else ELSEWHERE
                if is_own:
                    self.interfaces.append(
                        _shown_name(interface) + (f"-{key[1] + 1}" if interface.name and key[1] else "")
                    )
            found.append(self._places[key])
        return np.array(found, dtype=np.uint16)

    def traffic(self) -> Traffic:
        """What it shows of its host."""
        if self.is_twice:
            return Traffic({}, self.named_addresses)
        told, others = self.notes.own, self.notes.others
        return Traffic(self.notes.pairs, self.named_addresses or told - others, told & others, self.notes.gaps_ns)


class Scan:
    """All captures, read once; a context manager, for what is on disk goes with it.

    `hosts` (in their given order), `counters` and `clues` (by host, and by address and port of a server) are whole;
    events come by partition.
    `activities` says of each host when its interfaces captured, and `interfaces` which these are; `coverage.coverages`
    makes intervals of it. `absurd` has of some hosts the frames whose stamps are not their own.

    A node's containers are hosts too (`collector.containers`): `clock_of` has whose clock each of them goes by, and
    `clock_windows` and `frames` each clock's first and last stamp, and how many frames it stamped.
    """

    def __init__(
        self,
        captures: list[_Capture],
        partitions: Partitions,
        counters: Sequence[CounterInfo],
        ranks: Mapping[str, int],
    ) -> None:
        traffic = [capture.traffic() for capture in captures]
        self._forwarded = forwarded_pairs(traffic)
        named = [capture.named_addresses for capture in captures]
        own = own_addresses(list(map(without_forwarded, traffic, self._forwarded, named)))
        lanes = _lanes(captures, own, partitions.addresses())
        own = [mine - {address for lane in lanes for address in lane.addresses} for mine in own]
        self._partitions, texts = partitions, partitions.addresses()
        order = np.argsort(texts)
        self._number_of_rank = order
        self._texts = pa.array(texts, pa.string()).take(pa.array(order))
        loopback = np.array([is_loopback(text) for text in texts], dtype=np.bool_)
        self._order = AddressOrder(np.argsort(order).astype(np.uint32), loopback[order])
        self._names = pa.array([*(capture.host for capture in captures), *(lane.name for lane in lanes)], pa.string())
        points = [f"{capture.host}/{name}" for capture in captures for name in capture.interfaces]
        self._points = pa.array(points, pa.string())
        self._views = list(_views(captures, own, loopback, lanes))
        of_captures = zip(captures, own, self._forwarded, strict=True)
        infos = [replace(_host_info(capture, mine, texts), on_path=bool(pairs)) for capture, mine, pairs in of_captures]
        split = {lane.capture for lane in lanes}
        kept = [info for number, info in enumerate(infos) if own[number] or number not in split]
        found = (*kept, *(lane.info(captures[lane.capture], texts) for lane in lanes))
        self.hosts = tuple(sorted(found, key=lambda info: ranks.get(info.host, len(ranks))))
        self.clues = {capture.host: capture.clues for capture in captures}
        self.clues |= {lane.name: captures[lane.capture].clues for lane in lanes}
        self.clock_of = {lane.name: captures[lane.capture].host for lane in lanes}
        self.clock_windows = [
            (info.host, info.first_host_ns, info.last_host_ns)
            for info in infos
            if info.first_host_ns is not None and info.last_host_ns is not None
        ]
        self.absurd = {capture.host: capture.absurd.all_frames() for capture in captures if capture.absurd.count}
        self.absurd |= {
            lane.name: self.absurd[captures[lane.capture].host]
            for lane in lanes
            if captures[lane.capture].host in self.absurd
        }
        self._marked = {capture.host: frozenset(capture.damaged) for capture in captures if capture.damaged}
        self.frames = {capture.host: capture.packets_count for capture in captures}
        self.activities = {capture.host: capture.host_activity(texts) for capture in captures}
        self.interfaces = {capture.host: tuple(capture.interfaces) for capture in captures}
        for lane in lanes:
            of_host = captures[lane.capture].host
            self.activities[lane.name] = HostActivity((self.activities[of_host].points[lane.interface],))
            self.interfaces[lane.name] = (self.interfaces[of_host][lane.interface],)
        unsettled = [
            number for number, mine in enumerate(own) if not (mine or number in split or self._forwarded[number])
        ]
        undirected = [_undirected(captures[number]) for number in unsettled]
        of_files = [counter for capture in captures for counter in capture_sets.by_name(capture.counters)]
        absurd = [capture.absurd.counter(capture.host) for capture in captures]
        self.counters = (*counters, *of_files, *(counter for counter in (*absurd, *undirected) if counter is not None))
        self._captures, self._copies, self._lock = captures, [0] * len(captures), Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what partitions hold, in memory and on disk; none can be taken any more."""
        self._partitions.close()

    def __len__(self) -> int:
        return len(self._partitions)

    def look(self, host: str, frames: Sequence[int]) -> Iterator[tuple[int, Checksum]]:
        """Of packets of a host's captures, read again, frame and what the TCP checksum is.

        Arguments: `frames` ascending. What an agent wrote is judged by its marks, where there are any: it keeps no
        whole packets, and has overwritten secrets.
        """
        marked = self._marked.get(self.clock_of.get(host, host), frozenset())
        for frame, link_type, data in self._again(host, frames):
            if data is not None:
                yield frame, tcp_checksum(link_type, data)
            elif marked:
                yield frame, Checksum.BAD if frame in marked else Checksum.GOOD

    def payloads(self, host: str, frames: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """As `look`, frame and TCP payload as on the wire, only to be looked at; without those that an agent wrote."""
        for frame, link_type, data in self._again(host, frames):
            if data is not None:
                yield frame, tcp_payload(link_type, data)

    def _again(self, host: str, frames: Sequence[int]) -> Iterator[tuple[int, int, bytes | None]]:
        """Packets of a host's captures, read again: frame, link type, bytes as on the wire (None if an agent wrote
        them)."""
        as_they_are = secret_rules.rules(secret_rules.SecretChoice(are_kept=True))
        name = self.clock_of.get(host, host)
        files = next(capture.files for capture in self._captures if capture.host == name)
        waiting, before = list(frames), 0
        for file in files if waiting else ():
            with open_capture(file, secrets=as_they_are) as reader:
                while part := [frame - before for frame in waiting[:LOOKED_AT_ONCE]]:
                    found = reader.copy_packets(part)
                    links = [interface.link_type for interface in reader.interfaces]
                    is_agents = reader.host is not None
                    for copy in found:
                        yield copy.frame + before, links[copy.interface], None if is_agents else copy.data
                    waiting = waiting[len(found) :]
                    if len(found) < len(part):
                        break
                before += reader.packets_count

    @property
    def has_drops(self) -> bool:
        """Whether any capture says when it dropped packets."""
        return any(point.drops for activity in self.activities.values() for point in activity.points)

    @property
    def marking(self) -> frozenset[str]:
        """Hosts whose agents marked packets that arrived damaged."""
        return frozenset(host for host in self.activities if self.clock_of.get(host, host) in self._marked)

    @property
    def largest(self) -> int:
        """No partition that is not taken yet holds more packets."""
        return sum(self._partitions.largest(number) for number in range(len(self._captures)))

    def copies(self) -> tuple[CounterInfo, ...]:
        """Packets of each capture that were left out as copies, in the partitions that were taken so far."""
        with self._lock:
            found = zip(self._captures, self._copies, strict=True)
            return tuple(
                copies.left_out(capture.host, capture.files, capture.copied, count)
                for capture, count in found
                if capture.copied and count
            )

    def take(self, number: int) -> Decoded | None:
        """The events and heads of one partition, host by host in the order of its frames; None if it is empty.

        A partition can be taken once.
        """
        taken = self._partitions.take(number, self._views, self._order)
        if taken is None:
            return None
        with self._lock:
            self._copies = [known + count for known, count in zip(self._copies, taken.copies.tolist(), strict=True)]
        addresses = self._texts.take(pa.array(taken.addresses))
        forwarded = forwarded_rows(taken.events, self._forwarded, self._number_of_rank[taken.addresses])
        return Decoded(taken.events, head_batch(taken.heads), self._names, self._points, addresses, forwarded)


@dataclass(frozen=True, slots=True)
class _Lane:
    """A container of a capture's host, as a host of its own; addresses and interface by number."""

    name: str
    host: int
    capture: int
    addresses: tuple[int, ...]
    interface: int

    def info(self, capture: _Capture, texts: Sequence[str]) -> HostInfo:
        """What its interface shows of it."""
        name = capture.interfaces[self.interface]
        points = tuple(point for point in capture.points if point.interface == name)
        ((span, count),) = [(span, n) for number, span, n in capture.activity.interfaces if number == self.interface]
        addresses = tuple(sorted(texts[address] for address in self.addresses))
        return HostInfo(self.name, addresses, points, capture.files, count, count, *span)


def _lanes(captures: Sequence[_Capture], own: Sequence[frozenset[int]], texts: Sequence[str]) -> list[_Lane]:
    """The containers of all captures."""
    found: list[_Lane] = []
    for number, capture in enumerate(captures):
        owned = frozenset().union(*(mine for other, mine in enumerate(own) if other != number))
        owned |= {address for lane in found for address in lane.addresses}
        for each in containers(capture.activity.passages, capture.activity.passed, texts, owned):
            name = texts[each.addresses[0]]
            found.append(_Lane(name, len(captures) + len(found), number, each.addresses, each.interface))
    return found


def _views(
    captures: Sequence[_Capture],
    own: Sequence[frozenset[int]],
    loopback: NDArray[np.bool_],
    lanes: Sequence[_Lane],
) -> Iterator[HostView]:
    first_point = 0
    for number, (capture, mine) in enumerate(zip(captures, own, strict=True)):
        is_own = loopback.copy()
        is_own[list(mine)] = True
        of_capture = [lane for lane in lanes if lane.capture == number]
        behind = tuple((address, lane.host, lane.interface) for lane in of_capture for address in lane.addresses)
        yield HostView(is_own, first_point, behind, capture.copied.ways if capture.copied else ())
        first_point += len(capture.interfaces)


def decode(sources: Sequence[HostSource]) -> Decoded:
    """All events and heads of the captures of all hosts, in memory at once.

    Raises: as `scan`.
    """
    with scan(sources, partition_bits=0) as captures:
        decoded = captures.take(0)
        assert decoded is not None, "scan refuses captures without a packet"
        return decoded


def scan(
    sources: Sequence[HostSource],
    spill: Path | None = None,
    partition_bits: int | None = None,
    progress: Progress = SILENT,
    addresses: Mapping[str, frozenset[str]] = NO_ADDRESSES,
    limits: InputLimits = LIMITED,
) -> Scan:
    """Read the captures of all hosts.

    Arguments: `sources`, one for each host; `spill`, where intermediate data goes if it does not fit in memory; the
    number of partitions is 2^`partition_bits`, by the files' sizes if it is not given; `progress` learns how far it is;
    `addresses`, of some hosts what addresses they have, whatever their captures show; `limits`, how much is taken in.
    Raises: `InputError` for a file that is no capture, addresses of a host that is not there, or if no host's capture
    holds a TCP packet; `ResourceError` if intermediate data finds no room.
    """
    named, alike, ranks = _merged_by_name(sources)
    unknown = sorted(addresses.keys() - {source.host for source in named})
    if unknown:
        known = ", ".join(str(source.host) for source in named)
        raise InputError(f"no capture is of host {unknown[0]}", f"give --address for one of: {known}")
    how = _Reading(spill, partition_bits, progress, addresses, limits)
    captures, partitions = _read(named, how)
    believed = _believed(named, captures)
    if believed:
        partitions.close()
        how = replace(how, believed=believed)
        captures, partitions = _read(named, how)
    merged = [
        place
        for place, source in enumerate(named)
        if len(source.files) == 1
        and source.host not in addresses
        and merged_captures.interfaces_are_hosts(partitions.sights(place))
    ]
    split: list[CounterInfo] = []
    if merged:
        partitions.close()
        alike = {name: [place for place in places if place not in merged] for name, places in alike.items()}
        apart = _by_interface(named, merged, captures)
        captures, partitions = _read([source for source, _ in apart], how)
        named, split = _by_address(named, apart, captures, partitions.addresses())
        partitions.close()
        captures, partitions = _read(named, how)
    hosts, counters = _as_hosts(named, alike, captures)
    if hosts != named:
        partitions.close()
        captures, partitions = _read(hosts, how)
    return Scan(captures, partitions, [*split, *counters], ranks)


def _by_interface(
    named: Sequence[HostSource], merged: Sequence[int], captures: Sequence[_Capture]
) -> list[tuple[HostSource, int]]:
    """The sources, and in place of each one at `merged` one for each of its interfaces; all with the place they had.

    The first interface has its file's place, with those that captured nothing; the others come behind all sources.
    """
    apart = list(zip(named, range(len(named)), strict=True))
    for place in merged:
        capture = captures[place]
        numbers = [number for number, _, _ in capture.activity.interfaces]
        silent = set(range(len(capture.interfaces))) - set(numbers)
        sources = [
            replace(named[place], host=f"{capture.host}-{capture.interfaces[number]}", interfaces=frozenset({number}))
            for number in numbers
        ]
        apart[place] = (replace(sources[0], interfaces=frozenset({numbers[0], *silent})), place)
        apart += [(source, place) for source in sources[1:]]
    return apart


def _by_address(
    named: Sequence[HostSource],
    apart: Sequence[tuple[HostSource, int]],
    captures: Sequence[_Capture],
    texts: Sequence[str],
) -> tuple[list[HostSource], list[CounterInfo]]:
    """`apart` with addresses for names, interfaces with an address in common as one; and what is to be said of that."""
    own = own_addresses([capture.traffic() for capture in captures])
    taken = {source.host for source in named}
    found: list[tuple[HostSource, int]] = list(apart[: len(named)])
    split: dict[int, dict[int, frozenset[int]]] = {}
    for number, (source, place) in enumerate(apart):
        if source.interfaces is None:
            continue
        mine = own[number] or own_addresses([captures[number].traffic()])[0]
        known = split.setdefault(place, {})
        same = next((other for other, addresses in known.items() if addresses & mine), None)
        if same is not None:
            before = found[same][0]
            assert before.interfaces is not None, "of a file that is split"
            found[same] = (replace(before, interfaces=before.interfaces | source.interfaces), place)
            continue
        name = min((texts[address] for address in mine), default=source.host)
        host = source.host if name in taken else name
        taken.add(host)
        at = place if number < len(named) else len(found)
        found[at:] = [(replace(source, host=host), place), *found[at + 1 :]]
        known[at] = mine
    counters = [
        merged_captures.split(str(named[place].host), [str(found[at][0].host) for at in known])
        for place, known in split.items()
    ]
    return [source for source, _ in found], counters


@dataclass(frozen=True, slots=True)
class _Reading:
    """How captures are read: as the arguments of `scan`, and which of their stamps are believed."""

    spill: Path | None
    partition_bits: int | None
    progress: Progress
    addresses: Mapping[str, frozenset[str]]
    limits: InputLimits
    believed: Believed = field(default_factory=dict)


def _believed(named: Sequence[HostSource], captures: Sequence[_Capture]) -> Believed:
    """Of the captures that last for years, which stamps are not damage."""
    found: dict[Path, Sequence[tuple[int, int]]] = {}
    for source, capture in zip(named, captures, strict=True):
        first_ns, last_ns = capture.notes.first_ns, capture.notes.last_ns
        if first_ns is not None and last_ns is not None and last_ns - first_ns >= FAR_NS:
            found |= dict.fromkeys(source.files, believed_stamps(source.files))
    return found


def _read(named: Sequence[HostSource], how: _Reading) -> tuple[list[_Capture], Partitions]:
    """The captures of the named hosts, and their packets, in as many partitions as they need. Raises: as `scan`."""
    if how.partition_bits is not None:
        return _read_into(how.partition_bits, named, replace(how, limits=replace(how.limits, in_partition=LAST_FRAME)))
    for bits in range(_partition_bits(named), LAST_BITS, MORE_BITS):
        with suppress(PartitionFull):
            return _read_into(bits, named, how)
    return _read_into(LAST_BITS, named, how)


def _read_into(bits: int, named: Sequence[HostSource], how: _Reading) -> tuple[list[_Capture], Partitions]:
    """As `_read`, in 2^`bits` partitions. Raises: `PartitionFull` if one holds too much and there may be more."""
    partitions = Partitions(bits, len(named), how.spill)
    how.progress.begin(Stage.READ)
    done = Counted(how.progress, sum(_size(path) for source in named for path in source.files))
    try:
        with ThreadPoolExecutor(READERS) as pool:
            jobs = [pool.submit(_read_host, *job, partitions, done, how) for job in enumerate(named)]
            captures = [job.result() for job in jobs]
        if not any(capture.notes.events_count for capture in captures):
            files = ", ".join(file for capture in captures for file in capture.files)
            what = f"no TCP packet in {files or 'the given captures'}"
            raise InputError(what, "capture with a filter that includes tcp")
        for capture in captures:
            if capture.host in how.addresses:
                capture.named_addresses = frozenset(map(partitions.address_number, how.addresses[capture.host]))
        partitions.finish()
    except BaseException:
        partitions.close()
        raise
    return captures, partitions


def _as_hosts(
    named: Sequence[HostSource], alike: Mapping[str, Sequence[int]], captures: Sequence[_Capture]
) -> tuple[list[HostSource], list[CounterInfo]]:
    """The hosts that the captures are of, as they show when they are read, and what is to be said of that.

    Arguments: `alike`, of each name that several sources have, the places of these.
    """
    counters, merged, left_out = [], dict[int, int](), set[int]()
    traffic = [capture.traffic() for capture in captures]
    for place, first in enumerate(capture_sets.first_of_same([capture.notes for capture in captures])):
        if first != place:
            left_out.add(place)
            capture = captures[place]
            counters.append(capture_sets.same_capture(capture.host, captures[first].host, capture.packets_count))
    for name, places in alike.items():
        there = [place for place in places if place not in left_out]
        if len(there) < 2:
            continue
        several = capture_sets.are_several_hosts(traffic, there)
        counters.append(capture_sets.same_name(name, [str(named[place].host) for place in there], several))
        merged |= {} if several else dict.fromkeys(there[1:], there[0])
    hosts = []
    for place, source in enumerate(named):
        if place in left_out or place in merged:
            continue
        more = [file for other, into in merged.items() if into == place for file in named[other].files]
        hosts.append(replace(source, files=(*source.files, *more)))
    return hosts, counters


def _partition_bits(sources: Iterable[HostSource]) -> int:
    """Enough partitions that each holds about `EVENTS_PER_PARTITION`, judged by the files' sizes."""
    sizes = [
        path.stat().st_size * (GZIP_RATIO if path.suffix == ".gz" else 1)
        for source in sources
        for path in source.files
        if path.is_file()
    ]
    wanted = sum(sizes) / BYTES_PER_PACKET / EVENTS_PER_PARTITION
    return min(MOST_PARTITION_BITS, max(0, int(np.ceil(np.log2(max(wanted, 1))))))


def _merged_by_name(
    sources: Iterable[HostSource],
) -> tuple[list[HostSource], dict[str, list[int]], dict[str, int]]:
    """Sources that name the same host are one host, their files in the given order; hosts by name, so that nothing that
    is decided between them depends on the order of arguments. The third result has their given order.

    Files that only their stems name, and folders that name hosts, are so where they are in one folder. From several,
    each has a name of its own (`web`, `web-2`), and the second result has, by the stem, their places: who they are is
    seen when they are read.
    """
    files: dict[tuple[str, Path | None], tuple[Path, ...]] = {}
    given = {source.host for source in sources if not source.folder}
    for source in sources:
        said = source.host or _host_said_in(source.files[0])
        folder = source.folder.resolve() if source.folder and source.host not in given else None
        key = (said, folder) if said else (source.files[0].name.split(".", 1)[0], source.files[0].parent.resolve())
        key = (plain(key[0]), key[1])
        files[key] = files.get(key, ()) + source.files
    named: list[HostSource] = []
    places: dict[str, list[int]] = {}
    taken = {name for name, _ in files}
    ranks: dict[str, int] = {}
    rank_of = {key: rank for rank, key in enumerate(files)}
    for key, of_host in sorted(files.items(), key=lambda each: each[0][0]):
        name = key[0]
        earlier = places.setdefault(name, [])
        earlier.append(len(named))
        own_name = name
        for number in itertools.count(2):
            if len(earlier) == 1 or own_name not in taken:
                break
            own_name = f"{name}-{number}"
        taken.add(own_name)
        ranks[own_name] = rank_of[key]
        named.append(HostSource(own_name, of_host))
    return named, {name: of_name for name, of_name in places.items() if len(of_name) > 1}, ranks


def _host_said_in(path: Path) -> str | None:
    """The host that the agent wrote into its capture."""
    with open_capture(path) as reader:
        next(iter(reader.rows()), None)
        return reader.host


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _read_host(number: int, source: HostSource, partitions: Partitions, progress: Counted, how: _Reading) -> _Capture:
    assert source.host is not None
    capture = _Capture(source.host, tuple(map(str, source.files)), chosen=source.interfaces)
    cut: CounterInfo | None = None
    with ExitStack() as opened:
        before: CaptureReader | None = None
        for path in source.files:
            believed, expansion = how.believed.get(path, ()), how.limits.expansion
            reader = open_capture(path, id_headers(), list(clues().values()), believed=believed, limit=expansion)
            opened.enter_context(reader)
            if before is not None:
                reader.go_on_from(before)
                before.close()
            cut = _spread_file(number, capture, reader, partitions, progress, how.limits)
            how.limits.check_expansion(path, reader)
            _note_file(number, capture, reader, partitions)
            before = reader
            if cut is not None:
                capture.counters.append(cut)
                break
    sights = partitions.sights(number)
    capture.copied = copies.copied_packets(sights, capture.activity.passed)
    capture.is_twice = capture.copied is None and merged_captures.is_twice(sights)
    return capture


def _spread_file(
    number: int,
    capture: _Capture,
    reader: CaptureReader,
    partitions: Partitions,
    progress: Counted,
    limits: InputLimits,
) -> CounterInfo | None:
    """Put the packets of a file into partitions; what is to be said if it was not read to its end.

    Raises: `PartitionFull`.
    """
    before = (0, 0)
    for place, rows in enumerate(reader.rows()):
        _check_frames(capture.host, capture.packets_count + reader.packets_count)
        first_ns = rows.first_ns()
        if place == 0 and first_ns is not None:
            capture.begin_file(first_ns)
        partitions.add(number, reader, rows, capture.packets_count, capture.places(reader))
        read = (reader.packets_count, reader.bytes_read)
        progress.done(read[0] - before[0], read[1] - before[1])
        before = read
        if partitions.largest(number) > limits.in_partition:
            if partitions.bits < LAST_BITS:
                raise PartitionFull
            return cut_counter(capture.host, reader.path, read[0], limits.in_partition)
    return None


def _note_file(number: int, capture: _Capture, reader: CaptureReader, partitions: Partitions) -> None:
    """Note what a file that has been read tells of its host."""
    capture.notes = partitions.notes(number)
    capture.activity = partitions.activity(number)
    capture.note_file(reader, capture.activity.files.get(capture.packets_count))
    capture.absurd.note(reader.path, reader, capture.packets_count)
    capture.damaged += (reader.damaged_frames.astype(np.int64) + capture.packets_count).tolist()
    capture.packets_count += reader.packets_count
    _note_origin(capture, reader, partitions)
    of_interfaces = zip(reader.interfaces, capture.places(reader), strict=True)
    capture.elsewhere_count += sum(each.packets_count for each, place in of_interfaces if place == ELSEWHERE)
    for seen in reader.clues:
        capture.clues.setdefault((seen.address, seen.port), []).append(seen)


def _statistics_span(drops: Drops, span: Span) -> Span:
    """When a capture dropped packets; all of its file (`span`) where its statistics do not say it.

    dumpcap writes the times of statistics in µs even where those of its packets are in ns (4.0).
    """
    end = _near(drops.to_ns, span)
    begin = None if drops.from_ns is None else _near(drops.from_ns, span)
    if end is None:
        return span
    return span[0] if begin is None else min(begin, end), end


def _near(at_ns: int, span: Span) -> int | None:
    """`at_ns`, or what it is if it is in µs, if that is of the time of a capture; else None."""
    begin, end = span[0] - LONGEST_CAPTURE_NS, span[1] + LONGEST_CAPTURE_NS
    return next((at for at in (at_ns, at_ns * 1_000) if begin <= at <= end), None)


def _since(comment: str) -> str:
    return comment.removeprefix(SINCE_PREFIX) if comment.startswith(SINCE_PREFIX) else ""


def _check_frames(host: str, count: int) -> None:
    if count > LAST_FRAME:
        what = f"the captures of host {host} hold more than {LAST_FRAME:,} packets, which is as far as frames count"
        raise InputError(what, "make one trace of each stretch of time, from some of the files")


def _note_origin(capture: _Capture, reader: CaptureReader, partitions: Partitions) -> None:
    known = {point.interface for point in capture.points}
    for interface, place in zip(reader.interfaces, capture.places(reader), strict=True):
        name = capture.interfaces[place] if place != ELSEWHERE else ""
        if name and name not in known:
            known.add(name)
            capture.points += (PointInfo(f"{capture.host}/{name}", name, str(interface.link_type)),)
    named = {partitions.address_number(record.address) for record in reader.names if record.name == reader.host}
    capture.named_addresses |= named
    if capture.chosen and 0 not in capture.chosen:
        return  # what is said of the file is said once
    for counter in reader.counters:
        if counter.count and counter.name != STAMPS_ABSURD:
            info = CounterInfo(capture.host, counter.name, str(counter.severity), counter.count, counter.remedy)
            capture.counters.append(info)


def _shown_name(interface: Interface) -> str:
    return interface.name or f"if{interface.index}"


def _host_info(capture: _Capture, own: frozenset[int], texts: Sequence[str]) -> HostInfo:
    addresses = tuple(sorted(text for text in (texts[index] for index in own) if not is_loopback(text)))
    notes = capture.notes
    counts = (capture.packets_count - capture.elsewhere_count, notes.events_count)
    return HostInfo(capture.host, addresses, capture.points, capture.files, *counts, notes.first_ns, notes.last_ns)


def _undirected(capture: _Capture) -> CounterInfo | None:
    """For a host of whose packets nothing tells which way they went."""
    if capture.is_twice:
        return merged_captures.merged(capture.host, capture.packets_count - capture.elsewhere_count)
    remedy = (
        f"nothing shows which end is its own: say so with --address {capture.host}=IP; if several hosts' captures were "
        "merged into it, give one file for each"
    )
    count = capture.notes.unknown_count
    return CounterInfo(capture.host, "direction_unknown", Severity.DATA_LOSS, count, remedy) if count else None
