"""`tracer view`: what the operator can get wrong is one line that says what to do."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from collector.queries import TraceView
from tracer.errors import InputError, ResourceError, TracerError
from viewer.commands import QUIET_SECONDS, command, is_loopback, parse_listen, progress_printer


def error_of(*argv: str) -> BaseException | None:
    return CliRunner().invoke(command, list(argv)).exception


def test_what_is_no_trace_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    error = error_of(str(tmp_path), "--no-browser")
    assert isinstance(error, InputError)
    assert "notes.txt" in str(error)
    assert "\n" not in str(error)


def test_a_file_of_warp_as_a_run_names_the_command_that_makes_one(small_trace: TraceView, tmp_path: Path) -> None:
    (tmp_path / "warp-get.csv.zst").write_bytes(b"")
    error = error_of(small_trace.url, "--bench", str(tmp_path / "warp-get.csv.zst"), "--no-browser")
    assert isinstance(error, InputError)
    assert "tracer bench import" in str(error)


def test_a_port_in_use_names_another(small_trace: TraceView) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = error_of(small_trace.url, "--listen", f"127.0.0.1:{port}", "--no-browser")
    assert isinstance(error, ResourceError)
    assert f"--listen 127.0.0.1:{port + 1}" in str(error)


def test_a_port_in_use_is_reported_before_an_index_is_made(
    small_trace: TraceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewer.commands.open_trace", lambda *_: pytest.fail("opened all the same"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = error_of(small_trace.url, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--no-browser")
    assert isinstance(error, ResourceError)


def test_that_an_index_is_made_is_reported_once_where_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0.0, 0.1, QUIET_SECONDS + 1, QUIET_SECONDS + 2])
    monkeypatch.setattr(
        "viewer.commands.time", SimpleNamespace(monotonic=lambda: next(seconds))
    )  # other threads' goes on
    report = progress_printer()
    report(0.1)
    assert capsys.readouterr().err == ""
    for share in (0.2, 0.9, 1.0):
        report(share)
    assert capsys.readouterr().err.count("making the index") == 1


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"])
def test_beyond_this_machine_only_with_a_token(small_trace: TraceView, listen: str) -> None:
    error = error_of(small_trace.url, "--listen", listen, "--no-browser")
    assert isinstance(error, TracerError)
    assert "--token" in str(error)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8765", "127.0.0.1", 8765), ("[::1]:0", "::1", 0), ("localhost:1", "localhost", 1)],
)
def test_where_to_listen(text: str, host: str, port: int) -> None:
    assert parse_listen(text) == (host, port)
    assert is_loopback(host)


@pytest.mark.parametrize("text", ["", "8765", "127.0.0.1", ":80", "127.0.0.1:x", "127.0.0.1:99999"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="ADDR:PORT"):
        parse_listen(text)
