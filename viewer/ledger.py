"""A request's ledger as rows that sum up exactly to its duration."""

from collections.abc import Sequence

from msgspec import Struct

from collector.queries import LEDGER_COLUMNS, Span, end_name

STAGES = {
    "client_ns": "client before sending the body to",
    "connect_ns": "connecting to",
    "tls_ns": "TLS handshake with",
    "request_network_ns": "request on its way to",
    "queue_ns": "in the queue of",
    "work_ns": "work in",
    "fan_out_wait_ns": "waiting, after the first of several answers, for",
    "server_or_network_ns": "server or network, of which one end shows only the sum:",
    "response_network_ns": "answer on its way from",
    "stall_ns": "until lost packets were sent again, to and from",
    "request_idle_ns": "pauses of the client in its request to",
    "response_idle_ns": "pauses in the answer of",
    "send_held_ns": "until TCP let the sender go on (window, delayed ACK), to and from",
    "reader_wait_ns": "until the receiver read (window closed), to and from",
}
assert tuple(STAGES) == LEDGER_COLUMNS


class LedgerRow(Struct, frozen=True):
    """One part of a request's duration."""

    stage: str  # a key of STAGES, or "" for what no stage accounts for
    text: str
    duration_ns: int
    share: float  # of the whole


def ledger_rows(spans: Sequence[Span]) -> list[LedgerRow]:
    """The ledger of a request, largest part first, same stages at the same place merged; `spans` has the root first."""
    whole_ns = spans[0].duration_ns
    parts: dict[tuple[str, str], int] = {}
    for span in spans:
        for stage, words in STAGES.items():
            key = (stage, f"{words} {place(span)}")
            parts[key] = parts.get(key, 0) + getattr(span, stage)
    rest_ns = whole_ns - sum(parts.values())
    if rest_ns:
        parts["", "not accounted for"] = rest_ns
    rows = [LedgerRow(stage, text, part_ns, part_ns / max(1, whole_ns)) for (stage, text), part_ns in parts.items()]
    return sorted((row for row in rows if row.duration_ns), key=lambda row: -row.duration_ns)


def on_critical_path(span: Span) -> bool:
    """Whether a part of the request's time is a span's own."""
    return any(getattr(span, stage) for stage in STAGES)


def place(span: Span) -> str:
    """Who served a span: `swift-object on storage2`."""
    host = end_name(span.server)
    return f"{span.service} on {host}" if span.service else host
