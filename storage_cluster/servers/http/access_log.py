"""Writes a server's log of requests: one line for programs and one for people.

`logs/<host>/<service>.jsonl` is the ground truth of what was asked and answered, a JSON object a line: transaction_id,
method, path, status, start_ns, end_ns (wall clock: head parsed, last byte handed to the kernel), bytes_in, bytes_out,
peer, local. Nothing else in the project reads it.

`logs/<host>/<service>.log` says the same as Swift's servers say it to syslog, for eyes and tools that know Swift's: the
proxy (and auth) as proxy-logging does, the storage servers in their own format. Tokens are cut to 16 characters.

Signatures and credentials in a query (presigned URLs, temporary URLs) are overwritten before either line is made. Bytes
that are no UTF-8, in a path or a header, are percent-encoded.

Source: Swift, "Logs" (docs: logs.html); swift.common.middleware.proxy_logging, swift.common.utils (`get_log_line`).
"""

import dataclasses
import functools
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import TextIO
from urllib.parse import quote

from tracer.secret_rules import without_secrets

_SECOND_NS = 1_000_000_000
_TOKEN_SHOWN_LEN = 16
_UNQUOTED = "/:"
_NO_UTF8 = re.compile("[\udc80-\udcff]")  # as `surrogateescape` decodes such bytes


@dataclasses.dataclass(frozen=True)
class Served:
    """One request and its answer."""

    transaction_id: str
    method: str
    path: str  # as it came, with its query
    status: int
    start_ns: int
    end_ns: int
    bytes_in: int
    bytes_out: int
    peer: str  # address:port
    local: str
    headers: Mapping[str, str]  # the request's
    source: str | None = None


LineOf = Callable[[Served], str]
"""A request as a line for people."""


class AccessLog:
    """Writes the lines; `text` and `line_of` are for people, and may be left out."""

    def __init__(self, stream: TextIO, text: TextIO | None = None, line_of: LineOf | None = None) -> None:
        self._stream = stream
        self._text = text
        self._line_of = line_of

    def write(self, served: Served) -> None:
        """Append a request; it is in the files when this returns."""
        served = _printable(served)
        fields = {name: value for name, value in vars(served).items() if name not in ("headers", "source")}
        self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()
        if self._text is not None and self._line_of is not None:
            self._text.write(self._line_of(served) + "\n")
            self._text.flush()


def _printable(served: Served) -> Served:
    """The request as text, without the secrets in its query; its path stays as it is."""
    if served.path.isascii() and "?" not in served.path:
        return served
    path, mark, query = _as_utf8(served.path).partition("?")
    return dataclasses.replace(served, path=path + (without_secrets(mark + query) if query else mark))


def proxy_line(service: str, served: Served) -> str:
    """The line in the format of Swift's proxy."""
    address = served.peer.rpartition(":")[0]
    headers = served.headers
    token = headers.get("X-Auth-Token") or headers.get("X-Storage-Token") or ""
    values = (
        _field_text(headers.get("X-Forwarded-For", "").partition(",")[0].strip() or address),
        address,
        _moment("%d/%b/%Y/%H/%M/%S", served.end_ns // _SECOND_NS),
        served.method,
        _field_text(served.path),
        "HTTP/1.1",
        str(served.status),
        _field_text(headers.get("Referer")),
        _field_text(headers.get("User-Agent")),
        _field_text(f"{token[:_TOKEN_SHOWN_LEN]}...") if token else "-",
        str(served.bytes_in or "-"),
        str(served.bytes_out or "-"),
        _field_text(headers.get("Etag")),
        _field_text(served.transaction_id),
        "-",  # headers, if Swift is configured to log them
        f"{(served.end_ns - served.start_ns) / _SECOND_NS:.4f}",
        _field_text(served.source),
        "-",  # what middlewares add
        f"{served.start_ns / _SECOND_NS:.9f}",
        f"{served.end_ns / _SECOND_NS:.9f}",
        "0" if served.path.count("/") >= 3 else "-",  # storage policy
    )
    return f"{service}-server: {' '.join(values)}"


def storage_line(service: str, served: Served) -> str:
    """The line in the format of Swift's account, container and object servers."""
    moment = _moment("%d/%b/%Y:%H:%M:%S +0000", served.end_ns // _SECOND_NS)
    address = served.peer.rpartition(":")[0]
    referer, agent = (_as_utf8(served.headers.get(name, "-")) for name in ("Referer", "User-Agent"))
    return (
        f'{service}-server: {address} - - [{moment}] "{served.method} {served.path}" {served.status}'
        f' {served.bytes_out or "-"} "{referer}" "{served.transaction_id}"'
        f' "{agent}" {(served.end_ns - served.start_ns) / _SECOND_NS:.4f} "-" {os.getpid()} 0'
    )


def _field_text(value: str | None) -> str:
    return "-" if value is None else quote(value, _UNQUOTED, errors="surrogateescape")


def _as_utf8(text: str) -> str:
    """A text from a request's head, in which bytes that are no UTF-8 are percent-encoded."""
    return _NO_UTF8.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


@functools.lru_cache(2)
def _moment(layout: str, second: int) -> str:
    return time.strftime(layout, time.gmtime(second))
