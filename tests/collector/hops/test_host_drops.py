"""In which connections payload arrived twice, by the hops alone."""

import pyarrow as pa
import pytest

from collector.hops.host_drops import twice_received_connections

Rows = list[tuple[int, bool, int, int, int, int | None]]
COLUMNS = ("connection_id", "from_client", "stream_start", "stream_end", "attempt", "receive_frame")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(1, True, 0, 10, 1, 1), (1, True, 0, 10, 2, 2)], [1]),
        ([(1, True, 0, 30, 1, 1), (1, True, 10, 20, 2, 2), (1, True, 30, 40, 1, 3)], [1]),
        ([(1, True, 0, 10, 1, None), (1, True, 0, 10, 2, 2), (1, True, 10, 20, 1, 1)], []),
        ([(1, True, 0, 10, 2, 1), (1, True, 20, 20, 1, 2), (1, False, 0, 10, 1, 3)], []),
        ([(1, True, 0, 10, 2, 1), (2, True, 0, 10, 2, 2)], []),
        ([(1, True, 0, 10, 1, 1), (1, True, 20, 20, 1, 2), (1, True, 20, 20, 2, 3)], []),
        ([(1, True, 0, 10, 1, 1), (1, True, 0, 10, 1, 2)], []),
        ([(1, True, 0, 9, 2, 1), (2, True, 0, 9, 1, 2), (2, True, 0, 9, 2, 3), (3, True, 0, 9, 2, 4)], [2]),
    ],
    ids=[
        *("the same again", "a part again", "the first was lost", "the other direction", "another connection"),
        *("a FIN again", "no retransmission", "one of several"),
    ],
)
def test_bytes_arrived_twice_where_two_received_ranges_overlap(rows: Rows, found: list[int]) -> None:
    hops = pa.table(dict(zip(COLUMNS, map(pa.array, zip(*rows, strict=True)), strict=True)))
    assert twice_received_connections(hops).to_pylist() == found
