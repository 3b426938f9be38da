"""Tables that wait to be written: their order, and how many wait."""

import numpy as np
import pyarrow as pa

from collector.execution.deferred_writes import DeferredWrites

BYTES = 800


def table(number: int) -> pa.Table:
    return pa.table({"number": np.full(BYTES // 8, number)})


def test_what_has_no_room_is_written_at_once_and_all_in_order() -> None:
    written: list[int] = []
    deferred = DeferredWrites(lambda table: written.append(table["number"][0].as_py()))
    for number, room, expected in (
        (0, 2 * BYTES, []),
        (1, 2 * BYTES, []),
        (2, 2 * BYTES, [0]),
        (3, 4 * BYTES, [0]),
        (4, BYTES - 1, [0, 1, 2, 3, 4]),
        (5, BYTES, [0, 1, 2, 3, 4]),
        (6, -1, [0, 1, 2, 3, 4, 5, 6]),
        (7, BYTES, [0, 1, 2, 3, 4, 5, 6]),
    ):
        deferred.put(table(number), room)
        assert written == expected
    deferred.write_all()
    deferred.write_all()
    assert written == list(range(8))
