"""Listings of a bucket: ListObjects in both versions, ListObjectVersions.

A page is asked of the store with one entry more than it shows, which says whether there are others. The token of
version 2 is the last name of the page, in base64.

Source: Amazon S3 API reference, ListObjects, ListObjectsV2, ListObjectVersions.
"""

import base64
import binascii
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.proxy.version_copies import DELETED_TYPE
from storage_cluster.servers.s3 import versions
from storage_cluster.servers.s3.access import require_bucket
from storage_cluster.servers.s3.buckets import Bucket, list_page
from storage_cluster.servers.s3.context import Operation
from storage_cluster.servers.s3.documents import element, optional, xml_reply
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.grants import owner_element
from storage_cluster.servers.s3.metadata import iso_time

LIMIT_MAX = 1000
_INTEGER_MAX = 2**31 - 1

Entry = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class UrlEncoding:
    """How names are written in a listing: as they are, or percent-encoded (`encoding-type=url`)."""

    is_url: bool

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "UrlEncoding":
        """What a request asks for. Raises: S3Error for another encoding."""
        asked = query.get("encoding-type")
        if asked not in (None, "", "url"):
            raise S3Error("InvalidArgument", "Invalid Encoding Method specified in Request")
        return cls(asked == "url")

    def __call__(self, text: str) -> str:
        """A name, encoded."""
        return quote(text, safe="/-_.~*", errors="surrogateescape") if self.is_url else text

    def element(self) -> Element | None:
        """The element that says so."""
        return element("EncodingType", "url") if self.is_url else None


@dataclasses.dataclass(frozen=True)
class Page:
    """One page of a listing."""

    entries: Sequence[Entry]
    is_truncated: bool

    @property
    def objects(self) -> list[Entry]:
        """Those that are objects."""
        return [entry for entry in self.entries if "name" in entry]

    @property
    def folders(self) -> list[str]:
        """Common prefixes."""
        return [entry["subdir"] for entry in self.entries if "subdir" in entry]

    @property
    def last_name(self) -> str | None:
        """Where the next page goes on; None if there is none."""
        if not self.is_truncated or not self.entries:
            return None
        return str(self.entries[-1].get("name") or self.entries[-1].get("subdir"))


async def list_objects(op: Operation) -> Reply:
    """ListObjects, the first version."""
    require_bucket(op.request, op.bucket, "s3:ListBucket", "READ")
    query = op.request.query
    encoding, limit = UrlEncoding.of(query), limit_of(query.get("max-keys"), "max-keys")
    page = await _page(op, limit, query.get("marker", ""))
    root = element(
        "ListBucketResult",
        element("Name", op.bucket.name),
        element("Prefix", encoding(query.get("prefix", ""))),
        element("Marker", encoding(query.get("marker", ""))),
        optional("NextMarker", encoding(page.last_name) if page.last_name and query.get("delimiter") else None),
        element("MaxKeys", str(limit)),
        optional("Delimiter", encoding(query["delimiter"]) if query.get("delimiter") else None),
        encoding.element(),
        element("IsTruncated", _truth(page.is_truncated)),
        *[_object_element(op.bucket, entry, encoding, with_owner=True) for entry in page.objects],
        *_folder_elements(page, encoding),
    )
    return xml_reply(root)


async def list_objects_v2(op: Operation) -> Reply:
    """ListObjectsV2."""
    require_bucket(op.request, op.bucket, "s3:ListBucket", "READ")
    query = op.request.query
    encoding, limit = UrlEncoding.of(query), limit_of(query.get("max-keys"), "max-keys")
    token, after = query.get("continuation-token"), query.get("start-after")
    page = await _page(op, limit, after or "" if token is None else name_in(token))
    with_owner = query.get("fetch-owner", "").lower() == "true"
    root = element(
        "ListBucketResult",
        element("Name", op.bucket.name),
        element("Prefix", encoding(query.get("prefix", ""))),
        optional("ContinuationToken", token),
        optional("NextContinuationToken", token_of(page.last_name)),
        optional("StartAfter", None if after is None else encoding(after)),
        element("KeyCount", str(len(page.entries))),
        element("MaxKeys", str(limit)),
        optional("Delimiter", encoding(query["delimiter"]) if query.get("delimiter") else None),
        encoding.element(),
        element("IsTruncated", _truth(page.is_truncated)),
        *[_object_element(op.bucket, entry, encoding, with_owner=with_owner) for entry in page.objects],
        *_folder_elements(page, encoding),
    )
    return xml_reply(root)


async def list_versions(op: Operation) -> Reply:
    """ListObjectVersions."""
    require_bucket(op.request, op.bucket, "s3:ListBucketVersions", "READ")
    query = op.request.query
    encoding, limit = UrlEncoding.of(query), limit_of(query.get("max-keys"), "max-keys")
    marker, id_marker = query.get("key-marker", ""), query.get("version-id-marker")
    if id_marker == versions.NULL and marker:
        id_marker = await versions.stored_null(op.request, op.bucket, marker)
    asked = {"versions": "true"} | ({"version_marker": id_marker} if id_marker and marker else {})
    page = await _page(op, limit, marker, asked)
    last = page.entries[-1] if page.is_truncated and page.entries else {}
    last_id = versions.shown_id(op.bucket, last["version_id"]) if "version_id" in last else None
    root = element(
        "ListVersionsResult",
        element("Name", op.bucket.name),
        element("Prefix", encoding(query.get("prefix", ""))),
        element("KeyMarker", encoding(marker)),
        element("VersionIdMarker", query.get("version-id-marker", "")),
        optional("NextKeyMarker", None if page.last_name is None else encoding(page.last_name)),
        optional("NextVersionIdMarker", last_id),
        element("MaxKeys", str(limit)),
        optional("Delimiter", encoding(query["delimiter"]) if query.get("delimiter") else None),
        encoding.element(),
        element("IsTruncated", _truth(page.is_truncated)),
        *[_version_element(op.bucket, entry, encoding) for entry in page.objects],
        *_folder_elements(page, encoding),
    )
    return xml_reply(root)


def limit_of(text: str | None, name: str) -> int:
    """How many entries a request asks for. Raises: S3Error for what is no number."""
    if text is None or text == "":
        return LIMIT_MAX
    if not text.isascii() or not text.isdigit() or int(text) > _INTEGER_MAX:
        raise S3Error("InvalidArgument", f"Provided {name} not an integer or within integer range")
    return min(int(text), LIMIT_MAX)


def token_of(name: str | None) -> str | None:
    """The token that lets a listing go on after a name; None for None."""
    return None if name is None else base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()


def name_in(token: str) -> str:
    """The name after which a listing goes on. Raises: S3Error for what is no token."""
    try:
        return base64.urlsafe_b64decode(token.encode()).decode("utf-8", "surrogateescape")
    except (ValueError, binascii.Error):
        raise S3Error("InvalidArgument", "The continuation token provided is incorrect") from None


async def _page(op: Operation, limit: int, marker: str, more: Mapping[str, str] | None = None) -> Page:
    if "allow-unordered" in op.request.query and op.request.query.get("delimiter"):
        raise S3Error("InvalidArgument", "A listing in any order cannot have a delimiter")
    if not limit:
        return Page((), is_truncated=False)
    query = {"limit": str(limit + 1), "marker": marker, **(more or {})}
    query |= {name: op.request.query[name] for name in ("prefix", "delimiter") if op.request.query.get(name)}
    entries = await list_page(op.request, op.bucket.names, query)
    return Page(entries[:limit], len(entries) > limit)


def _object_element(bucket: Bucket, entry: Entry, encoding: Callable[[str], str], *, with_owner: bool) -> Element:
    return element(
        "Contents",
        element("Key", encoding(entry["name"])),
        element("LastModified", iso_time(entry["last_modified"])),
        element("ETag", f'"{_etag(entry)}"'),
        element("Size", str(entry["bytes"])),
        owner_element("Owner", bucket.owner) if with_owner else None,
        element("StorageClass", "STANDARD"),
    )


def _version_element(bucket: Bucket, entry: Entry, encoding: Callable[[str], str]) -> Element:
    is_marker = entry["content_type"] == DELETED_TYPE
    content = [] if is_marker else [element("ETag", f'"{_etag(entry)}"'), element("Size", str(entry["bytes"]))]
    return element(
        "DeleteMarker" if is_marker else "Version",
        element("Key", encoding(entry["name"])),
        element("VersionId", versions.shown_id(bucket, entry["version_id"])),
        element("IsLatest", _truth(bool(entry["is_latest"]))),
        element("LastModified", iso_time(entry["last_modified"])),
        *content,
        owner_element("Owner", bucket.owner),
        None if is_marker else element("StorageClass", "STANDARD"),
    )


def _folder_elements(page: Page, encoding: Callable[[str], str]) -> list[Element]:
    return [element("CommonPrefixes", element("Prefix", encoding(folder))) for folder in page.folders]


def _etag(entry: Entry) -> str:
    return str(entry.get("s3_etag") or entry.get("slo_etag") or entry["hash"]).strip('"')


def _truth(value: bool) -> str:
    return "true" if value else "false"
