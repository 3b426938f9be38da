"""How often pairing is right, as a table in the repository: loss x reordering x duplicates x offload x capture, on
simulated captures with exact truth. `--regenerate` writes it anew; read the diff.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from collector.analysis import analyse
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace
from testkit.netsim import Clock, Network, NetworkPath, Station, Transfer

GOLDEN = Path(__file__).parent.parent / "golden" / "accuracy.md"
SEEDS = (1, 2, 3)
NEAR, FAR = NetworkPath(), NetworkPath(delay_ns=20_000_000, jitter_ns=3_000_000)
TRUE_CLOCK = Clock()


@dataclass(frozen=True)
class Case:
    """Hosts that differ from the usual in `host`, over `path`; the server's clock, the snaplen."""

    name: str
    path: NetworkPath = NEAR
    host: tuple[tuple[str, object], ...] = ()
    clock: Clock = TRUE_CLOCK
    snaplen: int = 128


@dataclass(frozen=True)
class Figures:
    """Sums over the seeds."""

    truth: int = 0
    found: int = 0
    right: int = 0
    lost: int = 0
    lost_right: int = 0
    ambiguous: int = 0
    attempts_wrong: int = 0
    early: int = 0
    offset_error_ns: int = 0
    uncertainty_ns: int = 0


NO_OFFLOAD = (("tso", False), ("gro", False))
CASES = [
    Case("offload on both sides"),
    Case("offload at the sender", host=(("gro", False),)),
    Case("offload at the receiver", host=(("tso", False),)),
    Case("no offload", host=NO_OFFLOAD),
    *(Case(f"loss {share:.1%}", NetworkPath(loss=share)) for share in (0.001, 0.01, 0.05)),
    Case("loss 5.0%, no offload", NetworkPath(loss=0.05), NO_OFFLOAD),
    Case("reordering 10 %", NetworkPath(reorder=0.1)),
    Case("duplicates 5 %", NetworkPath(duplicate=0.05)),
    Case("loss 2 %, reordering 10 %, duplicates 2 %", NetworkPath(loss=0.02, reorder=0.1, duplicate=0.02)),
    Case("20 ms away, loss 1 %", replace(FAR, loss=0.01)),
    Case("loss behind the tap 2 %", host=(("behind_tap_loss", 0.02),)),
    Case("capture drops 5 %", host=(("capture_drop", 0.05),)),
    Case("loss 1 %, capture drops 1 %", NetworkPath(loss=0.01), (("capture_drop", 0.01),)),
    Case("no timestamps, loss 2 %", NetworkPath(loss=0.02), (("timestamps", False),)),
    Case("IP ID random, loss 2 %", NetworkPath(loss=0.02), (("ip_id", "random"),)),
    Case("IP ID zero, loss 2 %", NetworkPath(loss=0.02), (("ip_id", "zero"),)),
    Case("IP ID zero, no timestamps, loss 2 %", NetworkPath(loss=0.02), (("ip_id", "zero"), ("timestamps", False))),
    Case("clock 1 day ahead, 200 ppm fast", clock=Clock(86_400_000_000_000, 200_000)),
    Case("clock 37 ms behind, 80 ppm slow, loss 1 %", NetworkPath(loss=0.01), clock=Clock(-37_000_000, -80_000)),
    *(Case(f"snaplen {snaplen}, loss 1 %", NetworkPath(loss=0.01), snaplen=snaplen) for snaplen in (60, 96, 65_535)),
]


def test_accuracy_is_as_published(tmp_path: Path, regenerate: bool) -> None:
    rows = [_row(case.name, _figures_of(case, tmp_path)) for case in CASES]
    table = "\n".join([*HEAD, *rows, ""])
    if regenerate:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(table)
    assert table == GOLDEN.read_text()


HEAD = [
    "| case | hops | precision | recall | reported lost | ambiguous | wrong attempt | early | offset error | its bar |",
    "|---|---|---|---|---|---|---|---|---|---|",
]


def _row(name: str, sums: Figures) -> str:
    lost = f"{sums.lost_right}/{sums.lost}" if sums.lost else "–"
    error, bar = (f"{-(-value // 1000)} µs" for value in (sums.offset_error_ns, sums.uncertainty_ns))
    return (
        f"| {name} | {sums.truth} | {sums.right / sums.found:.4f} | {sums.right / sums.truth:.4f} | {lost} "
        f"| {sums.ambiguous} | {sums.attempts_wrong} | {sums.early} | {error} | {bar} |"
    )


def _figures_of(case: Case, folder: Path) -> Figures:
    found = [_run(case, seed, folder) for seed in SEEDS]
    names = [name for name in Figures.__dataclass_fields__ if not name.endswith("_ns")]
    sums = {name: sum(getattr(one, name) for one in found) for name in names}
    worst = {name: max(getattr(one, name) for one in found) for name in ("offset_error_ns", "uncertainty_ns")}
    return Figures(**sums, **worst)


def _run(case: Case, seed: int, folder: Path) -> Figures:
    host = dict(case.host)
    stations = [Station("client", "10.0.0.1", **host), Station("server", "10.0.0.2", case.clock, **host)]  # type: ignore[arg-type]
    net = Network(stations, case.path, seed)
    for number in range(8):
        net.connect(
            "client", "server", 40_000 + number, 300 + 9_000 * number, 60_000 + 30_000 * number, number * 90_000
        )
    net.run()
    trace = str(folder / "trace")
    analyse([HostSource(file.stem, (file,)) for file in net.write(folder, case.snaplen)], trace)
    hops = pl.DataFrame(Trace(trace).read("hops")).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return _figures(list(net.truth()), net, hops, pl.DataFrame(Trace(trace).read("clocks")), case.clock)


def _figures(truth: list[Transfer], net: Network, hops: pl.DataFrame, clocks: pl.DataFrame, clock: Clock) -> Figures:
    transfers = _merge_by_receive([t for t in truth if t.send and t.receive])
    columns = ("send_host", "send_frame", "receive_host", "receive_frame", "stream_start", "stream_end", "attempt")
    matched = hops.filter(pl.col("state") == "matched")
    found = {row[:6]: row[6] for row in matched.select(columns).iter_rows()}
    lost = {(wire.record.host, wire.record.frame, wire.start, wire.end) for wire in net.lost if wire.record.frame}
    reported = hops.filter(pl.col("state") == "lost")
    covered = _bytes(reported.select("send_host", "send_frame", "stream_start", "stream_end").iter_rows())
    error, bar = _clock_error(clocks, clock)
    return Figures(
        truth=len(transfers),
        found=len(found),
        right=len(found.keys() & transfers.keys()),
        lost=len(lost),
        lost_right=sum(row in covered or any(_inside(row, other) for other in covered) for row in lost),
        ambiguous=len(hops.filter(pl.col("state") == "ambiguous")),
        attempts_wrong=sum(found[key] != transfers[key] for key in found.keys() & transfers.keys()),
        early=len(matched.filter(pl.col("one_way_delay_ns") < 0)),
        offset_error_ns=error,
        uncertainty_ns=bar,
    )


def _merge_by_receive(truth: list[Transfer]) -> dict[tuple[str | int, ...], int]:
    """Packets of one super-segment that one receive carried, in one attempt, are one hop."""
    result: list[tuple[tuple[str | int, ...], int, int, int]] = []
    keyed = sorted({((*t.send, *t.receive), t.start, t.end, t.attempt) for t in truth if t.send and t.receive})
    for ends, start, end, attempt in keyed:
        if result and result[-1][0] == ends and result[-1][2] == start and result[-1][3] == attempt:
            result[-1] = (ends, result[-1][1], end, attempt)
        else:
            result.append((ends, start, end, attempt))
    return {(*ends, start, end): attempt for ends, start, end, attempt in result}


def _bytes(rows: object) -> set[tuple[str, int, int, int]]:
    return set(rows)  # type: ignore[call-overload, no-any-return]


def _inside(row: tuple[str, int, int, int], other: tuple[str, int, int, int]) -> bool:
    return row[:2] == other[:2] and other[2] <= row[2] and row[3] <= other[3]


def _clock_error(clocks: pl.DataFrame, clock: Clock) -> tuple[int, int]:
    """The server's offset to the client, found against true, at the start; and the stated error bar."""
    rows = {row["host"]: row for row in clocks.iter_rows(named=True)}
    found = rows["server"]["offset_ns"] - rows["client"]["offset_ns"]
    start = rows["server"]["from_host_ns"]
    elapsed = start - clock.read(0)
    true = clock.offset_ns + np.rint(elapsed * clock.skew_ppb / 1e9)
    return int(abs(found - true)), max(int(row["uncertainty_ns"]) for row in rows.values())
