"""Root requests and their stages, read a group of rows at a time, are those of all rows together."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from collector.reporting.comparison import BlockSums, compare, compare_sums
from collector.reporting.request_rows import TIMES, RequestRows
from collector.reporting.root_requests import RootRequests, read_roots
from collector.reporting.stage_times import StageLedger, StageRows
from collector.requests.critical_path import NONE
from collector.requests.outcomes import is_abandoned
from collector.requests.spans import link
from collector.services.client_requests import of_clients
from collector.trace.time_columns import UNSEEN
from tests.helpers.exchange_lines import exchanges_of
from tests.helpers.row_groups import rows_in_groups

KINDS = (("GET", "ok"), ("PUT", "ok"), ("PUT", "failed"), ("GET", "abandoned"), ("GET", "ok"))


def lines(count: int) -> str:
    """Requests with calls, which take longer than the next request; some have none, some are only half seen."""
    text = ""
    for number in range(count):
        at, (method, outcome) = 1_000 * number, KINDS[number % len(KINDS)]
        tx, took = f"tx={number} method={method}", 1_500 + 13 * (number * 7 % 29)
        text += f"client > proxy/swift-proxy {at} {at + 10} {at + took - 20} {at + took} {tx} outcome={outcome}\n"
        for storage in range(number % 3):
            begin, end = at + 30 + storage, at + took - 100 - 40 * storage
            text += f"proxy > storage{storage}/swift-object {begin} {begin + 5} {end} {end + 5} {tx}\n"
        if number % 7 == 0:
            text += f"client > proxy/swift-proxy - - {at + 700} - cut\nclient > mq/mqtt {at} {at} {at} {at} stream=1\n"
    return text


def tables(count: int = 60) -> tuple[pa.Table, pa.Table]:
    """Spans and exchanges in the order of time."""
    exchanges = exchanges_of(lines(count))
    times = pl.DataFrame(exchanges.select([name for name in exchanges.column_names if name in TIMES]))
    ordered = exchanges.take(pa.array(np.argsort(times.min_horizontal().to_numpy(), kind="stable")))
    return link(ordered.filter(pc.invert(ordered["is_stream"]))), ordered


@pytest.mark.parametrize("rows_count", [1, 7, 1_000])
def test_roots_are_those_of_whole_rows(rows_count: int, tmp_path: Path) -> None:
    rows = rows_in_groups(tmp_path, *tables(), rows_count)
    roots, whole = read_roots(rows), rows.whole()
    of = whole.filter(depth=0)
    assert roots.ids.tolist() == of["trace_id"].to_list()
    assert roots.duration_ns.tolist() == of["duration_ns"].to_list()
    counts = dict(whole["trace_id"].value_counts().rows())
    assert roots.spans_count.tolist() == [counts[root] for root in roots.ids.tolist()]
    began = of.select(pl.coalesce("start_trace_ns", pl.min_horizontal(TIMES))).to_series()
    assert of["start_trace_ns"].null_count() > 0
    assert roots.began_ns.tolist() == began.to_list()
    assert roots.exchanges_count == len(whole)
    assert roots.incomplete_count == (~whole["complete"]).sum() > 0
    assert roots.critical_ns == whole["critical_ns"].sum()
    texts = roots.kinds.with_columns(pl.col(pl.Categorical).cast(pl.String))[roots.kind]
    assert texts.select("method", "outcome", "server_host").equals(of.select("method", "outcome", "server_host"))
    assert len(roots.kinds) == len(roots.kinds.unique())
    timed = of_clients(of.filter(pl.col("duration_ns") > 0), whole)
    assert roots.ids[roots.outermost()].tolist() == timed.filter(~is_abandoned())["trace_id"].to_list()
    assert roots.ids[roots.abandoned_roots()].tolist() == timed.filter(is_abandoned())["trace_id"].to_list() != []


@pytest.mark.parametrize("rows_count", [1, 7, 1_000])
def test_each_row_is_given_its_root(rows_count: int, tmp_path: Path) -> None:
    rows = rows_in_groups(tmp_path, *tables(), rows_count)
    roots = read_roots(rows)
    parts = [(part, root) for part, root in roots.batches(rows, "trace_id", "method")]
    assert max(len(part) for part, _ in parts) <= rows_count
    assert pl.concat(part for part, _ in parts).equals(rows.columns("depth", "trace_id", "method"))
    for part, root in parts:
        assert roots.ids[root].tolist() == part["trace_id"].to_list()


def test_calls_of_a_root_that_is_not_there_have_none() -> None:
    spans, exchanges = tables(9)
    has_root = pc.not_equal(spans["span_id"], spans.filter(pc.equal(spans["depth"], 1))["trace_id"][0])
    rows = RequestRows.of_tables(spans.filter(has_root), exchanges)
    roots = read_roots(rows)
    places = np.concatenate([root for _, root in roots.batches(rows)])
    assert (places == NONE).sum() == len(spans.filter(pc.invert(has_root))["span_id"]) > 0


def test_the_longest_are_chosen_by_their_ids_where_they_are_equal() -> None:
    text = "\n".join(f"client > web {at} {at} {at + took} {at + took}" for at, took in enumerate([5, 9, 9, 2, 9, 7]))
    roots = roots_of(text)
    every = np.ones(6, np.bool_)
    for most, expected in ((2, [2, 3]), (4, [2, 3, 5, 6]), (9, [2, 3, 5, 6, 1, 4])):
        assert roots.longest(every, most).tolist() == expected
    assert roots.longest(~every, 3).tolist() == []


def test_without_rows_there_is_no_root() -> None:
    roots = roots_of("")
    assert (len(roots.ids), roots.exchanges_count, roots.outermost().tolist()) == (0, 0, [])


def test_a_root_without_any_time_has_no_beginning() -> None:
    assert roots_of("client > web - - - - cut").began_ns.tolist() == [UNSEEN]


def roots_of(text: str) -> RootRequests:
    exchanges = exchanges_of(text)
    return read_roots(RequestRows.of_tables(link(exchanges), exchanges))


@pytest.mark.parametrize("rows_count", [1, 7, 1_000])
def test_sums_over_the_ledger_are_those_of_its_stages_as_rows(rows_count: int, tmp_path: Path) -> None:
    rows = rows_in_groups(tmp_path, *tables(), rows_count)
    ledger = StageLedger.of(rows, read_roots(rows), None, None)
    frame = ledger.stage_rows()
    assert ledger.requests["took"].to_list() == StageRows(frame).requests["took"].to_list()
    assert len(ledger.requests) == len(read_roots(rows).outermost().nonzero()[0]) > 20
    cells = {
        "odd": np.arange(len(ledger.requests), dtype=np.uint32) % 2,
        "third": ledger.requests["request"].to_numpy() % 3,
    }
    found, expected = (each.sums(**cells).sort("stage", *cells) for each in (ledger, StageRows(frame)))
    assert found.equals(expected.select(found.columns))
    assert found["duration_ns"].sum() == ledger.requests["took"].sum()
    late = compare(frame, frame.filter(pl.col("request") > 20), "all", "late")
    assert late == compare_sums(
        BlockSums.of(ledger), BlockSums.of(StageRows(frame.filter(pl.col("request") > 20))), "all", "late"
    )
    assert late.kinds
