"""A table of exchanges from readable lines, one for each exchange, numbered from 1; times in µs:

    client > proxy/swift-proxy     0 10 90 100 tx=a connect=-5
    proxy > storage1/swift-object 20 22 60  62 tx=a first=50

The four times: request sent, arrived, answer sent, answer ended; `-` for a time not seen or a host not captured.
Other times: `connect=` the SYN, `connected=` the end of the handshake (else as it sent), `accepted=` that at
the server, `greeting=` its greeting, `greeted=` that at the client, `whole=` the last byte of the
request arrived (else as the first), `continue=` the server's 100, `continued=` at the client, `body=` the client sent
on, `first=` the first byte of the response arrived (else when it ended), `up=` the client gave up, `left=` it
closed the connection, maybe in the middle of an answer. Besides: `tx=`, `protocol=`, `method=`, `target=` (`-`:
hidden), `status=`, `result=`, `uncertainty=` in ns, `rtt=` the fastest round trip, `answer_tx=` the id that only the
response shows, `outcome=`; `daemon` for what one asked, `cut` for an incomplete one.
"""

import pyarrow as pa

from collector.requests.results import with_results
from testkit.tables import BASE_NS, table


def exchanges_of(text: str) -> pa.Table:
    """The table `exchanges` that the lines describe."""
    lines = [line.split("//")[0].split() for line in text.splitlines()]
    rows = [_row(number, words) for number, words in enumerate(filter(None, lines), 1)]
    return with_results(table("exchanges", rows))


def _row(number: int, words: list[str]) -> dict[str, object]:
    client, server = words[0], words[2]
    host, _, service = server.partition("/")
    options = dict(word.split("=", 1) for word in words[3:] if "=" in word)
    sent, arrived, answered, ended = (at_us(word) for word in words[3:7])
    return {
        "exchange_id": number,
        "connection_id": number,
        "client_host": None if client == "-" else client,
        "server_host": None if host == "-" else host,
        "service": service or host,
        "request_first_sent_trace_ns": sent,
        "request_last_sent_trace_ns": sent,
        "request_first_received_trace_ns": arrived,
        "request_last_received_trace_ns": at_us(options["whole"]) if "whole" in options else arrived,
        "response_first_sent_trace_ns": answered,
        "response_last_sent_trace_ns": answered,
        "response_first_received_trace_ns": at_us(options["first"]) if "first" in options else ended,
        "response_last_received_trace_ns": ended,
        "connected_trace_ns": at_us(options.get("connected", words[3] if "connect" in options else "-")),
        "connected_received_trace_ns": at_us(options.get("accepted", "-")),
        "greeting_sent_trace_ns": at_us(options.get("greeting", "-")),
        "greeting_received_trace_ns": at_us(options.get("greeted", "-")),
        "continue_sent_trace_ns": at_us(options.get("continue", "-")),
        "continue_received_trace_ns": at_us(options.get("continued", "-")),
        "body_sent_trace_ns": at_us(options.get("body", "-")),
        "given_up_trace_ns": at_us(options.get("up", "-")),
        "ending": "client_closed" if "left" in options else None,
        "closed_trace_ns": at_us(options.get("left", "-")),
        "connect_start_trace_ns": at_us(options.get("connect", "-")),
        "round_trip_ns": round(float(options["rtt"]) * 1000) if "rtt" in options else None,
        "uncertainty_ns": int(options.get("uncertainty", 1000)),
        "is_stream": "stream" in options,
        "likely_error_ns": None,
        "request_bytes": 100,
        "response_bytes": 100,
        "protocol": options.get("protocol", "http/1.1"),
        "method": options.get("method", "GET"),
        "operation": options.get("operation"),
        "target": None if options.get("target") == "-" else options.get("target", "/"),
        "status": int(options.get("status", 200)),
        "result_code": int(options["result"]) if "result" in options else None,
        "transaction_id": options.get("tx"),
        "response_transaction_id": options.get("answer_tx"),
        "background": "daemon" in words,
        "complete": "cut" not in words,
        "outcome": options.get("outcome"),
    }


def at_us(word: str) -> int | None:
    """A trace time from µs; null for `-`."""
    return None if word == "-" else BASE_NS + round(float(word) * 1000)
