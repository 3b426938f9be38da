"""Listings: every parameter of ListObjects, ListObjectsV2, ListObjectVersions and ListBuckets."""

import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.s3_answers import answer_of, code_of, put_all

Params = dict[str, Any]
KEYS = ("asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/bla", "under_score/x", "b ar", "c%ar", "x.y", "z\n1")


@pytest.fixture(scope="module")
def keys_bucket(client: Any) -> str:
    client.create_bucket(Bucket="listed-keys")
    put_all(client, "listed-keys", *KEYS)
    return "listed-keys"


def shown_by_v1(client: Any, bucket: str, **params: Any) -> tuple[list[str], list[str], bool]:
    found = client.list_objects(Bucket=bucket, **params)
    keys = [entry["Key"] for entry in found.get("Contents", [])]
    return keys, [entry["Prefix"] for entry in found.get("CommonPrefixes", [])], found["IsTruncated"]


def shown_by_v2(client: Any, bucket: str, **params: Any) -> tuple[list[str], list[str], bool]:
    renamed = {("StartAfter" if name == "Marker" else name): value for name, value in params.items()}
    found = client.list_objects_v2(Bucket=bucket, **renamed)
    keys = [entry["Key"] for entry in found.get("Contents", [])]
    folders = [entry["Prefix"] for entry in found.get("CommonPrefixes", [])]
    assert found["KeyCount"] == len(keys) + len(folders)
    return keys, folders, found["IsTruncated"]


def expected_page(params: Params) -> tuple[list[str], list[str], bool]:
    """An obviously right listing: one page of keys and folders in order."""
    prefix, delimiter, marker = (params.get(name) or "" for name in ("Prefix", "Delimiter", "Marker"))
    entries = []
    for key in sorted(KEYS, key=str.encode):
        if not key.startswith(prefix):
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = (key, False) if at < 0 else (key[: at + len(delimiter)], True)
        if entry not in entries and entry[0] > marker:
            entries.append(entry)
    limit = params.get("MaxKeys", 1000)
    page = entries[:limit]
    truncated = bool(limit) and len(entries) > limit
    return [name for name, is_folder in page if not is_folder], [n for n, is_folder in page if is_folder], truncated


@pytest.mark.parametrize("shown_by", [shown_by_v1, shown_by_v2])
@pytest.mark.parametrize("delimiter", [None, "", "/", "a", "%", " ", ".", "\n", "_", "//", "oo/b"])
@pytest.mark.parametrize("prefix", [None, "", "boo/", "b", "cquux/", "z\n", "nothing", "boo/bar"])
def test_prefix_and_delimiter_choose_keys_and_folders(
    client: Any, keys_bucket: str, shown_by: Callable[..., Any], prefix: str | None, delimiter: str | None
) -> None:
    params = {"Prefix": prefix, "Delimiter": delimiter}
    params = {name: value for name, value in params.items() if value is not None}
    assert shown_by(client, keys_bucket, **params) == expected_page(params)


@pytest.mark.parametrize("shown_by", [shown_by_v1, shown_by_v2])
@pytest.mark.parametrize(
    "params",
    [
        {"Marker": ""},
        {"Marker": "\n"},
        {"Marker": "blah"},
        {"Marker": "boo/bar"},
        {"Marker": "boo/", "Delimiter": "/"},
        {"Marker": "boo0", "Delimiter": "/"},
        {"Marker": "zzz"},
        {"MaxKeys": 0},
        {"MaxKeys": 0, "Delimiter": "/"},
        {"MaxKeys": 1},
        {"MaxKeys": 2, "Delimiter": "/"},
        {"MaxKeys": 1, "Prefix": "boo/", "Delimiter": "/"},
        {"MaxKeys": len(KEYS)},
        {"MaxKeys": 5000},
    ],
    ids=str,
)
def test_marker_and_limit_choose_a_page(
    client: Any, keys_bucket: str, shown_by: Callable[..., Any], params: Params
) -> None:
    assert shown_by(client, keys_bucket, **params) == expected_page(params)


@pytest.mark.parametrize("delimiter", ["", "/", "a"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_together_are_the_whole(client: Any, keys_bucket: str, delimiter: str, limit: int) -> None:
    whole = expected_page({"Delimiter": delimiter})
    for name in ("list_objects", "list_objects_v2"):
        pages = client.get_paginator(name).paginate(
            Bucket=keys_bucket, Delimiter=delimiter, PaginationConfig={"PageSize": limit}
        )
        keys, folders = [], []
        for page in pages:
            keys += [entry["Key"] for entry in page.get("Contents", [])]
            folders += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
        assert (keys, folders) == whole[:2]


def test_a_page_of_v1_names_the_next_one_only_with_a_delimiter(client: Any, keys_bucket: str) -> None:
    assert "NextMarker" not in client.list_objects(Bucket=keys_bucket, MaxKeys=1)
    assert client.list_objects(Bucket=keys_bucket, MaxKeys=3, Delimiter="/")["NextMarker"] == "boo/"


def test_v2_shows_its_parameters(client: Any, keys_bucket: str) -> None:
    first = client.list_objects_v2(Bucket=keys_bucket, MaxKeys=1, StartAfter="asdf")
    assert (first["StartAfter"], first["MaxKeys"], first["Contents"][0]["Key"]) == ("asdf", 1, "b ar")
    token = first["NextContinuationToken"]
    second = client.list_objects_v2(Bucket=keys_bucket, ContinuationToken=token, StartAfter="z", Prefix="b")
    assert (second["ContinuationToken"], [one["Key"] for one in second["Contents"]]) == (
        token,
        ["boo/bar", "boo/baz/xyzzy"],
    )
    empty = client.list_objects_v2(Bucket=keys_bucket, ContinuationToken="")
    assert (empty["ContinuationToken"], empty["IsTruncated"], len(empty["Contents"])) == ("", False, len(KEYS))
    assert code_of(client.list_objects_v2, Bucket=keys_bucket, ContinuationToken="no token") == "InvalidArgument"


@pytest.mark.parametrize(("fetch", "shown"), [(None, False), (False, False), (True, True)])
def test_v2_shows_owners_if_asked(client: Any, keys_bucket: str, fetch: bool | None, shown: bool) -> None:
    asked = {} if fetch is None else {"FetchOwner": fetch}
    entry = client.list_objects_v2(Bucket=keys_bucket, MaxKeys=1, **asked)["Contents"][0]
    assert entry.get("Owner") == ({"ID": "test:tester", "DisplayName": "test:tester"} if shown else None)


def test_an_entry_says_what_a_head_says(client: Any, bucket: str) -> None:
    put_all(client, bucket, "bar", "baz", "foo")
    for entry in client.list_objects(Bucket=bucket)["Contents"]:
        head = client.head_object(Bucket=bucket, Key=entry["Key"])
        assert (entry["ETag"], entry["Size"]) == (head["ETag"], head["ContentLength"])
        assert entry["LastModified"] == head["LastModified"]
        assert entry["Owner"]["ID"] == "test:tester"


def test_names_are_encoded_if_asked(client: Any, bucket: str) -> None:
    put_all(client, bucket, "foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "asdf+b")
    for call in (client.list_objects, client.list_objects_v2):
        found = call(Bucket=bucket, Delimiter="/", EncodingType="url")
        assert found["EncodingType"] == "url"
        assert [entry["Key"] for entry in found["Contents"]] == ["asdf%2Bb"]
        assert [entry["Prefix"] for entry in found["CommonPrefixes"]] == ["foo%2B1/", "foo/", "quux%20ab/"]
        assert answer_of(call, Bucket=bucket, EncodingType="base64") == (400, "InvalidArgument")


@pytest.mark.parametrize("parameter", ["max-keys=blah", "max-keys=-1", "max-keys=3.5", "max-keys=99999999999999"])
@pytest.mark.parametrize("version", ["", "&list-type=2"])
def test_a_limit_is_a_number(client: Any, keys_bucket: str, parameter: str, version: str) -> None:
    def change(request: Any, **_: Any) -> None:
        request.url = request.url.replace("max-keys=7", parameter)

    client.meta.events.register("before-sign.s3", change)
    try:
        call = client.list_objects_v2 if version else client.list_objects
        assert answer_of(call, Bucket=keys_bucket, MaxKeys=7) == (400, "InvalidArgument")
    finally:
        client.meta.events.unregister("before-sign.s3", change)


def test_everybody_may_list_only_what_is_public(client: Any, bucket: str, anonymous: Any) -> None:
    for call in (anonymous.list_objects, anonymous.list_objects_v2, anonymous.list_object_versions):
        client.put_bucket_acl(Bucket=bucket, ACL="private")
        assert answer_of(call, Bucket=bucket) == (403, "AccessDenied")
        client.put_bucket_acl(Bucket=bucket, ACL="public-read")
        assert answer_of(call, Bucket=bucket) == (200, "")
        assert answer_of(call, Bucket="no-such-bucket") == (404, "NoSuchBucket")


def test_a_delimiter_skips_no_keys(client: Any, bucket: str) -> None:
    keys = [f"0/{number}" for number in range(30)] + ["1999", "1999#", "1999+", "2000"]
    put_all(client, bucket, *keys)
    found = client.list_objects(Bucket=bucket, Delimiter="/", MaxKeys=5)
    assert [entry["Key"] for entry in found["Contents"]] == ["1999", "1999#", "1999+", "2000"]
    assert [entry["Prefix"] for entry in found["CommonPrefixes"]] == ["0/"]


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
@pytest.mark.parametrize("delimiter", ["", "/"])
def test_pages_of_versions_together_are_the_whole(
    client: Any, versions_bucket: tuple[str, list[tuple[str, str]]], limit: int, delimiter: str
) -> None:
    bucket, made = versions_bucket
    pages = client.get_paginator("list_object_versions").paginate(
        Bucket=bucket, Delimiter=delimiter, PaginationConfig={"PageSize": limit}
    )
    seen, folders = [], []
    for page in pages:
        assert len(page.get("Versions", [])) + len(page.get("DeleteMarkers", [])) <= limit
        both = page.get("Versions", []) + page.get("DeleteMarkers", [])
        seen += [(entry["Key"], entry["VersionId"]) for entry in both]
        folders += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
    assert sorted(seen) == sorted(one for one in made if not delimiter or "/" not in one[0])
    assert folders == (["d/"] if delimiter else [])


@pytest.fixture(scope="module")
def versions_bucket(client: Any) -> tuple[str, list[tuple[str, str]]]:
    """A bucket with versions, archived `null` ones and delete markers, and all of them by key and id."""
    bucket = "listed-versions"
    client.create_bucket(Bucket=bucket)
    put_all(client, bucket, "a", "c", "d/1")
    made = [("a", "null"), ("c", "null"), ("d/1", "null")]
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for key in ("a", "a", "b", "d/1", "d/2"):
        made.append((key, client.put_object(Bucket=bucket, Key=key, Body=b"1")["VersionId"]))
    for key in ("b", "a"):
        made.append((key, client.delete_object(Bucket=bucket, Key=key)["VersionId"]))
    return bucket, made


def test_versions_are_listed_newest_first(client: Any, versions_bucket: tuple[str, list[tuple[str, str]]]) -> None:
    bucket, made = versions_bucket
    found = client.list_object_versions(Bucket=bucket, Prefix="a")
    assert [(one["VersionId"], one["IsLatest"]) for one in found["DeleteMarkers"]] == [(made[-1][1], True)]
    in_order = [(made[4][1], False), (made[3][1], False), ("null", False)]
    assert [(one["VersionId"], one["IsLatest"]) for one in found["Versions"]] == in_order


def test_buckets_are_listed_in_pages(client: Any) -> None:
    names = [f"page-of-{number}" for number in range(3)]
    for name in names:
        client.create_bucket(Bucket=name)
    first = client.list_buckets(MaxBuckets=2, Prefix="page-of-")
    assert [one["Name"] for one in first["Buckets"]] == names[:2]
    second = client.list_buckets(ContinuationToken=first["ContinuationToken"], Prefix="page-of-", MaxBuckets=2)
    assert [one["Name"] for one in second["Buckets"]] == names[2:]
    assert "ContinuationToken" not in second


def test_anybody_may_ask_whose_buckets_nobody_has(anonymous: Any, make_client: Any) -> None:
    assert answer_of(anonymous.list_buckets) == (403, "AccessDenied")
    assert answer_of(make_client("no:body", "x").list_buckets) == (403, "InvalidAccessKeyId")
    assert answer_of(make_client(key="x").list_buckets) == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("\x01", "&#x1;"),
        ("a\x0bb", "a&#xb;b"),
        ("tab\there", "tab\there"),
        ("cr\rlf\n", "cr&#xd;lf\n"),
        ("\x7f", "\x7f"),
    ],
)
def test_control_characters_in_names_are_references(
    client: Any, bucket: str, gateway_url: str, key: str, shown: str
) -> None:
    put_all(client, bucket, key)
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket)["Contents"]] == [key]  # asks for encoding
    client.put_bucket_acl(Bucket=bucket, ACL="public-read")
    with urllib.request.urlopen(f"{gateway_url}/{bucket}") as answer:
        assert f"<Key>{shown}</Key>" in answer.read().decode()


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2"])
def test_a_bucket_is_only_that_of_the_owner_expected(client: Any, keys_bucket: str, call: str) -> None:
    list_keys = getattr(client, call)
    assert code_of(list_keys, Bucket=keys_bucket, ExpectedBucketOwner="test:tester") == ""
    assert answer_of(list_keys, Bucket=keys_bucket, ExpectedBucketOwner="123") == (403, "AccessDenied")


@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_listing_may_be_in_any_order_without_a_delimiter(client: Any, keys_bucket: str, delimiter: str) -> None:
    def ask(request: Any, **_: Any) -> None:
        request.url += "&allow-unordered=true"

    client.meta.events.register("before-sign.s3", ask)
    try:
        expected = (400, "InvalidArgument") if delimiter else (200, "")
        assert answer_of(client.list_objects, Bucket=keys_bucket, Delimiter=delimiter) == expected
    finally:
        client.meta.events.unregister("before-sign.s3", ask)
