"""The columns of S3's requests, from scripts of heads."""

from typing import Any

import pyarrow as pa
import pytest

from collector.requests.request_words import WORDED, request_words
from collector.requests.s3_names import COPIES, NAMED, PLAIN, S3Evidence, buckets_of_hosts, s3_evidence
from collector.trace.schema import EXCHANGES, conform


def exchanges(*lines: str) -> pa.Table:
    """Exchanges from lines `METHOD TARGET`, each 10 ns long and 10 ns after the one before, and `NAME=VALUE` for other
    columns. `s3` marks a request of S3's, `copy` one that copies."""
    rows = []
    for at, line in enumerate(lines):
        method, target, *words = line.split()
        row: dict[str, Any] = {"exchange_id": at + 1, "method": method, "target": target, "status": 200}
        row |= {"client_host": "client", "operation": COPIES if "copy" in words else PLAIN if "s3" in words else None}
        row |= {"request_first_sent_trace_ns": 20 * at, "response_last_received_trace_ns": 20 * at + 10}
        row |= {name: int(value) if value.isdigit() else value for name, value in
                (word.split("=", 1) for word in words if "=" in word)}  # fmt: skip
        rows.append(row)
    kinds = [field for field in EXCHANGES if rows and field.name in set().union(*rows)]
    return conform("exchanges", pa.Table.from_pylist(rows, schema=pa.schema(kinds)))


def name_columns(*lines: str) -> list[dict[str, Any]]:
    made, evidence = exchanges(*lines), S3Evidence()
    for at in range(made.num_rows):  # as if each came from a partition of its own
        evidence.add(s3_evidence(made.slice(at, 1)))
    found: list[dict[str, Any]] = evidence.names().with_names(made).select(NAMED).to_pylist()
    return found


def words(*lines: str) -> list[str]:
    return [request_words(dict.fromkeys(WORDED) | row) for row in name_columns(*lines)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /photos/cat.jpg s3", "GetObject photos/cat.jpg"),
        ("GET /photos/cat.jpg", ""),
        ("GET / s3", "ListBuckets"),
        ("GET /photos/ s3", "ListObjects photos"),
        ("GET /photos?list-type=2&prefix=a s3", "ListObjectsV2 photos"),
        ("PUT /photos/a%20b/c%2Fd s3", "PutObject photos/a b/c/d"),
        ("PUT /photos/a%0Ab s3", "PutObject photos/a%0Ab"),
        ("PUT /photos/%FF s3", "PutObject photos/%FF"),
        ("PUT /photos/cat.jpg copy", "CopyObject photos/cat.jpg"),
        ("PUT /photos/cat.jpg?partNumber=3&uploadId=2~x copy", "UploadPartCopy 3 of photos/cat.jpg"),
        ("PUT /photos/cat.jpg?uploadId=2~x&partNumber=99999 s3", "UploadPart photos/cat.jpg"),
        ("GET http://store/photos/cat.jpg s3", "GetObject photos/cat.jpg"),
        ("GET /cat.jpg s3 authority=photos.s3.eu-west-1.amazonaws.com", "GetObject photos/cat.jpg"),
        ("GET /a/b s3 authority=my.photos.S3.amazonaws.com:443", "GetObject my.photos/a/b"),
        ("GET /photos/cat.jpg s3 authority=s3.amazonaws.com", "GetObject photos/cat.jpg"),
        ("GET /photos/cat.jpg s3 authority=store.example.com", "GetObject photos/cat.jpg"),
        ("GET /minio/health/live s3", ""),
        ("GET /admin/user?uid=a s3 transaction_id=tx00000a", ""),
        ("GET /admin/user s3 transaction_id=17A", "GetObject admin/user"),
        ("POST / s3", ""),
        ("OPTIONS /photos/cat.jpg s3", ""),
    ],
)
def test_a_request_is_named_by_its_operation_bucket_and_key(line: str, expected: str) -> None:
    assert words(line) == [expected]


def test_what_is_not_named_has_nothing_of_a_name() -> None:
    nothing = dict.fromkeys(NAMED)
    assert name_columns("POST /?uploadId=1 s3", "GET /photos/a", "PUT /a/b?uploadId=1") == [nothing] * 3
    assert name_columns() == []


def test_a_bucket_is_in_the_host_if_a_shorter_name_of_the_store_was_asked_too() -> None:
    found = words(
        "GET /cat.jpg s3 authority=photos.store.example.com",
        "GET / s3 authority=store.example.com",
        "GET /dog.jpg s3 authority=my.photos.store.example.com",
    )
    assert found == ["GetObject photos/cat.jpg", "ListBuckets", "GetObject my.photos/dog.jpg"]


def test_a_bucket_is_in_the_host_if_something_was_asked_that_makes_no_sense_without() -> None:
    assert words(
        "GET /cat.jpg s3 authority=photos.example.com", "POST /cat.jpg?uploads s3 authority=photos.example.com"
    ) == ["GetObject photos/cat.jpg", "CreateMultipartUpload photos/cat.jpg"]
    assert buckets_of_hosts({"photos.example.com": False, "a": False}) == {"photos.example.com": "", "a": ""}


def test_a_balancers_probe_shows_no_bucket_in_the_host() -> None:
    probe, get = "HEAD / s3 authority=store.example.com", "GET /photos/cat.jpg s3 authority=store.example.com"
    assert words(probe, get) == ["", "GetObject photos/cat.jpg"]


CREATE = "POST /photos/cat.jpg?uploads s3"


def part(upload: str, number: int = 1) -> str:
    return f"PUT /photos/cat.jpg?partNumber={number}&uploadId={upload} s3"


UPLOADS = [
    ("one upload", [CREATE, part("a"), part("a", 2), "POST /photos/cat.jpg?uploadId=a s3"], ["a", "a", "a", "a"]),
    ("one after the other", [CREATE, part("a"), CREATE, part("b")], ["a", "a", "b", "b"]),
    ("two at once", [CREATE, CREATE, part("a"), part("b")], [None, None, "a", "b"]),
    ("another object's", ["POST /photos/dog.jpg?uploads s3", part("a")], [None, "a"]),
    ("another client's", [CREATE + " client_host=other", part("a")], [None, "a"]),
    ("after its parts", [part("a"), CREATE], ["a", None]),
    ("refused", [CREATE + " status=403", CREATE, part("a")], [None, "a", "a"]),
    ("never used", [CREATE], [None]),
    ("aborted", [CREATE, "GET /photos/cat.jpg?uploadId=a s3", "DELETE /photos/cat.jpg?uploadId=a s3"], ["a"] * 3),
    ("of uploads, listed", ["GET /photos?uploads s3", part("a")], [None, "a"]),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), [case[1:] for case in UPLOADS], ids=[case[0] for case in UPLOADS])
def test_all_requests_of_an_upload_have_its_id(lines: list[str], expected: list[str | None]) -> None:
    assert [row["upload"] for row in name_columns(*lines)] == expected
