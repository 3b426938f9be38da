"""Selects the names in a listing of an account's containers or a container's objects.

Names come in the order of their UTF-8 bytes, or against it. A delimiter (of one or more characters) folds all names
that share a prefix up to it into one `subdir` entry; after such an entry the search goes on behind it, so a listing
costs what it shows, not what it skips. `path` shows one level of a pseudo-folder without its sub-folders.

In reverse, `marker` is the upper end and `end_marker` the lower one: a listing begins after the first and ends before
the second in the order it is shown in. Storage servers answer in JSON; `proxy.listing_formats` makes the other forms.

Source: Swift API, "Pagination", "Pseudo-hierarchical folders", and the answers of Swift 2.30.1.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from storage_cluster.servers.http.messages import Refusal
from storage_cluster.servers.http.values import is_true

LIMIT_MAX = 10_000
PARAMETERS = ("limit", "marker", "end_marker", "prefix", "delimiter", "path", "reverse", "states")
"""Parameters of a client's query that are forwarded to a storage server."""


@dataclasses.dataclass(frozen=True)
class ListingQuery:
    """The parameters of a listing."""

    limit: int = LIMIT_MAX
    marker: str = ""
    end_marker: str = ""
    prefix: str = ""
    delimiter: str = ""
    reverse: bool = False
    one_level: bool = False  # asked for by `path`: no sub-folders, and not the folder itself


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a listing: a name with what JSON shows of it, or a folded prefix."""

    name: str
    fields: Mapping[str, Any] | None = None  # None: a subdir

    def as_json(self) -> Mapping[str, Any]:
        """The entry in a JSON listing."""
        return {"subdir": self.name} if self.fields is None else self.fields


@dataclasses.dataclass(frozen=True)
class Names:
    """A run of names to fetch: low to high, high excluded; at most `limit`, the highest first if `descending`."""

    low: str
    low_included: bool
    high: str  # "": no end
    limit: int
    descending: bool = False


Fetch = Callable[[Names], Iterable[Entry]]
"""The entries of a run, in its order."""


def parse_query(query: Mapping[str, str]) -> ListingQuery:
    """The listing a request asks for. Raises: Refusal (412) for a limit that is too high."""
    text = query.get("limit", "")
    limit = int(text) if text.isascii() and text.isdigit() else LIMIT_MAX
    if limit > LIMIT_MAX:
        raise Refusal(412, f"Maximum limit is {LIMIT_MAX}")
    path = query.get("path")
    folder = f"{path.rstrip('/')}/" if path else ""
    return ListingQuery(
        limit=limit,
        marker=query.get("marker", ""),
        end_marker=query.get("end_marker", ""),
        prefix=query.get("prefix", "") if path is None else folder,
        delimiter=query.get("delimiter", "") if path is None else "/",
        reverse=is_true(query.get("reverse", "")),
        one_level=path is not None,
    )


def select(query: ListingQuery, fetch: Fetch) -> list[Entry]:
    """The entries that a listing shows."""
    names = _first_run(query)
    shown: list[Entry] = []
    while len(shown) < query.limit:
        wanted = dataclasses.replace(names, limit=query.limit - len(shown))
        found = list(fetch(wanted))
        names, finished = _take(query, wanted, found, shown)
        if finished:
            break
    return shown


def render(entries: Iterable[Entry]) -> bytes:
    """The JSON listing, as storage servers answer."""
    return json.dumps([entry.as_json() for entry in entries]).encode()


def after_prefix(prefix: str) -> str:
    """The first name behind all those that begin with a prefix; "" if there is none."""
    while prefix and prefix[-1] == "\U0010ffff":
        prefix = prefix[:-1]
    if not prefix:
        return ""
    following = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no characters


def _first_run(query: ListingQuery) -> Names:
    low, high = (query.end_marker, query.marker) if query.reverse else (query.marker, query.end_marker)
    ends = [end for end in (high, after_prefix(query.prefix)) if end]
    included = query.prefix > low
    return Names(query.prefix if included else low, included, min(ends, default=""), query.limit, query.reverse)


def _take(query: ListingQuery, names: Names, found: list[Entry], shown: list[Entry]) -> tuple[Names, bool]:
    """Add the entries to show of a run; returns the next run to fetch, and whether the listing is complete."""
    for entry in found:
        folded = _subdirectory(entry.name, query)
        if folded is None:
            if not (query.one_level and entry.name == query.prefix):
                shown.append(entry)
        elif not query.one_level:
            if folded != query.marker:
                shown.append(Entry(folded))
            return _beyond(names, folded)
        elif len(entry.name) == len(folded):
            shown.append(entry)
        else:
            return _beyond(names, folded, one_level=True)
    if len(found) < names.limit:
        return names, True
    if names.descending:
        return dataclasses.replace(names, high=found[-1].name), False
    return dataclasses.replace(names, low=found[-1].name, low_included=False), False


def _beyond(names: Names, folded: str, *, one_level: bool = False) -> tuple[Names, bool]:
    """The run behind all that a fold stands for, and whether there can be nothing in it.

    `one_level`: an object may be there under the very name of the fold, and in falling order is still to come.
    """
    if names.descending:
        return dataclasses.replace(names, high=folded + ("\0" if one_level else "")), False
    low = after_prefix(folded)
    return dataclasses.replace(names, low=low, low_included=True), not low


def _subdirectory(name: str, query: ListingQuery) -> str | None:
    at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
    return None if at < 0 else name[: at + len(query.delimiter)]
