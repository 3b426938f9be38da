"""nginx: access logs (`combined`, also with what is often appended) and error logs.

An access line is written when its request ends. Of what is appended behind the user agent are read: `key=value` with
the usual short names (`rt`, `urt`, `uct`, `uht`, `rid`, `msec`, `port`), numbers with three decimals (the first is
`$request_time`, the second `$upstream_response_time` unless it is larger), and 32 hexadecimal digits (`$request_id`).
nginx takes its times from a clock that it reads once in each round of its loop, in ms.
Source: ngx_http_log_module, ngx_http_upstream_module, ngx_log.c.
"""

import re

from collector.annotations.logs.origin import Origin, address, log_record, seconds_ns, split_syslog
from collector.annotations.logs.stamps import Stamp, month, of_number
from collector.annotations.records import Phase, Record

FORMAT = "nginx"
ROUND_NS = 2_000_000
"""Both ends of a duration are of a clock in ms that is read at times: so much it may be off."""
_ACCESS = re.compile(
    r"(?P<client>[0-9a-fA-F.:]{2,45}) - (?P<user>.{1,256}?) "
    r"\[(?P<day>\d{2})/(?P<month>\w{3})/(?P<year>\d{4}):(?P<clock>\d{2}:\d{2}:\d{2}) (?P<zone>[+-]\d{4})\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<bytes>\d+|-)(?P<rest>.*)'
)
_ERROR = re.compile(
    r"(?P<year>\d{4})/(?P<month>\d{2})/(?P<day>\d{2}) (?P<clock>\d{2}:\d{2}:\d{2}) "
    r"\[(?P<level>debug|info|notice|warn|error|crit|alert|emerg)\] \d+#\d+: (?:\*(?P<connection>\d+) )?(?P<words>.*)"
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PAIR = re.compile(r'(\w{1,40})[=:]"?([^\s",]+(?:(?:, | : )[^\s",]+)*)"?')
_OF_ERROR = re.compile(r', (client|server|request|upstream|host): (?:"([^"]*)"|([^,\s]+))')
_SEVERITY = {"warn": "warning", "notice": "notice", "info": "info", "debug": "info"}
_PHASES = {
    **dict.fromkeys(("urt", "upstream_response_time", "upstream_time"), "upstream"),
    **dict.fromkeys(("uct", "upstream_connect_time"), "upstream_connect"),
    **dict.fromkeys(("uht", "upstream_header_time"), "upstream_header"),
}
_DURATION, _STAMP = ("rt", "request_time", "reqtime"), ("msec", "time_msec", "ts")
_ID = ("rid", "request_id", "reqid", "req_id", "trace_id", "id")
_PORT = ("port", "remote_port", "client_port")


def parse(line: str, origin: Origin) -> Record | None:
    """The record of a line; None if it is none of nginx."""
    rest = line if line[:1].isdigit() else split_syslog(line, origin).rest
    found = _ACCESS.fullmatch(rest)
    if found is not None:
        return _access(found, line, origin)
    found = _ERROR.fullmatch(rest)
    return None if found is None else _error(found, line, origin)


def _access(found: re.Match[str], line: str, origin: Origin) -> Record | None:
    day = int(found["year"]), month(found["month"]), int(found["day"])
    stamp = origin.calendar.stamp(day, found["clock"], found["zone"]) if day[1] else None
    if stamp is None:
        return None
    more = _values_behind(found["rest"])
    stamp = _finer(stamp, more)
    duration = _first(more, _DURATION)
    known = seconds_ns(duration) if duration else None
    method, _, target = found["request"].rpartition(" ")[0].partition(" ")
    return log_record(
        FORMAT,
        origin,
        stamp,
        line,
        f"{found['request'] or 'no request'} {found['status']}",
        duration_ns=known[0] if known else 0,
        duration_uncertainty_ns=max(known[1], ROUND_NS) if known else 0,
        service="nginx",
        severity="error" if found["status"].startswith("5") else "info",
        transaction_id=_first(more, _ID),
        phases=phases_of_upstreams(more),
        is_request=bool(method),
        client=address(found["client"], _first(more, _PORT)),
        method=method,
        target=target,
        status=int(found["status"]),
    )


def _values_behind(rest: str) -> dict[str, str]:
    """What stands behind the user agent, by name."""
    quoted = [place for place in _QUOTED.finditer(rest) if "=" not in place[0][:12]]
    tail = rest[quoted[1].end() :] if len(quoted) > 1 else rest
    found = {name.lower(): value for name, value in _PAIR.findall(tail)}
    bare = [word.strip('"[]') for word in _PAIR.sub(" ", tail).split()]
    decimals = [word for word in bare if re.fullmatch(r"\d{1,8}\.\d{3}", word)]
    if decimals and not _first(found, _DURATION):
        found["rt"] = decimals[0]
        if len(decimals) > 1 and not _first(found, ("urt",)) and float(decimals[1]) <= float(decimals[0]):
            found["urt"] = decimals[1]
    for name, form in (("rid", r"[0-9a-f]{32}"), ("msec", r"\d{10}\.\d{3}")):
        of_form = [word for word in bare if re.fullmatch(form, word)]
        if of_form:
            found[name] = of_form[-1]
    return found


def _finer(stamp: Stamp, more: dict[str, str]) -> Stamp:
    """The stamp by `$msec`, where the line has it and it is of the same second."""
    exact = of_number(_first(more, _STAMP))
    return exact if exact and abs(exact.at_ns - stamp.at_ns) <= stamp.uncertainty_ns else stamp


def phases_of_upstreams(values: dict[str, str]) -> tuple[Phase, ...]:
    """What nginx says of its upstreams; of several that it asked one after the other, the sum."""
    found: dict[str, int] = {}
    for key, name in _PHASES.items():
        parts = [seconds_ns(part) for part in re.split(r", | : ", values.get(key, ""))]
        known = [part[0] for part in parts if part]
        if known:
            found.setdefault(name, sum(known))
    order = ("upstream_connect", "upstream_header", "upstream")
    return tuple(Phase(name, found[name]) for name in order if name in found)


def _first(values: dict[str, str], names: tuple[str, ...]) -> str:
    return next((values[name] for name in names if values.get(name, "-") != "-"), "")


def _error(found: re.Match[str], line: str, origin: Origin) -> Record | None:
    day = int(found["year"]), int(found["month"]), int(found["day"])
    stamp = origin.calendar.stamp(day, found["clock"])
    if stamp is None:
        return None
    said = {name: quoted or bare for name, quoted, bare in _OF_ERROR.findall(found["words"])}
    method, _, target = said.get("request", "").rpartition(" ")[0].partition(" ")
    return log_record(
        FORMAT,
        origin,
        stamp,
        line,
        found["words"].partition(", client:")[0][:120],
        service="nginx",
        severity=_SEVERITY.get(found["level"], "error"),
        client=address(said.get("client", "")),
        method=method,
        target=target,
    )
