"""Captures at URLs are analysed as local ones, and are called by their URLs."""

import json
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner

from collector.commands import replay
from collector.trace.reading import Trace
from tests.collector.analysis.test_shared_places import contents
from tracer.errors import TracerError

BUNDLED = Path(__file__).resolve().parents[3] / "captures" / "bench-2-puts"


@pytest.fixture
def store() -> Iterator[str]:
    """The bundled captures, in a folder of a store of objects."""
    fs = fsspec.filesystem("memory")
    for path in BUNDLED.iterdir():
        if path.is_file():
            fs.pipe_file(f"/captures/today/{path.name}", path.read_bytes())
    yield "memory://captures/today"
    fs.rm("/captures", recursive=True)


def replay_to(place: Path, *arguments: str) -> TracerError | None:
    error = CliRunner().invoke(replay.command, ["--quiet", "-o", str(place), *arguments]).exception
    assert error is None or isinstance(error, TracerError)
    return error


def test_a_folder_at_a_url_gives_the_trace_of_a_local_one(tmp_path: Path, store: str) -> None:
    assert replay_to(tmp_path / "near", str(BUNDLED)) is None
    assert replay_to(tmp_path / "far", store) is None
    near, far = contents(tmp_path / "near"), contents(tmp_path / "far")
    files = [file for host in far["trace.json"]["hosts"] for file in host["files"]]
    assert sorted(files) == sorted(f"{store}/{path.name}" for path in BUNDLED.glob("*.pcapng"))
    there = json.dumps(near.pop("trace.json")).replace(f"{BUNDLED}/", f"{store}/")
    assert json.dumps(far.pop("trace.json")) == there
    assert far == near
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "near"]


def test_a_file_at_a_url_may_be_of_a_named_host(tmp_path: Path, store: str) -> None:
    assert replay_to(tmp_path / "trace", f"web={store}/client.pcapng", str(BUNDLED / "proxy.pcapng")) is None
    hosts = {host.host: host.files for host in Trace(str(tmp_path / "trace")).info().hosts}
    assert hosts == {"web": (f"{store}/client.pcapng",), "proxy": (str(BUNDLED / "proxy.pcapng"),)}


def test_errors_name_the_url(tmp_path: Path, store: str) -> None:
    fsspec.filesystem("memory").pipe_file("/captures/today/bad.pcap", b"no capture at all")
    (error,) = [replay_to(tmp_path / "trace", f"{store}/bad.pcap")]
    assert f"{store}/bad.pcap is " in str(error)
    assert str(tmp_path) not in str(error)
    for url in (f"{store}/absent.pcap", "memory://nothing"):
        assert f"{url} holds no capture; give capture files" in str(replay_to(tmp_path / "trace", url))
    assert "nosuch://a" in str(replay_to(tmp_path / "trace", "nosuch://a/b.pcap"))
    for url in ("http://127.0.0.1:1/a.pcap", "https://nosuch.invalid/a.pcap"):
        assert f"{url}: cannot read the capture (" in str(replay_to(tmp_path / "trace", url))
    assert list(tmp_path.iterdir()) == []


def test_a_file_url_is_its_path(tmp_path: Path) -> None:
    assert replay_to(tmp_path / "trace", f"file://{BUNDLED}") is None
    (files, *_) = [host.files for host in Trace(str(tmp_path / "trace")).info().hosts]
    assert files == (str(BUNDLED / "client.pcapng"),)
