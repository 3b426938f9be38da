"""Decodes the captures of several hosts to packets by partition, hosts, and counters: the first stage.

The core decodes batches of packets and distributes them over partitions (`collector.decode.partitions`). This module
determines what requires whole captures: hosts, their interfaces and own addresses, which are needed to interpret the
packets of a partition. Several hosts are read in parallel.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.capture_files.joined import locate
from collector.capture_files.owners import MOST_ENDS, Owners
from collector.capture_files.readers import TlsKeys, open_capture
from collector.capture_files.records import Severity
from collector.decode import capture_sets, copies, merged_captures
from collector.decode.absurd_stamps import FAR_NS, Believed, believed_stamps
from collector.decode.activity import HostActivity
from collector.decode.address_names import HostToName, choose_host_names, choose_names
from collector.decode.address_texts import AddressTexts
from collector.decode.carried import NOTHING_CARRIED, Carried
from collector.decode.checksums import Checksum, tcp_checksum, tcp_payload
from collector.decode.containers import containers
from collector.decode.decoded import Decoded, Decoder
from collector.decode.forwarders import forwarded_pairs, without_forwarded_traffic
from collector.decode.host_addresses import are_loopback, is_loopback, own_addresses
from collector.decode.host_capture import (
    LAST_BITS,
    LAST_FRAME,
    MORE_BITS,
    HostCapture,
    HostSource,
    Reading,
    ReadsCaptures,
    file_size,
    read_in_threads,
)
from collector.decode.host_identity import sources_by_address, sources_by_host, sources_by_interface, sources_by_name
from collector.decode.hosts_files import NameSource
from collector.decode.input_limits import LIMITED, InputLimits, PartitionFull
from collector.decode.kept_counters import kept_counters
from collector.decode.partitions import HostView, Packets
from collector.decode.time_range import TimeRange, narrow_sources
from collector.execution.progress import SILENT, CountedProgress, Progress, Stage
from collector.trace.model import AddressName, CounterInfo, HostInfo
from tracer.errors import InputError
from tracer.secret_rules import SecretChoice

BYTES_PER_PACKET = 90
"""Of a capture file with headers and message heads; only to estimate the number of partitions."""
GZIP_RATIO = 6
EVENTS_PER_PARTITION = 500_000
"""Bounds memory: about 400 bytes an event while a partition's stages run."""
MOST_PARTITION_BITS = 10
UNREADABLE_REMEDY = (
    "the agent may not see which processes these ends of connections belong to: to record them, start it as root with "
    "--owners processes"
)
MALFORMED_REMEDY = "statements of who owns connections that no agent wrote: take the capture from its agent again"
LEFT_OUT_REMEDY = (
    f"owners are kept of {MOST_ENDS:,} ends of connections of a host (make traces of shorter times), and an agent "
    "looks for those of so many at once as it has memory for"
)
LOOKED_AT_ONCE = 1_024
"""Packets that are read again in one batch."""
NO_ADDRESSES: Mapping[str, frozenset[str]] = {}


class NoPacketsError(InputError):
    """The captures hold no TCP packet, or none of the time that was asked for."""


class Scan:
    """All captures, read once. A context manager: on exit, its files on disk are removed.

    `hosts` (in the given order), `counters` and `clues` (by host, and by address and port of a server) are complete;
    events are read by partition.
    `activities`: for each host, when its interfaces captured; `interfaces`: their names. `coverage.coverages` computes
    intervals from them. `absurd`: by host, the frames with invalid timestamps.

    A node's containers are hosts, too (`collector.decode.containers`): `clock_of` names the clock that each of them
    uses; `clock_windows` and `frames` have each clock's first and last timestamp, and its number of frames;
    `ticks_ns`, how coarse its timestamps are, where coarser than 1 ns; `are_cut`, whether packets may have been cut;
    `kept`, what the agents of a host stated that they kept, where they did. `decoder`, which takes the partitions'
    packets, in this process or in another one.
    """

    def __init__(
        self,
        captures: list[HostCapture],
        partitions: Packets,
        counters: Sequence[CounterInfo],
        ranks: Mapping[str, int],
        known_servers: frozenset[tuple[str, int]] = frozenset(),
        hosts_files: Sequence[NameSource] = (),
    ) -> None:
        traffic = [capture.traffic() for capture in captures]
        forwarded = forwarded_pairs(traffic)
        named = [capture.named_addresses for capture in captures]
        own = own_addresses(list(map(without_forwarded_traffic, traffic, forwarded, named)))
        texts = partitions.addresses()
        lanes = _lanes(captures, own, texts)
        own = [mine - {address for lane in lanes for address in lane.addresses} for mine in own]
        self._partitions = partitions
        self.names, renamed, of_names = _name_hosts(captures, own, lanes, texts, hosts_files)
        ranks = {renamed.get(host, host): rank for host, rank in ranks.items()}
        lanes = [replace(lane, name=renamed.get(lane.name, lane.name)) for lane in lanes]
        of_captures = zip(captures, own, forwarded, strict=True)
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
        self.ticks_ns = {capture.host: capture.tick_ns for capture in captures if capture.tick_ns}
        self.are_cut = any(capture.is_cut for capture in captures)
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
        of_hosts = [(self.activities[captures[lane.capture].host], captures[lane.capture].interfaces) for lane in lanes]
        for lane, (activity, interfaces) in zip(lanes, of_hosts, strict=True):
            self.activities[lane.name] = HostActivity((activity.points[lane.interface],))
            self.interfaces[lane.name] = (interfaces[lane.interface],)
        unsettled = [number for number, mine in enumerate(own) if not (mine or number in split or forwarded[number])]
        undirected = [_undirected_counter(captures[number]) for number in unsettled]
        of_files = [counter for capture in captures for counter in capture_sets.by_name(capture.counters)]
        absurd = [capture.absurd.counter(capture.host) for capture in captures]
        of_owners = _owner_counters(captures)
        self.kept = {capture.host: capture.kept for capture in captures if capture.kept.changes}
        of_kept = [counter for host, kept in self.kept.items() for counter in kept_counters(host, kept)]
        self.kept |= {lane: self.kept[host] for lane, host in self.clock_of.items() if host in self.kept}
        self.counters = (
            *(replace(each, host=renamed.get(each.host, each.host)) if each.host else each for each in counters),
            *of_names,
            *of_files,
            *of_owners,
            *of_kept,
            *(counter for counter in (*absurd, *undirected) if counter is not None),
        )
        self._captures = captures
        owners = _stated_owners(captures, self.clock_of)
        servers = _servers(captures, known_servers, texts)
        self.decoder = _decoder(captures, partitions, texts, own, lanes, forwarded, owners, servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release all partitions, in memory and on disk; none can be taken any more."""
        self._partitions.close()

    def __len__(self) -> int:
        return len(self._partitions)

    def look(self, host: str, frames: Sequence[int]) -> Iterator[tuple[int, Checksum]]:
        """Read packets of a host's captures again: each frame and its TCP checksum's state.

        Arguments: `frames` ascending. Packets written by an agent are judged by the agent's marks, if any: it keeps no
        whole packets and overwrites secrets.
        """
        marked = self._marked.get(self.clock_of.get(host, host), frozenset())
        for frame, link_type, data in self._again(host, frames):
            if data is not None:
                yield frame, tcp_checksum(link_type, data)
            elif marked:
                yield frame, Checksum.BAD if frame in marked else Checksum.GOOD

    def payloads(self, host: str, frames: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Read packets again: each frame and its TCP payload as on the wire; omits packets written by an agent."""
        for frame, link_type, data in self._again(host, frames):
            if data is not None:
                yield frame, tcp_payload(link_type, data)

    def _again(self, host: str, frames: Sequence[int]) -> Iterator[tuple[int, int, bytes | None]]:
        """Read packets of a host's captures again: frame, link type, bytes as on the wire (None if an agent wrote
        them)."""
        as_they_are = SecretChoice(are_kept=True)
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
        """Whether any capture reports when it dropped packets."""
        return any(point.drops for activity in self.activities.values() for point in activity.points)

    @property
    def most_depths(self) -> dict[str, int]:
        """The hosts that kept only some connections at some time, each with the largest depth (`hops.sampling`)."""
        return {host: kept.most_depth for host, kept in self.kept.items() if kept.most_depth}

    @property
    def marking(self) -> frozenset[str]:
        """Hosts whose agents marked packets that arrived damaged."""
        return frozenset(host for host in self.activities if self.clock_of.get(host, host) in self._marked)

    @property
    def largest(self) -> int:
        """The number of packets in the largest partition not taken yet."""
        return sum(self._partitions.largest(number) for number in range(len(self._captures)))

    def copies(self, counts: Sequence[int]) -> tuple[CounterInfo, ...]:
        """Counters of packets omitted as copies; `counts`, for each capture how many they are (`Decoded.copies`)."""
        return tuple(
            copies.copies_counter(capture.host, capture.files, capture.copied, count)
            for capture, count in zip(self._captures, counts, strict=True)
            if capture.copied and count
        )

    def take(self, number: int) -> Decoded | None:
        """As `Decoder.take`."""
        return self.decoder.take(number)


class _Lane(Struct, frozen=True):
    """A container of a capture's host, as a host of its own; addresses and interface by number."""

    name: str
    host: int
    capture: int
    addresses: tuple[int, ...]
    interface: int

    def info(self, capture: HostCapture, texts: Sequence[str]) -> HostInfo:
        """The container as a host, from what its interface shows."""
        name = capture.interfaces[self.interface]
        points = tuple(point for point in capture.points if point.interface == name)
        ((span, count),) = [(span, n) for number, span, n in capture.activity.interfaces if number == self.interface]
        addresses = tuple(sorted(texts[address] for address in self.addresses))
        return HostInfo(self.name, addresses, points, capture.files, count, count, *span)


def _lanes(captures: Sequence[HostCapture], own: Sequence[frozenset[int]], texts: Sequence[str]) -> list[_Lane]:
    """The containers of all captures."""
    found: list[_Lane] = []
    taken = {capture.host for capture in captures}
    for number, capture in enumerate(captures):
        owned = frozenset().union(*(mine for other, mine in enumerate(own) if other != number))
        owned |= {address for lane in found for address in lane.addresses}
        for each in containers(capture.activity.passages, capture.activity.passed, texts, owned):
            address = texts[each.addresses[0]]
            name = f"{address}-{capture.interfaces[each.interface]}" if address in taken else address
            found.append(_Lane(name, len(captures) + len(found), number, each.addresses, each.interface))
    return found


def _pairs_of_network(capture: HostCapture, texts: Sequence[str]) -> Sequence[tuple[str, str]]:
    """The ends of a capture's packets, without those on loopback."""
    pairs = ((texts[src], texts[dst]) for src, dst in capture.notes.pairs)
    return [pair for pair in pairs if not any(map(is_loopback, pair))]


def _name_hosts(
    captures: Sequence[HostCapture],
    own: Sequence[frozenset[int]],
    lanes: Sequence[_Lane],
    texts: Sequence[str],
    hosts_files: Sequence[NameSource],
) -> tuple[tuple[AddressName, ...], dict[str, str], list[CounterInfo]]:
    """The names of addresses, what hosts are called now by what they were called, and what is wrong with names.

    The captures are renamed.
    """
    stated = [NameSource(file, names) for capture in captures for file, names in capture.stated_names.items()]
    if not (stated or hosts_files):
        return (), {}, []
    seen = {texts[end] for end in {end for capture in captures for pair in capture.notes.pairs for end in pair}}
    names, of_names = choose_names(hosts_files, stated, seen)
    hosts = [
        HostToName(
            each.host,
            frozenset(texts[end] for end in mine),
            each.is_guessed,
            () if each.traffic().known else _pairs_of_network(each, texts),
        )
        for each, mine in zip(captures, own, strict=True)
    ]
    hosts += [HostToName(lane.name, frozenset(texts[end] for end in lane.addresses), is_guessed=True) for lane in lanes]
    chosen, of_hosts = choose_host_names(hosts, names)
    for number, capture in enumerate(captures):
        if number in chosen:
            capture.rename(chosen[number])
    return names, {hosts[number].host: name for number, name in chosen.items()}, [*of_names, *of_hosts]


def _stated_owners(captures: Sequence[HostCapture], clock_of: Mapping[str, str]) -> Mapping[str, Owners]:
    """What agents state of who owns connections, by host; of a node's containers its agent does."""
    stated = {capture.host: capture.owners for capture in captures if capture.owners.ends}
    return stated | {host: stated[node] for host, node in clock_of.items() if node in stated}


def _owner_counters(captures: Sequence[HostCapture]) -> Iterator[CounterInfo]:
    """What of agents' statements of owners is missing."""
    for capture in captures:
        owners = capture.owners
        for name, severity, count, remedy in (
            ("owners_unreadable", Severity.INFO, owners.unreadable_count, UNREADABLE_REMEDY),
            ("owners_malformed", Severity.NOTICE, owners.malformed_count, MALFORMED_REMEDY),
            ("owners_left_out", Severity.NOTICE, owners.left_out_count, LEFT_OUT_REMEDY),
        ):
            if count:
                yield CounterInfo(capture.host, name, str(severity), count, remedy)


def _decoder(
    captures: Sequence[HostCapture],
    packets: Packets,
    texts: AddressTexts,
    own: Sequence[frozenset[int]],
    lanes: Sequence[_Lane],
    forwarded: Sequence[frozenset[tuple[int, int]]],
    owners: Mapping[str, Owners],
    servers: Iterable[tuple[int, int]],
) -> Decoder:
    addresses, order = texts.array, texts.order()
    rank = np.empty(len(order), dtype=np.uint32)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    ports: dict[int, list[int]] = {}
    for address, port in sorted(servers):
        ports.setdefault(int(rank[address]), []).append(port)
    loopback = are_loopback(addresses)
    points = [f"{capture.host}/{name}" for capture in captures for name in capture.interfaces]
    return Decoder(
        packets=packets,
        views=list(_views(captures, own, loopback, rank, lanes)),
        hosts=pa.array([*(capture.host for capture in captures), *(lane.name for lane in lanes)], pa.string()),
        points=pa.array(points, pa.string()),
        addresses=addresses.take(pa.array(order)),
        is_loopback=loopback[order],
        numbers=order,
        forwarded=forwarded,
        owners=owners,
        servers=ports,
    )


def _servers(
    captures: Iterable[HostCapture], known: frozenset[tuple[str, int]], texts: Sequence[str]
) -> set[tuple[int, int]]:
    """Addresses, by number, and ports that answered a SYN in these captures or are `known` from before."""
    number = {text: place for place, text in enumerate(texts)} if known else {}
    before = {(number[text], port) for text, port in known if text in number}
    return before.union(*(capture.notes.servers for capture in captures))


def _views(
    captures: Sequence[HostCapture],
    own: Sequence[frozenset[int]],
    loopback: NDArray[np.bool_],
    rank: NDArray[np.uint32],
    lanes: Sequence[_Lane],
) -> Iterator[HostView]:
    first_point = 0
    for number, (capture, mine) in enumerate(zip(captures, own, strict=True)):
        is_own = loopback.copy()
        is_own[list(mine)] = True
        of_capture = [lane for lane in lanes if lane.capture == number]
        behind = tuple((address, lane.host, lane.interface) for lane in of_capture for address in lane.addresses)
        yield HostView(is_own, rank, first_point, behind, capture.copied.ways if capture.copied else ())
        first_point += len(capture.interfaces)


def decode(sources: Sequence[HostSource]) -> Decoded:
    """All events and excerpts of the captures of all hosts, in memory at once.

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
    keys: TlsKeys | None = None,
    wanted: TimeRange | None = None,
    read: ReadsCaptures = read_in_threads,
    carried: Carried = NOTHING_CARRIED,
    hosts_files: Sequence[NameSource] = (),
) -> Scan:
    """Read the captures of all hosts.

    Arguments: `sources`, one for each host; `spill`, a folder for intermediate data that does not fit in memory;
    `partition_bits`: there are 2^n partitions, by default chosen by the files' sizes; `progress` is notified of the
    progress; `addresses` of hosts given by the operator, which override what captures show; `limits` of the input;
    `keys` that open connections of TLS, to which those that the captures hold are added; `wanted`, the time to read,
    by each host's clock; `read`, which reads them in this process or in others; `carried`, what is known from before;
    `hosts_files`, what addresses are called.
    Raises: `InputError` for a file that is no capture, addresses of an unknown host, or if no capture holds a TCP
    packet; `ResourceError` if there is no room for intermediate data.
    """
    named, alike, ranks = sources_by_name(sources if wanted is None else narrow_sources(sources, wanted))
    unknown = sorted(addresses.keys() - {source.host for source in named})
    if unknown:
        known = ", ".join(str(source.host) for source in named)
        raise InputError(f"no capture is of host {unknown[0]}", f"give --address for one of: {known}")
    how = Reading(
        spill, partition_bits, progress, addresses, limits, keys=keys or TlsKeys(), wanted=wanted,
        followed=carried.followed, runs={file: source.files for source in sources for file in source.files},
    )  # fmt: skip
    known_count = how.keys.connections_count()
    captures, partitions = _read_captures(named, how, read)
    if how.keys.connections_count() > known_count:
        # Keys that one capture holds may open connections in another one, or before the block that holds them.
        partitions.close()
        captures, partitions = _read_captures(named, how, read)
    believed = _believed_ranges(named, captures)
    if believed:
        partitions.close()
        how = replace(how, believed=believed)
        captures, partitions = _read_captures(named, how, read)
    merged = [
        place
        for place, source in enumerate(named)
        if len(source.files) == 1
        and source.host not in addresses
        and len(captures[place].interfaces) > 1
        and merged_captures.interfaces_are_hosts(partitions.sights(place))
    ]
    split: list[CounterInfo] = []
    if merged:
        partitions.close()
        alike = {name: [place for place in places if place not in merged] for name, places in alike.items()}
        apart = sources_by_interface(named, merged, captures)
        captures, partitions = _read_captures([source for source, _ in apart], how, read)
        named, split = sources_by_address(named, apart, captures, partitions.addresses())
        partitions.close()
        captures, partitions = _read_captures(named, how, read)
    hosts, counters = sources_by_host(named, alike, captures)
    if hosts != named:
        partitions.close()
        captures, partitions = _read_captures(hosts, how, read)
    return Scan(captures, partitions, [*split, *counters], ranks, carried.servers, hosts_files)


def _believed_ranges(named: Sequence[HostSource], captures: Sequence[HostCapture]) -> Believed:
    """The valid ranges of timestamps, for captures that last for years."""
    found: dict[Path, Sequence[tuple[int, int]]] = {}
    for source, capture in zip(named, captures, strict=True):
        first_ns, last_ns = capture.notes.first_ns, capture.notes.last_ns
        if first_ns is not None and last_ns is not None and last_ns - first_ns >= FAR_NS:
            found |= dict.fromkeys(source.files, believed_stamps(source.files))
    return found


def _read_captures(named: Sequence[HostSource], how: Reading, read: ReadsCaptures) -> tuple[list[HostCapture], Packets]:
    """The captures of the named hosts, and their packets in as many partitions as needed. Raises: as `scan`."""
    if how.partition_bits is not None:
        return _read_into(
            how.partition_bits, named, replace(how, limits=replace(how.limits, in_partition=LAST_FRAME)), read
        )
    for bits in range(_partition_bits(named), LAST_BITS, MORE_BITS):
        with suppress(PartitionFull):
            return _read_into(bits, named, how, read)
    return _read_into(LAST_BITS, named, how, read)


def _read_into(
    bits: int, named: Sequence[HostSource], how: Reading, read: ReadsCaptures
) -> tuple[list[HostCapture], Packets]:
    """The result of `_read_captures` with 2^`bits` partitions. Raises: `PartitionFull` if one is too large and more
    partitions are allowed."""
    how.progress.begin(Stage.READ)
    done = CountedProgress(how.progress, sum(file_size(path) for source in named for path in source.files))
    captures, packets = read(bits, named, how, done)
    try:
        if not any(capture.notes.events_count for capture in captures):
            files = ", ".join(file for capture in captures for file in capture.files)
            when = " in that time" if how.wanted else ""
            what = f"no TCP packet{when} in {files or 'the given captures'}"
            other_times = "give other times: they are of each host's clock, in UTC"
            raise NoPacketsError(what, other_times if how.wanted else "capture with a filter that includes tcp")
        for capture in captures:
            if capture.host in how.addresses:
                capture.named_addresses = frozenset(map(packets.address_number, how.addresses[capture.host]))
        packets.finish()
    except BaseException:
        packets.close()
        raise
    return captures, packets


def _partition_bits(sources: Iterable[HostSource]) -> int:
    """Enough partitions that each holds about `EVENTS_PER_PARTITION`, judged by the files' sizes."""
    sizes = [
        file_size(path) * (GZIP_RATIO if locate(path)[0].suffix in (".gz", ".zst") else 1)
        for source in sources
        for path in source.files
    ]
    wanted = sum(sizes) / BYTES_PER_PACKET / EVENTS_PER_PARTITION
    return min(MOST_PARTITION_BITS, max(0, int(np.ceil(np.log2(max(wanted, 1))))))


def _host_info(capture: HostCapture, own: frozenset[int], texts: Sequence[str]) -> HostInfo:
    addresses = tuple(sorted(text for text in (texts[index] for index in own) if not is_loopback(text)))
    notes = capture.notes
    counts = (capture.packets_count - capture.elsewhere_count, notes.events_count)
    times = (notes.first_ns, notes.last_ns)
    return HostInfo(
        capture.host, addresses, capture.points, capture.files, *counts, *times, file_name=capture.file_name
    )


def _undirected_counter(capture: HostCapture) -> CounterInfo | None:
    """The counter of a host whose packets have no known direction; None for other hosts."""
    if capture.is_twice:
        return merged_captures.merged_counter(capture.host, capture.packets_count - capture.elsewhere_count)
    remedy = (
        f"nothing shows which end is its own: say so with --address {capture.host}=IP; if several hosts' captures were "
        "merged into it, give one file for each"
    )
    count = capture.notes.unknown_count
    return CounterInfo(capture.host, "direction_unknown", Severity.DATA_LOSS, count, remedy) if count else None
