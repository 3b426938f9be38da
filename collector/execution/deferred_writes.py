"""Defers writing rows of a table until other cores are idle.

A stage with a single thread leaves the other cores idle. They can then write rows that no stage reads before the trace
is complete. These rows wait in memory, up to a limit, and are written in their order.
"""

from collections import deque
from collections.abc import Callable

import pyarrow as pa


class DeferredWrites:
    """Tables that wait to be written by `write`. One thread at a time."""

    def __init__(self, write: Callable[[pa.Table], None]) -> None:
        self._write, self._waiting, self._bytes = write, deque[pa.Table](), 0

    def put(self, table: pa.Table, room_bytes: int) -> None:
        """Queue `table` to be written after the earlier ones; tables beyond `room_bytes` are written now.

        Raises: what `write` raises.
        """
        self._waiting.append(table)
        self._bytes += table.nbytes
        while self._waiting and self._bytes > room_bytes:
            self._write_next()

    def write_all(self) -> None:
        """Write all waiting tables.

        Raises: what `write` raises.
        """
        while self._waiting:
            self._write_next()

    def _write_next(self) -> None:
        table = self._waiting.popleft()
        self._bytes -= table.nbytes
        self._write(table)
