"""What a probe's lines say of a host, what is chosen to capture there, and the line that names each problem."""

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from msgspec.structs import replace

from collector.remote import preflight
from collector.remote.preflight import (
    Clock,
    HostFacts,
    Interface,
    Method,
    Plan,
    check_interfaces,
    choose_interfaces,
    clock_from,
    disk_problem,
    host_line,
    make_plan,
    problems_of,
    read_facts,
)
from collector.remote.scripts import PROBE, with_token
from tracer.errors import InputError

ETH0 = Interface("eth0", 2, bytes([2, 0, 0, 0, 0, 1]))
ETH1 = Interface("eth1", 3, bytes(6))
ROOT = HostFacts(
    system="Linux",
    machine="x86_64",
    is_root=True,
    may_capture=True,
    tcpdump="/usr/bin/tcpdump",
    libpcap=(1, 10, 3),
    folder="/dev/shm",
    processors_count=4,
    interfaces=(ETH0, ETH1),
    routed=("eth0", "eth1"),
)
USER = replace(ROOT, is_root=False, may_capture=False)

LINES = """
system Linux
machine x86_64
uid 1000
capabilities 0000000000000000
identity 1-2 net:[4026531840]
connection 192.168.1.5 50123 10.0.0.2 22
load 0.31
processors 4
tcpdump /usr/bin/tcpdump
agent 0.1.0 /usr/bin/twintap-agent
sudo all 000001ffffffffff
route eth0 00000000
route docker0 000011AC
inet6 eth0 20 fe800000000000000000000000000001
inet6 eth1 00 20010db8000000000000000000000001
inet6 lo 00 00000000000000000000000000000001
interface lo 1 00:00:00:00:00:00
interface eth0 2 02:00:00:00:00:01
interface eth1 3 none
interface docker0 4 02:42:00:00:00:01
bridge docker0
offload eth0 tso gro
folder /dev/shm
libpcap 1.10.3
"""


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight, "AGENT", tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def test_the_lines_become_facts() -> None:
    facts = read_facts(LINES.split("\n")[1:-1])
    assert facts == HostFacts(
        system="Linux",
        machine="x86_64",
        sudo="all",
        tcpdump="/usr/bin/tcpdump",
        libpcap=(1, 10, 3),
        agent="/usr/bin/twintap-agent",
        agent_version="0.1.0",
        folder="/dev/shm",
        identity="1-2 net:[4026531840]",
        client=("192.168.1.5", 50123),
        load=0.31,
        processors_count=4,
        interfaces=(
            Interface("lo", 1, bytes(6)),
            ETH0,
            ETH1,
            Interface("docker0", 4, bytes([2, 0x42, 0, 0, 0, 1])),
        ),
        routed=("eth0", "eth1"),
        offloads={"eth0": ("tso", "gro")},
    )


@pytest.mark.parametrize("cut", range(0, len(LINES), 7))
def test_any_lines_are_read(cut: int) -> None:
    garbage = "connection x y\nload z\ninterface\ninet6 a\nroute b\noffload\nbridge\n\n"
    facts = read_facts((LINES[:cut] + garbage).split("\n"))
    assert facts.processors_count >= 1
    assert facts.load >= 0
    assert all(interface.name for interface in facts.interfaces)


def test_the_probe_reads_this_machine() -> None:
    printed = subprocess.run(
        ["sh", "-c", with_token(PROBE, "test")], capture_output=True, text=True, check=False
    ).stdout
    facts = read_facts(printed.splitlines())
    assert facts.system == "Linux"
    assert "lo" in [interface.name for interface in facts.interfaces]
    assert facts.processors_count >= 1
    assert not list(Path("/dev/shm").glob(".twintap-probe-*"))


@pytest.mark.parametrize(
    ("name", "facts", "wanted", "expected"),
    [
        ("root", ROOT, "auto", (Method.SENT, False)),
        ("agent there", replace(ROOT, agent="/a", agent_version=version("twintap")), "auto", (Method.INSTALLED, False)),
        ("another version there", replace(ROOT, agent="/a", agent_version="0.0.1"), "auto", (Method.SENT, False)),
        ("tcpdump wanted", ROOT, "tcpdump", (Method.TCPDUMP, False)),
        ("sudo", replace(USER, sudo="all"), "auto", (Method.SENT, True)),
        ("sudo for tcpdump", replace(USER, sudo="tcpdump"), "auto", (Method.TCPDUMP, True)),
        ("tcpdump with the capability", replace(USER, tcpdump_capable=True), "auto", (Method.TCPDUMP, False)),
        ("another processor", replace(ROOT, machine="aarch64"), "auto", (Method.TCPDUMP, False)),
        ("nowhere to run a program", replace(ROOT, folder=""), "auto", (Method.TCPDUMP, False)),
    ],
)
def test_the_first_that_can_captures(name: str, facts: HostFacts, wanted: str, expected: tuple[Method, bool]) -> None:
    plan = make_plan(facts, wanted, ())
    assert isinstance(plan, Plan), name
    assert (plan.method, plan.by_sudo, plan.interfaces) == (*expected, (ETH0, ETH1)), name


@pytest.mark.parametrize(
    ("name", "facts", "wanted", "expected"),
    [
        ("no right", USER, "auto", "web1: no right to capture; log in as root, or permit it there without a password"),
        ("no tcpdump", replace(ROOT, tcpdump=""), "tcpdump", "web1: tcpdump is not there; leave out --with tcpdump"),
        (
            "nothing for this processor",
            replace(ROOT, tcpdump="", machine="aarch64"),
            "auto",
            "web1: our agent is for Linux on x86_64, this is Linux on aarch64, and tcpdump is not there; run there",
        ),
        ("no agent by sudo", replace(USER, sudo="tcpdump"), "agent", "web1: sudo permits tcpdump and nothing else;"),
        (
            "no interface",
            replace(ROOT, routed=()),
            "auto",
            "web1: no interface with an address or a route was found; g",
        ),
    ],
)
def test_what_stops_a_host_is_one_line_with_its_remedy(name: str, facts: HostFacts, wanted: str, expected: str) -> None:
    (problem,) = problems_of("web1", facts, make_plan(facts, wanted, ()), None)
    assert problem.stops, name
    assert str(problem).startswith(expected), name


def test_what_makes_a_recording_worse_is_said() -> None:
    busy = replace(ROOT, load=9.0, libpcap=(1, 9))
    plan = make_plan(busy, "tcpdump", ())
    assert isinstance(plan, Plan)
    assert plan.interfaces == (ETH0,), "older tcpdumps cannot say of which interface a packet is"
    found = problems_of("web1", busy, plan, Clock(-3_000_000_000, 1_000_000))
    assert [str(problem) for problem in found] == [
        "web1: load 9 on 4 processors, so packets may be dropped; drops are counted; record again when it is less busy",
        "web1: its clock is 3.000 s behind this machine's; the trace aligns clocks; to mend it there: chronyc makestep",
        "web1: its tcpdump records one interface at a time: eth0; to choose another: --interface HOST=NAME",
    ]
    assert not any(problem.stops for problem in found)
    quiet = make_plan(ROOT, "auto", ())
    assert problems_of("web1", ROOT, quiet, Clock(900_000_000, 1_000_000)) == []


def test_interfaces_are_found_or_named() -> None:
    assert choose_interfaces(ROOT, ()) == (ETH0, ETH1)
    assert choose_interfaces(ROOT, ["eth1"]) == (ETH1,)
    assert choose_interfaces(ROOT, ["eth9"]) == "no interface eth9; there are: eth0, eth1"
    assert check_interfaces(["web1=eth1", "web1=lo"], ["web1"]) == {"web1": ["eth1", "lo"]}
    for given in ("eth1", "db1=eth1", "web1=", "web1=-i"):
        with pytest.raises(InputError, match="is not HOST=NAME; hosts are: web1"):
            check_interfaces([given], ["web1"])


def test_the_quickest_answer_bounds_the_clock() -> None:
    fine = (1_000_000_000, 1_000_400_000, "3.000200000")
    slow = (1_000_000_000, 1_900_000_000, "3.000000000")
    assert clock_from([slow, fine]) == Clock(2_000_000_000, 200_000)
    assert clock_from([(1_000_000_000, 1_000_000_000, "3.%N")]) == Clock(2_500_000_000, 500_000_000), "busybox"
    assert clock_from([(0, 1, "date: not found")]) is None


def test_a_host_is_one_line() -> None:
    plan = make_plan(replace(ROOT, offloads={"eth0": ("tso", "gro")}), "auto", ())
    assert isinstance(plan, Plan)
    facts = replace(ROOT, offloads={"eth0": ("tso", "gro")}, load=0.5)
    line = host_line("web1", facts, plan, Clock(-1_000_000, 200_000))
    assert line == "web1: agent sent along on eth0, eth1 (gro tso), as root, clock -1.0 ms ± 200.0 µs, load 0.5"


def test_a_disk_with_little_room_is_a_problem() -> None:
    assert disk_problem(Path("/t"), 1 << 40) is None
    assert str(disk_problem(Path("/t"), 5_000_000)) == (
        "here: 5 MB left on the disk of /t; free some space, or choose another place with -o"
    )
