"""Files of warp: all its versions are read, what is damaged or too much is said, and no secret is kept."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from click.testing import CliRunner
from fastapi import FastAPI
from fastapi.testclient import TestClient

from storage_cluster.bench.commands import command
from storage_cluster.bench.distributed.results_api import add_results
from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results import folder as folders
from storage_cluster.bench.results import warp, warp_run
from storage_cluster.bench.results.compare import compare
from storage_cluster.bench.results.export import as_cosbench, as_json, as_ssbench
from storage_cluster.bench.results.report_text import as_text
from storage_cluster.bench.results.rows import STATUS_UNKNOWN, nanoseconds_of_rfc3339
from storage_cluster.bench.results.warp_run import import_run

SAMPLE = Path(__file__).parent / "warp_files" / "warp-mixed.csv.zst"
"""480 operations of a MinIO by minio-go, in warp's format."""
FIRST = "idx\tthread\top\tn_objects\tbytes\tfile\terror\tstart\tfirst_byte\tend\tduration_ns"
MIDDLE = "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns"
LATER = (
    "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tlast_byte\tend\tduration_ns"
    "\tcat"
)
VALUES = {
    "idx": "0", "thread": "3", "op": "GET", "client_id": "Xy3K", "n_objects": "1", "bytes": "4000",
    "endpoint": "http://10.0.0.1:9000", "file": "a/b.rnd", "error": "", "start": "2026-11-28T11:00:00.5+01:00",
    "first_byte": "2026-11-28T11:00:00.507+01:00", "last_byte": "2026-11-28T11:00:00.509+01:00",
    "end": "2026-11-28T11:00:00.51+01:00", "duration_ns": "10000000", "cat": "0",
}  # fmt: skip
START_NS = 1_795_860_000_500_000_000


def _line(head: str, **changes: str) -> str:
    return "\t".join((VALUES | changes)[name] for name in head.split("\t"))


def _file(folder: Path, lines: Iterable[str], name: str = "warp-get.csv.zst") -> Path:
    path = folder / name
    path.write_bytes(zstandard.ZstdCompressor().compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def _read(path: Path) -> tuple[list[warp.Operation], warp.WarpFile]:
    file = warp.WarpFile(path)
    return list(file.operations()), file


@pytest.mark.parametrize("head", [FIRST, MIDDLE, LATER], ids=["first", "middle", "later"])
def test_columns_are_found_by_their_names_in_each_version(tmp_path: Path, head: str) -> None:
    (made,), file = _read(_file(tmp_path, [head, _line(head)]))
    assert (made.op, made.thread, made.file, made.bytes) == ("GET", 3, "a/b.rnd", 4000)
    assert (made.start_ns, made.first_byte_ns, made.duration_ns) == (START_NS, 7_000_000, 10_000_000)
    assert made.endpoint == ("http://10.0.0.1:9000" if "endpoint" in head else "")
    assert (file.unread_count, file.cut) == (0, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-28T10:00:00.000000001Z", START_NS - 500_000_000 + 1),
        ("2026-11-28T12:30:00.5+02:30", START_NS),
        ("2026-11-28T10:00:00.5000000000Z", None),
        ("2026-11-28T10:00:00.5", None),
        ("1969-12-31T23:59:59Z", None),
        ("2262-01-01T00:00:00Z", None),
        ("2026-13-28T10:00:00Z", None),
    ],
)
def test_times_have_a_zone_and_up_to_nine_digits(text: str, expected: int | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"\d"):
            nanoseconds_of_rfc3339(text)
    else:
        assert nanoseconds_of_rfc3339(text) == expected


def test_a_quoted_error_may_hold_quotes_tabs_and_line_breaks(tmp_path: Path) -> None:
    error = '"Get ""http://x/b"": dial tcp:\tno\n route"'
    lines = [MIDDLE, _line(MIDDLE, error=error), _line(MIDDLE, file="after")]
    (first, second), _ = _read(_file(tmp_path, lines))
    assert first.error == 'Get "http://x/b": dial tcp:\tno\n route'
    assert second.file == "after"


def test_a_quote_that_is_never_closed_costs_its_own_line_only(tmp_path: Path) -> None:
    lines = [MIDDLE, _line(MIDDLE, error='"open'), *(_line(MIDDLE, file=str(at)) for at in range(3))]
    made, file = _read(_file(tmp_path, lines))
    assert [each.file for each in made] == ["0", "1", "2"]
    assert file.unread_count == 1


@pytest.mark.parametrize(
    "changes",
    [{"start": "yesterday"}, {"bytes": "-1"}, {"thread": "4294967296"}, {"duration_ns": "-1"}, {"op": "\x1b[2J"}],
    ids=["time", "bytes", "thread", "duration", "operation"],
)  # fmt: skip
def test_lines_that_are_no_operation_are_counted(tmp_path: Path, changes: dict[str, str]) -> None:
    made, file = _read(_file(tmp_path, [MIDDLE, _line(MIDDLE, **changes), _line(MIDDLE)]))
    assert (len(made), file.unread_count) == (1, 1)


def test_a_file_that_is_cut_off_gives_what_comes_before(tmp_path: Path) -> None:
    lines = [
        MIDDLE,
        *(_line(MIDDLE, file=hashlib.sha256(bytes([at % 256, at // 256])).hexdigest()) for at in range(9_000)),
    ]
    path = _file(tmp_path, lines)
    whole = path.read_bytes()
    counts = []
    for length in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        made, file = _read(path)
        assert file.cut == "it is cut off"
        counts.append(len(made))
    assert 1_000 < counts[0] < 6_000 < counts[1] < 9_000
    run = import_run(path, tmp_path / "run", "import")
    assert "NOT ALL OF IT: it is cut off; what comes before is here" in as_text(run)
    path.write_bytes(whole[:100])
    with pytest.raises(RunError, match="shows no operation: it is cut off"):
        _read(path)


def test_damaged_and_plain_files_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    lines = [MIDDLE, *(_line(MIDDLE, file=str(at)) for at in range(4))]
    plain = tmp_path / "warp.csv"
    plain.write_text("\n".join(lines), "utf-8")  # the last line has no end, so it may be a part of one
    made, file = _read(plain)
    assert ([each.file for each in made], file.cut) == (["0", "1", "2"], "its last line is not whole")
    path = _file(tmp_path, lines)
    path.write_bytes(path.read_bytes() + b"(\xb5/\xfd damaged")
    made, file = _read(path)
    assert (len(made), file.cut) == (4, "it is damaged")


@pytest.mark.parametrize("text", ['{"v": 1}', '{\n "v": 1\n}\n', "name,age\n1,2\n", "", "\n"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "warp-get.json.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    with pytest.raises(RunError, match="--full"):
        _read(path)
    other = tmp_path / "warp.csv.zst"
    other.write_bytes(path.read_bytes())
    with pytest.raises(RunError, match="--full" if text.startswith("{") else "no file of warp's operations"):
        _read(other)


def test_rows_of_our_own_runs_are_refused(tmp_path: Path) -> None:
    import_run(SAMPLE, tmp_path / "run", "import")
    with pytest.raises(RunError, match="is of a run of `tracer bench` already"):
        _read(tmp_path / "run" / "requests.csv.zst")


def test_the_controllers_page_shows_what_is_not_recorded_as_such(tmp_path: Path) -> None:
    run = import_run(SAMPLE, tmp_path / "run", "import")
    app = FastAPI()
    add_results(app, SimpleNamespace(folder=lambda key: run.folder, info=lambda key: run.info))
    answer = TestClient(app).get("/api/runs/run/slowest?from_s=0&to_s=9&stage=&operation=")
    shown = answer.json()["requests"]
    assert len(shown) == 20
    assert {(each["status"], each["local_port"], each["transaction_id"]) for each in shown} == {(None, None, "")}


def test_bounds_hold_against_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.csv.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress((MIDDLE + "\n").encode() + bytes(64 << 20)))
    made, file = _read(path)
    assert (made, file.cut) == ([], "it has a line of more than 65,536 characters")
    monkeypatch.setattr(warp, "OPERATIONS_MAX", 3)
    made, file = _read(_file(tmp_path, [MIDDLE, *[_line(MIDDLE)] * 5]))
    assert (len(made), file.cut) == (3, "it has more than 3 operations")
    kinds = [_line(MIDDLE, op=f"K{at}") for at in range(warp.KINDS_MAX + 2)]
    monkeypatch.undo()
    made, file = _read(_file(tmp_path, [MIDDLE, *kinds, _line(MIDDLE, op="K0")]))
    assert (len(made), file.unread_count) == (warp.KINDS_MAX + 1, 2)


def test_a_run_has_warps_figures_and_invents_none(tmp_path: Path) -> None:
    run = import_run(SAMPLE, tmp_path / "run", "tracer bench import FILE")
    total = run.tally.total()
    assert (total.operations_count, total.failures_count, total.errors) == (480, 8, {"other": 8})
    assert [(stage.name, stage.works[0].workers) for stage in run.info.stages] == [("mixed", 8)]
    rows = list(run.rows())
    assert {(row.status, row.transaction_id, row.local_port) for row in rows} == {(STATUS_UNKNOWN, "", 0)}
    assert sum(row.objects_count for row in rows if row.op == "DELETE") > sum(row.op == "DELETE" for row in rows)
    puts = next(figures for key, figures in run.tally.figures.items() if key.operation == "PUT")
    assert (puts.processing.count, puts.response.count) == (0, puts.operations_count)
    text = as_text(run)
    assert "retries not recorded" in text
    assert "not recorded by warp: status of answers" in text
    assert "attempt 1" not in text
    assert "port 0" not in text
    assert "retries: N/A" in as_ssbench(run)
    assert "PUT,write" in as_cosbench(run)
    summary = json.loads(as_json(run))
    assert summary["retries_count"] is None
    assert {(each["status"], each["attempt"], each["local_port"]) for each in summary["slowest"]} == {
        (None, None, None)
    }
    assert folders.load(tmp_path / "run").tally.total().operations_count == 480


def test_kinds_at_the_same_time_are_one_stage_and_others_are_apart(tmp_path: Path) -> None:
    def at(second: int, op: str) -> str:
        start, end = f"2026-11-28T10:00:{second:02d}Z", f"2026-11-28T10:00:{second + 2:02d}Z"
        return _line(FIRST, op=op, start=start, end=end, first_byte="", duration_ns="2000000000")

    lines = [FIRST, at(0, "PUT"), at(10, "GET"), at(11, "STAT"), at(20, "DELETE"), "# warp get --duration=5s"]
    run = import_run(_file(tmp_path, lines), tmp_path / "run", "import")
    assert [stage.name for stage in run.info.stages] == ["put", "mixed", "delete"]
    assert {key.operation: key.stage for key in run.tally.figures} == {
        "PUT": "put", "GET": "mixed", "STAT": "mixed", "DELETE": "delete",
    }  # fmt: skip


def test_no_secret_of_the_command_line_or_an_error_is_kept(tmp_path: Path) -> None:
    secrets = ("AKIDEXAMPLE", "wJalrXUtnFEMI", "tok3n", "c0ffee42")
    error = f'"Get ""http://10.0.0.1:9000/b/k?X-Amz-Signature={secrets[3]}&X-Amz-Credential=x"": EOF"'
    line = f"# warp get --host=10.0.0.1:9000 --access-key={secrets[0]} --secret-key={secrets[1]} --obj.size=1MiB"
    lines = [MIDDLE, _line(MIDDLE), _line(MIDDLE, error=error), line + f" --influxdb=http://u:{secrets[2]}@h/b"]
    run = import_run(_file(tmp_path, lines), tmp_path / "run", "import")
    written = (tmp_path / "run" / "run.json").read_text() + "".join(map(str, run.rows()))
    assert [secret for secret in secrets if secret in written] == []
    assert run.info.command == "warp get --host=10.0.0.1:9000 --obj.size=1MiB"
    assert run.info.workload == {"get.warp.host": "10.0.0.1:9000", "get.warp.sizes": "1MiB"}
    assert run.tally.total().errors == {"reset": 1}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('Put "http://h:1/b/k": dial tcp 10.0.0.1:1: connect: connection refused', "connect_refused"),
        ("dial tcp 10.0.0.1:9000: i/o timeout", "connect_timeout"),
        ("dial tcp: lookup minio: no such host", "connect_failed"),
        ("read tcp 10.0.0.9:4->10.0.0.1:9000: read: connection reset by peer", "reset"),
        ("unexpected EOF", "short_body"),
        ("unexpected download size. want:10, got:4", "short_body"),
        ("context deadline exceeded", "read_timeout"),
        ("The specified key does not exist.", "other"),
        ("Resource requested is unreadable, please reduce your request rate", "other"),
    ],
)
def test_messages_of_errors_become_kinds(tmp_path: Path, message: str, kind: str) -> None:
    run = import_run(_file(tmp_path, [MIDDLE, _line(MIDDLE, error=f'"{message.replace(chr(34), chr(34) * 2)}"')]),
                     tmp_path / "run", "import")  # fmt: skip
    assert run.tally.total().errors == {kind: 1}
    assert message[:20] in as_text(run)


def test_a_clock_that_was_set_is_said(tmp_path: Path) -> None:
    lines = [MIDDLE, _line(MIDDLE, end="2026-11-28T11:00:05+01:00")]
    run = import_run(_file(tmp_path, lines), tmp_path / "run", "import")
    assert "the clock of warp's host was set during 1 of its operations" in as_text(run)
    assert run.tally.total().response.max_ns == 10_000_000


def test_two_runs_of_warp_can_be_compared(tmp_path: Path) -> None:
    runs = [import_run(SAMPLE, tmp_path / name, "import") for name in ("a", "b")]
    found = compare(*runs)
    assert {each.key.operation for each in found} == {"PUT", "GET", "STAT", "LIST", "DELETE"}
    assert {verdict.verdict for each in found for verdict in each.differences} == {"no difference seen"}


def test_the_command_makes_a_folder_of_the_files_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["import", str(SAMPLE)])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("run: warp-mixed\n")
    assert CliRunner().invoke(command, ["report", "warp-mixed"]).output.startswith("warp mixed: done\n")
    again = CliRunner().invoke(command, ["import", str(SAMPLE)])
    assert "is not empty" in str(again.exception)


def test_progress_is_notified_of_both_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp_run, "_WATCHED", 200)
    seen: list[tuple[str, int]] = []
    import_run(SAMPLE, tmp_path / "run", "import", lambda doing, count: seen.append((doing, count)))
    assert seen == [(doing, count) for doing in ("read", "written") for count in (0, 200, 400)]


def test_what_is_kept_does_not_grow_with_the_operations(tmp_path: Path) -> None:
    lines = (_line(MIDDLE, error=f"no {at}", client_id=f"c{at}") for at in range(3_000))
    run = import_run(_file(tmp_path, [MIDDLE, *lines]), tmp_path / "run", "import")
    assert len(run.info.drivers) == 1_000
    assert len(run.info.notes) < 10
    assert dataclasses.replace(run.info, drivers=()).source == "warp"
    assert time.gmtime(run.info.started_ns // 10**9).tm_year == 2026
