"""Reads one packet at one capture point from the table `events`."""

from msgspec import Struct

from collector.capture_files.records import TcpFlag
from collector.trace.reading import Trace

COLUMNS = (
    *("host", "point", "frame", "host_ns", "src_addr", "src_port", "dst_addr", "dst_port", "seq", "ack", "flags"),
    *("payload_len", "window", "ip_id", "tsval", "tsecr", "captured_len", "original_len"),
)


class PacketFields(Struct, frozen=True):
    """A packet's fields as captured at its host; None for fields that it lacks."""

    host: str
    point: str
    frame: int
    host_ns: int
    src_addr: str
    src_port: int
    dst_addr: str
    dst_port: int
    seq: int
    ack: int
    flags: int
    payload_len: int
    window: int
    ip_id: int | None
    tsval: int | None
    tsecr: int | None
    captured_len: int
    original_len: int
    src_name: str = ""  # what the address is called, if its host was not captured (`collector.trace.peer_names`)
    dst_name: str = ""

    @property
    def flag_names(self) -> str:
        """The names of its flags: `SYN ACK`."""
        return " ".join(flag.name or "" for flag in TcpFlag if self.flags & flag) or "none"


def read_packet(trace: Trace, host: str | None, frame: int | None, connection_id: int | None) -> PacketFields | None:
    """The packet with a frame number of a host, or None.

    Arguments: the connection that it is expected in: a group of rows holds few connections, but frames of all times.
    Cost: the row groups of `events` with that connection; if it is in no such group, all of them.
    """
    if host is None or frame is None:
        return None
    wanted: dict[str, str | int] = {"host": host, "frame": frame}
    columns = (*COLUMNS, "connection_id")
    expected = [] if connection_id is None else [wanted | {"connection_id": connection_id}]
    for equal in (*expected, wanted):
        rows = trace.rows_matching("events", columns, equal).select(COLUMNS).to_pylist()
        if rows:
            return PacketFields(**rows[0])
    return None
