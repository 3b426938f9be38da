"""Packets in, exchanges out: scripts of transfers as tables."""

import pyarrow as pa
import pytest

from collector.requests.exchanges import Built, build_exchanges
from collector.trace.schema import EXCHANGES, HOPS
from testkit.tables import BASE_NS
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports

SERVICES = {8080: "swift-proxy"}
TIMES = [
    f"{part}_{edge}_trace_ns"
    for part in ("request", "response")
    for edge in ("first_sent", "first_received", "last_sent", "last_received")
]


def build(script: str) -> Built:
    tables = play(script)
    return build_exchanges(tables.hops, tables.messages, tables.connections, names_of_ports(SERVICES))


def microseconds(value: int | None) -> str:
    return "-" if value is None else f"{(value - BASE_NS) / 1000:g}"


def lines(exchanges: pa.Table) -> list[str]:
    """Each exchange as: what it is | its eight times in µs | bytes | connect start, whether it is complete."""
    return [line(row) for row in exchanges.to_pylist()]


def line(row: dict) -> str:
    what = [row["method"], row["target"], row["status"], row["transaction_id"] and f"tx={row['transaction_id']}"]
    named = " ".join(str(word) for word in what if word) or row["protocol"]
    times = " ".join(microseconds(row[time]) for time in TIMES)
    size = f"{row['request_bytes']}>{row['response_bytes']}"
    end = "complete" if row["complete"] else "cut"
    return f"{named} | {times} | {size} | {microseconds(row['connect_start_trace_ns'])} {end}"


CASES = {
    "one exchange with its handshake": (
        """
        client:40000 > proxy:8080
            0 > syn
           50 < syn_ack
          100 > ack
          110 > 0:120 GET /v1/a tx=t1
          300 < 0:80 200 tx=t1
          310 < 80:180 late=30
        """,
        ["GET /v1/a 200 tx=t1 | 110 130 110 130 300 320 310 340 | 120>180 | 0 complete"],
    ),
    "keep-alive: several exchanges on a connection, only the first connects": (
        """
        client:40000 > proxy:8080
            0 > syn
          100 > 0:100 GET /a
          300 < 0:50 200
          400 > 100:200 GET /b
          500 < 50:100 404
        """,
        [
            "GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | 0 complete",
            "GET /b 404 | 400 420 400 420 500 520 500 520 | 100>50 | - complete",
        ],
    ),
    "100-continue is not the answer": (
        """
        client:40000 > proxy:8080
          100 > 0:100 PUT /o body=1000
          200 < 0:25 100
          300 > 100:1100
          500 < 25:75 201
        """,
        ["PUT /o 201 | 100 120 300 320 500 520 500 520 | 1100>50 | - complete"],
    ),
    "early answer: the server refuses before the body is there": (
        """
        client:40000 > proxy:8080
          100 > 0:100 PUT /o body=2000
          110 > 100:1100
          150 < 0:50 413
          160 > 1100:2100
          400 > 2100:2200 GET /b
          500 < 50:100 200
        """,
        [
            "PUT /o 413 | 100 120 160 180 150 170 150 170 | 2100>50 | - complete",
            "GET /b 200 | 400 420 400 420 500 520 500 520 | 100>50 | - complete",
        ],
    ),
    "pipelined: answers in order of requests, even when sent as one packet": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          110 > 100:200 GET /b
          300 < 0:50 200
          310 < 50:100 404
        """,
        [
            "GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | - complete",
            "GET /b 404 | 110 130 110 130 310 330 310 330 | 100>50 | - complete",
        ],
    ),
    "sliding pipeline: the second request comes before the first answer ends": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          110 > 100:200 GET /b
          300 < 0:50 200
          310 > 200:300 GET /c
          400 < 50:100 404
          410 < 100:150 500
        """,
        [
            "GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | - complete",
            "GET /b 404 | 110 130 110 130 400 420 400 420 | 100>50 | - complete",
            "GET /c 500 | 310 330 310 330 410 430 410 430 | 100>50 | - complete",
        ],
    ),
    "a lost first attempt counts as sent; the copy that arrived counts as received": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a lost
          300 > 0:100 #2 GET /a
          400 < 0:50 200
        """,
        ["GET /a 200 | 100 320 100 320 400 420 400 420 | 100>50 | - complete"],
    ),
    "last received: when the hole was filled, not when the last byte came": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:1000 200
          310 < 1000:2000 lost
          320 < 2000:3000
          600 < 1000:2000 #2
        """,
        ["GET /a 200 | 100 120 100 120 300 320 320 620 | 100>3000 | - complete"],
    ),
    "a repeat that was not needed changes no time": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          110 > 0:100 #2 GET /a
          300 < 0:50 200
        """,
        ["GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | - complete"],
    ),
    "one transfer carries two requests": (
        """
        client:40000 > proxy:8080
          100 > 0:200 GET /a with=100
          100 > 100:200 GET /b lost
          300 < 0:50 200
          310 < 50:100 201
        """,
        [
            "GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | - complete",
            "GET /b 201 | 100 120 100 120 310 330 310 330 | 100>50 | - complete",
        ],
    ),
    "HEAD, 204 and 304 declare a length and have no body": (
        """
        client:40000 > proxy:8080
          100 > 0:100 HEAD /a
          200 < 0:50 200 body=5000
          300 > 100:200 DELETE /b
          400 < 50:100 204 body=7
          500 > 200:300 GET /c
          600 < 100:150 304 body=9
        """,
        [
            "HEAD /a 200 | 100 120 100 120 200 220 200 220 | 100>50 | - complete",
            "DELETE /b 204 | 300 320 300 320 400 420 400 420 | 100>50 | - complete",
            "GET /c 304 | 500 520 500 520 600 620 600 620 | 100>50 | - complete",
        ],
    ),
    "chunked: no length is declared, so the next head ends the answer, wherever chunks were cut": (
        """
        client:40000 > proxy:8080
          100 > 0:100 PUT /a
          110 > 100:1100
          120 > 1100:1105
          300 < 0:80 200
          310 < 80:1080
          320 < 1080:1085
          400 > 1105:1205 GET /b
          500 < 1085:1135 404
        """,
        [
            "PUT /a 200 | 100 120 120 140 300 320 320 340 | 1105>1085 | - complete",
            "GET /b 404 | 400 420 400 420 500 520 500 520 | 100>50 | - complete",
        ],
    ),
    "chunked, and a reset: whether it was broken off cannot be seen, for servers reset behind whole answers, too": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:80 200
          310 < 80:1080
          320 < rst
        """,
        ["GET /a 200 | 100 120 100 120 300 320 310 330 | 100>1080 | - complete"],
    ),
    "until the connection closes: FIN ends the answer, and an RST behind it changes nothing": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:80 200
          310 < 80:1080
          320 < fin
          330 < rst
        """,
        ["GET /a 200 | 100 120 100 120 300 320 310 330 | 100>1080 | - complete"],
    ),
    "broken off by a reset: fewer bytes than declared": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:80 200 body=5000 with=20
          320 < rst
        """,
        ["GET /a 200 | 100 120 100 120 300 320 300 320 | 100>80 | - cut"],
    ),
    "reset behind a whole answer": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:80 200 body=30 with=30
          320 < rst
        """,
        ["GET /a 200 | 100 120 100 120 300 320 300 320 | 100>80 | - complete"],
    ),
    "reset before any answer": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < rst
        """,
        ["GET /a | 100 120 100 120 - - - - | 100>None | - cut"],
    ),
    "early answer, and the connection is closed: the body never comes whole": (
        """
        client:40000 > proxy:8080
          100 > 0:100 PUT /o body=5000
          110 > 100:1100
          150 < 0:50 413 body=0
          151 < fin
          160 > 1100:2100
          190 < rst
        """,
        ["PUT /o 413 | 100 120 160 180 150 170 150 170 | 2100>50 | - cut"],
    ),
    "refused instead of 100: the body is never sent": (
        """
        client:40000 > proxy:8080
          100 > 0:100 PUT /o body=5000
          150 < 0:50 507 body=0
          200 > fin
        """,
        ["PUT /o 507 | 100 120 100 120 150 170 150 170 | 100>50 | - cut"],
    ),
    "half-closed: the client has said all, and still hears the answer": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          110 > fin
          300 < 0:50 200 body=0
          310 < fin
        """,
        ["GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | - complete"],
    ),
    "retry: the kept connection had died, the same request goes over a new one": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a tx=t1
          200 < 0:50 200 body=0
          300 > 100:200 GET /b tx=t2
          320 < rst
        client:40001 > proxy:8080
          400 > syn
          450 < syn_ack
          500 > 0:100 GET /b tx=t2
          600 < 0:50 200 body=0
        """,
        [
            "GET /a 200 tx=t1 | 100 120 100 120 200 220 200 220 | 100>50 | - complete",
            "GET /b tx=t2 | 300 320 300 320 - - - - | 100>None | - cut",
            "GET /b 200 tx=t2 | 500 520 500 520 600 620 600 620 | 100>50 | 400 complete",
        ],
    ),
    "upgrade: what the connection speaks after 101 is a stream of its own": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /chat
          200 < 0:50 101
          300 > 100:110
          400 < 50:60
          500 > 110:120
          600 < 60:70
        """,
        [
            "GET /chat 101 | 100 120 100 120 200 220 200 220 | 100>50 | - complete",
            "unknown | 300 320 500 520 400 420 600 620 | 20>20 | - complete",
        ],
    ),
    "a body that is itself HTTP is a body": (
        """
        client:40000 > proxy:8080
          100 > 0:100 PUT /log body=300
          110 > 100:200 GET /inside
          120 > 200:400
          300 < 0:50 201
        """,
        ["PUT /log 201 | 100 120 120 140 300 320 300 320 | 400>50 | - complete"],
    ),
    "cut by the capture's end: fewer bytes than declared": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:1000 200 body=5000 with=900
        """,
        ["GET /a 200 | 100 120 100 120 300 320 300 320 | 100>1000 | - cut"],
    ),
    "cut by the capture's end: no answer": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
        """,
        ["GET /a | 100 120 100 120 - - - - | 100>None | - cut"],
    ),
    "cut by the capture's start: an answer to nobody, and the rest keeps its order": (
        """
        client:40000 > proxy:8080
          100 < 0:50 200 tx=early
          200 > 0:100 GET /a
          300 < 50:100 404
        """,
        [
            "200 tx=early | - - - - 100 120 100 120 | None>50 | - cut",
            "GET /a 404 | 200 220 200 220 300 320 300 320 | 100>50 | - complete",
        ],
    ),
    "a response head that was missed does not shift the ones after it": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          200 < 0:50
          300 > 100:200 GET /b
          400 < 50:100 404
        """,
        [
            "GET /a | 100 120 100 120 200 220 200 220 | 100>50 | - complete",
            "GET /b 404 | 300 320 300 320 400 420 400 420 | 100>50 | - complete",
        ],
    ),
    "interim, then the capture ends": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          200 < 0:50 200
          300 > 100:200 PUT /b
          400 < 50:75 100
        """,
        [
            "GET /a 200 | 100 120 100 120 200 220 200 220 | 100>50 | - complete",
            "PUT /b | 300 320 300 320 - - - - | 100>None | - cut",
        ],
    ),
    "heads cut by the snaplen still mark their messages": (
        """
        client:40000 > proxy:8080
          100 > 0:400 PUT /a cut
          110 > 400:900
          300 < 0:50 201 cut
          500 > 900:1000 GET /b cut
          600 < 50:100 200 cut
        """,
        [
            "PUT /a 201 | 100 120 110 130 300 320 300 320 | 900>50 | - complete",
            "GET /b 200 | 500 520 500 520 600 620 600 620 | 100>50 | - complete",
        ],
    ),
    "the ends of a connection without a handshake, taken for each other": (
        """
        proxy:8080 > client:9000
          100 < 0:100 GET /a
          300 > 0:50 200
        """,
        ["GET /a 200 | 100 120 100 120 300 320 300 320 | 100>50 | - complete"],
    ),
    "no heads: turns": (
        """
        client:40000 > db:5432
            0 > syn
          100 > 0:100
          110 > 100:150
          300 < 0:1000
          310 < 1000:1100
          500 > 150:200
          600 < 1100:1200
        """,
        [
            "unknown | 100 120 110 130 300 320 310 330 | 150>1100 | 0 complete",
            "unknown | 500 520 500 520 600 620 600 620 | 50>100 | - complete",
        ],
    ),
    "no heads: a greeting answers nothing": (
        """
        client:40000 > db:3306
            0 > syn
           50 < 0:80
          100 > 0:100
          300 < 80:100
        """,
        ["unknown | 100 120 100 120 300 320 300 320 | 100>20 | 0 complete"],
    ),
    "no heads: reordered and repeated bytes begin no turn": (
        """
        client:40000 > db:5432
          100 > 0:100 late=90
          101 > 100:200
          300 < 0:50 lost
          500 < 0:50 #2
          600 > 200:300
          610 < 0:50 #3
          700 < 50:60
        """,
        [
            "unknown | 100 190 101 190 300 520 300 520 | 200>50 | - complete",
            "unknown | 600 620 600 620 700 720 700 720 | 100>10 | - complete",
        ],
    ),
    "no heads: the server was not captured": (
        """
        client:40000 > -:5432
          100 > 0:100
          300 < 0:50
        """,
        ["unknown | 100 - 100 - - 320 - 320 | 100>50 | - complete"],
    ),
    "no heads: the client was not captured": (
        """
        -:40000 > db:5432
          100 > 0:100
          300 < 0:50
        """,
        ["unknown | - 120 - 120 300 - 300 - | 100>50 | - complete"],
    ),
    "a handshake alone is no exchange": (
        """
        client:40000 > db:5432
            0 > syn
           50 < rst
        """,
        [],
    ),
}


@pytest.mark.parametrize(("script", "expected"), CASES.values(), ids=CASES.keys())
def test_exchanges(script: str, expected: list[str]) -> None:
    result = build(script)
    assert lines(result.exchanges) == expected
    assert result.exchanges.schema.names[: len(EXCHANGES)] == EXCHANGES.names
    assert [(column.name, column.type) for column in result.hops.schema] == [
        (column.name, column.type) for column in HOPS
    ]


def test_every_hop_is_given_to_an_exchange() -> None:
    script = """
        client:40000 > proxy:8080
            0 > syn                     // 1
           50 < syn_ack                 // 1
          100 > ack                     // 1
          110 > 0:100 PUT /a            // 1
          130 < ack                     // 1
          150 < 0:25 100                // 1
          200 > 100:200                 // 1
          300 < 25:75 201               // 1
          330 > ack                     // 1
          400 > 200:300 GET /b          // 2
          425 < ack                     // 2
          500 < 75:175 200              // 2
          530 > ack                     // 2
          600 > fin                     // 2
          700 < fin lost                // 2
        client:40001 > proxy:8080
            0 > syn                     // None
           50 < rst                     // None
    """
    expected = [line.split("//")[1].strip() for line in script.splitlines() if "//" in line]
    assert [str(number) for number in build(script).hops["exchange_id"].to_pylist()] == expected


def test_names_hosts_and_services() -> None:
    script = """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          200 < 0:50 200
        proxy:40000 > db:5432
          150 > 0:100 uncertainty=7000 likely=900
          190 < 0:50
        web:8000 > client:9000
          400 < 0:100 GET /a
          500 > 0:50 200
    """
    rows = build(script).exchanges.to_pylist()
    assert [(row["client_host"], row["server_host"], row["service"], row["protocol"]) for row in rows] == [
        ("client", "proxy", "swift-proxy", "http/1.1"),
        ("proxy", "db", "db:5432", "unknown"),
        ("client", "web", "web:8000", "http/1.1"),
    ]
    assert [row["uncertainty_ns"] for row in rows] == [1000, 7000, 1000]
    assert [row["likely_error_ns"] for row in rows] == [100, 900, 100]


def test_the_span_that_asks_is_that_of_the_request_s_head() -> None:
    built = build(
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a tx=t1 span=b7ad6b7169203331
          200 < 0:50 200 body=0
          300 > 100:200 GET /b tx=t2
          400 < 50:100 200 body=0
        client:40001 > proxy:8080
          500 < 0:50
        """
    )
    rows = built.exchanges.select(["target", "client_span_id"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("/a", "b7ad6b7169203331"), ("/b", None), (None, None)]


def test_a_handshake_is_timed_at_the_client() -> None:
    script = """
        client:40000 > proxy:8080
            0 > syn lost
          200 > syn #2
          250 < syn_ack
          500 > 0:100 GET /a
          600 < 0:50 200
          700 > 100:200 GET /b
          800 < 50:100 200
    """
    rows = build(script).exchanges.select(["connect_start_trace_ns", "connected_trace_ns"]).to_pylist()
    assert [tuple(map(microseconds, row.values())) for row in rows] == [("0", "270"), ("-", "-")]


def test_a_handshake_ends_when_the_client_acknowledges() -> None:
    """Not when it first acknowledges what the server said; of a connection whose ACK was not seen that is the first."""
    script = """
        client:{port} > proxy:8080
            0 > syn
          100 < syn_ack
          {ack}
          300 < 0:50
          400 > ack
          900 > 0:100
         1000 < 50:100
    """
    for port, ack, connected in ((40000, "130 > ack", "130"), (40001, "", "120")):
        rows = build(script.format(port=port, ack=ack)).exchanges.select(["connected_trace_ns"]).to_pylist()
        assert microseconds(rows[0]["connected_trace_ns"]) == connected


def test_a_request_is_given_up_when_its_client_closes_without_an_answer() -> None:
    script = """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          200 < 0:50 200
          300 > 100:200 GET /b
          900 > fin
          950 < fin
        client:40001 > proxy:8080
         1000 > 0:100 GET /c
         1100 < 0:50 200
         1200 > fin
    """
    assert [microseconds(at) for at in build(script).exchanges["given_up_trace_ns"].to_pylist()] == ["-", "900", "-"]


def test_the_100_is_timed_and_a_103_is_not() -> None:
    script = """
        client:40000 > proxy:8080
          100 > 0:100 PUT /a
          150 < 0:25 100
          200 > 100:200
          300 < 25:75 201
          400 > 200:300 GET /b
          500 < 75:100 103
          600 < 100:175 200
    """
    names = ("continue_sent_trace_ns", "continue_received_trace_ns", "body_sent_trace_ns")
    rows = build(script).exchanges.select(names).to_pylist()
    assert [tuple(map(microseconds, row.values())) for row in rows] == [("150", "170", "200"), ("-", "-", "-")]


def test_heads_are_timed_apart_from_bodies() -> None:
    script = """
        client:40000 > proxy:8080
          100 > 0:300 PUT /a body=500 with=100      // the head's 200 bytes come with the first of the body
          150 > 300:700
          300 < 0:30 201 head=60                    // a head of two packets, the second of which was lost at first
          310 < 30:60 lost
          500 < 30:60 #2
          600 > 700:800 GET /b cut                  // how long the head is cannot be known
          700 < 60:160 200 body=60 with=60
        db:40000 > db:5432
          900 > 0:10
          950 < 0:10
    """
    names = ("request_head_received_trace_ns", "response_head_received_trace_ns")
    rows = [tuple(map(microseconds, row.values())) for row in build(script).exchanges.select(names).to_pylist()]
    assert rows == [("120", "520"), ("-", "720"), ("-", "-")]


def test_who_asks_is_known_by_user_agent() -> None:
    script = """
        client:40000 > proxy:8080
          100 > 0:100 GET /a agent=curl/8
          200 < 0:50 200
        proxy:40000 > storage:6200
          300 > 0:100 GET /a agent=proxy-server
          400 < 0:50 200
        storage:40000 > storage:6200
          500 > 0:100 REPLICATE /a agent=object-replicator
          600 < 0:50 200
    """
    rows = build(script).exchanges.select(["client_service", "background"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (None, False),
        ("swift-proxy", False),
        ("object-replicator", True),
    ]


def test_which_bytes_are_meant_is_said_by_the_request_or_else_by_the_response() -> None:
    made = build("""
        client:1 > server:80
          0 > 0:100 GET /o range=500,999
          200 < 0:50 206 range=1,2
          300 > 100:200 GET /o
          400 < 50:100 206 range=0,0
          500 > 200:300 GET /o range=-1,500
          600 < 100:150 206
          700 > 300:400 GET /o range=500,-1
          800 < 150:200 200
          900 > 400:500 GET /o
          1000 < 200:250 200
    """).exchanges
    assert made["range_first"].to_pylist() == [500, 0, None, 500, None]
    assert made["range_last"].to_pylist() == [999, 0, 500, None, None]


def test_no_packets_make_no_exchanges() -> None:
    assert build("").exchanges.num_rows == 0
