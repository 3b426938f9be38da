"""The packets of all hosts in one file: tshark reads it, and each comment is held against the table `hops`."""

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from collector.analysis import analyse
from collector.commands.export import command
from collector.decode.sources import host_sources
from collector.queries import merged_capture
from collector.queries.merged_capture import write_merged
from collector.queries.selection import Selection
from collector.queries.trace_view import TraceView, open_trace
from testkit.netsim import Clock, Network, NetworkPath, Station
from tests.helpers.system_tools import needs
from tracer.errors import InputError, ResourceError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"
FIELDS = ("frame.time_epoch", "frame.interface_name", "ip.src", "tcp.seq_raw", "tcp.flags", "frame.comment")

pytestmark = needs("tshark", "tshark")


def read_with_tshark(capture: Path) -> list[dict[str, str]]:
    fields = [word for field in FIELDS for word in ("-e", field)]
    done = subprocess.run(
        ["tshark", "-r", capture, "-T", "fields", *fields], capture_output=True, text=True, check=True
    )
    return [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in done.stdout.splitlines()]


def at_ns(packet: dict[str, str]) -> int:
    return int(packet["frame.time_epoch"].replace(".", ""))


def trace_of(place: Path, captures: list[Path]) -> TraceView:
    analyse(host_sources(list(map(str, captures))), str(place / "trace"))
    return open_trace(str(place / "trace"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> TraceView:
    return trace_of(tmp_path_factory.mktemp("bench"), [BUNDLED])


@pytest.fixture(scope="module")
def lossy(tmp_path_factory) -> TraceView:
    """Two hosts whose clocks are 90 s apart, and a path that loses packets and lets them overtake each other."""
    place = tmp_path_factory.mktemp("lossy")
    stations = [Station("client", "10.0.0.1", Clock(-50 * 10**9)), Station("server", "10.0.0.2", Clock(40 * 10**9))]
    net = Network(stations, NetworkPath(loss=0.03, reorder=0.02), 3)
    for number in range(12):
        net.connect("client", "server", 40_000 + number, 3_000, 40_000, at_ns=number * 5_000_000)
    net.run()
    return trace_of(place, net.write(place))


def sides(trace: TraceView) -> dict[tuple[str, int], dict]:
    """Of each packet, by host and frame, its stamps, its other ends, and the states of its hops."""
    hops = pl.DataFrame(trace.stored.read("hops")).cast({pl.Categorical: pl.String}).to_dicts()
    found: dict[tuple[str, int], dict] = {}
    for hop in hops:
        for end, other in (("send", "receive"), ("receive", "send")):
            if hop[f"{end}_frame"] is not None:
                about = {what: hop[f"{end}_{what}"] for what in ("host_ns", "trace_ns")}
                mine = found.setdefault(
                    (hop[f"{end}_host"], hop[f"{end}_frame"]), about | {"others": set(), "states": set()}
                )
                mine["states"].add(hop["state"])
                if hop[f"{other}_frame"] is not None:
                    mine["others"].add((hop[f"{other}_host"], hop[f"{other}_frame"]))
    return found


@pytest.mark.parametrize("name", ["bench", "lossy"])
def test_every_packet_is_there_once_on_one_clock_and_in_order(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    trace = request.getfixturevalue(name)
    expected = sides(trace)
    assert write_merged(trace, None, tmp_path / "all.pcapng") == len(expected)
    packets = read_with_tshark(tmp_path / "all.pcapng")
    times = [at_ns(packet) for packet in packets]
    assert times == sorted(times)
    frames = dict.fromkeys({host for host, _ in expected}, 0)
    stamps = {key: about["trace_ns"] for key, about in expected.items()}
    by_host: dict[str, list[int]] = {}
    for packet in packets:
        host, _, device = packet["frame.interface_name"].partition("/")
        assert device or name == "lossy"  # plain pcap names no device
        by_host.setdefault(host, []).append(at_ns(packet))
    for host in frames:
        assert by_host[host] == sorted(at for (of, _), at in stamps.items() if of == host)


def test_a_comment_names_the_other_end_the_delay_and_the_request(lossy: TraceView, tmp_path: Path) -> None:
    write_merged(lossy, None, tmp_path / "all.pcapng")
    packets, expected = read_with_tshark(tmp_path / "all.pcapng"), sides(lossy)
    known: dict[tuple[int, str], list[str]] = {}
    for (host, _), about in expected.items():
        known.setdefault((about["trace_ns"], host), []).append(beginning_of_comment(about))
    for packet in packets:
        place, words = (at_ns(packet), packet["frame.interface_name"].partition("/")[0]), packet["frame.comment"]
        assert any(each in words for each in known[place]), (words, known[place])
        assert re.search(r"request #\d+$", words) or packet["tcp.flags"] != "0x0018", words
        assert words.startswith("lost") or " on its way" in words
    assert any("attempt 2" in packet["frame.comment"] for packet in packets)
    assert any("packets" in packet["frame.comment"] for packet in packets), "one that was sent as several"


def beginning_of_comment(about: dict) -> str:
    if about["states"] == {"lost"}:
        return "lost: it never arrived"
    frames = sorted(frame for _, frame in about["others"])
    ((host, _), *_) = about["others"]
    numbers = f"packet {frames[0]:,}" if len(frames) == 1 else f"packets {frames[0]:,} to {frames[-1]:,}"
    return f"{numbers} of {host}"


def test_hosts_whose_clocks_are_far_apart_stand_together(lossy: TraceView, tmp_path: Path) -> None:
    write_merged(lossy, None, tmp_path / "all.pcapng")
    times = [at_ns(packet) for packet in read_with_tshark(tmp_path / "all.pcapng")]
    stamps = [about["host_ns"] for about in sides(lossy).values()]
    assert max(stamps) - min(stamps) > 90 * 10**9 > 10**9 > times[-1] - times[0]


def test_the_hosts_own_clocks(lossy: TraceView, tmp_path: Path) -> None:
    write_merged(lossy, None, tmp_path / "own.pcapng", own_clocks=True)
    expected = sorted(about["host_ns"] for about in sides(lossy).values())
    assert [at_ns(packet) for packet in read_with_tshark(tmp_path / "own.pcapng")] == expected


def test_packets_that_a_capture_has_out_of_order_are_put_in_order(
    lossy: TraceView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = merged_capture._packets(lossy, None)
    earlier = pl.when(pl.int_range(pl.len()) % 7 == 0).then(pl.col("trace_ns") - 5_000_000).otherwise("trace_ns")
    mixed = packets.with_columns(trace_ns=earlier)
    monkeypatch.setattr(merged_capture, "_packets", lambda *_: mixed)
    write_merged(lossy, None, tmp_path / "mixed.pcapng")
    times = [at_ns(packet) for packet in read_with_tshark(tmp_path / "mixed.pcapng")]
    assert times == sorted(mixed["trace_ns"].to_list())


def test_a_request_or_a_time_alone(bench: TraceView, tmp_path: Path) -> None:
    whole = write_merged(bench, None, tmp_path / "whole.pcapng")
    one = write_merged(bench, Selection(request=0), tmp_path / "one.pcapng")
    comments = [packet["frame.comment"] for packet in read_with_tshark(tmp_path / "one.pcapng")]
    assert 0 < one == len(comments) < whole
    assert all(comment.endswith("request #1") for comment in comments)
    done = CliRunner().invoke(
        command, [bench.url, "--to", "pcapng", "--from", "0.05", "--until", "0.1", "-o", f"{tmp_path / 'some.pcapng'}"]
    )
    assert re.fullmatch(rf"wrote \d+ packets to {tmp_path / 'some.pcapng'}\n", done.output), done.output
    times = [at_ns(packet) - bench.start_ns for packet in read_with_tshark(tmp_path / "some.pcapng")]
    assert times
    assert 49_000_000 < min(times) < max(times) < 101_000_000


def test_too_many_packets(bench: TraceView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_capture, "MOST_PACKETS", 100)
    with pytest.raises(InputError, match="710 packets are more than the 100 of one file"):
        write_merged(bench, None, tmp_path / "all.pcapng")
    assert not (tmp_path / "all.pcapng").exists()


def test_a_capture_that_is_gone_or_another_one(tmp_path: Path) -> None:
    shutil.copytree(BUNDLED, tmp_path / "captures")
    trace = trace_of(tmp_path, [tmp_path / "captures"])
    shutil.copy(BUNDLED / "proxy.pcapng", tmp_path / "captures" / "storage1.pcapng")
    with pytest.raises(InputError, match="is not the capture that this trace was made from"):
        write_merged(trace, None, tmp_path / "all.pcapng")
    (tmp_path / "captures" / "storage1.pcapng").unlink()
    with pytest.raises(InputError, match="the capture of storage1 is not there any more"):
        write_merged(trace, None, tmp_path / "all.pcapng")
    assert not list(tmp_path.glob("*all.pcapng*")), "nothing is left of a file that is not whole"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["--to", "har", "--from", "9"], InputError, "there is no request in that time"),
        (["--to", "csv", "--own-clocks"], InputError, "--own-clocks is for pcapng"),
        (["--to", "pcapng", "--from", "100"], InputError, "there is no packet"),
        (["--to", "pcapng", "-o", "/nonexistent/x.pcapng"], ResourceError, "cannot write it"),
    ],
)
def test_what_cannot_be_done(arguments: list[str], error: type[Exception], words: str, bench: TraceView) -> None:
    done = CliRunner().invoke(command, [bench.url, *arguments])
    assert isinstance(done.exception, error)
    assert words in str(done.exception)
