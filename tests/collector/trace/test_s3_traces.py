"""Traces on our own S3 gateway, as the commands write and read them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from collector.commands import export, replay, report
from collector.queries import open_trace, trace_index
from collector.trace import object_sink
from collector.trace.model import TraceInfo
from collector.trace.objects import objects_at, read_count
from collector.trace.reading import Trace
from collector.trace.schema import TABLES
from collector.trace.writing import write_trace
from testkit.loopback_store import CALM, LoopbackStore
from tests.helpers.s3_clients import client_of
from tests.helpers.unreliable_proxy import UnreliableProxy, unreliable_proxy
from tracer.errors import InputError, ResourceError, TracerError

CAPTURES = str(Path(__file__).parents[3] / "captures" / "bench-2-puts")
s3fs = pytest.importorskip("s3fs", reason="NOT TESTED: the extra `scale` is not installed")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackStore]:
    with LoopbackStore(tmp_path_factory.mktemp("store"), replicas=1, intervals=CALM) as running:
        yield running


@pytest.fixture
def client(store: LoopbackStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """boto3's client; the commands have the same endpoint and credentials from the environment."""
    gateway = store.topology.service("s3")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{gateway.address}:{gateway.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test:tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    forget_connections()
    yield client_of(store)
    forget_connections()


def forget_connections() -> None:
    s3fs.S3FileSystem.clear_instance_cache()
    objects_at.cache_clear()


def run(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_a_trace_is_made_reported_compared_and_exported(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_index, "SMALL_BYTES", 0)
    client.create_bucket(Bucket="made")
    url, near = "s3://made/a/trace", str(tmp_path / "trace")
    for place in (url, near, url):  # the last replaces the first
        assert run(replay.command, "--quiet", "-o", place, CAPTURES).exception is None
    reports = [run(report.command, place) for place in (url, near)]
    assert reports[0].stdout == reports[1].stdout
    assert f"requests from {url} (its tables:" in reports[0].stderr
    assert run(report.command, "--compare", url, near).exit_code == 0
    assert run(export.command, "--to", "csv", "-o", str(tmp_path / "csv"), url).exit_code == 0
    assert len(list((tmp_path / "csv").iterdir())) == len(TABLES)
    for prefix in ("a/trace/hops", "a/trace/.index/"):
        assert client.list_objects_v2(Bucket="made", Prefix=prefix)["KeyCount"] == 1
    assert open_trace(url).summary == open_trace(near).summary
    count = read_count(url)
    assert count is not None
    assert any(name.endswith(".pack") for name, _ in count.bytes_by_object)


def test_what_is_missing_or_denied_is_said_in_one_line(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_bucket(Bucket="empty")
    found = run(report.command, "s3://empty/trace").exception
    assert str(found) == "s3://empty/trace: no such trace; make one with: tracer replay -o TRACE CAPTURE…"
    for command in (run(report.command, "s3://none/t"), run(replay.command, "--quiet", "-o", "s3://none/t", CAPTURES)):
        assert str(command.exception) == "s3://none/t: no such bucket; make it first, or correct the URL"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-this-one")
    forget_connections()
    denied = run(report.command, "s3://empty/trace").exception
    assert isinstance(denied, InputError)
    assert "the store denies it: SignatureDoesNotMatch" in str(denied)
    assert "not-this-one" not in str(denied)


def test_an_upload_that_fails_midway_leaves_nothing(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_sink, "PART_BYTES", 5 << 20)
    client.create_bucket(Bucket="midway")
    values = np.random.default_rng(1).random(1_500_000)
    names = {name: pa.array([name] * len(values)).dictionary_encode() for name in ("host", "metric")}
    table = pa.table({"value": values, "host_ns": pa.array(np.arange(len(values)))} | names)

    def write_half() -> None:
        with write_trace("s3://midway/trace") as writer:
            writer.append("samples", table)
            assert client.list_multipart_uploads(Bucket="midway")["Uploads"]
            monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
            monkeypatch.setattr(s3fs.core.S3File, "_upload_chunk", failing)
            writer.finish("samples")
            writer.write_info(TraceInfo(created_ns=1, tool_version="0", hosts=()))

    def failing(*_: object, **__: object) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    with pytest.raises(TracerError, match="the connection broke, also when tried again"):
        write_half()
    assert "Uploads" not in client.list_multipart_uploads(Bucket="midway")
    assert "Contents" not in client.list_objects_v2(Bucket="midway")
    assert not Trace("s3://midway/trace").exists()
    assert fsspec.filesystem("s3").find("midway") == []


@pytest.fixture
def proxy(store: LoopbackStore, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreliableProxy]:
    """What the commands take for the store."""
    with unreliable_proxy(store.topology.service("s3").port) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", running.url)
        forget_connections()
        yield running


def test_what_is_busy_or_breaks_is_asked_again(client: Any, proxy: UnreliableProxy) -> None:
    client.create_bucket(Bucket="busy")
    with write_trace("s3://busy/trace") as writer:
        writer.write_info(TraceInfo(created_ns=7, tool_version="0", hosts=()))
    proxy.faults = ["busy", "cut", "busy"]
    assert Trace("s3://busy/trace").info().created_ns == 7
    assert proxy.faults == []


@pytest.mark.parametrize(
    ("fault", "message"), [("busy", "the store is too busy, also when asked again"), ("cut", "the connection broke")]
)
def test_what_stays_so_is_said_in_one_line(
    client: Any, proxy: UnreliableProxy, monkeypatch: pytest.MonkeyPatch, fault: str, message: str
) -> None:
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    client.create_bucket(Bucket=f"stays-{fault}")
    with write_trace(f"s3://stays-{fault}/trace") as writer:
        writer.write_info(TraceInfo(created_ns=7, tool_version="0", hosts=()))
    proxy.faults = [fault] * 99
    found = run(report.command, f"s3://stays-{fault}/trace").exception
    assert isinstance(found, ResourceError)
    assert message in str(found)
