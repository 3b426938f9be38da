"""Captures that are not what they are given as: each case has its sentence, and the right result where there is one."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from collector.analysis import AnalysisOptions, analyse
from collector.commands import replay
from collector.decode.sources import host_addresses, host_sources
from collector.reporting.report import Report, build_report
from collector.trace.reading import Trace
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.troubles import troubles_of_captures
from tracer.errors import InputError

SECOND = 1_000_000_000


@pytest.fixture
def captures(tmp_path: Path) -> dict[str, Path]:
    """A client and two servers, captured by plain tcpdump, by name."""
    stations = [Station("client", "10.0.0.1"), Station("one", "10.0.0.2"), Station("two", "10.0.0.3")]
    net = Network(stations, NetworkPath(delay_ns=200_000, jitter_ns=50_000), 3)
    for number in range(12):
        net.connect("client", ("one", "two")[number % 2], 40_000 + number, 300, 9_000, at_ns=number * SECOND // 40)
    net.run()
    return write_captures(net, tmp_path / "net")


def write_captures(net: Network, folder: Path) -> dict[str, Path]:
    folder.mkdir()
    return {path.stem: path for path in net.write(folder)}


def report_of(tmp_path: Path, *arguments: str, addresses: tuple[str, ...] = ()) -> Report:
    """The report of a trace of these arguments."""
    trace = str(tmp_path / "trace")
    analyse(host_sources(arguments), trace, options=AnalysisOptions(addresses=host_addresses(addresses)))
    return build_report(trace)


def counters_by_name(report: Report) -> dict[str, tuple[str | None, str]]:
    return {counter.name: (counter.host, counter.remedy) for counter in troubles_of_captures(report)}


def states(report: Report) -> set[str]:
    hops = pl.DataFrame(Trace(report.url).read("hops", ["state"]))
    return set(hops["state"].cast(pl.String))


def test_captures_that_are_right_have_no_sentence(captures: dict[str, Path], tmp_path: Path) -> None:
    report = report_of(tmp_path, *map(str, captures.values()))
    assert counters_by_name(report) == {}
    assert states(report) == {"matched"}


def test_one_capture_given_as_two_hosts_is_analysed_once(captures: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "one-copy.pcap"
    shutil.copy(captures["one"], copy)
    files = [str(path) for path in captures.values()]
    report = report_of(tmp_path, *files, str(copy))
    assert [host.host for host in report.hosts] == list(captures)
    host, sentence = counters_by_name(report)["same_capture"]
    assert host == "one-copy"
    assert sentence.startswith("these are the packets of one again: analysed once")
    assert states(report) == {"matched"}


def test_captures_of_one_name_with_own_addresses_are_two_hosts(captures: dict[str, Path], tmp_path: Path) -> None:
    renamed = _in_folders(tmp_path, a=captures["one"], b=captures["two"])
    report = report_of(tmp_path, str(captures["client"]), *renamed)
    assert [host.host for host in report.hosts] == ["client", "web", "web-2"]
    assert [host.addresses for host in report.info.hosts] == [("10.0.0.1",), ("10.0.0.2",), ("10.0.0.3",)]
    host, sentence = counters_by_name(report)["same_name"]
    assert host == "web"
    assert sentence.startswith("their own addresses differ, so they are web, web-2")
    assert states(report) == {"matched"}


def test_captures_of_one_name_and_one_address_are_one_host(tmp_path: Path) -> None:
    files = {}
    for part, offset in (("a", 0), ("b", 5 * SECOND)):
        net = Network([Station("client", "10.0.0.1"), Station("web", "10.0.0.2")], NetworkPath(delay_ns=200_000), 3)
        for number in range(6):
            net.connect("client", "web", 40_000 + number + offset // SECOND, 300, 900, at_ns=offset + number * 10**7)
        net.run()
        files[part] = write_captures(net, tmp_path / f"net-{part}")
    web = _in_folders(tmp_path, **{part: paths["web"] for part, paths in files.items()})
    client = [f"client={paths['client']}" for paths in files.values()]
    report = report_of(tmp_path, *client, *web)
    assert [host.host for host in report.hosts] == ["client", "web"]
    assert counters_by_name(report)["same_name"][1].startswith("their own addresses are the same")
    assert states(report) == {"matched"}


def _in_folders(tmp_path: Path, **captures: Path) -> list[str]:
    """Copies called web.pcap in folders of these names."""
    made = []
    for folder, path in captures.items():
        (tmp_path / folder).mkdir()
        made.append(str(shutil.copy(path, tmp_path / folder / "web.pcap")))
    return made


def test_captures_of_different_times_say_so(tmp_path: Path) -> None:
    files = []
    for name, at_ns in (("client", 0), ("web", 60 * SECOND)):
        net = Network(
            [Station("client", "10.0.0.1"), Station("web", "10.0.0.2")],
            NetworkPath(delay_ns=200_000),
            3 + at_ns // SECOND,
        )
        for number in range(6):
            net.connect("client", "web", 40_000 + number + at_ns // SECOND, 300, 900, at_ns=at_ns + number * 10**7)
        net.run()
        files.append(str(write_captures(net, tmp_path / f"net-{name}")[name]))
    report = report_of(tmp_path, *files, addresses=("client=10.0.0.1", "web=10.0.0.2"))
    host, sentence = counters_by_name(report)["no_overlap_in_time"]
    assert host in ("client", "web")
    assert sentence.startswith("no other capture ran at that time, the nearest 59.")


def test_a_wrong_clock_is_no_different_time(tmp_path: Path) -> None:
    net = Network(
        [Station("client", "10.0.0.1"), Station("web", "10.0.0.2", Clock(3600 * SECOND))], NetworkPath(200_000), 3
    )
    for number in range(6):
        net.connect("client", "web", 40_000 + number, 300, 900, at_ns=number * 10**7)
    net.run()
    assert counters_by_name(report_of(tmp_path, *map(str, write_captures(net, tmp_path / "wrong").values()))) == {}


def test_a_capture_whose_own_end_cannot_be_seen_and_an_address_that_says_it(tmp_path: Path) -> None:
    """Two hosts' captures merged into one file: no address is at one end of all packets."""
    stations = [Station(name, f"10.0.0.{number}") for number, name in enumerate(("a", "b", "c", "d"), 1)]
    net = Network(stations, NetworkPath(delay_ns=200_000), 3)
    net.connect("a", "b", 40_000, 300, 900)
    net.connect("c", "d", 40_000, 300, 900)
    net.run()
    files = write_captures(net, tmp_path / "net")
    merged = tmp_path / "merged.pcap"
    merged.write_bytes(files["b"].read_bytes() + files["d"].read_bytes()[24:])
    report = report_of(tmp_path, str(merged))
    sentence = counters_by_name(report)["direction_unknown"][1]
    assert "--address merged=IP" in sentence
    assert "give one file for each" in sentence
    assert "or the network to it. Nothing shows which end was captured" in report.story.sentence
    report = report_of(tmp_path, str(merged), addresses=("merged=10.0.0.2", "merged=10.0.0.4"))
    assert "direction_unknown" not in counters_by_name(report)
    assert report.info.hosts[0].addresses == ("10.0.0.2", "10.0.0.4")
    assert "Nothing shows" not in report.story.sentence
    assert "network" not in report.story.sentence.split(".")[0]


@pytest.mark.parametrize("text", ["web", "web=", "=10.0.0.1", "web=10.0.0", "web=host"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not HOST=IP; for example --address web=10\.0\.0\.5"):
        host_addresses([text])


def test_an_address_of_a_host_that_is_not_there_is_refused(captures: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture is of host nonesuch; give --address for one of: client, one, two"):
        report_of(tmp_path, *map(str, captures.values()), addresses=("nonesuch=10.0.0.9",))


def test_the_sentence_is_printed_and_in_the_json(captures: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "one-copy.pcap"
    shutil.copy(captures["one"], copy)
    arguments = ["--quiet", "-o", str(tmp_path / "shown"), *map(str, captures.values()), str(copy)]
    said = CliRunner().invoke(replay.command, arguments)
    assert said.exit_code == 0, said.output
    assert "! one-copy: same capture: " in said.stdout
    assert replace(build_report(str(tmp_path / "shown")).troubles[0], count=0).name == "same_capture"


def test_folders_of_one_name_with_own_addresses_are_two_hosts(captures: dict[str, Path], tmp_path: Path) -> None:
    runs = []
    for run, host in (("run1", "one"), ("run2", "two")):
        (tmp_path / run / "web").mkdir(parents=True)
        shutil.copy(captures[host], tmp_path / run / "web" / "eth0.pcap")
        runs.append(str(tmp_path / run))
    report = report_of(tmp_path, str(captures["client"]), *runs)
    assert [host.host for host in report.hosts] == ["client", "web", "web-2"]
    assert counters_by_name(report)["same_name"][1].startswith("their own addresses differ, so they are web, web-2")
    assert states(report) == {"matched"}


def test_folders_of_one_name_and_one_address_are_one_host(captures: dict[str, Path], tmp_path: Path) -> None:
    runs = []
    for run in ("run1", "run2"):
        (tmp_path / run / "web").mkdir(parents=True)
        runs.append(str(tmp_path / run))
    later = Network([Station("web", "10.0.0.2"), Station("other", "10.0.0.9")], NetworkPath(delay_ns=200_000), 3)
    later.connect("other", "web", 40_000, 300, 900, at_ns=5 * SECOND)
    later.run()
    shutil.copy(captures["one"], tmp_path / "run1" / "web" / "eth0.pcap")
    shutil.copy(write_captures(later, tmp_path / "later")["web"], tmp_path / "run2" / "web" / "eth0.pcap")
    report = report_of(tmp_path, str(captures["client"]), str(captures["two"]), *runs)
    assert [host.host for host in report.hosts] == ["client", "two", "web"]
    assert counters_by_name(report)["same_name"][1].startswith("their own addresses are the same")


def test_files_given_to_one_name_are_one_host_whatever_their_addresses(
    captures: dict[str, Path], tmp_path: Path
) -> None:
    """As the veths of one bridge are."""
    report = report_of(tmp_path, str(captures["client"]), f"node={captures['one']}", f"node={captures['two']}")
    assert [host.host for host in report.hosts] == ["client", "node"]
    assert "same_name" not in counters_by_name(report)
