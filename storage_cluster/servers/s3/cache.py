"""A gateway's memory of objects' bodies: those that were read last, up to so many bytes; it can be off.

A body is kept under the object's name with the moment and the ETag of what was read. Before it is sent again the
storage servers are asked for the object's head, so a reader never gets what has been replaced, and access lists and
conditions count as ever; what the cache saves is the body's way from a storage server. A body is kept once the last of
its bytes has passed, and only if it takes at most an eighth of the room.

Counted are reads that found their body here, reads that did not, and the bytes that are kept. A second after a read the
counters are written to a file as JSON, for `tracer cluster status`.

Limit: each worker has a cache of its own.
"""

import asyncio
import collections
import dataclasses
import json
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from storage_cluster.servers.http.messages import Reply

SHARE_MAX = 8
"""One object may take the room divided by this."""
WRITE_AFTER_S = 1.0
"""From the first read that the file lacks to its writing."""

Names = tuple[str, ...]
Stamp = tuple[str, str]
"""Distinguishes bodies of one object: the moment of its newest change, its ETag."""


@dataclasses.dataclass
class CacheCounters:
    """What the cache did and holds."""

    room_bytes: int
    bytes: int = 0
    objects: int = 0
    hits: int = 0
    misses: int = 0


class ObjectCache:
    """Bodies of objects, the ones used last."""

    def __init__(self, room_bytes: int, counters_file: Path | None = None) -> None:
        self._bodies: collections.OrderedDict[Names, tuple[Stamp, bytes]] = collections.OrderedDict()
        self._counters_file = counters_file
        self._writing: asyncio.TimerHandle | None = None
        self.counters = CacheCounters(room_bytes)

    @property
    def is_on(self) -> bool:
        """Whether anything can be kept."""
        return self.counters.room_bytes > 0

    def __contains__(self, names: Names) -> bool:
        return names in self._bodies

    def body(self, names: Names, headers: Mapping[str, str]) -> bytes | None:
        """The body of what the store's reply to a HEAD is about, if it is here."""
        known = self._bodies.get(names)
        if known is None or known[0] != _stamp(headers):
            return None
        self._bodies.move_to_end(names)
        return known[1]

    def count_read(self, *, is_hit: bool) -> None:
        """Count a read of an object."""
        if is_hit:
            self.counters.hits += 1
        else:
            self.counters.misses += 1
        if self._counters_file is not None and self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._write_counters)

    def keep_body(self, names: Names, reply: Reply) -> None:
        """Keep the body of a store's reply to a GET of a whole object, once all of it has passed to the reader."""
        length = int(reply.headers.get("Content-Length", "-1"))
        if not 0 <= length <= self.counters.room_bytes // SHARE_MAX:
            return
        if isinstance(reply.body, bytes):
            self._put(names, _stamp(reply.headers), reply.body)
        else:
            reply.body = self._watch(reply.body, names, _stamp(reply.headers), length)

    async def _watch(self, body: AsyncIterator[bytes], names: Names, stamp: Stamp, length: int) -> AsyncIterator[bytes]:
        pieces = []
        async for piece in body:
            pieces.append(piece)
            yield piece
        whole = b"".join(pieces)
        if len(whole) == length:
            self._put(names, stamp, whole)

    def _put(self, names: Names, stamp: Stamp, body: bytes) -> None:
        self._remove(names)
        self._bodies[names] = stamp, body
        self.counters.bytes += len(body)
        while self.counters.bytes > self.counters.room_bytes:
            self._remove(next(iter(self._bodies)))
        self.counters.objects = len(self._bodies)

    def _remove(self, names: Names) -> None:
        known = self._bodies.pop(names, None)
        if known is not None:
            self.counters.bytes -= len(known[1])

    def _write_counters(self) -> None:
        assert self._counters_file is not None
        self._writing = None
        draft = self._counters_file.with_suffix(".draft")
        draft.write_text(json.dumps(dataclasses.asdict(self.counters)), "utf-8")
        os.replace(draft, self._counters_file)


def _stamp(headers: Mapping[str, str]) -> Stamp:
    return headers.get("X-Backend-Timestamp", ""), headers.get("Etag", "")
