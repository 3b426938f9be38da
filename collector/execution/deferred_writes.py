"""Rows of a table that are written when there is nothing better to do.

A stage that is one thread's leaves the other cores idle, unless something was left for them: rows that nothing reads
before the trace is whole. They wait in memory, as much of them as there is room for, and are written in their order.
"""

from collections import deque
from collections.abc import Callable

import pyarrow as pa


class DeferredWrites:
    """Tables that wait to be written by `write`. One thread at a time."""

    def __init__(self, write: Callable[[pa.Table], None]) -> None:
        self._write, self._waiting, self._bytes = write, deque[pa.Table](), 0

    def put(self, table: pa.Table, room_bytes: int) -> None:
        """Have `table` written after those put before; of all that waits, what is beyond `room_bytes` is written now.

        Raises: what `write` raises.
        """
        self._waiting.append(table)
        self._bytes += table.nbytes
        while self._waiting and self._bytes > room_bytes:
            self._write_next()

    def write_all(self) -> None:
        """Write what still waits.

        Raises: what `write` raises.
        """
        while self._waiting:
            self._write_next()

    def _write_next(self) -> None:
        table = self._waiting.popleft()
        self._bytes -= table.nbytes
        self._write(table)
