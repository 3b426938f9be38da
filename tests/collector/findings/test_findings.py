"""What is found wrong, on scripts of transfers with one fault each, and nothing on clean ones."""

import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import replace

from collector.capture_files.records import Severity
from collector.findings.answers import fate_of_call
from collector.findings.clocks import clock_findings
from collector.findings.diagnosis import build_findings, find
from collector.findings.endings import EndingThresholds, stream_limit_ns
from collector.findings.network import _quantile
from collector.findings.symptoms import collect_symptoms, merge_symptoms
from collector.findings.thresholds import DEFAULTS
from collector.hops.captured_until import CapturedUntil
from collector.requests.endings import with_endings
from collector.requests.exchanges import build_exchanges
from collector.requests.outcomes import with_outcomes
from collector.requests.spans import link
from collector.trace.model import CounterInfo, HostInfo, TraceInfo
from collector.trace.schema import FINDINGS
from testkit.tables import BASE_NS, table
from tests.helpers.exchange_lines import exchanges_of
from tests.helpers.scripts import play
from tests.helpers.service_ports import names_of_ports

INFO = TraceInfo(created_ns=0, tool_version="", hosts=())


def lines_of_findings(script: str) -> list[str]:
    """Each finding as: severity kind host cost in µs | text."""
    tables = play(script)
    built = build_exchanges(tables.hops, tables.messages, tables.connections, names_of_ports({8080: "swift"}))
    exchanges = with_outcomes(with_endings(built.exchanges, built.hops))
    return lines(exchanges, built.hops, tables.connections)


def lines(exchanges, hops, connections, clocks=None, info=INFO) -> list[str]:
    tables = {
        "hops": hops,
        "connections": connections,
        "exchanges": exchanges,
        "spans": link(exchanges),
        "clocks": clocks if clocks is not None else table("clocks", []),
    }
    findings = find(tables, info)
    assert findings.schema.equals(FINDINGS)
    assert all(row["remedy"] for row in findings.to_pylist())
    return [
        f"{row['severity']} {row['kind']} {row['host']} {row['cost_ns'] / 1000:g} | {row['text']}"
        for row in findings.to_pylist()
    ]


CASES = {
    "a clean trace: repeats that were not needed, a FIN sent twice, a reset after the answer, a 404": (
        """
        client:40000 > proxy:8080
            0 > syn
           50 < syn_ack
          100 > 0:100 GET /a
          150 > 0:100 #2 GET /a
          300 < 0:50 404 body=10 with=10
          400 > fin
          900 > fin #2
          950 < rst
        client:40001 > db:5432
            0 > syn
           50 < syn_ack
          100 > 0:100
          300 < 0:50
          400 > 100:130
        """,
        [],
    ),
    "losses of a window that overlap are one stall": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:1000 200
          310 < 1000:2000 lost
          320 < 2000:3000 lost
          520 < 1000:2000 #2
          530 < 2000:3000 #2
          900 > 100:200 GET /b lost
         1100 > 100:200 #2 GET /b
         1200 < 3000:3050 200
        """,
        [
            "warning packet_loss proxy 420 | 3 data packets on the link between client and proxy lost (33.3 %); "
            "connections waited 420.0 µs for the copies, at worst 220.0 µs at once",
            "notice tail_loss proxy 220 | the last bytes of messages from proxy to client were lost, 1 time, which "
            "only a timer can detect: 220.0 µs of waiting",
            "notice tail_loss client 200 | the last bytes of messages from client to proxy were lost, 1 time, which "
            "only a timer can detect: 200.0 µs of waiting",
        ],
    ),
    "a loss between two programs of one host": (
        """
        proxy:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:1000 lost
          520 < 0:1000 #2 200
        """,
        [
            "warning packet_loss proxy 220 | 1 data packet from proxy to proxy lost (33.3 %); connections waited "
            "220.0 µs for the copies, at worst 220.0 µs at once",
            "notice tail_loss proxy 220 | the last bytes of messages from proxy to proxy were lost, 1 time, which "
            "only a timer can detect: 220.0 µs of waiting",
        ],
    ),
    "a loss shown by later bytes, at once and by a timer, and one at the end that a probe found": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:1000 200
          310 < 1000:2000 lost
          320 < 2000:3000
          350 > ack
          375 < 1000:2000 #2
          400 > 100:200 GET /b
          500 < 3000:4000 200
          510 < 4000:5000 lost
          520 < 5000:6000
          545 > ack
        200900 < 4000:5000 #2
        201000 > 200:300 GET /c
        201100 < 6000:7000 200
        201110 < 7000:8000 lost
        201120 < 8000:9000 lost
        203000 < 8000:9000 #2
        203025 > ack
        203050 < 7000:8000 #2
        """,
        [
            "warning packet_loss proxy 202395 | 4 data packets from proxy to client lost (30.8 %); connections waited "
            "202.4 ms for the copies, at worst 200.4 ms at once",
            "notice retransmission_timeout proxy 200390 | data from proxy to client was sent again only when a timer "
            "expired, 1 time: 200.4 ms of waiting, during which 1,000 bytes that had arrived after it waited, too",
            "notice tail_loss proxy 1940 | the last bytes of messages from proxy to client were lost, 1 time, which "
            "only a timer can detect: 1.9 ms of waiting",
            "notice fast_retransmission proxy 65 | data from proxy to client was sent again as soon as later bytes "
            "showed its loss, 1 time: 65.0 µs of waiting, during which 1,000 bytes that had arrived after it waited, "
            "too",
        ],
    ),
    "a SYN that had to be sent again": (
        """
        client:40000 > proxy:8080
              0 > syn lost
        1000000 > syn #2
        1000050 < syn_ack
        1000100 > 0:100 GET /a
        1000200 < 0:50 200
        """,
        [
            "warning syn_retry proxy 1.00007e+06 | 1 connection from client to proxy:8080 established late: 1 "
            "handshake packet lost on the way; that took 1.000 s",
        ],
    ),
    "a connection refused": (
        """
        client:40000 > proxy:8080
            0 > syn
           50 < rst
        client:40001 > proxy:8080
          100 > syn
          190 < rst
        """,
        ["warning connection_refused proxy 140 | 2 connections from client to proxy:8080 refused"],
    ),
    "a connection never answered": (
        """
        client:40000 > -:8080
              0 > syn
        1000000 > syn #2
        3000000 > syn #3
        """,
        [
            "warning connection_unanswered None 3e+06 | 1 connection from client to 10.0.0.2:8080 never answered: "
            "3 handshake packets without an answer; that took 3.000 s",
        ],
    ),
    "a SYN that arrived at a host that never answered it": (
        """
        client:40000 > proxy:8080
              0 > syn
        1000000 > syn #2
        client:40001 > proxy:8080
              0 > syn lost
        1000000 > syn #2 lost
        """,
        [
            "warning connection_unanswered proxy 1e+06 | 1 connection from client to proxy:8080 never answered: the "
            "kernel of proxy received 2 handshake packets, and accepted no connection; that took 1.000 s",
            "warning connection_unanswered proxy 1e+06 | 1 connection from client to proxy:8080 never answered: 2 "
            "handshake packets lost on the way; that took 1.000 s",
        ],
    ),
    "SYNs that arrived and were answered late": (
        """
        client:40000 > proxy:8080
              0 > syn
        1000000 > syn #2
        1000050 < syn_ack
        1000100 > 0:100 GET /a
        1000200 < 0:50 200
        client:40001 > proxy:8080
              0 > syn
        1000000 > syn #2
        3000000 > syn #3
        3000050 < syn_ack
        3000100 > 0:100 GET /a
        3000200 < 0:50 200
        """,
        [
            "warning listen_queue_full proxy 4.00014e+06 | 2 connections from client to proxy:8080 established late: "
            "the kernel of proxy ignored 3 handshake packets that it had received; that took 4.000 s, at worst 3.000 s",
        ],
    ),
    "an ACK that a full accept queue dropped": (
        """
        client:40000 > proxy:8080
              0 > syn
             50 < syn_ack
            100 > 0:0
            110 > 0:100 GET /a
        1000050 < syn_ack #2
        1000100 > 0:100 #2 GET /a
        1000200 < 0:50 200
        """,
        [
            "warning listen_queue_full proxy 1.00005e+06 | 1 connection from client to proxy:8080 established late: "
            "the kernel of proxy ignored 2 handshake packets that it had received; that took 1.000 s",
        ],
    ),
    "a server error, and what it had waited for": (
        """
        client:40000 > proxy:8080
            100 > 0:100 PUT /a tx=t1
         900400 < 0:50 503
        proxy:50000 > db:8080
            300 > 0:100 PUT /d1/a tx=t1
         900300 > fin
        """,
        [
            "warning client_gave_up db 900000 | 1 request from proxy to swift on db was given up by its client "
            "after 900.0 ms, without a complete answer",
            "notice server_error proxy 320 | swift on proxy answered 503 to 1 request; 1 of them after swift on db did "
            "not answer for up to 900.0 ms",
        ],
    ),
    "a SYN at the capture's end is not yet unanswered": (
        """
        client:40000 > proxy:8080
              0 > syn
        """,
        [],
    ),
    "a request never answered": (
        """
        client:40000 > proxy:8080
            100 > 0:100 GET /a
        client:40001 > proxy:8080
        1000100 > 0:100 GET /a
        1500100 < 0:50 200
        """,
        [
            "warning unanswered_request proxy 1.5e+06 | 1 request from client to swift on proxy was not answered by "
            "the end of the capture, the longest wait 1.500 s",
        ],
    ),
    "a request given up": (
        """
        client:40000 > proxy:8080
            100 > 0:100 GET /a
         500100 > fin
        client:40001 > proxy:8080
            100 > 0:100 GET /a
         200100 > rst
        """,
        [
            "warning client_gave_up proxy 700000 | 2 requests from client to swift on proxy were given up by their "
            "client after up to 500.0 ms, without a complete answer",
        ],
    ),
    "a reset before the answer": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < rst
        """,
        [
            "warning connection_reset proxy 200 | 1 of 1 request from client to swift on proxy was broken off by a "
            "reset before the answer was complete, the longest wait 200.0 µs",
        ],
    ),
    "cut by the capture's end": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
        """,
        [
            "info incomplete_exchange proxy 0 | 1 request from client to swift on proxy was cut off by the beginning "
            "or end of the capture, or not captured completely",
        ],
    ),
    "packets that the capture missed": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a unseen
          150 > 100:200 unseen
          300 < 0:50 200 unsent
        """,
        [
            "notice capture_drop proxy 0 | the capture on proxy missed 3 packets that passed (they were "
            "acknowledged); their times there are unknown",
        ],
    ),
    "a request behind the response to the one before": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /slow
          110 > 100:200 GET /quick
         5000 < 0:1000 200 body=960 with=960
         9000 < 1000:1050 200 body=10 with=10
        """,
        [
            "warning head_of_line client 4870 | 1 request from client to swift on proxy waited on their connection "
            "until the response to the previous one had been sent (pipelining): 4.9 ms",
        ],
    ),
    "a SYN on ports that were just used": (
        """
        client:40000 > proxy:8080
              0 > syn
             50 < syn_ack
            100 > 0:100 GET /a
            200 < 0:50 200
            300 < fin
        client:40000 > proxy:8080
           1000 > syn
        1001000 > syn #2
        1001050 < syn_ack
        1001100 > 0:100 GET /a
        1001200 < 0:50 200
        """,
        [
            "warning port_reuse proxy 1.00007e+06 | 1 connection from client to proxy:8080 established late: 1 "
            "handshake "
            "packet came from ports of connections that proxy had closed within the last 60 s (TIME_WAIT); that took "
            "1.000 s",
        ],
    ),
    "a server error": (
        """
        client:40000 > proxy:8080
          100 > 0:100 GET /a
          300 < 0:50 503
        """,
        ["warning server_error proxy 220 | swift on proxy answered 503 to 1 request"],
    ),
}


@pytest.mark.parametrize(("script", "expected"), CASES.values(), ids=CASES.keys())
def test_findings(script: str, expected: list[str]) -> None:
    assert lines_of_findings(script) == expected


def test_evidence_is_the_whole_time_and_the_worst_stall() -> None:
    script = """
        client:40000 > proxy:8080
          100 > 0:100 GET /a lost
          200 > 0:100 #2 GET /a
          300 < 0:50 200
        client:40001 > proxy:8080
          400 > 0:100 GET /b lost
          900 > 0:100 #2 GET /b
          950 < 0:50 200
    """
    tables = play(script)
    built = build_exchanges(tables.hops, tables.messages, tables.connections, names_of_ports({}))
    every = {"hops": built.hops, "connections": tables.connections, "exchanges": built.exchanges}
    row = find(every | {"spans": link(built.exchanges), "clocks": table("clocks", [])}, INFO).to_pylist()[0]
    assert (row["connection_id"], row["span_id"]) == (2, 2)
    assert (row["from_trace_ns"], row["to_trace_ns"]) == (BASE_NS + 100_000, BASE_NS + 900_000)
    assert row["cost_ns"] == 600_000


def groups(count: int, slow_us: int) -> str:
    """`count` requests, each asking three storage hosts at once; storage3 takes `slow_us`."""
    text = ""
    for number in range(count):
        at = number * 100_000
        text += f"client > proxy {at} {at + 10} {at + 50_000} {at + 50_010} tx={number}\n"
        for host, took in (("storage1", 1000), ("storage2", 1100), ("storage3", slow_us)):
            text += f"proxy > {host}/object {at + 20} {at + 30} {at + 30 + took} {at + 40 + took} tx={number}\n"
    return text


@pytest.mark.parametrize(
    ("count", "slow_us", "expected"),
    [
        (
            5,
            9000,
            [
                "warning slow_replica storage3 39282.6 | object on storage3 is slow: 5 of 5 requests took 9.0 ms in "
                "the median, where 90 % take less than 1.1 ms on its peers"
            ],
        ),
        (5, 1900, []),
        (4, 9000, []),
    ],
    ids=["slow", "not by much", "too few to judge"],
)
def test_slow_replica(count: int, slow_us: int, expected: list[str]) -> None:
    empty = play("")
    assert lines(exchanges_of(groups(count, slow_us)), empty.hops, empty.connections) == expected


def test_clocks() -> None:
    def clock(host: str, method: str) -> dict[str, object]:
        return {"host": host, "method": method, "uncertainty_ns": None if method == "none" else 5000}

    clocks = table(
        "clocks", [clock("a", "hull"), clock("b", "none"), clock("c", "inconsistent"), clock("idle", "none")]
    )
    host = HostInfo("a", (), (), (), 1, 1, 0, 1)
    hosts = (host, replace(host, host="b"), replace(host, host="c"), replace(host, host="idle", events_count=0))
    empty = play("")
    findings = lines(exchanges_of(""), empty.hops, empty.connections, clocks, replace(INFO, hosts=hosts))
    assert [finding.split(" | ")[0] for finding in findings] == [
        "warning unaligned_clock b 0",
        "warning inconsistent_clock c 0",
    ]


def test_a_clock_that_is_not_aligned_is_so_for_the_whole_trace() -> None:
    line = {"from_host_ns": 100, "to_host_ns": 900, "reference": True, "uncertainty_ns": 5, "skew_ppb": 0}
    known = {**line, "host": "a", "method": "hull", "offset_ns": 40}
    other = {**line, "host": "b", "method": "none", "offset_ns": 0, "from_host_ns": 5000, "to_host_ns": 6000}
    host = HostInfo("a", (), (), (), 1, 1, 0, 1)
    info = replace(INFO, hosts=(host, replace(host, host="b")))
    (found,) = clock_findings(table("clocks", [known, other]), info, DEFAULTS.clocks)
    assert (found.kind, found.from_trace_ns, found.to_trace_ns) == ("unaligned_clock", 60, 860)


@pytest.mark.parametrize(("of_others", "kinds"), [(2, ["unaligned_clock"]), (3, [])])
def test_a_host_without_packets_of_its_own_needs_no_clock(of_others: int, kinds: list[str]) -> None:
    aligned = [{"host": host, "method": "hull", "uncertainty_ns": 5} for host in "ac"]
    clocks = table("clocks", [*aligned, {"host": "b", "method": "none"}])
    host = HostInfo("a", (), (), (), 1, 1, 0, 1)
    counters = (CounterInfo("b", "direction_unknown", Severity.DATA_LOSS, of_others, ""),)
    hosts = (host, replace(host, host="c"), replace(host, host="b", events_count=3))
    info = replace(INFO, hosts=hosts, counters=counters)
    assert [found.kind for found in clock_findings(clocks, info, DEFAULTS.clocks)] == kinds


@pytest.mark.parametrize(
    ("seconds", "offset_ms", "expected"),
    [
        (0.5, 0, None),
        (60, 0, "120.0 µs ahead of the reference, and runs 150 ± 7 ppm too fast"),
        (0.5, 40, "40.1 ms ahead of the reference"),
    ],
)
def test_a_drift_is_reported_where_the_packets_allow_no_other(
    seconds: float, offset_ms: int, expected: str | None
) -> None:
    line = {"from_host_ns": 0, "to_host_ns": int(seconds * 1e9), "reference": False, "uncertainty_ns": 200_000}
    clock = {**line, "host": "b", "method": "hull", "offset_ns": offset_ms * 10**6 + 120_000, "skew_ppb": 150_000}
    other = {**line, "host": "a", "method": "hull", "offset_ns": 0, "skew_ppb": 0, "reference": True}
    host = HostInfo("a", (), (), (), 1, 1, 0, 1)
    info = replace(INFO, hosts=(host, replace(host, host="b")))
    reported = [finding.text for finding in clock_findings(table("clocks", [other, clock]), info, DEFAULTS.clocks)]
    assert [text.split(";")[0] for text in reported] == ([f"the clock of b is {expected}"] if expected else [])


def test_what_the_kernel_turned_away_is_reported_from_the_samples() -> None:
    tables = play("client:40000 > proxy:8080\n 100 > 0:100 GET /a\n 300 < 0:50 200")
    row = {"from_host_ns": 0, "to_host_ns": 10**18, "offset_ns": 7, "skew_ppb": 0, "uncertainty_ns": 0}
    clocks = table("clocks", [{**row, "host": "proxy", "reference": False, "method": "m", "from_frame": 1}])
    samples = [
        {"host": host, "host_ns": at, "metric": metric, "value": value}
        for host, at, metric, value in [
            ("proxy", 1_000_000_000, "listen_drops_per_s", 0.0),
            ("proxy", 1_500_000_000, "listen_drops_per_s", 8.0),
            ("proxy", 2_000_000_000, "listen_drops_per_s", 2.0),
            ("proxy", 2_000_000_000, "cpu_percent", 99.0),
            ("client", 2_000_000_000, "listen_drops_per_s", 0.0),
        ]
    ]
    built = build_exchanges(tables.hops, tables.messages, tables.connections, names_of_ports({8080: "swift"}))
    parts = merge_symptoms([collect_symptoms(built.hops, tables.connections, built.exchanges, CapturedUntil(0))])
    given = (parts, [built.exchanges], [link(built.exchanges)], clocks, INFO, CapturedUntil(0))
    (finding,) = [
        f for f in build_findings(*given, table("samples", samples)).to_pylist() if f["kind"] == "listen_drops"
    ]
    assert finding["text"] == (
        "the kernel of proxy counted 5 packets for new connections that it dropped because a listen queue was full "
        "(ListenDrops)"
    )
    assert (finding["from_trace_ns"], finding["to_trace_ns"]) == (1_499_999_993, 1_999_999_993)
    assert [f["kind"] for f in build_findings(*given).to_pylist() if f["kind"] == "listen_drops"] == []


def kinds(script: str) -> list[str]:
    return [line.split(" | ")[0].rsplit(" ", 1)[0] + " | " + line.split(" | ")[1] for line in lines_of_findings(script)]


def lines_of_requests(count: int, *, every_us: int, ends: str, first_port: int = 40_000) -> str:
    """Requests of a connection each, one after the other; `ends`, what follows (`AT` is when it was asked, in µs)."""
    parts = []
    for number in range(count):
        at = number * every_us
        lines = [f"{at} > 0:100 GET /{number}"]
        for line in ends.split(";"):
            when, *rest = line.split()
            lines.append(f"{at + int(when[1:]) if when.startswith('+') else int(when)} {' '.join(rest)}")
        parts.append(f"client:{first_port + number} > web:8080\n" + "\n".join(lines))
    return "\n".join(parts)


ENDED = {
    "a client's limit": (
        lines_of_requests(4, every_us=500_000, ends="+300000 > fin@100"),
        "warning client_gave_up web | 4 requests from client to swift on web were given up by their client, each "
        "after about 300.0 ms (its timeout), without a complete answer; the server answered no request for 1.800 s",
    ),
    "a client's limit, while the server answers others": (
        lines_of_requests(4, every_us=500_000, ends="+300000 > fin@100")
        + "\nclient:50000 > web:8080\n 900000 > 0:100 GET /x\n 900300 < 0:60 200 body=10 with=10",
        "warning client_gave_up web | 4 requests from client to swift on web were given up by their client, each "
        "after about 300.0 ms (its timeout), without a complete answer",
    ),
    "two equal waits, where longer ones are answered": (
        lines_of_requests(2, every_us=500_000, ends="+300000 > fin@100")
        + "\n"
        + lines_of_requests(3, every_us=500_000, first_port=50_000, ends="+400000 < 0:60 200 body=10 with=10"),
        "notice client_gave_up web | 2 requests from client to swift on web were given up by their client after "
        "up to 300.0 ms, without a complete answer",
    ),
    "five equal waits show a limit also there": (
        lines_of_requests(5, every_us=500_000, ends="+300000 > fin@100")
        + "\n"
        + lines_of_requests(6, every_us=500_000, first_port=50_000, ends="+400000 < 0:60 200 body=10 with=10"),
        "warning client_gave_up web | 5 requests from client to swift on web were given up by their client, each "
        "after about 300.0 ms (its timeout), without a complete answer",
    ),
    "a client that leaves": (
        lines_of_requests(4, every_us=50_000, ends="400000 > fin@100"),
        "notice client_gave_up web | 4 requests from client to swift on web were abandoned by their client, all at "
        "one moment, the "
        "longest after 400.0 ms, without a complete answer",
    ),
    "a client that stops answers that are on their way": (
        "\n".join(
            f"client:{40000 + n} > web:8080\n {at} > 0:100 GET /a\n {at + 50} < 0:60 200 body=9000 with=10\n"
            f"{at + 1000 * n} < 60:900\n {at + 1000 * n + 300} > fin@100\n {at + 1000 * n + 340} > rst@101"
            for n, at in ((1, 0), (80, 2_000_000))
        ),
        "notice client_gave_up web | 2 requests from client to swift on web were given up by their client after "
        "up to 80.3 ms, without a complete answer",
    ),
    "a server that dies": (
        lines_of_requests(4, every_us=50_000, ends="400000 < fin@0;400050 > fin@100"),
        "warning server_died web | swift on web ended 4 connections within 1 ns, each with FIN instead of an answer: 4 "
        "requests failed, the longest after 400.0 ms",
    ),
    "a server that dies, in the middle of an answer too": (
        lines_of_requests(3, every_us=50_000, ends="400000 < rst@0")
        + "\nclient:50000 > web:8080\n 150000 > 0:100 GET /x\n 390000 < 0:60 200 body=900 with=10\n 400000 < fin@60",
        "warning server_died web | swift on web ended 4 connections within 1 ns, each with FIN or RST instead of an "
        "answer: 4 requests failed, the longest after 400.0 ms",
    ),
    "a server that closes each request a while after it came": (
        lines_of_requests(4, every_us=50_000, ends="+300000 < fin@0"),
        "warning unanswered_request web | 4 of 4 requests from client to swift on web were closed by the server "
        "without an "
        "answer, the longest wait 300.0 ms",
    ),
    "a server that closes two, and answers others in between": (
        lines_of_requests(2, every_us=1_000, ends="30000 < fin@0")
        + "\nclient:50000 > web:8080\n 30500 > 0:100 GET /x\n 31000 < 0:60 200 body=10 with=10"
        + "\nclient:50001 > web:8080\n -20000 > 0:100 GET /y\n 40000 < fin@0",
        "warning unanswered_request web | 3 of 4 requests from client to swift on web were closed by the server "
        "without an "
        "answer, the longest wait 60.0 ms",
    ),
    "one connection that its server closes": (
        lines_of_requests(1, every_us=0, ends="+400000 < fin@0"),
        "warning unanswered_request web | 1 of 1 request from client to swift on web was closed by the server "
        "without an "
        "answer, the longest wait 400.0 ms",
    ),
    "answers that end too early": (
        lines_of_requests(2, every_us=50_000, ends="+300 < 0:60 200 body=900 with=10;+900 < fin@60")
        + "\nclient:50000 > web:8080\n 500000 > 0:100 GET /x\n 500300 < 0:60 200 body=10 with=10\n 500400 < fin@60",
        "warning truncated_response web | 2 of 3 requests from client to swift on web were answered with less than "
        "the answer's head announced: the server closed the connection early; at worst 60 of 950 bytes arrived",
    ),
    "a client that leaves requests that it began at once": (
        lines_of_requests(4, every_us=100, ends="400000 > fin@100"),
        "notice client_gave_up web | 4 requests from client to swift on web were abandoned by their client, all at "
        "one moment, "
        "each after about 399.9 ms, without a complete answer",
    ),
    "a limit of requests that began at almost the same time": (
        lines_of_requests(4, every_us=40_000, ends="+300000 > fin@100"),
        "warning client_gave_up web | 4 requests from client to swift on web were given up by their client, each "
        "after about "
        "300.0 ms (its timeout), without a complete answer",
    ),
    "kept connections that the server had closed at one moment": (
        "\n".join(
            f"client:4000{n} > web:8080\n {n} > 0:100 GET /a\n {n + 50} < 0:60 200 body=10 with=10\n 5000000 < fin@60\n"
            f"500001{n} > 100:200 GET /b\n500004{n} < rst@61"
            for n in range(2)
        ),
        "warning unanswered_request web | 2 of 4 requests from client to swift on web were sent on a kept "
        "connection that the "
        "server had already closed; it had closed all of these at one moment, as when its process ends",
    ),
    "a kept connection that the server had already closed": (
        "client:40000 > web:8080\n 0 > 0:100 GET /a\n 50 < 0:60 200 body=10 with=10\n 5000000 < fin@60\n"
        "5000010 > 100:200 GET /b\n 5000040 < rst@61",
        "warning unanswered_request web | 1 of 2 requests from client to swift on web was sent on a kept "
        "connection that the "
        "server had already closed",
    ),
}


def test_what_a_client_said_when_it_left_is_no_answer() -> None:
    calls = pl.DataFrame(
        {
            "status": [None, 200, None, 200, None],
            "result": ["CANCEL", "CANCEL", None, "UNAVAILABLE", "MOVED"],
            "given_up": [5, 5, None, None, None],
            "answered": [None, 4, None, 4, 4],
        }
    )
    assert calls.select(fate_of_call())["literal"].to_list() == [
        "did not answer",
        "did not finish its answer",
        "did not answer",
        "answered 200 UNAVAILABLE",
        "answered MOVED",
    ]


@pytest.mark.parametrize(
    ("ending", "waits_ms", "limit_ms"),
    [
        ("server_reset_stream", [100, 101, 100], 100),
        ("server_reset_stream", [100, 400, 30], 0),
        ("server_reset_stream", [100], 0),
        ("server_reset", [100, 101, 100], 0),
    ],
)
def test_streams_reset_after_the_same_wait_had_a_limit(ending: str, waits_ms: list[int], limit_ms: int) -> None:
    asked = [at * 10_000_000 for at in range(len(waits_ms))]
    closed = [at + wait * 1_000_000 for at, wait in zip(asked, waits_ms, strict=True)]
    rows = pl.DataFrame({"ending": [ending] * len(asked), "begun_ns": asked, "asked_ns": asked, "closed_ns": closed})
    assert stream_limit_ns(rows, EndingThresholds()) == limit_ms * 1_000_000


@pytest.mark.parametrize(("script", "expected"), ENDED.values(), ids=ENDED)
def test_who_ended_requests_and_how(script: str, expected: str) -> None:
    assert kinds(script) == [expected]


@pytest.mark.parametrize(("protocol", "end"), [("http/1.1", "the last chunk"), ("http/2", "the frame that ends it")])
def test_an_answer_that_announces_no_length_lacks_its_end(protocol: str, end: str) -> None:
    tables = play("client:40000 > web:8080\n 0 > 0:100 GET /a\n 300 < 0:60 200 body=900 with=10\n 900 < fin@60")
    built = build_exchanges(tables.hops, tables.messages, tables.connections, names_of_ports({8080: "swift"}))
    ended = with_outcomes(with_endings(built.exchanges, built.hops))
    for name, value in (("protocol", pa.array([protocol]).dictionary_encode()), ("response_due_bytes", pa.nulls(1))):
        place = ended.schema.get_field_index(name)
        ended = ended.set_column(place, ended.schema.field(place), value.cast(ended.schema.field(place).type))
    [said] = lines(ended, built.hops, tables.connections)
    assert said.startswith("warning truncated_response web ")
    assert "was answered without the answer's end: the server closed the connection early" in said
    assert said.endswith(f"; {end} never arrived, after 60 bytes")


def test_a_proxy_that_passes_a_broken_answer_on_is_not_the_cause() -> None:
    short = "0 > 0:100 GET /a\n 300 < 0:60 200 body=900 with=10\n 900 < fin@60"
    later = short.replace("0 > 0", "-100 > 0").replace("900 < fin", "950 < fin").replace("300 <", "350 <")
    said = kinds(f"client:40000 > proxy:8080\n{later}\nproxy:50000 > web:8080\n{short}")
    assert [line.split(" | ")[0] for line in said] == [
        "warning truncated_response web",
        "notice truncated_response proxy",
    ]


def reading(*calls: str, status: int = 200) -> list[str]:
    """What is said of the calls that a proxy left for a request answered after 500 ms; others it makes are answered."""
    others = "".join(f"proxy:5100{n} > store{n}:6200\n 9000 > 0:100 GET /o\n 9100 < 0:50 200 body=0\n" for n in (1, 2))
    mine = f"client:40000 > proxy:8080\n 0 > 0:100 GET /a tx=a\n 500000 < 0:50 {status} body=0 with=0\n"
    said = kinds(mine + "".join(calls) + others)
    return [line.split(" | ")[0] for line in said if "client_gave_up" in line]


FIRST_LEFT = "proxy:50001 > store1:6200\n 100 > 0:100 GET /r1 tx=a\n {at} > fin@100\n"
FIRST_LEFT_AT_LAST = FIRST_LEFT.format(at=499_000)
SECOND_ANSWERS = "proxy:50002 > store2:6200\n {at} > 0:100 GET /r2 tx=a\n {till} < 0:50 200 body=0 with=0\n"


@pytest.mark.parametrize(("status", "severity"), [(200, "info"), (504, "warning")])
def test_what_a_server_leaves_because_another_has_answered_is_needed_no_more(status: int, severity: str) -> None:
    """As a read from several replicas, of which the first to answer is taken."""
    answered = SECOND_ANSWERS.format(at=100, till=498_000)
    assert reading(FIRST_LEFT_AT_LAST, answered, status=status) == [f"{severity} client_gave_up store1"]


@pytest.mark.parametrize(
    ("left_at", "second"),
    [
        (400_000, SECOND_ANSWERS.format(at=401_000, till=499_000)),
        (499_000, SECOND_ANSWERS.format(at=100, till=9_000)),
    ],
    ids=["a second try after it", "waited for long after the other one's answer"],
)
def test_what_a_request_waited_for_in_vain_is_a_cost_though_it_went_well(left_at: int, second: str) -> None:
    assert reading(FIRST_LEFT.format(at=left_at), second) == ["warning client_gave_up store1"]


def failing_over(well: int, late: int, late_us: int | None) -> str:
    """A proxy that asks one of two replicas, and takes the other if that one has not answered after 400 ms: so many
    times it has after 10 ms, then so many times after `late_us`, or never."""
    script = ""
    for number in range(well + late):
        at, port = number * 600_000, 40_000 + 7 * number
        took = 10_000 if number < well else late_us
        tried = at + 400_100 if took is None else at
        end = f"{at + took} < 0:50 200 body=0 with=0" if took is not None else f"{at + 400_000} > fin@100"
        done = max(tried, at + (took or 0)) + 10_100
        script += f"client:{port} > proxy:80\n {at} > 0:100 GET /a tx={number}\n {done} < 0:50 200 body=0 with=0\n"
        script += f"proxy:{port} > store1:8080\n {at + 100} > 0:100 GET /w tx={number}\n {end}\n"
        script += f"proxy:{port} > store2:8080\n {tried + 100} > 0:100 GET /w tx={number}\n"
        script += f" {tried + 9_000} < 0:50 200 body=0 with=0\n"
    return script


def test_a_replica_that_stopped_answering_is_not_slow() -> None:
    """Its silence is the cause, and that it looks slow by what was given up follows from it."""
    said = [line.split(" | ") for line in kinds(failing_over(20, 8, None))]
    assert [kind for kind, _ in said] == ["warning client_gave_up store1", "notice slow_replica store1"]
    assert said[0][1].endswith("(its timeout), without a complete answer; the server answered no request for 4.600 s")


def test_a_replica_that_answers_late_is_slow() -> None:
    assert [line.split(" | ")[0] for line in kinds(failing_over(20, 8, 390_000))] == ["warning slow_replica store1"]


def test_what_is_left_in_an_unknown_protocol_counts_if_it_waited_for_an_answer() -> None:
    """A goodbye, and what a subscriber said, want none."""
    used = "client:{port} > db:5432\n 0 > 0:20\n 200 < 0:30\n 1000 > 20:40\n {left} > fin@40\n"
    assert kinds(used.format(port=40_000, left=1_100)) == []
    (line,) = kinds(used.format(port=40_000, left=400_000) + used.format(port=40_001, left=900_000))
    assert line.startswith("warning client_gave_up db | 2 requests from client to db:5432")


def test_delays_of_slices_decades_apart_are_distinguished() -> None:
    century = 1 << 36
    rows = pl.DataFrame(
        {"send_host": ["a"] * 3, "receive_host": ["b"] * 3, "slice": [0, century, 0], "hops": [1, 1, 2]}
    )
    rows = rows.with_columns(pl.Series("bin", [1, 40, 1], pl.Int64), pl.col("hops").cast(pl.Int64))
    middle = _quantile(rows, ["send_host", "receive_host", "slice"], 0.5, "middle_ns")
    assert middle["slice"].to_list() == [0, century]
    assert middle["middle_ns"].is_sorted()
