"""Where the index of a trace is kept: found again, made anew when the trace has changed, never half there."""

import json
import os
import shutil
from pathlib import Path

import fsspec
import numpy as np
import polars as pl
import pytest

from collector.queries import open_trace, trace_index
from collector.queries.span_trees import STORED
from collector.queries.trace_index import TraceIndex, open_index
from collector.reporting.peers import PEERS
from collector.trace.reading import Trace
from collector.trace.table_store import INDEX_FOLDER
from collector.trace.writing import write_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace

RECIPE = Recipe(lost_share=0.05)


@pytest.fixture(autouse=True)
def files_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """However small a trace is, its index is kept."""
    monkeypatch.setattr(trace_index, "SMALL_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A small trace."""
    write_synthetic_trace(tmp_path / "trace", RECIPE)
    return tmp_path / "trace"


def index_and_progress(trace: Path) -> tuple[TraceIndex, list[float]]:
    """The index, and what was said of its making."""
    said: list[float] = []
    return open_index(Trace(str(trace)), Trace(str(trace)).info(), said.append), said


def test_the_index_is_made_once_beside_the_tables(trace: Path) -> None:
    first, said = index_and_progress(trace)
    assert said == sorted(said)
    assert said[-1] == 1
    assert (trace / INDEX_FOLDER / "stamp.json").exists()
    again, nothing = index_and_progress(trace)
    assert nothing == []
    assert again.facts == first.facts
    assert isinstance(again.hops.columns.anchor_ns, np.memmap)
    assert [path.name for path in trace.parent.iterdir() if "partial" in path.name] == []


@pytest.mark.parametrize(("more", "is_kept"), [(1, False), (0, True)])
def test_many_packets_are_not_indexed_in_memory_however_small_their_table(
    trace: Path, monkeypatch: pytest.MonkeyPatch, more: int, *, is_kept: bool
) -> None:
    monkeypatch.setattr(trace_index, "SMALL_BYTES", 1 << 30)
    monkeypatch.setattr(trace_index, "SMALL_ROWS", Trace(str(trace)).rows_count("hops") + more)
    index_and_progress(trace)
    assert (trace / INDEX_FOLDER).exists() == is_kept


def test_it_says_the_same_from_files_and_from_memory(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_and_progress(trace)
    from_files = open_trace(str(trace))
    monkeypatch.setattr(trace_index, "SMALL_BYTES", 1 << 30)
    from_memory = open_trace(str(trace))
    assert from_files.summary == from_memory.summary
    assert from_files.story == from_memory.story
    assert from_files.pairing == from_memory.pairing
    assert from_files.requests(9) == from_memory.requests(9)
    assert [from_files.spans(each) for each in range(3)] == [from_memory.spans(each) for each in range(3)]


def test_columns_that_are_empty_are_shown_and_take_no_room(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Trace(str(trace)).empty_columns("exchanges") | Trace(str(trace)).empty_columns("spans")
    assert {"tls_start_trace_ns", "result", "bucket"} <= empty
    without = index_and_progress(trace)[0].trees.frame
    stored = frozenset(pl.read_ipc_schema(trace / INDEX_FOLDER / "spans.arrow"))
    assert not stored & {*empty - {"pause_ns"}, *PEERS, "silent_from"}  # no pause is one of 0
    assert frozenset(without.columns) - stored >= (empty - {"pause_ns"}) & frozenset(STORED)
    shutil.rmtree(trace / INDEX_FOLDER)
    monkeypatch.setattr(Trace, "empty_columns", lambda *_: frozenset())
    whole = index_and_progress(trace)[0].trees.frame
    assert stored < frozenset(pl.read_ipc_schema(trace / INDEX_FOLDER / "spans.arrow"))
    assert len(whole) > 0
    assert without.select(sorted(without.columns)).equals(whole.select(sorted(without.columns)))
    assert without.schema == {name: whole.schema[name] for name in without.columns}


def test_a_trace_that_changed_is_indexed_anew(trace: Path) -> None:
    index_and_progress(trace)
    write_synthetic_trace(trace, Recipe(uploads_count=5))
    index, said = index_and_progress(trace)
    assert said
    assert len(index.trees) == 5
    os.utime(trace / "hops.parquet", ns=(1, 1))
    assert index_and_progress(trace)[1]
    assert not index_and_progress(trace)[1]


@pytest.mark.parametrize("what", ["stamp.json", "facts.json", "level-00.npy", "anchor_ns.npy", "spans.arrow"])
@pytest.mark.parametrize("how", ["cut", "gone", "other"])
def test_a_damaged_index_is_made_anew(trace: Path, what: str, how: str) -> None:
    index_and_progress(trace)
    path = trace / INDEX_FOLDER / what
    if how == "gone":
        path.unlink()
    elif how == "other":
        path.write_bytes(b'{"version": "1", "fingerprint": []}')
    else:
        path.write_bytes(path.read_bytes()[:70])
    index, said = index_and_progress(trace)
    assert said
    assert len(index.trees) == 3
    assert not index_and_progress(trace)[1]


def test_an_index_of_another_version_is_made_anew(trace: Path) -> None:
    index_and_progress(trace)
    stamp = trace / INDEX_FOLDER / "stamp.json"
    document = json.loads(stamp.read_text())
    stamp.write_text(json.dumps(document | {"version": document["version"] + 1}))
    assert index_and_progress(trace)[1]


def test_where_the_trace_cannot_be_written_the_index_is_in_the_cache(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != trace and access(path, mode))
    assert index_and_progress(trace)[1]
    assert not (trace / INDEX_FOLDER).exists()
    assert len(list((tmp_path / "cache").rglob("stamp.json"))) == 1
    assert not index_and_progress(trace)[1]


def test_where_nothing_can_be_written_it_is_made_each_time(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    for _ in range(2):
        index, said = index_and_progress(trace)
        assert said
        assert len(index.trees) == 3


def test_a_trace_with_an_index_is_replaced_like_any(trace: Path) -> None:
    index_and_progress(trace)
    with write_trace(str(trace)) as writer:
        writer.write_info(Trace(str(trace)).info())
    assert not (trace / INDEX_FOLDER).exists()


def test_a_trace_elsewhere_is_indexed_in_the_cache(trace: Path, tmp_path: Path) -> None:
    fs, root = fsspec.core.url_to_fs("memory://far/trace")
    for path in trace.iterdir():
        fs.pipe_file(f"{root}/{path.name}", path.read_bytes())
    view = open_trace("memory://far/trace")
    assert view.summary.requests_count == 3
    assert len(list((tmp_path / "cache").rglob("stamp.json"))) == 1


def test_an_index_lives_on_while_it_is_looked_at(trace: Path) -> None:
    view = open_trace(str(trace))
    before = view.summary
    shutil.rmtree(trace / INDEX_FOLDER)
    assert view.arrows(0, view.duration_ns, 1_000) is not None
    assert view.count(0, view.duration_ns + 1) == before.hops_count
