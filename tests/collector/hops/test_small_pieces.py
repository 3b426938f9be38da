"""A sender that sends small pieces behind unacknowledged ones waits for no ACK, whatever ends its pauses."""

import pyarrow as pa
import pytest

from collector.hops.small_pieces import LEAST_COUNT, without_own_pauses
from tests.helpers.scripts import play

MS = 1_000_000


def pauses(count: int) -> pa.Table:
    """So many pauses of 42 ms that end just after the ACK of a small piece."""
    row = {
        **{"connection_id": 1, "from_client": True, "host": "a", "stream_offset": 50, "mss_bytes": 1448},
        **{"stopped_ns": 0, "full_ns": None, "released_ns": 42 * MS, "resumed_ns": 42 * MS, "rtt_ns": 60_000},
        **{"resumed_bytes": 50, "in_flight_bytes": 50, "waiting_bytes": 50, "resent": False},
        **{"room_bytes": 60_000, "window_closed": False, "idle_ns": 0, "in_flight_before_idle_bytes": 0},
    }
    kinds = {"full_ns": pa.int64()}
    return pa.table({name: pa.array([value] * count, kinds.get(name)) for name, value in row.items()})


def hops(at_once: int, between: str = "", size: int = 50) -> pa.Table:
    """Two pieces, the second 7 ms later and maybe with something `between`, so often; each pair is acknowledged."""
    lines = []
    for number in range(at_once):
        at, first = 100_000 * number, 2 * size * number
        lines += [f"{at} > {first}:{first + size}", between.format(at + 3_000) if between else ""]
        lines += [f"{at + 7_000} > {first + size}:{first + 2 * size}", f"{at + 7_100} < ack"]
    return play("a:40000 > b:8080\n" + "\n".join(lines)).hops


@pytest.mark.parametrize(
    ("paused", "sent", "left"),
    [
        pytest.param(1, hops(LEAST_COUNT), 0, id="small pieces at once"),
        pytest.param(1, hops(LEAST_COUNT - 1), 1, id="too few"),
        pytest.param(LEAST_COUNT, hops(LEAST_COUNT), LEAST_COUNT, id="no more than pauses"),
        pytest.param(1, hops(9, between="{} < ack"), 1, id="each after the ACK of the one before"),
        pytest.param(1, hops(9, size=1448), 1, id="whole segments"),
    ],
)
def test_who_sends_small_pieces_at_once_paused_by_itself(paused: int, sent: pa.Table, left: int) -> None:
    assert without_own_pauses(pauses(paused), sent).num_rows == left
