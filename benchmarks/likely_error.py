"""How often the likely error of delays holds: `python -m benchmarks.likely_error [DRAWS [CAPTURES...]]`.

Prints the table of docs/pairing.md: simulated paths by kind (`testkit.clock_paths`), DRAWS captures of each (150); and
real captures whose hosts had one clock, in truth (those of the repository, and folders of others), once as they are and
a fifth of DRAWS times with each host's clock set off by up to a day and 50 ppm.
"""

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from collector.analysis import analyse
from collector.clocks.alignment import align
from collector.clocks.evidence import ways_of
from collector.clocks.solve import solve
from collector.decode.host_capture import HostSource
from collector.trace.reading import Trace
from testkit.clock_paths import SCENARIOS
from testkit.clock_traffic import DAY_NS, Traffic

OURS = [Path("captures/bench-2-puts"), Path("captures/swift-upload-1B")]
COLUMNS = [
    *("kind", "state", "stream_end"),
    *(f"{end}_{name}" for end in ("send", "receive") for name in ("host", "frame", "host_ns")),
]


@dataclass(frozen=True)
class Errors:
    """Of each hop of a capture: how far its delay is off, the likely error and the bound that came with it; ns."""

    true_ns: np.ndarray
    likely_ns: np.ndarray
    bound_ns: np.ndarray

    def covered_share(self, share: float = 1.0) -> float:
        """The share of hops that are off by no more than the likely error, or than this share of it."""
        return float(np.mean(self.true_ns <= share * self.likely_ns + 1))

    def bounded_share(self) -> float:
        """The share of hops that are off by no more than the bound."""
        return float(np.mean(self.true_ns <= self.bound_ns + 5))


def errors_of(given: Traffic, tick_ns: int = 0) -> Errors:
    """What aligning a capture comes to, against the truth."""
    ticks = {host: tick_ns for host, *_ in given.windows} if tick_ns else {}
    aligned = align(given.hops, solve(ways_of(given.hops), given.windows, ticks))
    true_ns = np.abs(aligned["one_way_delay_ns"].to_numpy() - (given.received_ns - given.sent_ns))
    return Errors(true_ns, aligned["likely_error_ns"].to_numpy(), aligned["uncertainty_ns"].to_numpy())


def main() -> None:
    """Measure and print."""
    draws, *folders = sys.argv[1:] or ["150"]
    print_likely(int(draws), [*OURS, *map(Path, folders)])


def print_likely(draws: int, captures: list[Path]) -> None:
    """The table of how often the likely error holds."""
    print("| | captures | within the likely error | within half of it | within the bound | error | likely | bound |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for scenario in SCENARIOS:
        _print_row(scenario.name, (errors_of(scenario.draw(seed), scenario.tick_ns) for seed in range(draws)))
    random = np.random.default_rng(21)
    for folder in captures:
        hops, windows = _hops_of(folder)
        _print_row(f"real: {folder.name}", [_real_errors(hops, windows, {})])
        clocks = [{host: _wrong_clock(random) for host, *_ in windows} for _ in range(draws // 5)]
        _print_row(f"real: {folder.name}, clocks off", (_real_errors(hops, windows, each) for each in clocks))


def _print_row(name: str, found: Iterable[Errors]) -> None:
    every = list(found)
    shares = [[each.covered_share(), each.covered_share(0.5), each.bounded_share()] for each in every]
    medians = [[np.median(part) for part in (each.true_ns, each.likely_ns, each.bound_ns)] for each in every]
    percents = " | ".join(f"{100 * share:.1f} %" for share in np.mean(shares, axis=0))
    sizes = " | ".join(f"{size / 1000:,.2f} µs" for size in np.median(medians, axis=0))
    print(f"| {name} | {len(every)} | {percents} | {sizes} |", flush=True)


def _hops_of(folder: Path) -> tuple[pa.Table, list[tuple[str, int, int]]]:
    """Matched hops between hosts of a folder of captures, and when each host captured."""
    files = sorted(path for path in folder.iterdir() if {".pcap", ".pcapng"} & set(path.suffixes))
    with tempfile.TemporaryDirectory() as place:
        analyse([HostSource(path.name.split(".")[0], (path,)) for path in files], place)
        rows = pl.DataFrame(Trace(place).read("hops", COLUMNS)).with_columns(pl.col(pl.Categorical).cast(pl.String))
        info = Trace(place).info()
    of_two = rows.filter((pl.col("state") == "matched") & (pl.col("send_host") != pl.col("receive_host")))
    seen = [(host.host, host.first_host_ns, host.last_host_ns) for host in info.hosts]
    return of_two.to_arrow(), [window for window in seen if None not in window]  # type: ignore[misc]


def _wrong_clock(random: np.random.Generator) -> tuple[int, int]:
    return int(random.integers(-DAY_NS, DAY_NS)), int(random.integers(-50_000, 50_000))


def _real_errors(hops: pa.Table, windows: list[tuple[str, int, int]], clocks: dict[str, tuple[int, int]]) -> Errors:
    """Errors of hops whose stamps are by one clock, after setting each host's clock off."""
    first_ns = min(first for _, first, _ in windows)

    def read(host: str, at_ns: np.ndarray) -> np.ndarray:
        offset_ns, skew_ppb = clocks.get(host, (0, 0))
        return at_ns + offset_ns + np.rint((at_ns - first_ns) * (skew_ppb / 1e9)).astype(np.int64)

    true = {end: hops[f"{end}_host_ns"].to_numpy() for end in ("send", "receive")}
    for end, stamps in true.items():
        of = hops[f"{end}_host"].to_numpy()
        wrong = np.select([of == host for host, *_ in windows], [read(host, stamps) for host, *_ in windows])
        hops = hops.set_column(hops.column_names.index(f"{end}_host_ns"), f"{end}_host_ns", pa.array(wrong))
    seen = [(host, *read(host, np.array(edges)).tolist()) for host, *edges in windows]
    return errors_of(Traffic(hops, seen, true["send"], true["receive"]))


if __name__ == "__main__":
    main()
