"""The client on the wire: what it sends, how it reads answers, what it calls what goes wrong."""

import asyncio
import hashlib
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from storage_cluster.bench.engine import bodies, limits
from storage_cluster.bench.engine.connection import Connection, Endpoint, Reply, Timeouts
from storage_cluster.bench.engine.timer import Timer
from storage_cluster.bench.model import Kind
from storage_cluster.bench.storage import Order
from storage_cluster.bench.storage.swift import Access, Credentials, Swift, authenticate
from storage_cluster.errors import MissingResourceError, NotRunningError
from tests.helpers.tiny_store import CLOSE, HANG, RESET, Behave, TinyStore, response, serving

SHORT = Timeouts(0.2, 0.05)
PATIENT = Timeouts(60.0, 60.0)
BUSY_S = 0.5
GET = b"GET /v1/AUTH_test/c/o HTTP/1.1\r\nHost: h\r\n\r\n"


def with_store(work: Callable[[TinyStore], Awaitable[None]], behave: Behave | None = None) -> None:
    async def run() -> None:
        async with serving(behave) as store:
            await work(store)

    asyncio.run(run())


def endpoint(port: int) -> Endpoint:
    return Endpoint(socket.AF_INET, ("127.0.0.1", port))


def answered_with(answer: object, timeouts: Timeouts = PATIENT, *, hashed: bool = False, kept: bool = False) -> Reply:
    found: list[Reply] = []

    async def ask(store: TinyStore) -> None:
        connection = Connection(endpoint(store.port), timeouts)
        found.append(await connection.exchange(GET, hashed=hashed, kept=kept))
        connection.close()

    with_store(ask, lambda seen: answer)
    return found[0]


def test_an_answer_in_full() -> None:
    reply = answered_with(response(200, b"hello", "Etag: abc"), hashed=True, kept=True)
    assert (reply.status, reply.error, reply.body_len, reply.body) == (200, "", 5, b"hello")
    assert (reply.transaction_id, reply.etag, reply.headers["etag"]) == ("tx42", "abc", "abc")
    assert reply.digest == hashlib.md5(b"hello").digest()
    assert 0 < reply.connect_ns <= reply.first_byte_ns <= reply.end_ns
    assert reply.local_port > 0
    assert abs(time.time_ns() - reply.start_ns) < 10 * 10**9


@pytest.mark.parametrize(
    ("answer", "error", "timeouts"),
    [
        (response(200, b"hello")[:-1], "read_timeout", SHORT),
        (HANG, "read_timeout", SHORT),
        (CLOSE, "reset", PATIENT),
        (RESET, "reset", PATIENT),
        (b"nonsense\r\n\r\n", "bad_response", PATIENT),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "read_timeout", SHORT),
    ],
)
def test_what_goes_wrong_has_a_name(answer: object, error: str, timeouts: Timeouts) -> None:
    reply = answered_with(answer, timeouts)
    assert reply.error == error
    assert reply.end_ns > 0


def test_a_body_that_ends_early_is_short() -> None:
    async def ask(store: TinyStore) -> None:
        head = b"GET /v1/AUTH_test/c/o HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        reply = await Connection(endpoint(store.port)).exchange(head)
        assert (reply.error, reply.status, reply.body_len) == ("short_body", 200, 4)

    with_store(ask, lambda seen: response(200, b"hello")[:-1])


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + response(200, b"hello"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_other_ways_to_answer(answer: bytes) -> None:
    reply = answered_with(answer, kept=True)
    assert (reply.status, reply.body, reply.error) == (200, b"hello", "")


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def ask(store: TinyStore) -> None:
        head = b"GET /v1/AUTH_test/c/o HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        reply = await Connection(endpoint(store.port)).exchange(head, kept=True)
        assert (reply.error, reply.body) == ("", b"hello")

    with_store(ask, lambda seen: b"HTTP/1.1 200 OK\r\n\r\nhello")


def test_nobody_listens() -> None:
    async def ask() -> Reply:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            return await Connection(endpoint(closed.getsockname()[1])).exchange(GET)

    reply = asyncio.run(ask())
    assert (reply.error, reply.status, reply.connect_ns) == ("connect_refused", 0, -1)


def test_a_full_queue_is_a_connect_timeout() -> None:
    async def ask() -> Reply:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            waiting = [socket.socket() for _ in range(4)]
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(listener.getsockname())
            reply = await Connection(endpoint(listener.getsockname()[1]), SHORT).exchange(GET)
            for each in waiting:
                each.close()
            return reply

    reply = asyncio.run(ask())
    assert reply.error == "connect_timeout"
    assert reply.end_ns >= 0.2e9


def test_a_connection_is_kept_and_made_again_when_it_was_closed() -> None:
    async def ask(store: TinyStore) -> None:
        connection = Connection(endpoint(store.port), PATIENT)
        replies = [await connection.exchange(GET) for _ in range(3)]
        assert [reply.connect_ns >= 0 for reply in replies] == [True, False, False]
        assert len({seen.peer_port for seen in store.seen}) == 1
        assert {reply.local_port for reply in replies} == {store.seen[0].peer_port}
        last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        await connection.exchange(last)
        await asyncio.sleep(0)
        reply = await connection.exchange(GET)
        assert reply.local_port == store.seen[-1].peer_port != store.seen[0].peer_port
        connection.close()

    with_store(ask)


def test_a_connection_per_request() -> None:
    async def ask(store: TinyStore) -> None:
        swift = Swift(Access(store.storage_url, ""))
        connection = Connection(swift.endpoint, keep_alive=False)
        for _ in range(3):
            request = swift.request(Order(Kind.READ, "c", "o"), keep_alive=False)
            await connection.exchange(request.head)
        assert len({seen.peer_port for seen in store.seen}) == 3
        assert {seen.headers["connection"] for seen in store.seen} == {"close"}

    with_store(ask)


@pytest.mark.parametrize("size", [0, 1, 1000, bodies.POOL_BYTES, 5 * bodies.POOL_BYTES + 7])
@pytest.mark.parametrize("chunked", [False, True])
def test_every_byte_of_a_body_arrives(size: int, chunked: bool) -> None:
    async def put(store: TinyStore) -> None:
        store.containers["c"] = {}
        swift = Swift(Access(store.storage_url, "secret"))
        order = Order(Kind.WRITE, "c", "o/ü", size, hash_check=True, chunked=chunked, delete_after_s=9)
        request = swift.request(order)
        connection = Connection(swift.endpoint, PATIENT)
        reply = await connection.exchange(request.head, request.body)
        connection.close()
        assert swift.fault(order, reply) == ""
        assert store.containers["c"]["o/ü"] == b"".join(bodies.body("c/o/ü", size))
        assert store.seen[0].headers["x-auth-token"] == "secret"
        assert store.seen[0].headers["x-delete-after"] == "9"

    with_store(put)


def test_an_answer_that_comes_before_the_body_is_sent_is_the_answer() -> None:
    async def put() -> Reply:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response(413, b"", "Connection: close"))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        swift = Swift(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/AUTH_test", ""))
        request = swift.request(Order(Kind.WRITE, "c", "o", 64 << 20))
        reply = await Connection(swift.endpoint, PATIENT).exchange(request.head, request.body)
        server.close()
        return reply

    reply = asyncio.run(put())
    assert reply.status == 413 or reply.error == "reset"  # the kernel may throw the answer away with the reset


def test_when_bytes_arrived_is_the_kernels_word_however_busy_the_generator_is() -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            for _ in range(3):
                connection.recv(1000)
                connection.sendall(response(200, b"hello"))

    def be_busy(until: float) -> None:
        while time.perf_counter() < until:
            pass

    async def ask(port: int) -> list[Reply]:
        connection = Connection(endpoint(port), PATIENT)
        replies = []
        for _ in range(3):  # the kernel may begin to stamp a moment after it was asked to
            asked = asyncio.create_task(connection.exchange(GET))
            await asyncio.sleep(0)  # it is on its way
            be_busy(time.perf_counter() + BUSY_S)
            replies.append(await asked)
        connection.close()
        return replies

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        replies = asyncio.run(ask(listener.getsockname()[1]))
        thread.join()
    assert min(reply.end_ns for reply in replies[1:]) < 0.8 * BUSY_S * 1e9
    assert all(0 < reply.first_byte_ns <= reply.end_ns for reply in replies)


def test_cancelling_says_so() -> None:
    async def ask(store: TinyStore) -> None:
        connection = Connection(endpoint(store.port), PATIENT)
        asked = asyncio.create_task(connection.exchange(GET))
        while not store.seen:
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (connection.reply.error, connection.reply.end_ns > 0) == ("cancelled", True)

    with_store(ask, lambda seen: HANG)


def test_contents_are_drawn_from_names() -> None:
    one, again, other = (b"".join(bodies.body(name, 4096)) for name in ("a/b", "a/b", "a/c"))
    assert one == again != other
    assert b"".join(bodies.body("a/b", 100)) == one[:100]
    assert set(b"".join(bodies.body("a/b", 100, zeros=True))) == {0}
    assert bodies.digest(bodies.body("a/b", 4096)) == hashlib.md5(one).digest()


def test_a_write_that_the_store_holds_differently_is_reported() -> None:
    async def write(store: TinyStore) -> None:
        swift, order = Swift(Access(store.storage_url, "")), Order(Kind.WRITE, "c", "o", 10, hash_check=True)
        request = swift.request(order)
        connection = Connection(swift.endpoint)
        assert swift.fault(order, await connection.exchange(request.head, request.body)) == "wrong_hash"
        connection.close()

    with_store(write, lambda seen: response(201, b"", "Etag: 00000000000000000000000000000000"))


@pytest.mark.parametrize(
    ("kind", "status", "fault", "retry"),
    [
        (Kind.WRITE, 201, "", False),
        (Kind.WRITE, 503, "status", True),
        (Kind.WRITE, 502, "status", True),
        (Kind.READ, 504, "status", True),
        (Kind.WRITE, 500, "status", False),
        (Kind.WRITE, 507, "status", False),
        (Kind.WRITE, 401, "status", True),
        (Kind.READ, 200, "", False),
        (Kind.READ, 404, "status", True),
        (Kind.DELETE, 404, "status", True),
        (Kind.CLEANUP, 404, "", False),
        (Kind.DISPOSE, 404, "", False),
        (Kind.DISPOSE, 409, "status", False),
        (Kind.INIT, 202, "", False),
    ],
)
def test_which_answers_are_good_and_which_are_worth_a_retry(kind: Kind, status: int, fault: str, retry: bool) -> None:
    swift, reply = Swift(Access("http://127.0.0.1:1/v1/AUTH_test", "")), Reply()
    reply.status = status
    assert swift.fault(Order(kind, "c", "o"), reply) == fault
    if fault:
        assert swift.may_retry(Order(kind, "c", "o"), reply) is retry


def test_a_read_that_is_not_what_was_written_is_reported() -> None:
    async def read(store: TinyStore) -> None:
        swift, order = Swift(Access(store.storage_url, "")), Order(Kind.READ, "c", "o", hash_check=True)
        store.containers["c"] = {"o": b"".join(bodies.body("c/o", 100))}
        connection = Connection(swift.endpoint)
        request = swift.request(order)
        assert swift.fault(order, await connection.exchange(request.head, hashed=True)) == ""
        store.containers["c"]["o"] = b"?" * 100
        assert swift.fault(order, await connection.exchange(request.head, hashed=True)) == "wrong_hash"
        connection.close()

    with_store(read)


def test_a_token_is_fetched_and_renewed_once() -> None:
    async def login(store: TinyStore) -> None:
        swift = await Swift.login(Credentials(store.auth_url, "test:tester", "testing"), timeouts=PATIENT)
        assert store.seen[0].headers["x-auth-user"] == "test:tester"
        old = swift.request(Order(Kind.READ, "c", "o"))
        await swift.renew(old)
        await swift.renew(old)
        assert store.tokens_count == 2
        assert b"token2" in swift.request(Order(Kind.READ, "c", "o")).head

    with_store(login)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(response(401), "answered 401"), (response(200), "gave no X-Storage-Url"), (CLOSE, r"does not answer \(reset\)")],
)
def test_a_login_that_fails_is_one_line(answer: object, said: str) -> None:
    async def login(store: TinyStore) -> None:
        with pytest.raises(NotRunningError, match=said) as raised:
            await authenticate(Credentials(f"{store.auth_url}?key=planted", "u", "k"), PATIENT)
        assert "planted" not in str(raised.value)

    with_store(login, lambda seen: answer)


@pytest.mark.parametrize("url", ["https://h/v1", "ftp://h", "nothing", "http://h:99999/", "https://u:planted@h/"])
def test_addresses_that_lead_nowhere_are_one_line(url: str) -> None:
    with pytest.raises(NotRunningError) as raised:
        asyncio.run(authenticate(Credentials(f"{url}?key=planted", "u", "k"), SHORT))
    assert "planted" not in str(raised.value)


def test_a_listing_of_many_pages() -> None:
    async def list_it(store: TinyStore) -> None:
        store.containers["c"] = {f"my{n}": b"x" * n for n in range(4)}
        assert await Swift(Access(store.storage_url, "")).present("c") == {"my0": 0, "my1": 1, "my2": 2, "my3": 3}
        assert await Swift(Access(store.storage_url, "")).present("none") == {}

    with_store(list_it)


def test_a_limit_that_cannot_be_raised_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "getrlimit", lambda what: (100, 200))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    limits.allow_connections(10)
    with pytest.raises(MissingResourceError, match=r"4,096 connections need 4,160 open files, and only 200"):
        limits.allow_connections(4096)


def test_a_timer_is_never_early() -> None:
    async def wait() -> list[int]:
        late = []
        with Timer() as timer:
            for _ in range(20):
                due = time.perf_counter_ns() + 300_000
                await timer.wait_until(due)
                late.append(time.perf_counter_ns() - due)
            await timer.wait_until(time.perf_counter_ns() - 1)
        return late

    assert min(asyncio.run(wait())) >= 0


def test_connections_beyond_the_allowance_fail_until_one_is_closed() -> None:
    async def use(store: TinyStore) -> None:
        allowance = limits.Allowance(1)
        first, second = (Connection(endpoint(store.port), PATIENT, allowance=allowance) for _ in range(2))
        assert (await first.exchange(GET)).error == ""
        assert (await second.exchange(GET)).error == "connect_failed"
        assert (await first.exchange(GET)).error == ""  # it is kept: no new one
        first.close()
        assert (await second.exchange(GET)).error == ""
        second.close()

    with_store(use)
