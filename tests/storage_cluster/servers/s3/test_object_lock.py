"""Locks: retention and legal holds of versions, a bucket's default, and who may bypass or change them."""

import datetime
from typing import Any

import pytest

from storage_cluster.servers.s3.object_lock import BucketLock, DefaultRetention, Retention
from tests.helpers.s3_answers import answer_of

UTC = datetime.UTC
FAR = datetime.datetime(2090, 1, 1, tzinfo=UTC)
FARTHER = datetime.datetime(2090, 1, 3, tzinfo=UTC)
DENIED = (403, "AccessDenied")
BYPASS = {"BypassGovernanceRetention": True}


def configuration(**default: Any) -> dict[str, Any]:
    return {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": default}}


def retention(mode: str, until: datetime.datetime = FAR) -> dict[str, Any]:
    return {"Mode": mode, "RetainUntilDate": until}


@pytest.fixture
def lock_bucket(client: Any, request: pytest.FixtureRequest) -> str:
    """A bucket with locks."""
    name = f"l-{abs(hash(request.node.nodeid)) % 10**10}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def put(client: Any, bucket: str, **more: Any) -> str:
    """Store `k`; its version."""
    return str(client.put_object(Bucket=bucket, Key="k", Body=b"abc", **more)["VersionId"])


def delete(client: Any, bucket: str, version: str, **more: Any) -> tuple[int, str]:
    return answer_of(client.delete_object, Bucket=bucket, Key="k", VersionId=version, **more)


def test_a_bucket_made_with_locks_keeps_versions_for_good(client: Any, lock_bucket: str) -> None:
    assert client.get_bucket_versioning(Bucket=lock_bucket)["Status"] == "Enabled"
    suspended = {"Status": "Suspended"}
    refused = answer_of(client.put_bucket_versioning, Bucket=lock_bucket, VersioningConfiguration=suspended)
    assert refused == (409, "InvalidBucketState")
    assert client.get_object_lock_configuration(Bucket=lock_bucket)["ObjectLockConfiguration"] == {
        "ObjectLockEnabled": "Enabled"
    }


@pytest.mark.parametrize("default", [{"Mode": "GOVERNANCE", "Days": 1}, {"Mode": "COMPLIANCE", "Years": 2}])
def test_a_configuration_is_kept(client: Any, lock_bucket: str, default: dict[str, Any]) -> None:
    given = configuration(**default)
    client.put_object_lock_configuration(Bucket=lock_bucket, ObjectLockConfiguration=given)
    assert client.get_object_lock_configuration(Bucket=lock_bucket)["ObjectLockConfiguration"] == given


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (configuration(Mode="GOVERNANCE", Days=1, Years=1), "MalformedXML"),
        (configuration(Mode="GOVERNANCE"), "MalformedXML"),
        (configuration(Mode="GOVERNANCE", Days=0), "InvalidRetentionPeriod"),
        (configuration(Mode="GOVERNANCE", Years=-1), "InvalidRetentionPeriod"),
        (configuration(Mode="GOVERNANCE", Days=36_501), "InvalidRetentionPeriod"),
        (configuration(Mode="abc", Years=1), "MalformedXML"),
        (configuration(Mode="governance", Years=1), "MalformedXML"),
        ({**configuration(Mode="GOVERNANCE", Years=1), "ObjectLockEnabled": "Disabled"}, "MalformedXML"),
        ({"ObjectLockEnabled": "Enabled", "Rule": {}}, "MalformedXML"),
    ],
)
def test_a_wrong_configuration_is_refused(client: Any, lock_bucket: str, given: dict[str, Any], code: str) -> None:
    assert answer_of(client.put_object_lock_configuration, Bucket=lock_bucket, ObjectLockConfiguration=given) == (
        400,
        code,
    )


def test_locks_are_switched_on_only_where_versions_are_kept(client: Any, bucket: str) -> None:
    given = configuration(Mode="GOVERNANCE", Days=1)

    def switch_on() -> tuple[int, str]:
        return answer_of(client.put_object_lock_configuration, Bucket=bucket, ObjectLockConfiguration=given)

    assert answer_of(client.get_object_lock_configuration, Bucket=bucket) == (
        404,
        "ObjectLockConfigurationNotFoundError",
    )
    assert switch_on() == (409, "InvalidBucketState")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert switch_on() == (409, "InvalidBucketState")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    assert switch_on() == (200, "")


def test_a_bucket_without_locks_knows_no_retention(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"abc")
    about = {"Bucket": bucket, "Key": "k"}
    refused = (400, "InvalidRequest")
    assert answer_of(client.put_object_retention, **about, Retention=retention("GOVERNANCE")) == refused
    assert answer_of(client.get_object_retention, **about) == refused
    assert answer_of(client.put_object_legal_hold, **about, LegalHold={"Status": "ON"}) == refused
    assert answer_of(client.get_object_legal_hold, **about) == refused
    assert answer_of(client.put_object, **about, ObjectLockLegalHoldStatus="ON") == refused


def test_governance_is_bypassed_by_who_asks_to(client: Any, lock_bucket: str) -> None:
    version = put(client, lock_bucket)
    about = {"Bucket": lock_bucket, "Key": "k"}
    assert answer_of(client.get_object_retention, **about) == (404, "NoSuchObjectLockConfiguration")
    client.put_object_retention(**about, Retention=retention("GOVERNANCE"))
    assert client.get_object_retention(**about, VersionId=version)["Retention"] == retention("GOVERNANCE")
    assert delete(client, lock_bucket, version) == DENIED
    assert client.get_object(**about, VersionId=version)["Body"].read() == b"abc"
    assert delete(client, lock_bucket, version, **BYPASS) == (204, "")
    assert answer_of(client.get_object, **about, VersionId=version) == (404, "NoSuchVersion")


def test_compliance_is_bypassed_by_nobody(client: Any, lock_bucket: str) -> None:
    version = put(client, lock_bucket, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=FAR)
    assert delete(client, lock_bucket, version, **BYPASS) == DENIED
    about = {"Bucket": lock_bucket, "Key": "k", **BYPASS}
    assert answer_of(client.put_object_retention, **about, Retention=retention("GOVERNANCE")) == DENIED
    assert answer_of(client.put_object_retention, **about, Retention={}) == DENIED
    assert answer_of(client.put_object_retention, **about, Retention=retention("COMPLIANCE", FARTHER)) == (200, "")
    assert answer_of(client.put_object_retention, **about, Retention=retention("COMPLIANCE", FAR)) == DENIED


@pytest.mark.parametrize(
    ("changed", "bypass", "answer"),
    [
        (retention("GOVERNANCE", FARTHER), False, (200, "")),
        (retention("GOVERNANCE", FAR - datetime.timedelta(1)), False, DENIED),
        (retention("GOVERNANCE", FAR - datetime.timedelta(1)), True, (200, "")),
        (retention("COMPLIANCE", FAR), False, DENIED),
        (retention("COMPLIANCE", FAR), True, (200, "")),
        ({}, False, DENIED),
        ({}, True, (200, "")),
    ],
)
def test_a_governed_retention_is_changed(
    client: Any, lock_bucket: str, changed: dict[str, Any], bypass: bool, answer: tuple[int, str]
) -> None:
    put(client, lock_bucket)
    about = {"Bucket": lock_bucket, "Key": "k"}
    client.put_object_retention(**about, Retention=retention("GOVERNANCE"))
    more = BYPASS if bypass else {}
    assert answer_of(client.put_object_retention, **about, **more, Retention=changed) == answer
    after = changed if answer == (200, "") else retention("GOVERNANCE")
    if after:
        assert client.get_object_retention(**about)["Retention"] == after
    else:
        assert answer_of(client.get_object_retention, **about) == (404, "NoSuchObjectLockConfiguration")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (retention("governance"), "MalformedXML"),
        (retention("abc"), "MalformedXML"),
        ({"Mode": "GOVERNANCE"}, "MalformedXML"),
        (retention("GOVERNANCE", datetime.datetime(2000, 1, 1, tzinfo=UTC)), "InvalidArgument"),
    ],
)
def test_a_wrong_retention_is_refused(client: Any, lock_bucket: str, given: dict[str, Any], code: str) -> None:
    put(client, lock_bucket)
    assert answer_of(client.put_object_retention, Bucket=lock_bucket, Key="k", Retention=given) == (400, code)


def test_others_may_not_bypass_unless_a_policy_lets_them(client: Any, other: Any, lock_bucket: str) -> None:
    first, second = (put(client, lock_bucket) for _ in range(2))
    for version in (first, second):
        client.put_object_retention(Bucket=lock_bucket, Key="k", VersionId=version, Retention=retention("GOVERNANCE"))

    def allow(*actions: str) -> None:
        statement = f'{{"Effect": "Allow", "Principal": "*", "Action": [{", ".join(map(repr, actions))}], '
        statement += f'"Resource": ["arn:aws:s3:::{lock_bucket}/*"]}}'
        policy = f'{{"Version": "2012-10-17", "Statement": [{statement}]}}'.replace("'", '"')
        client.put_bucket_policy(Bucket=lock_bucket, Policy=policy)

    assert delete(other, lock_bucket, first, **BYPASS) == DENIED
    allow("s3:DeleteObjectVersion")
    assert delete(other, lock_bucket, first, **BYPASS) == DENIED
    allow("s3:DeleteObjectVersion", "s3:BypassGovernanceRetention")
    assert delete(other, lock_bucket, first) == DENIED
    assert delete(other, lock_bucket, first, **BYPASS) == (204, "")


def test_a_legal_hold_keeps_a_version_until_it_is_off(client: Any, lock_bucket: str) -> None:
    version, about = put(client, lock_bucket), {"Bucket": lock_bucket, "Key": "k"}
    assert answer_of(client.get_object_legal_hold, **about) == (404, "NoSuchObjectLockConfiguration")
    assert answer_of(client.put_object_legal_hold, **about, LegalHold={"Status": "abc"}) == (400, "MalformedXML")
    client.put_object_legal_hold(**about, LegalHold={"Status": "ON"})
    assert client.get_object_legal_hold(**about)["LegalHold"] == {"Status": "ON"}
    assert delete(client, lock_bucket, version, **BYPASS) == DENIED
    client.put_object_legal_hold(**about, LegalHold={"Status": "OFF"})
    assert client.get_object_legal_hold(**about)["LegalHold"] == {"Status": "OFF"}
    assert delete(client, lock_bucket, version) == (204, "")


def test_locks_come_with_the_object_and_are_shown(client: Any, anonymous: Any, lock_bucket: str) -> None:
    locks = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": FAR, "ObjectLockLegalHoldStatus": "ON"}
    version = put(client, lock_bucket, **locks, ACL="public-read")
    for read in (client.head_object, client.get_object):
        shown = read(Bucket=lock_bucket, Key="k")
        assert {name: shown[name] for name in locks} == locks
    assert "ObjectLockMode" not in anonymous.head_object(Bucket=lock_bucket, Key="k")
    assert put(client, lock_bucket) != version  # the next version has none
    assert "ObjectLockMode" not in client.head_object(Bucket=lock_bucket, Key="k")


@pytest.mark.parametrize("half", [{"ObjectLockMode": "GOVERNANCE"}, {"ObjectLockRetainUntilDate": FAR}])
def test_mode_and_time_belong_together(client: Any, lock_bucket: str, half: dict[str, Any]) -> None:
    assert answer_of(client.put_object, Bucket=lock_bucket, Key="k", **half) == (400, "InvalidArgument")


def test_the_default_is_given_to_what_is_written(client: Any, lock_bucket: str) -> None:
    client.put_object_lock_configuration(
        Bucket=lock_bucket, ObjectLockConfiguration=configuration(Mode="GOVERNANCE", Days=1)
    )
    before = datetime.datetime.now(UTC)
    put(client, lock_bucket)
    client.copy_object(Bucket=lock_bucket, Key="copy", CopySource=f"{lock_bucket}/k")
    upload = client.create_multipart_upload(Bucket=lock_bucket, Key="parts")["UploadId"]
    part = client.upload_part(Bucket=lock_bucket, Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    done = client.complete_multipart_upload(Bucket=lock_bucket, Key="parts", UploadId=upload, MultipartUpload=listed)
    for key in ("k", "copy", "parts"):
        found = client.get_object_retention(Bucket=lock_bucket, Key=key)["Retention"]
        assert found["Mode"] == "GOVERNANCE"
        assert (
            datetime.timedelta(0)
            <= found["RetainUntilDate"] - before - datetime.timedelta(1)
            < datetime.timedelta(seconds=60)
        )
    about = {"Bucket": lock_bucket, "Key": "parts", "VersionId": done["VersionId"]}
    assert answer_of(client.delete_object, **about) == DENIED
    assert client.get_object(Bucket=lock_bucket, Key="parts")["Body"].read() == b"x"
    assert answer_of(client.delete_object, **about, **BYPASS) == (204, "")


def test_a_copy_does_not_take_the_lock_of_its_source(client: Any, lock_bucket: str) -> None:
    put(client, lock_bucket, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=FAR)
    client.copy_object(Bucket=lock_bucket, Key="copy", CopySource=f"{lock_bucket}/k")
    assert "ObjectLockMode" not in client.head_object(Bucket=lock_bucket, Key="copy")


def test_of_many_only_what_is_not_locked_is_deleted(client: Any, lock_bucket: str) -> None:
    versions = {key: client.put_object(Bucket=lock_bucket, Key=key)["VersionId"] for key in ("a", "b")}
    client.put_object_retention(Bucket=lock_bucket, Key="a", Retention=retention("GOVERNANCE"))
    asked = {"Objects": [{"Key": key, "VersionId": version} for key, version in versions.items()]}
    done = client.delete_objects(Bucket=lock_bucket, Delete=asked)
    assert [one["Key"] for one in done["Deleted"]] == ["b"]
    assert [(one["Key"], one["VersionId"], one["Code"]) for one in done["Errors"]] == [
        ("a", versions["a"], "AccessDenied")
    ]
    done = client.delete_objects(Bucket=lock_bucket, Delete={"Objects": asked["Objects"][:1]}, **BYPASS)
    assert ([one["Key"] for one in done["Deleted"]], done.get("Errors")) == (["a"], None)


def test_a_key_of_a_locked_version_is_marked_as_deleted(client: Any, lock_bucket: str) -> None:
    version = put(client, lock_bucket, ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=FAR)
    marker = client.delete_object(Bucket=lock_bucket, Key="k")
    assert marker["DeleteMarker"]
    assert client.get_object(Bucket=lock_bucket, Key="k", VersionId=version)["Body"].read() == b"abc"
    assert delete(client, lock_bucket, marker["VersionId"]) == (204, "")
    assert client.get_object(Bucket=lock_bucket, Key="k")["Body"].read() == b"abc"


def test_a_retention_that_is_over_keeps_nothing() -> None:
    now = datetime.datetime(2030, 1, 1, tzinfo=UTC)
    over = Retention("COMPLIANCE", now - datetime.timedelta(seconds=1))
    assert over.allows(None, now, may_bypass=False)
    assert over.allows(Retention("GOVERNANCE", now), now, may_bypass=False)
    assert not Retention("COMPLIANCE", now + datetime.timedelta(seconds=1)).allows(None, now, may_bypass=True)


def test_years_and_days_are_counted_from_the_write() -> None:
    now = datetime.datetime(2030, 1, 1, tzinfo=UTC)
    assert DefaultRetention("GOVERNANCE", None, 2).from_now(now).until == now + datetime.timedelta(days=730)
    kept = BucketLock(DefaultRetention("GOVERNANCE", 3, None))
    assert BucketLock.from_text(kept.text()) == kept
