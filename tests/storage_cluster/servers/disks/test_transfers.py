"""A request's transfers: at once while nothing is reserved; else in turns, in virtual time."""

import asyncio
import errno
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage_cluster.servers.disks.accesses import Access
from storage_cluster.servers.disks.medium import Medium, Profile, read_counters
from storage_cluster.servers.disks.transfers import LINGER_S, Scheduler, Transfers, TurnsLog
from storage_cluster.topology import ReservationOptions
from tests.helpers import virtual_time

MB = 1_000_000
FLAT = Profile(0, 0, 0, 0, 0, 0, 40 * MB, 20 * MB)
OPTIONS = ReservationOptions(slice_mb=3.2, stripe_mb=0.4)


class Bench:
    """A device of 40 MB/s whose time is that of the loop."""

    def __init__(self, folder: Path) -> None:
        (folder / "d1").mkdir()
        self.folder = folder
        self.log_file = folder / "turns.jsonl"
        clock: Callable[[], int] = lambda: round(asyncio.get_running_loop().time() * 1e9)  # noqa: E731
        self.medium = Medium(folder / "d1", folder, FLAT, clock)
        self.log = TurnsLog(self.log_file)
        self.scheduler = Scheduler(("storage1", "d1"), OPTIONS, MB, self.log)

    def transfers(self, access_id: str = "", rate: int = 0, end_s: float = 0.0) -> Transfers:
        end = round(end_s or time.time() + 1000)
        access = Access(access_id, end, {"storage1/d1": rate}) if access_id else None
        return Transfers(self.medium, self.scheduler, hash(access_id), access, f"tx-{access_id}")

    async def read_for(self, transfers: Transfers, seconds: float) -> int:
        """Read on and on; the bytes."""
        loop, read = asyncio.get_running_loop(), 0
        end_s = loop.time() + seconds
        while loop.time() < end_s:
            read += await transfers.read_some(200_000, read, 1000 * MB)
        return read

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.log.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return virtual_time.run(work)


def test_without_a_reservation_transfers_go_to_the_medium_as_they_come(bench: Bench) -> None:
    async def work() -> float:
        transfers = bench.transfers()
        begun = asyncio.get_running_loop().time()
        await transfers.read(4 * MB, 0)
        await transfers.write(2 * MB)
        await transfers.sync()
        return asyncio.get_running_loop().time() - begun

    assert run(work()) == pytest.approx(0.2, abs=0.01)
    assert not bench.log_file.exists()
    found = read_counters(bench.folder / "d1.counters")
    assert (found.reads_count, found.writes_count, found.syncs_count) == (1, 2, 2)


def test_each_gets_what_it_reserved_beside_many_that_reserved_nothing(bench: Bench) -> None:
    async def work() -> list[int]:
        asking = [bench.transfers("A", 15 * MB), bench.transfers("B", 10 * MB)]
        asking += [bench.transfers() for _ in range(20)]
        return await asyncio.gather(*(bench.read_for(transfers, 10) for transfers in asking))

    a, b, *others = run(work())
    assert a >= 147 * MB
    assert b >= 98 * MB
    assert sum(others) > 10 * MB
    assert a + b + sum(others) == pytest.approx(400 * MB, rel=0.05)


def test_each_gets_what_it_reserved_in_every_second(bench: Bench) -> None:
    rates = {"A": 10 * MB, "B": 8 * MB, "C": 6 * MB, "D": 4 * MB, "E": 2 * MB}

    seconds: dict[str, Counter[int]] = {name: Counter() for name in rates}

    async def read(name: str) -> None:
        loop, transfers = asyncio.get_running_loop(), bench.transfers(name, rates[name])
        begun_s, at = loop.time(), 0
        while loop.time() < begun_s + 12:
            read_bytes = await transfers.read_some(200_000, at, 1000 * MB)
            at += read_bytes
            seconds[name][int(loop.time() - begun_s)] += read_bytes

    async def work() -> None:
        others = [bench.read_for(bench.transfers(), 12) for _ in range(20)]
        await asyncio.gather(*map(read, rates), *others)

    run(work())
    for name, rate in rates.items():
        assert all(seconds[name][second] >= rate for second in range(1, 11)), (name, seconds[name])


def test_what_the_medium_has_read_is_not_held_back(bench: Bench) -> None:
    """However many streams an access has, the bytes on their way are those of the medium's queue: two stripes."""
    read = {"all": 0}

    async def read_on() -> None:
        transfers, at = bench.transfers("A", 10 * MB), 0
        while at < 8 * MB:
            at += (read_bytes := await transfers.read_some(655_360, at, 1000 * MB))
            read["all"] += read_bytes
            charged = read_counters(bench.folder / "d1.counters").read_bytes
            assert charged - read["all"] <= 2 * OPTIONS.stripe_bytes

    async def work() -> None:
        await asyncio.gather(*(read_on() for _ in range(8)), bench.read_for(bench.transfers("B", MB), 0))

    run(work())
    assert read["all"] >= 64 * MB


def test_a_read_of_many_stripes_ends_when_all_are_there(bench: Bench) -> None:
    async def work() -> float:
        begun, transfers = asyncio.get_running_loop().time(), bench.transfers("A", MB)
        await transfers.read(1_100_000, 0)
        return asyncio.get_running_loop().time() - begun

    assert run(work()) == pytest.approx(1.1 / 40, abs=0.002)
    assert [line["bytes"] for line in bench.lines] == [400_000, 400_000, 300_000]


def test_a_line_says_whose_turns_a_request_waited_for(bench: Bench) -> None:
    async def work() -> None:
        a, b = bench.transfers("A", MB), bench.transfers("B", 30 * MB)
        await asyncio.gather(bench.read_for(a, 2), bench.read_for(b, 2), bench.read_for(bench.transfers(), 2))

    run(work())
    waits = [line for line in bench.lines if line["turns"]]
    assert waits
    for line in waits:
        assert sum(line["turns"].values()) == pytest.approx(line["waited_ns"] / 1e6, rel=0.05, abs=1)
    of_a = next(line for line in waits if line["access"] == "A" and line["waited_ns"] > 20e6)
    assert of_a["transaction_id"] == "tx-A"
    assert max(of_a["turns"], key=of_a["turns"].get) == "B"


def test_who_goes_leaves_its_rate_to_the_others_at_once(bench: Bench) -> None:
    async def work() -> int:
        gone = asyncio.ensure_future(bench.read_for(bench.transfers("A", 30 * MB), 100))
        staying = asyncio.ensure_future(bench.read_for(bench.transfers("B", MB), 2))
        await asyncio.sleep(1)
        gone.cancel()
        return await staying

    assert run(work()) > 42 * MB  # a few in the first second, all in the other


def test_after_its_end_an_access_has_no_rate(bench: Bench) -> None:
    async def work() -> tuple[int, int]:
        late = bench.transfers("A", 36 * MB, end_s=time.time() - 10)
        bench.transfers("B", MB)
        return tuple(await asyncio.gather(bench.read_for(late, 2), bench.read_for(bench.transfers(), 2)))

    first, second = run(work())
    assert first == pytest.approx(second, rel=0.1)
    assert {line["access"] for line in bench.lines} == {""}


def test_a_device_goes_back_to_its_own_queue_after_a_while(bench: Bench) -> None:
    async def work() -> list[bool]:
        await bench.transfers("A", MB).read(100_000, 0)
        found = [bench.scheduler.is_active]
        await asyncio.sleep(LINGER_S / 2)
        bench.transfers("A", MB)
        await asyncio.sleep(LINGER_S * 0.7)
        found.append(bench.scheduler.is_active)
        await asyncio.sleep(LINGER_S)
        return [*found, bench.scheduler.is_active]

    assert run(work()) == [True, True, False]


def test_a_failing_medium_fails_the_request_and_no_other(bench: Bench) -> None:
    async def work() -> int:
        transfers = bench.transfers("A", MB)
        (bench.folder / "d1.fault").write_text(json.dumps({"error_probability": 1.0}))
        with pytest.raises(OSError, match=r"Input/output") as raised:
            await transfers.read(100, 0)
        (bench.folder / "d1.fault").unlink()
        await transfers.read(100, 0)
        return raised.value.errno or 0

    assert run(work()) == errno.EIO


def test_writes_are_stripes_and_a_sync_is_one_turn(bench: Bench) -> None:
    async def work() -> None:
        transfers = bench.transfers("A", MB)
        for _ in range(10):
            await transfers.write(100_000)
        await transfers.sync()

    run(work())
    assert [(line["kind"], line["bytes"]) for line in bench.lines] == [
        ("write", 400_000),
        ("write", 400_000),
        ("sync", 200_000),
    ]


def test_small_transfers_do_not_wait_behind_large_ones_that_reserved_as_little(bench: Bench) -> None:
    async def work() -> list[float]:
        reading = [bench.read_for(bench.transfers("A", 30 * MB), 3)]
        reading += [bench.read_for(bench.transfers(), 3) for _ in range(10)]
        others = asyncio.gather(*reading)
        waits = []
        for _ in range(20):
            await asyncio.sleep(0.1)
            begun = asyncio.get_running_loop().time()
            await bench.transfers().read_metadata()
            waits.append(asyncio.get_running_loop().time() - begun)
        await others
        return waits

    assert max(run(work())) < 0.05
