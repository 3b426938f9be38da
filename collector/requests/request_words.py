"""What a request asks for, in the words of its protocol: the name by which pages, reports and exports call it.

A request is gRPC's if a code of gRPC was seen or due (`result_code`): its target is then the service and the method
that are called (`/shop.Cart/Get`), and the method of HTTP, always POST, says nothing.
Source: gRPC over HTTP/2, "Requests".
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

CODES_OF_GRPC = (-2, 16)
"""The first is one that was not seen; others are codes of resets of HTTP/2."""
WORDED = ("protocol", "method", "target", "result_code", "operation", "bucket", "object_key", "part")
"""Columns of exchanges that `request_words` needs."""


def request_words(row: Mapping[str, Any]) -> str:
    """`UploadPart 3 of photos/cat.jpg`, `shop.Cart/Get`, `PUT /v1/a/c`, `SELECT … FROM orders`; "" if nothing shows it.

    Arguments: `row`, with the columns `WORDED`.
    """
    if not row["operation"]:
        method, target = row["method"] or "", row["target"] or ""
        code = row["result_code"] if row["protocol"] == "http/2" else None
        is_call = code is not None and CODES_OF_GRPC[0] <= code <= CODES_OF_GRPC[1] and target
        return target.removeprefix("/") if is_call else f"{method} {target}".strip()
    part = f"{row['part']} of" if row["part"] else ""
    place = "/".join(row[name] for name in ("bucket", "object_key") if row[name])
    return " ".join(filter(None, (row["operation"], part, place)))


def is_grpc() -> pl.Expr:
    """Whether requests are calls of gRPC; never null."""
    return (pl.col("result_code").is_between(*CODES_OF_GRPC) & (pl.col("protocol") == "http/2")).fill_null(value=False)
