"""The model of a medium: its queue, its times against the drives it stands for, its faults, its counters."""

import errno
import json
import random
import statistics
from pathlib import Path

import pytest

from storage_cluster.servers.disks.medium import PROFILES, Medium, Writing, profile_of, read_counters


class Bench:
    """A device with a clock that only the test moves."""

    def __init__(self, folder: Path, profile: str) -> None:
        self.now_ns = 1_000_000_000
        (folder / "d1").mkdir()
        self.folder = folder
        source = random.Random(1)
        self.medium = Medium(folder / "d1", folder, PROFILES.get(profile), lambda: self.now_ns, source)

    def fault(self, **what: object) -> None:
        (self.folder / "d1.fault").write_text(json.dumps(what))

    @property
    def counters(self):
        return read_counters(self.folder / "d1.counters")

    def one_at_a_time(self, count: int, kind: str = "read", size: int = 4096) -> float:
        """Mean seconds of transfers of different files, each begun when the last is done."""
        waits = []
        for number in range(count):
            waits.append(getattr(self.medium, kind)(size, number))
            self.now_ns += round(waits[-1] * 1e9)
        return statistics.mean(waits)


def test_without_profile_and_fault_nothing_is_waited_for_and_nothing_kept(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "none")
    bench.medium.admit(10)
    assert bench.medium.read(1 << 20, 1) + bench.medium.write(1 << 20, 1) + bench.medium.sync() == 0
    assert not bench.medium.is_modelled
    assert list(tmp_path.iterdir()) == [tmp_path / "d1"]


def test_a_disk_gives_the_iops_of_its_kind(tmp_path: Path) -> None:
    assert 1 / Bench(tmp_path, "hdd").one_at_a_time(2000) == pytest.approx(81, rel=0.03)


def test_a_queue_lets_a_disk_do_more_but_each_waits_longer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "hdd")
    waits = []
    for number in range(4000):  # about 32 are under way at any time
        waits.append(bench.medium.read(4096, number))
        bench.now_ns = max(bench.now_ns, bench.counters.free_at_ns - round(32 * 5.56e6))
    rate = len(waits) / ((bench.counters.free_at_ns - 1_000_000_000) / 1e9)
    assert rate == pytest.approx(180, rel=0.06)
    assert statistics.mean(waits[100:]) > 0.15


def test_a_disk_reads_on_without_seeking(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "hdd")
    bench.medium.read(1 << 20, 7)
    bench.now_ns = bench.counters.free_at_ns
    assert bench.medium.read(1 << 20, 7) == pytest.approx((1 << 20) / 130e6, rel=0.01)
    bench.now_ns = bench.counters.free_at_ns
    assert bench.medium.read(1 << 20, 8) > 0.012


def test_an_ssd_overlaps_requests(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "ssd")
    assert bench.one_at_a_time(100) == pytest.approx(110e-6, rel=0.01)
    begin_ns = bench.now_ns
    for number in range(1000):
        bench.medium.read(0, number)
    assert 1000 / ((bench.counters.free_at_ns - begin_ns) / 1e9) == pytest.approx(72_000, rel=0.01)


def test_utilisation_is_what_was_busy_up_to_the_moment(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "hdd")
    first, begin_ns = bench.counters, bench.now_ns
    bench.medium.write(130_000_000, 1)  # a second's worth, all queued now
    half = begin_ns + 500_000_000
    assert bench.counters.utilisation_since(first, begin_ns, half) == pytest.approx(1.0, abs=0.01)
    assert bench.counters.utilisation_since(first, begin_ns, begin_ns + 4_000_000_000) == pytest.approx(0.25, abs=0.01)


def test_what_is_done_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "ssd")
    bench.medium.read(10, 1)
    bench.medium.write(20, 1)
    bench.medium.sync()
    found = bench.counters
    assert (found.reads_count, found.writes_count, found.syncs_count, found.errors_count) == (1, 1, 1, 0)
    assert (found.read_bytes, found.written_bytes) == (10, 20 + 4096)


def test_a_slow_device_takes_longer_whatever_its_profile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "none")
    bench.fault(latency_ns=50_000_000)
    assert bench.medium.read(4096, 1) == pytest.approx(0.05)
    assert bench.medium.read(4096, 1) == pytest.approx(0.10), "the second waits for the first"
    (tmp_path / "d1.fault").unlink()
    assert bench.medium.read(4096, 1) == 0


def test_a_failing_device_fails_with_the_probability_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "none")
    bench.fault(error_probability=0.3, seed=5)
    failed = 0
    for _ in range(500):
        try:
            bench.medium.read(1, 1)
        except OSError as error:
            assert error.errno == errno.EIO
            failed += 1
    assert 120 < failed < 180
    assert bench.counters.errors_count == failed


def test_a_full_device_can_be_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "none")
    bench.fault(full=True)
    assert bench.medium.read(1, 1) == 0
    for refused in (lambda: bench.medium.admit(1), lambda: bench.medium.write(1, 1), bench.medium.sync):
        with pytest.raises(OSError, match="No space") as raised:
            refused()
        assert raised.value.errno == errno.ENOSPC


def test_what_does_not_fit_is_refused_before_it_comes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "none")
    with pytest.raises(OSError, match="No space"):
        bench.medium.admit(1 << 62)


def test_two_processes_share_one_queue(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "hdd")
    other = Medium(tmp_path / "d1", tmp_path, PROFILES["hdd"], lambda: bench.now_ns, random.Random(2))
    first = bench.medium.read(4096, 1)
    assert other.read(4096, 2) > first


def test_a_device_may_have_another_bandwidth(tmp_path: Path) -> None:
    assert profile_of("none", 5, 5) is None
    assert profile_of("hdd") == PROFILES["hdd"]
    (tmp_path / "d1").mkdir()
    slow = Medium(tmp_path / "d1", tmp_path, profile_of("ssd", 1_000_000, 2_000_000), lambda: 1_000_000_000)
    assert 1.0 < slow.read(1_000_000, 1) < 1.01
    assert 1.5 < slow.write(1_000_000, 1) < 1.51, "after the read"


def test_how_long_a_medium_is_busy_counts_positioning() -> None:
    disk = PROFILES["hdd"]
    assert disk.busy_s(13e6, 1_000_000, is_read=True) == pytest.approx(0.1 + 13 * 0.0123665)
    assert PROFILES["ssd"].busy_s(49e6, 1_000_000, is_read=False) == pytest.approx(0.1 + 49 / 33_000, rel=1e-4)


def test_a_flush_of_2016_takes_its_time_and_many_at_once_share_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "ssd-2016")
    assert bench.medium.sync() == pytest.approx(3.75e-3, rel=0.01)
    together = [bench.medium.sync() for _ in range(32)]
    assert together[-1] < 0.5 * 33 * 3.75e-3
    assert bench.medium.read(4096, 1) > together[-1]  # it waits like everything else


def test_a_second_journal_write_in_a_row_costs_a_turn_of_the_disk(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "hdd-2016")
    first = bench.medium.sync()
    bench.now_ns += round(first * 1e9)
    assert bench.medium.sync() == pytest.approx(8.333e-3, rel=0.01)


def test_without_syncs_nobody_waits_though_the_medium_is_as_busy_with_what_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "hdd-2016")
    unsynced = Medium(tmp_path / "d1", tmp_path, PROFILES["hdd-2016"], lambda: bench.now_ns, synced=False)
    assert Writing(unsynced, 1).sync() == 0.0
    assert (bench.counters.writes_count, bench.counters.syncs_count) == (1, 0)
    assert bench.counters.busy_ns > 8_500_000
