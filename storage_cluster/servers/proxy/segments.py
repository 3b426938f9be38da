"""The body of a large object: pieces of other objects, one after the other, fetched as the client reads.

Whoever makes the list (`slo`, `dlo`) knows each segment's length and ETag. The first segment is opened before the reply
begins, so that an object whose parts are gone or changed is an error and not half an answer; where a later one fails,
the connection is broken off.

Source: Swift, swift.common.request_helpers (`SegmentedIterable`).
"""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from storage_cluster.servers.http.messages import BrokenOff, Refusal, Reply


@dataclasses.dataclass(frozen=True)
class Segment:
    """Bytes first … first + length - 1 of an object, or bytes that are given here."""

    length: int
    container: str = ""
    name: str = ""
    etag: str = ""
    first: int = 0
    whole: bool = True
    nested: bool = False
    """It is a large object itself."""
    data: bytes | None = None


Fetch = Callable[[Segment, str | None], Awaitable[Reply]]
"""The reply to a GET of a segment's object, with this Range."""


def total_len(segments: Sequence[Segment]) -> int:
    """Bytes in all of them."""
    return sum(segment.length for segment in segments)


async def stream(segments: Sequence[Segment], fetch: Fetch, start: int, stop: int) -> AsyncIterator[bytes]:
    """Bytes start … stop - 1 of the whole. Raises: BrokenOff if a segment is not what the list says."""
    offset = 0
    for segment in segments:
        low, high = max(start, offset) - offset, min(stop, offset + segment.length) - offset
        offset += segment.length
        if low < high:
            async for chunk in _part(segment, fetch, low, high):
                yield chunk


async def open_reply(reply: Reply, chunk_count: int = 1) -> Reply:
    """The reply with its first chunks fetched already. Raises: Refusal (409) if that fails."""
    assert not isinstance(reply.body, bytes)
    body = reply.body
    fetched: list[bytes] = []
    try:
        while len(fetched) < chunk_count:
            fetched.append(await anext(body))
    except StopAsyncIteration:
        pass
    except BrokenOff:
        await reply.close()
        raise Refusal(409) from None

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in fetched:
            yield chunk
        async for chunk in body:
            yield chunk

    reply.body = chunks()
    return reply


async def _part(segment: Segment, fetch: Fetch, low: int, high: int) -> AsyncIterator[bytes]:
    if segment.data is not None:
        yield segment.data[low:high]
        return
    all_of_it = segment.whole and high - low == segment.length
    asked = None if all_of_it else f"bytes={segment.first + low}-{segment.first + high - 1}"
    reply = await fetch(segment, asked)
    try:
        if not _as_listed(reply, segment, high - low, all_of_it=all_of_it):
            raise BrokenOff
        async for chunk in reply.chunks():
            yield chunk
    finally:
        await reply.close()


def _as_listed(reply: Reply, segment: Segment, length: int, *, all_of_it: bool) -> bool:
    return (
        reply.status == (200 if all_of_it else 206)
        and reply.headers.get("Content-Length") == str(length)
        and (not segment.etag or reply.headers.get("Etag", "").strip('"') == segment.etag)
    )
