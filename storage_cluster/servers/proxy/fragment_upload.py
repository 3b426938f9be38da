"""Uploads one object as fragments: each storage server gets an archive of its own, in two phases.

    client ──▶ proxy ─ PUT (multiphase) ─▶ object servers       each with the index of its primary, also a handoff
               body, segment by segment:
               encode ─ fragment i ─▶ server i
                      ─ footers i ─▶                            ETag, length and code of the whole object
                      ◀─ 100 Continue ─                         stored, not durable
    when `write_quorum` servers have it:
                      ─ confirmation ─▶                         to all of them
                      ◀─ 201 Created ─                          durable
    client ◀── 201 ── when `write_quorum` servers say so

A segment is held until it is whole, nothing else is. The client's ETag is checked here, before the footers: servers see
fragments only.

Source: Swift, swift.proxy.controllers.obj (`ECObjectController`).
"""

import asyncio
import dataclasses
import hashlib
import secrets
from typing import Any

from storage_cluster.erasure import Code
from storage_cluster.servers.disks import fragments
from storage_cluster.servers.disks.devices import metadata_headers
from storage_cluster.servers.http import multiphase
from storage_cluster.servers.http.backend import BackendAnswer, BackendUpload
from storage_cluster.servers.http.messages import Call, Refusal
from storage_cluster.servers.object.server import METADATA
from storage_cluster.servers.proxy.replicas import Replicas, first_and_rest
from storage_cluster.servers.proxy.upload import Upload, send_chunk

_OF_THE_WHOLE = ("Content-Length", "Trailer", "Etag")
"""Headers of an upload that are not those of an archive."""


@dataclasses.dataclass(eq=False)
class _Archive:
    """What one server gets."""

    upload: BackendUpload
    index: int
    md5: Any = dataclasses.field(default_factory=lambda: hashlib.md5(usedforsecurity=False))


class FragmentUpload(Upload):
    """A PUT of all fragments of an object."""

    def __init__(
        self,
        replicas: Replicas,
        names: tuple[str, str, str],
        headers_for: list[dict[str, str]],
        policy: int,
        code: Code,
    ) -> None:
        self._boundary = secrets.token_hex(16)
        announced = multiphase.request_headers(self._boundary)
        length = headers_for[0].get("Content-Length")
        if length is not None:
            announced[multiphase.ARCHIVE_LEN] = str(code.archive_len(int(length)))
        self._wanted_etag = headers_for[0].get("Etag", "").strip('"')
        kept = [{name: each[name] for name in each if name not in _OF_THE_WHOLE} for each in headers_for]
        super().__init__(replicas, names, [each | announced for each in kept], policy)
        self.quorum = code.write_quorum
        self._code = code
        self._size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)

    async def run(self, call: Call) -> list[BackendAnswer]:
        """Connect, encode the body, collect answers. Raises: Refusal (422; 503 without a quorum), ClientGone."""
        by_index = await self._connect_all()
        held = [upload for upload in by_index if upload is not None]
        try:
            open_ones = self._open_or_refuse(held)
            await call.body.proceed()
            archives = [_Archive(found, index) for index, found in enumerate(by_index) if found in open_ones]
            await self._send_fragments(call, archives)
            self.etag = self._md5.hexdigest()
            if self._wanted_etag not in ("", self.etag):
                raise Refusal(422)
            stored = await self._store(call, archives)
            for archive in stored:
                archive.upload.send(multiphase.confirmation(self._boundary))
                archive.upload.send(b"")
        except BaseException:
            for upload in held:
                upload.give_up()
            raise
        for upload in held:
            if upload not in [archive.upload for archive in stored]:
                upload.give_up()
        answers = {asyncio.create_task(archive.upload.answer()) for archive in stored}
        return await first_and_rest(answers, self.quorum, self._replicas.post_quorum_timeout_s)

    async def _send_fragments(self, call: Call, archives: list[_Archive]) -> None:
        """Encode the body and send it. Raises: Refusal (503) once too few servers are left."""
        await self._send(archives, dict.fromkeys(range(self._code.fragment_count), self._opening), counts=False)
        segment = bytearray()
        async for chunk in call.body:
            self._md5.update(chunk)
            self._size += len(chunk)
            segment += chunk
            while len(segment) >= self._code.segment_bytes:
                await self._send_segment(archives, bytes(segment[: self._code.segment_bytes]))
                del segment[: self._code.segment_bytes]
        if segment:
            await self._send_segment(archives, bytes(segment))

    @property
    def _opening(self) -> bytes:
        return multiphase.before_body(self._boundary)

    async def _send_segment(self, archives: list[_Archive], segment: bytes) -> None:
        await self._send(archives, dict(enumerate(self._code.encode(segment))), counts=True)

    async def _send(self, archives: list[_Archive], pieces: dict[int, bytes], *, counts: bool) -> None:
        """Send each server its piece, which `counts` as a part of its archive; those that are gone are removed."""
        for archive in list(archives):
            piece = pieces[archive.index]
            if counts:
                archive.md5.update(piece)
            if not await send_chunk(piece, archive.upload):
                archives.remove(archive)
        if len(archives) < self.quorum:
            raise Refusal(503)

    async def _store(self, call: Call, archives: list[_Archive]) -> list[_Archive]:
        """Send the footers; those servers that have stored their archive. Raises: Refusal without a quorum."""
        common = metadata_headers(call.body.trailers, METADATA) | {
            fragments.ETAG: self.etag,
            fragments.SIZE: str(self._size),
            fragments.SCHEME: self._code.scheme,
            fragments.SEGMENT: str(self._code.segment_bytes),
        }
        asking = {asyncio.create_task(self._is_stored(archive, common)): archive for archive in archives}
        ready = await _first_true(asking, self.quorum, self._replicas.post_quorum_timeout_s)
        if len(ready) >= self.quorum:
            return ready
        early = [archive.upload.early_status for archive in archives]
        raise Refusal(next((status for status in (409, 422, 507) if early.count(status) >= self._ring.quorum), 503))

    async def _is_stored(self, archive: _Archive, common: dict[str, str]) -> bool:
        own = {"Etag": archive.md5.hexdigest(), fragments.INDEX: str(archive.index)}
        return await archive.upload.send_and_be_asked_again(multiphase.after_body(self._boundary, common | own))


async def _first_true(asking: dict["asyncio.Task[bool]", _Archive], quorum: int, others_s: float) -> list[_Archive]:
    """Those that say yes: a quorum, and of the others those that do so within `others_s` more. The rest is
    cancelled."""
    pending = set(asking)
    try:
        while pending and sum(task.result() for task in asking if task not in pending) < quorum:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            _, pending = await asyncio.wait(pending, timeout=others_s)
        return [archive for task, archive in asking.items() if task.done() and task.result()]
    finally:
        for task in pending:
            task.cancel()
