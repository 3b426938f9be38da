"""Counters of what agents with a CPU budget left out: since when which share of connections, and which heads."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from collector.capture_files.kept import Keeping, Kept
from collector.capture_files.records import Severity
from collector.trace.model import CounterInfo

CONNECTIONS_SAMPLED = "connections_sampled"
"""Packets of connections that the agent of a host did not keep."""
HEADS_SHORTENED = "heads_shortened"
"""Packets of which an agent kept less of the payload than its policy allows."""
LONGEST_LIST = 8
"""More changes than this are counted."""
UNKNOWN_COUNT = 1
"""At least: an agent that was killed has not stated what it left out last, and views show no counter of 0."""


def kept_counters(host: str, kept: Kept) -> Iterator[CounterInfo]:
    """The counters of a host whose agent had a CPU budget and kept less than all; none if it kept all."""
    if kept.most_depth:
        shares = _changes((each.since_ns, f"1/{1 << each.depth}" if each.depth else "all") for each in kept.changes)
        text = (
            f"its agent's CPU budget allowed only some connections, the same on every host: {shares}. Packets of "
            "others are not lost, but calls on them are missing here, and their time counts as their caller's; raise "
            "--cpu-budget there, or capture less (a FILTER)"
        )
        yield CounterInfo(
            host, CONNECTIONS_SAMPLED, str(Severity.DATA_LOSS), max(UNKNOWN_COUNT, kept.left_out_count), text
        )
    if any(each.head_bytes is not None for each in kept.changes):
        heads = _changes((each.since_ns, _heads(each)) for each in kept.changes)
        text = (
            f"its agent's CPU budget allowed only parts of heads: {heads}. What is behind is not known there, such as "
            "paths and statuses; raise --cpu-budget there, or capture less (a FILTER)"
        )
        yield CounterInfo(host, HEADS_SHORTENED, str(Severity.NOTICE), max(UNKNOWN_COUNT, kept.shortened_count), text)


def _heads(keeping: Keeping) -> str:
    if keeping.head_bytes is None:
        return "whole"
    return f"{keeping.head_bytes:,} bytes" if keeping.head_bytes else "none"


def _changes(found: Iterable[tuple[int, str]]) -> str:
    """What held since when, by the host's clock, as in `all, 1/2 from 14:05:30 UTC`."""
    changes: list[tuple[int, str]] = []
    for since_ns, what in found:
        if not changes or changes[-1][1] != what:
            changes.append((since_ns, what))
    first = changes[0][1] if changes else ""
    return ", ".join([first, *_some([f"{what} from {_time(since_ns)}" for since_ns, what in changes[1:]])])


def _some(changes: Sequence[str]) -> list[str]:
    if len(changes) <= LONGEST_LIST:
        return list(changes)
    half = LONGEST_LIST // 2
    return [*changes[:half], f"{len(changes) - LONGEST_LIST:,} more changes", *changes[-half:]]


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
