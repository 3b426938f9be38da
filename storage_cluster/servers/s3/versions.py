"""Versions of objects as S3 numbers them, on top of the store's own.

The store keeps versions in a container beside the bucket's, each under the time of its write (`proxy.version_names`),
and at the object's own name a pointer to the current one. What S3 calls the version `null` is what was written while
versions were off: it is at the object's own name, or among the versions with a time at which they were off. So the
moments at which a bucket's versioning was switched say which versions are `null`.

Invariant: of a key there is at most one `null`: writing one while versioning is suspended removes the one before.

Source: Amazon S3 user guide, "Retaining multiple versions of objects with S3 Versioning".
"""

import dataclasses
from typing import Any

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.http.times import TimestampMaker
from storage_cluster.servers.proxy.version_copies import DELETED_TYPE
from storage_cluster.servers.proxy.version_names import (
    MARK,
    POINTER,
    archive_container,
    archive_name,
    is_version_id,
    split_archive_name,
)
from storage_cluster.servers.s3.buckets import Bucket, list_page
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.multipart_layout import expire_parts
from storage_cluster.servers.s3.request import Request, check

NULL = "null"
_VERSION_HEADER = "X-Object-Version-Id"
_VERSIONS_MAX = 1000

Names = tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class ObjectPlace:
    """Where the store has what a request is about."""

    names: Names
    version_id: str | None
    """As S3 shows it; None for the current version."""


def shown_version(bucket: Bucket, reply: Reply) -> dict[str, str]:
    """The header that says which version the store's reply is about; {} if the bucket never had versions."""
    if bucket.versioning.status is None:
        return {}
    return {"x-amz-version-id": shown_id(bucket, reply.headers.get(_VERSION_HEADER, NULL))}


def shown_id(bucket: Bucket, store_id: str) -> str:
    """A version's id as S3 shows it."""
    return store_id if store_id != NULL and bucket.versioning.made_version(store_id) else NULL


async def find_place(request: Request, bucket: Bucket, key: str) -> ObjectPlace:
    """What the request is about, by its `versionId`. Raises: S3Error (NoSuchVersion, InvalidArgument)."""
    version_id = request.query.get("versionId")
    if version_id is None:
        return ObjectPlace(bucket.object_names(key), None)
    return ObjectPlace(await version_names(request, bucket, key, version_id), version_id)


async def version_names(request: Request, bucket: Bucket, key: str, version_id: str) -> Names:
    """The store's names of a version. Raises: S3Error (NoSuchVersion, InvalidArgument)."""
    if version_id == NULL:
        if await _is_null_at_own_name(request, bucket, key):
            return bucket.object_names(key)
        for entry in await archived_versions(request, bucket, key):
            if not bucket.versioning.made_version(entry["version_id"]):
                return _archive_names(bucket, key, entry["version_id"])
        raise S3Error("NoSuchVersion", fields={"Key": key, "VersionId": version_id})
    if not is_version_id(version_id):
        fields = {"ArgumentName": "versionId", "ArgumentValue": version_id}
        raise S3Error("InvalidArgument", "Invalid version id specified", fields)
    if not bucket.versioning.made_version(version_id):
        raise S3Error("NoSuchVersion", fields={"Key": key, "VersionId": version_id})
    return _archive_names(bucket, key, version_id)


async def archived_versions(request: Request, bucket: Bucket, key: str) -> list[dict[str, Any]]:
    """The versions of a key that are kept apart, newest first: entries of a listing with `version_id`."""
    if bucket.versioning.status is None:
        return []
    prefix = f"{MARK}{key}{MARK}"
    names = (bucket.account, archive_container(bucket.name))
    entries = await list_page(request, names, {"prefix": prefix, "limit": str(_VERSIONS_MAX)})
    return [entry | {"version_id": split_archive_name(entry["name"])[1]} for entry in entries]


def is_marker(entry: dict[str, Any]) -> bool:
    """Whether a version in a listing is a delete marker."""
    return str(entry.get("content_type", "")) == DELETED_TYPE


async def missing_current(request: Request, bucket: Bucket, key: str) -> S3Error:
    """The error for a key that has no current version: it says so if a delete marker is the reason."""
    headers = {}
    newest = (await archived_versions(request, bucket, key))[:1]
    if newest and is_marker(newest[0]):
        headers = {"x-amz-delete-marker": "true", "x-amz-version-id": shown_id(bucket, newest[0]["version_id"])}
    return S3Error("NoSuchKey", fields={"Key": key}, headers=headers)


async def remove_archived_nulls(request: Request, bucket: Bucket, key: str) -> None:
    """Delete a `null` that is kept apart, since another one has been written."""
    for entry in await archived_versions(request, bucket, key):
        if not bucket.versioning.made_version(entry["version_id"]):
            reply = await request.ask_store("DELETE", _archive_names(bucket, key, entry["version_id"]))
            await expire_parts(request, bucket, reply)


async def delete_current(request: Request, bucket: Bucket, key: str, clock: TimestampMaker) -> dict[str, str]:
    """Delete a key without naming a version. The headers of the response. Raises: S3Error."""
    versioning = bucket.versioning
    if versioning.status == "Suspended":
        await remove_archived_nulls(request, bucket, key)
        names = _archive_names(bucket, key, clock.now())
        await check(await request.ask_store("PUT", names, headers={"Content-Type": DELETED_TYPE}, body=b""))
    reply = await request.ask_store("DELETE", bucket.object_names(key))
    if reply.status != 404:
        await check(reply)
    if versioning.status == "Suspended":
        await expire_parts(request, bucket, reply)
    if versioning.status is None:
        return {}
    store_id = reply.headers.get(_VERSION_HEADER, NULL) if versioning.is_enabled else NULL
    return {"x-amz-delete-marker": "true", "x-amz-version-id": store_id}


async def delete_version(request: Request, bucket: Bucket, key: str, version_id: str) -> dict[str, str]:
    """Delete a version for good; if it was the newest, the one before becomes current. The response's headers."""
    shown = {"x-amz-version-id": version_id}
    try:
        names = await version_names(request, bucket, key, version_id)
    except S3Error as error:
        if error.code != "NoSuchVersion":
            raise
        return shown
    own = bucket.object_names(key)
    current = await request.ask_store("HEAD", own, query={"symlink": "get"})
    if current.status != 404:
        await check(current)
    head = await request.ask_store("HEAD", names, query={"symlink": "get"}) if names != own else current
    if head.headers.get("Content-Type") == DELETED_TYPE:
        shown["x-amz-delete-marker"] = "true"
    pointed = current.headers.get(POINTER)
    if names != own and pointed is not None and _archive_names(bucket, key, pointed) == names:
        await _delete_without_marker(request, bucket, key)
        current = Reply(404)
    reply = (
        await _delete_without_marker(request, bucket, key) if names == own else await request.ask_store("DELETE", names)
    )
    if reply.status != 404:
        await expire_parts(request, bucket, await check(reply))
    if bucket.versioning.status is not None and (current.status == 404 or names == own):
        await _promote_newest(request, bucket, key)
    return shown


async def _delete_without_marker(request: Request, bucket: Bucket, key: str) -> Reply:
    """Delete what is at the object's own name. In a versioned bucket `null` names just that, pointer or not."""
    query = {"version-id": NULL} if bucket.versioning.status is not None else {}
    return await request.ask_store("DELETE", bucket.object_names(key), query=query)


async def _promote_newest(request: Request, bucket: Bucket, key: str) -> None:
    newest = (await archived_versions(request, bucket, key))[:1]
    if newest and not is_marker(newest[0]):
        query = {"version-id": newest[0]["version_id"]}
        await check(await request.ask_store("PUT", bucket.object_names(key), query=query, body=b""))


async def stored_null(request: Request, bucket: Bucket, key: str) -> str:
    """The store's id of a key's version `null`; `null` if it is at the object's own name, or nowhere."""
    archived = [entry["version_id"] for entry in await archived_versions(request, bucket, key)]
    return next((one for one in archived if not bucket.versioning.made_version(one)), NULL)


async def _is_null_at_own_name(request: Request, bucket: Bucket, key: str) -> bool:
    head = await request.ask_store("HEAD", bucket.object_names(key), query={"symlink": "get"})
    if head.status == 404:
        return False
    await check(head)
    return POINTER not in head.headers


def _archive_names(bucket: Bucket, key: str, version_id: str) -> Names:
    return bucket.account, archive_container(bucket.name), archive_name(key, version_id)
