"""Listings, held against one that looks at every name."""

import dataclasses
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage_cluster.servers.http.listings import (
    LIMIT_MAX,
    Entry,
    ListingQuery,
    Names,
    after_prefix,
    parse_query,
    select,
)
from storage_cluster.servers.http.messages import Refusal

NAMES = st.text(alphabet="ab/é\U0010ffff", min_size=1, max_size=5)
MAYBE = st.one_of(st.just(""), NAMES)


def fetch_from(names: Iterable[str]):
    ordered = sorted(names)

    def fetch(run: Names) -> list[Entry]:
        low, high = run.low, run.high
        found = [n for n in ordered if (n >= low if run.low_included else n > low) and (not high or n < high)]
        return [Entry(name, {"name": name}) for name in (found[::-1] if run.descending else found)[: run.limit]]

    return fetch


def obvious(names: Iterable[str], query: ListingQuery) -> list[tuple[str, bool]]:
    """Name and whether it is folded: every name looked at, in order."""
    shown: list[tuple[str, bool]] = []
    low, high = (query.end_marker, query.marker) if query.reverse else (query.marker, query.end_marker)
    for name in sorted(names, reverse=query.reverse):
        if not name.startswith(query.prefix) or name <= low or (high and name >= high):
            continue
        at = name.find(query.delimiter, len(query.prefix)) if query.delimiter else -1
        folder = name[: at + len(query.delimiter)] if at >= 0 else ""
        if query.one_level:
            if name != query.prefix and folder in ("", name):
                shown.append((name, False))
        elif not folder:
            shown.append((name, False))
        elif folder != query.marker and (folder, True) not in shown:
            shown.append((folder, True))
    return shown[: query.limit]


@example({"a/", "a/a"}, ListingQuery(limit=1, delimiter="/", reverse=True, one_level=True))
@given(
    st.sets(NAMES, max_size=12),
    st.builds(
        ListingQuery,
        limit=st.integers(0, 5),
        marker=MAYBE,
        end_marker=MAYBE,
        prefix=MAYBE,
        delimiter=st.sampled_from(["", "/", "ab"]),
        reverse=st.booleans(),
    )
    | st.builds(
        ListingQuery,
        limit=st.integers(0, 5),
        marker=MAYBE,
        prefix=st.one_of(st.just(""), NAMES.map(lambda name: f"{name}/")),
        delimiter=st.just("/"),
        reverse=st.booleans(),
        one_level=st.just(True),
    ),
)
def test_select_shows_what_a_look_at_every_name_shows(names: set[str], query: ListingQuery) -> None:
    shown = [(entry.name, entry.fields is None) for entry in select(query, fetch_from(names))]
    assert shown == obvious(names, query)


@given(st.sets(NAMES, max_size=12), st.integers(1, 3), st.sampled_from(["", "/"]), st.booleans())
def test_pages_by_marker_add_up_to_the_whole(names: set[str], limit: int, delimiter: str, reverse: bool) -> None:
    query = ListingQuery(delimiter=delimiter, reverse=reverse)
    whole = [entry.name for entry in select(query, fetch_from(names))]
    paged: list[str] = []
    while page := select(dataclasses.replace(query, limit=limit, marker=paged[-1] if paged else ""), fetch_from(names)):
        paged += [entry.name for entry in page]
    assert paged == whole


@given(NAMES, NAMES)
def test_after_prefix_is_behind_all_that_begin_with_it(prefix: str, rest: str) -> None:
    behind = after_prefix(prefix)
    assert behind == "" or behind > prefix + rest
    assert behind != "" or set(prefix) == {"\U0010ffff"}


@pytest.mark.parametrize(("limit", "meant"), [("", LIMIT_MAX), ("0", 0), ("7", 7), ("-1", LIMIT_MAX), ("¹", LIMIT_MAX)])
def test_a_limit_that_is_no_number_is_none(limit: str, meant: int) -> None:
    assert parse_query({"limit": limit}).limit == meant


def test_a_limit_beyond_the_greatest_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        parse_query({"limit": str(LIMIT_MAX + 1)})
    assert refused.value.status == 412


@pytest.mark.parametrize(("path", "prefix"), [("", ""), ("a", "a/"), ("a/", "a/"), ("/", "/")])
def test_a_path_is_one_level_of_a_folder(path: str, prefix: str) -> None:
    assert parse_query({"path": path, "delimiter": "x"}) == ListingQuery(prefix=prefix, delimiter="/", one_level=True)
