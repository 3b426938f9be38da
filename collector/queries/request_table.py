"""Builds a frame of all requests of a trace, and groups them to classes by operation, service and size.

Requests are of one class if they have the same operation, service and size class. The operation is S3's, a call of
gRPC, or the method and kind (of SQL the statement's shape; account, container or object, if the path shows it). The
size is that of the larger of request and response, with heads, in steps of a factor of sixteen: within a step, the size
has little influence on the duration.

Source for the paths: Swift's API reference (`/v1/{account}/{container}/{object}`) and the requests of its proxy
(`/{device}/{partition}/…`).
"""

from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.execution.long_columns import LongColumns
from collector.queries.row_parts import DistinctRows, parts_of, slices_of
from collector.requests.outcomes import Outcome, is_abandoned, measured_ns
from collector.requests.protocols import WITH_FEW_TARGETS
from collector.requests.request_words import is_grpc
from collector.services.client_requests import of_clients
from collector.services.services import target_words

SIZES = (
    (1 << 10, "under 1 KiB"),
    (16 << 10, "1-16 KiB"),
    (256 << 10, "16-256 KiB"),
    (4 << 20, "256 KiB-4 MiB"),
    (64 << 20, "4-64 MiB"),
)
LARGEST = "over 64 MiB"
LONGEST_SHAPE = 100
_PATH = r"^/(?:v1|[A-Za-z][\w.-]*/[0-9]+)/[^/?]+(?<container>/[^/?]+)?(?<object>/[^?]+)?"


class RequestClass(Struct, frozen=True):
    """The requests of one class; durations in ns, without those of abandoned ones if there are others."""

    name: str  # unique within the trace
    requests_count: int
    failed_count: int  # this and the next two by `collector.requests.outcomes`
    abandoned_count: int
    unknown_count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    longest_ns: int


_ENDS = ("client_host", "server_host", "background")
NAMED = ("protocol", "method", "target", "result_code", "operation", "service")
"""Columns of exchanges from which, with its `bytes`, the name of a class is made."""
_OF_ROOTS = (
    *("request", "start", "end", "duration_ns", "end_trace_ns", "outcome", "request_bytes", "response_bytes"),
    *(*_ENDS, *NAMED),
)
"""Columns of spans that the table is made of."""


def request_table(spans: pl.DataFrame, spill: Path | None = None) -> pl.DataFrame:
    """The requests of a trace, one row each, by number.

    Arguments: `spans`, as `SpanTrees.frame`; where files go that hold what does not fit in memory.
    Returns: `number, start_ns, end_ns, duration_ns, ended, class, outcome, failed, background, bytes`, `outermost` (a
    client's own: `collector.services.client_requests`), `in_flight` (outermost requests in flight when it began, itself
    included); class and outcome are categories. Texts of a request are those of its root (`SpanTrees.roots`).
    Memory: 60 bytes a request, of long tables 50 of them in files; what it is made of is read a part at a time.
    Raises: `ResourceError` if there is no room.
    """
    ends, classes, outcomes = DistinctRows(), DistinctRows(), DistinctRows()
    with LongColumns(spill) as kept:
        before = -1
        for part in parts_of(spans.select(_OF_ROOTS)):
            request = part["request"].to_numpy()
            is_first = np.diff(request, prepend=before) != 0
            before = int(request[-1]) if len(request) else before
            roots = part.filter(pl.Series(is_first)).with_columns(bytes=size_bytes())
            kept.add(
                number=roots["request"].to_numpy(),
                start_ns=roots["start"].to_numpy(),
                end_ns=roots["end"].to_numpy(),
                duration_ns=roots["duration_ns"].to_numpy(),
                bytes=roots["bytes"].to_numpy(),
                ended=roots["end_trace_ns"].is_not_null().to_numpy(),
                background=roots["background"].fill_null(value=False).to_numpy(),
                ends=ends.numbers(part.select(_ENDS))[is_first],
                class_=classes.numbers(roots.select(class_name().alias("class"))),
                outcome=outcomes.numbers(roots.select(pl.col("outcome").fill_null(str(Outcome.UNKNOWN)))),
            )
        columns = {name: kept.whole(name) for name in ("number", "start_ns", "end_ns", "duration_ns", "bytes")}
        columns |= {name: kept.whole(name) for name in ("ended", "background")}
        columns["outermost"] = _is_client(kept.whole("ends"), ends.frame())
        rows = pl.DataFrame(columns).with_columns(
            outcome=outcomes.category(kept.whole("outcome")), class_=classes.category(kept.whole("class_"))
        )
        in_flight = kept.keep(in_flight_at_start(rows))
    rows = rows.rename({"class_": "class"})
    return rows.with_columns(failed=pl.col("outcome") == Outcome.FAILED, in_flight=pl.Series(in_flight))


def _is_client(of_root: NDArray[np.int32], ends: pl.DataFrame) -> NDArray[np.bool_]:
    """Whether each root is a client's own request. Arguments: the row of each one's ends among all `ends`."""
    chosen = np.zeros(len(ends), np.bool_)
    chosen[of_root] = True
    own = of_clients(ends.with_row_index("row").filter(pl.Series(chosen)), ends)["row"].to_numpy()
    chosen[:] = False
    chosen[own] = True
    return chosen[of_root]


def size_bytes() -> pl.Expr:
    """The size of an exchange: the larger of request and response, with heads."""
    return pl.max_horizontal(pl.col("request_bytes").fill_null(0), pl.col("response_bytes").fill_null(0))


def request_classes(requests: pl.DataFrame) -> tuple[RequestClass, ...]:
    """The classes of the requests in a frame from `request_table`: clients' own first, those with the most total time
    first."""
    took = measured_ns()
    shares = {f"p{name}_ns": took.quantile(share, "higher").cast(pl.Int64) for name, share in _SHARES}
    columns = ("class", "outcome", "failed", "outermost", "duration_ns")
    rows = (
        requests.select(columns)
        .group_by("class")
        .agg(
            requests_count=pl.len(),
            failed_count=pl.col("failed").sum(),
            abandoned_count=is_abandoned().sum(),
            unknown_count=(pl.col("outcome") == Outcome.UNKNOWN).sum(),
            **shares,
            longest_ns=took.max(),
            all=pl.col("duration_ns").sum(),
            own=pl.col("outermost").any(),
        )
    )
    ordered = (
        rows.with_columns(pl.col("class").cast(pl.String))
        .sort("own", "all", "class", descending=[True, True, False])
        .drop("own", "all")
    )
    return tuple(RequestClass(**row) for row in ordered.rename({"class": "name"}).iter_rows(named=True))


_SHARES = (("50", 0.5), ("90", 0.9), ("99", 0.99))


def in_flight_at_start(requests: pl.DataFrame) -> NDArray[np.int32]:
    """For each request, how many outermost requests were in flight when it began, including itself if it is one."""
    own, ended = requests["outermost"].to_numpy(), requests["end_ns"].to_numpy()
    # A client's pause is no part of its request, so it is not in flight from its start on, but for its duration.
    begun = ended - requests["duration_ns"].to_numpy()
    begins, ends = begun[own], ended[own]
    begins.sort(kind="stable")  # nearly in order: quick
    ends.sort(kind="stable")
    count = np.empty(len(requests), np.int32)
    for part in slices_of(len(requests)):
        at = begun[part]
        more = np.searchsorted(begins, at, side="right") - np.searchsorted(ends, at, side="left")
        count[part] = np.maximum(more, 0)
    return count


def class_name() -> pl.Expr:
    """The class of an exchange, of which `NAMED` and `bytes` (`size_bytes`) are known: `PUT object 1-16 KiB at
    swift-proxy`, `UploadPart 4-64 MiB at s3`; unknown parts are omitted. A path is an account's, a container's or an
    object's only at services whose targets name accounts: others have `/v1/orders/17`, too."""
    target = pl.col("target").fill_null("")
    named = pl.when(pl.col("service").cast(pl.String).is_in([*target_words("account")])).then(target)
    groups, path = named.str.extract_groups(_PATH), named.str.contains(_PATH)
    shape: pl.Expr = pl.when(pl.col("protocol").is_in(WITH_FEW_TARGETS), target != "").then(target)
    is_long = shape.str.len_chars() > LONGEST_SHAPE
    shape = pl.when(is_long).then(pl.concat_str(shape.str.head(LONGEST_SHAPE), pl.lit("…"))).otherwise(shape)
    kind = (
        pl.when(shape.is_not_null())
        .then(shape)
        .when(groups.struct.field("object").is_not_null())
        .then(pl.lit("object"))
        .when(groups.struct.field("container").is_not_null())
        .then(pl.lit("container"))
        .when(path)
        .then(pl.lit("account"))
    )
    size = pl.lit(LARGEST)
    for limit, name in reversed(SIZES):
        size = pl.when(pl.col("bytes") < limit).then(pl.lit(name)).otherwise(size)
    method = pl.col("method").replace("", None).fill_null("request")
    call = pl.when(is_grpc(), target != "").then(target.str.strip_prefix("/"))
    asked = pl.coalesce("operation", call, pl.concat_str(method, kind, separator=" ", ignore_nulls=True))
    at = pl.when(pl.col("service").fill_null("") != "").then(pl.format("at {}", "service"))
    return pl.concat_str(asked, size, at, separator=" ", ignore_nulls=True)
