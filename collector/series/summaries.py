"""The summary of a period: what stays of its requests, packets and findings when its trace is removed.

- `requests`: requests by the minute in which they began, and by class (`CLASS`): how many, how they ended, and how long
  they took, as a histogram with `BUCKETS_PER_OCTAVE` buckets for each factor of two. Histograms of any classes and
  times add up, and a percentile of a sum is at most 2.2 % off. Of clients' own requests also where their time went,
  with all that was called for them: the columns of the ledger.
- `packets`: hops by the minute and by hosts: matched, lost, retransmitted.
- `findings`: the table of the trace as it is.

What counts as a client's own request, as failed and as abandoned is what a report counts. Durations are those of
requests that were not abandoned.
Cost: a pass over each table, three over the exchanges. Memory: a row group of each table, 16 bytes for each of clients'
own requests.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.reporting.request_rows import RequestRows
from collector.requests.outcomes import Outcome, is_abandoned
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.client_requests import of_clients
from collector.trace.reading import Trace
from collector.trace.schema import HopState
from collector.trace.time_columns import Int64Array
from tracer.errors import InputError

MINUTE_NS = 60 * 10**9
BUCKETS_PER_OCTAVE = 16
CLASS = ("server_host", "service", "protocol", "method", "operation", "is_client")
MOST_CLASSES = 200
"""At most so many classes of a period are kept apart, those with the most requests; all others are one, `OTHER`."""
OTHER = "other"
COUNTS = ("requests_count", "failed_count", "abandoned_count", "unknown_count", "request_bytes", "response_bytes")
TABLES = ("requests", "packets", "findings")
HOP_COLUMNS = (
    "send_host",
    "receive_host",
    "send_trace_ns",
    "receive_trace_ns",
    "state",
    "attempt",
    "stream_start",
    "stream_end",
)
PACKET_COUNTS = ("hops_count", "matched_count", "lost_count", "retransmitted_count", "bytes")
_TEXTS = ("server_host", "service", "protocol", "method", "operation")
_ENDS = ("client_host", "server_host", "background")
"""What shows whether a root request is a client's own."""
_OF_REQUESTS = (
    *("trace_id", "depth", *dict.fromkeys((*_ENDS, *_TEXTS)), "outcome"),
    *("request_bytes", "response_bytes", "start_trace_ns", "end_trace_ns", "pause_ns"),
)
_KEY = ("minute_trace_ns", *CLASS)


def write_summary(trace: Trace, from_ns: int, to_ns: int, place: Path) -> None:
    """Write the summary of a trace to a folder, in place of one that is there. Raises: OSError, InputError."""
    partial = place.with_name(f".{place.name}.00000000.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, table in zip(TABLES, make_summary(trace, from_ns, to_ns), strict=True):
        table.write_parquet(partial / f"{name}.parquet")
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)


def read_summary(place: Path, table: str) -> pl.DataFrame:
    """A table of a summary. Raises: InputError if it is missing or damaged."""
    try:
        return pl.read_parquet(place / f"{table}.parquet")
    except (OSError, pl.exceptions.PolarsError):
        raise InputError(
            f"the summary {place} cannot be read", "make the series again, if its captures are there"
        ) from None


def make_summary(trace: Trace, from_ns: int, to_ns: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The tables `requests`, `packets` and `findings` of a period [from, to)."""
    findings = pl.DataFrame(trace.read("findings")).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return request_minutes(RequestRows.of_trace(trace)), packet_minutes(trace, from_ns, to_ns), findings


def request_minutes(rows: RequestRows) -> pl.DataFrame:
    """The table `requests`."""
    sums = _sums_of_parts(rows, _ends_of_clients(rows))
    number, groups = _with_most_classes(sums.groups)
    counted = groups.group_by("group").agg(pl.col(COUNTS).sum())
    found = groups.select("group", *_KEY).unique(maintain_order=True).join(counted, on="group")
    counts = sums.buckets.with_columns(group=number[sums.buckets["group"]])
    found = found.join(_histograms(counts), on="group", how="left")
    found = found.join(_ledgers(rows, sums.roots, number[sums.groups_of_roots]), on="group", how="left").drop("group")
    texts = (pl.col(name).cast(pl.String).fill_null("") for name in _TEXTS)
    return found.with_columns(*texts, pl.col(LEDGER_COLUMNS).fill_null(0)).sort(_KEY)


def packet_minutes(trace: Trace, from_ns: int, to_ns: int) -> pl.DataFrame:
    """The table `packets`: hops within [from, to)."""
    key = ["minute_trace_ns", "send_host", "receive_host"]
    at, state = pl.coalesce("send_trace_ns", "receive_trace_ns"), pl.col("state").cast(pl.String)
    is_matched = state.is_in([str(HopState.MATCHED)])
    parts = [_no_packets()]
    for batch in trace.batches("hops", HOP_COLUMNS):
        hops = (
            pl.DataFrame(batch)
            .filter((at >= from_ns) & (at < to_ns))
            .with_columns(
                pl.col("send_host", "receive_host").cast(pl.String).fill_null(""),
                minute_trace_ns=at // MINUTE_NS * MINUTE_NS,
            )
        )
        parts.append(
            hops.group_by(key).agg(
                hops_count=pl.len().cast(pl.Int64),
                matched_count=is_matched.sum().cast(pl.Int64),
                lost_count=(state == str(HopState.LOST)).sum().cast(pl.Int64),
                retransmitted_count=(pl.col("attempt") > 1).sum().cast(pl.Int64),
                bytes=(pl.col("stream_end") - pl.col("stream_start")).filter(is_matched).sum(),
            )
        )
    return pl.concat(parts).group_by(key).agg(pl.col(PACKET_COUNTS).sum()).sort(key)


def buckets_of(durations_ns: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The bucket of each duration, which is positive."""
    return np.floor(np.log2(durations_ns) * BUCKETS_PER_OCTAVE).astype(np.uint16)


def merge_requests(rows: pl.DataFrame, by: Iterable[str]) -> pl.DataFrame:
    """Rows of `requests` added up by some columns."""
    key = list(by)
    sums = rows.group_by(key, maintain_order=True).agg(pl.col((*COUNTS, *LEDGER_COLUMNS)).sum())
    long = rows.select(*key, "duration_buckets", "duration_counts").explode("duration_buckets", "duration_counts")
    counted = (
        long.drop_nulls("duration_buckets").group_by(*key, "duration_buckets").agg(pl.col("duration_counts").sum())
    )
    lists = (
        counted.sort("duration_buckets").group_by(key, maintain_order=True).agg("duration_buckets", "duration_counts")
    )
    return sums.join(lists, on=key, how="left", nulls_equal=True, maintain_order="left")


def percentiles(rows: pl.DataFrame, share: float) -> list[float | None]:
    """Of each row's histogram the duration (ns) that `share` (0 to 1) of those in it do not exceed, by nearest rank:
    the middle (geometric) of its bucket. None without any."""
    flat = (
        rows.select("duration_buckets", "duration_counts")
        .with_row_index("row")
        .explode("duration_buckets", "duration_counts")
        .drop_nulls("duration_buckets")
        .sort("row", "duration_buckets")
    )
    number, buckets, counts = (flat[name].to_numpy() for name in ("row", "duration_buckets", "duration_counts"))
    found = flat_percentiles(number, buckets, counts, len(rows), share)
    return [None if np.isnan(value) else value for value in found.tolist()]


def flat_percentiles(
    number: NDArray[np.integer],
    buckets: NDArray[np.integer],
    counts: NDArray[np.integer],
    rows_count: int,
    share: float,
) -> NDArray[np.float64]:
    """As `percentiles`, of `rows_count` histograms: float64 ns of that shape, NaN for one without durations.

    Arguments: for each bucket of each histogram its number, the bucket and its count, by number and bucket ascending.
    """
    total = np.bincount(number, counts, minlength=rows_count).astype(np.int64)
    found = np.full(rows_count, np.nan)
    has_any = total > 0
    before = np.cumsum(total) - total
    rank = np.maximum(1, np.ceil(share * total[has_any]).astype(np.int64))
    place = np.searchsorted(np.cumsum(counts, dtype=np.int64), before[has_any] + rank)
    found[has_any] = 2 ** ((buckets[place] + 0.5) / BUCKETS_PER_OCTAVE)
    return found


class _Sums(Struct):
    """What was counted of parts of the requests, by group: those of one part, minute and class."""

    groups: pl.DataFrame  # `_KEY` and `COUNTS`; the number of a group is its row
    buckets: pl.DataFrame  # `group, bucket, duration_counts`
    roots: Int64Array  # `trace_id` of clients' requests that ended and were not abandoned, ascending
    groups_of_roots: Int64Array


def _ends_of_clients(rows: RequestRows) -> pl.DataFrame:
    """The `_ENDS` of root requests that are clients' own."""
    ends, of_roots = [], []
    is_root = (pl.col("depth") == 0) & pl.col("start_trace_ns").is_not_null()
    for part in rows.batches("depth", *_ENDS, "start_trace_ns"):
        ends.append(part.select(_ENDS).unique())
        of_roots.append(part.filter(is_root).select(_ENDS).unique())
    return of_clients(pl.concat(of_roots).unique(), pl.concat(ends).unique())


def _sums_of_parts(rows: RequestRows, clients: pl.DataFrame) -> _Sums:
    """All requests that have a beginning, a group of rows after the other. Arguments: from `_ends_of_clients`."""
    groups, buckets, roots, count = [], [], [], 0
    outcome = pl.col("outcome").cast(pl.String).fill_null(str(Outcome.UNKNOWN))
    ended = (Outcome.FAILED, Outcome.ABANDONED, Outcome.UNKNOWN)
    for part in rows.batches(*_OF_REQUESTS):
        timed = _with_times(part, clients)
        counted = timed.group_by(_KEY, maintain_order=True).agg(
            requests_count=pl.len().cast(pl.Int64),
            **{f"{each}_count": (outcome == str(each)).sum().cast(pl.Int64) for each in ended},
            **{name: pl.col(name).sum() for name in ("request_bytes", "response_bytes")},
        )
        numbered = counted.select(_KEY).with_row_index("group", offset=count).cast({"group": pl.Int64})
        known = timed.drop_nulls("bucket").join(numbered, on=_KEY, how="left", nulls_equal=True)
        groups.append(counted.with_columns(pl.col(_TEXTS).cast(pl.String)))
        buckets.append(known.group_by("group", "bucket").agg(duration_counts=pl.len().cast(pl.UInt32)))
        roots.append(known.filter("is_client").select("trace_id", "group"))
        count += len(counted)
    of_roots = pl.concat(roots).sort("trace_id")
    return _Sums(pl.concat(groups), pl.concat(buckets), of_roots["trace_id"].to_numpy(), of_roots["group"].to_numpy())


def _with_times(part: pl.DataFrame, clients: pl.DataFrame) -> pl.DataFrame:
    """Those of some requests that have a beginning, with `minute_trace_ns`, `is_client` and, of those that ended and
    were not abandoned, the `bucket` of how long they took."""
    took = pl.col("end_trace_ns") - pl.col("start_trace_ns") - pl.col("pause_ns")
    marked = part.filter(pl.col("start_trace_ns").is_not_null()).join(
        clients.with_columns(is_client=True), on=_ENDS, how="left", nulls_equal=True, maintain_order="left"
    )
    timed = marked.with_columns(
        minute_trace_ns=pl.col("start_trace_ns") // MINUTE_NS * MINUTE_NS,
        is_client=pl.col("is_client").fill_null(value=False) & (pl.col("depth") == 0),
        took=pl.when((took > 0) & ~is_abandoned()).then(took),
    )
    is_known = timed["took"].is_not_null().to_numpy()
    bucket = np.zeros(len(timed), np.uint16)
    bucket[is_known] = buckets_of(timed["took"].drop_nulls().to_numpy())
    return timed.with_columns(bucket=pl.when(pl.Series(is_known)).then(pl.Series(bucket))).drop("took")


def _with_most_classes(groups: pl.DataFrame) -> tuple[Int64Array, pl.DataFrame]:
    """For each group its number among those of all parts, and `groups` with it as `group`. Classes that are none of
    those with the most requests are one, `OTHER`."""
    classes = groups.group_by(CLASS).agg(pl.col("requests_count").sum())
    classes = classes.sort("requests_count", *CLASS, descending=[True, *[False] * len(CLASS)])
    is_rare = pl.lit(value=False)
    if len(classes) > MOST_CLASSES:
        rare = classes.slice(MOST_CLASSES - 2).select(*CLASS, is_rare=pl.lit(value=True))
        groups = groups.join(rare, on=CLASS, how="left", nulls_equal=True, maintain_order="left")
        is_rare = pl.col("is_rare").fill_null(value=False)
    service = pl.when(is_rare).then(pl.lit(OTHER)).otherwise("service")
    texts = {name: pl.when(~is_rare).then(name) for name in _TEXTS} | {"service": service}
    named = groups.with_columns(**texts, is_rare=is_rare)
    key = [*_KEY, "is_rare"]
    distinct = named.select(key).unique(maintain_order=True).with_row_index("group").cast({"group": pl.Int64})
    numbered = named.join(distinct, on=key, how="left", nulls_equal=True, maintain_order="left")
    return numbered["group"].to_numpy(), numbered


def _histograms(counts: pl.DataFrame) -> pl.DataFrame:
    """The histogram of each group. Arguments: parts of their counts: `group, bucket, duration_counts`."""
    counted = counts.group_by("group", "bucket").agg(pl.col("duration_counts").sum())
    ordered = counted.rename({"bucket": "duration_buckets"}).sort("duration_buckets")
    return ordered.group_by("group", maintain_order=True).agg("duration_buckets", "duration_counts")


def _ledgers(rows: RequestRows, roots: Int64Array, groups: Int64Array) -> pl.DataFrame:
    """By group where the time of some root requests went, with all below them. Arguments: their `trace_id`s, ascending,
    and the group of each."""
    parts = [pl.DataFrame(schema={"group": pl.Int64} | dict.fromkeys(LEDGER_COLUMNS, pl.Int64))]
    for part in rows.batches("trace_id", *LEDGER_COLUMNS) if len(roots) else ():
        ids = part["trace_id"].to_numpy()
        place = np.minimum(np.searchsorted(roots, ids), len(roots) - 1)
        spent = part.with_columns(group=pl.Series(groups[place])).filter(pl.Series(roots[place] == ids))
        parts.append(spent.group_by("group").agg(pl.col(LEDGER_COLUMNS).sum()).select(parts[0].columns))
    return pl.concat(parts).group_by("group").agg(pl.col(LEDGER_COLUMNS).sum())


def _no_packets() -> pl.DataFrame:
    kinds = {"minute_trace_ns": pl.Int64, "send_host": pl.String, "receive_host": pl.String}
    return pl.DataFrame(schema=kinds | dict.fromkeys(PACKET_COUNTS, pl.Int64))
