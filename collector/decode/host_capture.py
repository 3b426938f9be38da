"""Reads the captures of one host: packets go to partitions, all other facts are collected for the host."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.capture_files.joined import locate, parse_name
from collector.capture_files.kept import Kept
from collector.capture_files.owners import Owners
from collector.capture_files.readers import (
    CaptureReader,
    Drops,
    EndpointClues,
    Following,
    Interface,
    TlsKeys,
    open_capture,
)
from collector.capture_files.stamps import StampCounts, add_statements
from collector.decode import copies, merged_captures
from collector.decode.absurd_stamps import STAMPS_ABSURD, Absurd, Believed
from collector.decode.activity import DropSpan, FileSpan, HostActivity, PointActivity, Span
from collector.decode.carried import Followed
from collector.decode.checksums import COOKED_2
from collector.decode.host_addresses import Traffic
from collector.decode.hosts_files import usable_name
from collector.decode.input_limits import InputLimits, PartitionFull, cut_counter
from collector.decode.partitions import ELSEWHERE, Activity, Notes, Packets, Partitions
from collector.execution.progress import CountedProgress, Progress
from collector.services.services import clues, id_headers
from collector.trace.model import CounterInfo, PointInfo
from tracer.errors import InputError
from tracer.plain_text import plain

LAST_BITS, MORE_BITS = 12, 4
"""If a partition holds too much of a host, partitions are increased up to 2^`LAST_BITS`, by `MORE_BITS` at a time."""
READERS_COUNT = 2
"""Hosts that `read_in_threads` reads at a time."""
WHOLE_PACKET_BYTES = 65_535
"""The longest IP packet; captures that keep so much of each cut none."""
LAST_FRAME = (1 << 32) - 2
"""The highest frame number of a host; the next number means none. The reader omits packets of a file beyond it."""
NOTHING = Notes(0, 0, None, None, {}, frozenset(), frozenset(), {})
NO_ACTIVITY = Activity((), (), (), ())
CAPTURE_DROPPED, OUTSIDE_TIME = "capture_dropped", "outside_time"
"""The counters of packets that a capture reports as dropped, and of those outside of the time that was asked for
(`tracer/core/wire/src/counters.rs`)."""
SINCE_PREFIX = "twintap.since="
"""Prefix of the comment in which an agent's sections state when their capture began."""
LONGEST_CAPTURE_NS = 366 * 86_400 * 10**9
"""A stated beginning is ignored if it is longer than this before the capture's first packet, or after it."""


class HostSource(Struct, frozen=True):
    """The captures of one host, in order. If `host` is None, the capture or its file name determines it."""

    host: str | None
    files: tuple[Path, ...]
    folder: Path | None = None
    """The folder of the folder that named the host; None if the name was given, or there is none."""
    interfaces: frozenset[int] | None = None
    """The interfaces of its single file that are the host's own, in order of occurrence; None for all."""
    is_guessed: bool = False
    """Nothing but its file's name, or its address, names it."""


class HostCapture(Struct):
    """One host while its files are read."""

    host: str
    files: tuple[str, ...]
    interfaces: list[str] = field(default_factory=list)
    points: tuple[PointInfo, ...] = ()
    packets_count: int = 0
    tick_ns: int = 0
    """The longest clock tick of its interfaces, 0 if none is longer than 1 ns: packets were up to one later than their
    timestamps. Or how far stamps of its cards may be off, if that is more."""
    is_cut: bool = False
    """Whether packets may have been kept in part: by a limit that the file states, or by the options of an agent."""
    notes: Notes = NOTHING
    named_addresses: frozenset[int] = frozenset()
    counters: list[CounterInfo] = field(default_factory=list)
    clues: dict[tuple[str, int], list[EndpointClues]] = field(default_factory=dict)
    chosen: frozenset[int] | None = None
    """As `HostSource.interfaces`."""
    absurd: Absurd = field(default_factory=Absurd)
    damaged: list[int] = field(default_factory=list)
    """Frames that an agent marked because their checksums were wrong on arrival."""
    wanted: Span | None = None
    """As `Reading.wanted`."""
    elsewhere_count: int = 0
    """Packets of other hosts' interfaces, or outside of the time that was asked for."""
    is_twice: bool = False
    """Its packets are captured twice, and it is unknown which sight is whose: it has no own end."""
    copied: copies.Copied | None = None
    """Its packets are captured more than once, a moment apart: each is used once."""
    _places: dict[tuple[str | int, int], int] = field(default_factory=dict)

    _series: int = 0
    _segment: tuple[str, int] | None = None
    """Stem and last number of the previous file, if of an agent's segments."""
    _last_ns: int | None = None
    """Last timestamp of the previous files."""
    file_spans: list[list[FileSpan]] = field(default_factory=list)
    """For each of `interfaces`."""
    drops: dict[int, list[DropSpan]] = field(default_factory=dict)
    """By index of the interfaces that dropped packets."""
    _statistics_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    """The time of the last statistics of each interface and agent's capture."""
    activity: Activity = NO_ACTIVITY
    owners: Owners = field(default_factory=Owners)
    """Who owns the connections of its host, as an agent states."""
    kept: Kept = field(default_factory=Kept)
    """What its agents kept, as they state."""
    stamps: dict[str, StampCounts] = field(default_factory=dict)
    """Who stamped the packets of each interface, as an agent states."""
    is_guessed: bool = False
    """As `HostSource.is_guessed`."""
    file_name: str = ""
    """Its name before `rename`."""
    stated_names: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """By file, the names of addresses in its Name Resolution Blocks, but for those of its own agent."""

    def rename(self, name: str) -> None:
        """Give it a better name than its file's. To be done before anything is made of its name."""
        self.file_name, self.host = self.host, name
        self.points = tuple(replace(point, point=f"{name}/{point.interface}") for point in self.points)
        self.counters = [replace(each, host=name) for each in self.counters]

    def note_file(self, reader: CaptureReader, span: Span | None) -> None:
        """Note when a file that has been read captured: `span`, its first and last timestamp, if it holds a packet.

        The beginning stated in an agent's first section holds for the file: each segment is one file.
        """
        since = next((int(text) for text in map(_since, reader.comments) if text.isdecimal()), None)
        numbers = sorted(set(self.places(reader).tolist()) - {ELSEWHERE})
        self.file_spans += [[] for _ in range(len(self.interfaces) - len(self.file_spans))]
        if span is None:
            return
        self._last_ns = max(span[1], span[1] if self._last_ns is None else self._last_ns)
        if since is not None and not 0 <= span[0] - since <= LONGEST_CAPTURE_NS:
            since = None
        if since is not None and self.wanted is not None:
            since = max(since, self.wanted[0])
        after_gap = self._is_after_gap(reader.path)
        for number, drops in self._drops(reader, span, since, after_gap=after_gap):
            self.drops.setdefault(number, []).append(drops)
        for number in numbers:
            self.file_spans[number].append(FileSpan(*span, since, after_gap))

    def _is_after_gap(self, path: Path) -> bool:
        """Whether a file is an agent's segment of which the one before, by number, was not read just before."""
        names = parse_name(path.name)
        before, self._segment = self._segment, (names.stem, names.last) if names else None
        return names is not None and names.first > 1 and before != (names.stem, names.first - 1)

    def _drops(
        self, reader: CaptureReader, span: Span, since: int | None, *, after_gap: bool
    ) -> Iterator[tuple[int, DropSpan]]:
        """When the file's capture dropped packets according to its own statistics, for each index in `interfaces`.

        An agent's statistics cover the time since those of its previous segment, if that is of the same capture.
        Drops counted in packet blocks (`epb_dropcount`) may have happened anywhere in the file.
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
                    begin = begin if after_gap else min(begin, self._statistics_ns.get((place, since), since))
                    self._statistics_ns[place, since] = end
                if drops.count:
                    yield from ((number, DropSpan(begin, max(begin, end), drops.count)) for number in of)
        counted = sum(interface.dropped_count or 0 for interface in reader.interfaces)
        more = next((each.count for each in reader.counters if each.name == CAPTURE_DROPPED), 0) - counted
        if more > 0:
            yield from ((number, DropSpan(*span, more)) for number in everywhere)

    def host_activity(self, texts: Sequence[str]) -> HostActivity:
        """When its points captured, as far as files and packets show. Arguments: `texts` of the addresses."""
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
        for src, dst, place, _ in self.activity.passed if len(points) > 1 else ():
            passed.setdefault((texts[src], texts[dst]), set()).add(place)
        return HostActivity(tuple(points), {pair: frozenset(places) for pair, places in passed.items()})

    def begin_file(self, first_ns: int) -> None:
        """Note the first timestamp of the next file: if it continues where the last one ended, both are one series."""
        if self._last_ns is not None and first_ns < self._last_ns:
            self._series += 1

    def places(self, reader: CaptureReader) -> NDArray[np.uint16]:
        """For each interface of the current file, its index in `interfaces`, or ELSEWHERE.

        A name is one interface in all files and sections: each of an agent's segments describes its interfaces again,
        and a packet retransmitted in the next segment is no second sight of the first. Two interfaces of one name in a
        file that no agent wrote are different. Interfaces without names are the same in consecutive files
        (`tcpdump -C`), and different in files that overlap in time.
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
            if self._places[key] != ELSEWHERE:
                if interface.resolution_ns > 1:
                    self.tick_ns = max(self.tick_ns, interface.resolution_ns)
                self.is_cut |= bool(reader.host) or 0 < interface.snaplen < WHOLE_PACKET_BYTES
            found.append(self._places[key])
        return np.array(found, dtype=np.uint16)

    def traffic(self) -> Traffic:
        """What it shows of its host."""
        if self.is_twice:
            return Traffic({}, self.named_addresses)
        own, others = self.notes.own, self.notes.others
        return Traffic(self.notes.pairs, self.named_addresses or own - others, own & others, self.notes.gaps_ns)


class Reading(Struct, frozen=True):
    """How captures are read: the arguments of `scan`, and the valid ranges of their timestamps."""

    spill: Path | None
    partition_bits: int | None
    progress: Progress
    addresses: Mapping[str, frozenset[str]]
    limits: InputLimits
    believed: Believed = field(default_factory=dict)
    keys: TlsKeys = field(default_factory=TlsKeys)
    """Secrets that open connections of TLS; those that captures hold are added."""
    wanted: Span | None = None
    """The first and last stamp of the packets to read, by each host's clock."""
    followed: Followed | None = None
    """What is known of connections from before; None to carry nothing on."""
    runs: Mapping[Path, Sequence[Path]] = field(default_factory=dict)
    """For each file the files that it was given with, in order, also those that lie outside of the time to read."""


class ReadsCaptures(Protocol):
    """Reads the captures of all hosts."""

    def __call__(
        self, bits: int, sources: Sequence[HostSource], how: Reading, progress: CountedProgress
    ) -> tuple[list[HostCapture], Packets]:
        """The captures of the hosts, in their order, and their packets in 2^`bits` partitions.

        Raises: `PartitionFull`, or as `collector.decode.captures.scan`.
        """


def read_in_threads(
    bits: int, sources: Sequence[HostSource], how: Reading, progress: CountedProgress
) -> tuple[list[HostCapture], Packets]:
    """As `ReadsCaptures`: some hosts at a time, in threads of this process."""
    partitions = Partitions(bits, len(sources), how.spill)
    try:
        with ThreadPoolExecutor(READERS_COUNT) as pool:
            jobs = [pool.submit(read_host, *job, partitions, progress, how) for job in enumerate(sources)]
            return [job.result() for job in jobs], partitions
    except BaseException:
        partitions.close()
        raise


def read_host(
    number: int, source: HostSource, partitions: Partitions, progress: CountedProgress, how: Reading
) -> HostCapture:
    assert source.host is not None
    capture = HostCapture(source.host, tuple(map(str, source.files)), chosen=source.interfaces, wanted=how.wanted)
    capture.is_guessed = source.is_guessed
    cut: CounterInfo | None = None
    following = _Following(source.host, how.followed, _known_before(source, how, progress))
    with ExitStack() as opened:
        before: CaptureReader | None = None
        for path in source.files:
            reader = opened.enter_context(_open(path, how, how.wanted))
            if before is not None:
                reader.go_on_from(before)
                before.close()
            following.take_up(reader)
            cut = _spread_file(number, capture, reader, partitions, progress, how.limits)
            how.limits.check_expansion(path, reader)
            reader.add_keys_to(how.keys)
            _note_file(number, capture, reader, partitions)
            before = reader
            following.note(reader)
            if cut is not None:
                capture.counters.append(cut)
                break
        following.end(before)
    capture.notes, capture.activity = partitions.notes(number), partitions.activity(number)
    capture.points = tuple(_with_stamps(point, capture.stamps.get(point.interface)) for point in capture.points)
    seen = partitions.sights(number)
    if any(len(sights) > 1 for *_, sights in seen):  # of most captures nothing is there twice
        capture.copied = copies.copied_packets(seen, capture.activity.passed)
        capture.is_twice = capture.copied is None and merged_captures.is_twice(seen)
    return capture


def _open(path: Path, how: Reading, wanted: Span | None) -> CaptureReader:
    return open_capture(
        path,
        id_headers(),
        list(clues().values()),
        believed=how.believed.get(path, ()),
        limit=how.limits.expansion,
        keys=how.keys,
        wanted=wanted,
    )


class _Following(Struct):
    """Takes up what is known of a host's connections with its first file, and copies it for the next period."""

    host: str
    followed: Followed | None
    before: Following | None
    _is_copied: bool = False

    def take_up(self, reader: CaptureReader) -> None:
        """Before a file is read."""
        if self.followed is None:
            return
        if self.before is not None:
            reader.follow(self.before)
        self.before = None
        if not self._is_copied:
            reader.copy_following_at(self.followed.copy_at_ns)

    def note(self, reader: CaptureReader) -> None:
        """After a file was read."""
        if self.followed is not None and (found := reader.copied_following()) is not None:
            self.followed.after[self.host], self._is_copied = found, True

    def end(self, last: CaptureReader | None) -> None:
        """After the host's last file: if all packets came before the copy was due, it is made now."""
        if self.followed is not None and last is not None and not self._is_copied:
            self.followed.after[self.host] = last.take_following()


def _known_before(source: HostSource, how: Reading, progress: CountedProgress) -> Following | None:
    """What is known of a host's connections at the beginning of the time to read; None if nothing is followed."""
    if how.followed is None:
        return None
    assert source.host is not None
    return how.followed.before.get(source.host) or _read_before(source, how, progress)


def _read_before(source: HostSource, how: Reading, progress: CountedProgress) -> Following | None:
    """The same, from the host's packets before that time; None without any. Files that cannot be opened (any more) are
    passed over. These packets are reported, too, but complete no share of the stage."""
    assert how.wanted is not None, "nothing is followed without a time"
    runs = {id(run): run for run in map(how.runs.get, source.files) if run is not None}.values()
    before: CaptureReader | None = None
    with ExitStack() as opened:
        for path in (path for run in runs for path in run):
            try:
                reader = opened.enter_context(_open(path, how, None))
            except InputError:
                continue
            if before is not None:
                reader.go_on_from(before)
                before.close()
            before = reader
            reader.copy_following_at(how.wanted[0])
            read = 0
            for _ in reader.rows():
                progress.note_completed(reader.packets_count - read, 0)
                read = reader.packets_count
                if (found := reader.copied_following()) is not None:
                    return found
            reader.add_keys_to(how.keys)
        return None if before is None else before.take_following()


def _spread_file(
    number: int,
    capture: HostCapture,
    reader: CaptureReader,
    partitions: Partitions,
    progress: CountedProgress,
    limits: InputLimits,
) -> CounterInfo | None:
    """Put the packets of a file into partitions; returns a counter if it was not read to its end.

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
        progress.note_completed(read[0] - before[0], read[1] - before[1])
        before = read
        if partitions.largest(number) > limits.in_partition:
            if partitions.bits < LAST_BITS:
                raise PartitionFull
            return cut_counter(capture.host, reader.path, read[0], limits.in_partition)
    return None


def _note_file(number: int, capture: HostCapture, reader: CaptureReader, partitions: Partitions) -> None:
    """Collect the facts about the host from a file that has been read."""
    span = partitions.file_span(number, capture.packets_count)
    capture.note_file(reader, span)
    capture.kept.add(reader.kept_statements, span[0] if span else None)
    capture.absurd.note(reader.path, reader, capture.packets_count)
    capture.damaged += (reader.damaged_frames.astype(np.int64) + capture.packets_count).tolist()
    capture.packets_count += reader.packets_count
    capture.owners.add(reader.owners)
    add_statements(capture.stamps, reader.stamps)
    capture.tick_ns = max([capture.tick_ns, *(each.error_ns for each in capture.stamps.values())])
    _note_origin(capture, reader, partitions)
    of_interfaces = zip(reader.interfaces, capture.places(reader), strict=True)
    capture.elsewhere_count += sum(each.packets_count for each, place in of_interfaces if place == ELSEWHERE)
    for seen in reader.clues:
        capture.clues.setdefault((seen.address, seen.port), []).append(seen)


def file_size(path: Path) -> int:
    """The bytes of a capture file, or of its part of one; 0 if it is no file."""
    file, part = locate(path)
    if part is not None:
        return part[1]
    return file.stat().st_size if file.is_file() else 0


def _statistics_span(drops: Drops, span: Span) -> Span:
    """When a capture dropped packets; the whole file (`span`) if its statistics do not state it.

    dumpcap (4.0) writes the times of statistics in µs even if those of its packets are in ns.
    """
    end = _near(drops.to_ns, span)
    begin = None if drops.from_ns is None else _near(drops.from_ns, span)
    if end is None:
        return span
    return span[0] if begin is None else min(begin, end), end


def _near(at_ns: int, span: Span) -> int | None:
    """`at_ns`, or its value if it is in µs, whichever is within the capture's time; else None."""
    begin, end = span[0] - LONGEST_CAPTURE_NS, span[1] + LONGEST_CAPTURE_NS
    return next((at for at in (at_ns, at_ns * 1_000) if begin <= at <= end), None)


def _since(comment: str) -> str:
    return comment.removeprefix(SINCE_PREFIX) if comment.startswith(SINCE_PREFIX) else ""


def _check_frames(host: str, count: int) -> None:
    if count > LAST_FRAME:
        what = f"the captures of host {host} hold more than {LAST_FRAME:,} packets, which is as far as frames count"
        raise InputError(what, "make one trace of each stretch of time, from some of the files")


def _note_origin(capture: HostCapture, reader: CaptureReader, partitions: Partitions) -> None:
    known = {point.interface for point in capture.points}
    for interface, place in zip(reader.interfaces, capture.places(reader), strict=True):
        name = capture.interfaces[place] if place != ELSEWHERE else ""
        if name and name not in known:
            known.add(name)
            capture.points += (PointInfo(f"{capture.host}/{name}", name, str(interface.link_type)),)
    agents = None if capture.chosen else reader.host  # an export is of several hosts, and has the names of all of them
    named = {partitions.address_number(record.address) for record in reader.names if record.name == agents}
    capture.named_addresses |= named
    if stated := _stated_names(reader, agents):
        capture.stated_names[plain(reader.path.name)] = stated
    if capture.chosen and 0 not in capture.chosen:
        return  # each file is reported once
    for counter in reader.counters:
        if counter.name == OUTSIDE_TIME:
            capture.elsewhere_count += counter.count
        elif counter.count and counter.name != STAMPS_ABSURD:
            info = CounterInfo(capture.host, counter.name, str(counter.severity), counter.count, counter.remedy)
            capture.counters.append(info)


def _stated_names(reader: CaptureReader, host: str | None) -> dict[str, tuple[str, ...]]:
    """By address its names in a file, in order, but for what an agent says of `host`, its own."""
    found: dict[str, dict[str, None]] = {}
    for record in reader.names:
        name = usable_name(record.name) if record.name != host else None
        if name:
            found.setdefault(record.address, {})[name] = None
    return {address: tuple(names) for address, names in found.items()}


def _with_stamps(point: PointInfo, counts: StampCounts | None) -> PointInfo:
    if counts is None:
        return point
    return replace(
        point,
        hardware_stamps_count=counts.hardware_count,
        software_stamps_count=counts.software_count,
        stamp_error_ns=counts.error_ns,
    )


def _shown_name(interface: Interface) -> str:
    return interface.name or f"if{interface.index}"
