"""Answers about a series for a viewer: how requests went over days, from summaries, also where traces were removed.

Kept in memory are counts and histograms by steps of five minutes and of an hour, and of each minute the p99 of each
class of requests; minutes themselves are read from the summaries of the periods in view, of which the last few are
kept. A month of forty classes takes about 200 MB. What a summary does not have is no zero: `covered_ns` of a column
says how much of it has summaries.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.findings.finding import SEVERITIES
from collector.requests.spans import LEDGER_COLUMNS
from collector.series.overview import FEWEST_IN_A_MINUTE, SLOW_RATIO, class_words
from collector.series.series import Entry, PeriodState, Series, is_series
from collector.series.summaries import (
    CLASS,
    MINUTE_NS,
    flat_percentiles,
    merge_requests,
    percentiles,
    read_summary,
)
from tracer.errors import InputError

SHARES = (0.5, 0.9, 0.99)
FINE_NS, HOUR_NS = 5 * MINUTE_NS, 60 * MINUTE_NS
STEPS_NS = tuple(minutes * MINUTE_NS for minutes in (1, 5, 15, 60, 120, 360, 1440))
MOST_COLUMNS = 600
MOST_WORST = 100
MINUTES_KEPT = 40
"""Periods whose minutes are kept: more than a view at the step of a minute has, if they last an hour."""
READ_AT_ONCE = 32
COUNTS = ("requests_count", "failed_count")
PACKET_COUNTS = ("hops_count", "lost_count")
TABLES = ("counts", "histograms", "packets")
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Progress = Callable[[float], None]


class Stretch(Struct, frozen=True):
    """Successive periods of one state."""

    from_ns: int
    to_ns: int
    state: PeriodState
    problem: str = ""  # why it failed, or why its summary cannot be read


class SeriesClass(Struct, frozen=True):
    """A class of requests; its number stays while the viewer runs."""

    number: int
    server_host: str
    is_client: bool
    words: str
    requests_count: int


class Choice(Struct, frozen=True):
    """Which classes count."""

    server_host: str = ""  # "": all
    number: int | None = None  # one class
    inner: bool = False  # calls between services, in place of clients' own requests


class Course(Struct, frozen=True):
    """How requests of some classes went, by column; all arrays have one value a column."""

    words: str
    number: int | None  # of the class; None: of several
    counts: Int64
    failed: Int64
    percentiles_ns: Float64  # [share, column], NaN without durations


class Slow(Struct, frozen=True):
    """A minute in which a class was slow."""

    minute_ns: int
    number: int  # of the class
    words: str
    requests_count: int
    p99_ns: float
    usual_p99_ns: float


class SeriesPart(Struct, frozen=True):
    """A stretch of a series, in columns of equal width."""

    from_ns: int
    step_ns: int
    covered_ns: Int64  # how much of each column has summaries
    total: Course
    courses: tuple[Course, ...]  # of the classes with the most requests in the series
    classes_count: int  # that count, also those without a course
    hops: Int64
    lost: Int64


class PeriodFacts(Struct, frozen=True):
    """What a summary knows of its period."""

    stretch: Stretch
    made_ns: int | None
    removed_ns: int | None
    classes: tuple[tuple[str, int, int, float | None, float | None], ...]  # words, requests, failed, p50, p99 (ns)
    left_out_count: int  # classes beyond these
    requests_count: int  # clients', of all classes
    ledger_ns: tuple[tuple[str, int], ...]  # of clients' requests together, by column of the ledger
    findings: tuple[tuple[str, str, str], ...]  # severity, host, text; the most severe first


class _Level(Struct, frozen=True):
    """Rows by step and class, and their histograms by step, class and bucket."""

    counts: pl.DataFrame
    histograms: pl.DataFrame
    packets: pl.DataFrame


_KEY = {"period": pl.Int64, "step": pl.Int64}
_NO_COUNTS = pl.DataFrame(schema=_KEY | {"class": pl.UInt32} | dict.fromkeys(COUNTS, pl.Int64))
_NO_HISTOGRAMS = pl.DataFrame(
    schema=_KEY | {"class": pl.UInt32, "duration_buckets": pl.UInt16, "duration_counts": pl.UInt32}
)
_NO_PACKETS = pl.DataFrame(
    schema=_KEY | {"send_host": pl.String, "receive_host": pl.String} | dict.fromkeys(PACKET_COUNTS, pl.Int64)
)
_NO_LEVEL = _Level(_NO_COUNTS, _NO_HISTOGRAMS, _NO_PACKETS)
_NO_MINUTES = pl.DataFrame(
    schema={"period": pl.Int64, "minute": pl.Int64, "class": pl.UInt32, "requests_count": pl.Int64, "p99": pl.Float64}
)


class _Rows(Struct, frozen=True):
    """Those of some classes."""

    counts: pl.DataFrame
    histograms: pl.DataFrame


class _Columns(Struct, frozen=True):
    """Columns of one width, into which rows are added up."""

    first: int
    size: int
    step_ns: int

    def of(self, rows: pl.DataFrame) -> Int64:
        """The column of each row."""
        return (rows["step"].to_numpy() - self.first) // self.step_ns

    def sums(self, rows: pl.DataFrame, name: str) -> Int64:
        """A count, added up."""
        if not len(rows):
            return np.zeros(self.size, np.int64)
        return np.bincount(self.of(rows), rows[name].to_numpy(), minlength=self.size).astype(np.int64)

    def percentiles_ns(self, histograms: pl.DataFrame) -> Float64:
        """Of all histograms of each column together, shape (shares, columns)."""
        if not len(histograms):
            return np.full((len(SHARES), self.size), np.nan)
        buckets = histograms["duration_buckets"].to_numpy().astype(np.int64)
        low, width = buckets.min(), int(buckets.max() - buckets.min()) + 1
        cells = self.of(histograms) * width + (buckets - low)
        sums = np.bincount(cells, histograms["duration_counts"].to_numpy()).astype(np.int64)
        cell = np.flatnonzero(sums)
        flat = (cell // width, cell % width + low, sums[cell])
        return np.stack([flat_percentiles(*flat, self.size, share) for share in SHARES])


class _State(Struct, frozen=True):
    """All that is kept of a series at one moment."""

    entries: tuple[Entry, ...] = ()
    made: dict[int, int] = field(default_factory=dict)  # by period, of what was read
    problems: dict[int, str] = field(default_factory=dict)  # of summaries that cannot be read
    fine: _Level = _NO_LEVEL
    hours: _Level = _NO_LEVEL
    minutes: pl.DataFrame = field(default_factory=_NO_MINUTES.clear)
    classes: pl.DataFrame | None = None
    version: int = 0


class SeriesView:
    """A series as it grows. Safe to use from several threads. Raises: InputError if the folder is no series."""

    def __init__(self, place: Path, progress: Progress | None = None) -> None:
        self._series = Series(place)
        self.name, self.length_ns = place.resolve().name, self._series.length_ns
        self._lock = threading.Lock()
        self._minutes: OrderedDict[tuple[int, int], _Level] = OrderedDict()
        self._numbers: dict[tuple[object, ...], int] = {}
        self._state = _State()
        self.refresh(progress)

    @property
    def version(self) -> int:
        """Grows with each change that `refresh` found."""
        return self._state.version

    @property
    def span(self) -> tuple[int, int] | None:
        """From the beginning of the first period to the end of the last; None without any."""
        entries = self._state.entries
        return (entries[0].from_ns, entries[-1].to_ns) if entries else None

    def refresh(self, progress: Progress | None = None) -> int:
        """Read what is new; the version then. Cost: a few ms for each new period. Raises: InputError."""
        with self._lock:
            state, entries = self._state, self._series.entries()
            if entries == state.entries:
                return state.version
            there = {entry.from_ns: entry.made_ns for entry in entries if not entry.problem}
            new = [entry for entry in entries if there.get(entry.from_ns, -1) != state.made.get(entry.from_ns, -1)]
            self._state = self._with(state, entries, there, new, progress)
            return self._state.version

    def entry(self, name: str) -> Entry | None:
        """A period by its name."""
        return next((entry for entry in self._state.entries if entry.period.name == name), None)

    def neighbour(self, name: str, *, backwards: bool) -> Entry | None:
        """The period before or after one that is noted, whatever became of it."""
        entries = self._state.entries
        at = next((at for at, entry in enumerate(entries) if entry.period.name == name), None)
        if at is None:
            return None
        wanted = at - 1 if backwards else at + 1
        return entries[wanted] if 0 <= wanted < len(entries) else None

    def trace_place(self, entry: Entry) -> str:
        """Where the trace of a period is."""
        return self._series.trace_place(entry.period)

    def stretches(self) -> tuple[Stretch, ...]:
        """All that is noted, and what is between; neighbours of one state are one."""
        found: list[Stretch] = []
        for entry in self._state.entries:
            if found and found[-1].to_ns < entry.from_ns:
                found.append(Stretch(found[-1].to_ns, entry.from_ns, PeriodState.NOTHING))
            one = self._stretch(entry)
            if found and (found[-1].state, found[-1].problem) == (one.state, one.problem):
                one = Stretch(found.pop().from_ns, one.to_ns, one.state, one.problem)
            found.append(one)
        return tuple(found)

    def classes(self, *, inner: bool = False) -> tuple[SeriesClass, ...]:
        """All classes, those with the most requests first: clients' own, or those that services call."""
        table = self._state.classes
        if table is None:
            return ()
        chosen = table.filter(pl.col("is_client") != inner)
        return tuple(
            SeriesClass(row["class"], row["server_host"], row["is_client"], _words_of(row), row["requests_count"])
            for row in chosen.iter_rows(named=True)
        )

    def part(self, from_ns: int, to_ns: int, choice: Choice, most_courses: int = 6) -> SeriesPart:
        """A stretch in at most `MOST_COLUMNS` columns, of which each begins at a multiple of its width."""
        state, step_ns = self._state, step_of(from_ns, to_ns)
        first = from_ns // step_ns * step_ns
        size = max(1, -(-(to_ns - first) // step_ns))
        chosen = self._classes_of(choice)
        numbers = [each.number for each in chosen]
        level = self._level(state, first, first + size * step_ns, step_ns)
        until = first + size * step_ns
        shown = {number: _of_class(level, number, first, until) for number in numbers}
        packets = level.packets.filter((pl.col("step") >= first) & (pl.col("step") < until))
        if choice.server_host:
            host = choice.server_host
            packets = packets.filter((pl.col("send_host") == host) | (pl.col("receive_host") == host))
        columns = _Columns(first, size, step_ns)
        return SeriesPart(
            from_ns=first,
            step_ns=step_ns,
            covered_ns=self._coverage(state, first, size, step_ns),
            total=_course("all", None, _both(list(shown.values())), columns),
            courses=tuple(
                _course(each.words, each.number, shown[each.number], columns) for each in chosen[:most_courses]
            ),
            classes_count=len(numbers),
            hops=columns.sums(packets, "hops_count"),
            lost=columns.sums(packets, "lost_count"),
        )

    def worst(self, choice: Choice) -> tuple[Slow, ...]:
        """The minutes that are slow for their class, the worst ratio first; of each minute the slowest class."""
        minutes = self._state.minutes
        words = {each.number: each.words for each in self._classes_of(choice)}
        enough = minutes.filter(
            pl.col("requests_count") >= FEWEST_IN_A_MINUTE, pl.col("class").is_in(list(words))
        ).with_columns(usual=pl.col("p99").median().over("class"))
        slow = enough.with_columns(ratio=pl.col("p99") / pl.col("usual")).filter(pl.col("ratio") >= SLOW_RATIO)
        ordered = slow.sort("ratio", "minute", descending=[True, False]).unique(
            "minute", keep="first", maintain_order=True
        )
        return tuple(
            Slow(row["minute"], row["class"], words[row["class"]], row["requests_count"], row["p99"], row["usual"])
            for row in ordered.head(MOST_WORST).iter_rows(named=True)
        )

    def facts(self, name: str, most_classes: int = 12, most_findings: int = 8) -> PeriodFacts | None:
        """What the summary of a period knows; None if there is no such period. Raises: InputError for a damaged one."""
        entry = self.entry(name)
        if entry is None:
            return None
        stretch = self._stretch(entry)
        if entry.problem:
            return PeriodFacts(stretch, entry.made_ns, entry.removed_ns, (), 0, 0, (), ())
        place = self._series.summary_place(entry.period)
        requests, findings = read_summary(place, "requests"), read_summary(place, "findings")
        clients = requests.filter("is_client")
        merged = merge_requests(clients, CLASS).sort("requests_count", descending=True, maintain_order=True)
        figures = zip(percentiles(merged, SHARES[0]), percentiles(merged, SHARES[-1]), strict=True)
        lines = [
            (_words_of(row), row["requests_count"], row["failed_count"], *pair)
            for row, pair in zip(merged.iter_rows(named=True), figures, strict=True)
        ]
        spent = [(column, int(clients[column].sum())) for column in LEDGER_COLUMNS]
        ordered = sorted(findings.iter_rows(named=True), key=lambda row: SEVERITIES.index(row["severity"]))
        return PeriodFacts(
            stretch,
            entry.made_ns,
            entry.removed_ns,
            tuple(lines[:most_classes]),
            max(0, len(lines) - most_classes),
            int(clients["requests_count"].sum()),
            tuple((column, spent_ns) for column, spent_ns in spent if spent_ns > 0),
            tuple((row["severity"], row["host"] or "", row["text"] or "") for row in ordered[:most_findings]),
        )

    def _stretch(self, entry: Entry) -> Stretch:
        problem = entry.problem or self._state.problems.get(entry.from_ns, "")
        return Stretch(entry.from_ns, entry.to_ns, entry.state, problem)

    def _classes_of(self, choice: Choice) -> list[SeriesClass]:
        return [
            each
            for each in self.classes(inner=choice.inner)
            if choice.server_host in ("", each.server_host) and choice.number in (None, each.number)
        ]

    def _with(
        self,
        state: _State,
        entries: tuple[Entry, ...],
        there: dict[int, int],
        new: Sequence[Entry],
        progress: Progress | None,
    ) -> _State:
        """The state with these periods; `new` are read."""
        problems = {at: text for at, text in state.problems.items() if at in there}
        gone = [entry.from_ns for entry in new] + [at for at in state.made if at not in there]
        fine, hours = [_without(state.fine, gone)], [_without(state.hours, gone)]
        minutes = [_outside(state.minutes, gone)]
        for begin in range(0, len(new), READ_AT_ONCE):
            some = [entry for entry in new[begin : begin + READ_AT_ONCE] if not entry.problem]
            requests, packets = self._read(some, problems)
            level = _level(FINE_NS, requests, packets)
            fine.append(level)
            hours.append(_coarser(level, HOUR_NS))
            minutes.append(_minute_p99(requests))
            if progress is not None:
                progress(min(1.0, (begin + READ_AT_ONCE) / len(new)))
        whole = _join(fine)
        table, version = self._class_table(whole), state.version + 1
        return _State(entries, there, problems, whole, _join(hours), pl.concat(minutes), table, version)

    def _read(self, entries: Sequence[Entry], problems: dict[int, str]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The tables `requests`, with each class's number, and `packets` of some periods; `period` says of which."""
        requests, packets = [], []
        for entry in entries:
            place, period = self._series.summary_place(entry.period), pl.lit(entry.from_ns, pl.Int64).alias("period")
            problems.pop(entry.from_ns, None)
            try:
                found = [read_summary(place, table).with_columns(period) for table in ("requests", "packets")]
            except InputError as error:
                problems[entry.from_ns] = str(error)
                continue
            requests.append(found[0])
            packets.append(found[1])
        if not requests:
            return pl.DataFrame(), pl.DataFrame()
        return self._with_numbers(pl.concat(requests)), pl.concat(packets)

    def _with_numbers(self, requests: pl.DataFrame) -> pl.DataFrame:
        """`requests` with the number of each row's class; new classes get the next ones."""
        classes = requests.select(CLASS).unique(maintain_order=True)
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in classes.iter_rows()]
        numbered = classes.with_columns(pl.Series("class", numbers, pl.UInt32))
        return requests.join(numbered, on=CLASS, how="left", maintain_order="left")

    def _class_table(self, level: _Level) -> pl.DataFrame | None:
        if not len(level.counts):
            return None
        keys = [dict(zip(CLASS, key, strict=True)) | {"class": number} for key, number in self._numbers.items()]
        named = pl.DataFrame(keys, schema_overrides={"class": pl.UInt32})
        sums = level.counts.group_by("class").agg(pl.col("requests_count").sum())
        return named.join(sums, on="class").sort("requests_count", "class", descending=[True, False])

    def _level(self, state: _State, from_ns: int, to_ns: int, step_ns: int) -> _Level:
        """What holds [from, to) in steps of which `step_ns` is a multiple."""
        if step_ns >= HOUR_NS:
            return state.hours
        if step_ns >= FINE_NS:
            return state.fine
        inside = [
            entry for entry in state.entries if not entry.problem and entry.from_ns < to_ns and entry.to_ns > from_ns
        ]
        return _join([_NO_LEVEL, *(self._minutes_of(entry) for entry in inside)])

    def _minutes_of(self, entry: Entry) -> _Level:
        """The minutes of a period; the last few periods are kept."""
        key = (entry.from_ns, entry.made_ns)
        with self._lock:
            if key in self._minutes:
                self._minutes.move_to_end(key)
                return self._minutes[key]
            level = _level(MINUTE_NS, *self._read([entry], {}))
            self._minutes[key] = level
            while len(self._minutes) > MINUTES_KEPT:
                self._minutes.popitem(last=False)
            return level

    def _coverage(self, state: _State, first: int, size: int, step_ns: int) -> Int64:
        edges = first + np.arange(size + 1, dtype=np.int64) * step_ns
        there = [entry for entry in state.entries if not entry.problem and entry.from_ns not in state.problems]
        begins = np.array([entry.from_ns for entry in there], np.int64)
        ends = np.array([entry.to_ns for entry in there], np.int64)
        passed = np.zeros(size + 1, np.int64)
        if len(begins):  # periods do not overlap: up to an edge, all that ended before it and a part of one more
            at = np.searchsorted(begins, edges, "right")
            whole = np.concatenate(([0], np.cumsum(ends - begins)))
            last = np.maximum(at - 1, 0)
            passed = whole[at] - np.where(at > 0, np.maximum(0, ends[last] - edges), 0)
        return np.diff(passed)


def open_series(place: str, progress: Progress | None = None) -> SeriesView | None:
    """The series in a folder; None if there is none. Raises: InputError if it is damaged."""
    path = Path(place)
    return SeriesView(path, progress) if is_series(path) else None


def step_of(from_ns: int, to_ns: int) -> int:
    """The narrowest width of columns of which no more than `MOST_COLUMNS` are needed; or more, of the widest."""
    return next((step for step in STEPS_NS if (to_ns - from_ns) / step <= MOST_COLUMNS - 1), STEPS_NS[-1])


def _words_of(row: dict[str, str]) -> str:
    return class_words(row["server_host"], row["service"], row["method"], row["operation"])


def _level(step_ns: int, requests: pl.DataFrame, packets: pl.DataFrame) -> _Level:
    """Rows of summaries by period, step and class."""
    if not len(requests.columns):
        return _NO_LEVEL
    step = (pl.col("minute_trace_ns") // step_ns * step_ns).alias("step")
    rows = requests.with_columns(step)
    key = ["period", "step", "class"]
    counts = rows.group_by(key).agg(pl.col(COUNTS).sum())
    flat = rows.select(*key, "duration_buckets", "duration_counts").explode("duration_buckets", "duration_counts")
    histograms = (
        flat.drop_nulls("duration_buckets").group_by(*key, "duration_buckets").agg(pl.col("duration_counts").sum())
    )
    hops = packets.with_columns(step).group_by("period", "step", "send_host", "receive_host")
    return _Level(
        counts.select(_NO_COUNTS.columns).cast(_NO_COUNTS.schema),
        histograms.select(_NO_HISTOGRAMS.columns).cast(_NO_HISTOGRAMS.schema),
        hops.agg(pl.col(PACKET_COUNTS).sum()).select(_NO_PACKETS.columns),
    )


def _minute_p99(requests: pl.DataFrame) -> pl.DataFrame:
    """By period, minute and class: how many requests, and their p99 (ns)."""
    if not len(requests.columns):
        return _NO_MINUTES
    p99 = pl.Series("p99", percentiles(requests, SHARES[-1]), pl.Float64)
    rows = requests.select("period", pl.col("minute_trace_ns").alias("minute"), "class", "requests_count")
    return rows.with_columns(p99).select(_NO_MINUTES.columns).drop_nulls("p99")


def _join(levels: Sequence[_Level]) -> _Level:
    """All rows, in the order that `_cut` needs."""
    counts, histograms, packets = (pl.concat([getattr(level, name) for level in levels]) for name in TABLES)
    return _Level(counts.sort("class", "step").rechunk(), histograms.sort("class", "step").rechunk(), packets)


def _coarser(level: _Level, step_ns: int) -> _Level:
    def merge(table: pl.DataFrame, sums: Sequence[str]) -> pl.DataFrame:
        step = (pl.col("step") // step_ns * step_ns).alias("step")
        keys = [name for name in table.columns if name not in sums]
        merged = table.with_columns(step).group_by(keys).agg(pl.col(sums).sum())
        return merged.select(table.columns).cast(table.schema)

    sums = (COUNTS, ("duration_counts",), PACKET_COUNTS)
    return _Level(*(merge(getattr(level, name), each) for name, each in zip(TABLES, sums, strict=True)))


def _outside(table: pl.DataFrame, periods: Sequence[int]) -> pl.DataFrame:
    return table.filter(~pl.col("period").is_in(list(periods)))


def _without(level: _Level, periods: Sequence[int]) -> _Level:
    return _Level(*(_outside(getattr(level, name), periods) for name in TABLES))


def _of_class(level: _Level, number: int, first: int, until: int) -> _Rows:
    """The rows of a class within [first, until), found without a look at the others."""
    return _Rows(_cut(level.counts, number, first, until), _cut(level.histograms, number, first, until))


def _cut(table: pl.DataFrame, number: int, first: int, until: int) -> pl.DataFrame:
    """Rows of a table that is sorted by class and step."""
    wanted = np.array([number, number + 1], np.uint32)  # of the column's own type: otherwise all of it is converted
    begin, end = np.searchsorted(table["class"].to_numpy(), wanted).tolist()
    own = table.slice(begin, end - begin)
    begin, end = np.searchsorted(own["step"].to_numpy(), [first, until]).tolist()
    return own.slice(begin, end - begin)


def _both(rows: Sequence[_Rows]) -> _Rows:
    if not rows:
        return _Rows(_NO_COUNTS, _NO_HISTOGRAMS)
    return _Rows(pl.concat([each.counts for each in rows]), pl.concat([each.histograms for each in rows]))


def _course(words: str, number: int | None, rows: _Rows, columns: _Columns) -> Course:
    return Course(
        words,
        number,
        columns.sums(rows.counts, "requests_count"),
        columns.sums(rows.counts, "failed_count"),
        columns.percentiles_ns(rows.histograms),
    )
