"""Whether a request may do what it asks: the bucket's policy first, then access control lists.

A policy that denies, denies; one that allows, allows. Where it is silent, the list of the bucket or the object decides:
who may READ a bucket may list it, who may WRITE it may write and delete objects in it, who may READ an object may read
it. All else about a bucket is for its owner.

Source: Amazon S3 user guide, "How Amazon S3 authorizes a request".
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from storage_cluster.servers.s3.buckets import Bucket
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import Acl
from storage_cluster.servers.s3.policy import Asked, Verdict
from storage_cluster.servers.s3.request import Request
from storage_cluster.servers.s3.tags import Tags

OWNER = "OWNER"
"""In place of a permission: only the bucket's owner may, unless a policy lets others."""
_CONDITION_PARAMETERS = ("prefix", "delimiter", "max-keys", "versionid")
_CONDITION_HEADERS = (
    *("x-amz-acl", "x-amz-copy-source", "x-amz-metadata-directive", "x-amz-content-sha256", "x-amz-storage-class"),
    *("x-amz-grant-read", "x-amz-grant-write", "x-amz-grant-read-acp", "x-amz-grant-write-acp"),
    *("x-amz-grant-full-control", "x-amz-server-side-encryption", "if-match", "if-none-match"),
)


def require_bucket(request: Request, bucket: Bucket, action: str, permission: str, key: str = "") -> None:
    """Raises: S3Error (AccessDenied) unless the request may, by the bucket's policy or its list."""
    if not may_use_bucket(request, bucket, action, permission, key):
        raise S3Error("AccessDenied")


def may_use_bucket(request: Request, bucket: Bucket, action: str, permission: str, key: str = "") -> bool:
    """Whether the request may, by the bucket's policy or its list."""
    verdict = judge(request, bucket, action, key)
    if verdict is Verdict.SILENT:
        if permission == OWNER:
            return request.user_id == bucket.owner
        return bucket.in_force(bucket.acl).allows(request.user_id, permission)
    return verdict is Verdict.ALLOW


def require_object(
    request: Request, bucket: Bucket, action: str, permission: str, key: str, acl: Acl, tags: Tags | None = None
) -> None:
    """Raises: S3Error (AccessDenied) unless the request may, by the bucket's policy or the object's list."""
    verdict = judge(request, bucket, action, key, tags)
    listed = bucket.in_force(acl).allows(request.user_id, permission)
    if verdict is Verdict.DENY or (verdict is Verdict.SILENT and not listed):
        raise S3Error("AccessDenied")


def judge(request: Request, bucket: Bucket, action: str, key: str = "", tags: Tags | None = None) -> Verdict:
    """What the bucket's policy says. `tags`: the object's, where they are known."""
    policy = bucket.policy
    if policy is None:
        return Verdict.SILENT
    resource = f"arn:aws:s3:::{bucket.name}" + (f"/{key}" if key else "")
    verdict = policy.judge(Asked(request.user_id, action, resource, _condition_values(request, tags or {})))
    restricted = bucket.public_access.restrict_policy and policy.is_public and request.user_id != bucket.owner
    return Verdict.SILENT if restricted and verdict is Verdict.ALLOW else verdict


def _condition_values(request: Request, tags: Mapping[str, str]) -> dict[str, str]:
    values = {"aws:sourceip": request.call.peer.rpartition(":")[0], "aws:securetransport": "false"}
    for name, key in (("User-Agent", "aws:useragent"), ("Referer", "aws:referer")):
        if name in request.headers:
            values[key] = request.headers[name]
    parameters = {name.lower(): value for name, value in request.query.items()}
    values |= {f"s3:{name}": parameters[name] for name in _CONDITION_PARAMETERS if name in parameters}
    values |= {f"s3:{name}": request.headers[name] for name in _CONDITION_HEADERS if name in request.headers}
    given = dict(parse_qsl(request.headers.get("x-amz-tagging", ""), keep_blank_values=True))
    values |= {f"s3:requestobjecttag/{name.lower()}": value for name, value in given.items()}
    values |= {f"s3:existingobjecttag/{name.lower()}": value for name, value in tags.items()}
    return values
