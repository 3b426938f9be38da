"""Compares two runs, and tests whether their differences exceed chance.

Response times of one run are correlated: a slow second makes all its operations slow. Resampling single operations
would treat them as independent and find differences everywhere. So a run is cut into `BLOCKS` slices of time, and
slices are drawn (with replacement, `DRAWS` times): a block bootstrap. The interval is the middle 95 % of the relative
differences. It shows the uncertainty of *these* two runs' figures; the variation from day to day takes several runs.

Source: Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17 (1989);
here with blocks that do not overlap (Carlstein 1986).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results.figures import Key
from storage_cluster.bench.results.folder import Run

BLOCKS = 100
DRAWS = 1000
CONFIDENCE = 0.95
_LEAST_OPERATIONS = 20
_BIN_RATIO = 1.002  # neighbouring response times that are counted as one
_SEED = 1989
SMALLEST_CHANGE = 0.0005
"""Smaller ones are 0.0 % where they are shown."""
PERCENTS = (50.0, 90.0, 95.0, 99.0)
_FIGURES = (
    ("throughput", "op/s", True),
    ("mean", "ms", False),
    *((f"{percent:g} %", "ms", False) for percent in PERCENTS),
    ("succeeded", "%", True),
)
"""Name, unit, whether more is better."""

Counts = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Difference:
    """One figure in both runs."""

    name: str
    unit: str
    first: float
    second: float
    low: float  # of second / first - 1
    high: float
    more_is_better: bool

    @property
    def change(self) -> float:
        """Second / first - 1."""
        return self.second / self.first - 1 if self.first else 0.0

    @property
    def verdict(self) -> str:
        """The verdict in one word."""
        if self.low <= SMALLEST_CHANGE and self.high >= -SMALLEST_CHANGE:
            return "no difference seen"
        return "better" if (self.change > 0) == self.more_is_better else "worse"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One operation in both runs."""

    key: Key
    differences: tuple[Difference, ...]
    note: str = ""  # why there is no interval


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """A run's operations of one kind, cut by time."""

    histograms: Counts  # shape (BLOCKS, bins): operations that went well, by response time
    sums_ns: Counts  # of their response times
    failures: Counts
    block_s: float


def compare(first: Run, second: Run) -> list[Comparison]:
    """Compare every operation that both runs did. Raises: RunError if there is none."""
    keys = [key for key in first.tally.figures if key in second.tally.figures]
    if not keys:
        raise RunError("the two runs have no operation in common", "compare runs of the same workload")
    durations = [_durations_by_key(run, keys) for run in (first, second)]
    return [_compare(key, first, second, durations[0][key], durations[1][key]) for key in keys]


def as_text(first: Run, second: Run, found: Sequence[Comparison]) -> str:
    """The comparison for people."""
    lines = [f"A {first.folder} ({first.info.name})", f"B {second.folder} ({second.info.name})"]
    for comparison in found:
        lines.append(
            f"\n{comparison.key.stage}/{comparison.key.operation}" + (f": {comparison.note}" if comparison.note else "")
        )
        lines += (_line(difference) for difference in comparison.differences)
    return "\n".join(lines)


def _line(difference: Difference) -> str:
    values = f"{difference.first:>12,.2f} {difference.second:>12,.2f} {difference.unit:<5}"
    interval = f"[{difference.low * 100:+7.1f} % … {difference.high * 100:+7.1f} %]"
    return f"  {difference.name:<12}{values} {difference.change * 100:+8.1f} % {interval}  {difference.verdict}"


def _durations_by_key(run: Run, keys: Sequence[Key]) -> dict[Key, NDArray[np.int64]]:
    """For each operation an array (n, 3): begin (ns), response time (ns), whether it failed."""
    found: dict[Key, list[tuple[int, int, bool]]] = {key: [] for key in keys}
    for row in run.rows():
        key = Key(row.stage, row.work, row.operation)
        if row.final and row.measured and key in found:
            found[key].append((row.start_ns - row.waited_ns, row.response_ns, bool(row.error)))
    return {key: np.array(rows, dtype=np.int64).reshape(-1, 3) for key, rows in found.items()}


def _compare(
    key: Key, first: Run, second: Run, first_rows: NDArray[np.int64], second_rows: NDArray[np.int64]
) -> Comparison:
    fewest = min(int((rows[:, 2] == 0).sum()) for rows in (first_rows, second_rows))
    if fewest < _LEAST_OPERATIONS:
        return Comparison(key, (), f"too few operations went well ({fewest}) to compare")
    elapsed = [run.info.elapsed_s(key, run.tally.figures[key]) for run in (first, second)]
    edges = _edges(first_rows, second_rows)
    blocks = [_cut(rows, seconds, edges) for rows, seconds in zip((first_rows, second_rows), elapsed, strict=True)]
    rng = np.random.default_rng(_SEED)
    weights = [rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), DRAWS).astype(float) for _ in blocks]
    exact = [_figures(block, np.ones((1, BLOCKS)), edges)[0] for block in blocks]
    drawn = [_figures(block, weight, edges) for block, weight in zip(blocks, weights, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = drawn[1] / drawn[0] - 1
    low, high = np.nanquantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return Comparison(
        key,
        tuple(
            Difference(name, unit, float(exact[0][n]), float(exact[1][n]), float(low[n]), float(high[n]), better)
            for n, (name, unit, better) in enumerate(_FIGURES)
        ),
    )


def _edges(*parts: NDArray[np.int64]) -> Counts:
    """Borders of bins that hold all response times."""
    times = np.concatenate([rows[rows[:, 2] == 0, 1] for rows in parts])
    low, high = max(int(times.min()), 1), int(times.max()) + 1
    return np.geomspace(low, high, max(int(np.log(high / low) / np.log(_BIN_RATIO)), 1) + 2)


def _cut(rows: NDArray[np.int64], elapsed_s: float, edges: Counts) -> _Blocks:
    begin = rows[:, 0].min()
    block_ns = max(elapsed_s * 1e9, float(rows[:, 0].max() - begin) + 1) / BLOCKS
    block = np.minimum((rows[:, 0] - begin) / block_ns, BLOCKS - 1).astype(int)
    well = rows[:, 2] == 0
    binned = np.clip(np.searchsorted(edges, rows[:, 1], side="right") - 1, 0, len(edges) - 2)
    histograms = np.zeros((BLOCKS, len(edges) - 1))
    np.add.at(histograms, (block[well], binned[well]), 1)
    sums = np.bincount(block[well], rows[well, 1], BLOCKS).astype(float)
    return _Blocks(histograms, sums, np.bincount(block[~well], minlength=BLOCKS).astype(float), block_ns / 1e9)


def _figures(blocks: _Blocks, weights: Counts, edges: Counts) -> Counts:
    """`_FIGURES` of each draw of blocks: weights of shape (draws, BLOCKS) in, (draws, figures) out."""
    well = weights @ blocks.histograms.sum(axis=1)
    throughput = well / (weights.sum(axis=1) * blocks.block_s)
    mean = (weights @ blocks.sums_ns) / np.maximum(well, 1) / 1e6
    cumulated = np.cumsum(weights @ blocks.histograms, axis=1)
    percentiles = []
    for percent in PERCENTS:
        ranks = np.maximum(np.ceil(percent / 100 * well - 1e-9), 1)
        percentiles.append(edges[(cumulated < ranks[:, None]).sum(axis=1)] / 1e6)
    succeeded = 100 * well / np.maximum(well + weights @ blocks.failures, 1)
    return np.column_stack([throughput, mean, *percentiles, succeeded])
