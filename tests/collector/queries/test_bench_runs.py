"""Runs of the load generator as the viewer reads them: the folders are written by the generator's own code."""

from pathlib import Path

import polars as pl
import pytest

from collector.queries import (
    bench_runs,
    find_runs,
    load_steps,
    open_trace,
    read_run,
    run_overlaps,
    slowest_operations,
)
from collector.queries.bench_runs import operations_of, runs_recorded_with
from collector.trace.reading import Trace
from storage_cluster.bench.results import rows
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tests.helpers.bench_folders import STARTED_NS, write_run, write_warp_run
from tests.helpers.stored_tables import write_table

IDS = [f"tx{at}" for at in range(20)]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for concurrency in (1, 8):
        write_run(tmp_path / f"ssd-1B-{concurrency:04d}", concurrency, IDS)
    write_run(tmp_path / "killed", 4, IDS, state="running")
    return tmp_path


def test_a_folder_of_runs_is_a_sweep(sweep: Path) -> None:
    assert [each.name for each in find_runs([sweep])] == ["killed", "ssd-1B-0001", "ssd-1B-0008"]
    assert next(iter(find_runs([sweep / "ssd-1B-0008", sweep]))).name == "ssd-1B-0008"
    assert find_runs([sweep / "nothing"]) == ()


def test_a_run_is_described_by_its_figures(sweep: Path) -> None:
    run = read_run(sweep / "ssd-1B-0008")
    assert run is not None
    assert (run.series, run.concurrency, run.stage) == ("ssd-1B", 8, "put")
    assert (run.operations_count, run.failures_count, run.retries_count, run.bytes) == (20, 0, 1, 20)
    assert run.throughput_per_s == 20.0
    assert run.percentiles_ns[0] == pytest.approx(100_000_000, abs=10_000_000)
    assert run.errors == (("status_503", 1),)
    assert [(use.host, use.cpu_percent, use.disk_percent) for use in run.use] == [
        ("proxy", 50.0, None),
        ("storage", None, 80.0),
    ]


def test_a_run_that_did_not_end_or_is_none_has_no_figures(sweep: Path) -> None:
    assert read_run(sweep / "killed") is None
    assert read_run(sweep) is None
    (sweep / "ssd-1B-0001" / "run.json").write_text('{"state": "done", "figures": [{}]}')
    assert read_run(sweep / "ssd-1B-0001") is None


def test_operations_come_failed_first_then_slowest(sweep: Path) -> None:
    first, second, *_ = slowest_operations(sweep / "ssd-1B-0008", 5)
    assert (first.error, first.status, first.transaction_id, first.start_ns) == ("status", 503, "tx0", STARTED_NS)
    assert (second.error, second.transaction_id, second.response_ns) == ("", "tx19", 200_000_000)


def test_what_never_began_has_no_response_time(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 8, IDS)
    file = tmp_path / "run" / rows.FILE_NAME
    lost = next(rows.read_rows(file))._replace(error="cancelled", status=0, first_byte_ns=-1, duration_ns=-1)
    file.unlink()
    written = rows.RowFile.create(file)
    written.write(rows.as_line(lost))
    written.close()
    (operation,) = slowest_operations(tmp_path / "run", 5)
    assert (operation.error, operation.response_ns) == ("cancelled", None)


def test_runs_of_a_trace_are_those_its_command_wrote_and_those_of_its_name(tmp_path: Path) -> None:
    trace = tmp_path / "load"
    trace.mkdir()
    write_run(tmp_path / "written", 8, IDS)
    write_run(tmp_path / "load.bench", 8, IDS)
    write_run(tmp_path / "other", 8, IDS)
    argv = ("tracer", "bench", "run", "put", "-o", str(tmp_path / "written"))
    assert [each.name for each in runs_recorded_with(trace, argv)] == ["written", "load.bench"]
    assert [each.name for each in runs_recorded_with(trace, ("swift", "upload"))] == ["load.bench"]
    # A trace that was moved together with its run: the run is found by its name beside it.
    assert [each.name for each in runs_recorded_with(trace, ("-o", "/elsewhere/written"))] == ["written", "load.bench"]


def test_a_run_overlaps_the_time_it_went_on(sweep: Path) -> None:
    run = read_run(sweep / "ssd-1B-0008")
    assert run is not None
    assert run_overlaps(run, STARTED_NS - 1, STARTED_NS + 1)
    assert not run_overlaps(run, STARTED_NS + 2_000_000_000, STARTED_NS + 3_000_000_000)


def test_an_imported_run_records_no_attempts_and_is_read_as_any_other(tmp_path: Path) -> None:
    folder = write_warp_run(tmp_path / "warp", STARTED_NS, [(0, 10), (5, 1_000_000)])
    run = read_run(folder)
    assert run is not None
    assert (run.stage, run.concurrency, run.operations_count, run.failures_count) == ("mixed", 3, 3, 1)
    assert (run.retries_count, run.records_attempts, run.errors) == (None, False, (("other", 1),))
    first, second, *_ = slowest_operations(folder, 5)
    assert (first.error, first.number, first.status) == ("other", 2, -1)
    assert (second.number, second.response_ns) == (1, 999_995)


def test_rows_are_read_in_blocks_of_any_size(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = sweep / "ssd-1B-0008"
    slowest, (whole,) = slowest_operations(folder, 7), operations_of(folder)
    monkeypatch.setattr(bench_runs, "_BLOCK_BYTES", 300)
    parts = list(operations_of(folder))
    assert len(parts) > 5
    assert [row for part in parts for row in part.rows()] == whole.rows()
    assert slowest_operations(folder, 7) == slowest


def test_the_load_of_an_imported_run_is_placed_by_the_clock_of_its_client(tmp_path: Path) -> None:
    ahead_ns = 5_000_000
    url = str(tmp_path / "trace")
    write_synthetic_trace(tmp_path / "trace", Recipe(1, target="/v1/a/c/o"))
    clocks = pl.DataFrame(Trace(url).read("clocks"))
    is_client = pl.col("host") == "client"
    offset = pl.when(is_client).then(pl.lit(ahead_ns, pl.Int64)).otherwise("offset_ns").alias("offset_ns")
    write_table(url, "clocks", clocks.with_columns(offset).to_arrow())
    trace = open_trace(url)
    (times,) = trace.load.table.select("start_ns", "end_ns").rows()
    folder = write_warp_run(tmp_path / "warp", trace.start_ns + ahead_ns, [times])
    assert trace.join_run(folder).hosts == ("client",)
    (mark,) = load_steps(trace, [folder])
    assert (mark.from_ns, mark.to_ns, mark.text) == (*times, "mixed, 2 at once")
    (folder / "requests.csv.zst").write_bytes(b"damaged")
    (folder / "run.json").touch()
    (mark,) = load_steps(trace, [folder])
    assert mark.from_ns == times[0] + ahead_ns, "by the reference clock"
    elsewhere = write_warp_run(tmp_path / "elsewhere", trace.start_ns - 2 * bench_runs.CLOCKS_APART_NS, [times])
    assert load_steps(trace, [elsewhere]) == ()
