"""Document 003: which points, what is drawn from their runs, what the statements say to made-up curves."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from storage_cluster import topology
from storage_cluster.bench import formats
from storage_cluster.bench.paper import (
    charts_003,
    commands,
    experiment_003,
    outcome_003,
    pictures,
    points,
    statements_003,
    traces_003,
)
from storage_cluster.bench.paper.experiment_003 import (
    BALANCED,
    FEW,
    GET_SIZES,
    GET_WORKERS,
    MANY,
    PUT_SIZES,
    PUT_WORKERS,
    SETUPS,
    SIZES,
    WORKERS,
    Curve,
    Curves,
    Measured,
    Plan,
)
from storage_cluster.bench.paper.points import Point
from storage_cluster.bench.paper.traces import Traced
from storage_cluster.bench.results import folder, rows
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import RunInfo, StageInfo, WorkInfo
from storage_cluster.bench.results.rows import Row, RowFile, as_line
from storage_cluster.bench.use import FILE_NAME, Sample, SampleFile
from storage_cluster.faults.kinds import Fault, Parameters
from tracer.errors import ResourceError

START = 1_700_000_000_000_000_000


def make(workers: int, size: str, rate: float, *, disk: float = 10.0, gateway: float = 24.0) -> Measured:
    cpu = {"client": 5.0, "gateway": gateway, "storage1": 12.0}
    return Measured(workers, size, rate, 1.0, 0, cpu, {"gateway": 3.0}, disk, 100)


def by_workers(*rates: float, disk: float = 10.0, workers: tuple[int, ...] = WORKERS) -> Curve:
    return [make(each, "1MB", rate, disk=disk) for each, rate in zip(workers, rates, strict=True)]


def by_size(workers: int, *rates: float) -> Curve:
    return [make(workers, size, rate) for size, rate in zip(SIZES, rates, strict=False)]


def as_the_paper() -> Curves:
    """Curves that do what the document says."""
    get = (160, 300, 450, 590, 600, 595, 590, 580)
    few = (5, 40, 150, 250, 300, 310)
    found: Curves = {
        (GET_WORKERS, "hdd", 0): by_workers(*get),
        (GET_WORKERS, "ssd", 0): by_workers(*get),
        (GET_WORKERS, "ssd-bodies", 0): by_workers(*get),
        (GET_WORKERS, "ssd-processes", 0): by_workers(*get),
        (GET_SIZES, "hdd", FEW): by_size(FEW, 4, 30, 120, 200, 330, 350),
        (GET_SIZES, "ssd", FEW): by_size(FEW, *few),
        (GET_SIZES, "ssd-no-cache", FEW): by_size(FEW, 2, 15, 90, 240, 300, 310),
        (GET_SIZES, "hdd", MANY): by_size(MANY, 40, 300, 600, 200, 150),
        (GET_SIZES, "ssd", MANY): by_size(MANY, 40, 300, 600, 590, 580),
        (PUT_WORKERS, "hdd", 0): by_workers(9, 12, 16, 17, 17, 17, 17, 17, disk=95.0),
        (PUT_WORKERS, "ssd", 0): by_workers(30, 50, 66, 67, 68, 69, 70, 70, disk=95.0),
        (PUT_SIZES, "hdd", FEW): by_size(FEW, 1, 3, 9, 20, 30),
        (PUT_SIZES, "ssd", FEW): by_size(FEW, 2, 10, 30, 50, 60),
        (PUT_SIZES, "hdd", MANY): by_size(MANY, 1, 5, 17, 40, 42),
        (PUT_SIZES, "ssd", MANY): by_size(MANY, 5, 30, 70, 70, 72),
    }
    for count, rate in ((1, 100.0), (2, 190.0)):
        for method in ("get", "put"):
            curve = by_workers(rate / 2, rate, rate, workers=(1, 16, 128))
            found[f"{BALANCED}-{method}", f"equal-{count}", 0] = curve
    return found


def test_curves_as_the_papers_agree_with_every_statement() -> None:
    made = statements_003.statements(as_the_paper())
    assert {each.said: each.agrees for each in made} == {each.said: True for each in made}
    assert len(made) == 18


@pytest.mark.parametrize(
    ("said", "key", "curve"),
    [
        ("GET of 1 MB, by workers", (GET_WORKERS, "hdd", 0), by_workers(*([50.0] * 8), disk=99.0)),
        ("GET: level from 8", (GET_WORKERS, "ssd", 0), by_workers(160, 300, 450, 600, 600, 300, 200, 100)),
        ("GET: many workers", (GET_WORKERS, "ssd", 0), by_workers(*([600.0] * 8))),
        ("GET: best near 16", (GET_WORKERS, "ssd", 0), by_workers(1, 2, 3, 4, 5, 6, 7, 800)),
        ("GET without the gateway's cache", (GET_SIZES, "ssd-no-cache", FEW), by_size(FEW, 5, 40, 150, 250, 300, 310)),
        ("GET: the gateway is the limit", (f"{BALANCED}-get", "equal-2", 0), by_workers(*([9.0] * 8))),
        ("GET with 1 worker: the larger", (GET_SIZES, "ssd", FEW), by_size(FEW, 5, 40, 150, 100, 90, 80)),
        ("GET with 1 worker: SSD is faster", (GET_SIZES, "hdd", FEW), by_size(FEW, 4, 30, 120, 200, 290, 290)),
        ("GET with 16 workers, SSD", (GET_SIZES, "ssd", MANY), by_size(MANY, 4, 30, 120, 200, 290)),
        ("GET with 16 workers, HDD", (GET_SIZES, "hdd", MANY), by_size(MANY, 4, 30, 120, 200, 290)),
        ("PUT of 1 MB", (PUT_WORKERS, "hdd", 0), by_workers(*([40.0] * 8))),
        ("PUT, HDD: more workers", (PUT_WORKERS, "hdd", 0), by_workers(*([12.0] * 8))),
        ("PUT, SSD: more than twice", (PUT_WORKERS, "ssd", 0), by_workers(*([60.0] * 8))),
        ("PUT, SSD: level from 4", (PUT_WORKERS, "ssd", 0), by_workers(30, 50, 66, 67, 68, 69, 70, 70, disk=20.0)),
        ("PUT with 1 worker", (PUT_SIZES, "hdd", FEW), by_size(FEW, 9, 3, 1, 1, 1)),
        ("PUT with 16 workers, HDD", (PUT_SIZES, "hdd", MANY), by_size(MANY, 40, 40, 40, 40, 40)),
        ("PUT with 16 workers, SSD", (PUT_SIZES, "ssd", MANY), by_size(MANY, 5, 30, 30, 70, 72)),
        ("proposal", (f"{BALANCED}-put", "equal-2", 0), by_workers(*([90.0] * 8))),
    ],
)
def test_other_curves_differ(said: str, key: tuple[str, str, int], curve: Curve) -> None:
    made = statements_003.statements(as_the_paper() | {key: curve})
    assert [each.agrees for each in made if each.said.startswith(said)] == [False]


def test_a_short_sweep_does_not_reach_all() -> None:
    short = {key: [each for each in curve if each.workers < 100 and SIZES[each.size] < 10**8] for key, curve in
             as_the_paper().items()}  # fmt: skip
    reached = {each.said: each.agrees for each in statements_003.statements(short)}
    assert [said for said, agrees in reached.items() if agrees is None] == [
        "GET: level from 8 workers on, and not more up to 128",
        "GET with 1 worker: SSD is faster below 100 MB, HDD from 100 MB on",
        "GET with 16 workers, HDD: most at 1 MB, much less above",
        "PUT with 16 workers, HDD: low up to 1 MB, high alike at 10 and 100 MB",
    ]
    assert statements_003.statements({}) == []


def test_a_run_that_failed_half_way_lacks_points() -> None:
    curves = as_the_paper()
    for key, curve in curves.items():
        less = statements_003.statements(curves | {key: curve[1:]})
        assert len(less) == 18, key
    assert statements_003.statements({(PUT_SIZES, "hdd", MANY): by_size(MANY, 3)})[0].agrees is None


@pytest.mark.parametrize("number", ["000", "003", "004"])
def test_a_folder_that_cannot_be_made_is_one_line(number: str) -> None:
    for words in (("-o", "/proc/x"), ("-o", "/dev/shm", "--publish", "/proc/x")):
        done = CliRunner().invoke(commands.paper, [number, *words])
        assert isinstance(done.exception, ResourceError)
        assert str(done.exception) == "/proc/x cannot be made (No such file or directory); choose another folder"


def test_what_limits_a_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements_003.os, "cpu_count", lambda: 2)
    assert statements_003._limit(make(1, "1MB", 1.0, disk=97.0)) == "the disks are full (97 %)"
    busy = dataclasses.replace(make(1, "1MB", 1.0), cpu_percent={"client": 20.0, "gateway": 60.0, "storage1": 110.0})
    assert statements_003._limit(busy).startswith(
        "the machine's processor, which all hosts share, is full (190 of 200 %, the gateway 60)"
    )
    neither = "neither disks (10 %) nor processor (41 of 200 %) are full"
    assert statements_003._limit(make(16, "1MB", 1.0)) == neither
    assert (
        statements_003._limit(make(1, "1MB", 1.0)) == f"{neither}: with one worker each step waits for the one before"
    )
    waiting = dataclasses.replace(make(16, "1MB", 1.0), cpu_wait_percent={"gateway": 22.0})
    assert statements_003._limit(waiting).endswith("processes waited for a processor up to 22 %")
    curves = as_the_paper() | {(GET_SIZES, "hdd", FEW): by_size(FEW, 5, 40, 150, 250, 100, 310)}
    (why,) = (
        each.why for each in statements_003.statements(curves) if each.said.startswith("GET with 1 worker: the l")
    )
    assert why.startswith("HDD at 100MB: 1.6 GB of objects, a page cache of 1.1; neither disks")


def test_the_points_are_cosbench_files_for_the_documents_clusters(tmp_path: Path) -> None:
    made = experiment_003.points(Plan(), tmp_path)
    assert len(made) == 18
    for point in made:
        workload, _ = formats.load(Path(point.argv[0]))
        assert workload.source == "cosbench"
        assert {work.storage.kind for stage in workload.stages for work in stage.works} == {"s3"}
        topology.load(point.topology)
    first, _ = formats.load(Path(made[0].argv[0]))
    loads = [stage.works[0].workers for stage in first.stages if stage.name.startswith("get-")]
    assert loads == [*WORKERS, *WORKERS]
    hdd = topology.load(tmp_path / "hdd.toml")
    assert hdd.link.rate_bits_per_s == 10**10 and hdd.ring.replicas == 3
    (disk,) = hdd.host("storage1").disks
    assert (disk.media, disk.read_bytes_per_s, disk.write_bytes_per_s, disk.cache_mib) == (
        "hdd", 132_000_000, 102_000_000, 1024
    )  # fmt: skip
    assert topology.load(tmp_path / "ssd-no-cache.toml").s3.info_cache_s == 0
    assert topology.load(tmp_path / "ssd-bodies.toml").s3.cache_mib == 1024
    assert topology.load(tmp_path / "ssd-processes.toml").s3.workers == 2
    two = topology.load(tmp_path / "equal-2.toml")
    assert [each.host for each in two.gateways] == ["gateway1", "gateway2"]
    assert [each.host for each in two.s3_endpoints] == ["balancer"]
    assert {point.name: point.cpu_share for point in made if point.cpu_share} == {
        f"balanced-equal-{number}": 0.25 for number in (1, 2, 3)
    }
    assert not [name for name in experiment_003.without_balancer(Plan()).setups if name.startswith("equal")]


@pytest.mark.parametrize(
    ("point", "operations"),
    [
        (("get", 1, "1MB"), 0),
        (("get", 16, "100MB"), 16),
        (("get", 1, "1GB"), 2),
        (("put", 128, "1MB"), 256),
        (("put", 16, "10MB"), 32),
        (("put", 1, "10KB"), 0),
    ],
)
def test_a_point_whose_time_would_hold_few_objects_is_a_number_of_them(
    point: tuple[str, int, str], operations: int
) -> None:
    assert experiment_003.operations_instead(*point, 4.0) == operations


@pytest.mark.parametrize(("free", "largest"), [(10**12, "1GB"), (20 * 10**9, "100MB"), (5 * 10**9, "1MB"), (0, "10KB")])
def test_the_largest_object_is_what_the_disk_allows(free: int, largest: str) -> None:
    assert experiment_003.largest_that_fits(free) == largest


def write_run(where: Path, stages: dict[str, int]) -> None:
    """A run of stages of a second, with so many reads of 1 MB each."""
    where.mkdir(parents=True)
    file, tally, infos = RowFile.create(where / rows.FILE_NAME), Tally(), []
    samples = SampleFile.create(where / FILE_NAME)
    for number, (name, count) in enumerate(stages.items()):
        begin = START + number * 10**10
        for n in range(count):
            row = Row(
                n, 0, "GET", "local", 10**6, "e", "c/o", "", begin + n, 1, 10**6, name, "load", "read", 200, 1, True,
                True, 0, -1, "tx", 1,
            )  # fmt: skip
            tally.add(row)
            file.write(as_line(row))
        infos.append(StageInfo(name, (WorkInfo("load", 1, 1.0),), begin, begin + 10**9))
        at = begin + 10**9
        busy = [
            Sample("storage1", at, "disk_busy_percent.d1", 40.0),
            Sample("storage2", at, "disk_busy_percent.d1", 50.0),
        ]
        samples.add([Sample("gateway", at, "cpu_percent", 30.0), *busy])
    file.close()
    samples.close()
    folder.save(where, RunInfo("w", "cosbench", "x", START, tuple(infos), "done"), tally)


def test_of_each_point_the_better_pass_counts(tmp_path: Path) -> None:
    write_run(tmp_path / "get-workers-ssd", {"init-1MB": 1, "get-1-1MB-1": 6, "get-2-1MB-1": 5, "get-1-1MB-2": 8})
    runs = {"get-workers-ssd": folder.load(tmp_path / "get-workers-ssd")}
    (curve,) = experiment_003.collect_results(runs).values()
    assert [(each.workers, each.size, each.objects_count) for each in curve] == [(1, "1MB", 8), (2, "1MB", 5)]
    assert [each.mb_per_s for each in curve] == [pytest.approx(8.0), pytest.approx(5.0)]
    assert [each.spread_percent for each in curve] == [pytest.approx(25.0), 0.0]
    assert (curve[0].cpu_percent["gateway"], curve[0].disk_busy_percent) == (30.0, 50.0)


def test_the_charts_are_the_documents_figures() -> None:
    made = charts_003.figures(as_the_paper())
    assert list(made) == [*(f"figure-{number:02}" for number in range(4, 10)), "gateways-get", "gateways-put"]
    assert [trace.name for trace in made["figure-07"].data] == ["HDD", "SSD"]
    assert list(made["figure-05"].data[1].y) == [5, 40, 150, 250, 300, 310]


def test_where_the_time_goes_is_grouped(tmp_path: Path) -> None:
    stages = {
        "work in s3": 20, "queue of s3": 10, "receiver did not read, to and from swift-object": 10,
        "pauses in the answer of s3": 20, "work in swift-container": 20, "pauses in the answer of swift-object": 10,
        "receiver did not read, to and from s3": 10,
    }  # fmt: skip
    assert charts_003.ledger_shares(stages) == {
        "gateway: work": 0.2, "gateway: queue": 0.1, "storage waits for the gateway to read": 0.1,
        "gateway: pauses in its answers": 0.2, "storage servers": 0.3, "network and connections": 0.1,
    }  # fmt: skip
    assert charts_003.ledger_shares({}) == {}
    traced = [
        Traced(f"GET of 1 MB by {workers} workers", tmp_path / f"trace-get-{workers}", "", stages_ns=stages)
        for workers in (1, 16)
    ]
    made = charts_003.figures({}, traced)
    assert list(made) == ["ledger"]
    assert list(made["ledger"].data[0].x) == ["1 workers", "16 workers"]
    assert list(made["ledger"].data[0].y) == [20.0, 20.0]


def test_what_goes_into_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    (tmp_path / outcome_003.ANSWERS).write_text("x")
    curves, messages = as_the_paper(), list[str]()
    stages = {"work in s3": 3_000_000, "x": 10**6}
    traced = [Traced("GET", tmp_path / "trace-get-1", "text", ("a finding",), stages_ns=stages)]
    traced += [Traced("large", tmp_path / "trace-large-hdd", "text", parts_ns={"in s3": 10**6})]
    found = statements_003.statements(curves)
    file = outcome_003.publish({}, curves, found, traced, tmp_path, ("tracer", "x"), messages.append)
    text = file.read_text("utf-8")
    assert "| PUT, HDD: more workers, slightly more throughput | 1.9 times from 1 to 8 | as the paper |" in text
    assert "### GET of 1 MB, by workers (figure 4): HDD" in text
    assert "| MB/s | 160 | 300 | 450 |" in text and "| 5 / 24 / 12 |" in text
    assert "| work in s3 | 3.0 | 75% |" in text and "- a finding" in text
    assert "| where the time of the command went | ms | |\n|---|--:|--:|\n| in s3 | 1.0 | 100% |" in text
    assert "Not measured in this run: SSD, gateway's cache off (get-workers), HDD, no page cache (get-workers)" in text
    assert "three gateways (balanced)" in text and "one gateway (balanced)" not in text
    assert "(answers.md)" in text and "Requests that failed: 0." in text


def test_traces_hold_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    ups: list[Point] = []

    def run(argv, state_dir: Path) -> subprocess.CompletedProcess[str]:
        ran.append(tuple(argv))
        if argv[0] == "record":
            (tmp_path / "trace-get-1").mkdir()
            (tmp_path / "trace-get-1" / "trace.json").touch()
        found = [{"severity": "notice", "kind": "zero_window", "text": "gateway was slow to read"}]
        report = {"findings": found, "story": {"parts": []}, "stages": [{"stage": "work in s3", "mean_ns": 5}]}
        return subprocess.CompletedProcess(argv, 0, json.dumps(report) if "--json" in argv else "all of it\n", "")

    monkeypatch.setattr(traces_003, "run_tracer", run)
    monkeypatch.setattr(traces_003, "bring_up", lambda point, state_dir: ups.append(point))
    monkeypatch.setattr(traces_003.cluster, "down", lambda *a, **k: True)
    monkeypatch.setattr(traces_003, "WANTED", traces_003.WANTED[:1])
    for _ in range(2):  # the second time nothing is done again
        (made,) = traces_003.record(Plan(setups=("ssd",)), tmp_path, lambda line: None)
        assert (made.said, made.stages_ns) == ("all of it\n", {"work in s3": 5})
        assert made.findings == ("gateway was slow to read",)
    assert [argv[0] for argv in ran] == ["bench", "record", "report", "report"]
    assert [point.cpu_share for point in ups] == [0.0]
    read, _ = formats.load(tmp_path / "trace-get-1.xml")
    assert [stage.name for stage in read.stages] == ["get-1-1MB-1"]
    assert read.stages[0].works[0].total_ops == 60
    assert traces_003.record(Plan(setups=("hdd",)), tmp_path, lambda line: None) == []


def test_a_picture_is_drawn_from_the_exported_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def run(argv, state_dir: Path) -> subprocess.CompletedProcess[str]:
        ran.append(tuple(argv))
        if argv[0] == "record":
            (tmp_path / "balancer-packets").mkdir()
            (tmp_path / "balancer-packets" / "trace.json").write_text('{"command": null}')
        if argv[0] == "export":
            (tmp_path / "balancer-packets.csv").mkdir()
            (tmp_path / "balancer-packets.csv" / "hops.csv").write_text(
                "kind,send_host,send_trace_ns,receive_host,receive_trace_ns\n"
                "data,client,6000000,balancer,6500000\ndata,balancer,7000000,gateway1,7500000\n"
            )
        return subprocess.CompletedProcess(argv, 0, "{}" if "--json" in argv else "text", "")

    monkeypatch.setattr(traces_003, "run_tracer", run)
    monkeypatch.setattr(traces_003, "bring_up", lambda point, state_dir: None)
    monkeypatch.setattr(traces_003.cluster, "down", lambda *a, **k: True)
    monkeypatch.setattr(traces_003, "WANTED", [each for each in traces_003.WANTED if each.is_picture])
    monkeypatch.setattr(traces_003, "read_report", lambda file, kinds: {})
    traced = traces_003.record(experiment_003.QUICK, tmp_path, lambda line: None)
    assert [argv[0] for argv in ran] == ["bench", "record", "report", "export", "report"]
    (made,) = charts_003.figures({}, traced).values()
    assert list(made.layout.yaxis.ticktext) == ["client", "balancer", "gateway1"]


def test_equal_hosts_have_a_share_of_a_processor_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[dict] = []
    monkeypatch.setattr(points.cluster, "up", lambda *a, **k: True)
    monkeypatch.setattr(points.control, "ask", lambda state_dir, order: orders.append(order))
    file = experiment_003.write_topology(SETUPS["equal-2"], tmp_path)
    points.bring_up(Point("p", (), file, 0.25), tmp_path)
    slowed = ["proxy", "balancer", "gateway1", "gateway2", "storage1", "storage2", "storage3"]
    assert [order["fault"] for order in orders] == [
        dataclasses.asdict(Fault("cpu", host, Parameters(cpu_share=0.25))) for host in slowed
    ]
    orders.clear()
    points.bring_up(Point("p", (), file), tmp_path)
    assert not orders


def test_without_haproxy_there_are_no_balanced_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(commands.balancer, "find_program", lambda: None)
    monkeypatch.setattr(commands.points, "do", lambda todo, *_: asked.append([point.name for point in todo]))
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    done = CliRunner().invoke(commands.paper, ["003", "--quick", "--no-traces", "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "no gateways behind a balancer: haproxy is not installed (apt install haproxy)" in done.output
    assert asked == [
        ["get-workers-hdd", "get-workers-ssd", "get-sizes-hdd", "get-sizes-ssd", "put-workers-hdd", "put-workers-ssd"]
    ]  # fmt: skip
