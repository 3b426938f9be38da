"""A host's page cache before a modelled medium: which pages of which files are in memory, the ones used last.

Only the names of pages are kept, since the data is in ordinary files anyway: what is here needs no transfer. A page is
there once it was read or written, until others that were used later have taken its room. Pages are of one size; the
last page of a file takes a whole one.

    invariant: pages held * PAGE_BYTES <= room

Limits. No read-ahead. What is written is charged to the medium when it is written back, cached or not. Each server
process has its own, and one that starts is cold.
"""

import collections
from collections.abc import Iterator

PAGE_BYTES = 65_536
METADATA_PAGE = -1
"""The page of a file's metadata."""

_Page = tuple[int, int]


class PageCache:
    """Pages in memory, by file and number."""

    def __init__(self, room_bytes: int) -> None:
        self._pages_max = room_bytes // PAGE_BYTES
        self._pages: collections.OrderedDict[_Page, None] = collections.OrderedDict()

    def read(self, stream: int, start: int, size_bytes: int) -> bool:
        """Note that this part of a file is read; whether all of it was there."""
        pages = list(_pages(stream, start, size_bytes))
        was_there = all(page in self._pages for page in pages)
        self._use(pages)
        return was_there

    def write(self, stream: int, start: int, size_bytes: int) -> None:
        """Note that this part of a file is written."""
        self._use(_pages(stream, start, size_bytes))

    def _use(self, pages: list[_Page] | Iterator[_Page]) -> None:
        for page in pages:
            self._pages[page] = None
            self._pages.move_to_end(page)
        while len(self._pages) > self._pages_max:
            self._pages.popitem(last=False)


def _pages(stream: int, start: int, size_bytes: int) -> Iterator[_Page]:
    """The pages of a part of a file; a negative start: of its metadata."""
    if start < 0:
        yield stream, METADATA_PAGE
        return
    for number in range(start // PAGE_BYTES, (start + max(size_bytes, 1) - 1) // PAGE_BYTES + 1):
        yield stream, number
