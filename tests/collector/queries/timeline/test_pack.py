"""An index on an object store says what one on disk says, and of it only what is looked at is read."""

import errno
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from collector.queries import TraceView, open_trace, trace_index
from collector.queries.timeline import pack, paged
from collector.queries.timeline.pack import PackedShelf, write_pack
from collector.queries.timeline.paged import PagedArray, PagedFile
from collector.queries.timeline.shelf import Shelf
from collector.queries.trace_index import publish_index
from collector.trace.objects import Objects, objects_at, read_count
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tracer.errors import InputError, ResourceError

URL = "memory://pack-test/trace"
RECIPE = Recipe(uploads_count=40, lost_share=0.05)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """However small a trace is, its index is a file or an object; nothing stays."""
    monkeypatch.setattr(trace_index, "SMALL_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    MemoryFileSystem.store.clear()
    objects_at.cache_clear()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that this trace has several of what a large one has many of."""
    monkeypatch.setattr(pack, "SMALL_BYTES", 64)
    monkeypatch.setattr(pack, "FIRST_BYTES", 64)
    monkeypatch.setattr(pack, "PIECE_ROWS", 7)
    for module in (pack, paged):
        monkeypatch.setattr(module, "FENCE_ROWS", 16)
    monkeypatch.setattr(paged, "PAGE_BYTES", 256)


@pytest.fixture
def near(tmp_path: Path) -> TraceView:
    """The trace on disk."""
    write_synthetic_trace(tmp_path / "trace", RECIPE)
    return open_trace(str(tmp_path / "trace"))


@pytest.fixture
def far(near: TraceView) -> TraceView:
    """Its copy in a store of objects, with its index."""
    fs, root = fsspec.core.url_to_fs(URL)
    for path in Path(near.url).iterdir():
        if path.is_file():
            fs.pipe_file(f"{root}/{path.name}", path.read_bytes())
    publish_index(URL)
    objects_at.cache_clear()
    return open_trace(URL)


def bytes_read() -> int:
    count = read_count(URL)
    assert count is not None
    return count.bytes_count


@pytest.mark.usefixtures("small_parts")
def test_each_answer_is_the_same(near: TraceView, far: TraceView) -> None:
    assert far.summary == near.summary
    assert far.requests(5) == near.requests(5)
    assert far.requests(1_000) == near.requests(1_000)
    assert far.request(3) == near.request(3)
    assert [far.spans(each) for each in range(9)] == [near.spans(each) for each in range(9)]
    whole = near.duration_ns
    for begin, end in (
        (0, whole),
        (whole // 3, whole // 2),
        (whole // 2, whole // 2 + 1_000),
        (-5, 0),
        (whole, 2 * whole),
    ):
        assert far.count(begin, end) == near.count(begin, end)
        ours, theirs = far.arrows(begin, end, 10_000), near.arrows(begin, end, 10_000)
        assert ours is not None
        assert theirs is not None
        assert np.array_equal(ours.number, theirs.number)
        assert np.array_equal(ours.received_ns, theirs.received_ns)
        if begin < end:
            assert np.array_equal(far.density(begin, end, 64).counts, near.density(begin, end, 64).counts)
    assert far.next_problem(0) == near.next_problem(0)
    assert far.next_problem(whole, backwards=True) == near.next_problem(whole, backwards=True)
    assert far.hop(17) == near.hop(17)
    assert far.request_texts().equals(near.request_texts())
    assert np.array_equal(far.request_durations_ns(), near.request_durations_ns())
    assert far.load.classes == near.load.classes


@pytest.mark.usefixtures("small_parts")
def test_opening_reads_a_little_and_a_request_a_little_more(far: TraceView) -> None:
    [size] = [file.getbuffer().nbytes for path, file in MemoryFileSystem.store.items() if path.endswith(".pack")]
    opened = bytes_read()
    far.requests(200)
    assert bytes_read() == opened
    far.spans(2)
    once = bytes_read()
    assert opened < once < opened + size / 4
    far.spans(2)
    assert bytes_read() == once


def test_a_small_index_is_read_with_its_head(far: TraceView) -> None:
    count = read_count(URL)
    assert count is not None
    [(name, size)] = [each for each in count.bytes_by_object if each[0].endswith(".pack")]
    assert size <= max(pack.FIRST_BYTES, len(MemoryFileSystem.store[f"/pack-test/trace/{name}"].getvalue()))


def test_a_trace_made_anew_has_another_index(far: TraceView, tmp_path: Path) -> None:
    fs, root = fsspec.core.url_to_fs(URL)
    document = json.loads(fs.cat_file(f"{root}/trace.json"))
    fs.pipe_file(f"{root}/trace.json", json.dumps(document | {"created_ns": 5}).encode())
    assert open_trace(URL).summary == far.summary
    assert len(list((tmp_path / "cache").rglob("stamp.json"))) == 1  # built here, since the one there is of another


@pytest.mark.parametrize("how", ["cut", "other", "empty"])
def test_a_damaged_index_is_not_used(far: TraceView, tmp_path: Path, how: str) -> None:
    [path] = [path for path in MemoryFileSystem.store if path.endswith(".pack")]
    whole = MemoryFileSystem.store[path].getvalue()
    damaged = {"cut": whole[:900], "other": b"twintap1" + b"\xff" * 900, "empty": b""}[how]
    fsspec.filesystem("memory").pipe_file(path, damaged)
    assert open_trace(URL).summary == far.summary
    assert len(list((tmp_path / "cache").rglob("stamp.json"))) == 1


def test_a_trace_on_disk_has_no_object(near: TraceView) -> None:
    publish_index(near.url)
    assert not list(Path(near.url).rglob("*.pack"))


@pytest.fixture
def objects() -> Objects:
    return Objects(URL, fsspec.filesystem("memory"), "/pack-test/trace")


@pytest.mark.usefixtures("small_parts")
def test_a_paged_array_answers_like_an_array(objects: Objects, tmp_path: Path) -> None:
    values = np.sort(np.random.default_rng(3).integers(0, 500, 1_000))
    shelf = Shelf(tmp_path)
    for name in pack.FENCED:
        shelf.put(name, values)
    shelf.put("grid", np.arange(3_000).reshape(1_000, 3))
    write_pack(objects, "index.pack", tmp_path)
    packed = PackedShelf(objects, "index.pack", None)
    array, grid = packed.array("anchor_ns"), packed.array("grid")
    assert isinstance(array, PagedArray)
    keys = [
        0,
        -1,
        999,
        slice(3, 9),
        slice(None),
        slice(5, 2),
        slice(10, 900, 90),
        slice(-4, None),
        np.array([7, 3, 998]),
    ]
    for key in (*keys, np.array([], np.intp), values > 400):
        assert np.array_equal(array[key], values[key])
        assert np.array_equal(grid[key], np.arange(3_000).reshape(1_000, 3)[key])
    assert np.array_equal(np.asarray(grid), np.arange(3_000).reshape(1_000, 3))
    for side in ("left", "right"):
        for each in range(-1, 502):
            assert np.searchsorted(array, each, side) == np.searchsorted(values, each, side)
        assert np.array_equal(np.searchsorted(array, (3, 70), side), np.searchsorted(values, (3, 70), side))
        assert np.array_equal(np.searchsorted(array, values, side), np.searchsorted(values, values, side))


def test_only_missing_pages_are_read(objects: Objects) -> None:
    objects.fs.pipe_file(objects.path("x"), bytes(range(256)) * 2_048)
    file = PagedFile(objects, "x", 256 * 2_048, None)
    file.read_pages(np.array([1, 2, 7]))
    assert (objects.count.bytes_count, objects.count.requests_count) == (3 * paged.PAGE_BYTES, 2)
    file.read_pages(np.array([2, 3]))
    assert objects.count.bytes_count == 4 * paged.PAGE_BYTES
    objects.fs.pipe_file(objects.path("x"), b"")
    with pytest.raises(InputError, match="cut off"):
        file.read_pages(np.array([0]))
    objects.fs.rm(objects.path("x"))
    with pytest.raises(InputError, match="was removed, or made anew, since it was opened"):
        file.read_pages(np.array([0]))


def test_threads_that_need_the_same_pages_read_them_once(objects: Objects) -> None:
    objects.fs.pipe_file(objects.path("x"), bytes(range(256)) * 2_048)
    file = PagedFile(objects, "x", 256 * 2_048, None)
    begin = threading.Barrier(8)

    def read_two(_: int) -> None:
        begin.wait()
        file.read_pages(np.array([1, 2]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_two, range(8)))
    assert objects.count.requests_count == 1


def test_an_index_without_room_is_the_operators(far: TraceView, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Shelf, "put", full)
    with pytest.raises(ResourceError, match=r"cannot write the index of the trace \(no space left.*set TMPDIR"):
        publish_index(URL)
    assert open_trace(URL).summary == far.summary
