"""Lines of a file, plain or compressed by gzip or zstd, whatever is in it.

A line is at most `MOST_BYTES` long: of a longer one only its beginning is held, and it is handed out as cut. A last
line without its end may be one that is still being written; it is handed out like the others.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from tracer.errors import InputError

MOST_BYTES = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def lines_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Each line without its end, and whether it is whole; bytes that are no UTF-8 by PEP 383.

    Raises: `InputError` if the file cannot be read, or its compression is damaged.
    """
    try:
        with open_plain_or_packed(path) as file:
            while line := file.readline(MOST_BYTES):
                is_whole = line.endswith(b"\n") or len(line) < MOST_BYTES
                yield line.rstrip(b"\r\n").decode("utf-8", "surrogateescape"), is_whole
                while not is_whole and (rest := file.readline(MOST_BYTES)) and not rest.endswith(b"\n"):
                    pass
    except (OSError, EOFError, zlib.error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error).partition("\n")[0]
        raise InputError(
            f"{path} cannot be read: {reason}", "give a log as text, or compressed as .gz or .zst"
        ) from None


def open_plain_or_packed(path: Path) -> BinaryIO:
    """A file's bytes, unpacked where it is compressed by gzip or zstd. Raises: `OSError`."""
    with path.open("rb") as file:
        begin = file.read(4)
    if begin.startswith(_GZIP):
        return cast("BinaryIO", gzip.open(path, "rb"))
    if begin == _ZSTD:
        return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")))
    return path.open("rb")
