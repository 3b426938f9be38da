"""Writes the rows of a query: as a table for a reader, as CSV, JSON or Parquet for programs, a batch at a time."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from rich.console import Console
from rich.text import Text

from collector.reporting.console import new_grid, show_grid
from tracer.plain_text import plain

SIGNIFICANT_DIGITS = 4
"""Of a fraction in a table for a reader; the other formats give all digits."""


def show_rows(rows: pa.RecordBatchReader, most: int | None, console: Console) -> None:
    """Print rows as a table of at most `most` rows (None for all); numbers are on the right, nothing is cut but for a
    terminal's width."""
    taken = list(islice(_records(rows), None if most is None else most + 1))
    shown = taken if most is None else taken[:most]
    columns = [[cell(record[at]) for record in shown] for at in range(len(rows.schema))]
    if not console.is_terminal:
        cells = zip(rows.schema.names, columns, strict=True)
        console.width = 2 + sum(2 + max(len(name), *map(len, texts), 0) for name, texts in cells)
    grid = new_grid(*(">" if is_number(field.type) else "<" for field in rows.schema))
    grid.add_row(*(Text(plain(name), "dim") for name in rows.schema.names))
    for cells_of_row in zip(*columns, strict=True):
        grid.add_row(*map(Text, cells_of_row))
    show_grid(console, grid)
    if not shown:
        console.print(Text("  no rows", "dim"))
    elif len(taken) > len(shown):
        console.print(Text("  … and more; --rows N shows more of them, -o FILE writes all as --to csv|json|parquet"))


def csv_text(rows: pa.RecordBatchReader) -> Iterator[str]:
    """Rows as CSV (RFC 4180) with a header, in pieces; what is nested is JSON within."""
    is_first = True
    for batch in _batches(rows):
        sink = pa.BufferOutputStream()
        flat = pa.table({name: _flat(batch[name]) for name in batch.schema.names})
        csv.write_csv(flat, sink, csv.WriteOptions(include_header=is_first))
        is_first = False
        yield sink.getvalue().to_pybytes().decode()


def json_text(rows: pa.RecordBatchReader) -> Iterator[str]:
    """Rows as a JSON array of objects, one on a line, in pieces; times are texts with nanoseconds."""
    names, before = rows.schema.names, "[\n"
    for record in _records(rows):
        yield before + json.dumps(dict(zip(names, map(_plain_value, record), strict=True)), ensure_ascii=False)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def write_parquet(rows: pa.RecordBatchReader, file: Path) -> None:
    """Write rows as a Parquet file. Raises: OSError."""
    with pq.ParquetWriter(file, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)


TEXTS: Mapping[str, Callable[[pa.RecordBatchReader], Iterator[str]]] = {"csv": csv_text, "json": json_text}
"""By format, what makes its text."""


def _batches(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches; an empty one if there is none, since a header is due."""
    count = 0
    for count, batch in enumerate(rows, 1):  # noqa: B007
        yield batch
    if not count:
        yield pa.RecordBatch.from_pylist([], rows.schema)


def _records(rows: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    """Each row's values; times as texts, which keep their nanoseconds."""
    for batch in rows:
        columns = [column.cast(with_texts(column.type)) for column in batch.columns]
        yield from zip(*(column.to_pylist() for column in columns), strict=True)


def with_texts(kind: pa.DataType) -> pa.DataType:
    """A type with texts for times, at any depth."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(with_texts(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, with_texts(field.type)) for field in kind])
    return kind


def _flat(column: pa.Array) -> pa.Array:
    """A column in a form that a CSV has."""
    if pa.types.is_nested(column.type):
        values = map(_plain_value, column.cast(with_texts(column.type)).to_pylist())
        texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
        return pa.array(texts, pa.string())
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    return column


def _plain_value(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(each) for each in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def cell(value: Any) -> str:
    """A value in a table for a reader."""
    value = _plain_value(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value))) if value else 0
        return f"{value:,.{min(max(digits, 0), 9)}f}"
    if isinstance(value, list | dict):
        return plain(json.dumps(value, ensure_ascii=False))
    return plain(str(value))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type's values are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
