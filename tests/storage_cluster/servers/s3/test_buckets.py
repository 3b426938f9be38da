"""Buckets: their names, what is said when one is made twice or is not there, and what can be configured of them."""

from typing import Any

import pytest
from botocore.handlers import validate_bucket_name

from tests.helpers.s3_answers import answer_of, code_of, put_all


@pytest.mark.parametrize(
    "name",
    [
        *("foo", "a1b", "1start", "a" * 60, "a" * 63, "with-dash", "with.dot", "a.b.c"),
    ],
)
def test_names_that_a_bucket_may_have(client: Any, name: str) -> None:
    assert answer_of(client.create_bucket, Bucket=name) == (200, "")
    assert answer_of(client.head_bucket, Bucket=name) == (200, "")
    assert answer_of(client.delete_bucket, Bucket=name) == (204, "")
    assert answer_of(client.head_bucket, Bucket=name) == (404, "404")


@pytest.mark.parametrize(
    "name",
    [
        *("a", "aa", "_start", "a" * 64, "a" * 256, "192.168.5.123", "foo_bar", "foo-", "foo..bar", "foo.-bar"),
        *("foo-.bar", "-foo", ".foo", "foo.", "Upper", "b\u00fccket", "xn--foo", "foo-s3alias"),
    ],
)
def test_names_that_no_bucket_may_have(make_client: Any, name: str) -> None:
    client = make_client(parameter_validation=False)
    client.meta.events.unregister("before-parameter-build.s3", validate_bucket_name)
    assert answer_of(client.create_bucket, Bucket=name) == (400, "InvalidBucketName")
    assert answer_of(client.list_objects, Bucket=name) == (404, "NoSuchBucket")


def test_a_bucket_that_is_not_there(client: Any) -> None:
    for call, more in (
        (client.list_objects, {}),
        (client.list_objects_v2, {}),
        (client.delete_bucket, {}),
        (client.get_bucket_acl, {}),
        (client.get_bucket_location, {}),
        (client.put_object, {"Key": "k", "Body": b""}),
        (client.delete_object, {"Key": "k"}),
        (client.get_object, {"Key": "k"}),
        (client.get_object_acl, {"Key": "k"}),
        (client.create_multipart_upload, {"Key": "k"}),
        (client.list_multipart_uploads, {}),
        (client.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Enabled"}}),
        (client.delete_objects, {"Delete": {"Objects": [{"Key": "k"}]}}),
    ):
        assert answer_of(call, Bucket="never-made", **more) == (404, "NoSuchBucket"), call


def test_a_bucket_with_objects_is_not_removed(client: Any, bucket: str, other: Any) -> None:
    put_all(client, bucket, "k")
    assert answer_of(client.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    assert answer_of(other.delete_bucket, Bucket=bucket) == (403, "AccessDenied")
    client.delete_object(Bucket=bucket, Key="k")
    assert answer_of(client.delete_bucket, Bucket=bucket) == (204, "")
    assert answer_of(client.delete_object, Bucket=bucket, Key="k") == (404, "NoSuchBucket")


def test_a_bucket_that_only_has_old_versions_is_not_empty(client: Any, bucket: str) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    made = client.put_object(Bucket=bucket, Key="k")["VersionId"]
    mark = client.delete_object(Bucket=bucket, Key="k")["VersionId"]
    assert answer_of(client.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    for version in (made, mark):
        client.delete_object(Bucket=bucket, Key="k", VersionId=version)
    assert answer_of(client.delete_bucket, Bucket=bucket) == (204, "")


def test_a_bucket_is_made_once(client: Any, bucket: str, other: Any) -> None:
    put_all(client, bucket, "k")
    assert answer_of(client.create_bucket, Bucket=bucket) == (409, "BucketAlreadyOwnedByYou")
    assert answer_of(client.create_bucket, Bucket=bucket, ACL="public-read") == (409, "BucketAlreadyExists")
    assert answer_of(other.create_bucket, Bucket=bucket) == (409, "BucketAlreadyExists")
    assert len(client.get_bucket_acl(Bucket=bucket)["Grants"]) == 1
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == (200, "")


@pytest.mark.parametrize(("where", "code"), [("us-east-1", ""), ("mars", "InvalidLocationConstraint")])
def test_a_bucket_is_in_the_only_region(client: Any, where: str, code: str) -> None:
    name = f"bucket-in-{where}"
    assert code_of(client.create_bucket, Bucket=name, CreateBucketConfiguration={"LocationConstraint": where}) == code
    if not code:
        assert client.get_bucket_location(Bucket=name)["LocationConstraint"] is None


def test_a_head_of_a_bucket_counts_its_objects(client: Any, bucket: str) -> None:
    headers = client.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-amz-bucket-region"] == "us-east-1"
    assert (headers["x-rgw-object-count"], headers["x-rgw-bytes-used"]) == ("0", "0")


def test_tags_of_a_bucket(client: Any, bucket: str) -> None:
    tags = {"TagSet": [{"Key": "Hello", "Value": "World \u00fc"}, {"Key": "b", "Value": ""}]}
    assert answer_of(client.get_bucket_tagging, Bucket=bucket) == (404, "NoSuchTagSet")
    client.put_bucket_tagging(Bucket=bucket, Tagging=tags)
    assert client.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags["TagSet"]
    client.delete_bucket_tagging(Bucket=bucket)
    assert answer_of(client.get_bucket_tagging, Bucket=bucket) == (404, "NoSuchTagSet")


def test_versioning_of_a_bucket(client: Any, bucket: str) -> None:
    assert "Status" not in client.get_bucket_versioning(Bucket=bucket)
    for status in ("Suspended", "Enabled", "Enabled", "Suspended", "Suspended", "Enabled"):
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        assert client.get_bucket_versioning(Bucket=bucket)["Status"] == status


RULE = {"AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["*.get", "*.put"], "MaxAgeSeconds": 60}


def test_cors_rules_of_a_bucket(client: Any, bucket: str) -> None:
    assert answer_of(client.get_bucket_cors, Bucket=bucket) == (404, "NoSuchCORSConfiguration")
    client.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [RULE]})
    assert client.get_bucket_cors(Bucket=bucket)["CORSRules"] == [RULE]
    assert answer_of(client.delete_bucket_cors, Bucket=bucket) == (204, "")
    assert answer_of(client.get_bucket_cors, Bucket=bucket) == (404, "NoSuchCORSConfiguration")
    bad = {"CORSRules": [RULE | {"AllowedMethods": ["PATCH"]}]}
    assert answer_of(client.put_bucket_cors, Bucket=bucket, CORSConfiguration=bad) == (400, "InvalidRequest")
