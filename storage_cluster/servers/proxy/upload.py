"""Uploads one object to several storage servers at once.

    client ──▶ proxy ─ PUT, Expect: 100-continue ─▶ object servers       each on a connection of its own
                     ◀─ 100 Continue ───────────── object servers        who answers otherwise, or not at all, is
                     ─ body ─────────────────────▶                       replaced by a handoff before the body starts
                     ◀─ 201 Created ─────────────

The body is not stored: each chunk is sent to every server before the next one is read from the client, so the slowest
server sets the pace and an object of any size needs little memory.

Source: Swift, swift.proxy.controllers.obj (`ReplicatedObjectController`, `_connect_put_node`, `_transfer_data`).
"""

import asyncio
from collections.abc import Iterator, Mapping

from storage_cluster.servers.http.backend import BackendAnswer, BackendUpload, device_path
from storage_cluster.servers.http.messages import Call, Refusal
from storage_cluster.servers.proxy.replicas import Replicas, first_and_rest, with_handoffs
from storage_cluster.topology import Device

_FINAL_STATUSES = (409, 412, 413, 416, 422)
"""Answers before the body that stand: asking another server would not change them."""


class Upload:
    """A PUT to all replicas of an object."""

    def __init__(
        self, replicas: Replicas, names: tuple[str, str, str], headers_for: list[dict[str, str]], policy: int = 0
    ) -> None:
        self._replicas = replicas
        _, self._partition, self._ring = replicas.placement(*names, policy=policy)
        self.quorum = self._ring.quorum
        """So many servers must have it."""
        self.etag = ""
        """Of an object that the servers do not see whole, once it was sent; else theirs is its own."""
        self._names = names
        self._headers_for = headers_for

    async def run(self, call: Call) -> list[BackendAnswer]:
        """Connect, pass the body on, collect answers. Raises: Refusal (503) without a quorum, ClientGone."""
        uploads = [upload for upload in await self._connect_all() if upload is not None]
        try:
            open_ones = self._open_or_refuse(uploads)
            await call.body.proceed()
            await self._transfer(call, open_ones)
        except BaseException:
            for upload in uploads:
                upload.give_up()
            raise
        for upload in uploads:
            if upload not in open_ones:
                upload.give_up()
        answers = {asyncio.create_task(upload.answer()) for upload in open_ones}
        return await first_and_rest(answers, self.quorum, self._replicas.post_quorum_timeout_s)

    async def _connect_all(self) -> list[BackendUpload | None]:
        """An upload for each replica; None where no server accepted it."""
        handoffs = self._ring.handoffs(self._partition)
        connecting = [
            self._connect(headers, with_handoffs(device, handoffs), self._partition)
            for headers, device in zip(self._headers_for, self._ring.primaries(self._partition), strict=True)
        ]
        return await asyncio.gather(*connecting)

    async def _connect(
        self, headers: Mapping[str, str], devices: Iterator[Device], partition: int
    ) -> BackendUpload | None:
        """An upload that waits for the body, or got a final answer; None if no server accepted it."""
        backend = self._replicas.backend
        for device in devices:
            path = device_path(device, partition, *self._names)
            upload = await backend.upload(backend.service("object", device), path, headers)
            if upload is not None:
                if upload.early_status in (0, *_FINAL_STATUSES) or _is_success(upload):
                    return upload
                upload.give_up()
        return None

    def _open_or_refuse(self, uploads: list[BackendUpload]) -> list[BackendUpload]:
        early = [upload.early_status for upload in uploads]
        for status in _FINAL_STATUSES:
            if early.count(status) >= self._ring.quorum:
                raise Refusal(status)
        open_ones = [upload for upload in uploads if not upload.is_answered or _is_success(upload)]
        if len(open_ones) < self.quorum:
            raise Refusal(503)
        return open_ones

    async def _transfer(self, call: Call, uploads: list[BackendUpload]) -> None:
        """Pass the body on; a server that goes away, or answers before its end, is removed from the list.

        A server that knows the length may have stored everything, and answered, before the end is sent to it.
        """
        async for chunk in call.body:
            if chunk:
                await self._pass_on(chunk, uploads)
        if call.body.announces_trailers:
            for upload in uploads:
                upload.end_with_trailers(call.body.trailers)
        else:
            await self._pass_on(b"", uploads)

    async def _pass_on(self, chunk: bytes, uploads: list[BackendUpload]) -> None:
        for upload in list(uploads):
            if not await send_chunk(chunk, upload):
                uploads.remove(upload)
        if len(uploads) < self.quorum:
            raise Refusal(503)


def _is_success(upload: BackendUpload) -> bool:
    return upload.early_status // 100 == 2


async def send_chunk(chunk: bytes, upload: BackendUpload) -> bool:
    """Send a piece, empty at the end; False if the server is gone, refuses, or answers before it has the whole body."""
    if upload.is_answered:
        return _is_success(upload) and not chunk
    upload.send(chunk)
    return not upload.is_blocked or await upload.wait_for_room() or _is_success(upload)
