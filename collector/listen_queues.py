"""Connections that waited in, or were turned away from, a server's queues, as its packets show it.

A Linux server has two queues for a port that it listens on. A SYN is dropped without a word while the *accept queue* is
full (so is the SYN queue, for want of cookies): the SYN is seen to arrive, no SYN-ACK leaves, and the client sends it
again after 1, 3, 7 … seconds. If the accept queue fills up after the SYN was answered, the client's ACK is dropped: it
is seen to arrive, and the server sends the SYN-ACK again, while the client holds the connection to be there and may
have sent its request. Neither is a loss of the network, which `stalls` counts.

    SYN ──▶ [ SYN queue ] ──SYN-ACK──▶ client ──ACK──▶ [ accept queue ] ──▶ accept()
             not answered: `syn`                        SYN-ACK again: `accept`

Limits: only where the server's host was captured. A firewall on that host drops SYNs without a word, too.

Source: Linux, net/ipv4/tcp_input.c (tcp_conn_request), net/ipv4/tcp_minisocks.c (tcp_check_req);
Documentation/networking/snmp_counter.rst (ListenOverflows, ListenDrops).
"""

import polars as pl

QUEUED = ("client_host", "server_host", "server_addr", "server_port", "queue")
_EVIDENCE = ("connection_id", "span_id", "from_trace_ns", "to_trace_ns")


def queued(hops: pl.DataFrame, connections: pl.DataFrame) -> pl.DataFrame:
    """Connections that came about late, since a queue of the server was full.

    Arguments: of `hops`, the columns that `troubles` takes; their rows of `connections`.
    Returns: one row for each group `QUEUED` (`queue` is `syn` or `accept`): `count` of connections, `dropped` packets,
    `cost_ns` (all waits added up), and of the longest wait `worst_ns` and where it was.
    """
    late = pl.concat([_syns_dropped(hops), _acks_dropped(hops)])
    waited = late.join(connections, on="connection_id").with_columns(
        worst_ns=pl.col("to_trace_ns") - pl.col("from_trace_ns"), span_id=pl.lit(None, pl.Int64)
    )
    return (
        waited.sort("worst_ns", "connection_id", descending=[True, False])
        .group_by(QUEUED, maintain_order=True)
        .agg(
            pl.len().alias("count"),
            pl.sum("dropped"),
            pl.col(_EVIDENCE).first(),
            pl.col("worst_ns").first(),
            cost_ns=pl.sum("worst_ns"),
        )
    )


def _syns_dropped(hops: pl.DataFrame) -> pl.DataFrame:
    """Several SYNs arrived before the first was answered; waited from the first to the answer."""
    answers = _first_answers(hops)
    syns = hops.filter((pl.col("kind") == "syn") & pl.col("from_client")).join(answers, on="connection_id")
    arrived = syns.filter(pl.col("receive_trace_ns") < pl.col("first_answer_ns"))
    return _waits(arrived, "receive_trace_ns", "first_answer_ns", pl.len() - 1, "syn").filter(pl.col("dropped") > 0)


def _acks_dropped(hops: pl.DataFrame) -> pl.DataFrame:
    """The client's ACK, or more, had arrived when a SYN-ACK was sent again; waited from then to its last sending."""
    last = _answers(hops).group_by("connection_id").agg(last_answer_ns=pl.col("send_trace_ns").max())
    mine = hops.filter(pl.col("from_client") & ~pl.col("kind").is_in(["syn", "rst"])).join(last, on="connection_id")
    arrived = mine.filter(pl.col("receive_trace_ns") < pl.col("last_answer_ns"))
    return _waits(arrived, "receive_trace_ns", "last_answer_ns", pl.len(), "accept")


def _answers(hops: pl.DataFrame) -> pl.DataFrame:
    sent = (pl.col("kind") == "syn_ack") & ~pl.col("from_client") & pl.col("send_trace_ns").is_not_null()
    return hops.filter(sent)


def _first_answers(hops: pl.DataFrame) -> pl.DataFrame:
    return _answers(hops).group_by("connection_id").agg(first_answer_ns=pl.col("send_trace_ns").min())


def _waits(packets: pl.DataFrame, since: str, until: str, dropped: pl.Expr, queue: str) -> pl.DataFrame:
    """`connection_id, dropped, from_trace_ns, to_trace_ns, queue`."""
    return packets.group_by("connection_id").agg(
        dropped=dropped.cast(pl.Int64),
        from_trace_ns=pl.col(since).min(),
        to_trace_ns=pl.col(until).max(),
        queue=pl.lit(queue),
    )
