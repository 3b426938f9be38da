"""Links each exchange to its parent, the exchange that caused it, with a reason and a confidence.

Turns of connections that carry several requests at once are ignored (`collector.requests.multiplexed`): they are no
requests. Calls without an id that a host makes by itself, in a loop or at a beat (`collector.requests.own_calls`), have
no parent.

A child exchange was made by the host that is its client, while that host, as a server, was busy with the parent. So
the candidates for a child's parent are the exchanges whose server is the child's client and whose request had begun to
arrive there when the child's first byte left: two stamps of one host, which no clock error can swap.

1. `transaction_id`: candidates that show the child's transaction id. One: certain. Several (auth, proxy and storage
   servers share hosts, and servers call each other): of those still open at the child's start, the ones of the service
   that calls the child's service elsewhere in this trace without doubt; of these the innermost, the one that began
   last. If all had ended, the call is work deferred until after the answer of one of them, unless that was a request
   of the host to itself: then a daemon of that host made both, one after the other.
   Ids of some protocols never are those of requests of others (Ceph's). There the first call with an id, from a host
   that serves no such calls, is linked as one without an id.
2. `timing`: children without a visible id are linked by what is learned from the trace
   (`collector.requests.inferred_parents`). A service that mostly receives ids (a storage server) receives one with each
   call that is made for a request with an id. So a call to it without one, if its head was captured, was made for a
   request without one. Calls to other services (a cache) may be made for any request. For kinds of exchanges too rare
   to learn from, the candidates are those open at their start, without those whose id leads elsewhere; of these, as in
   step 1, those of a service that certainly calls theirs, and the innermost.
3. The statements of a transaction then get one parent (`collector.requests.transactions`).

Confidence is one divided by the number of equally possible candidates. For rare kinds by `timing` it is also multiplied
by the share of like exchanges (same client host, same service) that had a candidate at all, and by the probability that
this was no chance (`collector.requests.coincidence`): a daemon's own requests run whether or not a parent is open. What
is left is the probability that there is no parent; where that is far likelier than the innermost one, none is named.

Cost: a pass of the core over those that show an id (`collector/core/spans/src/links_by_id.rs`), its loop for those
without one (`collector/core/links`), and a sorted search for each child that neither links.
"""

from collections import defaultdict

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.requests.coincidence import made_by_requests, open_share
from collector.requests.critical_path import NONE
from collector.requests.inferred_parents import Inferred, infer_links
from collector.requests.like_servers import merge_like_servers
from collector.requests.multiplexed import multiplexed_turns
from collector.requests.operations import with_operations
from collector.requests.own_calls import own_calls
from collector.requests.protocols import WITH_OWN_IDS
from collector.requests.row_groups import rows_alike
from collector.requests.transactions import one_parent_each, transactions
from collector.trace.arrow import coalesce, indices, numbers, unify_dictionaries
from collector.trace.request_times import BEGIN, END, SERVER_BEGIN, SERVER_END
from collector.trace.time_columns import UNSEEN, Int64Array

MAX_REQUESTS_PER_ID = 256
"""Most requests at one host that share a transaction id (retries, segments of one upload) and are still linked by it.
Above that it is a constant, not an id, and pairing each with each would cost the square."""
FOREVER = np.iinfo(np.int64).max
LEAST_ODDS = 0.5
"""Chosen: of a rare kind, a parent that is less than half as likely as that there is none is not named."""


class Links(Struct, frozen=True):
    """The parent of each exchange, in their order."""

    parent: Int64Array  # its row; NONE for a root
    by_id: NDArray[np.bool_]  # linked by transaction id; else by timing
    confidence: NDArray[np.float64]
    alternative: Int64Array  # of a link by timing the row of the next likeliest parent; NONE where there is none
    alternative_confidence: NDArray[np.float64]


class _Times(Struct, frozen=True):
    """Times of each exchange as a child and as a parent, `UNSEEN` if unknown; hosts and services, -1 if unknown."""

    exchange_id: Int64Array
    client: NDArray[np.int32]
    server: NDArray[np.int32]
    service: NDArray[np.int32]
    sent: Int64Array  # its first byte left, or arrived, if that is all that was seen
    arrived: Int64Array  # its first byte arrived, or left
    closed: Int64Array

    def possible(self, children: Int64Array, parents: Int64Array) -> NDArray[np.bool_]:
        """Whether each parent's request arrived before its child's left, and began earlier, so that no cycle forms."""
        in_time = self.arrived[parents] <= self.sent[children]
        return in_time & self.began_before(children, parents)

    def began_before(self, children: Int64Array, parents: Int64Array) -> NDArray[np.bool_]:
        """Whether each parent began before its child; of those at the same time, the one with the lower id."""
        child, parent = self.sent[children], self.sent[parents]
        lower = self.exchange_id[parents] < self.exchange_id[children]
        return (parent < child) | ((parent == child) & lower)


def find_links(
    exchanges: pa.Table, shown_id: NDArray[np.uint64], words: NDArray[np.uint32], paths: NDArray[np.uint64]
) -> Links:
    """The parent of each exchange that has one.

    Arguments: `exchanges`, columns of `collector.trace.schema.EXCHANGES`; their transaction ids as 64-bit hashes, 0 for
    none; the words of their targets, as `collector._core.linking_words` gives them; and numbers of their targets
    without queries, as `collector._core.path_numbers` gives them.
    Returns: a forest, since a parent begins before its child.
    """
    multiplexed = multiplexed_turns(exchanges)
    exchanges = merge_like_servers(exchanges)
    times, names = _times(exchanges, multiplexed)
    by_itself = _own_calls(exchanges, times, shown_id)
    times.client[by_itself] = NONE
    found = _core.link_by_id(
        {
            "exchange_id": times.exchange_id,
            "shown_id": shown_id,
            "client_host": times.client,
            "server_host": times.server,
            "service": times.service,
            "asked_ns": times.sent,
            "opened_ns": times.arrived,
            "closed_ns": times.closed,
        },
        MAX_REQUESTS_PER_ID,
    )
    parent, shows_id = found["parent"], found["shows_id"]
    links = Links(
        parent,
        parent != NONE,
        found["confidence"],
        alternative=np.full(len(parent), NONE),
        alternative_confidence=np.zeros(len(parent)),
    )
    unresolved = np.flatnonzero(~links.by_id & _called_by_servers(times))
    if len(unresolved):
        own = with_own_ids(exchanges)
        begins_id = shows_id & ~links.by_id & own & ~np.isin(times.client, times.server[own])
        receives_ids = _receives_ids(times, shows_id & ~own, exchanges["method"].is_valid().to_numpy())
        receives_ids |= shows_id & ~begins_id
        if not (shows_id & ~begins_id)[unresolved].all():
            unresolved = _infer_unresolved(
                _Visible(with_operations(_as_enums(exchanges, names, multiplexed, by_itself), paths), words),
                times,
                shows_id,
                begins_id,
                receives_ids,
                unresolved,
                links,
            )
        if len(unresolved):
            _link_by_timing(times, shows_id, receives_ids, unresolved, links)
        _join_transactions(exchanges, times, links)
    return links


def _join_transactions(exchanges: pa.Table, times: _Times, links: Links) -> None:
    """Give the statements of each transaction one parent (`collector.requests.transactions`)."""
    statements = transactions(exchanges, times.sent)
    if statements.is_empty():
        return
    open_from = np.where(times.arrived == UNSEEN, FOREVER, times.arrived)
    found = one_parent_each(statements, links.parent, links.confidence, links.by_id, open_from, times.closed)
    rows = found["row"].to_numpy()
    found = found.filter(pl.Series(times.possible(rows, found["parent"].to_numpy())))
    rows = found["row"].to_numpy()
    links.parent[rows], links.confidence[rows] = found["parent"].to_numpy(), found["confidence"].to_numpy()
    links.alternative[rows] = found["alternative"].fill_null(NONE).to_numpy()
    links.alternative_confidence[rows] = found["alternative_confidence"].fill_null(0.0).to_numpy()


class _Visible(Struct, frozen=True):
    """The data that `infer_links` reads, for each exchange."""

    exchanges: pl.DataFrame
    words: NDArray[np.uint32]

    def infer(self, among: Int64Array, in_scope: NDArray[np.bool_]) -> Inferred:
        """`infer_links` of some of them."""
        is_all = len(among) == len(self.exchanges)
        return infer_links(
            *(
                (self.exchanges, in_scope, self.words)
                if is_all
                else (self.exchanges[among], in_scope, self.words[among])
            )
        )


class _Names(Struct, frozen=True):
    """The names that codes stand for, in the order of the codes."""

    hosts: list[str]
    services: list[str]
    methods: list[str]


def _times(exchanges: pa.Table, multiplexed: NDArray[np.bool_]) -> tuple[_Times, _Names]:
    """The times of all exchanges. Turns of `multiplexed` connections, which are no requests, have no hosts."""
    (client, server), hosts = unify_dictionaries(exchanges["client_host"], exchanges["server_host"])
    (service,), services = unify_dictionaries(exchanges["service"])
    client[numbers(exchanges["background"], missing=False)] = NONE  # daemons' requests have no parent
    client[multiplexed], server[multiplexed] = NONE, NONE
    times = _Times(
        exchange_id=coalesce(exchanges, ["exchange_id"], NONE),
        client=client,
        server=server,
        service=service,
        sent=BEGIN.times(exchanges),
        arrived=SERVER_BEGIN.times(exchanges),
        closed=SERVER_END.times(exchanges, FOREVER),
    )
    _, methods = unify_dictionaries(exchanges["method"])
    return times, _Names(hosts, services, methods)


def _own_calls(exchanges: pa.Table, times: _Times, shown_id: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each exchange is a call that its client's host makes by itself; none that shows an id is."""
    return own_calls(
        numbers(exchanges["connection_id"]),
        np.where(shown_id == 0, times.client, np.int32(NONE)),
        times.server,
        sent=times.sent,
        arrived=times.arrived,
        answered=END.times(exchanges),
        closed=SERVER_END.times(exchanges),
    )


def _as_enums(
    exchanges: pa.Table, names: _Names, multiplexed: NDArray[np.bool_], own: NDArray[np.bool_]
) -> pl.DataFrame:
    """The exchanges in the form that `infer_links` needs; calls that are a host's `own` have no client."""
    hosts = pl.col("client_host", "server_host").cast(pl.Enum(names.hosts))
    enums = {"service": names.services, "method": names.methods}
    frame = pl.DataFrame(exchanges).with_columns(
        hosts, *(pl.col(name).cast(pl.Enum(texts)) for name, texts in enums.items())
    )
    request = ~pl.Series(multiplexed)
    return frame.with_columns(
        client_host=pl.when(request & ~pl.Series(own) & ~pl.col("background").fill_null(value=False)).then(
            "client_host"
        ),
        server_host=pl.when(request).then("server_host"),
    )


def _called_by_servers(times: _Times) -> NDArray[np.bool_]:
    """Exchanges whose client serves others."""
    serves = np.zeros(int(max(times.client.max(initial=0), times.server.max(initial=0))) + 2, dtype=np.bool_)
    serves[times.server[times.arrived != UNSEEN]] = True
    serves[-1] = False  # of hosts that are not known
    return serves[times.client] & (times.sent != UNSEEN)


def _receives_ids(times: _Times, shows_id: NDArray[np.bool_], has_head: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an exchange calls a service that receives ids, here or mostly, and would show its own.

    Arguments: `has_head`, whether the head of its request was seen, of each; one that was not shows nothing.
    """
    service = times.service.astype(np.int64) - NONE  # services that are not known are the first
    services = int(service.max(initial=0)) + 1
    shown, read = (np.bincount(service[which], minlength=services) for which in (shows_id, has_head))
    mostly = 2 * shown > read
    mostly[0] = False
    return (mostly[service] & has_head) | shows_id


def with_own_ids(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Whether each exchange is of a protocol whose ids never are those of a request of another protocol."""
    protocol, names = indices(exchanges["protocol"])
    own = np.array([name in WITH_OWN_IDS for name in names] + [False], dtype=np.bool_)
    return own[protocol]


def _infer_unresolved(
    visible: _Visible,
    times: _Times,
    shows_id: NDArray[np.bool_],
    begins_id: NDArray[np.bool_],
    receives_ids: NDArray[np.bool_],
    unresolved: Int64Array,
    links: Links,
) -> Int64Array:
    """Fill in the links that `infer_links` finds for `unresolved` exchanges without an id that could show their parent;
    returns those not judged."""
    silent = unresolved[~shows_id[unresolved] | begins_id[unresolved]]
    of_receivers, of_others = silent[receives_ids[silent]], silent[~receives_ids[silent]]
    done = np.zeros(len(visible.words), dtype=np.bool_)
    for children, eligible in ((of_receivers, ~shows_id), (of_others, np.ones_like(shows_id))):
        if len(children):  # a caller of a service that receives ids passes on that of the request it serves, if any
            _infer_among(visible, times, eligible, children, links, done)
    return unresolved[~done[unresolved]]


def _infer_among(
    visible: _Visible,
    times: _Times,
    eligible: NDArray[np.bool_],
    children: Int64Array,
    links: Links,
    done: NDArray[np.bool_],
) -> None:
    """Fill in the links of `children` to `eligible` parents. Calls like theirs take part, since a request that made one
    of those did not make one of these; their own links stay as they are."""
    kind = (times.client.astype(np.int64) << 32) + times.service
    asks = eligible & np.isin(kind, np.unique(kind[children]))
    among = np.flatnonzero(asks | (eligible & np.isin(times.server, np.unique(times.client[children]))))
    found = visible.infer(among, asks[among])
    judged = found.judged & np.isin(among, children)
    chosen = np.where(judged, found.parent, NONE)
    linked = chosen != NONE
    parents = among[chosen]
    fits = _arrived_before(times, among, parents)
    done[among] |= judged & (~linked | fits)
    fitting = judged & linked & fits
    links.parent[among[fitting]] = parents[fitting]
    links.confidence[among[fitting]] = found.confidence[fitting]
    others = among[found.alternative]
    next_fits = fitting & (found.alternative >= 0) & _arrived_before(times, among, others)
    links.alternative[among[next_fits]] = others[next_fits]
    links.alternative_confidence[among[next_fits]] = found.alternative_confidence[next_fits]


def _arrived_before(times: _Times, children: Int64Array, parents: Int64Array) -> NDArray[np.bool_]:
    known = (times.server[parents] >= 0) & (times.arrived[parents] != UNSEEN)
    return known & times.began_before(children, parents)


def _link_by_timing(
    times: _Times,
    shows_id: NDArray[np.bool_],
    receives_ids: NDArray[np.bool_],
    unresolved: Int64Array,
    links: Links,
) -> None:
    """Fill in links of exchanges that nothing else links: to the innermost candidate open on their host."""
    chosen, other = np.full(len(unresolved), NONE), np.full(len(unresolved), NONE)
    candidates = np.zeros(len(unresolved), dtype=np.int64)
    host, service = times.client[unresolved].astype(np.int64), times.service[unresolved].astype(np.int64)
    serving = np.flatnonzero((times.server >= 0) & (times.arrived != UNSEEN))
    serving = serving[np.lexsort((times.exchange_id[serving], times.arrived[serving]))]
    for group in rows_alike(host, receives_ids[unresolved]):
        chosen[group], other[group], candidates[group] = _innermost(
            times, unresolved[group], _eligible_requests(times, shows_id, receives_ids, serving, unresolved[group[0]])
        )
    single = (candidates == 1) & (chosen != NONE)
    calls = {*zip(times.service[chosen[single]].tolist(), service[single].tolist(), strict=True)}
    several = np.flatnonzero(candidates > 1)
    for among in rows_alike(host[several], receives_ids[unresolved[several]], service[several]):
        group = several[among]
        callers = [caller for caller, called in calls if called == service[group[0]] and min(caller, called) >= 0]
        parents = _eligible_requests(times, shows_id, receives_ids, serving, unresolved[group[0]])
        parents = parents[np.isin(times.service[parents], callers)]
        place, after, count = _innermost(times, unresolved[group], parents)
        found = place != NONE
        chosen[group[found]], other[group[found]], candidates[group[found]] = place[found], after[found], count[found]
    share, opened = np.empty(len(unresolved)), _open_shares(times, serving)
    for group in rows_alike(host, service):
        linked_count = int((chosen[group] != NONE).sum())
        share[group] = linked_count / len(group)
        share[group] *= made_by_requests(linked_count, len(group), opened[int(host[group[0]])])
    likely = share / np.maximum(candidates, 1)  # there are no candidates of a parent that ends before it begins
    linked = np.flatnonzero((chosen != NONE) & (likely >= LEAST_ODDS * (1 - share)))
    linked = linked[times.possible(unresolved[linked], chosen[linked])]
    links.parent[unresolved[linked]] = chosen[linked]
    links.confidence[unresolved[linked]] = likely[linked]
    linked = linked[(other[linked] != NONE) & times.possible(unresolved[linked], other[linked])]
    links.alternative[unresolved[linked]] = other[linked]
    links.alternative_confidence[unresolved[linked]] = links.confidence[unresolved[linked]]


def _open_shares(times: _Times, serving: Int64Array) -> defaultdict[int, float]:
    """For each host the share of the trace's time in which it served a request; 0 for a host that served none."""
    shares = defaultdict[int, float](float)
    if not len(serving):
        return shares
    known = [stamps[(stamps != UNSEEN) & (stamps != FOREVER)] for stamps in (times.sent, times.arrived, times.closed)]
    stamps = np.concatenate(known)
    for host in np.unique(times.server[serving]).tolist():
        here = serving[times.server[serving] == host]
        shares[host] = open_share(times.arrived[here], times.closed[here], int(stamps.min()), int(stamps.max()))
    return shares


def _eligible_requests(
    times: _Times, shows_id: NDArray[np.bool_], receives_ids: NDArray[np.bool_], serving: Int64Array, child: int
) -> Int64Array:
    """Server-side requests on the child's host; if the called service normally receives ids, only those without one."""
    here = serving[times.server[serving] == times.client[child]]
    return here[~shows_id[here]] if receives_ids[child] else here


def _innermost(times: _Times, children: Int64Array, parents: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """For each child of one host the parent that began last of those open at its start, the one before that, and how
    many were open.

    Arguments: rows; `parents` of that host, in the order in which they were opened.
    """
    if not len(parents):
        none = np.full(len(children), NONE)
        return none, none, np.zeros(len(children), dtype=np.int64)
    at, close = times.sent[children], times.closed[parents]
    begun = np.searchsorted(times.arrived[parents], at, side="left")
    candidates = begun - np.searchsorted(np.sort(close), at, side="left")
    place = last_at_least(close, begun, at)
    after = last_at_least(close, np.maximum(place, 0), at)
    return np.where(place >= 0, parents[place], NONE), np.where(after >= 0, parents[after], NONE), candidates


def last_at_least(values: Int64Array, before: Int64Array, least: Int64Array) -> Int64Array:
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
