"""Hosts as lanes of the timeline, and the recorded command as a band on one of them."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from collector.queries.answers import Command, Lane
from collector.store import CommandInfo, HostInfo, TraceInfo
from collector.timeline import NO_LANE


def command_span(info: TraceInfo, clocks: pa.Table) -> tuple[int, int] | None:
    """The recorded command's start and end in trace time."""
    command = info.command
    if command is None:
        return None
    rows = [row for row in clocks.to_pylist() if row["host"] == command.host]
    return _trace_ns(command.started_host_ns, rows), _trace_ns(command.ended_host_ns, rows)


def _trace_ns(host_ns: int, clock_rows: list[dict[str, int]]) -> int:
    """A host's stamp in trace time, by the interval that holds it or else the nearest; see `schema.CLOCKS`."""
    if not clock_rows:
        return host_ns
    row = min(clock_rows, key=lambda each: max(each["from_host_ns"] - host_ns, host_ns - each["to_host_ns"], 0))
    return host_ns - row["offset_ns"] - row["skew_ppb"] * (host_ns - row["from_host_ns"]) // 1_000_000_000


def command_of(
    info: CommandInfo | None, span: tuple[int, int] | None, start_ns: int, hosts: Sequence[str]
) -> Command | None:
    if info is None or span is None:
        return None
    lane = hosts.index(info.host) if info.host in hosts else NO_LANE
    return Command(info.argv, lane, span[0] - start_ns, span[1] - start_ns, info.exit_status)


def lane_order(info: TraceInfo, hops: pa.Table, depth: dict[str, int]) -> list[str]:
    """Hosts from the client inwards: those that serve nothing, then by how deep in requests they serve, then those
    without a packet."""
    busy = {
        host for name in ("send_host", "receive_host") for host in pc.unique(hops[name]).to_pylist() if host is not None
    }
    known = busy | {host.host for host in info.hosts}
    return sorted(known, key=lambda host: (host not in busy, depth.get(host, -1), _natural(host)))


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which storage2 comes before storage10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"([0-9]+)", text)]


def lanes_of(
    hosts: Sequence[str], info: TraceInfo, clocks: pa.Table, services: dict[str, tuple[str, ...]]
) -> tuple[Lane, ...]:
    known = {host.host: host for host in info.hosts}
    rows = clocks.to_pylist()
    return tuple(
        _lane(host, known.get(host), [row for row in rows if row["host"] == host], services.get(host, ()))
        for host in hosts
    )


def _lane(host: str, info: HostInfo | None, clocks: list[dict[str, object]], services: tuple[str, ...]) -> Lane:
    first = clocks[0] if clocks else {}
    offset, uncertainty = first.get("offset_ns"), first.get("uncertainty_ns")
    method = "reference clock" if first.get("reference") else str(first.get("method") or "not aligned")
    return Lane(
        host=host,
        addresses=info.addresses if info else (),
        services=services,
        packets_count=info.events_count if info else 0,
        clock=method,
        clock_offset_ns=offset if isinstance(offset, int) else None,
        clock_uncertainty_ns=uncertainty if isinstance(uncertainty, int) else None,
    )
