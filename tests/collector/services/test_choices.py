"""Which servers are shown to be replicas, on calls whose truth is made here."""

import random
from collections.abc import Callable, Sequence

import polars as pl
import pyarrow as pa
import pytest

from collector.services.choices import Choices, Watched, sampled_share
from collector.trace.schema import conform
from tests.helpers.exchange_lines import exchanges_of

PAIR = ("a:7001", "b:7001")
WATCHED = Watched(frozenset(PAIR), frozenset(["web"]))


def replicas(text: str, *, sizes: Callable[[str], int] | None = None, hidden: bool = False) -> bool:
    """What is shown of `a:7001` and `b:7001` by a script of exchanges (`exchanges_of`)."""
    table = exchanges_of(text)
    if hidden:
        frame = pl.DataFrame(table).with_columns(target=pl.lit(None, pl.String), method=pl.lit(None, pl.String))
        table = conform("exchanges", frame.to_arrow())
    if sizes is not None:
        lengths = [sizes(str(service)) for service in table["service"].to_pylist()]
        place = table.schema.get_field_index("response_bytes")
        table = conform("exchanges", table.set_column(place, "response_bytes", pa.array(lengths, pa.int64())))
    return Choices(WATCHED, [WATCHED.calls(table)]).are_replicas(*PAIR)


def script_of_calls(count: int, calls: Callable[[int], Sequence[tuple[str, str]]], asked: Callable[[int], str]) -> str:
    """Requests of `web`, each of 100 µs, with their calls one after the other.

    Arguments: `calls`, which server each request asks, and for what; `asked`, what it is asked itself.
    """
    text = ""
    for number in range(count):
        at = 200 * number
        text += f"client > web/web:80 {at} {at + 1} {at + 99} {at + 100} target={asked(number)}\n"
        for place, (server, target) in enumerate(calls(number)):
            begin = at + 5 + 20 * place
            text += f"web > {server}/{server}:7001 {begin} {begin + 1} {begin + 9} {begin + 10} target={target}\n"
    return text


def picks(seed: int = 1) -> Callable[[int], str]:
    chosen = random.Random(seed)
    return lambda _: chosen.choice("ab")


ITEM: Callable[[int], str] = "/item/{}".format


@pytest.mark.parametrize(
    ("pick", "expected"),
    [
        (lambda number: "ab"[number % 2], True),
        (picks(), True),
        (lambda number: "ab"[number >= 20], True),  # one after the other: the choice, not its order, is looked at
        (lambda number: "a" if number < 36 else "b", False),
    ],
    ids=["in turn", "at random", "failed over", "four calls show nothing"],
)
def test_one_instead_of_the_other(pick: Callable[[int], str], expected: bool) -> None:
    assert replicas(script_of_calls(40, lambda number: [(pick(number), ITEM(number))], ITEM)) is expected


def test_services_that_each_request_asks_are_no_replicas() -> None:
    assert not replicas(script_of_calls(40, lambda _: [("a", "/check"), ("b", "/check")], ITEM))


def test_services_that_requests_ask_independently_are_no_replicas() -> None:
    drawn = random.Random(2)
    assert not replicas(script_of_calls(80, lambda _: [(name, "/rpc") for name in "ab" if drawn.random() < 0.5], ITEM))


def test_a_path_that_says_where_to_go_makes_no_replicas() -> None:
    """nginx: `/orders/` goes to one host, `/users/` to the other, each asked without that word."""
    pick = picks()
    where = [pick(number) for number in range(60)]
    words = {"a": "orders", "b": "users"}
    text = script_of_calls(
        60, lambda number: [(where[number], f"/{number % 9}")], lambda number: f"/{words[where[number]]}/{number % 9}"
    )
    assert not replicas(text)


def test_a_query_that_says_where_to_go_makes_no_replicas() -> None:
    pick = picks()
    where = [pick(number) for number in range(60)]
    text = script_of_calls(60, lambda number: [(where[number], "/")], lambda number: f"/?app={where[number]}")
    assert not replicas(text)


def test_a_target_that_has_its_server_makes_no_replicas() -> None:
    """Shards: each of a few items is always at the same one."""
    assert not replicas(
        script_of_calls(60, lambda number: [("ab"[hash(number % 7) % 2], ITEM(number % 7))], lambda _: "/go")
    )


def test_requests_at_once_are_distinguished_by_their_targets() -> None:
    text, pick, late = "", picks(), random.Random(4)
    for number in range(40):
        at, server = 50 * number, pick(number)
        text += f"client > web/web:80 {at} {at + 1} {at + 199} {at + 200} target=/item/{number}\n"
        begin = at + late.choice([10, 60, 110, 160])  # by then the next request may be there
        text += f"web > {server}/{server}:7001 {begin} {begin + 1} {begin + 9} {begin + 10} target=/item/{number}\n"
    assert replicas(text)


def direct(calls: Sequence[tuple[str, str]]) -> str:
    return "\n".join(
        f"client > {server}/{server}:7001 {50 * n} {50 * n + 1} {50 * n + 9} {50 * n + 10} target={target}"
        for n, (server, target) in enumerate(calls)
    )


def test_clients_that_ask_one_or_the_other_for_the_same_targets() -> None:
    pick = picks()
    assert replicas(direct([(pick(n), ITEM(n % 25)) for n in range(200)]))


@pytest.mark.parametrize(
    "calls",
    [
        [(server, ITEM(n)) for n in range(60) for server in "ab"],
        [("ab"[n % 2], ITEM(n)) for n in range(60)],
        [("ab"[n % 20 % 2], ITEM(n % 20)) for n in range(60)],
        [("ab"[n % 2], "/rpc") for n in range(60)],
    ],
    ids=["both for each", "each target once", "each target its own server", "one target"],
)
def test_clients_that_show_nothing(calls: Sequence[tuple[str, str]]) -> None:
    assert not replicas(direct(calls))


ONE_OF_TWO = script_of_calls(120, lambda number: [("ab"[number % 2], ITEM(number))], ITEM)


def drawn_sizes(apart: int) -> Callable[[str], int]:
    drawn = random.Random(3)
    return lambda service: 400 + drawn.randrange(300) + (apart if service == PAIR[1] else 0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [(lambda _: 300, False), (drawn_sizes(0), True), (drawn_sizes(200), False)],
    ids=["all of one size", "varied, and alike", "varied otherwise"],
)
def test_without_targets_sizes_must_be_alike(sizes: Callable[[str], int], expected: bool) -> None:
    assert replicas(ONE_OF_TWO, sizes=sizes, hidden=True) is expected


def test_of_a_large_trace_some_seconds_are_looked_at() -> None:
    assert sampled_share(1_000) == 1
    assert sampled_share(100_000_000) == pytest.approx(0.02)
    lines = "".join(
        f"client > a/a:7001 {second}000000 {second}000001 {second}000009 {second}000010\n" * 2
        for second in range(1, 400)
    )
    some = Watched(WATCHED.services, WATCHED.hosts, share=0.25).calls(exchanges_of(lines))
    whole = some.group_by(pl.col("asked") // 1_000_000_000).len()
    assert set(whole["len"]) == {2}
    assert 60 <= len(whole) <= 140
