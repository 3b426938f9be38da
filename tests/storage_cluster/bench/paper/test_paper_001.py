"""Document 001: which points, what the statements say to made-up results, how a write's time is cut at its packets."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from storage_cluster import topology
from storage_cluster.bench import formats
from storage_cluster.bench.paper import (
    charts_001,
    commands,
    experiment_001,
    outcome_001,
    pictures,
    points,
    statements_001,
    traces_001,
)
from storage_cluster.bench.paper.experiment_001 import (
    EXT3,
    EXT4,
    FEW,
    MANY,
    MIXED,
    PROXY,
    SETUPS,
    Measured,
    PointKey,
    Results,
    Stage,
)
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.paper.traces import Traced
from storage_cluster.bench.paper.traces_001 import AFTER, BEFORE, BODY_IN, BODY_OUT, CONNECT, STORE, Writes
from storage_cluster.bench.results import rows
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import RunInfo, StageInfo, WorkInfo, save
from storage_cluster.bench.results.rows import Row, RowFile, as_line
from storage_cluster.bench.use import FILE_NAME, Sample, SampleFile
from tests.helpers.bench_folders import STARTED_NS

PLAN = experiment_001.Plan()
AIM = "our aim: the improved proxy costs 5 % at most from 100 KB on"


def make(per_s: float, mb_per_s: float = 1.0) -> Measured:
    return Measured(per_s, mb_per_s, 1000 / per_s, 1000 / per_s, {"client": 1.0, "proxy": 0.8}, 0, 2.0)


def as_the_paper() -> Results:
    """Results that do what the document says, and an improved proxy that costs next to nothing."""
    found: Results = {}
    for size_kb in PLAN.filesystem_sizes_kb:
        found["filesystems", "put", EXT3, size_kb, MANY] = make(110 if size_kb <= 2 else 80)
        found["filesystems", "put", EXT4, size_kb, MANY] = make(100)
    for setup, share in (("paper", 0.4), ("improved", 0.97)):
        for stage in experiment_001.stages(PLAN, setup):
            key = setup, stage.method, stage.target, stage.size_kb, stage.workers
            found[key] = make(
                30 * (share if stage.target == PROXY else 1), 20 * (share if stage.target == PROXY else 1)
            )
    for setup in ("paper-saturated", "improved-saturated"):
        for stage in experiment_001.stages(PLAN, setup):
            found[setup, "put", stage.target, stage.size_kb, stage.workers] = make(100)
    found["paper-mean", "put", PROXY, MIXED, FEW] = make(9, 6)
    return found


WRITES = [
    Writes("paper", target, size_kb, dict.fromkeys(traces_001.STAGES, 2.0 if target == PROXY else 1.0), 20)
    for size_kb in (100, 1000)
    for target in (experiment_001.store_for(size_kb), PROXY)
]


def test_results_as_the_papers_agree_with_every_statement() -> None:
    made = statements_001.statements(PLAN, as_the_paper(), WRITES)
    assert {each.said: each.agrees for each in made} == {each.said: True for each in made}
    assert len(made) == 10
    assert "16.0 ms, +8.0 ms against without" in next(each.found for each in made if "not said (100 KB)" in each.said)


@pytest.mark.parametrize(
    ("said", "key", "per_s"),
    [
        ("figure 3: at 1 KB", ("filesystems", "put", EXT3, 1, MANY), 101),
        ("figure 3: from 128 KB", ("filesystems", "put", EXT3, 512, MANY), 98),
        ("figure 4", ("paper", "put", PROXY, 10, FEW), 29),
        ("figure 5: sizes", ("paper", "put", PROXY, MIXED, FEW), 30),
        ("figure 5: with the threshold", ("paper-mean", "put", PROXY, MIXED, FEW), 20),
        (f"{AIM} (hard disk, PUT)", ("improved", "put", PROXY, 100, MANY), 28),
        (f"{AIM} (hard disk, GET)", ("improved", "get", PROXY, 1000, FEW), 28),
        (f"{AIM} (processor", ("improved-saturated", "put", PROXY, 100, 16), 90),
    ],
)  # fmt: skip
def test_other_results_differ(said: str, key: PointKey, per_s: float) -> None:
    results = as_the_paper() | {key: make(per_s, per_s)}
    found = [each for each in statements_001.statements(PLAN, results, ()) if each.agrees is False]
    assert [each.said.startswith(said) for each in found] == [True]
    assert all(each.why for each in found if "figure 4" not in each.said and "at random" not in each.said)


def test_what_is_compared_is_measured_in_turns() -> None:
    stages = list(experiment_001.stages(PLAN, "improved"))
    assert [(stage.target, stage.turn) for stage in stages[:6]] == [(t, n) for n in (1, 2, 3) for t in (EXT3, PROXY)]
    assert len({stage.name for stage in stages}) == len(stages)
    assert [Stage.of(stage.name) for stage in stages] == stages
    assert Stage.of("prepare-100") is None
    assert {stage.target for stage in stages if stage.size_kb == 1000} == {EXT4, PROXY}


@pytest.mark.parametrize("setup", SETUPS)
def test_topologies_and_workloads_can_be_read(tmp_path: Path, setup: str) -> None:
    [point] = experiment_001.points(dataclasses.replace(PLAN, setups=(setup,)), tmp_path)
    found = topology.load(point.topology)
    assert {disk.media for host in found.hosts for disk in host.disks} == {SETUPS[setup].media}
    assert dict(SETUPS[setup].options).items() <= dataclasses.asdict(found.routing).items()
    workload, _ = formats.load(Path(point.argv[0]))
    names = [stage.name for stage in workload.stages if Stage.of(stage.name)]
    assert names == [stage.name for stage in experiment_001.stages(PLAN, setup)]
    for stage in workload.stages:
        wanted = Stage.of(stage.name)
        for work in stage.works if wanted else ():
            address = found.host(wanted.target).address
            assert f"//{address}:" in str(work.storage.option("endpoint"))
            mixed = "h(1|1|1,10|10|1,100|100|1,1000|1000|1,2000|2000|1,3000|3000|1)KB"
            sizes = mixed if wanted.size_kb == MIXED else f"c({wanted.size_kb})KB"
            assert wanted.method == "get" or str(work.operations[0].sizes) == sizes


def write_stages(folder: Path, stages: dict[str, int]) -> None:
    """A run of stages of a second, with so many writes of 1 MB each, during which the proxy used half a core."""
    file, samples = RowFile.create(folder / rows.FILE_NAME), SampleFile.create(folder / FILE_NAME)
    tally, infos = Tally(), []
    for number, (name, count) in enumerate(stages.items()):
        begun = STARTED_NS + number * 10**10
        for at in range(count):
            row = Row(
                at, 0, "PUT", "local", 10**6, "e", "c/o", "", begun + at, 1, 10**6, name, "load", "write", 200, 1, True,
                True, 0, -1, "tx", 1,
            )  # fmt: skip
            tally.add(row)
            file.write(as_line(row))
        infos.append(StageInfo(name, (WorkInfo("load", 1, 1.0),), begun, begun + 10**9))
        samples.add([Sample("proxy", begun + 10**9, "cpu_percent", 50.0)])
    file.close()
    samples.close()
    save(folder, RunInfo("w", "cosbench", "x", STARTED_NS, tuple(infos), "done"), tally)


def test_a_point_is_the_median_of_its_turns(tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, setups=("paper",))
    (tmp_path / "paper").mkdir()
    write_stages(
        tmp_path / "paper", {"init": 1, "put-proxy-100-1-1": 10, "put-proxy-100-1-2": 40, "put-proxy-100-1-3": 20}
    )
    point = Point("paper", (), tmp_path / "paper.toml")
    found = experiment_001.collect_results(plan, points.load([point], tmp_path))
    assert list(found) == [("paper", "put", PROXY, 100, 1)]
    [measured] = found.values()
    assert (measured.per_s, measured.mb_per_s, measured.mean_ms) == (20, 20, 1)
    assert measured.cpu_ms == {"proxy": 25.0}
    assert measured.spread_percent == 150


MOMENTS = (
    *("request_first_sent", "request_last_received", "connect_start", "connected"),
    *("response_first_sent", "response_last_received"),
)


def exchange(**moments_ms: float | None) -> dict[str, str]:
    return {
        f"{name}_trace_ns": "" if moments_ms.get(name) is None else str(int(moments_ms[name] * 1e6))  # type: ignore[operator]
        for name in MOMENTS
    }


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            exchange(
                connect_start=12, connected=13, request_first_sent=13, request_last_received=15, response_first_sent=45,
                response_last_received=46,
            ),
            {BODY_IN: 10, BEFORE: 2, CONNECT: 1, BODY_OUT: 2, STORE: 30, "answer": 1, AFTER: 24, "back": 1},
        ),
        (
            exchange(request_first_sent=1, request_last_received=11, response_first_sent=69, response_last_received=70),
            {BODY_IN: 10, BEFORE: 0, CONNECT: 0, BODY_OUT: 1, STORE: 58, "answer": 1, AFTER: 0, "back": 1},
        ),
    ],
    ids=["whole, a new connection", "streamed over a kept one"],
)  # fmt: skip
def test_a_writes_time_is_cut_at_its_packets(call: dict[str, str], expected: dict[str, float]) -> None:
    root = exchange(request_first_sent=0, request_last_received=10, response_first_sent=70, response_last_received=71)
    found = traces_001.stage_times(root, call)
    assert list(found.values()) == list(expected.values())
    assert sum(found.values()) == 71


def write_trace(where: Path) -> None:
    """What a trace of two writes leaves: one past the proxy, one through it."""
    csv_path = where.with_suffix(".csv")
    csv_path.mkdir()
    where.mkdir()
    head = ["client_host", "method", "target", *(f"{name}_trace_ns" for name in MOMENTS)]
    rows = [
        ("client", "PUT", "/paper1/put-ext3-100-1-1-1", "0", "1000000", "", "", "9000000", "10000000"),
        ("client", "PUT", "/paper1/put-proxy-100-1-1-1", "0", "1000000", "", "", "19000000", "20000000"),
        (
            "proxy",
            "PUT",
            "/paper1/put-proxy-100-1-1-1",
            "2000000",
            "3000000",
            "1500000",
            "2000000",
            "8000000",
            "9000000",
        ),
    ]
    lines = [",".join(each) for each in (head, *rows)]
    (csv_path / "exchanges.csv").write_text("\n".join(lines) + "\n")
    hops = ("kind,send_host,send_trace_ns,receive_host,receive_trace_ns", "data,client,5,proxy,900")
    (csv_path / "hops.csv").write_text("\n".join((*hops, "data,client,99999999,proxy,99999999", "")))
    (where / "trace.json").write_text(json.dumps({"command": None}))


def test_writes_are_read_from_a_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace-paper")
    traced = [Traced("t", tmp_path / "trace-paper", "")]
    past, through = traces_001.read_writes(traced)
    assert (past.target, sum(past.mean_ms.values()), past.mean_ms[STORE]) == (EXT3, 10, 8)
    assert (through.target, sum(through.mean_ms.values()), through.mean_ms[AFTER]) == (PROXY, 20, 10)
    [picture] = traces_001.read_pictures(traced).values()
    assert len(picture.arrows) == 1
    assert picture.title == "One PUT of 100 KB, proxy as in the paper: 20 ms"


def test_the_command_does_the_points_and_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def run_tracer(argv: list[str], _: Path) -> subprocess.CompletedProcess[str]:
        done.append(argv[0])
        if argv[0] == "record":
            write_trace(Path(argv[2]))
        report = {"findings": [], "story": {"parts": [{"label": "in routing-proxy", "duration_ns": 5_000_000}]}}
        return subprocess.CompletedProcess(argv, 0, json.dumps(report), "")

    monkeypatch.setattr(points, "do", lambda todo, *_: done.extend(point.name for point in todo))
    monkeypatch.setattr(experiment_001, "collect_results", lambda *_: as_the_paper())
    monkeypatch.setattr(traces_001, "run_tracer", run_tracer)
    monkeypatch.setattr(traces_001.cluster, "up", lambda *_, **__: None)
    monkeypatch.setattr(traces_001.cluster, "down", lambda *_: None)
    monkeypatch.setattr(pictures, "draw", lambda made, folder, *_, **__: [folder / f"{name}.png" for name in made])
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / outcome_001.ANSWER).write_text("It waits.")
    arguments = ["001", "-o", str(tmp_path / "runs"), "--publish", str(docs), "--setup", "paper"]
    found = CliRunner().invoke(commands.paper, arguments)
    assert found.exit_code == 0, found.output
    assert done == ["paper", "record", "export", "report", "report"]
    text = (docs / "README.md").read_text()
    for words in (
        "(answer.md)", "![figure-03]", "![stages]", "![packets-paper]", "| in routing-proxy | 5.0 |",
        "| PUT of sizes at random × 1, through the proxy |", "| together | 10.00 | 20.00 |", "![overhead]",
    ):  # fmt: skip
        assert words in text, words
    assert "tracer view" in found.output
    again = CliRunner().invoke(commands.paper, [*arguments, "--no-traces"])
    assert again.exit_code == 0, again.output
    assert "![stages]" not in (docs / "README.md").read_text()


def test_a_trace_that_was_not_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 2, "", "tracer: not allowed\n")
    monkeypatch.setattr(traces_001, "run_tracer", lambda *_: failed)
    monkeypatch.setattr(traces_001.cluster, "up", lambda *_, **__: None)
    monkeypatch.setattr(traces_001.cluster, "down", lambda *_: None)
    said: list[str] = []
    [made] = traces_001.record(("improved",), tmp_path, said.append)
    assert said[-1] == "  no trace of it (tracer: not allowed); the next time it is tried again"
    assert traces_001.read_writes([made]) == []


def test_figures_hold_what_was_measured() -> None:
    made = charts_001.figures(PLAN, as_the_paper(), WRITES)
    assert list(made) == ["figure-03", "figure-04", "figure-05", "overhead", "stages"]
    assert [round(value, 1) for value in made["figure-04"].data[1].y] == [12.0] * 5
    assert [round(value) for value in made["overhead"].data[0].y[:3]] == [60, 60, 60]
