"""Where the time of clients' requests went, against what the programs logged of their own pauses.

The ledger's columns add up over all spans of a request, so a part of it (`Truth.ledger`: columns with `+` between them)
is a sum over the table, for each of the requests that clients made.
"""

from collections.abc import Iterator, Mapping

import polars as pl

from benchmarks.real_systems.verdict import Verdict, in_ms, within

COLUMNS = {
    "client_ns": "client's pauses after a 100",
    "connect_ns": "connecting",
    "tls_ns": "TLS handshakes",
    "request_network_ns": "uplink",
    "queue_ns": "queue",
    "work_ns": "server's work",
    "fan_out_wait_ns": "waiting for the slower of several",
    "server_or_network_ns": "server or network",
    "response_network_ns": "downlink",
    "stall_ns": "waiting for copies of lost packets",
    "request_idle_ns": "client had nothing to send",
    "response_idle_ns": "server had nothing to send",
    "send_held_ns": "held by TCP",
    "reader_wait_ns": "waiting for the reader",
}
"""The ledger's columns, in words."""


def ledger(spans: pl.DataFrame, requests_count: int, true_ns: Mapping[str, tuple[float, float]]) -> Iterator[Verdict]:
    """A verdict for each part of the ledger. Arguments: `true_ns`: `Truth.ledger`."""
    for part, bounds in true_ns.items():
        columns = part.split("+")
        said_ns = sum(int(spans[column].fill_null(0).sum()) for column in columns) / max(1, requests_count)
        low, high = bounds
        truth = in_ms(low) if low == high else f"{in_ms(low)} to {in_ms(high)}"
        words = ", ".join(COLUMNS[column] for column in columns)
        yield Verdict(f"time a request: {words}", truth, in_ms(said_ns), within(said_ns, bounds))
