"""The reconstructor: sees to it that each primary has its fragment of every object whose policy is erasure coding.

Like the replicator it compares digests with the other primaries of a partition and offers what differs; but each of
them has another fragment, so versions are compared, not files (`fragments.held_as`), and what a device lacks is made:

    1. Offer a primary the newest durable versions of here, deletions and metadata. What it has, only not durable, it
       makes durable itself.
    2. For a version that it lacks, read `data_fragments` fragments of it from the other devices, rebuild its fragment
       segment by segment, and send that as a file, with the metadata of the fragment here.
    3. A fragment here that belongs to another device (this one was a handoff, or a primary of an older ring) is sent
       there as it is, and removed here once that device has it, or something newer.
    4. Archives that never became durable, and deletions, are removed after `reclaim_age_s`.

So a version of which fewer than `data_fragments` are left is not brought back; it stays as it is.

Source: Swift, swift.obj.reconstructor (sync and revert jobs).
"""

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from urllib.parse import quote

from storage_cluster.daemons.object_replicator import (
    TAKEN,
    Asked,
    ObjectReplicator,
    Work,
    policy_headers,
)
from storage_cluster.erasure import Code, DamagedFragmentError
from storage_cluster.ring import Ring
from storage_cluster.servers.disks import fragments, layout
from storage_cluster.servers.disks.diskfile import DamagedFileError, footer_bytes, read_footer
from storage_cluster.servers.disks.fragments import Archive, Preference, current_files, held_as, preferences_text
from storage_cluster.servers.http.backend import BackendStream
from storage_cluster.servers.http.messages import BrokenOff
from storage_cluster.servers.object.replication import MARK, Held, names_in
from storage_cluster.servers.object.server import PREFERENCES
from storage_cluster.topology import Device


class Reconstructor(ObjectReplicator):
    """Looks after the fragments on this host's devices."""

    def _is_ours(self, ring: Ring) -> bool:
        return self._code(ring) is not None

    def _compared_files(self, primaries: tuple[Device, ...], here: Device | None) -> Held:
        return _others_files if here is None else functools.partial(held_as, index=primaries.index(here))

    def _device_of(self, work: Work, device: Device) -> Asked:
        return Asked(device, work.primaries.index(device))

    def _is_due(self, work: Work) -> bool:
        return super()._is_due(work) or (work.here is not None and bool(_strays(work)))

    async def _replicate(self, ring: Ring, works: list[Work]) -> None:
        for work in works:
            await self._send_home(work)
        await super()._replicate(ring, [work for work in works if work.here is not None])

    async def _send_home(self, work: Work) -> None:
        """Give the fragments of others to their devices, and a handoff's deletions and metadata to all."""
        strays = await asyncio.to_thread(_strays, work)
        for asked in [self._device_of(work, device) for device in work.primaries]:
            offered = [(path_hash, sorted(held_as(names, asked.fragment or 0))) for path_hash, names in strays.items()]
            if not await self._offer(work, asked, [item for item in offered if item[1]]):
                return
        if strays:
            await asyncio.to_thread(_remove, work.directory, strays)
            self._counts["fragments of other devices sent home"] += len(strays)

    async def _send(self, work: Work, asked: Asked, path_hash: str, name: str) -> bool:
        assert asked.fragment is not None
        name = fragments.with_index(name, asked.fragment)
        archive = Archive.of(name)
        stored = work.directory / path_hash[-3:] / path_hash
        if archive is None or (stored / name).exists():
            return await super()._send(work, asked, path_hash, name)
        code = self._code(work.ring)
        assert code is not None
        try:
            status = await _Rebuilding(self, work, asked.device, code).run(path_hash, archive)
        except (BrokenOff, DamagedFragmentError, DamagedFileError, FileNotFoundError):
            status = 0
        self._counts["fragments rebuilt"] += status == TAKEN[0]
        self._counts["fragments not rebuilt"] += status not in TAKEN
        return status in TAKEN

    async def open_fragment(
        self, work: Work, device: Device, path_hash: str, wanted: Preference
    ) -> BackendStream | None:
        """A fragment of a version on a device, to read; None if it has none, or does not answer."""
        backend = self._context.backend
        path = f"/{device.name}/{work.partition}/{path_hash}"
        headers = {MARK: "True", PREFERENCES: preferences_text([wanted]), **policy_headers(work.ring)}
        stream = await backend.open(backend.service("object", device), "GET", path, headers)
        if stream is None:
            return None
        is_wanted = stream.status == 200 and stream.headers.get("X-Backend-Data-Timestamp") == wanted.timestamp
        if is_wanted and int(stream.headers[fragments.INDEX]) not in wanted.exclude:
            return stream
        stream.close()
        return None

    async def send_archive(
        self, work: Work, device: Device, path: str, length: int, chunks: AsyncIterator[bytes]
    ) -> int:
        """Send a file of so many bytes; the server's status, 0 without an answer."""
        backend = self._context.backend
        headers = {MARK: "True", "Content-Length": str(length), **policy_headers(work.ring)}
        upload = await backend.upload(backend.service("object", device), path, headers)
        if upload is None:
            return 0
        try:
            async for chunk in chunks:
                upload.send(chunk)
                if upload.is_answered or (upload.is_blocked and not await upload.wait_for_room()):
                    break
        except BaseException:
            upload.give_up()
            raise
        return (await upload.answer()).status


class _Rebuilding:
    """Makes one fragment of one object from others, and sends it to its device."""

    def __init__(self, daemon: Reconstructor, work: Work, device: Device, code: Code) -> None:
        self._daemon = daemon
        self._work = work
        self._device = device
        self._code = code

    async def run(self, path_hash: str, archive: Archive) -> int:
        """The device's status. Raises: BrokenOff, DamagedFragmentError if too few sound fragments can be read."""
        footer = await asyncio.to_thread(_footer, self._work.directory / path_hash[-3:] / path_hash, archive.timestamp)
        footer["metadata"][fragments.INDEX] = str(archive.index)
        size = int(footer["metadata"][fragments.SIZE])
        footer["etag"] = hashlib.md5(b"", usedforsecurity=False).hexdigest()  # the real one is as long
        length = self._code.archive_len(size) + len(footer_bytes(footer))
        path = f"/{self._device.name}/{self._work.partition}/{path_hash}/{quote(str(archive))}"
        sources = await self._open(path_hash, archive)
        try:
            chunks = self._file(sources, archive.index, size, footer)
            return await self._daemon.send_archive(self._work, self._device, path, length, chunks)
        finally:
            for stream in sources.values():
                stream.close()

    async def _open(self, path_hash: str, archive: Archive) -> dict[int, BackendStream]:
        """Enough fragments to read, by index. Raises: BrokenOff."""
        ring, found = self._work.ring, dict[int, BackendStream]()
        for device in (*self._work.primaries, *ring.handoffs(self._work.partition)):
            if device == self._device:
                continue
            wanted = Preference(archive.timestamp, frozenset({archive.index, *found}))
            stream = await self._daemon.open_fragment(self._work, device, path_hash, wanted)
            if stream is not None:
                found[int(stream.headers[fragments.INDEX])] = stream
            if len(found) == self._code.data_fragments:
                return found
        for stream in found.values():
            stream.close()
        raise BrokenOff

    async def _file(
        self, sources: Mapping[int, BackendStream], index: int, size: int, footer: dict
    ) -> AsyncIterator[bytes]:
        """The rebuilt archive, and its footer."""
        md5 = hashlib.md5(usedforsecurity=False)
        readers = {one: _ExactReader(stream) for one, stream in sources.items()}
        for number in range(-(-size // self._code.segment_bytes)):
            length = self._code.fragment_len(self._code.segment_len(number, size))
            parts = await asyncio.gather(*[reader.read(length) for reader in readers.values()])
            for part, one in zip(parts, readers, strict=True):
                if not self._code.is_sound(part, one):
                    raise DamagedFragmentError
            fragment = self._code.rebuild(parts, index)
            md5.update(fragment)
            yield fragment
        yield footer_bytes({**footer, "etag": md5.hexdigest()})


class _ExactReader:
    """Reads a body by lengths."""

    def __init__(self, stream: BackendStream) -> None:
        self._chunks = aiter(stream.chunks())
        self._buffer = b""

    async def read(self, length: int) -> bytes:
        """The next bytes. Raises: BrokenOff if there are not so many."""
        while len(self._buffer) < length:
            chunk = await anext(self._chunks, b"")
            if not chunk:
                raise BrokenOff
            self._buffer += chunk
        found, self._buffer = self._buffer[:length], self._buffer[length:]
        return found


def _others_files(names: Collection[str]) -> set[str]:
    """Of an object's files on a handoff, those that some primary should have."""
    current = current_files(names)
    return {name for name in current if (archive := Archive.of(name)) is None or archive.durable}


def _strays(work: Work) -> dict[str, list[str]]:
    """Files on a device that belong to others, by object: of a primary the fragments of other indexes."""
    own = None if work.here is None else work.primaries.index(work.here)
    found: dict[str, list[str]] = {}
    for suffix in layout.suffixes(work.root, work.ring.directory, work.partition):
        for directory in sorted((work.directory / suffix).iterdir()):
            names = sorted(_others_files(names_in(directory)))
            if own is not None:
                names = [name for name in names if (archive := Archive.of(name)) and archive.index != own]
            if names:
                found[directory.name] = names
    return found


def _remove(directory: Path, files: Mapping[str, list[str]]) -> None:
    """Remove exactly these files; what was written since stays."""
    for path_hash, names in files.items():
        place = directory / path_hash[-3:] / path_hash
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (place / name).unlink()
        layout.remove_if_empty(place)


def _footer(directory: Path, timestamp: str) -> dict:
    """The footer of a fragment of that version here. Raises: DamagedFileError, FileNotFoundError."""
    for name in names_in(directory):
        archive = Archive.of(name)
        if archive is not None and archive.timestamp == timestamp:
            return read_footer(directory / name)[0]
    raise FileNotFoundError(directory)
