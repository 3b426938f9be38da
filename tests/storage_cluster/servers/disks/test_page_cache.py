"""The page cache before a medium: which reads find all they want in memory."""

import random
from pathlib import Path

from storage_cluster.servers.disks.medium import PROFILES, Medium, Writing, read_counters
from storage_cluster.servers.disks.page_cache import METADATA_PAGE, PAGE_BYTES, PageCache


def test_what_was_read_is_there_until_others_take_its_room() -> None:
    cache = PageCache(3 * PAGE_BYTES)
    assert [cache.read(1, 0, 2 * PAGE_BYTES) for _ in range(2)] == [False, True]
    assert not cache.read(2, 0, 1)
    assert cache.read(1, 0, 1), "used again, so the other page of this file is the oldest"
    assert not cache.read(2, METADATA_PAGE, 4096)
    assert not cache.read(1, 0, 2 * PAGE_BYTES), "its second page has gone"


def test_a_read_that_finds_only_a_part_is_none() -> None:
    cache = PageCache(100 * PAGE_BYTES)
    cache.write(1, 0, PAGE_BYTES)
    assert cache.read(1, PAGE_BYTES - 1, 1)
    assert not cache.read(1, PAGE_BYTES - 1, 2)
    assert not cache.read(2, 0, 1)


def test_the_cache_agrees_with_a_list_of_pages_in_order_of_use() -> None:
    chance = random.Random(3)
    cache, in_order = PageCache(8 * PAGE_BYTES), list[tuple[int, int]]()
    for _ in range(3000):
        stream, first, count = chance.randrange(3), chance.randrange(5), chance.randrange(1, 4)
        pages = [(stream, number) for number in range(first, first + count)]
        there = all(page in in_order for page in pages)
        in_order = [*(page for page in in_order if page not in pages), *pages][-8:]
        assert cache.read(stream, first * PAGE_BYTES, count * PAGE_BYTES) == there


def test_a_medium_reads_what_was_written_without_a_transfer(tmp_path: Path) -> None:
    (tmp_path / "d1").mkdir()
    medium = Medium(tmp_path / "d1", tmp_path, PROFILES["hdd"], cache=PageCache(1 << 24))
    writing = Writing(medium, 7)
    for _ in range(3):
        writing.add(1 << 20)
    writing.add(1000)
    writing.sync()
    assert medium.read(4096, 7) == 0, "its metadata"
    assert medium.read(3 << 20, 7, 0) + medium.read(1000, 7, 3 << 20) == 0
    assert read_counters(tmp_path / "d1.counters").reads_count == 0
    assert medium.read(4096, 8) > 0
    assert medium.read(4096, 8) == 0
    assert read_counters(tmp_path / "d1.counters").reads_count == 1
