"""Names S3's requests: the columns `operation`, `bucket`, `object_key`, `upload` and `part` of exchanges.

An exchange is S3's if a head of it has evidence for it (`HeadFlag.S3`). A client names a bucket in the path, or in the
host before the store's own name (virtual-host style). Which of the two is decided for each host name, once all
exchanges are known:

1. an address, or a name of one label: in the path;
2. a name of AWS's: what is before the label `s3`, if anything, is the bucket;
3. a name that ends in a shorter name under which S3 was asked, too: what is before that is the bucket;
4. a name under which something was asked that makes no sense in the path (`PUT /`, `POST /key?uploads`): its first
   label is the bucket;
5. otherwise in the path.

The request that creates a multipart upload does not hold its id. It belongs to the upload whose first request came
after its answer, from the same host and for the same object, if there is just one such upload and no other creation.

Limits: by 5, a store that is only asked for objects of one bucket by virtual host appears with the key's first part as
the bucket. Paths that MinIO and RGW keep for themselves are not named.
Source: Amazon S3 User Guide, "Virtual hosting of general purpose buckets"; `collector.requests.s3_operations`.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct, field
from numpy.typing import NDArray

from collector.capture_files.records import HeadFlag, HeadKind
from collector.requests.s3_operations import UPLOADS, operation
from collector.trace.arrow import bits, dictionary_array, numbers
from collector.trace.request_times import BEGIN, RESPONSE_END
from collector.trace.schema import EXCHANGES

PLAIN, COPIES = "s3", "s3 copy"
"""Preliminary `operation` of an exchange: it is S3's, and whether it copies."""
NAMED = ("operation", "bucket", "object_key", "upload", "part")
NO_ROW = -1
_HEADS = (HeadKind.REQUEST, HeadKind.RESPONSE)
_OK = 200
_AWS = (".amazonaws.com", ".amazonaws.com.cn")
_AWS_LABELS = ("s3-", "s3express-")
_LOCAL = ("client_host", "authority", "path")

Hosts = Mapping[str, bool]
"""Names under which S3 was asked, and whether something was that only a virtual host makes sense of."""


def s3_marks(heads: pa.Table, request_row: NDArray[np.int64], response_row: NDArray[np.int64] | None) -> pa.Array:
    """The preliminary `operation` of exchanges, by the rows of their heads in the table `messages`."""
    is_http = np.isin(numbers(heads["head_kind"]), _HEADS)
    flags = np.where(is_http, numbers(heads["head_flags"]), 0)
    asked = np.where(request_row == NO_ROW, 0, flags[request_row])
    answered = 0 if response_row is None else np.where(response_row == NO_ROW, 0, flags[response_row])
    is_s3 = ((asked | answered) & HeadFlag.S3 > 0) & (request_row != NO_ROW)
    copies = (asked & HeadFlag.S3_COPY > 0).astype(np.int32)
    return dictionary_array(copies, pa.array([PLAIN, COPIES]), bits(is_s3))


class S3Evidence(Struct, frozen=True):
    """What must be known of all exchanges before those of S3 are named. Memory: by host names and uploads."""

    hosts: dict[str, bool] = field(default_factory=dict)  # as `Hosts`
    uploads: list[pl.DataFrame] = field(default_factory=list)  # for `uploads_by_creation`

    def add(self, other: "S3Evidence") -> None:
        """Add the evidence of other exchanges."""
        for host, is_virtual in other.hosts.items():
            self.hosts[host] = self.hosts.get(host, False) or is_virtual
        self.uploads.extend(other.uploads)

    def names(self) -> "S3Names":
        """What names the exchanges."""
        created = uploads_by_creation(pl.concat(self.uploads)) if self.uploads else {}
        return S3Names(buckets_of_hosts(self.hosts), created)


def s3_evidence(exchanges: pa.Table) -> S3Evidence:
    """The evidence of the exchanges of some connections, which have the preliminary `operation`."""
    rows = _s3_rows(exchanges)
    if rows.is_empty():
        return S3Evidence()
    uploads = _upload_rows(rows)
    return S3Evidence(dict(_virtual_evidence(rows)), [] if uploads.is_empty() else [uploads])


class S3Names:
    """The buckets in hosts' names, and the uploads that requests created, by `exchange_id`."""

    def __init__(self, buckets: Mapping[str, str], created: Mapping[int, str]) -> None:
        self._buckets = buckets
        self._created = created

    def with_names(self, exchanges: pa.Table) -> pa.Table:
        """Exchanges with the columns `NAMED`; null in those that are not S3's."""
        rows = _s3_rows(exchanges)
        if rows.is_empty():
            return exchanges
        named = _name_columns(rows, self._buckets, self._created)
        all_rows = pl.DataFrame({"row": np.arange(exchanges.num_rows, dtype=np.uint32)})
        spread = all_rows.join(named, on="row", how="left", maintain_order="left").to_arrow()
        for name in NAMED:
            field = EXCHANGES.field(name)
            column = spread[name].cast(pa.string()) if name != "part" else spread[name]
            column = column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
            exchanges = exchanges.set_column(exchanges.schema.get_field_index(name), field, column.cast(field.type))
        return exchanges


def buckets_of_hosts(hosts: Hosts) -> Mapping[str, str]:
    """Host name to the bucket that it names; "" where buckets are named in paths."""
    return {host: _bucket_in(host, hosts) for host in hosts}


def uploads_by_creation(rows: pl.DataFrame) -> Mapping[int, str]:
    """`exchange_id` of a request that created an upload, to the upload's id.

    Arguments: `client_host, authority, path`, and of a creation `exchange_id, end_ns`, of other requests of an upload
    `upload, begin_ns`.
    """
    found: dict[int, str] = {}
    created = rows.filter(pl.col("upload").is_null())
    used = rows.filter(pl.col("upload").is_not_null()).group_by(*_LOCAL, "upload").agg(pl.col("begin_ns").min())
    mine = used.join(created.select(*_LOCAL, "exchange_id", "end_ns"), on=_LOCAL, nulls_equal=True)
    mine = mine.filter(pl.col("end_ns") <= pl.col("begin_ns"))
    firsts = mine.group_by(*_LOCAL, "upload", "begin_ns").agg("exchange_id").sort("begin_ns", "upload")
    for upload, ids in firsts.select("upload", "exchange_id").iter_rows():
        free = [one for one in ids if one not in found]
        if len(free) == 1:
            found[free[0]] = upload
    return found


def _s3_rows(exchanges: pa.Table) -> pl.DataFrame:
    """The exchanges that are S3's: `row`, and what names them."""
    kinds = exchanges["operation"]
    where = np.flatnonzero(kinds.is_valid().to_numpy())
    columns = [
        *("exchange_id", "client_host", "method", "target", "authority", "operation", "status", "transaction_id"),
        *BEGIN.columns,
        *RESPONSE_END.columns,
    ]
    frame = pl.from_arrow(exchanges.select(columns).take(pa.array(where)))
    assert isinstance(frame, pl.DataFrame)
    parts = pl.col("target").fill_null("").str.splitn("?", 2).struct
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).with_columns(
        row=pl.Series(where, dtype=pl.UInt32),
        authority=pl.col("authority").str.to_lowercase().str.replace(r"\.?(:\d*)?$", ""),
        path=_without_host(parts[0]),
        query=parts[1].fill_null(""),
        copies=pl.col("operation") == COPIES,
    )


def _without_host(path: pl.Expr) -> pl.Expr:
    """The paths of targets, some of which are whole URLs."""
    return pl.when(path.str.starts_with("/")).then(path).otherwise(path.str.replace(r"^https?://[^/]*", ""))


def _with_operations(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with `operation`, by `bucket` and `object_key`. Cost: Python for each kind of request, not for each row."""
    rows = rows.with_columns(
        shape=pl.col("query").str.replace_all(r"=[^&;]+", "=1"),
        has_bucket=pl.col("bucket").is_not_null(),
        has_key=pl.col("object_key").is_not_null(),
    )
    kind = ["method", "shape", "has_bucket", "has_key", "copies"]
    kinds = rows.select(kind).unique()
    names = [
        operation(method or "", shape, has_bucket=bucket, has_key=key, copies=copies)
        for method, shape, bucket, key, copies in kinds.iter_rows()
    ]
    kinds = kinds.with_columns(operation=pl.Series(names, dtype=pl.String))
    return rows.drop("operation").join(kinds, on=kind, how="left", maintain_order="left", nulls_equal=True)


def _with_places(rows: pl.DataFrame, in_host: pl.Expr) -> pl.DataFrame:
    """Rows with `bucket` and `object_key`. Arguments: `in_host`, the bucket that the host names; "" for none."""
    parts = pl.col("path").str.strip_prefix("/").str.splitn("/", 2).struct
    rest = pl.col("path").str.strip_prefix("/")
    is_virtual = in_host != ""
    return rows.with_columns(
        bucket=pl.when(is_virtual).then(in_host).otherwise(parts[0]).replace("", None),
        object_key=pl.when(is_virtual).then(rest).otherwise(parts[1]).replace("", None),
    )


def _virtual_evidence(rows: pl.DataFrame) -> Iterable[tuple[str, bool]]:
    """Each host name in `rows`, and whether it was asked for what only a virtual host makes sense of."""
    rows = rows.filter(pl.col("authority").fill_null("") != "")
    in_path, in_host = (
        _with_operations(_with_places(rows, pl.lit(bucket)))["operation"].is_not_null() for bucket in ("", "any")
    )
    # A balancer probes with HEAD /, whatever the style.
    is_virtual = ~in_path & in_host & (rows["method"] != "HEAD").fill_null(value=False)
    virtual = rows.select("authority", virtual=is_virtual)
    return virtual.group_by("authority").agg(pl.col("virtual").any()).iter_rows()


def _bucket_in(host: str, hosts: Hosts) -> str:
    labels = host.split(".")
    if host.endswith(_AWS):
        places = [at for at, label in enumerate(labels) if label == "s3" or label.startswith(_AWS_LABELS)]
        return ".".join(labels[: places[-1]]) if places else ""
    shorter = [".".join(labels[at:]) for at in range(len(labels) - 1, 0, -1)]
    store = next((name for name in shorter if name in hosts), None)
    if store is not None:
        return host.removesuffix(f".{store}")
    return labels[0] if hosts[host] else ""


def _name_columns(rows: pl.DataFrame, buckets: Mapping[str, str], created: Mapping[int, str]) -> pl.DataFrame:
    """`row` and the columns `NAMED`."""
    in_host = pl.col("authority").fill_null("").replace_strict(dict(buckets), default="", return_dtype=pl.String)
    rows = _with_operations(_with_places(rows, in_host))
    is_kept_by_store = (pl.col("path").str.starts_with("/minio/")) | (
        pl.col("path").str.starts_with("/admin/") & pl.col("transaction_id").fill_null("").str.starts_with("tx0000")
    )
    rows = rows.with_columns(operation=pl.when(~is_kept_by_store).then("operation"))
    is_upload = pl.col("operation").is_in(UPLOADS)
    of_creation = pl.col("exchange_id").replace_strict(dict(created), default=None, return_dtype=pl.String)
    is_named = pl.col("operation").is_not_null()
    rows = rows.with_columns(
        upload=pl.coalesce(_upload_id(), of_creation),
        part=pl.when(is_upload).then(_parameter("partNumber").cast(pl.UInt16, strict=False)),
    )
    rows = rows.select("row", "operation", *(pl.when(is_named).then(name).alias(name) for name in NAMED[1:]))
    return rows.with_columns(_decode_texts(rows[name]) for name in ("bucket", "object_key", "upload"))


def _upload_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows for `uploads_by_creation`."""
    creates = (
        (pl.col("method") == "POST")
        & (pl.col("status") == _OK)
        & pl.col("query").str.contains(r"^uploads\b|[&;]uploads\b")
    )
    rows = rows.with_columns(upload=_upload_id(), creates=creates)
    return rows.filter(pl.col("upload").is_not_null() | creates).select(
        *_LOCAL,
        "exchange_id",
        "upload",
        begin_ns=BEGIN.expr(),
        end_ns=RESPONSE_END.expr(),
    )


def _upload_id() -> pl.Expr:
    return _parameter("uploadId")


def _parameter(name: str) -> pl.Expr:
    return pl.col("query").str.extract(rf"(?:^|[&;]){name}=([^&;]+)")


def _decode_texts(column: pl.Series) -> pl.Series:
    """Texts without percent-encoding, except those that would not be printable."""
    if not column.str.contains("%", literal=True).any():
        return column
    return pl.Series(column.name, [_decode(text) for text in column.to_list()], dtype=pl.String)


def _decode(text: str | None) -> str | None:
    if text is None or "%" not in text:
        return text
    plain = unquote(text, errors="replace")
    return plain if plain.isprintable() and "\ufffd" not in plain else text
