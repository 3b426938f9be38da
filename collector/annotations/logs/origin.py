"""What a line's format needs to know beside the line, and what is common to all formats."""

import ipaddress
import re

from msgspec import Struct

from collector.annotations.logs.stamps import Calendar, Stamp, month
from collector.annotations.records import Address, Kind, Record
from tracer.plain_text import plain

MOST_NAME, MOST_TEXT = 200, 4_096
"""Letters that are kept of each."""
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>(?:1 )?)?(?:(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)"
    r"|(?P<date>\d{4}-\d{2}-\d{2})T(?P<time>\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)(?P<zone>Z|[+-]\d{2}:?\d{2}))"
    r"(?: (?P<host>\S{1,255}))? (?P<program>[^\s:\[\]]{1,64})(?:\[\d{1,10}\]|(?: \d{1,10}| -) \S{1,64} -)?:? "
)
_DECIMAL = re.compile(r"\d{1,12}(?:\.\d{1,9})?")


class Origin(Struct, frozen=True):
    """Where a line is from: its file, the host that wrote it, and the calendar for its stamps."""

    source: str
    host: str | None
    calendar: Calendar


class Syslog(Struct, frozen=True):
    """The head of a line that came by syslog, and the line without it."""

    stamp: Stamp | None
    program: str
    rest: str


def split_syslog(line: str, origin: Origin) -> Syslog:
    """A line without its head of syslog (RFC 3164, RFC 5424 or as rsyslog writes it), if it has one."""
    found = _SYSLOG.match(line)
    if found is None:
        return Syslog(None, "", line)
    if found["date"]:
        year, of_year, day = map(int, found["date"].split("-"))
        stamp = origin.calendar.stamp((year, of_year, day), found["time"], found["zone"])
    else:
        stamp = origin.calendar.stamp((0, month(found["month"]), int(found["day"])), found["clock"])
    return Syslog(stamp, found["program"], line[found.end() :])


def seconds_ns(text: str) -> tuple[int, int] | None:
    """A duration in seconds, `0.0123`, and what one of its last digits stands for, in ns; None if it is none."""
    if not _DECIMAL.fullmatch(text):
        return None
    whole, _, fraction = text.partition(".")
    return int(whole) * 10**9 + int(fraction.ljust(9, "0")), 10 ** (9 - len(fraction))


def milliseconds_ns(text: str) -> tuple[int, int] | None:
    """The same of a duration in ms."""
    found = seconds_ns(text)
    return None if found is None else (found[0] // 1_000, max(1, found[1] // 1_000))


def address(host: str, port: str = "") -> Address | None:
    """An end of a connection; None if `host` is no IP address."""
    try:
        addr = str(ipaddress.ip_address(host.removeprefix("::ffff:")))
    except ValueError:
        return None
    return Address(addr, int(port) if port.isdecimal() and int(port) < 1 << 16 else 0)


def log_record(
    format_name: str, origin: Origin, stamp: Stamp, line: str, name: str, *, duration_ns: int = 0, **more: object
) -> Record:
    """A record of a line that is stamped at its end; its texts are safe to print."""
    safe = {key: plain(value) if isinstance(value, str) else value for key, value in more.items()}
    return Record(
        kind=Kind.LOG,
        format=format_name,
        source=origin.source,
        host=origin.host,
        name=plain(name.strip())[:MOST_NAME],
        text=plain(line)[:MOST_TEXT],
        begin_host_ns=stamp.at_ns - duration_ns,
        duration_ns=duration_ns,
        uncertainty_ns=stamp.uncertainty_ns,
        **safe,  # type: ignore[arg-type]
    )
