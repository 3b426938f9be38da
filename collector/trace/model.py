"""The contents of `trace.json`: a trace's hosts, counters, command and names of services."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from collector.trace.schema import FORMAT_VERSION
from tracer.secret_rules import SecretChoice


class PointInfo(Struct, frozen=True):
    """An observation point: one interface of a host.

    `coverage`: when it captured, as ascending disjoint spans in its host's time, ns (`collector.hops.coverage`).
    `dropped`: the times that it covers in part: from, to, and how many packets it reports as dropped between.
    `hardware_stamps_count`, `software_stamps_count`: packets by who stamped them, the card or the kernel; null where
    the capture does not say it. `stamp_error_ns`: how far the card's stamps may be off by the host's clock.
    """

    point: str
    interface: str
    link_type: str
    coverage: tuple[tuple[int, int], ...] = ()
    dropped: tuple[tuple[int, int, int], ...] = ()
    hardware_stamps_count: int | None = None
    software_stamps_count: int | None = None
    stamp_error_ns: int | None = None


class HostInfo(Struct, frozen=True):
    """A captured host and the contents of its capture; both times are null without packets.

    `coverage`: when any of its points captured; `dropped`: the times that they cover in part; both as for points.
    `on_path`: it forwards packets of others, as a router does (`collector.decode.forwarders`). `sampled`: when its
    agent's budget allowed one connection in 2^n: from, to (its own stamps), n. `file_name`: what its captures' file
    calls it, if a name of its address is better (`collector.decode.address_names`).
    """

    host: str
    addresses: tuple[str, ...]
    points: tuple[PointInfo, ...]
    files: tuple[str, ...]
    packets_count: int
    events_count: int
    first_host_ns: int | None
    last_host_ns: int | None
    coverage: tuple[tuple[int, int], ...] = ()
    on_path: bool = False
    dropped: tuple[tuple[int, int, int], ...] = ()
    sampled: tuple[tuple[int, int, int], ...] = ()
    file_name: str = ""


class CounterInfo(Struct, frozen=True):
    """A named count of a problem with the input; `host` is null if it concerns the whole trace."""

    host: str | None
    name: str
    severity: str
    count: int
    remedy: str


class CommandInfo(Struct, frozen=True):
    """The command that ran while the hosts were captured; times are those of `host`, around its process."""

    argv: tuple[str, ...]
    host: str
    started_host_ns: int
    ended_host_ns: int
    exit_status: int


class ServiceInfo(Struct, frozen=True):
    """The name of a server (`collector.services.naming`)."""

    host: str  # as captured, else its address; "" for whatever listens at the port
    port: int
    name: str
    evidence: str = ""  # the evidence for the name, in words


class AddressName(Struct, frozen=True):
    """What an address is called by hosts files and captures (`collector.decode.address_names`)."""

    address: str
    name: str  # empty if captures disagree
    file: str  # the hosts file, or the capture, that has the name
    others: tuple[str, ...] = ()  # further names, in whichever file


class ThresholdInfo(Struct, frozen=True):
    """A threshold of findings that the operator set (`collector.findings.thresholds`)."""

    name: str  # `group.threshold`
    value: float
    default: float


class TraceInfo(Struct, frozen=True):
    """The contents of `trace.json`."""

    created_ns: int
    tool_version: str
    hosts: tuple[HostInfo, ...]
    counters: tuple[CounterInfo, ...] = ()
    command: CommandInfo | None = None
    services: tuple[ServiceInfo, ...] = ()  # servers not listed here are named HOST:PORT
    secrets: SecretChoice = field(
        default_factory=SecretChoice
    )  # the rules by which its packets and texts were overwritten
    thresholds: tuple[ThresholdInfo, ...] = ()  # the thresholds of findings that differ from the defaults
    names: tuple[AddressName, ...] = ()  # of addresses that occur in the packets, by address
    period: tuple[int, int] | None = None  # only requests that began within [from, to) are in it; null for all
    format_version: int = FORMAT_VERSION


def parse_info(document: dict[str, Any]) -> TraceInfo:
    command = document["command"]
    return TraceInfo(
        created_ns=document["created_ns"],
        tool_version=document["tool_version"],
        hosts=tuple(_parse_host(host) for host in document["hosts"]),
        counters=tuple(CounterInfo(**counter) for counter in document["counters"]),
        command=CommandInfo(**command | {"argv": tuple(command["argv"])}) if command else None,
        services=tuple(_parse_services(document["services"])),
        secrets=SecretChoice(**document.get("secrets", {})),
        thresholds=tuple(ThresholdInfo(**each) for each in document.get("thresholds", ())),
        names=tuple(AddressName(**each | {"others": tuple(each["others"])}) for each in document.get("names", ())),
        period=tuple(document["period"]) if document.get("period") else None,
    )


def _parse_services(document: Any) -> Iterator[ServiceInfo]:
    if isinstance(document, dict):  # of a trace made while ports were names
        return (ServiceInfo("", int(port), name) for port, name in document.items())
    return (ServiceInfo(**service) for service in document)


def _parse_host(document: dict[str, Any]) -> HostInfo:
    points = tuple(PointInfo(**point | _parse_spans(point)) for point in document["points"])
    named = {name: tuple(document[name]) for name in ("addresses", "files")}
    sampled = tuple((begin, end, depth) for begin, end, depth in document.get("sampled", ()))
    return HostInfo(**document | named | {"points": points, "sampled": sampled} | _parse_spans(document))


def _parse_spans(document: dict[str, Any]) -> dict[str, Any]:
    coverage = tuple((begin, end) for begin, end in document["coverage"])
    dropped = tuple((begin, end, count) for begin, end, count in document.get("dropped", ()))
    return {"coverage": coverage, "dropped": dropped}
