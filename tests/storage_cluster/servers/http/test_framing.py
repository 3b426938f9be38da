"""HTTP messages out of bytes: what is read, at every cut; what is refused, and with which status."""

import pytest

from storage_cluster.servers.http.framing import (
    END,
    HEADERS_MAX_COUNT,
    Event,
    FramingError,
    RequestHead,
    RequestReader,
    ResponseHead,
    ResponseReader,
    head_bytes,
)

MESSAGES = {
    "no body": (b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", ["GET /a", END]),
    "length": (b"PUT /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", ["PUT /a", b"hello", END]),
    "empty body": (b"PUT /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n", ["PUT /a", END]),
    "chunks": (
        b"PUT /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: 1\r\n\r\n",
        ["PUT /a", b"hello0123456789", END],
    ),
    "pipelined": (
        b"PUT /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi\r\nGET /b HTTP/1.1\r\n\r\nDELETE /c HTTP/1.0\r\n\r\n",
        ["PUT /a", b"hi", END, "GET /b", END, "DELETE /c", END],
    ),
    "any method, raw UTF-8": (
        "REPLICATE /d/é HTTP/1.1\r\nX-Object-Meta-é: é\r\n\r\n".encode(),
        ["REPLICATE /d/é", END],
    ),
    "a body that looks like a request": (
        b"PUT /a HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET /x HTTP/1.1\r\n\r",
        ["PUT /a", b"GET /x HTTP/1.1\r\n\r", END],
    ),
}


def read(data: bytes, size: int) -> list[object]:
    """What a reader makes of bytes that arrive in pieces of that size; neighbouring pieces of a body as one."""
    reader = RequestReader()
    seen: list[object] = []
    for at in range(0, len(data), size):
        for event in reader.feed(data[at : at + size]):
            if isinstance(event, bytes) and isinstance(seen[-1], bytes):
                seen[-1] += event
            else:
                seen.append(f"{event.method} {event.target}" if isinstance(event, RequestHead) else event)
    assert not reader.amid_message
    return seen


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_the_same_however_it_is_cut(name: str) -> None:
    data, expected = MESSAGES[name]
    for size in range(1, len(data) + 1):
        assert read(data, size) == expected, f"in pieces of {size}"


def test_every_prefix_of_a_message_is_an_unfinished_message() -> None:
    for data, _ in (MESSAGES["length"], MESSAGES["chunks"]):
        for cut in range(1, len(data)):
            reader = RequestReader()
            assert END not in list(reader.feed(data[:cut]))
            assert reader.amid_message


def test_so_many_headers_are_read() -> None:
    (head, _) = RequestReader().feed(b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * HEADERS_MAX_COUNT + b"\r\n")
    assert isinstance(head, RequestHead)
    assert head.headers.getall("X") == ["a"] * HEADERS_MAX_COUNT


def test_a_head_says_how_to_go_on() -> None:
    (head, _) = RequestReader().feed(b"GET / HTTP/1.1\r\nX:  a b \t\r\nx: c\r\n\r\n")
    assert isinstance(head, RequestHead)
    assert head.headers.getall("x") == ["a b", "c"]
    assert (head.keeps_alive, head.length, head.has_framing) == (True, 0, False)
    assert not one_head(b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keeps_alive
    assert not one_head(b"GET / HTTP/1.0\r\n\r\n").keeps_alive
    assert one_head(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keeps_alive


def one_head(data: bytes) -> RequestHead:
    """The first head."""
    head = next(iter(RequestReader().feed(data)))
    assert isinstance(head, RequestHead)
    return head


REFUSED = {
    "both framings": (b"PUT / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "both framings, other order": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400),
    "two lengths": (b"PUT / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    "list of lengths": (b"PUT / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n", 400),
    "signed length": (b"PUT / HTTP/1.1\r\nContent-Length: +3\r\n\r\n", 400),
    "negative length": (b"PUT / HTTP/1.1\r\nContent-Length: -3\r\n\r\n", 400),
    "length in other digits": ("PUT / HTTP/1.1\r\nContent-Length: ٣\r\n\r\n".encode(), 400),
    "endless length": (b"PUT / HTTP/1.1\r\nContent-Length: " + b"9" * 20 + b"\r\n\r\n", 400),
    "another coding": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "two codings": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "coding hidden by a tab": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", 501),
    "chunks in HTTP/1.0": (b"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "space before the colon": (b"GET / HTTP/1.1\r\nX : y\r\n\r\n", 400),
    "folded line": (b"GET / HTTP/1.1\r\nX: y\r\n z\r\n\r\n", 400),
    "line without a colon": (b"GET / HTTP/1.1\r\nX\r\n\r\n", 400),
    "bare newline": (b"GET / HTTP/1.1\nX: y\n\n", 400),
    "bare newline in a value": (b"GET / HTTP/1.1\r\nX: y\nZ: 1\r\n\r\n", 400),
    "bare return in a value": (b"GET / HTTP/1.1\r\nX: y\rZ: 1\r\n\r\n", 400),
    "NUL in a value": (b"GET / HTTP/1.1\r\nX: \0\r\n\r\n", 400),
    "three words": (b"GET / x HTTP/1.1\r\n\r\n", 400),
    "another protocol": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "another version": (b"GET / HTTP/2.0\r\n\r\n", 400),
    "chunk size": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    "signed chunk size": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
    "chunk longer than it said": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400),
    "chunk line without end": (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 9000, 400),
    "long request line": (b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\n\r\n", 414),
    "request line without end": (b"GET /" + b"a" * 8192, 414),
    "long header": (b"GET / HTTP/1.1\r\nX: " + b"a" * 8192 + b"\r\n\r\n", 400),
    "header without end": (b"GET / HTTP/1.1\r\nX: " + b"a" * 9000, 400),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: aaaaaaaaaaaaaaaaaaaaaaa\r\n" * 3000 + b"\r\n", 400),
    "201 headers": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * (HEADERS_MAX_COUNT + 1) + b"\r\n", 431),
    "4000 headers": (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 4000 + b"\r\n", 431),
    "headers without end": (b"GET / HTTP/1.1\r\n" + b"X: aaaaaaaaaaaaaaaaaaaaaaa\r\n" * 3000, 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_read_in_two_ways_or_grows_without_end_is_refused(name: str) -> None:
    data, status = REFUSED[name]
    for size in (len(data), 7):
        with pytest.raises(FramingError) as caught:
            read(data, size)
        assert caught.value.status == status


def response(data: bytes, *, to_head: bool = False) -> list[Event]:
    """What a reader makes of a response."""
    return list(ResponseReader(to_head=to_head).feed(data))


def test_responses_end_as_their_heads_and_their_requests_say() -> None:
    with_length = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    assert response(with_length + b"hi")[1:] == [b"hi", END]
    assert response(with_length, to_head=True)[1:] == [END]
    assert response(b"HTTP/1.1 204\r\n\r\n")[1:] == [END]
    assert response(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n")[1:] == [END]
    interim, end, head, *_ = response(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    assert isinstance(interim, ResponseHead) and isinstance(head, ResponseHead)
    assert (interim.status, end, head.status) == (100, END, 201)


def test_a_response_without_a_length_ends_with_the_connection() -> None:
    reader = ResponseReader()
    head, body = reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhi")
    assert isinstance(head, ResponseHead)
    assert (body, head.keeps_alive, reader.end_of_stream()) == (b"hi", False, True)
    assert not ResponseReader().end_of_stream()


def test_no_header_can_be_smuggled_into_a_head() -> None:
    made = head_bytes("HTTP/1.1 200 OK", [("X", "a\r\nSet-Cookie: b"), ("Y", "é\udcff")])
    assert made == b"HTTP/1.1 200 OK\r\nX: a  Set-Cookie: b\r\nY: \xc3\xa9\xff\r\n\r\n"
