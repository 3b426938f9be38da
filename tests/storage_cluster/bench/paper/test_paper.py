"""The papers' experiments: which points, what is drawn from their runs, what the statements say to made-up curves."""

import contextlib
import dataclasses
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_cluster import topology
from storage_cluster.bench import formats
from storage_cluster.bench.errors import RunError
from storage_cluster.bench.paper import (
    arrows,
    charts,
    charts_004,
    drivers_004,
    experiment_000,
    experiment_004,
    outcome,
    pictures,
    points,
    traces,
)
from storage_cluster.bench.paper.experiment_000 import CONCURRENCY, HOSTS, Found, Plan, Series
from storage_cluster.bench.paper.statements import as_text
from storage_cluster.bench.paper.statements_000 import of_pictures, statements
from storage_cluster.bench.paper.traces import Traced
from storage_cluster.bench.results import folder, rows
from storage_cluster.bench.results.figures import Tally
from storage_cluster.bench.results.folder import RunInfo, StageInfo, WorkInfo
from storage_cluster.bench.results.rows import Row, RowFile, as_line
from storage_cluster.bench.use import FILE_NAME, Sample, SampleFile
from storage_cluster.hosts import cluster

START = 1_700_000_000_000_000_000


def make_found(
    concurrency: int, rate: float, *, io: float = 95.0, proxy: float = 20.0, failed: int = 0, retried: int = 0
) -> Found:
    errors = {"connect_timeout": retried} if retried else {}
    cpu = {"client": 5.0, "proxy": proxy, "storage": 30.0}
    return Found(concurrency, rate, failed, retried, errors, cpu, {"storage": io}, {}, {"proxy": float(retried)})


def as_the_paper() -> Series:
    """Curves that do what the paper says."""
    hdd = [
        make_found(c, min(c, 32) * (1.0 if c <= 32 else 0.5), retried=9 * (c > 128), failed=3 * (c > 256))
        for c in CONCURRENCY
    ]
    ssd = [
        make_found(
            c,
            min(c, 32) * (4.0 if c <= 128 else 1.0),
            io=80.0 if c <= 128 else 30.0,
            proxy=50.0,
            retried=9 * (c > 128),
            failed=3 * (c > 1024),
        )
        for c in CONCURRENCY
    ]
    return {("hdd", "1B"): hdd, ("ssd", "1B"): ssd}


def test_curves_as_the_papers_agree_with_every_statement() -> None:
    made = statements(as_the_paper())
    assert {each.said: each.agrees for each in made} == {each.said: True for each in made}
    assert len(made) == 12


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("HDD: throughput rises", lambda c: make_found(c, float(c))),
        ("HDD: retries above 128", lambda c: make_found(c, 1.0, retried=1)),
        ("HDD: failures above 256", lambda c: make_found(c, 1.0)),
        ("HDD: the storage node's I/O", lambda c: make_found(c, 1.0, io=50.0)),
        ("HDD: no CPU exceeds", lambda c: make_found(c, 1.0, proxy=99.0)),
        ("SSD: the highest", lambda c: make_found(c, 999.0)),
    ],
)
def test_other_curves_differ(said: str, change) -> None:
    series = as_the_paper() | {("hdd", "1B"): [change(c) for c in CONCURRENCY]}
    assert [each.agrees for each in statements(series) if each.said.startswith(said)] == [False]


def test_a_short_sweep_does_not_reach_the_limits() -> None:
    series = {key: points[:5] for key, points in as_the_paper().items()}
    reached = {each.said.split(" at ")[0]: each.agrees for each in statements(series)}
    assert reached["HDD: retries above 128"] is None
    assert "not reached" in as_text(statements(series))


def test_failures_are_not_known_while_uploads_are_retried() -> None:
    cut = [dataclasses.replace(make_found(c, 1.0, retried=c), unfinished_count=c * (c > 512)) for c in CONCURRENCY]
    (said,) = (each for each in statements({("hdd", "1B"): cut}) if "failures above" in each.said)
    assert (said.agrees, said.found) == (None, "1B: none; 1B: 2,048 still retrying at 2,048 when the time was over")
    failed = [*cut[:-1], dataclasses.replace(cut[-1], failures_count=30)]
    (said,) = (each for each in statements({("hdd", "1B"): failed}) if "failures above" in each.said)
    assert (said.agrees, said.found) == (True, "1B: first at 2,048")


def test_the_points_are_the_papers(tmp_path: Path) -> None:
    made = experiment_000.points(Plan(), tmp_path)
    assert len(made) == 2 * 3 * 12
    assert made[0].name == "hdd-1B-0001"
    assert made[-1].argv[:5] == ("put", "--count", "2048", "--size", "1000000")
    assert [made[at].argv[-1] for at in (0, 6, 7, 11)] == ["10", "10", "90", "90"]
    again = experiment_000.points(Plan(setup="paper-2016", rounds=2), tmp_path / "")
    assert [again[at].name for at in (0, 72)] == ["hdd-1B-0001", "hdd-1B-0001-round-2"]
    assert again[0].argv[-4:] == ("--connects", "2", "--connections", "1024")
    (device,) = topology.load(tmp_path / "hdd.toml").host("storage").disks
    assert device.media == "hdd-2016"
    made = experiment_000.points(Plan(), tmp_path)
    for media in ("hdd", "ssd"):
        (device,) = topology.load(tmp_path / f"{media}.toml").host("storage").disks
        assert device.media == media


def write_run(where: Path, *, state: str = "done", seconds: int = 1) -> None:
    """A run of ten uploads in a second or more, beside samples of that time and of before."""
    where.mkdir(parents=True)
    file, tally = RowFile.create(where / rows.FILE_NAME), Tally()
    for n in range(10):
        row = Row(
            n, 0, "PUT", "local", 1, "e", "c/o", "", START + n * 10**8 * seconds, 1, 10**8 * seconds,
            "put", "put", "put", 201, 1, True, True, 0, -1, "tx", 1,
        )  # fmt: skip
        tally.add(row)
        file.write(as_line(row))
    file.close()
    stages = (StageInfo("put", (WorkInfo("put", 1, 0.0),), START, START + seconds * 10**9),)
    folder.save(where, RunInfo("put", "command", "x", START, stages, state), tally)
    samples = SampleFile.create(where / FILE_NAME)
    samples.add([Sample("proxy", START - 1, "cpu_percent", 99.0)])
    for second in (0.5, 1.0):
        at = START + int(second * 1e9)
        samples.add(
            [
                Sample("proxy", at, "cpu_percent", 20 * second),
                Sample("proxy", at, "listen_drops_per_s", 8.0),
                Sample("storage", at, "disk_busy_percent.d1", 90.0),
            ]
        )
    samples.close()


def test_what_is_drawn_from_a_run(tmp_path: Path) -> None:
    plan = Plan(("hdd",), ("1B",), (1, 2))
    write_run(tmp_path / "hdd-1B-0001")
    runs = points.load(experiment_000.points(plan, tmp_path), tmp_path)
    (one,) = experiment_000.collect_results(plan, runs)["hdd", "1B"]
    assert (one.throughput_per_s, one.failures_count) == (pytest.approx(10.0), 0)
    assert one.cpu_percent == dict.fromkeys(HOSTS, 0.0) | {"proxy": 15.0}
    assert one.io_percent["storage"] == 90.0
    assert (one.objects_count, one.elapsed_s, one.turned_away["proxy"]) == (10, pytest.approx(1.0), pytest.approx(8.0))
    assert one.unfinished_count == 0  # nothing was retried: the time of the point was over


def test_what_had_no_end_when_the_time_was_over_is_counted(tmp_path: Path) -> None:
    plan = Plan(("hdd",), ("1B",), (1, 256), objects_count=12)
    for concurrency in plan.concurrency:
        write_run(tmp_path / f"hdd-1B-{concurrency:04d}")
    runs = points.load(experiment_000.points(plan, tmp_path), tmp_path)
    few, many = experiment_000.collect_results(plan, runs)["hdd", "1B"]
    assert (few.unfinished_count, many.unfinished_count) == (0, 2)  # of 12 objects ten are there


def test_the_median_round_stands_for_a_point(tmp_path: Path) -> None:
    plan = Plan(("hdd",), ("1B",), (1,), rounds=3)
    for number, seconds in ((1, 1), (2, 4), (3, 2)):
        write_run(tmp_path / experiment_000.name("hdd", "1B", 1, number), seconds=seconds)
    (one,) = experiment_000.collect_results(plan, points.load(experiment_000.points(plan, tmp_path), tmp_path))[
        "hdd", "1B"
    ]
    assert one.rounds_per_s == pytest.approx((10.0, 2.5, 5.0))
    assert one.throughput_per_s == pytest.approx(5.0)


def test_use_of_a_modelled_machine_is_of_all_its_cores() -> None:
    use = {("proxy", "processor_busy_percent"): 40.0, ("proxy", "cpu_percent"): 9.0, ("client", "cpu_percent"): 8.0}
    assert experiment_000._cpu_percent(use, "proxy", 2) == 40.0
    assert experiment_000._cpu_percent(use, "client", 2) == 4.0
    assert experiment_000._cpu_percent(use, "client", 0) == 8.0
    moved = {("client", "written_bytes_per_s"): 13e6, ("storage", "disk_busy_percent.d1"): 70.0}
    assert experiment_000._io_percent(moved, "client") == pytest.approx(10.0)
    assert experiment_000._io_percent(moved, "storage") == 70.0


def test_charts_hide_nothing_of_what_happened() -> None:
    cut = dataclasses.replace(
        make_found(2048, 1.0, failed=3, retried=9), unfinished_count=1963, rounds_per_s=(0.5, 1.0, 2.0)
    )
    made = charts.figures({("hdd", "1MB"): [make_found(1, 2.0), cut]})
    drawn = {trace.name: trace for trace in made["figure-05"].data}
    assert list(drawn["unfinished when the time was over"].y) == [0, 1963]
    assert list(drawn["failures"].y) == [0, 3] and list(drawn["retries"].text) == ["", "9"]
    assert (drawn["throughput"].error_y.array[1], drawn["throughput"].error_y.arrayminus[1]) == (1.0, 0.5)
    panels = [made["figure-05"].layout[f"yaxis{number}"] for number in (2, 3, 4)]
    words = [each.text for each in made["figure-05"].layout.annotations]
    assert words == ["failures", "unfinished when the time was over", "retries"]
    assert panels[1].range[1] > 1963
    names = [trace.name for trace in made["figure-11"].data]
    assert names == [f"{host} {what}" for host in HOSTS for what in ("CPU", "I/O")]
    io = [trace.line.width for trace in made["figure-11"].data if "I/O" in trace.name]
    assert io == sorted(set(io), reverse=True)  # one over the other, both are seen


def test_differences_are_explained() -> None:
    series = as_the_paper() | {("hdd", "1B"): [make_found(c, float(c), retried=1) for c in CONCURRENCY]}
    account = {"hdd": ("proxy on proxy answered 503 to 9 requests", "a cause", "a third")}
    why = {each.said: each.why for each in statements(series, account)}
    finding = "in the trace: HDD: proxy on proxy answered 503 to 9 requests; HDD: a cause"
    assert why["HDD: retries above 128"] == finding
    assert why["SSD: retries above 128"] == ""  # as the paper
    assert f"why: {finding}" in as_text(statements(series, account))
    calm = [dataclasses.replace(each, turned_away={"proxy": 0.2}) for each in series["hdd", "1B"]]
    (said,) = (each.why for each in statements({("hdd", "1B"): calm}, account) if "HDD: retries" in each.said)
    assert said.startswith("no listen queue turned a connection away: one holds 4,096 here") and said.endswith(finding)
    (said,) = (each.why for each in statements({("hdd", "1B"): calm}, {}) if "HDD: failures" in each.said)
    assert said.endswith("; a retry mended whatever went wrong")


def test_reasons_of_their_own() -> None:
    hot = [
        dataclasses.replace(make_found(c, 1.0, io=50.0 + c), cpu_percent={"client": 40.0, "proxy": 1.0})
        for c in (1, 64)
    ]
    why = {each.said.partition(" ")[2]: each.why for each in statements({("hdd", "1B"): hot})}
    assert why["the storage node's I/O is above 90 % at any concurrency"].startswith("below it: 1B at 1: what is")
    assert why["the client's CPU stays below 10 %"] == "the most is at 1 with 1B, 1 objects/s"
    assert why["no CPU exceeds the storage node's I/O"] == ""
    slow = [make_found(c, 1.0, io=4.0, proxy=9.0) for c in (1, 64)]
    made = statements(
        {("hdd", "1B"): hot, ("ssd", "1B"): slow, ("hdd", "1KB"): hot, ("ssd", "1KB"): [make_found(1, 9.0)]}
    )
    why = {each.said.partition(": ")[2]: each.why for each in made}
    assert (
        why["at high concurrency the proxy's CPU overtakes the storage node's I/O"] == "this SSD is busy 95 % at most"
    )
    assert why["the highest throughput is much higher than on HDD"].startswith("1B on SSD: ")


def test_what_limits_a_curve_is_named() -> None:
    def why(points: list[Found]) -> str:
        made = statements({("hdd", "1B"): points})
        return next(each.why for each in made if each.said.startswith("HDD: throughput rises"))

    most = 100 * (os.cpu_count() or 1)
    neither = f"neither disk (50 %) nor processor (55 of {most} %; most: storage 30) is full"
    rising = [make_found(c, float(c), io=50.0) for c in CONCURRENCY[:-1]]
    end = make_found(2048, 500.0, retried=7)
    assert why([*rising, end]) == (
        f"1B on HDD: at 1 {neither}, at 1,024 (the best) {neither}, from 2,048 on it falls, with 7 retries"
    )
    for change, limit in (
        ({"io_percent": {"storage": 97.0}}, "the disk is full (97 %)"),
        (
            {"cpu_percent": {"client": 0.0, "proxy": float(most)}},
            f"the machine's processor, which all hosts share, is full ({most} of",
        ),
        ({"cpu_wait_percent": {"proxy": 60.0}}, "processes wait for a processor 60 % of the time (the hosts use 55 of"),
    ):
        points = [dataclasses.replace(each, **change) for each in rising]
        assert why([*points, dataclasses.replace(end, throughput_per_s=2048.0)]).startswith(f"1B on HDD: at 1 {limit}")


def test_what_the_pictures_say() -> None:
    start, proxy = "before its first packet (client start-up)", "in swift-proxy"
    agreeing = of_pictures({"figure-15": {proxy: 9, "in swift-object": 3}, "figure-16": {start: 8, proxy: 3}})
    assert [each.agrees for each in agreeing] == [True, True]
    other = of_pictures({"figure-15": {proxy: 5, "in swift-object": 3, "in swift-account": 3}, "figure-16": {proxy: 3}})
    assert [each.agrees for each in other] == [False, False]
    assert of_pictures({}) == []
    parts = {"figure-15-ssd": {proxy: 5, "in swift-object": 9}, "figure-15-ssd-unsynced": {proxy: 5}}
    (both,) = of_pictures(parts)
    assert both.agrees and both.why == "not so with SSD, synced"
    assert both.found.startswith("SSD, synced: 0.0 ms in the proxy")


def test_a_rise_ends_where_the_peak_is_nearly_reached() -> None:
    rates = [10, 20, 40, 60, 80, 97, 99, 100, 99, 98, 50, 40]
    curve = [make_found(c, float(rate)) for c, rate in zip(CONCURRENCY, rates, strict=True)]
    (said,) = (each for each in statements({("hdd", "1B"): curve}) if "HDD: throughput rises" in each.said)
    assert (said.agrees, said.found) == (True, "1B: 100/s, rises up to 32, within 10 % of it up to 512")
    late = [dataclasses.replace(each, throughput_per_s=float(each.concurrency)) for each in curve]
    assert [each.agrees for each in statements({("hdd", "1B"): late}) if "rises" in each.said] == [False]


def test_so_few_that_no_figure_shows_them_are_listed_but_not_the_first() -> None:
    curve = [
        dataclasses.replace(make_found(c, 1.0, retried=1 if c == 128 else 40 * (c > 256)), objects_count=2048)
        for c in CONCURRENCY
    ]
    (said,) = (each for each in statements({("ssd", "1B"): curve}) if "SSD: retries" in each.said)
    assert (said.agrees, said.found) == (True, "1B: first at 512 (before it 1 at 128)")
    visible = [dataclasses.replace(each, retries_count=11 if each.concurrency == 128 else 0) for each in curve]
    assert [each.agrees for each in statements({("ssd", "1B"): visible}) if "SSD: retries" in each.said] == [False]


def test_the_processor_of_a_modelled_machine_is_named_as_the_limit() -> None:
    series = [dataclasses.replace(make_found(c, float(c), io=50.0, proxy=95.0), is_modelled=True) for c in CONCURRENCY]
    (said,) = (each.why for each in statements({("hdd", "1B"): series}) if "HDD: throughput rises" in each.said)
    assert "the processor of proxy 95 % is full" in said


def a_picture(tmp_path: Path) -> Traced:
    """A trace of one packet there and one lost, exported, whose command began 5 ms before."""
    traced = Traced("Figure 15 <b>", tmp_path / "figure-15", "it took 1 s <b>", ("a finding",), is_picture=True)
    traced.folder.mkdir()
    traced.csv_path.mkdir()
    (traced.folder / "trace.json").write_text(json.dumps({"command": {"started_host_ns": 1_000_000}}))
    (traced.csv_path / "hops.csv").write_text(
        "kind,send_host,send_trace_ns,receive_host,receive_trace_ns\n"
        "syn,client,6000000,proxy,6500000\ndata,proxy,7000000,storage,\ndata,proxy,8000000,client,9000000\n"
    )
    return traced


def test_a_picture_is_an_arrow_for_each_packet(tmp_path: Path) -> None:
    traced = a_picture(tmp_path)
    picture = arrows.read_picture("t", traced.folder, traced.csv_path)
    assert [(each.kind, each.send_host, each.received_ns) for each in picture.arrows] == [
        ("syn", "client", 6_500_000), ("data", "proxy", 9_000_000)
    ]  # fmt: skip
    drawn = arrows.figure(picture)
    control, data = drawn.data
    assert (list(control.x), list(control.y)) == ([5.0, 5.5, None], [0, 1, None])
    assert list(data.x) == [7.0, 8.0, None]
    assert drawn.layout.annotations[0].text == "no packet yet: 5 ms"


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    series, traced = as_the_paper(), [a_picture(tmp_path)]
    figures = outcome.figures(series, traced)
    assert list(figures) == ["figure-03", "figure-06", "figure-09", "figure-12", "figure-15"]
    page = outcome.write_html(figures, statements(series), traced, tmp_path, "Document <000>").read_text("utf-8")
    assert "Document &lt;000&gt;" in page
    assert "Figure 3: 1B on HDD" in page and "Figure 12: use, 1B on SSD" in page
    assert "it took 1 s &lt;b&gt;" in page
    assert "<script src" not in page


def test_what_goes_into_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    series, traced, messages = as_the_paper(), [a_picture(tmp_path)], list[str]()
    made = outcome.figures(series, traced)
    file = outcome.publish(
        made, series, statements(series), traced, tmp_path / "d", ("tracer", "bench", "a b"), messages.append
    )
    text = file.read_text("utf-8")
    assert "`tracer bench 'a b'`" in text
    assert "| HDD: retries above 128 | 1B: first at 256 | as the paper |  |" in text
    assert "| at once | 1 | 2 |" in text and "- a finding" in text
    assert len(messages) == 1 and "no pictures as PNG" in messages[0]
    runs = [points.Point("small-1", ("w",), tmp_path), points.Point("large-1", ("--set", "x.sizes=c(64)MB"), tmp_path)]
    line = experiment_004.Line("small write", 1.5, 2.0, 3.0, 99.5, 0.5, 1.75, 1, (2.0, 4.0))
    text = experiment_004.publish([line], runs, tmp_path / "e", ("tracer", "x")).read_text("utf-8")
    assert "Medians of 1 rounds from 7 hosts of load, one of them" in text and "10 objects of 64 MB" in text
    assert "| small write | 1.50 | 0.5000 to 1.75 | 2.00 | 3 | 2 to 4 | 99.50 % |" in text


@pytest.mark.browser
def test_figures_become_pictures(tmp_path: Path) -> None:
    if not any(map(shutil.which, pictures.BROWSERS)):
        pytest.skip(f"no browser: none of {', '.join(pictures.BROWSERS)} (apt install chromium)")
    made = outcome.figures({("hdd", "1B"): [make_found(1, 1.0), make_found(2, 2.0)]}, [])
    messages: list[str] = []
    size = charts.WIDTH, charts.HEIGHT
    files = pictures.draw(made, tmp_path, messages.append)
    assert [file.name for file in files] == ["figure-03.png", "figure-09.png"]
    assert messages == []
    for file, times in zip(files, (1, 1), strict=True):
        content = file.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", content[16:24]) == (times * size[0], size[1])


def test_the_worst_point_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    broken, messages = [True], list[str]()

    def run(argv, **_) -> subprocess.CompletedProcess[str]:
        ran.append(argv)
        found = [
            {"severity": "warning", "kind": "unanswered_request", "text": "10 s"},
            {"severity": "warning", "kind": "clock_step", "text": "no matter"},
            {"severity": "info", "kind": "packet_loss", "text": "no matter"},
            {"severity": "notice", "kind": "server_error", "text": "503"},
            {"severity": "notice", "kind": "narrow_link", "text": "no matter"},
        ]
        parts = [{"label": "in swift-proxy", "duration_ns": 5, "uncertainty_ns": 0}]
        if "record" in argv and not broken:
            where = Path(argv[argv.index("-o") + 1])
            where.mkdir()
            (where / "trace.json").touch()
        said = json.dumps({"findings": found, "story": {"parts": parts}}) if "report" in argv else "all of it\n"
        return subprocess.CompletedProcess(argv, 0, said, "")

    monkeypatch.setattr(traces.cluster, "up", lambda *a, **k: True)
    monkeypatch.setattr(traces.cluster, "down", lambda *a, **k: True)
    monkeypatch.setattr(traces.subprocess, "run", run)
    todo = experiment_000.points(Plan(sizes=("1B",)), tmp_path)
    worst = traces.worst(as_the_paper(), todo)
    assert [point.name for point in worst] == ["hdd-1B-0512", "ssd-1B-2048"]
    assert traces.worst({("hdd", "1B"): [make_found(1, 1.0)]}, todo) == []
    shown = experiment_000.pictures(Plan(), tmp_path)
    (failed, *_) = traces.record(shown, [], tmp_path, messages.append)
    assert (failed.findings, messages[1]) == ((), "  no trace of it (it said nothing); the next time it is tried again")
    broken.clear()
    ran.clear()
    for _ in range(2):  # the second time nothing is done again
        made = traces.record(shown, worst, tmp_path, lambda line: None)
        names = [each.folder.name for each in made]
        assert names == ["figure-15", "figure-16", "trace-hdd-1B-0512", "trace-ssd-1B-2048"]
        assert {each.said for each in made} == {"all of it\n"}
        assert {tuple(each.parts_ns.items()) for each in made} == {(("in swift-proxy", 5),)}
        assert traces.accounts(made) == {"hdd": ("503", "10 s"), "ssd": ("503", "10 s")}
    assert [argv[3] for argv in ran] == ["record", "export", "report"] * 2 + ["record", "report"] * 2
    assert ran[6][-len(worst[0].argv) :] == list(worst[0].argv)


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(points.signal, "signal", lambda *_: None)
    monkeypatch.setattr(points.cluster, "up", lambda *a, **k: called.append("up"))
    monkeypatch.setattr(points.cluster, "down", lambda *a, **k: called.append("down"))

    def run(argv, **_) -> subprocess.CompletedProcess[str]:
        called.append(Path(argv[-1]).name)
        write_run(Path(argv[-1]))
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(points.subprocess, "run", run)
    todo = experiment_000.points(Plan(("hdd",), ("1B",), (1, 2, 4)), tmp_path)
    write_run(tmp_path / "hdd-1B-0001")
    write_run(tmp_path / "hdd-1B-0002", state="running")
    points.do(todo, tmp_path, lambda line: None)
    assert called == ["down", "up", "hdd-1B-0002", "down", "up", "hdd-1B-0004", "down"]
    assert len(list(tmp_path.glob("hdd-1B-0002.unfinished-*"))) == 1
    monkeypatch.setattr(
        points.subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 2, "", "a\nno luck\n")
    )
    shutil.rmtree(tmp_path / "hdd-1B-0004")
    with pytest.raises(RunError, match=r"hdd-1B-0004 did not end \(no luck\)"):
        points.do(todo, tmp_path, lambda line: None)


def test_document_004_is_cosbench_files_and_means(tmp_path: Path) -> None:
    made = experiment_004.points(experiment_004.Plan(runs_count=3, large_mb=64), tmp_path)
    assert [point.name for point in made] == ["small-1", "large-1", "small-2", "large-2", "small-3", "large-3"]
    assert all(point.on_drivers for point in made)
    for point in made[:2]:
        workload, _ = formats.load(Path(point.argv[0]))
        assert workload.source == "cosbench"
    assert "write.write.write.sizes=c(64)MB" in made[1].argv
    parts = [(10.0, 1.0, 5.0, 100.0), (900.0, 3.0, 7.0, 50.0), (20.0, 2.0, 6.0, 75.0)]
    line = experiment_004._median("small t", parts)
    assert (line.operations_per_s, line.megabytes_per_s, line.response_90_ms, line.success_percent) == (20, 2, 6, 75)
    assert (line.least_per_s, line.greatest_per_s, line.rounds_count) == (10, 900, 3)
    assert "900.00" in experiment_004.as_text([line])
    assert line.responses_90_ms == (5, 7)
    (rate, _, response), _ = charts_004.figures([line])["small"].data, charts_004.figures([])["large"]
    assert (rate.error_y.array[0], rate.error_y.arrayminus[0]) == (880, 10)
    assert (response.error_y.array[0], response.error_y.arrayminus[0]) == (0.001, 0.001)


def test_each_host_of_load_gets_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    shutil.copy(topology.find("paper-004"), tmp_path / "topology.toml")
    hosts = topology.load(tmp_path / "topology.toml").hosts
    status = cluster.ClusterStatus(
        *(True, str(tmp_path), "client", {"ST_AUTH": "a", "ST_USER": "u", "ST_KEY": "k"}),
        tuple(cluster.HostStatus(host.name, (host.address,), (), (), ("enter", host.name), 0) for host in hosts),
    )
    monkeypatch.setattr(drivers_004.cluster, "status", lambda _: status)

    @contextlib.contextmanager
    def server(argv: list[str], environment: dict[str, str]) -> Iterator[None]:
        assert len(environment[drivers_004.TOKEN_VARIABLE]) == 32
        ran.append(argv)
        yield

    def submit(argv: list[str], environment: dict[str, str]) -> None:
        ran.append(argv)
        (tmp_path / "small-1.controller" / "runs" / "20261126T1").mkdir(parents=True)

    monkeypatch.setattr(drivers_004, "_server", server)
    monkeypatch.setattr(drivers_004, "_submit", submit)
    drivers_004.run(tmp_path, ("w.xml",), tmp_path / "small-1")
    assert [argv[1] for argv in ran] == ["client", *(f"driver{n}" for n in range(2, 8)), "client", "client"]
    assert ran[7].count("--driver") == 7 and "10.77.0.17:18088" in ran[7]
    assert ran[8][-8:] == ["w.xml", "--auth", "a", "--user", "u", "--key", "k", "--wait"]
    assert (tmp_path / "small-1").is_dir()


@pytest.mark.parametrize(("free", "mb"), [(10**12, 1024), (30 * 10**9, 256), (10**9, 16), (0, 16)])
def test_large_objects_are_as_large_as_the_disk_allows(free: int, mb: int) -> None:
    assert experiment_004.largest(free) == mb
