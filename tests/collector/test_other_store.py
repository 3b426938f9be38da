"""A trace in a store of another kind than files: analysed, reported, viewed and exported like any other."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from collector.analysis import analyse
from collector.decode.sources import host_sources
from collector.export import csv
from collector.queries import open_trace
from collector.reporting.report import build_report
from collector.trace import stores
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from tests.helpers.memory_store import TRACES, MemoryStore

CAPTURES = Path(__file__).parents[2] / "captures" / "swift-upload-1B"
IN_MEMORY = "arrow://swift-upload-1B"


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The trace of a bundled capture on disk, and beside it in memory at `IN_MEMORY`."""
    url = str(tmp_path_factory.mktemp("store") / "swift-upload-1B")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(stores.STORES, "arrow", MemoryStore)
        for place in (url, IN_MEMORY):
            analyse(host_sources([str(CAPTURES)]), place)
    return url


@pytest.fixture(autouse=True)
def with_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is known while a test runs."""
    monkeypatch.setitem(stores.STORES, "arrow", MemoryStore)


def test_its_tables_are_those_on_disk(on_disk: str) -> None:
    assert TRACES[IN_MEMORY].tables.keys() == TABLES.keys()
    for name in TABLES:
        assert Trace(IN_MEMORY).read(name).to_pylist() == Trace(on_disk).read(name).to_pylist(), name


def test_its_report_is_the_same(on_disk: str) -> None:
    from_disk, from_memory = (build_report(url) for url in (on_disk, IN_MEMORY))
    created_ns = from_disk.info.created_ns
    assert replace(from_memory, url=on_disk, info=replace(from_memory.info, created_ns=created_ns)) == from_disk


def test_it_is_viewed_the_same(on_disk: str) -> None:
    from_disk, from_memory = open_trace(on_disk), open_trace(IN_MEMORY)
    assert from_memory.summary == from_disk.summary
    assert from_memory.hop(7) == from_disk.hop(7)


def test_it_is_exported_the_same(on_disk: str, tmp_path: Path) -> None:
    from_disk, from_memory = (
        csv.write(Trace(url), tmp_path / place) for url, place in ((on_disk, "disk"), (IN_MEMORY, "memory"))
    )
    assert [file.read_bytes() for file in from_memory] == [file.read_bytes() for file in from_disk]
