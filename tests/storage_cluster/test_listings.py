"""Listings, held against one that looks at every name."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.servers.http import Refusal
from storage_cluster.servers.listings import Entry, ListingQuery, after_prefix, parse_query, render, select

NAMES = st.text(alphabet="ab/é\U0010ffff", min_size=1, max_size=5)
MAYBE = st.one_of(st.just(""), NAMES)


def fetch_from(names: Iterable[str]):
    ordered = sorted(names)

    def fetch(start: str, inclusive: bool, end: str, limit: int) -> list[Entry]:
        found = [n for n in ordered if (n >= start if inclusive else n > start) and (not end or n < end)]
        return [Entry(name, {"name": name}) for name in found[:limit]]

    return fetch


def obvious(names: Iterable[str], query: ListingQuery) -> list[tuple[str, bool]]:
    """Name and whether it is folded: every name looked at, in order."""
    shown: list[tuple[str, bool]] = []
    for name in sorted(names):
        if not name.startswith(query.prefix) or name <= query.marker or (query.end_marker and name >= query.end_marker):
            continue
        at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
        line = (name, False) if at < 0 else (name[: at + len(query.delimiter)], True)
        if line[1] and (line[0] <= query.marker or line in shown):
            continue
        shown.append(line)
    return shown[: query.limit]


@given(
    st.sets(NAMES, max_size=12),
    st.builds(
        ListingQuery,
        limit=st.integers(0, 5),
        marker=MAYBE,
        end_marker=MAYBE,
        prefix=MAYBE,
        delimiter=st.sampled_from(["", "/", "ab"]),
    ),
)
def test_select_shows_what_a_look_at_every_name_shows(names: set[str], query: ListingQuery) -> None:
    shown = [(entry.name, entry.fields is None) for entry in select(query, fetch_from(names))]
    assert shown == obvious(names, query)


@given(st.sets(NAMES, max_size=12), st.integers(1, 3), st.sampled_from(["", "/"]))
def test_pages_by_marker_add_up_to_the_whole(names: set[str], limit: int, delimiter: str) -> None:
    whole = [entry.name for entry in select(ListingQuery(delimiter=delimiter), fetch_from(names))]
    paged: list[str] = []
    while page := select(
        ListingQuery(limit=limit, marker=paged[-1] if paged else "", delimiter=delimiter), fetch_from(names)
    ):
        paged += [entry.name for entry in page]
    assert paged == whole


@given(NAMES, NAMES)
def test_after_prefix_is_behind_all_that_begin_with_it(prefix: str, rest: str) -> None:
    behind = after_prefix(prefix)
    assert behind == "" or behind > prefix + rest
    assert behind != "" or set(prefix) == {"\U0010ffff"}


@pytest.mark.parametrize("limit", ["10001", "-1", "x", "¹"])
def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_query({"limit": limit}, "")
    assert refused.value.status == 412


@pytest.mark.parametrize(
    ("query", "accept", "as_json"),
    [({"format": "json"}, "", True), ({}, "application/json", True), ({"format": "plain"}, "application/json", False)],
)
def test_the_form_asked_for(query: dict[str, str], accept: str, as_json: bool) -> None:
    entries = [Entry("a", {"name": "a", "bytes": 1}), Entry("b/")]
    kind, body = render(entries, parse_query(query, accept))
    if as_json:
        assert (kind, body) == ("application/json; charset=utf-8", b'[{"name": "a", "bytes": 1}, {"subdir": "b/"}]')
    else:
        assert (kind, body) == ("text/plain; charset=utf-8", b"a\nb/\n")
