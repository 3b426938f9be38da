"""Findings about the network: paths that are down, lossy, slow, narrow or reorder packets; damaged packets.

The other paths of the same trace define what is usual. A path is slow if its delay is high even at its best (a low
quantile). It is narrow if packets wait in a queue while it carries as much as it can: they arrive at one rate, one
behind the other, no matter how close they were sent; or its rate is the same in slice after slice, whatever the demand.
If packets wait while the rate varies, they wait for a busy host, or in a burst of their own, but not for the path. A
single pair of hosts can only be compared with itself at other times.

If most paths of a host have the same trouble, the finding names the host's own link; otherwise the link between the two
hosts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl
from msgspec import Struct

from collector import _core
from collector.findings.finding import Finding, SeverityThresholds, evidence, listing, times
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.symptoms import PAIR, Symptoms
from collector.hops.path_traffic import LATE_NS, SLICE_NS, bin_of_delay, delay_of_bin, rate_of_bin
from collector.services.ends import end_name
from collector.trace.durations import in_words
from collector.trace.threshold import threshold
from collector.trace.time_columns import UNSEEN

MEDIAN = 0.5


@dataclass(frozen=True, slots=True)
class NetworkThresholds:
    """By which the path between two hosts is judged. Slices of time are 250 ms long (`path_traffic.SLICE_NS`)."""

    down_least_lost_count: int = threshold(3, "chosen: fewer packets may be lost by chance")
    down_least_slices_count: int = threshold(2, "chosen: half a second; less is a burst of losses")
    late_ratio: float = threshold(
        8.0, "chosen: a path is late in a slice if its median delay is so many times the usual one"
    )
    late_least_ns: int = threshold(
        LATE_NS, "a shorter delay is no sign of trouble on any path: busy hosts alone add as much"
    )
    late_least_slices_count: int = threshold(3, "chosen: a shorter time is a burst")
    late_least_packets_count: int = threshold(20, "chosen: medians of fewer packets vary by chance")
    queue_delay_ratio: float = threshold(
        8.0,
        "chosen: packets wait in a queue if a late path's median delay is so many times its best; otherwise the "
        "path is long",
    )
    full_rate_share: float = threshold(
        0.93,
        "a path carries a constant rate if the median rate of its late slices is this share of their highest; "
        "chosen on recorded runs of the bundled cluster (docs/diagnosis.md)",
    )
    full_rate_quantile: float = threshold(0.9, "chosen: the rate that counts as the highest; single slices vary")
    full_least_slices_count: int = threshold(6, "chosen: a constant rate shows only over more than a second")
    full_delay_ratio: float = threshold(
        1.3, "chosen: the length of a queue varies, so a narrow path's median delay is so many times its best"
    )
    faster_train_ratio: float = threshold(
        3.0,
        "chosen: a path over which packets arrive so many times as fast as its constant rate can carry more; that "
        "rate is the pace of requests which wait for something else",
    )
    train_rate_share: float = threshold(
        0.7,
        "chosen: packets that leave a queue show its rate if this share of them arrived at one rate, a bin of 19 % "
        "or its neighbours; other packets between them, and a busy receiver, spread the rest",
    )
    train_least_packets_count: int = threshold(20, "chosen: fewer packets show no rate")
    queued_least_bytes: int = threshold(1500, "one packet: a shorter queue is none")
    overtaken_least_share: float = threshold(
        0.01, "a path with two queues reorders less by itself (RFC 4737 gives no norm; Linux tolerates 3 packets)"
    )
    overtaken_least_count: int = threshold(10, "chosen: fewer packets show no share")
    best_delay_quantile: float = threshold(
        0.02, "chosen: the delay that counts as a path's best; single stamps are off"
    )
    usual_path_quantile: float = threshold(
        1 / 3, "of all paths by delay, this one is usual: with few hosts, one bad host has half of the paths"
    )
    whole_host_share: float = threshold(
        0.7, "chosen: if so many of a host's paths have a trouble, it is of the host's own link"
    )


Pair = tuple[str, str]
"""Two hosts in the order of their names; one host twice for its packets to itself."""


class Place(Struct, frozen=True):
    """The place of a link's trouble: a host (`peer` is None), or between two hosts."""

    host: str
    peer: str | None
    pairs: tuple[Pair, ...]

    @property
    def words(self) -> str:
        """`the link of storage2`, `the link between proxy and storage2`."""
        return f"the link between {self.peer} and {self.host}" if self.peer else f"the link of {self.host}"


def places(weights: Mapping[Pair, float], active: Iterable[Pair], whole_host_share: float) -> list[Place]:
    """The fewest places that explain the pairs of hosts in trouble, heaviest first.

    Arguments: the weight of each pair in trouble; `active`, all pairs that sent anything; the share of a host's paths
    in trouble from which on the host's own link is the place.
    """
    left, every, found = dict(weights), {*active, *weights}, []
    while left:
        hosts = sorted({host for pair in left for host in pair})
        of = {host: [pair for pair in left if host in pair] for host in hosts}
        whole = [
            host
            for host in hosts
            if len(of[host]) > 1 and len(of[host]) >= whole_host_share * sum(host in pair for pair in every)
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


def find(seen: Observations, limits: NetworkThresholds) -> list[Finding]:
    """All findings about the paths between hosts."""
    return Paths(seen.symptoms, seen.requests, limits, seen.severity).findings()


class Paths:
    """All paths between two hosts of a trace: their traffic over time, and how long requests waited for them."""

    def __init__(
        self, symptoms: Symptoms, requests: Requests, limits: NetworkThresholds, severity: SeverityThresholds
    ) -> None:
        self.symptoms = symptoms
        self.traffic = symptoms.traffic
        self.rates = _path_rates(symptoms.rates, limits)
        self.arrival_rates = _median_rates(symptoms.rates)
        self.requests, self.total_ns = requests, requests.total_ns
        self.limits, self.severity = limits, severity

    @cached_property
    def active(self) -> set[Pair]:
        """All pairs of hosts with traffic."""
        ends = self.traffic.select(PAIR).unique().rows()
        return {_in_order(*pair) for pair in ends if pair[0] != pair[1]}

    def findings(self) -> list[Finding]:
        """All findings about paths."""
        return [
            *self._down_paths(),
            *self._slow_and_narrow_paths(),
            *self._reordering_paths(),
            *self._lossy_paths(),
            *self._damaged_packets(),
            *self._drops_in_hosts(),
        ]

    def _places(self, weights: Mapping[Pair, float]) -> list[Place]:
        return places(weights, self.active, self.limits.whole_host_share)

    def _down_paths(self) -> Iterable[Finding]:
        """Paths on which no packet arrived for a while."""
        dead = self._dead_runs()
        by_pair = {_pair(row): row for row in dead.iter_rows(named=True)}
        for place in self._places({pair: row["lost"] for pair, row in by_pair.items()}):
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
                text=f"no packet arrived on {place.words} for {in_words(end - begin)}: all {times(lost, 'packet')} "
                f"to or from {listing(others)} were lost, while both captures ran",
                remedy="check that cable, switch port or firewall (ip -s link, ethtool); the host itself may be "
                "healthy",
            )

    def _slow_and_narrow_paths(self) -> Iterable[Finding]:
        """Paths whose packets take much longer than on others: slow ones and narrow ones."""
        late = {(row["send_host"], row["receive_host"]): row for row in self._late_paths().iter_rows(named=True)}
        for kind in ("narrow_link", "slow_link"):
            of_kind = [row for row in late.values() if row["kind"] == kind]
            worst: dict[Pair, dict[str, int]] = {}
            for row in sorted(of_kind, key=lambda row: row["middle_ns"]):
                worst[_pair(row)] = row
            for place in self._places({pair: float(row["middle_ns"]) for pair, row in worst.items()}):
                yield self._late_finding(kind, place, [worst[pair] for pair in place.pairs])

    def _reordering_paths(self) -> Iterable[Finding]:
        """Paths on which packets overtake each other."""
        least = self.limits.overtaken_least_count
        if self.traffic["overtaken"].sum() < least:
            return
        counts = self.traffic.group_by(PAIR).agg(pl.col("overtaken", "data").sum(), _slices())
        share = pl.col("overtaken") / pl.col("data").clip(lower_bound=1)
        bad = counts.filter((pl.col("overtaken") >= least) & (share >= self.limits.overtaken_least_share))
        by_pair = _by_pair(bad, "overtaken", "data")
        for place in self._places({pair: row["overtaken"] for pair, row in by_pair.items()}):
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
                remedy="look for several paths or queues over which one connection is spread (bonding, ECMP, RPS)",
            )

    def _lossy_paths(self) -> Iterable[Finding]:
        """Data packets that the network lost."""
        lost = self.symptoms.lost.join(self.symptoms.sent, on=PAIR, how="left", nulls_equal=True, maintain_order="left")
        rows = {
            (row["send_host"], row["receive_host"]): row | {"sent": row["sent"] or row["lost"]}
            for row in lost.iter_rows(named=True)
        }
        seen = [row for row in rows.values() if row["receive_host"] is not None and row["send_host"] is not None]
        weights: dict[Pair, float] = {}
        for row in seen:
            weights[_pair(row)] = weights.get(_pair(row), 0) + row["lost"]
        for place in self._places(weights):
            yield self._loss(place, [row for row in seen if _pair(row) in place.pairs])
        for row in rows.values():
            if row not in seen:
                yield self._loss(None, [row])

    def _damaged_packets(self) -> Iterable[Finding]:
        """Data packets that arrived with a wrong checksum."""
        for (host,), rows in self.symptoms.damaged.group_by("receive_host", maintain_order=True):
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
                f"wrong there, so they were dropped and sent again; connections waited {in_words(cost)} for the "
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

    def _drops_in_hosts(self) -> Iterable[Finding]:
        """Data packets that reached a host's capture but not its TCP."""
        for (host,), rows in self.symptoms.dropped.group_by("receive_host", maintain_order=True):
            worst = rows.row(0, named=True)
            dropped, cost = int(rows["dropped"].sum()), int(rows["cost_ns"].sum())
            sent = int(self.symptoms.sent.filter(pl.col("receive_host") == host)["sent"].sum())
            senders = rows["send_host"].fill_null("hosts that were not captured").unique().sort().to_list()
            yield Finding(
                severity=self._loss_severity(dropped, sent, cost),
                kind="dropped_in_host",
                host=str(host),
                touches=frozenset(senders),
                count=dropped,
                text=f"{times(dropped, 'data packet')} from {listing(senders)} reached the capture on {host}, but not "
                f"its TCP ({100 * dropped / max(sent, dropped):.1f} %): they were not acknowledged, and were sent "
                f"again; connections "
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

    def _loss_severity(self, lost: int, sent: int, cost_ns: int) -> str:
        much = self.severity.is_much_lost(lost, sent)
        return "warning" if much else self.severity.by_cost(cost_ns, self.total_ns)

    def _loss(self, place: Place | None, rows: list[dict[str, int]]) -> Finding:
        lost, sent, cost = (sum(row[name] for row in rows) for name in ("lost", "sent", "cost_ns"))
        worst = max(rows, key=lambda row: row["worst_ns"])
        where = f"on {place.words}" if place and len(rows) > 1 else _ends_words(worst)
        return Finding(
            severity=self._loss_severity(lost, sent, cost),
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
                f"packets take {in_words(middle)} on {place.words}, in one direction or both; packets between the "
                f"hosts of "
                f"this trace usually take {in_words(usual)}"
            )
            remedy = "see what lies on that path (traceroute, ping): distance, a tunnel, a congested switch"
        else:
            rate = max(row["rate"] for row in rows)
            text = (
                f"{place.words} is narrow: it carries at most {rate / 1e6:.1f} Mbit/s, and packets wait "
                f"{in_words(middle)} in its queue; without a queue they take {in_words(usual)}"
            )
            remedy = "see what the link can carry and what else uses it (ethtool, tc -s qdisc, a shaper on the way)"
        return Finding(
            severity=self.severity.by_cost(cost, self.total_ns),
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
        if self.traffic["lost"].sum() < self.limits.down_least_lost_count:
            return pl.DataFrame()
        in_vain = self.traffic.filter(pl.col("lost") > 0).select(send_host=first, receive_host=second).unique()
        both = self.traffic.with_columns(send_host=first, receive_host=second).join(in_vain, on=PAIR, how="semi")
        slices = both.group_by(*PAIR, "slice").agg(pl.col("hops", "lost").sum()).sort(*PAIR, "slice")
        alive = pl.col("hops") > pl.col("lost")
        runs = slices.with_columns(run=alive.cum_sum().over(PAIR)).filter(~alive).group_by(*PAIR, "run").agg(
            pl.col("lost").sum(), begin=pl.col("slice").min() * SLICE_NS, end=(pl.col("slice").max() + 1) * SLICE_NS
        )  # fmt: skip
        least_ns = self.limits.down_least_slices_count * SLICE_NS
        long = pl.col("end") - pl.col("begin") >= least_ns
        dead = runs.filter((pl.col("lost") >= self.limits.down_least_lost_count) & long)
        return dead.sort("lost", descending=True).unique(PAIR, keep="first", maintain_order=True)

    def _late_paths(self) -> pl.DataFrame:
        """Directions between two hosts that are late for a while, with their delay, beginning and load."""
        came, limits = pl.col("hops") > pl.col("lost"), self.limits
        if not _may_be_late(self.traffic.lazy().filter(came), limits.late_least_ns):
            return pl.DataFrame()
        seen = self.traffic.filter((pl.col("bin") >= 0) & came)
        middle = _quantile(seen, [*PAIR, "slice"], MEDIAN, "middle_ns")
        whole = _quantile(seen, PAIR, MEDIAN, "whole_ns").with_columns(
            usual_ns=pl.col("whole_ns").quantile(limits.usual_path_quantile).cast(pl.Int64)
        )
        calm = middle.group_by(PAIR).agg(calm_ns=pl.col("middle_ns").min())
        few = len(whole) < 4  # two links at most: nothing but itself to be compared with
        usual = pl.col("calm_ns") if few else pl.col("usual_ns")
        ways = middle.join(whole, on=PAIR).join(calm, on=PAIR).with_columns(usual_ns=usual)
        late = ways.filter(
            (pl.col("middle_ns") >= limits.late_ratio * pl.col("usual_ns"))
            & (pl.col("middle_ns") >= pl.col("usual_ns") + limits.late_least_ns)
        )
        spans = seen.join(late.select(*PAIR, "slice", "usual_ns"), on=[*PAIR, "slice"])
        if spans.is_empty():
            return pl.DataFrame()
        figures = _quantile(spans, PAIR, MEDIAN, "middle_ns").join(
            _quantile(spans, PAIR, limits.best_delay_quantile, "best_ns"), on=PAIR
        )
        carried = spans.group_by(*PAIR, "slice", "usual_ns").agg(pl.col("hops", "bytes").sum())
        found = carried.group_by(PAIR).agg(
            _slices(),
            slices=pl.len(),
            packets=pl.col("hops").sum(),
            usual_ns=pl.col("usual_ns").first(),
            rate=pl.col("bytes").max() * 8e9 / SLICE_NS,  # bit/s
        )
        found = found.unnest("time").join(figures, on=PAIR)
        many = pl.col("packets") >= limits.late_least_packets_count
        found = found.filter((pl.col("slices") >= limits.late_least_slices_count) & many)
        found = found.join(_has_constant_rate(seen, late, limits), on=PAIR).join(self.rates, on=PAIR, how="left")
        found = found.join(self.arrival_rates, on=PAIR, how="left")
        can_carry_more = pl.col("arrival_rate") > limits.faster_train_ratio * pl.col("full_rate")
        full = (pl.col("full") & ~can_carry_more.fill_null(value=False)) | pl.col("train_rate").is_not_null()
        found = found.with_columns(rate=pl.coalesce("train_rate", "rate"))
        queued = pl.col("rate") * pl.col("middle_ns") / 8e9
        varies = pl.col("middle_ns") >= limits.full_delay_ratio * pl.col("best_ns")
        narrow = full & varies & (queued >= limits.queued_least_bytes)
        waits = pl.col("middle_ns") >= limits.queue_delay_ratio * pl.col("best_ns")
        kind = pl.when(narrow).then(pl.lit("narrow_link")).when(~waits).then(pl.lit("slow_link"))
        return found.with_columns(kind=kind).drop_nulls("kind").sort(PAIR)

    def _network_ns(self, place: Place, begin: int, end: int) -> int:
        """How long requests on those paths spent in the network meanwhile, on their critical paths (ns)."""
        rows = self._between(place, begin, end, "waited", "network_ns")
        return int(rows.filter("waited")["network_ns"].sum() or 0)

    def _unheard_ns(self, place: Place, begin: int, end: int) -> int:
        """How long requests waited for those paths meanwhile (ns)."""
        rows = self._between(place, begin, end, "begin", "ended", "pause_ns")
        return int(rows.select((pl.col("ended") - pl.col("begin") - pl.col("pause_ns")).sum()).item() or 0)

    def _between(self, place: Place, begin: int, end: int, *names: str) -> pl.DataFrame:
        """These columns of the requests on those paths meanwhile."""
        on = pl.lit(value=False)
        for pair in place.pairs:
            for client, server in (pair, pair[::-1]):
                on |= (pl.col("client_host") == client) & (pl.col("server_host") == server)
        requests = self.requests
        meanwhile = (requests.begin != UNSEEN) & (requests.begin < end) & (requests.ended > begin)
        return requests.frame(requests.where(on) & meanwhile, *names)


def _may_be_late(came: pl.LazyFrame, least_ns: int) -> bool:
    """Whether in some slice half of a direction's packets took so long that they may be late, whatever is usual.

    Arguments: traffic that arrived; the least delay that can be late.
    """
    way = [*PAIR, "slice"]
    slow = came.filter(pl.col("bin") >= bin_of_delay(least_ns)).group_by(way).agg(slow=pl.col("hops").sum()).collect()
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


def _has_constant_rate(seen: pl.DataFrame, late: pl.DataFrame, limits: NetworkThresholds) -> pl.DataFrame:
    """`send_host, receive_host, full, full_rate`: whether the path, or the link of one of its ends, had a constant rate
    in late slices, and the highest rate (bit/s) of all that had.

    Arguments: all traffic; the late directions, with `slice`; thresholds.
    """
    found = late.select(PAIR).unique()
    names: list[str] = []
    for keys in (PAIR, PAIR[:1], PAIR[1:]):
        rates = seen.group_by(*keys, "slice").agg(pl.col("bytes").sum())
        of_late = rates.join(late.select(*keys, "slice").unique(), on=[*keys, "slice"])
        names.append(f"full_{len(names)}")
        highest = pl.col("bytes").quantile(limits.full_rate_quantile)
        steady = pl.col("bytes").median() >= limits.full_rate_share * highest
        is_full = steady & (pl.len() >= limits.full_least_slices_count)
        rate = pl.when(is_full).then(highest * 8e9 / SLICE_NS).alias(f"{names[-1]}_rate")
        found = found.join(of_late.group_by(keys).agg(is_full.alias(names[-1]), rate), on=keys, how="left")
    highest_rate = pl.max_horizontal(f"{name}_rate" for name in names)
    return found.select(*PAIR, full=pl.any_horizontal(names), full_rate=highest_rate)


def _path_rates(rates: pl.DataFrame, limits: NetworkThresholds) -> pl.DataFrame:
    """`send_host, receive_host, train_rate` (bit/s) of paths from which late packets arrived at one rate."""
    rows, least = [], limits.train_least_packets_count
    for pair, bins in rates.group_by(PAIR) if len(rates) else ():
        hops: dict[int, int] = dict(bins.select("bin", "hops").iter_rows())
        most = max(hops, key=lambda place: hops[place])
        near = sum(hops.get(most + apart, 0) for apart in (-1, 0, 1))
        if sum(hops.values()) >= least and near >= limits.train_rate_share * sum(hops.values()):
            rows.append((*pair, rate_of_bin(most)))
    return pl.DataFrame(
        rows, schema={"send_host": pl.String, "receive_host": pl.String, "train_rate": pl.Float64}, orient="row"
    )


def _median_rates(rates: pl.DataFrame) -> pl.DataFrame:
    """`send_host, receive_host, arrival_rate` (bit/s): at least half of the late packets of a path arrived so fast."""
    rows = []
    for pair, bins in rates.group_by(PAIR) if len(rates) else ():
        ordered = bins.sort("bin")
        before = ordered["hops"].cum_sum()
        rows.append((*pair, rate_of_bin(ordered["bin"][int((2 * before < before[-1]).sum())])))
    return pl.DataFrame(
        rows, schema={"send_host": pl.String, "receive_host": pl.String, "arrival_rate": pl.Float64}, orient="row"
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


def _ends_words(row: Mapping[str, Any]) -> str:
    return f"from {end_name(row['send_host'])} to {end_name(row['receive_host'])}"
