"""Where multipart uploads and their parts are in the store, and what a completed object's manifest says.

    /ACCOUNT/\\0uploads\\0BUCKET/\\0KEY\\0TIME     an upload under way: its metadata; no client can name it
    /ACCOUNT/BUCKET+segments/UPLOAD/PART/TIME    a part; written again, it gets another name
    /ACCOUNT/BUCKET/KEY                          the object: a manifest of a static large object

The parts of an object that was replaced or deleted expire a while later, so that who is reading it can go on.

Invariant: a part that a manifest names is never overwritten.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlencode
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.object.server import REPLACED_UPLOAD
from storage_cluster.servers.proxy import version_names
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.servers.proxy.slo_manifest import Entry, parse_stored
from storage_cluster.servers.proxy.version_names import MARK
from storage_cluster.servers.s3.buckets import LISTING_LIMIT, Bucket, list_all, parts_container
from storage_cluster.servers.s3.documents import element
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.servers.s3.request import Request, check

EXPIRE_AFTER_S = 60
PART_TYPE = "application/x-s3-part"
UPLOAD_TYPE = "application/x-s3-upload"
_AT_ONCE = 8
_CHECKSUM = ";checksum="
_OWNER = ";owner="


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of an upload, or of a completed object."""

    number: int
    size: int
    etag: str  # MD5
    name: str  # of its object, in the container of parts
    last_modified: str = ""  # as listings of the store have it
    checksum: str = ""  # ALGORITHM:BASE64, or empty

    @property
    def checksum_elements(self) -> list[Element]:
        """Its checksum in a document; none if it has none."""
        algorithm, _, text = self.checksum.partition(":")
        return [element(f"Checksum{algorithm}", text)] if text else []

    def attributes_element(self) -> Element:
        """As GetObjectAttributes shows it."""
        number, size = element("PartNumber", str(self.number)), element("Size", str(self.size))
        return element("Part", *self.checksum_elements, number, size)

    def entry(self, bucket: Bucket) -> Entry:
        """As the manifest has it."""
        return Entry(
            {
                "name": f"/{parts_container(bucket)[1]}/{self.name}",
                "bytes": self.size,
                "hash": self.etag,
                "content_type": PART_TYPE,
                "last_modified": self.last_modified,
                "part": self.number,
                "checksum": self.checksum,
            }
        )


def uploads_container(bucket: Bucket) -> tuple[str, str]:
    """The container with the uploads under way."""
    return bucket.account, version_names.uploads_container(bucket.name)


def upload_names(bucket: Bucket, key: str, upload_id: str) -> tuple[str, str, str]:
    """The store's names of an upload's metadata."""
    return (*uploads_container(bucket), f"{MARK}{key}{MARK}{upload_id}")


def upload_type(owner: str) -> str:
    """What a listing shows as the content type of an upload: it carries who began it."""
    return UPLOAD_TYPE + _OWNER + quote(owner)


def listed_upload(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    """Key, id and owner of an upload, from an entry of a listing of the store's."""
    key, _, upload_id = entry["name"].removeprefix(MARK).rpartition(MARK)
    return key, upload_id, unquote(entry["content_type"].partition(_OWNER)[2])


def part_name(upload_id: str, number: int, timestamp: str) -> str:
    """The name of a part's object."""
    return f"{upload_id}/{number:05d}/{timestamp}"


def part_type(checksum: str) -> str:
    """The content type of a part: it carries the checksum, so that a listing shows it."""
    return PART_TYPE + (_CHECKSUM + checksum if checksum else "")


async def stored_parts(request: Request, bucket: Bucket, upload_id: str) -> list[Part]:
    """All that was stored of an upload, by number, of one number the oldest first."""
    entries = await list_all(request, parts_container(bucket), {"prefix": f"{upload_id}/"})
    return [_listed_part(entry) for entry in entries]


async def parts_on_replicas(request: Request, replicas: Replicas, bucket: Bucket, upload_id: str) -> list[Part]:
    """The same, from every replica of the listing: one whose server was down a moment ago may lack the newest parts.

    Raises: S3Error (ServiceUnavailable) if no replica answers.
    """
    found: dict[str, Part] = {}
    headers, marker = {"X-Trans-Id": request.call.transaction_id}, ""
    while True:
        query = urlencode({"prefix": f"{upload_id}/", "limit": LISTING_LIMIT, "marker": marker})
        answers = await replicas.each(parts_container(bucket), "GET", headers, f"?{query}")
        if not answers:
            raise S3Error("ServiceUnavailable")
        pages = [json.loads(answer.body or b"[]") for answer in answers]
        found |= {entry["name"]: _listed_part(entry) for page in pages for entry in page}
        full = [page[-1]["name"] for page in pages if len(page) == LISTING_LIMIT]
        if not full:
            return [found[name] for name in sorted(found)]
        marker = min(full)


def newest_parts(stored: Sequence[Part]) -> dict[int, Part]:
    """The part that counts, by number."""
    return {part.number: part for part in stored}


async def parts_of(request: Request, names: tuple[str, ...]) -> list[Part]:
    """The parts of a completed object; [] if it is none."""
    reply = await check(await request.ask_store("GET", names, query={"multipart-manifest": "get"}))
    if "X-Static-Large-Object" not in reply.headers:
        await reply.close()
        return []
    return [_manifest_part(at, entry.fields) for at, entry in enumerate(parse_stored(await reply.read()))]


async def part_range(request: Request, names: tuple[str, ...], number: int) -> str | None:
    """The range of a part's bytes, as a header; None for the whole, which an object without parts is part 1 of.

    Raises: S3Error (InvalidPartNumber).
    """
    parts = await parts_of(request, names)
    if not parts and number == 1:
        return None
    start = 0
    for part in parts:
        if part.number == number:
            return f"bytes={start}-{start + part.size - 1}"
        start += part.size
    raise S3Error("InvalidPartNumber")


async def expire_parts(request: Request, bucket: Bucket, reply: Reply) -> None:
    """Let the parts of an object expire that a change has replaced or deleted. `reply`: the store's to the change."""
    upload_id = reply.headers.get(REPLACED_UPLOAD)
    if upload_id:
        with contextlib.suppress(S3Error):  # the change itself is made: it must not look as if it had failed
            await expire(request, bucket, await stored_parts(request, bucket, upload_id))


async def expire(request: Request, bucket: Bucket, parts: Sequence[Part]) -> None:
    """Let parts expire."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def expire_one(part: Part) -> None:
        async with limit:
            names = (*parts_container(bucket), part.name)
            await request.ask_store("POST", names, headers={"X-Delete-After": str(EXPIRE_AFTER_S)})

    await asyncio.gather(*map(expire_one, parts))


async def remove(request: Request, bucket: Bucket, parts: Sequence[Part]) -> None:
    """Delete parts that no object names."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def remove_one(part: Part) -> None:
        async with limit:
            await request.ask_store("DELETE", (*parts_container(bucket), part.name))

    await asyncio.gather(*map(remove_one, parts))


def _listed_part(entry: dict[str, Any]) -> Part:
    number = int(entry["name"].split("/")[1])
    checksum = entry["content_type"].partition(_CHECKSUM)[2]
    return Part(number, entry["bytes"], entry["hash"], entry["name"], entry["last_modified"], checksum)


def _manifest_part(at: int, fields: Any) -> Part:
    name = fields["name"].split("/", 2)[2]
    return Part(fields.get("part", at + 1), fields["bytes"], fields["hash"], name, checksum=fields.get("checksum", ""))
