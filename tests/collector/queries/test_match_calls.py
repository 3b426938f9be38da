"""The calls of a request beside those of another one."""

from collections.abc import Sequence

from msgspec.structs import fields

from collector.queries.match_calls import match_calls
from collector.queries.span_trees import Span

BLANK = {each.name: None for each in fields(Span)} | {"method": "GET", "operation": "", "silences": ()}


def calls(start_ns: int, *given: tuple[int, str, str, int]) -> list[Span]:
    """Spans of a request that begins then, each by depth, service, host, and how long after the beginning it began."""
    return [
        Span(
            **{
                **BLANK,
                "number": at,
                "depth": depth,
                "service": service,
                "server_host": host,
                "start_ns": start_ns + ns,
            }
        )
        for at, (depth, service, host, ns) in enumerate(given)
    ]


def numbers(mine: Sequence[Span], other: Sequence[Span]) -> list[tuple[int | None, int | None]]:
    pairs = match_calls(mine, other)
    assert all(pair.either is (pair.mine or pair.other) for pair in pairs)
    return [(pair.mine.number if pair.mine else None, pair.other.number if pair.other else None) for pair in pairs]


def test_calls_of_a_kind_answered_by_the_same_host_are_matched() -> None:
    mine = calls(0, (0, "proxy", "p", 0), (1, "object", "s1", 10), (1, "object", "s2", 20))
    other = calls(900, (0, "proxy", "p", 0), (1, "object", "s2", 5), (1, "object", "s1", 15))
    assert numbers(mine, other) == [(0, 0), (1, 2), (2, 1)]


def test_where_no_host_is_the_same_they_are_matched_in_their_order() -> None:
    mine = calls(0, (0, "proxy", "p", 0), (1, "object", "s1", 10), (1, "object", "s2", 20), (1, "object", "s3", 30))
    other = calls(900, (0, "proxy", "p", 0), (1, "object", "s4", 5), (1, "object", "s2", 15), (1, "object", "s5", 25))
    assert numbers(mine, other) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_what_only_one_has_stays_alone_with_all_below_it_at_its_time() -> None:
    mine = calls(0, (0, "proxy", "p", 0), (1, "object", "s1", 10), (2, "db", "d", 11), (1, "object", "s2", 50))
    other = calls(900, (0, "proxy", "p", 0), (1, "auth", "a", 20), (2, "db", "d", 21), (1, "object", "s2", 40))
    assert numbers(mine, other) == [(0, 0), (1, None), (2, None), (None, 1), (None, 2), (3, 3)]


def test_another_method_is_another_kind() -> None:
    mine = calls(0, (0, "proxy", "p", 0), (1, "object", "s1", 10))
    (root, call) = calls(0, (0, "proxy", "p", 0), (1, "object", "s1", 10))
    call = Span(**{each.name: getattr(call, each.name) for each in fields(Span)} | {"method": "HEAD"})
    assert numbers(mine, [root, call]) == [(0, 0), (1, None), (None, 1)]
