"""Who may do what: access lists of buckets and objects, bucket policies, cross-origin requests."""

import json
from typing import Any

import pytest

from storage_cluster.servers.s3.grants import ALL_USERS, AUTHENTICATED_USERS
from tests.helpers.s3_answers import answer_of, code_of

OWNER, OTHER = "test:tester", "test2:tester2"
OK, DENIED = (200, ""), (403, "AccessDenied")


def grants_of(acl: Any) -> list[tuple[str, str]]:
    """Who and what, of each grant."""
    return [(one["Grantee"].get("ID") or one["Grantee"]["URI"], one["Permission"]) for one in acl["Grants"]]


FULL = (OWNER, "FULL_CONTROL")
CANNED = [
    ("private", []),
    ("public-read", [(ALL_USERS, "READ")]),
    ("public-read-write", [(ALL_USERS, "READ"), (ALL_USERS, "WRITE")]),
    ("authenticated-read", [(AUTHENTICATED_USERS, "READ")]),
]


@pytest.mark.parametrize(("name", "extra"), CANNED)
def test_canned_lists(client: Any, bucket: str, name: str, extra: list[tuple[str, str]]) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL=name)
    found = client.get_bucket_acl(Bucket=bucket)
    assert (grants_of(found), found["Owner"]["ID"]) == ([FULL, *extra], OWNER)
    client.put_object(Bucket=bucket, Key="k", ACL=name)
    client.put_object(Bucket=bucket, Key="later")
    client.put_object_acl(Bucket=bucket, Key="later", ACL=name)
    for key in ("k", "later"):
        assert grants_of(client.get_object_acl(Bucket=bucket, Key=key)) == [FULL, *extra]


@pytest.mark.parametrize(
    ("name", "permission"), [("bucket-owner-read", "READ"), ("bucket-owner-full-control", "FULL_CONTROL")]
)
def test_lists_for_the_buckets_owner(client: Any, bucket: str, other: Any, name: str, permission: str) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    other.put_object(Bucket=bucket, Key="k", Body=b"1")
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == DENIED
    other.put_object_acl(Bucket=bucket, Key="k", ACL=name)
    assert grants_of(other.get_object_acl(Bucket=bucket, Key="k")) == [(OTHER, "FULL_CONTROL"), (OWNER, permission)]
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == OK


@pytest.mark.parametrize("who", ["other", "anonymous"])
@pytest.mark.parametrize(
    ("bucket_acl", "object_acl"),
    [
        ("private", "public-read"),
        ("public-read", "private"),
        ("public-read-write", "authenticated-read"),
        ("authenticated-read", "private"),
    ],
)
def test_what_canned_lists_allow(
    client: Any, bucket: str, who: str, bucket_acl: str, object_acl: str, request: pytest.FixtureRequest
) -> None:
    somebody = request.getfixturevalue(who)
    client.put_bucket_acl(Bucket=bucket, ACL=bucket_acl)
    client.put_object(Bucket=bucket, Key="k", Body=b"1", ACL=object_acl)
    signs = who == "other"

    def answer_to(acl: str) -> tuple[int, str]:
        return OK if acl.startswith("public") or (signs and acl == "authenticated-read") else DENIED

    assert answer_of(somebody.get_object, Bucket=bucket, Key="k") == answer_to(object_acl)
    for call in (somebody.list_objects, somebody.list_objects_v2, somebody.list_object_versions):
        assert answer_of(call, Bucket=bucket) == answer_to(bucket_acl)
    writes = bucket_acl == "public-read-write"
    assert answer_of(somebody.put_object, Bucket=bucket, Key="new", Body=b"2") == (OK if writes else DENIED)
    assert answer_of(somebody.delete_object, Bucket=bucket, Key="k") == ((204, "") if writes else DENIED)
    assert answer_of(somebody.get_bucket_acl, Bucket=bucket) == DENIED
    assert answer_of(somebody.put_bucket_acl, Bucket=bucket, ACL="private") == DENIED


CALLS = {
    "list": lambda who, bucket: who.list_objects(Bucket=bucket),
    "write": lambda who, bucket: who.put_object(Bucket=bucket, Key="new"),
    "read list": lambda who, bucket: who.get_bucket_acl(Bucket=bucket),
    "write list": lambda who, bucket: who.put_bucket_acl(Bucket=bucket, ACL="public-read"),
}


@pytest.mark.parametrize(
    ("permission", "allowed"),
    [
        ("READ", {"list"}),
        ("WRITE", {"write"}),
        ("READ_ACP", {"read list"}),
        ("WRITE_ACP", {"write list"}),
        ("FULL_CONTROL", set(CALLS)),
    ],
)
@pytest.mark.parametrize("as_header", [False, True])
def test_grants_of_a_bucket(
    client: Any, bucket: str, other: Any, permission: str, allowed: set[str], as_header: bool
) -> None:
    if as_header:
        client.put_bucket_acl(Bucket=bucket, **{_parameter(permission): f'id="{OTHER}"'})
    else:
        client.put_bucket_acl(Bucket=bucket, AccessControlPolicy=policy_with(permission))
    assert (OTHER, permission) in grants_of(client.get_bucket_acl(Bucket=bucket))
    for name, call in CALLS.items():
        assert (code_of(_without_arguments(call, other, bucket)) == "") == (name in allowed), name


def _without_arguments(call: Any, who: Any, bucket: str) -> Any:
    return lambda: call(who, bucket)


def _parameter(permission: str) -> str:
    return "Grant" + "".join(word.title() for word in permission.split("_")).replace("Acp", "ACP")


def policy_with(permission: str, grantee: dict[str, str] | None = None) -> dict[str, Any]:
    named = grantee or {"Type": "CanonicalUser", "ID": OTHER}
    own = {"Grantee": {"Type": "CanonicalUser", "ID": OWNER}, "Permission": "FULL_CONTROL"}
    return {"Owner": {"ID": OWNER}, "Grants": [own, {"Grantee": named, "Permission": permission}]}


@pytest.mark.parametrize(
    ("grantee", "code"),
    [
        ({"Type": "CanonicalUser", "ID": "_foo"}, "InvalidArgument"),
        ({"Type": "AmazonCustomerByEmail", "EmailAddress": "no@body"}, "UnresolvableGrantByEmailAddress"),
        ({"Type": "Group", "URI": "http://nobody"}, "InvalidArgument"),
        ({"Type": "Group", "URI": ALL_USERS}, ""),
    ],
)
def test_grants_are_for_somebody(client: Any, bucket: str, grantee: dict[str, str], code: str) -> None:
    assert code_of(client.put_bucket_acl, Bucket=bucket, AccessControlPolicy=policy_with("READ", grantee)) == code


def test_an_owner_without_grants_still_rules_the_list(client: Any, bucket: str) -> None:
    client.put_object(Bucket=bucket, Key="k")
    client.put_bucket_acl(Bucket=bucket, AccessControlPolicy={"Owner": {"ID": OWNER}, "Grants": []})
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == OK
    assert answer_of(client.put_object, Bucket=bucket, Key="new") == DENIED
    assert grants_of(client.get_bucket_acl(Bucket=bucket)) == []
    assert answer_of(client.put_bucket_acl, Bucket=bucket, ACL="private") == OK


def test_an_objects_owner_stays(client: Any, bucket: str, other: Any) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    client.put_object(Bucket=bucket, Key="k", ACL="public-read", Metadata={"a": "1"})
    client.put_object_acl(Bucket=bucket, Key="k", AccessControlPolicy=policy_with("FULL_CONTROL"))
    other.put_object_acl(Bucket=bucket, Key="k", GrantRead=f"id={OTHER}", GrantFullControl=f"id={OWNER}")
    found = client.get_object_acl(Bucket=bucket, Key="k")
    assert found["Owner"]["ID"] == OWNER
    assert sorted(grants_of(found)) == sorted([FULL, (OTHER, "READ")])
    assert client.head_object(Bucket=bucket, Key="k")["Metadata"] == {"a": "1"}


# policies


def put_policy(client: Any, bucket: str, *statements: dict[str, Any]) -> None:
    given = [{"Principal": {"AWS": "*"}, "Effect": "Allow", "Resource": "BUCKET/*", **one} for one in statements]
    text = json.dumps({"Version": "2012-10-17", "Statement": given}).replace("BUCKET", f"arn:aws:s3:::{bucket}")
    client.put_bucket_policy(Bucket=bucket, Policy=text)


def test_a_policy_is_stored_as_it_is(client: Any, bucket: str) -> None:
    assert answer_of(client.get_bucket_policy, Bucket=bucket) == (404, "NoSuchBucketPolicy")
    put_policy(client, bucket, {"Action": "s3:GetObject"})
    assert json.loads(client.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"][0]["Effect"] == "Allow"
    assert client.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is True
    assert answer_of(client.delete_bucket_policy, Bucket=bucket) == (204, "")
    assert answer_of(client.get_bucket_policy, Bucket=bucket) == (404, "NoSuchBucketPolicy")
    assert client.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"] is False


THEM, SOMEBODY_ELSE = {"AWS": f"arn:aws:iam::test2:user/{OTHER}"}, {"AWS": "arn:aws:iam::x:user/y"}
PREFIX = {"Action": "s3:ListBucket", "Resource": "BUCKET", "Condition": {"StringEquals": {"s3:prefix": "foo"}}}
TAGGED = {"Action": "s3:GetObject", "Condition": {"StringEquals": {"s3:ExistingObjectTag/security": "public"}}}
REQUEST_TAG = {"Action": "s3:PutObject", "Condition": {"StringEquals": {"s3:RequestObjectTag/security": "public"}}}
NO_PUBLIC = {
    "Effect": "Deny",
    "Action": "s3:PutObject",
    "Condition": {"StringLike": {"s3:x-amz-acl": "public*"}},
}
FROM = {
    "Action": "s3:PutObject",
    "Condition": {"StringLike": {"s3:x-amz-copy-source": "*/public/*"}},
}
REFERER = {"Action": "s3:GetObject", "Condition": {"StringLikeIfExists": {"aws:Referer": "http://www.example.com/*"}}}


@pytest.mark.parametrize(
    ("statements", "call", "arguments", "expected"),
    [
        ([{"Action": "s3:ListBucket", "Resource": "BUCKET"}], "list_objects", {}, OK),
        ([{"Action": "s3:ListBucket", "Resource": "BUCKET"}], "list_objects_v2", {}, OK),
        ([{"Action": "s3:GetObject"}], "list_objects", {}, DENIED),
        ([{"Action": "s3:GetObject"}], "get_object", {"Key": "k"}, OK),
        ([{"Action": "s3:*"}], "get_object_acl", {"Key": "k"}, OK),
        ([{"Action": "s3:GetObject", "Principal": THEM}], "get_object", {"Key": "k"}, OK),
        ([{"Action": "s3:GetObject", "Principal": SOMEBODY_ELSE}], "get_object", {"Key": "k"}, DENIED),
        ([{"Action": "s3:*"}, {"Effect": "Deny", "Action": "s3:GetObject"}], "get_object", {"Key": "k"}, DENIED),
        ([PREFIX], "list_objects", {"Prefix": "foo"}, OK),
        ([PREFIX], "list_objects", {"Prefix": "bar"}, DENIED),
        ([TAGGED], "get_object", {"Key": "k"}, OK),
        ([TAGGED], "get_object", {"Key": "untagged"}, DENIED),
        ([REFERER], "get_object", {"Key": "k"}, OK),
        ([REQUEST_TAG], "put_object", {"Key": "n", "Tagging": "security=public"}, OK),
        ([REQUEST_TAG], "put_object", {"Key": "n", "Tagging": "security=no"}, DENIED),
        ([REQUEST_TAG], "put_object", {"Key": "n"}, DENIED),
        ([{"Action": "s3:PutObject"}, NO_PUBLIC], "put_object", {"Key": "n", "ACL": "private"}, OK),
        ([{"Action": "s3:PutObject"}, NO_PUBLIC], "put_object", {"Key": "n", "ACL": "public-read"}, DENIED),
        ([{"Action": "s3:PutObject"}], "create_multipart_upload", {"Key": "n"}, OK),
        ([{"Action": "s3:GetObject"}, FROM], "copy_object", {"Key": "n", "CopySource": "BUCKET/public/k"}, OK),
        ([{"Action": "s3:GetObject"}, FROM], "copy_object", {"Key": "n", "CopySource": "BUCKET/k"}, DENIED),
        ([{"Action": "s3:GetObjectTagging"}], "get_object_tagging", {"Key": "k"}, OK),
        ([{"Action": "s3:GetObject"}], "get_object_tagging", {"Key": "k"}, DENIED),
        ([{"Action": "s3:DeleteObject"}], "delete_object", {"Key": "k"}, (204, "")),
    ],
    ids=str,
)
def test_what_policies_allow(
    client: Any, bucket: str, other: Any, statements: Any, call: str, arguments: Any, expected: tuple[int, str]
) -> None:
    for key, tags in (("k", "security=public"), ("untagged", ""), ("public/k", "")):
        client.put_object(Bucket=bucket, Key=key, Tagging=tags)
    put_policy(client, bucket, *statements)
    given = {name: value.replace("BUCKET", bucket) for name, value in arguments.items()}
    assert answer_of(getattr(other, call), Bucket=bucket, **given) == expected


@pytest.mark.parametrize(
    "statement",
    [
        {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::other-bucket/*"},
        {"Action": "ec2:Run"},
        {"Action": "s3:GetObject", "Effect": "Perhaps"},
        {"Action": "s3:GetObject", "Condition": {"Similar": {"s3:prefix": "x"}}},
        {"Action": "s3:GetObject", "Colour": "red"},
        {},
        {"Action": "s3:GetObject", "Principal": None, "NotPrincipal": {"AWS": "*"}},
    ],
    ids=str,
)
def test_policies_are_checked(client: Any, bucket: str, statement: dict[str, Any]) -> None:
    given = {"Principal": {"AWS": "*"}, "Effect": "Allow", "Resource": f"arn:aws:s3:::{bucket}/*", **statement}
    given = {name: value for name, value in given.items() if value is not None}
    text = json.dumps({"Version": "2012-10-17", "Statement": [given]})
    assert answer_of(client.put_bucket_policy, Bucket=bucket, Policy=text) == (400, "MalformedPolicy")


# cross-origin requests

RULES = [
    {"AllowedMethods": ["GET"], "AllowedOrigins": ["*suffix"]},
    {"AllowedMethods": ["GET"], "AllowedOrigins": ["start*end"]},
    {"AllowedMethods": ["PUT"], "AllowedOrigins": ["*.put"], "AllowedHeaders": ["x-amz-meta-*"], "MaxAgeSeconds": 60},
]


@pytest.mark.parametrize(
    ("method", "origin", "asked", "allowed"),
    [
        ("GET", "foo.suffix", "", "foo.suffix"),
        ("GET", "foo.bar", "", None),
        ("GET", "foo.suffix.get", "", None),
        ("GET", "startend", "", "startend"),
        ("GET", "start1end", "", "start1end"),
        ("GET", "0start12end", "", None),
        ("PUT", "foo.suffix", "", None),
        ("PUT", "foo.put", "", "foo.put"),
        ("PUT", "foo.put", "x-amz-meta-a", "foo.put"),
        ("PUT", "foo.put", "x-amz-meta-a, content-type", None),
        ("DELETE", "foo.put", "", None),
    ],
)
def test_origins_that_rules_allow(
    client: Any, cors_bucket: str, store: Any, method: str, origin: str, asked: str, allowed: str | None
) -> None:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    headers |= {"Access-Control-Request-Headers": asked} if asked else {}
    answer = store.ask("OPTIONS", f"/{cors_bucket}/k", headers, service="s3")
    assert answer.status == (200 if allowed else 403)
    assert answer.headers.get("access-control-allow-origin") == allowed
    if method == "GET":
        plain = store.ask("GET", f"/{cors_bucket}/k", {"Origin": origin}, service="s3")
        assert (plain.status, plain.headers.get("access-control-allow-origin")) == (200, allowed)


@pytest.fixture(scope="module")
def cors_bucket(client: Any) -> str:
    client.create_bucket(Bucket="cors-bucket")
    client.put_object(Bucket="cors-bucket", Key="k", ACL="public-read")
    client.put_bucket_cors(Bucket="cors-bucket", CORSConfiguration={"CORSRules": RULES})
    return "cors-bucket"


def test_a_preflight_request_is_complete(cors_bucket: str, store: Any) -> None:
    assert store.ask("OPTIONS", f"/{cors_bucket}/k", {}, service="s3").status == 400
    assert store.ask("OPTIONS", f"/{cors_bucket}/k", {"Origin": "a.put"}, service="s3").status == 400


EVERYBODY = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject"}


def block_public_access(client: Any, bucket: str, **switches: bool) -> None:
    client.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=switches)


def public_policy(bucket: str) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [EVERYBODY | {"Resource": f"arn:aws:s3:::{bucket}/*"}]})


def test_a_public_access_block_is_kept_and_removed(client: Any, bucket: str) -> None:
    assert code_of(client.get_public_access_block, Bucket=bucket) == "NoSuchPublicAccessBlockConfiguration"
    block_public_access(client, bucket, BlockPublicAcls=True, RestrictPublicBuckets=True)
    assert client.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "IgnorePublicAcls": False,
        "BlockPublicPolicy": False,
        "RestrictPublicBuckets": True,
    }
    client.delete_public_access_block(Bucket=bucket)
    assert code_of(client.get_public_access_block, Bucket=bucket) == "NoSuchPublicAccessBlockConfiguration"


@pytest.mark.parametrize("acl", ["public-read", "public-read-write", "authenticated-read"])
def test_public_lists_are_refused_where_they_are_blocked(client: Any, bucket: str, acl: str) -> None:
    client.put_object(Bucket=bucket, Key="k")
    block_public_access(client, bucket, BlockPublicAcls=True)
    assert answer_of(client.put_bucket_acl, Bucket=bucket, ACL=acl) == DENIED
    assert answer_of(client.put_object_acl, Bucket=bucket, Key="k", ACL=acl) == DENIED
    assert answer_of(client.put_object, Bucket=bucket, Key="new", ACL=acl) == DENIED
    assert answer_of(client.put_object, Bucket=bucket, Key="new", ACL="private") == OK


def test_public_lists_can_be_ignored(client: Any, bucket: str, other: Any) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL="public-read")
    client.put_object(Bucket=bucket, Key="k", ACL="public-read")
    assert answer_of(other.get_object, Bucket=bucket, Key="k") == OK
    block_public_access(client, bucket, IgnorePublicAcls=True)
    assert answer_of(other.get_object, Bucket=bucket, Key="k") == DENIED
    assert answer_of(other.list_objects, Bucket=bucket) == DENIED
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == OK


def test_public_policies_are_refused_where_they_are_blocked(client: Any, bucket: str) -> None:
    block_public_access(client, bucket, BlockPublicPolicy=True)
    assert answer_of(client.put_bucket_policy, Bucket=bucket, Policy=public_policy(bucket)) == DENIED


def test_a_public_policy_can_be_restricted_to_the_owner(client: Any, bucket: str, other: Any) -> None:
    client.put_object(Bucket=bucket, Key="k")
    client.put_bucket_policy(Bucket=bucket, Policy=public_policy(bucket))
    assert answer_of(other.get_object, Bucket=bucket, Key="k") == OK
    block_public_access(client, bucket, RestrictPublicBuckets=True)
    assert answer_of(other.get_object, Bucket=bucket, Key="k") == DENIED
    assert answer_of(client.get_object, Bucket=bucket, Key="k") == OK


def own(client: Any, bucket: str, setting: str) -> None:
    client.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": setting}]})


@pytest.mark.parametrize("setting", ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"])
def test_ownership_controls_are_kept_and_removed(client: Any, bucket: str, setting: str) -> None:
    assert code_of(client.get_bucket_ownership_controls, Bucket=bucket) == "OwnershipControlsNotFoundError"
    own(client, bucket, setting)
    found = client.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]
    assert found == {"Rules": [{"ObjectOwnership": setting}]}
    client.delete_bucket_ownership_controls(Bucket=bucket)
    assert code_of(client.get_bucket_ownership_controls, Bucket=bucket) == "OwnershipControlsNotFoundError"


def test_ownership_is_set_as_a_bucket_is_made(client: Any, bucket: str) -> None:
    client.create_bucket(Bucket=f"{bucket}-own", ObjectOwnership="BucketOwnerPreferred")
    found = client.get_bucket_ownership_controls(Bucket=f"{bucket}-own")["OwnershipControls"]
    assert found == {"Rules": [{"ObjectOwnership": "BucketOwnerPreferred"}]}


def test_where_ownership_is_enforced_lists_count_for_nothing(client: Any, bucket: str, other: Any) -> None:
    client.put_object(Bucket=bucket, Key="k", ACL="public-read")
    own(client, bucket, "BucketOwnerEnforced")
    assert answer_of(other.get_object, Bucket=bucket, Key="k") == DENIED
    assert code_of(client.put_bucket_acl, Bucket=bucket, ACL="public-read") == "AccessControlListNotSupported"
    assert code_of(client.put_object_acl, Bucket=bucket, Key="k", ACL="private") == "AccessControlListNotSupported"
    assert code_of(client.put_object, Bucket=bucket, Key="n", ACL="public-read") == "AccessControlListNotSupported"
    assert code_of(client.put_object, Bucket=bucket, Key="n", ACL="bucket-owner-full-control") == ""


def test_ownership_is_not_enforced_over_a_list_that_lets_others_in(client: Any, bucket: str) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL="public-read")
    controls = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    put = client.put_bucket_ownership_controls
    assert code_of(put, Bucket=bucket, OwnershipControls=controls) == "InvalidBucketAclWithObjectOwnership"


@pytest.mark.parametrize(("setting", "owner"), [("BucketOwnerPreferred", OWNER), ("ObjectWriter", OTHER)])
def test_a_writer_can_give_an_object_to_the_buckets_owner(
    client: Any, bucket: str, other: Any, setting: str, owner: str
) -> None:
    client.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    own(client, bucket, setting)
    other.put_object(Bucket=bucket, Key="given", ACL="bucket-owner-full-control")
    other.put_object(Bucket=bucket, Key="kept")
    assert client.get_object_acl(Bucket=bucket, Key="given")["Owner"]["ID"] == owner
    assert other.get_object_acl(Bucket=bucket, Key="kept")["Owner"]["ID"] == OTHER
