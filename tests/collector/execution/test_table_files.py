"""Tables that are written for later come back as they were, though columns without a value are not written."""

from pathlib import Path

import pyarrow as pa
import pytest

from collector.execution.partition_cache import PartitionCache
from collector.execution.shared_folder import SharedTables
from collector.execution.table_files import read_table, write_table

TEXTS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("never", TEXTS, metadata={b"unit": b"none"}),
        ("row", pa.int64()),
        ("words", pa.list_(pa.uint32(), 2)),
        ("once", pa.string()),
        ("no", pa.bool_()),
    ],
    metadata={b"made": b"here"},
)
ROWS = [{"row": 3, "words": [1, 2]}, {"row": 1, "once": "x"}, {"row": 2}]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], [], [{}, {}]], ids=["some", "one", "none", "nulls"])
def test_a_table_comes_back_as_it_was(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    write_table(table, tmp_path / "file")
    found = read_table(tmp_path / "file")
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert found.num_rows == len(rows)
    assert found.to_pylist() == table.to_pylist()


def test_a_table_in_parts_comes_back_in_their_order(tmp_path: Path) -> None:
    parts = [pa.Table.from_pylist([row], SCHEMA) for row in ROWS]
    write_table(pa.concat_tables(parts), tmp_path / "file")
    assert read_table(tmp_path / "file")["row"].to_pylist() == [3, 1, 2]


def test_a_dictionary_is_kept_of_a_column_without_a_value(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int32()), ["by id"])
    write_table(pa.table({"row": [1, 2], "reason": column}), tmp_path / "file")
    (chunk,) = read_table(tmp_path / "file")["reason"].chunks
    assert chunk.dictionary.to_pylist() == ["by id"]


def test_columns_without_a_value_take_no_room_between_two_passes(tmp_path: Path) -> None:
    count = 100_000
    table = pa.table({"row": pa.array(range(count), pa.int64()), "never": pa.nulls(count, pa.int64())})
    with PartitionCache(tmp_path, most_in_memory_bytes=0) as cache:
        cache.put(0, table)
        (file,) = tmp_path.rglob("*.arrow")
        assert table["row"].nbytes < file.stat().st_size < 1.1 * table["row"].nbytes
        assert cache.take(0)[0].equals(table)
    shared = SharedTables(tmp_path)
    shared.put(0, table)
    assert (tmp_path / "00000-0.tables").stat().st_size < 1.1 * table["row"].nbytes
    assert shared.take(0)[0].equals(table)
