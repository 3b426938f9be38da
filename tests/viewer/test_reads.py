"""A trace on an object store in the viewer: what was read is shown, and a store that does not answer says why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from collector.queries import TraceView, open_trace, trace_index
from collector.queries.trace_index import publish_index
from collector.trace.objects import objects_at, read_count
from testkit.synthetic_trace import Recipe, write_long_synthetic_trace
from viewer.app import create_app
from viewer.layout import head
from viewer.serialise import element_trees

URL = "memory://reads-test/trace"


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TraceView]:
    """A trace that is objects, with its index."""
    monkeypatch.setattr(trace_index, "SMALL_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_long_synthetic_trace(URL, Recipe(uploads_count=400), 100)
    publish_index(URL)
    objects_at.cache_clear()
    yield open_trace(URL)
    MemoryFileSystem.store.clear()
    objects_at.cache_clear()


def test_each_answer_says_what_was_read(far: TraceView) -> None:
    client = create_app(far).server.test_client()
    client.get("/api/requests/300/arrows", base_url="http://localhost")
    answer = client.get("/api/reads", base_url="http://localhost")
    count = read_count(URL)
    assert count is not None
    assert answer.headers["X-Twintap-Read"] == f"read {count.words}"
    assert answer.json["bytes_count"] == count.bytes_count == sum(size for _, size in answer.json["bytes_by_object"])
    assert answer.json["stored_bytes"] == far.stored.stored_bytes()
    assert f"read {count.words}" in str(element_trees(head(far)))


def test_completing_words_reads_nothing_before_a_search_has(far: TraceView) -> None:
    client = create_app(far).server.test_client()

    def words(text: str) -> list[str]:
        answer = client.get(f"/api/search/words?q={text}", base_url="http://localhost").json
        return [each["text"] for each in answer]

    before = read_count(URL)
    assert words("host:") == []
    assert words("outcome:f") == ["outcome:failed"]
    assert read_count(URL) == before
    assert client.get("/api/search?q=put", base_url="http://localhost").json["requests"] == 400
    assert "host:proxy" in words("host:")


def test_a_trace_on_disk_says_nothing_of_reads(small_trace: TraceView) -> None:
    client = create_app(small_trace).server.test_client()
    assert "X-Twintap-Read" not in client.get("/api/overview", base_url="http://localhost").headers
    assert client.get("/api/reads", base_url="http://localhost").status_code == 404


def test_a_store_that_does_not_answer_is_said_with_the_reason(far: TraceView, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    client = create_app(far).server.test_client()
    monkeypatch.setattr(MemoryFileSystem, "cat_ranges", refuse)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", refuse)
    answer = client.get("/api/hops/3", base_url="http://localhost")
    assert answer.status_code == 503
    assert "the store cannot be reached" in answer.text
    monkeypatch.undo()
    assert client.get("/api/hops/3", base_url="http://localhost").status_code == 200
