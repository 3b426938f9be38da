"""Counts connections established late or never, with the fate of each packet of their handshakes.

A SYN without an answer was lost on the way, or its answer was. A SYN answered with RST was refused: nobody listens
there. If the capture of the server's host shows that the SYN arrived and no answer was sent, the server's kernel
ignored it. A Linux server has two queues for a port that it listens on:

    SYN ──▶ [ SYN queue ] ──SYN-ACK──▶ client ──ACK──▶ [ accept queue ] ──▶ accept()

While the accept queue is full, SYNs are dropped silently, and the client retransmits them after 1, 3, 7 … seconds. If
the queue fills up after the SYN was answered, the client's ACK is dropped and the server retransmits the SYN-ACK, while
the client considers the connection established and may have sent its request. Neither is a loss in the network.

Limits: only if the server's host was captured; a firewall on that host drops SYNs silently, too.

Source: RFC 9293 §3.5; Linux, net/ipv4/tcp_input.c (tcp_conn_request), net/ipv4/tcp_minisocks.c (tcp_check_req);
Documentation/networking/snmp_counter.rst (ListenOverflows, ListenDrops).
"""

from dataclasses import dataclass

import polars as pl

from collector.hops.captured_until import CapturedUntil
from collector.hops.sampling import EDGE_NS
from collector.trace.threshold import threshold

GROUP = ("fate", "why", "client_host", "server_host", "server_addr", "server_port")
"""`fate`: refused, unanswered, late (established in the end). `why` the packets had no effect: refused, lost, ignored,
waiting (ignored, and the same ports had just been used), or unseen."""


@dataclass(frozen=True, slots=True)
class HandshakeThresholds:
    """When a connection counts as unanswered, and its ports as used again too soon."""

    unanswered_least_ns: int = threshold(
        1_000_000_000, "a SYN that is so old when the capture ends is unanswered: TCP's first timeout (RFC 6298 §2)"
    )
    time_wait_ns: int = threshold(
        60_000_000_000, "the side that closes first reserves the ports for so long (Linux, TCP_TIMEWAIT_LEN)"
    )


def failed_handshakes(
    tried: pl.DataFrame, connections: pl.DataFrame, captured: CapturedUntil, limits: HandshakeThresholds
) -> pl.DataFrame:
    """Handshakes that failed or were late, one row for each `GROUP`.

    Arguments: `tried`, from `connection_attempts`; their rows of `connections`; until when captures ran; thresholds.
    Returns: `count` (connections), `vain` (packets without effect), `cost_ns` (sum of all waits), `begin_ns`, `end_ns`
    (first to last), and for the longest wait `worst_ns, connection_id, span_id, from_trace_ns, to_trace_ns`; longest
    first.
    """
    tried = tried.join(connections, on="connection_id")
    tried = tried.with_columns(captured.of(tried, "from_trace_ns"))
    failed = tried.with_columns(fate=_fate(limits.unanswered_least_ns)).filter(pl.col("fate").is_not_null())
    failed = failed.join(_reuse(connections, failed, limits.time_wait_ns), on="connection_id").with_columns(
        why=_reason(), to_trace_ns=pl.coalesce("up_ns", "last_ns"), span_id=pl.lit(None, pl.Int64)
    )
    failed = failed.with_columns(worst_ns=pl.col("to_trace_ns") - pl.col("from_trace_ns"))
    return (
        failed.sort("worst_ns", "connection_id", descending=[True, False])
        .group_by(GROUP, maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            vain=pl.col("vain").sum(),
            cost_ns=pl.col("worst_ns").sum(),
            begin_ns=pl.col("from_trace_ns").min(),
            end_ns=pl.col("last_ns").max(),
            worst_ns=pl.col("worst_ns").first(),
            **{name: pl.col(name).first() for name in ("connection_id", "span_id", "from_trace_ns", "to_trace_ns")},
        )
    )


def unusable_connections(tried: pl.DataFrame, connections: pl.DataFrame, captured: CapturedUntil) -> pl.DataFrame:
    """Connections that were not usable when the client wanted them: refused, not answered, or answered late.

    Arguments: as for `failed_handshakes`. Where both hosts left the connection out before an answer could have been
    seen (`captured.sampling`), nothing is known.
    Returns: `connection_id, client_host, server` (its host, or its address where that was not captured), `server_port,
    began_ns, refused_ns` (null for those that were not refused), one row each.
    """
    tried = tried.filter(pl.col("spoke_ns").is_null() & (pl.col("up_ns").is_null() | (pl.col("attempts") > 1)))
    tried = tried.join(connections, on="connection_id")
    if captured.sampling:
        answered = pl.col("up_ns").is_not_null() | pl.col("reset_ns").is_not_null()
        tried = tried.with_columns(captured.of(tried, "last_ns"))
        tried = tried.filter(answered | (pl.col("until") - pl.col("last_ns") >= EDGE_NS))
    return tried.select(
        *("connection_id", "client_host", "server_port"),
        server=pl.coalesce("server_host", "server_addr"),
        began_ns="from_trace_ns",
        refused_ns=pl.when(pl.col("up_ns").is_null()).then("reset_ns"),
    )


def merge_groups(groups: pl.DataFrame) -> pl.DataFrame:
    """Rows of several partitions, merged to one for each `GROUP`."""
    return (
        groups.sort("worst_ns", descending=True, maintain_order=True)
        .group_by(GROUP, maintain_order=True)
        .agg(
            pl.col("count", "vain", "cost_ns").sum(),
            pl.col("begin_ns").min(),
            pl.col("end_ns").max(),
            pl.col("worst_ns", "connection_id", "span_id", "from_trace_ns", "to_trace_ns").first(),
        )
    )


def _fate(unanswered_least_ns: int) -> pl.Expr:
    came_up = pl.col("up_ns").is_not_null()
    again = (pl.col("attempts") > 1) | (pl.col("answers") > 1)
    old = pl.col("until") - pl.col("from_trace_ns") >= unanswered_least_ns
    late = pl.when(came_up & again).then(pl.lit("late"))
    refused = late.when(~came_up & pl.col("reset_ns").is_not_null()).then(pl.lit("refused"))
    return refused.when(~came_up & old).then(pl.lit("unanswered"))


def _reason() -> pl.Expr:
    lost = (pl.col("lost") > 0) | (pl.col("answers_lost") > 0) | (pl.col("acks_lost") > 0)
    ignored = (pl.col("ignored") > 0) | (pl.col("acks_ignored") > 0)
    refused = pl.when(pl.col("up_ns").is_null() & pl.col("reset_ns").is_not_null()).then(pl.lit("refused"))
    known = refused.when(lost).then(pl.lit("lost")).when(ignored & pl.col("reused")).then(pl.lit("waiting"))
    return known.when(ignored).then(pl.lit("ignored")).otherwise(pl.lit("unseen"))


def _reuse(connections: pl.DataFrame, failed: pl.DataFrame, time_wait_ns: int) -> pl.DataFrame:
    """The `connection_id` of those with the ends of a failed one, and `reused`: one of the same ends ended less than
    `time_wait_ns` before."""
    ends = ["client_addr", "client_port", "server_addr", "server_port"]
    alike = connections.join(failed, on=ends, how="semi", nulls_equal=True)
    ordered = alike.sort("first_host_ns", "connection_id")
    since = pl.col("first_host_ns") - pl.col("last_host_ns").shift().over(ends)
    return ordered.select("connection_id", reused=(since < time_wait_ns).fill_null(value=False))


def connection_attempts(hops: pl.DataFrame) -> pl.DataFrame:
    """Connections whose SYN was seen, one row each: how often it was sent (`attempts`), how often without effect
    (`vain`), `lost`, and `ignored` (it arrived and was not answered before the next one, or ever); answers sent and
    lost; when the connection was established.

    Arguments: hops of connections in trouble.
    """
    kind, at = pl.col("kind"), pl.coalesce("send_trace_ns", "receive_trace_ns")
    syns = hops.filter(kind == "syn").with_columns(at=at).sort("connection_id", "at")
    tried = syns.join(_answers(hops), on="connection_id", how="left", maintain_order="left")
    is_followed = pl.col("connection_id") == pl.col("connection_id").shift(-1)
    following = pl.when(is_followed).then(pl.col("at").shift(-1))
    vain = pl.col("answered_ns").is_null() | following.is_not_null()
    arrived = (pl.col("state") == "matched") & pl.col("receive_trace_ns").is_not_null()
    ignored = arrived & (pl.col("answered_ns").is_null() | (pl.col("answered_ns") > following).fill_null(value=False))
    each = tried.with_columns(vain=vain, ignored=ignored, gone=vain & (pl.col("state") == "lost"))
    of_answers = [name for name in tried.columns if name not in syns.columns]
    found = each.group_by("connection_id").agg(
        pl.col(of_answers).first(),
        pl.col("vain", "ignored").sum().cast(pl.Int64),
        lost=pl.col("gone").sum(),
        attempts=pl.len(),
        from_trace_ns=pl.col("at").min(),
        last_ns=pl.col("at").max(),
    )
    counts = pl.col("answers", "answers_lost", "acks_lost", "acks_ignored").fill_null(0)
    taken = pl.when(pl.col("acks_ignored") > 0).then("last_answer_ns")
    found = found.with_columns(counts, up_ns=pl.coalesce(taken, "up_ns", "spoke_ns"))
    return found.with_columns(
        vain=pl.col("vain") + pl.col("answers_lost") + pl.col("acks_ignored"),
        last_ns=pl.max_horizontal("last_ns", "up_ns", "reset_ns"),
    )


def _answers(hops: pl.DataFrame) -> pl.DataFrame:
    """What followed the SYNs: `answered_ns, last_answer_ns, up_ns, answers, answers_lost`, the client's next packets
    (`acks_lost`; `acks_ignored`: arrived before the answer was retransmitted), `spoke_ns` (data), `reset_ns`."""
    kind, at = pl.col("kind"), pl.coalesce("send_trace_ns", "receive_trace_ns")
    arrival, lost = pl.coalesce("receive_trace_ns", "send_trace_ns"), pl.col("state") == "lost"
    answer, client = kind == "syn_ack", pl.col("from_client")
    after = client & ~kind.is_in(["syn", "rst"])
    each = hops.filter(kind != "syn").select(  # by columns: polars evaluates what is in `agg` group by group
        "connection_id",
        answered_ns=pl.when(answer).then(at),
        last_answer_ns=pl.when(answer).then("send_trace_ns"),
        up_ns=pl.when(answer & ~lost).then(arrival),
        answers=answer.cast(pl.Int64),
        answers_lost=(answer & lost).cast(pl.Int64),
        acks_lost=(after & lost & (pl.col("stream_start") <= 0)).cast(pl.Int64),
        spoke_ns=pl.when(kind == "data").then(at),
        reset_ns=pl.when((kind == "rst") & ~client).then(at),
    )
    earliest, latest = pl.col("answered_ns", "up_ns", "spoke_ns", "reset_ns").min(), pl.col("last_answer_ns").max()
    counts = pl.col("answers", "answers_lost", "acks_lost").sum()
    found = each.group_by("connection_id").agg(earliest, latest, counts)
    early = hops.filter(after).join(found.select("connection_id", "last_answer_ns"), on="connection_id")
    early = early.filter(pl.col("receive_trace_ns") < pl.col("last_answer_ns"))
    ignored = early.group_by("connection_id").agg(acks_ignored=pl.len().cast(pl.Int64))
    return found.join(ignored, on="connection_id", how="left")
