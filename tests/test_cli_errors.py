"""The command line on bad input, end to end: one line that says what to do, exit status 2, nothing half-written.

Of cases that differ in their input alone some are run by processes of their own, as a user does, others in this one.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from testkit import upload_captures
from tests.helpers.command_line import run_here

TRACER = [sys.executable, "-m", "tracer"]
SECONDS = 60

ON_SMALL_DISK = """
mount -t tmpfs -o size=48k none "$1" || exit 99
at=$1 listing=$2
shift 2
"$@"
status=$?
ls -A "$at" >"$listing"
exit $status
"""


def run(*arguments: str | Path, prefix: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run `tracer …` as a user does: a process of its own."""
    command = [*prefix, *TRACER, *map(str, arguments)]
    return subprocess.run(command, text=True, capture_output=True, timeout=SECONDS, check=False)


def assert_refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Exit status 2 and one line that names what is wrong and, after a semicolon, what to do."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, f"wanted one line, got:\n{done.stderr}"
    assert done.returncode == 2
    assert lines[0].startswith("tracer: ")
    assert "; " in lines[0], "says what is wrong, but not what to do"
    for part in said:
        assert part in lines[0]


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> upload_captures.Captures:
    return upload_captures.write(tmp_path_factory.mktemp("captures"), 10_000)


@pytest.fixture(scope="module")
def trace(captures: upload_captures.Captures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "good"
    done = run_here("replay", "-o", path, captures.client, captures.server)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


# Files


def test_truncated_capture_is_used_and_its_loss_is_shown(captures: upload_captures.Captures, tmp_path: Path) -> None:
    cut = tmp_path / "server.pcap"
    whole = captures.server.read_bytes()
    cut.write_bytes(whole[: len(whole) // 2 - 7])
    done = run("replay", "-o", tmp_path / "trace", captures.client, cut)
    assert done.returncode == 0, done.stderr
    assert "capture truncated" in done.stdout
    assert "capture truncated" in run_here("report", tmp_path / "trace").stdout
    info = json.loads((tmp_path / "trace" / "trace.json").read_text())
    counter = next(one for one in info["counters"] if one["name"] == "capture_truncated")
    assert (counter["host"], counter["severity"], counter["count"]) == ("server", "data_loss", 1)


NO_CAPTURES = {
    "text": b"This is a letter, not a capture.\n" * 10,
    "empty": b"",
    "zip": b"PK\x03\x04" + bytes(100),
    "header only, cut": struct.pack("<I", 0xA1B2C3D4) + b"\x02\x00",
}


@pytest.mark.parametrize("content", NO_CAPTURES.values(), ids=NO_CAPTURES)
def test_a_file_that_is_no_capture(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.pcap").write_bytes(content)
    assert_refused(run_here("replay", "-o", tmp_path / "trace", tmp_path / "notes.pcap"), "notes.pcap")
    assert left_in(tmp_path) == ["notes.pcap"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert_refused(run("replay", "-o", tmp_path / "trace", tmp_path / "gone.pcap"), "gone.pcap")
    assert left_in(tmp_path) == []


def test_a_directory_without_captures(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert_refused(run_here("replay", "-o", tmp_path / "trace", tmp_path / "in"))
    assert left_in(tmp_path) == ["in"]


@pytest.mark.parametrize("command", ["report", "view", "export", "query"])
@pytest.mark.parametrize("content", [None, "{", '{"format_version": 999999}'], ids=["no trace.json", "broken", "newer"])
def test_a_directory_that_is_no_trace(
    command: str, content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "trace.json").write_text(content)
    before = left_in(tmp_path)
    extra = {"view": ["--no-browser"], "export": ["--to", "csv"], "query": ["FROM hosts"]}.get(command, [])
    monkeypatch.chdir(tmp_path)
    run_it = run if content is None else run_here
    assert_refused(run_it(command, tmp_path, *extra))
    assert left_in(tmp_path) == before


def test_a_trace_that_is_there_already_is_not_spoilt(trace: Path, tmp_path: Path) -> None:
    shutil.copytree(trace, tmp_path / "trace")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "trace").rglob("*")}
    (tmp_path / "notes.pcap").write_bytes(b"not a capture" * 10)
    assert_refused(run_here("replay", "-o", tmp_path / "trace", tmp_path / "notes.pcap"), "notes.pcap")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "trace").rglob("*")} == before


# The machine


@pytest.mark.parametrize(
    "arguments",
    [("record", "--", "true"), ("cluster", "status"), ("cluster", "exec", "client", "--", "true")],
    ids=" ".join,
)
def test_no_cluster_is_up(arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINTAP_CLUSTER_DIR", str(tmp_path / "cluster"))
    monkeypatch.chdir(tmp_path)
    run_it = run_here if "exec" in arguments else run
    assert_refused(run_it(*arguments), "tracer cluster up")
    assert left_in(tmp_path) == []


def test_a_missing_interface(tmp_path: Path) -> None:
    prefix = _namespace()
    assert_refused(run("capture", "-i", "nosuch0", "--write", tmp_path / "out", prefix=prefix), "nosuch0")
    assert left_in(tmp_path) == []


def test_no_permission_to_capture(tmp_path: Path) -> None:
    prefix = ["setpriv", "--bounding-set", "-net_raw,-net_admin"] if os.geteuid() == 0 else []
    assert_refused(run("capture", "-i", "lo", "--write", tmp_path / "out", prefix=prefix))
    assert left_in(tmp_path) == []


def test_a_filter_that_does_not_compile(tmp_path: Path) -> None:
    done = run("capture", "-i", "lo", "--write", tmp_path / "out", "tcp port nonsense", prefix=_namespace())
    assert_refused(done, "nonsense")
    assert left_in(tmp_path) == []


def test_port_in_use_by_another_when_viewing(trace: Path, used_port: int) -> None:
    assert_refused(run("view", trace, "--listen", f"127.0.0.1:{used_port}", "--no-browser"), str(used_port))


def test_port_in_use_by_another_when_collecting(used_port: int, tmp_path: Path) -> None:
    assert_refused(run("collect", "--data", tmp_path / "data", "--listen", f"127.0.0.1:{used_port}"), str(used_port))


def test_full_disk_when_replaying(captures: upload_captures.Captures, tmp_path: Path) -> None:
    done, left = _run_on_small_disk(
        tmp_path, "replay", "--quiet", "-o", tmp_path / "trace", captures.client, captures.server
    )
    assert_refused(done)
    assert left == []


def test_an_output_that_cannot_be_written(captures: upload_captures.Captures) -> None:
    assert_refused(run("replay", "-o", "/proc/trace", captures.client, captures.server), "/proc")


def _namespace() -> list[str]:
    """Argument prefix that gives a network of our own, with the right to capture; skips aloud where there is none."""
    prefix = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    return _prefix_or_skip(prefix)


def _run_on_small_disk(folder: Path, *arguments: str | Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run with `folder` on a file system of 48 KiB; returns also what the command left there."""
    mine = ["--user", "--map-root-user"] if os.geteuid() else []
    prefix = _prefix_or_skip(["unshare", *mine, "--mount"])
    listing = folder.parent / "left"
    done = run(*arguments, prefix=[*prefix, "sh", "-c", ON_SMALL_DISK, "sh", str(folder), str(listing)])
    if done.returncode == 99:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    return done, listing.read_text().split()


def _prefix_or_skip(prefix: list[str]) -> list[str]:
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"`{' '.join(prefix)}` is not allowed here")
    return prefix
