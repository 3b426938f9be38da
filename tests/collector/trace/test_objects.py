"""A trace whose tables are objects: only what is asked for is read, all of it is counted, errors have a next step."""

import errno
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import botocore.exceptions as boto
import fsspec
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from fsspec.implementations.memory import MemoryFileSystem

from collector.commands import report
from collector.trace import object_tables, objects, parquet_store
from collector.trace.model import TraceInfo
from collector.trace.object_errors import object_errors
from collector.trace.objects import Objects, join_spans, objects_at, open_file_system, read_count
from collector.trace.reading import Trace
from collector.trace.writing import write_trace
from testkit.synthetic_trace import Recipe, write_synthetic_trace
from tracer.errors import InputError, MissingDependencyError, ResourceError, TracerError

URL = "memory://objects-test/trace"
INFO = TraceInfo(created_ns=1, tool_version="0", hosts=())


@pytest.fixture(autouse=True)
def nothing_there() -> Iterator[None]:
    """An empty store, and nothing counted yet."""
    yield
    MemoryFileSystem.store.clear()
    objects_at.cache_clear()


def samples_of(rows: int) -> pa.Table:
    stamps = pa.array(range(rows), pa.int64())
    names = {name: pa.array([name] * rows).dictionary_encode() for name in ("host", "metric")}
    return pa.table({"host_ns": stamps, "value": pa.array(np.random.default_rng(1).random(rows))} | names)


def save(rows: int, created_ns: int = 1) -> None:
    with write_trace(URL) as writer:
        writer.write_table("samples", samples_of(rows))
        writer.write_info(TraceInfo(created_ns=created_ns, tool_version="0", hosts=()))
    objects_at.cache_clear()


def names_there() -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in MemoryFileSystem.store)


def count_so_far() -> tuple[int, int]:
    found = read_count(URL)
    assert found is not None
    return found.bytes_count, found.requests_count


@pytest.mark.parametrize(
    ("spans", "joined"),
    [
        ([], []),
        ([(5, 5)], []),
        ([(100, 200), (0, 50)], [(0, 200)]),
        ([(0, 10), (10 + objects.GAP_BYTES + 1, 90_000)], [(0, 10), (65_547, 90_000)]),
        ([(0, 30), (5, 10)], [(0, 30)]),
        ([(0, objects.MOST_BYTES + 1)], [(0, objects.MOST_BYTES), (objects.MOST_BYTES, objects.MOST_BYTES + 1)]),
    ],
)
def test_close_ranges_are_one_and_long_ones_several(spans: Any, joined: Any) -> None:
    assert join_spans(spans) == joined


def test_one_column_of_one_group_is_read_and_the_footer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_store, "ROW_GROUP_ROWS", 20_000)
    monkeypatch.setattr(objects, "GAP_BYTES", 0)
    save(100_000)
    trace = Trace(URL)
    whole = trace.table_bytes("samples")
    assert whole > 5 * object_tables.TAIL_BYTES
    values = samples_of(100_000)["value"].to_pylist()
    before, _ = count_so_far()
    assert trace.rows_between("samples", ["value"], 30_000, 2)["value"].to_pylist() == values[30_000:30_002]
    first, requests = count_so_far()
    assert first - before < object_tables.TAIL_BYTES + whole / 5
    assert trace.rows_between("samples", ["value"], 50_000, 1)["value"].to_pylist() == values[50_000:50_001]
    assert count_so_far()[0] - first < whole / 5
    assert count_so_far()[1] == requests + 1


@pytest.mark.parametrize("at_once", [1, object_tables.AT_ONCE_BYTES])
def test_what_is_read_is_what_was_written(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(parquet_store, "ROW_GROUP_ROWS", 7_000)
    monkeypatch.setattr(object_tables, "AT_ONCE_BYTES", at_once)
    save(50_000)
    expected = samples_of(50_000)
    found = Trace(URL).read("samples")
    assert found.select(expected.column_names).to_pydict() == expected.to_pydict()
    assert Trace(URL).read("samples", ["value", "host"]).to_pydict() == expected.select(["value", "host"]).to_pydict()


def test_a_synthetic_trace_is_the_same_far_away(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "trace", Recipe())
    fs, root = fsspec.core.url_to_fs(URL)
    for path in (tmp_path / "trace").iterdir():  # as a copy by another tool: nothing says which objects there are
        fs.pipe_file(f"{root}/{path.name}", path.read_bytes())
    near, far = (CliRunner().invoke(report.command, [place]) for place in (str(tmp_path / "trace"), URL))
    assert near.exit_code == far.exit_code == 0
    assert near.stdout == far.stdout
    assert near.stderr == ""
    assert re.fullmatch(rf"read [0-9.]+ KB in [0-9]+ requests from {URL} \(its tables: [0-9.]+ KB\)\n", far.stderr)
    assert count_so_far()[0] < 3 * sum(path.stat().st_size for path in (tmp_path / "trace").iterdir())


def test_a_replaced_trace_is_whole_until_the_end() -> None:
    save(3)
    old = names_there()
    with write_trace(URL) as writer:
        writer.write_table("samples", samples_of(9))
        writer.write_info(INFO)
        assert Trace(URL).read("samples").num_rows == 3
    assert Trace(URL).read("samples").num_rows == 9
    assert set(old) & set(names_there()) == {"trace.json"}
    assert len(names_there()) == len(old)


def test_an_error_while_writing_keeps_the_old_trace() -> None:
    save(3)
    old = names_there()
    with pytest.raises(ZeroDivisionError), write_trace(URL) as writer:
        writer.write_table("samples", samples_of(9))
        writer.append("hops", Trace(URL).read("hops"))
        _ = 1 // 0
    assert names_there() == old
    assert Trace(URL).read("samples").num_rows == 3


def test_remains_of_a_killed_writer_are_no_trace_and_are_replaced() -> None:
    save(3)
    MemoryFileSystem.store.pop("/objects-test/trace/trace.json")
    assert not Trace(URL).exists()
    save(5)
    assert Trace(URL).read("samples").num_rows == 5
    assert len([name for name in names_there() if name.startswith("samples")]) == 1


def test_a_copy_of_a_replaced_trace_is_read_from_disk(tmp_path: Path) -> None:
    save(3)
    save(4, created_ns=2)
    for path, file in MemoryFileSystem.store.items():
        (tmp_path / path.rsplit("/", 1)[1]).write_bytes(file.getvalue())
    assert Trace(str(tmp_path)).read("samples").num_rows == 4


def test_an_object_that_ends_early_is_named() -> None:
    save(100_000)
    [path] = [path for path in MemoryFileSystem.store if "samples" in path]
    MemoryFileSystem.store[path].truncate(1_000)
    with pytest.raises(InputError, match=r"samples\.parquet is (cut off|damaged)"):
        Trace(URL).read("samples")


@pytest.mark.parametrize("name", ["../other/samples.parquet", "samples.txt", 3])
def test_the_document_leads_nowhere_else(name: object) -> None:
    save(3)
    file = MemoryFileSystem.store["/objects-test/trace/trace.json"]
    document = json.loads(file.getvalue())
    document["objects"]["samples"]["name"] = name
    fsspec.filesystem("memory").pipe_file("/objects-test/trace/trace.json", json.dumps(document).encode())
    assert Trace(URL).read("samples").num_rows == 3  # by the table's own name


def client_error(code: str) -> boto.ClientError:
    return boto.ClientError({"Error": {"Code": code}}, "GetObject")


def with_code(error: Exception, code: str) -> Exception:
    error.__cause__ = client_error(code)
    return error


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (with_code(FileNotFoundError(), "NoSuchBucket"), InputError, "no such bucket; make it first"),
        (boto.NoCredentialsError(), InputError, "no credentials are set.*AWS_ACCESS_KEY_ID"),
        (boto.ProfileNotFound(profile="x"), InputError, "no credentials are set"),
        (with_code(PermissionError(), "AccessDenied"), InputError, "the store denies it: AccessDenied.*AWS_PROFILE"),
        (
            boto.EndpointConnectionError(endpoint_url="http://h:1/b/k?secret=1"),
            ResourceError,
            r"\(http://h:1 cannot be reached\); check AWS_ENDPOINT_URL",
        ),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), ResourceError, "the store cannot be reached"),
        (with_code(OSError(errno.EBUSY, "slow"), "SlowDown"), ResourceError, "too busy.*try again later"),
        (boto.ResponseStreamingError(error="x"), ResourceError, "the connection broke.*run the command again"),
        (aiohttp.ClientPayloadError("x"), ResourceError, "the connection broke"),
        (TimeoutError(), ResourceError, "the connection broke"),
        (boto.ParamValidationError(report="Bucket"), InputError, "no name of a bucket"),
        (OSError(errno.EINVAL, "odd\nsecond line"), ResourceError, r"odd\)"),
    ],
)
def test_each_error_of_a_store_says_what_to_do(error: Exception, kind: type[TracerError], message: str) -> None:
    with pytest.raises(kind, match=message) as raised, object_errors("s3://b/t"):
        raise error
    assert "secret" not in str(raised.value)


def test_an_absent_object_is_the_callers() -> None:
    with pytest.raises(FileNotFoundError), object_errors("s3://b/t"):
        raise with_code(FileNotFoundError(), "NoSuchKey")


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="contains a password") as raised:
        Trace("https://me:hidden@host/trace").info()
    assert "hidden" not in str(raised.value)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingDependencyError, match=r"Install s3fs.*; run: .*scale\]'"):
        open_file_system("s3://bucket/trace")


def test_an_error_of_one_range_is_raised() -> None:
    class Failing(MemoryFileSystem):
        def cat_ranges(self, *_: Any, **__: Any) -> list[Any]:
            return [b"12345", with_code(OSError(errno.EINVAL, "range"), "InvalidRange")]

    with pytest.raises(InputError, match=r"its object hops\.parquet is cut off"):
        Objects(URL, Failing(), "/x").read("hops.parquet", [(0, 5), (10**6, 10**6 + 5)])


def test_a_server_that_knows_no_ranges_is_named() -> None:
    class Whole(MemoryFileSystem):
        def cat_ranges(self, *_: Any, **__: Any) -> list[Any]:
            return [b"0123456789"]

    with pytest.raises(InputError, match="sends whole files where ranges of bytes are asked for"):
        Objects(URL, Whole(), "/x").read("hops.parquet", [(0, 5)])


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[str]:
    """A web server of this folder; it answers ranges as far as a table is short."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_trace_is_read_by_http_and_not_written(tmp_path: Path, web_server: str) -> None:
    write_synthetic_trace(tmp_path / "trace", Recipe(uploads_count=1))
    near, far = Trace(str(tmp_path / "trace")), Trace(f"{web_server}/trace")
    assert far.info() == near.info()
    assert far.read("clocks").equals(near.read("clocks"))
    with pytest.raises(InputError, match="no such trace"):
        Trace(f"{web_server}/none").info()
    with pytest.raises(InputError, match="can be read by HTTP, not written"), write_trace(f"{web_server}/new"):
        pass
    with pytest.raises(ResourceError, match=r"the store cannot be reached\); check the URL"):
        Trace("http://127.0.0.1:1/trace").info()
