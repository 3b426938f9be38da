"""What is injected, and which findings name it: the truth's side of the grading, as data.

A case is a fault of `tracer cluster fault add` (or none) with its host or link drawn from the seed. `accepted` are the
kinds of findings that name it; the finding must also be on the fault's host, or on a link that ends there. Some faults
are one and the same on the wire, so they share a finding: a killed server, one that is restarted and a closed port all
answer SYNs with RST.
"""

import random
from dataclasses import dataclass

STORAGE = ("storage1", "storage2", "storage3")
DEVICES = ("d1", "d2")
CLEAN = "none"


@dataclass(frozen=True, slots=True)
class Case:
    """A fault to inject: words of `tracer cluster fault add`, none for a clean run."""

    kind: str
    words: tuple[str, ...]
    number: int
    before: bool = False  # in force before the recording begins
    read_share: float = 65.0  # of the load's operations

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.kind}-{self.number}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a kind of fault is injected: its target's form, its options (one of several), and how it is to be named."""

    target: str  # "{host}", "{host}/object", "{host}/{device}"; {any} is the proxy or a storage host
    options: tuple[str, ...]
    accepted: frozenset[str]
    before: bool = False
    read_share: float = 65.0


def _kinds(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DROPS = ("--probability 5%", "--probability 2%", "--probability 5% --peer proxy")
_DELAYS = ("--delay 30ms", "--delay 10ms --jitter 8ms", "--delay 20ms --peer proxy")
_CLOCKS = ("--offset 80ms --drift 200ppm", "--offset -300ms", "--drift 400ppm --offset 20ms")
_SWAPS = ("--probability 20%", "--probability 10% --delay 2ms")

PLANS = {
    "stop": Plan("{host}/object", ("",), _kinds("server_silent")),
    "kill": Plan("{host}/object", ("",), _kinds("connection_refused")),
    "restart": Plan("{host}/object", ("",), _kinds("connection_refused")),
    "cut": Plan("{host}", ("", "--peer proxy"), _kinds("link_down")),
    "drop": Plan("{host}", _DROPS, _kinds("packet_loss")),
    "delay": Plan("{host}", _DELAYS, _kinds("slow_link")),
    "reorder": Plan("{host}", _SWAPS, _kinds("reordering")),
    "bandwidth": Plan("{host}", ("--rate 2mbit", "--rate 10mbit"), _kinds("narrow_link")),
    "refuse": Plan("{host}/object", ("",), _kinds("connection_refused")),
    "backlog": Plan("{any}", ("--backlog 0",), _kinds("listen_queue_full")),
    "cpu": Plan("{host}", ("--share 2%", "--share 5%"), _kinds("host_starved")),
    "clock": Plan("{host}", _CLOCKS, _kinds("clock_offset"), before=True),
    "slow-disk": Plan("{host}/{device}", ("", "--latency 100ms"), _kinds("slow_disk")),
    "bad-disk": Plan("{host}/{device}", ("", "--probability 50%"), _kinds("server_error")),
    "full-disk": Plan("{host}/{device}", ("",), _kinds("disk_full")),
    "bit-rot": Plan("{host}/{device}", ("",), _kinds("missing_replica"), read_share=100.0),
}
"""The 16 kinds of faults."""


def cases(kind: str, count: int) -> list[Case]:
    """So many runs of a kind, each with its own host, device and options."""
    if kind == CLEAN:
        return [Case(CLEAN, (), number) for number in range(count)]
    plan, source = PLANS[kind], random.Random(f"diagnosis {kind}")
    made = []
    for number in range(count):
        host = STORAGE[(number + source.randrange(3)) % 3]
        where = {"host": host, "device": source.choice(DEVICES), "any": ("proxy", *STORAGE)[number % 4]}
        target = plan.target.format(**where)
        if kind == "backlog" and target != "proxy":
            target += "/object"
        options = plan.options[number % len(plan.options)].split()
        made.append(Case(kind, (kind, target, *options), number, plan.before, plan.read_share))
    return made
