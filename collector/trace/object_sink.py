"""Writes one object part by part, so that it is there whole or not at all."""

from contextlib import suppress
from typing import Any

from collector.trace.object_errors import library_errors

PART_BYTES = 32 << 20
"""Of an upload: a store takes at most 10,000 parts, so a table of 320 GB; a table that is written has one in memory."""


class ObjectSink:
    """An object that is written. It appears when it is closed; an upload that fails is aborted."""

    def __init__(self, fs: Any, path: str) -> None:
        self._file = fs.open(path, "wb", block_size=PART_BYTES)

    def write(self, data: Any) -> int:
        """Append bytes. Raises: what the file system raises."""
        return int(self._file.write(data))

    def close(self) -> None:
        """Complete the object. Raises: as `write`."""
        try:
            self._file.close()
        except library_errors():
            self.discard()
            raise

    def discard(self) -> None:
        """Abort the upload, which is not complete; the object never appears."""
        with suppress(*library_errors()):
            self._file.discard()
        from fsspec.spec import AbstractBufferedFile  # noqa: PLC0415 - as in `open_file_system`

        if isinstance(self._file, AbstractBufferedFile):
            self._file.closed = True  # otherwise it is completed when it is collected
