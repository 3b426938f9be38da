"""HAProxy: its HTTP and TCP log lines, with or without a head of syslog.

The date in brackets is when the request's first byte (TCP: the connection) came, in ms and local time. The timers, in
ms, are of the request's way through the proxy:

    HTTP  TR/Tw/Tc/Tr/Ta   request, queue, connect, response (the server's, to its head), all; before 1.7 Tq/Tw/Tc/Tr/Tt
    TCP   Tw/Tc/Tt         queue, connect, all

-1 stands for what was not reached. Source: HAProxy's configuration manual, chapter 8.
"""

import re

from collector.annotations.logs.origin import Origin, address, log_record, split_syslog
from collector.annotations.logs.stamps import Stamp, month
from collector.annotations.records import Phase, Record

FORMAT = "haproxy"
NS_PER_MS = 1_000_000
ROUND_NS = 2 * NS_PER_MS
"""Its clock, in ms, is read once in each round of its loop: so much both ends of a duration may be off together."""
_LINE = re.compile(
    r"(?P<client>[0-9a-fA-F.:]{2,45}):(?P<port>\d{1,5}) "
    r"\[(?P<day>\d{2})/(?P<month>\w{3})/(?P<year>\d{4}):(?P<clock>\d{2}:\d{2}:\d{2}\.\d{3})\] "
    r"(?P<frontend>\S{1,256}) (?P<backend>[^\s/]{1,256})/(?P<server>\S{1,256}) "
    r"(?P<timers>-?\d{1,12}(?:/-?\d{1,12}){1,3}/\+?\d{1,12}) (?P<rest>.*)"
)
_HTTP = re.compile(r'(?P<status>-1|\d{3}) \+?\d+ (?:\S+ ){3}[\d/+]+ \d+/\d+ (?P<captured>.*?)"(?P<request>.*?)"?')
_ID = re.compile(
    r"(?<![\w-])(?:[0-9a-f]{32}|[0-9A-F]{8}(?::[0-9A-F]+_?){2,}\w*|[0-9a-fA-F-]{36}|tx[0-9a-f]{21}-[0-9a-f]{10}\S{0,64})"
)
_TIMERS = {5: ("request", "queue", "connect", "response"), 3: ("queue", "connect")}


def parse(line: str, origin: Origin) -> Record | None:
    """The record of a line; None if it is none of HAProxy."""
    rest = split_syslog(line, origin).rest if "haproxy" in line[:200] else line
    found = _LINE.fullmatch(rest)
    timers = found["timers"].split("/") if found else []
    if found is None or len(timers) not in _TIMERS:
        return None
    day = int(found["year"]), month(found["month"]), int(found["day"])
    begin = origin.calendar.stamp(day, found["clock"]) if day[1] else None
    http = _HTTP.fullmatch(found["rest"]) if len(timers) == 5 else None
    if begin is None or (len(timers) == 5 and http is None):
        return None
    duration_ns = int(timers[-1].removeprefix("+")) * NS_PER_MS
    words = (http["request"] if http else "").rstrip('"')
    method, _, target = (words.rpartition(" ")[0] if words.count(" ") > 1 else words).partition(" ")
    status = int(http["status"]) if http else 0
    return log_record(
        FORMAT,
        origin,
        Stamp(begin.at_ns + duration_ns, begin.uncertainty_ns + NS_PER_MS),
        line,
        f"{words or 'a connection'} {http['status'] if http else ''} by {found['backend']}/{found['server']}",
        duration_ns=duration_ns,
        duration_uncertainty_ns=ROUND_NS,
        service="haproxy",
        severity="error" if status >= 500 or status < 0 else "info",
        transaction_id=_id_in(http["captured"]) if http else "",
        phases=tuple(
            Phase(name, int(timer) * NS_PER_MS)
            for name, timer in zip(_TIMERS[len(timers)], timers, strict=False)
            if not timer.startswith("-")
        ),
        is_request=http is not None,
        client=address(found["client"], found["port"]),
        method=method,
        target=target,
        status=max(0, status),
    )


def _id_in(captured: str) -> str:
    """An id of a request among what the line has captured of headers, or before its request."""
    found = _ID.search(captured)
    return found[0].rstrip("}|") if found else ""
