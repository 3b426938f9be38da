"""An agent that is to capture what fits a pattern: interfaces come and go, and their packets are in its segments."""

import sys
from pathlib import Path

import pytest

from collector.capture_files.readers import open_capture
from testkit.live_hosts import CLIENT, SERVER, Capturing, Host, Pair, container

pytestmark = pytest.mark.live
SYN = 0x02


def ask(host: Host, server: Host) -> None:
    """One upload and one download."""
    with server.running(sys.executable, "-c", SERVER, server.address, ready="ready"):
        host.run(sys.executable, "-c", CLIENT, server.address, "1000")


def syns_by_interface(folder: Path) -> dict[str, int]:
    """Packets of all segments that open a connection; each segment says which interfaces it is of."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob("*.pcapng")):
        with open_capture(path) as reader:
            for batch in reader.batches():
                events = batch.events
                for number in events["interface"][events["flags"] & SYN != 0].tolist():
                    name = reader.interfaces[number].name
                    found[name] = found.get(name, 0) + 1
    return found


def wait_for_line(agent: Capturing, text: str) -> None:
    while (line := agent.line()) and text not in line:
        pass
    assert line, f"it never said: {text}"


@pytest.mark.parametrize("pattern", ["v*", "any"])
def test_interfaces_that_come_are_captured_and_those_that_go_are_let_go(
    hosts: Pair, tmp_path: Path, pattern: str
) -> None:
    with hosts.b.capture(tmp_path, "-i", pattern) as agent:
        hosts.exchange(1000)
        for _ in range(2):  # the second one has the name of the first
            with container(hosts.b) as made:
                wait_for_line(agent, "interfaces captured from now on: vc")
                ask(hosts.b, made)
            wait_for_line(agent, "interfaces gone: vc")
        hosts.exchange(1000)
        said = agent.stop()
    assert "none dropped" in said
    assert syns_by_interface(tmp_path / "b") == {"vb": 4, "vc": 4}, "a SYN and its answer, twice at each"


def test_no_more_interfaces_are_captured_than_memory_allows(hosts: Pair, tmp_path: Path) -> None:
    """A ring of 2 MiB each, and 3/8 of the bound; one that goes makes room."""
    names = [f"d{number:02}" for number in range(20)]
    make = "; ".join(f"ip link add {name} type veth peer name peer{name}; ip link set {name} up" for name in names)
    hosts.b.run("sh", "-c", make)
    try:
        with hosts.b.capture(tmp_path, "-i", "d*", "--memory-mib", "96") as agent:
            for name in names[18:]:
                wait_for_line(agent, f"interface {name} is not captured: its ring would exceed --memory-mib")
            hosts.b.run("ip", "link", "delete", "d07")
            wait_for_line(agent, "interfaces captured from now on: d18\n")  # there is room for one more, not for two
            wait_for_line(agent, "interfaces gone: d07\n")
            assert "none dropped" in agent.stop()
    finally:
        hosts.b.run("sh", "-c", "; ".join(f"ip link delete {name}" for name in names), check=False)
