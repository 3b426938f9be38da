"""When a capture itself dropped packets, on the trace's timescale, as findings, the report and the page show it.

Source: `HostInfo.dropped`, the drops that each capture counts between two of its statistics
(`collector.hops.coverage`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from collector.clocks.alignment import to_trace_ns
from collector.decode.activity import DropSpan
from collector.hops.capture_windows import trace_spans
from collector.trace.durations import in_words
from collector.trace.model import TraceInfo


@dataclass(frozen=True, slots=True)
class CaptureDrops:
    """Packets that a host's capture reports as dropped; `stretches` in trace time, ascending, at least one."""

    host: str
    stretches: tuple[DropSpan, ...]
    start_ns: int  # when the first of all captures began
    captured_count: int

    @property
    def count(self) -> int:
        """The packets dropped in all stretches."""
        return sum(stretch.count for stretch in self.stretches)

    @property
    def when(self) -> str:
        """`between +1.200 s and +2.300 s`; with several stretches, also the one that lost most."""
        first, last = self.stretches[0], max(self.stretches, key=lambda each: each.to_ns)
        said = self._between(DropSpan(first.from_ns, last.to_ns, 0))
        if len(self.stretches) == 1:
            return said
        worst = max(self.stretches, key=lambda each: each.count)
        return f"in {len(self.stretches):,} stretches {said}, most ({worst.count:,}) {self._between(worst)}"

    @property
    def words(self) -> str:
        """One line for people to read."""
        of = self.count + self.captured_count
        return f"the capture on {self.host} dropped {self.count:,} of {of:,} packets itself, {self.when}"

    def count_within(self, from_ns: int | None, to_ns: int | None) -> int:
        """At most so many packets were dropped in an interval of trace time; without an interval: all of them."""
        begin, end = (from_ns, to_ns if to_ns is not None else from_ns)
        if begin is None or end is None:
            return self.count
        return sum(each.count for each in self.stretches if each.from_ns <= end and begin <= each.to_ns)

    def _between(self, stretch: DropSpan) -> str:
        begin, end = (max(0, at - self.start_ns) for at in (stretch.from_ns, stretch.to_ns))
        return f"between +{in_words(begin)} and +{in_words(end)}"


def capture_drops(info: TraceInfo, clocks: pa.Table) -> tuple[CaptureDrops, ...]:
    """The drops of each host whose capture reports when it dropped packets.

    Arguments: `clocks`, the trace's table.
    """
    dropping = [host for host in info.hosts if host.dropped]
    if not dropping:
        return ()
    firsts = [(host.host, host.first_host_ns) for host in info.hosts if host.first_host_ns is not None]
    names, stamps = (pa.array(column) for column in zip(*firsts, strict=True))
    start_ns = int(to_trace_ns(names, stamps, clocks).min())
    found = []
    for host in dropping:
        spans = trace_spans(host.host, tuple((begin, end) for begin, end, _ in host.dropped), clocks)
        stretches = (DropSpan(*span, count) for span, (_, _, count) in zip(spans, host.dropped, strict=True))
        found.append(CaptureDrops(host.host, _merge_adjacent(stretches), start_ns, host.packets_count))
    return tuple(found)


def _merge_adjacent(stretches: Iterable[DropSpan]) -> tuple[DropSpan, ...]:
    """Stretches that touch become one."""
    joined: list[DropSpan] = []
    for each in sorted(stretches, key=lambda each: each.from_ns):
        if joined and each.from_ns <= (last := joined[-1]).to_ns:
            joined[-1] = DropSpan(last.from_ns, max(last.to_ns, each.to_ns), last.count + each.count)
        else:
            joined.append(each)
    return tuple(joined)
