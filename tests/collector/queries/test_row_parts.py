"""What queries over all requests answer does not depend on the parts that rows come in, nor on where columns lie."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from collector.execution import long_columns
from collector.queries import RequestSelection, TraceView, latency, open_trace, row_parts
from collector.queries.load import ORDERS
from collector.queries.row_parts import DistinctRows, parts_of, slices_of
from testkit.synthetic_trace import Recipe, write_synthetic_trace

UPLOADS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("traces") / "crowd"
    recipe = Recipe(UPLOADS, 3, 100_000_000, lost_share=0.05, spread_ns=10_000_000, target="/v1/a/c/o")
    write_synthetic_trace(folder, recipe)
    return folder


@contextmanager
def in_small_parts(rows: int, temporary: Path) -> Iterator[None]:
    """Parts of so many rows; columns of more than these lie in files of a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_parts, "ROW_GROUP_ROWS", rows)
        patch.setattr(long_columns, "MOST_IN_MEMORY_ROWS", rows)
        patch.setattr("tempfile.tempdir", str(temporary))
        yield


def plain(value: Any) -> Any:
    """Columns as lists, for a comparison."""
    if isinstance(value, np.ndarray | pl.Series):
        return value.to_list() if isinstance(value, pl.Series) else value.tolist()
    if isinstance(value, pl.DataFrame):
        return {name: column.cast(pl.String).to_list() for name, column in value.to_dict().items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


def rows_of_lists(trace: TraceView) -> list[Any]:
    """Pages of requests in each order, one of them beyond the end."""
    return [
        trace.load.rows(RequestSelection(), order, first, 7) for order in ORDERS for first in (0, 7, UPLOADS - 3, 99)
    ]


QUERIES: dict[str, Callable[[TraceView], Any]] = {
    "table": lambda trace: trace.load.table,
    "classes": lambda trace: trace.load.classes,
    "origins": lambda trace: trace.load.origins,
    "rows": rows_of_lists,
    "answers": lambda trace: list(trace.load.answers([5, 2]).items()),
    "bands": lambda trace: trace.load.by_server.bands([[0, 1], [2], [3, 4]], 0, trace.duration_ns, 50),
    "at once": lambda trace: [
        trace.load.by_server.within(lanes, 5_000_000, 90_000_000) for lanes in ([0], [1], [2, 3])
    ],
    "graph": lambda trace: [trace.load.graph(apart) for apart in (False, True)],
    "called": lambda trace: trace.load.select(RequestSelection(caller="swift-proxy", callee="swift-object"), "number"),
    "scatter": lambda trace: trace.load.latencies(RequestSelection()).scatter,
    "in flight": lambda trace: trace.load.latencies(RequestSelection()).in_flight,
    "by concurrency": lambda trace: trace.load.latencies(RequestSelection()).by_concurrency,
    "by class": lambda trace: trace.load.class_durations,
    "by service": lambda trace: trace.load.service_durations,
    "slowness": lambda trace: trace.load.slowness,
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("rows", [5, 50])
def test_answers_of_small_parts_are_those_of_the_whole(folder: Path, tmp_path: Path, query: str, rows: int) -> None:
    expected = plain(QUERIES[query](open_trace(str(folder))))
    with in_small_parts(rows, tmp_path):
        found = plain(QUERIES[query](open_trace(str(folder))))
    assert repr(found) == repr(expected)
    assert not list(tmp_path.iterdir())


def test_many_requests_are_counted_part_by_part(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(latency, "MOST_DOTS", 10)
    monkeypatch.setattr(latency, "DOTS_OF_MANY", 5)
    expected = open_trace(str(folder)).load.latencies(RequestSelection()).scatter
    with in_small_parts(7, tmp_path):
        found = open_trace(str(folder)).load.latencies(RequestSelection()).scatter
    assert found.grid is not None
    assert int(found.grid.sum()) == UPLOADS - len(found.numbers)
    assert repr(plain(found)) == repr(plain(expected))


def test_lists_are_sorted_by_value_then_number(folder: Path) -> None:
    trace = open_trace(str(folder))
    every = trace.load.table.with_columns(pl.col("class").cast(pl.String))
    columns = {"slowest": ("duration_ns", True), "first": ("start_ns", False), "largest": ("bytes", True)}
    for order, (column, descending) in columns.items():
        _, rows = trace.load.rows(RequestSelection(), order, 4, 9)  # type: ignore[arg-type]
        expected = every.sort(column, "number", descending=[descending, False]).slice(4, 9)
        assert [row.number for row in rows] == expected["number"].to_list()
        assert [row.class_name for row in rows] == expected["class"].to_list()


def test_equal_rows_have_one_number_in_all_parts() -> None:
    rows = pl.DataFrame({"a": ["x", None, "x", "y", None], "b": [True, True, True, None, True]})
    distinct = DistinctRows()
    numbers = np.concatenate([distinct.numbers(part) for part in (rows[:2], rows[2:], rows.clear())])
    assert numbers.tolist() == [0, 1, 0, 2, 1]
    assert distinct.frame().equals(rows[[0, 1, 3]])
    assert distinct.frame()[numbers].equals(rows)


def test_parts_and_slices_are_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_parts, "ROW_GROUP_ROWS", 4)
    rows = pl.DataFrame({"a": range(10)})
    assert [len(part) for part in parts_of(rows)] == [4, 4, 2]
    assert [rows[part].equals(of) for part, of in zip(slices_of(10), parts_of(rows), strict=True)] == [True] * 3
    assert [len(part) for part in parts_of(rows.clear())] == [0]
