"""Versions: enabled and suspended, `null` versions, delete markers, copies and deletions of versions."""

from typing import Any

import pytest

from tests.helpers.s3_answers import answer_of


def set_versioning(client: Any, bucket: str, status: str) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})


def all_versions(client: Any, bucket: str) -> list[tuple[str, str, bool, bool]]:
    """Key, version id, whether it is the latest, whether it is a marker; in the order of the listing by kind."""
    found = client.list_object_versions(Bucket=bucket)
    versions = [(one, False) for one in found.get("Versions", [])]
    markers = [(one, True) for one in found.get("DeleteMarkers", [])]
    return [(one["Key"], one["VersionId"], one["IsLatest"], marker) for one, marker in versions + markers]


def ids_in_order(client: Any, bucket: str, key: str) -> list[str]:
    return [one["VersionId"] for one in client.list_object_versions(Bucket=bucket, Prefix=key).get("Versions", [])]


def body_of(client: Any, bucket: str, key: str, **more: Any) -> bytes:
    body: bytes = client.get_object(Bucket=bucket, Key=key, **more)["Body"].read()
    return body


@pytest.fixture
def versioned_bucket(client: Any, bucket: str) -> str:
    set_versioning(client, bucket, "Enabled")
    return bucket


@pytest.mark.parametrize("order", ["newest first", "oldest first", "middle first"])
def test_each_version_is_read_and_removed(client: Any, versioned_bucket: str, order: str) -> None:
    made = [client.put_object(Bucket=versioned_bucket, Key="k", Body=b"%d" % n)["VersionId"] for n in range(4)]
    assert ids_in_order(client, versioned_bucket, "k") == made[::-1]
    left = list(made)
    for _ in range(4):
        for version in left:
            assert body_of(client, versioned_bucket, "k", VersionId=version) == b"%d" % made.index(version)
        assert body_of(client, versioned_bucket, "k") == b"%d" % made.index(left[-1])
        at = {"newest first": -1, "oldest first": 0, "middle first": len(left) // 2}[order]
        gone = left.pop(at)
        done = client.delete_object(Bucket=versioned_bucket, Key="k", VersionId=gone)
        assert (done["VersionId"], "DeleteMarker" in done) == (gone, False)
        assert answer_of(client.get_object, Bucket=versioned_bucket, Key="k", VersionId=gone) == (404, "NoSuchVersion")
    assert answer_of(client.get_object, Bucket=versioned_bucket, Key="k") == (404, "NoSuchKey")
    assert all_versions(client, versioned_bucket) == []


@pytest.mark.parametrize("key", ["_", ":", " ", "a/b", "\u00fc"])
def test_versions_of_special_keys(client: Any, versioned_bucket: str, key: str) -> None:
    made = [client.put_object(Bucket=versioned_bucket, Key=key, Body=b"%d" % n)["VersionId"] for n in range(2)]
    assert ids_in_order(client, versioned_bucket, key) == made[::-1]
    client.delete_object(Bucket=versioned_bucket, Key=key, VersionId=made[1])
    assert body_of(client, versioned_bucket, key) == b"0"


def test_the_plain_object_is_the_null_version(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"plain")
    set_versioning(client, bucket, "Enabled")
    assert body_of(client, bucket, "k", VersionId="null") == b"plain"
    made = client.put_object(Bucket=bucket, Key="k", Body=b"new")["VersionId"]
    assert body_of(client, bucket, "k", VersionId="null") == b"plain"
    client.delete_object(Bucket=bucket, Key="k", VersionId=made)
    assert body_of(client, bucket, "k") == b"plain"
    client.delete_object(Bucket=bucket, Key="k", VersionId="null")
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
    assert all_versions(client, bucket) == []


def test_a_suspended_bucket_overwrites_only_the_null_version(client: Any, versioned_bucket: str) -> None:
    first = client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")["VersionId"]
    set_versioning(client, versioned_bucket, "Suspended")
    assert client.put_object(Bucket=versioned_bucket, Key="k", Body=b"n1").get("VersionId") in (None, "null")
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"n2")
    assert ids_in_order(client, versioned_bucket, "k") == ["null", first]
    assert (body_of(client, versioned_bucket, "k"), body_of(client, versioned_bucket, "k", VersionId=first)) == (
        b"n2",
        b"1",
    )
    set_versioning(client, versioned_bucket, "Enabled")
    third = client.put_object(Bucket=versioned_bucket, Key="k", Body=b"3")["VersionId"]
    assert ids_in_order(client, versioned_bucket, "k") == [third, "null", first]
    assert body_of(client, versioned_bucket, "k", VersionId="null") == b"n2"
    set_versioning(client, versioned_bucket, "Suspended")
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"n3")
    assert ids_in_order(client, versioned_bucket, "k") == ["null", third, first]
    assert body_of(client, versioned_bucket, "k", VersionId="null") == b"n3"


def test_a_suspended_bucket_deletes_the_null_version(client: Any, versioned_bucket: str) -> None:
    first = client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")["VersionId"]
    set_versioning(client, versioned_bucket, "Suspended")
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"n")
    for _ in range(2):
        done = client.delete_object(Bucket=versioned_bucket, Key="k")
        assert (done["DeleteMarker"], done["VersionId"]) == (True, "null")
        assert all_versions(client, versioned_bucket) == [("k", first, False, False), ("k", "null", True, True)]
        assert answer_of(client.get_object, Bucket=versioned_bucket, Key="k") == (404, "NoSuchKey")
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"again")
    assert all_versions(client, versioned_bucket) == [("k", "null", True, False), ("k", first, False, False)]
    client.delete_object(Bucket=versioned_bucket, Key="k", VersionId="null")
    assert body_of(client, versioned_bucket, "k") == b"1"


def test_a_bucket_may_begin_suspended(client: Any, bucket: str) -> None:
    set_versioning(client, bucket, "Suspended")
    assert client.delete_object(Bucket=bucket, Key="never")["VersionId"] == "null"
    client.put_object(Bucket=bucket, Key="k", Body=b"1")
    client.put_object(Bucket=bucket, Key="k", Body=b"2")
    assert all_versions(client, bucket) == [("k", "null", True, False), ("never", "null", True, True)]
    client.delete_object(Bucket=bucket, Key="k")
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")


def test_delete_markers_stack_and_are_removed_one_by_one(client: Any, versioned_bucket: str) -> None:
    made = client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")["VersionId"]
    marks = [client.delete_object(Bucket=versioned_bucket, Key="k") for _ in range(3)]
    assert all(one["DeleteMarker"] for one in marks)
    ids = [one["VersionId"] for one in marks]
    listed = [(one[1], one[2]) for one in all_versions(client, versioned_bucket) if one[3]]
    assert listed == [(ids[2], True), (ids[1], False), (ids[0], False)]
    for mark in (ids[1], ids[2], ids[0]):
        assert answer_of(client.get_object, Bucket=versioned_bucket, Key="k") == (404, "NoSuchKey")
        done = client.delete_object(Bucket=versioned_bucket, Key="k", VersionId=mark)
        assert (done["DeleteMarker"], done["VersionId"]) == (True, mark)
    assert body_of(client, versioned_bucket, "k") == b"1"
    assert ids_in_order(client, versioned_bucket, "k") == [made]


def test_a_delete_marker_is_not_read(client: Any, versioned_bucket: str) -> None:
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")
    mark = client.delete_object(Bucket=versioned_bucket, Key="k")["VersionId"]
    for call in (client.get_object, client.head_object):
        assert answer_of(call, Bucket=versioned_bucket, Key="k", VersionId=mark)[0] == 405
        assert answer_of(call, Bucket=versioned_bucket, Key="k")[0] == 404
    try:
        client.get_object(Bucket=versioned_bucket, Key="k")
    except client.exceptions.NoSuchKey as error:
        headers = error.response["ResponseMetadata"]["HTTPHeaders"]
        assert (headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == ("true", mark)


def test_a_marker_may_be_of_a_key_that_never_was(client: Any, versioned_bucket: str) -> None:
    mark = client.delete_object(Bucket=versioned_bucket, Key="none")
    assert mark["DeleteMarker"] is True
    assert all_versions(client, versioned_bucket) == [("none", mark["VersionId"], True, True)]


@pytest.mark.parametrize("version", ["null", "1795181812.15267", "nonsense"])
def test_a_version_that_is_not_there(client: Any, versioned_bucket: str, version: str) -> None:
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")
    expected = (400, "InvalidArgument") if version == "nonsense" else (404, "NoSuchVersion")
    for call in (client.get_object, client.get_object_acl, client.get_object_tagging):
        assert answer_of(call, Bucket=versioned_bucket, Key="k", VersionId=version) == expected
    deleted = (400, "InvalidArgument") if version == "nonsense" else (204, "")
    assert answer_of(client.delete_object, Bucket=versioned_bucket, Key="k", VersionId=version) == deleted
    assert body_of(client, versioned_bucket, "k") == b"1"


def test_versions_are_copied(client: Any, versioned_bucket: str) -> None:
    made = [client.put_object(Bucket=versioned_bucket, Key="k", Body=b"%d" % n)["VersionId"] for n in range(3)]
    for at, version in enumerate(made):
        source = {"Bucket": versioned_bucket, "Key": "k", "VersionId": version}
        done = client.copy_object(Bucket=versioned_bucket, Key=f"copy{at}", CopySource=source)
        assert done["CopySourceVersionId"] == version
        assert body_of(client, versioned_bucket, f"copy{at}", VersionId=done["VersionId"]) == b"%d" % at
    restored = client.copy_object(
        Bucket=versioned_bucket, Key="k", CopySource={"Bucket": versioned_bucket, "Key": "k", "VersionId": made[0]}
    )
    assert ids_in_order(client, versioned_bucket, "k") == [restored["VersionId"], *made[::-1]]
    assert body_of(client, versioned_bucket, "k") == b"0"


def test_a_copy_into_a_bucket_without_versions(client: Any, versioned_bucket: str) -> None:
    made = client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")["VersionId"]
    plain = f"{versioned_bucket}-plain"
    client.create_bucket(Bucket=plain)
    done = client.copy_object(Bucket=plain, Key="k", CopySource=f"{versioned_bucket}/k")
    assert ("VersionId" in done, done["CopySourceVersionId"]) == (False, made)
    assert body_of(client, plain, "k") == b"1"
    again = client.copy_object(Bucket=versioned_bucket, Key="k2", CopySource=f"{plain}/k")
    assert ("CopySourceVersionId" in again, "VersionId" in again) == (False, True)


def test_many_versions_are_deleted_at_once(client: Any, versioned_bucket: str) -> None:
    made = [client.put_object(Bucket=versioned_bucket, Key="k", Body=b"%d" % n)["VersionId"] for n in range(2)]
    found = client.delete_objects(Bucket=versioned_bucket, Delete={"Objects": [{"Key": "k"}]})["Deleted"]
    mark = found[0]["DeleteMarkerVersionId"]
    assert found == [{"Key": "k", "DeleteMarker": True, "DeleteMarkerVersionId": mark}]
    asked = [{"Key": "k", "VersionId": version} for version in (mark, *made)]
    for _ in range(2):
        found = client.delete_objects(Bucket=versioned_bucket, Delete={"Objects": asked})
        assert sorted(one["VersionId"] for one in found["Deleted"]) == sorted([mark, *made])
        assert "Errors" not in found
    assert all_versions(client, versioned_bucket) == []


def test_a_version_has_its_own_list_and_tags(client: Any, versioned_bucket: str) -> None:
    first, second = (client.put_object(Bucket=versioned_bucket, Key="k", Body=b"%d" % n)["VersionId"] for n in range(2))
    named = {"Bucket": versioned_bucket, "Key": "k"}
    client.put_object_acl(**named, VersionId=first, ACL="public-read")
    client.put_object_tagging(**named, VersionId=second, Tagging={"TagSet": [{"Key": "a", "Value": "2"}]})
    client.put_object_tagging(**named, VersionId=first, Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
    for version, grants, tag in ((first, 2, "1"), (second, 1, "2"), (None, 1, "2")):
        asked = named if version is None else named | {"VersionId": version}
        assert len(client.get_object_acl(**asked)["Grants"]) == grants
        found = client.get_object_tagging(**asked)
        assert (found["TagSet"], found["VersionId"]) == ([{"Key": "a", "Value": tag}], version or second)
    assert ids_in_order(client, versioned_bucket, "k") == [second, first]


def test_a_null_version_has_its_own_list_and_tags(client: Any, bucket: str) -> None:
    named = {"Bucket": bucket, "Key": "k"}
    client.put_object(**named, Body=b"plain")
    set_versioning(client, bucket, "Enabled")
    for behind in (False, True):
        if behind:
            client.put_object(**named, Body=b"new")
        tag = [{"Key": "behind", "Value": str(behind)}]
        client.put_object_tagging(**named, VersionId="null", Tagging={"TagSet": tag})
        assert client.get_object_tagging(**named, VersionId="null")["TagSet"] == tag
        assert body_of(client, bucket, "k", VersionId="null") == b"plain"
    assert client.get_object_tagging(**named)["TagSet"] == []


def test_attributes_of_a_version(client: Any, versioned_bucket: str) -> None:
    first = client.put_object(Bucket=versioned_bucket, Key="k", Body=b"1")["VersionId"]
    client.put_object(Bucket=versioned_bucket, Key="k", Body=b"22")
    asked = {"Bucket": versioned_bucket, "Key": "k", "ObjectAttributes": ["ObjectSize"]}
    assert client.get_object_attributes(**asked)["ObjectSize"] == 2
    found = client.get_object_attributes(**asked, VersionId=first)
    assert (found["ObjectSize"], found["VersionId"]) == (1, first)


@pytest.mark.parametrize("kind", ["null is current", "null is older"])
def test_a_listing_goes_on_after_a_null_version(client: Any, bucket: str, kind: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"plain")
    set_versioning(client, bucket, "Enabled")
    client.put_object(Bucket=bucket, Key="k", Body=b"1")
    if kind == "null is current":
        set_versioning(client, bucket, "Suspended")
        client.put_object(Bucket=bucket, Key="k", Body=b"null")
    client.put_object(Bucket=bucket, Key="last", Body=b"2")
    found, markers = [], {}
    while True:
        page = client.list_object_versions(Bucket=bucket, MaxKeys=1, **markers)
        found += [(one["Key"], one["VersionId"]) for one in page["Versions"]]
        if not page["IsTruncated"]:
            break
        markers = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
        assert found[-1] == (markers["KeyMarker"], markers["VersionIdMarker"])
    whole = client.list_object_versions(Bucket=bucket)["Versions"]
    assert found == [(one["Key"], one["VersionId"]) for one in whole]
    assert len(found) == 3
