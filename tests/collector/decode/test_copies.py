"""A capture that holds each packet twice is as if it held each once; packets sent again are never taken for copies."""

import struct
from pathlib import Path

import polars as pl
import pytest

from collector.analysis import analyse
from collector.decode.copies import copied_packets
from collector.decode.merged_captures import Sighted
from collector.decode.sources import host_sources
from collector.reporting.report import Report, build_report
from collector.trace.reading import Trace
from testkit.netsim import Network, NetworkPath, Station
from tests.helpers.troubles import troubles_of_captures

SECOND, MS, US = 1_000_000_000, 1_000_000, 1_000
CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
FILE_HEADER_LEN, RECORD_HEADER = 24, struct.Struct("<IIII")
PASSED = [(1, 2, 0, 1), (2, 1, 0, 1)]


def write_captures(folder: Path, ip_id: str, timestamps: bool, loss: float) -> list[Path]:
    """Of a client and a server whose packets are cut to one segment."""
    stations = [
        Station(name, address, tso=False, gro=False, ip_id=ip_id, timestamps=timestamps)
        for name, address in (("client", CLIENT), ("server", SERVER))
    ]
    net = Network(stations, NetworkPath(delay_ns=60 * US, jitter_ns=5 * US, loss=loss), 3)
    for number in range(12):
        net.connect("client", "server", 40_000 + number, 300, 90_000, at_ns=number * SECOND // 40)
    net.run()
    folder.mkdir()
    return net.write(folder)


def mirror_capture(path: Path, apart_ns: int = 3 * US) -> Path:
    """The capture as a mirror port of both ports makes it."""
    body, at, packets = path.read_bytes(), FILE_HEADER_LEN, []
    while at < len(body):
        seconds, ns, kept, length = RECORD_HEADER.unpack_from(body, at)
        data = body[at + RECORD_HEADER.size : at + RECORD_HEADER.size + kept]
        packets += [(seconds * SECOND + ns + later, length, data) for later in (0, apart_ns)]
        at += RECORD_HEADER.size + kept
    records = (
        RECORD_HEADER.pack(*divmod(stamp, SECOND), len(data), length) + data for stamp, length, data in sorted(packets)
    )
    place = path.parent / "mirrored" / path.name
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(body[:FILE_HEADER_LEN] + b"".join(records))
    return place


def report_of(tmp_path: Path, name: str, *paths: Path) -> Report:
    trace = str(tmp_path / f"trace-{name}")
    analyse(host_sources([str(path) for path in paths]), trace)
    return build_report(trace)


def hops(report: Report) -> pl.DataFrame:
    """All but the numbers of frames."""
    known = pl.DataFrame(Trace(report.url).read("hops")).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return known.drop("send_frame", "receive_frame")


@pytest.mark.parametrize("ip_id", ["counter", "zero"])
@pytest.mark.parametrize("timestamps", [True, False])
@pytest.mark.parametrize("loss", [0.0, 0.03])
def test_a_mirror_of_both_ports_is_as_one_of_a_single_port(
    tmp_path: Path, ip_id: str, timestamps: bool, loss: float
) -> None:
    client, server = write_captures(tmp_path / "net", ip_id, timestamps, loss)
    once = report_of(tmp_path, "once", client, server)
    twice = report_of(tmp_path, "twice", client, mirror_capture(server))
    known = [hops(report) for report in (once, twice)]
    if ip_id == "zero" and loss:  # which of several equal ACKs within microseconds is whose copy cannot be known
        known = [all_hops.filter(pl.col("kind") != "ack").drop("likely_error_ns") for all_hops in known]
    assert known[0].equals(known[1])
    assert len(Trace(once.url).read("messages")) == len(Trace(twice.url).read("messages"))
    findings = [Trace(report.url).read("findings")["kind"].to_pylist() for report in (once, twice)]
    assert findings[0] == findings[1]
    (counter,) = troubles_of_captures(twice)
    assert (counter.host, counter.name, counter.count) == ("server", "copied_packets", once.info.hosts[1].events_count)
    assert "server.pcap holds nearly every packet twice, 3.0 µs apart" in counter.remedy


@pytest.mark.parametrize("ip_id", ["counter", "zero"])
@pytest.mark.parametrize("timestamps", [True, False])
def test_nothing_of_a_lossy_link_is_taken_for_a_copy(tmp_path: Path, ip_id: str, timestamps: bool) -> None:
    report = report_of(tmp_path, "lossy", *write_captures(tmp_path / "net", ip_id, timestamps, 0.1))
    assert not troubles_of_captures(report)
    events = pl.DataFrame(Trace(report.url).read("events"))
    assert len(events) == sum(host.events_count for host in report.info.hosts)


def packets(count: int, gap_ns: int | None, payload_len: int = 100, way: tuple[int, int] = (1, 2)) -> list[Sighted]:
    """So many packets, each seen again after a while."""
    later = [] if gap_ns is None else [gap_ns]
    return [
        (*way, payload_len, [(at, 0, 0), *((at + gap, 0, 0) for gap in later)])
        for at in range(0, count * SECOND, SECOND)
    ]


@pytest.mark.parametrize(
    ("seen", "ways"),
    [
        (packets(20, 3 * US), {(1, 2), (2, 1)}),
        (packets(20, 3 * US) + packets(20, None, way=(2, 1)), {(1, 2)}),
        (packets(18, 3 * US) + packets(15, None), {(1, 2), (2, 1)}),
        (packets(3, 3 * US) + packets(20, None), set()),
        (packets(40, 3 * US, payload_len=0) + packets(10, None), set()),
        (packets(20, 300 * US) + packets(20, 2 * US, way=(2, 1)), set()),
        (packets(20, 20 * MS), set()),
    ],
    ids=[
        "all of one way, and the few of the other",
        "one way only",
        "a full mirror port",
        "some sent again at once",
        "repeated ACKs of one header",
        "captures of two hosts, merged",
        "sent again",
    ],
)
def test_what_is_copied_is_judged_by_nearly_all_packets(seen: list[Sighted], ways: set[tuple[int, int]]) -> None:
    found = copied_packets(seen, PASSED)
    assert {(src, dst) for src, dst, *_ in (found.ways if found else ())} == ways
