"""Runs of rows put one after the other come back as one table by key, from memory and from disk alike."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from collector.execution.external_sort import BATCH_ROWS, SortedRuns
from tracer.errors import ResourceError


def run(keys: np.ndarray, host: str) -> pa.Table:
    return pa.table({"key": keys, "host": pa.array([host] * len(keys)).dictionary_encode()})


@pytest.mark.parametrize("in_memory_bytes", [1 << 30, 200_000, 0], ids=["in memory", "partly", "on disk"])
def test_slabs_hold_all_rows_by_key(tmp_path: Path, in_memory_bytes: int) -> None:
    random = np.random.default_rng(5)
    parts = [random.integers(0, 30_000, size) for size in (0, 1, 7_000, 3 * BATCH_ROWS, 12_345)]
    with SortedRuns(tmp_path, in_memory_bytes) as runs:
        for number, keys in enumerate(parts):
            runs.put(number, run(keys, f"host{number}"), keys)
        slabs = list(runs.slabs(1000))
    keys = np.concatenate([slab["key"].to_numpy() for slab in slabs])
    assert (keys == np.sort(np.concatenate(parts))).all()
    assert max(slab.num_rows for slab in slabs) < 1100, "a slab is about as large as asked for"
    hosts = [host for slab in slabs for host in slab["host"].to_pylist()]
    assert [hosts.count(f"host{number}") for number in range(5)] == [len(keys) for keys in parts]
    assert list(tmp_path.iterdir()) == []


def test_equal_keys_keep_the_order_they_came_in() -> None:
    with SortedRuns() as runs:
        for number in range(3):
            runs.put(number, run(np.zeros(2, dtype=np.int64), f"host{number}"), np.zeros(2, dtype=np.int64))
        (slab,) = runs.slabs(1)
    assert slab["host"].to_pylist() == ["host0", "host0", "host1", "host1", "host2", "host2"]


@pytest.mark.parametrize("in_memory_bytes", [1 << 30, 0], ids=["in memory", "on disk"])
def test_columns_of_nulls_are_not_kept_and_come_back(tmp_path: Path, in_memory_bytes: int) -> None:
    texts = pa.dictionary(pa.uint32(), pa.string())
    schema = pa.schema(
        [("key", pa.int64()), ("never", texts), ("late", texts), ("once", pa.uint16()), ("no", pa.bool_())]
    )
    first, second = (
        pa.Table.from_pylist([{"key": 3, **more}, {"key": 1}, {"key": 2}], schema)
        for more in ({"once": 7}, {"late": "x"})
    )
    with SortedRuns(tmp_path, in_memory_bytes) as runs:
        for number, part in enumerate((first, second)):
            runs.put(number, part, part["key"].to_numpy())
        files = sorted(tmp_path.rglob("*.arrow"))
        kept = [pa.ipc.open_file(pa.memory_map(str(file))).schema.names for file in files]
        assert kept == ([] if in_memory_bytes else [["key", "once"], ["key", "late"]])
        slabs = list(runs.slabs(3))
    assert all(slab.schema.equals(schema) for slab in slabs)
    rows = [row for slab in slabs for row in slab.to_pylist()]
    assert [row["key"] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [row["once"] for row in rows] == [None, None, None, None, 7, None]
    assert [row["late"] for row in rows] == [None, None, None, None, None, "x"]
    assert {row[name] for row in rows for name in ("never", "no")} == {None}


def test_a_disk_without_room_is_the_operators(tmp_path: Path) -> None:
    keys = np.arange(3)
    with SortedRuns(tmp_path / "absent", 0) as runs, pytest.raises(ResourceError, match="no room"):
        runs.put(0, run(keys, "a"), keys)
