"""One stage, in a process of its own, on captures given by name: prints how long it took and how much it held.

    python -m benchmarks.stages decode|match|end_to_end|dpkt CLIENT.pcap SERVER.pcap

Imports and the reading of inputs that belong to an earlier stage are outside the measured time. The last line is JSON:
`seconds`, `packets_count`, the whole's `cpu_seconds`, and what the stage found (`hops_count` by state), so that a fast
wrong answer shows.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

Result = dict[str, int | float | str]


def decode(files: list[Path]) -> Result:
    """Packets to columns: the Rust core's reader, batch by batch."""
    from tracer.readers import open_capture

    started = time.perf_counter()
    packets_count = 0
    for file in files:
        with open_capture(file) as reader:
            packets_count += sum(len(batch.events["frame"]) for batch in reader.batches())
    return {"seconds": time.perf_counter() - started, "packets_count": packets_count}


def match(files: list[Path]) -> Result:
    """Events to hops: connections, incarnations, byte ranges."""
    from collector.decoding import HostSource
    from collector.decoding import decode as decode_sources
    from collector.matching import match as match_events

    decoded = decode_sources([HostSource(file.stem, (file,)) for file in files])
    started = time.perf_counter()
    matched = match_events(decoded.events)
    seconds = time.perf_counter() - started
    states = matched.hops["state"].value_counts().to_pylist()
    found: Result = {f"hops_{row['values']}": row["counts"] for row in states}
    return {"seconds": seconds, "packets_count": decoded.events.num_rows} | found


def end_to_end(files: list[Path]) -> Result:
    """Files to a trace on disk: what `tracer replay` does."""
    from collector.analysis import analyse
    from collector.decoding import HostSource

    with tempfile.TemporaryDirectory(dir=files[0].parent) as folder:
        started, cpu_started = time.perf_counter(), time.process_time()
        info = analyse([HostSource(file.stem, (file,)) for file in files], str(Path(folder) / "trace"))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    count = sum(host.packets_count for host in info.hosts)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "packets_count": count}


def dpkt(files: list[Path]) -> Result:
    """Packets to lists of the same fields, by the usual Python library."""
    import dpkt

    started = time.perf_counter()
    rows: list[tuple[object, ...]] = []
    for file in files:
        with file.open("rb") as stream:
            for stamp, packet in dpkt.pcap.Reader(stream):
                ip = dpkt.ethernet.Ethernet(packet).data
                tcp = ip.data
                row = (stamp, ip.src, ip.dst, ip.id, ip.len, tcp.sport, tcp.dport, tcp.seq, tcp.ack, tcp.flags, tcp.win)
                rows.append((*row, dpkt.tcp.parse_opts(tcp.opts)))
    return {"seconds": time.perf_counter() - started, "packets_count": len(rows)}


STAGES: dict[str, Callable[[list[Path]], Result]] = {
    "decode": decode,
    "match": match,
    "end_to_end": end_to_end,
    "dpkt": dpkt,
}

if __name__ == "__main__":
    print(json.dumps(STAGES[sys.argv[1]]([Path(name) for name in sys.argv[2:]])))
