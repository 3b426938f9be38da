"""Whose turn it is: each access gets what it reserved in each second, the rest is shared, no time is left unused."""

import collections
import random
from collections.abc import Mapping

import pytest

from storage_cluster.servers.disks.turns import SHARED, Turns

MB = 1_000_000


class Device:
    """A device that does `speed` bytes per second, and accesses that ask again as soon as they were served."""

    def __init__(self, speed: int, slice_bytes: int = 4 * MB, stripe: int = MB // 4) -> None:
        self.speed, self.stripe = speed, stripe
        self.turns: Turns[str] = Turns(slice_bytes)
        self.now_s = 50.0
        self.served: list[tuple[float, str]] = []

    def run(self, rates: Mapping[str, int], seconds: float, streams: int = 1) -> None:
        end_s = self.now_s + seconds
        for key, rate in rates.items():
            for _ in range(streams):
                self.turns.add(key, rate, key, self.stripe, self.now_s)
        while self.now_s < end_s:
            taken = self.turns.take(self.now_s)
            assert taken is not None, "somebody waits, and nobody is served"
            key, waiting = taken
            self.now_s += waiting.size_bytes / self.speed
            self.served.append((self.now_s, key))
            self.turns.add(key, rates[key], key, self.stripe, self.now_s)

    def bytes_per_second(self, key: str) -> list[int]:
        """Served in each whole second."""
        first = self.served[0][0]
        found = collections.Counter(int(at - first) for at, who in self.served if who == key)
        return [found[second] * self.stripe for second in range(int(self.served[-1][0] - first))]


FIVE = {name: 2 * MB * share for name, share in zip("ABCDE", (5, 4, 3, 2, 1), strict=True)}


def test_each_of_five_gets_what_it_reserved_in_every_second_beside_greedy_others() -> None:
    device = Device(40 * MB)
    device.run(FIVE | {SHARED: 0}, 60, streams=3)
    for key, rate in FIVE.items():
        assert min(device.bytes_per_second(key)) >= rate - device.stripe, key
    total = sum(map(sum, map(device.bytes_per_second, [*FIVE, SHARED])))
    assert total == pytest.approx(40 * MB * 59, rel=0.02)


def test_what_is_left_is_shared_alike() -> None:
    device = Device(40 * MB)
    device.run(FIVE | {SHARED: 0}, 60, streams=3)
    more = {key: sum(device.bytes_per_second(key)) / 60 - rate for key, rate in (FIVE | {SHARED: 0}).items()}
    assert list(more.values()) == pytest.approx([10 * MB / 6] * 6, rel=0.15)


def test_who_is_alone_gets_all() -> None:
    device = Device(40 * MB)
    device.run({"E": 2 * MB}, 10)
    assert min(device.bytes_per_second("E")) >= 39 * MB


def test_who_paused_catches_up_for_a_moment_only() -> None:
    device = Device(40 * MB)
    device.turns.add("A", 30 * MB, "A", device.stripe, device.now_s)
    device.turns.take(device.now_s)
    device.now_s += 100
    device.run({"A": 30 * MB, SHARED: 0}, 2)
    assert device.bytes_per_second("A")[0] <= 30 * MB * 1.25 + 5 * MB
    assert device.bytes_per_second(SHARED)[0] > 0


def test_a_turn_goes_on_while_nobody_else_is_due_but_not_beyond_its_slice() -> None:
    device = Device(40 * MB, slice_bytes=2 * MB)
    device.run({"A": 0, "B": 0}, 10)
    runs, last = [0], ""
    for _, key in device.served:
        runs = [*runs, 0] if key != last else runs
        runs[-1] += device.stripe
        last = key
    assert set(runs[1:-1]) == {2 * MB}


def test_of_one_access_transfers_are_given_in_order_and_a_removed_one_never() -> None:
    turns: Turns[int] = Turns(MB)
    waiting = [turns.add("A", MB, number, 10, 1.0) for number in range(5)]
    turns.remove("A", waiting[2])
    turns.remove("A", waiting[2])
    given = []
    while turns:
        taken = turns.take(1.0)
        assert taken is not None
        given.append(taken[1].work)
    assert given == [0, 1, 3, 4]
    assert turns.take(1.0) is None


def test_accesses_at_random_are_never_late_by_more_than_others_transfers() -> None:
    source = random.Random(7)
    for _ in range(30):
        count = source.randint(1, 6)
        shares = [source.random() for _ in range(count)]
        rates = {f"a{n}": round(0.9 * 40 * MB * share / sum(shares)) for n, share in enumerate(shares)}
        device = Device(40 * MB)
        device.run(rates | {SHARED: 0}, 5, streams=source.randint(1, 3))
        for key, rate in rates.items():
            late = (count + 2) * device.stripe
            assert min(device.bytes_per_second(key)) >= rate - late, (rates, key)


def test_who_asks_for_nothing_any_more_is_forgotten() -> None:
    turns: Turns[str] = Turns(MB)
    turns.add("A", MB, "", 10, 1.0)
    turns.take(1.0)
    turns.forget_idle(1.0)
    assert "A" in turns._queues
    turns.forget_idle(60.0)
    assert not turns._queues
