"""What really belonged together, from the servers' own logs, which the reconstruction never reads.

Each line of `logs/HOST/SERVICE.jsonl` is a request that this server handled: transaction id, start and end, and both
addresses. A line is laid beside the exchange on the same connection that arrived last before the line's start; what is
cut out of one logged request (turn-taking sees `Expect: 100-continue` as two turns) belongs to the same line. A line's
parent is the line of the same transaction id that was being handled by the child's client host when the child's request
left. Where there are several such (servers of one host that call each other), or only such as had ended, the parent is
not known, and the exchange is not scored. A line without a transaction id is a daemon's own request: it has no parent.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

CLOCK_NS = 20_000
"""How far trace times and the machine's clock may be apart: the reference host's clock is that of all."""
LINGER_NS = 1_000_000_000
"""How long after a connection's last packet a request on it may begin to be handled; ports are used again later."""
COLUMNS = ("transaction_id", "start_ns", "end_ns", "peer", "local")
ROOT = -1
NO_ID = ("", "-")
"""What a log says for a request without a transaction id."""


@dataclass(frozen=True, slots=True)
class Truth:
    """A line is a logged request. `exchanges`: `exchange_id, line, is_first`; `lines`: `line, parent` (`ROOT`, null
    where not known), `transaction_id, client_host, start_ns, end_ns`."""

    exchanges: pl.DataFrame
    lines: pl.DataFrame


def read_logs(folder: Path) -> pl.DataFrame:
    """Every logged request below `folder`: `host, line` and `COLUMNS`."""
    rows = [(path.parent.name, *row) for path in sorted(folder.glob("*/*.jsonl")) for row in _rows(path)]
    frame = pl.DataFrame(rows, ["host", *COLUMNS], orient="row", infer_schema_length=None)
    return frame.sort("start_ns").with_row_index("line").with_columns(pl.col("line").cast(pl.Int64))


def _rows(path: Path) -> Iterable[tuple[str | int, ...]]:
    with path.open() as lines:
        for line in lines:
            row = json.loads(line)
            yield tuple(row[name] for name in COLUMNS)


def find_truth(exchanges: pa.Table, connections: pa.Table, logs: pl.DataFrame) -> Truth:
    """The logged requests that a trace shows, and who made them."""
    shown = exchange_places(exchanges, connections)
    ends = ["peer", "local"]
    began = logs.select("line", *ends, at=pl.col("start_ns") + CLOCK_NS).sort("at")
    firsts = began.join_asof(shown.sort("at"), on="at", by=ends, strategy="backward", check_sortedness=False)
    firsts = firsts.filter(pl.col("at") <= pl.col("last_ns") + LINGER_NS).unique(
        "exchange_id", keep="first", maintain_order=True
    )
    logged = firsts.select("exchange_id", "line").join(logs, on="line")
    later = shown.join(logged, on="exchange_id", how="anti").sort("at")
    spans = logs.join(logged, on="line", how="semi").select("line", *ends, "end_ns", at="start_ns").sort("at")
    rest = later.join_asof(spans, on="at", by=ends, strategy="backward", check_sortedness=False)
    rest = rest.filter(pl.col("at") <= pl.col("end_ns") + CLOCK_NS)
    parts = [
        logged.select("exchange_id", "line", is_first=pl.lit(True)),
        rest.select("exchange_id", "line", is_first=pl.lit(False)),
    ]
    lines = _with_parents(logged.join(shown.select("exchange_id", "client_host", "sent"), on="exchange_id"))
    return Truth(pl.concat(parts), lines)


def exchange_places(exchanges: pa.Table, connections: pa.Table) -> pl.DataFrame:
    """`exchange_id, client_host, peer, local, at` (arrived), `sent`, `last_ns` of the connection."""
    ends = pl.DataFrame(connections.select(["connection_id", "last_host_ns", *_ADDRESSES]))
    named = ends.with_columns(pl.col(pl.Categorical).cast(pl.String)).select(
        "connection_id",
        last_ns="last_host_ns",
        peer=pl.format("{}:{}", "client_addr", "client_port"),
        local=pl.format("{}:{}", "server_addr", "server_port"),
    )
    sent, arrived = "request_first_sent_trace_ns", "request_first_received_trace_ns"
    frame = pl.DataFrame(exchanges.select(["exchange_id", "connection_id", "client_host", sent, arrived]))
    return frame.join(named, on="connection_id").select(
        "exchange_id",
        "peer",
        "local",
        "last_ns",
        client_host=pl.col("client_host").cast(pl.String),
        at=pl.coalesce(arrived, sent),
        sent=pl.coalesce(sent, arrived),
    )


_ADDRESSES = ("client_addr", "client_port", "server_addr", "server_port")


def _with_parents(logged: pl.DataFrame) -> pl.DataFrame:
    servers = logged.select("transaction_id", "start_ns", "end_ns", parent="line", client_host="host")
    named = logged.filter(~pl.col("transaction_id").is_in(NO_ID))
    pairs = named.select("line", "transaction_id", "client_host", "sent").join(
        servers, on=["transaction_id", "client_host"]
    )
    pairs = pairs.filter((pl.col("parent") != pl.col("line")) & (pl.col("start_ns") <= pl.col("sent") + CLOCK_NS))
    is_open = pl.col("end_ns") + CLOCK_NS >= pl.col("sent")
    found = pairs.group_by("line").agg(
        parent=pl.when(is_open.sum() == 1).then(pl.col("parent").filter(is_open).first())
    )
    known = logged.join(found, on="line", how="left", coalesce=True)
    roots = ~pl.col("line").is_in(found["line"].implode())
    return known.select(
        *("line", "transaction_id", "client_host", "start_ns", "end_ns"),
        parent=pl.when(roots).then(pl.lit(ROOT, pl.Int64)).otherwise("parent"),
    )
