"""Life cycles: what rules are taken and shown, when they say that something is due, and what the daemon removes."""

import asyncio
import datetime
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from storage_cluster.servers.http.backend import Backend
from storage_cluster.servers.http.messages import Call
from storage_cluster.servers.proxy.context import ProxyContext
from storage_cluster.servers.proxy.objects import ONLY_AT
from storage_cluster.servers.proxy.pipeline import STORE_PIPELINE, pipeline
from storage_cluster.servers.proxy.server import Store
from storage_cluster.servers.s3.addressing import Address
from storage_cluster.servers.s3.lifecycle import DAY_S, Clock, Lifecycle, Rule, Version, versions_in
from storage_cluster.servers.s3.request import Request
from storage_cluster.topology import UPDATERS
from testkit.loopback_store import CALM, LoopbackStore
from tests.helpers.polling import wait_for
from tests.helpers.s3_answers import answer_of, put_all
from tests.helpers.s3_clients import client_of

MARKER = "application/x-deleted"
SHORT_DAY_S = 0.4
NOON_S = 1_795_176_000.0  # 2026-11-20T12:00:00Z
MIDNIGHT_S = NOON_S + DAY_S / 2


def rule(**given: Any) -> dict[str, Any]:
    return {"ID": "r", "Status": "Enabled", "Filter": {}, **given}


def put_rules(client: Any, bucket: str, *rules: dict[str, Any]) -> tuple[int, str]:
    given = {"Rules": list(rules)}
    return answer_of(client.put_bucket_lifecycle_configuration, Bucket=bucket, LifecycleConfiguration=given)


def rules_of(client: Any, bucket: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    return found


def bare_prefix(prefix: str, **given: Any) -> dict[str, Any]:
    made = rule(Prefix=prefix, **given)
    del made["Filter"]
    return made


TAG, OTHER_TAG = {"Key": "k", "Value": "v"}, {"Key": "k2", "Value": ""}


@pytest.mark.parametrize(
    "given",
    [
        bare_prefix("test1/", Expiration={"Days": 31}),
        bare_prefix("", Expiration={"ExpiredObjectDeleteMarker": True}, Status="Disabled"),
        rule(Expiration={"Date": datetime.datetime(2030, 9, 27, tzinfo=datetime.UTC)}),
        rule(Filter={"Prefix": "\u00fc/&"}, NoncurrentVersionExpiration={"NoncurrentDays": 2}),
        rule(NoncurrentVersionExpiration={"NoncurrentDays": 2, "NewerNoncurrentVersions": 5}),
        rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 3}, Expiration={"Days": 1}),
        rule(Filter={"Tag": TAG}, Expiration={"Days": 1}),
        rule(Filter={"ObjectSizeGreaterThan": 500}, Expiration={"Days": 1}),
        rule(
            Filter={"And": {"Prefix": "a", "Tags": [TAG, OTHER_TAG], "ObjectSizeLessThan": 9}}, Expiration={"Days": 1}
        ),
    ],
)
def test_rules_are_shown_as_they_were_given(client: Any, bucket: str, given: dict[str, Any]) -> None:
    assert put_rules(client, bucket, given) == (200, "")
    assert rules_of(client, bucket) == [given]
    client.delete_bucket_lifecycle(Bucket=bucket)
    missing = answer_of(client.get_bucket_lifecycle_configuration, Bucket=bucket)
    assert missing == (404, "NoSuchLifecycleConfiguration")


def test_a_rule_without_an_id_gets_one(client: Any, bucket: str) -> None:
    given = [rule(Expiration={"Days": days}) for days in (1, 2)]
    for one in given:
        del one["ID"]
    put_rules(client, bucket, *given)
    ids = {one["ID"] for one in rules_of(client, bucket)}
    assert (len(ids), "" in ids) == (2, False)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (rule(Expiration={"Days": 0}), "InvalidArgument"),
        (rule(Expiration={"Days": 1}, ID="x" * 256), "InvalidArgument"),
        (rule(Expiration={"Days": 1}, Status="enabled"), "MalformedXML"),
        (rule(Expiration={"Days": 1, "ExpiredObjectDeleteMarker": True}), "MalformedXML"),
        (rule(Expiration={}), "MalformedXML"),
        (rule(Expiration={"Date": datetime.datetime(2030, 9, 27, 1, tzinfo=datetime.UTC)}), "InvalidArgument"),
        (rule(), "InvalidRequest"),
        (rule(Prefix="both", Expiration={"Days": 1}), "MalformedXML"),
        (rule(Filter={"Prefix": "a", "Tag": TAG}, Expiration={"Days": 1}), "MalformedXML"),
        (rule(Filter={"And": {"Tags": [TAG, TAG]}}, Expiration={"Days": 1}), "InvalidRequest"),
        (rule(Filter={"Tag": TAG}, Expiration={"ExpiredObjectDeleteMarker": True}), "InvalidRequest"),
        (rule(Filter={"Tag": TAG}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}), "InvalidRequest"),
        (rule(Transitions=[{"Days": 1, "StorageClass": "GLACIER"}]), "InvalidStorageClass"),
        (rule(NoncurrentVersionExpiration={"NewerNoncurrentVersions": 1}), "MalformedXML"),
    ],
)
def test_wrong_rules_are_refused(client: Any, bucket: str, given: dict[str, Any], code: str) -> None:
    assert put_rules(client, bucket, given) == (400, code)
    assert answer_of(client.get_bucket_lifecycle_configuration, Bucket=bucket)[0] == 404


def test_two_rules_of_one_id_are_refused(client: Any, bucket: str) -> None:
    assert put_rules(client, bucket, *[rule(Expiration={"Days": 1})] * 2) == (400, "InvalidArgument")
    assert put_rules(client, bucket) == (400, "MalformedXML")


def test_only_the_owner_sees_and_changes_them(client: Any, other: Any, bucket: str) -> None:
    put_rules(client, bucket, rule(Expiration={"Days": 1}))
    denied = (403, "AccessDenied")
    assert put_rules(other, bucket, rule(Expiration={"Days": 2})) == denied
    assert answer_of(other.get_bucket_lifecycle_configuration, Bucket=bucket) == denied
    assert answer_of(other.delete_bucket_lifecycle, Bucket=bucket) == denied


def test_an_object_says_when_it_expires(client: Any, bucket: str) -> None:
    put_rules(
        client,
        bucket,
        rule(ID="late", Expiration={"Days": 9}),
        rule(ID="by tag", Filter={"Tag": TAG}, Expiration={"Days": 2}),
        rule(ID="off", Status="Disabled", Expiration={"Days": 1}),
    )
    before = datetime.datetime.now(datetime.UTC)
    plain = client.put_object(Bucket=bucket, Key="plain", Body=b"x")["Expiration"]
    tagged = client.put_object(Bucket=bucket, Key="tagged", Body=b"x", Tagging="k=v")["Expiration"]
    for key, shown, rule_id, days in (("plain", plain, "late", 9), ("tagged", tagged, "by%20tag", 2)):
        date = parsedate_to_datetime(shown.split('"')[1])
        assert shown == f'expiry-date="{shown.split(chr(34))[1]}", rule-id="{rule_id}"'
        assert (date.hour, date.minute, date.second) == (0, 0, 0)
        assert datetime.timedelta(days) <= date - before < datetime.timedelta(days + 1, 60)
        assert client.head_object(Bucket=bucket, Key=key)["Expiration"] == shown
        assert client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Expiration"] == shown


def version(**given: Any) -> Version:
    usual = {"key": "k", "id": None, "is_marker": False, "size_bytes": 5, "written_s": NOON_S, "superseded_s": None}
    return Version(**{**usual, "newer_count": 0, "is_alone": True, **given})


@pytest.mark.parametrize(
    ("given", "of", "due_from_s"),
    [
        ({"days": 1}, {}, MIDNIGHT_S + DAY_S),
        ({"days": 1}, {"written_s": MIDNIGHT_S}, MIDNIGHT_S + DAY_S),
        ({"date": "2026-11-21T00:00:00.000Z"}, {}, MIDNIGHT_S),
        ({"days": 1}, {"is_marker": True}, MIDNIGHT_S + DAY_S),
        ({"days": 1}, {"is_marker": True, "is_alone": False}, None),
        ({"expires_markers": True}, {"is_marker": True}, 0.0),
        ({"expires_markers": True}, {"is_marker": True, "is_alone": False}, None),
        ({"expires_markers": True}, {}, None),
        ({"noncurrent_days": 2}, {}, None),
        ({"days": 1}, {"superseded_s": NOON_S}, None),
        ({"noncurrent_days": 2}, {"superseded_s": NOON_S, "written_s": 0.0}, MIDNIGHT_S + 2 * DAY_S),
        ({"noncurrent_days": 2, "newer_noncurrent": 1}, {"superseded_s": NOON_S}, None),
        (
            {"noncurrent_days": 2, "newer_noncurrent": 1},
            {"superseded_s": NOON_S, "newer_count": 1},
            MIDNIGHT_S + 2 * DAY_S,
        ),
        ({"days": 1, "prefix": "other"}, {}, None),
        ({"days": 1, "is_enabled": False}, {}, None),
        ({"days": 1, "larger_than_bytes": 5}, {}, None),
        ({"days": 1, "larger_than_bytes": 4}, {}, MIDNIGHT_S + DAY_S),
        ({"days": 1, "smaller_than_bytes": 5}, {}, None),
    ],
)
def test_when_a_version_is_due(given: dict[str, Any], of: dict[str, Any], due_from_s: float | None) -> None:
    made, about = Rule(**{"id": "r", "is_enabled": True, **given}), version(**of)
    if due_from_s is None:
        assert not made.removes(about, Clock(NOON_S + 1e9))
    else:
        assert made.removes(about, Clock(due_from_s))
        assert due_from_s == 0.0 or not made.removes(about, Clock(due_from_s - 1))


def test_short_days_are_not_rounded() -> None:
    assert Clock(0.0, 10.0).after(3.0, 2) == 23.0


def test_an_earlier_version_is_as_old_as_what_replaced_it() -> None:
    def entry(version_id: str, time: str, *, latest: bool = False, kind: str = "text/plain") -> dict[str, Any]:
        time = f"2026-11-{time}T12:00:00.000000"
        named = {"name": "k", "version_id": version_id, "is_latest": latest, "content_type": kind}
        return named | {"last_modified": time, "bytes": 1}

    listed = [entry("3", "22", latest=True, kind=MARKER), entry("2", "21"), entry("1", "20")]
    found = versions_in(listed, MARKER)
    assert [(one.id, one.is_marker, one.newer_count) for one in found] == [
        ("3", True, -1),
        ("2", False, 0),
        ("1", False, 1),
    ]
    assert [one.superseded_s for one in found] == [None, NOON_S + 2 * DAY_S, NOON_S + DAY_S]
    assert [one.is_alone for one in found] == [False] * 3
    assert versions_in(listed[:1], MARKER)[0].is_alone


def test_rules_are_kept_as_text() -> None:
    kept = Lifecycle(
        (Rule("a", is_enabled=False, tags=(("k", "v"),), days=3), Rule("b", is_enabled=True, has_filter=False))
    )
    assert Lifecycle.from_text(kept.text()) == kept
    assert Lifecycle.from_text(None) == Lifecycle()


@pytest.fixture(scope="module")
def swift_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    """A store whose days pass quickly."""
    names = (*UPDATERS, "s3-lifecycle")
    with LoopbackStore(tmp_path_factory.mktemp("days"), names, day_s=SHORT_DAY_S, intervals=CALM) as running:
        yield running


@pytest.fixture
def quick(swift_store: LoopbackStore) -> Any:
    return client_of(swift_store)


@pytest.fixture
def aging(quick: Any, request: pytest.FixtureRequest) -> str:
    name = f"a-{abs(hash(request.node.nodeid)) % 10**10}"
    quick.create_bucket(Bucket=name)
    return name


def keys(client: Any, bucket: str) -> list[str]:
    return [one["Key"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def versions(client: Any, bucket: str) -> tuple[list[str], list[str]]:
    """Keys of versions, and of delete markers."""
    found = client.list_object_versions(Bucket=bucket)
    return [one["Key"] for one in found.get("Versions", [])], [one["Key"] for one in found.get("DeleteMarkers", [])]


def wait_until(holds: Callable[[], bool]) -> None:
    wait_for(holds, "what is too old to be removed")


def test_old_objects_are_removed_and_others_stay(quick: Any, aging: str) -> None:
    put_all(quick, aging, "old/a", "old/b", "keep/a")
    quick.put_object(Bucket=aging, Key="tags/a", Tagging="k=v")
    quick.put_object(Bucket=aging, Key="tags/b", Tagging="k=other")
    put_rules(
        quick,
        aging,
        rule(ID="1", Filter={"Prefix": "old/"}, Expiration={"Days": 1}),
        rule(ID="2", Filter={"Tag": TAG}, Expiration={"Days": 1}),
        rule(ID="3", Filter={"Prefix": "keep/"}, Expiration={"Days": 1_000_000}),
    )
    wait_until(lambda: keys(quick, aging) == ["keep/a", "tags/b"])
    assert answer_of(quick.head_object, Bucket=aging, Key="old/a")[0] == 404


def test_an_object_whose_time_begins_anew_stays(quick: Any, aging: str) -> None:
    put_rules(quick, aging, rule(Expiration={"Days": 4}))
    until_s = time.monotonic() + 6 * SHORT_DAY_S
    while time.monotonic() < until_s:
        quick.put_object(Bucket=aging, Key="k", Body=b"x")
        assert keys(quick, aging) == ["k"]
        time.sleep(SHORT_DAY_S / 2)
    wait_until(lambda: keys(quick, aging) == [])


@pytest.mark.parametrize(("changed_since", "left"), [(False, []), (True, ["k"])])
def test_a_deletion_of_a_moment_leaves_what_is_newer(
    client: Any, bucket: str, store: LoopbackStore, changed_since: bool, left: list[str]
) -> None:
    client.put_object(Bucket=bucket, Key="k", Body=b"old")

    async def delete_as_seen() -> None:
        context = store_context(store)
        request = Request(Call("GET", ()), Address(bucket, "k"), context.whole)
        names = ("AUTH_test", bucket, "k")
        head = await request.ask_store("HEAD", names)
        if changed_since:
            await asyncio.to_thread(client.put_object, Bucket=bucket, Key="k", Body=b"new")
        await request.ask_store("DELETE", names, headers={ONLY_AT: head.headers["X-Backend-Timestamp"]})
        await context.backend.close()

    store.do(delete_as_seen())
    assert keys(client, bucket) == left
    if left:
        assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"new"


def store_context(store: LoopbackStore) -> ProxyContext:
    """A proxy's parts with its pipeline, for calls from within."""
    context = ProxyContext.over(Backend(store.topology, store.rings, "test"), info_cache_s=0.0)
    context.whole = pipeline([make(context) for make in STORE_PIPELINE], Store(context))
    return context


def test_the_parts_of_an_expired_object_expire(quick: Any, aging: str, swift_store: LoopbackStore) -> None:
    put_rules(quick, aging, rule(Expiration={"Days": 5}))
    upload = quick.create_multipart_upload(Bucket=aging, Key="k")["UploadId"]
    part = quick.upload_part(Bucket=aging, Key="k", UploadId=upload, PartNumber=1, Body=b"x")
    listed = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    quick.complete_multipart_upload(Bucket=aging, Key="k", UploadId=upload, MultipartUpload=listed)
    wait_until(lambda: keys(quick, aging) == [])
    wait_until(
        lambda: any(
            f"{aging}%2Bsegments/" in line["path"] for line in swift_store.log("object") if line["method"] == "POST"
        )
    )


def test_earlier_versions_go_and_then_the_marker(quick: Any, aging: str) -> None:
    quick.put_bucket_versioning(Bucket=aging, VersioningConfiguration={"Status": "Enabled"})
    put_all(quick, aging, "gone/a", "gone/a", "stay/a", "stay/a")
    quick.delete_object(Bucket=aging, Key="gone/a")
    put_rules(
        quick,
        aging,
        rule(
            Filter={"Prefix": "gone/"},
            NoncurrentVersionExpiration={"NoncurrentDays": 1},
            Expiration={"ExpiredObjectDeleteMarker": True},
        ),
    )
    wait_until(lambda: versions(quick, aging) == (["stay/a", "stay/a"], []))


def test_a_current_version_expires_into_a_marker(quick: Any, aging: str) -> None:
    quick.put_bucket_versioning(Bucket=aging, VersioningConfiguration={"Status": "Enabled"})
    made = quick.put_object(Bucket=aging, Key="k", Body=b"x")["VersionId"]
    put_rules(quick, aging, rule(Expiration={"Days": 1}))
    wait_until(lambda: versions(quick, aging) == (["k"], ["k"]))
    assert quick.get_object(Bucket=aging, Key="k", VersionId=made)["Body"].read() == b"x"


def test_of_earlier_versions_the_newest_are_kept(quick: Any, aging: str) -> None:
    quick.put_bucket_versioning(Bucket=aging, VersioningConfiguration={"Status": "Enabled"})
    made = [quick.put_object(Bucket=aging, Key="k", Body=b"x")["VersionId"] for _ in range(4)]
    put_rules(quick, aging, rule(NoncurrentVersionExpiration={"NoncurrentDays": 1, "NewerNoncurrentVersions": 1}))
    wait_until(lambda: len(versions(quick, aging)[0]) == 2)
    left = [one["VersionId"] for one in quick.list_object_versions(Bucket=aging)["Versions"]]
    assert left == made[:1:-1]


def test_a_locked_version_is_not_removed(quick: Any, aging: str) -> None:
    bucket = f"{aging}-locked"
    quick.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    quick.put_object(Bucket=bucket, Key="a-held", Body=b"x", ObjectLockLegalHoldStatus="ON")
    put_all(quick, bucket, "b-free", "a-held", "b-free")
    put_rules(quick, bucket, rule(NoncurrentVersionExpiration={"NoncurrentDays": 1}))
    wait_until(lambda: versions(quick, bucket)[0] == ["a-held", "a-held", "b-free"])


def test_old_uploads_are_aborted(quick: Any, aging: str) -> None:
    for key in ("old/a", "keep/a"):
        upload = quick.create_multipart_upload(Bucket=aging, Key=key)["UploadId"]
        quick.upload_part(Bucket=aging, Key=key, UploadId=upload, PartNumber=1, Body=b"x")
    put_rules(quick, aging, rule(Filter={"Prefix": "old/"}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}))
    wait_until(lambda: [one["Key"] for one in quick.list_multipart_uploads(Bucket=aging)["Uploads"]] == ["keep/a"])
