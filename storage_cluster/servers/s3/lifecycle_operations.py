"""Operations on the life cycle of a bucket; the daemon `s3-lifecycle` does what it says.

A bucket with a life cycle has an entry in a container of the gateway's own, so that the daemon finds it:

    /.s3/lifecycles/BUCKET

Source: Amazon S3 API reference, PutBucketLifecycleConfiguration.
"""

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.s3.access import OWNER, require_bucket
from storage_cluster.servers.s3.buckets import INDEX_ACCOUNT
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.lifecycle import SETTING, Lifecycle
from storage_cluster.servers.s3.payload import read_verified
from storage_cluster.servers.s3.request import check

DOCUMENT_MAX_BYTES = 262_144
ENTRIES = "lifecycles"
"""The container with an entry for each bucket that has a life cycle."""


async def get_lifecycle(op: Operation) -> Reply:
    """GetBucketLifecycleConfiguration."""
    require_bucket(op.request, op.bucket, "s3:GetLifecycleConfiguration", OWNER)
    if not op.bucket.lifecycle.rules:
        raise S3Error("NoSuchLifecycleConfiguration", fields={"BucketName": op.bucket.name})
    return xml_reply(op.bucket.lifecycle.document())


async def put_lifecycle(op: Operation) -> Reply:
    """PutBucketLifecycleConfiguration."""
    require_bucket(op.request, op.bucket, "s3:PutLifecycleConfiguration", OWNER)
    given = Lifecycle.from_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES))
    await check(await op.request.ask_store("PUT", (INDEX_ACCOUNT, ENTRIES)))
    await check(await op.request.ask_store("PUT", (INDEX_ACCOUNT, ENTRIES, op.bucket.name), body=b""))
    await op.gateway.buckets.configure(op.request, op.bucket, {SETTING: given.text()})
    return op.request.say(200)


async def delete_lifecycle(op: Operation) -> Reply:
    """DeleteBucketLifecycle. The daemon removes the entry when it finds a bucket without rules."""
    require_bucket(op.request, op.bucket, "s3:PutLifecycleConfiguration", OWNER)
    await op.gateway.buckets.configure(op.request, op.bucket, {SETTING: None})
    return op.request.say(204)
