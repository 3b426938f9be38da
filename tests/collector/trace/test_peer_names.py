"""What ends without a capture are called, and sentences with their addresses."""

import json

import pytest
from msgspec import to_builtins

from collector.trace.model import AddressName, HostInfo, TraceInfo, parse_info
from collector.trace.peer_names import PeerNames


def host(name: str, *addresses: str) -> HostInfo:
    return HostInfo(name, addresses, (), (), 0, 0, None, None)


NAMES = {
    "10.0.0.5": "cache.lab",
    "10.0.0.6": "www",
    "10.0.0.7": "WWW",
    "2001:db8::5": "v6.lab",
    "10.0.0.9": "",
    "10.9.0.1": "vip",
}
INFO = TraceInfo(
    1,
    "0",
    (host("web", "10.0.0.1", "10.9.0.1"), host("db", "10.0.0.2", "10.9.0.1")),
    names=tuple(AddressName(address, name, "h") for address, name in (NAMES | {"10.0.0.1": "other"}).items()),
)
PEERS = PeerNames(INFO)


def test_names_of_ends() -> None:
    assert {address: PEERS.of(address) for address in NAMES} == NAMES | {"10.0.0.9": None}
    assert PEERS.of(None) is None
    assert PEERS.of("10.0.0.1") is None, "it is a captured host's"


def test_a_name_of_several_addresses_is_of_no_one_end() -> None:
    assert [PEERS.of_one(address) for address in NAMES] == ["cache.lab", None, None, "v6.lab", None, "vip"]


def test_a_captured_hosts_name_is_of_no_other_end() -> None:
    info = TraceInfo(1, "0", (host("web", "10.0.0.1"),), names=(AddressName("10.0.0.5", "Web", "h"),))
    assert PeerNames(info).of_one("10.0.0.5") is None


def test_all_names_include_those_of_captured_hosts() -> None:
    found = PEERS.of_all()
    assert (found["10.0.0.1"], found["10.0.0.5"], found["10.9.0.1"]) == ("web", "cache.lab", "vip")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 connections to 10.0.0.5 failed", "3 connections to cache.lab failed"),
        ("to 10.0.0.5:6379, and 10.0.0.5.", "to cache.lab:6379, and cache.lab."),
        ("redis 10.0.0.5:6379+2", "redis cache.lab:6379+2"),
        ("to [2001:db8::5]:80 (2001:db8::5)", "to v6.lab:80 (v6.lab)"),
        ("110.0.0.5 10.0.0.50 10.0.0.5.1 v10.0.0.5", "110.0.0.5 10.0.0.50 10.0.0.5.1 v10.0.0.5"),
        ("GET /10.0.0.5/x, --address web=10.0.0.5", "GET /10.0.0.5/x, --address web=10.0.0.5"),
        ("12001:db8::5 2001:db8::5:1", "12001:db8::5 2001:db8::5:1"),
        ("www is 10.0.0.6, 10.0.0.1 is web", "www is 10.0.0.6, 10.0.0.1 is web"),
    ],
)
def test_sentences(text: str, expected: str) -> None:
    assert PEERS.in_text(text) == expected


def test_names_are_read_as_they_were_written() -> None:
    info = TraceInfo(1, "0", (host("web"),), names=(AddressName("10.0.0.5", "a", "h", ("b", "c")),))
    assert parse_info(json.loads(json.dumps(to_builtins(info)))) == info


def test_a_trace_without_names_is_read() -> None:
    document = to_builtins(TraceInfo(1, "0", (host("web"),)))
    del document["names"], document["hosts"][0]["file_name"]
    info = parse_info(json.loads(json.dumps(document)))
    assert (info.names, info.hosts[0].file_name) == ((), "")
