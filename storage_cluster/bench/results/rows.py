"""The rows of a run: one for each attempt of each request, compressed, and readable even if the process was killed.

The file is warp's (tab-separated text in zstd, its columns first and by its names), so what reads warp's reads this;
ours follow. It is written as complete zstd frames, each flushed: a process that is killed loses what it had not written
yet, and never what it had. Times are RFC 3339 in UTC with nanoseconds, of this host's wall clock, so that a row can be
laid beside a capture; durations are from the monotonic clock.

Source: warp 1.0, `pkg/bench/ops.go`, for its columns.
"""

import calendar
import codecs
import dataclasses
import functools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from storage_cluster.bench.errors import RunError

FILE_NAME = "requests.csv.zst"
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_END_S = 9_214_646_400  # 2262: beyond, nanoseconds exceed 64 bits
_LEVEL = 1


STATUS_UNKNOWN = -1
"""Of a run that another generator measured, which does not record what the answer was."""


class Row(NamedTuple):
    """One attempt at one operation; or at one of several requests of an operation, which has another row for them all.

    Such an attempt counts nowhere by itself: it is neither final nor measured.
    """

    idx: int  # of the operation in its work, in this process
    thread: int  # the worker, over all drivers
    op: str  # PUT, GET, DELETE, LIST
    client_id: str  # the driver
    bytes: int  # of the object, moved
    endpoint: str
    file: str  # container/object
    error: str  # "" if it went well; otherwise one of ERROR_KINDS, or of an imported run `other`
    start_ns: int
    first_byte_ns: int  # after the start; -1: none came
    duration_ns: int  # -1: it never began
    stage: str
    work: str
    operation: str  # as the workload calls it
    status: int  # 0: no response; `STATUS_UNKNOWN`
    attempt: int  # 1 = first
    final: bool  # no attempt follows
    measured: bool  # not in a ramp-up, a ramp-down or after the end
    waited_ns: int  # from when the operation was due to this attempt's start
    connect_ns: int  # for the connection to be there; -1: it was there before
    transaction_id: str
    local_port: int  # 0: there was no connection
    request: int = 0  # of several that the operation has, from 1; 0: the operation itself
    objects_count: int = 1  # that the operation is about

    @property
    def end_ns(self) -> int:
        """The time of the last byte or of the failure, on the wall clock."""
        return self.start_ns + max(self.duration_ns, 0)

    @property
    def response_ns(self) -> int:
        """From when the operation was due until its end or failure, including earlier attempts."""
        return self.waited_ns + max(self.duration_ns, 0)

    @property
    def latency_ns(self) -> int | None:
        """The response time of an operation that went well; None for any other row: a failure has no latency."""
        return self.response_ns if self.final and not self.error else None

    @property
    def processing_ns(self) -> int:
        """The same to the response's first byte."""
        return self.waited_ns + max(self.first_byte_ns, 0)


HEADER = (
    "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns\t"
    "stage\twork\toperation\tstatus\tattempt\tfinal\tmeasured\twaited_ns\tconnect_ns\ttransaction_id\tlocal_port\trequest\n"
)
_HEADER_BEFORE = HEADER.replace("\trequest\n", "\n")
"""Of runs made before there were operations of several requests."""


def as_line(row: Row) -> str:
    """A row as text."""
    start = row.start_ns
    first = _time(start + row.first_byte_ns) if row.first_byte_ns >= 0 else ""
    end, duration = (_time(row.end_ns), row.duration_ns) if row.duration_ns >= 0 else ("", "")
    return (
        f"{row.idx}\t{row.thread}\t{row.op}\t{row.client_id}\t{row.objects_count}\t{row.bytes}\t{row.endpoint}\t{clean(row.file)}\t"
        f"{row.error}\t{_time(start)}\t{first}\t{end}\t{duration}\t"
        f"{clean(row.stage)}\t{clean(row.work)}\t{clean(row.operation)}\t{row.status}\t{row.attempt}\t"
        f"{row.final:d}\t{row.measured:d}\t{row.waited_ns}\t{row.connect_ns}\t{row.transaction_id}\t{row.local_port}\t"
        f"{row.request}\n"
    )


def from_line(line: str) -> Row:
    """A row from its text. Raises: ValueError."""
    cells = line.rstrip("\n").split("\t")
    if len(cells) not in (len(HEADER.split("\t")), len(_HEADER_BEFORE.split("\t"))):
        raise ValueError(line)
    start = _nanoseconds(cells[9])
    return Row(
        idx=int(cells[0]),
        thread=int(cells[1]),
        op=cells[2],
        client_id=cells[3],
        bytes=int(cells[5]),
        endpoint=cells[6],
        file=cells[7],
        error=cells[8],
        start_ns=start,
        first_byte_ns=_nanoseconds(cells[10]) - start if cells[10] else -1,
        duration_ns=int(cells[12] or -1),
        stage=cells[13],
        work=cells[14],
        operation=cells[15],
        status=int(cells[16]),
        attempt=int(cells[17]),
        final=cells[18] == "1",
        measured=cells[19] == "1",
        waited_ns=int(cells[20]),
        connect_ns=int(cells[21]),
        transaction_id=cells[22],
        local_port=int(cells[23]),
        request=int(cells[24]) if len(cells) > 24 else 0,
        objects_count=int(cells[4]),
    )


@dataclasses.dataclass
class RowFile:
    """The file of one run's rows, being written."""

    stream: BinaryIO
    written_len: int = 0  # bytes of complete frames
    compressor: zstandard.ZstdCompressor = dataclasses.field(default_factory=lambda: zstandard.ZstdCompressor(_LEVEL))

    @classmethod
    def create(cls, path: Path) -> "RowFile":
        """Create a new file. Raises: RunError."""
        try:
            made = cls(path.open("xb"))
        except OSError as error:
            raise RunError(f"{path} cannot be written ({error.strerror})", "choose another place with -o") from None
        made.write(HEADER)
        return made

    def write(self, text: str) -> None:
        """Append a frame and pass it to the kernel."""
        if text:
            frame = self.compressor.compress(text.encode())
            self.stream.write(frame)
            self.stream.flush()
            self.written_len += len(frame)

    def close(self) -> None:
        """Close the file."""
        self.stream.close()


def read_rows(path: Path) -> Iterator[Row]:
    """All rows of a file; the frame that a killed process left unfinished is left out. Raises: RunError."""
    try:
        with path.open("rb") as stream:
            lines = _lines(stream)
            if next(lines, None) not in (HEADER, _HEADER_BEFORE):
                raise RunError(f"{path} holds no rows of a run", "give a folder that `tracer bench run` wrote")
            yield from map(from_line, lines)
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})", "give a run's folder") from None


def _lines(stream: BinaryIO) -> Iterator[str]:
    reader = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
    decode = codecs.getincrementaldecoder("utf-8")().decode
    held = ""
    while True:
        try:
            block = reader.read(1 << 20)
        except zstandard.ZstdError:
            return
        if not block:
            return
        *lines, held = (held + decode(block)).split("\n")
        yield from (line + "\n" for line in lines)


def nanoseconds_of_rfc3339(text: str) -> int:
    """A time of any zone, with up to nine digits after its seconds, from 1970 to 2261. Raises: ValueError."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError(text)
    seconds, digits, zone = found.groups()
    at = _seconds(seconds) - _zone_s(zone)
    if not 0 <= at < _END_S:
        raise ValueError(text)
    return at * 1_000_000_000 + int((digits or "").ljust(9, "0"))


@functools.lru_cache(64)
def _zone_s(zone: str) -> int:
    if zone in ("Z", "z"):
        return 0
    away = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return -away if zone.startswith("-") else away


@functools.lru_cache(4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _time(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest:09d}Z"


@functools.lru_cache(1024)
def _seconds(text: str) -> int:
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _nanoseconds(text: str) -> int:
    return _seconds(text[:19]) * 1_000_000_000 + int(text[20:29])


def clean(text: str) -> str:
    """A text as one cell: what cannot be printed is replaced."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
