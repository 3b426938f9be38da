"""Multipart uploads: begun, their parts stored in any order, completed into one object or aborted.

Completing notes on the upload that it was begun, writes a manifest, then forgets the upload. One whose completion was
cut off, or was answered with an error of the servers, may be an object or become one: completed again it gives the same
answer, and aborted it leaves its parts where they are.

Source: Amazon S3 user guide, "Uploading and copying objects using multipart upload".
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.content_type import with_swift_bytes
from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.object.updates import OVERRIDE
from storage_cluster.servers.proxy.slo import MANIFEST_IS_STORED
from storage_cluster.servers.proxy.version_names import MARK, is_version_id
from storage_cluster.servers.reservations.claims import WRITE
from storage_cluster.servers.s3 import versions
from storage_cluster.servers.s3.access import require_bucket
from storage_cluster.servers.s3.buckets import Bucket, list_page, parts_container
from storage_cluster.servers.s3.checksums import (
    ALGORITHMS,
    Checksum,
    checksum_in_headers,
    checksum_of_parts,
    type_for,
    wanted_algorithm,
)
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import DocumentError, child_text, element, optional, parse, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import Acl, owner_element
from storage_cluster.servers.s3.listings import UrlEncoding, limit_of
from storage_cluster.servers.s3.metadata import ACL, ETAG, PARTS, UPLOAD, headers_to_store, iso_time, kept_headers
from storage_cluster.servers.s3.multipart_layout import (
    Part,
    listed_upload,
    newest_parts,
    part_name,
    part_type,
    parts_on_replicas,
    remove,
    stored_parts,
    upload_names,
    upload_type,
    uploads_container,
)
from storage_cluster.servers.s3.object_lock import locks_to_store
from storage_cluster.servers.s3.objects import acl_to_store, copy_source, write, written_version
from storage_cluster.servers.s3.payload import VerifiedBody, copied_body, read_verified, upload_body
from storage_cluster.servers.s3.request import Request, check
from storage_cluster.servers.s3.reservations import use, use_if_valid

PART_NUMBER_MAX = 10_000
PART_MIN_BYTES = 5 * 1024**2
DOCUMENT_MAX_BYTES = 4 * 1024**2
_KEPT_PREFIXES = (
    *("x-object-meta-", "x-object-sysmeta-s3-meta-", "x-object-sysmeta-s3-redirect", "x-object-transient-sysmeta-"),
)
_ACCESS_ID = "X-Object-Sysmeta-S3-Access"
_ALGORITHM = "X-Object-Sysmeta-S3-Checksum-Algorithm"
_MAY_BE_COMPLETE = "X-Object-Transient-Sysmeta-S3-May-Be-Complete"
_TYPE = "X-Object-Sysmeta-S3-Checksum-Type"


@dataclasses.dataclass(frozen=True)
class Upload:
    """An upload under way."""

    id: str
    kept: dict[str, str]
    """What its object will have: headers for the store."""
    algorithm: str | None
    checksum_type: str
    may_be_complete: bool
    """Completing it was begun, and its end is not known: an object may name its parts."""
    access_id: str
    """The reservation whose throughput its parts use; empty: none."""

    @property
    def acl(self) -> Acl:
        """The object's access control list; its owner is who began the upload."""
        return Acl.from_text(self.kept[ACL])


@dataclasses.dataclass(frozen=True)
class Claimed:
    """A part as the client lists it when it completes the upload."""

    number: int
    etag: str
    checksum: str  # ALGORITHM:BASE64, or empty


async def create_upload(op: Operation) -> Reply:
    """CreateMultipartUpload."""
    request, bucket = op.request, op.bucket
    require_bucket(request, bucket, "s3:PutObject", "WRITE", op.key)
    algorithm = wanted_algorithm(request.headers, "x-amz-checksum-algorithm")
    asked_type = request.headers.get("x-amz-checksum-type")
    if asked_type is not None and algorithm is None:
        raise S3Error(
            "InvalidRequest",
            "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
        )
    kind = type_for(algorithm, asked_type) if algorithm else ""
    acl = acl_to_store(op)
    headers = headers_to_store(request.headers) | {ACL: acl.text(), f"{OVERRIDE}Content-Type": upload_type(acl.owner)}
    headers |= locks_to_store(bucket.lock, request.headers)
    if algorithm:
        headers |= {_ALGORITHM: algorithm, _TYPE: kind}
    if op.reservation is not None:
        headers[_ACCESS_ID] = op.reservation.id
    for container in (uploads_container(bucket), parts_container(bucket)):
        await check(await request.ask_store("PUT", container))
    upload_id = op.gateway.clock.now()
    await check(await request.ask_store("PUT", upload_names(bucket, op.key, upload_id), headers=headers, body=b""))
    if op.reservation is not None:
        op.gateway.book.note_upload(upload_id, op.reservation.id)
    root = element(
        "InitiateMultipartUploadResult",
        element("Bucket", bucket.name),
        element("Key", op.key),
        element("UploadId", upload_id),
    )
    shown = {"x-amz-checksum-algorithm": algorithm, "x-amz-checksum-type": kind} if algorithm else {}
    return xml_reply(root, headers=shown)


async def upload_part(op: Operation) -> Reply:
    """UploadPart."""
    request, number = op.request, _part_number(op)
    upload = await _find_to_write(op)
    body = upload_body(request, op.signed, upload.algorithm)
    reply = await _store_part(op, upload, number, body)
    shown = {"ETag": f'"{reply.headers["Etag"].strip(chr(34))}"'}
    if body.checksum is not None:
        shown[body.checksum.header] = body.checksum.text
    return request.say(200, shown)


async def upload_part_copy(op: Operation) -> Reply:
    """UploadPartCopy."""
    request, number = op.request, _part_number(op)
    upload = await _find_to_write(op)
    source = await copy_source(op)
    asked = request.headers.get("x-amz-copy-source-range")
    found = await source.open({"Range": _checked_range(asked)} if asked else {})
    try:
        if asked and not _is_whole_range(found, asked):
            raise S3Error("InvalidRange", fields={"RangeRequested": asked})
        body = copied_body(found, upload.algorithm)
        reply = await _store_part(op, upload, number, body)
    finally:
        await found.close()
    root = element(
        "CopyPartResult",
        element("LastModified", versions_time(reply)),
        element("ETag", f'"{reply.headers["Etag"].strip(chr(34))}"'),
        element(body.checksum.element_name, body.checksum.text) if body.checksum else None,
    )
    return xml_reply(root, headers=source.shown_version(found))


async def complete_upload(op: Operation) -> Reply:
    """CompleteMultipartUpload."""
    request, bucket = op.request, op.bucket
    _require_writing(op)
    claimed = _claimed_parts(await read_verified(request, op.signed, DOCUMENT_MAX_BYTES, of_object=True))
    try:
        upload = await _find(op)
    except S3Error as error:
        if error.code != "NoSuchUpload":
            raise
        return await _completed_before(op)
    stored = await parts_on_replicas(request, op.gateway.replicas, bucket, upload.id)
    parts = _checked_parts(claimed, newest_parts(stored), upload)
    checksum = _object_checksum(op, upload, parts)
    etag = _etag(parts)
    manifest = json.dumps([part.entry(bucket).fields for part in parts]).encode()
    headers = upload.kept | {
        "Content-Type": with_swift_bytes(upload.kept["Content-Type"], sum(part.size for part in parts)),
        MANIFEST_IS_STORED: "true",
        ETAG: etag,
        UPLOAD: upload.id,
        PARTS: str(len(parts)),
        f"{OVERRIDE}Etag": f"s3_etag={etag}",
        **(checksum.metadata() if checksum else {}),
    }
    reply = await _write_manifest(op, upload, headers, manifest)
    await check(await request.ask_store("DELETE", upload_names(bucket, op.key, upload.id)))
    used = {part.name for part in parts}
    await remove(request, bucket, [part for part in stored if part.name not in used])
    return _completion_reply(op, etag, checksum, written_version(op, reply))


async def _write_manifest(op: Operation, upload: Upload, headers: dict[str, str], manifest: bytes) -> Reply:
    """Write the object. From now on its parts may be in use, unless the store says that it was not written."""
    names = upload_names(op.bucket, op.key, upload.id)
    await check(await op.request.ask_store("POST", names, headers=upload.kept | {_MAY_BE_COMPLETE: "true"}))
    try:
        return await write(op, headers, manifest)
    except S3Error as error:
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            await op.request.ask_store("POST", names, headers=upload.kept)
        raise


async def abort_upload(op: Operation) -> Reply:
    """AbortMultipartUpload."""
    request, bucket = op.request, op.bucket
    require_bucket(request, bucket, "s3:AbortMultipartUpload", "WRITE", op.key)
    await remove_upload(request, bucket, op.key, await _find(op))
    return request.say(204)


async def remove_upload(request: Request, bucket: Bucket, key: str, upload: Upload) -> None:
    """Forget an upload and remove its parts, unless an object may name them. Raises: S3Error (NoSuchUpload)."""
    await check(await request.ask_store("DELETE", upload_names(bucket, key, upload.id)), "NoSuchUpload")
    if not upload.may_be_complete:
        await remove(request, bucket, await stored_parts(request, bucket, upload.id))


async def list_parts(op: Operation) -> Reply:
    """ListParts."""
    require_bucket(op.request, op.bucket, "s3:ListMultipartUploadParts", "WRITE", op.key)
    upload = await _find(op)
    limit = limit_of(op.request.query.get("max-parts"), "max-parts")
    marker = _marker_number(op.request.query.get("part-number-marker"))
    newest = newest_parts(await parts_on_replicas(op.request, op.gateway.replicas, op.bucket, upload.id))
    parts = [newest[number] for number in sorted(newest) if number > marker]
    shown = parts[:limit]
    root = element(
        "ListPartsResult",
        element("Bucket", op.bucket.name),
        element("Key", op.key),
        element("UploadId", upload.id),
        element("PartNumberMarker", str(marker)),
        element("NextPartNumberMarker", str(shown[-1].number if shown else 0)),
        element("MaxParts", str(limit)),
        element("IsTruncated", "true" if len(parts) > len(shown) else "false"),
        *[_part_element(part) for part in shown],
        owner_element("Initiator", upload.acl.owner),
        owner_element("Owner", upload.acl.owner),
        element("StorageClass", "STANDARD"),
        *(
            [element("ChecksumAlgorithm", upload.algorithm), element("ChecksumType", upload.checksum_type)]
            if upload.algorithm
            else []
        ),
    )
    return xml_reply(root)


async def list_uploads(op: Operation) -> Reply:
    """ListMultipartUploads."""
    request, query = op.request, op.request.query
    require_bucket(request, op.bucket, "s3:ListBucketMultipartUploads", "READ")
    encoding, limit = UrlEncoding.of(query), limit_of(query.get("max-uploads"), "max-uploads")
    prefix, key_marker, id_marker = (
        query.get("prefix", ""),
        query.get("key-marker", ""),
        query.get("upload-id-marker", ""),
    )
    asked = {"prefix": MARK + prefix, "limit": str(limit + 1), "delimiter": query.get("delimiter", "")}
    if key_marker:
        names = (
            upload_names(op.bucket, key_marker, id_marker)[2]
            if is_version_id(id_marker)
            else f"{MARK}{key_marker}{MARK}:"
        )
        asked["marker"] = names
    entries = await list_page(request, uploads_container(op.bucket), asked) if limit else []
    shown = entries[:limit]
    uploads = [(listed_upload(entry), entry["last_modified"]) for entry in shown if "name" in entry]
    is_truncated = len(entries) > len(shown)
    root = element(
        "ListMultipartUploadsResult",
        element("Bucket", op.bucket.name),
        element("KeyMarker", encoding(key_marker)),
        element("UploadIdMarker", id_marker),
        optional("NextKeyMarker", encoding(uploads[-1][0][0]) if is_truncated and uploads else None),
        optional("NextUploadIdMarker", uploads[-1][0][1] if is_truncated and uploads else None),
        optional("Delimiter", encoding(query["delimiter"]) if query.get("delimiter") else None),
        element("Prefix", encoding(prefix)),
        element("MaxUploads", str(limit)),
        encoding.element(),
        element("IsTruncated", "true" if is_truncated else "false"),
        *[_upload_element(encoding(key), upload_id, owner, begun) for (key, upload_id, owner), begun in uploads],
        *[
            element("CommonPrefixes", element("Prefix", encoding(entry["subdir"].lstrip(MARK))))
            for entry in shown
            if "subdir" in entry
        ],
    )
    return xml_reply(root)


def versions_time(reply: Reply) -> str:
    """When the store wrote something, as documents show it, from its reply to the PUT."""
    return parsedate_to_datetime(reply.headers["Last-Modified"]).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _require_writing(op: Operation) -> None:
    require_bucket(op.request, op.bucket, "s3:PutObject", "WRITE", op.key)


async def _find_to_write(op: Operation) -> Upload:
    """The upload that a part is for, whose reservation it then uses. Raises: S3Error."""
    upload = await _find(op)
    _require_writing(op)
    if upload.access_id:
        await use(op, upload.access_id, WRITE)
    return upload


async def _find(op: Operation) -> Upload:
    """The upload that the request names. Raises: S3Error (NoSuchUpload)."""
    upload_id, book = op.request.query.get("uploadId", ""), op.gateway.book
    if upload_id in book.uploads:
        await use_if_valid(op, book.uploads[upload_id], WRITE)
    upload = await find_upload(op.request, op.bucket, op.key, upload_id)
    if upload.access_id and upload_id not in book.uploads:
        book.note_upload(upload_id, upload.access_id)
        await use_if_valid(op, upload.access_id, WRITE)
    return upload


async def find_upload(request: Request, bucket: Bucket, key: str, upload_id: str) -> Upload:
    """An upload under way. Raises: S3Error (NoSuchUpload)."""
    if not is_version_id(upload_id):
        raise S3Error("NoSuchUpload", fields={"UploadId": upload_id})
    head = await check(await request.ask_store("HEAD", upload_names(bucket, key, upload_id)), "NoSuchUpload")
    kept = kept_headers(head.headers, _KEPT_PREFIXES)
    may_be_complete = kept.pop(_MAY_BE_COMPLETE, None) is not None
    algorithm, kind = head.headers.get(_ALGORITHM), head.headers.get(_TYPE, "")
    return Upload(upload_id, kept, algorithm, kind, may_be_complete, head.headers.get(_ACCESS_ID, ""))


def _part_number(op: Operation) -> int:
    text = op.request.query.get("partNumber", "")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PART_NUMBER_MAX:
        raise S3Error("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
    return int(text)


def _marker_number(text: str | None) -> int:
    if text and not text.isdigit():
        raise S3Error("InvalidArgument", "Provided part-number-marker is not an integer")
    return int(text or 0)


async def _store_part(op: Operation, upload: Upload, number: int, body: VerifiedBody) -> Reply:
    if upload.algorithm and body.checksum is not None and body.checksum.algorithm != upload.algorithm:
        raise S3Error(
            "InvalidRequest",
            f"The upload's checksums are {upload.algorithm}, this one is {body.checksum.algorithm}.",
        )
    body.stored_as = _part_metadata
    headers = {"Content-Type": part_type("")}
    if body.checksum is not None and not body.announces_trailers:
        headers |= _part_metadata(body.checksum)
    names = _part_names(op, upload, number)
    return await check(await op.request.ask_store("PUT", names, headers=headers, body=body), "NoSuchUpload")


def _part_names(op: Operation, upload: Upload, number: int) -> tuple[str, str, str]:
    """The store's names of a part; where its reservation is spread, such that it is on the device whose turn it is."""
    container = parts_container(op.bucket)
    while True:
        names = (*container, part_name(upload.id, number, op.gateway.clock.now()))
        if op.reservation is None or not op.reservation.is_spread:
            return names
        _, partition, ring = op.gateway.replicas.placement(*names)
        if ring.primaries(partition)[0] == ring.devices[number % len(ring.devices)]:
            return names


def _part_metadata(checksum: Checksum) -> dict[str, str]:
    return {f"{OVERRIDE}Content-Type": part_type(f"{checksum.algorithm}:{checksum.text}")}


def _checked_range(text: str) -> str:
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not text.startswith("bytes=") or not first.isdigit() or not last.isdigit() or int(first) > int(last):
        raise S3Error("InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last")
    return text


def _is_whole_range(found: Reply, asked: str) -> bool:
    """Whether all of the range that was asked for is there."""
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return int(found.headers["Content-Length"]) == int(last) - int(first) + 1


def _claimed_parts(text: bytes) -> list[Claimed]:
    try:
        root = parse(text, "CompleteMultipartUpload")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    claimed = [_claimed_part(one) for one in root.findall("Part")]
    if not claimed:
        raise S3Error("MalformedXML")
    if any(second.number <= first.number for first, second in itertools.pairwise(claimed)):
        raise S3Error("InvalidPartOrder")
    return claimed


def _claimed_part(one: Element) -> Claimed:
    number, etag = child_text(one, "PartNumber"), child_text(one, "ETag")
    if number is None or etag is None or not number.isdigit():
        raise S3Error("MalformedXML")
    sums = [f"{name}:{text}" for name in ALGORITHMS if (text := child_text(one, f"Checksum{name}"))]
    return Claimed(int(number), etag.strip().strip('"'), sums[0] if sums else "")


def _checked_parts(claimed: Sequence[Claimed], stored: dict[int, Part], upload: Upload) -> list[Part]:
    parts = []
    for at, one in enumerate(claimed):
        part = stored.get(one.number)
        if part is None or part.etag != one.etag or (one.checksum and part.checksum and one.checksum != part.checksum):
            fields = {"UploadId": upload.id, "PartNumber": one.number, "ETag": one.etag}
            raise S3Error("InvalidPart", fields=fields)
        if part.size < PART_MIN_BYTES and at < len(claimed) - 1:
            fields = {
                "ProposedSize": part.size,
                "MinSizeAllowed": PART_MIN_BYTES,
                "PartNumber": one.number,
                "ETag": one.etag,
            }
            raise S3Error("EntityTooSmall", fields=fields)
        parts.append(part)
    return parts


def _object_checksum(op: Operation, upload: Upload, parts: Sequence[Part]) -> Checksum | None:
    if upload.algorithm is None or not all(part.checksum for part in parts):
        return None
    sums = [(part.checksum.partition(":")[2], part.size) for part in parts]
    checksum = checksum_of_parts(upload.algorithm, upload.checksum_type, sums)
    given = checksum_in_headers(op.request.headers)
    if given is not None and given.text.partition("-")[0] != checksum.text.partition("-")[0]:
        raise S3Error("BadDigest", f"The {given.algorithm} you specified did not match the calculated checksum.")
    return checksum


def _etag(parts: Sequence[Part]) -> str:
    digests = b"".join(bytes.fromhex(part.etag) for part in parts)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


async def _completed_before(op: Operation) -> Reply:
    """The answer to completing an upload once more. Raises: S3Error (NoSuchUpload)."""
    head = await op.request.ask_store("HEAD", op.bucket.object_names(op.key))
    upload_id = op.request.query.get("uploadId", "")
    if head.headers.get(UPLOAD) != upload_id:
        raise S3Error("NoSuchUpload", fields={"UploadId": upload_id})
    return _completion_reply(op, head.headers[ETAG], None, versions.shown_version(op.bucket, head))


def _completion_reply(op: Operation, etag: str, checksum: Checksum | None, shown: dict[str, str]) -> Reply:
    host = op.request.headers.get("Host", "")
    root = element(
        "CompleteMultipartUploadResult",
        element("Location", f"http://{host}/{op.bucket.name}/{op.key}"),
        element("Bucket", op.bucket.name),
        element("Key", op.key),
        element("ETag", f'"{etag}"'),
        *([element(checksum.element_name, checksum.text), element("ChecksumType", checksum.kind)] if checksum else []),
    )
    return xml_reply(root, headers=shown)


def _part_element(part: Part) -> Element:
    return element(
        "Part",
        element("PartNumber", str(part.number)),
        element("LastModified", iso_time(part.last_modified)),
        element("ETag", f'"{part.etag}"'),
        element("Size", str(part.size)),
        *part.checksum_elements,
    )


def _upload_element(key: str, upload_id: str, owner: str, begun: str) -> Element:
    return element(
        "Upload",
        element("Key", key),
        element("UploadId", upload_id),
        owner_element("Initiator", owner),
        owner_element("Owner", owner),
        element("StorageClass", "STANDARD"),
        element("Initiated", iso_time(begun)),
    )
