"""Builds the lanes of the timeline, one for each host, and the recorded command as a band on one of them."""

import re
from collections.abc import Sequence

import pyarrow as pa

from collector.clocks.alignment import to_trace_ns
from collector.queries.answers import Command, Lane
from collector.queries.timeline.columns import NO_LANE
from collector.trace.model import CommandInfo, HostInfo, TraceInfo
from collector.trace.schema import ERRORS


def command_span(command: CommandInfo | None, clocks: pa.Table) -> tuple[int, int] | None:
    """The recorded command's start and end in trace time."""
    if command is None:
        return None
    stamps = pa.array([command.started_host_ns, command.ended_host_ns])
    begin, end = (int(at) for at in to_trace_ns(pa.array([command.host] * 2), stamps, clocks))
    return begin, end


def command_of(
    info: CommandInfo | None, span: tuple[int, int] | None, start_ns: int, hosts: Sequence[str]
) -> Command | None:
    if info is None or span is None:
        return None
    lane = hosts.index(info.host) if info.host in hosts else NO_LANE
    return Command(info.argv, lane, span[0] - start_ns, span[1] - start_ns, info.exit_status)


CLOCK_WORDS = {
    "hull": "aligned by the delays of its packets",
    "inconsistent": "not aligned well: its packets contradict each other",
    "raw": "as the host had it",
    "none": "not aligned: no packets to compare it by",
}
"""The methods of the table `clocks`, in words."""


def lane_order(info: TraceInfo, busy: set[str], depth: dict[str, int]) -> list[str]:
    """Hosts in order of lanes: those that serve nothing, then by their depth in requests, then those without a packet
    (`busy` have some)."""
    known = busy | {host.host for host in info.hosts}
    return sorted(known, key=lambda host: (host not in busy, depth.get(host, -1), _natural(host)))


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which storage2 comes before storage10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"([0-9]+)", text)]


def lanes_of(
    hosts: Sequence[str], info: TraceInfo, clocks: pa.Table, services: Sequence[tuple[str, ...]]
) -> tuple[Lane, ...]:
    """A lane for each of `hosts`, which serve `services`."""
    known = {host.host: host for host in info.hosts}
    rows = clocks.to_pylist()
    return tuple(
        _lane(host, known.get(host), [row for row in rows if row["host"] == host], served)
        for host, served in zip(hosts, services, strict=True)
    )


def _lane(host: str, info: HostInfo | None, clocks: list[dict[str, object]], services: tuple[str, ...]) -> Lane:
    first = clocks[0] if clocks else {}
    offset, uncertainty, likely = (first.get(name) for name in ("offset_ns", *ERRORS))
    method = "reference clock" if first.get("reference") else CLOCK_WORDS.get(str(first.get("method")), "not aligned")
    return Lane(
        host=host,
        addresses=info.addresses if info else (),
        services=services,
        packets_count=info.events_count if info else 0,
        clock=method,
        clock_offset_ns=offset if isinstance(offset, int) else None,
        clock_uncertainty_ns=uncertainty if isinstance(uncertainty, int) else None,
        clock_likely_error_ns=likely if isinstance(likely, int) else None,
    )
