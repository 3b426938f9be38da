"""How right links, their confidence, whole requests and ledgers are, as numbers.

Link accuracy: of the exchanges of logged requests that have a known parent, the share whose link leads to it, or to
another exchange of the same logged request; no link is wrong. A link given to a request that really came from outside
is counted apart. Calibration: links in ten bins of confidence;
ECE is the mean over all links of how far a bin's mean confidence is from the share of its links that are right (Naeini
et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.linking.truth import ROOT, Truth
from storage_cluster.bench.results.rows import Row

BINS = 10
CLIENT_SHARE, CLIENT_NS = 0.01, 50_000
"""A duration is right if it is within the larger of these of what the client measured."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Links of about one confidence."""

    confidence: float
    right_share: float
    count: int


@dataclass(frozen=True, slots=True)
class LinkScore:
    """How right the links of one trace are."""

    scored_count: int
    right_count: int
    roots_count: int
    roots_linked_count: int  # really from outside, but given a parent
    bins: tuple[Bin, ...]

    @property
    def accuracy(self) -> float:
        """Share of the children that have their true parent."""
        return self.right_count / max(1, self.scored_count)

    @property
    def calibration_error(self) -> float:
        """ECE."""
        count = sum(one.count for one in self.bins)
        return sum(one.count * abs(one.confidence - one.right_share) for one in self.bins) / max(1, count)


@dataclass(frozen=True, slots=True)
class WholeScore:
    """How many complete requests of the client have all their exchanges and none of others'."""

    complete_count: int
    whole_count: int
    foreign_count: int  # requests with an exchange of another


@dataclass(frozen=True, slots=True)
class LedgerScore:
    """How the ledgers of the client's requests add up, and agree with what the client measured."""

    requests_count: int
    adding_up_count: int
    measured_count: int
    agreeing_count: int
    median_difference_ns: int
    worst_difference_ns: int


def score_links(links: pl.DataFrame, truth: Truth) -> LinkScore:
    """Arguments: `exchange_id, parent_id, confidence` of every link; the truth of that trace."""
    line_of = truth.exchanges.select(parent_id="exchange_id", parent_line="line")
    known = truth.lines.drop_nulls("parent").select("line", true_line="parent")
    rows = (
        truth.exchanges.join(known, on="line")
        .join(links, on="exchange_id", how="left")
        .join(line_of, on="parent_id", how="left")
        .with_columns(right=pl.col("parent_line").is_in(pl.concat_list("true_line", "line")).fill_null(value=False))
    )
    children, roots = rows.filter(pl.col("true_line") != ROOT), rows.filter(pl.col("true_line") == ROOT)
    roots = roots.filter(~pl.col("right"))
    linked = rows.drop_nulls("parent_id")
    return LinkScore(
        scored_count=len(children),
        right_count=int(children["right"].sum()),
        roots_count=len(roots),
        roots_linked_count=roots["parent_id"].drop_nulls().len(),
        bins=_bins(linked["confidence"].to_numpy(), linked["right"].to_numpy()),
    )


def _bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    place = np.clip((confidence * BINS).astype(np.int64), 0, BINS - 1)
    chosen = [place == number for number in range(BINS)]
    return tuple(Bin(float(confidence[of].mean()), float(right[of].mean()), int(of.sum())) for of in chosen if of.any())


def score_whole(spans: pl.DataFrame, exchanges: pl.DataFrame, truth: Truth, client_host: str) -> WholeScore:
    """Arguments: the trace's `spans` and `exchanges`; exchanges that no log mentions are left out."""
    roots = exchanges.filter(pl.col("complete") & (pl.col("client_host").cast(pl.String) == client_host))
    mine = spans.filter(pl.col("parent_span_id").is_null()).join(
        roots, left_on="span_id", right_on="exchange_id", how="semi"
    )
    of_line = truth.exchanges.select("exchange_id", "line").join(_true_roots(truth), on="line")
    found = (
        spans.select("trace_id", exchange_id="span_id")
        .join(of_line, on="exchange_id")
        .select("trace_id", "line", "true_root")
    )
    found = found.unique(["trace_id", "line"]).join(mine.select("trace_id"), on="trace_id", how="semi")
    line_of_root = of_line.select(trace_id="exchange_id", root_line="line")
    sizes = _true_roots(truth).group_by("true_root").agg(size=pl.len())
    counted = (
        found.join(line_of_root, on="trace_id")
        .group_by("trace_id", "root_line")
        .agg(own=(pl.col("true_root") == pl.col("root_line")).sum(), all=pl.len())
        .join(sizes, left_on="root_line", right_on="true_root")
    )
    whole = (counted["own"] == counted["size"]) & (counted["all"] == counted["own"])
    return WholeScore(len(counted), int(whole.sum()), int((counted["all"] > counted["own"]).sum()))


def _true_roots(truth: Truth) -> pl.DataFrame:
    """`line, true_root` of every line whose ancestors are all known."""
    parents = dict(truth.lines.select("line", "parent").iter_rows())

    def root_of(line: int) -> int | None:
        while (parent := parents[line]) not in (ROOT, None):
            line = parent
        return None if parent is None else line

    found = [(line, root) for line in parents if (root := root_of(line)) is not None]
    return pl.DataFrame(found, {"line": pl.Int64, "true_root": pl.Int64}, orient="row")


def score_ledgers(spans: pl.DataFrame, exchanges: pl.DataFrame, rows: list[Row], client_host: str) -> LedgerScore:
    """Arguments: the trace's `spans` and `exchanges`; what the load generator noted of each attempt. What is between
    the SYN and the request, a client's pause or all the time that a connection was opened too early, is in no ledger,
    but in what the client measured; so it is added here."""
    own = pl.col("span_id") == pl.col("trace_id")
    ledger = spans.group_by("trace_id").agg(
        parts=pl.col("critical_ns").sum() + pl.col("pause_ns").filter(own).sum(),
        begun=pl.col("start_trace_ns").filter(own).first(),
    )
    ends = pl.coalesce("response_last_received_trace_ns", "response_last_sent_trace_ns", "given_up_trace_ns")
    starts = pl.coalesce("connect_start_trace_ns", "request_first_sent_trace_ns")
    roots = (
        exchanges.filter((pl.col("client_host").cast(pl.String) == client_host) & pl.col("complete"))
        .select("exchange_id", "transaction_id", took=ends - starts, starts=starts)
        .join(ledger, left_on="exchange_id", right_on="trace_id")
        .with_columns(pl.col("parts") + pl.col("begun") - pl.col("starts"))
    )
    measured = pl.DataFrame(
        [(row.transaction_id, row.duration_ns) for row in rows if row.transaction_id and not row.error],
        {"transaction_id": pl.String, "measured": pl.Int64},
        orient="row",
    ).unique("transaction_id", keep="none")
    both = roots.join(measured, on="transaction_id").with_columns(apart=(pl.col("measured") - pl.col("parts")).abs())
    apart = both["apart"].to_numpy()
    allowed = pl.max_horizontal(CLIENT_NS, CLIENT_SHARE * pl.col("measured"))
    return LedgerScore(
        requests_count=len(roots),
        adding_up_count=int((roots["parts"] == roots["took"]).sum()),
        measured_count=len(both),
        agreeing_count=int(both.select((pl.col("apart") <= allowed).sum()).item()),
        median_difference_ns=int(np.median(apart)) if len(apart) else 0,
        worst_difference_ns=int(apart.max(initial=0)),
    )
