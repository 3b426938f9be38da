"""What belongs to an object beside its bytes: as S3's headers say it, and as the store keeps it.

    x-amz-meta-NAME        X-Object-Meta-Name, or sysmeta where it is longer than Swift allows
    x-amz-acl, -tagging    X-Object-Transient-Sysmeta-S3-Acl, -Tags: can be changed later
    multipart, checksum    X-Object-Sysmeta-S3-Etag, -Upload, -Parts, -Checksum: stay as they are written

Characters of a name that Swift would change or refuse are written as `~XX`.

Source: Amazon S3 API reference, PutObject, GetObject.
"""

import math
import re
import time
from collections.abc import Mapping
from email.utils import formatdate

from multidict import CIMultiDict

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.object.server import METADATA
from storage_cluster.servers.s3.buckets import Bucket
from storage_cluster.servers.s3.checksums import stored_checksum
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import ALL_USERS, Acl, Grant, private
from storage_cluster.servers.s3.request import Request, check
from storage_cluster.servers.s3.tags import Tags, kept_tags, tags_in_header, tags_text

ETAG = "X-Object-Sysmeta-S3-Etag"
UPLOAD = "X-Object-Sysmeta-S3-Upload"
PARTS = "X-Object-Sysmeta-S3-Parts"
ACL = "X-Object-Transient-Sysmeta-S3-Acl"
TAGS = "X-Object-Transient-Sysmeta-S3-Tags"
REDIRECT = "X-Object-Sysmeta-S3-Redirect"
DEFAULT_TYPE = "binary/octet-stream"
META_SUM_MAX_BYTES = 2048
_META = "x-amz-meta-"
_STORED_META = "X-Object-Meta-"
_LONG_META = "X-Object-Sysmeta-S3-Meta-"
_SWIFT_VALUE_MAX_BYTES = 256
_KEPT_HEADERS = ("Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires")
_RESPONSE_HEADERS = {
    f"response-{name.lower()}": name
    for name in (
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Expires",
    )
}
_ESCAPED = re.compile(r"~([0-9A-Fa-f]{2})")
_UNSUPPORTED = ("x-amz-server-side-encryption", "x-amz-write-offset-bytes")


def headers_to_store(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an object's PUT to the store, as the request has them; ACL and checksum are apart.

    Raises: S3Error for what S3 does not take or what is not built.
    """
    for name in headers:
        if name.lower().startswith(_UNSUPPORTED):
            raise S3Error("NotImplemented", fields={"Header": name})
    if headers.get("x-amz-storage-class", "STANDARD") != "STANDARD":
        raise S3Error("InvalidStorageClass", "There is one storage class: STANDARD.")
    kept = {name: headers[name] for name in _KEPT_HEADERS if headers.get(name)}
    if "Content-Encoding" in kept:
        codings = [one.strip() for one in kept["Content-Encoding"].split(",")]
        kept["Content-Encoding"] = ",".join(one for one in codings if one and one != "aws-chunked")
        if not kept["Content-Encoding"]:
            del kept["Content-Encoding"]
    kept["Content-Type"] = headers.get("Content-Type") or DEFAULT_TYPE
    if "x-amz-website-redirect-location" in headers:
        kept[REDIRECT] = headers["x-amz-website-redirect-location"]
    if "x-amz-tagging" in headers:
        kept[TAGS] = tags_text(tags_in_header(headers))
    return kept | _stored_meta(headers)


def object_headers(bucket: Bucket, reply: Reply, *, with_checksum: bool) -> dict[str, str]:
    """An object's headers in a response, from the store's reply; without its version."""
    found = reply.headers
    shown = {
        name: found[name]
        for name in (*_KEPT_HEADERS, "Content-Type", "Content-Length", "Content-Range")
        if name in found
    }
    shown |= {"ETag": f'"{etag_of(found)}"', "Last-Modified": last_modified(found), "Accept-Ranges": "bytes"}
    for prefix in (_STORED_META, _LONG_META):
        for name, value in found.items():
            if name.lower().startswith(prefix.lower()):
                shown[_META + _unescape(name[len(prefix) :]).lower()] = value
    tags = kept_tags(found.get(TAGS))
    if tags:
        shown["x-amz-tagging-count"] = str(len(tags))
    if REDIRECT in found:
        shown["x-amz-website-redirect-location"] = found[REDIRECT]
    checksum = stored_checksum(found)
    if checksum is not None and with_checksum:
        shown |= checksum.response_headers()
    return shown


def with_overrides(request: Request, shown: dict[str, str]) -> dict[str, str]:
    """A response's headers with those that the query asks for instead. Raises: S3Error if nobody signed it."""
    asked = {name: request.query[name] for name in _RESPONSE_HEADERS if name in request.query}
    if asked and request.requester is None:
        raise S3Error("InvalidRequest", "Request specific response headers cannot be used for anonymous GET requests.")
    return shown | {_RESPONSE_HEADERS[name]: value for name, value in asked.items()}


def kept_headers(found: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Of an object's headers those of these prefixes (in lower case), and those that S3 keeps as they are."""
    plain = {name.lower() for name in (*_KEPT_HEADERS, "Content-Type")}
    return {name: value for name, value in found.items() if name.lower().startswith(prefixes) or name.lower() in plain}


def etag_of(found: Mapping[str, str]) -> str:
    """An object's ETag, without quotes."""
    return (found.get(ETAG) or found.get("Etag", "")).strip('"')


def last_modified(found: Mapping[str, str]) -> str:
    """When the object's bytes were written, as a header; a change of its tags or ACL does not count."""
    timestamp = found.get("X-Backend-Data-Timestamp") or found.get("X-Timestamp")
    return formatdate(math.ceil(float(timestamp)), usegmt=True) if timestamp else found.get("Last-Modified", "")


def iso_time(iso: str) -> str:
    """A listing's time (2026-11-20T09:30:00.123450) as documents show it: in whole seconds, as the header has it."""
    whole, _, decimals = iso.partition(".")
    seconds = time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) - time.timezone
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds + bool(decimals.strip("0"))))


def document_time(found: Mapping[str, str]) -> str:
    """When the object was written, as documents show it."""
    timestamp = found.get("X-Backend-Data-Timestamp") or found["X-Timestamp"]
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(math.ceil(float(timestamp))))


def object_acl(bucket: Bucket, found: Mapping[str, str]) -> Acl:
    """An object's access control list; of one that was written through Swift, what Swift says of its container."""
    if ACL in found:
        return Acl.from_text(found[ACL])
    readers = (Grant(ALL_USERS, "READ"),) if bucket.public_objects else ()
    return Acl(bucket.owner, (*private(bucket.owner).grants, *readers))


def object_tags(found: Mapping[str, str]) -> Tags:
    """An object's tags."""
    return kept_tags(found.get(TAGS))


async def change_metadata(request: Request, names: tuple[str, ...], changes: Mapping[str, str | None]) -> None:
    """Change ACL or tags of an object, all else kept. None: removed. Raises: S3Error."""
    head = await check(await request.ask_store("HEAD", names, query={"symlink": "get", "multipart-manifest": "get"}))
    kept = CIMultiDict(
        (name, value)
        for name, value in head.headers.items()
        if name.lower().startswith(METADATA) and not name.lower().startswith("x-object-sysmeta-")
    )
    for name, value in changes.items():
        kept.popall(name, None)
        if value is not None:
            kept[name] = value
    await check(await request.ask_store("POST", names, headers=kept))


def _stored_meta(headers: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in headers.items():
        if name.lower().startswith(_META):
            key = name[len(_META) :].lower()
            given[key] = f"{given[key]},{value}" if key in given else value
    if (
        sum(len(name) + len(value.encode("utf-8", "surrogateescape")) for name, value in given.items())
        > META_SUM_MAX_BYTES
    ):
        raise S3Error("MetadataTooLarge", fields={"MaxSizeAllowed": META_SUM_MAX_BYTES})
    stored = {}
    for name, value in given.items():
        is_long = len(value.encode("utf-8", "surrogateescape")) > _SWIFT_VALUE_MAX_BYTES
        stored[(_LONG_META if is_long else _STORED_META) + _escape(name)] = value
    return stored


def _escape(name: str) -> str:
    return "".join(one if one.isascii() and (one.isalnum() or one == "-") else f"~{ord(one):02X}" for one in name)


def _unescape(name: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)
