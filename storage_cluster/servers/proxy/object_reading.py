"""Reading an object: tries the replicas in turn, and continues at the next one if a body breaks off.

A replica with a later deletion takes precedence over one without. The answer is 404 if most primaries give it; if too
many of them do not answer, the state is unknown, and the answer is 503. With `X-Newest` all replicas are asked and the
newest is returned.

Source: Swift, swift.proxy.controllers.base (`GETorHEADHandler`).
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from http import HTTPStatus

from multidict import CIMultiDict

from storage_cluster.servers.http import ranges
from storage_cluster.servers.http.backend import BackendStream, device_path
from storage_cluster.servers.http.messages import ACCESS, BrokenOff, Call, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.topology import Device

_PASSED_ON = (
    *("Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "X-Backend-Etag-Is-At"),
    ACCESS,
)
_HOP_BY_HOP = (
    "Connection",
    "Transfer-Encoding",
    "Date",
    "Server",
    "X-Trans-Id",
    "X-Openstack-Request-Id",
    "Keep-Alive",
)
THERE = (200, 206, 304, 412, 416)
"""What only a replica that has the object answers; 412 also one that has not, then without its timestamp."""


class ObjectReader:
    """Handles GET and HEAD of objects."""

    def __init__(self, replicas: Replicas, policy: int = 0) -> None:
        """`policy` is that of the objects' container."""
        self._replicas = replicas
        self._policy = policy
        self._policy_headers = replicas.policy_headers(policy)

    async def read(self, call: Call, names: tuple[str, str, str]) -> Reply:
        """The object, or that part of it which is asked for. Raises: Refusal (404, 412, 503)."""
        devices = iter(self._replicas.readable(*names, policy=self._policy, reserved=ACCESS in call.headers))
        newest = is_true(call.headers.get("X-Newest"))
        found = await self._search(call, names, devices, conditions_and_range(call), newest=newest)
        reply = Reply(found.status, end_to_end_headers(found.headers))
        if call.method == "HEAD":
            found.close()
            return reply
        body = _Body(self, call, names, found, devices)
        reply.body, reply.on_close = body.chunks(), body.close
        return reply

    async def _search(
        self,
        call: Call,
        names: tuple[str, str, str],
        devices: Iterable[Device],
        headers: Mapping[str, str],
        *,
        newest: bool = False,
    ) -> BackendStream:
        """The first replica that has the object, or the newest of all. Raises: Refusal."""
        _, partition, ring = self._replicas.placement(*names, policy=self._policy)
        primaries, absent, gone, best = ring.primaries(partition), Absence(), "", None
        for device in devices:
            answer = await self._ask(call, names, device, headers)
            if answer is None:
                continue
            timestamp = answer.headers.get("X-Backend-Timestamp", "")
            if answer.status not in THERE or not timestamp:
                answer.close()
                absent.count(answer.status, counts=device in primaries or bool(timestamp))
                gone = max(gone, timestamp)
                continue
            best = _newer(best, answer)
            if not newest and best.headers["X-Backend-Timestamp"] > gone:
                break
        if best is not None and best.headers["X-Backend-Timestamp"] > gone:
            return best
        if best is not None:
            best.close()
        raise absent.refusal(ring.quorum, deleted=bool(gone))

    async def again(
        self, call: Call, names: tuple[str, str, str], devices: Iterable[Device], like: BackendStream, asked: str
    ) -> BackendStream | None:
        """Another replica with the very same body, from which to read a range; None if there is none."""
        access = {ACCESS: call.headers[ACCESS]} if ACCESS in call.headers else {}
        for device in devices:
            answer = await self._ask(call, names, device, {"Range": asked, **access})
            if answer is None:
                continue
            if answer.status == 206 and all(answer.headers.get(name) == like.headers.get(name) for name in _SAME_BODY):
                return answer
            answer.close()
        return None

    async def _ask(
        self, call: Call, names: tuple[str, str, str], device: Device, headers: Mapping[str, str]
    ) -> BackendStream | None:
        _, partition, _ = self._replicas.placement(*names, policy=self._policy)
        backend = self._replicas.backend
        path = device_path(device, partition, *names)
        sent = {**headers, **self._policy_headers, "X-Trans-Id": call.transaction_id}
        answer = await backend.open(backend.service("object", device), call.method, path, sent)
        if answer is not None:
            answer.device = device
        return answer

    async def is_disowned(self, call: Call, names: tuple[str, str, str], stream: BackendStream) -> bool:
        """Whether the server of a body that broke off has put the object aside: then what it sent was damaged."""
        assert stream.device is not None
        _, partition, _ = self._replicas.placement(*names, policy=self._policy)
        backend, path = self._replicas.backend, device_path(stream.device, partition, *names)
        headers = {**self._policy_headers, "X-Trans-Id": call.transaction_id}
        answer = await backend.request(backend.service("object", stream.device), "HEAD", path, headers)
        return answer.status == HTTPStatus.NOT_FOUND


_SAME_BODY = ("Etag", "X-Backend-Data-Timestamp")


class Absence:
    """Counts the answers of replicas without the object."""

    def __init__(self) -> None:
        self._statuses: list[int] = []

    def count(self, status: int, *, counts: bool) -> None:
        """One more; a handoff that knows nothing of the object does not count."""
        if counts or status not in (404, 412):
            self._statuses.append(status)

    def refusal(self, quorum: int, *, deleted: bool) -> Refusal:
        """The refusal that follows from these answers."""
        for status in (404, 412):
            if self._statuses.count(status) >= quorum or (deleted and status in self._statuses):
                return Refusal(status, "" if status == 412 else None)
        return Refusal(503)


class _Body:
    """A body that continues from another replica if one breaks off."""

    def __init__(
        self,
        reader: ObjectReader,
        call: Call,
        names: tuple[str, str, str],
        stream: BackendStream,
        devices: Iterable[Device],
    ) -> None:
        self._reader = reader
        self._call = call
        self._names = names
        self._stream = stream
        self._devices = devices

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes. Raises: BrokenOff if no replica can go on."""
        sent = 0
        while True:
            try:
                async for chunk in self._stream.chunks():
                    sent += len(chunk)
                    yield chunk
            except BrokenOff:
                await self._go_on(sent)
                sent = 0
                continue
            return

    async def _go_on(self, sent: int) -> None:
        rest = _rest(self._stream, sent)
        if rest is None or await self._reader.is_disowned(self._call, self._names, self._stream):
            raise BrokenOff
        found = await self._reader.again(self._call, self._names, self._devices, self._stream, rest)
        if found is None:
            raise BrokenOff
        self._stream.close()
        self._stream = found

    def close(self) -> None:
        """Release the connection."""
        self._stream.close()


def _rest(stream: BackendStream, sent: int) -> str | None:
    """The range not received yet; None for several ranges in one body, which cannot be resumed."""
    if stream.status == 200:
        return f"bytes={sent}-"
    if stream.status != 206 or not ranges.is_single(stream.headers):
        return None
    first, _, last = stream.headers["Content-Range"].removeprefix("bytes ").partition("/")[0].partition("-")
    return f"bytes={int(first) + sent}-{last}"


def _newer(best: BackendStream | None, other: BackendStream) -> BackendStream:
    if best is None:
        return other
    older, newer = sorted((best, other), key=lambda stream: stream.headers["X-Backend-Timestamp"])
    older.close()
    return newer


def conditions_and_range(call: Call) -> dict[str, str]:
    """The headers of a read that go to the storage servers."""
    return {name: call.headers[name] for name in _PASSED_ON if name in call.headers}


def end_to_end_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Headers of a storage server's answer that are the client's, too."""
    kept = CIMultiDict(headers)
    for name in _HOP_BY_HOP:
        kept.popall(name, None)
    return kept
