"""Rows and figures: what is written can be read, also when cut; figures merge into those of the whole."""

import asyncio
import csv
import io
import json
import math
import random
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results import export, folder, rows
from storage_cluster.bench.results.figures import PERCENTILES, Key, Tally
from storage_cluster.bench.results.folder import Run, RunInfo, StageInfo, WorkInfo
from storage_cluster.bench.results.recorder import Recorder
from storage_cluster.bench.results.report_text import as_text
from storage_cluster.bench.results.rows import Row, RowFile, as_line, from_line, read_rows

MS = 1_000_000
START = 1_700_000_000_123_456_789


def row(idx: int = 0, **changes) -> Row:
    made = Row(
        idx=idx, thread=1, op="PUT", client_id="local", bytes=1000, endpoint="127.0.0.1:80", file=f"c/o{idx}", error="",
        start_ns=START, first_byte_ns=4 * MS, duration_ns=5 * MS, stage="main", work="main", operation="write",
        status=201, attempt=1, final=True, measured=True, waited_ns=0, connect_ns=-1, transaction_id=f"tx{idx}",
        local_port=4000,
    )  # fmt: skip
    return made._replace(**changes)


def info(**changes) -> RunInfo:
    stages = (
        StageInfo("main", (WorkInfo("main", 4, 0.0),), START, START + 1),
        StageInfo("delay", (WorkInfo("d", 1, 0),)),
    )
    return RunInfo(**({"name": "n", "source": "toml", "command": "x", "started_ns": START, "stages": stages} | changes))


def tally(found: list[Row]) -> Tally:
    made = Tally()
    for each in found:
        made.add(each)
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"first_byte_ns": -1, "error": "connect_timeout", "status": 0, "transaction_id": "", "local_port": 0},
        {"attempt": 3, "final": False, "measured": False, "waited_ns": 7, "connect_ns": 12},
        {"start_ns": 1_700_000_000_000_000_000, "file": "c/ü x"},
    ],
)
def test_a_row_survives_its_text(changes: dict) -> None:
    made = row(5, **changes)
    assert from_line(as_line(made)) == made
    assert as_line(made).count("\t") == rows.HEADER.count("\t")


def test_what_would_break_a_line_is_replaced() -> None:
    assert from_line(as_line(row(file="c/a\tb\n"))).file == "c/a?b?"


def test_columns_are_warps_then_ours() -> None:
    warps = [
        "idx",
        "thread",
        "op",
        "client_id",
        "n_objects",
        "bytes",
        "endpoint",
        "file",
        "error",
        "start",
        "first_byte",
        "end",
        "duration_ns",
    ]
    assert rows.HEADER.split()[: len(warps)] == warps
    cells = as_line(row()).split("\t")
    assert (cells[9], cells[11]) == ("2023-11-14T22:13:20.123456789Z", "2023-11-14T22:13:20.128456789Z")


def test_a_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / rows.FILE_NAME
    file = RowFile.create(path)
    for start in (0, 10, 20):
        file.write("".join(as_line(row(n)) for n in range(start, start + 10)))
        if start == 10:
            whole_len = file.written_len
    file.close()
    assert [each.idx for each in read_rows(path)] == list(range(30))
    content = path.read_bytes()
    for cut in (len(content) - 1, whole_len + 5, whole_len):
        path.write_bytes(content[:cut])
        found = [each.idx for each in read_rows(path)]
        assert found[:20] == list(range(20))
        assert found == list(range(len(found)))


def test_rows_of_a_run_before_there_was_a_column_request_are_read(tmp_path: Path) -> None:
    file = RowFile.create(tmp_path / "new")
    file.write(as_line(row(1)) + as_line(row(1, request=2)))
    file.close()
    text = zstandard.ZstdDecompressor().stream_reader((tmp_path / "new").read_bytes(), read_across_frames=True).read()
    old = b"\n".join(line.rpartition(b"\t")[0] for line in text.splitlines()) + b"\n"
    (tmp_path / "old").write_bytes(zstandard.compress(old))
    assert list(read_rows(tmp_path / "new")) == [row(1), row(1, request=2)]
    assert list(read_rows(tmp_path / "old")) == [row(1), row(1)]


def test_no_rows_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        list(read_rows(tmp_path / "none"))
    (tmp_path / "other").write_bytes(b"hello")
    with pytest.raises(RunError, match="holds no rows"):
        list(read_rows(tmp_path / "other"))
    with pytest.raises(RunError, match="cannot be read"):
        folder.load(tmp_path)
    (tmp_path / folder.INFO_NAME).write_text('{"figures": []}')
    with pytest.raises(RunError, match="not a run's"):
        folder.load(tmp_path)


def test_an_operation_is_all_its_attempts() -> None:
    found = [
        row(0),
        row(1, error="reset", final=False, status=0),
        row(1, attempt=2, waited_ns=20 * MS, duration_ns=10 * MS),
        row(2, error="status", status=500),
        row(3, measured=False),
    ]
    figures = tally(found).figures[Key("main", "main", "write")]
    assert (figures.operations_count, figures.failures_count, figures.retries_count) == (3, 1, 1)
    assert (figures.bytes, figures.outside_count, figures.errors) == (2000, 1, {"reset": 1, "status_500": 1})
    assert (figures.response.min_ns, figures.response.max_ns) == (5 * MS, 30 * MS)
    assert figures.processing.max_ns == 24 * MS
    assert max(figures.slowest).row.idx == 1
    assert figures.success_ratio == pytest.approx(2 / 3)
    assert (figures.first_start_ns, figures.last_end_ns) == (START - 20 * MS, START + 10 * MS)


@settings(max_examples=30)
@given(st.lists(st.integers(1000, 10**11), min_size=1, max_size=200))
def test_percentiles_are_by_nearest_rank_to_a_thousandth(values: list[int]) -> None:
    figures = tally([row(n, duration_ns=value) for n, value in enumerate(values)]).total()
    ordered = sorted(values)
    for percent in PERCENTILES:
        exact = ordered[max(math.ceil(percent * len(values) / 100 - 1e-9), 1) - 1]
        assert figures.response.percentile_ns(percent) == pytest.approx(exact, rel=0.001)
    assert figures.response.percentile_ns(100) == max(values)
    assert figures.response.mean_ns == pytest.approx(sum(values) / len(values))


def test_parts_merge_into_exactly_the_whole() -> None:
    rng = random.Random(3)
    found = [
        row(
            n, duration_ns=rng.randrange(1000, 10**10), error=rng.choice(["", "", "status"]),
            operation=rng.choice("ab"), start_ns=START + rng.randrange(10**9), final=rng.random() < 0.9,
        )
        for n in range(500)
    ]  # fmt: skip
    whole, merged = tally(found), Tally()
    for start in (0, 100, 250):
        merged.merge(tally(found[start : {0: 100, 100: 250, 250: 500}[start]]))
    assert merged.dump() == whole.dump()
    again = Tally.load(json.loads(json.dumps(whole.dump())))
    assert again.dump() == whole.dump()


def run_of(found: list[Row], tmp_path: Path, **changes) -> Run:
    return Run(info(**changes), tally(found), tmp_path)


def test_cosbench_csv_has_its_columns_and_units(tmp_path: Path) -> None:
    found = [row(n, duration_ns=(n + 1) * 10 * MS, start_ns=START) for n in range(10)]
    lines = list(csv.DictReader(io.StringIO(export.as_cosbench(run_of(found, tmp_path)))))
    assert list(lines[0]) == [
        "Stage", "Op-Name", "Op-Type", "Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "60%-ResTime",
        "80%-ResTime", "90%-ResTime", "95%-ResTime", "99%-ResTime", "100%-ResTime", "Throughput", "Bandwidth",
        "Succ-Ratio", "Status", "Detailed Status",
    ]  # fmt: skip
    assert lines[0] | {"90%-ResTime": ""} == {
        "Stage": "s1-main", "Op-Name": "write", "Op-Type": "write", "Op-Count": "10", "Byte-Count": "10000",
        "Avg-ResTime": "55.00", "Avg-ProcTime": "4.00", "60%-ResTime": "60.03", "80%-ResTime": "80.02",
        "90%-ResTime": "", "95%-ResTime": "100.00", "99%-ResTime": "100.00", "100%-ResTime": "100.00",
        "Throughput": "100.00", "Bandwidth": "100000.00", "Succ-Ratio": "100.00%", "Status": "completed",
        "Detailed Status": "completed",
    }  # fmt: skip
    assert (lines[1]["Stage"], lines[1]["Avg-ResTime"]) == ("s2-delay", "N/A")


def test_a_run_time_is_what_rates_are_per(tmp_path: Path) -> None:
    stages = (StageInfo("main", (WorkInfo("main", 4, 20.0),)),)
    lines = list(csv.DictReader(io.StringIO(export.as_cosbench(run_of([row(), row(1)], tmp_path, stages=stages)))))
    assert lines[0]["Throughput"] == "0.10"


def test_ssbench_report(tmp_path: Path) -> None:
    found = [row(n, stage="run", operation="create tiny", duration_ns=(n + 1) * 100 * MS) for n in range(3)]
    found += [row(9, stage="run", operation="read small", op="GET", error="status", transaction_id="tx9")]
    stages = (StageInfo("run", (WorkInfo("main", 4, 0.0),)),)
    text = export.as_ssbench(run_of(found, tmp_path, stages=stages))
    assert "Count:     4  (   1 error;    0 retries:  0.00%)  Average requests per second:  10.0" in text
    assert "Last-byte  latency:   0.100 -   0.300    0.200  (  0.082)    0.300  (all obj sizes)  tx2" in text
    assert "First-byte latency:   N/A   -   N/A      N/A    (  N/A  )    N/A" in text
    assert [line for line in text.splitlines() if line.isupper()] == ["TOTAL", "CREATE", "READ"]
    assert "(   small objs)  tx9" in text


def test_the_report_names_the_slowest_and_the_lost(tmp_path: Path) -> None:
    found = [row(n, duration_ns=(n + 1) * MS) for n in range(20)] + [row(99, error="reset", status=0)]
    found += [row(100, measured=False), row(101, measured=False)]
    text = as_text(run_of(found, tmp_path, state="failed", note="too many", lost_drivers=("d2",)))
    assert "n: failed (too many)" in text
    assert "21 operations in" in text and "2 more began before or ended after the time measured" in text
    assert "attempts that failed: reset 1" in text
    assert "LOST: d2" in text
    assert text.index("tx19") < text.index("tx18") < text.index("tx17")


def test_an_attempt_that_got_a_404_shows_404(tmp_path: Path) -> None:
    text = as_text(run_of([row(1, error="status", status=404)], tmp_path))
    assert "404, attempt" in text
    assert " status, attempt" not in text


def test_a_run_that_was_killed_is_loaded_from_its_rows(tmp_path: Path) -> None:
    file = RowFile.create(tmp_path / rows.FILE_NAME)
    file.write("".join(as_line(row(n)) for n in range(7)))
    (tmp_path / "d2").mkdir()
    other = RowFile.create(tmp_path / "d2" / rows.FILE_NAME)
    other.write(as_line(row(1, client_id="d2")))
    for each in (file, other):
        each.close()
    folder.save(tmp_path, info(), Tally())
    run = folder.load(tmp_path)
    assert run.tally.total().operations_count == 8
    assert "n: running" in as_text(run)
    folder.save(tmp_path, info(state="done"), run.tally)
    assert folder.load(tmp_path).tally.dump() == run.tally.dump()
    assert json.loads(export.as_json(run))["operations"][0]["response_ns"]["99.9"] == 5 * MS


def test_a_failed_operation_has_no_latency_of_0(tmp_path: Path) -> None:
    never = row(1, error="cancelled", status=0, first_byte_ns=-1, duration_ns=-1, waited_ns=9 * MS, transaction_id="")
    refused = row(2, error="connect_refused", status=0, first_byte_ns=-1, duration_ns=MS, bytes=0)
    assert from_line(as_line(never)) == never
    cells = as_line(never).split("\t")
    assert (cells[10], cells[11], cells[12]) == ("", "", "")
    assert (never.latency_ns, refused.latency_ns, row().latency_ns) == (None, None, 5 * MS)

    run = run_of([never, refused], tmp_path)
    found = json.loads(export.as_json(run))
    operation = found["operations"][0]
    assert (operation["response_mean_ns"], set(operation["response_ns"].values())) == (None, {None})
    assert operation["errors"] == {"cancelled": 1, "connect_refused": 1}
    assert [(each["response_ns"], each["failed_after_ns"]) for each in found["slowest"]] == [
        (None, 9 * MS),
        (None, MS),
    ]
    text = as_text(run)
    (line,) = (line for line in text.splitlines() if line.startswith("  write"))
    assert line.split().count("–") == 2 + len(PERCENTILES)
    assert "failed: connect_refused" in text

    file = RowFile.create(tmp_path / rows.FILE_NAME)
    file.write(as_line(never) + as_line(refused) + as_line(row(3)))
    file.close()
    export.write_csv([run], tmp_path / "rows.csv")
    written = csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text("utf-8")))
    lines = {line["idx"]: line for line in written}
    assert [lines[idx]["response_ns"] for idx in "123"] == ["", "", str(5 * MS)]
    assert [lines[idx]["duration_ns"] for idx in "123"] == ["", str(MS), str(5 * MS)]
    assert lines["1"]["first_byte_ns"] == ""


def test_a_failure_is_not_in_the_mean_of_the_timeline(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.add(row(1))
    recorder.add(row(2, error="read_timeout", status=0, duration_ns=60 * MS))
    recorder.close()
    (line,) = csv.DictReader(io.StringIO((tmp_path / "timeline.csv").read_text("utf-8")))
    assert (line["operations"], line["failures"], line["response_sum_ns"]) == ("2", "1", str(5 * MS))


def test_no_row_is_lost_when_a_stage_ends_while_rows_wait_to_be_written(tmp_path: Path) -> None:
    async def write() -> None:
        recorder, written = Recorder(tmp_path), threading.Event()
        recorder._thread.submit(written.wait)  # as on a busy machine: the thread has not come to them yet
        recorder.add(row(1))
        flushing = asyncio.create_task(recorder.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.gather(flushing, return_exceptions=True)
        written.set()
        recorder.add(row(2))
        recorder.close()

    asyncio.run(write())
    assert [each.idx for each in read_rows(tmp_path / rows.FILE_NAME)] == [1, 2]


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(folder.time, "strftime", lambda _: "20260102T030405")
    made = [folder.make_unused(tmp_path / "runs") for _ in range(3)]
    assert [path.name for path in made] == ["20260102T030405", "20260102T030405-2", "20260102T030405-3"]
    for path in made:
        folder.create(path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="choose another folder"):
        folder.make_unused(tmp_path / "file")
