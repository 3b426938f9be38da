"""Reading an object from its fragments: any `data_fragments` of one moment give it back, segment by segment.

    1. Ask as many devices as fragments are needed, the primaries first, in any order; then more, one for each that is
       missing, handoffs last. A request says which fragments are there already (X-Backend-Fragment-Preferences).
    2. Sort the answers by the moment of their data. Chosen is the newest moment that some device holds as durable, and
       of which there are enough fragments; a deletion that is later than it wins.
    3. Read a fragment from each device, check its checksum, decode the segment, send what was asked of it.
    4. A device that breaks off, or sends a damaged fragment, is replaced from that segment on by another one that has
       a fragment of the same moment.

A range of the object is asked of the devices as the range of whole fragments around it; several ranges are read one
after the other, each with requests of its own, after a HEAD that finds the fragments.

Source: Swift, swift.proxy.controllers.obj (`ECObjectController`, `ECGetResponseCollection`).
"""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from http import HTTPStatus

from multidict import CIMultiDict

from storage_cluster.erasure import Code, DamagedFragmentError
from storage_cluster.servers.disks import fragments
from storage_cluster.servers.disks.fragments import Preference, preferences_text
from storage_cluster.servers.http import ranges
from storage_cluster.servers.http.backend import BackendStream
from storage_cluster.servers.http.conditions import ETAG_IS_AT
from storage_cluster.servers.http.messages import ACCESS, BrokenOff, Call, Refusal, Reply
from storage_cluster.servers.http.values import is_true
from storage_cluster.servers.object.server import DURABLE, FRAGMENTS, PREFERENCES
from storage_cluster.servers.proxy.object_reading import (
    THERE,
    Absence,
    ObjectReader,
    conditions_and_range,
    end_to_end_headers,
)
from storage_cluster.servers.proxy.replicas import Replicas
from storage_cluster.topology import Device

Names = tuple[str, str, str]
_UNCHANGED_OR_UNWANTED = (304, 412)
SKIPPED_MAX_BYTES = 4_194_304
"""So much of an archive may be read for nothing; what is farther off is asked for anew."""


@dataclasses.dataclass
class _Moment:
    """The fragments of one version that were found, by index."""

    timestamp: str
    held: dict[int, BackendStream] = dataclasses.field(default_factory=dict)
    is_durable: bool = False


class FragmentReader(ObjectReader):
    """Handles GET and HEAD of objects whose policy is erasure coding."""

    def __init__(self, replicas: Replicas, policy: int, code: Code) -> None:
        super().__init__(replicas, policy)
        self._code = code

    async def read(self, call: Call, names: Names) -> Reply:
        """The object, or that part of it which is asked for. Raises: Refusal (404, 412, 503)."""
        call = dataclasses.replace(call, headers=CIMultiDict(call.headers))
        call.headers[ETAG_IS_AT] = ",".join(filter(None, (call.headers.get(ETAG_IS_AT), fragments.ETAG)))
        if call.method == "HEAD":
            reply = await super().read(call, names)
            _show_whole(reply.headers)
            return reply
        search = _Search(self, call, names, self._code)
        found = await search.run()
        newest = max(found.held.values(), key=lambda stream: stream.headers["X-Backend-Timestamp"])
        headers = end_to_end_headers(newest.headers)
        size = int(headers[fragments.SIZE])
        _show_whole(headers)
        if newest.status in _UNCHANGED_OR_UNWANTED:
            _close(found.held.values())
            headers.popall("Content-Type", None)
            return Reply(newest.status, headers)
        sources = [_Source(index, stream, has_body=search.has_bodies) for index, stream in found.held.items()]
        body = _Body(self, call, names, self._code, found.timestamp, size, sources)
        headers.popall("Content-Range", None)
        reply = ranges.reply_with_ranges(200, headers, size, call.headers.get("Range"), body.chunks)
        if reply.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            reply.headers.popall("Content-Type", None)  # as in Swift, though not with replicas
        reply.on_close = body.close
        return reply

    def devices(self, call: Call, names: Names) -> list[Device]:
        """Where fragments may be, in the order to ask."""
        return self._replicas.readable(*names, policy=self._policy, reserved=ACCESS in call.headers)

    def primaries(self, names: Names) -> tuple[Device, ...]:
        """Where they should be."""
        _, partition, ring = self._replicas.placement(*names, policy=self._policy)
        return ring.primaries(partition)

    async def ask(
        self, call: Call, names: Names, device: Device, headers: dict[str, str], wanted: Iterable[Preference]
    ) -> BackendStream | None:
        """A device's answer; None if it gives none."""
        return await self._ask(call, names, device, headers | {PREFERENCES: preferences_text(wanted)})


class _Search:
    """Finds enough fragments of one moment."""

    def __init__(self, reader: FragmentReader, call: Call, names: Names, code: Code) -> None:
        self._reader = reader
        self._names = names
        self._code = code
        self._newest = is_true(call.headers.get("X-Newest"))
        self._headers = conditions_and_range(call)
        self._headers.pop("Range", None)
        text = call.headers.get("Range")
        self.has_bodies = "," not in (text or "")
        """Whether what is found can be read; else its devices are asked for each of several ranges."""
        if not self.has_bodies:
            call = dataclasses.replace(call, method="HEAD")
        elif (asked := _archive_range(text, code)) is not None:
            self._headers["Range"] = asked
        self._call = call
        self._moments: dict[str, _Moment] = {}
        self._elsewhere: list[tuple[Device, dict[str, list[int]]]] = []
        self._absent = Absence()
        self._gone = ""

    async def run(self) -> _Moment:
        """The newest version that can be read. Raises: Refusal."""
        try:
            await self._collect()
            found = self._choose()
        except BaseException:
            _close(stream for moment in self._moments.values() for stream in moment.held.values())
            raise
        for moment in self._moments.values():
            unused = list(moment.held)[self._code.data_fragments :] if moment is found else list(moment.held)
            _close(moment.held.pop(index) for index in unused)
        return found

    async def _collect(self) -> None:
        devices = self._reader.devices(self._call, self._names)
        primaries = self._reader.primaries(self._names)
        while True:
            best = self._best()
            missing = self._code.data_fragments - (len(best.held) if best else 0)
            if self._newest and set(primaries) & set(devices):
                missing = len(primaries)
            if missing <= 0:
                return
            batch, devices = devices[:missing], devices[missing:]
            if not batch:
                batch = self._others_with(best)
            if not batch:
                return
            asking = [
                self._reader.ask(self._call, self._names, one, self._headers, self._preferences()) for one in batch
            ]
            for device, answer in zip(batch, await asyncio.gather(*asking), strict=True):
                if answer is not None:
                    self._take(device, answer, is_primary=device in primaries)

    def _choose(self) -> _Moment:
        """Raises: Refusal."""
        durable = [moment for moment in self._durable() if moment.timestamp > self._gone]
        for moment in durable:
            if len(moment.held) >= self._code.data_fragments:
                return moment
        if durable:
            raise Refusal(503)
        for _ in (stream for moment in self._moments.values() for stream in moment.held):
            self._absent.count(404, counts=True)  # what is not durable is not there
        quorum = len(self._reader.primaries(self._names)) // 2 + 1
        raise self._absent.refusal(quorum, deleted=bool(self._gone))

    def _take(self, device: Device, answer: BackendStream, *, is_primary: bool) -> None:
        timestamp = answer.headers.get("X-Backend-Timestamp", "")
        if answer.status not in THERE or fragments.INDEX not in answer.headers:
            answer.close()
            self._absent.count(answer.status, counts=is_primary or bool(timestamp))
            self._gone = max(self._gone, timestamp)
            return
        moment = self._moment(answer.headers["X-Backend-Data-Timestamp"])
        if DURABLE in answer.headers:
            self._moment(answer.headers[DURABLE]).is_durable = True
        self._elsewhere.append((device, json.loads(answer.headers.get(FRAGMENTS, "{}"))))
        index = int(answer.headers[fragments.INDEX])
        if index in moment.held:
            answer.close()
        else:
            moment.held[index] = answer

    def _moment(self, timestamp: str) -> _Moment:
        return self._moments.setdefault(timestamp, _Moment(timestamp))

    def _durable(self) -> list[_Moment]:
        """Newest first."""
        return sorted((one for one in self._moments.values() if one.is_durable), key=lambda one: one.timestamp)[::-1]

    def _best(self) -> _Moment | None:
        return next(iter(self._durable()), None)

    def _preferences(self) -> list[Preference]:
        return [Preference(moment.timestamp, frozenset(moment.held)) for moment in self._durable()]

    def _others_with(self, best: _Moment | None) -> list[Device]:
        """Devices that gave a fragment of another moment, and have one of this, too."""
        if best is None:
            return []
        found = [
            device
            for device, held in self._elsewhere
            if set(held.get(best.timestamp, ())) - best.held.keys()
            and device not in [stream.device for stream in best.held.values()]
        ]
        self._elsewhere = []
        return found


class _Source:
    """A part of one archive, as a device sends it."""

    def __init__(self, index: int, stream: BackendStream, *, has_body: bool = True) -> None:
        self.index = index
        self.device = stream.device
        self._stream: BackendStream | None = stream
        self._chunks = aiter(stream.chunks())
        self._buffer = b""
        self._position, self._stop = _place_of(stream) if has_body else (0, 0)

    def has(self, begin: int, length: int) -> bool:
        """Whether these bytes of the archive are to come, and not long after others."""
        return self._position <= begin and begin + length <= self._stop and begin - self._position <= SKIPPED_MAX_BYTES

    async def read(self, begin: int, length: int) -> bytes:
        """Bytes of the archive that are to come. Raises: BrokenOff."""
        await self._read(begin - self._position)
        return await self._read(length)

    async def _read(self, length: int) -> bytes:
        parts, left = [self._buffer], length - len(self._buffer)
        while left > 0:
            chunk = await anext(self._chunks, b"")
            if not chunk:
                raise BrokenOff
            parts.append(chunk)
            left -= len(chunk)
        found = b"".join(parts)
        self._buffer = found[length:]
        self._position += length
        return found[:length]

    def close(self) -> None:
        """Release the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Body:
    """An object's bytes, decoded as fragments arrive."""

    def __init__(
        self,
        reader: FragmentReader,
        call: Call,
        names: Names,
        code: Code,
        timestamp: str,
        size: int,
        sources: list[_Source],
    ) -> None:
        self._reader = reader
        self._call = call
        self._names = names
        self._code = code
        self._timestamp = timestamp
        self._size = size
        self._sources = sources
        self._failed: set[Device | None] = set()

    def close(self) -> None:
        """Release all connections."""
        for source in self._sources:
            source.close()

    async def chunks(self, start: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes from start up to stop. Raises: BrokenOff if too few devices can go on."""
        segment_bytes = self._code.segment_bytes
        last = -(-stop // segment_bytes)
        for number in range(start // segment_bytes, last):
            data = await self._segment(number, last)
            begin = number * segment_bytes
            yield data[max(0, start - begin) : stop - begin]

    async def _segment(self, number: int, last: int) -> bytes:
        """One segment, of those up to `last`."""
        begin, length = self._place(number)
        until = sum(self._place(last - 1))
        reading = [self._fragment(source, begin, length) for source in self._sources]
        found = await asyncio.gather(*reading)
        for place in range(len(found)):
            while found[place] is None:
                other = await self._replace(self._sources[place], begin, until)
                found[place] = await self._fragment(other, begin, length)
        try:
            return self._code.decode([fragment for fragment in found if fragment is not None])
        except DamagedFragmentError:
            raise BrokenOff from None

    def _place(self, number: int) -> tuple[int, int]:
        """Where in an archive a segment's fragment begins, and its length."""
        length = self._code.fragment_len(self._code.segment_len(number, self._size))
        return number * self._code.whole_fragment_len, length

    async def _fragment(self, source: _Source, begin: int, length: int) -> bytes | None:
        """A fragment that is sound; None if this source does not give it."""
        if not source.has(begin, length):
            return None
        try:
            fragment = await source.read(begin, length)
        except BrokenOff:
            fragment = b""
        if self._code.is_sound(fragment, source.index):
            return fragment
        self._failed.add(source.device)
        return None

    async def _replace(self, source: _Source, begin: int, until: int) -> _Source:
        """Another device to go on from, or the same one unless it failed. Raises: BrokenOff if there is none."""
        source.close()
        others = [each for each in self._sources if each is not source]
        busy = {each.device for each in others} | self._failed
        for device in self._candidates(source.device):
            if device in busy:
                continue
            found = await self._open(device, begin, until, [each.index for each in others])
            if found is not None:
                self._sources[self._sources.index(source)] = found
                return found
            self._failed.add(device)
        raise BrokenOff

    def _candidates(self, before: Device | None) -> list[Device]:
        """Devices to read from: the one before first, if only other bytes are wanted of it."""
        devices = self._reader.devices(self._call, self._names)
        return sorted(devices, key=lambda device: device != before)

    async def _open(self, device: Device, begin: int, until: int, taken: Sequence[int]) -> _Source | None:
        """The archive of a device from `begin` on, if it has one of this version and another index."""
        headers = {"Range": f"bytes={begin}-{until - 1}"}
        if ACCESS in self._call.headers:
            headers[ACCESS] = self._call.headers[ACCESS]
        wanted = Preference(self._timestamp, frozenset(taken))
        answer = await self._reader.ask(self._call, self._names, device, headers, [wanted])
        if answer is None:
            return None
        index = int(answer.headers.get(fragments.INDEX, "-1"))
        is_same = answer.headers.get("X-Backend-Data-Timestamp") == self._timestamp and index not in taken
        if answer.status == 206 and is_same:
            return _Source(index, answer)
        answer.close()
        return None


def _archive_range(header: str | None, code: Code) -> str | None:
    """The Range of an archive that has the fragments of one range of the object; None for the whole archive."""
    found = ranges.single_range(header)
    if found is None:
        return None
    (first, last), segment, fragment = found, code.segment_bytes, code.whole_fragment_len
    if first is None:
        assert last is not None
        return f"bytes=-{(-(-last // segment) + 1) * fragment}"  # one more: the last segment may be short
    stop = "" if last is None else str((last // segment + 1) * fragment - 1)
    return f"bytes={first // segment * fragment}-{stop}"


def _place_of(stream: BackendStream) -> tuple[int, int]:
    """Where in its archive a body begins and ends."""
    if stream.status not in (200, 206):
        return 0, 0
    length = int(stream.headers["Content-Length"])
    text = stream.headers.get("Content-Range", "bytes 0-")
    first = int(text.removeprefix("bytes ").partition("-")[0])
    return first, first + length


def without_archive(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Headers without what they say of an archive."""
    return CIMultiDict({k: v for k, v in headers.items() if not k.title().startswith(fragments.SYSMETA)})


def _show_whole(headers: CIMultiDict[str]) -> None:
    """Turn the headers of an archive into those of the object."""
    etag, size = headers.get(fragments.ETAG), headers.get(fragments.SIZE)
    for name in headers.keys() - without_archive(headers).keys():
        headers.popall(name, None)
    if etag is not None:
        headers["Etag"] = etag
    if size is not None and "Content-Length" in headers:
        headers["Content-Length"] = size


def _close(streams: Iterable[BackendStream]) -> None:
    for stream in streams:
        stream.close()
