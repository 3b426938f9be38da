"""Operations on locks: a bucket's configuration, and the retention and the legal hold of a version.

Source: Amazon S3 API reference, PutObjectLockConfiguration, PutObjectRetention, PutObjectLegalHold.
"""

import datetime

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.s3 import versions
from storage_cluster.servers.s3.access import OWNER, may_use_bucket, require_bucket
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import element, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.metadata import change_metadata
from storage_cluster.servers.s3.object_lock import (
    BYPASS_HEADER,
    LEGAL_HOLD,
    RETENTION,
    SETTING,
    BucketLock,
    Retention,
    hold_in_document,
    is_locked,
    retention_in_document,
)
from storage_cluster.servers.s3.objects import head_for, stored_names
from storage_cluster.servers.s3.payload import read_verified

DOCUMENT_MAX_BYTES = 65_536


async def get_object_lock(op: Operation) -> Reply:
    """GetObjectLockConfiguration."""
    require_bucket(op.request, op.bucket, "s3:GetBucketObjectLockConfiguration", OWNER)
    lock = op.bucket.lock
    if lock is None:
        raise S3Error("ObjectLockConfigurationNotFoundError", fields={"BucketName": op.bucket.name})
    return xml_reply(lock.document())


async def put_object_lock(op: Operation) -> Reply:
    """PutObjectLockConfiguration."""
    require_bucket(op.request, op.bucket, "s3:PutBucketObjectLockConfiguration", OWNER)
    lock = BucketLock.from_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    if not op.bucket.versioning.is_enabled:
        raise S3Error(
            "InvalidBucketState", "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"
        )
    await op.gateway.buckets.configure(op.request, op.bucket, {SETTING: lock.text()})
    return op.request.say(200)


async def get_retention(op: Operation) -> Reply:
    """GetObjectRetention."""
    reply = await _locked_head(op, "s3:GetObjectRetention")
    retention = Retention.kept_in(reply.headers)
    if retention is None:
        raise S3Error("NoSuchObjectLockConfiguration", fields={"Key": op.key})
    return xml_reply(retention.document())


async def put_retention(op: Operation) -> Reply:
    """PutObjectRetention."""
    reply = await _locked_head(op, "s3:PutObjectRetention")
    wanted = retention_in_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    before, now = Retention.kept_in(reply.headers), datetime.datetime.now(datetime.UTC)
    if before is not None and not before.allows(wanted, now, may_bypass=_may_bypass(op)):
        raise S3Error("AccessDenied", "Access Denied because object protected by object lock.")
    changes = {RETENTION: None} if wanted is None else wanted.to_store()
    await change_metadata(op.request, await stored_names(op, reply), changes)
    return op.request.say(200)


async def get_legal_hold(op: Operation) -> Reply:
    """GetObjectLegalHold."""
    reply = await _locked_head(op, "s3:GetObjectLegalHold")
    hold = reply.headers.get(LEGAL_HOLD)
    if hold is None:
        raise S3Error("NoSuchObjectLockConfiguration", fields={"Key": op.key})
    return xml_reply(element("LegalHold", element("Status", hold)))


async def put_legal_hold(op: Operation) -> Reply:
    """PutObjectLegalHold."""
    reply = await _locked_head(op, "s3:PutObjectLegalHold")
    hold = hold_in_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    await change_metadata(op.request, await stored_names(op, reply), {LEGAL_HOLD: hold})
    return op.request.say(200)


async def check_deletion(op: Operation, key: str, version_id: str) -> None:
    """Raises: S3Error (AccessDenied) if a version may not be deleted now."""
    if op.bucket.lock is None:
        return
    try:
        names = await versions.version_names(op.request, op.bucket, key, version_id)
    except S3Error as error:
        if error.code != "NoSuchVersion":
            raise
        return
    head = await op.request.ask_store("HEAD", names)
    if head.is_success and is_locked(head.headers, may_bypass=_may_bypass(op, key)):
        raise S3Error("AccessDenied", "Access Denied because object protected by object lock.")


async def _locked_head(op: Operation, action: str) -> Reply:
    """The store's HEAD of a version in a bucket with locks. Raises: S3Error."""
    if op.bucket.lock is None:
        raise S3Error("InvalidRequest", "Bucket is missing Object Lock Configuration")
    return await head_for(op, action, "WRITE")


def _may_bypass(op: Operation, key: str | None = None) -> bool:
    asked = op.request.headers.get(BYPASS_HEADER, "").lower() == "true"
    about = op.key if key is None else key
    return asked and may_use_bucket(op.request, op.bucket, "s3:BypassGovernanceRetention", OWNER, about)
