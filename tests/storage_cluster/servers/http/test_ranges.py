"""Which bytes a Range header asks for. The rows are what Swift 2.30 answers for an object of ten bytes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from storage_cluster.servers.http.ranges import parse_ranges, reply_with_ranges

TEN = b"0123456789"


async def source(start: int, stop: int) -> AsyncIterator[bytes]:
    yield TEN[start:stop]


@pytest.mark.parametrize(
    ("header", "whole_len", "found"),
    [
        (None, 10, None),
        ("bytes=0-3", 10, [(0, 4)]),
        ("bytes=-3", 10, [(7, 10)]),
        ("bytes=-20", 10, [(0, 10)]),
        ("bytes=5-", 10, [(5, 10)]),
        ("bytes=0-20", 10, [(0, 10)]),
        ("bytes=20-", 10, []),
        ("bytes=-0", 10, []),
        ("bytes=0-0, 5-6", 10, [(0, 1), (5, 7)]),
        ("bytes=5-6,0-1", 10, [(5, 7), (0, 2)]),
        ("bytes=0-3,20-30", 10, [(0, 4)]),
        ("bytes=20-30,40-", 10, []),
        ("bytes=3-1", 10, None),
        ("bytes=0-1,3-1", 10, None),
        ("bytes=a-b", 10, None),
        ("bytes=", 10, None),
        ("bytes=-", 10, None),
        ("bits=0-1", 10, None),
        ("BYTES = 0 -  3", 10, [(0, 4)]),
        ("bytes=0-3,", 10, None),
        ("bytes=0-3,2-5,4-7", 10, [(0, 4), (2, 6), (4, 8)]),
        ("bytes=0-3,2-5,4-7,6-9", 10, []),
        ("bytes=0-5,1-5,2-5", 10, []),
        ("bytes=0-9,0-9,0-9", 10, [(0, 10), (0, 10), (0, 10)]),
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(51)), 100, []),
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(16, 0, -2)), 100, [(n, n + 1) for n in range(16, 0, -2)]),
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(18, 0, -2)), 100, []),
        ("bytes=0-", 0, []),
        ("bytes=-1", 0, None),
        ("bytes=0-0,-1", 0, None),
    ],
)
def test_ranges(header: str | None, whole_len: int, found: list[tuple[int, int]] | None) -> None:
    ranges = parse_ranges(header, whole_len)
    assert (ranges if ranges is None else [(one.start, one.stop) for one in ranges]) == found


@given(header=st.text(alphabet="bytes=0123456789-, ", max_size=30), whole_len=st.integers(0, 100))
def test_no_header_asks_for_what_is_not_there(header: str, whole_len: int) -> None:
    for one in parse_ranges(header, whole_len) or []:
        assert 0 <= one.start < one.stop <= whole_len


@pytest.mark.parametrize(
    ("asked", "status", "body", "content_range"),
    [
        (None, 200, TEN, None),
        ("bytes=2-3", 206, b"23", "bytes 2-3/10"),
        ("bytes=10-", 416, b"<html><h1>Requested Range", "bytes */10"),
    ],
)
def test_a_reply_in_part(asked: str | None, status: int, body: bytes, content_range: str | None) -> None:
    reply = reply_with_ranges(200, CIMultiDict({"Content-Type": "a/b"}), 10, asked, source)
    whole = asyncio.run(reply.read())
    assert (reply.status, reply.headers.get("Content-Range")) == (status, content_range)
    assert whole.startswith(body)
    assert int(reply.headers["Content-Length"]) == len(whole)


def test_several_ranges_are_parts_of_one_body() -> None:
    reply = reply_with_ranges(200, CIMultiDict({"Content-Type": "a/b"}), 10, "bytes=0-1,8-", source)
    whole = asyncio.run(reply.read())
    boundary = reply.headers["Content-Type"].removeprefix("multipart/byteranges;boundary=").encode()
    head = b"--" + boundary + b"\r\nContent-Type: a/b\r\nContent-Range: bytes "
    assert whole == head + b"0-1/10\r\n\r\n01\r\n" + head + b"8-9/10\r\n\r\n89\r\n--" + boundary + b"--"
    assert int(reply.headers["Content-Length"]) == len(whole)
