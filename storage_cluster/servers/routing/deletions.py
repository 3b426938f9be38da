"""DeleteObjects: each key on its own, several at once."""

import asyncio
from collections.abc import Awaitable, Callable
from xml.etree.ElementTree import Element

from storage_cluster.servers.http.messages import Reply
from storage_cluster.servers.s3.authentication import Signed
from storage_cluster.servers.s3.deletions import DELETIONS_MAX
from storage_cluster.servers.s3.documents import (
    DOCUMENT_MAX_BYTES,
    DocumentError,
    child_text,
    element,
    parse,
    xml_reply,
)
from storage_cluster.servers.s3.errors import S3Error, error_of_status
from storage_cluster.servers.s3.payload import read_verified
from storage_cluster.servers.s3.request import Request

_AT_ONCE = 16


async def delete_each(request: Request, signed: Signed, delete: Callable[[str], Awaitable[Reply]]) -> Reply:
    """Delete the keys that a request lists; what became of each. Raises: S3Error."""
    try:
        root = parse(await read_verified(request, signed, DOCUMENT_MAX_BYTES, of_object=True), "Delete")
    except DocumentError:
        raise S3Error("MalformedXML") from None
    objects = root.findall("Object")
    if not 1 <= len(objects) <= DELETIONS_MAX:
        raise S3Error("MalformedXML")
    if any(child_text(one, "VersionId") for one in objects):
        raise S3Error("NotImplemented")
    limit = asyncio.Semaphore(_AT_ONCE)

    async def result(key: str) -> Element:
        async with limit:
            return await _result(key, delete)

    results = await asyncio.gather(*(result(child_text(one, "Key") or "") for one in objects))
    quiet = (child_text(root, "Quiet") or "").lower() == "true"
    return xml_reply(element("DeleteResult", *[one for one in results if not (quiet and one.tag == "Deleted")]))


async def _result(key: str, delete: Callable[[str], Awaitable[Reply]]) -> Element:
    try:
        reply = await delete(key)
        await reply.read()
        if reply.is_success:
            return element("Deleted", element("Key", key))
        error = error_of_status(reply.status)
    except S3Error as refused:
        error = refused
    return element("Error", element("Key", key), element("Code", error.code), element("Message", error.text or ""))
