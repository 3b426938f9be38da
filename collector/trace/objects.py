"""Reads parts of the objects of a trace, several at once, and counts what it reads.

An object is read by ranges of bytes. Ranges that lie close together are read as one, since a request costs as much time
as some tens of kilobytes do; long ones are divided, since a store sends several at once faster than one. What a read
returns has exactly the asked length: an object that ends before is damaged.
"""

import os
import threading
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from msgspec import Struct

from collector.trace.object_errors import code_of, object_errors
from tracer.errors import InputError, MissingDependencyError
from tracer.installation import install_command

GAP_BYTES = 64 << 10
"""What lies between two ranges is read with them if it is no longer: 1 ms a request and 100 MB/s make it cheaper."""
MOST_BYTES = 8 << 20
"""Longer ranges are read as several."""
AT_ONCE = 16
"""Requests at a time."""
EXTRAS = {"s3": "scale", "s3a": "scale"}
"""Extra of this package that installs what a scheme needs."""

Span = tuple[int, int]
"""The bytes [begin, end) of an object."""


class ReadCount(Struct, frozen=True):
    """What was read of a trace: bytes as they came, and requests that were sent (retries of the library excepted)."""

    bytes_count: int
    requests_count: int
    bytes_by_object: tuple[tuple[str, int], ...]  # most first

    @property
    def words(self) -> str:
        """`3.1 MB in 41 requests`."""
        noun = "request" if self.requests_count == 1 else "requests"
        return f"{in_bytes(self.bytes_count)} in {self.requests_count:,} {noun}"


class ObjectMark(Struct, frozen=True):
    """The size of an object, and a text that changes when it is written anew."""

    size_bytes: int
    version: str


class LocalFiles:
    """The disk of this machine, with those of fsspec's methods that a store needs there.

    fsspec is imported for other URLs only: with asyncio it takes 5 % of the time of a short replay.
    """

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        return os.path.exists(path)

    def isdir(self, path: str) -> bool:
        """Whether a directory is there."""
        return os.path.isdir(path)

    def ls(self, path: str, detail: bool) -> list[str]:
        """The paths in a directory. Raises: OSError."""
        assert not detail, "only names are known"
        return [f"{path}/{name}" for name in os.listdir(path)]

    def open(self, path: str, mode: str) -> IO[Any]:
        """A file, open. Raises: OSError."""
        return open(path, mode)


class Objects:
    """The objects below one URL; safe to use from several threads. One for each URL (`objects_at`), so it counts all
    reads of a process there."""

    def __init__(self, url: str, fs: Any, root: str) -> None:
        self.url, self.fs, self.root = url, fs, root
        self.kept: dict[str, tuple[ObjectMark, Any]] = {}
        """What readers keep of an object as long as it has the same mark."""
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    @property
    def count(self) -> ReadCount:
        """What was read so far."""
        with self._lock:
            by_object = tuple(self._bytes.most_common())
            return ReadCount(self._bytes.total(), self._requests.total(), by_object)

    def path(self, name: str) -> str:
        """The path of an object, for the file system."""
        return f"{self.root}/{name}"

    def mark(self, name: str) -> ObjectMark | None:
        """The mark of an object; None if it is not there. Cost: a request."""
        self._note(name, 0, 1)
        try:
            with object_errors(self.url):
                found = self.fs.info(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        version = found.get("ETag") or found.get("mtime") or found.get("created") or ""
        return ObjectMark(int(found.get("size") or 0), str(version).strip('"'))

    def whole(self, name: str) -> bytes:
        """All of an object, whose length is not known. Raises: `FileNotFoundError` if it is not there."""
        parts: list[bytes] = []
        while not parts or len(parts[-1]) == MOST_BYTES:
            begin = len(parts) * MOST_BYTES
            with object_errors(self.url):
                part = bytes(self.fs.cat_file(self.path(name), start=begin, end=begin + MOST_BYTES))
            self._note(name, len(part), 1)
            parts.append(part)
        return b"".join(parts)

    def read(self, name: str, spans: Sequence[Span]) -> list[tuple[int, bytes]]:
        """The bytes of some ranges, as pieces that cover them: (where it begins, bytes), ascending.

        Raises: `FileNotFoundError` if the object is not there, `InputError` if it ends before.
        """
        wanted = join_spans(spans)
        if not wanted:
            return []
        with object_errors(self.url):
            begins, ends = ([each[at] for each in wanted] for at in (0, 1))
            paths = [self.path(name)] * len(wanted)
            found = self.fs.cat_ranges(paths, begins, ends, on_error="return", **self._batch())
            for each in found:
                if isinstance(each, BaseException):
                    raise self._cut_off(name) if code_of(each) in ("InvalidRange", "416") else each
        self._note(name, sum(map(len, found)), len(wanted))
        if any(len(data) > end - begin for data, (begin, end) in zip(found, wanted, strict=True)):
            raise InputError(
                f"{self.url}: its server sends whole files where ranges of bytes are asked for",
                "serve it by one that knows them, such as nginx, or copy the trace here",
            )
        if any(len(data) != end - begin for data, (begin, end) in zip(found, wanted, strict=True)):
            raise self._cut_off(name)
        return list(zip(begins, found, strict=True))

    def _batch(self) -> dict[str, int]:
        return {"batch_size": AT_ONCE} if getattr(self.fs, "async_impl", False) else {}

    def _cut_off(self, name: str) -> InputError:
        return InputError(f"{self.url}: its object {name} is cut off", "copy it again, or make the trace again")

    def _note(self, name: str, bytes_count: int, requests_count: int) -> None:
        with self._lock:
            self._bytes[name] += bytes_count
            self._requests[name] += requests_count


def in_bytes(count: int) -> str:
    """`3.1 MB`; units of 1,000."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def join_spans(spans: Sequence[Span]) -> list[Span]:
    """The spans, ascending; those that overlap or lie close together as one, long ones divided."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin - joined[-1][1] <= GAP_BYTES:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif end > begin:
            joined.append((begin, end))
    return [(at, min(at + MOST_BYTES, end)) for begin, end in joined for at in range(begin, end, MOST_BYTES)]


@lru_cache(maxsize=256)
def objects_at(url: str) -> Objects | None:
    """The objects at a URL; None if it is a directory of this machine.

    Raises: `InputError` for a URL that nothing here opens, `MissingDependencyError` if a library is missing.
    """
    fs, root = open_file_system(url)
    return None if isinstance(fs, LocalFiles) else Objects(url, fs, root)


def read_count(url: str) -> ReadCount | None:
    """What this process read of the trace at a URL; None for a directory. Raises: as `objects_at`."""
    objects = objects_at(url)
    return None if objects is None else objects.count


def open_file_system(url: str, doing: str = "read the trace") -> tuple[Any, str]:
    """fsspec's file system for a URL, or `LocalFiles` for a directory, and the path there. Raises: as `objects_at`.

    Arguments: `doing`, what for, in the words of an error.
    """
    scheme, separator, path = url.partition("://")
    if separator and urlsplit(url).password is not None:
        what = f"{scheme}://…@{urlsplit(url).hostname}: the URL contains a password, which would be shown and logged"
        raise InputError(what, "leave it out, and set credentials as docs/object-storage.md describes")
    if not separator or scheme == "file":
        return LocalFiles(), _absolute(path if separator else url)
    import fsspec  # noqa: PLC0415 - see `LocalFiles`

    try:
        with object_errors(url, doing):
            fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        extra = EXTRAS.get(scheme)
        install = f"run: {install_command(extra)}" if extra else ""
        raise MissingDependencyError(f"{url} cannot be opened: {error}", install) from None
    except ValueError as error:
        raise InputError(f"{url}: {error}", "give a directory or a URL such as s3://bucket/trace") from None
    return fs, root.rstrip("/")


def _absolute(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute()).rstrip("/")
