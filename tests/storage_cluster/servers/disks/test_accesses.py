"""The header of a reserved access: what is written is read again, and nothing else is taken for one."""

import random

import pytest

from storage_cluster.servers.disks.accesses import Access, parse_access


def test_what_is_written_is_read_again() -> None:
    access = Access("a-1_B", 1_800_000_000, {"storage1/d1": 10, "storage2/d2": 0})
    assert parse_access(access.text()) == access
    assert (access.rate("storage1", "d1"), access.rate("storage1", "d2")) == (10, 0)
    assert parse_access(Access("a", 1, {}).text()) == Access("a", 1, {})


@pytest.mark.parametrize(
    "text",
    ["", "a", "a 1", "a b h/d=1", "a 1 h/d", "a 1 h/d=", "a 1 hd=1", "a 1 h/d=-1", "a 1 h/d=1 x", "\xe4 1 h/d=1"],
)
def test_another_value_is_no_access(text: str) -> None:
    assert parse_access(text) is None


def test_no_text_makes_it_fail() -> None:
    source = random.Random(3)
    good = Access("a1", 5, {"h/d": 7, "h/e": 8}).text()
    for _ in range(5000):
        letters = list(good)
        for _ in range(source.randint(1, 4)):
            letters[source.randrange(len(letters))] = source.choice("a1 ,=/-\0\xff٣")
        found = parse_access("".join(letters))
        assert found is None or parse_access(found.text()) == found
