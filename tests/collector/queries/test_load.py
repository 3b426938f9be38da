"""Requests as a crowd: classes, selections, overlays, latency and calls, against what the tables say."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from collector.queries import Load, RequestSelection, TraceView, open_trace
from collector.queries.latency import (
    BINS_PER_DECADE,
    by_concurrency,
    by_group,
    delays_by_pair,
    durations,
    in_flight,
    scatter,
)
from collector.queries.overlay import STEPS, LaneGroups, WholeHops, overlay
from collector.queries.request_table import in_flight_at_start, request_classes, request_table
from collector.queries.service_graph import HopCounts, calls_of
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.script_traces import write_script_trace
from viewer.wording import duration_words

UPLOADS = 40
CLASS = "PUT object 1-16 KiB at swift-proxy"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> TraceView:
    folder: Path = tmp_path_factory.mktemp("traces") / "crowd"
    recipe = Recipe(UPLOADS, 3, 100_000_000, lost_share=0.05, spread_ns=10_000_000, target="/v1/a/c/o")
    write_synthetic_trace(folder, recipe)
    return open_trace(str(folder))


def spans(*rows: dict[str, object]) -> pl.DataFrame:
    """Root spans as `SpanTrees.frame` has them; each row says what is not usual."""
    usual: dict[str, object] = {
        **{
            "method": "PUT",
            "target": "/v1/a/c/o",
            "protocol": "http/1.1",
            "service": "swift-proxy",
            "status": 201,
            **{"result": None, "result_code": None},
            "complete": True,
        },
        **{"client_host": "client", "server_host": "proxy", "transaction_id": "tx", "background": False},
        **{"client_peer": None, "server_peer": None},
        **{"outcome": "ok", "operation": None, "bucket": None, "object_key": None, "upload": None, "part": None},
        **{"request_bytes": 100, "response_bytes": 100, "start": 0, "end": 10, "end_trace_ns": 10},
    }
    frame = pl.DataFrame([{**usual, "request": at, **row} for at, row in enumerate(rows)])
    return frame.with_columns(duration_ns=pl.col("end") - pl.col("start"))


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({}, "PUT object under 1 KiB at swift-proxy"),
        ({"target": "/v1/a/c"}, "PUT container under 1 KiB at swift-proxy"),
        ({"target": "/v1/a?format=json"}, "PUT account under 1 KiB at swift-proxy"),
        ({"target": "/v1/a/c/o/with/slashes"}, "PUT object under 1 KiB at swift-proxy"),
        ({"target": "/v1/orders/17", "service": "shop:8080"}, "PUT under 1 KiB at shop:8080"),
        ({"target": "/sdb/3/a/c/o", "service": "swift-object"}, "PUT object under 1 KiB at swift-object"),
        ({"target": "/d1/174/AUTH_a/c", "service": "swift-container"}, "PUT container under 1 KiB at swift-container"),
        ({"target": "/auth/v1.0", "method": "GET"}, "GET under 1 KiB at swift-proxy"),
        ({"target": None, "method": "", "service": ""}, "request under 1 KiB"),
        ({"operation": "UploadPart", "service": "s3"}, "UploadPart under 1 KiB at s3"),
        (
            {"target": "shop.orders", "method": "find", "protocol": "mongodb", "service": "db"},
            "find shop.orders under 1 KiB at db",
        ),
        (
            {"target": "id FROM t WHERE a = ?", "method": "SELECT", "protocol": "mysql", "service": "db"},
            "SELECT id FROM t WHERE a = ? under 1 KiB at db",
        ),
        ({"request_bytes": 1 << 10}, "PUT object 1-16 KiB at swift-proxy"),
        ({"response_bytes": 64 << 20}, "PUT object over 64 MiB at swift-proxy"),
        ({"request_bytes": None, "response_bytes": None}, "PUT object under 1 KiB at swift-proxy"),
    ],
)
def test_a_class_is_method_kind_size_and_service(row: dict[str, object], name: str) -> None:
    assert request_table(spans(row))["class"].to_list() == [name]


def test_a_request_whose_end_was_not_seen_has_a_duration_of_at_least_what_was() -> None:
    table = request_table(spans({}, {"end_trace_ns": None}))
    assert table["ended"].to_list() == [True, False]
    assert [duration_words(1_500, ended=ended) for ended in table["ended"]] == ["1.50 µs", "≥ 1.50 µs"]


@pytest.mark.parametrize("outcome", ["ok", "failed", "unknown", None])
def test_an_outcome_that_nobody_knows_is_no_failure(outcome: str | None) -> None:
    table = request_table(spans({}, {"outcome": outcome}))
    assert table["outcome"].to_list() == ["ok", outcome or "unknown"]
    assert table["failed"].to_list() == [False, outcome == "failed"]
    (each,) = request_classes(table)
    assert (each.failed_count, each.unknown_count) == (outcome == "failed", outcome in ("unknown", None))


def test_requests_in_flight_are_the_clients_own() -> None:
    rows = spans(
        {"start": 0, "end": 100},
        {"start": 50, "end": 60},
        {"start": 55, "end": 70, "client_host": "proxy", "server_host": "storage"},
        {"start": 60, "end": 90},
        {"start": 101, "end": 120},
    )
    table = request_table(rows)
    assert table["outermost"].to_list() == [True, True, False, True, True]
    assert table["in_flight"].to_list() == [1, 2, 2, 3, 1]
    begun_before = [(table["start_ns"] <= at) & table["outermost"] for at in table["start_ns"]]
    plain = [
        int((mine & (table["end_ns"] >= at)).sum()) for mine, at in zip(begun_before, table["start_ns"], strict=True)
    ]
    assert in_flight_at_start(table).tolist() == plain


def test_classes_come_with_most_time_first_and_percentiles_that_were_measured() -> None:
    rows = [{"start": 0, "end": took, "outcome": "failed" if took == 90 else "ok"} for took in (10, 20, 90)]
    first, second = request_classes(request_table(spans(*rows, {"target": "/v1/a/c", "end": 7})))
    assert (first.requests_count, first.failed_count, first.p50_ns, first.p99_ns, first.longest_ns) == (
        3,
        1,
        20,
        90,
        90,
    )
    assert second.name == "PUT container under 1 KiB at swift-proxy"


def test_what_clients_gave_up_is_in_no_percentile() -> None:
    rows = [{"end": took, "outcome": outcome} for took, outcome in ((10, "ok"), (20, "failed"), (300, "abandoned"))]
    table = request_table(spans(*rows))
    (each,) = request_classes(table)
    assert (each.requests_count, each.abandoned_count, each.p99_ns, each.longest_ns) == (3, 1, 20, 20)
    (of_class,) = by_group(table, "class")
    assert (of_class.count, of_class.abandoned_count, of_class.failed_count, of_class.longest_ns) == (2, 1, 1, 20)
    (only,) = by_group(table.filter(pl.col("outcome") == "abandoned"), "class")
    assert (only.count, only.longest_ns) == (1, 300)


def test_what_daemons_ask_comes_after_what_clients_ask() -> None:
    daemon = {"method": "REPLICATE", "client_host": "storage", "background": True, "end": 1_000_000}
    classes = request_classes(request_table(spans({}, daemon)))
    assert [each.name.split()[0] for each in classes] == ["PUT", "REPLICATE"]


def test_a_selection_is_all_that_its_parts_ask_for(crowd: TraceView) -> None:
    load, table = crowd.load, crowd.load.table
    assert len(load.select(RequestSelection())) == UPLOADS
    assert len(load.select(RequestSelection(class_name=CLASS))) == UPLOADS
    assert len(load.select(RequestSelection(class_name="other"))) == 0
    begins = sorted(table["start_ns"])
    some = load.select(RequestSelection(from_ns=begins[5], to_ns=begins[9], least_ns=1))
    assert sorted(some["start_ns"]) == begins[5:10]
    (wanted,) = (row.transaction_id for row in load.rows(RequestSelection(), "first", 3, 1)[1])
    assert load.select(RequestSelection(found=np.array([3, 5]), to_ns=begins[4]))["number"].to_list() == [3]
    assert len(load.select(RequestSelection(found=np.zeros(0, np.int64)))) == 0
    assert load.numbers_of([wanted, "nothing"]) == (3, None)


def test_rows_come_in_order_some_at_a_time(crowd: TraceView) -> None:
    count, rows = crowd.load.rows(RequestSelection(), "slowest", 10, 5)
    every = sorted(crowd.load.table["duration_ns"], reverse=True)
    assert count == UPLOADS
    assert [row.duration_ns for row in rows] == every[10:15]


def test_slow_and_typical_are_parts_of_the_selection(crowd: TraceView) -> None:
    took = np.array(crowd.load.table["duration_ns"])
    slow, typical = (crowd.load.part(RequestSelection(), part)["duration_ns"] for part in ("slow", "typical"))
    assert sorted(slow) == sorted(took)[-2:]
    assert len(typical) == UPLOADS // 2
    assert np.quantile(took, 0.25) <= min(typical) <= max(typical) <= np.quantile(took, 0.75)


def hops(*rows: tuple[int, int, int, int, int]) -> WholeHops:
    """(source, target, sent, received, request)."""
    source, target, sent, received, request = (np.array(column) for column in zip(*rows, strict=True))
    lanes = (source.astype(np.uint16), target.astype(np.uint16))
    return WholeHops(*lanes, sent.astype(np.int64), received.astype(np.int64), request.astype(np.int32))


def plain_overlay(made: WholeHops, zero: list[int], lanes: int, to_ns: int, bins: int) -> list[list[int]]:
    """Packet by packet, row by row."""
    counts = [[0] * bins for _ in range(STEPS * (lanes - 1) + 1)]
    for at in range(len(made.request)):
        start = zero[made.request[at]]
        begin, end = ((int(time) - start) * bins // to_ns for time in (made.sent_ns[at], made.received_ns[at]))
        a, b = int(made.source[at]), int(made.target[at])
        steps = abs(b - a) * STEPS
        for step in range(steps + 1):
            column = begin + (end - begin) * step // max(1, steps)
            if 0 <= begin < bins and 0 <= column < bins:
                counts[a * STEPS + (step if b > a else -step)][column] += 1
    return counts


def test_an_overlay_is_every_packet_walked_row_by_row() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(300):
        source, target = rng.integers(0, 4, 2)
        request, sent = int(rng.integers(0, 3)), int(rng.integers(0, 1_200))
        rows.append((source, target, sent + 100 * request, sent + 100 * request + int(rng.integers(0, 200)), request))
    made, zero = hops(*rows), [0, 100, 200]
    found = overlay([made], np.array(zero), 3, LaneGroups.of(list("abcd")), (0, 1_000, 20))
    assert found.counts.tolist() == plain_overlay(made, zero, 4, 1_000, 20)
    assert found.packets_count == 300
    assert found.beyond_count == sum(sent - zero[request] >= 1_000 for _, _, sent, _, request in rows)


def test_an_overlay_does_not_depend_on_how_its_packets_come(crowd: TraceView) -> None:
    groups, zero = LaneGroups.of(crowd.load.lane_names(True)), crowd.load.table["start_ns"].to_numpy()
    parts = [part for number in range(UPLOADS) for part in crowd.whole_hops(np.array([number]))]
    at_once = overlay(crowd.whole_hops(np.arange(UPLOADS)), zero, UPLOADS, groups, (0, 10_000_000, 50))
    one_by_one = overlay(parts, zero, UPLOADS, groups, (0, 10_000_000, 50))
    assert at_once.lanes == ("client", "swift-proxy", "swift-object")
    assert (at_once.counts == one_by_one.counts).all()
    assert at_once.packets_count == sum(len(part.request) for part in parts) == 52 * UPLOADS


def test_percentiles_are_by_nearest_rank_and_every_duration_is_in_a_bin() -> None:
    values = np.random.default_rng(1).lognormal(12, 2, 999).astype(np.int64)
    found = durations("x", values)
    assert found.percentiles_ns[:2] == (sorted(values)[499], sorted(values)[899])
    assert found.longest_ns == values.max()
    assert found.bins.sum() == 999
    assert found.bins.tolist() == np.histogram(values, found.edges_ns)[0].tolist()


@pytest.mark.parametrize("values", [[1], [0, 0], [7, 7, 7], [1, 10**13]])
def test_durations_of_few_and_of_the_same(values: list[int]) -> None:
    found = durations("x", np.array(values))
    assert found.bins.sum() == len(values)
    assert found.edges_ns[0] <= max(1, min(values)) < found.edges_ns[-1]


def test_delays_by_pair_are_within_their_bin_of_the_exact_ones() -> None:
    rng = np.random.default_rng(5)
    delays = rng.lognormal(11, 1, 20_000).astype(np.int64)
    source, target = rng.integers(0, 2, 20_000).astype(np.uint16), np.full(20_000, 2, np.uint16)
    chunks = [(source[part], target[part], delays[part]) for part in (slice(0, 7_000), slice(7_000, None))]
    found = {each.name: each for each in delays_by_pair(chunks, "abc")}
    assert set(found) == {"a → c", "b → c"}
    for lane, name in enumerate(found[key].name for key in sorted(found)):
        mine = np.sort(delays[source == lane])
        assert found[name].count == len(mine)
        assert found[name].longest_ns == mine[-1]
        assert found[name].percentiles_ns[0] == pytest.approx(mine[(len(mine) - 1) // 2], rel=0.005)
        assert found[name].edges_ns[0] * 10 ** (1 / BINS_PER_DECADE) >= mine[0]


def test_many_requests_are_counted_and_the_slowest_and_failed_stay_dots() -> None:
    count = 5_000
    frame = pl.DataFrame(
        {
            "number": np.arange(count),
            "start_ns": np.arange(count) * 1_000,
            "duration_ns": np.arange(count) + 1,
            "ended": np.full(count, True),
            "failed": np.arange(count) < 3,
            "outcome": ["failed"] * 3 + ["ok"] * (count - 3),
        }
    )
    found = scatter(frame, count * 1_000)
    assert found.grid is not None
    assert len(found.numbers) + int(found.grid.sum()) == count
    assert {0, 1, 2, count - 1} <= set(found.numbers.tolist())
    few = scatter(frame.head(100), count * 1_000)
    assert few.grid is None
    assert few.numbers.tolist() == list(range(100))


def test_in_flight_is_the_most_at_once_in_each_bin() -> None:
    table = request_table(
        spans({"start": 0, "end": 35}, {"start": 12, "end": 14}, {"start": 13, "end": 25, "outcome": "failed"})
    )
    found = in_flight(table, 40, 4)
    assert found.most.tolist() == [1, 3, 2, 1]
    assert found.begun.tolist() == [1, 2, 0, 0]
    assert found.failed.tolist() == [0, 0, 1, 0]


def test_latency_by_concurrency_counts_each_request_once() -> None:
    table = request_table(spans(*({"start": at, "end": 100 + at} for at in range(5))))
    found = by_concurrency(table)
    assert [(row.from_count, row.to_count, row.requests_count) for row in found] == [(1, 1, 1), (2, 3, 2), (4, 7, 2)]
    assert found[0].p50_ns == 100


def test_who_asks_is_the_service_that_answered_or_what_it_says_it_is() -> None:
    """A storage server asked as part of an upload; a replicator asked by itself; a client says what nobody knows."""
    ends = {"parent_span_id": None, "depth": 0, "client_service": None}
    rows = spans(
        {**ends, "span_id": 1},
        {**ends, "span_id": 2, "parent_span_id": 1, "service": "swift-object", "client_host": "proxy", "depth": 1},
        {**ends, "span_id": 3, "client_service": "object-replicator", "client_host": "storage", "server_host": "b"},
    )
    calls = calls_of(rows, HopCounts(*np.zeros((3, 3), np.uint32)))
    callers = [calls.ends(hosts_apart)["caller"].to_list() for hosts_apart in (False, True)]
    assert callers[0] == ["client", "swift-proxy", "object-replicator"]
    assert callers[1] == ["client", "swift-proxy on proxy", "object-replicator on storage"]


def test_the_graph_holds_every_exchange_once(crowd: TraceView) -> None:
    services, apart = crowd.load.graph(False), crowd.load.graph(True)
    assert {(edge.caller, edge.callee): edge.exchanges_count for edge in services.edges} == {
        ("client", "swift-proxy"): UPLOADS,
        ("swift-proxy", "swift-object"): 3 * UPLOADS,
    }
    assert sum(edge.exchanges_count for edge in apart.edges) == 4 * UPLOADS
    assert [node.x for node in services.nodes] == [0, 0.5, 1]
    again, lost = (
        sum(getattr(edge, name) for edge in services.edges) for name in ("retransmitted_count", "lost_count")
    )
    assert (again, lost) == tuple(crowd.summary.class_counts[3:5])
    assert min(again, lost) > 0
    assert len(crowd.load.select(RequestSelection(caller="swift-proxy", callee="swift-object"))) == UPLOADS
    assert len(crowd.load.select(RequestSelection(caller="client", callee="swift-object"))) == 0


def test_a_reset_is_no_lost_packet(tmp_path: Path) -> None:
    script = """
    client:40000 > proxy:8080
      0 > 0:100 GET /a
     50 < 0:50 200
     90 > rst
    client:40001 > proxy:8080
    200 > 0:100 GET /b lost
    900 > 0:100 #2 GET /b
    950 < 0:50 200
    client:40002 > proxy:8080
    1000 > 0:100 GET /c
    1700 > 0:100 #2 GET /c
    1750 < 0:50 200
    """
    write_script_trace(str(tmp_path / "trace"), script)
    view = open_trace(str(tmp_path / "trace"))
    counts = view.hops_by_span()
    assert counts.hops.tolist() == [3, 3, 3]
    assert counts.lost.tolist() == [0, 1, 0]
    assert counts.retransmitted.tolist() == [0, 1, 1]


def test_answers_to_questions_of_pages_are_kept_with_the_trace(crowd: TraceView) -> None:
    load, asked = crowd.load, list[tuple[Load, int]]()

    def answer(load: Load, number: int) -> int:
        asked.append((load, number))
        return 10 * number

    assert [load.answer(answer, number) for number in (1, 2, 1)] == [10, 20, 10]
    assert asked == [(load, 1), (load, 2)]
