"""Findings about network links: down, lossy, slow, narrow, reordering. Each names a host's link, or one between two
hosts.

The other links of the same trace define what is usual. A link is slow if its delay is high even at its best (a low
quantile). A link is narrow if packets wait in a queue while it carries as much as it can: they arrive at one rate, one
behind the other, no matter how close they were sent; or the link's rate is the same in slice after slice, whatever the
demand. If packets wait while the rate varies, they wait for a busy host, or in a burst of their own, but not for the
link. A single pair of hosts can only be compared with itself at other times.

If most links of a host have the same trouble, the host's own link is named; otherwise the link between the two hosts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from collector import _core
from collector.findings.finding import LOSS_LEAST, LOSS_SHARE, Finding, evidence, listing, times, weight
from collector.findings.requests import Requests
from collector.findings.symptoms import PAIR, Symptoms
from collector.hops.path_traffic import LATE_NS, SLICE_NS, bin_of_delay, delay_of_bin, rate_of_bin
from collector.services.ends import end_name
from collector.trace.durations import in_words
from collector.trace.time_columns import UNSEEN

DOWN_LOST, DOWN_SLICES = 3, 2
"""A link is down if no packet arrived while at least so many were sent over so many slices of time."""
LATE_RATIO = 8
"""A link is late in a slice if its median delay is this many times the usual one, and by `LATE_NS`."""
LATE_SLICES, LATE_PACKETS = 3, 20
"""Fewest late slices, and fewest packets in them, of a link that is reported as late."""
QUEUE_RATIO = 8
"""From this ratio of a late link's median to its best delay (2 %) on, packets wait in a queue; below, the path is
long."""
FULL_SHARE, FULL_QUANTILE, FULL_SLICES, FULL_RATIO = 0.93, 0.9, 6, 1.3
"""A link is full in its late slices if their median rate is this share of their highest (this quantile), over so many
slices, and if the median delay is this many times the best: the length of a queue varies."""
RATE_SHARE, RATE_LEAST = 0.7, 20
"""Packets that leave a queue show its rate if this share of so many lie in one bin of rates (an octave has four) or its
neighbours: other packets between them, and a busy receiver, spread the rest."""
QUEUED_BYTES = 1500
"""Fewest bytes in a queue, one packet. The queue's length is its rate multiplied by the wait."""
OVERTAKEN_SHARE, OVERTAKEN_LEAST = 0.01, 10
"""A path with two queues reorders less by itself (RFC 4737 gives no norm; Linux tolerates 3 packets)."""
BEST, MIDDLE = 0.02, 0.5
USUAL = 1 / 3
"""Quantile of all links, by delay, that counts as usual: with few hosts, one bad host has half of the links."""
HOST_SHARE = 0.7
"""Share of a host's links that must have a trouble for it to be the host's own link."""

Pair = tuple[str, str]
"""Two hosts in the order of their names; one host twice for its packets to itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a link's trouble: a host (`peer` is None), or between two hosts."""

    host: str
    peer: str | None
    pairs: tuple[Pair, ...]

    @property
    def words(self) -> str:
        """`the link of storage2`, `the link between proxy and storage2`."""
        return f"the link between {self.peer} and {self.host}" if self.peer else f"the link of {self.host}"


def places(wrong: Mapping[Pair, float], active: Iterable[Pair]) -> list[Place]:
    """The fewest places that explain the pairs of hosts in trouble, heaviest first.

    Arguments: `wrong`, each pair's weight; `active`, all pairs that sent anything.
    """
    left, every, found = dict(wrong), {*active, *wrong}, []
    while left:
        hosts = sorted({host for pair in left for host in pair})
        of = {host: [pair for pair in left if host in pair] for host in hosts}
        whole = [
            host
            for host in hosts
            if len(of[host]) > 1 and len(of[host]) >= HOST_SHARE * sum(host in pair for pair in every)
        ]
        if whole:
            best = max(whole, key=lambda host: sum(left[pair] for pair in of[host]))
            found.append(Place(best, None, tuple(of[best])))
        else:
            pair = max(left, key=lambda each: left[each])
            peer, host = pair
            found.append(Place(host, peer if peer != host else None, (pair,)))
        for pair in found[-1].pairs:
            del left[pair]
    return found


class Links:
    """All links of a trace: their traffic over time, and how long requests waited for them."""

    def __init__(self, troubles: Symptoms, requests: Requests) -> None:
        self.troubles = troubles
        self.traffic = troubles.traffic
        self.rates = _link_rates(troubles.rates)
        self.requests, self.total_ns = requests, requests.total_ns

    @cached_property
    def active(self) -> set[Pair]:
        """All pairs of hosts with traffic."""
        ends = self.traffic.select(PAIR).unique().rows()
        return {_in_order(*pair) for pair in ends if pair[0] != pair[1]}

    def findings(self) -> list[Finding]:
        """All findings about links."""
        return [
            *self.down(),
            *self.late(),
            *self.reordering(),
            *self.losses(),
            *self.damaged(),
            *self.dropped_in_hosts(),
        ]

    def down(self) -> Iterable[Finding]:
        """Links on which no packet arrived for a while."""
        dead = self._dead_runs()
        by_pair = {_pair(row): row for row in dead.iter_rows(named=True)}
        for place in places({pair: row["lost"] for pair, row in by_pair.items()}, self.active):
            rows = [by_pair[pair] for pair in place.pairs]
            begin, end = min(row["begin"] for row in rows), max(row["end"] for row in rows)
            lost = sum(row["lost"] for row in rows)
            others = sorted({host for pair in place.pairs for host in pair} - {place.host})
            yield Finding(
                severity="warning",
                kind="link_down",
                host=place.host,
                peer_host=place.peer,
                count=lost,
                from_trace_ns=begin,
                to_trace_ns=end,
                cost_ns=self._unheard_ns(place, begin, end),
                text=f"nothing came through on {place.words} for {in_words(end - begin)}: all {times(lost, 'packet')} "
                f"to or from {listing(others)} were lost, though both captures ran",
                remedy="look at that cable, switch port or firewall (ip -s link, ethtool); the host itself may be well",
            )

    def late(self) -> Iterable[Finding]:
        """Links whose packets take much longer than on others: slow ones and narrow ones."""
        late = {(row["send_host"], row["receive_host"]): row for row in self._late_ways().iter_rows(named=True)}
        for kind in ("narrow_link", "slow_link"):
            of_kind = [row for row in late.values() if row["kind"] == kind]
            worst: dict[Pair, dict[str, int]] = {}
            for row in sorted(of_kind, key=lambda row: row["middle_ns"]):
                worst[_pair(row)] = row
            for place in places({pair: float(row["middle_ns"]) for pair, row in worst.items()}, self.active):
                yield self._late_finding(kind, place, [worst[pair] for pair in place.pairs])

    def reordering(self) -> Iterable[Finding]:
        """Links on which packets overtake each other."""
        if self.traffic["overtaken"].sum() < OVERTAKEN_LEAST:
            return
        counts = self.traffic.group_by(PAIR).agg(pl.col("overtaken", "data").sum(), _slices())
        share = pl.col("overtaken") / pl.col("data").clip(lower_bound=1)
        bad = counts.filter((pl.col("overtaken") >= OVERTAKEN_LEAST) & (share >= OVERTAKEN_SHARE))
        by_pair = _by_pair(bad, "overtaken", "data")
        for place in places({pair: row["overtaken"] for pair, row in by_pair.items()}, self.active):
            rows = [by_pair[pair] for pair in place.pairs]
            overtaken, data = (sum(row[name] for row in rows) for name in ("overtaken", "data"))
            begin, end = min(row["begin"] for row in rows), max(row["end"] for row in rows)
            yield Finding(
                severity="warning",
                kind="reordering",
                host=place.host,
                peer_host=place.peer,
                count=overtaken,
                from_trace_ns=begin,
                to_trace_ns=end,
                cost_ns=self._network_ns(place, begin, end),
                text=f"packets overtake each other on {place.words}: {times(overtaken, 'data packet')} of {data:,} "
                f"({100 * overtaken / data:.1f} %) arrived after one sent later",
                remedy="look for several paths or queues that one connection is spread over (bonding, ECMP, RPS)",
            )

    def losses(self) -> Iterable[Finding]:
        """Data packets that the network lost."""
        lost = self.troubles.lost.join(self.troubles.sent, on=PAIR, how="left", nulls_equal=True, maintain_order="left")
        rows = {
            (row["send_host"], row["receive_host"]): row | {"sent": row["sent"] or row["lost"]}
            for row in lost.iter_rows(named=True)
        }
        seen = [row for row in rows.values() if row["receive_host"] is not None and row["send_host"] is not None]
        weights: dict[Pair, float] = {}
        for row in seen:
            weights[_pair(row)] = weights.get(_pair(row), 0) + row["lost"]
        for place in places(weights, self.active):
            yield self._loss(place, [row for row in seen if _pair(row) in place.pairs])
        for row in rows.values():
            if row not in seen:
                yield self._loss(None, [row])

    def damaged(self) -> Iterable[Finding]:
        """Data packets that arrived with a wrong checksum."""
        for (host,), rows in self.troubles.damaged.group_by("receive_host", maintain_order=True):
            worst = rows.row(0, named=True)
            count, cost = int(rows["dropped"].sum()), int(rows["cost_ns"].sum())
            known = rows["send_host"].drop_nulls().unique().sort().to_list()
            senders = listing(known) or "hosts that were not captured"
            yield Finding(
                severity="warning",
                kind="damaged_packets",
                host=str(host),
                peer_host=known[0] if len(known) == 1 else None,
                touches=frozenset(known),
                count=count,
                text=f"{times(count, 'data packet')} from {senders} reached {host} damaged: their TCP checksums are "
                f"wrong there, so they were dropped, and sent again; connections waited {in_words(cost)} for the "
                f"copies, at worst {in_words(worst['worst_ns'])} at once",
                remedy=f"look for the cable, port, card or memory that flips bits on the way to {host} (ethtool -S; "
                "nstat TcpInCsumErrors; counters of CRC errors at the switch)",
                **{
                    **evidence(worst),
                    "cost_ns": cost,
                    "from_trace_ns": rows["begin_ns"].min(),
                    "to_trace_ns": rows["end_ns"].max(),
                },
            )

    def dropped_in_hosts(self) -> Iterable[Finding]:
        """Data packets that reached a host's capture but not its TCP."""
        for (host,), rows in self.troubles.dropped.group_by("receive_host", maintain_order=True):
            worst = rows.row(0, named=True)
            dropped, cost = int(rows["dropped"].sum()), int(rows["cost_ns"].sum())
            sent = int(self.troubles.sent.filter(pl.col("receive_host") == host)["sent"].sum())
            much = dropped >= LOSS_LEAST and dropped >= LOSS_SHARE * sent
            senders = rows["send_host"].fill_null("hosts that were not captured").unique().sort().to_list()
            yield Finding(
                severity="warning" if much else weight(cost, self.total_ns),
                kind="dropped_in_host",
                host=str(host),
                touches=frozenset(senders),
                count=dropped,
                text=f"{times(dropped, 'data packet')} from {listing(senders)} reached the capture on {host}, but not "
                f"its TCP ({100 * dropped / max(sent, dropped):.1f} %): not acknowledged, and sent again; connections "
                f"waited {in_words(cost)} for the copies, at worst {in_words(worst['worst_ns'])} at once",
                remedy=f"look at the firewall and the socket buffers of {host} (nft list ruleset; nstat "
                "TcpExtTCPRcvQDrop TcpExtTCPBacklogDrop TcpExtPruneCalled TcpInCsumErrors)",
                **{
                    **evidence(worst),
                    "cost_ns": cost,
                    "from_trace_ns": rows["begin_ns"].min(),
                    "to_trace_ns": rows["end_ns"].max(),
                },
            )

    def _loss(self, place: Place | None, rows: list[dict[str, int]]) -> Finding:
        lost, sent, cost = (sum(row[name] for row in rows) for name in ("lost", "sent", "cost_ns"))
        worst = max(rows, key=lambda row: row["worst_ns"])
        where = f"on {place.words}" if place and len(rows) > 1 else _way(worst)
        much = lost >= LOSS_LEAST and lost >= LOSS_SHARE * sent
        return Finding(
            severity="warning" if much else weight(cost, self.total_ns),
            kind="packet_loss",
            host=place.host if place else worst["send_host"] or worst["receive_host"],  # type: ignore[arg-type]
            peer_host=place.peer if place else None,
            count=lost,
            text=f"{times(lost, 'data packet')} {where} lost ({100 * lost / sent:.1f} %); connections waited "
            f"{in_words(cost)} for the copies, at worst {in_words(worst['worst_ns'])} at once",
            remedy="look for drops on the path and at both interfaces (ip -s link, tc -s qdisc, ethtool -S)",
            **{
                **evidence(worst),
                "cost_ns": cost,
                "from_trace_ns": min(row["from_trace_ns"] for row in rows),
                "to_trace_ns": max(row["to_trace_ns"] for row in rows),
            },
        )

    def _late_finding(self, kind: str, place: Place, rows: list[dict[str, int]]) -> Finding:
        begin, end = min(row["begin"] for row in rows), max(row["end"] for row in rows)
        middle, usual = max(row["middle_ns"] for row in rows), rows[0]["usual_ns"]
        cost = self._network_ns(place, begin, end)
        if kind == "slow_link":
            text = (
                f"packets take {in_words(middle)} on {place.words}, each way or both, where they usually take "
                f"{in_words(usual)} between these hosts"
            )
            remedy = "see what lies on that path (traceroute, ping): distance, a tunnel, a congested switch"
        else:
            rate = max(row["rate"] for row in rows)
            text = (
                f"{place.words} is narrow: packets wait {in_words(middle)} in a queue for it while it carries at most "
                f"{rate / 1e6:.1f} Mbit/s; idle it takes {in_words(usual)}"
            )
            remedy = "see what the link can carry and what else uses it (ethtool, tc -s qdisc, a shaper on the way)"
        return Finding(
            severity=weight(cost, self.total_ns),
            kind=kind,
            host=place.host,
            peer_host=place.peer,
            count=sum(row["packets"] for row in rows),
            from_trace_ns=begin,
            to_trace_ns=end,
            cost_ns=cost,
            text=text,
            remedy=remedy,
        )

    def _dead_runs(self) -> pl.DataFrame:
        """For each pair of hosts, the longest time in which all packets were lost: `send_host` …, `lost`."""
        first, second = pl.min_horizontal(PAIR), pl.max_horizontal(PAIR)
        if self.traffic["lost"].sum() < DOWN_LOST:
            return pl.DataFrame()
        in_vain = self.traffic.filter(pl.col("lost") > 0).select(send_host=first, receive_host=second).unique()
        both = self.traffic.with_columns(send_host=first, receive_host=second).join(in_vain, on=PAIR, how="semi")
        slices = both.group_by(*PAIR, "slice").agg(pl.col("hops", "lost").sum()).sort(*PAIR, "slice")
        alive = pl.col("hops") > pl.col("lost")
        runs = slices.with_columns(run=alive.cum_sum().over(PAIR)).filter(~alive).group_by(*PAIR, "run").agg(
            pl.col("lost").sum(), begin=pl.col("slice").min() * SLICE_NS, end=(pl.col("slice").max() + 1) * SLICE_NS
        )  # fmt: skip
        dead = runs.filter((pl.col("lost") >= DOWN_LOST) & (pl.col("end") - pl.col("begin") >= DOWN_SLICES * SLICE_NS))
        return dead.sort("lost", descending=True).unique(PAIR, keep="first", maintain_order=True)

    def _late_ways(self) -> pl.DataFrame:
        """Directions between two hosts that are late for a while, with their delay, beginning and load."""
        came = pl.col("hops") > pl.col("lost")
        if not _may_be_late(self.traffic.lazy().filter(came)):
            return pl.DataFrame()
        seen = self.traffic.filter((pl.col("bin") >= 0) & came)
        middle = _quantile(seen, [*PAIR, "slice"], MIDDLE, "middle_ns")
        whole = _quantile(seen, PAIR, MIDDLE, "whole_ns").with_columns(
            usual_ns=pl.col("whole_ns").quantile(USUAL).cast(pl.Int64)
        )
        calm = middle.group_by(PAIR).agg(calm_ns=pl.col("middle_ns").min())
        few = len(whole) < 4  # two links at most: nothing but itself to be compared with
        usual = pl.col("calm_ns") if few else pl.col("usual_ns")
        ways = middle.join(whole, on=PAIR).join(calm, on=PAIR).with_columns(usual_ns=usual)
        late = ways.filter(
            (pl.col("middle_ns") >= LATE_RATIO * pl.col("usual_ns"))
            & (pl.col("middle_ns") >= pl.col("usual_ns") + LATE_NS)
        )
        spans = seen.join(late.select(*PAIR, "slice", "usual_ns"), on=[*PAIR, "slice"])
        if spans.is_empty():
            return pl.DataFrame()
        figures = _quantile(spans, PAIR, MIDDLE, "middle_ns").join(_quantile(spans, PAIR, BEST, "best_ns"), on=PAIR)
        carried = spans.group_by(*PAIR, "slice", "usual_ns").agg(pl.col("hops", "bytes").sum())
        found = carried.group_by(PAIR).agg(
            _slices(),
            slices=pl.len(),
            packets=pl.col("hops").sum(),
            usual_ns=pl.col("usual_ns").first(),
            rate=pl.col("bytes").max() * 8e9 / SLICE_NS,  # bit/s
        )
        found = found.unnest("time").join(figures, on=PAIR)
        found = found.filter((pl.col("slices") >= LATE_SLICES) & (pl.col("packets") >= LATE_PACKETS))
        found = found.join(_full(seen, late), on=PAIR).join(self.rates, on=PAIR, how="left")
        found = found.with_columns(rate=pl.coalesce("link_rate", "rate"))
        queued = pl.col("rate") * pl.col("middle_ns") / 8e9
        full = pl.col("full") | pl.col("link_rate").is_not_null()
        narrow = full & (pl.col("middle_ns") >= FULL_RATIO * pl.col("best_ns")) & (queued >= QUEUED_BYTES)
        waits = pl.col("middle_ns") >= QUEUE_RATIO * pl.col("best_ns")
        kind = pl.when(narrow).then(pl.lit("narrow_link")).when(~waits).then(pl.lit("slow_link"))
        return found.with_columns(kind=kind).drop_nulls("kind").sort(PAIR)

    def _network_ns(self, place: Place, begin: int, end: int) -> int:
        """How long requests on those links spent in the network meanwhile, on their critical paths (ns)."""
        return int(self._between(place, begin, end).filter("waited")["network_ns"].sum() or 0)

    def _unheard_ns(self, place: Place, begin: int, end: int) -> int:
        """How long requests waited for those links meanwhile (ns)."""
        rows = self._between(place, begin, end)
        return int(rows.select((pl.col("ended") - pl.col("begin") - pl.col("pause_ns")).sum()).item() or 0)

    def _between(self, place: Place, begin: int, end: int) -> pl.DataFrame:
        on = pl.lit(value=False)
        for pair in place.pairs:
            for client, server in (pair, pair[::-1]):
                on |= (pl.col("client_host") == client) & (pl.col("server_host") == server)
        requests = self.requests
        meanwhile = (requests.begin != UNSEEN) & (requests.begin < end) & (requests.ended > begin)
        return requests.frame(requests.where(on) & meanwhile)


def _may_be_late(came: pl.LazyFrame) -> bool:
    """Whether in some slice half of a direction's packets took so long that they may be late, whatever is usual.

    Arguments: traffic that arrived.
    """
    way = [*PAIR, "slice"]
    slow = came.filter(pl.col("bin") >= bin_of_delay(LATE_NS)).group_by(way).agg(slow=pl.col("hops").sum()).collect()
    if slow.is_empty():
        return False
    whole = came.filter(pl.col("bin") >= 0).join(slow.lazy(), on=way).group_by(way)
    shares = whole.agg(pl.col("hops").sum(), pl.col("slow").first())
    return shares.filter(2 * pl.col("slow") >= pl.col("hops")).collect().height > 0


def _pair(row: Mapping[str, object]) -> Pair:
    return _in_order(str(row["send_host"]), str(row["receive_host"]))


def _in_order(one: str, other: str) -> Pair:
    return min(one, other), max(one, other)


def _by_pair(rows: pl.DataFrame, *counts: str) -> dict[Pair, dict[str, int]]:
    """Rows of both directions, merged to one for each pair."""
    first, second = pl.min_horizontal(PAIR), pl.max_horizontal(PAIR)
    both = rows.unnest("time").group_by(send_host=first, receive_host=second).agg(
        pl.col(counts).sum(), pl.col("begin").min(), pl.col("end").max()
    )  # fmt: skip
    return {_pair(row): row for row in both.iter_rows(named=True)}


def _full(seen: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """`send_host, receive_host, full`: whether the link, or that of one of its ends, had a constant rate in late
    slices.

    Arguments: all traffic; the late directions, with `slice`.
    """
    found = late.select(PAIR).unique()
    names: list[str] = []
    for keys in (PAIR, PAIR[:1], PAIR[1:]):
        rates = seen.group_by(*keys, "slice").agg(pl.col("bytes").sum())
        of_late = rates.join(late.select(*keys, "slice").unique(), on=[*keys, "slice"])
        names.append(f"full_{len(names)}")
        steady = pl.col("bytes").median() >= FULL_SHARE * pl.col("bytes").quantile(FULL_QUANTILE)
        full = of_late.group_by(keys).agg((steady & (pl.len() >= FULL_SLICES)).alias(names[-1]))
        found = found.join(full, on=keys, how="left")
    return found.select(*PAIR, full=pl.any_horizontal(names))


def _link_rates(rates: pl.DataFrame) -> pl.DataFrame:
    """`send_host, receive_host, link_rate` (bit/s) of links from which late packets arrived at one rate."""
    rows = []
    for pair, bins in rates.group_by(PAIR) if len(rates) else ():
        hops: dict[int, int] = dict(bins.select("bin", "hops").iter_rows())
        most = max(hops, key=lambda place: hops[place])
        near = sum(hops.get(most + apart, 0) for apart in (-1, 0, 1))
        if sum(hops.values()) >= RATE_LEAST and near >= RATE_SHARE * sum(hops.values()):
            rows.append((*pair, rate_of_bin(most)))
    return pl.DataFrame(
        rows, schema={"send_host": pl.String, "receive_host": pl.String, "link_rate": pl.Float64}, orient="row"
    )


def _slices() -> pl.Expr:
    begin, end = pl.col("slice").min() * SLICE_NS, (pl.col("slice").max() + 1) * SLICE_NS
    return pl.struct(begin=begin, end=end).alias("time")


def _quantile(rows: pl.DataFrame, keys: list[str], share: float, name: str) -> pl.DataFrame:
    """The delay below which this share of hops stays, for each of `keys`, from the histogram."""
    slices = pl.col("slice").rank("dense").cast(pl.Int32)  # they may lie decades apart
    hosts = pl.col(pl.String).cast(pl.Categorical).to_physical().cast(pl.Int32).fill_null(-1)
    codes = rows.select(keys).with_columns(hosts, *([slices] if "slice" in keys else []))
    group, first = _core.row_groups([codes[key].to_numpy() for key in keys])
    bins = _core.quantile_bins(group, rows["bin"].to_numpy(), rows["hops"].to_numpy(), share)
    return rows[first].select(*keys, delay_of_bin(pl.lit(pl.Series(bins))).alias(name))


def _way(row: Mapping[str, Any]) -> str:
    return f"from {end_name(row['send_host'])} to {end_name(row['receive_host'])}"
