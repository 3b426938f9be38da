"""Which packets an agent leaves out because they are its own deliveries."""

import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest

from tests.helpers.answering import connections_to
from tests.tracer.test_shipping import FakeCollector
from tracer import _capture, deliveries, shipping
from tracer.deliveries import Endpoint, OwnDeliveries, collector_endpoints
from tracer.shipping import CollectorClient, CollectorDownError
from tracer.spool import Spool

FIRST, SECOND = (ip_address("10.0.0.5"), 8710), (ip_address("10.0.0.6"), 8710)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://192.0.2.5:8710", {(ip_address("192.0.2.5"), 8710)}),
        ("http://192.0.2.5", {(ip_address("192.0.2.5"), 80)}),
        ("https://[2001:db8::5]", {(ip_address("2001:db8::5"), 443)}),
        ("http://nonesuch.invalid:8710", set()),
    ],
)
def test_the_endpoints_of_a_url(url: str, expected: set[Endpoint]) -> None:
    assert collector_endpoints(url) == expected


def test_every_address_of_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, 1, 6, "", ("192.0.2.5", 80)), (socket.AF_INET6, 1, 6, "", ("fe80::5%eth0", 80, 0, 2))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    expected = {(ip_address("192.0.2.5"), 8710), (ip_address("fe80::5"), 8710)}
    assert collector_endpoints("http://collector:8710") == expected


@pytest.mark.parametrize(("bound_to", "everywhere"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_on_the_collectors_host_its_port_is_left_out_where_it_listens(
    bound_to: str, everywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_capture, "host_addresses", lambda: [ip_address("127.0.0.1"), ip_address("198.51.100.7")])
    with socket.create_server((bound_to, 0)) as listener:
        port = listener.getsockname()[1]
        found = collector_endpoints(f"http://127.0.0.1:{port}")
    assert ((ip_address("198.51.100.7"), port) in found) == everywhere
    assert (ip_address("127.0.0.1"), port) in found


def test_an_address_stays_left_out_when_the_name_moves() -> None:
    answers = iter([{FIRST}, {SECOND}, {SECOND}])
    excluded: list[list[Endpoint]] = []
    own = OwnDeliveries("http://collector:8710", lambda _: frozenset(next(answers)))
    assert own.endpoints == {FIRST}
    own.attach(excluded.append)
    own.look_up()
    own.look_up()
    assert excluded == [[FIRST, SECOND]]


def test_the_name_is_looked_up_before_every_connection_and_at_no_other_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    now = [100.0]
    monkeypatch.setattr(shipping.time, "monotonic", lambda: now[0])
    own = OwnDeliveries("http://collector:8710", lambda url: frozenset(looks.append(url) or ()))
    fake = FakeCollector()
    client = CollectorClient("http://collector:8710", "", connections_to(fake.answer), own)

    def looks_during(step: Callable[[], object]) -> int:
        before = len(looks)
        step()
        return len(looks) - before

    def put() -> None:
        client.put_segment(Spool(Path("s1/proxy/20261125T225248-0a1b2c")), 1, b"x")

    def failing() -> None:
        with pytest.raises(CollectorDownError):
            put()

    def refuse(_request: httpx.Request) -> httpx.Response:
        raise ConnectionRefusedError

    assert [looks_during(put), looks_during(put)] == [1, 0]
    now[0] += shipping.KEPT_SECONDS + 1
    assert looks_during(put) == 1
    fake.fault = refuse
    assert [looks_during(failing), looks_during(failing)] == [0, 1]
    fake.fault = None
    assert [looks_during(put), looks_during(put)] == [1, 0]


def test_listening_sockets_are_read_from_the_kernel() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        assert deliveries._listens_everywhere(listener.getsockname()[1])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not deliveries._listens_everywhere(listener.getsockname()[1])
