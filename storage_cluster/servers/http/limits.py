"""Checks limits on names and metadata: the proxy before it forwards a request, databases for the sums.

Source: Swift, swift.common.constraints; numbers as in swift.conf-sample, messages as Swift 2.30.1 gives them.
"""

from collections.abc import Iterable, Mapping

from storage_cluster.servers.http.messages import Refusal

ACCOUNT_NAME_MAX_LEN = 256
CONTAINER_NAME_MAX_LEN = 256
OBJECT_NAME_MAX_LEN = 1024
"""Of names, in characters."""
META_NAME_MAX_BYTES = 128
META_VALUE_MAX_BYTES = 256
META_COUNT_MAX = 90
META_SUM_MAX_BYTES = 4096
HEADER_MAX_BYTES = 8192
FILE_MAX_BYTES = 5_368_709_122

NO_UTF8 = "Metadata must be valid UTF-8"
_PLAIN = {"Content-Type": "text/plain"}


def check_name(kind: str, name: str, max_len: int, headers: Mapping[str, str] | None = None) -> None:
    """Raises: Refusal (400) for a name that is too long."""
    if len(name) > max_len:
        raise Refusal(400, f"{kind} name length of {len(name)} longer than {max_len}", headers)


def check_metadata(headers: Mapping[str, str], kind: str) -> None:
    """Check the `X-<kind>-Meta-…` headers of a request; an object's may hold any bytes. Raises: Refusal (400)."""
    prefix = f"x-{kind.lower()}-meta-"
    found = [(name[len(prefix) :], value) for name, value in headers.items() if name.lower().startswith(prefix)]
    for name, value in found:
        _check_item(prefix, name, value)
    trouble = sum_trouble(found)
    if trouble:
        raise Refusal(400, trouble, _PLAIN)


def sum_trouble(items: Iterable[tuple[str, str]]) -> str | None:
    """The limit that metadata as a whole exceeds (names without prefix, values), in words; None if none."""
    sizes = [(_byte_len(name), _byte_len(value)) for name, value in items]
    if len(sizes) > META_COUNT_MAX:
        return f"Too many metadata items; max {META_COUNT_MAX}"
    if sum(name + value for name, value in sizes) > META_SUM_MAX_BYTES:
        return f"Total metadata too large; max {META_SUM_MAX_BYTES}"
    return None


def _check_item(prefix: str, name: str, value: str) -> None:
    if not name:
        raise Refusal(400, "Metadata name cannot be empty", _PLAIN)
    if prefix != "x-object-meta-" and not (is_utf8(name) and is_utf8(value)):
        raise Refusal(400, NO_UTF8, _PLAIN)
    if _byte_len(name) > META_NAME_MAX_BYTES:
        raise Refusal(400, f"Metadata name too long: {prefix}{name.title()}", _PLAIN)
    if _byte_len(value) > META_VALUE_MAX_BYTES:
        raise Refusal(400, f"Metadata value longer than {META_VALUE_MAX_BYTES}: {prefix}{name.title()}", _PLAIN)


def is_utf8(text: str) -> bool:
    """Whether a header held UTF-8 only: of other bytes the parser makes lone surrogates."""
    return text.isascii() or not any("\udc80" <= character <= "\udcff" for character in text)


def _byte_len(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
