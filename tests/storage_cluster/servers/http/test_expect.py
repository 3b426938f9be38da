"""`Expect: 100-continue` in its combinations, as bytes on the wire: 100 comes before the response or not at all."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Call, Refusal, Reply, reply
from tests.storage_cluster.servers.http.test_inbound import CLOSE, Conversation, answer, talk

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
EXPECT = b"Expect: 100-continue\r\n"
FRAMINGS = {
    "length": (b"Content-Length: 2\r\n", b"hi"),
    "chunked": (b"Transfer-Encoding: chunked\r\n", b"2\r\nhi\r\n0\r\n\r\n"),
}
NEXT = b"GET /next HTTP/1.1\r\n\r\n"

Handler = Callable[[Call], Awaitable[Reply]]


async def reads(call: Call) -> Reply:
    """The body, then the response."""
    return reply(200, {"Content-Type": "t"}, b"got " + await call.body.read(10))


async def reads_then_streams(call: Call) -> Reply:
    """The body, then a response in pieces."""
    body = await call.body.read(10)

    async def chunks() -> AsyncIterator[bytes]:
        yield b"got "
        yield body

    return Reply(200, CIMultiDict({"Content-Type": "t", "Content-Length": str(4 + len(body))}), chunks())


async def begins_and_reads(call: Call) -> Reply:
    """The response begins, and only then the body is read."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"got "
        yield await call.body.read(10)

    length = 4 if call.names[0] == "next" else 6
    return Reply(200, CIMultiDict({"Content-Type": "t", "Content-Length": str(length)}), chunks())


async def ignores(_: Call) -> Reply:
    """An answer without a look at the body."""
    return reply(200, {"Content-Type": "t"}, b"got hi")


async def refuses(_: Call) -> Reply:
    """A refusal without a look at the body."""
    raise Refusal(412, "no", {"Content-Type": "t"})


READERS = (reads, reads_then_streams)
EARLY = {ignores: answer(b"got hi", more=CLOSE), refuses: answer(b"no", b"412 Precondition Failed", CLOSE)}


def put_request(head: bytes, body: bytes, *, expect: bool, version: bytes = b"1.1") -> tuple[bytes, bytes]:
    """A request's head and its body."""
    return b"PUT /o HTTP/%b\r\n%b%b\r\n" % (version, head, EXPECT if expect else b""), body


@pytest.mark.parametrize(("framing", "handler"), list(itertools.product(FRAMINGS, READERS)))
def test_a_body_that_is_read_first_is_asked_for_and_the_connection_stays(framing: str, handler: Handler) -> None:
    async def script(conversation: Conversation) -> None:
        head, body = put_request(*FRAMINGS[framing], expect=True)
        for _ in range(2):
            assert await conversation.say(head) == CONTINUE
            assert await conversation.say(body) == answer(b"got hi")
        assert await conversation.say(NEXT) == answer(b"got ")
        assert await conversation.say(head + body) == CONTINUE + answer(b"got hi")  # it did not wait
        assert not conversation.transport.closed

    talk(handler, script)


@pytest.mark.parametrize(("framing", "handler"), list(itertools.product(FRAMINGS, READERS)))
def test_who_does_not_expect_it_gets_none(framing: str, handler: Handler) -> None:
    async def script(conversation: Conversation) -> None:
        head, body = put_request(*FRAMINGS[framing], expect=False)
        assert await conversation.say(head) == b""
        assert await conversation.say(body + NEXT) == answer(b"got hi") + answer(b"got ")

    talk(handler, script)


@pytest.mark.parametrize(("framing", "handler", "sent"), list(itertools.product(FRAMINGS, EARLY, (False, True))))
def test_an_early_answer_is_final(framing: str, handler: Handler, sent: bool) -> None:
    async def script(conversation: Conversation) -> None:
        head, body = put_request(*FRAMINGS[framing], expect=True)
        heard = await conversation.say(head + body if sent else head)
        if not sent:
            assert heard == EARLY[handler]
            assert await conversation.say(body + NEXT) == b""  # whether it sends the body or not is not known
            assert conversation.transport.eof_written
        else:
            assert CONTINUE not in heard
            assert await conversation.say(NEXT) == heard  # the body is there: the connection can be used again

    talk(handler, script)


@pytest.mark.parametrize(("framing", "expect"), list(itertools.product(FRAMINGS, (False, True))))
def test_a_response_that_has_begun_never_has_a_100_in_it(framing: str, expect: bool) -> None:
    async def script(conversation: Conversation) -> None:
        head, body = put_request(*FRAMINGS[framing], expect=expect)
        begun = await conversation.say(head)
        ended = await conversation.say(body)
        keeps = framing == "length" and not expect  # how much of it is left is known, and that it comes
        assert begun + ended == answer(b"got hi", more=b"" if keeps else CLOSE)
        assert begun.endswith(b"got ")
        assert conversation.transport.closed is not keeps
        assert await conversation.say(NEXT) == (answer(b"got ") if keeps else b"")

    talk(begins_and_reads, script)


def test_http_1_0_knows_no_100() -> None:
    async def script(conversation: Conversation) -> None:
        head, body = put_request(*FRAMINGS["length"], expect=True, version=b"1.0")
        assert await conversation.say(head) == b""
        assert await conversation.say(body) == answer(b"got hi", more=CLOSE)

    talk(reads, script)


def test_a_pipelined_request_is_asked_for_its_body_in_its_turn() -> None:
    turn = asyncio.Event()

    async def slow(call: Call) -> Reply:
        if call.method == "GET":
            await turn.wait()
        return await reads(call)

    async def script(conversation: Conversation) -> None:
        head, body = put_request(*FRAMINGS["length"], expect=True)
        assert await conversation.say(NEXT + head) == b""
        turn.set()
        assert await conversation.hear() == answer(b"got ") + CONTINUE
        assert await conversation.say(body) == answer(b"got hi")

    talk(slow, script)
