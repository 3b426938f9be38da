"""One object on its way to several storage servers at once.

    client ──▶ proxy ─ PUT, Expect: 100-continue ─▶ object servers       each on a connection of its own
                     ◀─ 100 Continue ───────────── object servers        who answers otherwise, or not at all, is
                     ─ body ─────────────────────▶                       replaced by a handoff before the body starts
                     ◀─ 201 Created ─────────────

The body flows through: a chunk goes to every server before the next is taken from the client, so the slowest server
sets the pace and an object of any size needs little memory.

Source: Swift, swift.proxy.controllers.obj (`ReplicatedObjectController`, `_connect_put_node`, `_transfer_data`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping

from storage_cluster.servers.backend import NODE_TIMEOUT_S, Backend, BackendAnswer, device_path
from storage_cluster.servers.messages import Call, ClientGone, Refusal
from storage_cluster.servers.proxy.replicas import Replicas, first_and_rest, with_handoffs
from storage_cluster.topology import Device

_QUEUE_CHUNKS = 16
_FINAL_STATUSES = (409, 412, 413, 416, 422)
"""Answers before the body that stand: asking another server would not change them."""


class Conduit:
    """A PUT to one storage server."""

    def __init__(self, backend: Backend, device: Device, path: str, headers: Mapping[str, str]) -> None:
        self.device = device
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE_CHUNKS)
        self._asked = asyncio.Event()
        upload = backend.upload(backend.service("object", device), path, headers, self._body())
        self.task = asyncio.create_task(upload)

    async def ready(self) -> bool:
        """Wait until the server asks for the body; False if it answered something else, or nothing."""
        asked = asyncio.create_task(self._asked.wait())
        await asyncio.wait({asked, self.task}, timeout=NODE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        return self._asked.is_set() and not self.task.done()

    @property
    def early_status(self) -> int:
        """What the server said instead of asking for the body; 0 if nothing."""
        return self.task.result().status if self.task.done() and not self.task.cancelled() else 0

    async def send(self, chunk: bytes | None) -> bool:
        """Pass on a chunk, None at the end; False if the server is gone."""
        if not self._chunks.full():
            self._chunks.put_nowait(chunk)
            return not self.task.done()
        put = asyncio.create_task(self._chunks.put(chunk))
        await asyncio.wait({put, self.task}, timeout=NODE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if put.done() and not self.task.done():
            return True
        put.cancel()
        self.give_up()
        return False

    def give_up(self) -> None:
        """Break off: the server sees an incomplete body and keeps nothing."""
        self.task.cancel()

    async def _body(self) -> AsyncIterator[bytes]:
        self._asked.set()
        while (chunk := await self._chunks.get()) is not None:
            yield chunk


class Upload:
    """A PUT to all replicas of an object."""

    def __init__(self, replicas: Replicas, names: tuple[str, str, str], headers_for: list[dict[str, str]]) -> None:
        self._replicas = replicas
        self._names = names
        self._headers_for = headers_for

    async def run(self, call: Call) -> list[BackendAnswer]:
        """Connect, pass the body on, collect answers. Raises: Refusal (503) without a quorum, ClientGone."""
        _, partition, ring = self._replicas.placement(*self._names)
        handoffs = ring.handoffs(partition)
        connecting = [
            self._connect(headers, with_handoffs(device, handoffs), partition)
            for headers, device in zip(self._headers_for, ring.primaries(partition), strict=True)
        ]
        conduits = await asyncio.gather(*connecting)
        try:
            open_ones = self._open_or_refuse(conduits)
            await call.body.proceed()
            await self._transfer(call, open_ones)
            return await first_and_rest({conduit.task for conduit in open_ones}, self._replicas.quorum)
        except (Refusal, ClientGone, asyncio.CancelledError):
            for conduit in conduits:
                conduit.give_up()
            raise

    async def _connect(self, headers: Mapping[str, str], devices: Iterator[Device], partition: int) -> Conduit:
        for device in devices:
            path = device_path(device, partition, *self._names)
            conduit = Conduit(self._replicas.backend, device, path, headers)
            if await conduit.ready() or conduit.early_status in _FINAL_STATUSES:
                break
            conduit.give_up()
        return conduit

    def _open_or_refuse(self, conduits: list[Conduit]) -> list[Conduit]:
        open_ones = [conduit for conduit in conduits if not conduit.task.done() and not conduit.task.cancelling()]
        for status in _FINAL_STATUSES:
            if sum(conduit.early_status == status for conduit in conduits) >= self._replicas.quorum:
                raise Refusal(status)
        if len(open_ones) < self._replicas.quorum:
            raise Refusal(503)
        return open_ones

    async def _transfer(self, call: Call, conduits: list[Conduit]) -> None:
        async for chunk in call.body:
            await self._pass_on(chunk, conduits)
        await self._pass_on(None, conduits)

    async def _pass_on(self, chunk: bytes | None, conduits: list[Conduit]) -> None:
        for conduit in list(conduits):
            if not await conduit.send(chunk):
                conduits.remove(conduit)
        if len(conduits) < self._replicas.quorum:
            raise Refusal(503)
