"""Columns in files are as those in memory, and nothing is left of them."""

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from collector.execution import long_columns
from collector.execution.long_columns import LongColumns, LongTable
from tracer.errors import ResourceError

TEXT = pa.dictionary(pa.int32(), pa.string())


def _part(numbers: list[int | None], texts: list[str | None]) -> pa.Table:
    rows = len(numbers)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "name": pa.array(texts, pa.string()).cast(TEXT),
            "target": pa.array(texts, pa.string()),
            "never": pa.nulls(rows, pa.int64()),
            "no_name": pa.nulls(rows, TEXT),
            "flag": pa.array([True, None, False] * rows, pa.bool_())[:rows],
        }
    )


PARTS = (
    _part([], []),
    _part([1, None], ["a", None]),
    _part([], []),
    _part([3, 4, 5], ["b", "a", "c"]).slice(1),
    _part([None], [None]),
)


@pytest.mark.parametrize("most", [0, 1, 2, 4, 100])
def test_columns_are_the_same_in_memory_and_in_files(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_columns, "MOST_IN_MEMORY_ROWS", most)
    with LongColumns(tmp_path) as kept:
        table = LongTable(kept)
        for part in PARTS:
            table.add(part)
            kept.add(number=part["number"].fill_null(-1).to_numpy(), flag=np.ones(part.num_rows, np.bool_))
        rows, number, flag = table.whole(), kept.whole("number"), kept.whole("flag")
        same = kept.keep(np.arange(9)[::2])
        kept.add(never_asked_for=np.arange(9))
    assert rows.to_pylist() == pa.concat_tables(PARTS).to_pylist()
    assert rows.schema == PARTS[0].schema
    assert (number.tolist(), number.dtype) == ([1, -1, 4, 5, -1], np.int64)
    assert (flag.tolist(), flag.dtype) == ([True] * 5, np.bool_)
    assert same.tolist() == [0, 2, 4, 6, 8]
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_rows_has_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_columns, "MOST_IN_MEMORY_ROWS", 0)
    with LongColumns(tmp_path) as kept:
        table = LongTable(kept)
        table.add(PARTS[0])
        kept.add(number=np.empty(0, np.int32))
        assert (table.whole().schema, kept.whole("number").dtype) == (PARTS[0].schema, np.int32)


def test_the_space_of_a_column_is_free_when_nobody_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_columns, "MOST_IN_MEMORY_ROWS", 0)

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    with LongColumns(tmp_path) as kept:
        table = LongTable(kept)
        table.add(PARTS[1])
        number, rows = kept.keep(np.arange(9)), table.whole()
    assert maps() == 2
    del number, rows, table
    gc.collect()
    assert maps() == 0


def test_without_room_an_operator_reads_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(long_columns, "MOST_IN_MEMORY_ROWS", 0)
    monkeypatch.setattr(LongColumns, "new_path", refuse)
    with LongColumns(tmp_path) as kept:
        with pytest.raises(ResourceError, match=f"no room for intermediate data in {tmp_path}"):
            kept.add(number=np.arange(9))
        with pytest.raises(ResourceError, match="set TMPDIR to a larger disk"):
            LongTable(kept).add(PARTS[1])
