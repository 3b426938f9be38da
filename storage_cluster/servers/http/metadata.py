"""Metadata of accounts and containers: headers, each with the time of its last change.

Headers are merged one by one, so that replicas which received the same changes, in any order, hold the same metadata.
A removed header stays as an empty value, so that an older change cannot restore it.

Source: Swift, "Metadata"; swift.common.db (`update_metadata`, `validate_metadata`).
"""

from collections.abc import Mapping

from storage_cluster.servers.http import limits
from storage_cluster.servers.http.messages import Refusal


def merged_metadata(
    known: Mapping[str, tuple[str, str]], timestamp: str, headers: Mapping[str, str], kind: str
) -> dict[str, tuple[str, str]]:
    """Stored metadata (header: value, timestamp) with a change merged in.

    Raises: Refusal (400) beyond the limits, or for bytes that are no UTF-8.
    """
    if not all(limits.is_utf8(text) for pair in headers.items() for text in pair):
        raise Refusal(400, limits.NO_UTF8)
    merged = dict(known)
    for name, value in headers.items():
        if timestamp >= merged.get(name, ("", ""))[1]:
            merged[name] = (value, timestamp)
    prefix = f"X-{kind.title()}-Meta-"
    trouble = limits.sum_trouble(
        (name[len(prefix) :], value) for name, (value, _) in merged.items() if value and name.startswith(prefix)
    )
    if trouble and headers:
        raise Refusal(400, trouble)
    return merged


def metadata_in(headers: Mapping[str, str], kind: str, prefixes: tuple[str, ...]) -> dict[str, str]:
    """The metadata in a client's headers; `X-Remove-<kind>-…: x` means `X-<kind>-…` without a value."""
    removing = f"x-remove-{kind.lower()}-"
    said = {f"X-{kind}-{name[len(removing) :]}": "" for name in headers if name.lower().startswith(removing)}
    said.update(headers)
    return {_usual(name): value for name, value in said.items() if name.lower().startswith(prefixes)}


def _usual(name: str) -> str:
    return name.replace("_", "-").title()
