"""OpenStack Swift: lines of proxy and storage servers, which come by syslog.

The proxy's default template ends with the request's start and end, in seconds with nine decimals. A storage server's
line is stamped, in whole seconds of UTC, when its request ended, and has its duration with four decimals. The token
and the headers in a proxy's line are overwritten.
Source: swift.common.middleware.proxy_logging, swift.common.utils.get_log_line.
"""

import re
from urllib.parse import unquote

from collector.annotations.logs.origin import Origin, address, log_record, seconds_ns, split_syslog
from collector.annotations.logs.stamps import month, of_number
from collector.annotations.records import Phase, Record
from tracer.secret_rules import choice

FORMAT = "swift"
_PROXY = re.compile(
    r"(?:(?P<program>[\w.-]{1,64}): )?(?P<client>\S+) (?P<remote>\S+) "
    r"(?P<day>\d{2})/(?P<month>\w{3})/(?P<year>\d{4})/(?P<hours>\d{2})/(?P<minutes>\d{2})/(?P<seconds>\d{2}) "
    r"(?P<method>[A-Z]{1,32}) (?P<target>\S+) HTTP/\d\.\d (?P<status>\d{3}) (?P<fields>(?:\S+ ){6}\S+.*)"
)
_STORAGE = re.compile(
    r"(?:(?P<program>[\w.-]{1,64}): )?(?P<client>[0-9a-fA-F.:]{2,45}|-) - - "
    r"\[(?P<day>\d{2})/(?P<month>\w{3})/(?P<year>\d{4}):(?P<clock>\d{2}:\d{2}:\d{2}) \+0000\] "
    r'"(?P<method>[A-Z]{1,32}) (?P<target>[^"\s]+)" (?P<status>\d{3}) \S+ '
    r'"(?P<referer>[^"]*)" "(?P<id>[^"]*)" "(?P<agent>[^"]*)" (?P<duration>\d+\.\d+) .*'
)
_TOKEN_PLACE, _ID_PLACE, _HEADERS_PLACE, _DURATION_PLACE, _START_PLACE = 2, 6, 7, 8, 11
"""Places among the fields of a proxy's line behind its status."""


def parse(line: str, origin: Origin) -> Record | None:
    """The record of a line; None if it is none of Swift."""
    head = split_syslog(line, origin)
    for pattern, make in ((_PROXY, _proxy), (_STORAGE, _storage)):
        found = pattern.fullmatch(head.rest)
        if found is not None:
            return make(found, line, origin, head.program)
    return None


def _proxy(found: re.Match[str], line: str, origin: Origin, program: str) -> Record | None:
    fields = found["fields"].split(" ")
    clock = ":".join(found[part] for part in ("hours", "minutes", "seconds"))
    day = int(found["year"]), month(found["month"]), int(found["day"])
    stamp = origin.calendar.stamp(day, clock, "UTC") if day[1] else None
    duration = seconds_ns(fields[_DURATION_PLACE]) if len(fields) > _START_PLACE else None
    if stamp is None or duration is None:
        return None
    for place in (_TOKEN_PLACE, _HEADERS_PLACE):
        if fields[place] != "-" and not choice().are_kept:
            line = line.replace(fields[place], "x" * len(fields[place]))
    exact = of_number(fields[_START_PLACE + 1]) if len(fields) > _START_PLACE + 1 else None
    return log_record(
        FORMAT,
        origin,
        exact or stamp,
        line,
        f"{found['method']} {unquote(found['target'])[:120]} {found['status']}",
        duration_ns=duration[0],
        duration_uncertainty_ns=duration[1],
        service=program or found["program"] or "proxy-server",
        severity="error" if found["status"].startswith("5") else "info",
        transaction_id=fields[_ID_PLACE].removeprefix("-"),
        phases=(Phase("request_time", duration[0]),),
        is_request=True,
        client=address(found["remote"]) or address(found["client"]),
        method=found["method"],
        target=found["target"],
        status=int(found["status"]),
    )


def _storage(found: re.Match[str], line: str, origin: Origin, program: str) -> Record | None:
    day = int(found["year"]), month(found["month"]), int(found["day"])
    stamp = origin.calendar.stamp(day, found["clock"], "UTC") if day[1] else None
    duration = seconds_ns(found["duration"])
    if stamp is None or duration is None:
        return None
    return log_record(
        FORMAT,
        origin,
        stamp,
        line,
        f"{found['method']} {found['target'][:120]} {found['status']}",
        duration_ns=duration[0],
        duration_uncertainty_ns=duration[1],
        service=program or found["program"] or "storage server",
        severity="error" if found["status"].startswith("5") else "info",
        transaction_id=found["id"].removeprefix("-"),
        phases=(Phase("request_time", duration[0]),),
        is_request=True,
        client=address(found["client"]),
        method=found["method"],
        target=found["target"],
        status=int(found["status"]),
    )
