"""JSON lines: one object a line, as many programs write them, by the keys that are in common use.

A number's unit is the one that its key ends with (`_ms`, `_us`, `_ns`, `_s`, `_seconds`); nginx's own variables are in
seconds. A duration without a unit is not used. A line is stamped at its end if it has a duration. PostgreSQL's jsonlog
is recognised by its keys.
"""

import json
import re
from collections.abc import Mapping

from collector.annotations.logs import postgresql
from collector.annotations.logs.nginx import ROUND_NS, phases_of_upstreams
from collector.annotations.logs.origin import Origin, address, log_record, seconds_ns
from collector.annotations.logs.stamps import Stamp, month, of_number
from collector.annotations.records import Address, Record

FORMAT = "json"
_TIMES = ("@timestamp", "timestamp", "time", "ts", "msec", "time_local", "time_iso8601", "datetime", "asctime", "t")
_WORDS = ("message", "msg", "event", "request", "short_message", "error")
_IDS = ("request_id", "requestid", "req_id", "x_request_id", "transaction_id", "trans_id", "txn", "correlation_id")
_TRACES, _SPANS = ("trace_id", "traceid", "trace.id", "dd.trace_id"), ("span_id", "spanid", "span.id")
_CLIENTS = (
    "remote_addr",
    "client",
    "client_ip",
    "remote_ip",
    "remote",
    "clientip",
    "peer",
    "client_addr",
    "remote_host",
)
_PORTS = ("remote_port", "client_port", "peer_port")
_METHODS, _STATUSES = (
    ("method", "request_method", "http_method", "verb"),
    ("status", "status_code", "code", "http_status"),
)
_TARGETS = ("request_uri", "uri", "path", "url", "target", "http_path")
_LEVELS, _SERVICES = ("level", "severity", "lvl", "levelname", "loglevel"), ("service", "service_name", "app", "logger")
_SEVERITY = {"warn": "warning", "warning": "warning", "notice": "notice"}
_WORST = ("err", "fatal", "crit", "panic", "alert", "emerg")
_DURATION = re.compile(r"(?:duration|latency|elapsed|took|response_time|request_time|time_taken)(?:_(\w+))?")
_UNITS_NS = {
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 10**6),
    **dict.fromkeys(("us", "usec", "micros", "microseconds"), 10**3),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanoseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), 10**9),
}
_WITH_UNIT = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s?(ms|us|µs|ns|s)")
_ISO = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})[T ](?P<clock>\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?)"
    r" ?(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})?"
)
_LOCAL = re.compile(r"(\d{2})/(\w{3})/(\d{4}):(\d{2}:\d{2}:\d{2}) ([+-]\d{4})")
Values = Mapping[str, str]


def parse(line: str, origin: Origin) -> Record | None:
    """The record of a line; None if it is no JSON object with a time."""
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    values = {str(key).lower(): value for key, value in found.items() if isinstance(value, str)}
    stamp = next((at for at in (_stamp(values.get(key, ""), origin) for key in _TIMES) if at), None)
    if stamp is None:
        return None
    if "error_severity" in values and "backend_type" in values:
        client = address(values.get("remote_host", ""), values.get("remote_port", ""))
        words = values.get("message", "")
        return postgresql.message(
            stamp, values["error_severity"], words, client, line, origin, values.get("statement", "")
        )
    return _record(values, stamp, line, origin)


def _record(values: Values, stamp: Stamp, line: str, origin: Origin) -> Record:
    duration = _duration(values)
    method, target = _first(values, _METHODS), _first(values, _TARGETS)
    words, status = _first(values, _WORDS), _first(values, _STATUSES)
    if not method and re.fullmatch(r"[A-Z]{1,32} \S+ HTTP/[\d.]+", words):
        method, target, _ = words.split(" ")
    is_status = status.isdecimal() and 100 <= int(status) <= 599
    name = words or " ".join(filter(None, (method, target, status))) or "a line"
    return log_record(
        FORMAT,
        origin,
        stamp,
        line,
        name[:120],
        duration_ns=duration[0] if duration else 0,
        duration_uncertainty_ns=duration[1] if duration else 0,
        service=_first(values, _SERVICES)[:120] or None,
        severity=_severity(_first(values, _LEVELS).lower(), status if is_status else ""),
        transaction_id=_first(values, _IDS),
        trace_id=_first(values, _TRACES),
        span_id=_first(values, _SPANS),
        phases=phases_of_upstreams(dict(values)),
        is_request=bool(method and (is_status or duration)),
        client=_client(values),
        method=method.upper(),
        target=target,
        status=int(status) if is_status else 0,
    )


def _first(values: Values, names: tuple[str, ...]) -> str:
    return next((values[name] for name in names if values.get(name, "-") not in ("-", "")), "")


def _stamp(text: str, origin: Origin) -> Stamp | None:
    found = _ISO.match(text)
    if found:
        day = int(found["year"]), int(found["month"]), int(found["day"])
        return origin.calendar.stamp(day, found["clock"], found["zone"])
    local = _LOCAL.match(text)
    if local:
        day = int(local[3]), month(local[2]), int(local[1])
        return origin.calendar.stamp(day, local[4], local[5]) if day[1] else None
    return of_number(text)


def _duration(values: Values) -> tuple[int, int] | None:
    """How long it took, and what the last digit stands for (ns)."""
    for key, text in values.items():
        found = _DURATION.fullmatch(key)
        if found is None:
            continue
        unit = "s" if key == "request_time" else found[1] or ""
        worded = _WITH_UNIT.fullmatch(text)
        if worded:
            unit = worded[2].replace("µ", "u")
        known = seconds_ns(worded[1] if worded else text) if unit in _UNITS_NS else None
        if known:
            part = 10**9 // _UNITS_NS[unit]
            return known[0] // part, max(ROUND_NS if key == "request_time" else 1, known[1] // part)
    return None


def _severity(level: str, status: str) -> str:
    if level.startswith(_WORST) or status.startswith("5"):
        return "error"
    return _SEVERITY.get(level, "info")


def _client(values: Values) -> Address | None:
    text = _first(values, _CLIENTS)
    host, _, port = text.rpartition(":")
    return address(text, _first(values, _PORTS)) or address(host.strip("[]"), port)
