"""The collector's port under clients that are late, many, or somebody else's page: good clients are always served."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from collector.service.app import create_app
from collector.service.browsers import LARGEST_BODY_BYTES, why_refused
from collector.service.door import Door, Limits, protocol_behind
from collector.service.settings import CollectorSettings
from tests.helpers.polling import PATIENCE_S, wait_for

QUICK = Limits(
    connections_count=40,
    connections_of_address_count=20,
    head_bytes=4_096,
    head_seconds=0.4,
    idle_seconds=0.4,
    body_seconds=2.0,
    look_seconds=0.05,
)
PATIENT = Limits(connections_count=40, connections_of_address_count=20)
PUT = (
    b"PUT /api/sessions/s/hosts/h/incarnations/20261125T225248-0a1b2c/segments/1 HTTP/1.1\r\n"
    b"Host: 127.0.0.1\r\nContent-Length: 99999\r\n"
    b"X-Content-SHA256: " + b"0" * 64 + b"\r\n\r\n\n\r\r\n"
)


@contextmanager
def serve(data: Path, limits: Limits) -> Iterator[tuple[str, int]]:
    door = Door(limits)
    app = create_app(CollectorSettings(data, local_only=True))
    config = uvicorn.Config(app, http=protocol_behind(door), log_level="critical", port=0)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started, "the server")
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()


def healthy(place: tuple[str, int]) -> bool:
    return httpx.get(f"http://{place[0]}:{place[1]}/api/health", timeout=PATIENCE_S).is_success


def served_in_time(place: tuple[str, int]) -> bool:
    """Where limits are quick: this client may itself be late, and is closed then."""
    try:
        return healthy(place)
    except httpx.TransportError:
        return False


def answer(client: socket.socket) -> bytes:
    """What it is answered until the other side closes; fails if that never comes."""
    client.settimeout(PATIENCE_S)
    parts = []
    try:
        while part := client.recv(4096):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def test_half_sent_requests_shut_nobody_out(tmp_path: Path) -> None:
    with serve(tmp_path, PATIENT) as place, ExitStack() as stack:
        half = [stack.enter_context(socket.create_connection(place)) for _ in range(100)]
        for client in half:
            client.sendall(b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert all(healthy(place) for _ in range(10))
        assert answer(half[0]).startswith(b"HTTP/1.1 408")


def test_a_connection_at_work_gives_its_place_to_nobody(tmp_path: Path) -> None:
    with serve(tmp_path, PATIENT) as place, ExitStack() as stack:
        for _ in range(PATIENT.connections_of_address_count):
            stack.enter_context(socket.create_connection(place)).sendall(PUT)
        wait_for(
            lambda: len(list(tmp_path.rglob("*.incoming"))) == PATIENT.connections_of_address_count, "all to be at work"
        )
        assert answer(stack.enter_context(socket.create_connection(place))).startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b"HTTP/1.1 408"),
        (b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"HTTP/1.1 408"),
        (b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"a" * 5_000, b"HTTP/1.1 431"),
        (b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /api", b"HTTP/1.1 200"),
        (PUT, b""),
    ],
)
def test_who_is_late_is_closed(tmp_path: Path, sent: bytes, status: bytes) -> None:
    with serve(tmp_path, QUICK) as place, socket.create_connection(place) as client:
        client.sendall(sent)
        assert answer(client).startswith(status)
        wait_for(lambda: served_in_time(place), "another client to be served")
        wait_for(lambda: not list(tmp_path.rglob("*.incoming")), "what had come of it to go")


def assert_closed_while_it_trickles(client: socket.socket, piece: bytes) -> None:
    """Send again and again, never long enough apart to be idle; fails if the other side never closes."""
    deadline = time.monotonic() + PATIENCE_S
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            client.sendall(piece)
            time.sleep(0.1)


def test_a_body_that_trickles_is_closed_in_the_end(tmp_path: Path) -> None:
    with serve(tmp_path, QUICK) as place, socket.create_connection(place) as client:
        client.sendall(PUT)
        assert_closed_while_it_trickles(client, b".")


def test_a_head_that_trickles_is_closed_in_the_end(tmp_path: Path) -> None:
    with serve(tmp_path, QUICK) as place, socket.create_connection(place) as client:
        assert_closed_while_it_trickles(client, b"G")


def test_a_body_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b'{"last_number": 1, "x": "', *[b"a" * 10_000] * 10, b'"}')

    with serve(tmp_path, PATIENT) as (host, port):
        url = f"http://{host}:{port}/api/sessions/s/hosts/h/incarnations/20261125T225248-0a1b2c/close"
        assert httpx.post(url, content=b" " * (LARGEST_BODY_BYTES + 1)).status_code == 413
        assert httpx.post(url, content=pieces()).status_code in (400, 413)
        assert httpx.post(url, json={"last_number": 1}).is_success


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"host": "127.0.0.1:8710"}, False),
        ({"host": "localhost"}, False),
        ({"host": "[::1]:8710"}, False),
        ({"host": "evil.example"}, True),
        ({"host": "127.0.0.1.evil.example:8710"}, True),
        ({}, True),
        ({"host": "127.0.0.1:8710", "origin": "http://127.0.0.1:8710"}, False),
        ({"host": "127.0.0.1:8710", "origin": "http://127.0.0.1:9999"}, True),
        ({"host": "127.0.0.1:8710", "origin": "http://evil.example"}, True),
        ({"host": "127.0.0.1:8710", "origin": "null"}, True),
        ({"host": "127.0.0.1:8710", "sec-fetch-site": "cross-site"}, True),
        ({"host": "127.0.0.1:8710", "sec-fetch-site": "same-site"}, True),
        ({"host": "127.0.0.1:8710", "sec-fetch-site": "same-origin"}, False),
    ],
)
def test_other_names_and_other_sites_are_refused(headers: dict[str, str], refused: bool) -> None:
    found = {name.encode(): value.encode() for name, value in headers.items()}
    assert bool(why_refused(found, local_only=True)) is refused


def test_beyond_this_machine_any_name_is_answered_but_no_other_site() -> None:
    assert not why_refused({b"host": b"collector.example"}, local_only=False)
    assert why_refused({b"host": b"collector.example", b"origin": b"http://evil.example"}, local_only=False)


def test_a_foreign_name_gets_nothing_of_any_route(tmp_path: Path) -> None:
    with serve(tmp_path, PATIENT) as (host, port):
        for path in ("/docs", "/openapi.json", "/api/health", "/api/sessions"):
            foreign = httpx.get(f"http://{host}:{port}{path}", headers={"Host": "evil.example"})
            assert foreign.status_code == 403
