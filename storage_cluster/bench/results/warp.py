"""Reads the operations that MinIO's load generator warp measured: `warp-OP-DATE-ID.csv.zst`, tab-separated, one a line.

Columns are found by their names, since versions differ (`last_byte`, `cat`, `endpoint` and `client_id` came later). A
field may be quoted and then hold quotes and line breaks; lines that begin with `#` are comments, of which newer
versions write one at the end: the command line. Times are RFC 3339 with up to nine digits, of the wall clock of the
host that ran warp; `duration_ns` is of its monotonic clock.

Bounds: text is decompressed from `_FEED_BYTES` at a time, which give at most 32 MiB; a line has at most `_LINE_LEN_MAX`
characters, a file `OPERATIONS_MAX` operations of `KINDS_MAX` kinds. What is beyond a bound, damaged or cut off ends the
reading or is left out, and is counted.

Source: minio/warp, `pkg/bench/ops.go` (`CSV`, `WriteCSV`, `OperationsFromCSV`), `pkg/bench/csv.go`, `cli/benchmark.go`.
"""

import csv
import dataclasses
import itertools
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import zstandard

from storage_cluster.bench.errors import RunError
from storage_cluster.bench.results.rows import nanoseconds_of_rfc3339

OPERATIONS_MAX = 100_000_000
KINDS_MAX = 64
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 1 << 20
_FEED_BYTES = 1 << 10
_WINDOW_BYTES_MAX = 128 << 20
_LINE_LEN_MAX = 64 << 10
_COMMENT_LEN_MAX = 64 << 10
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_NEEDED = ("op", "start", "end")
_OURS = {"stage", "work"}
"""Columns of our own rows, which have warp's, too."""
_THREADS = 1 << 32  # warp's numbers have 16 bits, in newer versions 32
_SIZE_MAX = 1 << 62
_NAMES = ("op", "thread", "client_id", "n_objects", "bytes", "endpoint", "file", "error", "start", "first_byte", "end",
          "duration_ns")  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as warp wrote it."""

    op: str  # GET, PUT, DELETE, STAT, LIST, …
    thread: int
    client_id: str
    objects_count: int
    bytes: int
    endpoint: str  # http://HOST:PORT
    file: str  # the object, without its bucket; of LIST the prefix; "" where there were several
    error: str  # in warp's words
    start_ns: int  # wall clock
    first_byte_ns: int | None  # after the start
    end_ns: int  # wall clock
    duration_ns: int


@dataclasses.dataclass
class WarpFile:
    """One reading of a file; what it found beside operations is known when `operations` has ended."""

    path: Path
    comment: str = ""
    unread_count: int = 0  # lines that are no operation
    cut: str = ""  # why the reading ended before the file's end; "" if it did not

    def operations(self) -> Iterator[Operation]:
        """The operations, in the order of the file.

        Raises: RunError if it cannot be read, or is no such file.
        """
        lines = _Records(self._lines())
        head = next((cells for cells in lines if cells), None)
        if head is None or not set(_NEEDED) <= set(head):
            raise self._refusal(head)
        if set(head) >= _OURS:
            raise RunError(f"{self.path} is of a run of `tracer bench` already", "give the folder that it is in")
        places = [head.index(name) if name in head else None for name in _NAMES]
        kinds: set[str] = set()
        for count, cells in enumerate(lines):
            if count >= OPERATIONS_MAX:
                self.cut = f"it has more than {OPERATIONS_MAX:,} operations"
                return
            made = _operation(cells, places, len(head))
            if made is None or (made.op not in kinds and len(kinds) >= KINDS_MAX):
                self.unread_count += 1
                continue
            kinds.add(made.op)
            yield made

    def _refusal(self, head: list[str] | None) -> RunError:
        first = head[0].lstrip() if head else ""
        if self.path.name.endswith((".json.zst", ".json")) or first.startswith(("{", "[")):
            return RunError(
                f"{self.path} holds warp's sums, not its operations",
                "run warp with --full, which writes each operation to a .csv.zst, and give that file",
            )
        if self.cut:
            return RunError(f"{self.path} shows no operation: {self.cut}", "copy it again from where warp ran")
        return RunError(f"{self.path} is no file of warp's operations", "give the .csv.zst that warp wrote")

    def _lines(self) -> Iterator[str]:
        """The lines without comments, each with its line break; the last one, if it is not whole, is left out."""
        held = ""
        for block in self._blocks():
            whole, _, held = (held + block).rpartition("\n")
            for line in whole.split("\n") if whole else ():
                if not line.startswith("#"):
                    yield line + "\n"
                elif len(self.comment) < _COMMENT_LEN_MAX:
                    self.comment += line[1 : _COMMENT_LEN_MAX - len(self.comment)].strip() + "\n"
            if len(held) > _LINE_LEN_MAX:
                self.cut = f"it has a line of more than {_LINE_LEN_MAX:,} characters"
                yield held[:_LINE_LEN_MAX]
                return
        if held:
            self.cut = self.cut or "its last line is not whole"
            if held.startswith(("{", "[")):
                yield held

    def _blocks(self) -> Iterator[str]:
        """The file's text, decompressed."""
        try:
            with self.path.open("rb") as stream:
                first = stream.read(_READ_BYTES)
                blocks = itertools.chain([first], iter(lambda: stream.read(_READ_BYTES), b""))
                plain = self._decompress(blocks) if first.startswith(_ZSTD_MAGIC) else blocks
                yield from (block.decode("utf-8", "replace") for block in _whole_characters(plain))
        except OSError as error:
            raise RunError(f"{self.path} cannot be read ({error.strerror})", "give a file that warp wrote") from None

    def _decompress(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
        frame = decompressor.decompressobj()
        try:
            for block in blocks:
                for at in range(0, len(block), _FEED_BYTES):
                    feed = block[at : at + _FEED_BYTES]
                    while feed:
                        if frame.eof:
                            frame = decompressor.decompressobj()
                        yield frame.decompress(feed)
                        feed = frame.unused_data if frame.eof else b""
        except zstandard.ZstdError:
            self.cut = "it is damaged"
            return
        if not frame.eof:
            self.cut = "it is cut off"


class _Records:
    """The records of lines as lists of fields; a quoted field may hold line breaks."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._again: deque[str] = deque()  # read with a quote that was never closed

    def __iter__(self) -> "_Records":
        return self

    def __next__(self) -> list[str]:
        line = self._again.popleft() if self._again else next(self._lines)
        if '"' not in line:
            return line.rstrip("\r\n").split("\t")
        return self._quoted_record(line)

    def _quoted_record(self, line: str) -> list[str]:
        taken, length = [line], len(line)
        while length <= _LINE_LEN_MAX:
            try:
                return next(csv.reader(["".join(taken)], delimiter="\t", strict=True))
            except csv.Error as error:
                if "unexpected end of data" not in str(error):
                    break
            more = self._again.popleft() if self._again else next(self._lines, None)
            if more is None:
                break
            taken.append(more)
            length += len(more)
        self._again.extendleft(reversed(taken[1:]))
        return [line]


def _whole_characters(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, cut only behind line breaks, or where a block has none."""
    held = b""
    for block in blocks:
        whole, line_break, rest = block.rpartition(b"\n")
        if line_break or len(held) > _LINE_LEN_MAX:
            yield held + whole + line_break
            held = rest
        else:
            held += block
    yield held


def _operation(cells: list[str], places: list[int | None], width: int) -> Operation | None:
    """The operation of a record; None if it is none."""
    if len(cells) != width:
        return None
    op, thread, client_id, objects, size, endpoint, file, error, start, first, end, lasted = (
        "" if place is None else cells[place] for place in places
    )
    try:
        start_ns, end_ns = nanoseconds_of_rfc3339(start), nanoseconds_of_rfc3339(end)
        made = Operation(
            op=op,
            thread=int(thread or 0),
            client_id=client_id,
            objects_count=int(objects or 1),
            bytes=int(size or 0),
            endpoint=endpoint,
            file=file,
            error=error,
            start_ns=start_ns,
            first_byte_ns=nanoseconds_of_rfc3339(first) - start_ns if first else None,
            end_ns=end_ns,
            duration_ns=int(lasted) if lasted else end_ns - start_ns,
        )
    except ValueError:
        return None
    bounded = 0 <= made.thread < _THREADS and max(made.objects_count, made.bytes, made.duration_ns) < _SIZE_MAX
    positive = min(made.objects_count, made.bytes, made.duration_ns, made.first_byte_ns or 0) >= 0
    return made if bounded and positive and _KIND.fullmatch(op) else None
