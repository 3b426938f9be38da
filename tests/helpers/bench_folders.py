"""Folders of the load generator's runs, as `tracer bench run` writes them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import RunInfo, StageInfo, WorkInfo, save
from storage_cluster.bench.results.rows import Row, RowFile, as_line
from storage_cluster.bench.results.warp_run import import_run

STARTED_NS = 1_790_000_000_000_000_000


def write_run(folder: Path, concurrency: int, transaction_ids: Sequence[str], state: str = "done") -> None:
    """A run of uploads that took 10 ms, 20 ms, … over one second; the first attempt of the first failed."""
    folder.mkdir(parents=True)
    ended = STARTED_NS + 1_000_000_000
    stage = StageInfo("put", (WorkInfo("put", concurrency, 1.0),), STARTED_NS, ended)
    info = RunInfo("put", "command", "bench run put", STARTED_NS, (stage,), state=state, ended_ns=ended)
    rows = [_row(at, transaction_id) for at, transaction_id in enumerate(transaction_ids)]
    failed = rows[0]._replace(status=503, error="status", final=False)
    rows = [failed, rows[0]._replace(attempt=2), *rows[1:]]
    tally = Tally()
    for row in rows:
        tally.add(row)
    file = RowFile.create(folder / "requests.csv.zst")
    for row in rows:
        file.write(as_line(row))
    file.close()
    save(folder, info, tally)
    samples = [f"proxy,{STARTED_NS + 500_000_000 * at},cpu_percent,{25.0 * at}" for at in (1, 2, 3)]
    samples.append(f"storage,{ended},disk_busy_percent.d1,80")
    (folder / "samples.csv").write_text("host,host_ns,metric,value\n" + "\n".join(samples) + "\n")


def write_warp_run(folder: Path, start_ns: int, times_ns: Sequence[tuple[int, int]]) -> Path:
    """An imported run of warp: uploads of `c/o` that lasted as given since `start_ns`, and a download that failed."""
    head = "idx\tthread\top\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns"
    lines = [
        f"{at}\t{at}\tPUT\t1\t1\thttp://proxy:8080\ta/c/o\t\t{_time(start_ns + begin)}\t\t{_time(start_ns + end)}\t"
        f"{end - begin}"
        for at, (begin, end) in enumerate(times_ns)
    ]
    begin, end = (_time(start_ns + at) for at in times_ns[0])
    lines.append(f"9\t9\tGET\t1\t1\thttp://proxy:8080\tgone\tThe key does not exist.\t{begin}\t\t{end}\t1000000")
    file = folder.with_name(f"{folder.name}.csv")
    file.write_text("\n".join([head, *lines, "# warp put --concurrent=3", ""]), "utf-8")
    import_run(file, folder, "tracer bench import")
    return folder


def _time(time_ns: int) -> str:
    seconds = datetime.fromtimestamp(time_ns // 10**9, tz=UTC)
    return f"{seconds:%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09d}Z"


def _row(at: int, transaction_id: str) -> Row:
    return Row(
        idx=at, thread=0, op="PUT", client_id="local", bytes=1, endpoint="10.77.0.20:8080", file=f"c/o{at}", error="",
        start_ns=STARTED_NS + at * 1_000_000, first_byte_ns=5_000_000, duration_ns=10_000_000 * (at + 1), stage="put",
        work="put", operation="put", status=201, attempt=1, final=True, measured=True, waited_ns=0, connect_ns=-1,
        transaction_id=transaction_id, local_port=40_000 + at,
    )  # fmt: skip
