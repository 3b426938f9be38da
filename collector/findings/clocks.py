"""Clocks: not aligned, stepped, or wrong by more than a kept clock is."""

from collections.abc import Iterable
from itertools import pairwise

import polars as pl

from collector.durations import in_words
from collector.findings.finding import Finding
from collector.store import TraceInfo

OFFSET_NS = 10_000_000
"""NTP keeps hosts of a network within a few ms (RFC 5905 §4: "a few milliseconds" over LANs and well-kept WANs)."""
SKEW_PPB = 100_000
"""A quartz is good to about 100 ppm; NTP disciplines what is within 500 (RFC 5905 §11.3)."""


def clock_findings(clocks: pl.DataFrame, info: TraceInfo) -> Iterable[Finding]:
    """What is wrong with the clocks of hosts that sent or received anything."""
    busy = {host.host for host in info.hosts if host.events_count}
    if len(busy) < 2:
        return
    for (host,), rows in clocks.group_by("host", maintain_order=True):
        if host in busy:
            yield from _of_host(str(host), rows.rows(named=True))


def _of_host(host: str, rows: list[dict[str, int]]) -> Iterable[Finding]:
    first = rows[0]
    if first["method"] == "none":
        yield Finding(
            severity="warning",
            kind="unaligned_clock",
            host=host,
            text=f"the clock of {host} could not be aligned: no traffic with the others in both directions",
            remedy="compare no times of that host with others', or capture a host that talks to both",
        )
        return
    for row in rows:
        if row["method"] == "inconsistent":
            yield Finding(
                severity="warning",
                kind="inconsistent_clock",
                host=host,
                text=f"the clock of {host} does not run straight: no offset and drift fit all its packets; its "
                f"times are good to {in_words(row['uncertainty_ns'] or 0)}",
                remedy="see whether its clock was set while the capture ran (chronyc tracking)",
            )
    steps = [after["offset_ns"] - before["offset_ns"] for before, after in pairwise(rows)]
    if steps:
        largest = max(steps, key=abs)
        yield Finding(
            severity="warning",
            kind="clock_step",
            host=host,
            count=len(steps),
            text=f"the clock of {host} was set {len(steps)} times while it was captured, by up to "
            f"{in_words(abs(largest))}; its times here are put right, in its logs they are not",
            remedy="let its clock be slewed, not stepped, once it runs (chrony: makestep only at the start)",
        )
    yield from _wrong(host, first)


def _wrong(host: str, row: dict[str, int]) -> Iterable[Finding]:
    if row["offset_ns"] is None or row["reference"]:
        return
    doubt = row["uncertainty_ns"] or 0
    offset, skew = row["offset_ns"], row["skew_ppb"] or 0
    if abs(offset) - doubt < OFFSET_NS and abs(skew) < SKEW_PPB:
        return
    way = "ahead of" if offset > 0 else "behind"
    drift = f", and runs {abs(skew) / 1000:.0f} ppm too {'fast' if skew > 0 else 'slow'}" if abs(skew) > 1000 else ""
    yield Finding(
        severity="warning",
        kind="clock_offset",
        host=host,
        text=f"the clock of {host} is {in_words(abs(offset))} {way} the reference{drift}; here that is put right, in "
        "its logs it is not",
        remedy="see that it is synchronised (chronyc tracking, timedatectl)",
    )
