"""Erasure coding: any sufficient fragments give the bytes back, what is damaged is known, lengths are as calculated."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_cluster.erasure import HEADER_BYTES, Code, DamagedFragmentError, code_of
from storage_cluster.policies import ERASURE_CODING, Policies, Policy

CODE = Code(2, 1, 64)
WIDE = Code(4, 2, 100)


def archives(code: Code, body: bytes) -> list[bytes]:
    """The archives of an object."""
    starts = range(0, len(body), code.segment_bytes)
    parts = [code.encode(body[start : start + code.segment_bytes]) for start in starts]
    return [b"".join(part[index] for part in parts) for index in range(code.fragment_count)]


def decode(code: Code, found: dict[int, bytes], size: int) -> bytes:
    """The object of some of its archives, by index."""
    body, at = b"", 0
    for number in range(-(-size // code.segment_bytes)):
        length = code.fragment_len(code.segment_len(number, size))
        body += code.decode([archive[at : at + length] for archive in found.values()])
        at += length
    return body


@pytest.mark.parametrize("code", [CODE, WIDE], ids=["2+1", "4+2"])
@given(body=st.binary(max_size=350))
@settings(max_examples=60, deadline=None)
def test_any_sufficient_archives_give_the_object(code: Code, body: bytes) -> None:
    made = archives(code, body)
    assert {len(archive) for archive in made} == {code.archive_len(len(body))}
    for kept in itertools.combinations(range(code.fragment_count), code.data_fragments):
        assert decode(code, {index: made[index] for index in kept}, len(body)) == body


@pytest.mark.parametrize("code", [CODE, WIDE], ids=["2+1", "4+2"])
@given(segment=st.binary(min_size=1, max_size=64))
@settings(max_examples=30, deadline=None)
def test_a_lost_fragment_is_rebuilt_as_it_was(code: Code, segment: bytes) -> None:
    made = code.encode(segment)
    for lost in range(code.fragment_count):
        others = [fragment for index, fragment in enumerate(made) if index != lost][: code.data_fragments]
        assert code.rebuild(others, lost) == made[lost]


def test_every_flipped_bit_of_a_fragment_is_noticed() -> None:
    fragment = CODE.encode(b"some bytes")[1]
    assert CODE.is_sound(fragment, 1)
    unread = {*range(63, 67), *range(71, HEADER_BYTES)}  # the library's version; padding
    for bit in range(8 * len(fragment)):
        damaged = bytearray(fragment)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit // 8 not in unread:
            assert not CODE.is_sound(bytes(damaged), 1), f"byte {bit // 8}"


@pytest.mark.parametrize("fragment", [b"", b"x", bytes(80), b"x" * 80], ids=["nothing", "a byte", "zeros", "text"])
def test_what_is_no_fragment_is_not_sound(fragment: bytes) -> None:
    assert not CODE.is_sound(fragment, 1)


def test_a_fragment_that_is_cut_or_goes_on_is_not_sound() -> None:
    fragment = CODE.encode(b"some bytes")[1]
    assert not any(CODE.is_sound(each, 1) for each in (fragment[:-1], fragment + b"x", fragment[:HEADER_BYTES]))


def test_a_fragment_of_another_index_is_not_sound() -> None:
    assert not CODE.is_sound(CODE.encode(b"some bytes")[1], 0)


def test_too_few_fragments_give_nothing() -> None:
    made = CODE.encode(b"some bytes")
    with pytest.raises(DamagedFragmentError):
        CODE.decode(made[:1])
    with pytest.raises(DamagedFragmentError):
        CODE.rebuild(made[:1], 2)


def test_a_write_needs_one_fragment_more_than_a_read() -> None:
    assert (CODE.write_quorum, WIDE.write_quorum) == (3, 5)
    assert (CODE.scheme, WIDE.scheme) == ("liberasurecode_rs_vand 2+1", "liberasurecode_rs_vand 4+2")


def test_only_a_policy_of_that_kind_has_a_code() -> None:
    coded = Policy("coded", 1, kind=ERASURE_CODING, data_fragments=2, parity_fragments=1, segment_bytes=64)
    policies = Policies((Policy(), coded))
    assert [code_of(policies, index) for index in range(3)] == [None, CODE, None]
    assert dataclasses.replace(coded, segment_bytes=65).segment_bytes == 65
