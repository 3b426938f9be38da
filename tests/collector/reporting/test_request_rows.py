"""Requests as rows: what is read column by column is what whole rows say."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from collector.reporting.request_rows import TIMES, RequestRows
from collector.requests.spans import link
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from collector.trace.schema import EXCHANGES, SPANS
from collector.trace.writing import write_trace
from tests.helpers.exchange_lines import exchanges_of

LINES = """
    client > proxy/swift-proxy     0 10 90 100 tx=a
    proxy > storage1/swift-object 20 22 60  62 tx=a
    client > proxy/swift-proxy   200 210 290 300 tx=b method=PUT
    client > web/nginx           400 - - -
"""


def in_memory(_: Path) -> RequestRows:
    return RequestRows.of_tables(*tables())


def of_trace(folder: Path) -> RequestRows:
    spans, exchanges = tables()
    with write_trace(str(folder / "trace")) as writer:
        for part in (exchanges.slice(0, 2), exchanges.slice(2)):  # two row groups
            writer.append("exchanges", part)
        writer.write_table("spans", spans)
        writer.write_info(TraceInfo(created_ns=0, tool_version="", hosts=()))
    return RequestRows.of_trace(Trace(str(folder / "trace")))


def tables() -> tuple[pa.Table, pa.Table]:
    """Spans and exchanges; the third exchange has no span, as a stream has none."""
    exchanges = exchanges_of(LINES)
    stream = exchanges.slice(2, 1).set_column(0, "exchange_id", pa.array([77]))
    return link(exchanges), pa.concat_tables([exchanges.slice(0, 2), stream, exchanges.slice(2)])


SOURCES = pytest.mark.parametrize("source", [in_memory, of_trace])


@SOURCES
def test_each_column_is_that_of_whole_rows(source: object, tmp_path: Path) -> None:
    rows: RequestRows = source(tmp_path)  # type: ignore[operator]
    whole = rows.whole()
    assert whole["exchange_id"].to_list() == [1, 2, 3, 4]
    assert whole["duration_ns"].to_list() == [100_000, None, 100_000, 0]
    for name in [*EXCHANGES.names, *SPANS.names[:1], *SPANS.names[2:], "duration_ns"]:
        found = rows.columns(name)
        assert found.columns == [name]
        texts = found.with_columns(pl.col(pl.Categorical).cast(pl.String))[name]
        assert texts.to_list() == whole[name].to_list(), name


@SOURCES
def test_groups_of_rows_are_the_rows(source: object, tmp_path: Path) -> None:
    rows: RequestRows = source(tmp_path)  # type: ignore[operator]
    for names in (("trace_id", "depth"), ("method", "start_trace_ns", "exchange_id"), ("service",)):
        assert pl.concat(rows.batches(*names)).equals(rows.columns(*names))


def test_groups_of_rows_come_in_the_order_of_the_spans(tmp_path: Path) -> None:
    """As `columns` has it; in traces that were written, exchanges have the same order."""
    spans, exchanges = tables()
    with write_trace(str(tmp_path / "trace")) as writer:
        for part in (exchanges.slice(3), exchanges.slice(1, 2), exchanges.slice(0, 1)):
            writer.append("exchanges", part)
        for part in (spans.slice(0, 1), spans.slice(0, 0), spans.slice(1)):
            writer.append("spans", part)
        writer.write_info(TraceInfo(created_ns=0, tool_version="", hosts=()))
    rows = RequestRows.of_trace(Trace(str(tmp_path / "trace")))
    assert pl.concat(rows.batches("exchange_id", "method")).equals(rows.columns("exchange_id", "method"))
    some = RequestRows.of_trace(Trace(str(tmp_path / "trace")), np.array([1]))
    assert pl.concat(some.batches("exchange_id", "depth", "method"))["exchange_id"].to_list() == [1, 2]
    none = RequestRows.of_trace(Trace(str(tmp_path / "trace")), np.array([77]))
    assert [len(part) for part in none.batches("exchange_id", "depth", "method")] == [0]


@SOURCES
def test_the_earliest_is_the_first_of_all_times(source: object, tmp_path: Path) -> None:
    rows: RequestRows = source(tmp_path)  # type: ignore[operator]
    first = rows.whole().select(pl.min_horizontal(TIMES)).to_series()
    assert first.null_count() == 0
    assert rows.earliest().to_list() == first.to_list()


def test_rows_begin_and_end_with_their_spans_or_with_what_is_known() -> None:
    stored = RequestRows.of_tables(*tables())
    reads = list[str]()

    def read(name: str, columns: Sequence[str]) -> pa.Table:
        reads.extend(columns)
        return stored.read(name, columns)

    rows = RequestRows(read, stored.read_some)
    starts, ends = (stored.columns(name).to_series() for name in ("start_trace_ns", "end_trace_ns"))
    assert (starts.null_count(), ends.to_list().index(None)) == (0, 3)
    assert rows.starts().to_list() == starts.to_list()
    assert not {"request_first_sent_trace_ns"} & set(reads), "other times are read only where they are needed"
    assert rows.ends().to_list() == [*ends.to_list()[:3], stored.latest()[3]]


@SOURCES
def test_below_roots_is_all_that_was_done_for_them(source: object, tmp_path: Path) -> None:
    rows: RequestRows = source(tmp_path)  # type: ignore[operator]
    whole = rows.whole()
    for roots, ids in (((1,), [[1, 2]]), ((3, 1), [[3], [1, 2]]), ((), []), ((77,), [[]])):
        found = rows.below(*roots)
        assert [each["exchange_id"].to_list() for each in found] == ids
        assert all(each.equals(whole.filter(pl.col("exchange_id").is_in(each["exchange_id"]))) for each in found)


def test_rows_below_a_root_are_read_once() -> None:
    spans, exchanges = tables()
    stored, reads = RequestRows.of_tables(spans, exchanges), list[str]()

    def read_some(name: str, columns: Sequence[str], rows: NDArray[np.int64]) -> pa.Table:
        reads.append(name)
        return stored.read_some(name, columns, rows)

    rows = RequestRows(stored.read, read_some)
    first = rows.below(1, 3)
    again = [*rows.below(1), *rows.below(3)]
    assert all(map(pl.DataFrame.equals, first, again))
    assert reads == ["spans", "exchanges"]


@SOURCES
@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_rows_come_in_the_order_asked_for_some_at_a_time(source: object, at_once: int, tmp_path: Path) -> None:
    rows: RequestRows = source(tmp_path)  # type: ignore[operator]
    columns = ["depth", "start_trace_ns", "method", "request_bytes"]
    whole = rows.whole().select("exchange_id", *columns)
    for order in ([2, 0, 3, 1], [0, 1, 3], [3, 1], []):
        parts = list(rows.in_order(np.array(order, dtype=np.int64), at_once, columns))
        assert [len(part) for part in parts[:-1]] == [at_once] * (len(parts) - 1)
        assert pl.concat(parts).select(whole.columns).equals(whole[order])


@SOURCES
def test_the_latest_is_the_last_of_all_times(source: object, tmp_path: Path) -> None:
    rows: RequestRows = source(tmp_path)  # type: ignore[operator]
    assert rows.latest().to_list() == rows.whole().select(pl.max_horizontal(TIMES)).to_series().to_list()
