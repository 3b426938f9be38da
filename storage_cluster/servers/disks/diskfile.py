"""Objects on disk: one file for each version, never changed once it has its name.

`<device>/objects/<partition>/<last 3 of hash>/<hash>/` holds `<timestamp>.data` (body, then footer), `<timestamp>.meta`
(metadata of a later POST) and `<timestamp>.ts` (a deletion). The newest .data or .ts decides; a .meta counts if it is
newer than the .data. Older files are removed.

A .data file ends with a footer: the metadata as JSON, its MD5 and length (16 and 8 bytes, big-endian), a magic word.
The ETag is known only after the body, and one file means one fsync, on any file system. A .meta file is such a footer
without a body. So every bit of a file is covered: the body by the ETag, the footer by its own MD5.

A write goes to `<device>/tmp`, is synced, renamed, and the directory synced: when `commit` returns, the object survives
a power cut; before, nothing of it is to be seen. Directories that were made for it are synced, too, from the innermost
out, except where the file system's journal takes them along.

Source: Swift, swift.obj.diskfile (layout, names, order of steps); where we depart: metadata in a footer, not in xattrs.
"""

import contextlib
import dataclasses
import functools
import glob
import hashlib
import json
import os
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path

from storage_cluster.servers.disks import layout

_MAGIC = b"twintap2"
_DIGEST_BYTES = 16
_LENGTH_BYTES = 8
_TRAILER_LEN = _DIGEST_BYTES + _LENGTH_BYTES + len(_MAGIC)
_READ_BYTES = 1_048_576
_HELD_MAX_BYTES = 65_536
_BOUND_TO_BODY = ("x-object-sysmeta-", "x-static-large-object")
"""Metadata that a POST does not replace."""


class DamagedFileError(Exception):
    """A file was damaged: its footer is invalid, or its body does not match its ETag."""


@dataclasses.dataclass(frozen=True)
class ObjectInfo:
    """The metadata of a stored object."""

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
        """The object's current state; None if it does not exist. Raises: DamagedFileError."""
        versions = self.versions()
        if versions.data <= versions.tombstone:
            return None
        try:
            return self._info_of(f"{versions.data}.data", versions.data, versions.meta)
        except FileNotFoundError:  # a newer version came between listing and opening
            return self.read_info()

    def _info_of(self, name: str, written: str, posted: str) -> ObjectInfo:
        """What a data file, and the metadata file of that moment if it is later, say. Raises: DamagedFileError."""
        path = self.directory / name
        footer, size = read_footer(path)
        metadata, timestamp, content_type = footer["metadata"], written, footer["content_type"]
        if posted > written:
            later, _ = read_footer(self.directory / f"{posted}.meta")
            staying = {name: value for name, value in metadata.items() if name.lower().startswith(_BOUND_TO_BODY)}
            metadata, timestamp = later["metadata"] | staying, posted
            content_type = later["content_type"] or content_type
        return ObjectInfo(path, size, footer["etag"], content_type, written, timestamp, metadata)

    def new_file(self) -> "NewFile":
        """A file to write a new version to."""
        return NewFile(self._device_dir.joinpath("tmp", uuid.uuid4().hex))

    def commit_data(self, new: "NewFile", timestamp: str, content_type: str, metadata: dict[str, str]) -> None:
        """Make a written file this object's newest version, durably."""
        new.write_footer({"etag": new.etag, "content_type": content_type, "metadata": metadata})
        self._commit(new, f"{timestamp}.data")

    def write_meta(self, timestamp: str, content_type: str, metadata: dict[str, str]) -> None:
        """Replace the metadata, durably."""
        with contextlib.closing(self.new_file()) as new:
            new.write_footer({"content_type": content_type, "metadata": metadata})
            self._commit(new, f"{timestamp}.meta")

    def commit_copy(self, new: "NewFile", name: str) -> None:
        """Add a file received whole from another replica to this object, durably. Raises: DamagedFileError."""
        new.flush()
        check_file(new.path, name)
        self._commit(new, name)

    def check(self) -> int:
        """Read all files. Returns their bytes. Raises: DamagedFileError, FileNotFoundError if it changes meanwhile."""
        return sum(check_file(self.directory / name, name) for name in os.listdir(self.directory))

    def quarantine(self) -> None:
        """Move all versions into the quarantine."""
        layout.quarantine(self._device_dir, self.directory.parents[2].name, self.directory)

    @staticmethod
    def current(names: Collection[str]) -> set[str]:
        """Those of an object's files that count; the others are removed."""
        return newest_files(names)

    def write_tombstone(self, timestamp: str) -> None:
        """Delete the object, durably."""
        with contextlib.closing(self.new_file()) as new:
            self._commit(new, f"{timestamp}.ts")

    def _commit(self, new: "NewFile", name: str) -> None:
        # The directory before the file: what makes the file durable takes the directory along.
        directory, path = str(self.directory), str(self.directory / name)
        changed = _make_directory(directory)
        new.sync()
        try:
            os.rename(new.path, path)
        except FileNotFoundError:  # an empty directory was cleared away in between
            changed = _make_directory(directory)
            os.rename(new.path, path)
        new.path = Path(path)
        new.committed = True
        self._sync()
        if not _journals_in_order(str(self._device_dir)):
            for one in changed:
                _sync_directory(one)
        if not changed:
            self._remove_old()

    def _sync(self) -> None:
        _sync_directory(str(self.directory))

    def _remove_old(self) -> None:
        names = set(os.listdir(self.directory))
        for name in names - self.current(names):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.directory / name)


def newest_files(names: Collection[str]) -> set[str]:
    """The current files of an object: the newest .data or .ts, and the newest .meta if it is newer."""
    split = [os.path.splitext(name) for name in names]
    deciding = max((stem for stem, suffix in split if suffix in (".data", ".ts")), default="")
    newest_meta = max((stem for stem, suffix in split if suffix == ".meta"), default="")
    return {
        stem + suffix
        for stem, suffix in split
        if (stem >= deciding and suffix in (".data", ".ts")) or (suffix == ".meta" and stem == newest_meta > deciding)
    }


def check_file(path: Path, name: str) -> int:
    """Read a file to its end (`name` says what it is to be); its size. Raises: DamagedFileError, FileNotFoundError."""
    suffix = os.path.splitext(name)[1]
    if suffix not in (".data", ".meta"):
        return 0
    footer, size = read_footer(path)
    if suffix == ".data" and _md5_of(path, size) != footer["etag"]:
        raise DamagedFileError(path)
    return size


class NewFile:
    """A version being written. A small one stays in memory until it is synced, and is then written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.committed = False
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._held: list[bytes] = []
        self._descriptor: int | None = None

    @property
    def etag(self) -> str:
        """MD5 of the bytes written so far."""
        return self._md5.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append to the body."""
        self._md5.update(chunk)
        self.size += len(chunk)
        self._held.append(chunk)
        if self._descriptor is not None or self.size > _HELD_MAX_BYTES:
            self.flush()

    def write_footer(self, footer: Mapping[str, object]) -> None:
        """End the body."""
        self._held.append(footer_bytes(footer))

    def flush(self) -> None:
        """Write what is buffered to the file. Raises: OSError."""
        if self._descriptor is None:
            self._descriptor = _create(self.path)
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """Sync the file to the disk. Raises: OSError."""
        self.flush()
        assert self._descriptor is not None
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close it; without a commit the file is removed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            if not self.committed:
                self.path.unlink(missing_ok=True)


def footer_bytes(footer: Mapping[str, object]) -> bytes:
    """A footer as it stands at the end of a file."""
    encoded = json.dumps(footer).encode()
    return encoded + _digest(encoded) + len(encoded).to_bytes(_LENGTH_BYTES, "big") + _MAGIC


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:  # a fresh file system
        path.parent.mkdir(exist_ok=True)
        return os.open(path, flags, 0o644)


def read_footer(path: Path) -> tuple[dict, int]:
    """A file's footer, and the length of the body before it. Raises: DamagedFileError, FileNotFoundError."""
    with open(path, "rb") as file:
        file_len = file.seek(0, os.SEEK_END)
        file.seek(max(0, file_len - _TRAILER_LEN))
        trailer = file.read()
        digest, length = trailer[:_DIGEST_BYTES], trailer[_DIGEST_BYTES : _DIGEST_BYTES + _LENGTH_BYTES]
        size = file_len - len(trailer) - int.from_bytes(length, "big")
        if not trailer.endswith(_MAGIC) or size < 0:
            raise DamagedFileError(path)
        file.seek(size)
        encoded = file.read(file_len - len(trailer) - size)
    if _digest(encoded) != digest:
        raise DamagedFileError(path)
    return json.loads(encoded), size


def _digest(encoded: bytes) -> bytes:
    return hashlib.md5(encoded, usedforsecurity=False).digest()


def _md5_of(path: Path, size: int) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while size > 0 and (chunk := file.read(min(size, _READ_BYTES))):
            md5.update(chunk)
            size -= len(chunk)
    return md5.hexdigest()


def _make_directory(directory: str) -> list[str]:
    """Create a directory with its parents; returns the directories that got a new entry, none if it existed."""
    try:
        os.mkdir(directory)
    except FileExistsError:
        return []
    except FileNotFoundError:
        changed = _make_directory(os.path.dirname(directory))
        return [*_make_directory(directory), *changed]
    return [os.path.dirname(directory)]


@functools.cache
def _journals_in_order(path: str) -> bool:
    """Whether what was done before on this file system is on the disk with whatever is synced.

    Ext3, ext4 and XFS have one journal, written in order: directories made for an object are there with the object's
    own. The kernel lists journals in /proc/fs/jbd2 and /sys/fs/xfs; a file system that is not listed may have none.

    Source: Linux, Documentation/filesystems/ext4/journal.rst, xfs-delayed-logging-design.rst.
    """
    device = os.stat(path).st_dev
    try:
        name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    except OSError:
        return False  # no block device: an overlay, a network file system
    return bool(glob.glob(f"/proc/fs/jbd2/{name}-*")) or os.path.isdir(f"/sys/fs/xfs/{name}")


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
