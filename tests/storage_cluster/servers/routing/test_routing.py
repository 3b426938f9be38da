"""boto3 through the routing proxy: where objects go, and that its users see one store."""

import base64
import hashlib
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.exceptions import ClientError

from storage_cluster.s3 import chunks, signatures
from testkit.two_back_ends import STORES, TwoBackEnds
from tests.helpers.s3_answers import answer_of, code_of, put_all
from tests.helpers.s3_clients import client_of

SMALL, LARGE = b"s" * 1000, b"L" * 150_000
PART = b"p" * 5 * 1024**2

KeysInStores = Callable[[], dict[str, list[str]]]


def body_of(client: Any, bucket: str, key: str, **options: str) -> bytes:
    body: bytes = client.get_object(Bucket=bucket, Key=key, **options)["Body"].read()
    return body


def test_objects_go_by_size_and_come_back(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    client.put_object(Bucket=bucket, Key="a/ü +%", Body=SMALL, Metadata={"colour": "blue"}, ContentType="text/x")
    client.put_object(Bucket=bucket, Key="b", Body=LARGE)
    client.put_object(Bucket=bucket, Key="c", Body=b"")
    assert keys_in_stores() == {"small": ["a/ü +%", "c"], "large": ["b"]}
    assert body_of(client, bucket, "b") == LARGE
    assert body_of(client, bucket, "b", Range="bytes=149990-") == b"L" * 10
    found = client.head_object(Bucket=bucket, Key="a/ü +%")
    assert (found["Metadata"], found["ContentType"], found["ContentLength"]) == ({"colour": "blue"}, "text/x", 1000)
    client.delete_object(Bucket=bucket, Key="b")
    assert keys_in_stores() == {"small": ["a/ü +%", "c"], "large": []}
    assert code_of(client.get_object, Bucket=bucket, Key="b") == "NoSuchKey"


def test_a_replaced_object_is_in_one_store(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    for body, store in ((SMALL, "small"), (LARGE, "large"), (SMALL, "small")):
        client.put_object(Bucket=bucket, Key="key", Body=body)
        assert keys_in_stores() == {"small": [], "large": []} | {store: ["key"]}
        assert body_of(client, bucket, "key") == body


def test_a_key_that_moves_is_always_read_and_listed_once(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="key", Body=SMALL)
    ended = threading.Event()

    def move() -> None:
        for _ in range(12):
            client.put_object(Bucket=bucket, Key="key", Body=LARGE)
            client.put_object(Bucket=bucket, Key="key", Body=SMALL)
        ended.set()

    mover = threading.Thread(target=move)
    mover.start()
    listings, bodies = [], []
    while not ended.is_set():
        found = client.list_objects_v2(Bucket=bucket)
        listings.append([entry["Key"] for entry in found.get("Contents", [])])
        bodies.append(body_of(client, bucket, "key"))
    mover.join()
    assert set(bodies) <= {SMALL, LARGE}
    assert [listing for listing in listings if listing != ["key"]] == []


def test_writers_of_one_key_leave_one_copy(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    writers = [
        threading.Thread(target=client.put_object, kwargs={"Bucket": bucket, "Key": "key", "Body": body})
        for body in (SMALL, LARGE) * 6
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = keys_in_stores()
    assert sorted(map(len, found.values())) == [0, 1]
    assert body_of(client, bucket, "key") == (SMALL if found["small"] else LARGE)


@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2"])
def test_a_listing_is_that_of_one_store(client: Any, bucket: str, operation: str) -> None:
    keys = [f"{folder}{number:02}" for folder in ("", "a/", "b/c/") for number in range(4)]
    for number, key in enumerate(keys):
        client.put_object(Bucket=bucket, Key=key, Body=LARGE[:2000] if number % 3 else SMALL)
    for arguments in ({}, {"Delimiter": "/"}, {"Prefix": "a/"}, {"Prefix": "b/", "Delimiter": "/"}):
        pages = client.get_paginator(operation).paginate(Bucket=bucket, PaginationConfig={"PageSize": 3}, **arguments)
        seen: list[str] = []
        for page in pages:
            entries = [each["Key"] for each in page.get("Contents", [])]
            entries += [each["Prefix"] for each in page.get("CommonPrefixes", [])]
            assert 1 <= len(entries) <= 3
            seen += sorted(entries)
        assert seen == list(expected_names(keys, **arguments)), arguments


def expected_names(keys: list[str], Prefix: str = "", Delimiter: str = "") -> Iterator[str]:
    last = ""
    for key in sorted(keys):
        if key.startswith(Prefix):
            rest, cut, _ = key[len(Prefix) :].partition(Delimiter) if Delimiter else (key[len(Prefix) :], "", "")
            name = Prefix + rest + cut
            if name != last:
                yield name
            last = name


def test_uploads_in_parts(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    client.put_object(Bucket=bucket, Key="key", Body=SMALL)
    place = {"Bucket": bucket, "Key": "key"}
    upload = place | {"UploadId": client.create_multipart_upload(**place, Metadata={"a": "b"})["UploadId"]}
    assert client.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["Key"] == "key"
    etags = [client.upload_part(**upload, PartNumber=n, Body=PART[n:])["ETag"] for n in (1, 2)]
    assert len(client.list_parts(**upload)["Parts"]) == 2
    assert keys_in_stores() == {"small": ["key"], "large": []}
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
    assert client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts[:1]})["ETag"].endswith('-1"')
    assert keys_in_stores() == {"small": [], "large": ["key"]}
    assert body_of(client, bucket, "key") == PART[1:]
    assert answer_of(client.abort_multipart_upload, **upload)[1] in ("", "NoSuchUpload")


def test_a_copy_lies_beside_its_source(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    client.put_object(Bucket=bucket, Key="a", Body=SMALL, Metadata={"a": "b"})
    client.put_object(Bucket=bucket, Key="b", Body=LARGE)
    client.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
    assert keys_in_stores() == {"small": ["a", "b"], "large": []}
    assert body_of(client, bucket, "b") == SMALL
    assert code_of(client.copy_object, Bucket=bucket, Key="c", CopySource=f"{bucket}/none") == "NoSuchKey"


def test_conditions_are_judged_where_the_object_is(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    etag = client.put_object(Bucket=bucket, Key="key", Body=SMALL, IfNoneMatch="*")["ETag"]
    refused = {"Bucket": bucket, "Key": "key", "Body": LARGE}
    assert code_of(client.put_object, **refused, IfNoneMatch="*") == "PreconditionFailed"
    assert code_of(client.put_object, **refused, IfMatch='"0"') == "PreconditionFailed"
    assert code_of(client.put_object, **refused, IfMatch=etag) == ""
    assert keys_in_stores() == {"small": ["key"], "large": []}
    assert body_of(client, bucket, "key") == LARGE
    assert answer_of(client.get_object, Bucket=bucket, Key="key", IfNoneMatch=f'"{md5(LARGE)}"') == (304, "304")


def md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def test_tags_and_many_deletions(client: Any, bucket: str, keys_in_stores: KeysInStores) -> None:
    put_all(client, bucket, "a", "b/c")
    client.put_object(Bucket=bucket, Key="d", Body=LARGE)
    tags = {"TagSet": [{"Key": "k", "Value": "v"}]}
    client.put_object_tagging(Bucket=bucket, Key="d", Tagging=tags)
    assert client.get_object_tagging(Bucket=bucket, Key="d")["TagSet"] == tags["TagSet"]
    assert code_of(client.delete_bucket, Bucket=bucket) == "BucketNotEmpty"
    listed = {"Objects": [{"Key": key} for key in ("a", "b/c", "d", "nothing")]}
    deleted = client.delete_objects(Bucket=bucket, Delete=listed)["Deleted"]
    assert [one["Key"] for one in deleted] == ["a", "b/c", "d", "nothing"]
    assert keys_in_stores() == {"small": [], "large": []}
    client.delete_bucket(Bucket=bucket)
    assert bucket not in [one["Name"] for one in client.list_buckets()["Buckets"]]


def test_settings_of_a_bucket_are_those_of_both(client: Any, front: TwoBackEnds, bucket: str) -> None:
    tags = {"TagSet": [{"Key": "k", "Value": "v"}]}
    client.put_bucket_tagging(Bucket=bucket, Tagging=tags)
    for host in STORES.values():
        assert client_of(front, host=host).get_bucket_tagging(Bucket=bucket)["TagSet"] == tags["TagSet"]
    client.delete_bucket_tagging(Bucket=bucket)
    assert code_of(client.get_bucket_tagging, Bucket=bucket) == "NoSuchTagSet"
    assert code_of(client.create_bucket, Bucket=bucket) in ("", "BucketAlreadyOwnedByYou")


def test_a_bucket_that_one_store_lacks_is_made_there(
    client: Any, front: TwoBackEnds, bucket: str, keys_in_stores: KeysInStores
) -> None:
    client_of(front, host="ext4").delete_bucket(Bucket=bucket)
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key="key", Body=LARGE)
    assert keys_in_stores() == {"small": [], "large": ["key"]}


def test_presigned_urls(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="a b", Body=LARGE)
    url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b"})
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == LARGE
        assert answer.headers["Server"] == "routing-proxy"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url[:-1] + ("0" if url[-1] != "0" else "1"))
    with caught.value as refused:
        assert refused.code == 403


def test_who_signs_nothing_may_do_what_everybody_may(front: TwoBackEnds, client: Any, bucket: str) -> None:
    anonymous = client_of(front, service="routing", signature_version=UNSIGNED)
    client.put_object(Bucket=bucket, Key="open", Body=SMALL, ACL="public-read")
    client.put_object(Bucket=bucket, Key="closed", Body=SMALL)
    assert body_of(anonymous, bucket, "open") == SMALL
    assert code_of(anonymous.get_object, Bucket=bucket, Key="closed") == "AccessDenied"


@pytest.mark.parametrize(
    ("form", "has_checksum"),
    [
        (chunks.SIGNED, False),
        (chunks.SIGNED_TRAILER, True),
        (chunks.UNSIGNED_TRAILER, False),
    ],
)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_uploads_in_signed_chunks(
    front: TwoBackEnds, client: Any, bucket: str, form: str, has_checksum: bool, is_damaged: bool
) -> None:
    body = b"c" * 100_000
    is_signed = form != chunks.UNSIGNED_TRAILER
    checksum = base64.b64encode(zlib.crc32(body).to_bytes(4)).decode()
    trailers = (("x-amz-checksum-crc32", checksum),) if has_checksum else ()
    answer = put_chunks(front, f"/{bucket}/key", body, form, trailers, is_damaged=is_damaged)
    if is_damaged and is_signed:
        assert answer.status == 403
        assert code_of(client.head_object, Bucket=bucket, Key="key") == "404"
    else:
        assert (answer.status, body_of(client, bucket, "key")) == (200, body if not is_damaged else b"d" + body[1:])


def put_chunks(
    front: TwoBackEnds, path: str, body: bytes, form: str, trailers: tuple[tuple[str, str], ...], *, is_damaged: bool
) -> Any:
    """A PUT in chunks of 64 KiB; a damaged one has another first byte than was signed."""
    routing = front.topology.service("routing")
    is_signed = form != chunks.UNSIGNED_TRAILER
    length = chunks.framed_len(len(body), 65_536, signed=is_signed, trailers=trailers)
    headers = {
        "host": f"{routing.address}:{routing.port}",
        "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": str(len(body)),
    }
    if trailers:
        headers["x-amz-trailer"] = trailers[0][0]
    request = signatures.SignableRequest("PUT", path, "", tuple(headers.items()))
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    made = signatures.signed_headers(
        request, signatures.Credentials("test:tester", "testing"), "us-east-1", moment, form
    )
    seed = made["Authorization"][-64:]
    signer = (
        chunks.ChunkSigner("testing", signatures.Scope(moment[:8], "us-east-1"), moment, seed) if is_signed else None
    )
    framed = b"".join(map(bytes, chunks.frame(chunks.split_chunks([memoryview(body)], 65_536), signer, trailers)))
    if is_damaged:
        framed = framed.replace(b"\r\nc", b"\r\nd", 1)
    assert len(framed) == length
    return front.ask("PUT", path, headers | made, framed, service="routing")


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("put_bucket_versioning", {"VersioningConfiguration": {"Status": "Enabled"}}),
        ("list_object_versions", {}),
        ("get_object", {"Key": "key", "VersionId": "null"}),
        ("put_bucket_lifecycle_configuration", {"LifecycleConfiguration": {"Rules": []}}),
    ],
)
def test_what_is_not_built_is_refused_by_name(client: Any, bucket: str, operation: str, arguments: Any) -> None:
    assert answer_of(getattr(client, operation), Bucket=bucket, **arguments) == (501, "NotImplemented")


def test_a_store_that_is_down_is_named(
    front: TwoBackEnds, client: Any, bucket: str, keys_in_stores: KeysInStores
) -> None:
    client.put_object(Bucket=bucket, Key="key", Body=SMALL)
    client.put_object(Bucket=bucket, Key="other", Body=SMALL)
    front.stop("ext4", "s3")
    try:
        with pytest.raises(ClientError) as caught:
            client.put_object(Bucket=bucket, Key="key", Body=LARGE)
        assert "store for large objects" in caught.value.response["Error"]["Message"]
        assert body_of(client, bucket, "key") == SMALL
        assert code_of(client.list_objects_v2, Bucket=bucket) == "ServiceUnavailable"
    finally:
        front.restart("ext4", "s3")
    client.put_object(Bucket=bucket, Key="key", Body=LARGE)
    front.stop("ext3", "s3")
    try:
        assert body_of(client, bucket, "key") == LARGE
        assert code_of(client.delete_object, Bucket=bucket, Key="other") == "ServiceUnavailable"
        assert code_of(client.put_object, Bucket=bucket, Key="new", Body=LARGE) == ""
    finally:
        front.restart("ext3", "s3")
    assert keys_in_stores() == {"small": ["other"], "large": ["key", "new"]}


def test_a_copy_that_cannot_be_removed_is_removed_later(
    front: TwoBackEnds, client: Any, bucket: str, keys_in_stores: KeysInStores
) -> None:
    client.put_object(Bucket=bucket, Key="key", Body=SMALL)
    front.stop("ext3", "s3")
    try:
        assert code_of(client.put_object, Bucket=bucket, Key="key", Body=LARGE) == "ServiceUnavailable"
        assert body_of(client, bucket, "key") == LARGE
    finally:
        front.restart("ext3", "s3")
    assert keys_in_stores() == {"small": ["key"], "large": ["key"]}
    client.put_object(Bucket=bucket, Key="key", Body=LARGE[:5000])
    assert keys_in_stores() == {"small": [], "large": ["key"]}
