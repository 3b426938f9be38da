"""A series of many days without traces: summaries with a daily rhythm, an hour that was slow, and what is missing.

Vectorised by period: a month of hours with twenty classes takes about half a minute. The tables keep the contracts of
`collector.series.summaries`; durations are log-normal, so percentiles are known.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import to_builtins

from collector.requests.spans import LEDGER_COLUMNS
from collector.series.series import FORMAT_VERSION, SERIES_FILE, Entry, Series
from collector.series.summaries import MINUTE_NS, buckets_of

HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
BEGIN_NS = 20_000 * DAY_NS
"""Midnight, UTC, of 4 October 2024."""
METHODS = ("GET", "PUT", "HEAD", "POST", "DELETE")
USUAL_NS = 8_000_000
SPREAD = 0.35
"""Of the logarithm of durations."""


@dataclass(frozen=True, slots=True)
class DaysRecipe:
    """What the days are like. Hours count from the beginning."""

    hours: int = 48
    length_ns: int = HOUR_NS
    classes: int = 4  # of clients' requests; each has a call between services, too
    per_minute: int = 60  # requests of the most frequent class at noon
    slow_hour: int | None = 30  # of its minutes 20 to 39 the first class takes `slow_factor` times as long
    slow_factor: float = 8.0
    failed_hours: tuple[int, ...] = ()  # no trace could be made
    nothing_hours: tuple[int, ...] = ()  # nothing was captured
    idle_hours: tuple[int, ...] = ()  # captured, without a request
    seed: int = 1


def write_days(place: Path, recipe: DaysRecipe) -> Series:
    """Write the series to the folder `place`, which is not there."""
    series = Series.make(place, recipe.length_ns)
    entries = list(_entries(series, recipe, 0))
    _store(series, entries)
    return series


def add_hours(series: Series, recipe: DaysRecipe, first_hour: int) -> None:
    """Let a series grow: hours of `recipe` from `first_hour` on come to those that it has."""
    _store(series, [*series.entries(), *_entries(series, recipe, first_hour)])


def _entries(series: Series, recipe: DaysRecipe, first_hour: int) -> Iterator[Entry]:
    for from_ns in range(BEGIN_NS + first_hour * HOUR_NS, BEGIN_NS + recipe.hours * HOUR_NS, recipe.length_ns):
        hour, to_ns = (from_ns - BEGIN_NS) // HOUR_NS, from_ns + recipe.length_ns
        if hour in recipe.nothing_hours:
            continue
        if hour in recipe.failed_hours:
            yield Entry(from_ns, to_ns, to_ns, problem="the collector had no room on its disk")
            continue
        entry = Entry(from_ns, to_ns, made_ns=to_ns, removed_ns=to_ns + DAY_NS)
        place = series.summary_place(entry.period)
        place.mkdir(parents=True)
        minutes = np.arange(from_ns, to_ns, MINUTE_NS)
        requests = _requests(recipe, minutes)
        (requests.clear() if hour in recipe.idle_hours else requests).write_parquet(place / "requests.parquet")
        _packets(recipe, minutes).write_parquet(place / "packets.parquet")
        _findings(slow=hour == recipe.slow_hour).write_parquet(place / "findings.parquet")
        yield entry


def _store(series: Series, entries: list[Entry]) -> None:
    document = {
        "format_version": FORMAT_VERSION,
        "period_ns": series.length_ns,
        "periods": [to_builtins(entry) for entry in entries],
    }
    partial = series.place / ".series.json.partial"
    partial.write_text(json.dumps(document))
    partial.replace(series.place / SERIES_FILE)


def _requests(recipe: DaysRecipe, minutes: np.ndarray) -> pl.DataFrame:
    parts = []
    for number in range(recipe.classes):
        for is_client in (True, False):
            parts.append(_of_class(recipe, minutes, number, is_client=is_client))
    return pl.concat(parts).sort("minute_trace_ns", maintain_order=True)


def _of_class(recipe: DaysRecipe, minutes: np.ndarray, number: int, *, is_client: bool) -> pl.DataFrame:
    random = np.random.default_rng([recipe.seed, number, is_client, int(minutes[0] // MINUTE_NS)])
    day = (minutes % DAY_NS) / DAY_NS
    wanted = recipe.per_minute / (1 + number) ** 1.2 * (0.55 - 0.45 * np.cos(2 * np.pi * day))
    counts = random.poisson(wanted)
    hour, minute = (minutes - BEGIN_NS) // HOUR_NS, minutes % HOUR_NS // MINUTE_NS
    slow = np.zeros(len(minutes), bool)
    if recipe.slow_hour is not None and number == 0:
        slow = (hour == recipe.slow_hour) & (minute >= 20) & (minute < 40)
    usual = USUAL_NS * (1 + number) / (1 if is_client else 3) * np.where(slow, recipe.slow_factor, 1)
    at = np.repeat(np.arange(len(minutes)), counts)
    durations = (usual[at] * np.exp(random.normal(0, SPREAD, len(at)))).astype(np.int64) + 1
    flat = pl.DataFrame({"at": at, "duration_buckets": buckets_of(durations)})
    histograms = (
        flat.group_by("at", "duration_buckets")
        .agg(duration_counts=pl.len().cast(pl.UInt32))
        .sort("at", "duration_buckets")
        .group_by("at", maintain_order=True)
        .agg("duration_buckets", "duration_counts")
    )
    spent = np.bincount(at, durations, minlength=len(minutes)).astype(np.int64) * is_client
    failed = np.minimum(counts, np.where(slow, counts // 8, 0) + (random.random(len(minutes)) < 0.02))
    table = pl.DataFrame(
        {
            "at": np.arange(len(minutes)),
            "minute_trace_ns": minutes,
            "server_host": [f"proxy{number % 2 + 1}" if is_client else f"storage{number % 3 + 1}"] * len(minutes),
            "service": ["swift-proxy" if is_client else "swift-object"] * len(minutes),
            "protocol": ["http/1.1"] * len(minutes),
            "method": [METHODS[number % len(METHODS)]] * len(minutes),
            "operation": ["" if number < len(METHODS) else f"operation {number}"] * len(minutes),
            "is_client": [is_client] * len(minutes),
            "requests_count": counts,
            "failed_count": failed,
            "abandoned_count": np.zeros(len(minutes), np.int64),
            "unknown_count": np.zeros(len(minutes), np.int64),
            "request_bytes": counts * 300,
            "response_bytes": counts * 4_000,
        }
    ).filter(pl.col("requests_count") > 0)
    shares = np.linspace(2, 0, len(LEDGER_COLUMNS)) / len(LEDGER_COLUMNS)
    ledger = [
        pl.Series(name, (spent * share).astype(np.int64)[table["at"].to_numpy()])
        for name, share in zip(LEDGER_COLUMNS, shares, strict=True)
    ]
    joined = table.with_columns(ledger).join(histograms, on="at", how="left", maintain_order="left").drop("at")
    return joined.select(*table.columns[1:], "duration_buckets", "duration_counts", *LEDGER_COLUMNS)


def _packets(recipe: DaysRecipe, minutes: np.ndarray) -> pl.DataFrame:
    size = len(minutes)
    hour = (minutes - BEGIN_NS) // HOUR_NS
    hops = np.full(size, 20 * recipe.per_minute)
    lost = np.where(hour == recipe.slow_hour, recipe.per_minute // 4, 0)
    return pl.DataFrame(
        {
            "minute_trace_ns": minutes,
            "send_host": ["client"] * size,
            "receive_host": ["proxy1"] * size,
            "hops_count": hops,
            "matched_count": hops - lost,
            "lost_count": lost,
            "retransmitted_count": lost,
            "bytes": hops * 900,
        }
    )


def _findings(*, slow: bool) -> pl.DataFrame:
    kinds = dict.fromkeys(("severity", "kind", "host", "text", "remedy"), pl.String)
    kinds |= dict.fromkeys(("cost_ns", "failed_count", "from_trace_ns"), pl.Int64)  # type: ignore[arg-type]
    row = ("warning", "slow_disk", "storage1", "storage1 waited for its disk: 1,200 requests took 64 ms longer")
    rows = [(*row, "look at the disk of storage1", 76_800_000_000, 140, BEGIN_NS)] if slow else []
    return pl.DataFrame(rows, schema=kinds, orient="row")
