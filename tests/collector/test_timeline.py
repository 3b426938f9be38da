"""The index of the timeline against an obviously right answer: looking at every hop."""

import numpy as np
import pyarrow as pa
import pytest

from collector import timeline
from collector.schema import HopKind, HopState, conform
from collector.timeline import MISSING_NS, NO_LANE, ArrowClass, HopColumns, HopIndex

HOSTS = ("client", "proxy", "storage")
START_NS = 1_790_000_000_000_000_000
SPAN_NS = 1_000_000_000


def hops_table(count: int, seed: int) -> pa.Table:
    """Hops at random, not in order: some lost, some seen at the receiver only, some very long, some negative."""
    rng = np.random.default_rng(seed)
    sent = START_NS + rng.integers(0, SPAN_NS, count)
    delay = rng.integers(-20_000, 200_000, count)
    delay[rng.random(count) < 0.01] = 300_000_000
    lost, unseen = rng.random(count) < 0.05, rng.random(count) < 0.05
    unseen &= ~lost
    state = np.where(lost, HopState.LOST, np.where(unseen, HopState.OUTSIDE_WINDOW, HopState.MATCHED))
    source = rng.integers(0, 3, count)
    nothing = pa.nulls(count, pa.int64())
    table = pa.table(
        {
            "connection_id": np.arange(count) % 7,
            "kind": rng.choice([HopKind.DATA, HopKind.ACK, HopKind.SYN, HopKind.RST], count).tolist(),
            "from_client": np.ones(count, dtype=bool),
            "send_host": pa.array([HOSTS[each] for each in source], mask=unseen),
            "send_frame": nothing,
            "send_host_ns": nothing,
            "send_trace_ns": pa.array(sent, mask=unseen),
            "receive_host": [HOSTS[(each + 1) % 3] for each in source],
            "receive_frame": nothing,
            "receive_host_ns": nothing,
            "receive_trace_ns": pa.array(sent + delay, mask=lost),
            "stream_start": np.zeros(count, dtype=np.int64),
            "stream_end": rng.integers(0, 1_449, count),
            "attempt": rng.integers(1, 3, count),
            "state": state.tolist(),
            "one_way_delay_ns": nothing,
            "uncertainty_ns": nothing,
            "exchange_id": np.arange(count) % 5,
        }
    )
    return conform("hops", table)


@pytest.fixture(scope="module", params=[300, 5_000])
def index(request: pytest.FixtureRequest) -> HopIndex:
    """An index with its table of counts, whatever the number of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "TABLE_MIN_ROWS", 1)
        patch.setattr(timeline, "TABLE_CELLS", 20_000)
        columns = HopColumns.from_table(hops_table(request.param, 3), HOSTS, START_NS, np.arange(4))
        return HopIndex(columns, len(HOSTS))


def windows(seed: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    widths = 10 ** rng.uniform(1, 9, 60)
    starts = rng.uniform(-0.1, 1.1, 60) * SPAN_NS
    return [(int(start), int(start + width)) for start, width in zip(starts, widths, strict=True)]


def test_rows_are_sorted_and_none_is_missing(index: HopIndex) -> None:
    columns = index.columns
    assert (np.diff(columns.anchor_ns) >= 0).all()
    assert sorted(columns.row.tolist()) == list(range(len(columns)))
    assert (columns.source[columns.sent_ns == MISSING_NS] == NO_LANE).all()
    assert (columns.span[columns.row % 5 == 4] == -1).all()  # an exchange that is no span
    assert (columns.span[columns.row % 5 == 3] == 3).all()


def test_a_window_holds_what_overlaps_it(index: HopIndex) -> None:
    columns = index.columns
    both = (columns.sent_ns != MISSING_NS) & (columns.received_ns != MISSING_NS)
    begin, end = np.minimum(columns.sent_ns, columns.received_ns), np.maximum(columns.sent_ns, columns.received_ns)
    negative = np.flatnonzero(both & (columns.received_ns < columns.sent_ns))
    moments = [(time, time) for row in negative[:20] for time in (int(begin[row]), int(end[row]))]
    assert moments
    for from_ns, to_ns in [*windows(1), *moments]:
        rows = index.overlapping(from_ns, to_ns, len(columns))
        assert rows is not None
        assert (np.diff(rows) > 0).all()
        expected = np.flatnonzero(both & (begin <= to_ns) & (end >= from_ns))
        assert rows[both[rows]].tolist() == expected.tolist()
        lone = np.flatnonzero(~both & (columns.anchor_ns >= from_ns) & (columns.anchor_ns <= to_ns))
        assert set(lone) <= set(rows)


def test_more_than_the_limit_is_said_not_cut(index: HopIndex) -> None:
    assert index.overlapping(0, SPAN_NS, 10) is None


@pytest.mark.parametrize("most_bins", [2, 7, 64, 1_000])
def test_counts_by_bin_are_those_of_the_rows(index: HopIndex, most_bins: int) -> None:
    columns = index.columns
    for from_ns, to_ns in windows(2):
        density = index.density(from_ns, to_ns, most_bins)
        bins = density.counts.shape[2]
        assert bins <= most_bins
        assert density.bin_ns & (density.bin_ns - 1) == 0
        assert density.from_ns % density.bin_ns == 0
        assert density.from_ns <= from_ns
        assert density.from_ns + bins * density.bin_ns >= to_ns
        edges = density.from_ns + density.bin_ns * np.arange(bins + 1)
        expected = np.diff(np.searchsorted(columns.anchor_ns, edges))
        assert density.counts.sum(axis=(0, 1)).tolist() == expected.tolist()
    whole = index.density(-SPAN_NS, 3 * SPAN_NS, most_bins)
    classes = np.bincount(columns.arrow_class, minlength=len(ArrowClass))
    assert whole.counts.sum(axis=(0, 2)).tolist() == classes.tolist()


def test_counts_by_pair_are_those_of_the_rows(index: HopIndex) -> None:
    whole = index.density(-SPAN_NS, 3 * SPAN_NS, 64).counts.sum(axis=(1, 2))
    lanes = list(zip(index.columns.source.tolist(), index.columns.target.tolist(), strict=True))
    assert {tuple(pair): count for pair, count in zip(index.pairs.tolist(), whole.tolist(), strict=True)} == {
        pair: lanes.count(pair) for pair in set(lanes)
    }


@pytest.mark.parametrize(
    ("kind", "state", "attempt", "expected"),
    [
        ("data", "matched", 1, ArrowClass.DATA),
        ("data", "matched", 2, ArrowClass.RETRANSMISSION),
        ("data", "lost", 2, ArrowClass.LOST),
        ("data", "capture_dropped", 1, ArrowClass.ONE_SIDED),
        ("syn", "matched", 1, ArrowClass.HANDSHAKE),
        ("syn", "matched", 2, ArrowClass.RETRANSMISSION),
        ("fin", "unmatched", 1, ArrowClass.ONE_SIDED),
        ("ack", "matched", 2, ArrowClass.ACK),
        ("rst", "matched", 1, ArrowClass.LOST),
        ("keepalive", "ambiguous", 1, ArrowClass.ONE_SIDED),
    ],
)
def test_trouble_comes_before_kind(kind: str, state: str, attempt: int, expected: ArrowClass) -> None:
    table = hops_table(1, 1)
    for name, value in (("kind", kind), ("state", state), ("attempt", attempt)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([value]))
    columns = HopColumns.from_table(conform("hops", table), HOSTS, START_NS, np.arange(1))
    assert columns.arrow_class.tolist() == [expected]


def test_no_hops_are_no_trouble() -> None:
    columns = HopColumns.from_table(hops_table(0, 1), HOSTS, START_NS, np.arange(0))
    index = HopIndex(columns, len(HOSTS))
    assert index.overlapping(0, 10, 5) is not None
    assert index.density(0, 10, 5).counts.sum() == index.count(0, 10) == 0
