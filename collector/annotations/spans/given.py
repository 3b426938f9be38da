"""A span as another tracer gave it, and what is common to the formats.

The rules of secrets (docs/security.md) decide whether an attribute's key names one, as a header's name or as a
parameter's; then no letter of its value is kept. Other values lose what is secret within them, as in a URL, and
statements what stands between quotes, as in packets.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from collector.annotations.records import Kind, Record
from tracer._capture import Secrets
from tracer.plain_text import plain
from tracer.secret_rules import choice

MOST_NAME, MOST_TEXT, MOST_VALUE, MOST_ATTRIBUTES = 200, 4_096, 1_024, 64
"""Letters that are kept of each, and attributes of a span."""
HOST_KEYS = ("host.name", "k8s.node.name", "host.hostname", "hostname", "host.ip", "ip", "net.host.ip", "net.host.name")
"""Attributes that say where a process runs, the surest first."""
_METHOD = ("http.request.method", "http.method")
_TARGET = ("url.path", "http.target", "url.full", "http.url", "http.route")
_IDS = ("x-trans-id", "x-openstack-request-id", "x-amz-request-id", "x-request-id")
_TRANSACTION = (
    "twintap.transaction_id",
    *(f"http.{way}.header.{each}" for way in ("request", "response") for each in _IDS),
)
_STATEMENTS = ("db.query.text", "db.statement", "db.query.summary")
_QUOTES = re.compile(r"'(?:[^']|'')*(?:'|$)|\$\$.*?(?:\$\$|$)", re.DOTALL)
"""A value in a statement; one that is cut off goes on to the end."""
_STATUS = ("http.response.status_code", "http.status_code")


class GivenSpan(Struct, frozen=True):
    """A span. Ids are in small hexadecimal digits; times are of the clock that stamped it."""

    format: str
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    side: str  # "client", "server", or "" for what is neither
    begin_ns: int
    end_ns: int
    process: Mapping[str, str]  # the attributes of who wrote it
    attributes: Mapping[str, str]
    is_error: bool = False

    @property
    def host_names(self) -> Iterator[str]:
        """What it says of the host that it is from: names and addresses."""
        for key in HOST_KEYS:
            value = self.process.get(key) or self.attributes.get(key)
            yield from re.findall(r"[^\s\[\]'\",]+", value or "")

    def record(self, source: str, host: str | None, resolution_ns: int, secrets: Secrets) -> Record:
        """The span as a record; `host` is the captured host that it is from, if that is known. Its tracer stamps to so
        many ns."""
        status = _first(self.attributes, _STATUS)
        return Record(
            kind=Kind.SPAN,
            format=self.format,
            source=source,
            name=_clean(self.name, secrets)[:MOST_NAME],
            text=self._text(secrets)[:MOST_TEXT],
            begin_host_ns=self.begin_ns,
            duration_ns=max(0, self.end_ns - self.begin_ns),
            uncertainty_ns=resolution_ns,
            duration_uncertainty_ns=resolution_ns,
            host=host,
            service=_clean(self.process.get("service.name", ""), secrets)[:MOST_NAME] or None,
            severity="error" if self.is_error else None,
            transaction_id=plain(_whole(_first(self.attributes, _TRANSACTION)))[:MOST_NAME],
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_span_id=self.parent_span_id,
            is_request=self.side == "server",
            side=self.side,
            method=_first(self.attributes, _METHOD).upper(),
            target=_path_of(_first(self.attributes, _TARGET[:-1])),
            status=int(status) if status.isascii() and status.isdecimal() and len(status) == 3 else 0,
        )

    def _text(self, secrets: Secrets) -> str:
        """Its attributes."""
        shown = list(self.attributes.items())[:MOST_ATTRIBUTES]
        return " ".join(f"{plain(_whole(key))}: {_value(_whole(key), _whole(value), secrets)}" for key, value in shown)


def _value(key: str, value: str, secrets: Secrets) -> str:
    """The value of an attribute without secrets, on one line."""
    if _is_secret(key, secrets):
        return "x" * min(len(value), MOST_VALUE)
    if key in _STATEMENTS and not choice().are_kept:
        value = _QUOTES.sub(lambda found: "x" * len(found[0]), value)
    value = secrets.text(value)
    if "=" in value:  # it may be a query alone
        value = secrets.text(f"?{value}")[1:]
    return plain(value[:MOST_VALUE])


@lru_cache(maxsize=1 << 12)
def _is_secret(key: str, secrets: Secrets) -> bool:
    name = key.rpartition(".")[2].replace("_", "-")
    probes = (f"{key}=probe", f"{name}=probe", f"{name}: probe")
    return any(secrets.text(probe) != probe for probe in probes)


def _clean(text: str, secrets: Secrets) -> str:
    return plain(secrets.text(_whole(text)))


def _whole(text: str) -> str:
    """A text without halves of characters, which JSON may hold, and which stand for bytes that are no text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _first(attributes: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((attributes[key] for key in keys if attributes.get(key)), "")


def _path_of(target: str) -> str:
    """The path of a target that may be a whole URL."""
    scheme, sign, rest = target.partition("://")
    return target if not sign or "/" in scheme else "/" + rest.partition("/")[2]


def hexadecimal(value: object, digits: int) -> str:
    """An id as so many small hexadecimal digits; "" if it is none. Jaeger leaves leading zeros out."""
    text = value.lower() if isinstance(value, str) else ""
    if not text or len(text) > digits or not all(each in "0123456789abcdef" for each in text) or not text.strip("0"):
        return ""
    return text.rjust(digits, "0")
