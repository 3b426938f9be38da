"""Two collectors of one session, of which one is killed, stopped, or has no room: nothing is lost, nothing doubled."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.collector_faults.scene import Counts, Scene, run_collectors
from testkit.live_hosts import Pair, pair
from tests.helpers.system_tools import or_skip

pytestmark = pytest.mark.live


@pytest.fixture
def hosts() -> Iterator[Pair]:
    with ExitStack() as stack:
        with or_skip():
            made = stack.enter_context(pair())
        yield made


def check(found: Counts) -> None:
    """All that was captured is in the trace, once, and all requests are at both hosts."""
    assert found.captured == found.stored == found.in_trace > 0
    assert found.segments_sent == found.segments
    assert found.requests_seen == {"a": found.requests_sent, "b": found.requests_sent}
    assert found.lost_packets == 0


def test_collectors_that_share_a_folder_are_killed_and_stopped(hosts: Pair, tmp_path: Path) -> None:
    scene = Scene(hosts, tmp_path, is_shared=True)
    first, second = scene.collectors
    with run_collectors(scene) as end:
        scene.wait_for_more()
        first.end(signal.SIGKILL)  # which also made the live trace
        scene.wait_for_line(scene.agents["a"], f"segments go to {scene.urls[1]} meanwhile")
        scene.wait_for_more()
        live = tmp_path / "data" / "sessions" / "shop" / "live" / "trace.json"
        before = live.stat().st_mtime_ns if live.exists() else 0
        scene.wait_for(lambda: live.exists() and live.stat().st_mtime_ns > before, "a live trace by the other one")
        first.start("collecting at")
        second.send(signal.SIGSTOP)
        scene.wait_for_line(scene.agents["b"], f"segments go to {scene.urls[0]} meanwhile")
        scene.wait_for_more("b")
        away = "delivers here, since the collector of its choice takes nothing"
        scene.wait_for(lambda: away in scene.agent_problems(0).get("b", ()), "the page")
        second.send(signal.SIGCONT)
        found = end()
    check(found)
    assert found.held_twice == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a small disk needs root")
def test_a_collector_without_room_and_another_one_are_replayed_together(hosts: Pair, tmp_path: Path) -> None:
    scene = Scene(hosts, tmp_path, is_shared=False, small_disk="256k")
    with run_collectors(scene) as end:
        scene.wait_for_line(scene.agents["a"], "no space left on the disk")
        scene.wait_for_more()
        found = end()
        numbers = [scene.numbers(number, "a") for number in range(2)]
    check(found)
    assert numbers[0]
    assert numbers[1]
