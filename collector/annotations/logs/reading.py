"""Reads logs of captured hosts: their lines as records, and counters of what could not be read.

A line's format is recognised from the line itself; the format of the line before is tried first. Lines that were
stamped more than `MARGIN_NS` before or after their host's capture are counted and left out.

Cost: 70 to 105 µs a line. Memory: the records.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from pathlib import Path

from msgspec import Struct

from collector.annotations.log_options import LogOptions
from collector.annotations.logs import haproxy, json_lines, nginx, postgresql, swift
from collector.annotations.logs.lines import lines_of
from collector.annotations.logs.origin import Origin
from collector.annotations.logs.places import log_files
from collector.annotations.logs.stamps import NO_YEAR, NO_ZONE, Calendar, parse_zone
from collector.annotations.records import Record
from collector.trace.model import CounterInfo, HostInfo
from tracer.errors import InputError
from tracer.plain_text import plain
from tracer.secret_rules import rules

MARGIN_NS = 60 * 10**9
MOST_RECORDS = 2_000_000
"""Of all logs together; a record takes about 1 kB of memory."""
SHOWN = 120
"""Letters of a line that a message quotes."""
Parse = Callable[[str, Origin], Record | None]
PARSERS: tuple[Parse, ...] = (json_lines.parse, haproxy.parse, swift.parse, nginx.parse, postgresql.parse)
EVERY = ""


def zones_of(texts: Sequence[str]) -> dict[str, tzinfo]:
    """The zones of `ZONE` and `HOST=ZONE`. Raises: `InputError` for what is no zone."""
    split = [text.rpartition("=") for text in texts]
    return {host: parse_zone(zone) for host, _, zone in split}


class _Counts(Struct):
    """Of one host: lines by what became of them, and the first that no format has."""

    read: int = 0
    unread: int = 0
    cut: int = 0
    outside: int = 0
    first_unread: str = ""


def read_logs(options: LogOptions, hosts: Sequence[HostInfo]) -> tuple[list[Record], list[CounterInfo]]:
    """The records of all logs in the order of the lines, and what could not be read of them.

    Raises: `InputError` for a place without a file or of no captured host, a file that cannot be read, a place of which
    no line is of a known format, and for more than `MOST_RECORDS`.
    """
    records: list[Record] = []
    counts, assumed = dict[str, _Counts](), dict[str, Counter[str]]()
    infos = {host.file_name: host for host in hosts if host.file_name} | {host.host: host for host in hosts}
    for place in options.places:
        of_place: list[_Counts] = []
        for called, path in log_files(place, list(infos)):
            host = infos[called].host
            zone = options.zones.get(host) or options.zones.get(infos[host].file_name) or options.zones.get(EVERY)
            dates = Calendar(zone, infos[host].first_host_ns or 0)
            count = counts.setdefault(host, _Counts())
            before = count.read
            for record in _of_file(path, Origin(plain(path.name), host, dates), _capture_time(infos[host]), count):
                if len(records) >= MOST_RECORDS:
                    raise InputError(
                        f"the logs have more than {MOST_RECORDS:,} lines of this time", "give fewer of them"
                    )
                records.append(record)
            assumed.setdefault(host, Counter()).update(dates.assumed)
            of_place.append(_Counts(read=count.read - before, first_unread=count.first_unread))
        if not any(each.read for each in of_place):
            line = next((each.first_unread for each in of_place if each.first_unread), "it is empty")
            raise InputError(
                f"--logs {place}: no line is of a format that is known; the first is: {line}",
                "docs/logs.md lists what is read",
            )
    found = [each for host, count in counts.items() for each in _counters(host, count)]
    return records, found + [each for host, count in assumed.items() for each in _assumptions(host, count)]


def _capture_time(host: HostInfo) -> tuple[int, int]:
    return (host.first_host_ns or 0) - MARGIN_NS, (host.last_host_ns or 0) + MARGIN_NS


def _of_file(path: Path, origin: Origin, within: tuple[int, int], count: _Counts) -> Iterator[Record]:
    secrets, order = rules(), list(PARSERS)
    for raw, is_whole in lines_of(path):
        if not raw.strip() or raw[0] == "\t":  # a tab: PostgreSQL goes on with a message
            continue
        count.cut += not is_whole
        line = secrets.text(raw.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
        record = _parse(line, origin, order) if is_whole else None
        if record is None:
            count.unread += 1
            count.first_unread = count.first_unread or plain(line[:SHOWN])
            continue
        count.read += 1
        if record.begin_host_ns + record.duration_ns < within[0] or record.begin_host_ns > within[1]:
            count.outside += 1
        else:
            yield record


def _parse(line: str, origin: Origin, order: list[Parse]) -> Record | None:
    """The record of a line; the format that reads it comes first in `order` from then on."""
    for place, parse in enumerate(order):
        record = parse(line, origin)
        if record is not None:
            if place:
                order.insert(0, order.pop(place))
            return record
    return None


def _counters(host: str, count: _Counts) -> Iterator[CounterInfo]:
    if count.unread:
        quoted = f"the first is: {count.first_unread}"
        yield CounterInfo(host, "log_lines_unread", "notice", count.unread, quoted)
    if count.cut:
        yield CounterInfo(host, "log_lines_cut", "notice", count.cut, "such lines are not read")
    if count.outside:
        yield CounterInfo(
            host, "log_lines_outside", "info", count.outside, "they are of another time than the captures"
        )


def _assumptions(host: str, count: Counter[str]) -> Iterator[CounterInfo]:
    if count[NO_ZONE]:
        step = "if they are not in UTC, say so with --log-zone ZONE"
        yield CounterInfo(host, "log_zone_assumed", "info", count[NO_ZONE], step)
    if count[NO_YEAR]:
        yield CounterInfo(host, "log_year_assumed", "info", count[NO_YEAR], "the year of the captures was taken")
