"""Joined segments: one compressed file for many segments of one start of an agent.

    <host>-<incarnation>-000001-000600.pcapng.zst    the first and the last number in it

Each segment is a zstd frame of its own, in the order of numbers, so that some of them can be read alone; `zstd -d` and
Wireshark see a pcapng file of so many sections. At the end is an index in a skippable frame, which other programs skip:
of each segment its number, lengths, arrival and SHA-256. Numbers between the first and the last may be missing: a
flight recorder sends some of its segments. So a joined file is read in *runs*, each of numbers without a gap:

    <path of a joined file>#31-45                    the segments 31 to 45 of it

`open_capture` takes such a path; nothing else of the file is read. What does not shrink costs 0.01 %.
Source: RFC 8878, 3.1.1 (frames), 3.1.2 (skippable frames).
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.segments import INCARNATION_PATTERN, segment_name

Run = tuple[int, int]
"""The first and the last of numbers without a gap."""

_NAME = re.compile(
    rf"(?P<stem>.+-{INCARNATION_PATTERN.pattern})-(?P<first>\d{{6,10}})"
    r"(?:\.pcapng|-(?P<last>\d{6,10})\.pcapng\.zst(?:#(?P<run>\d{1,10}-\d{1,10}))?)"
)
_RECORD = np.dtype(
    [("number", "<u4"), ("size", "<u4"), ("packed", "<u4"), ("spare", "<u4"), ("arrived_ns", "<i8"), ("sha256", "V32")]
)
_SKIPPABLE = 0x184D2A5E
_MAGIC = b"twjoined"
_TRAILER = np.dtype([("count", "<u4"), ("magic", "S8")])
_LEVEL = 3
_SUMMARIES_COUNT = 8192


class SegmentNames(Struct, frozen=True):
    """What the name of a file says: the stem of its segments, and the first and last number."""

    stem: str
    first: int
    last: int
    is_joined: bool


class JoinedSummary(Struct, frozen=True):
    """What is in a joined file. Arrivals by the collector's clock."""

    runs: tuple[Run, ...]
    first_ns: int
    last_ns: int

    @property
    def count(self) -> int:
        """Segments in it."""
        return sum(last - first + 1 for first, last in self.runs)


def parse_name(name: str) -> SegmentNames | None:
    """What the name of a segment, a joined file or a run of one says; None if it is none."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    first, last = int(found["first"]), int(found["last"] or found["first"])
    if found["run"]:
        first, last = (int(number) for number in found["run"].split("-"))
    return SegmentNames(found["stem"], first, last, found["last"] is not None)


def joined_name(stem: str, first: int, last: int) -> str:
    """The name of a joined file."""
    return segment_name(stem, first).replace(".pcapng", f"-{last:06d}.pcapng.zst")


def run_path(path: Path, run: Run) -> Path:
    """The path of a run of a joined file; of all that its name says, the file's own."""
    names = parse_name(path.name)
    if names is not None and (names.first, names.last) == run:
        return path
    return path.with_name(f"{path.name}#{run[0]}-{run[1]}")


def runs_of(numbers: Iterable[int]) -> tuple[Run, ...]:
    """The runs in ascending numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1][1] = number
        else:
            found.append([number, number])
    return tuple((first, last) for first, last in found)


def file_runs(path: Path) -> list[Path]:
    """What is to be read of a capture: the file, or the runs of a joined one whose numbers have gaps."""
    names = parse_name(path.name)
    if names is None or not names.is_joined or "#" in path.name:
        return [path]
    return [run_path(path, run) for run in runs_of(read_index(path)["number"].tolist())]


def locate(path: Path) -> tuple[Path, tuple[int, int] | None]:
    """The file of a capture's path, and the bytes of it (offset, length) if it is a run of a joined file.

    Raises: InputError for a run that is not there.
    """
    file, sign, text = path.name.partition("#")
    names = parse_name(path.name)
    if not sign or names is None or os.path.exists(path):
        return path, None
    joined = path.with_name(file)
    index = read_index(joined)
    chosen = (index["number"] >= names.first) & (index["number"] <= names.last)
    if not chosen.any():
        raise InputError(f"{joined} does not hold the segments {text}", "check the name")
    begin = int(index["packed"][: int(np.argmax(chosen))].sum(dtype=np.int64))
    return joined, (begin, int(index["packed"][chosen].sum(dtype=np.int64)))


def find_joined(segment: Path) -> Path | None:
    """The run of a joined file in the same folder that holds a segment which is not there by itself any more."""
    wanted = parse_name(segment.name.partition("#")[0])
    if wanted is None or not segment.parent.is_dir():
        return None
    for path in sorted(segment.parent.glob(f"{wanted.stem}-*.zst")):
        names = parse_name(path.name)
        reaches = names is not None and names.first <= wanted.first and wanted.last <= names.last
        if reaches and wanted.first in read_index(path)["number"]:
            return run_path(path, (wanted.first, wanted.last))
    return None


def read_index(path: Path) -> NDArray[Any]:
    """The records of a joined file: `number`, `size` and `packed` (bytes), `arrived_ns`, `sha256`.

    Raises: InputError.
    """
    try:
        with path.open("rb") as file:
            file.seek(-_TRAILER.itemsize, os.SEEK_END)
            (trailer,) = np.frombuffer(file.read(), _TRAILER)
            len_bytes = int(trailer["count"]) * _RECORD.itemsize
            file.seek(-_TRAILER.itemsize - len_bytes, os.SEEK_END)
            index = np.frombuffer(file.read(len_bytes), _RECORD)
    except (OSError, ValueError):
        raise InputError(f"{path} is damaged: it has no index", "move it away; its segments are missing then") from None
    if trailer["magic"] != _MAGIC or not len(index):
        raise InputError(f"{path} is damaged: it has no index", "move it away; its segments are missing then")
    return index


def summary(path: Path, found: os.stat_result) -> JoinedSummary:
    """What is in a joined file; nothing in one that is damaged. Arguments: `found`, its status.

    Cost: one read of its end; of the last 8,192 files it is remembered.
    """
    return _summary(str(path), found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(_SUMMARIES_COUNT)
def _summary(path: str, _inode: int, _size: int, last_ns: int) -> JoinedSummary:
    try:
        index = read_index(Path(path))
    except InputError:
        return JoinedSummary((), last_ns, last_ns)
    numbers = index["number"].astype(np.int64)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = numbers[[0, *(breaks + 1)]].tolist(), numbers[[*breaks, -1]].tolist()
    arrivals = index["arrived_ns"]
    return JoinedSummary(tuple(zip(firsts, lasts, strict=True)), int(arrivals.min()), int(arrivals.max()))


def read_segments(path: Path, from_ns: int, to_ns: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, arrival and content of the segments of a file, joined or alone, that arrived in a time.

    Raises: OSError, InputError.
    """
    names = parse_name(path.name)
    if names is None or not names.is_joined:
        arrived_ns = path.stat().st_mtime_ns
        if names is not None and from_ns <= arrived_ns <= to_ns:
            yield names.first, arrived_ns, path.read_bytes()
        return
    index = read_index(path)
    ends = np.cumsum(index["packed"], dtype=np.int64)
    with path.open("rb") as file:
        for place in np.flatnonzero(_between(index, from_ns, to_ns)).tolist():
            record = index[place]
            file.seek(int(ends[place]) - int(record["packed"]))
            packed = file.read(int(record["packed"]))
            content = pa.decompress(packed, decompressed_size=int(record["size"]), codec="zstd", asbytes=True)
            yield int(record["number"]), int(record["arrived_ns"]), content


def write_joined(file: BinaryIO, segments: Sequence[tuple[int, Path]]) -> int:
    """Write the joined file of segments (number, path), which ascend; when the last of them arrived.

    Raises: OSError.
    """
    codec = pa.Codec("zstd", compression_level=_LEVEL)
    index = np.zeros(len(segments), _RECORD)
    for record, (number, path) in zip(index, segments, strict=True):
        content = path.read_bytes()
        packed = codec.compress(content, asbytes=True)
        file.write(packed)
        record["number"], record["size"], record["packed"] = number, len(content), len(packed)
        record["arrived_ns"] = path.stat().st_mtime_ns
        record["sha256"] = np.void(hashlib.sha256(content).digest())
    return _write_index(file, index)


def numbers_between(path: Path, from_ns: int, to_ns: int) -> list[int]:
    """The numbers of the segments of a joined file that arrived in a time. Raises: InputError."""
    index = read_index(path)
    found: list[int] = index["number"][_between(index, from_ns, to_ns)].tolist()
    return found


def write_part(file: BinaryIO, joined: Path, from_ns: int, to_ns: int) -> int:
    """Write a joined file of the segments of another one that arrived in a time; when the last of them did.

    Raises: OSError, InputError.
    """
    index = read_index(joined)
    chosen = _between(index, from_ns, to_ns)
    ends = np.cumsum(index["packed"], dtype=np.int64)
    with joined.open("rb") as source:
        for place in np.flatnonzero(chosen).tolist():
            source.seek(int(ends[place]) - int(index["packed"][place]))
            file.write(source.read(int(index["packed"][place])))
    return _write_index(file, index[chosen])


def _between(index: NDArray[Any], from_ns: int, to_ns: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (index["arrived_ns"] >= from_ns) & (index["arrived_ns"] <= to_ns)
    return found


def _write_index(file: BinaryIO, index: NDArray[Any]) -> int:
    trailer = np.array([(len(index), _MAGIC)], _TRAILER).tobytes()
    content = index.tobytes() + trailer
    file.write(np.array([_SKIPPABLE, len(content)], "<u4").tobytes() + content)
    return int(index["arrived_ns"].max())
