"""Packets that a link damages, between namespaces; and captures whose wrong checksums mean nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from collector.analysis import analyse
from collector.capture_files.readers import open_capture
from collector.decode.sources import host_sources
from collector.trace.reading import Trace
from testkit.live_hosts import Host, Pair, far_pair, pair, wait_for
from tests.collector.hops.test_host_drops_live import CLIENT, SERVER, rule
from tests.helpers.system_tools import or_skip

FLIPPED = "flip=0.03:500:2000"


@pytest.fixture(autouse=True)
def _tools() -> None:
    lacking = [name for name in ("tcpdump", "ethtool") if shutil.which(name) is None]
    if lacking:
        pytest.skip(f"NOT TESTED, not installed: {', '.join(lacking)}")


@contextmanager
def tcpdumps(folder: Path, *hosts: Host, snaplen: str = "0") -> Iterator[None]:
    """Captures whole packets at these hosts."""
    if os.geteuid():
        pytest.skip("NOT TESTED, needs root: tcpdump changes its user, which a user's own namespace refuses")
    with ExitStack() as stack:
        for host in hosts:
            argv = ("tcpdump", "-i", host.interface, "-s", snaplen, "-Z", "root", "-U")
            argv += ("--immediate-mode", "-w", str(folder / f"{host.name}.pcap"))
            process = subprocess.Popen(
                [*host.enter, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.terminate)
            wait_for(process, "listening on")
        yield


@contextmanager
def agents(folder: Path, *hosts: Host) -> Iterator[None]:
    """Agents at these hosts, which keep message heads only."""
    with ExitStack() as stack:
        running = [stack.enter_context(host.capture(folder)) for host in hosts]
        yield
        for agent in running:
            agent.stop()


def findings_and_lost_frames(folder: Path, *names: str) -> tuple[dict[str, dict], set[int]]:
    """Findings by kind, those of `b` if both have one; and the frames of a's data that was lost. Arguments: names of
    tcpdump's captures; none for the agents'."""
    url = str(folder / "trace")
    analyse(host_sources([f"{name}={folder / name}.pcap" for name in names] or [str(folder)]), url)
    rows = Trace(url).read("findings").to_pylist()
    findings = {row["kind"]: row for row in sorted(rows, key=lambda row: row["host"] == "b")}
    hops = Trace(url).read("hops").to_pylist()
    return findings, {
        row["send_frame"] for row in hops if (row["kind"], row["state"], row["send_host"]) == ("data", "lost", "a")
    }


Captures = Callable[..., AbstractContextManager[None]]


def upload_and_count_drops(hosts: Pair, folder: Path, checksums: bool = True, captures: Captures = tcpdumps) -> int:
    """Uploads from `a` to `b`; how many packets b's TCP dropped for their checksums."""
    for host in (hosts.a, hosts.b) if checksums else ():
        host.run("ethtool", "-K", host.interface, "tx", "off")
    with (
        hosts.b.running(sys.executable, "-c", SERVER, hosts.b.address, ready="ready"),
        captures(folder, hosts.a, hosts.b),
    ):
        hosts.a.run(sys.executable, "-c", CLIENT, hosts.b.address, "4")
    counted = hosts.b.run("nstat", "-asz", "TcpInCsumErrors").stdout
    return int(counted.split("TcpInCsumErrors")[1].split()[0])


@pytest.fixture
def hosts() -> Iterator[Pair]:
    with or_skip(), far_pair(0.5, (FLIPPED,)) as both:
        yield both


@pytest.mark.parametrize("captures", [tcpdumps, agents])
def test_damaged_packets_are_no_deliveries_and_are_named(hosts: Pair, tmp_path: Path, captures: Captures) -> None:
    dropped = upload_and_count_drops(hosts, tmp_path, captures=captures)
    findings, lost = findings_and_lost_frames(tmp_path, *(("a", "b") if captures is tcpdumps else ()))
    finding = findings["damaged_packets"]
    assert dropped > 5
    assert finding["count"] == len(lost) == dropped
    assert (finding["severity"], finding["host"], finding["peer_host"]) == ("warning", "b", "a")
    assert finding["cost_ns"] > 0 and finding["span_id"] is not None
    assert not {"dropped_in_host", "packet_loss"} & findings.keys()
    others = [row for kind, row in findings.items() if kind != "damaged_packets"]
    assert not [row for row in others if row["severity"] == "warning"]


def test_the_receiver_alone_shows_them(hosts: Pair, tmp_path: Path) -> None:
    dropped = upload_and_count_drops(hosts, tmp_path)
    findings, _ = findings_and_lost_frames(tmp_path, "b")
    assert findings["damaged_packets"]["count"] == dropped


def test_packets_cut_by_the_capture_are_not_judged(hosts: Pair, tmp_path: Path) -> None:
    assert upload_and_count_drops(hosts, tmp_path, captures=partial(tcpdumps, snaplen="128")) > 5
    assert "damaged_packets" not in findings_and_lost_frames(tmp_path, "a", "b")[0]


@pytest.mark.parametrize("captures", [tcpdumps, agents])
@pytest.mark.parametrize("checksums", [True, False], ids=["checksums filled in", "left to the card"])
def test_lost_packets_are_not_damaged(tmp_path: Path, checksums: bool, captures: Captures) -> None:
    with or_skip(), far_pair(0.5, ("lose=0.03:500:2000",)) as hosts:
        assert upload_and_count_drops(hosts, tmp_path, checksums, captures) == 0
    findings, _ = findings_and_lost_frames(tmp_path, *(("a", "b") if captures is tcpdumps else ()))
    assert "damaged_packets" not in findings
    assert "packet_loss" in findings


def test_an_agent_where_nobody_fills_checksums_in_marks_nothing(tmp_path: Path) -> None:
    with or_skip(), pair() as hosts:
        assert upload_and_count_drops(hosts, tmp_path, checksums=False, captures=agents) == 0
    assert not findings_and_lost_frames(tmp_path)[0].keys() & {"damaged_packets"}
    for path in tmp_path.glob("*.pcapng"):
        with open_capture(path) as reader:
            frames = [count for rows in reader.batches() for count in rows.events["frame"].tolist()]
            assert frames and not len(reader.damaged_frames)


@pytest.mark.parametrize("checksums", [True, False], ids=["checksums filled in", "left to the card"])
def test_what_the_host_itself_drops_is_not_damaged(tmp_path: Path, checksums: bool) -> None:
    with or_skip(), far_pair(0.5) as hosts:
        rule(hosts.b, "ip", "hook input priority 0", "tcp dport 8080 meta length > 500 numgen random mod 100 < 3")
        assert upload_and_count_drops(hosts, tmp_path, checksums) == 0
    findings, _ = findings_and_lost_frames(tmp_path, "a", "b")
    assert "damaged_packets" not in findings
    assert "dropped_in_host" in findings
