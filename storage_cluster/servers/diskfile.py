"""Objects on disk: one file for each version, never changed once it has its name.

`<device>/objects/<partition>/<last 3 of hash>/<hash>/` holds `<timestamp>.data` (body, then footer), `<timestamp>.meta`
(metadata of a later POST) and `<timestamp>.ts` (a deletion). The newest .data or .ts decides; a .meta counts if it is
newer than the .data. Older files are removed.

A .data file ends with a footer: the metadata as JSON, its length (8 bytes, big-endian), and a magic word. The ETag is
known only after the body, and one file means one fsync, on any file system.

A write goes to `<device>/tmp`, is synced, renamed, and the directory synced: when `commit` returns, the object survives
a power cut; before, nothing of it is to be seen.

Source: Swift, swift.obj.diskfile (layout, names, order of steps); where we depart: metadata in a footer, not in xattrs.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import uuid
from pathlib import Path

_MAGIC = b"twintap1"
_LENGTH_BYTES = 8
_TRAILER_LEN = _LENGTH_BYTES + len(_MAGIC)
_BOUND_TO_BODY = ("x-object-sysmeta-", "x-static-large-object")
"""Metadata that a POST does not replace."""


class DamagedFileError(Exception):
    """A data file without a sound footer."""


@dataclasses.dataclass(frozen=True)
class ObjectInfo:
    """What is known about a stored object."""

    data_path: Path
    size: int
    etag: str
    content_type: str
    data_timestamp: str  # of the body
    timestamp: str  # of the newest change, POST included
    metadata: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Versions:
    """The files of one object, newest first of each kind; "" if there is none."""

    data: str = ""
    meta: str = ""
    tombstone: str = ""

    @property
    def newest(self) -> str:
        """The timestamp of the last change of any kind."""
        return max(self.data, self.meta, self.tombstone)


class ObjectDir:
    """All versions of one object on one device."""

    def __init__(self, device_dir: Path, directory: Path) -> None:
        self._device_dir = device_dir
        self.directory = directory

    def versions(self) -> Versions:
        """The newest file of each kind."""
        newest = {".data": "", ".meta": "", ".ts": ""}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.directory):
                stem, suffix = os.path.splitext(name)
                newest[suffix] = max(newest.get(suffix, ""), stem)
        return Versions(newest[".data"], newest[".meta"], newest[".ts"])

    def read_info(self) -> ObjectInfo | None:
        """The object as it is now; None if there is none. Raises: DamagedFileError."""
        versions = self.versions()
        if versions.data <= versions.tombstone:
            return None
        path = self.directory / f"{versions.data}.data"
        try:
            footer, size = _read_footer(path)
        except FileNotFoundError:  # a newer version came between listing and opening
            return self.read_info()
        metadata, timestamp, content_type = footer["metadata"], versions.data, footer["content_type"]
        if versions.meta > versions.data:
            posted = json.loads((self.directory / f"{versions.meta}.meta").read_text("utf-8"))
            staying = {name: value for name, value in metadata.items() if name.lower().startswith(_BOUND_TO_BODY)}
            metadata, timestamp = posted["metadata"] | staying, versions.meta
            content_type = posted["content_type"] or content_type
        return ObjectInfo(path, size, footer["etag"], content_type, versions.data, timestamp, metadata)

    def new_file(self) -> "NewFile":
        """A file to write a new version to."""
        return NewFile(self._device_dir / "tmp" / uuid.uuid4().hex)

    def commit_data(self, new: "NewFile", timestamp: str, content_type: str, metadata: dict[str, str]) -> None:
        """Make a written file this object's newest version, for good."""
        new.write_footer({"etag": new.etag, "content_type": content_type, "metadata": metadata})
        self._commit(new, f"{timestamp}.data")

    def write_meta(self, timestamp: str, content_type: str, metadata: dict[str, str]) -> None:
        """Replace the metadata, for good."""
        new = self.new_file()
        new.write(json.dumps({"content_type": content_type, "metadata": metadata}).encode())
        self._commit(new, f"{timestamp}.meta")

    def write_tombstone(self, timestamp: str) -> None:
        """Delete the object, for good."""
        self._commit(self.new_file(), f"{timestamp}.ts")

    def _commit(self, new: "NewFile", name: str) -> None:
        new.sync()
        try:
            os.rename(new.path, self.directory / name)
        except FileNotFoundError:
            self.directory.mkdir(parents=True, exist_ok=True)
            os.rename(new.path, self.directory / name)
            _sync_directory(self.directory.parent)
        new.path = self.directory / name
        new.committed = True
        _sync_directory(self.directory)
        self._remove_old()

    def _remove_old(self) -> None:
        versions = self.versions()
        deciding = max(versions.data, versions.tombstone)
        for name in os.listdir(self.directory):
            stem, suffix = os.path.splitext(name)
            newest_meta = suffix == ".meta" and stem == versions.meta
            if stem < deciding or (suffix == ".meta" and not newest_meta):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.directory / name)


class NewFile:
    """A version in the making."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.committed = False
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    @property
    def etag(self) -> str:
        """MD5 of what was written so far."""
        return self._md5.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append to the body."""
        self._md5.update(chunk)
        self.size += len(chunk)
        _write_all(self._descriptor, chunk)

    def write_footer(self, footer: dict[str, object]) -> None:
        """End the body."""
        encoded = json.dumps(footer).encode()
        _write_all(self._descriptor, encoded + len(encoded).to_bytes(_LENGTH_BYTES, "big") + _MAGIC)

    def sync(self) -> None:
        """Bring it to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of it; without a commit it disappears."""
        os.close(self._descriptor)
        if not self.committed:
            self.path.unlink(missing_ok=True)


def _read_footer(path: Path) -> tuple[dict, int]:
    with open(path, "rb") as file:
        file_len = file.seek(0, os.SEEK_END)
        file.seek(max(0, file_len - _TRAILER_LEN))
        trailer = file.read()
        footer_len = int.from_bytes(trailer[:_LENGTH_BYTES], "big")
        size = file_len - _TRAILER_LEN - footer_len
        if trailer[_LENGTH_BYTES:] != _MAGIC or size < 0:
            raise DamagedFileError(path)
        file.seek(size)
        return json.loads(file.read(footer_len)), size


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
