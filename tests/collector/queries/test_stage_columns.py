"""Stages by column: what each request spent, and stages under other names."""

import numpy as np
import polars as pl

from collector.queries.stage_columns import StageColumns


def columns_of(*parts: list[tuple[int, str, int]]) -> StageColumns:
    """Of rows `request, stage, duration_ns`."""
    frames = [
        pl.DataFrame(
            rows, {"request": pl.UInt32, "stage": pl.String, "duration_ns": pl.Int64}, orient="row"
        ).with_columns(pl.col("stage").cast(pl.Categorical), trace_id=pl.col("request").cast(pl.Int64) * 10 + 7)
        for rows in parts
    ]
    return StageColumns.of(frames, 100)


PARTS = ([(0, "work", 5), (0, "up", 1), (2, "work", 7)], [], [(2, "down", 2), (1, "up", 3), (2, "up", 4)])


def test_each_request_has_its_stages_and_their_sum() -> None:
    found = columns_of(*PARTS)
    assert found.trace_id.tolist() == [7, 17, 27]
    assert found.took_ns.tolist() == [6, 3, 13]
    assert [found.of_request(row) for row in range(3)] == [
        {"up": 1, "work": 5},
        {"up": 3},
        {"down": 2, "up": 4, "work": 7},
    ]


def test_a_stage_among_chosen_requests_leaves_out_those_without_it() -> None:
    work = columns_of(*PARTS).stages["work"]
    assert sorted(work.among(np.array([True, True, True])).tolist()) == [5, 7]
    assert work.among(np.array([False, True, True])).tolist() == [7]


def test_stages_under_one_name_are_added_up() -> None:
    found = columns_of(*PARTS).merge({"up": "both", "down": "both"})
    assert sorted(found.stages) == ["both", "work"]
    assert [found.of_request(row).get("both") for row in range(3)] == [1, 3, 6]
    assert found.took_ns.tolist() == [6, 3, 13]


def test_no_request_has_no_stage() -> None:
    found = columns_of([])
    assert (len(found.trace_id), found.stages) == (0, {})
