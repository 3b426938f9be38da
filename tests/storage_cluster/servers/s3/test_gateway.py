"""The S3 gateway as boto3 sees it, on a whole small store."""

import urllib.request
from pathlib import Path
from typing import Any

import pytest

from testkit.loopback_store import Client, LoopbackStore
from tests.helpers.s3_answers import code_of
from tests.helpers.s3_clients import client_of

PART = 5 * 1024**2


@pytest.mark.parametrize("key", ["a/b.txt", "..", "../x", "a//b", "folder/", "ü ñ+&?%2F", "\u3042", "a" * 1024])
def test_an_object_is_read_as_it_was_written(client: Any, bucket: str, key: str) -> None:
    body = key.encode() * 3
    metadata = {"a-b": "1", "under_score": "2"}
    client.put_object(Bucket=bucket, Key=key, Body=body, ContentType="text/x", Metadata=metadata)
    found = client.get_object(Bucket=bucket, Key=key)
    assert found["Body"].read() == body
    assert (found["ContentType"], found["Metadata"]) == ("text/x", metadata)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"]] == [key]


def test_both_apis_see_the_same_objects(client: Any, bucket: str, store: LoopbackStore) -> None:
    swift = Client(store)
    client.put_object(Bucket=bucket, Key="from-s3", Body=b"s3", Metadata={"colour": "red"})
    assert swift(f"PUT {bucket}/from-swift", {"X-Object-Meta-Colour": "blue"}, b"swift").status == 201
    found = swift(f"GET {bucket}/from-s3")
    assert (found.body, found.headers["x-object-meta-colour"]) == (b"s3", "red")
    assert client.get_object(Bucket=bucket, Key="from-swift")["Metadata"] == {"colour": "blue"}
    assert [entry["Key"] for entry in client.list_objects(Bucket=bucket)["Contents"]] == ["from-s3", "from-swift"]


def test_a_container_made_through_swift_is_a_bucket(client: Any, store: LoopbackStore) -> None:
    Client(store)("PUT swift-made")
    assert "swift-made" in [one["Name"] for one in client.list_buckets()["Buckets"]]
    client.put_object(Bucket="swift-made", Key="k", Body=b"1")
    assert client.get_object(Bucket="swift-made", Key="k")["Body"].read() == b"1"


def test_names_of_buckets_are_unique_among_users(client: Any, bucket: str, make_client: Any) -> None:
    other = make_client("test2:tester2", "testing2")
    assert code_of(client.create_bucket, Bucket=bucket) == "BucketAlreadyOwnedByYou"
    assert code_of(other.create_bucket, Bucket=bucket) == "BucketAlreadyExists"
    assert code_of(other.list_objects_v2, Bucket=bucket) == "AccessDenied"
    assert bucket not in [one["Name"] for one in other.list_buckets()["Buckets"]]


def test_signatures_are_checked(make_client: Any, bucket: str) -> None:
    assert code_of(make_client(key="wrong").list_objects_v2, Bucket=bucket) == "SignatureDoesNotMatch"
    assert code_of(make_client("no:body", "x").list_objects_v2, Bucket=bucket) == "InvalidAccessKeyId"


def test_a_presigned_url_needs_nothing_else(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"signed")
    url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"signed"


def test_parts_become_one_object(client: Any, bucket: str) -> None:
    upload = client.create_multipart_upload(Bucket=bucket, Key="big", Metadata={"m": "1"})["UploadId"]
    named = {"Bucket": bucket, "Key": "big", "UploadId": upload}
    bodies = {1: b"a" * PART, 3: b"b" * PART, 7: b"c" * 10}
    etags = {n: client.upload_part(PartNumber=n, Body=bodies[n], **named)["ETag"] for n in (7, 1, 3)}
    etags[3] = client.upload_part(PartNumber=3, Body=b"d" * PART, **named)["ETag"]  # replaces the one before
    parts = {"Parts": [{"PartNumber": n, "ETag": etags[n]} for n in sorted(etags)]}
    made = client.complete_multipart_upload(MultipartUpload=parts, **named)
    assert made["ETag"].endswith('-3"')
    found = client.get_object(Bucket=bucket, Key="big")
    assert found["Body"].read() == b"a" * PART + b"d" * PART + b"c" * 10
    assert (found["ETag"], found["Metadata"]) == (made["ETag"], {"m": "1"})
    assert client.get_object(Bucket=bucket, Key="big", PartNumber=7)["Body"].read() == b"c" * 10
    listed = client.list_objects_v2(Bucket=bucket)["Contents"][0]
    assert (listed["ETag"], listed["Size"]) == (made["ETag"], 2 * PART + 10)
    again = client.complete_multipart_upload(MultipartUpload=parts, **named)
    assert again["ETag"] == made["ETag"]


def test_writes_can_be_conditional(client: Any, bucket: str) -> None:
    first = client.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    assert code_of(client.put_object, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*") == "PreconditionFailed"
    assert code_of(client.put_object, Bucket=bucket, Key="k", Body=b"2", IfMatch=first) == ""
    assert code_of(client.put_object, Bucket=bucket, Key="k", Body=b"3", IfMatch=first) == "PreconditionFailed"
    assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"


def test_versions_come_back_when_newer_ones_are_deleted(client: Any, bucket: str) -> None:
    named = {"Bucket": bucket, "Key": "k"}
    client.put_object(Body=b"null", **named)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    one = client.put_object(Body=b"one", **named)["VersionId"]
    two = client.put_object(Body=b"two", **named)["VersionId"]
    listed = client.list_object_versions(Bucket=bucket)["Versions"]
    assert [(each["VersionId"], each["IsLatest"]) for each in listed] == [(two, True), (one, False), ("null", False)]
    mark = client.delete_object(**named)
    assert mark["DeleteMarker"] is True
    assert code_of(client.get_object, **named) == "NoSuchKey"
    for removed, left in ((mark["VersionId"], b"two"), (two, b"one"), (one, b"null")):
        client.delete_object(VersionId=removed, **named)
        assert client.get_object(**named)["Body"].read() == left


def test_access_lists_let_others_in(client: Any, bucket: str, make_client: Any) -> None:
    other = make_client("test2:tester2", "testing2")
    client.put_object(Bucket=bucket, Key="k", Body=b"1", Tagging="a=b")
    assert code_of(other.get_object, Bucket=bucket, Key="k") == "AccessDenied"
    client.put_object_acl(Bucket=bucket, Key="k", ACL="public-read")
    assert other.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
    assert client.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "a", "Value": "b"}]


def test_what_is_not_built_is_said_to_be(client: Any, bucket: str) -> None:
    assert code_of(client.get_bucket_website, Bucket=bucket) == "NotImplemented"


def test_uploads_complete_though_one_listing_lacks_their_parts(tmp_path: Path) -> None:
    with LoopbackStore(tmp_path, names=()) as store:  # nobody delivers later what a listing has missed
        client = client_of(store)
        client.create_bucket(Bucket="uploads")
        keys = [{"Bucket": "uploads", "Key": str(number)} for number in range(10)]
        uploads = [key | {"UploadId": client.create_multipart_upload(**key)["UploadId"]} for key in keys]
        store.stop("storage1", "container")
        etags = [client.upload_part(PartNumber=1, Body=b"part", **upload)["ETag"] for upload in uploads]
        store.restart("storage1", "container")
        for upload, etag in zip(uploads, etags, strict=True):
            client.complete_multipart_upload(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload)
        assert [client.get_object(**key)["Body"].read() for key in keys] == [b"part"] * 10
