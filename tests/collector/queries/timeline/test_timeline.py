"""The index of the timeline against an obviously right answer: looking at every hop."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from collector.queries.timeline import levels, windows
from collector.queries.timeline.build import Places
from collector.queries.timeline.columns import MISSING_NS, NO_LANE, NO_SERVICE, PROBLEM_CLASSES, ArrowClass, Seen
from collector.queries.timeline.levels import LEAST_CELLS
from collector.queries.timeline.shelf import Shelf
from collector.queries.timeline.windows import HopIndex
from collector.queries.trace_index import TraceIndex, build
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import HopKind, HopState, conform
from collector.trace.writing import write_trace
from tests.helpers.service_ports import named_ports

HOSTS = ("client", "proxy", "storage")
START_NS = 1_790_000_000_000_000_000
SPAN_NS = 1_000_000_000
SKEW_NS = 7_000_000
"""By which the clock of each host is ahead of the one before it."""
PORTS = (6200, 6201, 6202, 8080)


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
            "connection_id": np.arange(count) % 7,  # of which the seventh is in no table
            "kind": rng.choice([HopKind.DATA, HopKind.ACK, HopKind.SYN, HopKind.RST], count).tolist(),
            "from_client": rng.random(count) < 0.5,
            "send_host": pa.array([HOSTS[each] for each in source], mask=unseen),
            "send_frame": nothing,
            "send_host_ns": pa.array(sent + SKEW_NS * source, mask=unseen),
            "send_trace_ns": pa.array(sent, mask=unseen),
            "receive_host": [HOSTS[(each + 1) % 3] for each in source],
            "receive_frame": nothing,
            "receive_host_ns": pa.array(sent + delay + SKEW_NS * ((source + 1) % 3), mask=lost),
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


def connections_table() -> pa.Table:
    ports = [PORTS[each % len(PORTS)] for each in range(6)]
    return pa.table({"connection_id": np.arange(6), "server_port": pa.array(ports, pa.uint16())})


def make_index(folder: Path, hops: pa.Table, on_disk: bool = False) -> TraceIndex:
    """The index of a trace of these hops."""
    services = named_ports({6200: "object", 6201: "container"})
    info = TraceInfo(created_ns=1, tool_version="test", hosts=(), services=services)
    with write_trace(str(folder / "trace")) as writer:
        for first in range(0, max(1, len(hops)), 1_000):
            writer.append("hops", hops.slice(first, 1_000))
        writer.write_table("connections", connections_table())
        spans = pa.table({"trace_id": np.arange(4), "span_id": np.arange(4), "depth": pa.array([0] * 4, pa.uint16())})
        writer.write_table("spans", spans)
        times = {"request_first_sent_trace_ns": START_NS + np.arange(4), "exchange_id": np.arange(4)}
        writer.write_table("exchanges", pa.table(times))
        writer.write_info(info)
    shelf = Shelf(folder) if on_disk else Shelf()
    build(shelf, Trace(str(folder / "trace")), info, lambda share: None)
    return TraceIndex.read(Shelf(folder) if on_disk else shelf)


@pytest.fixture(scope="module", params=[(300, False, False), (5_000, True, False), (5_000, False, True)])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TraceIndex:
    """An index of hops at random: in memory, in files, and counted by end instead of by pair."""
    count, on_disk, by_end = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "LEAST_CELLS", 20_000)
        patch.setattr(windows, "LONG_SHARE", 0.02)
        patch.setattr(levels, "MOST_PAIRS", 1 if by_end else levels.MOST_PAIRS)
        return make_index(tmp_path_factory.mktemp("index"), hops_table(count, 3), on_disk)


@pytest.fixture(scope="module")
def index(whole: TraceIndex) -> HopIndex:
    """What answers windows."""
    return whole.hops


def some_windows(seed: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    widths = 10 ** rng.uniform(1, 9, 60)
    starts = rng.uniform(-0.1, 1.1, 60) * SPAN_NS
    return [(int(start), int(start + width)) for start, width in zip(starts, widths, strict=True)]


def sent_of(index: HopIndex) -> NDArray[np.int64]:
    return index.columns.sent_ns(slice(None))


def test_rows_are_sorted_and_none_is_missing(whole: TraceIndex) -> None:
    index, columns = whole.hops, whole.hops.columns
    assert (np.diff(columns.anchor_ns) >= 0).all()
    assert sorted(columns.row.tolist()) == list(range(len(columns)))
    assert (index.pairs.source[columns.pair][sent_of(index) == MISSING_NS] == NO_LANE).all()
    assert (columns.span[columns.row % 5 == 4] == -1).all()  # an exchange that is no span
    assert (whole.trees.span_ids[columns.span[columns.row % 5 == 3]] == 3).all()


def test_every_column_is_that_of_the_table(whole: TraceIndex) -> None:
    index, columns = whole.hops, whole.hops.columns
    table = hops_table(len(columns), 3).take(pa.array(columns.row))
    start_ns = whole.facts.start_ns

    def times(name: str) -> list[int]:
        return [MISSING_NS if each is None else each - start_ns for each in table[name].to_pylist()]

    assert sent_of(index).tolist() == times("send_trace_ns")
    assert columns.received_ns.tolist() == times("receive_trace_ns")
    assert columns.sent_raw_ns is not None
    assert columns.received_raw_ns is not None
    assert columns.sent_raw_ns.tolist() == times("send_host_ns")
    assert columns.received_raw_ns.tolist() == times("receive_host_ns")
    assert columns.size_bytes.tolist() == table["stream_end"].to_pylist()
    hosts, pair = whole.facts.hosts, columns.pair
    for lanes, name in ((index.pairs.source, "send_host"), (index.pairs.target, "receive_host")):
        assert [None if lane == NO_LANE else hosts[lane] for lane in lanes[pair]] == table[name].to_pylist()
    assert index.pairs.to_server[pair].tolist() == table["from_client"].to_pylist()
    port = ["object", "container", "port 6202", "port 8080"]
    asked = [port[each % 4] if each < 6 else "other" for each in table["connection_id"].to_pylist()]
    assert [whole.facts.services[each] for each in index.pairs.service[pair]] == asked
    client = np.where(index.pairs.to_server, index.pairs.source_service, index.pairs.target_service)
    assert (client == NO_SERVICE).all()


def test_a_request_owns_its_hops(whole: TraceIndex) -> None:
    columns = whole.hops.columns
    request = np.append(whole.trees.request_of_span, -1)[columns.span]
    for number in range(len(whole.trees)):
        rows = whole.request_rows[whole.request_first[number] : whole.request_first[number + 1]]
        assert rows.tolist() == np.flatnonzero(request == number).tolist() != []
        problems = np.isin(columns.arrow_class[rows], PROBLEM_CLASSES)
        assert whole.request_problems[number] == problems.sum()
    rows = whole.hops.problem_rows
    assert rows.tolist() == np.flatnonzero(np.isin(columns.arrow_class, PROBLEM_CLASSES)).tolist()


def test_a_window_holds_what_overlaps_it(index: HopIndex) -> None:
    columns, sent = index.columns, sent_of(index)
    both = columns.seen == Seen.BOTH
    begin, end = np.minimum(sent, columns.received_ns), np.maximum(sent, columns.received_ns)
    negative = np.flatnonzero(both & (columns.received_ns < sent))
    moments = [(time, time) for row in negative[:20] for time in (int(begin[row]), int(end[row]))]
    assert moments
    for from_ns, to_ns in [*some_windows(1), *moments]:
        rows = index.overlapping(from_ns, to_ns, len(columns))
        assert rows is not None
        assert (np.diff(rows) > 0).all()
        expected = np.flatnonzero(both & (begin <= to_ns) & (end >= from_ns))
        assert rows[both[rows]].tolist() == expected.tolist()
        lone = np.flatnonzero(~both & (columns.anchor_ns >= from_ns) & (columns.anchor_ns <= to_ns))
        assert set(lone) <= set(rows)


def test_a_window_by_the_hosts_own_clocks_holds_what_overlaps_it(index: HopIndex) -> None:
    columns, apart = index.columns, 3 * SKEW_NS
    assert columns.sent_raw_ns is not None
    assert columns.received_raw_ns is not None
    both = columns.seen == Seen.BOTH
    begin = np.minimum(columns.sent_raw_ns, columns.received_raw_ns)
    end = np.maximum(columns.sent_raw_ns, columns.received_raw_ns)
    for from_ns, to_ns in some_windows(4):
        rows = index.overlapping_raw(from_ns, to_ns, apart, len(columns))
        assert rows is not None
        assert rows[both[rows]].tolist() == np.flatnonzero(both & (begin <= to_ns) & (end >= from_ns)).tolist()


def test_a_sample_is_of_the_window_and_says_of_how_many(index: HopIndex) -> None:
    columns = index.columns
    for from_ns, to_ns in some_windows(5):
        rows, step = index.sample(from_ns, to_ns, 100)
        assert len(rows) <= 100 + 100 // 8
        assert step & (step - 1) == 0
        assert (np.diff(rows) > 0).all()
        inside = np.flatnonzero((columns.anchor_ns >= from_ns) & (columns.anchor_ns <= to_ns))
        assert set(inside[inside % step == 0]) <= set(rows)
        if step == 1:
            assert set(inside) <= set(rows)


def test_a_sample_shows_problems_that_are_few(index: HopIndex) -> None:
    from_ns, to_ns = 0, SPAN_NS // 50
    rows, _ = index.sample(from_ns, to_ns, 400)
    problems = index.problem_rows
    times = index.columns.anchor_ns[problems]
    assert set(problems[(times >= from_ns) & (times <= to_ns)]) <= set(rows)


def test_more_than_the_limit_is_said_not_cut(index: HopIndex) -> None:
    assert index.overlapping(0, SPAN_NS, 10) is None


@pytest.mark.parametrize("most_bins", [2, 7, 64, 1_000])
def test_counts_by_bin_are_those_of_the_rows(index: HopIndex, most_bins: int) -> None:
    columns = index.columns
    count = index.totals if index.cells.by_end else index.density
    for from_ns, to_ns in some_windows(2):
        density = count(from_ns, to_ns, most_bins)
        bins = density.counts.shape[2]
        assert bins <= most_bins
        assert density.bin_ns & (density.bin_ns - 1) == 0
        assert density.from_ns % density.bin_ns == 0
        assert density.from_ns <= from_ns
        assert density.from_ns + bins * density.bin_ns >= to_ns
        edges = density.from_ns + density.bin_ns * np.arange(bins + 1)
        expected = np.diff(np.searchsorted(columns.anchor_ns, edges))
        assert density.counts.sum(axis=(0, 1)).tolist() == expected.tolist()
    everything = count(-SPAN_NS, 3 * SPAN_NS, most_bins)
    classes = np.bincount(columns.arrow_class, minlength=len(ArrowClass))
    assert everything.counts.sum(axis=(0, 2)).tolist() == classes.tolist()


def test_what_takes_long_to_count_is_shown_as_finely_as_it_was_counted_ahead(
    index: HopIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_ns, to_ns = SPAN_NS // 3, SPAN_NS // 2
    fine = index.totals(from_ns, to_ns, 100_000)
    monkeypatch.setattr("collector.queries.timeline.windows.MOST_COUNTED", 10)
    monkeypatch.setattr("collector.queries.timeline.windows.ENOUGH_BINS", 2)
    coarse = index.totals(from_ns, to_ns, 100_000)
    assert coarse.bin_ns > fine.bin_ns
    until = coarse.from_ns + coarse.bin_ns * coarse.counts.shape[2]
    anchors = index.columns.anchor_ns
    assert coarse.from_ns <= from_ns < to_ns <= until
    assert coarse.counts.sum() == ((anchors >= coarse.from_ns) & (anchors < until)).sum()


def test_counts_by_class_are_those_of_the_rows(index: HopIndex) -> None:
    columns = index.columns
    for from_ns, to_ns in some_windows(6):
        found = index.totals(from_ns, to_ns, 50)
        until = found.from_ns + found.bin_ns * found.counts.shape[2]
        inside = (columns.anchor_ns >= found.from_ns) & (columns.anchor_ns < until)
        expected = np.bincount(columns.arrow_class[inside], minlength=len(ArrowClass))
        assert found.counts.sum(axis=(0, 2)).tolist() == expected.tolist()


def test_counts_by_pair_or_end_are_those_of_the_rows(index: HopIndex) -> None:
    columns, cells = index.columns, index.cells
    pair_counts = np.bincount(columns.pair, minlength=len(index.pairs))
    if not cells.by_end:
        counts = index.density(-SPAN_NS, 3 * SPAN_NS, 64).counts.sum(axis=(1, 2))
        assert counts.tolist() == pair_counts.tolist()
        return
    rows = [[0, 2], [1], list(range(3, len(cells.end_lane) - 1))]
    for shift_ns in (-SPAN_NS, 300_000_000):  # from a level, and below the finest
        width = 3 * SPAN_NS if shift_ns < 0 else 200_000
        found = index.end_density(rows, shift_ns, shift_ns + width, 64)
        until = found.from_ns + found.bin_ns * found.counts.shape[3]
        inside = (columns.anchor_ns >= found.from_ns) & (columns.anchor_ns < until)
        for row, ends in enumerate(rows):
            for direction, end_of_pair in enumerate((cells.source_end, cells.target_end)):
                mine = inside & np.isin(end_of_pair[columns.pair], ends)
                classes = np.bincount(columns.arrow_class[mine], minlength=len(ArrowClass))
                assert found.counts[row, direction].sum(axis=1).tolist() == classes.tolist()


@pytest.mark.parametrize("spread", [1, 1_000_000])
def test_ids_are_found_wherever_they_are(spread: int) -> None:
    ids = np.concatenate((np.arange(50) * spread + 1, (7 << 32) + np.arange(100) * spread))
    ids = np.random.default_rng(1).permutation(ids)
    places = Places(ids)
    assert places.of(ids).tolist() == list(range(150))
    assert places.of(np.array([-1, 0, (1 << 40), (7 << 32) + 100 * spread, (3 << 32) + 1])).tolist() == [-1] * 5
    assert Places(np.zeros(0, np.int64)).of(ids).tolist() == [-1] * 150


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
def test_trouble_comes_before_kind(tmp_path: Path, kind: str, state: str, attempt: int, expected: ArrowClass) -> None:
    table = hops_table(1, 2)
    for name, value in (("kind", kind), ("state", state), ("attempt", attempt)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([value]))
    assert make_index(tmp_path, conform("hops", table)).hops.columns.arrow_class.tolist() == [expected]


def test_received_before_sent_is_trouble(tmp_path: Path) -> None:
    index = make_index(tmp_path, hops_table(2_000, 1)).hops
    columns, early = index.columns, index.columns.arrow_class == ArrowClass.EARLY
    assert early.any()
    assert (columns.received_ns[early] < columns.anchor_ns[early]).all()
    missed = ~early & (columns.seen == Seen.BOTH) & (columns.received_ns < columns.anchor_ns)
    assert set(columns.arrow_class[missed]) <= {ArrowClass.RETRANSMISSION, ArrowClass.LOST}


def test_no_hops_are_no_trouble(tmp_path: Path) -> None:
    index = make_index(tmp_path, hops_table(0, 1), on_disk=True).hops
    assert index.overlapping(0, 10, 5) is not None
    assert index.density(0, 10, 5).counts.sum() == index.count(0, 10) == 0
    assert len(index.sample(0, 10, 5)[0]) == 0


def test_coarse_levels_are_sums_of_fine_ones(tmp_path: Path) -> None:
    index = make_index(tmp_path, hops_table(3_000, 5)).hops
    fine = index._levels._levels[0]
    assert fine.size <= LEAST_CELLS
    for number, level in enumerate(index._levels._levels):
        edges = np.arange(0, len(fine), 1 << number)
        assert level.tolist() == np.add.reduceat(fine, edges, axis=0, dtype=np.int64).tolist()
    assert len(level) == 1
    assert level.sum() == 3_000


def test_few_long_arrows_are_kept_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LONG_SHARE", 0.02)
    index = make_index(tmp_path, hops_table(5_000, 3)).hops
    aside = index._aside["row"]
    begin, end = index.extents(aside.astype(np.intp))
    assert 0 < len(aside) < 100
    assert (end - begin > windows.LONG_NS).all()
