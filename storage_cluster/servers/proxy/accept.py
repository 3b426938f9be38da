"""Content negotiation: the format that a client prefers by its `Accept` header, of those that are available.

Source: RFC 9110 §12.5.1; the order among equals is Swift's: exact types before ranges, then as the header lists them.
"""

import re
from collections.abc import Sequence

from storage_cluster.servers.http.messages import Refusal

_RANGE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*((?:;[^;,]*)*)\s*")
_QUALITY = re.compile(r";\s*q\s*=\s*([0-9.]+)\s*(?:;|$)")


def best_match(accept: str, offered: Sequence[str]) -> str | None:
    """The offered media type that a client likes best, None if it likes none. Raises: Refusal (400)."""
    if not accept.strip():
        return offered[0]
    ranges = [_parse_range(text) for text in accept.split(",")]
    for _, _, pattern in sorted(ranges, key=lambda found: found[:2]):
        for media_type in offered:
            if _covers(pattern, media_type):
                return media_type
    return None


def _parse_range(text: str) -> tuple[float, int, str]:
    """A range as (− quality, number of wildcards, type)."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise Refusal(400, "Invalid Accept header")
    quality = _QUALITY.search(found[2])
    return -float(quality[1] if quality else 1), found[1].split("/").count("*"), found[1]


def _covers(pattern: str, media_type: str) -> bool:
    wanted, offered = pattern.lower().split("/"), media_type.split("/")
    return all(part in ("*", other) for part, other in zip(wanted, offered, strict=True))
