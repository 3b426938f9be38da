"""Reads packets from the captures of a trace: one packet to inspect, or a selection as pcapng.

A trace names its captures' files but does not contain them. They are searched in their original place, beside the
trace, and where `tracer record` keeps them. If a file has a different packet at a frame than the trace, it is another
file: an error reports it, and none of its packets is shown.

Secrets in packets are overwritten by the rules of the trace, whatever the captures contain.

Cost: reading a host's files up to the last requested packet, about 0.1 s for each million packets.
"""

import ipaddress
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from collector.capture_files.joined import find_joined, locate
from collector.capture_files.readers import Interface, PacketCopy, open_capture
from collector.capture_files.records import Direction
from collector.decode.input_limits import LIMITED
from collector.queries.selection import Selection, rows_of
from collector.queries.trace_view import TraceView
from collector.trace.model import HostInfo
from collector.trace.packets import PacketFields
from collector.trace.peer_names import PeerNames
from tracer.errors import InputError

AT_ONCE = 20_000
"""Packets copied in one batch: a few MB."""
MOST_PACKETS = 1_000_000
LAST_FRAME = (1 << 32) - 1
SECTION, INTERFACE, NAMES, PACKET = 0x0A0D0D0A, 1, 4, 6
"""Block types of draft-ietf-opsawg-pcapng."""
COMMENT, IF_NAME, IF_TSRESOL, EPB_FLAGS = 1, 2, 9, 2
IPV4_NAME, IPV6_NAME = 1, 2
NANOSECONDS = b"\x09"
FLAGS = {Direction.UNKNOWN: 0, Direction.RECEIVE: 1, Direction.SEND: 2}


class CapturedPacket(Struct, frozen=True):
    """A packet's bytes, as far as they were captured."""

    link_type: int  # as registered at tcpdump.org/linktypes.html
    host_ns: int
    original_len: int
    data: bytes
    file: str


class CaptureDescription(Struct, frozen=True):
    """The facts that a capture records about itself."""

    host: str  # recorded by the agent, else the stem of the file name
    packets_count: int


def describe_capture(path: Path, name: str) -> CaptureDescription:
    """The description of the capture at `path`, whose user calls it `name`. Cost: reading it once, undecoded.

    Raises: `InputError`, with `name`, if it is no capture or holds no packet.
    """
    try:
        with open_capture(path, limit=LIMITED.expansion) as reader:
            reader.copy_packets([LAST_FRAME])
            LIMITED.check_expansion(path, reader)
            host, count = reader.host or Path(name).name.split(".", 1)[0], reader.packets_count
    except InputError as error:
        raise InputError(error.what.replace(str(path), name), error.next_step) from None
    if not count:
        raise InputError(f"{name} is a capture without a packet", "capture again while there is traffic")
    return CaptureDescription(host, count)


def captured_packet(trace: TraceView, packet: PacketFields) -> CapturedPacket:
    """The bytes of a packet of the trace.

    Raises: `InputError` if its capture is missing, or is another one.
    """
    host = next(host for host in trace.info.hosts if host.host == packet.host)
    interface, copy = next(copies_of(trace, host, [packet.frame], [packet.host_ns]))
    names = ", ".join(Path(file).name for file in host.files)
    return CapturedPacket(interface.link_type, copy.host_ns, copy.original_len, copy.data, names)


def write_pcapng(trace: TraceView, selection: Selection, place: Path) -> None:
    """Write the selection's packets from the captures: a section for each host, each packet once, with original times.

    Raises: `InputError` if there are too many, or a capture is missing or is another one.
    """
    chosen = trace.read_unchanged(lambda: _frames(trace, selection))
    if len(chosen) > MOST_PACKETS:
        what = f"{len(chosen):,} packets are more than the {MOST_PACKETS:,} that are cut at once"
        raise InputError(what, "zoom in, or select a request")
    with place.open("wb") as file:
        for host in trace.info.hosts:
            mine = chosen.filter(pl.col("host") == host.host)
            if len(mine):
                file.writelines(_section(trace, host, mine["frame"].to_list(), mine["host_ns"].to_list()))


def packet_file(packet: CapturedPacket) -> bytes:
    """A pcapng file of that one packet."""
    interface = interface_block(packet.link_type, "")
    return section_block("") + interface + packet_block(0, packet.host_ns, packet.original_len, packet.data, 0)


def _frames(trace: TraceView, selection: Selection) -> pl.DataFrame:
    """`host`, `frame` and `host_ns` of the packets at both ends of the selection's hops, each once, in order."""
    columns = [f"{end}_{what}" for end in ("send", "receive") for what in ("host", "frame", "host_ns")]
    tables = trace.stored.chosen_rows("hops", columns, rows_of(trace, selection))
    ends = []
    for table in tables:
        frame = pl.DataFrame(table).with_columns(pl.col(pl.Categorical).cast(pl.String))
        for end in ("send", "receive"):
            ends.append(frame.select(pl.col(f"{end}_{what}").alias(what) for what in ("host", "frame", "host_ns")))
    schema = {"host": pl.String, "frame": pl.UInt32, "host_ns": pl.Int64}
    together = pl.concat(ends) if ends else pl.DataFrame(schema=schema)
    return together.drop_nulls("frame").unique(["host", "frame"]).sort("host", "frame")


def _section(trace: TraceView, host: HostInfo, frames: Sequence[int], stamps: Sequence[int]) -> Iterator[bytes]:
    yield section_block(f"twintap.host={host.host}")
    yield names_block(PeerNames(trace.info).of_all())
    places: dict[tuple[str, int], int] = {}
    for interface, copy in copies_of(trace, host, frames, stamps):
        key = (interface.name, interface.link_type)
        if key not in places:
            places[key] = len(places)
            yield interface_block(interface.link_type, interface.name)
        yield packet_block(places[key], copy.host_ns, copy.original_len, copy.data, FLAGS[copy.direction])


def copies_of(
    trace: TraceView, host: HostInfo, frames: Sequence[int], stamps: Sequence[int]
) -> Iterator[tuple[Interface, PacketCopy]]:
    """The packets of these frames (ascending, over all files of the host), each checked to have its stamp."""
    waiting, before = list(zip(frames, stamps, strict=True)), 0
    for file in host.files:
        if not waiting:
            return
        with open_capture(_capture_path(trace.url, file, host.host), secrets=trace.info.secrets) as reader:
            while part := waiting[:AT_ONCE]:
                copies = reader.copy_packets([frame - before for frame, _ in part])
                interfaces = reader.interfaces
                for copy, (frame, stamp_ns) in zip(copies, part, strict=False):
                    if (copy.frame + before, copy.host_ns) != (frame, stamp_ns):
                        raise _wrong_capture(file, frame)
                    yield interfaces[copy.interface], replace(copy, frame=frame)
                waiting = waiting[len(copies) :]
                if len(copies) < len(part):
                    break
            before += reader.packets_count
    if waiting:
        raise _wrong_capture(host.files[-1], waiting[0][0])


def _wrong_capture(file: str, frame: int) -> InputError:
    what = f"{file} is not the capture that this trace was made from: its packet {frame:,} is another one"
    return InputError(what, "put the right file back, or make the trace again: tracer replay")


def _capture_path(url: str, file: str, host: str) -> Path:
    """The current path of the capture."""
    trace = Path(url) if "://" not in url else Path()
    places = [Path(file), trace.parent / file]
    places += [folder / Path(file).name for folder in (Path(f"{trace}.captures"), trace.parent)]
    for place in places:
        if locate(place)[0].is_file():
            return place
        if joined := find_joined(place):
            return joined
    if "://" in file:
        what = f"the capture of {host} was fetched from {file} to make the trace"
        raise InputError(what, f"fetch it again, into {trace}.captures; packets are not kept in a trace")
    what = f"the capture of {host} is not there any more ({file})"
    beside = f", or into {trace}.captures" if "://" not in url else ""
    raise InputError(what, f"put it back{beside}; packets are not kept in a trace")


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def section_block(comment: str) -> bytes:
    """The beginning of a section of pcapng."""
    options = _option(COMMENT, comment.encode()) + _option(0, b"") if comment else b""
    return _block(SECTION, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)


def interface_block(link_type: int, name: str) -> bytes:
    """An interface, whose stamps are in ns."""
    options = _option(IF_NAME, name.encode()) if name else b""
    return _block(
        INTERFACE, struct.pack("<HHI", link_type, 0, 0) + options + _option(IF_TSRESOL, NANOSECONDS) + _option(0, b"")
    )


def names_block(names: Mapping[str, str]) -> bytes:
    """What addresses are called, for readers that resolve them; nothing without names."""
    if not names:
        return b""
    records = b""
    for address, name in names.items():
        packed = ipaddress.ip_address(address).packed
        records += _option(IPV4_NAME if len(packed) == 4 else IPV6_NAME, packed + name.encode() + b"\0")
    return _block(NAMES, records + _option(0, b""))


def packet_block(interface: int, host_ns: int, original_len: int, data: bytes, flags: int, comment: str = "") -> bytes:
    """A packet, with its direction and a comment where there is one."""
    head = struct.pack("<IIIII", interface, host_ns >> 32, host_ns & 0xFFFFFFFF, len(data), original_len)
    options = _option(COMMENT, comment.encode()) if comment else b""
    options += _option(EPB_FLAGS, struct.pack("<I", flags)) if flags else b""
    options += _option(0, b"") if options else b""
    return _block(PACKET, head + data + b"\0" * (-len(data) % 4) + options)
