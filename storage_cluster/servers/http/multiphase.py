"""A PUT in two phases: the wire format in which a proxy sends an object server a fragment archive, and confirms it.

    proxy                                           object server
    PUT, Expect: 100-continue, three documents ──▶
                                                ◀── 100 Continue
    --b  X-Document: object body      fragments ──▶
    --b  X-Document: object metadata  footers   ──▶  the file is on disk, not durable
                                                ◀── 100 Continue
    --b  X-Document: put commit                 ──▶  the file is durable
                                                ◀── 201 Created

The body is a multipart of three documents, sent in chunks. What is known only after the object's bytes (ETags, its
length) are its footers, headers as JSON. The second `100 Continue` says that the archive is stored; when enough servers
have said so, the proxy confirms to each of them.

Source: Swift, swift.proxy.controllers.obj (`MIMEPutter`), swift.obj.server (`PUT`).
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from email.parser import HeaderParser

from storage_cluster.servers.http.messages import Body, ClientGone, Refusal
from storage_cluster.servers.http.parts import PartReader

BOUNDARY = "X-Backend-Obj-Multipart-Mime-Boundary"
ARCHIVE_LEN = "X-Backend-Obj-Content-Length"
"""The length of the archive, where the proxy knows it beforehand."""
_BODY, _FOOTERS, _COMMIT = "object body", "object metadata", "put commit"
_CONFIRMATION = b"put_commit_confirmation"
_FOOTERS_MAX_BYTES = 65_536


def request_headers(boundary: str) -> dict[str, str]:
    """What announces such a PUT."""
    return {BOUNDARY: boundary, "X-Backend-Obj-Metadata-Footer": "yes", "X-Backend-Obj-Multiphase-Commit": "yes"}


def before_body(boundary: str) -> bytes:
    """What stands before the fragments."""
    return f"--{boundary}\r\nX-Document: {_BODY}\r\n\r\n".encode()


def after_body(boundary: str, footers: Mapping[str, str]) -> bytes:
    """What stands after the fragments, up to the second `100 Continue`."""
    document = json.dumps(footers).encode()
    digest = hashlib.md5(document, usedforsecurity=False).hexdigest()
    head = f"\r\n--{boundary}\r\nX-Document: {_FOOTERS}\r\nContent-MD5: {digest}\r\n\r\n"
    return head.encode() + document + f"\r\n--{boundary}\r\n".encode()


def confirmation(boundary: str) -> bytes:
    """The last document."""
    return f"X-Document: {_COMMIT}\r\n\r\n".encode() + _CONFIRMATION + f"\r\n--{boundary}--".encode()


class Documents:
    """Reads such a body: `chunks`, then `footers`, then `await_confirmation`."""

    def __init__(self, body: Body, boundary: str) -> None:
        self._body = body
        self._reader = PartReader(body, boundary.encode("utf-8", "surrogateescape"))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The fragments. Raises: Refusal (400)."""
        await self._begin(_BODY)
        async for chunk in self._reader.content():
            yield chunk

    async def footers(self) -> dict[str, str]:
        """The headers that follow from the body. Raises: Refusal (400, 413, 422)."""
        digest = await self._begin(_FOOTERS)
        document = b""
        async for chunk in self._reader.content():
            document += chunk
            if len(document) > _FOOTERS_MAX_BYTES:
                raise Refusal(413)
        if digest not in ("", hashlib.md5(document, usedforsecurity=False).hexdigest()):
            raise Refusal(422)
        try:
            found: dict[str, str] = json.loads(document)
            return found
        except ValueError:
            raise Refusal(400) from None

    async def await_confirmation(self) -> None:
        """Ask for the confirmation, and wait for it. Raises: ClientGone, Refusal (400)."""
        await self._body.ask_for_more()
        await self._begin(_COMMIT)
        if b"".join([chunk async for chunk in self._reader.content()]) != _CONFIRMATION:
            raise Refusal(400)
        await self._reader.read_to_end()

    async def _begin(self, document: str) -> str:
        """The next document's digest, "" without one. Raises: ClientGone, Refusal (400)."""
        head = await self._reader.next_head()
        if head is None:
            raise ClientGone
        headers = HeaderParser().parsestr(head)
        if headers.get("X-Document") != document:
            raise Refusal(400, f"expected the document {document!r}")
        return headers.get("Content-MD5", "")
