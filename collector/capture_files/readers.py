"""Reads capture files as batches of columns: the only reader for files of `tcpdump`, `dumpcap`, Wireshark and our
agent.

A file is read once, front to back, and is never in memory as a whole. A reader's knowledge of interfaces, addresses,
names and counters grows while it reads. A file that is no capture raises at once; a capture that is damaged or
truncated yields everything before that point, and a counter.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.joined import locate
from collector.capture_files.records import Columns, Counter, Direction, Severity, by_name
from tracer import secret_rules
from tracer.errors import InputError
from tracer.plain_text import plain
from tracer.secret_rules import SecretChoice

TlsKeys = _core.TlsKeys
"""Secrets of TLS connections, which stay in the core."""
Rows = _core.Rows
"""A run of decoded packets that stays in the core."""
Following = _core.Following
"""What is known of the connections of a host's capture at one moment; it stays in the core."""
BATCH_PACKETS = 131_072
"""Packets in a batch: about 10 MiB of columns."""
CACHED_PACKETS = 32_768
"""Packets in a run of rows: few enough to be still in a core's own cache when they are read again."""


class Drops(Struct, frozen=True):
    """Packets that a capture dropped at an interface between two of its statistics; 0 if these report none."""

    from_ns: int | None
    """Time of the previous statistics, or the beginning that the first ones state."""
    to_ns: int
    count: int


class Interface(Struct, frozen=True):
    """One interface of a capture, as the file describes it."""

    index: int
    """Its number in the events' column `interface`."""
    name: str
    """Empty if not recorded (pcap)."""
    link_type: int
    """As registered at tcpdump.org/linktypes.html."""
    resolution_ns: int
    """Length of a clock tick; 0 if shorter than 1 ns."""
    snaplen: int
    """Bytes kept of each packet; 0 = all."""
    packets_count: int
    """Packets so far, TCP or not."""
    received_count: int | None
    """Packets that the interface received, by the capture's own statistics."""
    dropped_count: int | None
    """Packets that the capture lost, by its own statistics."""
    description: str
    """Empty if not recorded."""
    speed_bps: int
    """0 if not recorded."""
    drops: tuple[Drops, ...] = ()
    """Drops between statistics that have a time; ascending."""


class NameRecord(Struct, frozen=True):
    """A name of an address, from the capture."""

    address: str
    name: str


class Clue(Struct, frozen=True):
    """A condition on one message of a server, which may show its software: on the head of an HTTP message (all given
    fields must match), on the first bytes of another payload, or that it is a request of a protocol that is read."""

    from_client: bool
    """The message is sent to the server; otherwise by it."""
    methods: tuple[str, ...] = ()
    """The method is one of these."""
    targets: tuple[str, ...] = ()
    """The target without its query has one of these shapes: `*` is a word, `#` a word of digits, `a*` a word that
    begins with `a`, and a last `**` any number of further words."""
    header: tuple[str, str] | None = None
    """A header's name and the beginning of its value, both in any case."""
    begins: tuple[tuple[int, ...], ...] = ()
    """The payload begins with one of these byte strings; -1 is any byte."""
    protocol: str | None = None
    """It is a request of this protocol, as the core names it."""


class EndpointClues(Struct, frozen=True):
    """Counts of clues for a server's address and port in a capture; a retransmitted message counts again."""

    address: str
    port: int
    counts: tuple[int, ...]
    """Messages with each clue, in the order of the clues."""
    requests_count: int
    """HTTP requests, as far as their heads were captured."""
    answers_count: int
    """Final HTTP responses, as far as their heads were captured."""
    is_asked: bool
    """It was sent a request of another protocol that is read."""
    sample: tuple[str, ...]
    """A sample of the requests: method, a space, and the target without its query, truncated if long."""


class EventBatch(Struct, frozen=True):
    """A run of packets: `events` as in `EVENT_COLUMNS`, `excerpts` as in `EXCERPT_COLUMNS`."""

    events: Columns
    excerpts: Columns


class PacketCopy(Struct, frozen=True):
    """A packet's bytes from the file, with secrets overwritten."""

    frame: int
    """Number of the packet in the file, from 1."""
    host_ns: int
    interface: int
    """Index in `CaptureReader.interfaces`."""
    direction: Direction
    original_len: int
    data: bytes


class CaptureReader:
    """An open capture file, created by `open_capture`; a context manager."""

    def __init__(self, path: Path, core: _core.CaptureFile) -> None:
        self.path = path
        self._core: _core.CaptureFile | None = core
        self._addresses: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release everything read from it."""
        self._core = None

    def batches(self, packets: int = BATCH_PACKETS) -> Iterator[EventBatch]:
        """The file's packets in file order, up to `packets` of them (TCP or not) a batch.

        Rows after an incomplete datagram (fragmented on the way) are in the next batch.
        """
        assert packets > 0
        while (batch := self._open().next_batch(packets)) is not None:
            events, excerpts = batch
            yield EventBatch(by_name(events), by_name(excerpts))

    def copy_packets(self, frames: Sequence[int]) -> list[PacketCopy]:
        """The packets of `frames`, which ascend and have not been read yet; frames that the file lacks are left out.

        Cost: reading the file up to the last of them, about 0.1 s for each million packets; nothing is decoded.
        """
        return [
            PacketCopy(frame, host_ns, interface, Direction(direction), original_len, data)
            for frame, host_ns, interface, direction, original_len, data in self._open().copy_packets(frames)
        ]

    def rows(self, packets: int = CACHED_PACKETS) -> Iterator[Rows]:
        """As `batches`, but the rows stay in the core; `spread` takes them."""
        assert packets > 0
        while (rows := self._open().next_rows(packets)) is not None:
            yield rows

    def spread(
        self,
        rows: Rows,
        partitions: _core.Partitions,
        host: int,
        frames_before: int,
        interfaces: NDArray[np.uint16],
    ) -> list[NDArray[np.uint64]]:
        """Put the last rows into `partitions`, as packets of a host; `rows` holds none then.

        Arguments: `frames_before`, packets in the host's earlier files; `interfaces`, for each interface of the file
        its number for the host. Returns: fingerprints of the SYN-ACKs, and for each the key of the 4-tuple, both of
        shape (n,). Raises: OSError if the rows fit neither in memory nor on disk.
        """
        return partitions.add(host, self._open(), rows, frames_before, interfaces)

    def go_on_from(self, before: "CaptureReader") -> None:
        """Continue the HTTP/2 connections of the previous file of the same capture, with the place of the next frame
        of each, and the connections of TLS that were opened. Must be called before anything is read; `before` must
        have been read to its end."""
        self._open().go_on_from(before._open())

    def follow(self, before: Following) -> None:
        """Continue the connections that were followed at an earlier moment of the same host's capture. Must be called
        before anything is read."""
        self._open().follow(before)

    def copy_following_at(self, host_ns: int) -> None:
        """Copy the state of followed connections before the first packet with this stamp or a later one."""
        self._open().copy_following_at(host_ns)

    def copied_following(self) -> Following | None:
        """The copy, once; None if no such packet came."""
        return self._open().copied_following()

    def take_following(self) -> Following:
        """The state of followed connections at the end of what was read; nothing can be read any more."""
        return self._open().take_following()

    def add_keys_to(self, keys: TlsKeys) -> None:
        """Add the secrets of TLS connections that the file holds, as far as it was read (pcapng's secrets blocks)."""
        self._open().add_keys_to(keys)

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """The interfaces described so far, by index."""
        return tuple(_interface_of(index, *fields) for index, fields in enumerate(self._open().interfaces()))

    @property
    def addresses(self) -> list[str]:
        """The addresses seen so far, as the columns `src_addr` and `dst_addr` number them; grows in place."""
        lines = self._open().address_lines(len(self._addresses))
        self._addresses.extend(lines.split("\n") if lines else ())
        return self._addresses

    @property
    def names(self) -> list[NameRecord]:
        """Names of addresses from Name Resolution Blocks so far, in file order, each once."""
        return [NameRecord(address, plain(name)) for address, name in self._open().names()]

    @property
    def clues(self) -> list[EndpointClues]:
        """The clues counted so far for each server's address and port."""
        return [
            EndpointClues(address, port, tuple(counts), requests, answers, is_asked, tuple(map(plain, sample)))
            for address, port, counts, requests, answers, is_asked, sample in self._open().clues()
        ]

    @property
    def host(self) -> str | None:
        """The host that our agent states (section comment `twintap.host=NAME`); None if there is no such comment."""
        host = self._open().host()
        return host and plain(host)

    @property
    def comments(self) -> tuple[str, ...]:
        """Comments of the section headers so far, each once."""
        return tuple(map(plain, self._open().comments()))

    @property
    def owners(self) -> list[str]:
        """What our agent states so far of who owns connections, for `collector.capture_files.owners`."""
        return self._open().owners()

    @property
    def kept_statements(self) -> list[str]:
        """What our agent states so far of what it kept, for `collector.capture_files.kept`."""
        return self._open().kept_statements()

    @property
    def stamps(self) -> list[str]:
        """What our agent states so far of who stamped packets, for `collector.capture_files.stamps`."""
        return self._open().stamps()

    @property
    def applications(self) -> tuple[str, ...]:
        """Programs that wrote the sections so far (`shb_userappl`), each once."""
        return tuple(map(plain, self._open().applications()))

    @property
    def packets_count(self) -> int:
        """Packets so far, TCP or not: the last `frame`."""
        return self._open().packets_count()

    @property
    def bytes_read(self) -> int:
        """Bytes of the (possibly compressed) file read so far."""
        return self._open().bytes_read()

    @property
    def expanded_bytes(self) -> int:
        """Uncompressed bytes read so far."""
        return self._open().expanded_bytes()

    @property
    def absurd_frames(self) -> NDArray[np.uint32]:
        """Frames so far with implausible timestamps, ascending; the first million of them."""
        return self._open().absurd_frames()

    @property
    def damaged_frames(self) -> NDArray[np.uint32]:
        """Frames so far, ascending, whose TCP checksums were wrong when they were received, as their agent states: it
        sees whole packets, but writes only their beginnings."""
        return self._open().damaged_frames()

    @property
    def counters(self) -> list[Counter]:
        """The counters so far that are not 0."""
        return [
            Counter(name, Severity(severity), count, remedy)
            for name, severity, count, remedy in self._open().counters()
        ]

    def _open(self) -> _core.CaptureFile:
        assert self._core is not None, "the reader is closed"
        return self._core


def _interface_of(
    index: int,
    name: str,
    link_type: int,
    resolution_ns: int,
    snaplen: int,
    packets_count: int,
    received_count: int | None,
    dropped_count: int | None,
    description: str,
    speed_bps: int,
    drops: Sequence[tuple[int | None, int, int]],
) -> Interface:
    return Interface(
        index,
        plain(name),
        link_type,
        resolution_ns,
        snaplen,
        packets_count,
        received_count,
        dropped_count,
        plain(description),
        speed_bps,
        tuple(Drops(*each) for each in drops),
    )


def open_capture(
    path: Path | str,
    id_headers: Sequence[str] | None = None,
    clues: Sequence[Clue] = (),
    secrets: SecretChoice | None = None,
    believed: Sequence[tuple[int, int]] = (),
    limit: tuple[int, int, int] | None = None,
    keys: TlsKeys | None = None,
    wanted: tuple[int, int] | None = None,
) -> CaptureReader:
    """Open the pcap or pcapng file at `path`, compressed by gzip or zstd or not, or the run of a joined file
    (`collector.capture_files.joined`).

    Arguments: `id_headers`, names of HTTP headers that hold a transaction id, the most specific first; None for the
    usual ones (`X-Trans-Id`, `X-Openstack-Request-Id`, `X-Amz-Request-Id`, `traceparent`, `X-Request-Id`). `clues` are
    counted for each server's address and port. `secrets` are overwritten in texts and in copies of packets; by default
    those of the rules in force. `believed`, ranges of plausible timestamps (first and last, ns;
    `tracer/core/wire/src/stamps.rs`); without any, all that pcap can hold. `limit` of a compressed file's expansion,
    beyond which the rest is left out: bytes that are always allowed, the ratio to the bytes read, and the maximum.
    `keys` open connections of TLS. `wanted`, the first and last stamp of the packets to decode (ns); all by default.
    Raises: InputError if the file cannot be read or is no capture, with what it is and what to do.
    """
    path = Path(path)
    choice = secrets or secret_rules.choice()
    secret_rules.rules(choice)  # raises for what is no rule, and says where it is written
    try:
        fields = [astuple(clue) for clue in clues]
        ids = None if id_headers is None else list(id_headers)
        file, part = locate(path)
        rules = (choice.more, choice.are_kept)
        opened = _core.CaptureFile(file, ids, fields, rules, believed, limit, keys, part, wanted)
        return CaptureReader(path, opened)
    except ValueError as error:
        what, next_step = error.args
        raise InputError(f"{path} is {what}", next_step) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InputError:
    match error:
        case FileNotFoundError():
            return InputError(f"{path} does not exist", "check the name")
        case IsADirectoryError():
            return InputError(f"{path} is a directory", "give a capture file, or the directory to `tracer replay`")
        case PermissionError():
            return InputError(f"{path} may not be read by this user", f"run: sudo chmod a+r {path}")
        case _:
            return InputError(f"{path} cannot be read: {error}", "check the disk and the path")
