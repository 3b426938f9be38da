"""A series: traces of successive periods, and summaries that outlive them."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

from collector.analysis import AnalysisOptions
from collector.commands import replay, report
from collector.decode.host_capture import HostSource
from collector.decode.sources import host_sources
from collector.reporting.report import build_report
from collector.reporting.request_rows import RequestRows
from collector.requests.spans import LEDGER_COLUMNS
from collector.series import series as series_module
from collector.series.making import PeriodMaker, captured_periods, period_after
from collector.series.overview import build_overview, slow_minutes
from collector.series.series import Entry, Period, Series, is_series, period_at
from collector.series.summaries import (
    BUCKETS_PER_OCTAVE,
    CLASS,
    MINUTE_NS,
    MOST_CLASSES,
    OTHER,
    buckets_of,
    make_summary,
    merge_requests,
    percentiles,
    read_summary,
    request_minutes,
)
from collector.trace.reading import Trace
from testkit import capture_files
from testkit.netsim import EPOCH_NS, Clock, Network, NetworkPath, Station
from tests.helpers import tls_captures
from tracer.errors import InputError, TracerError

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
MINUTES = 25
HOUR_NS = 60 * MINUTE_NS


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 minutes of a client and a server, 5 requests in each; those that begin at a full minute cross an edge."""
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", Clock(300_000_000, 10_000))]
    net = Network(stations, NetworkPath(), 5)
    for number in range(MINUTES * 5):
        size = 200_000 if number // 5 == 12 else 2_000
        at_ns = number // 5 * MINUTE_NS + number % 5 * 12_000_000_000 - (number % 5 == 0) * 100_000
        net.connect("client", "server", 20_000 + number, 500, size, at_ns=max(0, at_ns))
    net.run(10**15)
    folder = tmp_path_factory.mktemp("captures")
    net.write(folder)
    return folder


@pytest.fixture(scope="module")
def series_place(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("series") / "series"
    result = CliRunner().invoke(replay.command, ["--every", "10m", "--quiet", "-o", str(place), str(captures)])
    assert result.exit_code == 0, result.output
    assert f"series: {place}" in result.output
    return place


def test_each_request_is_in_one_period_and_in_one_minute(series_place: Path, captures: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(replay.command, ["--quiet", "-o", str(tmp_path / "t"), str(captures)]).exit_code == 0
    whole = build_report(str(tmp_path / "t"))
    overview = build_overview(Series(series_place))
    assert len(overview.entries) == 3
    assert overview.requests_count == whole.requests.count == MINUTES * 5
    assert [line.requests_count for line in overview.lines] == [51, 50, 24]
    assert sum(line.hops_count for line in overview.lines) == sum(whole.hop_states.values())
    minutes = pl.concat(
        [read_summary(Series(series_place).summary_place(entry.period), "requests") for entry in overview.entries]
    ).filter("is_client")
    # those of a full minute began 0.1 ms before it, but for the very first
    assert minutes["requests_count"].to_list() == [6, *[5] * (MINUTES - 2), 4]


@pytest.mark.parametrize("name", ["bench-2-puts", "swift-upload-1B"])
def test_a_summary_says_what_the_report_says(name: str, tmp_path: Path) -> None:
    place = str(tmp_path / "trace")
    assert CliRunner().invoke(replay.command, ["--quiet", "-o", place, str(CAPTURES / name)]).exit_code == 0
    report_of_trace, trace = build_report(place), Trace(place)
    requests, packets, findings = make_summary(trace, 0, 1 << 62)
    clients = requests.filter("is_client")
    assert clients["requests_count"].sum() == report_of_trace.requests.count
    assert requests["requests_count"].sum() == report_of_trace.requests.exchanges_count
    assert clients["failed_count"].sum() == report_of_trace.requests.failed_count
    assert clients["unknown_count"].sum() == report_of_trace.requests.unknown_count
    assert sum(clients[column].sum() for column in LEDGER_COLUMNS) == pytest.approx(
        (report_of_trace.requests.mean_ns or 0) * report_of_trace.requests.count, abs=report_of_trace.requests.count
    )
    assert packets["hops_count"].sum() == trace.rows_count("hops")
    assert packets["bytes"].sum() > 0
    assert len(findings) == trace.rows_count("findings")


def test_percentiles_are_within_a_bucket() -> None:
    random = np.random.default_rng(4)
    durations = np.exp(random.normal(14, 2, 5_000)).astype(np.int64) + 1
    buckets, counts = np.unique(buckets_of(durations), return_counts=True)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = np.sort(durations)[int(np.ceil(share * len(durations))) - 1]
        (found,) = percentiles(pl.DataFrame({"duration_buckets": [buckets], "duration_counts": [counts]}), share)
        assert found == pytest.approx(exact, rel=2 ** (0.5 / BUCKETS_PER_OCTAVE) - 1 + 1e-9)
    none = pl.Series([[]], dtype=pl.List(pl.UInt16))
    assert percentiles(pl.DataFrame({"duration_buckets": none, "duration_counts": none}), 0.5) == [None]


def requests_table(rows: list[tuple[int, str, int, list[int], list[int]]]) -> pl.DataFrame:
    """Rows of `requests`: minute, method, count, buckets, counts."""
    some = [
        {
            "minute_trace_ns": minute * MINUTE_NS, "server_host": "s", "service": "web", "protocol": "http/1.1",
            "method": method, "operation": "", "is_client": True, "requests_count": count, "failed_count": 1,
            "abandoned_count": 0, "unknown_count": 0, "request_bytes": 1, "response_bytes": 2,
            "duration_buckets": buckets, "duration_counts": counts,
        } | dict.fromkeys(LEDGER_COLUMNS, 5)
        for minute, method, count, buckets, counts in rows
    ]  # fmt: skip
    lists = {"duration_buckets": pl.List(pl.UInt16), "duration_counts": pl.List(pl.UInt32)}
    return pl.DataFrame(some, schema_overrides=lists)


def test_histograms_add_up() -> None:
    rows = requests_table([(0, "GET", 3, [10, 12], [1, 2]), (1, "GET", 2, [12], [2]), (1, "PUT", 0, [], [])])
    merged = merge_requests(rows, ["method"]).sort("method")
    assert merged["requests_count"].to_list() == [5, 0]
    assert merged["failed_count"].to_list() == [2, 1]
    assert merged.row(0, named=True)["duration_buckets"] == [10, 12]
    assert merged.row(0, named=True)["duration_counts"] == [1, 4]
    assert percentiles(merged, 0.2) == [pytest.approx(2 ** (10.5 / 16)), None]
    assert merged[LEDGER_COLUMNS[0]].to_list() == [10, 5]


def test_slow_minutes_are_those_of_enough_requests() -> None:
    usual = [(minute, "GET", 50, [320], [50]) for minute in range(10)]
    slow = [(10, "GET", 50, [320, 400], [40, 10]), (11, "GET", 3, [420], [3]), (12, "PUT", 90, [500], [90])]
    found = slow_minutes(requests_table([*usual, *slow]))
    assert [(each.minute_ns // MINUTE_NS, each.words) for each in found] == [(10, "GET at web on s")]
    assert found[0].p99_ns / found[0].usual_p99_ns == pytest.approx(2 ** (80 / 16), rel=1e-3)


@pytest.fixture
def rows_of_many_classes(tmp_path: Path) -> RequestRows:
    """The requests of a trace 300 times, each time with another method."""
    place = str(tmp_path / "trace")
    assert CliRunner().invoke(replay.command, ["--quiet", "-o", place, str(CAPTURES / "bench-2-puts")]).exit_code == 0
    trace = Trace(place)
    exchanges, spans = trace.read("exchanges"), trace.read("spans")
    many, also = [], []
    for number in range(300):
        further = pl.col("^(exchange|span|trace|parent_span)_id$") + 1000 * number
        method = pl.lit(f"M{number:04}").cast(pl.Categorical)
        many.append(pl.DataFrame(exchanges).with_columns(further, method=method))
        also.append(pl.DataFrame(spans).with_columns(further))
    return RequestRows.of_tables(pl.concat(also).to_arrow(), pl.concat(many).to_arrow())


def test_of_very_many_classes_the_rare_ones_are_one(rows_of_many_classes: RequestRows) -> None:
    found = request_minutes(rows_of_many_classes)
    assert found.select(CLASS).n_unique() <= MOST_CLASSES
    assert found["requests_count"].sum() == len(rows_of_many_classes.columns("exchange_id"))
    assert found.filter(pl.col("service") == OTHER)["requests_count"].sum() > 0


@pytest.mark.parametrize("rows_count", [37, 1000])
def test_a_summary_is_the_same_whatever_rows_are_read_at_once(
    rows_count: int, rows_of_many_classes: RequestRows
) -> None:
    def read_parts(name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        table = rows_of_many_classes.read(name, columns)
        return (table.slice(begin, rows_count) for begin in range(0, table.num_rows, rows_count))

    found = request_minutes(replace(rows_of_many_classes, read_parts=read_parts))
    assert found.equals(request_minutes(rows_of_many_classes))
    assert sum(found.filter("is_client")[name].sum() for name in LEDGER_COLUMNS) > 0


def copy_of(series_place: Path, place: Path) -> Series:
    shutil.copytree(series_place, place)
    return Series(place, clock=lambda: 77)


def test_a_trace_that_is_removed_leaves_its_summary(series_place: Path, tmp_path: Path) -> None:
    series = copy_of(series_place, tmp_path / "s")
    before = build_overview(series)
    middle = series.entries()[1]
    series.remove_trace(middle.period)
    series.remove_trace(middle.period)
    assert not Path(series.trace_place(middle.period)).exists()
    assert series.entries()[1] == Entry(middle.from_ns, middle.to_ns, middle.made_ns, removed_ns=77)
    after = build_overview(series)
    assert after.classes == before.classes
    assert [line.requests_count for line in after.lines] == [line.requests_count for line in before.lines]
    text = CliRunner().invoke(report.command, [str(series.place)]).output
    assert "1 of these have their summaries only" in text
    assert text.count("summary only") == 1


def test_a_trace_that_somebody_removes_counts_as_removed(series_place: Path, tmp_path: Path) -> None:
    series = copy_of(series_place, tmp_path / "s")
    first = series.entries()[0]
    assert first.has_trace
    shutil.rmtree(series.trace_place(first.period))
    assert [entry.has_trace for entry in series.entries()] == [False, True, True]
    assert build_overview(series).requests_count == MINUTES * 5


def test_a_series_goes_on_where_it_ended(series_place: Path, captures: Path, tmp_path: Path) -> None:
    series = copy_of(series_place, tmp_path / "s")
    entries = series.entries()
    last = entries[-1]
    document = json.loads((series.place / "series.json").read_text())
    document["periods"].pop()
    (series.place / "series.json").write_text(json.dumps(document))  # as if killed before the entry
    result = CliRunner().invoke(replay.command, ["--every", "10m", "-o", str(series.place), str(captures)])
    assert result.exit_code == 0, result.output
    assert result.output.count("trace made") == 3, "the last one, and the two before, which may have been cut short"
    assert [entry.period for entry in series.entries()] == [*(entry.period for entry in entries[:-1]), last.period]


def fails_at(step: int) -> Callable[..., None]:
    """Stands for a function of which the call number `step` fails."""
    calls = iter(range(1_000))

    def fail(*_: object, **__: object) -> None:
        if next(calls) == step:
            raise KeyboardInterrupt

    return fail


@pytest.mark.parametrize("name", ["write_summary", "write_durably"])
def test_a_writer_that_is_ended_leaves_a_series_that_opens(
    name: str, series_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = copy_of(series_place, tmp_path / "s")
    period = series.entries()[0].period
    with monkeypatch.context() as patch:
        patch.setattr(series_module, name, fails_at(0))
        with pytest.raises(KeyboardInterrupt):
            series.add(period)
        with pytest.raises(KeyboardInterrupt):
            patch.setattr(series_module, "write_durably", fails_at(0))
            series.remove_trace(period)
    assert build_overview(series).requests_count == MINUTES * 5
    assert series.add(period).made_ns == 77


def test_what_a_killed_writer_did_not_remove_is_removed(
    series_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = copy_of(series_place, tmp_path / "s")
    period = series.entries()[0].period
    with monkeypatch.context() as patch:
        patch.setattr(series_module.shutil, "rmtree", fails_at(0))
        with pytest.raises(KeyboardInterrupt):
            series.remove_trace(period)
    assert Path(series.trace_place(period)).is_dir()
    partial = [folder / ".20270115T080000Z.0123abcd.partial" for folder in (series.place, series.place / "summaries")]
    for folder in partial:
        folder.mkdir()
    series.remove_leftovers()
    assert not Path(series.trace_place(period)).exists()
    assert not any(folder.exists() for folder in partial)
    assert Path(series.trace_place(series.entries()[1].period)).is_dir()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"format_version": 1, "period_ns": 7, "periods": []}', "does not divide a day"),
        (b'{"format_version": 1, "period_ns": 600000000000, "periods": [{"from": 1}]}', "is damaged"),
        (b'{"format_version": 9, "period_ns": 600000000000, "periods": []}', "another version"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_a_damaged_series_is_one_line(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "series.json").write_bytes(content)
    assert is_series(tmp_path)
    with pytest.raises(InputError, match=words):
        build_overview(Series(tmp_path))


def test_a_damaged_summary_is_one_line(series_place: Path, tmp_path: Path) -> None:
    series = copy_of(series_place, tmp_path / "s")
    (series.summary_place(series.entries()[0].period) / "requests.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        build_overview(series)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--every", "7m"], "does not divide a day"),
        (["--every", "30s"], "is no length of a period"),
        (["--every", "10m", "--from", "2026-01-01"], "leave out --from and --to"),
        (["--every", "1h", "-o", "s3://a/b"], "a series lies in a folder"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: list[str], words: str, captures: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(replay.command, ["-o", str(tmp_path / "s"), *arguments, str(captures)])
    assert isinstance(result.exception, TracerError)
    assert words in f"{result.exception}; {result.exception.next_step}"


def test_other_lengths_and_other_folders_are_refused(series_place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its periods have 600 s"):
        Series.make(series_place, HOUR_NS)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="no series"):
        Series.make(tmp_path, HOUR_NS)
    with pytest.raises(InputError, match="is a series of traces"):
        build_report(str(series_place))
    for option in (["--html", str(tmp_path / "x.html")], ["--compare", str(series_place)]):
        assert isinstance(CliRunner().invoke(report.command, [str(series_place), *option]).exception, InputError)


def test_a_report_as_json(series_place: Path) -> None:
    found = json.loads(CliRunner().invoke(report.command, ["--json", str(series_place)]).output)
    assert found["requests_count"] == MINUTES * 5
    assert len(found["lines"]) == len(found["entries"]) == 3


def test_periods_of_captures(captures: Path) -> None:
    assert captured_periods(host_sources([str(captures)]), 10 * MINUTE_NS) == [
        Period(EPOCH_NS + number * 10 * MINUTE_NS, EPOCH_NS + (number + 1) * 10 * MINUTE_NS) for number in range(3)
    ]
    assert period_at(EPOCH_NS, HOUR_NS).name == "20270115T080000Z"


def segments_with_packets_at(folder: Path, *seconds: int) -> list[Path]:
    """An agent's segments of a packet each."""
    packet = tls_captures.in_the_clear([])[0][2]
    files = []
    for number, at in enumerate(seconds, 1):
        files.append(folder / f"web-{number:06}.pcapng")
        files[-1].write_bytes(capture_files.pcap([(at * 10**9, packet)]))
    return files


def test_years_without_a_packet_are_passed_over(tmp_path: Path) -> None:
    now, hour = EPOCH_NS // 10**9, 3_600
    files = segments_with_packets_at(tmp_path, 5_000, now + 10, now + 2 * hour, now + 5 * hour)
    found = captured_periods([HostSource("web", tuple(files))], HOUR_NS)
    assert found[0] == Period(HOUR_NS, 2 * HOUR_NS)
    assert len(found) < 40, "a day before the first one of today"
    begins = {period.from_ns for period in found}
    assert begins >= {EPOCH_NS, EPOCH_NS + 2 * HOUR_NS, EPOCH_NS + 5 * HOUR_NS}
    assert period_after(Period(EPOCH_NS, EPOCH_NS + HOUR_NS), [files], HOUR_NS).from_ns == EPOCH_NS + HOUR_NS
    (tmp_path / "plain.pcap").write_bytes(files[0].read_bytes())
    plain = captured_periods([HostSource("web", (tmp_path / "plain.pcap",))], HOUR_NS)
    assert plain == [Period(HOUR_NS, 2 * HOUR_NS)]


def test_a_trace_that_could_not_be_noted_is_made_again_from_the_same_state(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of connections goes on only with the note."""
    series, sources = Series.make(tmp_path / "s", 10 * MINUTE_NS), host_sources([str(captures)])
    maker, period = PeriodMaker(series, AnalysisOptions()), period_at(EPOCH_NS, 10 * MINUTE_NS)
    with monkeypatch.context() as patch:
        patch.setattr(series_module, "write_summary", fails_at(0))
        with pytest.raises(KeyboardInterrupt):
            maker.make(period, sources)
    assert maker._carried._following == {}
    assert maker.make(period, sources) is not None
    assert maker._carried._following.keys() == {"client", "server"}


def test_many_periods_are_opened_quickly_enough(tmp_path: Path) -> None:
    series = Series.make(tmp_path / "s", HOUR_NS)
    document = json.loads((series.place / "series.json").read_text())
    document["periods"] = [
        {"from_ns": number * HOUR_NS, "to_ns": (number + 1) * HOUR_NS, "made_ns": 1, "problem": "none"}
        for number in range(10_000)
    ]
    (series.place / "series.json").write_text(json.dumps(document))
    assert len(build_overview(series).lines) <= 48
    assert build_overview(series).lines[0].problems == ("none",)
