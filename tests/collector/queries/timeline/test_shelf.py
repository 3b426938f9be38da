"""Arrays on disk are read ahead, all of them at once, for the rows that are asked for and no others."""

import mmap
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from collector.queries.timeline.shelf import Shelf, prefetch

ROWS = 20_000


@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, ROWS), (ROWS - 1, ROWS), (4_000, 9_000), (7, 7)])
def test_rows_are_asked_for_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
    asked: list[tuple[int, int]] = []

    class Watched(mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int = 0) -> None:  # type: ignore[override]
            asked.append((start, start + length))
            super().madvise(option, start, length)  # refuses what is no page, or beyond the end

    Shelf(tmp_path).put("times", np.arange(ROWS))
    monkeypatch.setattr(mmap, "mmap", Watched)
    times = Shelf(tmp_path).array("times")
    prefetch([times, np.arange(ROWS)], first, last)
    assert len(asked) == (first < last)
    for begin, end in asked:
        assert begin % mmap.PAGESIZE == 0
        head = (tmp_path / "times.npy").stat().st_size - 8 * ROWS
        assert begin <= head + 8 * first < begin + mmap.PAGESIZE
        assert end == head + 8 * last


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_table_that_comes_in_parts_is_one(in_memory: bool, tmp_path: Path) -> None:
    whole = pl.DataFrame({"a": [1, 2, 3], "text": ["x", None, "longer than twelve bytes"], "list": [[1], None, [2, 3]]})
    shelf = Shelf(None if in_memory else tmp_path)
    shelf.put_tables("parts", iter([whole[:2], whole[2:]]))
    assert (shelf if in_memory else Shelf(tmp_path)).table("parts").equals(whole)
    shelf.put_tables("none", iter([whole[:0]]))
    assert (shelf if in_memory else Shelf(tmp_path)).table("none").equals(whole[:0])
