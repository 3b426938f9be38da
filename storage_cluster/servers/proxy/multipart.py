"""Reading a browser's form (`multipart/form-data`) as it arrives: one part after the other, none held whole.

Source: RFC 7578, RFC 2046 §5.1.
"""

import dataclasses
from collections.abc import AsyncIterator
from email.message import Message
from email.parser import HeaderParser

from storage_cluster.servers.http.messages import Body, Refusal

_HEAD_MAX_BYTES = 65_536


@dataclasses.dataclass(frozen=True)
class Part:
    """The head of one part."""

    name: str
    filename: str | None
    content_type: str | None


def boundary_of(content_type: str) -> bytes | None:
    """The boundary that a form's Content-Type names; None if it is no form."""
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary()
    is_form = header.get_content_type() == "multipart/form-data" and boundary
    return boundary.encode("utf-8", "surrogateescape") if is_form and boundary else None


class FormReader:
    """Reads the parts of a form: `next_part`, then its `content` to the end, and so on."""

    def __init__(self, body: Body, boundary: bytes) -> None:
        self._arriving = aiter(body)
        self._delimiter = b"\r\n--" + boundary
        self._buffer = b"\r\n"  # so that the first boundary looks like the others
        self._started = False

    async def next_part(self) -> Part | None:
        """The next part's head; None after the last one. Raises: Refusal (400) for what is no form."""
        if not self._started:
            await self._need(len(self._delimiter))
            if not self._buffer.startswith(self._delimiter):
                raise Refusal(400, "FormPost: invalid starting boundary", {"Content-Type": "text/plain"})
            self._buffer = self._buffer[len(self._delimiter) :]
            self._started = True
        await self._need(2)
        if self._buffer[:2] != b"\r\n":
            return None
        head = await self._head()
        return None if head is None else _part(head)

    async def content(self) -> AsyncIterator[bytes]:
        """The current part's bytes."""
        keep = len(self._delimiter) - 1
        while (at := self._buffer.find(self._delimiter)) < 0:
            ready, self._buffer = self._buffer[:-keep], self._buffer[-keep:]
            if ready:
                yield ready
            if not await self._more():
                yield self._buffer
                self._buffer = b""
                return
        ready, self._buffer = self._buffer[:at], self._buffer[at + len(self._delimiter) :]
        if ready:
            yield ready

    async def _head(self) -> str | None:
        while (at := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _HEAD_MAX_BYTES or not await self._more():
                return None
        head, self._buffer = self._buffer[2:at], self._buffer[at + 4 :]
        if self._buffer.startswith(self._delimiter[2:]):
            self._buffer = b"\r\n" + self._buffer  # an empty part may do without the line end of its content
        return head.decode("utf-8", "surrogateescape")

    async def _need(self, count: int) -> None:
        while len(self._buffer) < count and await self._more():
            pass

    async def _more(self) -> bool:
        chunk = await anext(self._arriving, b"")
        self._buffer += chunk
        return bool(chunk)


def _part(head: str) -> Part:
    parsed = HeaderParser().parsestr(head)
    filename = parsed.get_param("filename", None, "Content-Disposition")
    return Part(
        str(parsed.get_param("name", "", "Content-Disposition")),
        None if filename is None else str(filename),
        parsed.get("Content-Type"),
    )
