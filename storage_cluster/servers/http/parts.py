"""Reading the parts of a multipart body as it arrives: one after the other, none held whole.

Source: RFC 2046 §5.1.
"""

from collections.abc import AsyncIterator

from storage_cluster.servers.http.messages import Body, Refusal

_HEAD_MAX_BYTES = 65_536


class PartReader:
    """Reads the parts: `next_head`, then its `content` to the end, and so on."""

    def __init__(self, body: Body, boundary: bytes) -> None:
        self._arriving = aiter(body)
        self._delimiter = b"\r\n--" + boundary
        self._buffer = b"\r\n"  # so that the first boundary looks like the others
        self._started = False

    async def next_head(self) -> str | None:
        """The next part's headers as they stand; None after the last part. Raises: Refusal (400)."""
        if not self._started:
            await self._need(len(self._delimiter))
            if not self._buffer.startswith(self._delimiter):
                raise self._not_multipart()
            self._buffer = self._buffer[len(self._delimiter) :]
            self._started = True
        await self._need(2)
        return await self._head() if self._buffer[:2] == b"\r\n" else None

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

    async def read_to_end(self) -> None:
        """Discard what is left of the body."""
        while await self._more():
            self._buffer = b""

    def _not_multipart(self) -> Refusal:
        """The answer to a body that does not begin with the boundary."""
        return Refusal(400, "invalid starting boundary")

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
