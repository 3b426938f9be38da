"""Selectors: what their text means, what they draw, how they are shared out; and what is refused."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_cluster.bench.selectors import Bucket, Selector, Sizes, parse_selector, parse_sizes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c(64)", Selector("c", 64, 64)),
        ("u(1,32)", Selector("u", 1, 32)),
        ("r(1, 50)", Selector("r", 1, 50)),
        ("s(51,100)", Selector("s", 51, 100)),
        ("1-32", Selector("r", 1, 32)),
        ("h(1|100|3,101|500|1)", Selector("h", 1, 500, (Bucket(1, 100, 3), Bucket(101, 500, 1)))),
    ],
)
def test_selectors_are_understood(text: str, expected: Selector) -> None:
    assert parse_selector(text) == expected
    assert parse_selector(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["", "64", "c(1,2)", "u(1)", "u(9,1)", "x(1,2)", "u(a,b)", "h(1|2)", "h(5|1|1)", "h(1|2|0)"]
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_selector(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c(64)KB", Sizes(Selector("c", 64, 64), 1000)),
        ("u(1,9)MB", Sizes(Selector("u", 1, 9), 1000**2)),
        ("c(1)GB", Sizes(Selector("c", 1, 1), 1000**3)),
        ("c(0)B", Sizes(Selector("c", 0, 0), 1)),
    ],
)
def test_sizes_have_decimal_units(text: str, expected: Sizes) -> None:
    assert parse_sizes(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["c(64)", "c(64)kb", "64KB", "c(64)KiB"])
def test_sizes_without_a_known_unit_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_sizes(text)


def draw(text: str, count: int) -> list[int]:
    choose = parse_selector(text).chooser(random.Random(7))
    return [choose() for _ in range(count)]


def test_a_sequence_goes_round() -> None:
    assert draw("s(3,5)", 7) == [3, 4, 5, 3, 4, 5, 3]
    assert draw("r(3,5)", 4) == [3, 4, 5, 3]
    assert draw("c(9)", 3) == [9, 9, 9]


def test_uniform_reaches_all_and_nothing_else() -> None:
    counts = Counter(draw("u(2,5)", 4000))
    assert set(counts) == {2, 3, 4, 5}
    assert min(counts.values()) > 850


def test_a_histogram_follows_its_weights() -> None:
    numbers = draw("h(1|10|900,100|110|100)", 5000)
    low = sum(number <= 10 for number in numbers)
    assert 4350 < low < 4650
    assert set(numbers) <= {*range(1, 11), *range(100, 111)}


@given(st.integers(0, 50), st.integers(0, 200), st.integers(1, 70))
def test_shares_are_the_whole_and_even(low: int, length: int, count: int) -> None:
    whole = Selector("r", low, low + length)
    shares = [share for n in range(count) if (share := whole.share(n, count))]
    numbers = [number for share in shares for number in range(share.low, share.high + 1)]
    assert numbers == list(range(low, low + length + 1))
    lengths = {share.high - share.low for share in shares}
    assert max(lengths) - min(lengths) <= 1
