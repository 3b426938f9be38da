"""Reads files of spans: OTLP's JSON (an object, or one on each line) and Jaeger's, plain or compressed.

Cost: 50 µs of CPU a span of three attributes. Memory: some ten times a file's size, which is at most
`MOST_BYTES`, and 2 kB a span.
"""

import json
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from collector.annotations.logs.lines import open_plain_or_packed
from collector.annotations.records import Record
from collector.annotations.spans.given import GivenSpan
from collector.annotations.spans.jaeger import is_jaeger, jaeger_spans
from collector.annotations.spans.otlp import is_otlp, otlp_spans
from collector.trace.model import CounterInfo, HostInfo
from tracer.errors import InputError
from tracer.plain_text import plain
from tracer.secret_rules import rules

MOST_BYTES = 1 << 28
MOST_SPANS = 1_000_000
COARSE_NS, FINE_NS = 1_000_000, 1_000
SERVICE = "service.name"
MARGIN_NS = 60 * 10**9
"""Spans that ended so long before the first capture, or begin so long after the last, are left out."""
KNOWN = "give OTLP's JSON (resourceSpans) or Jaeger's (data, spans); docs/imports.md"


def read_spans(places: Sequence[str], hosts: Sequence[HostInfo]) -> tuple[list[Record], list[CounterInfo]]:
    """The spans of files as records, and what could not be read of them.

    Arguments: `places`, each FILE, or HOST=FILE, whose spans are of that host if they name none that was captured.

    Raises: `InputError` for a file that cannot be read, that holds no spans, or too many, and for an unknown host.
    """
    secrets, names, within = rules(), _host_names(hosts), _time_of(hosts)
    records: list[Record] = []
    unread = outside = 0
    for place in places:
        named, file = _split(place, [name for host in hosts for name in (host.host, host.file_name) if name])
        host_of_file = named and next(host.host for host in hosts if named in (host.host, host.file_name))
        spans = list(_spans_of(file))
        given = [span for span in spans if span is not None]
        resolutions = _resolutions(given)
        unread += len(spans) - len(given)
        for span in given:
            if span.end_ns < within[0] or span.begin_ns > within[1]:
                outside += 1
                continue
            called = [name for each in span.host_names for name in (each.lower(), _short(each.lower()))]
            host = next((names[each] for each in called if each in names), host_of_file)
            resolution_ns = resolutions[span.process.get(SERVICE, "")]
            records.append(span.record(plain(file.name), host, resolution_ns, secrets))
        if len(records) > MOST_SPANS:
            raise InputError(f"there are more than {MOST_SPANS:,} spans of this time", "give fewer of them")
    return records, list(_counters(unread, outside))


def _split(place: str, hosts: Sequence[str]) -> tuple[str | None, Path]:
    named, sign, rest = place.partition("=")
    if not sign or os.path.exists(place) or "/" in named or not named:
        return None, Path(place)
    if named not in hosts:
        raise InputError(f"--spans {place}: no captured host is called {named}", f"hosts: {', '.join(hosts[:8])}")
    return named, Path(rest)


def _time_of(hosts: Sequence[HostInfo]) -> tuple[int, int]:
    """The time of the captures with `MARGIN_NS` around it."""
    first = [host.first_host_ns for host in hosts if host.first_host_ns is not None]
    last = [host.last_host_ns for host in hosts if host.last_host_ns is not None]
    return min(first, default=0) - MARGIN_NS, max(last, default=0) + MARGIN_NS


def _resolutions(spans: Sequence[GivenSpan]) -> dict[str, int]:
    """To how many ns each service stamps: 1 ms where all stamps are whole milliseconds, else 1 µs."""
    found: dict[str, int] = {}
    for span in spans:
        service = span.process.get(SERVICE, "")
        is_coarse = not (span.begin_ns % COARSE_NS or span.end_ns % COARSE_NS)
        found[service] = COARSE_NS if is_coarse and found.get(service, COARSE_NS) == COARSE_NS else FINE_NS
    return found


def _host_names(hosts: Sequence[HostInfo]) -> dict[str, str]:
    """Captured hosts by what a process may call its host, in small letters: a name, one without its domain, an address.
    What several hosts may be called names none of them."""
    found: dict[str, set[str]] = defaultdict(set)
    for host in hosts:
        for each in (*host.addresses, _short(host.host)):
            found[each.lower()].add(host.host)
    names = {key: next(iter(several)) for key, several in found.items() if len(several) == 1}
    return names | {host.host.lower(): host.host for host in hosts}


def _short(name: str) -> str:
    return name if ":" in name or name.replace(".", "").isdecimal() else name.partition(".")[0]


def _spans_of(file: Path) -> Iterator[GivenSpan | None]:
    """The spans of a file; None for each object or line that is none."""
    count = 0
    for document in _documents(file):
        for found in (otlp_spans, jaeger_spans):
            if (is_otlp if found is otlp_spans else is_jaeger)(document):
                count += 1
                yield from found(document)  # type: ignore[arg-type]
                break
        else:
            yield None
    if not count:
        raise InputError(f"--spans {file}: it holds no spans", KNOWN)


def _documents(file: Path) -> Iterator[object]:
    """The file as JSON: one object, or one on each line; None for each line that is none."""
    text = _text(file)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if whole is not None:
        yield whole
        return
    for line in text.split("\n"):  # others that end a line may stand within a text
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                yield None


def _text(file: Path) -> str:
    try:
        with open_plain_or_packed(file) as given:
            data = given.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0]
        raise InputError(f"--spans {file} cannot be read: {reason}", KNOWN) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"--spans {file} is larger than {MOST_BYTES >> 20} MiB", "give several smaller files")
    return data.decode("utf-8", "surrogateescape")


def _counters(unread: int, outside: int) -> Iterator[CounterInfo]:
    if unread:
        yield CounterInfo(None, "spans_unread", "notice", unread, "they lack an id or a time, or are no spans at all")
    if outside:
        yield CounterInfo(None, "spans_outside", "info", outside, "they are of another time than the captures")
