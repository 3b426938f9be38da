"""Reads a Parquet file that is an object: its footer once, and of its columns only those that are asked for.

The footer lies at the end and says where the chunks of columns lie. What a query needs of them is fetched at once
(`Objects.read`) into a map of the file's length that is empty otherwise, and Arrow decodes it there as it would decode
the file. A map takes memory only where something was written, and is emptied after each read.

Cost: for a table of less than `TAIL_BYTES` one request, also for its data; otherwise one for the footer, which is kept
while the object has the same mark, and one for each stretch of wanted chunks.
"""

import mmap
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from collector.trace.objects import ObjectMark, Objects, Span
from tracer.errors import InputError

TAIL_BYTES = 64 << 10
"""Read at first from the end of a file."""
AT_ONCE_BYTES = 64 << 20
"""So much of a table is fetched at once: several groups of rows, if they are short."""
TRAILER_BYTES = 8
"""Length of the footer (uint32) and `PAR1`, at the end of a file. Source: the Parquet format."""
_MAP_NORESERVE = 0x4000
"""From Linux's <asm-generic/mman-common.h>; Python has it from 3.13 on."""
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE


class _End(Struct, frozen=True):
    """The end of a file: its footer, and its last bytes, which are all of a short file."""

    metadata: pq.FileMetaData
    begin: int
    data: bytes


class ObjectFile:
    """A Parquet file that is an object, open for reading: Arrow reads `source` what `fetch_groups` has fetched."""

    def __init__(self, objects: Objects, name: str, mark: ObjectMark) -> None:
        """Raises: `pa.ArrowInvalid` if it is no Parquet file, otherwise as `Objects.read`."""
        self._objects, self._name = objects, name
        self._end = _read_end(objects, name, mark)
        self._map = mmap.mmap(-1, mark.size_bytes, flags=_FLAGS)
        self.source = pa.BufferReader(pa.py_buffer(self._map))

    @property
    def metadata(self) -> pq.FileMetaData:
        """The file's footer."""
        return self._end.metadata

    def fetch_groups(self, columns: Sequence[str], groups: Sequence[int]) -> Iterator[int]:
        """The groups, each while `source` has its chunks of these columns."""
        wanted, first = frozenset(columns), 0
        spans = [self._spans(wanted, group) for group in groups]
        sizes = [sum(end - begin for begin, end in each) for each in spans]
        while first < len(groups):
            last = first + 1
            while last < len(groups) and sum(sizes[first : last + 1]) <= AT_ONCE_BYTES:
                last += 1
            self._fetch([span for each in spans[first:last] for span in each])
            yield from groups[first:last]
            self._map.madvise(mmap.MADV_DONTNEED)
            first = last

    def _fetch(self, spans: Sequence[Span]) -> None:
        end = self._end
        self._map[end.begin : end.begin + len(end.data)] = end.data
        for begin, data in self._objects.read(self._name, [each for each in spans if each[0] < end.begin]):
            self._map[begin : begin + len(data)] = data

    def _spans(self, columns: frozenset[str], group: int) -> list[Span]:
        row_group = self.metadata.row_group(group)
        chunks = (row_group.column(at) for at in range(row_group.num_columns))
        return [_span(chunk) for chunk in chunks if chunk.path_in_schema in columns]


def _span(chunk: pq.ColumnChunkMetaData) -> Span:
    begin = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None:  # pages of the dictionary come first
        begin = min(begin, chunk.dictionary_page_offset)
    return begin, begin + chunk.total_compressed_size


def _read_end(objects: Objects, name: str, mark: ObjectMark) -> _End:
    known = objects.kept.get(name)
    if known is not None and known[0] == mark:
        end: _End = known[1]
        return end
    if mark.size_bytes < 2 * TRAILER_BYTES:
        raise pa.ArrowInvalid(f"a file of {mark.size_bytes} bytes is no Parquet file")
    begin = max(0, mark.size_bytes - TAIL_BYTES)
    data = b"".join(part for _, part in objects.read(name, [(begin, mark.size_bytes)]))
    footer_len = int.from_bytes(data[-TRAILER_BYTES:-4], "little") + TRAILER_BYTES
    if footer_len > mark.size_bytes:
        raise InputError(f"{objects.url}: its object {name} is damaged", "copy it again, or make the trace again")
    missing = objects.read(name, [(mark.size_bytes - footer_len, begin)]) if footer_len > len(data) else []
    whole = b"".join([part for _, part in missing] + [data])
    end = _End(pq.read_metadata(pa.BufferReader(whole)), begin, data)
    objects.kept[name] = mark, end
    return end
