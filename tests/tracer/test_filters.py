"""Filter expressions through libpcap, and the built-in program against libpcap's own interpreter."""

import ctypes
import ctypes.util
from ipaddress import ip_address

import pytest
from scapy.layers.inet import IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet

from tracer import _capture, filters
from tracer.errors import InputError, MissingDependencyError
from tracer.filters import Program, compile_filter

needs_libpcap = pytest.mark.skipif(ctypes.util.find_library("pcap") is None, reason="libpcap is not installed")


def accepted_len(program: Program, frame: bytes) -> int:
    """Bytes of the frame that libpcap's interpreter keeps; 0 = rejected."""
    library = ctypes.CDLL(ctypes.util.find_library("pcap"))
    instructions = (filters._Instruction * len(program))(*program)
    verdict: int = library.bpf_filter(instructions, frame, len(frame), len(frame))
    return verdict & 0xFFFFFFFF


@needs_libpcap
@pytest.mark.parametrize(
    ("packet", "passes"),
    [
        (IP() / TCP(), True),
        (IP() / UDP(), False),
        (IPv6() / TCP(), True),
        (IPv6() / UDP(), False),
    ],
)
def test_the_built_in_filter_passes_tcp_behind_any_tags(packet: Packet, passes: bool) -> None:
    ethernet, raw_ip = _capture.built_in_filter(True, 300), _capture.built_in_filter(False, 300)
    expected = 300 if passes else 0
    assert accepted_len(raw_ip, bytes(packet)) == expected
    for link in [Ether(), Ether() / Dot1Q(), Ether() / Dot1AD() / Dot1Q()]:
        assert accepted_len(ethernet, bytes(link / packet)) == expected
    assert accepted_len(ethernet, bytes(Ether() / ARP())) == 0


@needs_libpcap
def test_an_expression_means_the_same_with_and_without_a_tag() -> None:
    compiled = compile_filter("tcp port 8080 and host 10.0.0.1", 128)
    wanted, other = IP(src="10.0.0.1") / TCP(dport=8080), IP(src="10.0.0.1") / TCP(dport=81)
    for link in [Ether(), Ether() / Dot1Q(vlan=5)]:
        assert accepted_len(compiled.ethernet, bytes(link / wanted)) == 128
        assert accepted_len(compiled.ethernet, bytes(link / other)) == 0
    assert compiled.raw_ip is not None
    assert accepted_len(compiled.raw_ip, bytes(wanted)) == 128
    assert compiled.expression == "tcp port 8080 and host 10.0.0.1"


@needs_libpcap
def test_an_expression_on_ethernet_addresses_has_no_program_for_raw_ip() -> None:
    assert compile_filter("ether host 02:00:00:00:00:01", 128).raw_ip is None


@needs_libpcap
@pytest.mark.parametrize("expression", ["tcp prot 80", "host", "tcp)", "(tcp"])
def test_a_bad_expression_is_reported_with_libpcaps_words(expression: str) -> None:
    with pytest.raises(InputError, match=r"does not compile: .+"):
        compile_filter(expression, 128)


def test_vlan_is_refused_because_it_would_not_mean_what_it_says() -> None:
    with pytest.raises(InputError, match="leave it out"):
        compile_filter("vlan 7 and tcp", 128)


def test_a_missing_libpcap_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: "libnonesuch.so.1")
    with pytest.raises(MissingDependencyError, match=r"apt install libpcap0\.8"):
        compile_filter("tcp", 128)


@pytest.mark.parametrize(("payload", "snaplen"), [("none", 256), ("heads", 4352), ("http", 4352), ("64", 320)])
def test_each_payload_policy_has_its_snaplen(payload: str, snaplen: int) -> None:
    assert _capture.payload_snaplen(payload) == snaplen


def test_an_unknown_payload_policy_is_the_operators_error() -> None:
    with pytest.raises(InputError, match="give none, heads or a number of bytes"):
        _capture.payload_snaplen("all")


ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
"""With addresses, so that scapy asks no network for them."""
EXCLUDED = [(ip_address("10.0.0.5"), 8710), (ip_address("10.0.0.6"), 8710), (ip_address("fd00::5"), 8710)]


@needs_libpcap
@pytest.mark.parametrize(
    ("packet", "passes"),
    [
        (IP(src="10.0.0.5", dst="10.0.0.1") / TCP(sport=8710, dport=4000), False),
        (IP(src="10.0.0.1", dst="10.0.0.6") / TCP(sport=4000, dport=8710), False),
        (IP(src="10.0.0.1", dst="10.0.0.5", options=[IPOption_NOP()] * 4) / TCP(sport=4000, dport=8710), False),
        (IP(src="10.0.0.5", dst="10.0.0.1") / TCP(sport=4000, dport=8710), True),
        (IP(src="10.0.0.1", dst="10.0.0.5") / TCP(sport=8710, dport=4000), True),
        (IP(src="10.0.0.1", dst="10.0.0.5") / TCP(sport=4000, dport=8711), True),
        (IP(src="10.0.0.1", dst="10.0.0.7") / TCP(sport=4000, dport=8710), True),
        (IP(src="10.0.0.1", dst="10.0.0.5", frag=100) / TCP(sport=4000, dport=8710), True),
        (IPv6(src="fd00::5", dst="fd00::1") / TCP(sport=8710, dport=4000), False),
        (IPv6(src="fd00::1", dst="fd00::5") / TCP(sport=4000, dport=8710), False),
        (IPv6(src="fd00::1", dst="fd00::5") / TCP(sport=4000, dport=80), True),
        (IPv6(src="fd00::1", dst="fd01::5") / TCP(sport=4000, dport=8710), True),
        (IPv6(src="fd00::1", dst="fd00:1::5") / TCP(sport=4000, dport=8710), True),
        (IPv6(src="fd00::1", dst="fd00::1:0:5") / TCP(sport=4000, dport=8710), True),
        (IPv6(src="fd00::1", dst="fd00::6") / TCP(sport=4000, dport=8710), True),
    ],
)
def test_what_is_excluded_is_refused_before_the_filter_and_nothing_else(packet: Packet, passes: bool) -> None:
    filters_of = {
        True: _capture.built_in_filter(True, 300, EXCLUDED),
        False: _capture.built_in_filter(False, 300, EXCLUDED),
    }
    expected = 300 if passes else 0
    assert accepted_len(filters_of[False], bytes(packet)) == expected
    for link in [ETHERNET, ETHERNET / Dot1Q(), ETHERNET / Dot1AD() / Dot1Q()]:
        assert accepted_len(filters_of[True], bytes(link / packet)) == expected
    compiled = compile_filter("tcp", 300).ethernet
    before = filters_of[True][: -len(_capture.built_in_filter(True, 300))]
    for link in [ETHERNET, ETHERNET / Dot1Q()]:
        assert accepted_len([*before, *compiled], bytes(link / packet)) == expected
