"""A time of captures: only its packets are in the trace, nothing at its edges is lost, and little else is read."""

from pathlib import Path

import polars as pl
import pytest

from collector.analysis import AnalysisOptions, analyse
from collector.decode import time_range
from collector.decode.host_capture import HostSource
from collector.decode.time_range import EDGE_NS, LAST_NS, TimeRange, narrow_sources, parse_range
from collector.trace.reading import Trace
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.live_segments import write_segments
from tracer.errors import InputError

SECOND = 1_000_000_000
MINUTE_OF = 1_795_701_600 * SECOND
"""2026-11-26T14:00:00 UTC."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None), None),
        (("2026-11-26T14:00:00", None), (MINUTE_OF, LAST_NS)),
        ((None, "2026-11-26T14:00:00.25Z"), (0, MINUTE_OF + SECOND // 4)),
        (("2026-11-26 15:00:00+01:00", "2026-11-26T14:00:01"), (MINUTE_OF, MINUTE_OF + SECOND)),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(
    given: tuple[str | None, str | None], expected: TimeRange | None
) -> None:
    assert parse_range(*given) == expected


@pytest.mark.parametrize("given", [("noon", None), ("2026-11-26T14:00:01", "2026-11-26T14:00:00")])
def test_what_is_no_time(given: tuple[str | None, str | None]) -> None:
    with pytest.raises(InputError):
        parse_range(*given)


def sources_in(folder: Path) -> list[HostSource]:
    """Ten seconds of two hosts, one of them a second ahead, in segments of half a second."""
    stations = [Station("client", "10.0.0.1"), Station("server", "10.0.0.2", Clock(SECOND))]
    net = Network(stations, NetworkPath(delay_ns=1_000_000, jitter_ns=100_000, loss=0.01), 7)
    for number in range(100):
        net.connect("client", "server", 40_000 + number, 2_000, 20_000, at_ns=number * SECOND // 10)
    net.run()
    cuts = [number * SECOND // 2 for number in range(1, 20)]
    return [HostSource(host.name, tuple(write_segments(net, folder, host.name, cuts))) for host in stations]


def test_a_time_is_read_alone_and_its_edges_are_no_loss(tmp_path: Path) -> None:
    sources = sources_in(tmp_path)
    analyse(sources, str(tmp_path / "all"), options=AnalysisOptions(workers=1))
    start_ns = min(host.first_host_ns or 0 for host in Trace(str(tmp_path / "all")).info().hosts)
    wanted = (start_ns + 5 * SECOND, start_ns + 7 * SECOND)
    analyse(sources, str(tmp_path / "part"), options=AnalysisOptions(workers=1, wanted=wanted, edge_ns=EDGE_NS))
    info = Trace(str(tmp_path / "part")).info()
    for host in info.hosts:
        assert wanted[0] <= (host.first_host_ns or 0) < (host.last_host_ns or 0) <= wanted[1]
        assert host.packets_count == host.events_count > 100
        assert len(host.files) < 14
    assert "outside_time" not in {counter.name for counter in info.counters}
    states = [hops_of(tmp_path / name) for name in ("all", "part")]
    assert set(states[1]["state"]) >= {"matched", "outside_window"}
    lost = [set(frame.filter(pl.col("state") == "lost").rows()) for frame in states]
    assert lost[1] < lost[0]
    assert lost[1]


def hops_of(trace: Path) -> pl.DataFrame:
    columns = ["state", "send_host", "send_host_ns"]
    return pl.DataFrame(Trace(str(trace)).read("hops", columns)).with_columns(pl.col(pl.Categorical).cast(pl.String))


def test_few_segments_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source, _) = sources_in(tmp_path)
    opened = []
    whole = time_range._begin_ns
    begins = {file: whole(file) or 0 for file in source.files}
    monkeypatch.setattr(time_range, "_begin_ns", lambda file: opened.append(file) or begins[file])
    (found,) = narrow_sources([source], (begins[source.files[10]], begins[source.files[11]]))
    assert set(source.files[8:14]) <= set(found.files)
    assert len(found.files) <= 12
    assert len(opened) <= 10
    loose = HostSource("client", tuple(file.rename(file.with_suffix(".pcap")) for file in source.files))
    assert narrow_sources([loose], (0, 1)) == [loose], "which of other files lie outside is not known"


def test_nothing_in_that_time_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no TCP packet in that time.*; give other times"):
        analyse(sources_in(tmp_path), str(tmp_path / "t"), options=AnalysisOptions(wanted=(1, 2)))
