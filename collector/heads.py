"""Exchanges of a connection by its HTTP/1.1 heads (RFC 9112): where each message begins, and which answers which.

A head marks the first byte of a message, and the next head in the same direction its end, so bodies need not be
understood. A head is seen at its sender, its receiver, and again when retransmitted: one row is made of these, from the
one that shows most. A `head` that lies inside the body that an earlier head declared is payload, not a head.

1xx responses are interim (RFC 9110 §15.2), except 101, after which the connection speaks something else. Responses
answer requests in order (RFC 9112 §9.3): the i-th final response answers the i-th request. Where the counts differ
(the capture began or ended in between, or missed a head) the order is taken within turns, so that one missing head
cannot shift all that follow. A turn begins with a request that reached the server after the server had said something
since the request before; a turn with bytes but no head from the server is answered by these bytes.

Limits: after an upgrade or CONNECT all bytes belong to that exchange. HTTP/2 shows no heads: see `collector.turns`.
"""

import polars as pl

from collector.parts import FLOW, Role, locate
from collector.runs import begins, carried, carried_back, following, largest, place, previous
from tracer.records import HeadFlag, HeadKind

CONTINUE, SWITCHING_PROTOCOLS = 100, 101
BODILESS_STATUS = (204, 304)
INSIDE_PASSES = 3
"""A body can hold a false head that covers a true one; each pass clears the cover of those found false in the last."""


def seen_heads(messages: pl.DataFrame) -> pl.DataFrame:
    """One row for each message head: the one that shows most, with whatever transaction id any copy shows.

    Arguments: `messages`, columns of `collector.schema.MESSAGES`.
    Returns: its columns and `flow`, sorted by flow and `stream_offset`.
    """
    cut = (pl.col("head_flags") & HeadFlag.CUT) != 0
    best = messages.with_columns(FLOW, cut=cut).sort("cut", pl.col("target").str.len_bytes(), descending=[False, True])
    heads = best.group_by("flow", "stream_offset", "head_kind", maintain_order=True).agg(
        pl.exclude("transaction_id", "content_length", "head_len").first(),
        pl.col("transaction_id", "content_length", "head_len").max(),
    )
    return _without_inside(heads.sort("flow", "stream_offset"))


def clients_swapped(heads: pl.DataFrame) -> pl.Series:
    """Connections whose requests come from the end that the connection table takes for the server.

    It can only guess when the handshake was not captured; a request head knows.
    """
    requests = heads.filter(pl.col("head_kind") == HeadKind.REQUEST)
    votes = requests.group_by("connection_id").agg(pl.col("from_client").mean())
    return votes.filter(pl.col("from_client") < 0.5)["connection_id"]


def head_parts(heads: pl.DataFrame, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Parts and descriptions of the exchanges on connections with visible heads.

    Arguments: `heads` from `seen_heads`; `ranges` from `collector.parts.byte_ranges`.
    Returns: parts (`flow, connection_id, from_client, start, ordinal, role`) and one description for each exchange
    (`connection_id, ordinal, method, target, status, transaction_id, request_due, response_due`: bytes the heads
    declare, null if unknown).
    """
    timed = _head_times(heads, ranges)
    is_request = (pl.col("head_kind") == HeadKind.REQUEST) & pl.col("from_client")
    is_response = (pl.col("head_kind") == HeadKind.RESPONSE) & ~pl.col("from_client")
    interim = is_response & (pl.col("status") < 200) & (pl.col("status") != SWITCHING_PROTOCOLS)
    role = (
        pl.when(is_request)
        .then(Role.REQUEST)
        .when(is_response & (pl.col("status") == CONTINUE))
        .then(Role.CONTINUE)
        .when(interim)
        .then(Role.INTERIM)
        .when(is_response)
        .then(Role.RESPONSE)
        .cast(pl.Int8)
    )
    roles = timed.with_columns(role=role).drop_nulls("role").rename({"stream_offset": "start"})
    final = pl.col("role").is_in([Role.REQUEST, Role.RESPONSE])
    interims = roles.filter(~final)
    numbered = _number(roles.filter(final), interims, ranges)
    return _with_interims(interims, numbered), _describe(numbered)


def _without_inside(heads: pl.DataFrame) -> pl.DataFrame:
    """Heads that do not lie in the declared body of another."""
    declared = pl.col("stream_offset") + pl.col("head_len") + pl.col("content_length")
    head_end = pl.col("stream_offset") + pl.col("head_len")
    begin = begins("flow")
    followed = (following(pl.col("stream_offset"), begin) == head_end).fill_null(value=False)
    known = (pl.col("head_len") > 0) & (pl.col("content_length") > 0) & ~_bodiless(followed)
    covered = heads.with_columns(covers=pl.when(known).then(declared).otherwise(0), inside=pl.lit(value=False))
    for _ in range(INSIDE_PASSES):
        reach = largest(pl.when("inside").then(0).otherwise("covers"), begin)
        found = covered.with_columns(inside=pl.col("stream_offset") < previous(reach, begin).fill_null(0))
        if found["inside"].equals(covered["inside"]):
            break
        covered = found
    return covered.filter(~pl.col("inside")).drop("covers", "inside")


def _bodiless(followed: pl.Expr) -> pl.Expr:
    """Responses that declare a length but carry no body. Those to HEAD are told by the next head, right behind them."""
    response = pl.col("head_kind") == HeadKind.RESPONSE
    return response & (pl.col("status").is_in(BODILESS_STATUS) | (pl.col("status") < 200) | followed)


def _head_times(heads: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Heads with `server_ns`, from the range that carries their first byte."""
    timed = heads.with_columns(server_ns=ranges["server_ns"].gather(locate(heads, ranges, at="stream_offset")))
    seen, begin = pl.col("server_ns"), begins("flow")
    timed = timed.with_columns(server_ns=carried_back(carried(seen, begin), begin))
    # Bytes of a stream are read in order, whatever order they were seen in.
    return timed.with_columns(server_ns=largest(seen, begin))


def _number(events: pl.DataFrame, interims: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Requests and final responses with the `ordinal` of their exchange, by order, or by order within turns."""
    order = events.with_columns(rank=place(begins("flow")))
    order = order.join(_in_order(order), on="connection_id", maintain_order="left")
    plain = order.filter("in_order").with_columns(ordinal=pl.col("rank") + 1)
    return pl.concat([plain, _number_by_turns(order.filter(~pl.col("in_order")), interims, ranges)], how="diagonal")


def _number_by_turns(order: pl.DataFrame, interims: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Requests and responses of connections where plain order fails, with what headless answers they had."""
    theirs = ranges.join(order, on="connection_id", how="semi", maintain_order="left")
    turned = _turned(order, theirs)
    headless = _headless_answers(turned, theirs).join(interims, on=["flow", "start"], how="anti")
    turned = pl.concat([turned, headless], how="diagonal")
    turned = turned.sort("connection_id", "turn", "role", "start")
    turned = turned.with_columns(rank=place(begins("connection_id", "turn", "role")))
    ordinal = pl.struct("turn", "rank").rank("dense").over("connection_id").cast(pl.Int64)
    return turned.with_columns(ordinal=ordinal)


def _turned(order: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """`order` with its `turn`."""
    spoke = ranges.filter(~pl.col("from_client")).select("connection_id", "server_ns", spoke_ns="server_ns")
    asked = order.filter(pl.col("role") == Role.REQUEST).sort("server_ns")
    heard = asked.join_asof(spoke.sort("server_ns"), on="server_ns", by="connection_id", check_sortedness=False)
    last_asked = pl.col("server_ns").shift().over("connection_id")
    heard = heard.sort("flow", "start").with_columns(
        begins=last_asked.is_null() | (pl.col("spoke_ns") > last_asked).fill_null(value=False)
    )
    marked = order.join(heard.select("flow", "start", "begins"), on=["flow", "start"], how="left")
    marked = marked.sort("connection_id", "server_ns", "role", "start")
    return marked.with_columns(
        turn=pl.col("begins").fill_null(value=False).cast(pl.Int64).cum_sum().over("connection_id")
    )


def _headless_answers(turned: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """A response for each turn in which the server spoke but showed no final head: it begins with its first byte."""
    begun = (
        turned.filter(pl.col("turn") > 0)
        .group_by("connection_id", "turn")
        .agg(pl.col("server_ns").min(), answered=(pl.col("role") == Role.RESPONSE).any())
    )
    said = ranges.filter(~pl.col("from_client")).select("flow", "connection_id", "from_client", "start", "server_ns")
    held = said.sort("server_ns").join_asof(
        begun.sort("server_ns"), on="server_ns", by="connection_id", check_sortedness=False
    )
    first = (
        held.filter(~pl.col("answered"))
        .group_by("flow", "connection_id", "from_client", "turn")
        .agg(pl.col("start", "server_ns").min())
    )
    return first.with_columns(role=pl.lit(Role.RESPONSE).cast(pl.Int8))


def _in_order(order: pl.DataFrame) -> pl.DataFrame:
    """`connection_id, in_order`: as many final responses as requests, none before its request."""
    pairs = order.group_by("connection_id", "rank").agg(
        asked=pl.when(pl.col("role") == Role.REQUEST).then("server_ns").min(),
        answered=pl.when(pl.col("role") == Role.RESPONSE).then("server_ns").min(),
    )
    return pairs.group_by("connection_id").agg(
        in_order=(pl.col("answered") >= pl.col("asked")).fill_null(value=False).all()
    )


def _with_interims(interims: pl.DataFrame, numbered: pl.DataFrame) -> pl.DataFrame:
    """Parts of all roles; an interim response belongs to the exchange of the final one after it."""
    columns = ["flow", "connection_id", "from_client", "start", "role"]
    parts = pl.concat([numbered.select(*columns, "ordinal"), interims.select(columns)], how="diagonal")
    last = numbered.group_by("connection_id").agg(last=pl.col("ordinal").max())
    parts = parts.sort("flow", "start").join(last, on="connection_id", how="left", maintain_order="left")
    final = carried_back(pl.col("ordinal"), begins("flow"))
    return parts.with_columns(ordinal=pl.coalesce(final, "last")).drop("last").drop_nulls("ordinal")


def _describe(numbered: pl.DataFrame) -> pl.DataFrame:
    asks, answers = pl.col("role") == Role.REQUEST, pl.col("role") == Role.RESPONSE
    visible = pl.when(pl.col("transaction_id") != "").then("transaction_id")
    due = pl.when((pl.col("head_len") > 0) & (pl.col("content_length") >= 0)).then(
        pl.col("head_len") + pl.col("content_length")
    )
    seen = numbered.group_by("connection_id", "ordinal").agg(
        method=pl.when(asks).then("method").max(),
        target=pl.when(asks).then("target").max(),
        status=pl.when(answers).then("status").max(),
        transaction_id=pl.coalesce(pl.when(asks).then(visible).max(), pl.when(answers).then(visible).max()),
        request_due=pl.when(asks).then(due).max(),
        response_due=pl.when(answers).then(due).max(),
    )
    bodiless = (pl.col("method") == "HEAD") | pl.col("status").is_in(BODILESS_STATUS)
    return seen.with_columns(response_due=pl.when(~bodiless.fill_null(value=False)).then("response_due"))
