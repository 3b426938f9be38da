"""Threads work on as many parts at a time as they may."""

import time
from threading import Barrier, Lock

import pytest

from collector.execution.engine import ThreadEngine

WAIT_S = 60


@pytest.mark.parametrize(("at_once", "most"), [(None, 3), (2, 2), (1, 1), (9, 3)])
def test_as_many_parts_as_allowed_are_worked_on_at_a_time(at_once: int | None, most: int) -> None:
    meeting, lock, busy, most_busy = Barrier(most), Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal busy, most_busy
        with lock:
            busy += 1
            most_busy = max(busy, most_busy)
        meeting.wait(WAIT_S)  # for as many as may be at work
        time.sleep(0.05)  # one more would begin meanwhile
        with lock:
            busy -= 1

    with ThreadEngine(workers=3) as engine:
        engine.run(work, range(2 * most), lambda *_: None, at_once=at_once)
    assert most_busy == most
