"""What agents would have shipped of a simulated network: each host's capture cut into pcapng segments."""

import struct
from collections.abc import Sequence
from pathlib import Path

from testkit import capture_files
from testkit.netsim import Network

FLAGS = 2
INBOUND, OUTBOUND = 1, 2


def keep_only(net: Network, host: str, from_ns: int, to_ns: int) -> None:
    """Number the host's packets of [from_ns, to_ns) from 1, and forget that the others were captured."""
    frame = 0
    for record in net.records[host]:
        inside = from_ns <= record.at_ns < to_ns
        frame += inside
        record.frame = frame if inside else 0


def write_segments(net: Network, folder: Path, host: str, cuts_ns: Sequence[int]) -> list[Path]:
    """The host's numbered packets in segments that end at `cuts_ns` (true time), and one for the rest."""
    whole = next(path for path in net.write(folder) if path.stem == host).read_bytes()
    records = [record for record in net.records[host] if record.frame]
    begin = capture_files.section() + capture_files.interface(pairs=((2, b"eth0"), (9, b"\x09")))
    parts = [begin] * (len(cuts_ns) + 1)
    at = 24
    for record in records:
        seconds, fraction, captured_len, original_len = struct.unpack_from("<IIII", whole, at)
        data = whole[at + 16 : at + 16 + captured_len]
        at += 16 + captured_len
        flags = (FLAGS, struct.pack("<I", OUTBOUND if record.sent else INBOUND))
        part = sum(record.at_ns >= cut for cut in cuts_ns)
        stamp_ns = seconds * 10**9 + fraction
        parts[part] += capture_files.enhanced_packet(stamp_ns, data, original_len=original_len, pairs=(flags,))
    paths = [folder / f"{host}-{number:06d}.pcapng" for number in range(1, len(parts) + 1)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return paths
