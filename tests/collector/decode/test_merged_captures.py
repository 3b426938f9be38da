"""Captures of several hosts in one file: as if given apart where interfaces show it, and else a plain sentence."""

import struct
from pathlib import Path

import polars as pl
import pytest

from collector.analysis import analyse
from collector.capture_files.records import Direction
from collector.decode.merged_captures import Sighted, interfaces_are_hosts, is_twice
from collector.decode.sources import host_sources
from collector.reporting.report import Report, build_report
from collector.trace.reading import Trace
from testkit import capture_files as files
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.troubles import troubles_of_captures

SECOND = 1_000_000_000
CLIENT, SERVER = "10.0.0.1", "10.0.0.2"


def write_captures(folder: Path, clock: Clock) -> list[Path]:
    """Of a client and a server."""
    stations = [Station("client", CLIENT), Station("server", SERVER, clock)]
    net = Network(stations, NetworkPath(delay_ns=200_000, jitter_ns=50_000), 3)
    for number in range(12):
        net.connect("client", "server", 40_000 + number, 300, 9_000, at_ns=number * SECOND // 40)
    net.run()
    folder.mkdir()
    return net.write(folder)


def packets_of(path: Path) -> list[tuple[int, int, bytes]]:
    """Stamp (ns), length and kept bytes of each packet of a pcap of nanoseconds."""
    body, found, at = path.read_bytes(), [], 24
    while at < len(body):
        seconds, ns, kept, length = struct.unpack_from("<IIII", body, at)
        found.append((seconds * SECOND + ns, length, body[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return found


def merge_captures(paths: list[Path], place: Path, names: tuple[str, ...] | None) -> Path:
    """As `mergecap -I none` does, with the interfaces' `names`; without, as if they were one."""
    packets = sorted((at, number, *rest) for number, path in enumerate(paths) for at, *rest in packets_of(path))
    if names is None:
        place.write_bytes(
            files.pcap([(at, data) for at, _, _, data in packets], original_lens=[each[2] for each in packets])
        )
        return place
    body = files.section()
    for name in names:
        body += files.interface(pairs=[(9, b"\x09"), *([(2, name.encode())] if name else [])])
    for at, number, length, data in packets:
        body += files.enhanced_packet(at, data, interface_id=number, original_len=length)
    place.write_bytes(body)
    return place


def report_of(tmp_path: Path, *paths: Path) -> Report:
    trace = str(tmp_path / f"trace-{paths[0].stem}")
    analyse(host_sources([str(path) for path in paths]), trace)
    return build_report(trace)


def hops(report: Report) -> pl.DataFrame:
    """What does not depend on the hosts' names or on the numbers of frames."""
    columns = ["connection_id", "start_seq", "end_seq", "state", "send_host_ns", "receive_host_ns", "send_trace_ns"]
    known = pl.DataFrame(Trace(report.url).read("hops"))
    return known.select([name for name in columns if name in known.columns]).with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )


@pytest.mark.parametrize("clock", [Clock(), Clock(3 * SECOND, 20_000), Clock(-400_000)])
@pytest.mark.parametrize("names", [("", ""), ("eth0", "eth0"), ("eth0", "ens3")])
def test_interfaces_of_hosts_are_as_if_given_apart(tmp_path: Path, clock: Clock, names: tuple[str, str]) -> None:
    paths = write_captures(tmp_path / "net", clock)
    apart = report_of(tmp_path, *paths)
    together = report_of(tmp_path, merge_captures(paths, tmp_path / "all.pcapng", names))
    assert [host.host for host in together.hosts] == [CLIENT, SERVER]
    assert [host.addresses for host in together.info.hosts] == [(CLIENT,), (SERVER,)]
    counts = [[(host.packets_count, host.events_count) for host in report.info.hosts] for report in (apart, together)]
    assert counts[0] == counts[1]
    assert hops(together).equals(hops(apart))
    assert set(hops(together)["state"]) == {"matched"}
    (trouble,) = troubles_of_captures(together)
    assert (trouble.host, trouble.name) == ("all", "interfaces_of_hosts")
    assert trouble.remedy.endswith(f"taken as {CLIENT}, {SERVER}")


@pytest.mark.parametrize("clock", [Clock(), Clock(3 * SECOND), Clock(-200_000)])
def test_captures_that_are_merged_into_one_interface_are_named_and_nothing_is_found(
    tmp_path: Path, clock: Clock
) -> None:
    report = report_of(tmp_path, merge_captures(write_captures(tmp_path / "net", clock), tmp_path / "all.pcap", None))
    (trouble,) = troubles_of_captures(report)
    assert (trouble.host, trouble.name, trouble.severity) == ("all", "merged_captures", "data_loss")
    assert "mergecap -I none" in trouble.remedy
    assert pl.DataFrame(Trace(report.url).read("findings")).is_empty()


def sightings(there_ns: int, back_ns: int, codes: tuple[Direction, Direction], count: int = 12) -> list[Sighted]:
    """Packets each way between two addresses, the first of which is nearer to the first interface."""
    near, far = codes
    opposite = {Direction.SEND: Direction.RECEIVE, Direction.RECEIVE: Direction.SEND}
    found: list[Sighted] = []
    for at in range(0, count * SECOND, SECOND):
        found.append((1, 2, 0, [(at, 0, near), (at + there_ns, 1, far)]))
        back = (at + SECOND // 2, 1, opposite.get(far, far)), (at + SECOND // 2 + back_ns, 0, opposite.get(near, near))
        found.append((2, 1, 0, sorted(back)))
    return found


UNKNOWN = (Direction.UNKNOWN, Direction.UNKNOWN)


@pytest.mark.parametrize(
    ("there_ns", "back_ns", "codes", "expected"),
    [
        (100_000, 100_000, UNKNOWN, True),
        (5_000_000, -4_900_000, UNKNOWN, True),  # the clocks differ
        (3_000, 4_000, UNKNOWN, False),  # a bridge
        (3_000, 4_000, (Direction.SEND, Direction.RECEIVE), True),
        (5_000_000, 4_000_000, (Direction.RECEIVE, Direction.SEND), False),  # a router that holds packets back
    ],
)
def test_two_hosts_and_two_interfaces_of_one(
    there_ns: int, back_ns: int, codes: tuple[Direction, Direction], expected: bool
) -> None:
    assert interfaces_are_hosts(sightings(there_ns, back_ns, codes)) == expected


def test_few_packets_that_are_there_twice_are_sent_again() -> None:
    once: list[Sighted] = [(1, 2, 0, [(at, 0, 0)]) for at in range(100)]
    twice: list[Sighted] = [(1, 2, 0, [(at, 0, 0), (at + 9, 0, 0)]) for at in range(20)]
    assert not is_twice(once + twice)
    assert is_twice(once[:50] + twice)
    assert not is_twice([(1, 2, 0, [(at, 0, 1), (at + 9, 0, 2)]) for at in range(20)])
