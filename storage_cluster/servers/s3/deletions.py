"""Deletions: of an object or a version of it, or of up to a thousand in one request; conditional, if it says so.

Deletions of one request run side by side, those of one key in the order in which they are listed.

Source: Amazon S3 API reference, DeleteObject, DeleteObjects.
"""

import asyncio
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.s3 import versions
from storage_cluster.servers.s3.access import require_bucket
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import DocumentError, child_text, element, parse, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.metadata import etag_of, last_modified
from storage_cluster.servers.s3.multipart_layout import expire_parts
from storage_cluster.servers.s3.object_lock_operations import check_deletion
from storage_cluster.servers.s3.payload import content_md5, read_verified
from storage_cluster.servers.s3.request import check

DELETIONS_MAX = 1000
DOCUMENT_MAX_BYTES = 4 * 1024**2
_AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class Deletion:
    """One key, or a version of it, to be deleted; and what must hold of it. None: anything may."""

    key: str
    version_id: str | None
    etag: str | None
    size: str | None
    modified: str | None

    @property
    def is_conditional(self) -> bool:
        """Whether anything must hold."""
        return any(one is not None for one in (self.etag, self.size, self.modified))

    def may_delete(self, found: Mapping[str, str]) -> bool:
        """Whether its conditions hold of an object. `found`: headers of the store's reply. Raises: S3Error."""
        return (
            (self.etag is None or self.etag.strip().strip('"') in ("*", etag_of(found)))
            and (self.size is None or self.size == found.get("Content-Length"))
            and (self.modified is None or _time(self.modified) == _time(last_modified(found)))
        )


async def delete_object(op: Operation) -> Reply:
    """DeleteObject."""
    headers = op.request.headers
    deletion = Deletion(
        op.key,
        op.request.query.get("versionId"),
        headers.get("If-Match"),
        headers.get("x-amz-if-match-size"),
        headers.get("x-amz-if-match-last-modified-time"),
    )
    return op.request.say(204, await _delete(op, deletion))


async def delete_objects(op: Operation) -> Reply:
    """DeleteObjects."""
    request = op.request
    has_checksum = any(name.lower().startswith(("x-amz-checksum-", "x-amz-trailer")) for name in request.headers)
    if content_md5(request) is None and not has_checksum and not op.signed.body_sha256:
        raise S3Error("InvalidRequest", "Missing required header for this request: Content-MD5")
    try:
        root = parse(await read_verified(request, op.signed, DOCUMENT_MAX_BYTES), "Delete")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    asked = [_listed_deletion(one) for one in root.findall("Object")]
    if not 1 <= len(asked) <= DELETIONS_MAX:
        raise S3Error("MalformedXML")
    quiet = (child_text(root, "Quiet") or "").lower() == "true"
    results = await _delete_all(op, asked)
    return xml_reply(element("DeleteResult", *[one for one in results if not (quiet and one.tag == "Deleted")]))


async def _delete_all(op: Operation, asked: Sequence[Deletion]) -> list[Element]:
    """What became of each deletion, in their order."""
    limit = asyncio.Semaphore(_AT_ONCE)
    by_key: dict[str, list[int]] = {}
    for at, one in enumerate(asked):
        by_key.setdefault(one.key, []).append(at)
    results: dict[int, Element] = {}

    async def delete_key(places: Sequence[int]) -> None:
        async with limit:
            for at in places:
                results[at] = await _result(op, asked[at])

    await asyncio.gather(*map(delete_key, by_key.values()))
    return [results[at] for at in range(len(asked))]


async def _result(op: Operation, one: Deletion) -> Element:
    named = [element("Key", one.key), element("VersionId", one.version_id) if one.version_id else None]
    try:
        done = await _delete(op, one)
    except S3Error as error:
        return element("Error", *named, element("Code", error.code), element("Message", error.text or ""))
    shown_id = done.get("x-amz-version-id") if "x-amz-delete-marker" in done else None
    marked = [element("DeleteMarker", "true"), element("DeleteMarkerVersionId", shown_id)] if shown_id else []
    return element("Deleted", *named, *marked)


async def _delete(op: Operation, one: Deletion) -> dict[str, str]:
    """Delete a key or one of its versions. The response's headers. Raises: S3Error."""
    action = "s3:DeleteObject" if one.version_id is None else "s3:DeleteObjectVersion"
    require_bucket(op.request, op.bucket, action, "WRITE", one.key)
    if one.is_conditional:
        await _check_conditions(op, one)
    if one.version_id is not None:
        await check_deletion(op, one.key, one.version_id)
        return await versions.delete_version(op.request, op.bucket, one.key, one.version_id)
    if op.bucket.versioning.status is not None:
        return await versions.delete_current(op.request, op.bucket, one.key, op.gateway.clock)
    reply = await op.request.ask_store("DELETE", op.bucket.object_names(one.key))
    if reply.status != 404:
        await expire_parts(op.request, op.bucket, await check(reply))
    return {}


async def _check_conditions(op: Operation, one: Deletion) -> None:
    """Raises: S3Error (NoSuchKey, PreconditionFailed) unless what is to be deleted is as the request expects."""
    names = op.bucket.object_names(one.key)
    if one.version_id is not None:
        names = await versions.version_names(op.request, op.bucket, one.key, one.version_id)
    head = await check(await op.request.ask_store("HEAD", names))
    if not one.may_delete(head.headers):
        raise S3Error("PreconditionFailed", fields={"Condition": "If-Match"})


def _listed_deletion(one: Element) -> Deletion:
    names = ("VersionId", "ETag", "Size", "LastModifiedTime")
    return Deletion(child_text(one, "Key") or "", *(child_text(one, name) or None for name in names))


def _time(text: str) -> datetime.datetime:
    """A time of HTTP's or ISO's form. Raises: S3Error for neither."""
    for parse_time in (parsedate_to_datetime, datetime.datetime.fromisoformat):
        try:
            return parse_time(text).replace(microsecond=0)
        except ValueError:
            continue
    raise S3Error("InvalidArgument", "The time of the last modification cannot be read")
