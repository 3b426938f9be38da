"""PostgreSQL: its log (`stderr`, syslog) whose `log_line_prefix` begins with `%m`, `%t` or `%n`; csvlog; jsonlog.

A line with a duration is written when its statement has ended, before the client has the answer. Of the prefix are
read: `%r` (address and port: which connection it is), `%h` (the address alone), `%p`, and `user@database`.
Source: elog.c, "Error Reporting and Logging" in PostgreSQL's manual.
"""

import csv
import re

from collector.annotations.logs.origin import Origin, address, log_record, milliseconds_ns, split_syslog
from collector.annotations.logs.stamps import Stamp, of_number
from collector.annotations.records import Address, Phase, Record
from tracer.secret_rules import choice

FORMAT = "postgresql"
_SEVERITIES = "LOG|ERROR|FATAL|PANIC|WARNING|NOTICE|INFO|DEBUG[1-5]?|STATEMENT|DETAIL|HINT|CONTEXT|QUERY|LOCATION"
_SEVERITY = {"ERROR": "error", "FATAL": "error", "PANIC": "error", "WARNING": "warning", "NOTICE": "notice"}
_STAMP = (
    r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}(?:\.\d{3})?)"
    r" (?P<zone>[A-Z]{1,6}|[+-]\d{2,4})"
)
_LINE = re.compile(
    rf"(?:{_STAMP}|(?P<epoch>\d{{10}}\.\d{{3}}))(?P<prefix>[^\n]{{0,400}}?)(?P<severity>{_SEVERITIES}):  (?P<words>.*)"
)
_CSV_STAMP = re.compile(rf"{_STAMP},")
_REMOTE = re.compile(r"(?<![\w.:])([0-9a-fA-F.:]{2,45})(?:\((\d{1,5})\))?(?![\w.:])")
_DURATION = re.compile(
    r"duration: (?P<ms>\d{1,12}\.\d{3}) ms(?:  (?P<what>statement|execute|parse|bind|fetch)[^:]*: (?P<statement>.*))?",
    re.DOTALL,
)
_VALUE = re.compile(r"(?<=')(?:[^']|'')+(?=')|(?<=\$\$)(?:(?!\$\$).)+(?=\$\$)")
"""What stands between quotes: a statement's values, as they are overwritten in packets."""
_CSV_SEVERITY, _CSV_WORDS, _CSV_REMOTE, _CSV_STATEMENT = 11, 13, 4, 19


def parse(line: str, origin: Origin) -> Record | None:
    """The record of a line; None if it is none of PostgreSQL."""
    rest = line if line[:4].isdigit() and not line[4:8].isalpha() else split_syslog(line, origin).rest
    rest = re.sub(r"^\[\d+-\d+\] ", "", rest)
    if _CSV_STAMP.match(rest):
        return _csv(rest, line, origin)
    found = _LINE.match(rest)
    if found is None:
        return None
    stamp = of_number(found["epoch"]) if found["epoch"] else _stamp(found, origin)
    client = _client(found["prefix"])
    return None if stamp is None else message(stamp, found["severity"], found["words"], client, line, origin)


def _stamp(found: re.Match[str], origin: Origin) -> Stamp | None:
    return origin.calendar.stamp(
        (int(found["year"]), int(found["month"]), int(found["day"])), found["clock"], found["zone"]
    )


def _client(prefix: str) -> Address | None:
    """The client by `%r` or `%h`: the first IP address in the prefix, with its port if it has one."""
    ends = (address(addr, port) for addr, port in _REMOTE.findall(prefix))
    return next((end for end in ends if end), None)


def _csv(rest: str, line: str, origin: Origin) -> Record | None:
    try:
        fields = next(csv.reader([rest]))
    except (csv.Error, StopIteration):
        return None
    found = _CSV_STAMP.match(rest)
    if len(fields) <= _CSV_WORDS or found is None or not re.fullmatch(_SEVERITIES, fields[_CSV_SEVERITY]):
        return None
    stamp = _stamp(found, origin)
    host, _, port = fields[_CSV_REMOTE].rpartition(":")
    if stamp is None:
        return None
    client = address(host.strip("[]"), port)
    statement = fields[_CSV_STATEMENT] if len(fields) > _CSV_STATEMENT else ""
    return message(stamp, fields[_CSV_SEVERITY], fields[_CSV_WORDS], client, line, origin, statement)


def message(
    stamp: Stamp, severity: str, words: str, client: Address | None, line: str, origin: Origin, statement: str = ""
) -> Record:
    """The record of a message of the server's; values in its statement are overwritten.

    Arguments: `statement`, which the message is about, where it stands beside it.
    """
    if not choice().are_kept:
        words, line, statement = (
            _VALUE.sub(lambda found: "x" * len(found[0]), text) for text in (words, line, statement)
        )
    found = _DURATION.match(words)
    duration = milliseconds_ns(found["ms"]) if found else None
    what = (found["what"] or "statement") if found else ""
    about = (found["statement"] or "") if found else (words if severity == "STATEMENT" else statement)
    method, _, target = about.strip().partition(" ")
    return log_record(
        FORMAT,
        origin,
        stamp,
        line,
        ((found["statement"] or "a statement") if found else words)[:120],
        duration_ns=duration[0] if duration else 0,
        duration_uncertainty_ns=duration[1] if duration else 0,
        service="postgresql",
        severity=_SEVERITY.get(severity, "info"),
        phases=(Phase(what, duration[0]),) if duration else (),
        is_request=what in ("statement", "execute"),
        client=client,
        method=method.upper(),
        target=target,
    )
