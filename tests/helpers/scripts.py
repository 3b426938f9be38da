"""Tables of hops, heads and connections from a readable script of transfers.

One line for a connection, then one for each transfer on it, sent at a time in µs:

    client:40000 > proxy:8080
        0 > syn                       the client's SYN
       50 < syn_ack
      100 > 0:120 GET /v1/a tx=t1     bytes 0 to 120 of the client's stream, beginning with that head
      300 < 0:80 200 tx=t1 body=20    a response head that declares 20 bytes of body (the head is the rest)
      300 < 0:80 200 head=160       the same, of which these are the first bytes: the head is that long
      300 < 80:180 late=900 #2        second attempt, received 900 µs after it was sent
      400 > ack
      500 > fin@120                   a FIN behind 120 bytes of the client's stream (0 by default; so also `rst@120`)

Words after the range: `#n` attempt, `late=µs` delay (20 by default), `lost`, `unsent` (send not seen), `unseen`
(receive not seen), `cut` (head cut by the snaplen), `id=` name for the row; of a head
`range=first,last`, -1 for what is not given. A host named `-` is not captured.
"""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from collector.capture_files.records import HeadFlag, HeadKind
from testkit.tables import BASE_NS, table

DELAY_US = 20
RANGE = ("range_first", "range_last")


@dataclass
class Tables:
    """What a script makes; times are µs * 1000 + `BASE_NS`."""

    hops: pa.Table
    messages: pa.Table
    connections: pa.Table


@dataclass
class _Connection:
    number: int
    client: str | None
    client_port: int
    server: str | None
    server_port: int
    handshake: bool = False


@dataclass
class _Rows:
    hops: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, object]] = field(default_factory=list)
    connections: list[_Connection] = field(default_factory=list)


def play(script: str) -> Tables:
    """The tables that the script describes."""
    rows = _Rows()
    for line in script.splitlines():
        words = line.split("//")[0].split()
        if not words:
            continue
        if ":" in words[0]:
            rows.connections.append(_connection(len(rows.connections) + 1, words[0], words[2]))
        else:
            _transfer(rows, words)
    connections = [_connection_row(connection, rows.hops) for connection in rows.connections]
    return Tables(table("hops", rows.hops), table("messages", rows.messages), table("connections", connections))


def _connection(number: int, client: str, server: str) -> _Connection:
    client_host, client_port = client.rsplit(":", 1)
    server_host, server_port = server.rsplit(":", 1)

    def known_host(host: str) -> str | None:
        return None if host == "-" else host

    return _Connection(number, known_host(client_host), int(client_port), known_host(server_host), int(server_port))


def _connection_row(connection: _Connection, hops: list[dict[str, Any]]) -> dict[str, object]:
    mine = [hop for hop in hops if hop["connection_id"] == connection.number]
    stamps = [hop[f"{end}_host_ns"] for hop in mine for end in ("send", "receive") if hop[f"{end}_host_ns"]]
    return {
        "first_host_ns": min(stamps, default=None),
        "last_host_ns": max(stamps, default=None),
        "connection_id": connection.number,
        "client_host": connection.client,
        "server_host": connection.server,
        "client_addr": "10.0.0.1",
        "server_addr": "10.0.0.2",
        "client_port": connection.client_port,
        "server_port": connection.server_port,
        "client_isn": 1 if connection.handshake else None,
    }


def _transfer(rows: _Rows, words: list[str]) -> None:
    connection, from_client, what = rows.connections[-1], words[1] == ">", words[2]
    options = dict(word.split("=", 1) for word in words[3:] if "=" in word)
    flags = {word for word in words[3:] if "=" not in word}
    connection.handshake |= what == "syn"
    what, _, place = what.partition("@")
    start, end = (int(part) for part in what.split(":")) if ":" in what else (int(place or 0),) * 2
    sent = BASE_NS + int(float(words[0]) * 1000)
    received = sent + int(float(options.get("late", DELAY_US)) * 1000)
    ends = (connection.client, connection.server) if from_client else (connection.server, connection.client)
    sent_ns = None if "unsent" in flags or ends[0] is None else sent
    received_ns = None if flags & {"lost", "unseen"} or ends[1] is None else received
    if sent_ns is None and received_ns is None:
        return  # nobody saw it
    rows.hops.append(
        {
            "connection_id": connection.number,
            "kind": "data" if ":" in what else what,
            "from_client": from_client,
            "send_host": ends[0],
            "receive_host": ends[1],
            "send_host_ns": sent_ns,
            "send_trace_ns": sent_ns,
            "receive_host_ns": received_ns,
            "receive_trace_ns": received_ns,
            "stream_start": start,
            "stream_end": end,
            "attempt": next((int(flag[1:]) for flag in flags if flag.startswith("#")), 1),
            "state": _state(flags, ends),
            "one_way_delay_ns": received_ns - sent_ns if sent_ns and received_ns else None,
            "uncertainty_ns": int(options.get("uncertainty", 1000)),
            "likely_error_ns": int(options.get("likely", 100)),
        }
    )
    _heads(rows, words[3:])


def _state(flags: set[str], ends: tuple[str | None, str | None]) -> str:
    if "lost" in flags:
        return "lost"
    if flags & {"unsent", "unseen"} and all(ends):
        return "capture_dropped"
    return "matched" if all(ends) else "outside_window"


def _heads(rows: _Rows, words: list[str]) -> None:
    """The head that the words name, once for each end that saw it."""
    hop, options = rows.hops[-1], dict(word.split("=", 1) for word in words if "=" in word)
    status = next((int(word) for word in words if word.isdigit()), 0)
    method = next((word for word in words if word.isupper()), "")
    if not status and not method:
        return
    size = hop["stream_end"] - hop["stream_start"]
    row = {
        "connection_id": hop["connection_id"],
        "from_client": hop["from_client"],
        "frame": len(rows.hops),
        "stream_offset": hop["stream_start"],
        "head_kind": HeadKind.RESPONSE if status else HeadKind.REQUEST,
        "head_flags": HeadFlag.CUT if "cut" in words else 0,
        "method": method,
        "target": next((word for word in words if word.startswith("/")), ""),
        "status": status,
        "content_length": int(options.get("body", -1)),
        **dict(zip(RANGE, map(int, options.get("range", "-1,-1").split(",")), strict=True)),
        "head_len": 0 if "cut" in words else int(options.get("head", size - int(options.get("with", 0)))),
        "transaction_id": options.get("tx", ""),
        "client_span_id": options.get("span", ""),
        "user_agent": options.get("agent", ""),
        "authority": options.get("host", ""),
    }
    ends = [("send_host", "send_host_ns"), ("receive_host", "receive_host_ns")]
    rows.messages.extend(row | {"host": hop[host]} for host, stamp in ends if hop[stamp] is not None)
