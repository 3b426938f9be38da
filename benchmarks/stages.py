"""One stage, in a process of its own, on captures given by name: prints its duration and its memory.

    python -m benchmarks.stages decode|match|end_to_end|dpkt CLIENT.pcap SERVER.pcap

Imports and the reading of inputs that belong to an earlier stage are outside the measured time. The last line is JSON:
`seconds`, `cpu_seconds`, `packets_count`, and what the stage found (`hops_count` by state), so that a fast wrong answer
shows. `match` also reads the messages and makes all tables; `pairing_cpu_seconds` are those of pairing packets alone,
of a second time, with memory that was touched before.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Result = dict[str, int | float | str]


@dataclass
class Clock:
    """Wall and CPU time since it was made."""

    began: float = field(default_factory=time.perf_counter)
    cpu_began: float = field(default_factory=time.process_time)

    def read(self) -> Result:
        """`seconds` and `cpu_seconds`, of all threads."""
        return {
            "seconds": time.perf_counter() - self.began,
            "cpu_seconds": time.process_time() - self.cpu_began,
        }


def decode(files: list[Path]) -> Result:
    """Packets to columns: the Rust core's reader, batch by batch."""
    from collector.capture_files.readers import open_capture

    clock = Clock()
    packets_count = 0
    for file in files:
        with open_capture(file) as reader:
            packets_count += sum(len(batch.events["frame"]) for batch in reader.batches())
    return clock.read() | {"packets_count": packets_count}


def match(files: list[Path]) -> Result:
    """Events to hops: connections, incarnations, byte ranges; and messages."""
    from collector import _core
    from collector.decode.captures import decode as decode_sources
    from collector.decode.host_capture import HostSource
    from collector.hops.matching import match as match_events

    decoded = decode_sources([HostSource(file.stem, (file,)) for file in files])
    clock = Clock()
    matched = match_events(decoded)
    times = clock.read()
    states = matched.hops["state"].value_counts().to_pylist()
    found: Result = {f"hops_{row['values']}": row["counts"] for row in states}
    clock = Clock()
    _core.match_events(decoded.events, 1, decoded.excerpts["event_row"], decoded.servers)
    found["pairing_cpu_seconds"] = clock.read()["cpu_seconds"]
    return times | {"packets_count": matched.events.num_rows} | found


def end_to_end(files: list[Path]) -> Result:
    """Files to a trace on disk: what `tracer replay` does."""
    from tracer.cli import set_up_libraries

    set_up_libraries()
    from collector.analysis import analyse
    from collector.decode.host_capture import HostSource

    with tempfile.TemporaryDirectory(dir=files[0].parent) as folder:
        clock = Clock()
        info = analyse([HostSource(file.stem, (file,)) for file in files], str(Path(folder) / "trace"))
        times = clock.read()
    return times | {"packets_count": sum(host.packets_count for host in info.hosts)}


def dpkt(files: list[Path]) -> Result:
    """Packets to lists of the same fields, by the usual Python library."""
    import dpkt

    clock = Clock()
    rows: list[tuple[object, ...]] = []
    for file in files:
        with file.open("rb") as stream:
            for stamp, packet in dpkt.pcap.Reader(stream):
                ip = dpkt.ethernet.Ethernet(packet).data
                tcp = ip.data
                row = (stamp, ip.src, ip.dst, ip.id, ip.len, tcp.sport, tcp.dport, tcp.seq, tcp.ack, tcp.flags, tcp.win)
                rows.append((*row, dpkt.tcp.parse_opts(tcp.opts)))
    return clock.read() | {"packets_count": len(rows)}


STAGES: dict[str, Callable[[list[Path]], Result]] = {
    "decode": decode,
    "match": match,
    "end_to_end": end_to_end,
    "dpkt": dpkt,
}


if __name__ == "__main__":
    print(json.dumps(STAGES[sys.argv[1]]([Path(name) for name in sys.argv[2:]])))
