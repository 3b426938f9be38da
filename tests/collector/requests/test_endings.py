"""Who ended a request before it was wholly answered, on scripts of transfers."""

import pyarrow as pa
import pytest

from collector.requests.endings import closing_data, with_endings
from collector.requests.exchanges import build_exchanges
from collector.requests.spans import link
from testkit.tables import BASE_NS, table
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports

KEPT = "0 > 0:100 GET /a\n 50 < 0:50 200 body=0 with=0\n"
"""A request that was answered, on a connection that is kept."""
CASES = {
    "a whole answer, then the server closes": ("0 > 0:100 GET /a\n 50 < 0:60 200 body=10 with=10\n 90 < fin@60", None),
    "an answer without a length ends as the connection does": ("0 > 0:100 GET /a\n 50 < 0:60 200\n 90 < fin@60", None),
    "nobody ends it": ("0 > 0:100 GET /a", None),
    "the client gives up": ("0 > 0:100 GET /a\n 300000 > fin@100", ("client_closed", 300_000)),
    "the client gives up, and its kernel resets what comes then": (
        "0 > 0:100 GET /a\n 300000 > fin@100\n 900000 < 0:60 200 body=10 with=10\n 900050 > rst@101",
        ("client_closed", 300_000),
    ),
    "the client leaves by a reset": ("0 > 0:100 GET /a\n 300000 > rst@100", ("client_reset", 300_000)),
    "the client leaves in the middle of the answer": (
        "0 > 0:100 GET /a\n 50 < 0:60 200 body=900 with=10\n 300000 > fin@100\n 300100 > rst@101",
        ("client_closed", 300_000),
    ),
    "the server closes once its client has left": (
        "0 > 0:100 GET /a\n 300000 > fin@100\n 300300 < fin@0",
        ("client_closed", 300_000),
    ),
    "a half-close is no leaving": (
        "0 > 0:100 GET /a\n 20 > fin@100\n 300000 < 0:60 200 body=10 with=10\n 300010 < fin@60",
        None,
    ),
    "a half-close, still waiting at the capture's end": ("0 > 0:100 GET /a\n 20 > fin@100", None),
    "a late half-close, and the server closes too early": (
        "0 > 0:100 GET /a\n 90000 > fin@100\n 300000 < 0:60 200 body=900 with=10\n 300010 < fin@60",
        ("server_closed", 300_010),
    ),
    "a half-close, and then the server dies": (
        "0 > 0:100 GET /a\n 20 > fin@100\n 300000 < fin@0",
        ("server_closed", 300_000),
    ),
    "the server closes without an answer": ("0 > 0:100 GET /a\n 900 < fin@0", ("server_closed", 900)),
    "the client closes because the server did": (
        "0 > 0:100 GET /a\n 900 < fin@0\n 950 > fin@100",
        ("server_closed", 900),
    ),
    "the server resets": ("0 > 0:100 GET /a\n 900 < rst@0", ("server_reset", 900)),
    "the server closes before the length that it promised": (
        "0 > 0:100 GET /a\n 50 < 0:60 200 body=900 with=10\n 900 < fin@60",
        ("server_closed", 900),
    ),
    "the FIN stands behind bytes that no capture has": (
        "0 > 0:100 GET /a\n 50 < 0:60 200 body=900 with=10\n 900 < fin@950",
        None,
    ),
    "an answer that no capture has": ("0 > 0:100 GET /a\n 900 < fin@950", None),
    "what the client said more, no capture has": ("0 > 0:100 GET /a\n 300000 > fin@200", None),
    "an answer to HEAD has no body": ("0 > 0:100 HEAD /a\n 50 < 0:50 200 body=900 with=0\n 90 < fin@50", None),
    "304 has no body": ("0 > 0:100 GET /a\n 50 < 0:50 304 body=900 with=0\n 90 < fin@50", None),
}
STALE = {
    "the server's FIN crossed the next request": ("5000 < fin@50\n 5010 > 100:200 GET /b\n 5040 < rst@51", "stale"),
    "the client asked on a connection that it knew to be closed": (
        "5000 < fin@50\n 9000 > 100:200 GET /b\n 9040 < rst@51",
        "stale",
    ),
    "the server closed once it had the request": ("5010 > 100:200 GET /b\n 5100 < fin@50", "server_closed"),
}


def endings(script: str, fins: pa.Table | None = None) -> list[tuple[str | None, int | None]]:
    """Of each exchange, its ending, and when that was (µs)."""
    played = play(script)
    built = build_exchanges(played.hops, played.messages, played.connections, names_of_ports({8080: "web"}))
    rows = with_endings(built.exchanges, built.hops, fins).to_pylist()
    return [(row["ending"], _us(row["closed_trace_ns"])) for row in rows]


def _us(at_ns: int | None) -> int | None:
    return None if at_ns is None else (at_ns - BASE_NS) // 1000


@pytest.mark.parametrize(("client", "server"), [("client", "proxy"), ("client", "-"), ("-", "proxy")])
@pytest.mark.parametrize(("script", "expected"), CASES.values(), ids=CASES)
def test_who_ended_a_request(script: str, expected: tuple[str, int] | None, client: str, server: str) -> None:
    """Whichever end was captured; the time is that of whoever ended it, where it was captured."""
    ((ending, closed_us),) = endings(f"{client}:40000 > {server}:8080\n{script}")
    if expected is None:
        assert (ending, closed_us) == (None, None)
    else:
        by = {"client": client, "server": server}[expected[0].split("_")[0]]
        assert (ending, closed_us) == (expected[0], expected[1] + (20 if by == "-" else 0))


@pytest.mark.parametrize(("client", "server"), [("client", "proxy"), ("-", "proxy")])
@pytest.mark.parametrize(("script", "expected"), STALE.values(), ids=STALE)
def test_a_kept_connection_that_its_server_had_closed(script: str, expected: str, client: str, server: str) -> None:
    before, of = endings(f"{client}:40000 > {server}:8080\n{KEPT}{script}")
    assert before == (None, None)
    assert of[0] == expected


LASTS = {
    "until its client left, though an answer came later": (
        "0 > 0:100 GET /a\n 300000 > fin@100\n 900000 < 0:60 200 body=10 with=10\n 900050 > rst@101",
        300_000,
    ),
    "until the last byte that its client had": (
        "0 > 0:100 GET /a\n 50000 < 0:60 200 body=900 with=10\n 300000 > fin@100\n 300100 > rst@101",
        50_020,
    ),
    "until its server closed": ("0 > 0:100 GET /a\n 400000 < fin@0\n 700000 > fin@100", 400_000),
    "until its server reset": ("0 > 0:100 GET /a\n 400000 < rst@0", 400_000),
}


@pytest.mark.parametrize(("script", "lasts_us"), LASTS.values(), ids=LASTS)
def test_how_long_a_request_lasts_that_somebody_ended(script: str, lasts_us: int) -> None:
    played = play(f"client:40000 > proxy:8080\n{script}")
    built = build_exchanges(played.hops, played.messages, played.connections, names_of_ports({8080: "web"}))
    (span,) = link(with_endings(built.exchanges, built.hops)).to_pylist()
    assert span["end_trace_ns"] - span["start_trace_ns"] == lasts_us * 1000 == span["critical_ns"]


def test_a_first_request_is_never_stale() -> None:
    ((ending, _),) = endings("client:40000 > proxy:8080\n0 < fin@0\n 10 > 0:100 GET /a\n 40 < rst@1")
    assert ending == "server_closed"


def test_where_heads_show_that_the_server_s_end_opened_the_connection() -> None:
    """Without a handshake it is guessed who is the client; heads show that it was the other one."""
    ((ending, closed_us),) = endings("client:40000 > proxy:8080\n 0 < 0:100 GET /a\n 300000 < fin@100")
    assert (ending, closed_us) == ("client_closed", 300_000)


@pytest.mark.parametrize(
    ("protocol", "answers", "ending"),
    [
        ("postgresql", " 100 < 0:5000\n", None),
        ("postgresql", "", "client_closed"),
        ("http/1.1", " 100 < 0:25\n", "client_closed"),
    ],
    ids=["bytes that belong to no answer", "no byte", "an interim response"],
)
def test_an_answer_that_the_capture_does_not_show_was_not_missed_by_its_client(
    protocol: str, answers: str, ending: str | None
) -> None:
    played = play(f"client:40000 > server:5432\n 0 > 0:100\n{answers} 300000 > fin@100")
    exchanges = table(
        "exchanges",
        [
            {
                "exchange_id": 1,
                "connection_id": 1,
                "protocol": protocol,
                "request_first_sent_trace_ns": BASE_NS,
                "request_last_sent_trace_ns": BASE_NS,
                "request_last_received_trace_ns": BASE_NS + 20_000,
            }
        ],
    )
    (row,) = with_endings(exchanges, with_exchange_ids(played.hops)).to_pylist()
    assert row["ending"] == ending


def with_exchange_ids(hops: pa.Table) -> pa.Table:
    """Hops that all belong to exchange 1."""
    at = hops.schema.get_field_index("exchange_id")
    return hops.set_column(at, "exchange_id", pa.array([1] * hops.num_rows, pa.int64()))


def test_a_fin_that_rides_on_the_last_data() -> None:
    """Of a segment that the receiver saw in two pieces; the FIN is behind the second."""
    played = play("client:40000 > proxy:8080\n 0 > 0:100 GET /a\n 50 < 0:60 200 body=900 with=10\n 50 < 60:90 late=30")
    frames = {"send_frame": [1, 2, 2], "receive_frame": [1, 2, 3]}
    hops = played.hops
    for name, values in frames.items():
        hops = hops.set_column(hops.schema.get_field_index(name), name, pa.array(values, pa.uint32()))
    built = build_exchanges(hops, played.messages, played.connections, names_of_ports({}))
    for host, frame in (("proxy", 2), ("client", 3)):
        fins = table("events", [{"connection_id": 1, "host": host, "frame": frame}])
        (row,) = with_endings(built.exchanges, built.hops, fins.select(["connection_id", "host", "frame"])).to_pylist()
        assert (row["ending"], _us(row["closed_trace_ns"])) == ("server_closed", 50)


def test_events_that_carry_data_and_a_fin() -> None:
    rows = [
        {"connection_id": 1, "host": "a", "frame": 1, "flags": 0x18, "payload_len": 5},
        {"connection_id": 1, "host": "a", "frame": 2, "flags": 0x19, "payload_len": 5},
        {"connection_id": 1, "host": "b", "frame": 3, "flags": 0x11, "payload_len": 0},
    ]
    assert closing_data(table("events", rows))["frame"].to_pylist() == [2]


def test_no_exchange_has_no_ending() -> None:
    assert endings("client:40000 > proxy:8080\n 0 > syn\n 20 < rst") == []
