"""Before a recording: what a host is and has, and what is in the way of a capture there, each with its remedy.

Input: the lines that `scripts.PROBE` prints. Output: `HostFacts`, the choice of what captures, and problems. A problem
that `stops` is one without whose remedy that host cannot be recorded; others only make a recording worse.
"""

import ipaddress
import platform
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct, field

from collector.trace.durations import in_words
from tracer.errors import InputError

CAP_NET_RAW = 1 << 13
AGENT = Path(__file__).parents[2] / "tracer" / "_agent"
"""The agent that is sent along; linked statically, so it needs Linux and this processor."""
MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
"""Other names of processors, as some systems have them."""

BUSY_LOAD = 2.0
"""Runnable processes for each processor, above which a host captures late and may drop packets."""
CLOCK_NOTICE_NS = 1_000_000_000
"""A clock further from ours is worth a line; the trace aligns clocks all the same."""
LEAST_DISK_BYTES = 1 << 30
"""Here, for captures and the trace: less is soon full."""
SLL2_LIBPCAP = (1, 10)
"""The first libpcap whose frames of all interfaces carry the interface."""
GLOBAL_SCOPE = "00"
"""Scope of an IPv6 address in /proc/net/if_inet6; others are not for other hosts, or of one link alone."""


class Method(StrEnum):
    """What captures on a host, in the order of preference."""

    INSTALLED = "agent there"
    SENT = "agent sent along"
    TCPDUMP = "tcpdump"


class Interface(Struct, frozen=True):
    """One interface of a host; `address`: its Ethernet address, zeros if it has none."""

    name: str
    index: int
    address: bytes


class Clock(Struct, frozen=True):
    """How far a host's clock is from ours: `offset_ns` ahead, ± `error_ns`."""

    offset_ns: int
    error_ns: int


class HostFacts(Struct, frozen=True):
    """What was found on a host."""

    system: str = ""
    machine: str = ""
    is_root: bool = False
    may_capture: bool = False
    sudo: str = ""  # all: runs anything that captures; tcpdump: that alone; empty: nothing
    tcpdump_capable: bool = False  # it has the capability as a file
    tcpdump: str = ""  # its path
    libpcap: tuple[int, ...] = ()
    agent: str = ""  # path of ours
    agent_version: str = ""
    folder: str = ""  # where a file can be written and run
    identity: str = ""  # of the kernel and the network namespace
    client: tuple[str, int] | None = None  # our end of the connection, as this host sees it
    load: float = 0.0
    processors_count: int = 1
    interfaces: tuple[Interface, ...] = ()
    routed: tuple[str, ...] = ()  # interfaces with an address that other hosts can reach, or with a route
    offloads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Problem(Struct, frozen=True):
    """One line for the operator."""

    host: str
    what: str
    remedy: str
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.host}: {self.what}; {self.remedy}"


class Plan(Struct, frozen=True):
    """What captures on a host, by which rights, and what."""

    method: Method
    by_sudo: bool
    interfaces: tuple[Interface, ...]


def read_facts(lines: Iterable[str]) -> HostFacts:
    """The facts in a probe's lines. A host that lies harms its own recording only."""
    found: dict[str, list[list[str]]] = {}
    for line in lines:
        if words := line.split():
            found.setdefault(words[0], []).append(words[1:])

    def word(name: str, place: int = 0) -> str:
        words = found.get(name, [[]])[0]
        return words[place] if place < len(words) else ""

    is_root = word("uid") == "0"
    sudo = word("sudo")
    if sudo == "all" and not _has_net_raw(word("sudo", 1)):
        sudo = ""
    return HostFacts(
        system=word("system"),
        machine=word("machine"),
        is_root=is_root,
        may_capture=_has_net_raw(word("capabilities")),
        sudo=sudo,
        tcpdump_capable=word("tcpdump_capable") == "yes",
        tcpdump=word("tcpdump"),
        libpcap=tuple(int(part) for part in word("libpcap").split(".") if part.isdecimal()),
        agent=word("agent", 1),
        agent_version=word("agent"),
        folder=word("folder"),
        identity=" ".join(found.get("identity", [[]])[0]),
        client=_client(found.get("connection", [[]])[0]),
        load=_number(word("load")),
        processors_count=max(1, int(_number(word("processors")))),
        interfaces=tuple(_interface(words) for words in found.get("interface", ()) if words),
        routed=_routed_interfaces(found),
        offloads={words[0]: tuple(words[1:]) for words in found.get("offload", ()) if words},
    )


def make_plan(facts: HostFacts, wanted: str, named: Sequence[str]) -> Plan | str:
    """What captures there, or why nothing can: a clause.

    Arguments: `wanted`, `agent`, `tcpdump`, or `auto` for the first that can; `named`, the operator's interfaces.
    """
    interfaces = choose_interfaces(facts, named)
    if isinstance(interfaces, str):
        return interfaces
    agent_may = facts.may_capture or facts.sudo == "all"
    by_sudo = not facts.may_capture
    if wanted != "tcpdump" and agent_may:
        if facts.agent and facts.agent_version == version("twintap"):
            return Plan(Method.INSTALLED, by_sudo, interfaces)
        if not why_agent_cannot_be_sent(facts):
            return Plan(Method.SENT, by_sudo, interfaces)
    if wanted != "agent" and facts.tcpdump and (agent_may or facts.sudo or facts.tcpdump_capable):
        if facts.libpcap < SLL2_LIBPCAP:
            interfaces = interfaces[:1]
        return Plan(Method.TCPDUMP, by_sudo and not facts.tcpdump_capable, interfaces)
    return _why_nothing(facts, wanted, agent_may)


def why_agent_cannot_be_sent(facts: HostFacts) -> str:
    """A clause; "" if it can."""
    machine = MACHINES.get(facts.machine, facts.machine)
    if not AGENT.exists():
        return "this installation has no agent to send (its build found no static C library)"
    if facts.system != "Linux" or machine != platform.machine():
        return f"our agent is for Linux on {platform.machine()}, this is {facts.system} on {machine}"
    return "" if facts.folder else "no folder there can hold a program (/dev/shm, /tmp, /var/tmp, the home)"


def choose_interfaces(facts: HostFacts, named: Sequence[str]) -> tuple[Interface, ...] | str:
    """The operator's, or those by which the host is reached; a clause if there are none."""
    by_name = {interface.name: interface for interface in facts.interfaces}
    missing = [name for name in named if name not in by_name]
    if missing:
        return f"no interface {missing[0]}; there are: {', '.join(by_name)}"
    chosen = tuple(by_name[name] for name in named or facts.routed if name in by_name)
    return chosen or "no interface with an address or a route was found; give one by --interface HOST=NAME"


def problems_of(host: str, facts: HostFacts, plan: Plan | str, clock: Clock | None) -> list[Problem]:
    """What is in the way, and what makes the recording worse."""
    if isinstance(plan, str):
        what, _, remedy = plan.partition("; ")
        return [Problem(host, what, remedy or "see docs/capture.md", stops=True)]
    found = []
    if facts.load > BUSY_LOAD * facts.processors_count:
        what = f"load {facts.load:g} on {facts.processors_count} processors, so packets may be dropped"
        found.append(Problem(host, what, "drops are counted; record again when it is less busy"))
    if clock is not None and abs(clock.offset_ns) > CLOCK_NOTICE_NS + clock.error_ns:
        side = "ahead of" if clock.offset_ns > 0 else "behind"
        what = f"its clock is {in_words(abs(clock.offset_ns))} {side} this machine's"
        found.append(Problem(host, what, "the trace aligns clocks; to mend it there: chronyc makestep"))
    if plan.method is Method.TCPDUMP:
        found += _about_tcpdump(host, facts, plan)
    return found


def _about_tcpdump(host: str, facts: HostFacts, plan: Plan) -> list[Problem]:
    found = []
    if facts.libpcap < SLL2_LIBPCAP and len(facts.routed) > 1:
        what = f"its tcpdump records one interface at a time: {plan.interfaces[0].name}"
        found.append(Problem(host, what, "to choose another: --interface HOST=NAME"))
    if facts.sudo == "tcpdump" and plan.by_sudo:
        what = "sudo permits tcpdump and nothing else, so a second connection at the end makes it notice that"
        found.append(Problem(host, what, "to do without, permit sh there, too"))
    return found


def _why_nothing(facts: HostFacts, wanted: str, agent_may: bool) -> str:
    if not agent_may and not facts.sudo and not facts.tcpdump_capable:
        return (
            "no right to capture; log in as root, or permit it there without a password: "
            "USER ALL=(root) NOPASSWD: /usr/bin/tcpdump"
        )
    if wanted == "agent":
        return f"{why_agent_cannot_be_sent(facts) or 'sudo permits tcpdump and nothing else'}; leave out --with agent"
    if wanted == "tcpdump":
        return "tcpdump is not there; leave out --with tcpdump, or run there: apt install tcpdump"
    return f"{why_agent_cannot_be_sent(facts)}, and tcpdump is not there; run there: apt install tcpdump"


def host_line(host: str, facts: HostFacts, plan: Plan, clock: Clock | None) -> str:
    """One host in a line: what captures there, where, and by which rights."""
    names = ", ".join(interface.name for interface in plan.interfaces)
    offloads = sorted({kind for interface in plan.interfaces for kind in facts.offloads.get(interface.name, ())})
    parts = [f"{plan.method} on {names}{f' ({chr(32).join(offloads)})' if offloads else ''}"]
    parts.append("by sudo" if plan.by_sudo else "as root" if facts.is_root else "by its capability")
    if clock is not None:
        sign = "+" if clock.offset_ns >= 0 else "-"
        parts.append(f"clock {sign}{in_words(abs(clock.offset_ns))} ± {in_words(clock.error_ns)}")
    parts.append(f"load {facts.load:g}")
    return f"{host}: {', '.join(parts)}"


def disk_problem(folder: Path, free_bytes: int) -> Problem | None:
    """What of the disk here is in the way."""
    if free_bytes >= LEAST_DISK_BYTES:
        return None
    what = f"{free_bytes / 1e6:,.0f} MB left on the disk of {folder}"
    return Problem("here", what, "free some space, or choose another place with -o", stops=free_bytes == 0)


def clock_from(answers: Iterable[tuple[int, int, str]]) -> Clock | None:
    """The clock by the quickest answer; None if none is a time.

    Arguments: for each answer, our time before and after (ns), and the text: seconds, or seconds and nanoseconds.
    """
    clocks = []
    for before_ns, after_ns, text in answers:
        seconds, _, fraction = text.partition(".")
        if not seconds.isdecimal():
            continue
        is_fine = len(fraction) == 9 and fraction.isdecimal()
        half_ns = 0 if is_fine else 500_000_000
        host_ns = int(seconds) * 1_000_000_000 + (int(fraction) if is_fine else half_ns)
        clocks.append(Clock(host_ns - (before_ns + after_ns) // 2, (after_ns - before_ns) // 2 + half_ns))
    return min(clocks, key=lambda clock: clock.error_ns, default=None)


def _routed_interfaces(found: Mapping[str, list[list[str]]]) -> tuple[str, ...]:
    """Those with a route or an address for other hosts, but for loopback and bridges that only containers use."""
    routes = [words for words in found.get("route", ()) if len(words) == 2]
    names = [words[0] for words in routes]
    names += [words[0] for words in found.get("inet6", ()) if len(words) == 3 and words[1] == GLOBAL_SCOPE]
    default = {name for name, destination in routes if destination == "00000000"}
    bridges = {words[0] for words in found.get("bridge", ()) if words}
    return tuple(name for name in dict.fromkeys(names) if name != "lo" and (name not in bridges or name in default))


def _interface(words: list[str]) -> Interface:
    name, index, address = [*words, "", "", ""][:3]
    pairs = address.split(":")
    is_ethernet = len(pairs) == 6 and all(len(pair) == 2 and _is_hex(pair) for pair in pairs)
    return Interface(
        name,
        int(index) if index.isdecimal() and int(index) < 1 << 32 else 0,
        bytes.fromhex("".join(pairs)) if is_ethernet else bytes(6),
    )


def _client(words: list[str]) -> tuple[str, int] | None:
    """Source: ssh(1), SSH_CONNECTION: client address and port, server address and port."""
    if len(words) != 4 or not words[1].isdecimal():
        return None
    try:
        address = ipaddress.ip_address(words[0].partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(words[1])


def _has_net_raw(capabilities: str) -> bool:
    return _is_hex(capabilities) and bool(int(capabilities, 16) & CAP_NET_RAW)


def _is_hex(text: str) -> bool:
    return bool(text) and not set(text.lower()) - set("0123456789abcdef")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def check_interfaces(given: Sequence[str], hosts: Sequence[str]) -> dict[str, list[str]]:
    """Interfaces by host of `HOST=NAME`. Raises: InputError."""
    found: dict[str, list[str]] = {}
    for text in given:
        host, sign, name = text.partition("=")
        if not sign or not name or name.startswith("-") or host not in hosts:
            raise InputError(f"--interface {text} is not HOST=NAME", f"hosts are: {', '.join(hosts)}")
        found.setdefault(host, []).append(name)
    return found
