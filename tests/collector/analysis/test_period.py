"""Traces of successive periods: each request is in one of them, whole, although its packets cross their edges."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from collector.analysis import AnalysisOptions, analyse, period
from collector.analysis.period import PeriodEdges, options_of_period
from collector.analysis.places import HerePlaces, Places, SharedPlaces
from collector.decode.sources import host_sources
from collector.reporting.report import build_report
from collector.reporting.scope_words import period_words
from collector.trace.model import TraceInfo
from collector.trace.reading import Trace
from testkit.netsim import EPOCH_NS, Clock, Network, NetworkPath, Station
from tests.collector.analysis.test_shared_places import PicklingEngine

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
SUBSCRIBED = Path(__file__).resolve().parents[2] / "golden" / "streams" / "redis-pubsub"
PERIOD_NS = 100_000_000
"""The clocks of the hosts below differ by more."""
OF_REQUESTS = {"exchanges": "exchange_id", "spans": "span_id"}


def cut_times(info: TraceInfo, count: int) -> list[tuple[int, int]]:
    """`count` periods of one length, from the first stamp of a trace to its last."""
    first = min(host.first_host_ns or 0 for host in info.hosts)
    last = max(host.last_host_ns or 0 for host in info.hosts)
    step_ns = (last - first) // count + 1
    return [(first + number * step_ns, first + (number + 1) * step_ns) for number in range(count)]


def frame(trace: Path, table: str) -> pl.DataFrame:
    found = pl.DataFrame(Trace(str(trace)).read(table))
    return found.cast({name: pl.String for name, kind in found.schema.items() if kind == pl.Categorical})


@pytest.mark.parametrize("shared", [False, True])
def test_periods_divide_the_requests_of_a_capture(tmp_path: Path, *, shared: bool) -> None:
    sources = host_sources([str(BUNDLED)])
    whole = analyse(sources, str(tmp_path / "whole"))
    periods = cut_times(whole, 4)
    for number, each in enumerate(periods):
        place = str(tmp_path / f"{number}")
        places: Places = SharedPlaces(place, tmp_path, PicklingEngine()) if shared else HerePlaces(place)
        info = analyse(sources, place, options=options_of_period(AnalysisOptions(), each), places=places)
        assert info.period == Trace(place).info().period == each
    for table, key in OF_REQUESTS.items():
        parts = [frame(tmp_path / f"{number}", table) for number in range(len(periods))]
        assert sum(len(part) > 0 for part in parts) > 1, "one period has all"
        assert pl.concat(parts).sort(key).equals(frame(tmp_path / "whole", table).sort(key))


def test_a_call_is_in_the_period_of_its_root(tmp_path: Path) -> None:
    sources = host_sources([str(BUNDLED)])
    analyse(sources, str(tmp_path / "whole"))
    spans = frame(tmp_path / "whole", "spans")
    root = spans.filter(depth=0).sort("start_trace_ns").row(-1, named=True)
    calls = spans.filter(trace_id=root["trace_id"])
    edge = (root["start_trace_ns"] + calls.filter(depth=1)["start_trace_ns"].min()) // 2
    assert root["start_trace_ns"] + 100_000 < edge, "clocks differ by less"
    for name, each in (("before", (edge - 10**9, edge)), ("after", (edge, edge + 10**9))):
        analyse(sources, str(tmp_path / name), options=options_of_period(AnalysisOptions(), each))
    assert len(frame(tmp_path / "before", "spans").filter(trace_id=root["trace_id"])) == len(calls)
    assert not len(frame(tmp_path / "after", "spans").filter(trace_id=root["trace_id"]))


def test_what_lies_beyond_the_margins_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period, "MARGIN_NS", 90_000_000)
    sources = host_sources([str(BUNDLED)])
    whole = analyse(sources, str(tmp_path / "whole"))
    periods = cut_times(whole, 5)
    ids, packets = [], []
    for number, each in enumerate(periods):
        info = analyse(sources, str(tmp_path / f"{number}"), options=options_of_period(AnalysisOptions(), each))
        packets.append(sum(host.packets_count for host in info.hosts))
        exchanges = frame(tmp_path / f"{number}", "exchanges")
        ids += exchanges.select("client_host", "server_host", "method", "target", "transaction_id").rows()
    all_rows = frame(tmp_path / "whole", "exchanges")
    expected = all_rows.select("client_host", "server_host", "method", "target", "transaction_id").rows()
    assert min(packets) < sum(host.packets_count for host in whole.hosts)
    assert sorted(ids, key=str) == sorted(expected, key=str)


def test_clocks_that_differ_by_more_than_a_period(tmp_path: Path) -> None:
    client_clock, server_clock = Clock(-70_000_000), Clock(45_000_000, skew_ppb=20_000)
    stations = [Station("client", "10.0.0.1", client_clock), Station("server", "10.0.0.2", server_clock)]
    net = Network(stations, NetworkPath(), 7)
    for number in range(40):
        net.connect("client", "server", 40_000 + number, 3_000, 9_000, at_ns=number * 10_000_000)
    net.run()
    sources = host_sources(list(map(str, net.write(tmp_path))))
    begins = []
    for number in range(5):
        from_ns = EPOCH_NS + (number - 1) * PERIOD_NS
        options = options_of_period(AnalysisOptions(), (from_ns, from_ns + PERIOD_NS))
        analyse(sources, str(tmp_path / "part"), options=options)
        found = frame(tmp_path / "part", "connections").join(frame(tmp_path / "part", "exchanges"), on="connection_id")
        begins += [(port, from_ns) for port in found["client_port"].to_list()]
        shutil.rmtree(tmp_path / "part")
    assert sorted(port for port, _ in begins) == list(range(40_000, 40_040))
    for port, from_ns in begins:  # by the client's own clock, which stamps when a request begins
        opened_ns = client_clock.read((port - 40_000) * 10_000_000)
        assert from_ns <= opened_ns + 1_000_000 and opened_ns < from_ns + PERIOD_NS


def test_a_silence_is_in_the_period_of_its_request(tmp_path: Path) -> None:
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(loss=0.05), 1)
    for number in range(20):
        net.connect("client", "server", 40_000 + number, 2_000, 60_000, at_ns=number * 20_000_000)
    net.run()
    sources, found = host_sources(list(map(str, net.write(tmp_path)))), []
    whole = analyse(sources, str(tmp_path / "whole"))
    for number, each in enumerate(cut_times(whole, 6)):
        analyse(sources, str(tmp_path / f"{number}"), options=options_of_period(AnalysisOptions(), each))
        part, own = (frame(tmp_path / f"{number}", table) for table in ("silences", "exchanges"))
        assert set(part["exchange_id"]) <= set(own["exchange_id"])
        found.append(part)
    assert sum(len(part) > 0 for part in found) > 1, "one period has all"
    assert pl.concat(found).sort("exchange_id").equals(frame(tmp_path / "whole", "silences").sort("exchange_id"))


def of_two_periods(captures: list[Path], place: Path, table: str) -> list[pl.DataFrame]:
    """A table of two traces of captures: of the period that they fill, and of one a second later, in whose margin
    they are."""
    sources = host_sources(list(map(str, captures)))
    (within,) = cut_times(analyse(sources, str(place / "whole")), 1)
    found = []
    for number, each in enumerate((within, (within[1] + 10**9, within[1] + 2 * 10**9))):
        analyse(sources, str(place / f"{number}"), options=options_of_period(AnalysisOptions(), each))
        found.append(frame(place / f"{number}", table))
    return found


def test_a_finding_is_in_the_periods_that_it_overlaps(tmp_path: Path) -> None:
    net = Network([Station("client", "10.0.0.1"), Station("server", "10.0.0.2")], NetworkPath(reorder=0.1), 1)
    for number in range(10):
        net.connect("client", "server", 40_000 + number, 2_000, 60_000, at_ns=number * 20_000_000)
    net.run()
    within, after = of_two_periods(net.write(tmp_path), tmp_path, "findings")
    assert within["kind"].to_list() == ["reordering"]
    assert after.is_empty()


def test_a_stream_is_in_the_periods_that_it_overlaps(tmp_path: Path) -> None:
    within, after = of_two_periods(sorted(SUBSCRIBED.glob("*.pcap.gz")), tmp_path, "streams")
    assert len(within) == 1
    assert after.is_empty()


def test_intervals_that_overlap_a_period() -> None:
    edges = PeriodEdges({}, np.array([[100, 200]]))
    begin = pa.chunked_array([[None, 10, 10, 10, 150, 199, 200, None, 99]], pa.int64())
    end = pa.chunked_array([[None, 99, 100, 500, 160, 400, 300, 120, None]], pa.int64())
    assert edges.overlap(begin, end).to_pylist() == [True, False, True, True, True, True, False, True, False]


def test_a_report_says_of_which_period_it_is(tmp_path: Path) -> None:
    hour_ns = 3_600 * 10**9
    at_ns = min(host.first_host_ns or 0 for host in analyse(host_sources([str(BUNDLED)]), str(tmp_path / "all")).hosts)
    options = options_of_period(AnalysisOptions(), (at_ns // hour_ns * hour_ns, (at_ns // hour_ns + 1) * hour_ns))
    analyse(host_sources([str(BUNDLED)]), str(tmp_path / "part"), options=options)
    assert build_report(str(tmp_path / "all")).info.period is None
    assert period_words(build_report(str(tmp_path / "part")).info.period).startswith("requests that began from 20")


def test_words_of_a_period() -> None:
    begin, day = 1_795_791_600 * 10**9, 86_400 * 10**9
    assert period_words((begin, begin + day // 24)).startswith(
        "requests that began from 2026-11-27 15:00:00 to 16:00:00 UTC; packets"
    )
    assert " to 2026-11-28 15:00:00 UTC" in period_words((begin, begin + day))
    assert period_words(None) == ""
