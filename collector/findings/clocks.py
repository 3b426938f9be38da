"""Findings about clocks: not aligned, stepped, or further off than a synchronised clock."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from collector.findings.finding import Finding, times
from collector.findings.observations import Observations
from collector.hops.quality_summary import ClockStep, clock_steps, skew_doubt_ppb
from collector.trace.durations import in_words
from collector.trace.model import TraceInfo
from collector.trace.threshold import threshold


@dataclass(frozen=True, slots=True)
class ClockThresholds:
    """From which difference on a clock is not synchronised."""

    offset_least_ns: int = threshold(
        10_000_000,
        'NTP keeps hosts of a network within a few ms (RFC 5905 §4: "a few milliseconds" over LANs and well-kept WANs)',
    )
    skew_least_ppb: int = threshold(
        100_000, "a quartz is accurate to about 100 ppm; NTP corrects up to 500 ppm (RFC 5905 §11.3)"
    )


def find(seen: Observations, limits: ClockThresholds) -> Iterable[Finding]:
    """All findings about clocks."""
    return clock_findings(seen.clocks, seen.info, limits)


def clock_findings(clocks: pa.Table, info: TraceInfo, limits: ClockThresholds) -> Iterable[Finding]:
    """Findings about the clocks of hosts that sent or received packets. Arguments: the table `clocks`; thresholds."""
    busy = _hosts_with_packets(info)
    if len(busy) < 2:
        return
    rows_of: dict[str, list[dict[str, Any]]] = {}
    for row in clocks.to_pylist():
        rows_of.setdefault(row["host"], []).append(row)
    whole = _whole(row for rows in rows_of.values() for row in rows)
    on_path = {host.host for host in info.hosts if host.on_path}
    for host, rows in rows_of.items():
        if host in busy and not (host in on_path and rows[0]["method"] == "none"):
            yield from _of_host(host, rows, whole, limits)
    yield from _step_findings(step for step in clock_steps(clocks) if step.host in busy)


def _hosts_with_packets(info: TraceInfo) -> set[str]:
    """Hosts that sent or received packets, as far as that is known: a switch floods packets between others to an idle
    host. Where fewer than two hosts are known to have packets of their own, all that captured any."""
    others = {each.host: each.count for each in info.counters if each.name == "direction_unknown"}
    own = {host.host for host in info.hosts if host.events_count > others.get(host.host, 0)}
    return own if len(own) > 1 else {host.host for host in info.hosts if host.events_count}


def _whole(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The interval of the whole trace, from the clocks that are aligned."""
    windows = [window for row in rows if row["method"] != "none" and (window := _window([row]))]
    ends = (("from_trace_ns", min), ("to_trace_ns", max))
    return {name: of(window[name] for window in windows) for name, of in ends} if windows else {}


def _of_host(
    host: str, rows: list[dict[str, Any]], whole: dict[str, Any], limits: ClockThresholds
) -> Iterable[Finding]:
    """Arguments: the host's clock lines; the trace's interval, which stands in for that of a host without any line."""
    first = rows[0]
    if first["method"] == "none":
        yield Finding(
            severity="warning",
            kind="unaligned_clock",
            host=host,
            text=f"the clock of {host} could not be aligned: it exchanged no packets with other hosts in both "
            f"directions",
            remedy="do not compare times of that host with those of others, or capture a host that talks to both",
            **whole,
        )
        return
    for row in rows:
        if row["method"] == "inconsistent":
            yield Finding(
                severity="warning",
                kind="inconsistent_clock",
                host=host,
                text=f"the clock of {host} does not run evenly: no offset and drift fit all its packets, so its "
                f"times are uncertain by {in_words(row['uncertainty_ns'] or 0)}",
                remedy="check whether its clock was set while the capture ran (chronyc tracking)",
                **_window([row]),
            )
    yield from _unsynchronised_clock(host, rows, limits)


def _step_findings(steps: Iterable[ClockStep]) -> Iterable[Finding]:
    """One finding for each host; steps within the clocks' uncertainty are ignored."""
    of: dict[str, list[ClockStep]] = {}
    for step in steps:
        if abs(step.step_ns) > (step.uncertainty_ns or 0):
            of.setdefault(step.host, []).append(step)
    for host, mine in of.items():
        largest = max(abs(step.step_ns) for step in mine)
        yield Finding(
            severity="warning",
            kind="clock_step",
            host=host,
            count=len(mine),
            from_trace_ns=min(step.at_trace_ns for step in mine),
            to_trace_ns=max(step.at_trace_ns for step in mine),
            text=f"the clock of {host} was set {times(len(mine), 'time')} while it was captured, by "
            f"{'up to ' * (len(mine) > 1)}{in_words(largest)}; times here are corrected, times in its logs are not",
            remedy="let NTP slew its clock instead of stepping it (chrony: makestep only at the start)",
        )


def _window(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The interval covered by these lines of a host's clock, in trace time."""
    first, last = rows[0], rows[-1]
    if first["offset_ns"] is None or last["offset_ns"] is None:
        return {}
    drift = (last["skew_ppb"] or 0) * (last["to_host_ns"] - last["from_host_ns"]) // 1_000_000_000
    return {
        "from_trace_ns": first["from_host_ns"] - first["offset_ns"],
        "to_trace_ns": last["to_host_ns"] - last["offset_ns"] - drift,
    }


def _unsynchronised_clock(host: str, rows: list[dict[str, Any]], limits: ClockThresholds) -> Iterable[Finding]:
    row = rows[0]
    if row["offset_ns"] is None or row["reference"]:
        return
    doubt = row["uncertainty_ns"] or 0
    offset, skew = row["offset_ns"], row["skew_ppb"] or 0
    skew_doubt = skew_doubt_ppb(row)
    if abs(offset) - doubt < limits.offset_least_ns and abs(skew) - skew_doubt < limits.skew_least_ppb:
        return
    way = "ahead of" if offset > 0 else "behind"
    drifts = abs(skew) > max(1000, skew_doubt)
    speed = f"{abs(skew) / 1000:.0f} ± {skew_doubt / 1000:.0f} ppm too {'fast' if skew > 0 else 'slow'}"
    drift = f", and runs {speed}" if drifts else ""
    yield Finding(
        severity="warning",
        kind="clock_offset",
        host=host,
        text=f"the clock of {host} is {in_words(abs(offset))} {way} the reference{drift}; times here are corrected, "
        "times in its logs are not",
        remedy="check that it is synchronised (chronyc tracking, timedatectl)",
        **_window(rows),
    )
