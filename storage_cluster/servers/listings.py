"""Listings of an account's containers or a container's objects: which names, in what form.

Names come in the order of their UTF-8 bytes. A delimiter folds all names that share a prefix up to it into one
`subdir` entry; after such an entry the search goes on behind it, so a listing costs what it shows, not what it skips.

Source: Swift API, "Pagination", "Serialized response formats", "Pseudo-hierarchical folders".
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from storage_cluster.servers.messages import Refusal

LIMIT_MAX = 10_000


@dataclasses.dataclass(frozen=True)
class ListingQuery:
    """What a client asks to see."""

    limit: int = LIMIT_MAX
    marker: str = ""
    end_marker: str = ""
    prefix: str = ""
    delimiter: str = ""
    as_json: bool = False


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a listing: a name with what JSON shows of it, or a folded prefix."""

    name: str
    fields: Mapping[str, Any] | None = None  # None: a subdir

    def as_json(self) -> Mapping[str, Any]:
        """The entry in a JSON listing."""
        return {"subdir": self.name} if self.fields is None else self.fields


Fetch = Callable[[str, bool, str, int], Iterable[Entry]]
"""Entries (from name, inclusive?, below name or "", at most n), in order."""


def parse_query(query: Mapping[str, str], accept: str) -> ListingQuery:
    """The listing a request asks for. Raises: Refusal (412) for a limit that is none or too high."""
    text = query.get("limit", "")
    if text and not (text.isascii() and text.isdigit() and int(text) <= LIMIT_MAX):
        raise Refusal(412, f"Maximum limit is {LIMIT_MAX}")
    return ListingQuery(
        limit=int(text) if text else LIMIT_MAX,
        marker=query.get("marker", ""),
        end_marker=query.get("end_marker", ""),
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        as_json=query.get("format", "") == "json" or ("format" not in query and "application/json" in accept),
    )


def select(query: ListingQuery, fetch: Fetch) -> list[Entry]:
    """The entries that a listing shows."""
    start, inclusive = (query.prefix, True) if query.prefix > query.marker else (query.marker, False)
    ends = [end for end in (query.end_marker, after_prefix(query.prefix)) if end]
    end = min(ends, default="")
    if not query.delimiter:
        return list(fetch(start, inclusive, end, query.limit))
    shown: list[Entry] = []
    while len(shown) < query.limit:
        wanted = query.limit - len(shown)
        found = list(fetch(start, inclusive, end, wanted))
        for entry in found:
            folded = _folded(entry.name, query)
            if folded is not None:
                if folded > query.marker:
                    shown.append(Entry(folded))
                start, inclusive = after_prefix(folded), True
                break
            shown.append(entry)
        else:
            if len(found) < wanted:
                break
            start, inclusive = found[-1].name, False
    return shown


def render(entries: Iterable[Entry], query: ListingQuery) -> tuple[str, bytes]:
    """Content type and body."""
    if query.as_json:
        return "application/json; charset=utf-8", json.dumps([entry.as_json() for entry in entries]).encode()
    return "text/plain; charset=utf-8", "".join(f"{entry.name}\n" for entry in entries).encode()


def after_prefix(prefix: str) -> str:
    """The first name behind all those that begin with a prefix; "" if there is none."""
    while prefix and prefix[-1] == "\U0010ffff":
        prefix = prefix[:-1]
    if not prefix:
        return ""
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no characters


def _folded(name: str, query: ListingQuery) -> str | None:
    at = name.find(query.delimiter, len(query.prefix))
    return None if at < 0 else name[: at + len(query.delimiter)]
