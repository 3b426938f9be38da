"""When a request begins and ends, with any of its stamps missing: in columns, in the core's ledger, in views."""

import re
from itertools import product
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from collector.queries.span_trees import SpanTrees, build_trees
from collector.queries.timeline.shelf import Shelf
from collector.reporting.request_rows import RequestRows
from collector.requests.spans import link
from collector.trace import request_times
from collector.trace.request_times import Moment, earliest_ns, shown_end, shown_start, was_opened_for
from collector.trace.schema import SILENCES
from collector.trace.time_columns import UNSEEN
from testkit.tables import table

Row = dict[str, int | None]

COLLECTOR = Path(request_times.__file__).parents[1]
STAMPS = {
    "connect_start": 1_000,
    "connected": 1_030,
    "request_first_sent": 1_100,
    "request_first_received": 1_110,
    "request_last_sent": 1_120,
    "request_last_received": 1_130,
    "response_first_sent": 1_200,
    "response_first_received": 1_210,
    "response_last_sent": 1_230,
    "response_last_received": 1_240,
    "given_up": 1_300,
}
"""Of a request whose packets were all seen, by which it was answered and also given up."""


def rows_with_any_stamps_missing() -> list[Row]:
    """Every choice of stamps that are seen; the handshake is seen whole or not at all."""
    choices = product((True, False), repeat=len(STAMPS) - 1)
    seen = [dict(zip(list(STAMPS)[1:], choice, strict=True)) for choice in choices]
    return [
        {name: at if each[name if name != "connect_start" else "connected"] else None for name, at in STAMPS.items()}
        for each in seen
    ]


ROWS = rows_with_any_stamps_missing()


def first_of(row: Row, *names: str) -> int | None:
    return next((row[name] for name in names if row[name] is not None), None)


def begin_of(row: Row) -> int | None:
    """As docs/glossary.md has it, without the handshake."""
    return first_of(row, "request_first_sent", "request_first_received")


def end_of(row: Row) -> int | None:
    return first_of(row, "response_last_received", "response_last_sent", "given_up")


def duration_of(row: Row) -> int | None:
    """From the first byte to the end, and the handshake of a connection that was opened for the request."""
    begin, end = begin_of(row), end_of(row)
    if begin is None or end is None:
        return None
    is_opened = row["connected"] is not None and row["request_first_sent"] is not None
    return end - begin + (STAMPS["connected"] - STAMPS["connect_start"] if is_opened else 0)


@pytest.fixture(scope="module")
def exchanges() -> pa.Table:
    """A request for each of `ROWS`, each between hosts of its own, so that none is another's parent."""
    return table(
        "exchanges",
        [
            {"exchange_id": number, "connection_id": number, "service": "s", "protocol": "http/1.1", "method": "GET"}
            | {"client_host": f"client{number}", "server_host": f"server{number}"}
            | {f"{name}_trace_ns": at for name, at in row.items()}
            for number, row in enumerate(ROWS, 1)
        ],
    )


@pytest.fixture(scope="module")
def spans(exchanges: pa.Table) -> pa.Table:
    return link(exchanges)


MOMENTS = {name: value for name, value in vars(request_times).items() if isinstance(value, Moment)}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_a_moment_is_its_first_stamp_that_was_seen(exchanges: pa.Table, moment: Moment) -> None:
    names = [column.removesuffix("_trace_ns") for column in moment.columns]
    expected = [first_of(row, *names) for row in ROWS]
    assert pl.DataFrame(exchanges).select(moment.expr()).to_series().to_list() == expected
    assert moment.times(exchanges).tolist() == [UNSEEN if at is None else at for at in expected]


def test_a_span_begins_and_ends_with_its_request(spans: pa.Table) -> None:
    assert spans["end_trace_ns"].to_pylist() == [end_of(row) for row in ROWS]
    for row, start, pause in zip(
        ROWS, *(spans[name].to_pylist() for name in ("start_trace_ns", "pause_ns")), strict=True
    ):
        is_opened = row["connected"] is not None and row["request_first_sent"] is not None
        assert start == (STAMPS["connect_start"] if is_opened else begin_of(row))
        assert pause == (STAMPS["request_first_sent"] - STAMPS["connected"] if is_opened else 0)


def test_the_cores_ledger_adds_up_to_the_same_duration(spans: pa.Table) -> None:
    assert spans["critical_ns"].to_pylist() == [duration_of(row) or 0 for row in ROWS]


def test_views_draw_what_has_no_beginning_or_end_as_far_as_it_was_seen(exchanges: pa.Table, spans: pa.Table) -> None:
    shelf = Shelf()
    build_trees(shelf, RequestRows.of_tables(spans, exchanges), SILENCES.empty_table(), 0)
    shown = {row["connection_id"]: row for row in SpanTrees(shelf).frame.to_dicts()}
    assert shown.keys() == {number for number, row in enumerate(ROWS, 1) if any(row.values())}
    for number, span in shown.items():
        row = ROWS[number - 1]
        seen = [at for at in row.values() if at is not None]
        assert span["end"] == (end_of(row) or max(seen))
        assert span["start"] == (min(seen) if begin_of(row) is None else spans["start_trace_ns"][number - 1].as_py())
        assert duration_of(row) in (None, span["duration_ns"])


def test_ends_that_were_not_seen_are_the_first_and_last_time_seen() -> None:
    frame = pl.DataFrame(
        {"start_trace_ns": [None, 3], "end_trace_ns": [None, 4], "a_trace_ns": [5, 1], "b_trace_ns": [9, 9]}
    )
    assert frame.select(start=shown_start(frame.columns), end=shown_end(frame.columns)).rows() == [(5, 9), (3, 4)]


def test_a_connection_is_opened_for_the_span_that_begins_with_its_syn() -> None:
    frame = pl.DataFrame({"start_trace_ns": [1, 2, None], "connect_start_trace_ns": [1, 1, None]})
    assert frame.select(was_opened_for()).to_series().to_list() == [True, False, False]


def test_exchanges_are_sorted_by_their_earliest_stamp(exchanges: pa.Table) -> None:
    names = [name for name in STAMPS if name.startswith("re")]
    expected = [min((row[name] for name in names if row[name] is not None), default=0) for row in ROWS]
    assert earliest_ns(exchanges).tolist() == expected


OTHER_MEANING = {
    "requests/endings.py": "who left first, by the stamps of the end that was captured",
    "reporting/fan_out.py": "moments of the parent's host only",
}
"""Modules that put stamps of a request together for another question."""


def test_no_other_module_decides_when_a_request_begins_or_ends() -> None:
    stamps = "|".join(name for name in STAMPS if name.startswith(("re", "given")))
    pattern = re.compile(rf"(?:coalesce|first_times\w*)\((?:[^()]*\"(?:{stamps})(?:_trace_ns)?\"){{2}}", re.DOTALL)
    found = {str(path.relative_to(COLLECTOR)) for path in COLLECTOR.rglob("*.py") if pattern.search(path.read_text())}
    assert found == set(OTHER_MEANING)
