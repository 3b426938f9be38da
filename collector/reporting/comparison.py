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

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector.reporting import story
from collector.reporting.failed_connects import CONNECTION_COLUMNS
from collector.reporting.request_rows import RequestRows
from collector.reporting.significance import half_width_95, p_values_of_many, rank_test
from collector.reporting.stage_times import (
    STAGE_COLUMNS,
    clients_roots,
    merge_directions_alike,
    request_durations,
    stages_of,
    stages_of_some,
)
from collector.trace import durations
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace

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


def compare_traces(first_url: str, second_url: str) -> Comparison:
    """Compare the requests of two traces.

    Raises: `InputError` if either is no trace.
    """
    first, second = (stages_of_trace(Trace(url)) for url in (first_url, second_url))
    return compare(first, second, first_url, second_url)


def stages_of_trace(trace: Trace) -> pl.DataFrame:
    """The stages of a trace's requests, with the columns of `collector.reporting.stage_times.request_stages`.

    Raises: `InputError` if it is no trace.
    """
    return trace.read_unchanged(lambda info: all_stages(trace, info))


def all_stages(trace: Trace, info: TraceInfo) -> pl.DataFrame:
    """The result of `stages_of_trace`, with `info` already read; waits for failed connections are stages too."""
    connections = trace.read("connections", CONNECTION_COLUMNS)
    tables = [trace.read(name) for name in ("clocks", "silences")]
    return stages_of_all(RequestRows.of_trace(trace), info, connections, *tables)


def stages_of_all(
    rows: RequestRows, info: TraceInfo, connections: pa.Table, clocks: pa.Table, silences: pa.Table
) -> pl.DataFrame:
    """The result of `all_stages`, from the `rows` and tables of a trace."""
    every = story.with_failed_connects(rows, info, connections, clocks, silences, STAGE_COLUMNS)
    return stages_of(every, clients_roots(rows))


def slow_against_typical(stages: pl.DataFrame) -> Comparison:
    """Compare the slowest 5 % of the requests of each kind with its middle half.

    Arguments: `stages`, from `collector.reporting.stage_times.request_stages`.
    """
    took = request_durations(stages)

    def limit(share: float) -> pl.Expr:
        return pl.col("took").quantile(share, "linear").over("kind")

    slow = took.filter(pl.col("took") > limit(SLOW_SHARE))
    typical = took.filter(pl.col("took").is_between(limit(TYPICAL_FROM), limit(TYPICAL_TO)))
    ours, theirs = (stages_of_some(stages, some) for some in (typical, slow))
    return compare(ours, theirs, "typical", "slow")


def compare(first: pl.DataFrame, second: pl.DataFrame, first_name: str, second_name: str) -> Comparison:
    """Compare two groups of requests.

    Arguments: their stages, from `collector.reporting.stage_times.request_stages`, and the names of the groups.
    Cost: passes over the rows; the tests are of at most `MOST_BLOCKS` values each.
    """
    first, second = merge_directions_alike((first, second))
    counts = [
        dict(request_durations(group)["kind"].cast(pl.String).value_counts().iter_rows()) for group in (first, second)
    ]
    kinds = sorted({*counts[0], *counts[1]})
    enough = [kind for kind in kinds if min(count.get(kind, 0) for count in counts) >= FEWEST_REQUESTS]
    tested = [
        _StageTests.of(kind, *(group.filter(pl.col("kind") == kind) for group in (first, second))) for kind in enough
    ]
    p_values = np.concatenate([each.p_values for each in tested]) if tested else np.zeros(0)
    corrected = p_values_of_many(p_values)
    pieces = np.split(corrected, np.cumsum([len(each.stages) for each in tested])[:-1]) if tested else []
    compared = [each.compare_kind(piece, first_name, second_name) for each, piece in zip(tested, pieces, strict=True)]
    compared.sort(key=lambda kind: -abs(kind.second.mean_ns - kind.first.mean_ns) * kind.second.requests_count)
    few = [kind for kind in kinds if kind not in enough]
    in_both = [kind for kind in few if all(kind in count for count in counts)]
    untested = []
    for kind in in_both:
        ours, theirs = (group.filter(pl.col("kind") == kind) for group in (first, second))
        untested.append(_compare_untested(kind, ours, theirs, first_name, second_name))
    return Comparison(first_name, second_name, tuple(compared), tuple(few), tuple(untested))


class _StageTests(Struct, frozen=True):
    """A kind of request: for each stage its means and the test; `totals` are the durations of the requests."""

    kind: str
    stages: tuple[str, ...]
    means: tuple[Doubles, Doubles]
    half_widths: Doubles
    p_values: Doubles
    totals: tuple[Doubles, Doubles]

    @classmethod
    def of(cls, kind: str, first: pl.DataFrame, second: pl.DataFrame) -> "_StageTests":
        stages = tuple(sorted({*first["stage"].unique(), *second["stage"].unique()}))
        tables = [_table(group, stages) for group in (first, second)]
        blocks = [_block_means(table) for table in tables]
        p_values, half_widths = rank_test(*blocks), half_width_95(*blocks)
        means = (tables[0].mean(axis=0), tables[1].mean(axis=0))
        return cls(kind, stages, means, half_widths, p_values, (tables[0].sum(axis=1), tables[1].sum(axis=1)))

    def compare_kind(self, corrected: Doubles, first_name: str, second_name: str) -> KindComparison:
        columns = (*self.means, self.half_widths)
        rows = []
        for at, stage in enumerate(self.stages):
            first, second, half_width = (round(float(column[at])) for column in columns)
            rows.append(StageDifference(self.kind, stage, first, second, half_width, float(corrected[at])))
        rows.sort(key=lambda row: (-abs(row.difference_ns), row.stage))
        before, after = _group(first_name, self.totals[0]), _group(second_name, self.totals[1])
        return KindComparison(self.kind, before, after, tuple(rows))


def _compare_untested(
    kind: str, first: pl.DataFrame, second: pl.DataFrame, first_name: str, second_name: str
) -> KindComparison:
    """A kind with too few requests for any test: its means, and p-values of 1."""
    stages = tuple(sorted({*first["stage"].unique(), *second["stage"].unique()}))
    tables = [_table(group, stages) for group in (first, second)]
    means = [table.mean(axis=0) for table in tables]
    rows = [
        StageDifference(kind, stage, round(float(ours)), round(float(theirs)), 0, 1.0)
        for stage, ours, theirs in zip(stages, *means, strict=True)
    ]
    rows.sort(key=lambda row: (-abs(row.difference_ns), row.stage))
    before, after = _group(first_name, tables[0].sum(axis=1)), _group(second_name, tables[1].sum(axis=1))
    return KindComparison(kind, before, after, tuple(rows))


def _table(stages: pl.DataFrame, columns: tuple[str, ...]) -> Doubles:
    """Requests in order of time × stages, ns."""
    request, stage = stages["request"].to_numpy(), stages["stage"].cast(pl.Enum(columns)).to_physical().to_numpy()
    is_there = np.zeros(int(request.max()) + 1, np.bool_)
    is_there[request] = True
    row_of = np.cumsum(is_there) - 1
    table = np.zeros((int(row_of[-1]) + 1, len(columns)))
    table[row_of[request], stage] = stages["duration_ns"].to_numpy()
    return table


def _block_means(table: Doubles) -> Doubles:
    """The means of blocks of equally many requests."""
    return np.array([block.mean(axis=0) for block in np.array_split(table, min(MOST_BLOCKS, len(table)))])


def _group(name: str, totals: Doubles) -> Group:
    return Group(name, len(totals), round(float(totals.mean())), round(float(np.median(totals))))
