"""Describes faults: kind, target and parameters. The other modules apply them to hosts.

A target is a host (`storage1`), a server (`storage1/object`) or a device (`storage1/d1`), as its kind asks.
"""

import dataclasses
import enum
from collections.abc import Mapping

from storage_cluster.errors import ClusterError
from storage_cluster.topology import Topology


class FaultError(ClusterError):
    """A fault cannot be injected: it is invalid, or this machine lacks something."""


class Target(enum.Enum):
    """What a kind of fault acts on."""

    HOST = "HOST"
    SERVERS = "HOST[/SERVICE]"
    DEVICE = "HOST/DEVICE"


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of a fault; None where one does not apply."""

    peer: str | None = None  # the other end: packets to and from this host only
    direction: str | None = None  # of packets, seen from the target: "to", "from" or "both"
    probability: float | None = None
    delay_ns: int | None = None
    jitter_ns: int | None = None
    rate_bits_per_s: int | None = None
    cpu_share: float | None = None  # of one core
    backlog_count: int | None = None
    offset_ns: int | None = None
    drift_ppb: int | None = None
    latency_ns: int | None = None
    seed: int | None = None

    def given_values(self) -> dict[str, str | float | int]:
        """The parameters that apply, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of fault: `defaults` names the parameters that it takes (None: must be given)."""

    target: Target
    meaning: str
    required: tuple[str, ...] = ()
    defaults: Mapping[str, str | float | int | None] = dataclasses.field(default_factory=dict)
    momentary: bool = False  # done once; there is nothing to clear


_PACKETS: Mapping[str, str | float | int | None] = {"peer": None, "direction": "both"}

KINDS: Mapping[str, Kind] = {
    "stop": Kind(Target.SERVERS, "SIGSTOP; the kernel goes on accepting and acknowledging for it"),
    "kill": Kind(Target.SERVERS, "SIGKILL; clearing starts it again"),
    "restart": Kind(Target.SERVERS, "SIGTERM, then start again", momentary=True),
    "cut": Kind(Target.HOST, "the host's link carries nothing (or nothing to and from --peer)", (), {"peer": None}),
    "drop": Kind(Target.HOST, "each packet is lost with --probability", ("probability",), _PACKETS),
    "delay": Kind(
        Target.HOST, "each packet is --delay late, give or take --jitter", ("delay_ns",),
        {**_PACKETS, "jitter_ns": 0, "seed": None},
    ),
    "reorder": Kind(
        Target.HOST, "with --probability a packet is held back by --delay, and others overtake it", ("probability",),
        {**_PACKETS, "delay_ns": 1_000_000, "seed": None},
    ),
    "bandwidth": Kind(Target.HOST, "the host's link carries --rate each way", ("rate_bits_per_s",)),
    "refuse": Kind(Target.SERVERS, "new connections are answered with RST, as by a closed port"),
    "backlog": Kind(
        Target.SERVERS, "the accept queue holds --backlog connections; SYNs beyond are dropped", (),
        {"backlog_count": 1},
    ),
    "cpu": Kind(Target.HOST, "everything on the host gets --share of one core together", ("cpu_share",)),
    "clock": Kind(
        Target.HOST, "the host's stamps are --offset ahead and go --drift too fast", (),
        {"offset_ns": 0, "drift_ppb": 0},
    ),
    "slow-disk": Kind(Target.DEVICE, "each transfer takes --latency more", (), {"latency_ns": 50_000_000}),
    "bad-disk": Kind(
        Target.DEVICE, "a transfer fails (EIO) with --probability", (), {"probability": 1.0, "seed": None}
    ),
    "full-disk": Kind(Target.DEVICE, "writing fails (ENOSPC)"),
    "bit-rot": Kind(
        Target.DEVICE, "one bit of one object file is flipped", (), {"seed": None},
        momentary=True,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault: its kind, target, parameters and times."""

    kind: str
    target: str
    parameters: Parameters = Parameters()
    after_ns: int = 0
    for_ns: int | None = None  # None: until it is cleared

    @property
    def host(self) -> str:
        """The host on which the fault acts."""
        return self.target.partition("/")[0]

    @property
    def part(self) -> str:
        """The server or device on the host; "" for the whole host."""
        return self.target.partition("/")[2]

    def text(self) -> str:
        """The fault in one line, for people: `slow-disk storage2/d1, latency 200 ms`."""
        given = self.parameters.given_values().items()
        return ", ".join((f"{self.kind} {self.target}", *(_in_words(name, value) for name, value in given)))


def parse(document: Mapping) -> Fault:
    """A fault from its form as a dict (`dataclasses.asdict`). Raises: KeyError, TypeError."""
    return Fault(**{**document, "parameters": Parameters(**document["parameters"])})


def with_defaults(fault: Fault, topology: Topology) -> Fault:
    """The fault with its kind's defaults filled in. Raises: FaultError where it makes no sense on this cluster."""
    kind = KINDS[fault.kind]
    _check_target(fault, kind, topology)
    given = fault.parameters.given_values()
    takes = {**kind.defaults, **dict.fromkeys(kind.required)}
    for name in given:
        if name not in takes:
            raise FaultError(f"{fault.kind} takes no {_option(name)}", f"it takes: {_options(takes)}")
    for name in kind.required:
        if name not in given:
            raise FaultError(f"{fault.kind} needs {_option(name)}", "tracer cluster fault add --help shows its unit")
    _check_ranges(fault)
    if fault.kind == "clock" and not given:
        raise FaultError("a clock fault needs an error", "give --offset, --drift or both")
    if kind.momentary and fault.for_ns is not None:
        raise FaultError(f"{fault.kind} is done in a moment", "leave out --for")
    values = {name: given.get(name, takes[name]) for name in takes}
    filled = dataclasses.replace(fault.parameters, **values)  # type: ignore[arg-type]
    if filled.peer is not None:
        _check_host(filled.peer, topology)
        if filled.peer == fault.host:
            raise FaultError(f"the peer of {fault.host} cannot be itself", "name another host")
    return dataclasses.replace(fault, parameters=filled)


def same_place(one: Fault, other: Fault) -> bool:
    """Whether two faults have the same kind and target, so that they cannot both be active."""
    return (one.kind, one.target, one.parameters.peer) == (other.kind, other.target, other.parameters.peer)


def _check_target(fault: Fault, kind: Kind, topology: Topology) -> None:
    host = _check_host(fault.host, topology)
    services = {service.name for service in topology.services if service.host == host}
    devices = {device.name for device in topology.host(host).devices}
    allowed = {
        Target.HOST: {""},
        Target.SERVERS: {"", *services} if services else set(),
        Target.DEVICE: devices,
    }[kind.target]
    if fault.part not in allowed:
        choices = ", ".join(f"{host}/{part}" if part else host for part in sorted(allowed)) or "nothing on this host"
        raise FaultError(f"{fault.kind} needs {kind.target.value}, not {fault.target!r}", f"choose from: {choices}")


def _check_ranges(fault: Fault) -> None:
    for name, value in fault.parameters.given_values().items():
        low, high, text = _RANGES.get(name, (None, None, ""))
        if (low is not None and value < low) or (high is not None and value > high):
            raise FaultError(f"{_option(name)} is out of range", f"give {text}")
    if (fault.parameters.jitter_ns or 0) > (fault.parameters.delay_ns or 0):
        raise FaultError("the jitter is more than the delay", "packets cannot arrive before they are sent")
    if fault.after_ns < 0 or (fault.for_ns is not None and fault.for_ns <= 0):
        raise FaultError("a fault cannot begin in the past, nor last no time", "give --after and --for a time ahead")


def _check_host(name: str, topology: Topology) -> str:
    names = [host.name for host in topology.hosts]
    if name not in names:
        raise FaultError(f"there is no host {name!r}", f"the hosts are: {', '.join(names)}")
    return name


_RANGES: Mapping[str, tuple] = {
    # lowest, highest, in words
    "probability": (0.0, 1.0, "0 % to 100 %"),
    "delay_ns": (0, None, "0 or more"),
    "jitter_ns": (0, None, "0 or more"),
    "latency_ns": (0, None, "0 or more"),
    "rate_bits_per_s": (8_000, None, "8kbit or more"),
    "cpu_share": (0.01, None, "1 % or more"),
    "backlog_count": (0, None, "0 or more"),
}
_OPTIONS = {
    "delay_ns": "--delay", "jitter_ns": "--jitter", "rate_bits_per_s": "--rate", "cpu_share": "--share",
    "backlog_count": "--backlog", "offset_ns": "--offset", "drift_ppb": "--drift", "latency_ns": "--latency",
}  # fmt: skip


_UNITS = {
    "probability": (100, " %"), "cpu_share": (100, " % of a core"), "rate_bits_per_s": (1e-6, " Mbit/s"),
    "drift_ppb": (1e-3, " ppm"),
}  # fmt: skip
_DURATIONS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000))


def _option(name: str) -> str:
    return _OPTIONS.get(name, f"--{name}")


def _in_words(name: str, value: str | float) -> str:
    word = _option(name).removeprefix("--")
    if isinstance(value, str):
        return f"{word} {value}"
    if name.endswith("_ns"):
        return f"{word} {_duration(value)}"
    scale, unit = _UNITS.get(name, (1, ""))
    return f"{word} {value * scale:g}{unit}"


def _duration(value_ns: float) -> str:
    unit, size = next((each for each in _DURATIONS if abs(value_ns) >= each[1]), ("ns", 1))
    return f"{value_ns / size:g} {unit}"


def _options(names: Mapping[str, object]) -> str:
    return ", ".join(_option(name) for name in names) or "no option but --for and --after"
