"""Lines of logs and spans of other tracers for the timeline: those of a window, one by one or counted; and one of them.

Times are ns since the trace's start. Only numbers and names are held; a line's text is read when it is asked for.
"""

from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.annotations.agreement import COLUMNS, Said, said_of, sources_words
from collector.queries.timeline.columns import NO_LANE
from collector.queries.trace_view import TraceView

MOST_EACH = 1_000
"""More of them in a window are counted."""
BINS = 400
NO_REQUEST = -1
_HELD = (
    *("annotation_id", "kind", "format", "host", "start_trace_ns", "duration_ns", "uncertainty_ns"),
    *("name", "severity", "exchange_id", "joined_by"),
)


class AnnotationCounts(Struct, frozen=True):
    """How many annotations begin in each bin of a lane, and how many of them are errors."""

    bin_ns: float
    lanes: tuple[int, ...]
    counts: NDArray[np.int64]  # [lane, bin]
    errors_counts: NDArray[np.int64]


class OneAnnotation(Struct, frozen=True):
    """One annotation, whole."""

    number: int
    kind: str  # "log" | "span"
    start_ns: int
    duration_ns: int
    uncertainty_ns: int | None
    name: str
    text: str
    source: str
    request: int  # `NO_REQUEST` for none
    said: Said | None  # of a request: what it says, beside what packets show


class Annotations:
    """The annotations of a trace; nothing is read before the first question."""

    def __init__(self, trace: TraceView) -> None:
        self._trace = trace

    @cached_property
    def count(self) -> int:
        """How many there are; 0 of a trace that is far away, since each would be read for it."""
        return 0 if self._trace.reads is not None else self._trace.stored.rows_count("annotations")

    @cached_property
    def sources(self) -> str:
        """What they are from: `logs`, `spans`, `logs and spans`. Cost: a column of their table."""
        kinds = pl.DataFrame(self._trace.stored.read("annotations", ["kind"]))["kind"].cast(pl.String)
        return sources_words(set(kinds.unique()))

    @cached_property
    def _frame(self) -> pl.DataFrame:
        lanes = {lane.host: number for number, lane in enumerate(self._trace.lanes)}
        rows = pl.DataFrame(self._trace.stored.read("annotations", _HELD)).cast({pl.Categorical: pl.String})
        requests = self._trace.requests_of_exchanges().unique("exchange_id")
        return (
            rows.with_columns(
                lane=pl.col("host").replace_strict(lanes, default=NO_LANE, return_dtype=pl.Int64),
                start=pl.col("start_trace_ns") - self._trace.start_ns,
            )
            .join(requests, on="exchange_id", how="left", maintain_order="left")
            .with_columns(request=pl.col("request").fill_null(NO_REQUEST).cast(pl.Int64))
        )

    def between(self, from_ns: int, to_ns: int) -> pl.DataFrame | AnnotationCounts:
        """Those that a window shows, on lanes: each of them, up to `MOST_EACH`, else counted.

        Returns: a frame with `annotation_id, kind, format, lane, start, duration_ns, uncertainty_ns, name, severity,
        request, joined_by`.
        """
        error = pl.col("uncertainty_ns").fill_null(0)
        end = pl.col("start") + pl.col("duration_ns") + error
        found = self._frame.filter((pl.col("lane") != NO_LANE) & (pl.col("start") - error <= to_ns) & (end >= from_ns))
        return found if len(found) <= MOST_EACH else self._counts(found, from_ns, to_ns)

    def _counts(self, found: pl.DataFrame, from_ns: int, to_ns: int) -> AnnotationCounts:
        lanes = tuple(sorted(found["lane"].unique().to_list()))
        width = max(1, to_ns - from_ns) / BINS
        places = ((found["start"] - from_ns) / width).floor().clip(0, BINS - 1).cast(pl.Int64).to_numpy()
        cells = np.searchsorted(np.array(lanes), found["lane"].to_numpy()) * BINS + places
        is_error = (found["severity"] == "error").fill_null(value=False).to_numpy()
        size = len(lanes) * BINS
        counts, errors = (np.bincount(each, minlength=size).reshape(-1, BINS) for each in (cells, cells[is_error]))
        return AnnotationCounts(width, lanes, counts, errors)

    def one(self, number: int) -> OneAnnotation | None:
        """The annotation of a number; None if there is none."""
        if not 0 <= number < self.count:
            return None
        [row] = self._trace.stored.rows_between("annotations", [*COLUMNS, "source"], number, 1).to_pylist()
        said = () if row["exchange_id"] is None else said_of(self._trace.stored, [row["exchange_id"]])
        return OneAnnotation(
            number=number,
            kind=row["kind"],
            start_ns=row["start_trace_ns"] - self._trace.start_ns,
            duration_ns=row["duration_ns"] or 0,
            uncertainty_ns=row["uncertainty_ns"],
            name=row["name"] or "",
            text=row["text"] or "",
            source=row["source"] or "",
            request=int(self._frame["request"][number]),
            said=next((each for each in said if each.annotation_id == number), None),
        )

    def beside(self, number: int, at_ns: int, backwards: bool) -> int | None:
        """The number of the next annotation on a lane after one, or before it; without one (-1), after a time."""
        rows = self._frame.filter(pl.col("lane") != NO_LANE)
        if number < 0:
            kept = rows.filter(pl.col("start") < at_ns if backwards else pl.col("start") >= at_ns)
        else:
            kept = rows.filter(pl.col("annotation_id") < number if backwards else pl.col("annotation_id") > number)
        if not len(kept):
            return None
        return int(kept["annotation_id"][-1 if backwards else 0])

    def requests_with_text(self, text: str) -> NDArray[np.bool_]:
        """Of each request, whether an annotation of it has a text, in whatever case. Cost: a pass over all texts."""
        requests = self._trace.requests_of_exchanges()
        found = np.zeros(len(self._trace.request_durations_ns()), dtype=bool)
        if not self._trace.stored.rows_count("annotations"):
            return found
        for part in self._trace.stored.batches("annotations", ("exchange_id", "text")):
            has_text = pl.col("text").str.to_lowercase().str.contains(text.lower(), literal=True)
            rows = pl.DataFrame(part).filter(has_text, pl.col("exchange_id").is_not_null())
            found[rows.join(requests, on="exchange_id")["request"].to_numpy()] = True
        return found

    def of_request(self, number: int) -> tuple[Said, ...]:
        """What annotations say of a request and of the calls that were made for it."""
        if not self.count:
            return ()
        exchanges = self._trace.requests_of_exchanges().filter(pl.col("request") == number)
        return said_of(self._trace.stored, exchanges["exchange_id"].to_list())
