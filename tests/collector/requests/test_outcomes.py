"""Which requests failed, which went well, and of which it cannot be seen, on scripts of transfers."""

import pytest

from collector.requests.endings import with_endings
from collector.requests.exchanges import build_exchanges
from collector.requests.outcomes import answering_servers, final_outcomes, with_outcomes
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports

ANSWERED = """
client:50000 > db:5432
    0 > syn
   50 < syn_ack
  100 > 0:20
  200 < 0:30
  300 > fin
"""
"""A server of an unknown protocol that answers."""

CASES = {
    "a whole answer": ("0 > 0:100 GET /a\n 50 < 0:50 200 body=10 with=10", "ok"),
    "a 404 is an answer": ("0 > 0:100 HEAD /a\n 50 < 0:50 404", "ok"),
    "as is 401": ("0 > 0:100 GET /a\n 50 < 0:50 401", "ok"),
    "the server failed": ("0 > 0:100 GET /a\n 50 < 0:50 503", "failed"),
    "the server refused for load": ("0 > 0:100 GET /a\n 50 < 0:50 429", "failed"),
    "the request took too long to come": ("0 > 0:100 GET /a\n 50 < 0:50 408", "failed"),
    "a failure whose page was cut off by the capture's end": ("0 > 0:100 GET /a\n 50 < 0:50 500 body=900", "failed"),
    "reset by the server before an answer": ("0 > 0:100 GET /a\n 50 < rst", "failed"),
    "reset by the server within the answer": ("0 > 0:100 GET /a\n 50 < 0:50 200 body=900\n 90 < rst", "failed"),
    "reset by the client within the answer": ("0 > 0:100 GET /a\n 50 < 0:50 200 body=900\n 90 > rst", "abandoned"),
    "reset after the whole answer": ("0 > 0:100 GET /a\n 50 < 0:50 200 body=10 with=10\n 90 < rst", "ok"),
    "closed by the client without an answer": ("0 > 0:100 GET /a\n 5000 > fin", "abandoned"),
    "closed by the server without an answer": ("0 > 0:100 GET /a\n 50 < fin", "failed"),
    "cut off by the capture's end": ("0 > 0:100 GET /a", "unknown"),
    "the answer was cut off by the capture's end": ("0 > 0:100 GET /a\n 50 < 0:50 200 body=900", "unknown"),
}

UNREADABLE = {
    "an answer without a visible status": ("0 > 0:100\n 50 < 0:50", "unknown"),
    "its connection reset when it was idle": ("0 > 0:100\n 50 < 0:50\n 90 < rst", "unknown"),
    "reset by the server before an answer": ("0 > 0:100\n 50 < rst", "failed"),
    "reset by the server after its client had closed": ("0 > 0:100\n 10 > fin\n 50 < rst", "unknown"),
    "a goodbye that wants no answer": ("0 > 0:100\n 10 > fin\n 50 < fin", "unknown"),
    "the client waited and left": ("0 > 0:100\n 2000000 > fin", "abandoned"),
    "the client left, and then the answer came": (
        "0 > 0:100\n 300000 > fin@100\n 800000 < 0:50\n 800050 > rst@101",
        "abandoned",
    ),
    "a goodbye that is answered, and not read": ("0 > 0:100\n 100 > fin@100\n 800 < 0:50\n 850 > rst@101", "unknown"),
    "it waited much longer than before": ("0 > 0:100\n 50 < 0:50\n 1000 > 100:120\n 201000 > fin@120", "abandoned"),
    "it waited no longer than before": ("0 > 0:100\n 150000 < 0:50\n 160000 > 100:120\n 461000 > fin@120", "unknown"),
    "cut off by the capture's end": ("0 > 0:100", "unknown"),
}


def outcomes(script: str) -> list[str]:
    tables = play(script)
    built = build_exchanges(tables.hops, tables.messages, tables.connections, names_of_ports({8080: "web", 5432: "db"}))
    exchanges = with_outcomes(with_endings(built.exchanges, built.hops))
    found: list[str] = final_outcomes(exchanges, answering_servers(exchanges))["outcome"].to_pylist()
    return found


@pytest.mark.parametrize(("client", "server"), [("client", "proxy"), ("client", "-"), ("-", "proxy")])
@pytest.mark.parametrize(("script", "expected"), CASES.values(), ids=CASES)
def test_an_exchange_with_visible_heads(script: str, expected: str, client: str, server: str) -> None:
    """Whichever end was captured."""
    assert outcomes(f"{client}:40000 > {server}:8080\n{script}") == [expected]


@pytest.mark.parametrize(("client", "server"), [("client", "db"), ("client", "-"), ("-", "db")])
@pytest.mark.parametrize(("script", "expected"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_exchange_of_an_unknown_protocol(script: str, expected: str, client: str, server: str) -> None:
    other = ANSWERED.replace("client:", f"{client}:").replace("db:", f"{server}:")
    found = outcomes(f"{other}\n{client}:40000 > {server}:5432\n{script}")
    assert set(found) == {"unknown", expected}
    assert found.count("abandoned") + found.count("failed") <= 1


def test_who_waits_for_a_server_that_answers_nobody_may_want_no_answer() -> None:
    assert outcomes("client:40000 > log:5432\n 0 > 0:100\n 2000000 > fin") == ["unknown"]


def test_no_exchange_has_no_outcome() -> None:
    assert outcomes("client:40000 > proxy:8080\n 0 > syn") == []
