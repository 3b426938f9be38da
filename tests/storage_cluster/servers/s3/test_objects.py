"""Objects: their bytes and metadata, ranges and conditions, copies, tags and attributes, deletions of many."""

import datetime
from typing import Any

import pytest

from tests.helpers.s3_answers import Answered, answer_of, code_of, put_all

Params = dict[str, Any]
PAST, FUTURE = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
OK, UNMET, NOT_MODIFIED = (200, ""), (412, "PreconditionFailed"), (304, "304")


@pytest.mark.parametrize(
    "key", [" ", '"', "$", "%", "&", "'", "<", ">", "_", "_ ", "_ _", "__", "?x", "#y", ";", "a b+c"]
)
def test_special_keys(client: Any, bucket: str, key: str) -> None:
    put_all(client, bucket, key)
    assert [one["Key"] for one in client.list_objects(Bucket=bucket)["Contents"]] == [key]
    assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()
    assert answer_of(client.put_object_acl, Bucket=bucket, Key=key, ACL="private") == OK
    client.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    assert client.get_object(Bucket=bucket, Key="copy")["Body"].read() == key.encode()


def test_an_empty_object(client: Any, bucket: str) -> None:
    made = client.put_object(Bucket=bucket, Key="k")
    head = client.head_object(Bucket=bucket, Key="k")
    assert (head["ContentLength"], head["ETag"]) == (0, made["ETag"]) == (0, '"d41d8cd98f00b204e9800998ecf8427e"')


HEADERS = {
    "CacheControl": "public, max-age=14400",
    "ContentDisposition": 'attachment; filename="\u00e4.txt"',
    "ContentEncoding": "gzip",
    "ContentLanguage": "de",
    "ContentType": "text/x; charset=utf-8",
    "Expires": datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "WebsiteRedirectLocation": "/other",
    "Metadata": {"a": "1", "with_under": "2", "empty": "", "dot.ted": "x", "long": "v" * 1000},
}


def test_headers_of_an_object_come_back(client: Any, bucket: str) -> None:
    given = HEADERS | {"ContentDisposition": "attachment"}
    client.put_object(Bucket=bucket, Key="k", Body=b"1", **given)
    for call in (client.get_object, client.head_object):
        found = call(Bucket=bucket, Key="k")
        assert {name: found[name] for name in given} == given
        assert found["AcceptRanges"] == "bytes"


def test_a_put_replaces_all_metadata(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Metadata={"a": "1"}, ContentType="text/x", Tagging="t=1")
    client.put_object(Bucket=bucket, Key="k")
    found = client.head_object(Bucket=bucket, Key="k")
    assert (found["Metadata"], found["ContentType"]) == ({}, "binary/octet-stream")
    assert client.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []


def test_metadata_has_a_limit(client: Any, bucket: str) -> None:
    assert code_of(client.put_object, Bucket=bucket, Key="k", Metadata={"a": "v" * 2047}) == ""
    assert answer_of(client.put_object, Bucket=bucket, Key="k", Metadata={"a": "v" * 2048}) == (400, "MetadataTooLarge")


@pytest.mark.parametrize("length", [1024, 1025])
def test_keys_have_a_limit(client: Any, bucket: str, length: int) -> None:
    expected = OK if length == 1024 else (400, "KeyTooLongError")
    assert answer_of(client.put_object, Bucket=bucket, Key="k" * length) == expected


@pytest.mark.parametrize(
    ("asked", "status", "shown"),
    [
        ("bytes=4-7", 206, b"4567"),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-7", 206, b"3456789"),
        ("bytes=-70", 206, b"0123456789"),
        ("bytes=0-100", 206, b"0123456789"),
        ("bytes=9-9", 206, b"9"),
        ("bytes=40-50", 416, b""),
        ("bytes=10-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=7-4", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("bytes=0-1,4-5", 200, b"0123456789"),
    ],
)
def test_ranges(client: Any, digits_bucket: str, asked: str, status: int, shown: bytes) -> None:
    named = {"Bucket": digits_bucket, "Key": "digits", "Range": asked}
    if status == 416:
        assert answer_of(client.get_object, **named) == (416, "InvalidRange")
        assert answer_of(client.head_object, **named) == (416, "416")
        return
    found, head = client.get_object(**named), client.head_object(**named)
    assert (found["ResponseMetadata"]["HTTPStatusCode"], found["Body"].read()) == (status, shown)
    assert (head["ResponseMetadata"]["HTTPStatusCode"], head["ContentLength"]) == (status, len(shown))
    assert found.get("ContentRange") == head.get("ContentRange")
    if status == 206:
        start = b"0123456789".index(shown)
        assert found["ContentRange"] == f"bytes {start}-{start + len(shown) - 1}/10"


@pytest.fixture(scope="module")
def digits_bucket(client: Any) -> str:
    client.create_bucket(Bucket="digits-bucket")
    put_all(client, "digits-bucket", "digits", body=b"0123456789")
    put_all(client, "digits-bucket", "empty", body=b"")
    return "digits-bucket"


def test_an_empty_object_has_no_ranges(client: Any, digits_bucket: str) -> None:
    for asked in ("bytes=0-", "bytes=40-50"):
        got = answer_of(client.get_object, Bucket=digits_bucket, Key="empty", Range=asked)
        assert got == (416, "InvalidRange"), asked


CONDITIONS = [
    ({"IfMatch": "ETAG"}, OK),
    ({"IfMatch": '"other"'}, UNMET),
    ({"IfMatch": "*"}, OK),
    ({"IfNoneMatch": "ETAG"}, NOT_MODIFIED),
    ({"IfNoneMatch": '"other"'}, OK),
    ({"IfModifiedSince": PAST}, OK),
    ({"IfModifiedSince": FUTURE}, OK),  # a time to come is no valid condition
    ({"IfModifiedSince": "LAST"}, NOT_MODIFIED),
    ({"IfUnmodifiedSince": PAST}, UNMET),
    ({"IfUnmodifiedSince": FUTURE}, OK),
    ({"IfMatch": "ETAG", "IfUnmodifiedSince": PAST}, OK),
    ({"IfNoneMatch": "ETAG", "IfModifiedSince": PAST}, NOT_MODIFIED),
    ({"IfNoneMatch": '"other"', "IfModifiedSince": "LAST"}, OK),
]


@pytest.mark.parametrize(("conditions", "expected"), CONDITIONS, ids=str)
def test_conditions_of_reading(client: Any, digits_bucket: str, conditions: Params, expected: Answered) -> None:
    named = {"Bucket": digits_bucket, "Key": "digits"}
    head = client.head_object(**named)
    values = {"ETAG": head["ETag"], "LAST": head["LastModified"]}
    given = {name: values.get(value, value) if isinstance(value, str) else value for name, value in conditions.items()}
    if conditions.get("IfModifiedSince") != FUTURE:
        assert answer_of(client.get_object, **named, **given) == expected
        code = str(expected[0]) if expected[1] else ""
        assert answer_of(client.head_object, **named, **given) == (expected[0], code)


@pytest.mark.parametrize(("conditions", "expected"), CONDITIONS, ids=str)
def test_conditions_of_copying(client: Any, digits_bucket: str, conditions: Params, expected: Answered) -> None:
    source = {"Bucket": digits_bucket, "Key": "digits"}
    head = client.head_object(**source)
    values = {"ETAG": head["ETag"], "LAST": head["LastModified"]}
    given = {
        f"CopySource{name}": values.get(value, value) if isinstance(value, str) else value
        for name, value in conditions.items()
    }
    if conditions.get("IfModifiedSince") != FUTURE:
        asked = {"Bucket": digits_bucket, "Key": "copied", "CopySource": source, **given}
        assert answer_of(client.copy_object, **asked) == (OK if expected == OK else UNMET)


@pytest.mark.parametrize(
    ("exists", "conditions", "expected"),
    [
        (False, {"IfNoneMatch": "*"}, OK),
        (True, {"IfNoneMatch": "*"}, UNMET),
        (True, {"IfMatch": "ETAG"}, OK),
        (True, {"IfMatch": "*"}, OK),
        (True, {"IfMatch": '"other"'}, UNMET),
        (False, {"IfMatch": "*"}, (404, "NoSuchKey")),
        (False, {"IfMatch": "ETAG"}, (404, "NoSuchKey")),
        (True, {"IfNoneMatch": '"other"'}, (501, "NotImplemented")),
    ],
    ids=str,
)
@pytest.mark.parametrize("versioned", [False, True])
def test_conditions_of_writing(
    client: Any, bucket: str, versioned: bool, exists: bool, conditions: Params, expected: Answered
) -> None:
    if versioned:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    etag = client.put_object(Bucket=bucket, Key="k", Body=b"before")["ETag"]
    if not exists:
        client.delete_object(Bucket=bucket, Key="k")
    given = {name: etag if value == "ETAG" else value for name, value in conditions.items()}
    assert answer_of(client.put_object, Bucket=bucket, Key="k", Body=b"after", **given) == expected
    if exists:
        body = client.get_object(Bucket=bucket, Key="k")["Body"].read()
        assert body == (b"after" if expected == OK else b"before")


def test_conditions_of_deleting(client: Any, bucket: str) -> None:
    named = {"Bucket": bucket, "Key": "k"}
    etag = client.put_object(**named)["ETag"]
    head = client.head_object(**named)
    for unmet in ({"IfMatch": "x"}, {"IfMatchSize": 7}, {"IfMatchLastModifiedTime": PAST}):
        assert answer_of(client.delete_object, **named, **unmet) == UNMET, unmet
    met = {"IfMatch": etag, "IfMatchSize": 0, "IfMatchLastModifiedTime": head["LastModified"]}
    assert answer_of(client.delete_object, **named, **met) == (204, "")
    assert answer_of(client.delete_object, **named, IfMatch="*") == (404, "NoSuchKey")


def test_conditions_of_deleting_many(client: Any, bucket: str) -> None:
    put_all(client, bucket, "a", "b", "c", "d")
    etag = client.head_object(Bucket=bucket, Key="a")["ETag"]
    asked = [{"Key": "a", "ETag": etag}, {"Key": "b", "ETag": "x"}, {"Key": "c", "Size": 7}, {"Key": "d", "Size": 1}]
    found = client.delete_objects(Bucket=bucket, Delete={"Objects": asked})
    assert [one["Key"] for one in found["Deleted"]] == ["a", "d"]
    assert [(one["Key"], one["Code"]) for one in found["Errors"]] == [
        ("b", "PreconditionFailed"),
        ("c", "PreconditionFailed"),
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_many_objects_are_deleted_at_once(client: Any, bucket: str, quiet: bool) -> None:
    put_all(client, bucket, "k0", "k1", "k2", "a<b&c")
    asked = [{"Key": key} for key in ("k0", "k1", "a<b&c", "not-there")]
    for _ in range(2):
        found = client.delete_objects(Bucket=bucket, Delete={"Objects": asked, "Quiet": quiet})
        assert found.get("Deleted", []) == ([] if quiet else asked)
        assert "Errors" not in found
    assert [one["Key"] for one in client.list_objects(Bucket=bucket)["Contents"]] == ["k2"]


def test_a_thousand_objects_are_deleted_at_once_at_most(client: Any, bucket: str) -> None:
    for count, expected in ((1001, (400, "MalformedXML")), (0, (400, "MalformedXML"))):
        objects = [{"Key": f"k{number}"} for number in range(count)]
        assert answer_of(client.delete_objects, Bucket=bucket, Delete={"Objects": objects}) == expected


# copies


def test_a_copy_keeps_metadata_or_gets_its_own(client: Any, bucket: str) -> None:
    kept = {
        name: value for name, value in HEADERS.items() if name not in ("WebsiteRedirectLocation", "ContentDisposition")
    }
    client.put_object(Bucket=bucket, Key="from", Body=b"1", **kept)
    copy = {"Bucket": bucket, "Key": "to", "CopySource": f"{bucket}/from"}
    client.copy_object(**copy)
    found = client.head_object(Bucket=bucket, Key="to")
    assert {name: found[name] for name in kept} == kept
    client.copy_object(**copy, MetadataDirective="REPLACE", Metadata={"b": "2"}, ContentType="text/y")
    found = client.head_object(Bucket=bucket, Key="to")
    assert (found["Metadata"], found["ContentType"], "CacheControl" in found) == ({"b": "2"}, "text/y", False)


def test_a_copy_onto_itself_must_change_something(client: Any, bucket: str) -> None:
    put_all(client, bucket, "k", body=b"same")
    copy = {"Bucket": bucket, "Key": "k", "CopySource": f"{bucket}/k"}
    assert answer_of(client.copy_object, **copy) == (400, "InvalidRequest")
    assert answer_of(client.copy_object, **copy, MetadataDirective="REPLACE", Metadata={"a": "1"}) == OK
    found = client.get_object(Bucket=bucket, Key="k")
    assert (found["Metadata"], found["Body"].read()) == ({"a": "1"}, b"same")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("BUCKET/none", (404, "NoSuchKey")),
        ("never-made/k", (404, "NoSuchBucket")),
        ("BUCKET", (400, "InvalidArgument")),
        ("BUCKET/", (400, "InvalidArgument")),
        ("/BUCKET/k", OK),
        ("BUCKET/a b", OK),
        ("BUCKET/a+b", OK),
        ("BUCKET/k?versionId=null", OK),
    ],
)
def test_sources_of_a_copy(client: Any, bucket: str, source: str, expected: Answered) -> None:
    put_all(client, bucket, "k", "a b", "a+b")
    asked = {"Bucket": bucket, "Key": "to", "CopySource": source.replace("BUCKET", bucket)}
    assert answer_of(client.copy_object, **asked) == expected


def test_a_copy_needs_the_right_to_read(client: Any, bucket: str, other: Any) -> None:
    put_all(client, bucket, "k")
    name = f"{bucket}-2"
    other.create_bucket(Bucket=name)
    copy = {"Bucket": name, "Key": "k", "CopySource": f"{bucket}/k"}
    assert answer_of(other.copy_object, **copy) == (403, "AccessDenied")
    assert answer_of(client.copy_object, **copy) == (403, "AccessDenied")
    client.put_object_acl(Bucket=bucket, Key="k", ACL="public-read")
    made = other.copy_object(**copy, ACL="public-read")["CopyObjectResult"]
    assert made["ETag"] == other.head_object(Bucket=name, Key="k")["ETag"]
    assert len(other.get_object_acl(Bucket=name, Key="k")["Grants"]) == 2


# tags and attributes


def test_tags_of_an_object(client: Any, bucket: str) -> None:
    named = {"Bucket": bucket, "Key": "k"}
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b c", "Value": "\u00fc/+=@:.-_"}]
    client.put_object(**named, Tagging="x=1&y=2%203")
    assert client.head_object(**named)["ResponseMetadata"]["HTTPHeaders"].get("x-amz-tagging-count") == "2"
    found = client.get_object_tagging(**named)["TagSet"]
    assert found == [{"Key": "x", "Value": "1"}, {"Key": "y", "Value": "2 3"}]
    client.put_object_tagging(**named, Tagging={"TagSet": tags})
    assert client.get_object_tagging(**named)["TagSet"] == tags
    assert answer_of(client.delete_object_tagging, **named) == (204, "")
    assert client.get_object_tagging(**named)["TagSet"] == []
    assert answer_of(client.get_object_tagging, Bucket=bucket, Key="none") == (404, "NoSuchKey")


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ([(f"k{n}", "v") for n in range(10)], ""),
        ([(f"k{n}", "v") for n in range(11)], "InvalidTag"),
        ([("k" * 128, "v" * 256)], ""),
        ([("k" * 129, "v")], "InvalidTag"),
        ([("k", "v" * 257)], "InvalidTag"),
        ([("k", "v"), ("k", "w")], "InvalidTag"),
        ([("aws:k", "v")], "InvalidTag"),
        ([("a&b", "v")], "InvalidTag"),
        ([("k", "")], ""),
    ],
    ids=["10", "11", "longest", "long key", "long value", "twice", "aws", "character", "empty"],
)
def test_limits_of_tags(client: Any, digits_bucket: str, tags: list[tuple[str, str]], code: str) -> None:
    given = {"TagSet": [{"Key": key, "Value": value} for key, value in tags]}
    assert code_of(client.put_object_tagging, Bucket=digits_bucket, Key="empty", Tagging=given) == code


@pytest.mark.parametrize(("directive", "shown"), [("COPY", "1"), ("REPLACE", "2")])
def test_a_copy_keeps_tags_or_gets_its_own(client: Any, bucket: str, directive: str, shown: str) -> None:
    client.put_object(Bucket=bucket, Key="from", Tagging="a=1")
    copy = {"Bucket": bucket, "Key": "to", "CopySource": f"{bucket}/from"}
    client.copy_object(**copy, TaggingDirective=directive, Tagging="a=2")
    assert client.get_object_tagging(Bucket=bucket, Key="to")["TagSet"] == [{"Key": "a", "Value": shown}]


def test_attributes_of_an_object(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"12345", ChecksumAlgorithm="SHA256")
    names = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    found = client.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=names)
    assert {name: found[name] for name in ("ETag", "StorageClass", "ObjectSize")} == {
        "ETag": "827ccb0eea8a706c4c34a16891f84e7b",
        "StorageClass": "STANDARD",
        "ObjectSize": 5,
    }
    assert found["Checksum"]["ChecksumSHA256"] == "WZRHGrsBESr8wYFZ9sx0tPURuZgG2lmzyvWpwXPKz8U="
    assert "ObjectParts" not in found
    few = client.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectSize"])
    assert {"ObjectSize"} == set(names) & set(few)
    for wrong in ([], ["Colour"]):
        answer = answer_of(client.get_object_attributes, Bucket=bucket, Key="k", ObjectAttributes=wrong)
        assert answer == (400, "InvalidArgument")
    asked = {"Bucket": bucket, "Key": "none", "ObjectAttributes": ["ETag"]}
    assert answer_of(client.get_object_attributes, **asked) == (404, "NoSuchKey")


def test_a_reading_may_ask_for_other_headers(client: Any, bucket: str, anonymous: Any) -> None:
    client.put_object(Bucket=bucket, Key="k", ACL="public-read")
    asked = {
        "ResponseCacheControl": "no-cache",
        "ResponseContentDisposition": "bla",
        "ResponseContentEncoding": "aaa",
        "ResponseContentLanguage": "esperanto",
        "ResponseContentType": "foo/bar",
        "ResponseExpires": FUTURE,
    }
    found = client.get_object(Bucket=bucket, Key="k", **asked)
    shown = {name: found[name.removeprefix("Response")] for name in asked}
    assert shown == asked
    assert code_of(anonymous.get_object, Bucket=bucket, Key="k", ResponseContentType="x/y") == "InvalidRequest"


def test_a_missing_key(client: Any, bucket: str, other: Any) -> None:
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
    assert answer_of(client.head_object, Bucket=bucket, Key="k") == (404, "404")
    assert answer_of(other.get_object, Bucket=bucket, Key="k") == (403, "AccessDenied")
    assert answer_of(client.delete_object, Bucket=bucket, Key="k") == (204, "")


@pytest.mark.parametrize("asked", ["bytes=-3", "bytes=0-0", "bytes=0-"])
def test_nothing_has_no_range(client: Any, bucket: str, asked: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"")
    assert answer_of(client.get_object, Bucket=bucket, Key="k", Range=asked) == (416, "InvalidRange")
    assert answer_of(client.get_object, Bucket=bucket, Key="k", Range="lines=0-")[0] == 200


def test_a_tag_is_named_once(client: Any, bucket: str) -> None:
    twice = answer_of(client.put_object, Bucket=bucket, Key="k", Tagging="k=v&k=v2")
    assert twice == (400, "InvalidArgument")
