"""Compares two groups of requests, stage by stage, and tests whether a difference is more than noise.

The groups are two traces, or the slow and the typical requests of one trace. Requests are compared within one kind
(`PUT at swift-proxy`), so a different mix of reads and writes is no difference. The means of each stage are compared:
their differences sum up, over the stages, to the difference of the whole.

Requests that run at the same time are slow together, so they are not independent observations; a test that assumes
independence finds a difference between any two runs. Each group is therefore divided, in order of time, into at most
`MOST_BLOCKS` blocks of equally many requests, and the means of the blocks are compared. Test: Mann and Whitney's,
two-sided. The p-values of all kinds and stages together are corrected for their number by Benjamini and Yekutieli's
procedure, which holds for dependent tests, as parts of one sum are. The interval of a difference is Welch's, 95 %, of
the same means.

Sources: Mann and Whitney 1947; Benjamini and Yekutieli 2001; Welch 1947; batch means: Law and Kelton, ch. 9.
Limits: only another run can distinguish a disturbance longer than a block (a minute of somebody's backup during one of
two short runs) from a real difference. Slow and typical requests are chosen by their durations, so some stage always
differs between them: the test shows which.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from collector.reporting import story
from collector.reporting.request_rows import RequestRows
from collector.reporting.root_requests import read_roots
from collector.reporting.significance import half_width_95, p_values_of_many, rank_test
from collector.reporting.stage_times import NO_CELL, Numbers, StageLedger, StageRows, Stages, merge_sums_alike
from collector.trace import durations
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.time_columns import Int64Array

Doubles = NDArray[np.float64]

MOST_BLOCKS = 20
FEWEST_REQUESTS = 5
"""Fewest requests of a kind in either group: with fewer no test can succeed (the least p-value of 4 against 4 is
0.03)."""
MOST_P_VALUE = 0.01
"""With a corrected p-value below this, a difference is more than noise."""
SLOW_SHARE, TYPICAL_FROM, TYPICAL_TO = 0.95, 0.25, 0.75
"""Slow requests are above the first of these quantiles of their kind, typical ones between the others."""


class Group(Struct, frozen=True):
    """One side of a comparison."""

    name: str
    requests_count: int
    mean_ns: int
    median_ns: int


class StageDifference(Struct, frozen=True):
    """One stage of one kind of request; means are over all requests of that kind in the group."""

    kind: str
    stage: str
    first_ns: int
    second_ns: int
    uncertainty_ns: int  # of the difference, 95 %
    p_value: float  # corrected for the number of tests

    @property
    def difference_ns(self) -> int:
        """How much longer it takes in the second group."""
        return self.second_ns - self.first_ns

    @property
    def is_significant(self) -> bool:
        """Whether it is more than noise."""
        return self.p_value < MOST_P_VALUE

    @property
    def varies_widely(self) -> bool:
        """Whether the difference of the means may be 0, though the ranks differ: it varies widely."""
        return self.is_significant and self.uncertainty_ns >= abs(self.difference_ns)

    @property
    def in_words(self) -> str:
        """`+9.1 ms ± 1.2 ms`; `+4.1 ms on average, varying widely` where an interval would say that it may be 0."""
        sign, change = "+" if self.difference_ns >= 0 else "−", abs(self.difference_ns)
        if self.varies_widely:
            return f"{sign}{durations.in_words(change)} on average, varying widely"
        return sign + durations.with_uncertainty(change, self.uncertainty_ns)


class KindComparison(Struct, frozen=True):
    """Requests of one kind in both groups; the differences of `stages` sum up to that of the means (rounded)."""

    kind: str
    first: Group
    second: Group
    stages: tuple[StageDifference, ...]  # largest difference first


class Comparison(Struct, frozen=True):
    """Two groups of requests, kind by kind; the kind with the largest total difference comes first."""

    first: str
    second: str
    kinds: tuple[KindComparison, ...]
    left_out: tuple[str, ...]  # kinds with too few requests in either group
    untested: tuple[KindComparison, ...] = ()  # those of them in both groups: whether they differ by noise is unknown

    @property
    def significant(self) -> tuple[StageDifference, ...]:
        """The differences that are more than noise, largest first."""
        found = [stage for kind in self.kinds for stage in kind.stages if stage.is_significant]
        return tuple(sorted(found, key=lambda stage: -abs(stage.difference_ns)))


class KindBlocks(Struct, frozen=True):
    """The requests of one kind in a group, divided in order of time into blocks of equally many."""

    first: int  # the cell of the first block; the others follow
    sizes: Int64Array  # requests of each block
    mean_ns: int  # of their durations
    median_ns: int

    @property
    def count(self) -> int:
        """How many requests there are."""
        return int(self.sizes.sum())


class Blocks(Struct, frozen=True):
    """The requests of a group, by kind in blocks."""

    cells: Numbers  # the cell of each request, as `Stages.sums` takes them
    kinds: dict[str, KindBlocks]

    @classmethod
    def of(cls, stages: Stages, group: Mapping[str, Numbers]) -> "Blocks":
        """Arguments: by kind, which rows of the `requests` of `stages` are in the group."""
        requests, first, kinds = stages.requests, 0, dict[str, KindBlocks]()
        request, took = requests["request"].to_numpy(), requests["took"].to_numpy()
        cells = np.full(int(request[-1]) + 1 if len(request) else 0, NO_CELL, np.uint32)
        for kind, places in group.items():
            if not len(places):
                continue
            sizes = np.array([len(block) for block in np.array_split(places, min(MOST_BLOCKS, len(places)))])
            cells[request[places]] = np.repeat(np.arange(first, first + len(sizes), dtype=np.uint32), sizes)
            durations_ns = took[places].astype(np.float64)
            mean_ns, median_ns = (round(float(of(durations_ns))) for of in (np.mean, np.median))
            kinds[kind] = KindBlocks(first, sizes, mean_ns, median_ns)
            first += len(sizes)
        return cls(cells, kinds)

    @classmethod
    def of_all(cls, stages: Stages) -> "Blocks":
        """All requests as one group."""
        return cls.of(stages, _places_by_kind(stages.requests["kind"]))


class BlockSums(Struct, frozen=True):
    """The time of each stage in each block of a group."""

    blocks: Blocks
    sums: pl.DataFrame  # `stage, cell, duration_ns`

    @classmethod
    def of(cls, stages: Stages) -> "BlockSums":
        """All requests as one group."""
        blocks = Blocks.of_all(stages)
        return cls.of_cells(blocks, stages.sums(cell=blocks.cells), "cell")

    @classmethod
    def of_cells(cls, blocks: Blocks, sums: pl.DataFrame, name: str) -> "BlockSums":
        """Arguments: `sums` of stages, and how the cells of these blocks are called there."""
        mine = sums.filter(pl.col(name) != NO_CELL).group_by("stage", cell=name).agg(pl.col("duration_ns").sum())
        return cls(blocks, mine)

    def of_kind(self, kind: str) -> pl.DataFrame:
        """The sums of a kind; its blocks are counted from 0."""
        of = self.blocks.kinds[kind]
        block = pl.col("cell").cast(pl.Int64) - of.first
        return self.sums.with_columns(cell=block).filter(pl.col("cell").is_between(0, len(of.sizes) - 1))


def stages_of_trace(trace: Trace) -> Iterator[pl.DataFrame]:
    """The stages of a trace's requests, with the columns of `collector.reporting.stage_times.request_stages`, some
    requests at a time; at least one part. The trace is read meanwhile.

    Raises: `InputError` if it is no trace.
    """
    yield from trace.read_unchanged(lambda info: _all_stages(trace, info)).row_parts()


def sums_of_trace(trace: Trace) -> BlockSums:
    """All requests of a trace as a group. Raises: `InputError` if it is no trace."""
    return trace.read_unchanged(lambda info: BlockSums.of(_all_stages(trace, info)))


def _all_stages(trace: Trace, info: TraceInfo) -> StageLedger:
    """The stages of a trace; waits for failed connections are stages too."""
    rows = RequestRows.of_trace(trace)
    more = story.failed_connects_of(rows, info, partial(trace.batches, "connections"), trace.read("clocks"))
    return StageLedger.of(rows, read_roots(rows), more, None if more is None else trace.read("silences"))


def slow_in_trace(trace: Trace) -> Comparison:
    """As `slow_against_typical`, of a trace's requests. Raises: `InputError` if it is no trace."""
    return trace.read_unchanged(lambda info: slow_against_typical(_all_stages(trace, info)))


def slow_against_typical(stages: Stages) -> Comparison:
    """Compare the slowest 5 % of the requests of each kind with its middle half."""
    typical, slow = typical_and_slow(stages)
    return compare_slow(typical, slow, stages.sums(typical=typical.cells, slow=slow.cells))


def typical_and_slow(stages: Stages) -> tuple[Blocks, Blocks]:
    """The typical requests, and the slow ones."""
    took, typical, slow = stages.requests["took"].to_numpy(), dict[str, Numbers](), dict[str, Numbers]()
    for kind, places in _places_by_kind(stages.requests["kind"]).items():
        own = pl.Series(took[places])
        shares = (SLOW_SHARE, TYPICAL_FROM, TYPICAL_TO)
        limit, low, high = (own.quantile(share, "linear") for share in shares)
        typical[kind], slow[kind] = places[own.is_between(low, high)], places[own > limit]
    return Blocks.of(stages, typical), Blocks.of(stages, slow)


def compare_slow(typical: Blocks, slow: Blocks, sums: pl.DataFrame) -> Comparison:
    """Compare the groups of `typical_and_slow`. Arguments: sums of stages over their cells, `typical` and `slow`."""
    ours, theirs = BlockSums.of_cells(typical, sums, "typical"), BlockSums.of_cells(slow, sums, "slow")
    return compare_sums(ours, theirs, "typical", "slow")


def compare(first: pl.DataFrame, second: pl.DataFrame, first_name: str, second_name: str) -> Comparison:
    """Compare two groups of requests.

    Arguments: their stages, from `collector.reporting.stage_times.request_stages`, and the names of the groups.
    """
    ours, theirs = (BlockSums.of(StageRows(group)) for group in (first, second))
    return compare_sums(ours, theirs, first_name, second_name)


def compare_sums(first: BlockSums, second: BlockSums, first_name: str, second_name: str) -> Comparison:
    """Compare two groups of requests. Cost: the tests are of at most `MOST_BLOCKS` values each."""
    sums = merge_sums_alike((first.sums, second.sums))
    first, second = replace(first, sums=sums[0]), replace(second, sums=sums[1])
    counts = [{kind: of.count for kind, of in group.blocks.kinds.items()} for group in (first, second)]
    kinds = sorted({*counts[0], *counts[1]})
    enough = [kind for kind in kinds if min(count.get(kind, 0) for count in counts) >= FEWEST_REQUESTS]
    tested = [_StageTests.of(kind, first, second) for kind in enough]
    p_values = np.concatenate([each.p_values for each in tested]) if tested else np.zeros(0)
    corrected = p_values_of_many(p_values)
    pieces = np.split(corrected, np.cumsum([len(each.stages) for each in tested])[:-1]) if tested else []
    compared = [each.compare_kind(piece, first_name, second_name) for each, piece in zip(tested, pieces, strict=True)]
    compared.sort(key=lambda kind: -abs(kind.second.mean_ns - kind.first.mean_ns) * kind.second.requests_count)
    few = [kind for kind in kinds if kind not in enough]
    in_both = [kind for kind in few if all(kind in count for count in counts)]
    untested = tuple(_compare_untested(kind, first, second, first_name, second_name) for kind in in_both)
    return Comparison(first_name, second_name, tuple(compared), tuple(few), untested)


class _StageTests(Struct, frozen=True):
    """A kind of request: for each stage its means and the test."""

    kind: str
    stages: tuple[str, ...]
    means: tuple[Doubles, Doubles]
    half_widths: Doubles
    p_values: Doubles
    blocks: tuple[KindBlocks, KindBlocks]

    @classmethod
    def of(cls, kind: str, first: BlockSums, second: BlockSums) -> "_StageTests":
        stages, means, blocks, of_blocks = _tables(kind, first, second)
        p_values, half_widths = rank_test(*of_blocks), half_width_95(*of_blocks)
        return cls(kind, stages, means, half_widths, p_values, blocks)

    def compare_kind(self, corrected: Doubles, first_name: str, second_name: str) -> KindComparison:
        columns = (*self.means, self.half_widths)
        rows = []
        for at, stage in enumerate(self.stages):
            first, second, half_width = (round(float(column[at])) for column in columns)
            rows.append(StageDifference(self.kind, stage, first, second, half_width, float(corrected[at])))
        rows.sort(key=lambda row: (-abs(row.difference_ns), row.stage))
        before, after = _group(first_name, self.blocks[0]), _group(second_name, self.blocks[1])
        return KindComparison(self.kind, before, after, tuple(rows))


def _compare_untested(
    kind: str, first: BlockSums, second: BlockSums, first_name: str, second_name: str
) -> KindComparison:
    """A kind with too few requests for any test: its means, and p-values of 1."""
    stages, means, blocks, _ = _tables(kind, first, second)
    rows = [
        StageDifference(kind, stage, round(float(ours)), round(float(theirs)), 0, 1.0)
        for stage, ours, theirs in zip(stages, *means, strict=True)
    ]
    rows.sort(key=lambda row: (-abs(row.difference_ns), row.stage))
    return KindComparison(kind, _group(first_name, blocks[0]), _group(second_name, blocks[1]), tuple(rows))


def _tables(
    kind: str, first: BlockSums, second: BlockSums
) -> tuple[tuple[str, ...], tuple[Doubles, Doubles], tuple[KindBlocks, KindBlocks], tuple[Doubles, Doubles]]:
    """The stages of a kind; for both groups the means over all requests, the blocks, and the means over each block."""
    sums = first.of_kind(kind), second.of_kind(kind)
    stages = tuple(sorted({*sums[0]["stage"], *sums[1]["stage"]}))
    blocks = first.blocks.kinds[kind], second.blocks.kinds[kind]
    ours, theirs = (_table(each, stages, len(of.sizes)) for each, of in zip(sums, blocks, strict=True))
    means = ours.sum(axis=0) / blocks[0].count, theirs.sum(axis=0) / blocks[1].count
    return stages, means, blocks, (ours / blocks[0].sizes[:, None], theirs / blocks[1].sizes[:, None])


def _table(sums: pl.DataFrame, stages: tuple[str, ...], blocks_count: int) -> Doubles:
    """Blocks in order of time × stages, ns."""
    table = np.zeros((blocks_count, len(stages)))
    stage = sums["stage"].cast(pl.Enum(stages)).to_physical().to_numpy()
    table[sums["cell"].to_numpy(), stage] = sums["duration_ns"].to_numpy()
    return table


def _places_by_kind(kind: pl.Series) -> dict[str, Numbers]:
    """Where each kind is, in order."""
    names = kind.cast(pl.Categorical)
    numbers = names.to_physical().to_numpy()
    order = np.argsort(numbers, kind="stable").astype(np.uint32)
    counts = np.bincount(numbers)
    places = np.split(order, np.cumsum(counts[counts > 0])[:-1]) if len(order) else []
    return {names.gather([int(each[0])]).cast(pl.String).item(): each for each in places}


def _group(name: str, blocks: KindBlocks) -> Group:
    return Group(name, blocks.count, blocks.mean_ns, blocks.median_ns)
