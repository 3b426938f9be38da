"""Windows over runs give what Polars' windows give; searches give what a walk gives."""

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from collector import runs

VALUE, BEGIN = pl.col("value"), runs.begins("key")
POSITIVE = (VALUE > 0).fill_null(value=False)
WINDOWS: dict[str, tuple[pl.Expr, pl.Expr]] = {
    "previous": (runs.previous(VALUE, BEGIN), VALUE.shift().over("key")),
    "following": (runs.following(VALUE, BEGIN), VALUE.shift(-1).over("key")),
    "place": (runs.place(BEGIN), pl.int_range(pl.len()).over("key")),
    "counted": (runs.counted(POSITIVE, BEGIN), POSITIVE.cast(pl.Int64).cum_sum().over("key")),
    "carried": (runs.carried(VALUE, BEGIN), VALUE.forward_fill().over("key")),
    "carried_back": (runs.carried_back(VALUE, BEGIN), VALUE.backward_fill().over("key")),
    "largest": (runs.largest(VALUE, BEGIN), VALUE.cum_max().over("key")),
}


def rows(seed: int, count: int = 300) -> pl.DataFrame:
    """Rows in runs of one to a dozen, with repeated, negative and unknown values."""
    random = np.random.default_rng(seed)
    values = pl.Series("value", random.integers(-(1 << 62), 1 << 62, count) // random.choice([1, 1 << 60], count))
    unknown = pl.Series(random.random(count) < 0.3)
    keys = pl.Series("key", np.sort(random.integers(0, count // 4, count)))
    return pl.DataFrame([keys, values.set(unknown, None)])


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("seed", range(5))
def test_window(name: str, seed: int) -> None:
    run, window = WINDOWS[name]
    found = rows(seed).select(found=run, expected=window)
    assert found["found"].to_list() == found["expected"].to_list()


@pytest.mark.parametrize("name", WINDOWS)
def test_window_of_nothing(name: str) -> None:
    assert rows(0).clear().select(WINDOWS[name][0]).is_empty()


def test_a_run_begins_where_any_key_changes() -> None:
    keys = pl.DataFrame({"a": [1, 1, 1, 2], "b": [1, 1, 2, 2]})
    assert keys.select(runs.begins("a", "b")).to_series().to_list() == [True, False, True, True]


def walked(values: list[int], low: int, high: int, wanted: int) -> int:
    return max((at for at in range(low, high) if values[at] <= wanted), default=low - 1)


@pytest.mark.parametrize("order", [sorted, list], ids=["queries in order", "queries in any order"])
def test_search_within_stretches(order: Callable[[list[int]], list[int]]) -> None:
    random = np.random.default_rng(7)
    keys = np.sort(random.choice([2, 3, 5, 8, 9], 200))
    values = random.integers(0, 50, 200)
    values = values[np.lexsort((values, keys))]
    asked = np.array(order(random.integers(0, 12, 500).tolist()))
    wanted = random.integers(-5, 55, 500)
    low, high = runs.stretches(keys, asked)
    assert [keys[a:b].tolist() for a, b in zip(low, high, strict=True)] == [keys[keys == key].tolist() for key in asked]
    queries = zip(low.tolist(), high.tolist(), wanted.tolist(), strict=True)
    expected = [walked(values.tolist(), *query) for query in queries]
    assert runs.last_at_most(values, low, high, wanted).tolist() == expected


def test_search_in_nothing() -> None:
    none = np.array([], dtype=np.int64)
    low, high = runs.stretches(none, np.array([4, 4, 5]))
    assert (low.tolist(), high.tolist()) == ([0, 0, 0], [0, 0, 0])
    assert runs.last_at_most(none, low, high, np.array([1, 2, 3])).tolist() == [-1, -1, -1]
    assert [column.size for column in runs.stretches(np.array([1, 2]), none)] == [0, 0]
