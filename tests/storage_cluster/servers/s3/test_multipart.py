"""Multipart uploads: parts in any order, copied, replaced and missing; completed, aborted and listed."""

import hashlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.objects import write
from testkit.loopback_store import Client, LoopbackStore
from tests.helpers.s3_answers import answer_of, code_of

PART = 5 * 1024**2
BIG, OTHER = b"a" * PART, b"b" * PART
NAMES = ("Bucket", "Key", "UploadId")


def begin(client: Any, bucket: str, key: str = "k", **more: Any) -> dict[str, str]:
    """What names the upload in calls that follow."""
    made = client.create_multipart_upload(Bucket=bucket, Key=key, **more)
    return {name: made[name] for name in NAMES}


def send(client: Any, upload: dict[str, str], bodies: dict[int, bytes]) -> list[dict[str, Any]]:
    """Upload parts; as they are listed to complete the upload."""
    made = {n: client.upload_part(**upload, PartNumber=n, Body=body)["ETag"] for n, body in bodies.items()}
    return [{"PartNumber": n, "ETag": made[n]} for n in sorted(made)]


def complete(client: Any, upload: dict[str, str], parts: list[dict[str, Any]], **more: Any) -> Any:
    return client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **more)


def read(client: Any, bucket: str, key: str = "k", **more: Any) -> bytes:
    body: bytes = client.get_object(Bucket=bucket, Key=key, **more)["Body"].read()
    return body


@pytest.mark.parametrize(
    "sizes", [(1,), (PART,), (PART, 1), (PART, PART), (PART + 1, 100)], ids=lambda sizes: f"{len(sizes)} of {sizes[0]}"
)
def test_an_object_of_parts(client: Any, bucket: str, sizes: tuple[int, ...]) -> None:
    bodies = {number: bytes([64 + number]) * size for number, size in enumerate(sizes, 1)}
    upload = begin(client, bucket, ContentType="text/x", Metadata={"foo": "bar"}, Tagging="t=1")
    made = complete(client, upload, send(client, upload, bodies))
    digests = b"".join(hashlib.md5(body).digest() for body in bodies.values())  # noqa: S324  S3's own
    etag = f'"{hashlib.md5(digests).hexdigest()}-{len(sizes)}"'
    assert (made["ETag"], made["Bucket"], made["Key"]) == (etag, bucket, "k")
    found = client.get_object(Bucket=bucket, Key="k")
    assert found["Body"].read() == b"".join(bodies.values())
    assert (found["ETag"], found["ContentType"], found["Metadata"]) == (etag, "text/x", {"foo": "bar"})
    assert (
        read(client, bucket, Range=f"bytes={sizes[0] - 1}-{sizes[0]}")
        == b"".join(bodies.values())[sizes[0] - 1 : sizes[0] + 1]
    )
    assert client.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "t", "Value": "1"}]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda parts: [], (400, "MalformedXML")),
        (lambda parts: parts[::-1], (400, "InvalidPartOrder")),
        (lambda parts: [parts[0], parts[0]], (400, "InvalidPartOrder")),
        (lambda parts: [parts[0] | {"PartNumber": 9999}], (400, "InvalidPart")),
        (lambda parts: [parts[0] | {"ETag": '"ffffffffffffffffffffffffffffffff"'}], (400, "InvalidPart")),
        (lambda parts: [parts[0], parts[1]], (400, "EntityTooSmall")),
        (lambda parts: [{"PartNumber": 1, "ETag": parts[0]["ETag"].strip('"')}], (200, "")),
    ],
    ids=["none", "reversed", "twice", "missing", "etag", "too small", "etag without quotes"],
)
def test_completing_wants_the_parts_as_they_are(
    client: Any, bucket: str, change: Any, expected: tuple[int, str]
) -> None:
    upload = begin(client, bucket)
    parts = send(client, upload, {1: b"small", 2: b"last"})
    asked = {**upload, "MultipartUpload": {"Parts": change(parts)}}
    assert answer_of(client.complete_multipart_upload, **asked) == expected
    if expected[1]:
        assert answer_of(client.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
        assert len(client.list_parts(**upload)["Parts"]) == 2


def test_the_last_upload_of_a_part_counts(client: Any, bucket: str) -> None:
    upload = begin(client, bucket)
    send(client, upload, {1: BIG, 2: b"first"})
    send(client, upload, {2: b"second"})
    parts = send(client, upload, {2: b"third", 1: OTHER})
    complete(client, upload, parts)
    assert read(client, bucket) == OTHER + b"third"


def test_an_upload_replaces_an_object(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"before", Metadata={"a": "1"})
    for body in (b"one", b"two"):
        upload = begin(client, bucket)
        complete(client, upload, send(client, upload, {1: body}))
        assert read(client, bucket) == body
    assert client.head_object(Bucket=bucket, Key="k")["Metadata"] == {}


def test_an_upload_is_aborted(client: Any, bucket: str) -> None:
    upload = begin(client, bucket)
    send(client, upload, {1: b"1"})
    assert answer_of(client.abort_multipart_upload, **upload) == (204, "")
    for call, more in (
        (client.abort_multipart_upload, {}),
        (client.list_parts, {}),
        (client.upload_part, {"PartNumber": 1, "Body": b""}),
        (client.complete_multipart_upload, {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": "x"}]}}),
    ):
        assert answer_of(call, **upload, **more) == (404, "NoSuchUpload")
    assert answer_of(client.abort_multipart_upload, **{**upload, "UploadId": "56788"}) == (404, "NoSuchUpload")
    assert answer_of(client.delete_bucket, Bucket=bucket) == (204, "")


@pytest.mark.parametrize("number", [0, 10_001])
def test_part_numbers_have_limits(client: Any, bucket: str, number: int) -> None:
    upload = begin(client, bucket)
    assert answer_of(client.upload_part, **upload, PartNumber=number, Body=b"") == (400, "InvalidArgument")


def test_parts_are_listed_in_pages(client: Any, bucket: str) -> None:
    upload = begin(client, bucket)
    made = send(client, upload, {n: b"%d" % n for n in (9, 1, 4, 2)})
    pages = list(client.get_paginator("list_parts").paginate(**upload, PaginationConfig={"PageSize": 3}))
    assert [len(page["Parts"]) for page in pages] == [3, 1]
    listed = [(part["PartNumber"], part["ETag"], part["Size"]) for page in pages for part in page["Parts"]]
    assert listed == [(part["PartNumber"], part["ETag"], 1) for part in made]
    assert pages[0]["Owner"]["ID"] == pages[0]["Initiator"]["ID"] == "test:tester"


def test_uploads_are_listed_with_who_began_them(client: Any, bucket: str, other: Any) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    begun = [begin(who, bucket, key)["UploadId"] for who, key in ((client, "a"), (other, "a"), (other, "d/b"))]
    found = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [(one["Key"], one["UploadId"]) for one in found] == list(zip(("a", "a", "d/b"), begun, strict=True))
    who = ["test:tester", "test2:tester2", "test2:tester2"]
    assert [one["Initiator"]["ID"] for one in found] == [one["Owner"]["ID"] for one in found] == who
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, PaginationConfig={"PageSize": 1})
    assert [one["UploadId"] for page in pages for one in page["Uploads"]] == begun
    folders = client.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert ([one["Key"] for one in folders["Uploads"]], folders["CommonPrefixes"]) == (["a", "a"], [{"Prefix": "d/"}])
    assert len(client.list_multipart_uploads(Bucket=bucket, Prefix="d")["Uploads"]) == 1


@pytest.fixture(scope="module")
def source(client: Any) -> dict[str, str]:
    """An object of ten digits and 6 MB more, to be copied from."""
    client.create_bucket(Bucket="copied-parts")
    client.put_object(Bucket="copied-parts", Key="so urce", Body=b"0123456789" + BIG)
    return {"Bucket": "copied-parts", "Key": "so urce"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-9", b"0123456789"),
        ("bytes=3-3", b"3"),
        (None, b"0123456789" + BIG),
        (f"bytes=0-{PART + 10}", (416, "InvalidRange")),
        ("0-9", (400, "InvalidArgument")),
        ("bytes=0", (400, "InvalidArgument")),
        ("bytes=hello-world", (400, "InvalidArgument")),
        ("bytes=0-bar", (400, "InvalidArgument")),
        ("bytes=hello-", (400, "InvalidArgument")),
        ("bytes=0-2,3-5", (400, "InvalidArgument")),
    ],
)
def test_parts_are_copied(client: Any, bucket: str, source: dict[str, str], asked: str | None, expected: Any) -> None:
    upload = begin(client, bucket)
    copy = {**upload, "PartNumber": 1, "CopySource": source, **({"CopySourceRange": asked} if asked else {})}
    if isinstance(expected, tuple):
        assert answer_of(client.upload_part_copy, **copy) == expected
        return
    etag = client.upload_part_copy(**copy)["CopyPartResult"]["ETag"]
    complete(client, upload, [{"PartNumber": 1, "ETag": etag}])
    assert read(client, bucket) == expected


def test_a_copied_part_wants_a_source(client: Any, bucket: str, source: dict[str, str], other: Any) -> None:
    upload = begin(client, bucket)
    for named, expected in (
        ({"Bucket": bucket, "Key": "none"}, (404, "NoSuchKey")),
        ({"Bucket": "never-made", "Key": "k"}, (404, "NoSuchBucket")),
    ):
        assert answer_of(client.upload_part_copy, **upload, PartNumber=1, CopySource=named) == expected
    client.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    upload = begin(other, bucket)
    assert answer_of(other.upload_part_copy, **upload, PartNumber=1, CopySource=source) == (403, "AccessDenied")


def test_a_version_is_copied_as_a_part(client: Any, bucket: str) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    old = client.put_object(Bucket=bucket, Key="source", Body=b"old")["VersionId"]
    client.put_object(Bucket=bucket, Key="source", Body=b"new")
    upload = begin(client, bucket)
    copy = {"Bucket": bucket, "Key": "source", "VersionId": old}
    done = client.upload_part_copy(**upload, PartNumber=1, CopySource=copy)
    assert done["CopySourceVersionId"] == old
    made = complete(client, upload, [{"PartNumber": 1, "ETag": done["CopyPartResult"]["ETag"]}])
    assert read(client, bucket, VersionId=made["VersionId"]) == b"old"


def test_parts_of_a_completed_object_are_read_one_by_one(client: Any, bucket: str) -> None:
    upload = begin(client, bucket)
    complete(client, upload, send(client, upload, {2: BIG, 5: b"tail"}))
    for number, body in ((2, BIG), (5, b"tail")):
        found = client.get_object(Bucket=bucket, Key="k", PartNumber=number)
        assert (found["Body"].read(), found["PartsCount"]) == (body, 2)
        head = client.head_object(Bucket=bucket, Key="k", PartNumber=number)
        assert (head["ContentLength"], head["PartsCount"]) == (len(body), 2)
    assert answer_of(client.get_object, Bucket=bucket, Key="k", PartNumber=9) == (416, "InvalidPartNumber")
    client.put_object(Bucket=bucket, Key="plain", Body=b"p")
    assert read(client, bucket, "plain", PartNumber=1) == b"p"
    assert code_of(client.get_object, Bucket=bucket, Key="plain", PartNumber=2) == "InvalidPartNumber"


def test_attributes_list_the_parts(client: Any, bucket: str) -> None:
    upload = begin(client, bucket)
    complete(client, upload, send(client, upload, {1: BIG, 2: BIG, 3: b"tail"}))
    asked = {"Bucket": bucket, "Key": "k", "ObjectAttributes": ["ObjectParts", "ObjectSize"]}
    found = client.get_object_attributes(**asked)
    assert (found["ObjectSize"], found["ObjectParts"]["TotalPartsCount"]) == (2 * PART + 4, 3)
    page = client.get_object_attributes(**asked, MaxParts=1, PartNumberMarker=1)["ObjectParts"]
    assert (page["IsTruncated"], page["NextPartNumberMarker"], page["MaxParts"]) == (True, 2, 1)


@pytest.mark.parametrize("versioned", [False, True])
def test_conditions_of_completing(client: Any, bucket: str, versioned: bool) -> None:
    if versioned:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    upload = begin(client, bucket)
    asked = {**upload, "MultipartUpload": {"Parts": send(client, upload, {1: b"parts"})}}
    assert answer_of(client.complete_multipart_upload, **asked, IfMatch="*") == (404, "NoSuchKey")
    etag = client.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    for unmet in ({"IfNoneMatch": "*"}, {"IfMatch": '"x"'}):
        assert answer_of(client.complete_multipart_upload, **asked, **unmet) == (412, "PreconditionFailed")
    assert answer_of(client.complete_multipart_upload, **asked, IfMatch=etag) == (200, "")
    assert read(client, bucket) == b"parts"


def test_a_completed_object_is_copied_with_a_plain_etag(client: Any, bucket: str) -> None:
    upload = begin(client, bucket)
    complete(client, upload, send(client, upload, {1: BIG, 2: b"tail"}))
    client.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/k")
    head = client.head_object(Bucket=bucket, Key="copy")
    assert "-" not in head["ETag"]
    assert read(client, bucket, "copy") == BIG + b"tail"


def test_versions_of_completed_uploads(client: Any, bucket: str) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    made = []
    for body in (b"one", b"two"):
        upload = begin(client, bucket)
        made.append(complete(client, upload, send(client, upload, {1: body}))["VersionId"])
    assert [read(client, bucket, VersionId=version) for version in made] == [b"one", b"two"]
    client.delete_object(Bucket=bucket, Key="k", VersionId=made[1])
    assert read(client, bucket) == b"one"


def parts_left(store: LoopbackStore, bucket: str) -> dict[str, bool]:
    """The names of all parts in a bucket, and whether each is to expire."""
    swift = Client(store)
    names = swift(f"GET {bucket}+segments").body.decode().split()
    return {name: "x-delete-at" in swift(f"HEAD {bucket}+segments/{name}").headers for name in names}


def test_an_upload_whose_completion_was_not_answered_keeps_its_parts(
    client: Any, bucket: str, store: LoopbackStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_and_fail(*arguments: Any) -> None:
        await write(*arguments)
        raise S3Error("ServiceUnavailable")

    upload = begin(client, bucket)
    parts = send(client, upload, {1: b"part"})
    monkeypatch.setattr("storage_cluster.servers.s3.multipart.write", write_and_fail)
    assert answer_of(complete, client=client, upload=upload, parts=parts) == (503, "ServiceUnavailable")
    client.abort_multipart_upload(**upload)
    assert list(parts_left(store, bucket).values()) == [False]
    assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"part"


def test_an_upload_whose_completion_was_refused_can_be_aborted(client: Any, bucket: str, store: LoopbackStore) -> None:
    upload = begin(client, bucket)
    parts = send(client, upload, {1: b"part"})
    client.put_object(Bucket=bucket, Key="k", Body=b"first")
    with pytest.raises(ClientError):
        complete(client, upload, parts, IfNoneMatch="*")
    client.abort_multipart_upload(**upload)
    assert parts_left(store, bucket) == {}


def test_the_parts_of_a_removed_version_expire(client: Any, bucket: str, store: LoopbackStore) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    upload = begin(client, bucket)
    parts = send(client, upload, {1: b"part"})
    made = complete(client, upload, parts)["VersionId"]
    client.put_object(Bucket=bucket, Key="k", Body=b"newer")
    client.delete_object(Bucket=bucket, Key="k")
    assert list(parts_left(store, bucket).values()) == [False]
    client.delete_object(Bucket=bucket, Key="k", VersionId=made)
    assert list(parts_left(store, bucket).values()) == [True]


def test_the_parts_of_a_null_version_expire_when_it_is_deleted(client: Any, bucket: str, store: LoopbackStore) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    upload = begin(client, bucket)
    parts = send(client, upload, {1: b"part"})
    complete(client, upload, parts)
    client.delete_object(Bucket=bucket, Key="k")
    assert list(parts_left(store, bucket).values()) == [True]
