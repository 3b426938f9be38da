"""Where objects go, which copies must go, and how listings of two stores become one: without any store."""

import asyncio
import errno
import random
from pathlib import Path
from urllib.parse import quote

import pytest

from storage_cluster.servers.routing.listings import Entry, Page, merge
from storage_cluster.servers.routing.locations import SIZES_FILE, DatabaseLocations, MemoryLocations
from storage_cluster.servers.routing.placement import Placement
from storage_cluster.servers.s3.documents import element
from storage_cluster.servers.s3.errors import S3Error
from storage_cluster.topology import RoutingOptions

KEY = "box", "key"


def placement_in(directory: Path, **options: object) -> Placement:
    return Placement(RoutingOptions(**options), MemoryLocations(directory))  # type: ignore[arg-type]


@pytest.mark.parametrize(("size_bytes", "store"), [(0, "small"), (100, "small"), (101, "large"), (None, "large")])
def test_the_fixed_threshold(tmp_path: Path, size_bytes: int | None, store: str) -> None:
    assert placement_in(tmp_path, threshold_bytes=100).choose(size_bytes) == store


def test_the_mean_of_all_sizes_so_far(tmp_path: Path) -> None:
    async def write() -> None:
        placement = placement_in(tmp_path, rule="mean", threshold_bytes=50)
        assert placement.threshold_bytes == 50
        for size_bytes, mean in ((1000, 1000), (10, 505), (20, 1030 / 3)):
            await placement.note_write(KEY, "small", size_bytes)
            assert placement.threshold_bytes == mean
        await placement.note_write(KEY, "large")
        assert placement.choose(343) == "small"
        assert placement.choose(344) == "large"
        placement.locations.close()
        again = placement_in(tmp_path, rule="mean")
        assert again.threshold_bytes == 1030 / 3

    asyncio.run(write())
    (tmp_path / SIZES_FILE).write_text("{nonsense", "ascii")
    assert placement_in(tmp_path, rule="mean", threshold_bytes=50).threshold_bytes == 50


def test_which_copies_must_go(tmp_path: Path) -> None:
    async def write() -> None:
        placement = placement_in(tmp_path)
        assert await placement.note_write(KEY, "small", 1) == []
        assert await placement.note_write(KEY, "large", 1) == ["small"]
        assert placement.order(KEY) == ("large", "small")
        assert await placement.note_write(KEY, "large", 1) == ["small"], "the copy is still there"
        placement.note_removal(KEY, "small")
        assert await placement.note_write(KEY, "large", 1) == []
        placement.suspect(KEY, "large")
        placement.suspect(KEY, "small")
        assert placement.leftovers == {KEY: {"small"}}
        assert await placement.note_write(KEY, "small", 1) == ["large"]

    asyncio.run(write())


def test_a_copy_waits_for_the_listings_that_began_before(tmp_path: Path) -> None:
    async def move() -> None:
        placement = placement_in(tmp_path)
        await placement.note_write(KEY, "small", 1)
        with placement.listing("box"):
            moving = asyncio.create_task(placement.note_write(KEY, "large", 1))
            await asyncio.sleep(0)
            assert placement.locations.find(KEY) == "large", "those that begin now see it there"
            with placement.listing("box"), placement.listing("other"):
                await asyncio.sleep(0)
                assert not moving.done()
        assert await moving == ["small"]

    asyncio.run(move())


def test_writers_of_a_key_take_turns_and_leave_nothing(tmp_path: Path) -> None:
    async def write() -> None:
        placement, inside = placement_in(tmp_path), []

        async def turn(key: str) -> None:
            async with placement.turn(("box", key)):
                inside.append(key)
                assert inside.count(key) == 1
                await asyncio.sleep(0)
                inside.remove(key)

        await asyncio.gather(*(turn(key) for key in "aabbab"))
        assert placement._turns == {}

    asyncio.run(write())


def test_a_full_disk_under_the_database_is_said(tmp_path: Path) -> None:
    locations = DatabaseLocations(tmp_path, None)
    locations._database.execute("PRAGMA max_page_count = 1")

    async def note() -> None:
        for number in range(200):
            await locations.note(("box", f"{number:0200}"), "small", 1)

    with pytest.raises(S3Error, match="cannot note where the object is") as caught:
        asyncio.run(note())
    assert caught.value.code == "ServiceUnavailable"
    locations.close()


@pytest.mark.parametrize("seed", range(20))
def test_pages_of_two_stores_are_those_of_one(seed: int) -> None:
    source = random.Random(seed)
    names = sorted({f"{source.choice('aäb/')}{source.randrange(30)}" for _ in range(25)}, key=str.encode)
    where = {name: source.choice(("small", "large")) for name in names}
    left_over = {name: source.choice(("small", "large")) for name in source.sample(names, 4)}
    shown: list[str] = []
    marker, limit = "", source.randrange(1, 8)
    while True:
        pages = [one_page(store, where, left_over, marker, limit) for store in ("small", "large")]
        page = merge(pages, limit, where.get)
        assert [entry.store for entry in page.entries] == [where[entry.name] for entry in page.entries]
        shown += [entry.name for entry in page.entries]
        if page.last_name is None:
            break
        marker = page.last_name
    assert shown == names


def one_page(store: str, where: dict[str, str], left_over: dict[str, str], marker: str, limit: int) -> Page:
    held = [name for name in where if store in (where[name], left_over.get(name)) and name.encode() > marker.encode()]
    entries = [Entry(name, store, element("Contents", element("Key", quote(name)))) for name in held[:limit]]
    return Page(entries, len(held) > limit)


class FullMedium:
    """A device without room."""

    is_modelled = True

    def write(self, size_bytes: int, stream: int) -> float:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_device_under_the_database_is_said(tmp_path: Path) -> None:
    locations = DatabaseLocations(tmp_path, FullMedium())  # type: ignore[arg-type]
    with pytest.raises(S3Error, match="No space left on device"):
        asyncio.run(locations.note(KEY, "small", 1))
    locations.close()


class QueueingMedium:
    """A device whose sync says how long it and the write before it take."""

    is_modelled = True

    def write(self, size_bytes: int, stream: int) -> float:
        return 3600.0

    def sync(self) -> float:
        return 0.01


def test_a_note_takes_the_time_of_its_sync(tmp_path: Path) -> None:
    locations = DatabaseLocations(tmp_path, QueueingMedium())  # type: ignore[arg-type]

    async def note() -> float:
        begun = asyncio.get_running_loop().time()
        await asyncio.wait_for(locations.note(KEY, "small", 1), 60)
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(note()) >= 0.01
    locations.close()
