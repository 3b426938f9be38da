"""Answers SQL for a page: the first rows of a query, with what each leads to in the trace.

Whoever can open the page can ask, so a query is limited in time, memory and rows, and only `AT_ONCE` run at a time.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct

from collector.queries.trace_view import TraceView
from collector.sql.database import Database, QueryLimits
from collector.sql.output import cell, is_number, with_texts
from collector.sql.saved_queries import answers, saved_queries
from collector.sql.views import VIEWS, View
from tracer.errors import InputError

LIMITS = QueryLimits(memory_mib=512, seconds=20.0)
MOST_ROWS = 2_000
AT_ONCE = 2
WAIT_SECONDS = 5
REQUEST_COLUMNS = ("request_id", "root_id", "parent_id")
OF_TABLE = {"requests": "request", "connections": "connection"}
"""What `id` of a table is the id of."""
_ROOM = threading.BoundedSemaphore(AT_ONCE)


class AnswerColumn(Struct, frozen=True):
    """A column of an answer: numbers or texts, and what its values lead to."""

    name: str
    is_number: bool
    is_time: bool  # values are trace times
    leads_to: str  # "request", "connection" or ""


class SqlAnswer(Struct, frozen=True, dict=True):
    """The first rows of a query. Texts are safe to show; times among `values` are ns since the trace began."""

    columns: tuple[AnswerColumn, ...]
    texts: tuple[tuple[str, ...], ...]  # by row
    values: tuple[tuple[object, ...], ...]
    is_cut: bool  # there are more rows
    requests: Mapping[int, int]  # the number of the request of each exchange id that a column names

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def ask(trace: TraceView, query: str) -> SqlAnswer:
    """The answer to a query. Raises: `InputError`, `ResourceError`, with what is wrong."""
    if not _ROOM.acquire(timeout=WAIT_SECONDS):
        raise InputError("other queries are running", "ask again in a moment")
    try:
        with closing(Database(trace.stored, LIMITS)) as database, database.run(query) as found:
            rows, is_cut = _first_rows(found)
    finally:
        _ROOM.release()
    words = frozenset(re.findall(r"\w+", query.lower()))
    columns = tuple(_column(field, words) for field in rows.schema)
    texts = [[cell(value) for value in column.cast(with_texts(column.type)).to_pylist()] for column in rows.columns]
    values = [_values(column, texts[at], trace.start_ns) for at, column in enumerate(rows.columns)]
    ids = {
        value
        for column, of_column in zip(columns, values, strict=True)
        if column.leads_to == "request"
        for value in of_column
        if isinstance(value, int)
    }
    rows_of_texts, rows_of_values = (tuple(zip(*by_column, strict=True)) for by_column in (texts, values))
    return SqlAnswer(columns, rows_of_texts, rows_of_values, is_cut, _numbers(trace, ids))


def query_views() -> Sequence[View]:
    """The tables that can be asked."""
    return VIEWS


def named_queries() -> Mapping[str, tuple[str, str]]:
    """By name what each saved query answers, and its SQL."""
    return {name: (answers(sql), sql) for name, sql in saved_queries().items()}


def _first_rows(found: pa.RecordBatchReader) -> tuple[pa.Table, bool]:
    parts, count = [], 0
    for batch in found:
        parts.append(batch)
        count += batch.num_rows
        if count > MOST_ROWS:
            break
    return pa.Table.from_batches(parts, found.schema).slice(0, MOST_ROWS), count > MOST_ROWS


def _column(field: pa.Field, words: frozenset[str]) -> AnswerColumn:
    leads_to = _leads_to(field.name, words) if pa.types.is_integer(field.type) else ""
    return AnswerColumn(field.name, is_number(field.type), pa.types.is_timestamp(field.type), leads_to)


def _leads_to(name: str, words: frozenset[str]) -> str:
    """What a column of this name leads to; `id` is of the table that the query names, if it names one of
    them."""
    if name == "id":
        tables = OF_TABLE.keys() & words
        return OF_TABLE[tables.pop()] if len(tables) == 1 else ""
    return "request" if name in REQUEST_COLUMNS else "connection" if name == "connection_id" else ""


def _values(column: pa.ChunkedArray, texts: list[str], start_ns: int) -> list[object]:
    """Times as ns since the trace began, None beyond what ns can hold; numbers as they are; of all else the texts."""
    if pa.types.is_timestamp(column.type):
        try:
            times = column.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
        except pa.ArrowInvalid:
            return [None] * len(column)
        return [None if value is None else value - start_ns for value in times]
    if pa.types.is_decimal(column.type):
        return [None if value is None else float(value) for value in column.to_pylist()]
    return column.to_pylist() if is_number(column.type) else list(texts)


def _numbers(trace: TraceView, ids: set[int]) -> Mapping[int, int]:
    """The number of the request that each exchange is part of."""
    if not ids:
        return {}
    wanted = pl.DataFrame({"exchange_id": np.array(sorted(ids), np.int64)})
    return dict(wanted.join(trace.requests_of_exchanges(), on="exchange_id").rows())
