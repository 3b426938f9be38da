"""How far each host's capture has come, in words: packets, drops, and how far behind it is."""

from collections.abc import Iterable

from msgspec import Struct

from collector.remote.preflight import Clock
from collector.trace.durations import in_words

NS_PER_S = 1_000_000_000


class HostFigures(Struct, frozen=True):
    """One host now. `lag_ns`: how old the newest that has arrived is, by its clock less the clock's distance."""

    host: str
    packets_count: int
    dropped_count: int
    lag_ns: int | None = None
    has_ended: bool = False


def lag(now_ns: int, newest_host_ns: int | None, clock: Clock | None) -> int | None:
    """How old the newest is; None if that, or the clock's distance, is not known."""
    if newest_host_ns is None or clock is None:
        return None
    return max(0, now_ns + clock.offset_ns - newest_host_ns)


def progress_line(hosts: Iterable[HostFigures]) -> str:
    """`web1 12,034 packets, 0.2 s behind · db1 …`."""
    return " · ".join(map(_host_words, hosts))


def _host_words(figures: HostFigures) -> str:
    words = [f"{figures.host} {packets(figures.packets_count)}"]
    if figures.dropped_count:
        words.append(f"{figures.dropped_count:,} dropped")
    if figures.has_ended:
        words.append("ended")
    elif figures.lag_ns is not None:
        words.append(f"{figures.lag_ns / NS_PER_S:.1f} s behind")
    return ", ".join(words)


def last_line(figures: HostFigures, most_lag_ns: int | None, failure: str) -> str:
    """A host's recording in one line, when it has ended."""
    drops = f"{figures.dropped_count:,} dropped there" if figures.dropped_count else "none dropped"
    parts = [packets(figures.packets_count), drops]
    if most_lag_ns is not None:
        parts.append(f"at most {in_words(most_lag_ns)} behind")
    if failure:
        parts.append(f"ended early: {failure}")
    return f"{figures.host}: {', '.join(parts)}"


def packets(count: int) -> str:
    """`1 packet`, `12,034 packets`."""
    return f"{count:,} packet{'s' * (count != 1)}"
