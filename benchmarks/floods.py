"""How much memory the analysis of a hostile capture takes: `python -m benchmarks.floods`.

    python -m benchmarks.floods [--millions 3] [CASE…]

Each case is one capture, given to `tracer replay`: SYNs from as many addresses; short connections of one server;
exchanges on one connection, one after the other and pipelined (Redis, HTTP); equal ACKs, plain and compressed. Shown
are the packets given and analysed, the exchanges found, the peak resident memory, and how it ended: a trace and its
counters of lost data, or the line that refused it. The exit status is 1 if a case took more than 2 GiB, ended with
anything but a trace or a plain line, or lost packets that no counter names.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.processes import ROOT
from collector.capture_files.records import Severity
from collector.trace.reading import Trace
from testkit import upload_captures as uploads

MOST_BYTES = 2 << 30
CLIENT, SERVER = b"\x0a\0\0\1", b"\x0a\0\0\2"
BATCH = 16_384
STEP_NS = 1_000
SUPER_SEGMENT_BYTES = 60_000
"""Of pipelined commands in one packet, as segmentation offload shows them."""
PING, PONG = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"
GET, OK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"
WITH_LITTLE_MEMORY = """
from collector.execution import memory
from tracer.cli import main

memory.available_bytes = lambda: None
main()
"""


@dataclass(frozen=True)
class Flood:
    """A capture, and how many packets it holds."""

    path: Path
    packets_count: int


@dataclass(frozen=True)
class Outcome:
    """The outcome of analysing it."""

    peak_rss_bytes: int
    status: int
    said: str
    analysed_count: int = 0
    exchanges_count: int = 0
    counters: tuple[str, ...] = ()

    def faults(self, flood: Flood) -> Iterator[str]:
        """The rules that this outcome breaks."""
        if self.peak_rss_bytes > MOST_BYTES:
            yield f"{self.peak_rss_bytes >> 20:,} MiB"
        if self.status not in (0, 2) or "Traceback" in self.said:
            yield f"exit status {self.status}: {self.said[-300:]}"
        if self.status == 0 and self.analysed_count < flood.packets_count and not self.counters:
            yield f"{flood.packets_count - self.analysed_count:,} packets are gone, and no counter says so"


Script = Sequence[tuple[bool, int, bytes]]
"""Packets: whether the client sends, flags, payload."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table; 1 if a case broke a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} [default: all]")
    parser.add_argument("--millions", type=float, default=3, help="connections, exchanges or SYNs of a case")
    parser.add_argument("--folder", type=Path, help="where captures and traces go meanwhile")
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}")
    failed = False
    print("| capture | packets | analysed | exchanges | peak RSS | how it ended |", flush=True)
    print("|---|--:|--:|--:|--:|---|", flush=True)
    for name in options.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="twintap-floods-", dir=options.folder) as folder:
            flood = CASES[name](Path(folder), int(options.millions * 1e6))
            outcome = replay(flood, Path(folder))
        faults = list(outcome.faults(flood))
        failed |= bool(faults)
        ended = f"**{'; '.join(faults)}**" if faults else ", ".join(outcome.counters) or outcome.said or "a trace"
        print(
            f"| {name} | {flood.packets_count:,} | {outcome.analysed_count:,} | {outcome.exchanges_count:,} "
            f"| {outcome.peak_rss_bytes >> 20:,} MiB | {ended} |",
            flush=True,
        )
    return int(failed)


def replay(flood: Flood, folder: Path) -> Outcome:
    """Analyse a capture by `tracer replay` in a process of its own, with the limits of a machine with little memory."""
    trace = folder / "trace"
    command = [sys.executable, "-P", "-c", WITH_LITTLE_MEMORY, "replay", "--quiet", "-o", str(trace), str(flood.path)]
    with tempfile.TemporaryFile() as said_file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said_file)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said_file.seek(0)
        said = said_file.read().decode(errors="replace").strip()
    peak = usage.ru_maxrss * 1024
    if process.returncode:
        return Outcome(peak, process.returncode, said)
    info = Trace(str(trace)).info()
    lost = (Severity.DATA_LOSS, Severity.ERROR)
    counters = tuple(f"`{each.name}` {each.count:,}" for each in info.counters if each.severity in lost)
    exchanges = pq.read_metadata(trace / "exchanges.parquet").num_rows
    shutil.rmtree(trace)
    return Outcome(peak, 0, said, sum(host.packets_count for host in info.hosts), exchanges, counters)


def _syns(folder: Path, count: int) -> Flood:
    return Flood(uploads.write_flood(folder, count), 2 * count)


def _connections(folder: Path, count: int) -> Flood:
    """Short connections, one after the other, each of another address and port."""
    asks, answers = len(GET), len(OK)
    rows = [
        uploads.Row(0, uploads.CLIENT, uploads.SYN, 0, 0, 0, 0),
        uploads.Row(1, uploads.SERVER, uploads.SYN | uploads.ACK, 0, 1, 0, 0),
        uploads.Row(2, uploads.CLIENT, uploads.ACK, 1, 1, 0, 1),
        uploads.Row(3, uploads.CLIENT, uploads.ACK | uploads.PSH, 1, 1, asks, 2, GET),
        uploads.Row(4, uploads.SERVER, uploads.ACK | uploads.PSH, 1, 1 + asks, answers, 1, OK),
        uploads.Row(5, uploads.CLIENT, uploads.ACK | uploads.FIN, 1 + asks, 1 + answers, 0, 3),
        uploads.Row(6, uploads.SERVER, uploads.ACK | uploads.FIN, 1 + answers, 2 + asks, 0, 2),
        uploads.Row(7, uploads.CLIENT, uploads.ACK, 2 + asks, 2 + answers, 0, 4),
    ]
    return Flood(uploads.write_flood(folder, count, rows), len(rows) * count)


def _one_by_one(folder: Path, count: int) -> Flood:
    return _on_one_connection(folder, [(True, 0x18, PING), (False, 0x18, PONG)], count)


def _pipeline_writer(ask: bytes, answer: bytes) -> Callable[[Path, int], Flood]:
    def write(folder: Path, count: int) -> Flood:
        each = SUPER_SEGMENT_BYTES // len(ask)
        return _on_one_connection(folder, [(True, 0x18, ask * each), (False, 0x18, answer * each)], -(-count // each))

    return write


def _equal_acks(folder: Path, count: int) -> Flood:
    path = folder / "server.pcap"
    record = _records([(True, 0x10, b"")], np.zeros(BATCH, dtype=np.int64)).tobytes()
    with path.open("wb") as file:
        file.write(uploads.PCAP_NS_HEADER)
        for _ in range(-(-count // BATCH)):
            file.write(record)
    return Flood(path, -(-count // BATCH) * BATCH)


def _compressing_writer(write: Callable[[Path, int], Flood]) -> Callable[[Path, int], Flood]:
    def write_compressed(folder: Path, count: int) -> Flood:
        plain = write(folder, count)
        packed = plain.path.with_name(plain.path.name + ".gz")
        with plain.path.open("rb") as source, gzip.open(packed, "wb", 6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        plain.path.unlink()
        return Flood(packed, plain.packets_count)

    return write_compressed


CASES: dict[str, Callable[[Path, int], Flood]] = {
    "syns": _syns,
    "connections": _connections,
    "one-by-one": _one_by_one,
    "pipelined-redis": _pipeline_writer(PING, PONG),
    "pipelined-http": _pipeline_writer(GET, OK),
    "equal-acks": _equal_acks,
    "equal-acks-gz": _compressing_writer(_equal_acks),
}


def _on_one_connection(folder: Path, script: Script, turns_count: int) -> Flood:
    """The script again and again, on a connection whose handshake was not captured."""
    path = folder / "server.pcap"
    batch = max(1, BATCH * 64 // sum(66 + len(payload) for _, _, payload in script))
    with path.open("wb") as file:
        file.write(uploads.PCAP_NS_HEADER)
        for first in range(0, turns_count, batch):
            turns = np.arange(first, min(first + batch, turns_count))
            _records(script, turns).tofile(file)
    return Flood(path, turns_count * len(script))


def _records(script: Script, turns: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Records of pcap: shape (turns, bytes of the script's records)."""
    sent = {
        is_client: sum(len(payload) for who, _, payload in script if who is is_client) for is_client in (True, False)
    }
    before = {True: 0, False: 0}
    blocks = []
    for place, (is_client, flags, payload) in enumerate(script):
        out = np.zeros((len(turns), 16 + 54 + len(payload)), dtype=np.uint8)
        stamp_ns = uploads.START_NS + (turns * len(script) + place) * STEP_NS
        _put(out, 0, "<u4", stamp_ns // 10**9)
        _put(out, 4, "<u4", stamp_ns % 10**9)
        _put(out, 8, "<u4", 54 + len(payload))
        _put(out, 12, "<u4", 54 + len(payload))
        out[:, 28:32] = list(b"\x08\0\x45\0")
        _put(out, 32, ">u2", 40 + len(payload))
        _put(out, 34, ">u2", turns)
        out[:, 36:40] = list(b"\x40\0\x40\6")
        out[:, 42:50] = list(CLIENT + SERVER if is_client else SERVER + CLIENT)
        _put(out, 50, ">u2", np.int64(40_000 if is_client else 6_379))
        _put(out, 52, ">u2", np.int64(6_379 if is_client else 40_000))
        _put(out, 54, ">u4", 1 + turns * sent[is_client] + before[is_client])
        _put(out, 58, ">u4", 1 + turns * sent[not is_client] + before[not is_client])
        out[:, 62:64] = [0x50, flags]
        _put(out, 64, ">u2", np.int64(501))
        out[:, 70:] = np.frombuffer(payload, dtype=np.uint8)
        before[is_client] += len(payload)
        blocks.append(out)
    return np.concatenate(blocks, axis=1)


def _put(out: NDArray[np.uint8], at: int, dtype: str, values: NDArray[np.int64] | np.int64 | int) -> None:
    kind = np.dtype(dtype)
    whole = np.broadcast_to(np.asarray(values, dtype=np.int64) & ((1 << 8 * kind.itemsize) - 1), out.shape[:-1])
    out[..., at : at + kind.itemsize] = whole.astype(kind)[..., None].view(np.uint8)


if __name__ == "__main__":
    sys.exit(main())
