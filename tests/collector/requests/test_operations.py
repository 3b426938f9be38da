"""Calls that ask for one of few things are a kind each; names of objects are none."""

import numpy as np
import polars as pl
import pytest

from collector.requests.operations import LEAST_CALLS, MOST_PATHS, with_operations
from collector.requests.spans import link
from tests.helpers.exchange_lines import exchanges_of


def kinds(paths: list[int], methods: list[str | None]) -> list[str | None]:
    names = pl.Enum(sorted({each for each in methods if each is not None}))
    frame = pl.DataFrame(
        {"service": pl.Series(["web"] * len(paths), dtype=pl.Enum(["web"])), "method": pl.Series(methods, dtype=names)}
    )
    return with_operations(frame, np.array(paths, np.uint64))["method"].cast(pl.String).to_list()


def test_few_paths_are_a_kind_each_and_what_is_rare_another() -> None:
    paths = [7] * LEAST_CALLS + [8] * LEAST_CALLS * 2 + [9, 10]
    found = kinds(paths, ["GET"] * len(paths))
    assert len(set(found)) == 3
    assert [len(set(found[:20])), len(set(found[20:60])), found[60:]] == [1, 1, ["GET ", "GET "]]


@pytest.mark.parametrize(
    "paths",
    [
        [7] * 100,
        list(range(1, 101)),
        [0] * 100,
        [path for path in range(1, MOST_PATHS + 2) for _ in range(LEAST_CALLS)],
        [1] * 40 + [2] * 40 + list(range(3, 100)),
    ],
    ids=["one path", "objects", "unknown", "many", "a few hot objects"],
)
def test_other_paths_distinguish_nothing(paths: list[int]) -> None:
    assert set(kinds(paths, ["GET"] * len(paths))) == {"GET"}


def test_calls_without_a_head_stay_without_a_method() -> None:
    found = kinds([7] * 20 + [8] * 21, ["GET"] * 40 + [None])
    assert found[-1] is None
    assert len(set(found[:-1])) == 2


def steps(is_shown: bool, count: int = 600) -> tuple[float, float]:
    """A gateway asks a service for an item, then for its stock, three requests at once: the share of calls with the
    right parent, and that of wrong ones among the links of 80 % or more."""
    rng = np.random.default_rng(11)
    lines, begin = [], 0.0
    for number in range(count):
        begin += rng.exponential(4_500)
        at = begin
        calls = []
        for path in ("/item", "/stock"):
            sent = at + 100 + rng.exponential(300)
            answered = sent + rng.uniform(1_000, 9_000)
            calls.append((path, round(sent), round(answered)))
            at = answered + 100 + rng.exponential(300)
        lines.append(
            (f"client > web/web {round(begin) - 30} {round(begin)} {round(at)} {round(at) + 30}", begin, number)
        )
        for path, sent, answered in calls:
            shown = f" target={path}?id={rng.integers(1000)}" if is_shown else ""
            lines.append((f"web > db/db {sent} {sent + 30} {answered - 30} {answered} method=GET{shown}", sent, number))
    exchanges = exchanges_of("\n".join(line for line, _, _ in lines))
    spans = pl.DataFrame(link(exchanges))
    request = dict(zip(exchanges["exchange_id"].to_pylist(), [number for _, _, number in lines], strict=True))
    calls_found = spans.filter(pl.Series(exchanges["client_host"].to_pylist()) == "web")
    rows = calls_found.select("span_id", "parent_span_id", "confidence").rows()
    right = [request[span] == request.get(parent) for span, parent, _ in rows]
    sure = [ok for ok, (_, _, confidence) in zip(right, rows, strict=True) if (confidence or 0) >= 0.8]
    return sum(right) / len(right), 1 - sum(sure) / max(1, len(sure))


def test_steps_of_the_work_are_linked_by_what_they_ask_for() -> None:
    right, sure_but_wrong = steps(is_shown=True)
    assert right > 0.97
    assert sure_but_wrong < 0.01
    assert steps(is_shown=False)[0] < right - 0.03
