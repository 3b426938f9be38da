"""Builds a frame of all requests of a trace, and groups them to classes by operation, service and size.

Requests are of one class if they have the same operation, service and size class. The operation is S3's, a call of
gRPC, or the method and kind (of SQL the statement's shape; account, container or object, if the path shows it). The
size is that of the larger of request and response, with heads, in steps of a factor of sixteen: within a step, the size
has little influence on the duration.

Source for the paths: Swift's API reference (`/v1/{account}/{container}/{object}`) and the requests of its proxy
(`/{device}/{partition}/…`).
"""

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from collector.requests.outcomes import Outcome, is_abandoned, measured_ns
from collector.requests.protocols import WITH_FEW_TARGETS
from collector.requests.request_words import WORDED, is_grpc
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


_OF_ROOTS = tuple(
    dict.fromkeys(
        (
            *("request", "start", "end", "duration_ns", "end_trace_ns", "outcome", "background", "service", "status"),
            *("result", "client_host", "server_host", "client_peer", "server_peer", "transaction_id", "upload"),
            *("request_bytes", "response_bytes", *WORDED),
        )
    )
)
"""Columns of spans that the table is made of: a copy of all would take 600 bytes a request."""


def request_table(spans: pl.DataFrame) -> pl.DataFrame:
    """The requests of a trace, one row each, by number.

    Arguments: `spans`, as `SpanTrees.frame`.
    Returns: `number, start_ns, end_ns, duration_ns, ended, class, service, status, result, outcome,
    failed, client_host, server_host, bytes, transaction_id, upload`, `client` and `server` (hosts, or what addresses
    without a capture are called), the columns `WORDED`, `outermost` (a client's own:
    `collector.services.client_requests`), `in_flight` (outermost requests in flight when it began, itself included).
    """
    ends = spans.select("client_host", "server_host", "background")
    roots = spans.select(_OF_ROOTS).unique("request", keep="first", maintain_order=True)
    size = pl.max_horizontal(pl.col("request_bytes").fill_null(0), pl.col("response_bytes").fill_null(0))
    client_requests = of_clients(roots, ends)["request"]
    rows = roots.select(
        *WORDED,
        *("service", "status", "result", "client_host", "server_host", "transaction_id", "upload"),
        number="request",
        start_ns="start",
        end_ns="end",
        duration_ns="duration_ns",
        ended=pl.col("end_trace_ns").is_not_null(),
        client=pl.coalesce("client_host", "client_peer"),
        server=pl.coalesce("server_host", "server_peer"),
        bytes=size,
        outcome=pl.col("outcome").fill_null(str(Outcome.UNKNOWN)),
        outermost=pl.col("request").is_in(client_requests.implode()),
    ).with_columns(failed=pl.col("outcome") == Outcome.FAILED)
    rows = rows.with_columns(class_name().alias("class"))
    return rows.with_columns(in_flight=pl.Series(in_flight_at_start(rows), dtype=pl.Int32))


def request_classes(requests: pl.DataFrame) -> tuple[RequestClass, ...]:
    """The classes of the requests in a frame from `request_table`: clients' own first, those with the most total time
    first."""
    took = measured_ns()
    shares = {f"p{name}_ns": took.quantile(share, "higher").cast(pl.Int64) for name, share in _SHARES}
    rows = requests.group_by("class").agg(
        requests_count=pl.len(),
        failed_count=pl.col("failed").sum(),
        abandoned_count=is_abandoned().sum(),
        unknown_count=(pl.col("outcome") == Outcome.UNKNOWN).sum(),
        **shares,
        longest_ns=took.max(),
        all=pl.col("duration_ns").sum(),
        own=pl.col("outermost").any(),
    )
    ordered = rows.sort("own", "all", "class", descending=[True, True, False]).drop("own", "all")
    return tuple(RequestClass(**row) for row in ordered.rename({"class": "name"}).iter_rows(named=True))


_SHARES = (("50", 0.5), ("90", 0.9), ("99", 0.99))


def in_flight_at_start(requests: pl.DataFrame) -> NDArray[np.int32]:
    """For each request, how many outermost requests were in flight when it began, including itself if it is one."""
    outer = requests.filter(pl.col("outermost"))
    # A client's pause is no part of its request, so it is not in flight from its start on, but for its duration.
    begun = np.sort((outer["end_ns"] - outer["duration_ns"]).to_numpy())
    ended = np.sort(outer["end_ns"].to_numpy())
    at = (requests["end_ns"] - requests["duration_ns"]).to_numpy()
    count = np.searchsorted(begun, at, side="right") - np.searchsorted(ended, at, side="left")
    return np.maximum(count, 0).astype(np.int32)


def class_name() -> pl.Expr:
    """The class of an exchange whose `bytes` are known: `PUT object 1-16 KiB at swift-proxy`, `UploadPart 4-64 MiB at
    s3`; unknown parts are omitted. A path is an account's, a container's or an object's only at services whose targets
    name accounts: others have `/v1/orders/17`, too."""
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
