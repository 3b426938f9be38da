"""The summary of a period: what stays of its requests, packets and findings when its trace is removed.

- `requests`: requests by the minute in which they began, and by class (`CLASS`): how many, how they ended, and how long
  they took, as a histogram with `BUCKETS_PER_OCTAVE` buckets for each factor of two. Histograms of any classes and
  times add up, and a percentile of a sum is at most 2.2 % off. Of clients' own requests also where their time went,
  with all that was called for them: the columns of the ledger.
- `packets`: hops by the minute and by hosts: matched, lost, retransmitted.
- `findings`: the table of the trace as it is.

What counts as a client's own request, as failed and as abandoned is what a report counts. Durations are those of
requests that were not abandoned.
Cost: a pass over each table. Memory: the columns of the exchanges, a row group of the hops.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collector.reporting.request_rows import RequestRows
from collector.requests.outcomes import Outcome, is_abandoned
from collector.requests.spans import LEDGER_COLUMNS
from collector.services.client_requests import of_clients
from collector.trace.reading import Trace
from collector.trace.schema import HopState
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
_OF_REQUESTS = (
    *("exchange_id", "trace_id", *_TEXTS, "outcome"),
    *("request_bytes", "response_bytes", "start_trace_ns", "end_trace_ns", "pause_ns"),
)


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
    ends = rows.columns("exchange_id", "depth", "client_host", "server_host", "background", "start_trace_ns")
    roots = ends.filter(pl.col("depth") == 0, pl.col("start_trace_ns").is_not_null())
    clients = of_clients(roots, ends)["exchange_id"].sort()
    del ends, roots
    timed, groups = _by_group(_with_most_classes(_requests_with_times(rows, clients)))
    outcome = pl.col("outcome").cast(pl.String).fill_null(str(Outcome.UNKNOWN))
    ended = (Outcome.FAILED, Outcome.ABANDONED, Outcome.UNKNOWN)
    counted = timed.group_by("group").agg(
        requests_count=pl.len().cast(pl.Int64),
        **{f"{each}_count": (outcome == str(each)).sum().cast(pl.Int64) for each in ended},
        **{name: pl.col(name).sum() for name in ("request_bytes", "response_bytes")},
    )
    found = groups.join(counted, on="group").join(_histograms(timed), on="group", how="left")
    found = found.join(_ledgers(rows, timed), on="group", how="left").drop("group")
    return found.with_columns(pl.col(LEDGER_COLUMNS).fill_null(0)).sort("minute_trace_ns", *CLASS)


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


def _requests_with_times(rows: RequestRows, clients: pl.Series) -> pl.DataFrame:
    """Requests that have a beginning, with `minute_trace_ns`, `is_client` and, of those that ended and were not
    abandoned, the `bucket` of how long they took. Arguments: ids of clients' own requests."""
    took = pl.col("end_trace_ns") - pl.col("start_trace_ns") - pl.col("pause_ns")
    known = rows.columns(*_OF_REQUESTS).filter(pl.col("start_trace_ns").is_not_null())
    timed = known.with_columns(
        minute_trace_ns=pl.col("start_trace_ns") // MINUTE_NS * MINUTE_NS,
        is_client=pl.col("exchange_id").is_in(clients.implode()),
        took=pl.when((took > 0) & ~is_abandoned()).then(took),
    ).drop("exchange_id", "start_trace_ns", "end_trace_ns", "pause_ns")
    known_ns = timed["took"].drop_nulls().to_numpy()
    buckets = pl.DataFrame({"row": np.flatnonzero(timed["took"].is_not_null()), "bucket": buckets_of(known_ns)})
    numbered = timed.drop("took").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    return numbered.join(buckets, on="row", how="left", maintain_order="left").drop("row")


def _with_most_classes(timed: pl.DataFrame) -> pl.DataFrame:
    """`timed` with `is_rare`: whether the class is none of those with the most requests; texts are null then."""
    classes = timed.group_by(CLASS).len().sort("len", *CLASS, descending=[True, *[False] * len(CLASS)])
    if len(classes) <= MOST_CLASSES:
        return timed.with_columns(is_rare=pl.lit(value=False))
    rare = classes.slice(MOST_CLASSES - 2).select(*CLASS, is_rare=pl.lit(value=True))
    marked = timed.join(rare, on=CLASS, how="left", nulls_equal=True, maintain_order="left")
    is_rare = pl.col("is_rare").fill_null(value=False)
    return marked.with_columns(*(pl.when(~is_rare).then(name).alias(name) for name in _TEXTS), is_rare=is_rare)


def _by_group(timed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`timed` with a number in place of minute and class; and for each number `group` these, as texts."""
    key = ["minute_trace_ns", *CLASS, "is_rare"]
    groups = timed.select(key).unique(maintain_order=True).with_row_index("group")
    numbered = timed.join(groups, on=key, how="left", nulls_equal=True, maintain_order="left")
    numbered = numbered.drop(name for name in key if name != "is_client")
    texts = {name: pl.col(name).cast(pl.String).fill_null("") for name in _TEXTS}
    service = pl.when("is_rare").then(pl.lit(OTHER)).otherwise(texts["service"])
    return numbered, groups.with_columns(**texts | {"service": service}).drop("is_rare")


def _histograms(timed: pl.DataFrame) -> pl.DataFrame:
    counted = timed.drop_nulls("bucket").group_by("group", "bucket").agg(duration_counts=pl.len().cast(pl.UInt32))
    ordered = counted.rename({"bucket": "duration_buckets"}).sort("duration_buckets")
    return ordered.group_by("group", maintain_order=True).agg("duration_buckets", "duration_counts")


def _ledgers(rows: RequestRows, timed: pl.DataFrame) -> pl.DataFrame:
    """By group where the time of clients' requests went that were not abandoned, with all below them. A column is read
    after the other."""
    roots = timed.filter(pl.col("is_client"), pl.col("bucket").is_not_null()).select("trace_id", "group")
    of_spans = rows.columns("trace_id").join(roots, on="trace_id", how="left", maintain_order="left")["group"]
    groups = of_spans.drop_nulls().unique().sort()
    found = {"group": groups}
    for name in LEDGER_COLUMNS:
        spent = pl.DataFrame({"group": of_spans, name: rows.columns(name)[name]}).drop_nulls("group")
        found[name] = spent.group_by("group").agg(pl.col(name).sum()).sort("group")[name]
    return pl.DataFrame(found)


def _no_packets() -> pl.DataFrame:
    kinds = {"minute_trace_ns": pl.Int64, "send_host": pl.String, "receive_host": pl.String}
    return pl.DataFrame(schema=kinds | dict.fromkeys(PACKET_COUNTS, pl.Int64))
