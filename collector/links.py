"""Which exchange made which: parent and child, with the reason and how sure that is.

A child exchange was made by the host that is its client, while that host, as a server, was busy with the parent. So
the candidates for a child's parent are the exchanges whose server is the child's client and whose request had begun to
arrive there when the child's first byte left: two stamps of one host, which no clock error can swap.

1. `transaction_id`: candidates that show the child's transaction id. One: certain. Several (auth, proxy and storage
   servers share hosts, and servers call each other): of those still open at the child's start, the ones of the
   service that calls the child's service elsewhere in this trace without doubt; of these the innermost, the one that
   began last. Work put off until after the answer belongs to a candidate that was already closed, unless that was a
   request of the host to itself: then a daemon of that host made both, one after the other.
2. `timing`: for children without a visible id, what the trace teaches about its services (`collector.inferred_links`).
   Kinds of exchanges too rare to learn from get, of the candidates open at their start, without those whose id is known
   to lead elsewhere, again those of a service that calls theirs without doubt, and the innermost.

Confidence is one divided by how many candidates were equally possible. For rare kinds by `timing` it is also multiplied
by the share of like exchanges (same client host, same service) that had a candidate at all: a daemon's own requests run
whether or not a parent is open.

Cost: joins, and one sorted search per child among its host's exchanges; the core's loop for those without an id.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.inferred_links import infer_links
from collector.runs import run_starts
from collector.schema import LinkReason

Longs = NDArray[np.int64]
MOST_WITH_ONE_ID = 256
"""Requests at one host that may share a transaction id (retries, segments of one upload) and still be told apart by it.
Above that it is a constant, not an id, and pairing each with each would cost the square."""
ROWS_AT_ONCE = 1 << 18
"""Children that are joined with their candidates at once: bounds memory."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio (Knuth, TAOCP 3, §6.4)."""
NO_HOST = 0xFFFF
FOREVER = np.iinfo(np.int64).max

LINK_COLUMNS = {
    "exchange_id": pl.Int64,
    "parent_id": pl.Int64,
    "link_reason": pl.String,
    "confidence": pl.Float64,
}


def find_links(exchanges: pl.DataFrame) -> pl.DataFrame:
    """The parent of each exchange that has one.

    Arguments: `exchanges`, columns of `collector.schema.EXCHANGES`: hosts and services as enums, transaction ids as
    64-bit hashes.
    Returns: `exchange_id, parent_id, link_reason, confidence`; a parent begins before its child, so links form a
    forest.
    """
    exchanges = _without_constants(exchanges)
    parents = _parents(exchanges)
    children = _children(exchanges).join(parents.select(pl.col("host").unique()), on="host", how="semi")
    by_id = _by_transaction(children, parents)
    rest = children.join(by_id, on="exchange_id", how="anti")
    inferred = _inferred(exchanges, rest, parents)
    rest = rest.join(inferred, on="exchange_id", how="anti")
    by_time = _by_timing(rest, parents)
    found = inferred.drop_nulls("parent_id")
    return pl.concat([links.select(*LINK_COLUMNS) for links in (by_id, found, by_time)])


def _inferred(exchanges: pl.DataFrame, children: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """What `infer_links` says of exchanges without an id, and without a child or parent that shows one."""
    silent = exchanges.filter(pl.col("transaction_id").is_null())
    wanted = silent.join(children, on="exchange_id", how="semi")
    if wanted.is_empty():
        return pl.DataFrame(schema=LINK_COLUMNS)
    judged = infer_links(silent).join(children.select("exchange_id", "began_ns"), on="exchange_id", how="inner")
    began = parents.select("parent_id", "parent_began_ns")
    judged = judged.join(began, on="parent_id", how="left").with_columns(open_ns=0, at_ns=0)
    linked = pl.col("parent_id").is_null() | _possible()
    return judged.filter(linked.fill_null(value=False)).select(*LINK_COLUMNS)


def _without_constants(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Exchanges without the transaction ids that very many requests at one host show: they identify none."""
    shown = exchanges.select("transaction_id", host=pl.col("server_host").to_physical()).drop_nulls("transaction_id")
    ids, hosts = shown["transaction_id"].to_numpy(), shown["host"].fill_null(NO_HOST).to_numpy().astype(np.uint64)
    with np.errstate(over="ignore"):
        keys = (ids ^ hosts) * SPREAD + hosts
    ordered = np.sort(keys)
    begins = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))
    many = ordered[begins[np.diff(begins, append=len(ordered)) > MOST_WITH_ONE_ID]]
    if not len(many):
        return exchanges
    constant = pl.col("transaction_id").is_in(pl.Series(np.unique(ids[np.isin(keys, many)])).implode())
    return exchanges.with_columns(transaction_id=pl.when(~constant).then("transaction_id"))


def _began() -> pl.Expr:
    return pl.coalesce("request_first_sent_trace_ns", "request_first_received_trace_ns")


def _children(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`exchange_id, host, at_ns, began_ns, service, transaction_id` of exchanges that may have a parent."""
    return exchanges.select(
        "exchange_id",
        "service",
        "transaction_id",
        host="client_host",
        at_ns=pl.coalesce("request_first_sent_trace_ns", "request_first_received_trace_ns"),
        began_ns=_began(),
    ).drop_nulls(["host", "at_ns"])


def _parents(exchanges: pl.DataFrame) -> pl.DataFrame:
    """`parent_id, host, parent_client, open_ns, close_ns, parent_began_ns, parent_service, transaction_id`."""
    return exchanges.select(
        "transaction_id",
        parent_id="exchange_id",
        parent_service="service",
        host="server_host",
        parent_client="client_host",
        open_ns=pl.coalesce("request_first_received_trace_ns", "request_first_sent_trace_ns"),
        close_ns=pl.coalesce(
            "response_last_sent_trace_ns", "response_last_received_trace_ns", "given_up_trace_ns", pl.lit(FOREVER)
        ),
        parent_began_ns=_began(),
    ).drop_nulls(["host", "open_ns"])


def _possible() -> pl.Expr:
    """Of a pair: the parent's request was there before the child's left, and, so that no cycle forms, began before."""
    before = (pl.col("parent_began_ns") < pl.col("began_ns")) | (
        (pl.col("parent_began_ns") == pl.col("began_ns")) & (pl.col("parent_id") < pl.col("exchange_id"))
    )
    return (pl.col("open_ns") <= pl.col("at_ns")) & before


def _by_transaction(children: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """Links by a transaction id that both ends show, some ids at a time."""
    visible = pl.col("transaction_id").is_not_null()
    children, parents = children.filter(visible), parents.filter(visible)
    groups = 1 + len(children) // ROWS_AT_ONCE
    of_group = pl.col("transaction_id") % groups
    found = [
        _open_pairs(children.filter(of_group == group), parents.filter(of_group == group)) for group in range(groups)
    ]
    pairs = pl.concat(found)
    calls = _certain_calls(pairs)
    several = pairs.filter(pl.col("candidates") > 1).join(calls, on=["parent_service", "service"], how="left")
    called = pl.col("calls").is_not_null()
    several = several.filter(called | ~called.any().over("exchange_id"))
    best = (
        several.sort("exchange_id", "open_ns", "parent_id")
        .group_by("exchange_id", maintain_order=True)
        .agg(pl.col("parent_id").last(), confidence=1.0 / pl.len())
    )
    single = pairs.filter(pl.col("candidates") == 1).select("exchange_id", "parent_id", confidence=1.0)
    return pl.concat([single, best]).with_columns(link_reason=pl.lit(LinkReason.TRANSACTION_ID.value))


def _open_pairs(children: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """Children with each parent that shows their id and may be theirs, and how many those are (`candidates`)."""
    pairs = children.join(parents, on=["transaction_id", "host"], maintain_order="left").filter(_possible())
    open_ = pl.col("close_ns") >= pl.col("at_ns")
    sibling = ~open_ & (pl.col("parent_client") == pl.col("host")).fill_null(value=False)
    columns = ("exchange_id", "parent_id", "service", "parent_service", "open_ns")
    pairs = pairs.filter(~sibling).select(*columns, open=open_)
    starts = run_starts(pairs["exchange_id"].to_numpy())
    if not len(starts):
        return pairs.select(*columns, candidates=pl.lit(0, pl.Int64))
    still = pairs["open"].to_numpy()
    any_open = np.repeat(np.logical_or.reduceat(still, starts), np.diff(starts, append=len(pairs)))
    pairs = pairs.filter(pl.Series(still | ~any_open))
    counts = np.diff(run_starts(pairs["exchange_id"].to_numpy()), append=len(pairs))
    return pairs.select(*columns, candidates=pl.Series(np.repeat(counts, counts)))


def _certain_calls(pairs: pl.DataFrame) -> pl.DataFrame:
    """`parent_service, service, calls`: which service calls which, from children with a single candidate."""
    single = pairs.filter(pl.col("candidates") == 1)
    return single.group_by("parent_service", "service").agg(calls=pl.len())


def _by_timing(children: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """Links of the exchanges that no id links, to the innermost candidate open on their host."""
    keyed = children.with_columns(shows_id=pl.col("transaction_id").is_not_null())
    first = _nested(keyed, parents, ["host", "shows_id"])
    calls = _certain_calls(first.drop_nulls("parent_id"))
    several = keyed.join(first.filter(pl.col("candidates") > 1), on="exchange_id", how="semi")
    again = _nested(several, parents, ["host", "shows_id", "service"], calls).drop_nulls("parent_id")
    linked = pl.concat([first.join(again, on="exchange_id", how="anti"), again])
    share = pl.col("parent_id").is_not_null().mean().over("host", "service")
    linked = linked.with_columns(
        confidence=share / pl.col("candidates"), link_reason=pl.lit(LinkReason.TIMING.value, dtype=pl.String)
    )
    return linked.drop_nulls("parent_id").filter(_possible())


def _nested(
    children: pl.DataFrame, parents: pl.DataFrame, keys: list[str], calls: pl.DataFrame | None = None
) -> pl.DataFrame:
    """`children` with their innermost candidate, group by group; with `calls`, of the services that call theirs."""
    found = [_innermost(children.clear(), parents.clear())]
    for key, mine in children.partition_by(keys, as_dict=True).items():
        group = dict(zip(keys, key, strict=True))
        here = parents.filter(pl.col("host") == group["host"])
        if group["shows_id"]:
            here = here.filter(pl.col("transaction_id").is_null())
        if calls is not None:
            callers = calls.filter(pl.col("service") == group["service"])["parent_service"]
            here = here.filter(pl.col("parent_service").is_in(callers.implode()))
        found.append(_innermost(mine, here))
    return pl.concat(found)


def _innermost(children: pl.DataFrame, parents: pl.DataFrame) -> pl.DataFrame:
    """`children` of one host with the parent that began last of those open at their start, and how many were open."""
    ordered = parents.sort("open_ns", "parent_id")
    at, close = children["at_ns"].to_numpy(), ordered["close_ns"].to_numpy()
    begun = np.searchsorted(ordered["open_ns"].to_numpy(), at, side="left")
    candidates = begun - np.searchsorted(np.sort(close), at, side="left")
    place = last_at_least(close, begun, at)
    chosen = ordered.select("parent_id", "parent_service", "open_ns", "parent_began_ns")
    picked = chosen[place.clip(min=0)] if len(ordered) else chosen.clear(len(children))
    found = pl.Series(place >= 0)
    both = pl.concat([children, picked, pl.DataFrame({"candidates": candidates})], how="horizontal")
    return both.with_columns(pl.when(found).then(pl.col("parent_id")).alias("parent_id"))


def last_at_least(values: Longs, before: Longs, least: Longs) -> Longs:
    """For each query, the last place below `before` whose value is at least `least`; -1 where there is none.

    Cost: O((n + queries) log n), by the largest value of each run of 2^k places.
    """
    largest = [values]
    while (half := 1 << (len(largest) - 1)) * 2 <= len(values):
        runs = largest[-1]
        largest.append(np.maximum(runs[half:], runs[:-half]))
    place = before.astype(np.int64)
    for power in range(len(largest) - 1, -1, -1):
        size, runs = 1 << power, largest[power]
        fits = place >= size
        skip = fits.copy()
        skip[fits] = runs[place[fits] - size] < least[fits]
        place = place - skip * size
    return place - 1
