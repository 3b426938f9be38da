"""Reads runs of a load generator beside a trace: throughput, failures, latency, and usage of the hosts.

The input are folders that `tracer bench run` and `tracer bench import` write (`run.json`, `requests.csv.zst`,
`samples.csv`); a folder of such folders is a sweep. Rows are read some at a time: memory grows with what is kept of
them, not with the file. A run has stages; preparation and cleanup are stages, too, so the stage with the most
operations represents the run. Its concurrency is the number of its workers.

Operations fail, attempts are retried; an operation lasts from when it was due to the end of its last attempt. The usage
of the hosts is the mean of the samples within the stage. A run that was killed has no figures: it is mentioned, but not
plotted.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
import zstandard
from msgspec import Struct

INFO_NAME, ROWS_NAME, SAMPLES_NAME = "run.json", "requests.csv.zst", "samples.csv"
PERCENTILES = (50.0, 90.0, 99.0)
NS_PER_S = 10**9
_CONCURRENCY = re.compile(r"[-_]?c?0*([0-9]+)$")
_COLUMNS = (
    *("idx", "op", "endpoint", "file", "error", "start", "duration_ns", "stage", "status", "attempt", "final"),
    *("measured", "waited_ns", "transaction_id"),
)
_NUMBERS = ("idx", "duration_ns", "status", "waited_ns", "attempt")
CLOCKS_APART_NS = 24 * 3600 * NS_PER_S
"""Clocks of hosts are taken to be at most so far apart, where only a search would show more."""
_BLOCK_BYTES = 16 << 20
WITHOUT_ATTEMPTS = frozenset(("warp",))
"""Sources of runs that record no retries, answers or ids of requests."""


class HostUse(Struct, frozen=True):
    """How busy a host was on average; None where it was not measured."""

    host: str
    cpu_percent: float | None  # of one core
    disk_percent: float | None  # of the time its busiest disk was
    sent_bytes_per_s: float | None
    received_bytes_per_s: float | None


class BenchRun(Struct, frozen=True):
    """One run, represented by the stage with the most operations."""

    folder: Path
    name: str
    series: str  # runs that differ in their concurrency only have the same
    stage: str
    concurrency: int
    started_ns: int  # wall clock
    ended_ns: int
    elapsed_s: float
    operations_count: int
    failures_count: int
    retries_count: int | None  # None: not recorded
    bytes: int
    percentiles_ns: tuple[int, ...]  # as PERCENTILES, of operations that went well; empty if none did
    errors: tuple[tuple[str, int], ...]
    use: tuple[HostUse, ...]
    source: str  # what measured it, or the form of its workload

    @property
    def records_attempts(self) -> bool:
        """Whether it knows the answers of its requests, their ids and retries."""
        return self.source not in WITHOUT_ATTEMPTS

    @property
    def throughput_per_s(self) -> float:
        """Successful operations per second."""
        return (self.operations_count - self.failures_count) / self.elapsed_s


class Operation(Struct, frozen=True):
    """One attempt at an operation of a run."""

    number: int  # of the operation, in an imported run
    op: str
    file: str
    error: str
    start_ns: int  # wall clock
    response_ns: int | None  # until its end or failure; None: it never began
    status: int  # 0: no answer; -1: not recorded
    attempt: int
    transaction_id: str


class LoadStage(Struct, frozen=True):
    """A stage of a run that has ended, by the wall clock of the host that the run was on."""

    name: str
    concurrency: int
    started_ns: int  # wall clock
    ended_ns: int


def find_runs(folders: Iterable[Path]) -> tuple[Path, ...]:
    """The folders of runs among `folders` and directly inside them."""
    found: dict[Path, None] = {}
    for folder in folders:
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        for each in (folder, *inside):
            if (each / INFO_NAME).is_file():
                found[each.resolve()] = None
    return tuple(found)


def runs_recorded_with(trace: Path, argv: tuple[str, ...]) -> tuple[Path, ...]:
    """Folders that may hold runs recorded as this trace: the outputs named in its command, and those beside the
    trace."""
    outputs = [Path(argv[at + 1]) for at, word in enumerate(argv[:-1]) if word in ("-o", "--output")]
    names = [path for path in outputs if path.is_dir()] + [trace.parent / path.name for path in outputs]
    return find_runs([*names, *(each for each in _folders_beside(trace) if each != trace)])


def read_run(folder: Path) -> BenchRun | None:
    """The run in a folder; None if it has not ended or is no run."""
    file = folder / INFO_NAME
    try:
        return _read_run(folder, file.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError, zstandard.ZstdError):
        return None


def stages_of(folder: Path) -> tuple[LoadStage, ...]:
    """The stages of a run that have ended, in order; also of a run that was killed. None if it is not one."""
    try:
        stages = json.loads((folder / INFO_NAME).read_text("utf-8"))["stages"]
        return tuple(
            LoadStage(str(each["name"]), _workers(each), int(each["started_ns"]), int(each["ended_ns"]))
            for each in stages
            if each["ended_ns"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def slowest_operations(folder: Path, limit: int) -> tuple[Operation, ...]:
    """The attempts of a run that took longest or failed, failed ones first."""
    return _slowest(folder, limit, (folder / INFO_NAME).stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _slowest(folder: Path, limit: int, modified_ns: int) -> tuple[Operation, ...]:
    kept: pl.DataFrame | None = None
    for rows in _batches(folder):
        more = rows.filter(pl.col("measured")).with_columns(response_ns=pl.col("waited_ns") + pl.col("duration_ns"))
        both = more if kept is None else pl.concat((kept, more))
        kept = both.sort(pl.col("error") == "", -pl.col("response_ns"), maintain_order=True).head(limit)
    if kept is None:
        return ()
    named = kept.with_columns(start_ns=_start_ns(), number="idx").select(list(Operation.__struct_fields__))
    return tuple(Operation(**row) for row in named.iter_rows(named=True))


def operations_of(folder: Path) -> Iterator[pl.DataFrame]:
    """All operations of a run, some at a time, with `bench_join.OPERATION_COLUMNS`."""
    for rows in _batches(folder):
        yield rows.filter(pl.col("final") & pl.col("measured") & pl.col("duration_ns").is_not_null()).select(
            *("op", "endpoint", "file"),
            number="idx",
            is_good=pl.col("error") == "",
            start_ns=_start_ns(),
            end_ns=_start_ns() + pl.col("duration_ns"),
        )


def transaction_ids_of(folder: Path) -> Iterator[list[str]]:
    """The transaction ids of all attempts of a run, "" for none; some at a time."""
    for rows in _batches(folder):
        yield rows["transaction_id"].to_list()


def records_no_ids(folder: Path) -> bool:
    """Whether a run records no ids of its requests, so that they must be sought by what its operations are."""
    try:
        return json.loads((folder / INFO_NAME).read_text("utf-8"))["source"] in WITHOUT_ATTEMPTS
    except (OSError, ValueError, KeyError, TypeError):
        return False


def may_be_of(stage: LoadStage | BenchRun, from_ns: int, to_ns: int) -> bool:
    """Whether something by the wall clock of any host may lie in an interval of the trace's timescale."""
    return stage.started_ns < to_ns + CLOCKS_APART_NS and stage.ended_ns > from_ns - CLOCKS_APART_NS


def run_overlaps(run: BenchRun, from_ns: int, to_ns: int) -> bool:
    """Whether a run overlaps an interval of wall-clock time."""
    return run.started_ns < to_ns and run.ended_ns > from_ns


def _folders_beside(trace: Path) -> list[Path]:
    """Folders that have a trace's name with an ending, as in `c512` and `c512.bench`."""
    parent = trace.resolve().parent
    if not parent.is_dir():
        return []
    return [each for each in sorted(parent.iterdir()) if each.is_dir() and each.name.startswith(f"{trace.name}.")]


@lru_cache(maxsize=256)
def _read_run(folder: Path, modified_ns: int) -> BenchRun | None:
    info = json.loads((folder / INFO_NAME).read_text("utf-8"))
    if info["state"] == "running" or not info["figures"]:
        return None
    figures = max(info["figures"], key=lambda each: (each["operations_count"], each["op"] != "DELETE"))
    mine = [each for each in info["figures"] if each["stage"] == figures["stage"]]
    stage = next(each for each in info["stages"] if each["name"] == figures["stage"])
    elapsed_s = max((work["runtime_s"] for work in stage["works"]), default=0.0)
    first, last = min(each["first_start_ns"] for each in mine), max(each["last_end_ns"] for each in mine)
    total = {
        name: sum(each[name] for each in mine)
        for name in ("operations_count", "failures_count", "attempts_count", "bytes")
    }
    return BenchRun(
        folder=folder,
        name=folder.name,
        series=_series(folder.name, _workers(stage)),
        stage=stage["name"],
        concurrency=_workers(stage),
        started_ns=stage["started_ns"],
        ended_ns=stage["ended_ns"],
        elapsed_s=elapsed_s or max(last - first, 1) / NS_PER_S,
        operations_count=total["operations_count"],
        failures_count=total["failures_count"],
        retries_count=None
        if info["source"] in WITHOUT_ATTEMPTS
        else max(0, total["attempts_count"] - total["operations_count"]),
        bytes=total["bytes"],
        percentiles_ns=_percentiles(folder, stage["name"]),
        errors=_errors(mine),
        use=_use(folder / SAMPLES_NAME, stage["started_ns"], stage["ended_ns"]),
        source=str(info["source"]),
    )


def _workers(stage: dict[str, Any]) -> int:
    return sum(int(work["workers"]) for work in stage["works"])


def _series(name: str, concurrency: int) -> str:
    """A folder's name without its concurrency: `hdd-1B-0512` is `hdd-1B`."""
    found = _CONCURRENCY.search(name)
    return name[: found.start()] or name if found and int(found[1]) == concurrency else name


def _errors(figures: list[dict[str, Any]]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for each in figures:
        for kind, count in each["errors"].items():
            counts[str(kind)] = counts.get(str(kind), 0) + int(count)
    return tuple(sorted(counts.items(), key=lambda item: -item[1]))


def _batches(folder: Path) -> Iterator[pl.DataFrame]:
    """The attempts of a run, of all its drivers, some at a time."""
    for file in (folder / ROWS_NAME, *sorted(folder.glob(f"*/{ROWS_NAME}"))):
        if file.is_file():
            yield from _read_rows(file)


def _read_rows(file: Path) -> Iterator[pl.DataFrame]:
    with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        head, held = b"", b""
        while block := stream.read(_BLOCK_BYTES):
            whole, _, held = (held + block).rpartition(b"\n")
            if not head:
                head, _, whole = whole.partition(b"\n")
            yield _parse(head + b"\n" + whole)


def _parse(text: bytes) -> pl.DataFrame:
    rows = pl.read_csv(
        io.BytesIO(text), separator="\t", columns=list(_COLUMNS), infer_schema=False, quote_char=None
    ).select(_COLUMNS)
    whole = [pl.col(name).cast(pl.Int64) for name in _NUMBERS]
    flags = [(pl.col(name) == pl.lit("1")).alias(name) for name in ("final", "measured")]
    return rows.with_columns(whole).with_columns(flags).fill_null("")


def _start_ns() -> pl.Expr:
    return pl.col("start").str.to_datetime("%+", time_unit="ns", time_zone="UTC").dt.epoch("ns")


def _percentiles(folder: Path, stage: str) -> tuple[int, ...]:
    is_good = (pl.col("stage") == stage) & pl.col("measured") & pl.col("final") & (pl.col("error") == "")
    parts = [rows.filter(is_good).select(pl.col("waited_ns") + pl.col("duration_ns")) for rows in _batches(folder)]
    took = pl.concat(parts).to_series() if parts else pl.Series(dtype=pl.Int64)
    if not len(took):
        return ()
    return tuple(int(took.quantile(share / 100, "higher") or 0) for share in PERCENTILES)


def _use(file: Path, from_ns: int, to_ns: int) -> tuple[HostUse, ...]:
    """Means of the samples of a stage; a sample is of the second that ends at its time."""
    if not file.is_file():
        return ()
    rows = pl.read_csv(file, schema=_SAMPLES)
    rows = rows.filter((pl.col("host_ns") > from_ns) & (pl.col("host_ns") <= to_ns + NS_PER_S))
    means = rows.group_by("host", "metric", maintain_order=True).agg(pl.col("value").mean())
    by_host: dict[str, dict[str, float]] = {}
    for host, metric, value in means.iter_rows():
        by_host.setdefault(host, {})[metric] = value
    return tuple(_use_of(host, found) for host, found in by_host.items())


_SAMPLES = {"host": pl.String, "host_ns": pl.Int64, "metric": pl.String, "value": pl.Float64}


def _use_of(host: str, found: dict[str, float]) -> HostUse:
    disks = [value for metric, value in found.items() if metric.startswith("disk_busy_percent")]
    return HostUse(
        host,
        found.get("cpu_percent"),
        max(disks, default=None),
        found.get("sent_bytes_per_s"),
        found.get("received_bytes_per_s"),
    )
