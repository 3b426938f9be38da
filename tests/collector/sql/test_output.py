"""The rows of a query as a table, CSV, JSON and Parquet; the oracle reads each with another library."""

import csv
import io
import json
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from rich.console import Console

from collector.sql.output import csv_text, json_text, show_rows, write_parquet

AT = pa.array([1_800_000_000_000_000_001, None], pa.int64()).cast(pa.timestamp("ns"))
ROWS = pa.record_batch(
    {
        "text": ['a, "b"\n', None],
        "word": pa.array(["x", "y"]).dictionary_encode(),
        "at": AT,
        "n": [1 << 62, -1],
        "share": [0.000012345, float("nan")],
        "is_it": [True, None],
        "several": [["a", "b"], []],
        "times": pa.array([[1_800_000_000_000_000_001], None], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns"))),
        "sum": pa.array([12, None], pa.decimal128(38, 0)),
    }
)
TIME = "2027-01-15 08:00:00.000000001"


def reader(*batches: pa.RecordBatch, schema: pa.Schema = ROWS.schema) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches)


def test_csv() -> None:
    header, first, second, third = csv.reader(io.StringIO("".join(csv_text(reader(ROWS, ROWS.slice(0, 1))))))
    assert header == ROWS.schema.names
    assert (
        first
        == third
        == ['a, "b"\n', "x", TIME, str(1 << 62), "0.000012345", "true", '["a", "b"]', f'["{TIME}"]', "12"]
    )
    assert second == ["", "y", "", "-1", "nan", "", "[]", "", ""]


def test_csv_of_no_rows_is_its_header() -> None:
    assert next(csv.reader(io.StringIO("".join(csv_text(reader()))))) == ROWS.schema.names


def test_json() -> None:
    first, second, third = json.loads("".join(json_text(reader(ROWS, ROWS.slice(1)))))
    assert first == {
        "text": 'a, "b"\n', "word": "x", "at": TIME, "n": 1 << 62, "share": 0.000012345, "is_it": True,
        "several": ["a", "b"], "times": [TIME], "sum": 12,
    }  # fmt: skip
    assert second == third == dict.fromkeys(ROWS.schema.names) | {"word": "y", "n": -1, "several": []}
    assert json.loads("".join(json_text(reader()))) == []


def test_parquet(tmp_path: Path) -> None:
    write_parquet(reader(ROWS, ROWS), tmp_path / "rows.parquet")
    found = pl.read_parquet(tmp_path / "rows.parquet")
    assert len(found) == 4
    assert found["n"].to_list() == [1 << 62, -1] * 2
    assert found["at"].cast(pl.Int64).to_list()[0] == 1_800_000_000_000_000_001


def table_of(rows: pa.RecordBatchReader, most: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), highlight=False)
    show_rows(rows, most, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_table() -> None:
    names, first, second = table_of(reader(ROWS))
    assert names.split() == ROWS.schema.names
    assert re.split("  +", first.strip()) == [
        'a, "b"\\x0a', "x", TIME, f"{1 << 62}", "0.00001234", "true", '["a", "b"]', f'["{TIME}"]', "12"
    ]  # fmt: skip
    assert re.split("  +", second.strip()) == ["y", "-1", "[]"]
    assert first.endswith("   12"), "numbers are on the right"


@pytest.mark.parametrize(("most", "lines"), [(None, 5), (4, 5), (3, 5), (1, 3)])
def test_a_table_says_that_there_is_more(most: int | None, lines: int) -> None:
    found = table_of(reader(ROWS, ROWS), most)
    assert len(found) == lines
    assert ("more" in found[-1]) == (most in (1, 3))


def test_a_table_without_rows() -> None:
    assert table_of(reader())[-1] == "  no rows"


def test_what_a_terminal_obeys_is_escaped() -> None:
    batch = pa.record_batch({"a\x1b": ["\x1b[2J"]})
    assert table_of(reader(batch, schema=batch.schema)) == ["  a\\x1b", "  \\x1b[2J"]
