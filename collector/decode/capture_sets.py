"""Checks captures that are given together: there should be one of each host, all taken at the same time.

- Captures with the same packets at the same nanoseconds are one capture given twice; it is analysed once.
- Files, or folders, of one name in different folders are one host if they share an own address, several hosts if each
  has its own.
- A capture that did not overlap in time with any other has no packet in common with it.

Each problem is counted under a name defined here, which every report shows whatever its severity.
"""

from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from collector.capture_files.records import Severity
from collector.decode.copies import COPIES
from collector.decode.host_addresses import Traffic, own_addresses
from collector.decode.merged_captures import SPLIT
from collector.decode.partitions import Notes
from collector.services.operators_names import NAME_OF_NOTHING
from collector.trace.durations import in_words
from collector.trace.model import CounterInfo, HostInfo

SAME_CAPTURE, SAME_NAME, NO_OVERLAP = "same_capture", "same_name", "no_overlap_in_time"
NAMES = frozenset({SAME_CAPTURE, SAME_NAME, NO_OVERLAP, SPLIT, COPIES, NAME_OF_NOTHING})


def first_of_same(notes: Sequence[Notes]) -> list[int]:
    """For each capture, the index of the first one with the same packets at the same times, which may be itself."""
    return [
        next(first for first, other in enumerate(notes) if first == place or (mine.events_count and other == mine))
        for place, mine in enumerate(notes)
    ]


def are_several_hosts(captures: Sequence[Traffic], alike: Sequence[int]) -> bool | None:
    """Whether the captures at indices `alike` are of different hosts; None if some show no address of their own.

    Each is judged together with the captures not in `alike`: those in `alike` may own the same addresses.
    """
    others = [traffic for place, traffic in enumerate(captures) if place not in alike]
    owned = [own_addresses([*others, captures[place]])[-1] for place in alike]
    if not all(owned):
        return None
    return sum(map(len, owned)) == len(frozenset().union(*owned))


def by_name(counters: Iterable[CounterInfo]) -> list[CounterInfo]:
    """The counters of all files of a host, summed by name."""
    sums: dict[str, CounterInfo] = {}
    for counter in counters:
        known = sums.get(counter.name)
        sums[counter.name] = replace(counter, count=counter.count + (known.count if known else 0))
    return list(sums.values())


def same_capture(host: str, other: str, packets_count: int) -> CounterInfo:
    """The counter that reports that `host` has the capture of `other`."""
    remedy = f"these are the packets of {other} again: analysed once, as {other}; give each host its own capture"
    return CounterInfo(host, SAME_CAPTURE, Severity.NOTICE, packets_count, remedy)


def same_name(name: str, hosts: Sequence[str], several: bool | None) -> CounterInfo:
    """The counter that reports whether captures of one name are treated as one host or several."""
    if several:
        remedy = f"their own addresses differ, so they are {', '.join(hosts)}; name them with HOST=FILE"
    elif several is None:
        remedy = "nothing shows whether they are one host's: taken as one; if not, name them with HOST=FILE"
    else:
        remedy = "their own addresses are the same: taken as one host"
    return CounterInfo(name, SAME_NAME, Severity.NOTICE, len(hosts), remedy)


def not_overlapping(hosts: Sequence[HostInfo], clocks: pa.Table) -> tuple[CounterInfo, ...]:
    """Counters of hosts that, by their own clocks, captured when no other host did, and whose clock is not aligned.

    Arguments: the table `clocks`. A wrong clock alone is not reported: its packets match, and its offset is known.
    """
    rows = pl.DataFrame(clocks).filter(~pl.col("reference") & pl.col("uncertainty_ns").is_null())
    unplaced = set(rows["host"].cast(pl.String))
    spans = {
        host.host: (host.first_host_ns, host.last_host_ns)
        for host in hosts
        if host.first_host_ns is not None and host.last_host_ns is not None
    }
    found = []
    for host in hosts:
        if host.host not in unplaced or host.host not in spans:
            continue
        first, last = spans[host.host]
        apart = [max(a - last, first - b) for name, (a, b) in spans.items() if name != host.host]
        if apart and min(apart) > 0:
            remedy = (
                f"no other capture ran at that time, the nearest {in_words(min(apart))} apart: nothing of it can be "
                "paired; capture all hosts at the same time, or set its clock"
            )
            found.append(CounterInfo(host.host, NO_OVERLAP, Severity.ERROR, host.packets_count, remedy))
    return tuple(found)
