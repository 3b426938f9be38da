"""Objects: put, get, head, delete, copy, and their attributes, tags and access control lists."""

import dataclasses
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.conditions import ETAG_IS_AT
from storage_cluster.servers.http.messages import Body, Reply
from storage_cluster.servers.http.ranges import parse_ranges
from storage_cluster.servers.proxy.version_copies import DELETED_TYPE
from storage_cluster.servers.s3 import versions
from storage_cluster.servers.s3.access import OWNER, may_use_bucket, require_bucket, require_object
from storage_cluster.servers.s3.checksums import Checksum, stored_checksum, wanted_algorithm
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import DocumentError, element, parse, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import Acl, acl_document, acl_in_document, acl_in_headers, private
from storage_cluster.servers.s3.metadata import (
    ACL,
    ETAG,
    PARTS,
    TAGS,
    change_metadata,
    document_time,
    etag_of,
    headers_to_store,
    kept_headers,
    last_modified,
    object_acl,
    object_headers,
    object_tags,
    with_overrides,
)
from storage_cluster.servers.s3.multipart_layout import expire_parts, part_range, parts_of
from storage_cluster.servers.s3.object_lock import LEGAL_HOLD, RETENTION, lock_headers, locks_to_store
from storage_cluster.servers.s3.ownership import ENFORCED, check_headers, owner_of_new
from storage_cluster.servers.s3.payload import copied_body, read_verified, stored_checksum_headers, upload_body
from storage_cluster.servers.s3.request import check
from storage_cluster.servers.s3.tags import OBJECT_TAGS_MAX, Tags, tags_document, tags_in_document, tags_text

COPY_MAX_BYTES = 5 * 1024**3
DOCUMENT_MAX_BYTES = 65_536
_SOURCE = "x-amz-copy-source"
_CONDITIONS = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since")
_ATTRIBUTES = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")


async def put_object(op: Operation) -> Reply:
    """PutObject."""
    request, bucket, key = op.request, op.bucket, op.key
    require_bucket(request, bucket, "s3:PutObject", "WRITE", key)
    headers = headers_to_store(request.headers) | {ACL: acl_to_store(op).text()}
    headers |= locks_to_store(bucket.lock, request.headers)
    body = upload_body(request, op.signed)
    reply = await write(op, headers | stored_checksum_headers(body), body)
    shown = {"ETag": reply.headers["Etag"] if reply.headers["Etag"].startswith('"') else f'"{reply.headers["Etag"]}"'}
    if body.checksum is not None:
        shown |= body.checksum.response_headers()
    expires = _expiration(op, body.bytes_in, object_tags(headers), op.gateway.day_clock().now_s)
    return request.say(200, shown | written_version(op, reply) | expires)


async def write(op: Operation, headers: Mapping[str, str], body: Body | bytes) -> Reply:
    """Store an object under the request's key, if its conditions hold. The store's reply. Raises: S3Error."""
    request, bucket = op.request, op.bucket
    sent = {**headers, **await write_conditions(op)}
    names = bucket.object_names(op.key)
    reply = await check(await request.ask_store("PUT", names, headers=sent, body=body), "NoSuchBucket")
    if bucket.versioning.status == "Suspended":
        await versions.remove_archived_nulls(request, bucket, op.key)
    await expire_parts(request, bucket, reply)
    return reply


async def write_conditions(op: Operation) -> dict[str, str]:
    """The headers that let the store write only what the request's conditions allow. Raises: S3Error."""
    request, bucket = op.request, op.bucket
    if not any(name in request.headers for name in ("If-Match", "If-None-Match")):
        return {}
    if request.headers.get("If-None-Match", "*").strip() != "*":
        raise S3Error("NotImplemented", "If-None-Match of a write may only be *.", {"Header": "If-None-Match"})
    head = await request.ask_store("HEAD", bucket.object_names(op.key))
    if head.status != 404:
        await check(head)
    if "If-None-Match" in request.headers:
        if head.status != 404:
            raise S3Error("PreconditionFailed", fields={"Condition": "If-None-Match"})
        return {"If-None-Match": "*"}
    if head.status == 404:
        raise S3Error("NoSuchKey", fields={"Key": op.key})
    if request.headers["If-Match"].strip().strip('"') not in ("*", etag_of(head.headers)):
        raise S3Error("PreconditionFailed", fields={"Condition": "If-Match"})
    is_version = bucket.versioning.status is not None
    return {} if is_version else {"X-Backend-If-Timestamp": head.headers["X-Backend-Timestamp"]}


def written_version(op: Operation, reply: Reply) -> dict[str, str]:
    """The header with the version that a write made; {} where versions are off."""
    return versions.shown_version(op.bucket, reply) if op.bucket.versioning.is_enabled else {}


def acl_to_store(op: Operation) -> Acl:
    """The access control list of an object that the request makes."""
    bucket = op.bucket
    check_headers(bucket.ownership, op.request.headers)
    writer = op.request.user_id or bucket.owner
    owner = owner_of_new(bucket.ownership, op.request.headers, writer, bucket.owner)
    given = acl_in_headers(op.request.headers, owner, op.bucket.owner, op.is_user)
    return op.bucket.public_access.check_acl(given or private(owner))


async def get_object(op: Operation) -> Reply:
    """GetObject and HeadObject."""
    request, bucket = op.request, op.bucket
    headers = {name: request.headers[name] for name in ("Range", *_CONDITIONS) if name in request.headers}
    if "," in headers.get("Range", ""):
        del headers["Range"]  # S3 answers several ranges with the whole
    part = await _part_asked(op)
    if part is not None:
        headers["Range"] = part
    reply = await _open_through_cache(op, headers)
    if parse_ranges(headers.get("Range", ""), 1) and reply.headers.get("Content-Length") == "0":
        await reply.close()
        raise S3Error("InvalidRange", fields={"RangeRequested": headers["Range"]})  # nothing has no range
    if request.call.method == "HEAD" and "Range" in headers and reply.status == 200:
        reply = _ranged_head(reply, headers["Range"])
    with_checksum = request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED" and reply.status == 200
    shown = object_headers(bucket, reply, with_checksum=with_checksum) | versions.shown_version(bucket, reply)
    shown |= _shown_locks(op, reply) | _shown_expiration(op, reply)
    if part is not None and PARTS in reply.headers:
        shown["x-amz-mp-parts-count"] = reply.headers[PARTS]
    reply.headers.clear()
    reply.headers.update(with_overrides(request, shown))
    return reply


async def _open_through_cache(op: Operation, headers: Mapping[str, str]) -> Reply:
    """The reply to a client's GET or HEAD; the body of a whole object from the cache, if it is there."""
    cache, names = op.gateway.cache, op.bucket.object_names(op.key)
    if op.request.call.method == "HEAD":
        return await open_object(op, "HEAD", headers)
    if not cache.is_on or "Range" in headers or "versionId" in op.request.query:
        return await open_object(op, "GET", headers)
    if names in cache:
        reply = await open_object(op, "HEAD", headers)
        body = cache.body(names, reply.headers)
        if body is not None:
            cache.count_read(is_hit=True)
            reply.body = body
            return reply
    reply = await open_object(op, "GET", headers)
    cache.count_read(is_hit=False)
    cache.keep_body(names, reply)
    return reply


async def open_object(op: Operation, method: str, headers: Mapping[str, str]) -> Reply:
    """The store's reply to a reading of the request's object, which the request may read. Raises: S3Error."""
    request, bucket, key = op.request, op.bucket, op.key
    place = await versions.find_place(request, bucket, key)
    sent = {**_without_overruled(headers), ETAG_IS_AT: ETAG}
    reply = await request.ask_store(method, place.names, headers=sent)
    if reply.status == 404:
        await reply.close()
        if not may_use_bucket(request, bucket, "s3:ListBucket", "READ"):
            raise S3Error("AccessDenied")
        if place.version_id is not None:
            raise S3Error("NoSuchVersion", fields={"Key": key, "VersionId": place.version_id})
        raise await versions.missing_current(request, bucket, key)
    action = "s3:GetObject" if place.version_id is None else "s3:GetObjectVersion"
    try:
        if reply.status not in (304, 412, 416):
            await check(reply)
        _require_reading(op, reply, action)
        _raise_unmet(op, reply, place.version_id)
    except BaseException:
        await reply.close()
        raise
    if place.version_id is not None:
        reply.headers["X-Object-Version-Id"] = place.version_id
    return reply


def _require_reading(op: Operation, reply: Reply, action: str) -> None:
    if reply.status == 416 and ACL not in reply.headers and op.request.user_id == op.bucket.owner:
        return  # the store's refusal of a range does not show whose the object is
    acl, tags = object_acl(op.bucket, reply.headers), object_tags(reply.headers)
    require_object(op.request, op.bucket, action, "READ", op.key, acl, tags)


def _raise_unmet(op: Operation, reply: Reply, version_id: str | None) -> None:
    """Raises: S3Error for a condition or range that does not hold, and for a delete marker."""
    if reply.headers.get("Content-Type") == DELETED_TYPE:
        headers = {"x-amz-delete-marker": "true", "x-amz-version-id": version_id or versions.NULL}
        raise S3Error("MethodNotAllowed", headers=headers)
    if reply.status == 412:
        raise S3Error("PreconditionFailed")
    if reply.status == 304:
        shown = object_headers(op.bucket, reply, with_checksum=False)
        raise S3Error("NotModified", headers={name: shown[name] for name in ("ETag", "Last-Modified")})
    if reply.status == 416:
        fields = {"RangeRequested": op.request.headers.get("Range", "")}
        raise S3Error("InvalidRange", fields=fields)


def _without_overruled(headers: Mapping[str, str]) -> dict[str, str]:
    """Conditions without the dates that a condition on the ETag overrules (RFC 9110 §13.2.2)."""
    left_out = {"If-Modified-Since": "If-None-Match", "If-Unmodified-Since": "If-Match"}
    return {name: value for name, value in headers.items() if left_out.get(name) not in headers}


async def _part_asked(op: Operation) -> str | None:
    """The range of the part that `partNumber` names. Raises: S3Error (InvalidPartNumber, InvalidRequest)."""
    text = op.request.query.get("partNumber")
    if text is None:
        return None
    if "Range" in op.request.headers:
        raise S3Error("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
    if not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise S3Error("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
    place = await versions.find_place(op.request, op.bucket, op.key)
    return await part_range(op.request, place.names, int(text))


def _shown_locks(op: Operation, reply: Reply) -> dict[str, str]:
    """The headers with the object's retention and legal hold, as far as the request may see them."""
    if op.bucket.lock is None:
        return {}
    asked = {"s3:GetObjectRetention": RETENTION, "s3:GetObjectLegalHold": LEGAL_HOLD}
    seen = [kept for action, kept in asked.items() if may_use_bucket(op.request, op.bucket, action, OWNER, op.key)]
    return lock_headers({name: reply.headers[name] for name in seen if name in reply.headers})


def _shown_expiration(op: Operation, reply: Reply) -> dict[str, str]:
    """The header that says when the current object expires; {} if it does not."""
    if "versionId" in op.request.query:
        return {}
    found = reply.headers
    size_bytes = int(found.get("Content-Range", found["Content-Length"]).rpartition("/")[2])
    written_s = float(found.get("X-Backend-Data-Timestamp") or found["X-Timestamp"])
    return _expiration(op, size_bytes, object_tags(found), written_s)


def _expiration(op: Operation, size_bytes: int, tags: Tags, written_s: float) -> dict[str, str]:
    return op.bucket.lifecycle.header(op.key, size_bytes, tags, written_s, op.gateway.day_clock())


def _ranged_head(reply: Reply, asked: str) -> Reply:
    """A HEAD of a range, which the store answers for the whole."""
    length = int(reply.headers["Content-Length"])
    found = parse_ranges(asked, length)
    if found == []:
        raise S3Error("InvalidRange", fields={"RangeRequested": asked})
    if found is None or len(found) != 1:
        return reply
    reply.status = 206
    reply.headers.update({"Content-Range": found[0].content_range(length), "Content-Length": str(found[0].length)})
    return reply


@dataclasses.dataclass(frozen=True)
class CopySource:
    """What a request copies from: an operation on the source, as if it were read by itself."""

    operation: Operation
    version_id: str | None

    async def open(self, headers: Mapping[str, str]) -> Reply:
        """The source, which the request may read and whose conditions hold. Raises: S3Error."""
        about = {
            name: self.operation.original_headers[f"{_SOURCE}-{name.lower()}"]
            for name in _CONDITIONS
            if f"{_SOURCE}-{name.lower()}" in self.operation.original_headers
        }
        try:
            return await open_object(self.operation, "GET", {**headers, **about})
        except S3Error as error:
            if error.code == "NotModified":
                raise S3Error("PreconditionFailed") from None
            raise

    def shown_version(self, found: Reply) -> dict[str, str]:
        """The header with the version that was copied; {} where there are none. `found`: the store's reply."""
        shown = versions.shown_version(self.operation.bucket, found)
        return {f"{_SOURCE}-version-id": value for value in shown.values()}


def source_named(headers: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Bucket, key and version of the source that a request names. Raises: S3Error."""
    path, _, query = headers[_SOURCE].partition("?")
    bucket_name, slash, key = unquote(path).removeprefix("/").partition("/")
    if not slash or not bucket_name or not key:
        raise S3Error("InvalidArgument", "Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
    return bucket_name, key, dict(parse_qsl(query, keep_blank_values=True)).get("versionId")


async def copy_source(op: Operation) -> CopySource:
    """The source that a request names. Raises: S3Error."""
    bucket_name, key, version_id = source_named(op.request.headers)
    return CopySource(await op.on_object(bucket_name, key, version_id), version_id)


async def copy_object(op: Operation) -> Reply:
    """CopyObject."""
    request = op.request
    require_bucket(request, op.bucket, "s3:PutObject", "WRITE", op.key)
    source = await copy_source(op)
    directive = request.headers.get("x-amz-metadata-directive", "COPY").upper()
    if directive not in ("COPY", "REPLACE"):
        raise S3Error("InvalidArgument", "Unknown metadata directive.")
    _refuse_no_change(op, source, directive)
    found = await source.open({})
    try:
        if int(found.headers.get("Content-Length", "0")) > COPY_MAX_BYTES:
            raise S3Error("InvalidRequest", "The specified copy source is larger than the maximum allowable size.")
        kept = stored_checksum(found.headers)
        algorithm = wanted_algorithm(request.headers, "x-amz-checksum-algorithm") or (kept.algorithm if kept else None)
        body = copied_body(found, algorithm)
        reply = await write(op, _copied_headers(op, found, directive) | stored_checksum_headers(body), body)
    finally:
        await found.close()
    shown = written_version(op, reply) | source.shown_version(found)
    head = await check(await request.ask_store("HEAD", op.bucket.object_names(op.key)))
    checksum = stored_checksum(head.headers)
    root = element(
        "CopyObjectResult",
        element("LastModified", document_time(head.headers)),
        element("ETag", f'"{etag_of(head.headers)}"'),
        element(checksum.element_name, checksum.text) if checksum else None,
    )
    return xml_reply(root, headers=shown)


def _refuse_no_change(op: Operation, source: CopySource, directive: str) -> None:
    same = source.operation.bucket.names == op.bucket.names and source.operation.key == op.key
    changes = ("x-amz-storage-class", "x-amz-website-redirect-location", "x-amz-checksum-algorithm")
    if (
        same
        and source.version_id is None
        and directive == "COPY"
        and not any(name in op.request.headers for name in changes)
    ):
        raise S3Error(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata, storage class, website redirect location or encryption attributes.",
        )


def _copied_headers(op: Operation, found: Reply, directive: str) -> dict[str, str]:
    """The copy's headers: the source's or the request's; tags by a directive of their own; ACL and lock are new."""
    asked = headers_to_store(op.request.headers)
    if directive == "REPLACE":
        kept = {name: value for name, value in asked.items() if name != TAGS}
    else:
        prefixes = ("x-object-meta-", "x-object-sysmeta-s3-meta-")
        kept = kept_headers(found.headers, prefixes)
    replaces_tags = op.request.headers.get("x-amz-tagging-directive", "COPY").upper() == "REPLACE"
    tags = asked.get(TAGS) if replaces_tags else found.headers.get(TAGS)
    locks = locks_to_store(op.bucket.lock, op.request.headers)
    return kept | ({TAGS: tags} if tags else {}) | {ACL: acl_to_store(op).text()} | locks


async def get_attributes(op: Operation) -> Reply:
    """GetObjectAttributes."""
    asked = [one.strip() for one in op.request.headers.get("x-amz-object-attributes", "").split(",") if one.strip()]
    if not asked or any(one not in _ATTRIBUTES for one in asked):
        fields = {"ArgumentName": "x-amz-object-attributes"}
        raise S3Error("InvalidArgument", "Invalid attribute name specified.", fields)
    reply = await open_object(op, "HEAD", {})
    found, checksum = reply.headers, stored_checksum(reply.headers)
    made = {
        "ETag": element("ETag", etag_of(found)),
        "Checksum": _checksum_element(checksum),
        "ObjectParts": await _parts_element(op, found) if "ObjectParts" in asked else None,
        "StorageClass": element("StorageClass", "STANDARD"),
        "ObjectSize": element("ObjectSize", found["Content-Length"]),
    }
    root = element("GetObjectAttributesResponse", *[made[name] for name in _ATTRIBUTES if name in asked])
    headers = versions.shown_version(op.bucket, reply) | {"Last-Modified": last_modified(found)}
    return xml_reply(root, headers=headers)


def _checksum_element(checksum: Checksum | None) -> Element | None:
    if checksum is None:
        return None
    return element("Checksum", element(checksum.element_name, checksum.text), element("ChecksumType", checksum.kind))


async def _parts_element(op: Operation, found: Mapping[str, str]) -> Element | None:
    """The parts of a multipart object, as many as `x-amz-max-parts` allows, after `x-amz-part-number-marker`."""
    if PARTS not in found:
        return None
    place = await versions.find_place(op.request, op.bucket, op.key)
    marker = int(op.request.headers.get("x-amz-part-number-marker") or 0)
    limit = int(op.request.headers.get("x-amz-max-parts") or 1000)
    parts = [part for part in await parts_of(op.request, place.names) if part.number > marker]
    shown = parts[:limit]
    return element(
        "ObjectParts",
        element("PartsCount", found[PARTS]),
        element("PartNumberMarker", str(marker)),
        element("NextPartNumberMarker", str(shown[-1].number if shown else 0)),
        element("MaxParts", str(limit)),
        element("IsTruncated", "true" if len(parts) > len(shown) else "false"),
        *[part.attributes_element() for part in shown],
    )


async def get_object_acl(op: Operation) -> Reply:
    """GetObjectAcl."""
    reply = await head_for(op, "s3:GetObjectAcl", "READ_ACP")
    return xml_reply(
        acl_document(object_acl(op.bucket, reply.headers)), headers=versions.shown_version(op.bucket, reply)
    )


async def put_object_acl(op: Operation) -> Reply:
    """PutObjectAcl."""
    reply = await head_for(op, "s3:PutObjectAcl", "WRITE_ACP")
    before = object_acl(op.bucket, reply.headers)
    acl = await read_acl(op, before.owner)
    await change_metadata(op.request, await stored_names(op, reply), {ACL: acl.text()})
    return op.request.say(200, versions.shown_version(op.bucket, reply))


async def read_acl(op: Operation, owner: str) -> Acl:
    """The access control list that a request gives, in its headers or as a document. Raises: S3Error."""
    if op.bucket.ownership == ENFORCED:
        raise S3Error("AccessControlListNotSupported")
    given = acl_in_headers(op.request.headers, owner, op.bucket.owner, op.is_user)
    text = await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES)
    if given is not None:
        return op.bucket.public_access.check_acl(given)
    try:
        document = parse(text, "AccessControlPolicy")
    except DocumentError:
        raise S3Error("MalformedACLError") from None
    return op.bucket.public_access.check_acl(acl_in_document(document, owner, op.is_user))


async def get_object_tagging(op: Operation) -> Reply:
    """GetObjectTagging."""
    reply = await head_for(op, "s3:GetObjectTagging", "READ")
    return xml_reply(tags_document(object_tags(reply.headers)), headers=versions.shown_version(op.bucket, reply))


async def put_object_tagging(op: Operation) -> Reply:
    """PutObjectTagging."""
    reply = await head_for(op, "s3:PutObjectTagging", "WRITE")
    tags = tags_in_document(await read_verified(op.request, op.signed, DOCUMENT_MAX_BYTES), OBJECT_TAGS_MAX)
    await change_metadata(op.request, await stored_names(op, reply), {TAGS: tags_text(tags)})
    return op.request.say(200, versions.shown_version(op.bucket, reply))


async def delete_object_tagging(op: Operation) -> Reply:
    """DeleteObjectTagging."""
    reply = await head_for(op, "s3:DeleteObjectTagging", "WRITE")
    await change_metadata(op.request, await stored_names(op, reply), {TAGS: None})
    return op.request.say(204, versions.shown_version(op.bucket, reply))


async def head_for(op: Operation, action: str, permission: str) -> Reply:
    """The store's HEAD of an object whose tags, list or lock the request may read or change. Raises: S3Error."""
    place = await versions.find_place(op.request, op.bucket, op.key)
    reply = await op.request.ask_store("HEAD", place.names)
    if reply.status == 404:
        raise await versions.missing_current(op.request, op.bucket, op.key)
    await check(reply)
    _raise_unmet(op, reply, place.version_id)
    if place.version_id is not None:
        reply.headers["X-Object-Version-Id"] = place.version_id
    acl = object_acl(op.bucket, reply.headers)
    is_owner = permission == "WRITE" and op.request.user_id in (acl.owner, op.bucket.owner)
    if not is_owner:
        require_object(op.request, op.bucket, action, permission, op.key, acl, object_tags(reply.headers))
    return reply


async def stored_names(op: Operation, reply: Reply) -> tuple[str, ...]:
    """The store's names of what a HEAD was about: of a version where there is one, not of the pointer to it."""
    shown = versions.shown_version(op.bucket, reply).get("x-amz-version-id")
    if shown is None:
        return op.bucket.object_names(op.key)
    return await versions.version_names(op.request, op.bucket, op.key, shown)
