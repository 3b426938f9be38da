"""A request to another server as scripts: bytes out, bytes in, time passing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from storage_cluster.servers.http.outbound import NODE_TIMEOUT_S, OutboundConnection
from tests.helpers.wire import FakeClock, FakeTransport, settle


class Dialogue:
    """One connection to a server that the test plays."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.connection = OutboundConnection(self.clock)
        self.transport = FakeTransport(self.connection)

    async def answer(self, data: bytes) -> tuple[int, bytes]:
        """What the asker makes of these bytes: status and body."""
        self.connection.data_received(data)
        head = await self.connection.head()
        return head.status, b"".join([chunk async for chunk in self.connection.body])


def play(script: Callable[[Dialogue], Awaitable[None]]) -> None:
    """Run a script."""

    async def run() -> None:
        await script(Dialogue())

    asyncio.run(run())


def test_one_request_after_the_other_on_a_connection() -> None:
    async def script(dialogue: Dialogue) -> None:
        for method, body in (("GET", b""), ("PUT", b"hi")):
            dialogue.connection.ask(method, "/a", [("X", "y")], body)
            assert dialogue.transport.take() == b"%b /a HTTP/1.1\r\nX: y\r\n\r\n%b" % (method.encode(), body)
            assert await dialogue.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") == (200, b"ok")
            assert dialogue.connection.reusable
        dialogue.connection.ask("HEAD", "/a", [])
        assert await dialogue.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") == (200, b"")
        dialogue.connection.ask("GET", "/a", [])
        closing = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        assert await dialogue.answer(closing) == (200, b"")
        assert not dialogue.connection.reusable

    play(script)


def test_an_upload_waits_to_be_asked_for_its_body() -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask_to_upload("/a", {})
        assert dialogue.transport.take().endswith(b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        asked = asyncio.ensure_future(dialogue.connection.asked_for_body())
        await settle()
        assert not asked.done()
        dialogue.connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await asked
        for chunk in (b"hello", b""):
            dialogue.connection.send_chunk(chunk)
        assert dialogue.transport.take() == b"5\r\nhello\r\n0\r\n\r\n"
        assert await dialogue.answer(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n") == (201, b"")

    play(script)


def test_an_answer_in_place_of_the_question_for_a_body() -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask_to_upload("/a", {"Content-Length": "5"})
        dialogue.connection.data_received(b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n")
        assert not await dialogue.connection.asked_for_body()
        assert (dialogue.connection.is_answered, dialogue.connection.early_status) == (True, 507)

    play(script)


def test_a_server_is_waited_for_only_so_long_and_only_when_something_is_wanted() -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask("GET", "/a", [])
        dialogue.clock.pass_time(NODE_TIMEOUT_S * 3)  # nobody waits
        waiting = asyncio.ensure_future(dialogue.connection.head())
        await settle()
        dialogue.clock.pass_time(NODE_TIMEOUT_S - 0.1)
        await settle()
        assert not waiting.done()
        dialogue.clock.pass_time(NODE_TIMEOUT_S)
        with pytest.raises(TimeoutError):
            await waiting
        assert dialogue.transport.aborted

    play(script)


def test_a_body_that_stops_arriving_fails() -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask("GET", "/a", [])
        reading = asyncio.ensure_future(dialogue.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
        await settle()
        dialogue.clock.pass_time(2 * NODE_TIMEOUT_S)
        with pytest.raises(TimeoutError):
            await reading

    play(script)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_server_that_goes_away_is_an_error_to_who_waits(said: bytes) -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask("GET", "/a", [])
        answer = asyncio.ensure_future(dialogue.answer(said))
        await settle()
        dialogue.connection.connection_lost(None)
        with pytest.raises(ConnectionResetError):
            await answer

    play(script)


def test_nonsense_is_an_error_to_who_waits() -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask("GET", "/a", [])
        with pytest.raises(ConnectionAbortedError, match="Bad status line"):
            await dialogue.answer(b"nonsense\r\n\r\n")
        assert dialogue.transport.aborted

    play(script)


def test_a_server_that_takes_nothing_holds_the_sender_back() -> None:
    async def script(dialogue: Dialogue) -> None:
        dialogue.connection.ask_to_upload("/a", {"Content-Length": "9"})
        dialogue.transport.full = True
        dialogue.connection.send_chunk(b"x")
        assert dialogue.connection.is_blocked
        paced = asyncio.ensure_future(dialogue.connection.wait_for_room())
        await settle()
        assert not paced.done()
        dialogue.connection.resume_writing()
        await paced

    play(script)
