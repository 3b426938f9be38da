"""Which names addresses get, and which hosts are named by them."""

from collections.abc import Sequence

import pytest

from collector.decode.address_names import (
    HOST_UNNAMED,
    NAMES_DISAGREE,
    HostToName,
    choose_host_names,
    choose_names,
)
from collector.decode.hosts_files import NameSource
from collector.trace.model import AddressName

A, B, C, V6 = "10.0.0.5", "10.1.0.5", "10.2.0.5", "2001:db8::5"


def source(file: str, **names: str) -> NameSource:
    """A file that names `A` (a), `B` (b) and `V6` (v6), each by some words."""
    addresses = {"a": A, "b": B, "v6": V6}
    return NameSource(file, {addresses[key]: tuple(words.split()) for key, words in names.items()})


NAMES: list[tuple[str, list[NameSource], list[NameSource], tuple[str, str, tuple[str, ...]], bool]] = [
    ("a hosts file", [source("h", a="web1 www")], [], ("web1", "h", ("www",)), False),
    ("a capture", [], [source("c", a="web1 www")], ("web1", "c", ("www",)), False),
    ("a hosts file first", [source("h", a="web1")], [source("c", a="db")], ("web1", "h", ("db",)), True),
    ("the first of two", [source("h", a="web1"), source("i", a="db")], [], ("web1", "h", ("db",)), True),
    (
        "with and without a domain",
        [source("h", a="web1")],
        [source("c", a="web1.lab")],
        ("web1", "h", ("web1.lab",)),
        False,
    ),
    ("in other letters", [source("h", a="WEB1")], [source("c", a="web1")], ("WEB1", "h", ("web1",)), False),
    ("captures disagree", [], [source("c", a="web1"), source("d", a="db")], ("", "c", ("web1", "db")), True),
    ("captures have one in common", [], [source("c", a="x web1"), source("d", a="web1")], ("web1", "c", ("x",)), False),
    ("nor a longer word", [], [source("c", a="web10"), source("d", a="web1")], ("", "c", ("web10", "web1")), True),
    ("no part of a word", [], [source("c", a="web1"), source("d", a="web10")], ("", "c", ("web1", "web10")), True),
]


@pytest.mark.parametrize(
    ("files", "captures", "expected", "disagree"), [each[1:] for each in NAMES], ids=[each[0] for each in NAMES]
)
def test_the_name_of_an_address(
    files: list[NameSource], captures: list[NameSource], expected: tuple[str, str, tuple[str, ...]], disagree: bool
) -> None:
    (found,), counters = choose_names(files, captures, {A})
    assert (found.address, found.name, found.file, found.others) == (A, *expected)
    assert [counter.name for counter in counters] == [NAMES_DISAGREE] * disagree


def test_disagreeing_names_are_stated_with_their_files() -> None:
    _, (counter,) = choose_names([source("lab-hosts", a="web1")], [source("c.pcapng", a="db x")], {A})
    assert "10.0.0.5 is web1 in lab-hosts and db in c.pcapng" in counter.remedy


def test_only_addresses_that_occur_are_kept() -> None:
    names, _ = choose_names([source("h", a="web1", b="web2")], [], {B, "127.0.0.1"})
    assert [each.address for each in names] == [B]


def test_loopback_has_no_name() -> None:
    assert choose_names([NameSource("h", {"127.0.0.1": ("web1",)})], [], {"127.0.0.1"}) == ((), [])


def test_secrets_in_names_are_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rules:
        def text(self, text: str) -> str:
            return text.replace("s3cr3t", "***")

    monkeypatch.setattr("collector.decode.address_names.rules", Rules)
    names, counters = choose_names([source("h", a="s3cr3t x-s3cr3t")], [source("c", a="other-s3cr3t")], {A})
    assert "s3cr3t" not in f"{names} {counters}"


def host(name: str, *addresses: str, guessed: bool = True, pairs: Sequence[tuple[str, str]] = ()) -> HostToName:
    return HostToName(name, frozenset(addresses), guessed, pairs)


def names_of(**names: str) -> list[AddressName]:
    return [AddressName(address, words[0], "h", words[1:]) for address, words in source("h", **names).names.items()]


HOSTS: list[tuple[str, list[HostToName], dict[str, str], dict[int, str], bool]] = [
    ("by its address", [host("a", A)], {"a": "web1"}, {0: "web1"}, False),
    ("by IPv6", [host("a", V6)], {"v6": "web1"}, {0: "web1"}, False),
    ("not one that is named", [host("a", A, guessed=False)], {"a": "web1"}, {}, False),
    ("nothing to change", [host("web1", A)], {"a": "web1"}, {}, False),
    ("no name", [host("a", B)], {"a": "web1"}, {}, False),
    ("a name for both of its addresses", [host("a", A, B)], {"a": "web1", "b": "web1"}, {0: "web1"}, False),
    ("one that both have", [host("a", A, B)], {"a": "web1-a web1", "b": "web1-b web1"}, {0: "web1"}, False),
    ("one that both have, rather than one alike", [host("a", A, B)], {"a": "w.a w", "b": "w.b w"}, {0: "w"}, False),
    ("unlike names", [host("a", A, B)], {"a": "web1", "b": "vip"}, {}, True),
    ("one address without a name", [host("a", A, B)], {"a": "web1"}, {0: "web1"}, False),
    ("all packets are its own", [host("a", A, pairs=[(A, C), (B, A)])], {"a": "web1"}, {0: "web1"}, False),
    ("a virtual address", [host("a", A, pairs=[(A, C), (B, C)])], {"a": "vip", "b": "web1"}, {}, True),
    ("another address of that name", [host("a", A, pairs=[(A, C), (B, C)])], {"a": "w", "b": "w"}, {0: "w"}, False),
    ("an address of two hosts", [host("a", A, B), host("b", A)], {"a": "vip"}, {}, False),
    ("beside an address of two", [host("a", A, B), host("b", A)], {"a": "vip", "b": "web1"}, {0: "web1"}, False),
    ("one name for two hosts", [host("a", A), host("b", B)], {"a": "www", "b": "www"}, {}, True),
    ("a name that another has", [host("a", A), host("web1", B)], {"a": "web1"}, {}, True),
    ("in other letters, too", [host("a", A), host("WEB1", B)], {"a": "web1"}, {}, True),
    ("names that change places", [host("x", A), host("y", B)], {"a": "y", "b": "x"}, {0: "y", 1: "x"}, False),
    ("one that stays after all", [host("a", A), host("b", B, guessed=False)], {"a": "b"}, {}, True),
    (
        "loopback",
        [host("a", "127.0.0.1")],
        {"a": "web1"},
        {},
        False,
    ),
]


@pytest.mark.parametrize(
    ("hosts", "names", "expected", "unclear"), [each[1:] for each in HOSTS], ids=[each[0] for each in HOSTS]
)
def test_the_name_of_a_host(
    hosts: list[HostToName], names: dict[str, str], expected: dict[int, str], unclear: bool
) -> None:
    found, counters = choose_host_names(hosts, names_of(**names))
    assert found == expected
    assert [counter.name for counter in counters] == [HOST_UNNAMED] * unclear


def test_why_a_host_keeps_its_name_is_stated() -> None:
    _, (counter,) = choose_host_names([host("a", A, B)], names_of(a="web1", b="vip"))
    assert "a has 10.0.0.5 web1 and 10.1.0.5 vip" in counter.remedy
