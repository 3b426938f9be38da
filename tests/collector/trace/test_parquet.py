"""Tables as the core encodes them, read by those who read traces: Arrow, DuckDB, Polars."""

from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.trace import parquet

ROWS = 3_000
RANDOM = np.random.default_rng(5)
TEXT = pa.dictionary(pa.int32(), pa.string())


def texts(places: list[int | None], names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), names)


def some_null(values: np.ndarray, share: float = 0.3) -> pa.Array:
    return pa.array(values, mask=RANDOM.random(len(values)) < share)


def every(step: int, values: int) -> np.ndarray:
    return np.arange(ROWS) // step % values


COLUMNS: dict[str, pa.Array] = {
    "no rows": pa.array([], pa.int64()),
    "one row": pa.array([-5], pa.int64()),
    "one value": pa.array(np.full(ROWS, 7, np.uint16)),
    "few values": pa.array(RANDOM.choice([1, 2, 1 << 31], ROWS).astype(np.uint32)),
    "few values in runs": pa.array(every(100, 3).astype(np.int64)),
    "few values first, many later": pa.array(np.maximum(np.arange(ROWS) - 2_000, 0).astype(np.int64) ** 3),
    "ascending": pa.array(np.arange(ROWS, dtype=np.uint32)),
    "times": pa.array(1_700_000_000 * 10**9 + np.cumsum(RANDOM.integers(0, 10**6, ROWS))),
    "times of two hosts": pa.array((np.arange(ROWS) % 2 << 50) + np.arange(ROWS) * 1_000),
    "any int64": pa.array(RANDOM.integers(-(1 << 63), (1 << 63) - 1, ROWS)),
    "extremes of int64": pa.array(np.where(RANDOM.random(ROWS) < 0.5, -(1 << 63), (1 << 63) - 1)),
    "any uint32": pa.array(RANDOM.integers(0, 1 << 32, ROWS).astype(np.uint32)),
    "any int32": pa.array(RANDOM.integers(-(1 << 31), 1 << 31, ROWS).astype(np.int32)),
    "any uint16": pa.array(RANDOM.integers(0, 1 << 16, ROWS).astype(np.uint16)),
    "any uint8": pa.array(RANDOM.integers(0, 1 << 8, ROWS).astype(np.uint8)),
    "floats": pa.array(RANDOM.random(ROWS)),
    "one float": pa.array(np.full(ROWS, 0.5)),
    "bits": pa.array(RANDOM.random(ROWS) < 0.5),
    "null times": some_null(np.cumsum(RANDOM.integers(0, 10**6, ROWS))),
    "null bits": some_null(RANDOM.random(ROWS) < 0.5),
    "null floats": some_null(RANDOM.random(ROWS)),
    "all null": pa.nulls(ROWS, pa.int64()),
    "texts": texts(RANDOM.integers(0, 5, ROWS).tolist(), ["client", "proxy", "", "日本", "never"][:5]),
    "a text": texts([1] * ROWS, ["a", "b"]),
    "null texts": texts([None, 1, 0, 1] * (ROWS // 4), ["a", "b"]),
    "all texts null": pa.nulls(ROWS, TEXT),
    "texts listed twice": texts([2, 1, 0, 1] * (ROWS // 4), ["a", "b", "a"]),
    "free texts": pa.array([f"tx{number * 77}" + "é" * (number % 5) for number in range(ROWS)]),
    "free texts of few kinds": pa.array(["PUT", "GET", "", "DELETE"] * (ROWS // 4)),
    "free texts, few first": pa.array(["PUT"] * 2_500 + [str(number) for number in range(500)]),
    "null free texts": pa.array(["/a", None, "/b" * 40, None] * (ROWS // 4)),
    "all free texts null": pa.nulls(ROWS, pa.string()),
    "no text": pa.array([""]),
    "many texts": texts(list(range(ROWS)), [f"10.0.{number >> 8}.{number % 256}" for number in range(ROWS)]),
    "few of many texts": texts([2_999, 0, 1_500, 0] * (ROWS // 4), [f"{number:04}" for number in range(ROWS)]),
    "null few of many texts": texts([None, 7, 7, 2_998] * (ROWS // 4), [f"{number:04}" for number in range(ROWS)]),
}


def write(path: Path, table: pa.Table, looked_up_by: tuple[str, ...] = (), group_rows: int = 1 << 18) -> None:
    with path.open("wb") as file:
        writer = parquet.Writer(file, table.schema)
        writer.write(parquet.encode(table, looked_up_by, group_rows))
        writer.close()


def test_columns_may_have_different_parts_of_one_dictionary(tmp_path: Path) -> None:
    names, places = pa.array(["a", "b", "c", "d"]), pa.array([0, 1, 0], pa.int32())
    columns = [pa.DictionaryArray.from_arrays(places, part) for part in (names[:2], names[:3], names[1:3], names[2:])]
    written = pa.table(dict(zip("wxyz", columns, strict=True)))
    write(tmp_path / "t.parquet", written, group_rows=2)
    read = pq.read_table(tmp_path / "t.parquet")
    found = {name: read[name].cast(pa.string()).to_pylist() for name in "wxyz"}
    assert found == {"w": ["a", "b", "a"], "x": ["a", "b", "a"], "y": ["b", "c", "b"], "z": ["c", "d", "c"]}


@pytest.mark.parametrize("name", COLUMNS)
def test_every_reader_reads_what_was_written(name: str, tmp_path: Path) -> None:
    values, path = COLUMNS[name], tmp_path / "table.parquet"
    schema = pa.schema([pa.field("value", values.type, nullable=bool(values.null_count))])
    table = pa.table([values], schema=schema)
    write(path, table)
    expected = [str(text) for text in values] if name == "floats" else values.to_pylist()
    found = pq.read_table(path)
    found.validate(full=True)
    assert found.schema.equals(schema)
    assert found["value"].to_pylist() == values.to_pylist()
    for other in (pl.read_parquet(path)["value"].to_list(), duckdb.read_parquet(str(path)).fetchall()):
        read = [row[0] if isinstance(row, tuple) else row for row in other]
        assert ([str(value) for value in read] if name == "floats" else read) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("null times", "null bits", "bits", "null texts", "texts listed twice", "free texts", "null free texts"),
        "null few of many texts",
    ],
)
@pytest.mark.parametrize("first", [0, 8, 13])
def test_rows_are_written_wherever_they_stand_in_their_arrays(name: str, first: int, tmp_path: Path) -> None:
    table = pa.table({"value": COLUMNS[name]}).slice(first, 1_001)
    write(tmp_path / "table.parquet", table, group_rows=100)
    assert pq.read_metadata(tmp_path / "table.parquet").num_row_groups == 11
    assert pq.read_table(tmp_path / "table.parquet")["value"].to_pylist() == table["value"].to_pylist()


def test_row_groups_show_their_extremes_where_they_are_asked_to(tmp_path: Path) -> None:
    names = ("any uint32", "times", "texts", "null texts", "null times", "all null", "any uint16")
    table = pa.table({name: COLUMNS[name] for name in names})
    write(tmp_path / "ours.parquet", table, names[:-1], group_rows=1_000)
    pq.write_table(table, tmp_path / "arrows.parquet", row_group_size=1_000)
    ours, arrows = (pq.read_metadata(tmp_path / f"{name}.parquet") for name in ("ours", "arrows"))
    assert ours.num_row_groups == arrows.num_row_groups == 3
    for group in range(ours.num_row_groups):
        for place, name in enumerate(names):
            mine, theirs = (file.row_group(group).column(place).statistics for file in (ours, arrows))
            if name == "all null":
                assert (mine.null_count, mine.has_min_max) == (ours.row_group(group).num_rows, False)
            elif name == "any uint16":
                assert mine is None
            else:
                assert (mine.min, mine.max) == (theirs.min, theirs.max), name


def test_what_repeats_is_compressed_and_what_does_not_is_not(tmp_path: Path) -> None:
    repeated = pa.array(np.tile(RANDOM.integers(0, 1 << 32, 1_000), 100).astype(np.uint32))
    columns = {"repeated": repeated, "random": pa.array(RANDOM.integers(0, 1 << 32, 100_000).astype(np.uint32))}
    write(tmp_path / "table.parquet", pa.table(columns))
    group = pq.read_metadata(tmp_path / "table.parquet").row_group(0)
    assert [group.column(place).compression for place in range(2)] == ["LZ4", "UNCOMPRESSED"]
    assert group.column(0).total_compressed_size < 20_000
    assert pq.read_table(tmp_path / "table.parquet").equals(pa.table(columns))


def test_a_column_that_is_never_null_is_refused_with_one(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("value", pa.int64(), nullable=False)])
    with pytest.raises(AssertionError, match="value is never null"):
        write(tmp_path / "table.parquet", pa.table([pa.array([1, None])], schema=schema))
