"""The injected faults, and the findings that name each of them, as data.

A case is a fault of `tracer cluster fault add` (or none) with its host or link drawn from the seed. `accepted` are the
kinds of findings that name it; the finding must also be on the fault's host, or on a link that ends there. Some faults
are one and the same on the wire, so they share a finding: a killed server, one that is restarted and a closed port all
answer SYNs with RST.
"""

import random
from dataclasses import dataclass, replace

STORAGE = ("storage1", "storage2", "storage3")
DEVICES = ("d1", "d2")
CLEAN = "none"


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the cluster in a run."""

    workers: int = 8
    sizes: str = "u(4,64)KB"
    read_share: float = 65.0  # % of operations
    keep_alive: bool = False
    rate_per_s: float | None = None  # requests come at this rate; without it each worker's as soon as the last is done


@dataclass(frozen=True, slots=True)
class Case:
    """A fault to inject: words of `tracer cluster fault add`, none for a clean run."""

    kind: str
    words: tuple[str, ...]
    number: int
    before: bool = False  # in force before the recording begins
    load: Load = Load()

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
    load: Load = Load()
    workers: tuple[int, ...] = (8, 16, 4)  # one of several


def _kinds(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DROPS = ("--probability 5%", "--probability 2%", "--probability 5% --peer proxy")
_DELAYS = ("--delay 30ms", "--delay 10ms --jitter 8ms", "--delay 20ms --peer proxy")
_CLOCKS = ("--offset 80ms --drift 200ppm", "--offset -300ms", "--drift 400ppm --offset 20ms")
_ALL = Load(read_share=100.0)
_SWAPS = ("--probability 20%", "--probability 10% --delay 2ms")

PLANS = {
    "stop": Plan("{host}/object", ("",), _kinds("server_silent")),
    "kill": Plan("{host}/object", ("",), _kinds("connection_refused server_died")),
    "restart": Plan("{host}/object", ("",), _kinds("connection_refused server_died")),
    "cut": Plan("{host}", ("", "--peer proxy"), _kinds("link_down")),
    "drop": Plan("{host}", _DROPS, _kinds("packet_loss")),
    "delay": Plan("{host}", _DELAYS, _kinds("slow_link")),
    "reorder": Plan("{host}", _SWAPS, _kinds("reordering")),
    "bandwidth": Plan("{host}", ("--rate 2mbit", "--rate 10mbit"), _kinds("narrow_link")),
    "refuse": Plan("{host}/object", ("",), _kinds("connection_refused")),
    "backlog": Plan("{any}", ("--backlog 0",), _kinds("listen_queue_full listen_drops")),
    "cpu": Plan("{host}", ("--share 2%", "--share 5%"), _kinds("host_starved")),
    "clock": Plan("{host}", _CLOCKS, _kinds("clock_offset"), before=True),
    "slow-disk": Plan("{host}/{device}", ("", "--latency 100ms"), _kinds("slow_disk")),
    "bad-disk": Plan("{host}/{device}", ("", "--probability 50%"), _kinds("server_error")),
    "full-disk": Plan("{host}/{device}", ("",), _kinds("disk_full")),
    "bit-rot": Plan("{host}/{device}", ("",), _kinds("missing_replica"), load=_ALL),
}
"""The 16 kinds of faults."""

CALM = (
    Load(),
    Load(workers=64),
    Load(workers=4, sizes="u(1,4)MB"),
    Load(workers=2, rate_per_s=4.0),
    Load(workers=32, keep_alive=True),
    Load(workers=1),
    Load(read_share=0.0),
    Load(workers=16, sizes="c(1)B", keep_alive=True),
    Load(workers=128, rate_per_s=40.0, keep_alive=True),
    Load(workers=24, sizes="u(100,800)KB", read_share=90.0),
)
"""Loads of clean runs: usual, many clients, large objects, nearly idle, kept connections, one client, …"""


def cases(kind: str, count: int) -> list[Case]:
    """So many runs of a kind, each with its own host, device and options."""
    if kind == CLEAN:
        return [Case(CLEAN, (), number, load=CALM[number % len(CALM)]) for number in range(count)]
    plan, source = PLANS[kind], random.Random(f"diagnosis {kind}")
    made = []
    for number in range(count):
        host = STORAGE[(number + source.randrange(3)) % 3]
        where = {"host": host, "device": source.choice(DEVICES), "any": ("proxy", *STORAGE)[number % 4]}
        target = plan.target.format(**where)
        if kind == "backlog" and target != "proxy":
            target += "/object"
        options = plan.options[number % len(plan.options)].split()
        load = replace(plan.load, workers=plan.workers[number % len(plan.workers)])
        made.append(Case(kind, (kind, target, *options), number, plan.before, load))
    return made
