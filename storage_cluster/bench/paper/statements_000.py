"""Compares the statements of document 000, sentence by sentence, with the measurements, and explains differences.

A difference is explained from two sources. One is what the hosts used at the first point, at the best point and where
the curve falls: the disk or the processor was full, or neither, so requests waited for something else. The other is the
trace of the point with the most failures: which connections failed, at which step, on whose queue.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from storage_cluster.bench.paper.experiment_000 import Found, Series, peak
from storage_cluster.bench.paper.statements import Statement
from storage_cluster.servers.http.front import ACCEPT_BACKLOG

PLATEAU_SHARE = 0.9  # of the peak's throughput: no fall yet
RISEN_SHARE = 0.95  # of it: no rise is left, since neighbouring points of a plateau differ by so much by chance
SEEN_SHARE = (
    0.005  # of a point's objects: fewer are not to be seen in the paper's figures, whose text was read off them
)
BUSY_PERCENT = 90.0
IDLE_PERCENT = 10.0
FULL_SHARE = 0.85  # of all cores
MUCH_RATIO = 1.5  # times
WAIT_PERCENT = 50.0
QUOTED_COUNT = 2  # findings of a trace that are quoted; the others are listed below its title
PAPERS_QUEUE = 128  # net.core.somaxconn before Linux 5.4; its table 1: Ubuntu 16.04
_SAID_OF_15 = "figure 15: uploads one at a time spend long in the proxy, not in the storage node"
_WHY_OF_15 = (
    "here an upload is durable when it is answered (synced, on a disk with its write cache off), and the proxy is light"
)
FIGURES_15 = {
    "figure-15": "",
    "figure-15-ssd": "SSD, synced",
    "figure-15-ssd-unsynced": "SSD, not synced",
    "figure-15-hdd": "HDD, synced",
    "figure-15-hdd-unsynced": "HDD, not synced",
}
"""Traces of figure 15's command, and what they were made with; the paper does not say what its own was made with."""
_SAID_OF_16 = "figure 16: the longest part of one upload by `swift` is before the client's first packet"
_IN_TURN = "what is uploaded passes client, network, proxy and servers in turn, and the disk waits for it"
_QUEUES = {
    False: f"no listen queue turned a connection away: one holds {ACCEPT_BACKLOG:,} here, and {PAPERS_QUEUE} on Ubuntu "
    "16.04 (which the paper had) unless it is tuned",
    True: f"no listen queue of {PAPERS_QUEUE} turned a connection away",
}
Accounts = Mapping[str, Sequence[str]]
"""Medium to what the trace of its worst point shows to be wrong."""


def statements(series: Series, accounts: Accounts | None = None) -> list[Statement]:
    """All of them."""
    made = _held_against(series)
    return [
        each
        if each.why or each.agrees is not False
        else dataclasses.replace(each, why=_why(each, series, accounts or {}))
        for each in made
    ]


def of_pictures(parts_ns: Mapping[str, Mapping[str, int]]) -> list[Statement]:
    """The paper's conclusions from its pictures 15 and 16, compared with where the commands' time went here.

    Arguments: `parts_ns`, of the traces `figure-15` and `figure-16`.
    """
    made: list[Statement] = []
    made += _time_in_proxy({title: parts_ns[name] for name, title in FIGURES_15.items() if parts_ns.get(name)})
    if parts := parts_ns.get("figure-16"):
        longest = max(parts, key=lambda label: parts[label])
        found = f"{parts[longest] / 1e6:,.0f} of {sum(parts.values()) / 1e6:,.0f} ms {longest}"
        made.append(Statement(_SAID_OF_16, found, longest.startswith("before its first packet")))
    return made


def _time_in_proxy(parts_by_title: Mapping[str, Mapping[str, int]]) -> Iterator[Statement]:
    """Figure 15: as the paper if it is so with any of the disks that the paper may have had, synced or not."""
    if not parts_by_title:
        return
    texts: list[str] = []
    longer: list[str] = []
    others: list[str] = []
    for title, parts in parts_by_title.items():
        proxy, storage = _at(parts, "proxy"), _at(parts, "account", "container", "object")
        text = f"{proxy / 1e6:.1f} ms in the proxy, {storage / 1e6:.1f} ms in the storage node's servers"
        texts.append(f"{title}: {text}" if title else text)
        (longer if proxy > storage else others).append(title)
    why = f"not so with {', '.join(others)}" if longer and others else _WHY_OF_15 if others else ""
    yield Statement(_SAID_OF_15, "; ".join(texts), bool(longer), why)


def _at(parts: Mapping[str, int], *servers: str) -> int:
    """The time spent at these servers: their work, their queues, waits for several of them."""
    ways = (r"in", r"in the queue of", r"waiting for the quorum of", r"waiting for the slower of \w+ parallel calls to")
    label = re.compile(f"({'|'.join(ways)}) swift-({'|'.join(servers)})")
    return sum(spent for part, spent in parts.items() if label.fullmatch(part))


def _held_against(series: Series) -> list[Statement]:
    hdd = {size: found for (media, size), found in series.items() if media == "hdd"}
    ssd = {size: found for (media, size), found in series.items() if media == "ssd"}
    return [
        *_rise(hdd, "HDD: throughput rises up to 32 at once and falls beyond", 32),
        *_rise(ssd, "SSD: throughput rises up to 32 and is steady to 128 (1 KB: falls beyond 32)", 128),
        *_first(hdd, "HDD: retries above 128", 128, lambda found: found.retries_count),
        *_first(ssd, "SSD: retries above 128", 128, lambda found: found.retries_count),
        *_failures(hdd, "HDD: failures above 256", 256),
        *_failures(ssd, "SSD: failures above 1,024", 1024),
        *_faster(hdd, ssd),
        *_storage_busy(hdd),
        *_storage_bound(hdd),
        *_proxy_cpu_overtakes_disks(ssd),
        *_kinds(series),
    ]


def _rise(by_size: dict[str, list[Found]], said: str, limit: int) -> Iterator[Statement]:
    if not by_size:
        return
    tops = {size: _rise_end(found).concurrency for size, found in by_size.items()}
    ends = {
        size: max(f.concurrency for f in found if f.throughput_per_s >= PLATEAU_SHARE * peak(found).throughput_per_s)
        for size, found in by_size.items()
    }
    text = "; ".join(
        f"{size}: {peak(found).throughput_per_s:.0f}/s, rises up to {tops[size]:,}, "
        f"within 10 % of it up to {ends[size]:,}"
        for size, found in by_size.items()
    )
    reached = all(found[-1].concurrency > limit for found in by_size.values())
    agrees = all(
        tops[size] <= limit <= 2 * ends[size] and ends[size] < found[-1].concurrency for size, found in by_size.items()
    )
    yield Statement(said, text, agrees if reached else None)


def _rise_end(series: Sequence[Found]) -> Found:
    """The point at which a rise has ended."""
    most = RISEN_SHARE * peak(series).throughput_per_s
    return next(found for found in series if found.throughput_per_s >= most)


def _first(
    by_size: dict[str, list[Found]], said: str, limit: int, count: Callable[[Found], int]
) -> Iterator[Statement]:
    if not by_size:
        return
    first = {
        size: next((f.concurrency for f in found if _is_seen(f, count(f))), None) for size, found in by_size.items()
    }
    text = "; ".join(
        f"{size}: {f'first at {at:,}' if at else 'none'}{_too_few(by_size[size], at, count)}"
        for size, at in first.items()
    )
    reached = all(found[-1].concurrency > limit for found in by_size.values())
    agrees = all(at is not None and at > limit for at in first.values())
    yield Statement(said, text, agrees if reached else None)


def _is_seen(found: Found, count: int) -> bool:
    """Whether so many of a point's objects are to be seen in a figure."""
    objects_count = found.objects_count + found.failures_count + found.unfinished_count
    return count >= max(1, SEEN_SHARE * objects_count)


def _too_few(series: Sequence[Found], until: int | None, count: Callable[[Found], int]) -> str:
    """What there was before, too little to be seen in a figure."""
    before = (f for f in series if count(f) and (until is None or f.concurrency < until))
    listed = ", ".join(f"{count(f):,} at {f.concurrency:,}" for f in before)
    return f" (before it {listed})" if listed else ""


def _failures(by_size: dict[str, list[Found]], said: str, limit: int) -> Iterator[Statement]:
    """If there was no failure but a point's time ended during retries, the sweep decides nothing."""
    for made in _first(by_size, said, limit, lambda found: found.failures_count):
        cut = {size: max(found, key=lambda each: each.unfinished_count) for size, found in by_size.items()}
        retrying = [
            f"{size}: {most.unfinished_count:,} still retrying at {most.concurrency:,} when the time was over"
            for size, most in cut.items()
            if most.unfinished_count and not any(each.failures_count for each in by_size[size])
        ]
        unknown = made.agrees is False and bool(retrying)
        yield dataclasses.replace(
            made, found="; ".join((made.found, *retrying)), agrees=None if unknown else made.agrees
        )


def _faster(hdd: dict[str, list[Found]], ssd: dict[str, list[Found]]) -> Iterator[Statement]:
    both = [size for size in hdd if size in ssd]
    if both:
        ratios = {size: peak(ssd[size]).throughput_per_s / peak(hdd[size]).throughput_per_s for size in both}
        text = "; ".join(f"{size}: {ratio:.1f} times" for size, ratio in ratios.items())
        low = {("ssd", size): ssd[size] for size, ratio in ratios.items() if ratio <= MUCH_RATIO}
        said = "SSD: the highest throughput is much higher than on HDD"
        yield Statement(said, text, not low, _limits(low))


def _storage_busy(hdd: dict[str, list[Found]]) -> Iterator[Statement]:
    if hdd:
        least = {size: min(f.io_percent["storage"] for f in found) for size, found in hdd.items()}
        text = "; ".join(f"{size}: {value:.0f} % or more" for size, value in least.items())
        said = "HDD: the storage node's I/O is above 90 % at any concurrency"
        below = {size: [f for f in found if f.io_percent["storage"] < BUSY_PERCENT] for size, found in hdd.items()}
        listed = (
            f"{size} at {', '.join(f'{f.concurrency:,}' for f in found)}" for size, found in below.items() if found
        )
        why = f"below it: {'; '.join(listed)}: {_IN_TURN}" if any(below.values()) else ""
        yield Statement(said, text, not why, why)


def _storage_bound(hdd: dict[str, list[Found]]) -> Iterator[Statement]:
    if hdd:
        points = [found for series in hdd.values() for found in series]
        below = all(max(f.cpu_percent.values()) <= f.io_percent["storage"] for f in points)
        most = {host: max(f.cpu_percent[host] for f in points) for host in points[0].cpu_percent}
        text = "most CPU: " + ", ".join(f"{host} {value:.0f} %" for host, value in most.items())
        yield Statement("HDD: no CPU exceeds the storage node's I/O", text, below)
        said = "HDD: the client's CPU stays below 10 %"
        size, top = max(
            ((size, f) for size, series in hdd.items() for f in series), key=lambda each: each[1].cpu_percent["client"]
        )
        agrees = most["client"] <= IDLE_PERCENT
        of = "all its cores" if top.is_modelled else "one core"
        why = "" if agrees else f"the most is at {top.concurrency:,} with {size}, {top.throughput_per_s:,.0f} objects/s"
        yield Statement(said, f"at most {most['client']:.0f} % (of {of})", agrees, why)


def _proxy_cpu_overtakes_disks(ssd: dict[str, list[Found]]) -> Iterator[Statement]:
    if not ssd:
        return
    first = {}
    for size, found in ssd.items():
        first[size] = next((f.concurrency for f in found if f.cpu_percent["proxy"] > f.io_percent["storage"]), None)
    text = "; ".join(f"{size}: {f'from {at:,} on' if at else 'never'}" for size, at in first.items())
    said = "SSD: at high concurrency the proxy's CPU overtakes the storage node's I/O"
    most = max(f.io_percent["storage"] for found in ssd.values() for f in found)
    agrees = all(at is not None and at > 1 for at in first.values())
    yield Statement(said, text, agrees, "" if agrees else f"this SSD is busy {most:.0f} % at most")


def _kinds(series: Series) -> Iterator[Statement]:
    """§7: retries and failures come from sockets that could not be connected."""
    errors: dict[str, int] = {}
    drops: dict[str, float] = {}
    for found in (each for points in series.values() for each in points):
        for kind, count in found.errors.items():
            errors[kind] = errors.get(kind, 0) + count
        for host, away in found.turned_away.items():
            drops[host] = drops.get(host, 0.0) + away
    said = "retries and failures come from connections that the client cannot make"
    if not errors:
        yield Statement(said, "there were none", None)
        return
    connecting = sum(count for kind, count in errors.items() if kind.startswith("connect"))
    text = ", ".join(f"{kind} {count:,}" for kind, count in sorted(errors.items()))
    text += "; full listen queues: " + (_queues(drops) or "none")
    yield Statement(said, text, connecting > sum(errors.values()) / 2)


def _queues(drops: dict[str, float]) -> str:
    return ", ".join(f"{host} ({count:,.0f} turned away)" for host, count in drops.items() if round(count))


def _why(statement: Statement, series: Series, accounts: Accounts) -> str:
    """The exhausted resource at the points of a statement's medium, and what the trace of the worst point shows."""
    media = [medium for medium in ("hdd", "ssd") if statement.said.startswith(medium.upper())] or ["hdd", "ssd"]
    of_medium = {key: points for key, points in series.items() if key[0] in media and points}
    points = [each for found in of_medium.values() for each in found]
    if not any(word in statement.said for word in ("retries", "failures")):
        return _limits(of_medium)
    parts = [] if any(map(_turned_away, points)) else [_QUEUES[any(each.is_modelled for each in points)]]
    if "failures above" in statement.said and not any(each.failures_count for each in points):
        parts.append("nothing went wrong" if not any(map(_retries, points)) else "a retry mended whatever went wrong")
    findings = [f"{medium.upper()}: {text}" for medium in media for text in accounts.get(medium, ())[:QUOTED_COUNT]]
    return "; ".join([*parts, *(["in the trace: " + "; ".join(findings)] if findings else [])])


def _turned_away(found: Found) -> int:
    return round(sum(found.turned_away.values()))


def _retries(found: Found) -> int:
    return found.retries_count


def _limits(series: Series) -> str:
    return "; ".join(f"{size} on {medium.upper()}: {_course(points)}" for (medium, size), points in series.items())


def _course(points: Sequence[Found]) -> str:
    """The limit of a curve at its first point, at its best point and beyond."""
    first, best = points[0], peak(points)
    parts = [] if first is best else [f"at {first.concurrency:,} {_limit(first)}"]
    parts.append(f"at {best.concurrency:,} (the best) {_limit(best)}")
    fallen = [each for each in points if each.concurrency > best.concurrency and not _level(each, best)]
    if fallen:
        retries = f", with {fallen[0].retries_count:,} retries" if fallen[0].retries_count else ""
        parts.append(f"from {fallen[0].concurrency:,} on it falls{retries}")
    return ", ".join(parts)


def _level(found: Found, best: Found) -> bool:
    return found.throughput_per_s >= PLATEAU_SHARE * best.throughput_per_s


def _limit(found: Found) -> str:
    """The exhausted resource at a point."""
    disk, cpu, most = found.io_percent.get("storage", 0.0), sum(found.cpu_percent.values()), 100 * (os.cpu_count() or 1)
    wait = max(found.cpu_wait_percent.values(), default=0.0)
    if disk >= BUSY_PERCENT:
        return f"the disk is full ({disk:.0f} %)"
    host = max(found.cpu_percent, key=lambda each: found.cpu_percent[each])
    own = f"{host} {found.cpu_percent[host]:.0f}"
    if found.is_modelled:
        full = found.cpu_percent[host] >= 100 * FULL_SHARE
        return f"the processor of {own} % is full" if full else f"disk {disk:.0f} %, most processor: {own} %"
    if cpu >= FULL_SHARE * most:
        return f"the machine's processor, which all hosts share, is full ({cpu:.0f} of {most} %)"
    if wait >= WAIT_PERCENT:
        return f"processes wait for a processor {wait:.0f} % of the time (the hosts use {cpu:.0f} of {most} %)"
    return f"neither disk ({disk:.0f} %) nor processor ({cpu:.0f} of {most} %; most: {own}) is full"
