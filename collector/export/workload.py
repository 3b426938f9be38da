"""Exports a trace's client requests as a workload: each at its own time, to be played elsewhere by `tracer bench run`.

The format is the load generator's (`tracer bench` reads it; docs/bench.md, "A trace as a workload"): JSON lines, a head
and one line for each request. Taken are requests over HTTP that no other request caused and no daemon sent, to a Swift
proxy (`/v1/ACCOUNT/CONTAINER/OBJECT`) or an S3 store, whoever's. A request's time is when its first byte was sent, on
the trace's timescale.

Names are keyed hashes (BLAKE2b, RFC 7693, 128 bits) under a key that is drawn for each file and kept nowhere: the same
name is the same hash within a file, and no dictionary of names finds it. Account, credentials and headers are left out.

Approximations: a read of a range becomes a read of an object of its own, as long as what was delivered; a part of a
multipart upload an object of its own. Where the capture cut a head before its Content-Length, or there is none, a size
is what was sent less the median of the clients' messages without a body (`estimated` counts these). Left out and
counted by reason: logins, copies (what is copied is in no table), requests that begin, end or list multipart uploads,
POST and others, requests about accounts, those without a time or whose body's length is not known.
"""

import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl

from collector.capture_files.records import HeadKind
from collector.trace.reading import Trace

FORMAT = "twintap-requests"
VERSION = 1
HASH_LEN = 16
KEY_LEN = 32
_SWIFT = re.compile(r"/v1(?:\.0)?/[^/?]+(?:/(?P<container>[^/?]+)(?:/(?P<object>[^?]+))?)?/?(?:\?.*)?")
_PATH_STYLE = re.compile(r"/(?:(?P<container>[^/?]+)(?:/(?P<object>[^?]+))?)?/?(?:\?.*)?")
_LOGIN = re.compile(r"/(auth/)?v1\.0(/.*)?|/v[23](\.0)?/(auth/)?tokens.*|/auth/.*")
_OBJECT_KINDS = {"GET": "read", "HEAD": "head", "PUT": "write", "DELETE": "delete"}
_CONTAINER_KINDS = {"GET": "list", "HEAD": "head", "PUT": "init", "DELETE": "dispose"}
_MULTIPART = re.compile(r"[?&](uploads?|uploadId)(=|&|$)")
_COLUMNS = (
    "exchange_id", "connection_id", "protocol", "method", "target", "operation", "bucket", "object_key", "upload",
    "part", "range_first", "range_last", "status", "background", "request_first_sent_trace_ns",
    "request_first_received_trace_ns", "request_bytes", "response_bytes",
)  # fmt: skip
_HEADS = ("connection_id", "from_client", "stream_offset", "head_kind", "method", "status", "content_length")
_TIME = "request_first_sent_trace_ns"
FIRST_FINAL = 200
PARTIAL = 206


class NotPlayableError(Exception):
    """Why a request cannot be part of a workload; the text is its reason, in the plural."""


def write(trace: Trace, place: Path) -> list[Path]:
    """Write a trace's client requests to the file `place`; returns it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    requests, left_out = workload(trace, secrets.token_bytes(KEY_LEN))
    estimated = sum("estimated" in each for each in requests)
    head = {"format": FORMAT, "version": VERSION, "name": trace.name, "estimated": estimated, "left_out": left_out}
    lines = [head, *requests]
    place.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
    return [place]


def workload(trace: Trace, key: bytes) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The requests in order of their time, and how many were left out, by reason.

    Arguments: `key`, of the hashes, 1 to 64 bytes.
    """
    names = Names(key)
    found, left_out = [], Counter[str]()
    for row in _client_requests(trace).iter_rows(named=True):
        try:
            found.append(_request(row, names))
        except NotPlayableError as reason:
            left_out[str(reason)] += 1
    found.sort(key=lambda each: each["t_ns"])
    start_ns = found[0]["t_ns"] if found else 0
    return [{**each, "t_ns": each["t_ns"] - start_ns} for each in found], left_out


class Names:
    """Names as keyed hashes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def container(self, name: str) -> str:
        """The hash of a container's name."""
        return "c" + self._hash("container", name)

    def object(self, container: str, name: str, part: str = "") -> str:
        """The hash of an object's name, or of a part or range of it."""
        return "o" + self._hash("object", container, name, part)

    def _hash(self, *parts: str) -> str:
        text = "\0".join(parts).encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, key=self._key, digest_size=HASH_LEN).hexdigest()


def _client_requests(trace: Trace) -> pl.DataFrame:
    """Requests over HTTP without a parent that no daemon sent."""
    exchanges = _with_lengths(trace, pl.DataFrame(trace.read("exchanges", columns=list(_COLUMNS))))
    spans = pl.DataFrame(trace.read("spans", columns=["span_id", "parent_span_id"]))
    roots = spans.filter(pl.col("parent_span_id").is_null()).select(exchange_id="span_id")
    is_http = pl.col("protocol").cast(pl.String).str.starts_with("http")
    is_daemons = pl.col("background").fill_null(False) | (pl.col("method").cast(pl.String) == "REPLICATE").fill_null(
        False
    )
    found = exchanges.join(roots, on="exchange_id", how="semi").filter(is_http & ~is_daemons)
    estimates = {f"{side}_len_estimated": _estimate(found, side) for side in ("request", "response")}
    return found.with_columns(**estimates)


def _with_lengths(trace: Trace, exchanges: pl.DataFrame) -> pl.DataFrame:
    """Exchanges with `request_len` and `response_len`, the length of their bodies by their heads, null where these say
    nothing.

    A head is an exchange's if it is at the same place among the heads of its connection, and says the same.
    """
    messages = pl.DataFrame(trace.read("messages", columns=list(_HEADS)))
    messages = messages.unique(["connection_id", "from_client", "stream_offset"])
    place = pl.int_range(pl.len()).over("connection_id").alias("place")
    exchanges = exchanges.sort("connection_id", _TIME, "exchange_id").with_columns(place)
    given = pl.when(pl.col("content_length") >= 0).then(pl.col("content_length"))
    for is_request, length, same in ((True, "request_len", "method"), (False, "response_len", "status")):
        kind = HeadKind.REQUEST if is_request else HeadKind.RESPONSE
        heads = messages.filter((pl.col("from_client") == is_request) & (pl.col("head_kind") == kind))
        heads = heads if is_request else heads.filter(pl.col("status") >= FIRST_FINAL)
        heads = heads.sort("connection_id", "stream_offset").with_columns(place)
        heads = heads.select("connection_id", "place", pl.col(same).cast(pl.String).alias("same"), given.alias(length))
        exchanges = exchanges.join(heads, on=["connection_id", "place"], how="left")
        is_same = pl.col("same") == pl.col(same).cast(pl.String)
        exchanges = exchanges.with_columns(pl.when(is_same).then(pl.col(length)).alias(length)).drop("same")
    return exchanges


def _estimate(requests: pl.DataFrame, side: str) -> pl.Expr:
    """The length of a body by what was sent in all, less a head as long as the median of messages without a body."""
    bodiless = ("GET", "HEAD", "DELETE") if side == "request" else ("PUT", "HEAD", "DELETE")
    sent = requests.filter(pl.col("method").cast(pl.String).is_in(bodiless)).select(pl.col(f"{side}_bytes").median())
    return (pl.col(f"{side}_bytes") - pl.lit(sent.item() or 0).cast(pl.Int64)).clip(0)


def _request(row: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """A request as a line. Raises: NotPlayableError."""
    time_ns = row["request_first_sent_trace_ns"]
    time_ns = row["request_first_received_trace_ns"] if time_ns is None else time_ns
    if time_ns is None:
        raise NotPlayableError("without a time")
    container, name = _place(row)
    kind = _kind(row, has_object=bool(name))
    made: dict[str, Any] = {"t_ns": time_ns, "kind": kind, "container": names.container(container)}
    if name:
        size_bytes, part, is_estimated = _size(row, kind)
        made |= {"object": names.object(container, name, part), "size_bytes": size_bytes}
        made |= {"estimated": True} if is_estimated else {}
    return made | {"status": row["status"] or 0}


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    """Container and object, "" for none. Raises: NotPlayableError."""
    if row["bucket"]:
        return row["bucket"], row["object_key"] or ""
    target = row["target"] or ""
    if _LOGIN.fullmatch(target):
        raise NotPlayableError("logins")
    match = _SWIFT.fullmatch(target) or _PATH_STYLE.fullmatch(target)
    if match is None or not match["container"]:
        raise NotPlayableError("about no container")
    return unquote(match["container"]), unquote(match["object"] or "")


def _kind(row: Mapping[str, Any], *, has_object: bool) -> str:
    """What is done, in the format's words. Raises: NotPlayableError."""
    method, operation, target = row["method"] or "", row["operation"] or "", row["target"] or ""
    if method == "COPY" or "Copy" in operation:
        raise NotPlayableError("copies")
    if _MULTIPART.search(target) and operation != "UploadPart" and not (method == "PUT" and row["part"]):
        raise NotPlayableError("that begin, end or list multipart uploads")
    kind = (_OBJECT_KINDS if has_object else _CONTAINER_KINDS).get(method)
    if kind is None:
        raise NotPlayableError(f"{method or 'unknown'} requests")
    return kind


def _size(row: Mapping[str, Any], kind: str) -> tuple[int, str, bool]:
    """Bytes of the object, what sets it apart from the whole object, and whether its size is an estimate.

    Raises: NotPlayableError.
    """
    part = f"part {row['upload']} {row['part']}" if row["part"] is not None else ""
    if kind == "head":
        return row["response_len"] or 0, part, False
    if kind == "delete" or (kind == "read" and not 200 <= (row["status"] or 0) < 300):
        return 0, part, False
    if kind == "read" and row["range_first"] is not None and row["status"] == PARTIAL:
        part = f"range {row['range_first']} {row['range_last']}"
    length = "request_len" if kind == "write" else "response_len"
    if row[length] is not None:
        return row[length], part, False
    if row[f"{length}_estimated"] is None:
        raise NotPlayableError("whose body's length is not known")
    return row[f"{length}_estimated"], part, True
