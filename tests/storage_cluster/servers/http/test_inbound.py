"""A client's connection as scripts: bytes in, bytes out, time passing."""

import asyncio
import dataclasses
import io
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop
from multidict import CIMultiDict

from storage_cluster.servers.http.access_log import AccessLog
from storage_cluster.servers.http.framing import HEADERS_MAX_COUNT
from storage_cluster.servers.http.front import Front, segments
from storage_cluster.servers.http.inbound import (
    CLIENT_TIMEOUT_S,
    LINGER_S,
    PIPELINED_MAX,
    READ_TO_END_MAX_BYTES,
    WHOLE,
    Writing,
)
from storage_cluster.servers.http.messages import BrokenOff, Call, Refusal, Reply, reply
from tests.helpers.wire import FakeClock, FakeTransport, settle

PUT = b"PUT /o HTTP/1.1\r\nContent-Length: %d\r\n\r\n"


class Conversation:
    """One client's connection to a server with the given handler."""

    def __init__(self, handler: Callable[[Call], Awaitable[Reply]]) -> None:
        self._log = io.StringIO()
        front = Front(handler, AccessLog(self._log), segments(2), lambda path, headers: "tx1")
        self.clock = FakeClock()
        self.protocol = front.connection(self.clock)
        self.transport = FakeTransport(self.protocol)

    async def say(self, data: bytes) -> bytes:
        """Send bytes; what comes back, but for dates and transaction ids."""
        self.protocol.data_received(data)
        return await self.hear()

    async def hear(self) -> bytes:
        """What came back since."""
        await settle()
        heard = self.transport.take().split(b"\r\n")
        return b"\r\n".join(line for line in heard if not line.startswith((b"Date: ", b"X-Trans", b"X-Open")))

    @property
    def log(self) -> list[tuple[str, int, int, int]]:
        """Path, status, bytes in and out of each line."""
        lines = map(json.loads, self._log.getvalue().splitlines())
        return [(line["path"], line["status"], line["bytes_in"], line["bytes_out"]) for line in lines]


def talk(handler: Callable[[Call], Awaitable[Reply]], script: Callable[[Conversation], Awaitable[None]]) -> None:
    """Run a script against a handler."""

    async def run() -> None:
        await script(Conversation(handler))

    asyncio.run(run())


async def echo(call: Call) -> Reply:
    """The method, the name and the body."""
    body = await call.body.read(10_000_000)
    return reply(200, {"Content-Type": "t"}, b"%b %b %b" % (call.method.encode(), call.names[0].encode(), body))


def answer(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    """A response as `Conversation.hear` shows it."""
    return b"HTTP/1.1 %b\r\nContent-Type: t\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), more, body)


CLOSE = b"Connection: close\r\n"


def test_requests_are_answered_wherever_they_are_cut() -> None:
    data = PUT % 2 + b"hiGET /a%20b?x=y HTTP/1.1\r\n\r\n"
    expected = answer(b"PUT o hi") + answer(b"GET a b ")

    async def script(conversation: Conversation) -> None:
        for cut in range(1, len(data)):
            assert await conversation.say(data[:cut]) + await conversation.say(data[cut:]) == expected, cut
        assert len(conversation.log) == 2 * (len(data) - 1)

    talk(echo, script)


def test_pipelined_requests_are_answered_one_after_the_other() -> None:
    running = 0

    async def handler(call: Call) -> Reply:
        nonlocal running
        assert running == 0
        running += 1
        await asyncio.sleep(0)
        running -= 1
        return await echo(call)

    async def script(conversation: Conversation) -> None:
        count = PIPELINED_MAX + 3
        conversation.protocol.data_received(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(count)))
        assert conversation.transport.reading_paused
        heard = b""
        while heard.count(b"HTTP/1.1") < count:
            heard += await conversation.hear()
        assert heard == b"".join(answer(b"GET %d " % n) for n in range(count))
        assert not conversation.transport.reading_paused

    talk(handler, script)


def test_a_body_is_asked_for_only_when_it_is_wanted() -> None:
    async def picky(call: Call) -> Reply:
        if call.names[0] == "no":
            raise Refusal(412, "no")
        return await echo(call)

    async def script(conversation: Conversation) -> None:
        head = b"PUT /%b HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        assert await conversation.say(head % b"yes") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await conversation.say(b"hi") == answer(b"PUT yes hi")
        heard = await conversation.say(head % b"no")
        assert heard.startswith(b"HTTP/1.1 412 ") and CLOSE in heard  # the client may send the body yet, or not

    talk(picky, script)


def test_an_early_answer_leaves_the_connection_usable_if_little_is_left_of_the_body() -> None:
    async def refusing(_: Call) -> Reply:
        return reply(422, {"Content-Type": "t"}, b"no")

    async def script(conversation: Conversation) -> None:
        refused = answer(b"no", b"422 Unprocessable Entity")
        assert await conversation.say(PUT % 10 + b"01234") == refused
        assert await conversation.say(b"56789" + PUT % 1 + b"x") == refused
        assert not conversation.transport.closed
        heard = await conversation.say(PUT % (READ_TO_END_MAX_BYTES + 1))
        assert CLOSE in heard
        assert (conversation.transport.eof_written, conversation.transport.closed) == (True, False)
        assert await conversation.say(b"x" * 100_000 + b"GET / HTTP/1.1\r\n\r\n") == b""
        conversation.clock.pass_time(LINGER_S)
        assert conversation.transport.closed

    talk(refusing, script)


def test_nonsense_is_refused_after_what_came_before_it_was_answered() -> None:
    async def script(conversation: Conversation) -> None:
        heard = await conversation.say(b"GET /a HTTP/1.1\r\n\r\nPUT /b HTTP/1.1\r\nContent-Length: x\r\n\r\n")
        assert heard.startswith(answer(b"GET a ") + b"HTTP/1.1 400 Bad Request\r\n")
        assert heard.endswith(CLOSE + b"\r\nInvalid Content-Length header value")
        assert await conversation.say(b"GET /a HTTP/1.1\r\n\r\n") == b""

    talk(echo, script)


def test_too_many_headers_are_refused_in_swifts_words() -> None:
    async def script(conversation: Conversation) -> None:
        heard = await conversation.say(b"GET /a HTTP/1.1\r\n" + b"X: a\r\n" * (HEADERS_MAX_COUNT + 1) + b"\r\n")
        assert heard.startswith(b"HTTP/1.1 431 Too many headers\r\n")
        assert conversation.transport.eof_written

    talk(echo, script)


def test_a_broken_chunk_is_the_fault_of_its_request() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.say(b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        heard = await conversation.say(b"zz\r\n")
        assert heard.startswith(b"HTTP/1.1 400 ") and heard.count(b"HTTP/1.1") == 1 and CLOSE in heard
        assert conversation.log == [("/a", 400, 2, len(b"Bad chunk size"))]

    talk(echo, script)


def test_a_client_that_is_silent_is_not_waited_for_without_end() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.say(PUT % 2)
        conversation.clock.pass_time(CLIENT_TIMEOUT_S - 1)
        assert await conversation.say(b"h") == b""
        conversation.clock.pass_time(CLIENT_TIMEOUT_S - 1)
        assert await conversation.hear() == b""
        conversation.clock.pass_time(1)
        assert (await conversation.hear()).startswith(b"HTTP/1.1 408 ")

    talk(echo, script)

    async def idle(conversation: Conversation) -> None:
        await conversation.say(b"GET /a HTTP/1.1\r\n\r\nGET /b HT")
        conversation.clock.pass_time(CLIENT_TIMEOUT_S)
        assert conversation.transport.closed

    talk(echo, idle)


def test_a_client_that_leaves_in_the_middle_of_its_body_is_a_499() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.say(PUT % 9 + b"half")
        conversation.protocol.connection_lost(None)
        await settle()
        assert conversation.log[0][:3] == ("/o", 499, 4)

    talk(echo, script)


def test_a_client_that_only_stops_sending_still_gets_its_answer() -> None:
    async def script(conversation: Conversation) -> None:
        conversation.protocol.data_received(b"GET /a HTTP/1.1\r\n\r\n")
        assert conversation.protocol.eof_received()
        assert await conversation.hear() == answer(b"GET a ")
        assert conversation.transport.eof_written

    talk(echo, script)


def streaming(length: int | None, *, broken: bool = False) -> Callable[[Call], Awaitable[Reply]]:
    """A handler whose body comes in two pieces."""

    async def handler(_: Call) -> Reply:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"ab"
            if broken:
                raise BrokenOff
            yield b"cd"

        headers = {"Content-Type": "t"} | ({} if length is None else {"Content-Length": str(length)})
        return Reply(200, CIMultiDict(headers), chunks())

    return handler


def test_a_stream_without_a_length_goes_out_in_chunks_or_up_to_the_end() -> None:
    async def script(conversation: Conversation) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: t\r\n"
        assert await conversation.say(b"GET / HTTP/1.1\r\n\r\n") == (
            head + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
        )
        assert await conversation.say(b"GET / HTTP/1.0\r\n\r\n") == head + CLOSE + b"\r\nabcd"
        assert conversation.transport.closed

    talk(streaming(None), script)


def test_bytes_that_are_no_utf8_are_refused_and_logged() -> None:
    async def script(conversation: Conversation) -> None:
        for path in (b"/\xe9", b"/%E9"):
            heard = await conversation.say(b"GET %b?\xe9=1 HTTP/1.1\r\n\r\n" % path)
            assert heard.endswith(b"\r\n\r\nInvalid UTF8 or contains NULL")
        assert (await conversation.say(b"GET /\xc3\xa9 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert [path for path, *_ in conversation.log] == ["/%E9?%E9=1", "/%E9?%E9=1", "/é"]

    talk(lambda call: echo(dataclasses.replace(call, names=("x",))), script)


def test_who_asks_for_a_lasting_connection_is_promised_one() -> None:
    async def script(conversation: Conversation) -> None:
        kept, head = b"Connection: keep-alive\r\n", b"GET /o HTTP/1.%d\r\nConnection: %b\r\n\r\n"
        for minor in (0, 1):
            assert await conversation.say(head % (minor, b"Keep-Alive")) == answer(b"GET o ", more=kept)
        assert await conversation.say(head % (1, b"TE")) == answer(b"GET o ")

    talk(echo, script)


def test_a_body_that_breaks_off_or_is_shorter_than_announced_is_seen_to_be() -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.say(b"GET / HTTP/1.1\r\n\r\n")
        assert conversation.transport.aborted

    talk(streaming(4, broken=True), script)
    talk(streaming(5), script)


def test_a_reader_that_does_not_read_holds_the_source_back_and_is_given_up() -> None:
    async def script(conversation: Conversation) -> None:
        conversation.transport.full = True
        assert (await conversation.say(b"GET / HTTP/1.1\r\n\r\n")).endswith(b"\r\nab")
        conversation.protocol.resume_writing()
        assert await conversation.hear() == b"cd"
        conversation.clock.pass_time(2 * CLIENT_TIMEOUT_S)
        assert conversation.transport.aborted

    talk(streaming(4), script)


def test_a_body_that_nobody_takes_is_not_taken_from_the_socket() -> None:
    wanted = asyncio.Event()

    async def slow(call: Call) -> Reply:
        await wanted.wait()
        return await echo(call)

    async def script(conversation: Conversation) -> None:
        await conversation.say(PUT % 3_000_000 + bytes(2_000_000))
        assert conversation.transport.reading_paused
        wanted.set()
        await settle()
        assert not conversation.transport.reading_paused
        assert len(await conversation.say(bytes(1_000_000))) > 3_000_000

    talk(slow, script)


@pytest.mark.parametrize(("writing", "segments_count"), [(WHOLE, 1), (Writing(in_pieces=True, nodelay=False), 2)])
def test_an_answer_is_written_as_the_topology_says(
    monkeypatch: pytest.MonkeyPatch, writing: Writing, segments_count: int
) -> None:
    written, nodelay = list[bytes](), list[int]()

    async def run() -> None:
        front = Front(echo, AccessLog(io.StringIO()), segments(2), lambda path, headers: "tx1", writing=writing)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = await front.serve(listening)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            while not front._connections:
                await asyncio.sleep(0)
            (connection,) = front._connections
            write, transport = connection.write, connection._transport
            monkeypatch.setattr(connection, "write", lambda data: (written.append(data), write(data)))
            nodelay.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.write(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"GET a ")
            writer.close()
            server.close()

    uvloop.run(run())
    assert len(written) == segments_count
    assert bool(nodelay[0]) == writing.nodelay
