"""A run in windows of time: a late stall shows, failures have no response time, rows are read as they are written."""

import asyncio
import dataclasses
import math
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from storage_cluster.bench.distributed.results_api import add_results
from storage_cluster.bench.results import comparable, rows, windows
from storage_cluster.bench.results.figures import Key
from storage_cluster.bench.results.folder import Mark, RunInfo
from storage_cluster.bench.results.windows import NS, RunReader, Windows, describe, slowest
from testkit.load_runs import MS, PREPARE_S, STARTED_NS, Course, write_run

STALL = Course(seconds=600.0, per_s=40.0, stall=(595.0, 600.0), stall_share=0.5)
END_S = PREPARE_S + 600


def everything(key: Key) -> bool:
    return bool(key)


def main_only(key: Key) -> bool:
    return key.stage == "main"


def test_a_stall_in_the_last_5_seconds_shows_in_the_moving_99_percent_and_not_in_the_cumulative(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STALL)
    found = RunReader(run.folder, STARTED_NS).read(lambda each: describe(each, main_only, run.info.ended_ns))
    moving = found["percentiles_ns"]["99"]
    width_s = found["width_s"]
    before = [value for value in moving[: int(590 / width_s)] if value is not None]
    assert max(before) < 100 * MS
    assert max(value for value in moving[int(590 / width_s) :] if value is not None) > 4000 * MS
    cumulative = run.tally.total(key for key in run.tally.figures if key.stage == "main").response.percentile_ns(99)
    assert cumulative is not None and cumulative < 100 * MS
    rows_found = RunReader(run.folder, STARTED_NS).read(lambda each: slowest(each, everything, END_S - 2, END_S + 1, 5))
    assert rows_found[0].response_ns > 4000 * MS


def test_percentiles_of_a_window_are_exact_to_1_percent(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", Course(seconds=3.0))
    found = RunReader(run.folder, STARTED_NS).read(lambda each: describe(each, main_only, run.info.ended_ns))
    width_ns = round(found["width_s"] * NS)
    by_window: dict[int, list[int]] = {}
    for row in run.rows():
        if row.stage == "main" and not row.error:
            by_window.setdefault((row.end_ns - STARTED_NS) // width_ns, []).append(row.response_ns)
    for at, values in by_window.items():
        for percent in (50, 95, 99):
            exact = sorted(values)[max(math.ceil(percent * len(values) / 100), 1) - 1]
            assert exact <= found["percentiles_ns"][str(percent)][at] <= exact * 1.01
        assert sum(found["heat"]["counts"][at]) == len(values)


def test_a_window_in_which_nothing_went_well_has_no_percentile_and_no_0() -> None:
    made = Windows(STARTED_NS)
    failed = rows.Row(
        1, 0, "GET", "d1", 0, "e", "c/o", "status", STARTED_NS, -1, 3 * MS, "main", "main", "read", 503, 1, True, True,
        0, -1, "tx1", 1,
    )  # fmt: skip
    made.add(failed)
    made.add(failed._replace(error="", status=200, start_ns=STARTED_NS + NS, idx=2))
    found = describe(made, everything, 0)
    assert found["percentiles_ns"]["99"][0] is None and found["percentiles_ns"]["99"][4] == 3 * MS
    assert found["errors"] == {"status_503": [1, 0, 0, 0, 0]}
    assert (found["operations"][0]["rate"][0], found["heat"]["counts"][0]) == (0.0, [0])


@pytest.mark.parametrize(("over_s", "last"), [(0.15, 6.667), (0.2, 5.0), (0.05, None), (0.25, 4.0)])
def test_a_rate_is_of_the_part_of_its_window_that_is_over(over_s: float, last: float | None) -> None:
    made = Windows(STARTED_NS)
    for start_ns in (0, NS):
        row = rows.Row(
            1, 0, "GET", "d1", 0, "e", "c/o", "", STARTED_NS + start_ns, -1, 3 * MS, "main", "main", "read", 200, 1,
            True, True, 0, -1, "tx1", 1,
        )  # fmt: skip
        made.add(row)
    found = describe(made, everything, STARTED_NS + NS + round(over_s * NS))
    assert found["operations"][0]["rate"] == [4.0, 0.0, 0.0, 0.0, last]
    assert found["duration_s"] == 1 + over_s


def test_windows_widen_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", Course(seconds=20.0, fault=(5.0, 9.0)))
    counts = []
    for most in (20, 1000):
        monkeypatch.setattr(windows, "WINDOWS_MAX", most)
        reader = RunReader(run.folder, STARTED_NS)
        total = reader.read(lambda each: each.total(each.operations(), 0, 10**6))
        assert max(at for at, _ in reader.windows.cells) < most
        counts.append((total.operations_count, total.failures_count, total.errors, total.bins, total.percentile_ns(99)))
    assert counts[0] == counts[1]
    assert counts[0][0] == run.tally.total().operations_count


def test_a_run_is_read_on_while_it_is_written(tmp_path: Path) -> None:
    source = list(write_run(tmp_path / "source", Course(seconds=2.0)).rows())
    (tmp_path / "run" / "d1").mkdir(parents=True)
    file = rows.RowFile.create(tmp_path / "run" / "d1" / rows.FILE_NAME)
    reader = RunReader(tmp_path / "run", STARTED_NS)
    half = len(source) // 2

    def count() -> int:
        return reader.read(lambda each: each.total(each.operations(), 0, 10**6).operations_count)

    assert count() == 0
    file.write("".join(map(rows.as_line, source[:half])))
    assert (count(), count()) == (half, half)
    whole = (tmp_path / "run" / "d1" / rows.FILE_NAME).read_bytes()
    file.write("".join(map(rows.as_line, source[half:])))
    file.close()
    grown = (tmp_path / "run" / "d1" / rows.FILE_NAME).read_bytes()
    (tmp_path / "run" / "d1" / rows.FILE_NAME).write_bytes(grown[: len(whole) + 9])  # a frame that is being written
    assert count() == half
    (tmp_path / "run" / "d1" / rows.FILE_NAME).write_bytes(grown)
    assert count() == len(source)


def test_what_makes_two_runs_not_comparable_is_named(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", Course(seconds=5.0))
    second = write_run(tmp_path / "b", Course(seconds=5.0, fault=(1.0, 2.0), lost_at=3.0), workers=32)
    judged = comparable.judge(first, second)
    assert judged.obstacles == ()
    assert "main.main.workers: 16 in A, 32 in B" in judged.differences
    assert any("slow-disk" in each for each in judged.differences) and any(
        "d2 lost" in each for each in judged.differences
    )
    second.info.workload["main.main.write.sizes"] = "c(1)MB"
    assert comparable.judge(first, second).obstacles == ("main.main.write.sizes: c(64)KB in A, c(1)MB in B",)
    second.tally.figures.clear()
    assert "they have no operation in common" in comparable.judge(first, second).obstacles


def test_what_happened_is_listed_in_the_order_of_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", Course(seconds=1.0))
    later, earlier = (Mark("fault", text, STARTED_NS + after_s * NS) for text, after_s in (("b", 2), ("a", 1)))

    class Runs:
        def folder(self, key: str) -> Path:
            return run.folder

        def info(self, key: str) -> RunInfo:
            return dataclasses.replace(run.info, marks=(later, earlier))

    app = FastAPI()
    add_results(app, Runs())

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get("/api/runs/one/windows")

    marks = asyncio.run(ask()).json()["marks"]
    assert [(mark["text"], mark["from_s"]) for mark in marks] == [("a", 1.0), ("b", 2.0)]
